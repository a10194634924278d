"""An explicit-state model checker for the archive of the log: docs/protocol.md, section 3.

`model.py` takes a look at the log for one step. Here it is what it is: GET after GET, then the archive, and between any two of them an actor may sleep
while others write, archive and delete. Each `yield` is one request to the store; a put may be late. Breadth-first over all interleavings, and a
violation is printed with the shortest trace.

  log_model.py                 the protocol in all scenarios, then every mistake once (each must be caught)

Checked in every state: the entry that was the first one under its number is what every reader has there, before and after it is archived, no
writer is done before its entry is one of them, once, and a reader that asks the archive has all that was there when it began.
"""

from __future__ import annotations

import dataclasses
import sys
from collections import deque
from collections.abc import Callable, Generator
from typing import Any

Step = tuple[Any, ...]
Actor = tuple[str, tuple[Any, ...], tuple[Any, ...]]  # its program, what that begins with, and what the store has answered since


@dataclasses.dataclass(frozen=True)
class Config:
    """Who acts: `actors` are (program, job); `block` entries are archived together; so many puts may be late."""

    name: str
    actors: tuple[tuple[str, str], ...]
    block: int = 1
    late: int = 1
    seed: int = 0  # entries that are there
    bug: str = ""


@dataclasses.dataclass(frozen=True)
class World:
    """What is in the store; `truth` is not: the first entry of each number."""

    slots: tuple[tuple[int, str], ...] = ()
    archive: tuple[tuple[int, tuple[str, ...]], ...] = ()
    merged: tuple[str, ...] = ()  # the entries that the newest checkpoint stands for
    truth: tuple[str, ...] = ()
    late: tuple[tuple[int, str], ...] = ()  # puts that take effect at any time, or never
    left: int = 0  # how many may be late yet
    actors: tuple[Actor | None, ...] = ()


G: Config = Config("", ())


def bug(name: str) -> bool:
    return G.bug == name


