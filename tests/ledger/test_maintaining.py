"""Upkeep: what is due is done, beside runs, as far as there is time; whatever goes wrong in it, no run fails and nothing is lost."""

from __future__ import annotations

import json
import threading
import traceback
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import quire
from gathering import gather, refused, write
from quire import Ledger, LocalRunner
from quire.commit import archive, retire
from quire.commit.log import Log
from quire.coverage import checkpoint, segments
from quire.coverage.remembered import Remembered
from quire.engine import outages
from quire.errors import RefusedError, StorageError, UsageError
from quire.ledger import compact, maintaining
from quire.planning import plan
from quire.planning.rewriting import Live
from quire.storage import connect, local

HERE: dict[str, Any] = {"spark": LocalRunner(), "progress": False}
SOON: dict[str, Any] = {"small_files": 3, "small_share": 0.0, "target_size": "1000 B", "grace": 0}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little of everything is enough to be due, so that a test sees each service."""
    for module, name, value in ((archive, "BLOCK", 4), (archive, "GROUP", 2), (maintaining, "VERSIONS", 6), (checkpoint, "ENTRIES", 8)):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(retire, "HOUR", retire.NONE)


def runs(tmp_path: Path, first: int, last: int, **settings: Any) -> Path:
    for n in range(first, last):
        write(tmp_path / "in", {f"f{n:03}.txt": f"line {n}\n".encode() * 5})
        gather(tmp_path / "in", tmp_path / "out", **settings)
    return tmp_path / "out"


def expected(tmp_path: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted((tmp_path / "in").rglob("*.txt"))}


def lines_of(dest: Path) -> list[bytes]:
    return sorted(b"".join(path.read_bytes() for path in dest.glob("part-*")).splitlines())


def entries(dest: Path) -> list[int]:
    return sorted(int(p.name.removesuffix(".entry")) for p in (dest / "_quire/log").glob("*.entry"))


# ------------------------------------------------------------------------------------------------------------------ what is due
def test_what_is_due_is_told_and_then_done(tmp_path: Path) -> None:
    dest = runs(tmp_path, 0, 9)
    ledger = Ledger(dest)
    before = {path.name for path in dest.glob("part-*")}
    plan = ledger.maintain(dry_run=True, **SOON, **HERE)
    assert list(plan.due) == ["compact", "expire"]
    assert plan.due["compact"].startswith("9 of 9 data files are small")
    assert plan.dry_run
    assert {path.name for path in dest.glob("part-*")} == before, "a look changes nothing"
    done = ledger.maintain(**SOON, **HERE)
    assert done.compaction is not None
    assert (done.compaction.removed, done.compaction.written, done.hindered, done.left) == (9, 1, {}, ())
    assert done.expired is not None
    assert len(list(dest.glob("part-*"))) == 1
    ledger.checkpoint(spark=LocalRunner())
    again = ledger.maintain(**SOON, **HERE)
    assert again.archived + done.archived >= 12
    assert entries(dest)[0] > 12
    assert len(ledger.inspect.history()) == ledger.version
    assert ledger.maintain(dry_run=True, **SOON, **HERE).due == {}, "and then nothing is"
    assert "compacted" in str(done)
    assert "archived" in str(again) + str(done)
    assert json.loads(json.dumps(again.as_dict()))["archived"] == again.archived
    said = json.loads(json.dumps(done.as_dict()))
    assert (said["compaction"]["removed"], said["expired"]["dest"]) == (9, done.dest)
    assert ledger.verify(spark=LocalRunner()).ok
    assert ledger.summary().files == 9
    assert lines_of(dest) == sorted(line for content in expected(tmp_path).values() for line in content.splitlines())


def test_a_file_waits_for_others_that_are_as_large_together(tmp_path: Path) -> None:
    dest = runs(tmp_path, 0, 6)
    settings = {**SOON, "target_size": "100 kB"}
    Ledger(dest).maintain(**settings, **HERE)
    (large,) = dest.glob("part-*")
    runs(tmp_path, 6, 9)
    done = Ledger(dest).maintain(**settings, **HERE)
    assert done.compaction is not None
    assert (done.compaction.removed, large.exists()) == (3, True), "the small ones alone, as they are less than it together"
    runs(tmp_path, 9, 15)
    Ledger(dest).maintain(**settings, **HERE)
    assert (len(list(dest.glob("part-*"))), large.exists()) == (1, False)


def test_each_directory_is_for_itself(tmp_path: Path) -> None:
    for n in range(5):
        write(tmp_path / "in", {f"d{n % 2}/f{n}.txt": b"line\n"})
        gather(tmp_path / "in", tmp_path / "out", layout="directories")
    Ledger(tmp_path / "out").maintain(**SOON, **HERE)
    assert sorted(path.parent.name for path in (tmp_path / "out").rglob("part-*")) == ["d0", "d1"]


def chosen(tmp_path: Path, files: list[Live], version: int = 1) -> list[dict[str, int]]:
    log = Log(connect(f"file://{tmp_path / 'out'}", None)).refresh()
    return [its for _, its in compact.mergeable(log, version, 1_000, files)]


@pytest.mark.parametrize(
    ("made", "others", "rest", "merged"),
    [
        ([700, 600], [100] * 14, False, [700, *[100] * 14]),  # the fuller one
        ([900, 600], [50] * 3, False, [50] * 3),  # one is full, and there is too little for the other
        ([700, 600], [], True, []),  # they would stay two
        ([], [700, 600], True, []),
        ([], [600, 350], True, []),
        ([], [400, 350], True, [400, 350]),
        ([], [700, *[100] * 14], False, [100] * 14),  # no upkeep has made it
    ],
)
def test_merged_files_grow_until_they_are_nearly_full(
    tmp_path: Path, made: list[int], others: list[int], rest: bool, merged: list[int]
) -> None:
    runs(tmp_path, 0, 1)
    files = [Live(f"part-{i}", size, "", 1, "compact") for i, size in enumerate(made)]
    files += [Live(f"part-{i}", size, "", 1, "run") for i, size in enumerate(others, len(made))]
    found = chosen(tmp_path, files, 1 + (compact.AT_REST if rest else 0))
    assert sorted(size for its in found for size in its.values()) == sorted(merged)


@pytest.mark.parametrize(
    ("sizes", "most", "again"),
    [
        ([10], 1.1, 3),  # a hundred fill a file
        ([5, 10, 30], 1.1, 3),
        ([350], 1.5, 3),  # of which two fit, and no third one
        ([10] * 20 + [350], 1.2, 3),
        ([10] * 20 + [700], 1.5, 3),
    ],
)
def test_few_files_come_of_many_and_each_byte_is_written_few_times(tmp_path: Path, sizes: list[int], most: float, again: float) -> None:
    """What came in one piece stays in one, so not all files can be filled: no upkeep tries that again and again."""
    runs(tmp_path, 0, 1)
    random, there, number, came, written = Random(1), dict[Live, list[int]](), 0, 0, 0

    def put(pieces: list[int], verb: str, version: int) -> None:
        nonlocal number
        number += 1
        there[Live(f"part-{number}", sum(pieces), "", version, verb)] = pieces

    for version in range(300):
        for size in random.choices(sizes, k=random.randint(3, 40)):
            put([size], "run", version)
            came += size
        for its in chosen(tmp_path, [*there], version):
            pieces, part = [piece for file in [*there] if file.name in its for piece in there.pop(file)], list[int]()
            written += sum(pieces)
            for piece in pieces:
                if sum(part) + piece > 1_000:
                    put(part, "compact", version)
                    part = []
                part.append(piece)
            put(part, "compact", version)
    assert len(there) < most * came / 1_000
    assert written < again * came


def test_a_directory_at_rest_becomes_as_few_files_as_its_volume_allows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file is larger than all smaller ones together, so where more may come they wait for it."""
    monkeypatch.setattr(compact, "AT_REST", 8)
    dest, settings = tmp_path / "out", {**SOON, "target_size": "10 kB", "small_files": 2}

    def come(day: int, sizes: list[int]) -> None:
        for n, size in enumerate(sizes):
            write(tmp_path / "in", {f"d{day}/f{n}.txt": b"x" * (size - 1) + b"\n"})
            gather(tmp_path / "in", dest, layout="directories")

    come(1, [100, 210, 430])
    come(2, [4_000])
    assert "compact" not in Ledger(dest).maintain(dry_run=True, **settings, **HERE).due
    come(3, [100, 210, 430])
    assert "compact" in Ledger(dest).maintain(dry_run=True, **settings, **HERE).due
    done = Ledger(dest).maintain(**settings, **HERE).compaction
    assert done is not None
    assert (done.removed, done.written) == (3, 1)
    assert {d: len(list((dest / d).iterdir())) for d in ("d1", "d2", "d3")} == {"d1": 1, "d2": 1, "d3": 3}
    come(4, [100])
    Ledger(dest).maintain(**settings, **HERE)
    merged = {path for path in dest.glob("d*/part-*") if path.parent.name != "d4"}
    assert sorted(path.parent.name for path in merged) == ["d1", "d2", "d3"], "each is at rest by now"
    come(4, [210, 430])
    Ledger(dest).maintain(**settings, **HERE)
    assert {path for path in dest.glob("d*/part-*") if path.parent.name != "d4"} == merged, "and is not written again"
    assert sum(path.stat().st_size for path in dest.rglob("part-*")) == 2 * 740 + 4_000 + 530


