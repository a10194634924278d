"""Data files that were superseded leave the directory before the verb returns, so whoever lists it reads each row once; older versions stay
readable as long as somebody wishes, and forgotten rows in none."""

from __future__ import annotations

import json
import random
from collections import Counter
from contextlib import nullcontext, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import directory_readers
import quire
import sim
from gathering import gather, refused, write
from quire import Ledger, LocalRunner
from quire.commit import protocol, retire
from quire.commit.log import Log
from quire.errors import QuireError, StorageError, UsageError
from quire.read import first_rows, live
from quire.storage import Store, connect, memory
from quire.storage.local import LocalStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALL = [f"word {a}{i}" for a in "ab" for i in range(3)]
HERE: dict[str, Any] = {"spark": LocalRunner(), "progress": False}


def store_of(dest: Path) -> Store:
    return connect(f"file://{dest}")


def listed(dest: Path) -> list[str]:
    """The rows that readers who know nothing of quire count: every `.parquet` at any depth."""
    return [value.decode() for value in directory_readers.values(dest, "content")]


def rows(dest: Path) -> list[str]:
    """The same, of the ledger."""
    there = Log(store_of(dest)).refresh().holds()
    return sorted(row["content"].decode() for row in first_rows(store_of(dest), 10_000)) if there else []


def kept(dest: Path) -> set[str]:
    return {path.name for path in (dest / "_quire/kept").rglob("*.kept")}


def made(tmp_path: Path, runs: int = 3, **how: Any) -> tuple[Path, Path, Ledger]:
    """A destination of several small data files."""
    source, dest = tmp_path / "in", tmp_path / "out"
    for i in range(runs):
        write(source, {f"f{i}": f"word a{i}".encode(), f"g{i}": f"word b{i}".encode()})
        gather(source, dest, transform="raw", format="parquet", **how)
    return source, dest, Ledger(dest)


# --------------------------------------------------------------------------------------------------------- readers of the directory
def test_whoever_lists_the_directory_reads_each_row_once_after_each_verb(tmp_path: Path) -> None:
    source, dest, ledger = made(tmp_path)
    assert listed(dest) == rows(dest) == ALL
    done = ledger.compact(**HERE)
    assert (done.removed, done.superseded, done.superseded_held) == (3, 3, 0)
    assert "3 have left the directory" in str(done)
    assert listed(dest) == rows(dest) == ALL
    write(source, {"f0": b"new"})
    report = gather(source, dest, transform="raw", format="parquet", on_change="reprocess")
    assert report.superseded == 1
    assert "1 have left the directory" in str(report) or "superseded" in str(report)
    assert listed(dest) == rows(dest) == ["new", *ALL[1:]]
    ledger.refresh().forget(source / "f0", **HERE)
    assert listed(dest) == rows(dest) == ALL[1:]


VERBS = ["run", "rewrite", "forget", "compact", "retry", "expire", "killed", "keep", "pin"]
STEPS = st.lists(st.sampled_from(VERBS), min_size=3, max_size=8)


