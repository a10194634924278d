"""Checkpoints: with one, without one, beside runs and after a crash, the ledger says the same; and none is ever silently wrong."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import quire
import sums
from gathering import gather
from gathering import write as write_files
from quire import Ledger, LocalRunner
from quire.commit import checkpoints, log, names, protocol, reading
from quire.commit.entries import Abort, Commit, Coverage, DataFile, Expired, Pin, Published, Spec, Stats, Task, Uncover, Unpin, encode
from quire.commit.log import Log
from quire.coverage import checkpoint, segments
from quire.coverage.fold import Fold, fold
from quire.coverage.live import live, totals
from quire.coverage.quarantine import QuarantineWriter, dead, records
from quire.errors import FormatError, QuireError
from quire.formats import parquet
from quire.ledger.identifiers import identifier
from quire.planning.rewriting import live_files
from quire.read import first_rows
from quire.storage import Store, connect, memory
from sim import forget_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEST = "memory://ledger"
SPEC = Spec(transform="lines", format="lines", compression="none", layout="flat")
BARE = {"dropped": (), "left": (), "parts": None, "closer": ""}
PATHS = [f"memory://s/{c}" for c in "abcdefgh"]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pieces of a few rows, so that a small ledger has many."""
    for module, name, value in [
        (checkpoint, "PIECE_ROWS", 4), (checkpoint, "TABLE_ROWS", 2), (checkpoint, "HISTORY_ROWS", 3), (checkpoints, "HISTORY_ROWS", 3),
        (segments, "ROW_GROUP", 2),
    ]:  # fmt: skip
        monkeypatch.setattr(module, name, value)
    forget_all()
    yield
    forget_all()


def store() -> Store:
    return connect(DEST, None)


def put(entry: Any) -> int:
    there = store()
    log = Log(there).refresh()
    assert there.put_if_absent(names.entry(log.tip + 1), protocol.encode(entry))
    return log.tip + 1


def rows(paths: list[str], version: str = "1", state: str = "done", data_file: str | None = None, at: int = 0) -> list[dict[str, Any]]:
    place = {"data_file": data_file, "offset": at, "skip": 0, "written": 1, "records": 1, "checksum": 7} if data_file else {}
    reason = {"reason": "broken", "tries": 1} if state == "quarantined" else {}
    return [
        {"path": p, "version": version, "start": 0, "length": 9, "state": state, "carried": False, **place, **reason} for p in sorted(paths)
    ]


def task(job: str, number: int, found: list[dict[str, Any]], folder: str = "", **fields: Any) -> Task:
    """A task with a segment of these rows, and a data file where some name one ("own")."""
    attempt = names.new_id()
    name = names.data_file("", job, number, attempt, 0, "txt")
    writer = segments.SegmentWriter()
    writer.add(pa.Table.from_pylist([{**r, "data_file": r.get("data_file") and name} for r in found], segments.SCHEMA))
    data, segment = writer.finish(), None
    if data is not None:
        segment = names.segment(job, number, attempt)
        store().put(segment, data)
    rejected, aside = [r for r in found if r["state"] == "quarantined" and r.get("records")], None
    if rejected:
        kept = QuarantineWriter()
        for r in rejected:
            kept.add(r["path"], r["version"], r["start"], b"broken", r["length"], "broken", None, 1)
        aside = names.quarantine(job, number, attempt)
        store().put(aside, kept.finish() or b"")
    files = (DataFile(name, 9, sum(bool(r.get("data_file")) for r in found), "x"),) if any(r.get("data_file") for r in found) else ()
    done, bad = (sum(r["state"] in states for r in found) for states in (("done", "mark"), ("quarantined",)))
    coverage: dict[str, Any] = {"segment": segment, "first": writer.first, "last": writer.last, "quarantine": aside}
    stats: dict[str, Any] = {
        "assigned": len(found), "gathered": done, "quarantined_files": bad - len(rejected), "quarantined_records": len(rejected),
        "pieces": len(rejected), "files_in": done, "bytes_in": 9 * done,
    }  # fmt: skip
    for name, value in fields.items():
        (coverage if name in Coverage.__struct_fields__ else stats)[name] = value
    return Task(task=number, attempt=attempt, data_files=files, folder=folder, coverage=Coverage(**coverage), stats=Stats(**stats))


_count = itertools.count()


def job_name(base: int) -> str:
    return f"{base}-{next(_count):016x}"


def commit(
    tasks: Callable[[str], list[Task]], base: int | None = None, lost: tuple[int, ...] | None = (), job: str = "", **how: Any
) -> str:
    """A commit, and its `published` unless `lost` is None."""
    base = Log(store()).refresh().tip if base is None else base
    job = job or job_name(base)
    put(Commit(job=job, base=base, committer="rename", time="2026", tasks=tuple(tasks(job)), **{"spec": SPEC, **BARE, **how}))
    if lost is not None:
        put(Published(job=job, time="2026", lost=lost))
    return job


def plain() -> Log:
    """The log as it is without any checkpoint."""
    log = Log(store())
    log._opened = True
    log._read_listed()
    return log.refresh()


def content(log: Log, version: int, *, reader: bool = False) -> list[dict[str, Any]]:
    found = fold(log, version, reader=reader).rows(store(), [*segments.SCHEMA.names, "attempt", "quarantine"])
    return sorted(found.to_pylist(), key=lambda r: (r["path"], r["version"], r["start"], r["attempt"]))