def test_nothing_begins_after_the_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dest = runs(tmp_path, 0, 9)
    done = Ledger(dest).maintain(time_limit=0.000001, **SOON, **HERE)
    assert done.left == ("compact", "expire")
    assert "left for the next call" in str(done)
    monkeypatch.setattr(maintaining, "TASKS", 1)
    write(tmp_path / "in", {f"d{i}/g{n}.txt": b"line\n" for i in range(3) for n in range(4)})
    gather(tmp_path / "in", dest)
    assert Ledger(dest).maintain(time_limit="1 h", **SOON, **HERE).left == ()


def test_pins_hold_their_versions(tmp_path: Path) -> None:
    dest = runs(tmp_path, 0, 4)
    ledger = Ledger(dest)
    with ledger.pin(4):
        runs(tmp_path, 4, 12)
        ledger.checkpoint(spark=LocalRunner())
        done = ledger.maintain(**SOON, **HERE)
        assert done.expired is None or done.expired.before_version <= 4
        assert 5 in entries(dest)
        assert quire.Ledger(dest).as_of(4).summary().files == 2


# ------------------------------------------------------------------------------------------------------------------ beside a loop
class Loop(threading.Event):
    """A file comes while the loop waits; so many times."""

    def __init__(self, tmp_path: Path, times: int) -> None:
        super().__init__()
        self.place, self.times, self.done = tmp_path, times, 0

    def wait(self, timeout: float | None = None) -> bool:
        self.done += 1
        write(self.place / "in", {f"f{self.done:03}.txt": f"line {self.done}\n".encode() * 5})
        return self.done > self.times


