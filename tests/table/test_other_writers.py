"""Programs without quire at a table: what they roll back leaves the ledger, and an update that they lose is told."""

from __future__ import annotations

import dataclasses
import json
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from test_into import process, put
from test_writes import LOCAL, create, frame, log_of, ours, theirs, write

import quire
from quire.commit import names as objects
from quire.commit.entries import Commit
from quire.coverage import checkpoint
from quire.coverage.fold import fold
from quire.progress import Progress
from quire.storage import retry
from quire.storage.local import LocalStore
from quire.table import turns
from quire.table.format import names
from quire.table.table import Table
from quire.table.write import write as rounds_write


def roll_back(table: Path, instant: str) -> None:
    """As Hudi's restore does: the completed instant goes first, then its files, then the rest of it."""
    hoodie = table / ".hoodie"
    (hoodie / f"{instant}.commit").unlink()
    for path in table.rglob(f"*_{instant}.parquet"):
        path.unlink()
    for state in (".commit.requested", ".inflight"):
        (hoodie / f"{instant}{state}").unlink()


def last_instant(table: Path) -> str:
    return max(path.name for path in (table / ".hoodie").glob("*.commit")).removesuffix(".commit")


def merged(table: Path) -> None:
    """Let a checkpoint stand for all that the log says."""
    url = f"table+file://{table}"
    assert checkpoint.write(LOCAL, url, None, log_of(table).store) is not None


@pytest.mark.nth(4)
@pytest.mark.parametrize("when", ["never", "before", "between", "after"])
def test_files_of_an_instant_that_was_rolled_back_are_read_again(tmp_path: Path, when: str) -> None:
    """Wherever a checkpoint has come. Else they would be done for ever, and in no table."""
    source, place = tmp_path / "in", tmp_path / "trips"
    table = create(place)
    put(source, "1.json", ("a", "sf", 1, 1.0))
    process(source, table)
    if when == "before":
        merged(place)
    put(source, "2.json", ("b", "sf", 1, 1.0), ("a", "sf", 2, 2.0))
    process(source, table)
    if when == "between":
        merged(place)
    before = quire.Ledger(place)
    job = [c.job for _, c in log_of(place).commits()][-1]
    roll_back(place, last_instant(place))
    done = quire.recover(place)
    assert (done.rolled_back, done.lost_updates, job in str(done)) == ((job,), (), True)
    assert quire.recover(place).rolled_back == ()
    if when == "after":
        merged(place)
    ledger = quire.Ledger(place)
    assert (ledger.summary().files, ledger.summary().commits, before.summary().files) == (1, 1, 2)
    assert ledger.verify(spark=LOCAL).ok
    log = log_of(place)
    assert [path[-6:] for path in fold(log).rows(log.store, ["path"]).column("path").to_pylist()] == ["1.json"]
    assert "rolled back: " in str(ledger.inspect.history().note.tolist())
    report = process(source, table)
    assert (report.files, report.skipped) == (1, 1)
    assert {key: row["fare"] for key, row in ours(table).items()} == {"a": 2.0, "b": 1.0}
    assert set(theirs(place)) == {"a", "b"}
    after = quire.Ledger(place).summary()
    assert after.files == 2
    merged(place)
    assert dataclasses.replace(quire.Ledger(place).summary(), version=after.version) == after
    assert process(source, table).skipped == 2


def test_a_batch_that_was_rolled_back_is_committed_again(tmp_path: Path) -> None:
    table = create(tmp_path)
    first = write(table, "upsert", frame(("a", "sf", 1, 1.0)), batch="monday")
    merged(tmp_path)
    assert write(table, "upsert", frame(("a", "sf", 1, 1.0)), batch="monday").again
    roll_back(tmp_path, first.instant)
    second = write(table, "upsert", frame(("a", "sf", 1, 1.0)), batch="monday")
    assert (second.again, second.inserted, set(ours(table))) == (False, 1, {"a"})
    assert write(table, "upsert", frame(("a", "sf", 1, 1.0)), batch="monday").again


