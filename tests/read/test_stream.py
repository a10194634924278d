"""`spark.readStream.format("quire")`: each commit's rows once, whatever dies, at the pace that is asked for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable

import quire
from gathering import gather, refused, write
from quire.commit import protocol
from quire.commit.log import Log
from quire.errors import QuireError, RefusedError, UsageError
from quire.read import stream as streams
from quire.read.source import DataSource
from quire.read.stream import StreamReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOCAL = quire.LocalRunner()


def reader(dest: Path, **given: Any) -> StreamReader:
    """As Spark makes one, in this process."""
    source = DataSource(CaseInsensitiveDict({"path": str(dest), **{name: str(value) for name, value in given.items()}}))
    return source.streamReader(source.schema())  # type: ignore[arg-type]  # a StructType


def rows(found: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> Counter[bytes]:
    """Of a batch."""
    batches = [batch for part in found.partitions(start, end) for batch in found.read(part)]
    return Counter(value for batch in batches for value in batch.column(batch.schema.names[-1]).to_pylist())


def batches(found: StreamReader, start: dict[str, Any] | None = None, limit: Any = None) -> list[Counter[bytes]]:
    """All batches that there are now."""
    at = start or found.initialOffset()
    taken = list[Counter[bytes]]()
    for _ in range(50):
        end = found.latestOffset(at, limit or found.getDefaultReadLimit())
        if end == at:
            return taken
        taken.append(rows(found, at, end))
        assert rows(found, at, end) == taken[-1], "the same again, if Spark asks again"
        at = end
    raise AssertionError("it never ends")


def commits(dest: Path, source: Path, n: int, **shape: Any) -> list[Counter[bytes]]:
    """n commits of some lines each, and what each has brought."""
    found = []
    for i in range(n):
        write(source, {f"r{i}/f{j}": b"%d %d\n" % (i, j) for j in range(i + 1)})
        gather(source, dest, **shape)
        found.append(Counter(b"%d %d" % (i, j) + (b"" if shape.get("transform", "lines") == "lines" else b"\n") for j in range(i + 1)))
    return found


SHAPES: list[dict[str, Any]] = [
    {},
    {"transform": "raw"},
    {"transform": "raw", "format": "parquet"},
    {"transform": "raw", "layout": "directories"},
]


@pytest.mark.nth(4)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_each_commit_comes_once_from_the_first_on(tmp_path: Path, shape: dict[str, Any]) -> None:
    brought = commits(tmp_path / "out", tmp_path / "in", 3, **shape)
    found = reader(tmp_path / "out", startingVersion=0, maxCommitsPerTrigger=1)
    assert batches(found) == brought
    assert batches(reader(tmp_path / "out", startingVersion=0)) == [sum(brought, Counter())]
    assert batches(reader(tmp_path / "out", startingVersion=4)) == [sum(brought[1:], Counter())], "as of Delta: with that version"
    later = commits(tmp_path / "out", tmp_path / "in", 4, **shape)[3:]
    assert batches(found, {"version": 6}) == later, "and a reader that runs sees what comes"


@pytest.mark.nth(4)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_stream_begins_with_the_rows_of_now_and_goes_on_with_commits(tmp_path: Path, shape: dict[str, Any]) -> None:
    brought = commits(tmp_path / "out", tmp_path / "in", 3, **shape)
    quire.Ledger(tmp_path / "out").compact(spark=LOCAL)
    quire.Ledger(tmp_path / "out").expire()  # nothing is left of the single commits
    found = reader(tmp_path / "out")
    assert batches(found) == [sum(brought, Counter())]
    start, end = found.initialOffset(), found.latestOffset(found.initialOffset(), ReadAllAvailable())
    later = commits(tmp_path / "out", tmp_path / "in", 4, **shape)[3:]
    assert rows(reader(tmp_path / "out"), start, end) == sum(brought, Counter()), "the first batch stays so, though commits came meanwhile"
    assert batches(reader(tmp_path / "out"), end) == later
    latest = reader(tmp_path / "out", startingVersion="latest")
    assert batches(latest) == [Counter()]


def test_the_rows_of_now_come_at_the_pace_of_the_limits_too(tmp_path: Path) -> None:
    brought = commits(tmp_path / "out", tmp_path / "in", 4)
    assert batches(reader(tmp_path / "out", maxCommitsPerTrigger=3)) == [sum(brought[:3], Counter()), brought[3]]
    assert batches(reader(tmp_path / "out", maxBytesPerTrigger="1 B")) == brought, "a commit at a time, however large"
    assert batches(reader(tmp_path / "out", startingVersion=1, maxBytesPerTrigger="12 B")) == [sum(brought[:2], Counter()), *brought[2:]]
    assert batches(reader(tmp_path / "out", maxCommitsPerTrigger=1), limit=ReadAllAvailable()) == [sum(brought, Counter())]


def test_the_rows_of_now_are_looked_up_once_for_all_of_their_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a file that was superseded meanwhile is found where it is kept; a version that has expired is one line."""
    source, dest = tmp_path / "in", tmp_path / "out"
    all_of_them = commits(dest, source, 6, keep_versions="1 h")
    found, looks, real = reader(dest, maxCommitsPerTrigger=1), list[int](), streams.content
    monkeypatch.setattr(streams, "content", lambda *given: [looks.append(given[-1]), real(*given)][1])
    end = found.latestOffset(found.initialOffset(), found.getDefaultReadLimit())
    taken = [rows(found, found.initialOffset(), end)]
    quire.Ledger(dest).compact("1 MiB", spark=LOCAL, progress=False)
    taken += batches(found, end)
    assert taken == all_of_them
    assert len(looks) == 1
    gather(write(source, {"later": b"x\n"}), dest)
    again = reader(dest, maxCommitsPerTrigger=1)
    end = again.latestOffset(again.initialOffset(), again.getDefaultReadLimit())
    quire.Ledger(dest).compact("1 MiB", spark=LOCAL, progress=False)
    quire.Ledger(dest).expire(quire.Ledger(dest).version)
    with refused(UsageError, 2, f"version {end['version']} of ", "has expired"):
        again.latestOffset(end, again.getDefaultReadLimit())