@pytest.fixture
def long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that has time."""
    now = [1e9]

    def clock() -> float:
        now[0] += 3600.0
        return now[0]

    monkeypatch.setattr(outages, "clock", clock)


def loop(tmp_path: Path, times: int, **settings: Any) -> quire.Report:
    write(tmp_path / "in", {"f000.txt": b"line 0\n" * 5})
    return gather(tmp_path / "in", tmp_path / "out", every=1, stop=Loop(tmp_path, times), **settings)


@pytest.mark.usefixtures("long_ago")
def test_a_loop_maintains_its_destination_by_itself(tmp_path: Path) -> None:
    report = loop(tmp_path, 20, maintain=SOON)
    dest = tmp_path / "out"
    assert report.upkeep == ()
    verbs = list(Ledger(dest).inspect.history()["verb"])
    assert verbs.count("run") == 21
    assert verbs.count("compact") >= 3
    assert len(list(dest.glob("part-*"))) < 8
    assert len(entries(dest)) < 24, "the log's old entries are archived"
    assert Ledger(dest).summary().files == 21
    Ledger(dest).expire(grace=0)
    assert Ledger(dest).verify(spark=LocalRunner()).ok


@pytest.mark.usefixtures("long_ago")
def test_its_upkeep_reads_the_log_no_more_than_a_run_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin, read = Log._begin, list[str]()

    def begun(log: Log, base: Any) -> None:
        read.append(traceback.extract_stack()[-3].filename.rsplit("/", 1)[-1])
        begin(log, base)

    monkeypatch.setattr(Log, "_begin", begun)
    loop(tmp_path, 24, maintain={"small_files": 4})
    merged, read = read.count("carry.py"), [name for name in read if name != "carry.py"]
    assert merged >= 5, "tasks of compactions, which may run in another process"
    assert set(read) == {"held.py", "checkpoint.py"}
    assert read.count("held.py") <= 1 + read.count("checkpoint.py"), "anew for each checkpoint alone"


def rows_of(split: Any, content: bytes) -> pa.Table:
    n = int(content.split()[1])
    return pa.table({"id": [f"a{n}", "same"], "city": ["sf", "la"], "n": [n, n]})


def of_table(tmp_path: Path, times: int, **settings: Any) -> tuple[quire.Table, quire.Report]:
    """A loop that upserts two rows a run."""
    table = quire.Table.create(tmp_path / "table", key="id", partition_by="city", **settings.pop("create", {}))
    write(tmp_path / "in", {"f000.txt": b"line 0\n"})
    report = quire.process(
        tmp_path / "in", table, rows_of, schema="id string, city string, n long", function_version="1", every=1, stop=Loop(tmp_path, times),
        operation=settings.pop("operation", "upsert"), **settings, **HERE,
    )  # fmt: skip
    return table, report


def rows_there(table: quire.Table) -> dict[str, int]:
    return {row["id"]: row["n"] for row in table.snapshot(spark=LocalRunner()).to_pylist()}


@pytest.mark.usefixtures("long_ago")
@pytest.mark.nth(2)
@pytest.mark.parametrize(
    "create", [{}, {"type": "merge_on_read", "ordering": "n", "index": "bucket", "buckets": 1}], ids=["copy on write", "merge on read"]
)
def test_a_loop_maintains_a_table_by_itself(tmp_path: Path, create: dict[str, Any]) -> None:
    operation = "upsert" if create else "bulk_insert"
    wanted = {"small_files": 3, "grace": 0, "keep": 2, "log_ratio": 0.0}
    table, report = of_table(tmp_path, 9, maintain=wanted, create=create, operation=operation)
    assert report.upkeep == ()
    assert len(table.timeline()) < 10, "old instants are archived"
    verbs = set(Ledger(table.url).inspect.history()["verb"])
    assert {"clean", "archive", "compact" if create else "cluster"} <= verbs
    assert table.stats().files < 10
    found = table.snapshot(spark=LocalRunner())
    assert found.num_rows == (11 if create else 20)
    assert rows_there(table) == {f"a{n}": n for n in range(10)} | {"same": rows_there(table)["same"]}
    assert Ledger(table.url).summary().files == 10
    assert Ledger(table.url).verify(spark=LocalRunner()).ok


@pytest.mark.usefixtures("long_ago")
def test_a_table_keeps_no_segments_that_its_checkpoints_stand_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its clean says which versions end, and upkeep takes what only these needed."""
    monkeypatch.setattr(checkpoint, "ENTRIES", 6)
    table, report = of_table(tmp_path, 20, maintain={"small_files": 3, "grace": 0, "keep": 2, "log_ratio": 0.0})
    assert report.upkeep == ()
    state = tmp_path / "table/.hoodie/_quire"
    assert len(list(state.glob("ledger/*"))) < 12, "of 21 runs and their upkeep"
    assert len(list(state.glob("checkpoints/*.entry"))) < 6
    ledger = Ledger(table.url)
    assert ledger.summary().files == 21
    assert ledger.verify(spark=LocalRunner()).ok
    assert len(ledger.inspect.splits(spark=LocalRunner())) == 21
    assert rows_there(table) == {f"a{n}": n for n in range(21)} | {"same": rows_there(table)["same"]}
    runs = ledger.inspect.history().query("verb == 'run'")
    with ledger.pin(shows := int(runs["version"].iloc[-1]) + 1) as version:
        assert version == shows, "only a clean ends versions"
    again: dict[str, Any] = {"schema": "id string, city string, n long", "function_version": "1", "maintain": False, **HERE}
    instant = table.savepoint()
    assert quire.process(tmp_path / "in", table, rows_of, **again).files == 1  # the one that came as the loop ended
    assert table.restore(instant, progress=False).splits == 1
    assert quire.process(tmp_path / "in", table, rows_of, **again).files == 1
    assert Ledger(table.url).verify(spark=LocalRunner()).ok
    assert rows_there(table)["a21"] == 21


