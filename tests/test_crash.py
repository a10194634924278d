"""A process that dies at any operation of a run leaves nothing that a reader sees, and the next run makes it good.

Only changes are crash points: between two of them a dead process and one that stopped before its next change are the same. That
reads make no difference is itself tested for one configuration.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import quire
import sim
from quire.commit import names, protocol
from quire.errors import QuireError
from quire.storage import memory
from quire.storage.local import LocalStore

FORMS: dict[str, dict[str, Any]] = {
    "lines": {"transform": "lines", "target_size": 250},
    "raw+gzip": {"transform": "raw", "compression": "gzip", "target_size": 80},
    "parquet": {"transform": "raw", "format": "parquet", "planner": "directory", "target_size": "64 KiB"},
    "xml": {"transform": "xml", "target_size": 100},
}
CASES = [(form, committer) for form in FORMS for committer in ("rename", "rename_v2")]


def fill(tree: sim.Tree, transform: str) -> None:
    """Twelve files in three directories: an empty one, one without a newline at its end, one longer than the target; XML: broken ones."""
    for i in range(12):
        name = f"d{i % 3}/f{i:02}"
        if transform == "xml":
            tree.put(f"{name}.xml", f"<d n='{i}'><v>{i * i}</v></d>".encode() if i % 4 else b"" if i == 4 else b"<d n='%d'>BROKEN" % i)
        else:
            long = 300 if i == 7 else 30 if i % 2 else 60
            tree.put(f"{name}.txt", b"" if i == 4 else f"file {i:02} line\n".encode() * (long // 12) + (b"the end" if i == 5 else b""))


@pytest.fixture
def tree() -> Iterator[sim.Tree]:
    sim.forget_all()
    yield sim.Tree()
    sim.forget_all()


def gather(form: str, committer: str) -> Callable[[], quire.Report]:
    return lambda: quire.consolidate(sim.SOURCE, sim.DEST, spark=quire.InProcess(), progress=False, committer=committer, **FORMS[form])


def empty_destination() -> None:
    with memory._lock:
        for path in [p for p in memory._objects if p.startswith(sim.DEST + "/")]:
            del memory._objects[path]


def watched(committer: str, seed: int = 0) -> sim.World:
    world = sim.World(seed)
    world.watched[sim.DEST] = sim.Observer(sim.DEST, leaks=committer == "rename_v2")
    return world


def changes(form: str, committer: str, tree: sim.Tree) -> int:
    """How many changes an undisturbed run makes."""
    transform = FORMS[form]["transform"]
    fill(tree, transform)
    world, actor = watched(committer), sim.Actor(only=sim.first_writes())
    with world.installed():
        assert sim.run(world, actor, gather(form, committer)) is None
    log = sim.check(tree, transform)
    assert sum(len(e["tasks"]) for e in log.outcome.values()) >= 3
    return actor.counted


@pytest.mark.parametrize(("form", "committer"), CASES)
def test_crash_then_run(form: str, committer: str, tree: sim.Tree) -> None:
    """Dead at every change, before, in and after it; then another run."""
    n, work = changes(form, committer, tree), gather(form, committer)
    for k in range(1, n + 1):
        for how in ("before", "torn", "after") if k == 1 else ("torn", "after"):
            empty_destination()
            world, dead = watched(committer), sim.Actor("dead", {k: how}, only=sim.first_writes())
            with world.installed():
                try:
                    assert isinstance(sim.run(world, dead, work), sim.Crash)
                    with world.acting(sim.Actor("next")):
                        work()
                    sim.check(tree, FORMS[form]["transform"])
                except Exception as e:
                    raise AssertionError(f"{how} change {k} ({dead.hit}): {e}\n{world.told()}") from e


@pytest.mark.parametrize(("form", "committer"), CASES)
def test_crash_then_give_up(form: str, committer: str, tree: sim.Tree) -> None:
    """Dead at every change, then recover(abort="open"): nothing of an undecided job is seen or left; the next run gathers all."""
    n, work = changes(form, committer, tree), gather(form, committer)
    for k in range(1, n + 1):
        empty_destination()
        world, dead = watched(committer), sim.Actor("dead", {k: "after"}, only=sim.first_writes())
        with world.installed():
            try:
                assert isinstance(sim.run(world, dead, work), sim.Crash)
                with world.acting(sim.Actor("recover")):
                    protocol.recover(world.store(sim.DEST), "open")
                log = sim.check(tree, FORMS[form]["transform"], all_taken=False)
                there = [name for name in sim.objects(sim.DEST) if not name.startswith(names.LOG)]
                assert bool(there) == any(e["kind"] == "commit" for e in log.entries), there
                with world.acting(sim.Actor("next")):
                    report = work()
                assert report.jobs or there
                sim.check(tree, FORMS[form]["transform"])
            except Exception as e:
                raise AssertionError(f"after change {k} ({dead.hit}): {e}\n{world.told()}") from e


def test_crash_at_reads_too(tree: sim.Tree) -> None:
    """Every operation of a run counts, reads and listings as well."""
    form, committer = "lines", "rename"
    changes(form, committer, tree)
    work, k = gather(form, committer), 0
    while True:
        k += 1
        empty_destination()
        world, dead = watched(committer), sim.Actor("dead", {k: "before"}, of_changes=False)
        with world.installed():
            if sim.run(world, dead, work) is None:
                break
            with world.acting(sim.Actor("next")):
                work()
            sim.check(tree, "lines")
    assert k > 80


@pytest.mark.parametrize("committer", ["rename", "rename_v2"])
def test_crash_in_recovery_too(committer: str, tree: sim.Tree) -> None:
    """Dead at change k, the next one dead at its change j, a third one ends it: a sample of the pairs."""
    rng = random.Random(11)
    ns = {form: changes(form, committer, tree) for form in ("lines",)}
    for _ in range(150):
        form = rng.choice(list(ns))
        work, k, j = gather(form, committer), rng.randint(1, ns[form]), rng.randint(1, ns[form])
        hows = [rng.choice(("after", "torn")) for _ in range(2)]
        empty_destination()
        world = watched(committer, k)
        with world.installed():
            try:
                assert isinstance(sim.run(world, sim.Actor("first", {k: hows[0]}), work), sim.Crash)
                recover = rng.random() < 0.3
                second = functools.partial(protocol.recover, world.store(sim.DEST), "open") if recover else work
                sim.run(world, sim.Actor("second", {j: hows[1]}), second)
                with world.acting(sim.Actor("third")):
                    work()
                sim.check(tree, "lines")
            except Exception as e:
                raise AssertionError(f"changes {k} and {j} {hows}: {e}\n{world.told()}") from e


@pytest.mark.parametrize("fault", ["ambiguous", "transient", "late"])
@pytest.mark.parametrize(("form", "committer"), [("lines", "rename"), ("xml", "rename_v2")])
def test_wrong_answers(form: str, committer: str, fault: str, tree: sim.Tree) -> None:
    """One write, at each place, is answered by an error, though it happened, did not, or happens later."""
    n, work = changes(form, committer, tree), gather(form, committer)
    for k in range(1, n + 1):
        empty_destination()
        world, actor = watched(committer, k), sim.Actor("unlucky", {k: fault})
        with world.installed():
            try:
                with world.acting(actor), suppress(QuireError):
                    work()  # it may give up, with what it did safe
                world.land(everything=True)
                with world.acting(sim.Actor("next")):
                    work()
                world.land(everything=True)
                sim.check(tree, FORMS[form]["transform"])
            except Exception as e:
                raise AssertionError(f"{fault} at change {k} ({actor.hit}): {e}\n{world.told()}") from e


def test_crash_on_disk(tmp_path: Path) -> None:
    """The same on local disk, with its temporary files and directories: a sample of the changes."""
    source, rng = tmp_path / "in", random.Random(5)
    for i in range(12):
        (source / f"d{i % 3}").mkdir(parents=True, exist_ok=True)
        (source / f"d{i % 3}" / f"f{i:02}.txt").write_text(f"file {i:02} line\n" * (i + 1))
    wanted = sorted(line for i in range(12) for line in [f"file {i:02} line"] * (i + 1))
    n = 10_000
    for run in range(16):
        dest = tmp_path / f"out{run}"
        world = sim.World(run)
        actor = sim.Actor("dead", {rng.randint(1, n): rng.choice(("after", "torn"))} if run else {})

        def work(dest: Path = dest) -> None:
            quire.consolidate(source, dest, spark=quire.InProcess(), progress=False, target_size=300)

        with world.installed():
            sim.run(world, actor, work)
            n = n if run else actor.counted
            with world.acting(sim.Actor("next")):
                work()
        store = LocalStore(str(dest))
        files = [e.name for e in store.walk() if not e.name.startswith("_quire/")]
        assert sorted(b"".join(store.get(name) for name in files).decode().splitlines()) == wanted
        assert {"jobs", "ledger", "log", "tmp"} >= {p.name for p in (dest / "_quire").iterdir()}
        left = sorted(p.relative_to(dest) for where in ("jobs", "tmp") for p in (dest / "_quire" / where).rglob("*"))
        assert not left, f"{actor.hit}: {left}\n{world.told()}"