def test_a_query_that_takes_what_is_there_does_not_follow_what_comes(tmp_path: Path) -> None:
    brought = commits(tmp_path / "out", tmp_path / "in", 2)
    found = reader(tmp_path / "out", startingVersion=0)
    found.prepareForTriggerAvailableNow()
    commits(tmp_path / "out", tmp_path / "in", 3)
    assert batches(found) == [sum(brought, Counter())]


def test_a_commit_comes_when_it_is_published_and_not_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brought = commits(tmp_path / "out", tmp_path / "in", 1)
    found = reader(tmp_path / "out", startingVersion=0)
    at = {"version": 2}
    write(tmp_path / "in", {"late": b"late\n"})

    def stop(*_: Any, **__: Any) -> None:
        raise QuireError("stop")

    with monkeypatch.context() as patch:
        patch.setattr(protocol, "publish", stop)
        with pytest.raises(QuireError, match="stop"):
            gather(tmp_path / "in", tmp_path / "out")
    assert batches(found, at) == []
    quire.recover(tmp_path / "out")
    assert batches(found, at) == [Counter([b"late"])]
    assert batches(reader(tmp_path / "out", startingVersion=0, maxCommitsPerTrigger=1)) == [*brought, Counter([b"late"])]


@pytest.mark.nth(2)
@pytest.mark.parametrize("shape", SHAPES[:3], ids=str)
def test_a_compaction_brings_nothing(tmp_path: Path, shape: dict[str, Any]) -> None:
    brought = commits(tmp_path / "out", tmp_path / "in", 2, **shape)
    quire.Ledger(tmp_path / "out").compact(spark=LOCAL)
    with quire.Ledger(tmp_path / "out").pin():
        pass
    quire.Ledger(tmp_path / "out").checkpoint(spark=LOCAL)
    found = reader(tmp_path / "out", startingVersion=0, maxCommitsPerTrigger=1)
    assert batches(found) == brought
    later = commits(tmp_path / "out", tmp_path / "in", 3, **shape)[2:]
    assert batches(reader(tmp_path / "out", startingVersion=0, maxCommitsPerTrigger=1)) == [*brought, *later]


