"""The verbs of a ledger, killed anywhere: tails of files that are written to meanwhile, rewritten files, forget, retry, compact, expire,
functions that reject records, checkpoints; and claims, by which a user's own job says what it has done.

What is there is read by the log alone, without quire: data files that commits bring, less those that they remove. At every moment no line
is there twice; when all has come to rest, the lines are those of the source.
"""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from moments import CLEAN_UP, IN_A_TASK, JOB_COMMIT, PUBLISHED, RENAMES, TASK_COMMIT
from processes import Driver
from story import Story, told
from tale import Count, _lines

import quire
from sim.witness import Log

if TYPE_CHECKING:
    from tale import Tale

PROGRAM = """
import json, sys, quire
said = json.loads(sys.argv[1])
verb, given, how = said["settings"]["verb"], said["settings"]["given"], {"spark": quire.LocalRunner(), "progress": False}

def parsed(content, file):
    if b"!" in content and verb != "retry":
        raise ValueError("a line that it cannot read")
    return content

def picked(split, content):
    kept, at = [], 0
    for line in content.splitlines(True):
        if b"!" in line and verb != "retry":
            split.quarantine(line, "a line that it cannot read", at)
        else:
            kept.append(line)
        at += len(line)
    return kept and b"".join(line.removesuffix(b"\\n") + b"\\n" for line in kept) or b""

functions = {"parsed": parsed, "picked": picked}
if verb == "run" and "split" in given:
    quire.process(said["source"], said["dest"], picked, max_quarantined=1000, **how, **given)
elif verb == "run":
    given["transform"] = functions.get(given["transform"], given["transform"])
    quire.consolidate(said["source"], said["dest"], max_quarantined=1000, **how, **given)
elif verb == "expire":
    quire.Ledger(said["dest"]).expire()
elif verb == "checkpoint":
    quire.Ledger(said["dest"]).checkpoint(spark=how["spark"])
elif verb == "retry":
    quire.Ledger(said["dest"]).retry(said["source"], function=functions[given["function"]], max_quarantined=1000, **how)
elif verb == "forget":
    try:
        quire.Ledger(said["dest"]).forget(given["path"], **how)
    except quire.UsageError as e:  # somebody else was faster, or one who was killed
        assert "not in the ledger" in str(e), e
else:
    getattr(quire.Ledger(said["dest"]), verb)(**how, **given)
print("done")
"""
TAILS = {"transform": "lines", "on_append": "tail", "on_change": "reprocess", "target_size": "6000 B"}
PARSED = {"transform": "parsed", "function_version": "1", "target_size": "6000 B"}
PICKED = {"split": "lines", "split_size": "300 B", "format": "lines", "function_version": "1", "target_size": "6000 B"}
FOLLOWED = {**PICKED, "on_append": "tail", "on_change": "reprocess"}
CLAIM = """
import json, os, re, sys, quire
said = json.loads(sys.argv[1])
here = lambda url: url.removeprefix("file://")
try:
    with quire.Ledger(said["dest"], create=True).claim(said["source"], progress=False, spark=quire.LocalRunner()) as c:
        paths = c.splits.column("path").to_pylist()
        for i in range(0, len(paths), 5):
            os.makedirs(here(c.path), exist_ok=True)
            with open(f"{here(c.path)}/part-{i}.txt", "wb") as out:
                for path in paths[i : i + 5]:
                    with open(here(path), "rb") as file:
                        content = file.read()
                    out.write(content and content.removesuffix(b"\\n") + b"\\n")
except quire.QuireError as e:  # two claims on the same splits: the first that ends has them
    if not re.fullmatch(said["settings"]["given"]["loser"], str(e)):
        raise
print("done")
"""
LOSER = (
    r"(another claim on the same \d+ splits from \S+ on has ended first|others have processed splits of this claim in the meantime: .*)\. "
    r"Nothing that this block has written is visible; claim again for what is left\."
)
CARDS = [*IN_A_TASK, *TASK_COMMIT[2:], *JOB_COMMIT, *RENAMES, *PUBLISHED, *CLEAN_UP]  # in the block, in the commit, in publish
KILLS = 10  # of a story


