"""Files of several schemas in one tree: each schema has a destination of its own, each file lies in one of them, and every run agrees."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import quire
from gathering import gather, look, refused, write
from quire import Ledger
from quire.errors import AllQuarantined, UsageError
from quire.planning.routes import UNREADABLE, named

HERE: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False}
SPLIT: dict[str, Any] = {"transform": "parquet", "split_by_schema": True}


def packed(kind: str = "parquet", **columns: Any) -> bytes:
    sink = pa.BufferOutputStream()
    (pq.write_table if kind == "parquet" else orc.write_table)(pa.table(columns), sink)
    return bytes(sink.getvalue().to_pybytes())


def order(i: int, wide: pa.DataType | None = None) -> bytes:
    return packed(id=pa.array([i], wide or pa.int64()), price=[i + 0.5])


def person(i: int) -> bytes:
    return packed(name=[f"n{i}"], id=[i])


ORDERS, PEOPLE = (
    named(pa.schema(columns)) for columns in ([("price", pa.float64()), ("id", pa.int32())], [("id", pa.int8()), ("name", "string")])
)


def tree(folder: Path, files: range = range(12)) -> Path:
    return write(folder, {f"d{i % 2}/{i:03}.parquet": person(i) if i % 3 else order(i, pa.int32() if i % 2 else None) for i in files})


def ids(dest: Path) -> list[int]:
    found = (pq.read_table(path)["id"].to_pylist() for path in sorted(dest.glob("part-*.parquet")))
    return sorted(itertools.chain.from_iterable(found))


def test_each_schema_has_a_destination_of_its_own(tmp_path: Path) -> None:
    source, dest = tree(tmp_path / "in"), tmp_path / "out"
    report = gather(source, dest, **SPLIT)
    assert isinstance(report, quire.SplitReport)
    assert (report.files, report.data_files, sorted(report.reports)) == (12, 2, sorted([ORDERS, PEOPLE]))
    assert report.schemas[PEOPLE] == "`name` string, `id` bigint"
    assert report.examples[PEOPLE].endswith("/d1/001.parquet") or report.examples[PEOPLE].endswith("/d0/002.parquet")
    assert PEOPLE in str(report)
    assert report.as_dict()["reports"][ORDERS]["files"] == 4
    assert sorted(path.name for path in dest.iterdir()) == sorted([ORDERS, PEOPLE])
    assert (ids(dest / ORDERS), ids(dest / PEOPLE)) == ([0, 3, 6, 9], [i for i in range(12) if i % 3])
    again = gather(source, dest, **SPLIT)
    assert (again.files, again.jobs) == (0, ())
    write(source, {"d9/new.parquet": person(100), "other/1.parquet": packed(id=["text"], price=[1.5])})
    third = gather(source, dest, **SPLIT)
    text = named(pa.schema([("id", "string"), ("price", pa.float64())]))
    assert {name: each.files for name, each in third.reports.items()} == {ORDERS: 0, PEOPLE: 1, text: 1}
    assert ids(dest / PEOPLE)[-1] == 100
    for name in third.reports:
        assert Ledger(dest / name).verify(spark=HERE["spark"]).ok


def test_what_cannot_be_read_is_told_and_is_in_one_destination_when_it_is_mended(tmp_path: Path) -> None:
    source, dest = tree(tmp_path / "in", range(4)), tmp_path / "out"
    write(source, {"bad.parquet": b"PAR1 and no more", "empty.parquet": b""})
    report = gather(source, dest, transform="parquet", split_by_schema=True, max_quarantined=None)
    assert (report.files, report.quarantined_count) == (4, 2)
    assert sorted(Path(row.path).name for row in Ledger(dest / UNREADABLE).inspect.quarantined().itertuples()) == [
        "bad.parquet",
        "empty.parquet",
    ]
    write(source, {"bad.parquet": person(50)})
    assert {name: each.files for name, each in gather(source, dest, **SPLIT).reports.items()} == {ORDERS: 0, PEOPLE: 1, UNREADABLE: 0}
    assert gather(source, dest, **SPLIT).files == 0
    with pytest.raises(AllQuarantined):
        gather(write(tmp_path / "in2", {"a.parquet": b"x"}), tmp_path / "out2", **SPLIT, max_quarantined=None)


def test_a_killed_call_goes_on_in_each_destination(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest = tree(tmp_path / "in"), tmp_path / "out"
    from quire.commit import protocol

    for dies in (1, 2):
        calls, real = itertools.count(1), protocol.publish

        def publish(*given: Any, dies: int = dies, calls: Any = calls, real: Any = real) -> Any:
            if next(calls) == dies:
                raise KeyboardInterrupt
            return real(*given)

        with monkeypatch.context() as patch:
            patch.setattr("quire.commit.protocol.publish", publish)
            with pytest.raises(KeyboardInterrupt):
                gather(source, dest, **SPLIT)
    gather(source, dest, **SPLIT)
    assert (ids(dest / ORDERS), ids(dest / PEOPLE)) == ([0, 3, 6, 9], [i for i in range(12) if i % 3])


def test_a_schema_s_name_is_of_its_columns_alone() -> None:
    of = pa.schema
    same = [
        of([("a b", pa.int8()), ("C", pa.struct([("x", pa.int32())]))]),
        of([("c", pa.struct([("x", pa.int64())])), ("a b", pa.uint16())]),
    ]
    assert len({named(each) for each in same}) == 1
    assert named(same[0]).startswith("a_b-c-")
    others = [
        of([("a", kind)])
        for kind in (pa.int64(), pa.float32(), pa.string(), pa.list_(pa.int8()), pa.timestamp("us"), pa.map_("string", "int8"))
    ]
    assert len({named(each) for each in others}) == len(others)
    assert named(of([("日", pa.int8())])).startswith("columns-")


@pytest.mark.parametrize("kind", ["orc"])
def test_other_formats(kind: str, tmp_path: Path) -> None:
    source = write(tmp_path / "in", {f"{i}.{kind}": packed(kind, **({"a": [i]} if i % 2 else {"b": ["x"]})) for i in range(4)})
    assert [each.files for each in gather(source, tmp_path / "out", transform=kind, split_by_schema=True).reports.values()] == [2, 2]


def test_wrong_words(tmp_path: Path) -> None:
    source, dest = tree(tmp_path / "in", range(3)), tmp_path / "out"
    with refused(UsageError, 2, "parquet, orc, avro"):
        gather(source, dest, transform="csv", split_by_schema=True)
    with refused(UsageError, 2, "neither True nor False"):
        gather(source, dest, transform="parquet", split_by_schema="yes")
    with refused(UsageError, 2, "runs once"):
        gather(source, dest, **SPLIT, every="1 s", max_runs=1)
    with refused(UsageError, 2, "a plan is of one destination"):
        look(source, dest, **SPLIT)
    with refused(UsageError, 2, "does not exist"):
        gather(tmp_path / "nothing", dest, **SPLIT)
    quire.Table.create((tmp_path / "table").as_uri(), key="id")
    with refused(UsageError, 2, "a table has one schema"):
        gather(source, tmp_path / "table", **SPLIT)
    gather(source, dest, transform="parquet", include="*000*")
    with refused(UsageError, 2, "is a destination itself"):
        gather(source, dest, **SPLIT)