def same(since: int) -> None:
    """With the checkpoint and without, the log and the ledger say the same of each version from `since` on."""
    with_it, without = Log(store()).refresh(), plain()
    assert with_it.merged, "there is no checkpoint to look at"
    assert without.base is None
    jobs = {e.job for e in without.entries if isinstance(e, Commit | Abort | Published)} | {"0-ffffffffffffffff"}
    for ending in {job.partition("-")[2] for job in sorted(jobs)[:3]}:
        assert sorted(c.job for c in with_it.ending(ending)) == sorted(c.job for c in without.ending(ending))
    for job in jobs:
        assert with_it.decided(job) == without.decided(job)
        assert with_it.published(job) == without.published(job)
    said = [
        (
            log.tip, log.pins(), log.expired(), log.target(), log.on_append(), log.schemas(), log.committers(),
            log.frozen(), log.transforms(), log.filling(), log.saying(),
        )
        for log in (with_it, without)
    ]  # fmt: skip
    assert said[0] == said[1]
    assert [x.job for x in with_it.unpublished()] == [x.job for x in without.unpublished()]
    there = {since, without.tip // 2, with_it.merged - 1, with_it.merged, without.tip - 1, without.tip}
    for version in sorted(v for v in there if v >= since):
        assert with_it.settled_version(version) == without.settled_version(version)
        for reader in (False, True):
            assert content(with_it, version, reader=reader) == content(without, version, reader=reader)
            a, b = (fold(log, version, reader=reader) for log in (with_it, without))
            assert list(live(with_it, a, reader=reader)) == list(live(without, b, reader=reader))
        assert totals(with_it, a) == totals(without, b)
        assert live_files(with_it, version) == live_files(without, version)
        assert [n for n, _ in with_it.commits(until=version)] == [n for n, _ in without.commits(until=version)]
    assert records(store(), a).to_pylist() == records(store(), b).to_pylist()
    settled = without.settled_version()
    assert sorted(dead(store(), with_it, settled)) == sorted(dead(store(), without, settled))
    assert Log(store()).refresh().entries == without.entries
    assert [e for _, e in Log(store()).refresh().commits(after=since)] == [e for _, e in without.commits(after=since)]


# ------------------------------------------------------------------------------------------------------------- any history at all
def _forget(log: Log, at: int, *, lost: bool) -> None:
    """The data file at `at` is written again without its first row; or, where there is none, rows of the quarantine leave."""
    base = log.settled_version()
    folded = fold(log, base)
    files = list(live(log, folded))
    found = folded.rows(store(), segments.SCHEMA.names).to_pylist()
    if files:
        name = files[at % len(files)].name
        mine = sorted((r for r in found if r["data_file"] == name), key=lambda r: (r["path"], r["version"]))
        out, stay = mine[:1], [{**r, "carried": True} for r in mine[1:]]
        uncovers = tuple(Uncover(r["path"], r["version"], ((r["start"], r["length"]),)) for r in out)
        fields = {"removes": (name,), "uncovers": uncovers, "files_out": len(out), "bytes_out": 9 * len(out), "carried": len(stay)}
        commit(
            lambda job: [_counting_nothing(task(job, 0, [{k: v for k, v in r.items() if k != "commit"} for r in stay], **fields))],
            base, (0,) if lost else (), verb="forget",
        )  # fmt: skip
    elif bad := [r for r in found if r["state"] == "quarantined"]:
        r = bad[at % len(bad)]
        out = (Uncover(r["path"], r["version"], ((r["start"], 9),)),)
        commit(lambda job: [task(job, 0, [], uncovers=out, quarantined_out=1)], base, verb="forget")


def _counting_nothing(task: Task) -> Task:
    """Carried rows are counted by whoever gathered them."""
    from msgspec.structs import replace

    return replace(task, stats=replace(task.stats, gathered=0, pieces=0, files_in=0, bytes_in=0, assigned=0))


def _compact(log: Log, *, lost: bool) -> None:
    base = log.settled_version()
    folded = fold(log, base)
    files = [f.name for f in live(log, folded)][:3]
    found = [r for r in folded.rows(store(), segments.SCHEMA.names).to_pylist() if r["data_file"] in files]
    stay = sorted(({k: v for k, v in r.items() if k != "commit"} | {"carried": True} for r in found), key=lambda r: r["path"])
    if files:
        fields: dict[str, Any] = {"removes": tuple(files), "carried": len(stay)}
        commit(lambda job: [_counting_nothing(task(job, 0, stay, **fields))], base, (0,) if lost else (), verb="compact")


def step(kind: str, a: int, b: int) -> None:
    """One thing that happens to a destination."""
    log = plain()
    chosen = [p for i, p in enumerate(PATHS) if a >> i & 1] or PATHS[:1]
    half = max(1, len(chosen) // 2)
    name = "own" if b % 3 else None
    if kind == "run":
        lost = (1,) if b % 4 == 1 else None if b % 5 == 4 else ()
        commit(
            lambda job: [task(job, i, rows(p, str(b), data_file=name)) for i, p in enumerate((chosen[:half], chosen[half:])) if p],
            lost=lost, target=b, on_append="tail" if b % 2 else "report",
        )  # fmt: skip
    elif kind == "quarantined":
        commit(lambda job: [task(job, 0, rows(chosen, str(b), "quarantined"), folder="d")])
    elif kind == "rejected":  # of some splits a record each
        cut = [{**r, "start": 9, "records": 1} for r in rows(chosen[:half], str(b), "quarantined")]
        both = sorted([*rows(chosen, str(b), data_file=name), *cut], key=lambda r: (r["path"], r["start"]))
        commit(lambda job: [task(job, 0, both)], schema="id long")
    elif kind == "mark":
        unsaid = Spec(transform="", format="lines", compression="none", layout="flat")
        commit(lambda job: [task(job, 0, rows(chosen, str(b), "mark"))], verb="mark", spec=unsaid)
    else:
        _other(kind, a, b, log)


def _other(kind: str, a: int, b: int, log: Log) -> None:
    if kind in ("forget", "void"):
        _forget(log, b, lost=kind == "void")
    elif kind == "compact":
        _compact(log, lost=b % 5 == 1)
    elif kind == "abort":
        put(Abort(job=job_name(log.tip), why="given up", time="2026"))
    elif kind == "late":  # a zombie says once more what is decided, and something else
        jobs = [e.job for e in log.entries if isinstance(e, Commit)]
        for job in jobs[a % len(jobs) :][:1] if jobs else []:
            put(Abort(job=job, why="late", time="2026") if b % 2 else Published(job=job, time="2026", lost=(0,)))
    elif kind == "pin":
        put(Pin(version=log.tip, id=f"p{b % 3}", time="2026"))
    elif kind == "unpin":
        put(Unpin(version=0, id=f"p{b % 3}", time="2026"))
    elif kind == "expire":
        put(Expired(below=log.settled_version(min([a, *log.pins().values()])), time="2026"))
    elif kind == "publish":
        for entry in log.unpublished():
            put(Published(job=entry.job, time="2026", lost=()))
    elif kind == "checkpoint":
        write()


def write() -> checkpoints.Checkpoint | None:
    return checkpoint.write(LocalRunner(), DEST, None, store())


KINDS = ["run", "run", "run", "quarantined", "rejected", "rejected", "mark"]
KINDS += ["forget", "void", "compact", "abort", "late", "pin", "unpin", "expire", "publish", "checkpoint"]
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 255), st.integers(0, 99)), min_size=2, max_size=14)