class Writer:
    """Appends to the files of a source, in pieces that end anywhere, makes new ones, and sometimes writes one anew. No line is twice.

    `odd`: how many of the lines no function can read before it is repaired.
    """

    def __init__(self, source: Path, rng: random.Random, odd: float) -> None:
        self.source, self.rng, self.number, self.odd = source, rng, 0, odd
        self.stopped = threading.Event()
        self.waiting = dict[Path, bytes]()  # the ends of lines that are not written yet

    def step(self) -> None:
        path = self.source / f"d{self.rng.randrange(3)}" / f"{self.rng.randrange(20)}.log"
        path.parent.mkdir(exist_ok=True)
        self.number += 1
        lines = b"".join(
            b"line %d.%d%s %s\n" % (self.number, i, b"!" * (self.rng.random() < self.odd), b"x" * self.rng.randrange(200))
            for i in range(self.rng.randrange(1, 5))
        )
        if self.rng.random() < 0.03 and path.exists():
            new = self.source / ".new"
            new.write_bytes(lines)
            new.rename(path)
            self.waiting.pop(path, None)
            return
        lines = self.waiting.pop(path, b"") + lines
        cut = self.rng.randrange(1, len(lines)) if self.rng.random() < 0.3 else len(lines)
        if cut < len(lines):
            self.waiting[path] = lines[cut:]
        with path.open("ab") as file:
            file.write(lines[:cut])

    def finish(self) -> None:
        """Write the ends of all lines."""
        for path, rest in self.waiting.items():
            with path.open("ab") as file:
                file.write(rest)
        self.waiting.clear()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Write beside what the block does."""
        self.stopped.clear()

        def work() -> None:
            while not self.stopped.wait(0.03):
                self.step()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            self.stopped.set()
            thread.join()


class Kept(Story):
    """A destination that is looked after."""

    def __init__(self, name: str, base: Path, tale: Tale, settings: dict[str, Any]) -> None:
        super().__init__(name, base, tale, settings)
        self.settings = settings
        self.grows = "on_append" in settings
        self.writer = Writer(self.source, self.rng, 0.2 if settings is FOLLOWED else 0)

    def live(self) -> Counter[bytes]:
        """The lines that a reader of the log sees."""
        there = dict[str, bytes]()
        while (path := self.dest / (name := f"_quire/log/{len(there) + 1:020d}.entry")).exists():
            there[name] = path.read_bytes()
        # The parts of an entry are there before it is.
        there |= {f"_quire/log/parts/{path.name}": path.read_bytes() for path in (self.dest / "_quire/log/parts").glob("*.rows")}
        log = Log(there)
        written = dict.fromkeys(file["name"] for task in log.tasks(only_published=True) for file in task["data_files"])
        removed = log.removed(only_published=True)
        live = [name for name in written if name not in removed]
        return Counter(line for name in live for line in _lines(name, (self.dest / name).read_bytes()))

    def count(self) -> Count:
        wanted = Counter(line for path in self.source.rglob("*.log") for line in path.read_bytes().splitlines())
        found = self.live()
        size = sum(path.stat().st_size for path in self.source.rglob("*.log"))
        return Count((wanted - found).total(), (found - wanted).total(), len(list(self.source.rglob("*.log"))), size)

    def hold(self, settled: bool) -> None:
        """What is left over, when all is settled: nothing but the log and the ledger."""
        if settled:
            left = [str(p) for kind in ("jobs", "tmp") for p in (self.dest / "_quire" / kind).rglob("*") if p.is_file()]
            assert not left, f"left over: {left[:5]}"

    def driver(self, verb: str, **given: Any) -> Driver:
        """One who does one thing."""
        settings = {"verb": verb, "given": self.settings if verb == "run" else given}
        return Driver(self.place, settings, program=CLAIM if verb == "claim" else PROGRAM)

    def once(self, verb: str) -> Driver:
        """A driver for a verb, with what it needs."""
        if verb == "forget":
            return self.driver(verb, path=str(self.rng.choice(sorted(self.source.rglob("*.log")))))
        needed: dict[str, dict[str, Any]] = {"compact": {"target_size": "20000 B"}, "retry": self.function, "claim": {"loser": LOSER}}
        return self.driver(verb, **needed.get(verb, {}))

    @property
    def function(self) -> dict[str, str]:
        """The one whose repaired edition a retry is given."""
        return {"function": "picked" if "split" in self.settings else "parsed"}

    def ends(self) -> list[tuple[str, dict[str, Any]]]:
        """What takes all that is there."""
        run = self.settings | ({"partial_lines": "take"} if self.grows else {})  # last lines, too
        if not run:
            return [("claim", {"loser": LOSER})]
        return [("run", run), *([] if self.settings is TAILS else [("retry", self.function)]), ("run", run)]

    def nothing_twice(self) -> None:
        """Whatever is under way: a reader of the log sees no line twice."""
        twice = [line for line, n in self.live().items() if n > 1]
        assert not twice, f"{self.name}, seed {self.tale.seed}: {len(twice)} lines are there twice: {twice[:3]}"

    def recover(self, by: str = "run") -> Count:
        """Go on where the killed ones stopped, to the end."""
        self.writer.finish()
        for verb, given in self.ends():
            last = Driver(self.place, {"verb": verb, "given": given}, program=CLAIM if verb == "claim" else PROGRAM)
            try:
                last.end()
            finally:
                last.kill()
        quire.recover(self.dest, abort="open")
        return self.check(by)


@contextmanager
def kept(name: str, base: Path, tale: Tale, settings: dict[str, Any]) -> Iterator[Kept]:
    with told(Kept(name, base / name.replace(" ", "-"), tale, settings)) as made:
        yield made


def _story(s: Kept, verbs: list[str], kills: int, write: Any) -> int:
    """Verbs in turns, each killed somewhere, some beside a run; the source is written to all the time."""
    struck = 0
    write()
    first = s.driver("run")
    first.end()
    for number in range(kills):
        write()
        s.calls = 150
        s.order("call")
        with ExitStack() as all_ended:
            drivers = [s.once(verbs[number % len(verbs)])]
            all_ended.callback(drivers[0].kill)
            if s.rng.random() < 0.4:
                drivers.append(s.driver("run"))
                all_ended.callback(drivers[1].kill)
            if s.grows:
                all_ended.enter_context(s.writer.at_work())
            killed = s.strike(drivers, "call")
            struck += killed is not None
            for other in drivers:
                if other is not killed:
                    other.end()
        s.nothing_twice()
        if s.rng.random() < 0.4:
            s.recover(f"a run to the end, after {verbs[number % len(verbs)]}")
    s.recover("a run to the end")
    return struck


def _parsed_files(s: Kept) -> Any:
    """New files, some of which the function of the job cannot read."""

    def write() -> None:
        for _ in range(s.rng.randint(5, 15)):
            s.waves += 1
            mark = "!" if s.rng.random() < 0.3 else ""
            path = s.source / f"d{s.rng.randrange(3)}" / f"{s.waves}.log"
            path.parent.mkdir(exist_ok=True)
            text = "".join(f"file {s.waves} line {i}{mark} {'x' * s.rng.randrange(200)}\n" for i in range(s.rng.randrange(1, 5)))
            (s.source / ".new").write_text(text)
            os.rename(s.source / ".new", path)

    return write


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_verbs_that_are_killed_beside_a_writer_who_appends(tmp_path: Path, tale: Tale) -> None:
    """Every line once, though files grow, and are written anew, while jobs read them and die."""
    struck = 0
    for number in range(4):
        with kept(f"tails {number}", tmp_path, tale, TAILS) as s:
            struck += _story(s, ["run", "compact", "forget", "run", "expire"], KILLS, lambda s=s: [s.writer.step() for _ in range(40)])
    assert struck >= 20


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_retries_that_are_killed(tmp_path: Path, tale: Tale) -> None:
    """What a repaired function can read is there once, whoever died on the way."""
    struck = 0
    for number in range(3):
        with kept(f"repairs {number}", tmp_path, tale, PARSED) as s:
            struck += _story(s, ["run", "retry", "compact", "retry", "expire"], KILLS, _parsed_files(s))
    assert struck >= 15


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_functions_that_are_killed(tmp_path: Path, tale: Tale) -> None:
    """What a function makes of lines is there once, what it rejects is there once when it is repaired, and a checkpoint changes nothing."""
    struck, verbs = 0, ["run", "retry", "checkpoint", "run", "compact", "retry", "expire"]
    for number in range(2):
        with kept(f"functions {number}", tmp_path, tale, PICKED) as s:
            struck += _story(s, verbs, KILLS, _parsed_files(s))
        with kept(f"functions on tails {number}", tmp_path, tale, FOLLOWED) as s:
            struck += _story(s, verbs, KILLS, lambda s=s: [s.writer.step() for _ in range(40)])
    assert struck >= 20


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_claims_that_are_killed(tmp_path: Path, tale: Tale) -> None:
    """A user's own job dies in its block, in the commit or in publish, some beside another claim: its output is there once, whole."""
    struck = 0
    for number in range(2):
        with kept(f"claims {number}", tmp_path, tale, {}) as s:
            write = _parsed_files(s)
            for card in s.rng.sample(CARDS, len(CARDS)):
                write()
                s.order(card)
                with ExitStack() as all_ended:
                    drivers = [s.once("claim") for _ in range(s.rng.choice((1, 1, 2)))]
                    for one in drivers:
                        all_ended.callback(one.kill)
                    killed = s.strike(drivers, card)
                    struck += killed is not None
                    for other in drivers:
                        if other is not killed:
                            other.end()
                s.nothing_twice()
                if s.rng.random() < 0.4:
                    s.recover("a claim to its end")
            s.recover("a claim to its end")
    assert struck >= 15