@pytest.mark.usefixtures("long_ago")
def test_what_is_younger_than_the_grace_stays_readable(tmp_path: Path) -> None:
    """However many writes there are: who follows the table may be behind."""
    table, _ = of_table(tmp_path, 6, maintain={"small_files": 3, "keep": 2, "grace": "1 day"})
    instants = list(table.timeline()["instant"])
    first = min(instants)
    assert table.as_of(first).snapshot(spark=LocalRunner()).num_rows == 2
    assert table.changes(first, spark=LocalRunner()).num_rows > 0
    assert not {"clean", "archive"} & set(Ledger(table.url).inspect.history()["verb"])


@pytest.mark.usefixtures("long_ago")
def test_a_table_whose_upkeep_fails_has_its_log_maintained_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a mistake")

    monkeypatch.setattr(maintaining, "MaintainingTable", fails)
    _, report = of_table(tmp_path, 4, maintain={"small_files": 3, "grace": 0})
    assert report.upkeep == ("RuntimeError: a mistake",)
    assert Ledger(tmp_path / "table").summary().files == 5
    assert quire.status(tmp_path / "table")


@pytest.mark.usefixtures("long_ago")
@pytest.mark.parametrize("settings", [{"maintain": False}, {"maintain": {**SOON, "small_files": 999}}], ids=["off", "not due"])
def test_it_may_be_turned_off(tmp_path: Path, settings: dict[str, Any]) -> None:
    loop(tmp_path, 10, **settings)
    assert "compact" not in set(Ledger(tmp_path / "out").inspect.history()["verb"])