@settings(max_examples=5, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(STEPS, STEPS)
def test_any_history_reads_the_same_with_checkpoints_and_without(before: list[Any], after: list[Any]) -> None:
    forget_all()
    step("mark", 7, 0)
    for what in before:
        step(*what)
        sums.check(store(), plain())
    step("publish", 0, 0)
    made = write()
    assert made is not None
    assert made.version == plain().settled_version(made.version), "a checkpoint of a version that may change"
    same(0)
    for what in after:
        step(*what)
        sums.check(store())
    same(0)
    write()
    same(0)


# ------------------------------------------------------------------------------------------------------------------------ pitfalls
def heads() -> list[str]:
    return sorted(e.name for e in store().walk(names.CHECKPOINTS) if names.checkpoint_of_head(e.name))


def pieces(kind: str) -> list[str]:
    return sorted(e.name for e in store().walk(names.CHECKPOINTS) if f"/{kind}-" in e.name)


def covered(version: int | None = None) -> list[str]:
    log = Log(store()).refresh()
    return sorted(r["path"] for r in content(log, log.tip if version is None else version))


def test_a_commit_that_is_not_published_yet_is_in_no_checkpoint() -> None:
    """Its output may turn out to be lost, and then it would be covered for ever."""
    commit(lambda job: [task(job, 0, rows(PATHS[:2]))])
    commit(lambda job: [task(job, 0, rows(PATHS[2:4], data_file="own"))], lost=None)
    commit(lambda job: [task(job, 0, rows(PATHS[4:6]))])
    made = write()
    assert made is not None
    assert made.version == 2
    (entry,) = Log(store()).refresh().unpublished()
    put(Published(job=entry.job, time="2026", lost=(0,)))
    assert covered() == [*PATHS[:2], *PATHS[4:6]]
    same(0)


def test_where_no_version_is_settled_there_is_no_checkpoint() -> None:
    commit(lambda job: [task(job, 0, rows(PATHS[:1]))], lost=None)
    assert write() is None
    assert not heads()


def test_a_checkpoint_is_of_the_version_that_was_folded_though_others_commit_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    commit(lambda job: [task(job, 0, rows(PATHS[:2]))])
    real = checkpoint._merged

    def merged(*given: Any) -> Any:
        commit(lambda job: [task(job, 0, rows(PATHS[2:4]))])
        return real(*given)

    monkeypatch.setattr(checkpoint, "_merged", merged)
    made = write()
    assert made is not None
    assert (made.version, Log(store()).refresh().tip) == (2, 4)
    assert covered() == PATHS[:4]
    same(0)


def test_a_segment_that_no_commit_names_is_in_no_checkpoint() -> None:
    commit(lambda job: [task(job, 0, rows(PATHS[:2]))])
    job = job_name(2)
    task(job, 0, rows(PATHS[2:4]))
    put(Abort(job=job, why="given up", time="2026"))
    write()
    assert covered() == PATHS[:2]


def test_what_is_forgotten_after_a_checkpoint_leaves_it() -> None:
    commit(lambda job: [task(job, 0, rows(PATHS[:4], data_file="own"))])
    write()
    _forget(Log(store()).refresh(), 0, lost=False)
    assert covered() == PATHS[1:4]
    same(0)


def test_one_that_lacks_a_piece_is_passed_over_and_the_older_one_read() -> None:
    """Its writer slept while its pieces were swept, and put its head at last."""
    commit(lambda job: [task(job, 0, rows(PATHS[:2]))])
    write()
    commit(lambda job: [task(job, 0, rows(PATHS[2:4]))])
    write()
    store().remove(pieces("rows")[-1])
    assert Log(store()).refresh().merged == 2
    assert covered() == PATHS[:4]
    made = write()
    assert made is not None
    assert made.version == 4, "and it is written again"
    same(0)


@pytest.mark.parametrize("kind", ["rows", "history", "files", "merged"])
def test_a_damaged_piece_is_an_error_that_says_how_to_go_on(kind: str) -> None:
    commit(lambda job: [task(job, 0, rows(PATHS[:2], data_file="own"))])
    write()
    (head,) = heads()
    piece = pieces(kind)[0]
    data = store().get(piece)
    store().remove(piece)
    store().put(piece, b"x" * len(data))
    log = Log(store()).refresh()
    reads: dict[str, Callable[[], object]] = {
        "rows": lambda: content(log, log.tip),
        "history": lambda: log.outcome("0-ffffffffffffffff"),
        "files": lambda: list(live(log, fold(log))),
        "merged": lambda: checkpoint.sweep(store(), 0),
    }
    if kind == "merged":
        put(Expired(below=2, time="2026"))
    with pytest.raises(FormatError, match=f"{piece}.* is damaged .* delete {head}"):
        reads[kind]()
    store().remove(head)
    assert covered() == PATHS[:2], "as the message says"


def test_a_damaged_head_is_an_error_that_says_how_to_go_on() -> None:
    commit(lambda job: [task(job, 0, rows(PATHS[:2]))])
    write()
    (head,) = heads()
    store().remove(head)
    store().put(head, b'{"format": 1, "kind": "checkpoint"')
    with pytest.raises(FormatError, match="delete it"):
        Log(store()).refresh()
    store().remove(head)
    assert covered() == PATHS[:2]


def test_a_head_of_a_newer_quire_is_refused() -> None:
    commit(lambda job: [task(job, 0, rows(PATHS[:2]))])
    write()
    (head,) = heads()
    data = store().get(head)
    store().remove(head)
    store().put(head, data.replace(b'"format":1', b'"format":2').replace(b'"format": 1', b'"format": 2'))
    with pytest.raises(FormatError, match="newer quire"):
        Log(store()).refresh()


# --------------------------------------------------------------------------------------------------------------------------- sweep
def test_segments_stay_as_long_as_a_version_needs_them() -> None:
    for at in (0, 2, 4):
        commit(lambda job, at=at: [task(job, 0, rows(PATHS[at : at + 2]))])
        write()
    segments_of = lambda: {e.name for e in store().walk(names.LEDGER)}  # noqa: E731
    assert checkpoint.sweep(store(), 0) == 0, "every version can be read"
    put(Pin(version=4, id="reader", time="2026"))
    put(Expired(below=4, time="2026"))
    assert len(segments_of()) == 3
    checkpoint.sweep(store(), 0)
    assert len(segments_of()) == 1, "those of the commits up to version 4 are merged"
    assert [names.checkpoint_of_head(h)[0] for h in heads()] == [4, 6]  # type: ignore[index]
    assert covered(4) == PATHS[:4]
    assert covered() == PATHS[:6]
    with pytest.raises(FormatError, match="expired, look at a later one"):
        covered(2)
    put(Expired(below=6, time="2026"))
    checkpoint.sweep(store(), 0)
    assert not segments_of()
    assert len(heads()) == 1
    assert covered() == PATHS[:6]
    commit(lambda job: [task(job, 0, rows(PATHS[6:7]))])
    write()
    assert covered() == PATHS[:7]


def test_the_young_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has begun to read goes on for the grace; pieces without a head may be of a writer that is under way."""
    commit(lambda job: [task(job, 0, rows(PATHS[:2]))])
    write()
    put(Expired(below=2, time="2026"))
    stray = names.checkpoint_piece(9, "0123456789ab", "rows", 0)
    store().put(stray, b"x")
    monkeypatch.setattr(checkpoint.time, "time", lambda: 1.0)  # a store in memory counts its own ticks
    assert checkpoint.sweep(store(), 2.0) == 0
    assert checkpoint.sweep(store(), 0.5) == 2
    assert store().stat(stray) is None


def test_what_is_old_goes_also_where_checkpoints_come_more_often_than_the_grace_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a loop, in which there is always a young one: else no segment and no checkpoint would ever go."""
    for i in range(4):
        commit(lambda job, i=i: [task(job, 0, rows(PATHS[i : i + 1]))])
        write()
    put(Expired(below=8, time="2026"))
    written = {e.name: e.modified for e in store().walk(names.CHECKPOINTS)}
    second = written[sorted(heads())[1]]  # in ns: the first two are older than the grace
    monkeypatch.setattr(checkpoint.time, "time", lambda: 1.0 + (second + 0.5) / 1e9)
    assert checkpoint.outdated(Log(store()).refresh(), 1.0) == 1
    before = heads()
    checkpoint.sweep(store(), 1.0)
    assert heads() == before[1:]
    assert len(list(store().walk(names.LEDGER))) == 2, "what the younger ones have merged may still be read"
    assert checkpoint.outdated(Log(store()).refresh(), 1.0) == 0
    assert covered() == PATHS[:4]


def test_a_writer_whose_pieces_are_swept_has_written_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the segments that its checkpoint has merged would be deleted, and its pieces, too."""
    commit(lambda job: [task(job, 0, rows(PATHS[:2]))])
    put(Expired(below=2, time="2026"))
    real = checkpoint._pieces

    def pieces(*given: Any) -> Any:
        made = real(*given)
        assert checkpoint.sweep(store(), 0) > 0
        return made

    monkeypatch.setattr(checkpoint, "_pieces", pieces)
    assert write() is None
    (none,) = heads()
    assert Log(store()).refresh().base is None
    assert checkpoint.outdated(Log(store()).refresh(), 0) == 0
    assert checkpoint.sweep(store(), 0) == 0
    assert covered() == PATHS[:2]
    monkeypatch.setattr(checkpoint, "_pieces", real)
    put(Pin(version=2, id="reader", time="2026"))
    assert write() is not None
    put(Expired(below=4, time="2026"))
    assert checkpoint.outdated(Log(store()).refresh(), 0) == 1
    checkpoint.sweep(store(), 0)
    assert checkpoint.outdated(Log(store()).refresh(), 0) == 0
    assert none not in heads()
    assert len(heads()) == 1
    assert covered() == PATHS[:2]


def test_which_segments_are_gone_is_looked_at_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them are listed for it: a loop leaves one in each of its runs, for a day."""
    monkeypatch.setattr(checkpoint, "LOOK", 10)
    walked, real = list[str](), memory.MemoryStore.walk
    monkeypatch.setattr(memory.MemoryStore, "walk", lambda self, folder="", **how: [walked.append(folder), real(self, folder, **how)][1])
    named = list[int]()
    for n in range(8):
        commit(lambda job, n=n: [task(job, 0, rows([f"memory://s/{n}"]))])  # type: ignore[misc]
        walked.clear()
        made = write()
        assert made is not None
        assert (names.LEDGER in walked) == (n == 4), "the version has passed 10"
        named.append(sum(piece.rows for piece in made.merged))
        if n == 2:
            put(Expired(below=7, time="2026"))
            assert checkpoint.sweep(store(), 0) > 3
            assert len(list(store().walk(names.LEDGER))) == 0
    assert named == [1, 2, 3, 4, 2, 3, 4, 5]
    assert len(covered()) == 8


def test_a_writer_that_is_quicker_than_a_sweep_has_written_its_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweep has listed before; another one finds the checkpoint complete, and deletes what it stands for."""
    commit(lambda job: [task(job, 0, rows(PATHS[:2]))])
    put(Expired(below=2, time="2026"))
    pieces, end = checkpoint._pieces, checkpoint._end

    def slow(*given: Any) -> Any:
        monkeypatch.setattr(checkpoint, "_pieces", pieces)
        head = pieces(*given)

        def ended(*given: Any) -> Any:
            monkeypatch.setattr(checkpoint, "_end", end)
            assert store().put_if_absent(head.head, encode(head))
            put(Expired(below=3, time="2026"))
            assert checkpoint.sweep(store(), 0) > 0
            return end(*given)

        monkeypatch.setattr(checkpoint, "_end", ended)
        assert checkpoint.sweep(store(), 0) == 0
        return head

    monkeypatch.setattr(checkpoint, "_pieces", slow)
    assert write() is not None
    assert not list(store().walk(names.LEDGER))
    assert covered() == PATHS[:2]


def _piece_bytes() -> dict[str, bytes]:
    """Of the newest checkpoint: the first path of each piece of the ledger, and its bytes."""
    made = checkpoints.newest(store())
    assert made is not None
    return {piece.first: store().get(name) for name, piece in made.pieces("rows")}


def _two_pieces() -> list[str]:
    """A checkpoint of two data files, each with the rows of a piece."""
    for some in (PATHS[:4], PATHS[4:]):
        commit(lambda job, some=some: [task(job, 0, rows(some, data_file="own"))])
    assert write() is not None
    log = Log(store()).refresh()
    return [f.name for f in live(log, fold(log))]


@pytest.mark.parametrize("touched", ["behind", "between", "removed", "uncovered", "restated"])
def test_pieces_that_nothing_has_touched_are_copied_as_they_are_and_no_others(touched: str) -> None:
    files = _two_pieces()
    before, first = _piece_bytes(), rows(PATHS[:4], data_file=files[0])
    assert list(before) == [PATHS[0], PATHS[4]]
    first_written = {source.first: source.content for source in fold(Log(store()).refresh()).sources}
    if touched == "behind":
        commit(lambda job: [task(job, 0, rows(["memory://s/i", "memory://s/j"]))])
    elif touched == "between":
        commit(lambda job: [task(job, 0, rows(["memory://s/bb"]))])
    elif touched == "removed":
        commit(lambda job: [task(job, 0, [], removes=(files[0],), files_out=4, bytes_out=36)], verb="forget")
    elif touched == "uncovered":
        commit(lambda job: [task(job, 0, [], uncovers=(Uncover(PATHS[1], "1", ((0, 9),)),), files_out=1, bytes_out=9)], verb="forget")
    else:
        said = [{**r, "state": "quarantined", "reason": "broken", "tries": 1} for r in first[1:2]]
        commit(lambda job: [task(job, 0, said, restated=1, quarantined_files=0, files_in=0, bytes_in=0)])
    write()
    after = _piece_bytes()
    assert after[PATHS[4]] == before[PATHS[4]]
    written = {source.first: source.content for source in fold(Log(store()).refresh()).sources if source.piece}
    assert {first: written.get(first) == content for first, content in first_written.items()} == {
        PATHS[0]: touched == "behind",
        PATHS[4]: True,
    }
    assert (after.get(PATHS[0]) == before[PATHS[0]]) == (touched == "behind")
    same(0)


def test_short_pieces_become_one_though_nothing_has_touched_them() -> None:
    for path in PATHS:
        commit(lambda job, path=path: [task(job, 0, rows([path]))])
        write()
    made = checkpoints.newest(store())
    assert made is not None
    assert [piece.rows for piece in made.rows] == [2, 2, 2, 2], "a piece of half the length stays as it is"
    assert covered() == PATHS
    same(0)


@pytest.mark.parametrize("kind", ["rows", "history"])
@pytest.mark.parametrize("damage", ["all of it", "some bytes within"])
def test_a_piece_that_is_damaged_is_not_copied(kind: str, damage: str) -> None:
    _two_pieces()
    assert covered() == PATHS, "the process has read it while it was whole"
    made = checkpoints.newest(store())
    assert made is not None
    name = made.pieces(kind)[0][0]
    good = store().get(name)
    store().put(name, bytes(len(good)) if damage == "all of it" else good[:40] + bytes(40) + good[80:])
    commit(lambda job: [task(job, 0, rows(["memory://s/i"]))])
    with pytest.raises(QuireError, match=r"a piece of a checkpoint of the ledger, is damaged"):
        write()
    store().put(name, good)
    write()
    assert covered() == [*PATHS, "memory://s/i"]


def test_pieces_that_do_not_say_their_checksum_are_written_anew() -> None:
    _two_pieces()
    made = checkpoints.newest(store())
    assert made is not None
    kinds = ("rows", "history")
    older = {kind: tuple(msgspec.structs.replace(piece, checksum="") for piece in getattr(made, kind)) for kind in kinds}
    store().put(made.head, encode(msgspec.structs.replace(made, **older)))
    commit(lambda job: [task(job, 0, rows(["memory://s/i"]))])
    after = write()
    assert after is not None
    assert all(piece.checksum for kind in kinds for piece in getattr(after, kind))
    same(0)


def test_a_writer_whose_segments_are_swept_meanwhile_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    commit(lambda job: [task(job, 0, rows(PATHS[:2]))])
    real = checkpoint._merged

    def merged(*given: Any) -> Any:
        monkeypatch.setattr(checkpoint, "_merged", real)
        write()
        put(Expired(below=2, time="2026"))
        checkpoint.sweep(store(), 0)
        return real(*given)

    monkeypatch.setattr(checkpoint, "_merged", merged)
    made = write()
    assert made is not None
    assert [names.checkpoint_of_head(head)[0] for head in heads()] == [2, made.version]  # type: ignore[index]
    assert covered() == PATHS[:2]


def test_a_job_older_than_what_is_swept_is_planned_again() -> None:
    """What its conflicts are can no longer be told: what may meet is taken to meet."""
    from quire.commit.entries import PlanHead
    from quire.coverage.conflicts import conflicts

    old = job_name(0)
    mine = task(old, 0, rows([PATHS[1]]))
    far = task(old, 1, rows([PATHS[7]]))
    commit(lambda job: [task(job, 0, rows([PATHS[0], PATHS[2]]))])
    write()
    put(Expired(below=2, time="2026"))
    checkpoint.sweep(store(), 0)
    head = PlanHead(job=old, base=0, plan="0123456789ab", tasks=2, committer="rename", spec=SPEC, intent={}, closer="")
    assert conflicts(Log(store()).refresh(), head, [mine, far]) == {0}


# ----------------------------------------------------------------------------------------------- what a row's segment said of it
HERE: dict[str, Any] = {"spark": LocalRunner(), "progress": False}
SOURCE = "memory://source"


def careful(split: quire.Split, content: bytes) -> Iterator[dict[str, Any]]:
    for line in content.splitlines():
        try:
            yield {"id": int(line)}
        except ValueError as e:
            split.quarantine(line, e)


def repaired(split: quire.Split, content: bytes) -> Iterator[dict[str, Any]]:
    yield from ({"id": int(line.strip(b"?"))} for line in content.splitlines())


repaired.__qualname__ = "careful"


def ids() -> list[int]:
    return sorted(row["id"] for row in first_rows(store(), 1_000))


def merge() -> None:
    """Write a checkpoint, and delete all that it has merged."""
    ledger = Ledger(DEST)
    ledger.checkpoint(spark=LocalRunner())
    assert ledger.expire(grace=0).merged
    assert not list(store().walk(names.LEDGER)), "segments"
    protocol.recover(store())


def aside() -> list[str]:
    return [e.name for e in store().walk(names.QUARANTINE)]


def test_rejected_records_are_retried_though_their_segments_are_merged_and_gone() -> None:
    source = memory.MemoryStore(SOURCE)
    for i in range(3):
        source.put(f"{i}.txt", b"%d\n?%d?\n%d\n" % (10 * i, 10 * i + 1, 10 * i + 2))
        quire.process(SOURCE, DEST, careful, split="lines", schema="id long", **HERE)
    ledger = Ledger(DEST)
    before = ledger.inspect.quarantined_records(), ledger.inspect.quarantined(), ledger.summary()
    merge()
    ledger.refresh()
    assert len(aside()) == 3, "quarantine files whose records still count"
    assert ledger.inspect.quarantined_records().equals(before[0])
    assert ledger.inspect.quarantined_records()["content"].tolist() == [b"?1?", b"?11?", b"?21?"]
    assert ledger.inspect.quarantined().equals(before[1])
    assert ledger.summary().quarantined == before[2].quarantined == 3
    assert quire.process(SOURCE, DEST, careful, split="lines", **HERE).jobs == (), "the columns are those that were frozen"
    assert ledger.retry(paths=f"{SOURCE}/1.txt", function=repaired, **HERE).gathered == 1
    merge()
    assert len(aside()) == 2
    source.remove("0.txt")  # the record is in the quarantine all the same
    assert ledger.retry(function=repaired, **HERE).gathered == 2
    assert ids() == sorted(10 * i + j for i in range(3) for j in range(3))
    ledger.expire()
    assert not aside(), "no record of theirs is in quarantine any more"
    assert ledger.verify(spark=LocalRunner()).ok
    merge()
    assert ledger.refresh().verify(spark=LocalRunner()).ok
    # A split that was cut leaves, is merged and comes back whole, though its pieces are rows of their own.
    ledger.compact(**HERE)
    ledger.forget(f"{SOURCE}/2.txt", **HERE)
    assert ids() == sorted(10 * i + j for i in range(2) for j in range(3))
    merge()
    quire.process(SOURCE, DEST, repaired, split="lines", **HERE)
    assert ids() == sorted(10 * i + j for i in range(3) for j in range(3))


@pytest.mark.parametrize("kind", ["shuffle", "claim"])
def test_a_commit_whose_splits_lie_together_leaves_whole_though_it_is_merged(kind: str) -> None:
    source = memory.MemoryStore(SOURCE)

    def gather() -> None:
        if kind == "shuffle":
            quire.process(SOURCE, DEST, careful, split="lines", reduce=sort, **HERE)
            return
        with Ledger(DEST, create=True).claim(SOURCE, progress=False, spark=LocalRunner()) as c:
            found = sorted(int(line) for path in c.splits.column("path").to_pylist() for line in contents(path).splitlines())
            out = pa.BufferOutputStream()
            pq.write_table(pa.table({"id": found}), out)
            connect(c.path, None).put("part-0.parquet", out.getvalue().to_pybytes())

    for i in range(2):
        source.put(f"{i}/a.txt", b"%d\n" % (2 * i))
        source.put(f"{i}/b.txt", b"%d\n" % (2 * i + 1))
        gather()
    ledger = Ledger(DEST)
    before = ledger.locate(f"{SOURCE}/1/a.txt"), ledger.inspect.history(), ledger.inspect.files()
    merge()
    ledger.refresh()
    found = ledger.locate(f"{SOURCE}/1/a.txt"), ledger.inspect.history()[:4], ledger.inspect.files()
    assert found[0] == before[0]
    assert found[0][0].commit == 3
    assert "with 1 others in commit 3" in (found[0][0].reason or "")
    assert found[1].equals(before[1])
    assert found[2].equals(before[2])
    with pytest.raises(QuireError, match=r"Read all of them with quire\.read"):
        ledger.read(f"{SOURCE}/1/a.txt")
    assert ledger.verify(spark=LocalRunner()).data_files == 2
    with pytest.raises(QuireError, match=r"commit 3 of .* holds 2 splits together, and 1 of them"):
        ledger.forget(f"{SOURCE}/1/a.txt", **HERE)
    with pytest.raises(QuireError, match="commit 3"):
        ledger.forget(file=before[2]["data_file"][1], **HERE)
    assert ledger.compact("1 B", **HERE).jobs == (), "none is small"
    assert ledger.forget(f"{SOURCE}/1", **HERE).files_out == 2
    assert ids() == [0, 1]
    merge()
    assert ids() == [0, 1]
    gather()
    assert ids() == [0, 1, 2, 3]
    assert Ledger(DEST).verify(spark=LocalRunner()).ok
    source.put("2/a.txt", b"4\n")
    if kind == "claim":
        with pytest.raises(QuireError, match="earlier claims"), ledger.claim(SOURCE, progress=False, spark=LocalRunner()) as c:
            connect(c.path, None).put("x.txt", b"1\n")
    else:
        with pytest.raises(QuireError, match="no shuffle"):
            quire.process(SOURCE, DEST, careful, split="lines", **HERE)


def sort(rows: pa.Table) -> pa.Table:
    return rows.sort_by("id")


def contents(path: str) -> bytes:
    return memory.MemoryStore(SOURCE).get(path.removeprefix(f"{SOURCE}/"))


def test_marks_stay_marks_and_say_nothing_of_what_the_destination_holds(tmp_path: Path) -> None:
    source, dest = write_files(tmp_path / "in", {f"{i}": b"%d\n" % i for i in range(4)}), tmp_path / "out"
    marks = write_files(tmp_path / "marks", {identifier(str(source / f"{i}"), 0, 2): b"" for i in range(2)})
    ledger = Ledger(dest, create=True)
    assert ledger.import_markers(marks, source, **HERE).gathered == 2
    ledger.checkpoint(spark=LocalRunner())
    ledger.expire(grace=0)
    assert (ledger.summary().transform, ledger.summary().ledger_rows) == ("", 2)
    with pytest.raises(ZeroDivisionError), ledger.claim(source, progress=False, spark=LocalRunner()):
        raise ZeroDivisionError  # it may begin, and leaves nothing
    assert gather(source, dest, transform="lines").files == 2, "it may hold anything yet"
    ledger.checkpoint(spark=LocalRunner())
    ledger.expire(grace=0)
    assert not list((dest / "_quire").glob("ledger/*"))
    assert (ledger.summary().transform, ledger.summary().files) == ("lines", 4)
    (found,) = ledger.locate(source / "0")
    assert (found.state, found.data_file, found.commit) == ("mark", None, 1)
    assert (found.written, found.records, found.checksum) == (None, None, None)
    assert ledger.verify(spark=LocalRunner()).ok
    assert ledger.import_markers(marks, source, **HERE).known == 2
    ledger.compact(**HERE)
    ledger.forget(source / "1", **HERE)
    assert gather(source, dest, transform="lines").files == 1, "what is no longer marked is read"
    with pytest.raises(QuireError, match="holds transform 'lines'"):
        gather(source, dest, transform="raw")


def test_a_damaged_data_file_that_was_given_up_and_merged_keeps_nobody_from_going_on(tmp_path: Path) -> None:
    """A job that was to write it again was planned before, and finds in the checkpoint that it counts no more."""
    source, dest = write_files(tmp_path / "in", {"a": b"1\n", "b": b"2\n"}), tmp_path / "out"
    gather(source, dest, transform="lines")
    ledger = Ledger(dest)
    (damaged,) = ledger.inspect.files()["data_file"]
    (dest / damaged).write_bytes(b"x\ny\n")
    (source / "a").write_bytes(b"new one\n")
    with pytest.raises(FormatError, match="is damaged"):
        gather(source, dest, transform="lines", on_change="reprocess")
    ledger.forget(file=damaged, **HERE)
    ledger.checkpoint(spark=LocalRunner())
    assert gather(source, dest, transform="lines", on_change="reprocess").files == 2
    assert sorted(first_rows(ledger._store, 9)) == [b"2", b"new one"]


# ------------------------------------------------------------------------------------------------------------------------ when, what
def test_a_run_writes_one_when_enough_has_gathered_and_reads_no_entry_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "ENTRIES", 4)
    source, dest = "memory://many", DEST
    for i in range(6):
        memory.MemoryStore(source).put(f"d{i % 2}/{i}.txt", b"line %d\n" % i)
        quire.consolidate(source, dest, transform="lines", spark=LocalRunner(), progress=False)
    assert [names.checkpoint_of_head(h)[0] for h in heads()] == [4, 8, 12]  # type: ignore[index]
    ledger = Ledger(dest)
    expected = (
        ledger.summary(),
        ledger.inspect.history(),
        ledger.inspect.files(),
        ledger.inspect.quarantined(),
        ledger.locate(f"{source}/d0/2.txt"),
    )
    for head in heads():
        store().remove(head)
    ledger.refresh()
    found = (
        ledger.summary(),
        ledger.inspect.history(),
        ledger.inspect.files(),
        ledger.inspect.quarantined(),
        ledger.locate(f"{source}/d0/2.txt"),
    )
    assert found[0] == expected[0]
    assert found[4] == expected[4]
    for a, b in zip(found[1:4], expected[1:4], strict=True):
        assert a.equals(b)  # type: ignore[attr-defined]
    assert ledger.verify(spark=LocalRunner()).ok


def test_fewer_segments_are_enough_where_the_last_one_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run may read each segment since the last one: those of a slow loop are merged before they are a thousand."""
    monkeypatch.setattr(checkpoint, "SOON", 3)
    later = 0.0
    monkeypatch.setattr(checkpoint, "time", SimpleNamespace(time=lambda: time.time() + later))
    for i in range(8):
        memory.MemoryStore("memory://many").put(f"{i}.txt", b"line %d\n" % i)
        later = 3700.0 * (i == 6)
        quire.consolidate("memory://many", DEST, transform="lines", spark=LocalRunner(), progress=False)
    assert [names.checkpoint_of_head(h)[0] for h in heads()] == [6, 14], "after three commits, and after four more when it was old"  # type: ignore[index]


def test_one_that_does_not_say_when_it_was_written_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "SOON", 1)
    memory.MemoryStore("memory://many").put("0.txt", b"line 0\n")
    quire.consolidate("memory://many", DEST, transform="lines", spark=LocalRunner(), progress=False)
    (head,) = heads()
    found = checkpoints.newest(store())
    assert found is not None
    store().put(head, encode(msgspec.structs.replace(found, time="soon")))
    memory.MemoryStore("memory://many").put("1.txt", b"line 1\n")
    quire.consolidate("memory://many", DEST, transform="lines", spark=LocalRunner(), progress=False)
    assert len(heads()) == 2