def test_rows_that_are_taken_back_are_refused_passed_over_or_given_again(tmp_path: Path) -> None:
    source, dest = tmp_path / "in", tmp_path / "out"
    write(source, {"a": b"1\n2\n", "b": b"3\n"})
    gather(source, dest)
    write(source, {"a": b"1 anew\n2 anew!\n"})
    gather(source, dest, on_change="reprocess")
    write(source, {"c": b"4\n"})
    gather(source, dest, include="c")
    first, anew, last = Counter([b"1", b"2", b"3"]), Counter([b"1 anew", b"2 anew!"]), Counter([b"4"])
    with refused(RefusedError, 2, "takes back rows", "changes", "skip", "again"):
        batches(reader(dest, startingVersion=0))
    assert batches(reader(dest, startingVersion=0, maxCommitsPerTrigger=1, changes="skip")) == [first, last]
    assert batches(reader(dest, startingVersion=0, maxCommitsPerTrigger=1, changes="again")) == [first, anew, last]
    assert batches(reader(dest)) == [anew + Counter([b"3"]) + last], "a stream that begins now sees what is there now"
    quire.Ledger(dest).forget([f"{source}/b"], spark=LOCAL)
    with refused(UsageError, 2, "the rows of commit 1", "have expired"):
        batches(reader(dest, startingVersion=0, changes="again"))
    assert batches(reader(dest)) == [anew + last], "forgotten rows come never again"


def test_a_commit_that_has_expired_is_one_line(tmp_path: Path) -> None:
    brought = commits(tmp_path / "out", tmp_path / "in", 2)
    found = reader(tmp_path / "out", startingVersion=0)
    quire.Ledger(tmp_path / "out").compact(spark=LOCAL)
    assert batches(found) == [sum(brought, Counter())], "while its files are there"
    quire.Ledger(tmp_path / "out").expire()
    with refused(UsageError, 2, "the rows of commit 1", "have expired", "checkpointLocation"):
        batches(reader(tmp_path / "out", startingVersion=0))
    start = {"version": quire.Ledger(tmp_path / "out").version}
    commits(tmp_path / "out", tmp_path / "in", 3)
    quire.Ledger(tmp_path / "out").expire()
    assert batches(reader(tmp_path / "out", startingVersion=0), start) == [Counter(b"2 %d" % j for j in range(3))], "later ones are there"


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        ({"startingVersion": 99}, UsageError, ["startingVersion=99", "not there yet", "2"]),
        ({"startingVersion": -1}, UsageError, ["startingVersion=-1"]),
        ({"startingVersion": "now"}, UsageError, ["startingVersion='now'"]),
        ({"maxCommitsPerTrigger": 0}, UsageError, ["maxCommitsPerTrigger=0"]),
        ({"maxBytesPerTrigger": "many"}, UsageError, ["maxBytesPerTrigger", "many"]),
        ({"changes": "ignore"}, UsageError, ["changes", "refuse, skip, again"]),
        ({"version": 2}, UsageError, ["startingVersion"]),
        ({"pushdown": "true"}, UsageError, ["pushdown is an option of spark.read", "leave it out"]),
        ({"pushdown": "maybe"}, UsageError, ["pushdown is an option of spark.read"]),
    ],
)
def test_a_wrong_option_is_one_line(tmp_path: Path, given: dict[str, Any], kind: type[QuireError], words: list[str]) -> None:
    commits(tmp_path / "out", tmp_path / "in", 1)
    with refused(kind, 2, *words):
        reader(tmp_path / "out", **given)


