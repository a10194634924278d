"""Splits that are not done, and a user's own job on them: its files and the splits become visible in one commit, or not at all."""

from __future__ import annotations

import gzip
import os
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

import quire
from gathering import documents, refused, write
from quire.commit import protocol
from quire.commit.log import Log
from quire.errors import QuireError, RefusedError, UsageError
from quire.ledger import claims
from quire.ledger.claims import Claim
from quire.ledger.identifiers import identifier
from quire.planning import listing, undone
from quire.read import first_rows
from quire.storage import connect, normalise

HERE = quire.LocalRunner()
QUIET: dict[str, Any] = {"progress": False}


def ledger_of(dest: Any) -> quire.Ledger:
    return quire.Ledger(dest, create=True)


def todo(dest: Any, source: Any, **settings: Any) -> list[str]:
    """The names of what is not done."""
    return [
        path.rpartition("/")[2]
        for path in ledger_of(dest).inspect.unprocessed(source, "arrow", **settings, spark=HERE).column("path").to_pylist()
    ]


def put(path: str, name: str, table: pa.Table) -> None:
    """What a user's own job writes."""
    out = pa.BufferOutputStream()
    pq.write_table(table, out, compression="snappy")
    connect(path).put(name, out.getvalue().to_pybytes())


def copy_of(c: Claim, name: str = "part-00000-1234.c000.snappy.parquet") -> None:
    """A job that reads the splits and writes a row for each."""
    found = [{"path": path, "content": Path(path.removeprefix("file://")).read_bytes()} for path in c.splits.column("path").to_pylist()]
    put(c.path, name, pa.Table.from_pylist(found, pa.schema([("path", pa.string()), ("content", pa.binary())])))


def rows(dest: Path) -> list[tuple[str, bytes]]:
    """What readers of the log see."""
    found = [pq.ParquetFile(dest / name).read().to_pylist() for name in quire.Ledger(dest).inspect.files()["data_file"]]
    return sorted((row["path"].rpartition("/")[2], row["content"]) for some in found for row in some)


def kinds(dest: Any) -> list[str]:
    return [type(entry).__name__ for entry in Log(connect(normalise(dest))).refresh().entries]


