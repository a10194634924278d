"""What Spark 3.5 does in its own way, by stand-ins for its session; `make compat` runs the real one."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyspark
import pytest

from quire.errors import UsageError
from quire.spark import releases
from quire.spark.jobs import SparkJob

HOUSE = Path(releases.__file__).parents[1]
# Calls that no release but some has, or that only a context has.
APART = {
    "addArtifact", "addArtifacts", "addJobTag", "addPyFile", "addTag", "cancelJobGroup", "getAll", "interruptAll", "interruptTag",
    "setJobGroup", "toArrow",
}  # fmt: skip


class Context:
    """A context of Spark 3.5, which notes what is asked of it."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.asked.append((name, *arguments))


class Session:
    """A session of Spark 3.5: it has the names of Spark 4's calls, and refuses them."""

    def __init__(self) -> None:
        self._sc = self.sparkContext = Context()

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("only over Spark Connect")

    addArtifacts = interruptAll = interruptTag = addTag = removeTag = newSession = _refuse  # noqa: N815

    def createDataFrame(self, rows: Any, schema: Any) -> Any:  # noqa: N802
        return SimpleNamespace(rows=rows, schema=schema)


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setattr(pyspark, "__version__", "3.5.9")
    return Session()


def test_files_go_by_the_context(session: Session) -> None:
    releases.send(session, "/tmp/quire-1.zip")  # type: ignore[arg-type]
    assert session._sc.asked == [("addPyFile", "/tmp/quire-1.zip")]
    assert releases.sending("m.py") == "spark.sparkContext.addPyFile('m.py')"


@pytest.mark.parametrize("within", [False, True])
def test_a_job_is_a_group_that_alone_is_cancelled(session: Session, within: bool) -> None:
    job = SparkJob(session, within=within)  # type: ignore[arg-type]
    assert job.session is session
    with job:
        job.interrupt()
    (begun, group, _), (ended, cancelled), *cleared = session._sc.asked
    assert (begun, ended) == ("setJobGroup", "cancelJobGroup")
    assert group == cancelled
    assert ("setLocalProperty", "spark.jobGroup.id", None) in cleared
    assert SparkJob(session)._way.group != group  # type: ignore[arg-type, attr-defined]


def test_a_job_of_a_frame_of_the_users_is_a_group_in_any_context() -> None:
    session = Session()
    with SparkJob(session, within=True):  # type: ignore[arg-type]
        pass
    assert session._sc.asked[0][0] == "setJobGroup"


def test_rows_come_and_go_as_arrow(session: Session) -> None:
    table = pa.table({"n": pa.array([1, None, 3]), "at": pa.array([None, 1, 2], pa.timestamp("us", "UTC"))})
    frame = releases.from_arrow(session, table)  # type: ignore[arg-type]
    assert [row[0] for row in frame.rows] == [1, None, 3]
    assert [field.dataType.simpleString() for field in frame.schema] == ["bigint", "timestamp"]

    class Old:
        schema, batches = frame.schema, table.cast(pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", "Asia/Tokyo"))])).to_batches()

        def _collect_as_arrow(self) -> list[pa.RecordBatch]:
            return self.batches

    assert releases.to_arrow(Old()).equals(table)  # type: ignore[arg-type]
    Old.batches = []
    assert releases.to_arrow(Old()).equals(table.slice(0, 0))  # type: ignore[arg-type]


def test_types_that_it_spells_otherwise(session: Session) -> None:
    inner = pa.struct([("x", pa.binary(4)), ("y", pa.large_list(pa.list_(pa.int32(), 2)))])
    (field,) = releases.from_arrow_schema(pa.schema([("m", pa.map_(pa.string(), inner))]))
    assert field.dataType.simpleString() == "map<string,struct<x:binary,y:array<array<int>>>>"


@pytest.mark.parametrize(("version", "says"), [("3.4.4", "needs 3.5 or newer"), ("2.4.8", "needs 3.5 or newer"), ("3.5.9", "")])
def test_a_spark_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch, version: str, says: str) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    monkeypatch.setitem(sys.modules, "distutils", sys)  # a module with a spec, as this Python may have none
    if not says:
        releases.check()
        return
    with pytest.raises(UsageError, match=says) as caught:
        releases.check()
    assert str(caught.value).startswith(f"this is Spark {version}")


def test_python_that_is_too_new_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    releases.check()  # Spark 4
    monkeypatch.setattr(pyspark, "__version__", "3.5.2")
    with pytest.raises(UsageError, match=r"^this is Spark 3\.5\.2 on Python 3\.\d+, and it runs on 3\.11 and older"):
        releases.check()


@pytest.mark.parametrize(
    ("version", "release"), [("3.5.9", (3, 5)), ("4.10.0.dev1", (4, 10)), ("3.5.1-amzn-0", (3, 5)), ("unknown", (3, 5))]
)
def test_releases_are_told_by_their_numbers(monkeypatch: pytest.MonkeyPatch, version: str, release: tuple[int, int]) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    assert releases.release() == release


def test_no_other_room_knows_the_releases() -> None:
    """A call that one of them lacks stands in `quire.spark` alone."""
    met = list[str]()
    for file in HOUSE.rglob("*.py"):
        if file.is_relative_to(HOUSE / "spark") or file.is_relative_to(HOUSE / "committers" / "lab"):  # which is Spark's job, not ours
            continue
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in APART:
                met.append(f"{file.relative_to(HOUSE)}:{node.lineno} {node.attr}")
            if isinstance(node, ast.ImportFrom) and (node.module or "") in ("pyspark.sql.pandas.types", "pyspark.sql.datasource"):
                met.append(f"{file.relative_to(HOUSE)}:{node.lineno} {node.module}")
    assert met == []
