"""The archive of the log: with it and without it the ledger says the same, and a writer that has slept through it changes nothing."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import quire
from gathering import gather, refused, write
from quire import Ledger, LocalRunner
from quire.commit import archive, archiving, checkpoints, names, protocol
from quire.commit.archive import Archive
from quire.commit.entries import Abort, Pin
from quire.commit.log import Log
from quire.coverage import checkpoint
from quire.errors import FormatError, StorageError, UsageError
from quire.ledger.expire import expire
from quire.storage import Store, connect
from quire.storage.local import LocalStore

HERE: dict[str, Any] = {"spark": LocalRunner(), "progress": False}
BLOCK = 4


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few entries in an object, so that a small log has several."""
    for module, name, value in (
        (archive, "BLOCK", BLOCK), (archive, "GROUP", 2), (checkpoint, "HISTORY_ROWS", 6), (checkpoints, "HISTORY_ROWS", 6),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)


def runs(tmp_path: Path, first: int, last: int) -> Path:
    """A run for each new file."""
    for n in range(first, last):
        write(tmp_path / "in", {f"f{n:03}.txt": f"line {n}\n".encode()})
        gather(tmp_path / "in", tmp_path / "out")
    return tmp_path / "out"


def of(dest: Path) -> Store:
    return connect(dest.as_uri(), None)


def entries(dest: Path) -> list[int]:
    """The numbers of the entries that are objects of their own."""
    return sorted(int(p.name.removesuffix(".entry")) for p in (dest / "_quire/log").glob("*.entry"))