def checkpointed(files: int) -> Fold:
    """The ledger of so many files, by a checkpoint."""
    source = memory.MemoryStore("memory://many")
    for i in range(files):
        source.put(f"{i:05}0.txt", b"line %d\n" % i)
    quire.consolidate("memory://many", DEST, transform="lines", spark=LocalRunner(), progress=False)
    Ledger(DEST).checkpoint(spark=LocalRunner())
    return fold(Log(store()).refresh())


def test_new_paths_among_many_are_told_without_a_look_at_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in ((checkpoint, "PIECE_ROWS", 4_000), (segments, "ROW_GROUP", 100)):
        monkeypatch.setattr(module, name, value)
    folded, read = checkpointed(3_000), list[int]()
    batches = segments.OwnParquet.batches

    def counted(self: Any, columns: Any, groups: Any) -> Any:
        groups = list(groups)
        read.append(len(groups))
        return batches(self, columns, groups)

    monkeypatch.setattr(segments.OwnParquet, "batches", counted)
    new = [f"memory://many/{i:05}5.txt" for i in range(0, 3_000, 60)]  # in each row group, and no path that is there
    assert folded.rows(store(), ["path"], among=pa.array(new)).num_rows == 0
    assert max(read, default=0) <= 3, "of thirty row groups that they lie in"
    known = [f"memory://many/{i:05}0.txt" for i in range(0, 3_000, 61)]
    for some in (known, [*known, *new], known[:1], [known[-1], "memory://many/zzz"]):
        found = folded.rows(store(), ["path", "version"], among=pa.array(some)).column("path").to_pylist()
        assert found == [path for path in known if path in some]