def last_of(number: int) -> int:
    return -(-number // G.block) * G.block


# ------------------------------------------------------------------------------------------------------------------ the protocol
def refresh(held: tuple[str, ...], *, glances: bool = False) -> Generator[Step, Any, tuple[str, ...]]:
    """Read on from what is held to the tip; `glances`: where nothing has come, as it was is good enough, and the archive is not asked."""
    while True:
        first, found, early = len(held) + 1, (), None
        if bug("archive_asked_first"):
            early = yield ("archived", last_of(first))
        while True:
            entry = yield ("get", first + len(found))
            if entry is None:
                break
            found += (entry,)
        if (glances or bug("archive_asked_for_entries")) and not found:
            return held
        block = early
        if not (bug("archive_not_asked") or bug("archive_asked_first") or (bug("archive_asked_for_holes") and found)):
            block = yield ("archived", last_of(first))
        if block is None:
            return held + found
        held += block[first - 1 - last_of(first) :]


def writer(job: str, held: tuple[str, ...]) -> Generator[Step, Any, Any]:
    """Append: read to the tip; what is wanted is there: stop; put it behind the tip; whatever the answer: again."""
    held = yield from refresh(held)
    yield ("holds", held)
    if job in held:
        return ("done", job)
    answer = yield ("pia", len(held) + 1, job)
    if answer == "ok" and bug("archive_trust_put"):
        return ("done", job)
    return ("become", "writer", (job, held))


def caller(job: str) -> Generator[Step, Any, Any]:
    """One that reads to the tip, reads on in its call, and appends."""
    held = yield from refresh(())
    held = yield from refresh(held, glances=True)
    yield ("holds", held)
    return ("become", "writer", (job, held))


def reader(_: str) -> Generator[Step, Any, Any]:
    """One that has held the log from its beginning on, and wants to know all that it says now."""
    least = yield ("length",)
    held = yield from refresh(())
    yield ("holds", held, least)
    return ("end",)


def opener(job: str) -> Generator[Step, Any, Any]:
    """One that opens the log: the checkpoint, then what has come since."""
    held = yield ("merged",)
    held = yield from refresh(held)
    yield ("holds", held)
    return ("become", "writer", (job, held)) if job else ("end",)


def archiver(_: str) -> Generator[Step, Any, Any]:
    """Archive what a checkpoint stands for, block after block, in their order."""
    held = yield from refresh(())
    yield ("holds", held)
    yield ("merge", held)
    lasts = range(G.block, len(held) + 1, G.block)
    for last in reversed(lasts) if bug("archive_newest_first") else lasts:
        numbers = range(last - G.block + 1, last + 1)
        if bug("deleted_before_archived"):
            for number in numbers:
                yield ("delete", number)
        yield ("archive", last, held[last - G.block : last])
        for number in numbers:
            yield ("delete", number)
    return ("end",)


def rearchiver(_: str) -> Generator[Step, Any, Any]:
    """One that archives what lies under the numbers, as if it were the first."""
    found: tuple[str, ...] = ()
    while True:
        entry = yield ("get", len(found) + 1)
        if entry is None:
            break
        found += (entry,)
    for last in range(G.block, len(found) + 1, G.block):
        yield ("archive", last, found[last - G.block : last])
    return ("end",)


PROGRAMS: dict[str, Callable[..., Generator[Step, Any, Any]]] = {
    "writer": writer, "caller": caller, "reader": reader, "opener": opener, "archiver": archiver, "rearchiver": rearchiver,
}  # fmt: skip


# --------------------------------------------------------------------------------------------------------------------- the store
def put(world: World, number: int, entry: str) -> tuple[World, str]:
    """Put if absent; the first entry of a number is the truth."""
    if any(at == number for at, _ in world.slots):
        return world, "exists"
    assert number <= len(world.truth) + 1, "an entry behind a hole"
    truth = (*world.truth, entry) if number > len(world.truth) else world.truth
    return dataclasses.replace(world, slots=tuple(sorted((*world.slots, (number, entry)))), truth=truth), "ok"


def answers(world: World, step: Step) -> list[tuple[World, Any]]:
    """What a request may do and give."""
    kind = step[0]
    if kind == "get":
        return [(world, dict(world.slots).get(step[1]))]
    if kind == "archived":
        return [(world, dict(world.archive).get(step[1]))]
    if kind == "merged":
        return [(world, world.merged)]
    if kind == "length":
        return [(world, len(world.truth))]
    if kind == "merge":
        merged = step[1] if len(step[1]) > len(world.merged) else world.merged
        return [(dataclasses.replace(world, merged=merged), None)]
    if kind == "delete":
        return [(dataclasses.replace(world, slots=tuple(x for x in world.slots if x[0] != step[1])), None)]
    if kind == "archive":
        there = dict(world.archive)
        if step[1] not in there or bug("archived_again"):
            there[step[1]] = step[2]
        return [(dataclasses.replace(world, archive=tuple(sorted(there.items()))), None)]
    if kind == "holds":
        return [(world, None)]
    found = [put(world, step[1], step[2])]
    if world.left:
        found.append((dataclasses.replace(world, left=world.left - 1, late=tuple(sorted((*world.late, step[1:])))), "timeout"))
    return found


def next_of(actor: Actor) -> tuple[Step | None, Any]:
    """The next request of an actor; or how it has ended."""
    run = PROGRAMS[actor[0]](*actor[1])
    try:
        step = next(run)
        for answer in actor[2]:
            step = run.send(answer)
    except StopIteration as e:
        return None, e.value
    return step, None


def wrong(world: World, step: Step) -> str | None:
    """What a request shows that must not be."""
    if step[0] == "holds" and step[1] != world.truth[: len(step[1])]:
        return f"a reader has {step[1]}, and the log is {world.truth}"
    if step[0] == "holds" and len(step) > 2 and len(step[1]) < step[2]:
        return f"a reader has {step[1]}, and the log had {step[2]} entries when it began"
    return None


def broken(world: World) -> str | None:
    """What must never be in a store."""
    archive = dict(world.archive)
    for number, entry in enumerate(world.truth, 1):
        block = archive.get(last_of(number))
        if block is not None and block[(number - 1) % G.block] != entry:
            return f"the archive has another entry {number} than the log had"
        if block is None and dict(world.slots).get(number) != entry:
            return f"entry {number} is nowhere"
    return None


def successors(world: World) -> list[tuple[str, World, str | None]]:
    """All that may happen next: its name, what is there then, and what is wrong."""
    found: list[tuple[str, World, str | None]] = []
    for i, (number, entry) in enumerate(world.late):
        after, _ = put(dataclasses.replace(world, late=world.late[:i] + world.late[i + 1 :]), number, entry)
        found.append((f"a late put of {entry} at {number}", after, None))
    for i, actor in enumerate(world.actors):
        if actor is None:
            continue
        step, _ = next_of(actor)
        assert step is not None
        for after, answer in answers(world, step):
            moved: Actor | None = (*actor[:2], (*actor[2], answer))
            assert moved is not None
            ahead, end = next_of(moved)
            why = wrong(world, step)
            if ahead is None:
                moved = (end[1], end[2], ()) if end[0] == "become" else None
                if end[0] == "done" and after.truth.count(end[1]) != 1:
                    why = why or f"the writer of {end[1]} is done, and the log has it {after.truth.count(end[1])} times"
            actors = (*world.actors[:i], moved, *world.actors[i + 1 :])
            found.append((f"{actor[0]} {i}: {step} → {answer!r}", dataclasses.replace(after, actors=actors), why))
    return found


def check(config: Config, most: int) -> tuple[int, str | None, list[str]]:
    """How many states there are, what is wrong, and the shortest way there."""
    global G
    G = config
    seed = tuple(f"s{i}" for i in range(config.seed))
    actors = tuple((program, (job, ()) if program == "writer" else (job,), ()) for program, job in config.actors)
    begin = World(slots=tuple(enumerate(seed, 1)), truth=seed, left=config.late, actors=actors)
    came: dict[World, tuple[World, str] | None] = {begin: None}
    ahead = deque([begin])
    while ahead:
        world = ahead.popleft()
        for name, after, why in successors(world):
            why = why or broken(after)
            if why is not None:
                return len(came), why, [*trace(came, world), name]
            if after not in came:
                came[after] = world, name
                ahead.append(after)
                if len(came) > most:
                    return len(came), "LIMIT: more states than that", []
    return len(came), None, []


def trace(came: dict[World, tuple[World, str] | None], world: World) -> list[str]:
    found: list[str] = []
    while (before := came[world]) is not None:
        world, name = before
        found.append(name)
    return found[::-1]


SCENARIOS = (
    Config("a writer sleeps while others archive", (("writer", "a"), ("writer", "b"), ("archiver", ""))),
    Config("two archivers and a late put", (("writer", "a"), ("archiver", ""), ("archiver", "")), seed=1),
    Config("two entries together", (("writer", "a"), ("writer", "b"), ("archiver", "")), block=2, seed=1),
    Config("one that opens it beside them", (("writer", "a"), ("opener", "b"), ("archiver", "")), seed=1),
    Config("one that reads on in its call", (("writer", "a"), ("caller", "b"), ("archiver", ""))),
    Config("one that has held it for long", (("writer", "a"), ("reader", ""), ("archiver", "")), seed=2),
    Config("a reader beside two late puts", (("writer", "a"), ("opener", ""), ("archiver", "")), seed=2, late=2, block=2),
)
ONE = SCENARIOS[0]
BUGS = {
    "archive_not_asked": ("a reader trusts what lies under the numbers", ONE),
    "archive_asked_first": ("it asks the archive before the numbers", ONE),
    "archive_asked_for_holes": ("it asks the archive only where it finds nothing", ONE),
    "archive_asked_for_entries": ("a reader asks it only where it finds something", dataclasses.replace(SCENARIOS[5], late=0)),
    "archive_trust_put": ("a writer trusts the answer to its put", ONE),
    "deleted_before_archived": ("entries go before the archive has them", ONE),
    "archive_newest_first": ("later entries are archived before earlier ones", dataclasses.replace(ONE, seed=2)),
    "archived_again": ("an archive is put over another", dataclasses.replace(ONE, actors=(*ONE.actors, ("rearchiver", "")))),
}


def main() -> int:
    """Check all of it."""
    ok = True
    for config in SCENARIOS:
        states, why, way = check(config, 5_000_000)
        print(f"{'ok ' if why is None else 'BAD'} {config.name}: {states:,} states", *([why, *way] if why else ()), sep="\n    ")
        ok &= why is None
    for name, (what, config) in BUGS.items():
        states, why, way = check(dataclasses.replace(config, bug=name), 5_000_000)
        caught = why is not None and not why.startswith("LIMIT")
        print(f"{'ok ' if caught else 'BAD'} {name} ({what}): {states:,} states", *([why, *way] if caught and why else ()), sep="\n    ")
        ok &= caught
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
