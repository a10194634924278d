"""The simulator itself: what a power cut leaves of the local store's writes, kinds of stores that must be found out, shrinking."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from test_pitfalls import A, B, committed, covered

import matrix
import sim
from matrix import COMMITTERS, PIPELINES
from quire.commit.entries import Commit, Published, Spec
from quire.commit.log import Log
from quire.errors import StorageError
from quire.storage import memory
from quire.storage.local import LocalStore
from sim import races
from sim.races import Driver, Race, Step
from sim.ways import Case, Finding

CUTS = range(5)  # a cut that leaves some is drawn so many times


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    sim.forget_all()
    yield
    sim.forget_all()


# ------------------------------------------------------------------------------- what a power cut leaves of one write
Work = Callable[[LocalStore], object]
Look = Callable[[LocalStore, bool], None]  # the store after the cut; whether the work was answered


def _nothing(store: LocalStore) -> None:
    pass


def after_power_cuts(tmp_path: Path, work: Work, look: Look, prepare: Work = _nothing, killed: Work = _nothing) -> int:
    """Cut the power before each system call of `work`, and after the last; everything that `prepare` does is durable.

    `killed` goes before as another process that was killed at its end, so that nothing of it needs to be durable.
    """
    cuts = 0
    for left in sim.LEFT:
        for seed in CUTS if left == "some" else (0,):
            k = 0
            while True:
                k += 1
                where = tmp_path / f"{left}{seed}-{k}"
                where.mkdir()
                world = sim.World(seed + 100 * k, kind=sim.KINDS["disk"])
                actor = sim.Actor("writer", {k: f"power: {left}"})
                with sim.Disk(str(where), world).installed() as disk:
                    world.disk = disk
                    (where / "dest").mkdir()
                    disk.top.now["dest"] = disk.top.safe["dest"] = type(disk.top)()
                    prepare(LocalStore(f"{disk.root}/dest"))
                    disk.keep()
                    killed(LocalStore(f"{disk.root}/dest"))
                    store = LocalStore(f"{disk.root}/dest")
                    answered = sim.run(world, actor, lambda store=store: work(store)) is None
                    if answered:
                        world.power_cut(left)
                    try:
                        look(store, answered)
                    except AssertionError as e:
                        raise AssertionError(f"cut before call {k}, left: {left}: {e}\n{world.told()}") from e
                cuts += 1
                if answered:
                    break
    return cuts


def content(store: LocalStore, name: str) -> bytes | None:
    return None if store.stat(name) is None else store.get(name)


def whole(name: str, data: bytes, before: bytes | None = None) -> Look:
    """Whole or not at all; and there, if the writer was told so."""

    def look(store: LocalStore, answered: bool) -> None:
        there = content(store, name)
        assert there == data if answered else there in (before, data)

    return look


@pytest.mark.nth(2)
@pytest.mark.parametrize("write", ["put", "put_if_absent"])
@pytest.mark.parametrize("name", ["object", "new/folder/object"])
def test_written_is_whole_and_lasts(tmp_path: Path, write: str, name: str) -> None:
    assert after_power_cuts(tmp_path, lambda store: getattr(store, write)(name, b"content" * 9), whole(name, b"content" * 9)) > 40


def test_a_put_over_another(tmp_path: Path) -> None:
    after_power_cuts(
        tmp_path, lambda store: store.put("a", b"new"), whole("a", b"new", b"old"), prepare=lambda store: store.put("a", b"old")
    )


def test_who_finds_the_name_taken_finds_it_after_a_power_cut(tmp_path: Path) -> None:
    """The winner was killed before it had made the name durable; the loser acts on what is there."""

    def killed(store: LocalStore) -> None:
        with store_killed_before_the_last_fsync(store):
            store.put_if_absent("log/a", b"winner")

    def look(store: LocalStore, answered: bool) -> None:
        there = content(store, "log/a")
        assert there == b"winner" if answered else there in (None, b"winner")

    after_power_cuts(tmp_path, lambda store: store.put_if_absent("log/a", b"loser"), look, killed=killed)


def test_who_finds_it_published_finds_it_after_a_power_cut(tmp_path: Path) -> None:
    """The first publisher was killed between the rename and its fsync; the second finds the source gone and the target there."""

    def killed(store: LocalStore) -> None:
        with store_killed_before_the_last_fsync(store):
            store.rename("wait/a", "a")

    def work(store: LocalStore) -> None:
        try:
            store.rename("wait/a", "a")
        except StorageError:
            assert store.stat("a") is not None

    def look(store: LocalStore, answered: bool) -> None:
        assert not answered or content(store, "a") == b"data"

    after_power_cuts(tmp_path, work, look, prepare=lambda store: store.put("wait/a", b"data"), killed=killed)


def test_what_is_put_into_a_directory_of_another_lasts(tmp_path: Path) -> None:
    """The other one was killed between the mkdir and its fsync; nobody can see that its name may be gone after a power cut."""

    def killed(store: LocalStore) -> None:
        with store_killed_before_the_last_fsync(store):
            store.put("jobs/1/a", b"one")

    def look(store: LocalStore, answered: bool) -> None:
        assert not answered or content(store, "jobs/1/b") == b"two"

    after_power_cuts(tmp_path, lambda store: store.put("jobs/1/b", b"two"), look, killed=killed)


class store_killed_before_the_last_fsync:  # noqa: N801 - reads as what it does
    """The fsyncs of directories do not come about, as if the process had been killed before them."""

    def __init__(self, store: LocalStore) -> None:
        pass

    def __enter__(self) -> None:
        from quire.storage import durable

        self.durable: Any = durable
        self.before, self.durable.sync_folder = durable.sync_folder, lambda _path: None

    def __exit__(self, *_: object) -> None:
        self.durable.sync_folder = self.before


def test_a_closed_file_lasts(tmp_path: Path) -> None:
    def work(store: LocalStore) -> None:
        sink = store.create("attempts/1/file")
        sink.write(b"one ")
        sink.write(b"two")
        sink.close()

    def look(store: LocalStore, answered: bool) -> None:
        assert not answered or content(store, "attempts/1/file") == b"one two"

    after_power_cuts(tmp_path, work, look)


@pytest.mark.parametrize("target", ["file", "d=1/file"])
def test_a_rename_loses_nothing(tmp_path: Path, target: str) -> None:
    """The file is under one name at least at any moment, and under the new one when the rename has been answered."""

    def look(store: LocalStore, answered: bool) -> None:
        old, new = content(store, "wait/1/file"), content(store, target)
        assert b"data" in (old, new)
        assert not answered or (new == b"data" and old is None)

    after_power_cuts(tmp_path, lambda s: s.rename("wait/1/file", target), look, prepare=lambda s: s.put("wait/1/file", b"data"))


def test_the_disk_does_forget(tmp_path: Path) -> None:
    """What is written past the store, without a sync, is lost, and so the tests above do say something."""
    from quire.storage import local

    def work(store: LocalStore) -> None:
        fd = local.os.open(f"{store.root}/a", local.os.O_CREAT | local.os.O_WRONLY)
        local.os.write(fd, b"data")
        local.os.close(fd)

    with pytest.raises(AssertionError, match="left: lost"):
        after_power_cuts(tmp_path, work, whole("a", b"data"))


# -------------------------------------------------------------------------------------- stores that no quire may work on
RUN = Step("run")


def found(kind: sim.Kind, seeds: int, drivers: tuple[Driver, ...] = (Driver("A", (RUN,)), Driver("B", (RUN,)))) -> tuple[Race, str]:
    """The first race that fails, and what it says."""
    for seed in range(seeds):
        race = Race(seed, "lines", COMMITTERS["rename"], kind, drivers, sticky=0.5)
        try:
            races.once(race)
        except Finding as e:
            return race, str(e)
    return pytest.fail("nothing was found")


def test_a_store_that_copies_and_deletes_is_found_out() -> None:
    """Half a file under a final name, though the log says that it is published: a slow second publisher copies it again."""
    assert re.search("is not whole|missing", found(sim.UNFIT["copies"], 300)[1])


def test_a_store_that_looks_first_is_found_out() -> None:
    """Two writers find a name free, and both put: an entry or a manifest is rewritten."""
    assert re.search("rewrote|manifest", found(sim.UNFIT["looks first"], 300)[1])


def test_what_fails_is_made_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of drivers, steps, faults, sleeps and edits only what the failure needs is left, with a line that can be kept."""

    def once(race: Race) -> None:  # two runs at once fail, in every third schedule
        steps = [step.kind for driver in race.drivers for step in driver.steps]
        if race.seed % 3 == 0 and sum("run" in [s.kind for s in d.steps] for d in race.drivers) > 1:
            raise Finding("two drivers" + "\n" * (len(steps) + len(race.edits) + 30 - race.seed % 10))

    monkeypatch.setattr(races, "once", once)
    drivers = (
        Driver("A", (Step("recover"), RUN), ((44, "transient"),)),
        Driver("B", (RUN, RUN), sleeps=7),
        Driver("C", (Step("discard"),), sleeps=3),
    )
    race = Race(3, "lines", COMMITTERS["rename"], sim.KINDS["adls"], drivers, ((9, 1, "remove"),), sticky=0.5, split_listings=True)
    with pytest.raises(Finding, match="To keep it") as caught:
        races.play(race)
    line = str(caught.value).splitlines()[-1].strip(" ,")
    spec = {"Race": Race, "Driver": Driver, "Step": Step, "KINDS": sim.KINDS, "COMMITTERS": COMMITTERS}
    less = eval(line, spec)
    assert less.drivers == (Driver("A", (RUN,)), Driver("B", (RUN,)))
    assert (less.edits, less.split_listings) == ((), False)
    assert less.seed % 3 == 0
    with pytest.raises(Finding, match="two drivers"):
        races.play(less, shrink=False)