@pytest.mark.parametrize("operation", ["upsert", "delete"])
def test_a_round_that_rests_on_what_is_rolled_back_is_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:  # fmt: skip
    """Also one that found no key, since the other commit had deleted it: the key is there again, and would come twice."""
    table, real = create(tmp_path, target_size="1 KiB"), rounds_write.write  # a key that is not there goes to a file of its own
    write(table, "upsert", frame(("a", "sf", 1, 1.0), ("b", "sf", 1, 1.0), *((f"k{i}", "sf", 1, 1.0) for i in range(3))))
    gone = write(table, operation, frame(("a", "sf", 2, 2.0)), batch="monday")
    tries = list[str]()

    def meanwhile(*args: Any, **more: Any) -> Any:
        found = real(*args, **more)
        if not tries:
            roll_back(tmp_path, gone.instant)
        tries.append(operation)
        return found

    monkeypatch.setattr(rounds_write, "write", meanwhile)
    write(table, "upsert", frame(("a", "sf", 3, 3.0)))
    assert len(tries) == 2
    expected = {"a": 3.0, "b": 1.0, "k0": 1.0, "k1": 1.0, "k2": 1.0}
    assert {key: row["fare"] for key, row in ours(table).items()} == {key: row["fare"] for key, row in theirs(tmp_path).items()} == expected
    assert not write(table, operation, frame(("a", "sf", 2, 2.0)), batch="monday").again
    assert ours(table)["a"]["fare"] == 3.0


def test_what_was_archived_or_moved_is_not_taken_for_rolled_back(tmp_path: Path) -> None:
    """The oldest instants go to the archive, and all of them go elsewhere where a newer Hudi upgrades the table."""
    table = create(tmp_path)
    for i in range(3):
        write(table, "upsert", frame(("a", "sf", i, 1.0)))
    oldest = min((tmp_path / ".hoodie").glob("*.commit"))
    (tmp_path / ".hoodie/archived").mkdir()
    shutil.move(oldest, tmp_path / ".hoodie/archived" / oldest.name)
    next(tmp_path.rglob(f"*_{oldest.stem}.parquet")).unlink()  # cleaned, as it has a newer slice
    assert quire.recover(tmp_path).rolled_back == ()
    (tmp_path / ".hoodie/timeline").mkdir()
    roll_back(tmp_path, last_instant(tmp_path))
    assert quire.recover(tmp_path).rolled_back == ()
    (tmp_path / ".hoodie/timeline").rmdir()
    assert len(quire.recover(tmp_path).rolled_back) == 1


def test_files_that_readers_may_still_have_are_not_read_again(tmp_path: Path) -> None:
    """An instant that was archived before an older one, and one that is gone before all others: readers have those rows, or soon will."""
    table, hoodie = create(tmp_path), tmp_path / ".hoodie"
    reports = [write(table, "upsert", frame((f"k{i}", "sf", i, 1.0))) for i in range(4)]
    first, second = (hoodie / f"{report.instant}.commit" for report in reports[:2])
    first.rename(tmp_path / "kept")
    assert quire.recover(tmp_path).rolled_back == (), "older than the timeline, so every reader takes its files"
    (tmp_path / "kept").rename(first)
    (hoodie / "archived").mkdir()
    second.rename(hoodie / "archived/second")
    assert quire.recover(tmp_path).rolled_back == (), "an archive is being made"
    (hoodie / "archived/second").rename(second)
    roll_back(tmp_path, reports[3].instant)
    assert len(quire.recover(tmp_path).rolled_back) == 1
    assert set(ours(table)) == {"k0", "k1", "k2"}