@pytest.mark.usefixtures("long_ago")
def test_a_single_call_does_it_where_that_is_asked_for(tmp_path: Path) -> None:
    runs(tmp_path, 0, 5)
    assert "compact" not in set(Ledger(tmp_path / "out").inspect.history()["verb"])
    runs(tmp_path, 5, 6, maintain=SOON)
    assert "compact" in set(Ledger(tmp_path / "out").inspect.history()["verb"])


@pytest.mark.usefixtures("long_ago")
@pytest.mark.parametrize("spare", [[9.0], [0.0, 0.0, 9.0]], ids=["time", "time later"])
def test_a_loop_without_new_files_does_what_one_before_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spare: list[float]
) -> None:  # fmt: skip
    dest = runs(tmp_path, 0, 9)
    given = iter(spare)
    monkeypatch.setattr(maintaining.Budget, "spare", property(lambda _: next(given, 9.0)))
    gather(tmp_path / "in", dest, maintain=SOON, every=0.01, max_runs=len(spare))
    assert list(Ledger(dest).inspect.history()["verb"]).count("run") == 9
    assert "compact" in set(Ledger(dest).inspect.history()["verb"])
    assert lines_of(dest) == sorted(b"".join(expected(tmp_path).values()).splitlines())


@pytest.mark.usefixtures("long_ago")
@pytest.mark.parametrize("error", [StorageError("cannot write: no space left on device"), RuntimeError("a mistake")], ids=["full", "bug"])
def test_what_goes_wrong_in_it_is_told_and_the_run_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(maintaining.compact, "compact", fails)
        report = loop(tmp_path, 8, maintain=SOON)
    assert str(error) in report.upkeep[0]
    assert "upkeep was hindered" in str(report)
    assert "the next upkeep tries again" in capsys.readouterr().err
    assert Ledger(tmp_path / "out").summary().files == 9
    assert quire.status(tmp_path / "out").ok