def test_planning_looks_at_each_commit_some_times_however_far_the_stream_is_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch looked at all commits that were left, and each commit at all up to the last expiry: the square of their number."""
    n = 10
    brought = commits(tmp_path / "out", tmp_path / "in", n)
    quire.Ledger(tmp_path / "out").expire()
    looks = Counter[str]()

    def counted(whole: Any) -> Any:
        def look(self: Log, *args: Any, **options: Any) -> Any:
            looks[whole.__name__] += 1
            return whole(self, *args, **options)

        return look

    for name in ("in_effect", "decided", "commits"):
        monkeypatch.setattr(Log, name, counted(getattr(Log, name)))
    for limits in ({"maxCommitsPerTrigger": 1}, {"maxBytesPerTrigger": "1 B"}, {}):
        found = reader(tmp_path / "out", startingVersion=0, **limits)
        at, taken = found.initialOffset(), list[Counter[bytes]]()
        looks.clear()
        while (end := found.latestOffset(at, found.getDefaultReadLimit())) != at:
            taken.append(rows(found, at, end))
            at = end
        assert taken == (brought if limits else [sum(brought, Counter())])
        assert looks["decided"] <= 3 * n, "of each one in latestOffset, one more where its bytes are too many, and one in partitions"
        assert looks["in_effect"] <= 4 * n, "and one for what has expired"
        assert looks["commits"] <= 3


def test_a_batch_before_a_commit_that_takes_rows_back_comes_first(tmp_path: Path) -> None:
    brought = commits(tmp_path / "out", tmp_path / "in", 2)
    write(tmp_path / "in", {"r0/f0": b"anew!\n"})
    gather(tmp_path / "in", tmp_path / "out", on_change="reprocess")
    found = reader(tmp_path / "out", startingVersion=0, maxCommitsPerTrigger=1)
    first = found.latestOffset(found.initialOffset(), found.getDefaultReadLimit())
    second = found.latestOffset(first, found.getDefaultReadLimit())
    assert [rows(found, found.initialOffset(), first), rows(found, first, second)] == brought
    with refused(RefusedError, 2, "takes back rows"):
        found.latestOffset(second, found.getDefaultReadLimit())


def test_a_stream_that_runs_sees_that_commits_expire_which_it_has_not_read(tmp_path: Path) -> None:
    brought = commits(tmp_path / "out", tmp_path / "in", 3)
    found = reader(tmp_path / "out", startingVersion=0, maxCommitsPerTrigger=1)
    start = found.initialOffset()
    first = found.latestOffset(start, found.getDefaultReadLimit())
    assert rows(found, start, first) == brought[0]
    quire.Ledger(tmp_path / "out").compact(spark=LOCAL)
    quire.Ledger(tmp_path / "out").expire()
    second = found.latestOffset(first, found.getDefaultReadLimit())
    for batch, number in (((first, second), 3), ((start, first), 1)):
        with refused(UsageError, 2, f"the rows of commit {number}", "have expired"):
            found.partitions(*batch)


def test_another_destination_of_that_name_is_one_line(tmp_path: Path) -> None:
    commits(tmp_path / "out", tmp_path / "in", 1)
    with refused(RefusedError, 2, "ends at 2", "read up to 8", "checkpointLocation"):
        batches(reader(tmp_path / "out"), {"version": 8})


# --------------------------------------------------------------------------------------------------------------- with Spark


def stream(spark: SparkSession, dest: Path, **given: Any) -> DataFrame:
    return spark.readStream.format("quire").options(**{k: str(v) for k, v in given.items()}).load(str(dest))


@pytest.mark.seldom
def test_a_query_that_dies_and_begins_again_gives_each_commit_once(tmp_path: Path, spark: SparkSession) -> None:
    brought = commits(tmp_path / "out", tmp_path / "in", 5)
    seen = dict[int, Counter[bytes]]()

    def run(dies_at: int | None) -> None:
        def take(frame: DataFrame, batch: int) -> None:
            values = Counter(bytes(row.value) for row in frame.collect())
            assert seen.setdefault(batch, values) == values, "a batch that is made again is the same"
            if batch == dies_at:
                raise RuntimeError("it dies here")

        frame = stream(spark, tmp_path / "out", startingVersion=0, maxCommitsPerTrigger=2)
        query = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "at")).trigger(availableNow=True).start()
        if dies_at is None:
            query.awaitTermination(120)
            return
        with pytest.raises(Exception, match="it dies here"):
            query.awaitTermination(120)

    run(dies_at=1)
    assert len(seen) == 2
    brought += commits(tmp_path / "out", tmp_path / "in", 6)[5:]
    run(dies_at=None)
    assert [seen[i] for i in sorted(seen)] == [sum(brought[:2], Counter()), sum(brought[2:4], Counter()), sum(brought[4:], Counter())]
    run(dies_at=None)
    assert sum(seen.values(), Counter()) == sum(brought, Counter()), "and a query that finds nothing new gives nothing"


def test_a_stream_of_nothing_or_of_a_table_is_one_line(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(Exception, match="there is nothing to read"):
        stream(spark, tmp_path / "empty")