def test_a_loop_asks_for_nothing_of_a_checkpoint_that_it_has_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in ((checkpoint, "PIECE_ROWS", 4_000), (segments, "ROW_GROUP", 100), (parquet, "WHOLE", 1)):
        monkeypatch.setattr(module, name, value)
    folded, asked, content = checkpointed(300), list[str](), memory.MemoryStore._content
    monkeypatch.setattr(memory.MemoryStore, "_content", lambda self, name: (asked.append(name), content(self, name))[1])

    def look(new: int) -> int:
        asked.clear()
        unknown = [f"memory://many/{i:05}{new}.txt" for i in range(0, 300, 60)]
        assert folded.rows(store(), ["path"], among=pa.array(unknown)).num_rows == 0
        some = folded.rows(store(), ["path", "version"], "memory://many/001200.txt", "memory://many/001800.txt").column("path").to_pylist()
        assert some == [f"memory://many/{i:05}0.txt" for i in range(120, 181)]
        return len(asked)

    assert look(5) > 0
    assert [look(new) for new in (5, 6, 7)] == [0, 0, 0]


def test_a_checkpoint_of_a_pyarrow_without_filters_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "CAN_FILTER", False)
    for i in range(8):
        memory.MemoryStore("memory://many").put(f"{i}.txt", b"line %d\n" % i)
    quire.consolidate("memory://many", DEST, transform="lines", spark=LocalRunner(), progress=False)
    Ledger(DEST).checkpoint(spark=LocalRunner())
    there = [f"memory://many/{i}.txt" for i in range(8)]
    found = fold(Log(store()).refresh()).rows(store(), ["path"], among=pa.array([*there[1:7], "memory://many/55"]))
    assert found.column("path").to_pylist() == there[1:7]