@pytest.mark.usefixtures("long_ago")
def test_a_disk_that_is_full_for_upkeep_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each write of a compaction fails: its job stays open or never begins, and the next upkeep does it."""
    real, full = local.LocalStore.put, [True]

    def put(self: Any, name: str, data: bytes) -> None:
        if full[0] and "/jobs/" in name and maintaining_now[0]:
            raise StorageError("cannot write: no space left on device")
        real(self, name, data)

    maintaining_now = [False]
    tried = maintaining.Beside._tried

    def watched(self: Any) -> Any:
        maintaining_now[0] = True
        try:
            return tried(self)
        finally:
            maintaining_now[0] = False

    monkeypatch.setattr(local.LocalStore, "put", put)
    monkeypatch.setattr(maintaining.Beside, "_tried", watched)
    report = loop(tmp_path, 8, maintain=SOON)
    assert "no space left" in report.upkeep[0]
    full[0] = False
    done = Ledger(tmp_path / "out").maintain(**SOON, **HERE)
    assert done.hindered == {}
    assert done.compaction is not None
    assert Ledger(tmp_path / "out").summary().files == 9


def test_it_takes_a_tenth_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a loop that has just begun there is no time yet."""
    monkeypatch.setattr(outages, "clock", lambda: 1e9)
    loop(tmp_path, 8, maintain=SOON)
    assert "compact" not in set(Ledger(tmp_path / "out").inspect.history()["verb"])


@pytest.mark.parametrize("jump", [-1e8, 1e8], ids=["back", "on"])
def test_a_clock_that_jumps_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: float) -> None:
    now = [1e9]

    def clock() -> float:
        now[0] += jump if int(now[0]) % 7 == 0 else 3600.0
        return now[0]

    monkeypatch.setattr(outages, "clock", clock)
    loop(tmp_path, 10, maintain=SOON)
    assert Ledger(tmp_path / "out").summary().files == 11
    assert "compact" in set(Ledger(tmp_path / "out").inspect.history()["verb"])