# -------------------------------------------------------------------------------------------------------------- what is not done
def test_a_claim_counts_what_has_changed_since_and_says_how_to_have_it(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", documents(4)), tmp_path / "out"
    ledger = ledger_of(dest)
    with ledger.claim(source, **QUIET, spark=HERE) as c:
        copy_of(c)
    assert (c.changed, c.longer, "\n" in repr(c)) == (0, 0, False)
    write(source, {"d0/f0000.txt": b"grown, and longer than it was before", "d1/f0001.txt": b"rewritten"})
    with ledger.claim(source, **QUIET, spark=HERE) as c:
        assert (c.files, c.changed, c.longer) == (0, 2, 1), "nothing else is new"
    assert "changed since they were done, and not in it: 2 (1 of them longer now)." in repr(c)
    write(source, {"new.txt": b"new"})
    with pytest.MonkeyPatch.context() as patch:  # one that was killed, and could give nothing up
        patch.setattr(protocol, "abort", lambda *_: None)
        with pytest.raises(KeyboardInterrupt), ledger.claim(source, **QUIET, spark=HERE):
            raise KeyboardInterrupt
    with ledger.claim(source, **QUIET, spark=HERE) as c:
        copy_of(c)
    assert (c.files, c.changed, c.longer) == (1, 2, 1), "also of a job that another has planned"
    assert len(set(ledger.inspect.changed(source, "pandas", spark=HERE)["commit"])) == 1
    ledger.forget(source, spark=HERE, **QUIET)
    with ledger.claim(source, **QUIET, spark=HERE) as c:
        copy_of(c)
    assert (c.files, c.changed) == (5, 0)


def test_what_is_not_done_is_told_and_nothing_is_written(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", documents(4)), tmp_path / "out"
    assert sorted(todo(dest, source)) == [f"f000{i}.txt" for i in range(4)]
    assert not dest.exists()
    quire.consolidate(source, dest, spark=HERE, include="d0/*", **QUIET)
    assert sorted(todo(dest, source)) == ["f0001.txt", "f0002.txt"]
    assert todo(dest, source, include="d1/*") == ["f0001.txt"]
    assert todo(dest, source, min_age="1 h") == []
    ledger = quire.Ledger(dest)
    assert ledger.as_of(0).inspect.unprocessed(source, "arrow", spark=HERE).num_rows == 4
    quire.consolidate(source, dest, spark=HERE, **QUIET)
    assert ledger.inspect.unprocessed(source, "arrow", spark=HERE).num_rows == 0, "the log is read anew"
    with refused(UsageError, 2, "holds no ledger"):
        quire.Ledger(tmp_path / "typo")


def test_what_has_changed_comes_from_the_same_listing_where_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest = write(tmp_path / "in", {"a": b"1\n", "b": b"1\n", "c": b"1\n"}), tmp_path / "out"
    quire.consolidate(source, dest, spark=HERE, **QUIET)
    write(source, {"a": b"1\n2\n", "b": b"2\n", "d": b"new"})
    ledger = quire.Ledger(dest)
    columns = ["path", "start", "length", "size", "version", "modified"]
    assert ledger.inspect.unprocessed(source, "arrow", spark=HERE).column_names == columns
    found = ledger.inspect.unprocessed(source, "arrow", changed=True, spark=HERE).to_pylist()
    assert [(row["path"][-1], row["start"], row["length"], (row["reason"] or "")[:9]) for row in found] == [
        ("d", 0, 3, ""), ("a", 0, 4, "appended "), ("b", 0, 2, "rewritten")
    ]  # fmt: skip
    assert {row["path"]: row["reason"] for row in found if row["reason"]} == dict(
        ledger.inspect.changed(source, "arrow", spark=HERE).select(["path", "reason"]).to_pandas().to_numpy().tolist()
    )
    listed, real = list[str](), undone._chunks
    monkeypatch.setattr(undone, "_chunks", lambda *given: (listed.append(str(given[1])), real(*given))[1])
    monkeypatch.setattr(listing, "_chunks", None)
    ledger.inspect.unprocessed(source, "arrow", changed=True, spark=HERE)
    assert listed
    assert len(listed) == len(set(listed)), "no piece of the source is listed twice"


def test_a_split_says_where_its_bytes_are(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"a.txt": b"12345"})
    (row,) = ledger_of(tmp_path / "out").inspect.unprocessed(source, "arrow", spark=HERE).to_pylist()
    entry = connect(normalise(source)).stat("a.txt")
    assert entry is not None
    assert row.pop("modified").timestamp() == pytest.approx((source / "a.txt").stat().st_mtime, abs=1e-3)
    assert row == {"path": f"{normalise(source)}/a.txt", "start": 0, "length": 5, "size": 5, "version": entry.version}


# ----------------------------------------------------------------------------------------------------------------------- claims
def test_files_and_splits_are_one_commit(tmp_path: Path) -> None:
    files = documents(7)
    source, dest = write(tmp_path / "in", files), tmp_path / "out"
    ledger = ledger_of(dest)
    with ledger.claim(source, **QUIET, spark=HERE) as c:
        copy_of(c)
        connect(c.path).put("_SUCCESS", b"")
        connect(c.path).put(".part-0.crc", b"1")
        assert (c.files, c.bytes) == (7, sum(map(len, files.values())))
        assert kinds(dest) == []
        assert {p.name for p in dest.iterdir()} == {"_quire"}
    assert kinds(dest) == ["Commit", "Published"]
    assert rows(dest) == sorted((name.rpartition("/")[2], content) for name, content in files.items())
    assert (c.data_files, c.version) == (1, 2)
    (name,) = [p.name for p in dest.iterdir() if p.name != "_quire"]
    assert name.startswith("part-")
    assert name.endswith("-0.snappy.parquet")
    assert c.written == (dest / name).stat().st_size
    assert not list((dest / "_quire" / "jobs").glob("*"))
    assert todo(dest, source) == []
    assert ledger.summary().files == 7
    assert (ledger.summary().transform, ledger.summary().format) == ("claim", "parquet")
    write(source, {"new.txt": b"new"})
    with ledger.claim(source, **QUIET, spark=HERE) as c:
        assert c.files == 1
        copy_of(c)
    assert rows(dest)[-1] == ("new.txt", b"new")
    assert len(rows(dest)) == 8


def test_on_spark_a_job_of_ones_own_reads_and_writes(tmp_path: Path, spark: Any) -> None:
    source, dest = write(tmp_path / "in", documents(6)), tmp_path / "out"
    ledger = ledger_of(dest)
    assert ledger.inspect.unprocessed(source, "spark", spark=spark).where("path like '%/d1/%'").count() == 2
    with ledger.claim(source, **QUIET, spark=spark) as c:
        paths = [row.path for row in c.splits.collect()]
        lines = spark.read.text(paths).selectExpr("value", "length(value) as n")
        lines.write.partitionBy("n").parquet(c.path)
    assert c.files == len(paths) == 6
    found = quire.read(dest, spark=spark)
    assert found.columns == ["value", "n"]
    assert sorted(row.value for row in found.collect()) == sorted(f"{what} {i}" for i in range(6) for what in ("line", "second of"))
    assert ledger.inspect.unprocessed(source, "spark", spark=spark).count() == 0
    assert {p.name for p in dest.iterdir()} == {"_quire", "n=6", "n=11"}
    write(source, {"d0/f0000.txt": b"rewritten, and longer than it was before", "d1/f0001.txt": b"short"})
    with ledger.claim(source, **QUIET, spark=spark) as c:
        assert (c.files, c.changed, c.longer) == (0, 2, 1)


def test_an_exception_gives_the_claim_up_and_passes_on(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", documents(3)), tmp_path / "out"
    ledger = ledger_of(dest)
    for error in (RuntimeError("mine"), KeyboardInterrupt()):
        with pytest.raises(type(error)), ledger.claim(source, **QUIET, spark=HERE) as c:  # noqa: PT012 - what this is about
            copy_of(c)
            raise error
    assert kinds(dest) == ["Abort", "Abort"]
    assert "RuntimeError" in ledger.refresh().inspect.history()["note"][0]
    assert {p.name for p in dest.iterdir()} == {"_quire"}
    assert not list((dest / "_quire" / "jobs").glob("*"))
    assert len(todo(dest, source)) == 3
    with ledger.claim(source, **QUIET, spark=HERE) as c:
        copy_of(c)
    assert len(rows(dest)) == 3


def test_a_block_may_write_nothing(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", documents(3)), tmp_path / "out"
    with refused(RefusedError, 2, "has written nothing", "allow_empty=True"), ledger_of(dest).claim(source, **QUIET, spark=HERE):
        pass
    assert len(todo(dest, source)) == 3
    with ledger_of(dest).claim(source, **QUIET, allow_empty=True, spark=HERE) as c:
        assert c.files == 3
    assert todo(dest, source) == []
    assert quire.Ledger(dest).inspect.files().empty
    assert kinds(dest) == ["Abort", "Commit", "Published"]


def test_with_nothing_to_claim_nothing_is_committed(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a": b"1"}), tmp_path / "out"
    ledger = ledger_of(dest)
    with ledger.claim(source, **QUIET, spark=HERE) as c:
        copy_of(c)
    with ledger.claim(source, **QUIET, spark=HERE) as c:
        assert (c.files, c.splits.num_rows) == (0, 0)
        copy_of(c)  # no row
    with refused(QuireError, 3, "nothing to claim", "c.files"), ledger.claim(source, **QUIET, spark=HERE) as c:
        put(c.path, "x.parquet", pa.table({"path": ["x"]}))
    assert kinds(dest) == ["Commit", "Published"]
    assert not [p for p in (dest / "_quire").rglob("*") if p.is_file() and p.parent.name not in ("log", "ledger")]


# ------------------------------------------------------------------------------------------------------------------ two at once
def test_of_two_claims_on_the_same_splits_the_first_to_end_has_them(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", documents(4)), tmp_path / "out"
    with ExitStack() as stack:
        first = stack.enter_context(ledger_of(dest).claim(source, **QUIET, spark=HERE))
        copy_of(first, "first.parquet")
        with ledger_of(dest).claim(source, **QUIET, spark=HERE) as second:
            assert second.path != first.path
            assert second.job == first.job, "one job, since both mean the same"
            copy_of(second, "second.parquet")
        before = rows(dest)
        with refused(QuireError, 3, "another claim", "file:///", "Nothing that this block has written is visible"):
            stack.close()
    assert rows(dest) == before
    assert len(before) == 4
    assert kinds(dest) == ["Commit", "Published"]


def test_of_two_claims_that_share_splits_one_wins_and_the_other_names_them(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", documents(6)), tmp_path / "out"
    with ExitStack() as stack:
        some = stack.enter_context(ledger_of(dest).claim(source, include="d1/*", **QUIET, spark=HERE))
        copy_of(some)
        with ledger_of(dest).claim(source, **QUIET, spark=HERE) as everything:
            assert everything.job != some.job
            copy_of(everything)
        with refused(QuireError, 3, "d1/f0001.txt (commit 1)", "is visible"):
            stack.close()
    assert len(rows(dest)) == 6
    assert kinds(dest) == ["Commit", "Published", "Abort"]
    assert not list((dest / "_quire" / "jobs").glob("*"))


def test_a_claim_whose_splits_another_has_committed_before_it_could_read_them_claims_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, dest = write(tmp_path / "in", documents(4)), tmp_path / "out"
    real = claims._marked

    def marked(*args: Any) -> Any:
        begun = real(*args)
        monkeypatch.undo()
        with ledger_of(dest).claim(source, **QUIET, spark=HERE) as other:
            copy_of(other)
        write(source, {"new.txt": b"new"})
        return begun

    monkeypatch.setattr(claims, "_marked", marked)
    with ledger_of(dest).claim(source, **QUIET, spark=HERE) as c:
        assert c.splits.column("path").to_pylist() == [f"{normalise(source)}/new.txt"]
        copy_of(c)
    assert len(rows(dest)) == 5
    assert kinds(dest) == ["Commit", "Published"] * 2


def test_a_job_that_reads_its_splits_when_another_claim_has_ended_is_told_so(tmp_path: Path, spark: Any) -> None:
    source, dest = write(tmp_path / "in", documents(4)), tmp_path / "out"

    def late() -> None:
        with ledger_of(dest).claim(source, **QUIET, spark=spark) as c:
            with ledger_of(dest).claim(source, **QUIET, spark=HERE) as other:
                copy_of(other)
            c.splits.collect()

    with pytest.raises(PySparkException, match=r"another claim has ended it meanwhile.*claim again"):
        late()
    assert kinds(dest) == ["Commit", "Published"]


def test_a_claim_given_up_from_outside_says_so(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", documents(2)), tmp_path / "out"
    with refused(QuireError, 3, "given up"), ledger_of(dest).claim(source, **QUIET, spark=HERE) as c:
        quire.recover(dest, abort=c.job)
        copy_of(c)
    assert kinds(dest) == ["Abort"]
    assert len(todo(dest, source)) == 2


def _killed(claim: Any) -> Claim:
    """A claim whose process dies within its block."""
    found: Claim = claim.__enter__()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "abort", lambda *_: None)
        claim.gen.close()
    return found


def test_a_claim_that_was_killed_is_gone_on_with(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", documents(4)), tmp_path / "out"
    dead = _killed(ledger_of(dest).claim(source, **QUIET, spark=HERE))
    copy_of(dead)
    write(source, {"new.txt": b"new"})
    assert quire.Ledger(dest).summary().open_jobs == (dead.job,)
    assert quire.recover(dest).open == (dead.job,)
    with ledger_of(dest).claim(write(tmp_path / "other", {"other.txt": b"1"}), **QUIET, spark=HERE) as c:
        copy_of(c)
    with ledger_of(dest).claim(source, **QUIET, spark=HERE) as c:
        assert (c.job, c.files) == (dead.job, 4), "the same splits, though others have committed meanwhile"
        copy_of(c)
    assert len(rows(dest)) == 5
    with ledger_of(dest).claim(source, **QUIET, spark=HERE) as c:
        assert c.files == 1
        copy_of(c)
    assert len(rows(dest)) == 6
    assert not list((dest / "_quire" / "jobs").glob("*"))


def test_what_others_did_since_a_claim_was_killed_is_not_claimed_again(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", documents(4)), tmp_path / "out"
    dead = _killed(ledger_of(dest).claim(source, **QUIET, spark=HERE))
    with ledger_of(dest).claim(source, include="d0/*", **QUIET, spark=HERE) as c:
        copy_of(c)
    with ledger_of(dest).claim(source, **QUIET, spark=HERE) as c:
        assert c.job != dead.job
        assert c.files == 2
        copy_of(c)
    assert len(rows(dest)) == 4


def test_a_block_that_ended_well_is_committed_by_the_next_claim_if_its_process_died_then(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", documents(4)), tmp_path / "out"

    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "commit", dies)
        with pytest.raises(KeyboardInterrupt), ledger_of(dest).claim(source, **QUIET, spark=HERE) as c:
            copy_of(c)
    assert kinds(dest) == []
    with ledger_of(dest).claim(source, **QUIET, spark=HERE) as c:
        assert c.files == 0
    assert len(rows(dest)) == 4


# -------------------------------------------------------------------------------------------------------------------- what it is
def test_a_ledger_tells_what_was_claimed(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", documents(3)), tmp_path / "out"
    ledger = ledger_of(dest)
    with ledger.claim(source, **QUIET, spark=HERE) as c:
        copy_of(c)
        put(c.path, "no-row.parquet", pa.table({"path": pa.array([], pa.string()), "content": pa.array([], pa.binary())}))
    (found,) = ledger.locate(source / "d0/f0000.txt")
    assert (found.state, found.data_file) == ("mark", None)
    assert "claim together with 2 others in commit 1" in (found.reason or "")
    with refused(UsageError, 2, "claim together", "quire.read"):
        ledger.read(source / "d0/f0000.txt")
    assert ledger.verify(spark=HERE).data_files == 2
    assert ledger.verify(spark=HERE).ok
    assert ledger.inspect.history()["verb"][0] == "claim"
    assert ledger.compact("1 B", spark=HERE, **QUIET).jobs == (), "none is small"
    with refused(RefusedError, 2, "commit 1", "where='commit = 1'"):
        ledger.forget(source / "d0/f0000.txt", spark=HERE, **QUIET)
    assert ledger.forget(source, spark=HERE, **QUIET).files_out == 3
    assert rows(dest) == []
    assert ledger.summary().files == 0
    with ledger.claim(source, **QUIET, spark=HERE) as c:
        assert c.files == 3
        copy_of(c)
    ledger.expire()
    assert len(rows(dest)) == 3
    assert len([p for p in dest.iterdir() if p.name != "_quire"]) == 1


def test_text_is_read_as_lines(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", documents(2)), tmp_path / "out"
    with ledger_of(dest).claim(source, **QUIET, spark=HERE) as c:
        connect(c.path).put("part-0.csv.gz", gzip.compress(b"a,b\n1,2\n"))
    assert list(first_rows(connect(normalise(dest)), 9)) == [b"a,b", b"1,2"]
    assert quire.Ledger(dest).verify(spark=HERE).ok


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"x.orc": b"1"}, "'x.orc'"),
        ({"x.parquet": b"1"}, "not a Parquet file"),
        ({"x.csv": b"1", "y.csv.gz": b"2"}, "two kinds"),
        ({"x.csv.gz": b"a,b\n1,2\n"}, "'x.csv.gz', which is not compressed by gzip"),
        ({"x.json.zst": gzip.compress(b"{}")}, "'x.json.zst', which is not compressed by zstd"),
        ({"x": b"1"}, "'x'"),
    ],
)
def test_what_cannot_be_committed_gives_the_claim_up_in_one_line(tmp_path: Path, files: dict[str, bytes], said: str) -> None:
    source, dest = write(tmp_path / "in", documents(2)), tmp_path / "out"
    with ExitStack() as stack:
        c = stack.enter_context(ledger_of(dest).claim(source, **QUIET, spark=HERE))
        for name, content in files.items():
            connect(c.path).put(name, content)
        with pytest.raises(QuireError, match=said) as caught:
            stack.close()
    assert str(caught.value).isprintable()
    assert "nothing is visible" in str(caught.value)
    assert kinds(dest) == ["Abort"]
    assert {p.name for p in dest.iterdir()} == {"_quire"}


def test_files_of_two_schemas_or_of_another_kind_than_before_are_refused(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a": b"1"}), tmp_path / "out"
    ledger = ledger_of(dest)
    with refused(RefusedError, 2, "two schemas", "x.parquet", "y.parquet"), ledger.claim(source, **QUIET, spark=HERE) as c:
        put(c.path, "x.parquet", pa.table({"a": [1]}))
        put(c.path, "y.parquet", pa.table({"a": ["1"]}))
    with ledger.claim(source, **QUIET, spark=HERE) as c:
        put(c.path, "x.parquet", pa.table({"a": [1]}))
    write(source, {"b": b"2"})
    with refused(RefusedError, 2, "parquet", "lines", "nothing is visible"), ledger.claim(source, **QUIET, spark=HERE) as c:
        connect(c.path).put("x.txt", b"1\n")
    with refused(QuireError, 3, "two schemas"), ledger.claim(source, **QUIET, spark=HERE) as c:
        put(c.path, "x.parquet", pa.table({"b": [1]}))
    assert len(quire.Ledger(dest).inspect.files()) == 1


def test_a_claim_does_not_go_into_what_quire_has_made(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", documents(2)), tmp_path / "out"
    quire.consolidate(source, dest, spark=HERE, include="d0/*", **QUIET)
    with refused(RefusedError, 2, "another destination"), quire.Ledger(dest).claim(source, **QUIET, spark=HERE):
        raise AssertionError
    foreign = write(tmp_path / "foreign", {"theirs": b"1"})
    with refused(RefusedError, 2, "not empty"), ledger_of(foreign).claim(source, **QUIET, spark=HERE):
        raise AssertionError


def test_a_store_in_memory_is_claimed_into_too(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", documents(2)), f"memory://{uuid.uuid4().hex}"
    with ledger_of(dest).claim(source, **QUIET, spark=HERE) as c:
        copy_of(c)
    assert todo(dest, source) == []
    assert [e.name for e in connect(dest).walk() if not e.name.startswith("_quire/")] == list(
        quire.Ledger(dest).inspect.files()["data_file"]
    )


def marked(directory: Path, files: list[Path]) -> Path:
    """A directory of markers, as a Hadoop job has left them."""
    directory.mkdir(exist_ok=True)
    for file in files:
        (directory / identifier(str(file), 0, file.stat().st_size)).write_bytes(b"")
    return directory


def test_a_claim_that_wrote_nothing_says_nothing_of_what_later_ones_write(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a": b"1\n"}), tmp_path / "out"
    ledger = ledger_of(dest)
    with ledger.claim(source, **QUIET, allow_empty=True, spark=HERE):
        pass
    for name in ("b", "c"):
        write(source, {name: b"1\n"})
        with ledger.claim(source, **QUIET, spark=HERE) as c:
            connect(c.path).put("day=1/x.csv", b"1,2\n")
    assert (len(ledger.inspect.files()), ledger.summary().layout) == (2, "directories")
    with refused(RefusedError, 2, "holds lines, in directories of earlier claims"), ledger.claim(
        write(tmp_path / "in2", {"d": b"1"}), **QUIET, spark=HERE
    ) as c:  # fmt: skip
        copy_of(c)


def test_claims_and_markers_go_together(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a": b"1\n", "b": b"2\n"}), tmp_path / "out"
    ledger = ledger_of(dest)
    ledger.import_markers(marked(tmp_path / "m1", [source / "a"]), source, spark=HERE, **QUIET)
    with ledger.claim(source, **QUIET, spark=HERE) as c:
        copy_of(c)
    assert [name for name, _ in rows(dest)] == ["b"]
    write(source, {"c": b"3\n", "d": b"4\n"})
    assert ledger.import_markers(marked(tmp_path / "m2", [source / "c", source / "d"]), source, spark=HERE, **QUIET).gathered == 2
    assert ledger.forget(source / "c", spark=HERE, **QUIET).files_out == 1, "no data file holds anything of it"
    with ledger.claim(source, **QUIET, spark=HERE) as c:
        copy_of(c)
    assert [name for name, _ in rows(dest)] == ["b", "c"]


def test_what_is_claimed_is_neither_purged_nor_retried(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a": b"1\n"}), tmp_path / "out"
    ledger = ledger_of(dest)
    with ledger.claim(source, **QUIET, spark=HERE) as c:
        copy_of(c)
    with refused(RefusedError, 2, "cannot be verified", "no source was deleted"):
        ledger.purge_sources(source, derived=True, spark=HERE)
    with refused(UsageError, 2, "there is nothing to retry"):
        ledger.retry(spark=HERE, **QUIET)


@pytest.mark.nth(2)
@pytest.mark.parametrize(
    ("left", "words"),
    [
        ("link", ("'part-0.parquet'", "a symbolic link")),
        ("folder link", ("'d'", "a symbolic link")),
        ("pipe", ("'part-0.parquet'", "neither a file nor a directory")),
        ("_temporary/0/task_1/part-0.parquet", ("_temporary", "no committer has committed")),
        ("_part-0.parquet", ("'_part-0.parquet'", "readers ignore")),
        ("d/.part-0.parquet", ("'d/.part-0.parquet'", "readers ignore")),
    ],
)
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside a file"])
def test_nothing_that_a_block_has_left_is_passed_over_in_silence(tmp_path: Path, left: str, words: tuple[str, ...], beside: bool) -> None:
    source, dest = write(tmp_path / "in", {"a.txt": b"one\n"}), tmp_path / "out"
    (tmp_path / "elsewhere").mkdir()
    with refused(RefusedError, 2, *words, "nothing is visible"), ledger_of(dest).claim(source, **QUIET, spark=HERE) as c:
        folder = Path(c.path.removeprefix("file://"))
        folder.mkdir(parents=True)
        if left == "link":
            os.symlink(tmp_path / "elsewhere.parquet", folder / "part-0.parquet")
        elif left == "folder link":
            os.symlink(tmp_path / "elsewhere", folder / "d")
        elif left == "pipe":
            os.mkfifo(folder / "part-0.parquet")
        else:
            put(c.path, left, pa.table({"a": [1]}))
        if beside:
            copy_of(c, "other.parquet")
    assert len(todo(dest, source)) == 1
    assert kinds(dest) == ["Abort"]


def test_a_name_as_long_as_a_file_system_takes_becomes_one_that_can_be_published(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", documents(2)), tmp_path / "out"
    with ledger_of(dest).claim(source, **QUIET, spark=HERE) as c:
        copy_of(c, f"a.{'b' * 245}.parquet")
    assert len(rows(dest)) == 2
    assert not quire.Ledger(dest).summary().unpublished