@pytest.mark.parametrize("among", [False, True])
def test_short_segments_are_asked_for_ahead_and_long_ones_in_their_turn(monkeypatch: pytest.MonkeyPatch, among: bool) -> None:
    for i in range(9):
        memory.MemoryStore("memory://many").put(f"{i}.txt", b"line %d\n" % i)
        quire.consolidate("memory://many", DEST, transform="lines", spark=LocalRunner(), progress=False)
    monkeypatch.setattr("quire.coverage.fold.AHEAD", 3)
    folded = fold(Log(store()).refresh())
    folded = replace(folded, sources=tuple(replace(s, rows=10**9) if i == 4 else s for i, s in enumerate(folded.sources)))
    asked, most, lock, get = list[str](), [0, 0], threading.Lock(), memory.MemoryStore.get

    def counted(self: memory.MemoryStore, name: str) -> bytes:
        with lock:
            asked.append(name)
            most[0] += 1
            most[1] = max(most)
        time.sleep(0.02)
        with lock:
            most[0] -= 1
        return get(self, name)

    monkeypatch.setattr(memory.MemoryStore, "get", counted)
    paths = pa.array([f"memory://many/{i}.txt" for i in range(9)])
    found = folded.rows(store(), ["path"], among=paths if among else None)
    assert found.column("path").to_pylist() == paths.to_pylist(), "in the order of the commits"
    assert sorted(asked) == sorted(s.segment for s in folded.sources), "each once"
    assert 1 < most[1] <= 4, "three ahead, and the long one"
    gone = folded.sources[5]
    monkeypatch.undo()
    store().remove(gone.segment)
    with pytest.raises(FormatError, match=f"{gone.segment} is missing.*commit {gone.number}"):
        folded.rows(store(), ["path"])