def archived(tmp_path: Path, n: int = 9) -> Path:
    """A log of two entries a run, most of which are archived."""
    dest = runs(tmp_path, 0, n)
    Ledger(dest).checkpoint(spark=LocalRunner())
    expire(of(dest))
    moved = archiving.move(Log(of(dest)).refresh())
    assert moved == archive.BLOCK * (2 * n // archive.BLOCK)
    return dest


def told(dest: Path) -> tuple[Any, ...]:
    """All that a ledger says."""
    ledger = Ledger(dest)
    history = [row for row in ledger.inspect.history("arrow").to_pylist() if row["kind"] in ("commit", "published")]
    rows = sorted(
        (row["path"], row["data_file"], row["commit"]) for row in ledger.inspect.splits(as_="arrow", spark=LocalRunner()).to_pylist()
    )
    summary = {k: v for k, v in ledger.summary().as_dict().items() if k != "version"}
    return history, rows, summary, len(ledger.inspect.tasks()), ledger.inspect.commits("arrow").to_pylist()


# ----------------------------------------------------------------------------------------------------------- what it says
def test_with_it_a_ledger_says_what_it_said_without_it(tmp_path: Path) -> None:
    dest = runs(tmp_path, 0, 9)
    before = told(dest)
    assert archived(tmp_path) == dest
    assert entries(dest)[0] == 17
    assert told(dest) == before
    runs(tmp_path, 9, 12)
    Ledger(dest).checkpoint(spark=LocalRunner())  # of which the history begins behind the archive
    assert told(dest)[0][: len(before[0])] == before[0]
    assert Ledger(dest).verify(spark=LocalRunner()).ok
    assert quire.recover(dest).published == ()


def test_it_is_read_without_any_checkpoint(tmp_path: Path) -> None:
    dest = archived(tmp_path)
    before = told(dest)
    for path in (dest / "_quire/checkpoints").glob("*.entry"):
        path.unlink()
    assert Log(of(dest)).refresh().base is None
    assert told(dest)[0] == before[0]
    runs(tmp_path, 9, 10)
    assert Ledger(dest).summary().files == 10


def test_a_checkpoint_copies_no_history_that_is_archived(tmp_path: Path) -> None:
    dest = archived(tmp_path, 12)
    runs(tmp_path, 12, 14)
    Ledger(dest).checkpoint(spark=LocalRunner())
    base = Log(of(dest)).refresh().base
    assert base is not None
    assert base.archived == 24
    assert [piece.rows for piece in base.history] == [0, 0, 0, 0, base.version - 24]
    assert len(Ledger(dest).inspect.history()) == Ledger(dest).version


@pytest.mark.parametrize("what", ["pins", "exports"])
def test_nothing_is_archived_that_a_reader_holds(tmp_path: Path, what: str) -> None:
    dest = runs(tmp_path, 0, 9)
    ledger, store = Ledger(dest), of(dest)
    log = Log(store).refresh()
    if what == "pins":
        log.append(lambda log: None if log.pins() else Pin(version=7, id="reader", time=protocol.now()))
    else:
        runs(tmp_path, 9, 10)
        ledger.export("symlinks", location="file:///x")
    ledger.checkpoint(spark=LocalRunner())
    expire(store)
    assert archiving.move(Log(store).refresh()) <= (4 if what == "pins" else 20)
    assert 8 in entries(dest) or what == "exports"
    with refused(UsageError, 2, "expired"), Ledger(dest).pin(1):
        pass  # a pin of what is archived


# ------------------------------------------------------------------------------------------------------- who slept through it
def test_a_writer_that_slept_puts_its_entry_at_the_tip(tmp_path: Path) -> None:
    dest = runs(tmp_path, 0, 2)
    asleep = Log(of(dest)).refresh()
    assert archived(tmp_path) == dest
    tip = Ledger(dest).version
    job = f"{asleep.tip}-{'a' * 16}"
    asleep.append(lambda log: None if log.outcome(job) else Abort(job=job, why="late", time=protocol.now()))
    assert asleep.tip == tip + 1
    assert [row["job"] for row in Ledger(dest).inspect.history("arrow").to_pylist() if row["note"] == "late"] == [job]
    assert entries(dest)[0] == 17, "it has put nothing under a number that is archived"


def test_a_put_that_comes_late_counts_for_nobody_and_goes(tmp_path: Path) -> None:
    dest = runs(tmp_path, 0, 2)
    asleep = Log(of(dest)).refresh()
    assert archived(tmp_path) == dest
    before = told(dest)
    late = Abort(job=f"{asleep.tip}-{'a' * 16}", why="late", time=protocol.now())
    assert of(dest).put_if_absent(names.entry(asleep.tip + 1), protocol.encode(late)), "the number is free"
    assert told(dest) == before
    assert asleep.refresh().tip == Ledger(dest).version
    assert asleep.outcome(late.job) is None
    assert Log(of(dest)).refresh().entry(5) == Ledger(dest)._log.entry(5) != late
    quire.recover(dest)
    assert entries(dest)[0] == 17


def test_a_writer_whose_put_came_late_does_not_take_it_for_done(tmp_path: Path) -> None:
    """It read the log, slept, and put its entry under a number that was free again: reading on, it finds that nobody has it there."""
    dest = runs(tmp_path, 0, 2)
    asleep, job, puts = Log(of(dest)).refresh(), f"4-{'a' * 16}", list[int]()

    def compute(log: Log) -> Abort | None:
        if not puts:
            archived(tmp_path)  # while it sleeps between its look and its put
        puts.append(log.tip + 1)
        return None if log.outcome(job) else Abort(job=job, why="late", time=protocol.now())

    asleep.append(compute)
    assert puts[0] == 5
    assert puts[1] > 18
    assert asleep.outcome(job) is not None
    assert Log(of(dest)).refresh().decided(job) == asleep.decided(job)
    quire.recover(dest)
    assert entries(dest)[0] == 17


def test_a_reader_that_slept_goes_on(tmp_path: Path) -> None:
    dest = runs(tmp_path, 0, 2)
    asleep, open_ledger = Log(of(dest)).refresh(), Ledger(dest)
    assert open_ledger.is_current()
    tip = asleep.tip
    assert archived(tmp_path) == dest
    assert not open_ledger.is_current()
    assert len(asleep.refresh().since(tip)) == Ledger(dest).version - tip
    assert open_ledger.refresh().summary().as_dict() == Ledger(dest).summary().as_dict()


# ------------------------------------------------------------------------------------------------------------ killed and two at once
class Dies(BaseException):
    """The process ends."""


CHANGES = ("put", "put_if_absent", "remove", "remove_tree", "rename")


def test_killed_at_any_change_it_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before and after each change: all readers see the same, and the next one leaves what one that was not killed would have left."""
    dest = runs(tmp_path, 0, 7)
    Ledger(dest).checkpoint(spark=LocalRunner())
    expire(of(dest))
    before, there = told(dest), sim_copy(dest)
    step, died = 0, True
    while died:
        step += 1
        for after in (False, True):
            put_back(dest, there)
            died = die_at(monkeypatch, step, after=after, work=lambda: archiving.move(Log(of(dest)).refresh()))
            assert told(dest) == before
            archiving.move(Log(of(dest)).refresh())
            quire.recover(dest)
            assert told(dest) == before
            assert entries(dest)[0] == 13
    assert step > 12


def die_at(monkeypatch: pytest.MonkeyPatch, step: int, *, after: bool, work: Any) -> bool:
    """Whether the work was killed, at its change of this number."""
    done = [0]
    with monkeypatch.context() as patch:
        for name in CHANGES:
            real = getattr(LocalStore, name)

            def change(self: Any, *args: Any, real: Any = real) -> Any:
                done[0] += 1
                if done[0] == step and not after:
                    raise Dies
                found = real(self, *args)
                if done[0] >= step:
                    raise Dies
                return found

            patch.setattr(LocalStore, name, change)
        try:
            work()
        except Dies:
            return True
        return False


def sim_copy(dest: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in dest.rglob("*") if path.is_file()}


def put_back(dest: Path, there: dict[Path, bytes]) -> None:
    for path in [path for path in dest.rglob("*") if path.is_file() and path not in there]:
        path.unlink()
    for path, data in there.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def test_two_at_once_beside_a_writer(tmp_path: Path) -> None:
    dest = runs(tmp_path, 0, 9)
    Ledger(dest).checkpoint(spark=LocalRunner())
    expire(of(dest))
    before, failed = told(dest)[0], list[BaseException]()

    def work() -> None:
        try:
            archiving.move(Log(of(dest)).refresh())
        except BaseException as e:  # whatever it is, the test tells it
            failed.append(e)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    runs(tmp_path, 9, 12)
    for thread in threads:
        thread.join()
    assert failed == []
    assert entries(dest)[0] == 17
    assert told(dest)[0][: len(before)] == before
    assert Ledger(dest).summary().files == 12


# --------------------------------------------------------------------------------------------------------------------- damage
def test_one_that_is_missing_or_damaged_is_one_line(tmp_path: Path) -> None:
    dest = archived(tmp_path)
    path = dest / names.archived(8)
    good = path.read_bytes()
    path.unlink()
    with refused(FormatError, 2, names.entry(6), names.archived(8), "Put one of the two back"):
        Log(of(dest)).refresh().entry(6)
    path.write_bytes(good)
    runs(tmp_path, 9, 11)
    Ledger(dest).checkpoint(spark=LocalRunner())  # it says what is archived
    for data, word in ((None, "missing"), (b"", "damaged"), (good[:-9], "damaged"), ((dest / names.archived(4)).read_bytes(), "damaged")):
        path.unlink() if data is None else path.write_bytes(data)
        with refused(FormatError, 2, names.archived(8), word, "entries 5 to 8", "Put back"):
            Log(of(dest)).refresh().entry(6)
        with refused(FormatError, 2, names.archived(8)):
            Ledger(dest).inspect.history()
    path.write_bytes(good)
    assert len(Ledger(dest).inspect.history()) == Ledger(dest).version


def test_entries_stay_where_the_object_that_should_have_them_has_others(tmp_path: Path) -> None:
    dest = archived(tmp_path)
    runs(tmp_path, 9, 16)
    Ledger(dest).checkpoint(spark=LocalRunner())
    expire(of(dest))
    (dest / names.archived(20)).write_bytes((dest / names.archived(4)).read_bytes())
    before = entries(dest)
    with refused(FormatError, 2, names.archived(20), "damaged"):
        archiving.move(Log(of(dest)).refresh())
    assert entries(dest) == before, "nothing is deleted that is nowhere else"


def test_a_hole_in_the_log_is_told_as_before(tmp_path: Path) -> None:
    dest = archived(tmp_path)
    runs(tmp_path, 9, 12)
    (dest / names.entry(21)).unlink()
    with refused(FormatError, 2, names.entry(21), "is gone"):
        Ledger(dest)


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dest = runs(tmp_path, 0, 9)
    Ledger(dest).checkpoint(spark=LocalRunner())
    expire(of(dest))
    before = told(dest)
    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "put_if_absent", lambda *_: (_ for _ in ()).throw(StorageError("cannot write: no space left on device")))
        with refused(StorageError, 3, "no space"):
            archiving.move(Log(of(dest)).refresh())
    assert told(dest) == before
    assert archiving.move(Log(of(dest)).refresh()) > 0
    assert told(dest) == before


def test_a_name_of_somebody_s_own_is_not_an_archive(tmp_path: Path) -> None:
    dest = archived(tmp_path)
    head = Archive(of(dest)).look()
    (dest / names.ARCHIVE / "00000000000000000101.rows").write_bytes(b"x")
    (dest / names.ARCHIVE / "notes.txt").write_bytes(b"x")
    assert Archive(of(dest)).look() == head