# ------------------------------------------------------------------------------------- what only a mutant showed to be open
def test_settled_is_looked_for_down_to_where_it_holds() -> None:
    """commit 1, commit 2, published 1: version 1 is not settled either, since its `published` comes after it."""
    spec = Spec(transform="lines", format="lines", compression="none", layout="flat")
    jobs = [f"0-{n:016x}" for n in (1, 2)]
    log = Log(memory.MemoryStore("memory://nowhere"))
    for job in jobs:
        log._take(Commit(job=job, base=0, committer="rename", spec=spec, time="", tasks=(), dropped=(), left=(), parts=None, closer=""))
    log._take(Published(job=jobs[0], time="", lost=()))
    assert (log.tip, log.settled_version()) == (3, 0)
    log._take(Published(job=jobs[1], time="", lost=()))
    assert (log.settled_version(), log.settled_version(3)) == (4, 0)


@pytest.mark.parametrize("committer", list(COMMITTERS))
def test_a_zombie_that_died_early_leaves_nothing_for_ever(committer: str) -> None:
    """Its job is over and cleaned; it has written a segment, and with rename_v2 its file, and no manifest."""
    by = COMMITTERS[committer]
    case = Case(PIPELINES["few"], by, next(kind for kind in sim.KINDS.values() if matrix.fit(by, kind))).fill()
    with case.world() as world:
        case.must(world, "run", case.work(world))
        (job,) = case.check(world).outcome
        store = memory.MemoryStore(world.dest)
        for k, name in enumerate([f"_quire/ledger/{job}-0-{'a' * 12}.rows", f"part-{job}-0-{'b' * 12}-0.txt"]):
            if k == 0 or case.by.leaks:
                store.put(name, b"zombie")
                case.must(world, "recover", case.recover(world))
                case.check(world)


def test_the_rows_of_a_removed_file_leave() -> None:
    with sim.World().installed() as world:
        store = world.store(sim.DEST)
        _, task = committed(store, 1, [A])
        committed(store, 2, [B], base=2, removes=(task.data_files[0].name,))
        assert covered(store) == [B]
        assert covered(store, 2) == [A]


# -------------------------------------------------------------------------------------------------------- the command
@pytest.mark.services
def test_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of numbers, no finding, exit code 0; a finding is told with its history, and the exit code is 1."""
    chosen = ["--quick", "--pipelines", "few", "--committers", "rename", "--kinds", "adls", "s3", "--races", "4"]
    assert matrix.main(chosen) == 0
    out = capsys.readouterr().out
    assert "few × rename × adls" in out
    assert "no committer fits: s3" in out
    monkeypatch.setattr("quire.commit.rename.Rename.abort_task", lambda *_: None)
    monkeypatch.setattr("quire.commit.rename.Rename.clean", lambda *_: None)
    monkeypatch.setattr("quire.commit.protocol.clean", lambda *_: None)
    assert matrix.main([*chosen[:-1], "0"]) == 1
    assert "few × rename × adls: left over" in capsys.readouterr().out