def test_recovery_looks_up_none_of_the_jobs_that_a_checkpoint_has_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(5):
        memory.MemoryStore("memory://many").put(f"{i}.txt", b"line %d\n" % i)
        quire.consolidate("memory://many", DEST, transform="lines", spark=LocalRunner(), progress=False)
    Ledger(DEST).checkpoint(spark=LocalRunner())
    asked = list[str]()

    def numbers(self: checkpoints.Checkpoint, archive: Any, job: str) -> tuple[int, int]:
        asked.append(job)
        return known(self, archive, job)

    known = checkpoints.Checkpoint.numbers
    monkeypatch.setattr(checkpoints.Checkpoint, "numbers", numbers)
    protocol.recover(store())
    assert not asked, "of a ledger of many segments each would be looked up in the whole history"
    lost = store().get(next(e.name for e in store().walk(names.LEDGER)))
    store().put(f"{names.LEDGER}/99-0123456789abcdef-0-0123456789ab.rows", lost)
    with pytest.raises(FormatError, match="has rows of job 99-0123456789abcdef, which is not in it"):
        protocol.recover(store())


def test_opening_asks_for_what_came_after_the_checkpoint_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(10):
        commit(lambda job: [task(job, 0, rows(PATHS[:2]))])
    write()
    commit(lambda job: [task(job, 0, rows(PATHS[2:4]))])
    asked = list[str]()
    real = memory.MemoryStore.get

    def get(self: memory.MemoryStore, name: str) -> bytes:
        asked.append(name)
        return real(self, name)

    monkeypatch.setattr(memory.MemoryStore, "get", get)
    monkeypatch.setattr(memory.MemoryStore, "walk", lambda self, folder="": _not_the_log(self, folder))
    ledger = Ledger(DEST)
    assert (ledger.version, ledger.summary().commits, len(ledger.inspect.history())) == (22, 11, 22)
    assert min(int(name[-26:-6]) for name in asked if name.startswith("_quire/log/") and not name.endswith(names.entry(1))) > 20