def foreign(place: Path, instant: str, built_on: str) -> None:
    """A commit of another program, which writes a slice of the only file group again."""
    hoodie = place / ".hoodie"
    said = json.loads((hoodie / f"{built_on}.commit").read_bytes())
    (stats,) = said["partitionToWriteStats"].values()
    (stat,) = stats
    old = place / stat["path"]
    base = names.base_file(old.name)
    assert base is not None
    new = old.with_name(f"{base.file_id}_1-2-3_{instant}.parquet")
    shutil.copy(old, new)
    stat |= {"path": str(new.relative_to(place)), "prevCommit": built_on}
    said["extraMetadata"].pop("quire.changes", None)
    (hoodie / f"{instant}.commit").write_text(json.dumps(said))


@pytest.mark.parametrize("later", [True, False])
def test_a_lost_update_is_told_once(tmp_path: Path, *, later: bool) -> None:
    """Two programs have built on one slice: the later one hides what the earlier one has written, be it ours or theirs."""
    table = create(tmp_path)
    one = write(table, "upsert", frame(("a", "sf", 1, 1.0), ("b", "sf", 1, 1.0)))
    two = write(table, "upsert", frame(("a", "sf", 2, 2.0)))
    theirs_at = str(int(two.instant) + 1) if later else str(int(one.instant) + 1)
    foreign(tmp_path, theirs_at, one.instant)
    done = quire.recover(tmp_path)
    lost, by = (two.instant, theirs_at) if later else (theirs_at, two.instant)
    assert done.foreign == (theirs_at,)
    (line,) = done.lost_updates
    assert f"updates of {lost} are lost in 1 file group: {by} was built without them" in line
    assert line in str(done)
    again = quire.recover(tmp_path)
    assert (again.foreign, again.lost_updates) == ((), (line,))


def test_a_lost_update_that_another_call_has_found_is_told_by_recover_and_stays_in_the_history(tmp_path: Path) -> None:
    """Each call enters what others have written, and nobody may look at it."""
    table = create(tmp_path)
    one = write(table, "upsert", frame(("a", "sf", 1, 1.0)))
    two = write(table, "upsert", frame(("a", "sf", 2, 2.0)))
    foreign(tmp_path, str(int(two.instant) + 1), one.instant)
    write(table, "upsert", frame(("a", "sf", 3, 3.0)))
    (line,) = quire.recover(tmp_path).lost_updates
    assert f"updates of {two.instant} are lost" in line
    merged(tmp_path)
    assert quire.recover(tmp_path).lost_updates == ()
    assert f"updates of {two.instant} lost by" in str(quire.Ledger(tmp_path).inspect.history().note.tolist())


def test_writers_that_take_turns_lose_nothing(tmp_path: Path) -> None:
    table = create(tmp_path)
    write(table, "upsert", frame(("a", "sf", 1, 1.0)))
    two = write(table, "upsert", frame(("a", "sf", 2, 2.0)))
    foreign(tmp_path, str(int(two.instant) + 1), two.instant)
    write(table, "upsert", frame(("a", "sf", 3, 3.0)))
    done = quire.recover(tmp_path)
    assert (done.foreign, done.lost_updates) == ((), ()), "the upsert has entered it, and found nothing lost"
    assert ours(table)["a"]["fare"] == 3.0


def test_a_commit_says_which_job_and_entry_it_is(tmp_path: Path) -> None:
    table = create(tmp_path)
    report = write(table, "upsert", frame(("a", "sf", 1, 1.0)))
    extra = json.loads((tmp_path / ".hoodie" / f"{report.instant}.commit").read_bytes())["extraMetadata"]
    entry = log_of(tmp_path).entries[int(extra["quire.entry"]) - 1]
    assert isinstance(entry, Commit)
    assert entry.job == extra["quire.job"]