def test_a_run_plans_again_where_upkeep_deletes_what_it_was_to_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without grace; with a checkpoint as the beginning of the log, and without one. What is missing with no other in its place fails."""
    for first in (0, 9):
        dest, made = runs(tmp_path, first, first + 9), list[int]()

        def make(*args: Any, of: Any = plan.make, made: list[int] = made, dest: Path = dest) -> Any:
            made.append(1)
            for _ in range(4 if len(made) == 1 else 0):
                Ledger(dest).checkpoint(spark=LocalRunner())
                Ledger(dest).maintain(**SOON, **HERE)
            return of(*args)

        with monkeypatch.context() as patched:
            patched.setattr(plan, "make", make)
            runs(tmp_path, first + 8, first + 10)
        assert len(made) > 2
        assert Ledger(dest).summary().files == first + 10


@pytest.mark.parametrize("remembered", [False, True])  # what the process has read of it is as good, since it never changes
def test_a_run_plans_again_from_an_older_checkpoint_where_a_piece_goes(
    remembered: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dest, made = runs(tmp_path, 0, 9), list[int]()
    Ledger(dest).checkpoint(spark=LocalRunner())
    runs(tmp_path, 9, 10)
    Ledger(dest).checkpoint(spark=LocalRunner())
    runs(tmp_path, 10, 11)

    def make(*args: Any, of: Any = plan.make) -> Any:
        made.append(1)
        assert len(made) < 4, "it plans again and again"
        (*_, newest) = sorted(path for path in (dest / "_quire/checkpoints").iterdir() if path.is_dir())
        for piece in newest.iterdir() if len(made) == 1 else ():
            piece.unlink()
        if not remembered:
            monkeypatch.setattr(segments, "_SEEN", Remembered(segments._Seen, segments.PIECES))
        return of(*args)

    monkeypatch.setattr(plan, "make", make)
    runs(tmp_path, 11, 12, every="10 ms", max_runs=2)
    assert len(made) == (2 if remembered else 3)
    assert Ledger(dest).summary().files == 12


def test_two_at_once_beside_runs(tmp_path: Path) -> None:
    dest = runs(tmp_path, 0, 9)
    failed = list[object]()

    def work() -> None:
        try:
            for _ in range(3):
                failed.extend(Ledger(dest).maintain(**SOON, **HERE).hindered.values())
        except BaseException as e:  # whatever it is, the test tells it
            failed.append(e)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    runs(tmp_path, 9, 14)
    for thread in threads:
        thread.join()
    assert failed == []
    Ledger(dest).maintain(**SOON, **HERE)
    assert lines_of(dest) == sorted(line for content in expected(tmp_path).values() for line in content.splitlines())
    assert Ledger(dest).summary().files == 14
    assert Ledger(dest).verify(spark=LocalRunner()).ok


@pytest.mark.parametrize(
    ("name", "wrong", "line"),
    [
        ("small_files", 1, "small_files takes how many"), ("small_files", True, "small_files takes how many"),
        ("small_share", -1, "small_share takes"), ("small_share", float("nan"), "small_share takes"), ("target_size", "big", "big"),
        ("sort_by", [], "sort_by is a column"), ("grace", "soon", "grace='soon' is not a time span"), ("time_limit", 0, "time_limit is 0"),
        ("max_runs", 2, "every="), ("dry_run", "no", "dry_run"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_one_line(tmp_path: Path, name: str, wrong: object, line: str) -> None:
    dest = runs(tmp_path, 0, 1)
    with refused(UsageError, 2, line):
        Ledger(dest).maintain(**{**HERE, name: wrong})  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        (1, "small_files"), ("yes", "small_files"), ({"small_file": 3}, "unknown key of maintain 'small_file'"),
        ({"small_files": 1}, "small_files"),
        ({"every": "1 h"}, "small_files"), ({"keep": 0}, "keep takes"), ({"log_ratio": "x"}, "log_ratio takes"),
        ({"sort_by": 5}, "sort_by"),
    ],
    ids=str,
)  # fmt: skip
def test_a_wrong_setting_is_said_before_anything_runs(tmp_path: Path, wrong: object, line: str) -> None:
    write(tmp_path / "in", {"f": b"line\n"})
    with refused(UsageError, 2, line):
        gather(tmp_path / "in", tmp_path / "out", every=1, max_runs=1, maintain=wrong)
    assert not (tmp_path / "out").exists()


# ---------------------------------------------------------------------------------------------- rows that belong to their commit
def shuffled(rows: pa.Table) -> pa.Table:
    return rows


def of_commits(tmp_path: Path, n: int = 6) -> Path:
    """Commits whose files hold the rows of all of their splits."""
    for i in range(n):
        write(tmp_path / "in", {f"f{i}.txt": b"x"})
        quire.process(
            tmp_path / "in", tmp_path / "out", lambda split, _: pa.table({"path": [split.path], "n": [9 - int(split.path[-5])]}),
            schema="path string, n long", reduce=shuffled, function_version="1", **HERE,
        )  # fmt: skip
    return tmp_path / "out"


def told(dest: Path) -> list[Any]:
    found = [row for path in sorted(dest.glob("*.parquet")) for row in pa.parquet.read_table(path).to_pylist()]
    return sorted(found, key=lambda row: str(row["path"]))


def test_they_are_merged_and_stay_rows_of_their_commits(tmp_path: Path) -> None:
    dest = of_commits(tmp_path)
    before, ledger = told(dest), Ledger(dest)
    located = {f"f{i}": ledger.locate(tmp_path / f"in/f{i}.txt")[0].commit for i in range(6)}
    done = ledger.compact("64 KiB", **HERE)
    assert (done.removed, done.written) == (6, 1)
    assert told(dest) == before
    assert {f"f{i}": ledger.locate(tmp_path / f"in/f{i}.txt")[0].commit for i in range(6)} == located
    assert ledger.summary().records == 6
    assert ledger.verify(spark=LocalRunner()).ok
    write(tmp_path / "in", {"f6.txt": b"x"})
    assert of_commits(tmp_path, 0) == dest


def test_such_commits_leave_together(tmp_path: Path, spark: Any) -> None:
    dest = of_commits(tmp_path, 3)
    ledger = Ledger(dest)
    numbers = [ledger.locate(tmp_path / f"in/f{i}.txt")[0].commit for i in range(3)]
    ledger.compact("64 KiB", **HERE)
    name = ledger.inspect.files()["data_file"][0]
    where = f"commit in ({', '.join(map(str, numbers))})"
    for wanted in ({"paths": [tmp_path / "in/f0.txt"]}, {"file": name}):
        with refused(RefusedError, 2, where):
            ledger.forget(**wanted, **HERE)
    assert len(told(dest)) == 3
    ledger.forget(where=where, spark=spark, progress=False)
    assert (told(dest), ledger.summary().files) == ([], 0)


def test_they_are_sorted_where_that_is_asked_for(tmp_path: Path) -> None:
    dest = of_commits(tmp_path)
    with refused(UsageError, 2, "sort_by"):
        Ledger(dest).compact("64 KiB", sort_by=[], **HERE)
    Ledger(dest).compact("64 KiB", sort_by="n", **HERE)
    (path,) = dest.glob("*.parquet")
    assert pa.parquet.read_table(path).column("n").to_pylist() == sorted(9 - i for i in range(6))


def test_upkeep_sorts_what_it_merges_where_that_is_asked_for(tmp_path: Path) -> None:
    dest = of_commits(tmp_path)
    done = Ledger(dest).maintain(sort_by="n", **{**SOON, "target_size": "64 KiB"}, **HERE)
    assert done.compaction is not None
    (path,) = dest.glob("*.parquet")
    assert pa.parquet.read_table(path).column("n").to_pylist() == sorted(9 - i for i in range(6))
    assert "sort_by= is for Parquet" in Ledger(runs(tmp_path / "more", 0, 9)).maintain(sort_by="n", **SOON, **HERE).hindered["compact"]


def test_rows_of_which_the_ledger_knows_the_place_are_not_sorted(tmp_path: Path) -> None:
    dest = runs(tmp_path, 0, 3)
    with refused(UsageError, 2, "sort_by= is for Parquet whose rows belong to their commit"):
        Ledger(dest).compact("1 MiB", sort_by="n", **HERE)


def claimed(tmp_path: Path, write_one: Any, n: int = 3) -> Path:
    """Claims whose blocks write a file each."""
    ledger = Ledger(tmp_path / "out", create=True)
    for i in range(n):
        write(tmp_path / "in", {f"f{i}.txt": b"x"})
        with ledger.claim(tmp_path / "in", **HERE) as c:
            folder = Path(c.path.removeprefix("file://"))
            folder.mkdir(parents=True, exist_ok=True)
            write_one(folder, i)
    return tmp_path / "out"


def test_parquet_of_claims_is_merged_but_for_what_cannot_be_written_again(tmp_path: Path) -> None:
    def one(folder: Path, i: int) -> None:
        at = pa.array([i * 3_600_000_000_000], pa.timestamp("ns"))
        pa.parquet.write_table(pa.table({"path": [f"{i}"], "at": at}), folder / "a.parquet", use_deprecated_int96_timestamps=True)

    dest = claimed(tmp_path, one)
    done = Ledger(dest).compact("64 KiB", **HERE)
    assert (done.removed, done.written) == (3, 1)
    (path,) = dest.glob("*.parquet")
    table = pa.parquet.read_table(path)
    assert table.schema.field("at").type == pa.timestamp("us", "UTC"), "an instant, as Spark reads it"
    assert [at.hour for at in table.column("at").to_pylist()] == [0, 1, 2]
    assert Ledger(dest).verify(spark=LocalRunner()).ok


def test_text_of_claims_stays_as_it_is(tmp_path: Path) -> None:
    """It may begin with a header."""
    dest = claimed(tmp_path, lambda folder, i: (folder / "a.csv").write_text(f"id\n{i}\n"))
    assert Ledger(dest).compact("64 KiB", **HERE).jobs == ()
    assert "compact" not in Ledger(dest).maintain(dry_run=True, **SOON, **HERE).due