class History:
    """A drawn history against a dictionary: after each step readers of the directory and of the ledger see what it says."""

    def __init__(self, at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.source, self.dest, self.monkeypatch = at / "in", at / "out", monkeypatch
        self.there, self.gathered = dict[str, str](), dict[str, str]()
        self.pinned: tuple[list[str], Pinned] | None = None

    def play(self, steps: list[str], seed: int) -> None:
        for i, step in enumerate(["run", *steps]):
            getattr(self, step)(i, (seed + i) % 5)
            assert rows(self.dest) == sorted(self.gathered.values())
            if self.pinned is None:
                assert listed(self.dest) == sorted(self.gathered.values()), f"after {step}"
            assert Ledger(self.dest).verify(spark=LocalRunner()).ok

    def end(self, spark: SparkSession) -> None:
        """Spark lists the directory, too; a pin would hold superseded files in it."""
        if self.pinned is not None:
            self.pin(0, 0)
        seen = directory_readers.values_in_spark(spark, self.dest, "content")
        assert [value.decode() for value in seen] == listed(self.dest) == sorted(self.gathered.values())

    def write(self, name: str, i: int) -> None:
        self.there[name] = f"{name} at {i}"
        write(self.source, {name: self.there[name].encode()})

    def call(self) -> None:
        gather(self.source, self.dest, transform="raw", format="parquet", on_change="reprocess")
        self.gathered.update(self.there)

    def run(self, i: int, n: int) -> None:
        self.write(f"f{n}", i)
        self.call()

    def rewrite(self, i: int, _: int) -> None:
        self.write(f"f{i % 2}", i)
        self.call()

    def killed(self, i: int, n: int) -> None:
        """It dies between the entry that says what goes, and the files."""
        self.write(f"f{n}", i)
        with self.monkeypatch.context() as patch, suppress(Killed):
            patch.setattr(retire, "carry_out", kill)
            self.call()
        if n % 2:
            quire.recover(self.dest)
        self.call()

    def forget(self, _: int, n: int) -> None:
        if self.gathered:
            name = sorted(self.gathered)[n % len(self.gathered)]
            Ledger(self.dest).forget(self.source / name, **HERE)
            (self.source / name).unlink()
            del self.gathered[name], self.there[name]

    def compact(self, _: int, __: int) -> None:
        Ledger(self.dest).compact(**HERE)

    def retry(self, _: int, __: int) -> None:
        Ledger(self.dest).retry(self.source, **HERE)

    def expire(self, _: int, __: int) -> None:
        Ledger(self.dest).expire()

    def keep(self, _: int, n: int) -> None:
        Ledger(self.dest).keep_versions((0, "1 hour", 2)[n % 3])

    def pin(self, _: int, __: int) -> None:
        if self.pinned is None:
            self.pinned = rows(self.dest), Pinned(self.dest)
        else:
            held, pin = self.pinned
            self.pinned = None
            assert seen_at(self.dest, pin.version) == held, "what a pin holds can be read"
            assert not retire.places(store_of(self.dest)).keys() & pin.files, "and lies where it lay"
            pin.manager.__exit__(None, None, None)


class Killed(BaseException):
    """The process ends here."""


def kill(*_: object) -> None:
    raise Killed


class Pinned:
    def __init__(self, dest: Path) -> None:
        self.manager = Ledger(dest).pin()
        self.version = self.manager.__enter__()
        self.files = {file.name for file in live(store_of(dest), self.version)[1]} - retire.places(store_of(dest)).keys()


def seen_at(dest: Path, version: int) -> list[str]:
    """The rows of a version, by the paths at which a reader finds them."""
    store = store_of(dest)
    places = retire.places(store)
    names = [places.get(file.name, file.name) for file in live(store, version)[1]]
    return sorted(value.decode() for name in names for value in pq.read_table(dest / name).column("content").to_pylist())


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, seed=st.integers(0, 4))
def test_after_any_history_readers_of_the_directory_agree_with_the_ledger(
    steps: list[str], seed: int, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    history = History(tmp_path_factory.mktemp("history"), monkeypatch)
    history.play(steps, seed)
    history.end(spark)


@pytest.mark.chaos
@pytest.mark.timeout(7_200)
@settings(max_examples=2_000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, seed=st.integers(0, 4))
def test_after_very_many_histories_readers_of_the_directory_agree_with_the_ledger(
    steps: list[str], seed: int, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    history = History(tmp_path_factory.mktemp("history"), monkeypatch)
    history.play(steps, seed)
    history.end(spark)


# ------------------------------------------------------------------------------------------------------------------ older versions
def test_an_older_version_is_read_where_its_files_are_kept(tmp_path: Path) -> None:
    source, dest, ledger = made(tmp_path)
    before = ledger.version
    ledger.compact(**HERE)
    assert len(kept(dest)) == 3
    older = Ledger(dest).as_of(before)
    assert older.read(source / "f1") == b"word a1"
    assert older.verify(spark=LocalRunner()).ok
    assert seen_at(dest, before) == ALL


class Tomorrow(datetime):
    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return datetime.now(tz) + timedelta(hours=25)


def test_an_older_version_goes_when_its_time_has_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest, ledger = made(tmp_path, keep_versions="1 day")
    before = ledger.version
    ledger.compact(**HERE)
    gather(source, dest, transform="raw", format="parquet")
    assert len(kept(dest)) == 3
    monkeypatch.setattr(retire, "datetime", Tomorrow)
    gather(source, dest, transform="raw", format="parquet")  # any call
    assert kept(dest) == set()
    with refused(UsageError, 2, "has expired", "pin", "keep_versions"):
        seen_at(dest, before)


@pytest.mark.nth(3)
@pytest.mark.parametrize(("keep", "files"), [(0, 0), (1, 1), (2, 4), ("1 hour", 4), ("0 s", 0)])
def test_as_many_versions_stay_as_were_wished(tmp_path: Path, keep: Any, files: int) -> None:
    source, dest, ledger = made(tmp_path, keep_versions=keep)
    ledger.compact(**HERE)
    write(source, {"f0": b"new"})
    gather(source, dest, transform="raw", format="parquet", on_change="reprocess")
    assert len(kept(dest)) == files
    assert listed(dest) == rows(dest)


def test_fewer_kept_versions_are_deleted_at_once_and_the_wish_holds_for_all_calls(tmp_path: Path) -> None:
    source, dest, ledger = made(tmp_path)
    ledger.compact(**HERE)
    told = ledger.keep_versions(0)
    assert (told.data_files, kept(dest)) == (3, set())
    assert ledger.keep_versions(0).data_files == 0
    write(source, {"f0": b"new"})
    gather(source, dest, transform="raw", format="parquet", on_change="reprocess")
    assert kept(dest) == set()
    gather(source, dest, transform="raw", format="parquet", keep_versions=3)  # also where nothing is to be done
    assert retire.wish(Log(store_of(dest)).refresh()) == retire.Keep(versions=3)
    assert "keep_versions=3" in set(Ledger(dest).inspect.history()["note"])


def test_a_call_that_does_nothing_writes_no_wish_into_an_empty_destination(tmp_path: Path) -> None:
    with pytest.raises(QuireError):
        gather(tmp_path / "nowhere", tmp_path / "out", keep_versions=3)
    assert not (tmp_path / "out").exists()


def test_forgotten_rows_are_kept_nowhere(tmp_path: Path) -> None:
    source, dest, ledger = made(tmp_path, keep_versions="365 d")
    before = ledger.version
    ledger.compact(**HERE)  # a kept file holds the rows, too
    assert kept(dest)
    ledger.forget(source / "f0", **HERE)
    assert kept(dest) == set()
    held = [path for path in dest.rglob("*") if path.is_file() and b"word a0" in path.read_bytes()]
    assert held == []
    assert "word a0" not in listed(dest)
    with refused(UsageError, 2, "has expired"):
        seen_at(dest, before)


def test_wishes_that_mean_nothing_are_refused(tmp_path: Path) -> None:
    _, _, ledger = made(tmp_path, 1)
    for wrong in (-1, True, 1.5, "tomorrow", "", b"3", 1 << 63):
        with refused(UsageError, 2, "keep_versions"):
            ledger.keep_versions(wrong)  # type: ignore[arg-type]


# --------------------------------------------------------------------------------------------------------------------------- pins
def test_a_pin_holds_files_where_they_lie_and_the_report_says_so(tmp_path: Path) -> None:
    _, dest, ledger = made(tmp_path)
    paths = sorted(path.name for path in dest.glob("*.parquet"))
    with ledger.pin() as version:
        done = ledger.compact(**HERE)
        assert (done.superseded, done.superseded_held, len(done.pins)) == (3, 3, 1)
        assert f"pin {done.pins[0]} holds 3 in the directory" in str(done)
        assert set(paths) < {path.name for path in dest.glob("*.parquet")}
        assert seen_at(dest, version) == ALL
        assert Ledger(dest).summary().superseded == 3
        assert "held by pins" in str(Ledger(dest).summary())
    assert listed(dest) == rows(dest), "the end of the pin lets them go"
    assert "held by pins" not in str(Ledger(dest).summary())


def test_forgotten_rows_leave_with_the_last_pin(tmp_path: Path) -> None:
    source, dest, ledger = made(tmp_path, keep_versions="1 day")
    with ledger.pin():
        told = ledger.forget(source / "f0", **HERE)
        assert told.superseded_held == 1
        assert "word a0" in listed(dest)
    assert "word a0" not in listed(dest)
    assert not any(b"word a0" in path.read_bytes() for path in dest.rglob("*") if path.is_file())


def test_a_pin_waits_until_what_has_begun_to_leave_has_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, dest, ledger = made(tmp_path)
    before = ledger.version
    with monkeypatch.context() as patch:
        patch.setattr(retire, "carry_out", kill)
        with pytest.raises(Killed):
            ledger.compact(**HERE)
    with Ledger(dest).pin(before):
        places = retire.places(store_of(dest))
        assert len(places) == 3, "a running scan holds these paths, and they stay"
        Ledger(dest).keep_versions(0)
        assert retire.places(store_of(dest)) == places
    assert kept(dest) == set()


# -------------------------------------------------------------------------------------------------------------- edges and ends
def test_a_retirement_that_died_is_ended_by_any_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest, ledger = made(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(retire, "carry_out", kill)
        with pytest.raises(Killed):
            ledger.compact(**HERE)
    assert len(list(dest.glob("*.parquet"))) == 4
    gather(source, dest, transform="raw", format="parquet")
    assert listed(dest) == rows(dest)


def test_a_superseded_file_that_somebody_moved_back_is_told_and_goes_with_the_next_expire(tmp_path: Path) -> None:
    _, dest, ledger = made(tmp_path)
    ledger.compact(**HERE)
    back = next((dest / "_quire/kept").rglob("*.kept"))
    (dest / back.name.removesuffix(".kept")).write_bytes(back.read_bytes())
    found = Ledger(dest).verify(spark=LocalRunner())
    assert not found.ok
    assert "superseded" in str(found)
    assert Ledger(dest).expire().data_files > 0
    assert listed(dest) == rows(dest)


def test_deletions_outlast_a_power_cut(tmp_path: Path) -> None:
    disk = sim.Disk(tmp_path, Unhindered())
    source = tmp_path / "in"
    with disk.installed():
        for i in range(2):
            write(source, {f"f{i}": f"secret{i}".encode()})
            gather(source, disk.url, transform="raw")
        Ledger(disk.url).forget(source / "f0", **HERE)
        disk.cut("lost", random.Random(1))
        assert [name for name, data in disk.objects("dest").items() if b"secret0" in data] == []


class Unhindered:
    """A world in which nothing befalls a disk."""

    def do(self, _store: Any, _op: str, _name: str, effect: Any, *_: Any) -> Any:
        return effect()

    def take_space(self, wanted: int) -> int:
        return wanted


def test_a_row_that_is_forgotten_beside_an_expire_is_kept_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest, ledger = made(tmp_path, 2, keep_versions="365 d")
    real = protocol.recover

    def recover(*args: Any, **how: Any) -> Log:
        found = real(*args, **how)
        with monkeypatch.context() as patch, suppress(Killed):
            patch.setattr(protocol, "recover", real)
            patch.setattr(protocol, "clean", kill)
            Ledger(dest).forget(source / "f0", **HERE)
        monkeypatch.setattr(protocol, "recover", real)
        return found

    monkeypatch.setattr(protocol, "recover", recover)
    ledger.expire(before_version=ledger.version - 1)
    gather(source, dest, transform="raw", format="parquet", include="g*")
    assert kept(dest) == set()
    assert "word a0" not in listed(dest)


def test_a_commit_of_a_call_that_died_does_not_hold_superseded_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest, ledger = made(tmp_path)
    write(source, {"new": b"word new"})
    commit = protocol.commit

    def beside(*args: Any, **how: Any) -> None:
        monkeypatch.setattr(protocol, "commit", commit)
        with monkeypatch.context() as patch, suppress(Killed):
            patch.setattr(protocol, "publish", kill)
            gather(source, dest, transform="raw", format="parquet")
        commit(*args, **how)

    monkeypatch.setattr(protocol, "commit", beside)
    done = ledger.compact(**HERE)
    assert (done.superseded, done.superseded_held) == (3, 0)
    assert listed(dest) == rows(dest)


@pytest.mark.nth(2)
@pytest.mark.parametrize("pinned", [False, True])
def test_what_is_kept_or_held_costs_later_calls_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, pinned: bool) -> None:
    source, dest, ledger = made(tmp_path, keep_versions="30 d")
    with ledger.pin() if pinned else nullcontext():
        ledger.compact(**HERE)
        asked = Counter[str]()
        get = LocalStore.get
        monkeypatch.setattr(LocalStore, "get", lambda store, name: (asked.update([name.partition("/0")[0]]), get(store, name))[1])
        costs = list[int]()
        for turn in range(3):
            for i in range(6):
                write(source, {f"t{turn}-{i}": b"word"})
                gather(source, dest, transform="raw", format="parquet")
            Ledger(dest).checkpoint(spark=LocalRunner())
            asked.clear()
            gather(source, dest, transform="raw", format="parquet")
            costs.append(asked["_quire/log"])
        assert costs[2] <= costs[1] + 8, "the log since the compaction is not read again"


def test_a_checkpoint_that_does_not_say_what_was_superseded_hides_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest, ledger = made(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(protocol, "retire", kill)
        with pytest.raises(Killed):
            ledger.compact(**HERE)
    Ledger(dest).checkpoint(spark=LocalRunner())
    (head,) = (dest / "_quire/checkpoints").glob("*.entry")
    said = json.loads(head.read_text())
    head.write_text(json.dumps({name: value for name, value in said.items() if name not in ("away", "retired", "superseding", "keep")}))
    gather(source, dest, transform="raw", format="parquet")
    assert listed(dest) == rows(dest)


def test_a_foreign_file_in_the_directory_stays(tmp_path: Path) -> None:
    _, dest, ledger = made(tmp_path)
    (dest / "notes.csv").write_text("mine")
    ledger.compact(**HERE)
    ledger.keep_versions(0)
    ledger.expire()
    assert (dest / "notes.csv").read_text() == "mine"


def test_a_store_that_copies_keeps_nothing_unless_somebody_wishes(monkeypatch: pytest.MonkeyPatch) -> None:
    for url, wish, files in (("memory://retire/a", None, 0), ("memory://retire/b", "1 day", 2)):
        monkeypatch.setattr(memory.MemoryStore, "can_rename", False)
        source = memory.MemoryStore(f"{url}/in")
        for i in range(2):
            source.put(f"f{i}", b"x")
            gather(f"{url}/in", f"{url}/out", committer="copy", **({"keep_versions": wish} if wish else {}))
        Ledger(f"{url}/out").compact(**HERE)
        store = connect(f"{url}/out")
        assert len(list(store.walk("_quire/kept"))) == files
        assert len([e for e in store.walk() if not e.name.startswith("_quire/")]) == 1
    protocol.recover(store)


def copying(monkeypatch: pytest.MonkeyPatch, name: str, files: dict[str, bytes], **how: Any) -> tuple[Ledger, Store]:
    """A destination in a store that copies, of several data files."""
    monkeypatch.setattr(memory.MemoryStore, "can_rename", False)
    source = memory.MemoryStore(f"memory://{name}/in")
    for file, content in files.items():
        source.put(file, content)
        gather(f"memory://{name}/in", f"memory://{name}/out", committer="copy", keep_versions="1 day", **how)
    return Ledger(f"memory://{name}/out"), connect(f"memory://{name}/out")


def test_what_a_store_does_not_take_by_its_kept_name_ends_older_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of a user's own job, or of directories by a value, may be as long as a store takes; a kept one is longer."""
    ledger, store = copying(monkeypatch, "long", {f"{'d' * 80}/f{i}": b"x" for i in range(2)}, layout="directories")
    before = ledger.version

    def check_name(_: object, name: str) -> None:
        if len(name) > 150:
            raise StorageError("a name has at most 150 bytes")

    monkeypatch.setattr(memory.MemoryStore, "check_name", check_name, raising=False)
    ledger.compact(**HERE)
    assert list(store.walk("_quire/kept")) == []
    assert len([e for e in store.walk() if not e.name.startswith("_quire/")]) == 1
    with refused(UsageError, 2, "has expired", "keep_versions"):
        live(store, before)


def test_a_copy_that_comes_after_a_forget_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call is about to keep what a compaction has superseded, and meanwhile somebody forgets a row of it."""
    ledger, store = copying(monkeypatch, "slow", {f"f{i}": f"secret{i}".encode() for i in range(2)})
    real, begun = memory.MemoryStore.copy, list[str]()

    def slow(store: memory.MemoryStore, old: str, new: str, version: str = "") -> bool:
        if new.startswith("_quire/kept") and not begun:
            begun.append(new)
            there = store.get(old)
            Ledger("memory://slow/out").forget("memory://slow/in/f0", committer="copy", **HERE)
            store.put(new, there)  # the service has read it before that, and writes it now
            return True
        return real(store, old, new, version)

    monkeypatch.setattr(memory.MemoryStore, "copy", slow)
    monkeypatch.setattr(retire, "PARALLEL", 1)
    ledger.compact(committer="copy", **HERE)
    assert begun
    assert list(store.walk("_quire/kept")) == []
    assert [e.name for e in store.walk() if b"secret0" in store.get(e.name)] == []


def test_a_forged_wish_that_says_neither_a_number_nor_a_time_is_refused(tmp_path: Path) -> None:
    source, dest, ledger = made(tmp_path, 1)
    ledger.keep_versions(3)
    entry = max((dest / "_quire/log").glob("*.entry"))
    entry.write_text(entry.read_text().replace('"versions": 3', '"versions": null'))
    with refused(QuireError, 2, entry.name):
        gather(source, dest, transform="raw", format="parquet")