def test_a_table_with_many_commits_is_written_from_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write would otherwise read the whole log, each time a longer one."""
    monkeypatch.setattr(checkpoint, "ENTRIES", 4)
    table = create(tmp_path)
    for i in range(6):
        write(table, "upsert", frame(("a", "sf", i, 1.0)))
    stands_for = log_of(tmp_path).merged
    assert stands_for >= 8
    read, get = list[str](), LocalStore.get
    monkeypatch.setattr(LocalStore, "get", lambda self, name: (read.append(name), get(self, name))[1])
    write(Table(tmp_path), "upsert", frame(("a", "sf", 9, 1.0)))
    old = {name for name in read if "/log/" in name and int(name[-26:-6]) <= stands_for}
    assert len(old) <= 1, "no more than the one that says what the destination holds"
    assert set(ours(table)) == {"a"}


@pytest.mark.nth(2)
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("slow", "quick", "city"), [(1.5, 0.0, "la"), (1.0, 0.0, "sf"), pytest.param(60, 5, "sf", marks=pytest.mark.nightly)]
)
def test_a_slow_writer_comes_in_beside_a_loop_of_quick_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: float, quick: float, city: str
) -> None:  # fmt: skip
    """Its first two rounds are outdated by commits with later instants, or of the same file, so it asks for its turn: the loop waits for
    the third one. Whoever of the loop had begun at that moment may outdate that, too, once."""
    table, real = create(tmp_path), rounds_write.write
    write(table, "upsert", frame(("a", "sf", 0, 0.0), ("own", city, 0, 0.0)))
    ended, counts, tries, commits = threading.Event(), list[int](), list[float](), list[float]()

    def write_slowly(*args: Any, **more: Any) -> Any:
        found, mine = real(*args, **more), threading.current_thread().name == "slow"
        if mine:
            tries.append(time.monotonic())
        time.sleep(slow if mine else quick)
        return found

    def loop() -> None:
        while not ended.is_set():
            counts.append(write(Table(tmp_path), "upsert", frame(("a", "sf", len(counts) + 1, 1.0))).updated)
            commits.append(time.monotonic())

    monkeypatch.setattr(rounds_write, "write", write_slowly)
    reports = list[Any]()
    one = threading.Thread(target=loop)
    two = threading.Thread(target=lambda: reports.append(write(table, "upsert", frame(("own", city, 1, 9.0)))), name="slow")
    one.start()
    two.start()
    two.join()
    ended.set()
    one.join()
    assert [report.updated for report in reports] == [1]
    assert len(counts) > 3
    assert counts == [1] * len(counts)
    assert (ours(table)["own"]["fare"], ours(table)["a"]["ts"]) == (9.0, len(counts))
    assert len(tries) in (3, 4), "two that are outdated, and its turn"
    assert sum(tries[-1] < at < tries[-1] + slow for at in commits) <= 1, "the loop waits for it"
    assert sum(tries[0] < at < tries[1] for at in commits) >= 1, "and for nothing before"
    print(f"{len(tries)} rounds of {slow} s beside {len(commits)} commits")


def test_nobody_waits_for_ever_for_a_writer_that_died(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its wish is taken away when its last round would have ended twice."""
    table = create(tmp_path)
    write(table, "upsert", frame(("a", "sf", 1, 1.0)))
    log, waited = log_of(tmp_path), list[float]()
    turns.ask(log, "7-0123456789abcdef", 10.0)
    monkeypatch.setattr(retry, "clock", lambda: sum(waited))
    monkeypatch.setattr(retry, "pause", waited.append)
    write(table, "upsert", frame(("a", "sf", 2, 2.0)))
    assert 20 <= sum(waited) < 40
    assert ours(table)["a"]["fare"] == 2.0
    assert log.store.stat(objects.turn("7-0123456789abcdef")) is None
    turns.ask(log, next(c.job for _, c in log.commits()), 10.0)
    waited.clear()
    write(table, "upsert", frame(("a", "sf", 3, 3.0)))
    assert waited == [], "that job is over"
    log.store.put(objects.turn("7-0123456789abcdef"), b"")
    told = list[str]()
    monkeypatch.setattr(Progress, "again", lambda _, why: told.append(why))
    write(table, "upsert", frame(("a", "sf", 4, 4.0)))
    assert (waited, ours(table)["a"]["fare"]) == ([], 4.0)
    (why,) = told
    assert "turn.entry" in why
    assert "it is taken away" in why
    assert log.store.stat(objects.turn("7-0123456789abcdef")) is None