_walk = memory.MemoryStore.walk


def _not_the_log(store: memory.MemoryStore, folder: str) -> Any:
    assert folder != names.LOG, "the log was listed"
    return _walk(store, folder)


def test_spark_writes_one_and_reads_through_it_what_it_read_before(spark: SparkSession, tmp_path: Path) -> None:
    """Also directories as columns, of empty files too, ranges of long files, and what is in quarantine."""
    files = {f"dt={d}/{i}": b"" if i == 2 else b"x%d" % i * (40 if i == 3 else 2) for d in (1, 2) for i in range(5)}
    files |= {"dt=3/empty": b"", "dt=1/long": b"y" * 900}
    source, dest = write_files(tmp_path / "in", files), tmp_path / "out"
    sizes = {"target_size": "300 B", "max_file_size": "800 B"}
    how: dict[str, Any] = {"transform": "raw", "compression": "gzip", "layout": "directories", **sizes}
    gather(source, dest, **how)
    ledger = Ledger(dest)

    def told() -> list[Any]:
        ledger.refresh()
        rows = sorted(map(tuple, ledger.inspect.splits(as_="spark", spark=spark).collect()), key=str)
        return [
            sorted(map(tuple, quire.read(dest, spark=spark).collect()), key=str),
            rows,
            ledger.inspect.quarantined().to_dict(),
            ledger.summary(),
        ]

    before = told()
    made = ledger.checkpoint(spark=spark)
    assert (made.version, made.ledger_rows) == (2, len(before[1]))
    assert told() == before
    for segment in (dest / "_quire/ledger").iterdir():
        segment.unlink()
    assert told() == before, "no segment is read any more"
    assert ledger.verify(spark=LocalRunner()).ok
    (dest / before[1][0][6] if before[1][0][6] else next(dest.rglob("part-*"))).write_bytes(b"?")
    assert not ledger.verify(spark=LocalRunner()).ok


# -------------------------------------------------------------------------------------------- logs that grow without a file
@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The entries of logs that are read."""
    found, real = list[str](), memory.MemoryStore.get

    def get(self: memory.MemoryStore, name: str) -> bytes:
        if name.startswith(f"{names.LOG}/"):
            found.append(name)
        return real(self, name)

    monkeypatch.setattr(memory.MemoryStore, "get", get)
    return found


def test_a_readers_thousandth_pin_costs_what_its_first_does_and_a_run_merges_them_all(
    asked: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(checkpoint, "ENTRIES", 50)
    source = write_files(tmp_path / "in", {"a": b"1\n"})
    gather(source, DEST)
    ledger, costs = Ledger(DEST), list[int]()
    for _ in range(60):
        asked.clear()
        with ledger.pin() as version, ledger.pin(version):
            pass
        costs.append(len(asked))
    assert max(costs[1:]) <= costs[1] + 2, "each reads on from where the one before has ended"
    tip = Log(store()).refresh().tip
    assert gather(source, DEST).files == 0
    assert Log(store()).refresh().merged == tip
    with ledger.pin():
        assert len(ledger.pins()) == 1
    assert ledger.pins() == {}


PINS: dict[str, Callable[[Ledger], object]] = {
    "pins": lambda ledger: ledger.pins(),
    "pin": lambda ledger: ledger.pin().__enter__(),
    "unpin": lambda ledger: ledger.unpin("open"),
    "unpin one that was ended": lambda ledger: ledger.unpin("1"),
    "unpin one that never was": lambda ledger: _refused("no pin 'never' in", ledger.unpin, "never"),
    "expire": lambda ledger: ledger.expire(),
    "commits": lambda ledger: ledger.inspect.commits(last=1),
    "purge": lambda ledger: ledger.purge_sources("memory://s", spark=LocalRunner()),
    "source": lambda ledger: ledger._log.source(),
}


def _refused(why: str, call: Callable[..., object], *args: object) -> None:
    with pytest.raises(QuireError, match=why):
        call(*args)


@pytest.mark.nth(9)
@pytest.mark.parametrize("act", PINS)
def test_of_a_log_of_any_length_readers_read_what_came_after_the_checkpoint(
    act: str, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (log, reading):
        monkeypatch.setattr(module, "WINDOW", 4)
    for module, name in [(checkpoint, "TABLE_ROWS"), (checkpoint, "HISTORY_ROWS"), (checkpoints, "HISTORY_ROWS")]:
        monkeypatch.setattr(module, name, 5_000)

    def read(pins: int) -> int:
        forget_all()
        memory.MemoryStore("memory://s").put("a", b"1\n")
        commit(lambda job: [task(job, 0, rows(PATHS[:2]))])
        put(Pin(version=2, id="open", time="2026"))
        for i in range(pins):
            at = 2 * i + 4
            store().put(names.entry(at), encode(Pin(version=3, id=str(i), time="2026")))
            store().put(names.entry(at + 1), encode(Unpin(version=3, id=str(i), time="2026")))
        commit(lambda job: [task(job, 0, rows(PATHS[2:4]))])
        write()
        put(Pin(version=5, id="young", time="2026"))
        ledger = Ledger(DEST)
        assert ledger.pins() == {"open": 2, "young": 5}, "none is overlooked"
        asked.clear()
        PINS[act](ledger)
        taken = len(asked)
        below = ledger.expire().before_version
        assert below == 2 or act == "unpin", "the version of the oldest open pin is kept"
        return taken

    assert read(300) <= read(50) + 2


def test_what_a_job_of_ones_own_costs_does_not_grow_with_the_jobs_before(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "ENTRIES", 8)

    def lines(attempt: Any) -> None:
        with attempt.create("x.txt") as file:
            file.write(b"1\n")

    costs = list[int]()
    for n in range(24):
        asked.clear()
        quire.committers.run(lines, DEST, tasks=1, name=f"job {n}", spark=LocalRunner())
        costs.append(len(asked))
    log = Log(store()).refresh()
    assert log.tip - log.merged < 8, "checkpoints are written by whoever commits"
    assert max(costs[16:]) <= max(costs[8:16]) + 2
    asked.clear()
    again = quire.committers.run(lines, DEST, tasks=1, name="job 3", spark=LocalRunner())
    assert (again.version, log.tip) == (8, Log(store()).refresh().tip), "a name is committed once, though a checkpoint has merged it"
    assert len(asked) < 25
    assert quire.Ledger(DEST).summary().data_files == 24
