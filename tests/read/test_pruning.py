"""A query reads what it needs: of 100 partitions one, of the columns and row groups some, whoever reads. Proven by bytes and by plans."""

from __future__ import annotations

import datetime as dt
import os
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict, EqualTo, GreaterThan, IsNull, LessThan

import quire
from gathering import gather, write
from quire.formats import parquet
from quire.read import rows, tasks
from quire.read.source import BatchReader, DataSource, PruningReader
from quire.sources.splits import FileInfo
from quire.storage.local import LocalStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DAY = dt.date(2026, 1, 1)
ODD = ["a b", "%3A", "12:30", "#1", "it's", "(x)", "$&;", "x|y", "<>", '"', "~^`", "Süd", "[ab]{c}*?", "\\"]


def plan(frame: DataFrame, capsys: pytest.CaptureFixture[str]) -> str:
    frame.explain()
    return capsys.readouterr().out


def days(folder: Path, n: int, size: int = 4_000) -> Path:
    """A file in each of n directories of a day, all of one size."""
    made = {f"dt={DAY + dt.timedelta(i)}/f": b"%07d " % i * (size // 8) for i in range(n)}
    return write(folder, made)


def content(content: bytes, file: FileInfo) -> pa.RecordBatch:
    return pa.record_batch({"n": list(range(1000)), "text": [content.decode()[:8]] * 1000, "blob": [os.urandom(100) for _ in range(1000)]})


# -------------------------------------------------------------------------------------------------------------- quire.read


def test_a_filter_on_a_directory_reads_no_other_file(tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    gather(days(tmp_path / "in", 20), tmp_path / "out", transform="raw", format="parquet", layout="directories")
    frame = quire.read(tmp_path / "out", spark=spark).where("dt = '2026-01-03'").select("content")
    said = plan(frame, capsys)
    assert "MapInArrow" not in said
    assert re.search(r"PartitionFilters: \[.*dt#.*2026-01-03", said), said
    assert "ReadSchema: struct<content:binary>" in said, "nor any other column"
    for file in (tmp_path / "out").glob("dt=*/*.parquet"):
        if "dt=2026-01-03" not in str(file):
            file.write_bytes(b"x" * file.stat().st_size)  # whoever reads it fails
    assert [bytes(row.content)[:7] for row in frame.collect()] == [b"0000002"]


def test_directories_of_any_name_are_pruned_and_read(tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    """Some names Spark cannot open by its own scan: these alone are read by quire's tasks, and the others are pruned all the same."""

    def named(content: bytes, file: FileInfo) -> pa.RecordBatch:
        return pa.record_batch({"x": [content.decode()]})

    source = write(tmp_path / "in", {f"c={v}/f{i}": v.encode() for i, v in enumerate(["plain", *ODD[:10]])})
    gather(source, tmp_path / "literal", transform=named, format="parquet", layout="directories")
    said = plan(quire.read(tmp_path / "literal", spark=spark).where("c = 'plain'"), capsys)
    assert "MapInArrow" not in said, "Spark takes these names as they are"
    for i, value in enumerate(ODD[10:]):
        write(source, {f"c={value}/g{i}": value.encode()})
    gather(source, tmp_path / "all", transform=named, format="parquet", layout="directories")
    frame = quire.read(tmp_path / "all", spark=spark)
    assert frame.dtypes == [("x", "string"), ("c", "string")]
    from quire.formats.partitions import values  # as the directories are read

    wanted = Counter((v, values(f"c={v}/x")["c"]) for v in ["plain", *ODD])
    assert Counter(map(tuple, frame.collect())) == wanted
    said = plan(frame.where("c = 'plain'"), capsys)
    assert "MapInArrow" in said
    assert "PartitionFilters: [isnotnull(c#" in said
    assert [tuple(row) for row in frame.where("c = 'plain'").collect()] == [("plain", "plain")]
    assert Counter(map(tuple, spark.read.format("quire").load(str(tmp_path / "all")).collect())) == wanted


# ----------------------------------------------------------------------------------------------------------- format("quire")


def reader(dest: Path, *filters: Any, **options: str) -> PruningReader:
    """As Spark makes one."""
    source = DataSource(CaseInsensitiveDict({"path": str(dest), "pushdown": "true", **options}))
    found = source.reader(source.schema())  # type: ignore[arg-type]  # a StructType
    assert isinstance(found, PruningReader)
    assert list(found.pushFilters(list(filters))) == list(filters), "Spark computes them once more"
    return found


@pytest.fixture
def read_bytes(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Bytes that were read, by the ending of the file."""
    found = Counter[str]()
    for name in ("get", "get_range"):
        whole = getattr(LocalStore, name)

        def counting(self: LocalStore, name: str, *args: Any, whole: Any = whole) -> bytes:
            data: bytes = whole(self, name, *args)
            found[name.rpartition(".")[2]] += len(data)
            return data

        monkeypatch.setattr(LocalStore, name, counting)
    return found


def everything(found: BatchReader) -> pa.Table:
    return pa.Table.from_batches([batch for part in found.partitions() for batch in found.read(part)], found.reading.columns)


@pytest.mark.nth(2)
@pytest.mark.parametrize(("transform", "format", "ending"), [("raw", "parquet", "parquet"), ("lines", "lines", "txt")])
def test_a_filter_on_one_of_100_directories_reads_one_percent(
    tmp_path: Path, read_bytes: Counter[str], transform: str, format: str, ending: str
) -> None:
    gather(days(tmp_path / "in", 100), tmp_path / "out", transform=transform, format=format, layout="directories")
    sizes = [file.stat().st_size for file in (tmp_path / "out").glob(f"dt=*/*.{ending}")]
    assert len(sizes) == 100
    found = reader(tmp_path / "out", EqualTo(("dt",), DAY + dt.timedelta(50)))
    read_bytes.clear()
    assert everything(found).num_rows == 1
    if format == "parquet":
        assert 0 < read_bytes[ending] <= 1.05 * sum(sizes) / 100
    assert [Path(piece.name).parent.name for part in found.partitions() for piece in part.pieces] == ["dt=2026-02-20"]  # type: ignore[attr-defined]


def test_a_column_with_a_dot_in_its_name_is_not_pruned_by_a_field_of_a_struct(tmp_path: Path) -> None:
    """In Parquet the paths of both read alike; each order of the two, as the later statistics replaced the earlier ones."""
    columns = {"a.b": pa.array([5, None]), "a": pa.array([{"b": 100}, {"b": 101}])}
    for names in (["a.b", "a"], ["a", "a.b"]):
        source = write(tmp_path / names[0] / "in", {})
        pq.write_table(pa.table({name: columns[name] for name in names}), source / "x.parquet")
        gather(source, tmp_path / names[0] / "out", transform="parquet")
        for one in (EqualTo(("a.b",), 5), IsNull(("a.b",)), LessThan(("a.b",), 6)):
            assert everything(reader(tmp_path / names[0] / "out", one)).num_rows == 2
        assert everything(reader(tmp_path / names[0] / "out", EqualTo(("a.b",), 100))).num_rows == 0, "its own statistics count"
        assert everything(reader(tmp_path / names[0] / "out", EqualTo(("a", "b"), 5))).num_rows == 2, "of fields nothing is known"


def test_row_groups_and_columns_that_are_not_needed_are_not_read(
    tmp_path: Path, read_bytes: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet.ParquetWriter, "group", 1)
    monkeypatch.setattr(parquet, "WHOLE", 0)
    gather(write(tmp_path / "in", {f"f{i}": b"%07d." % i * 100 for i in range(8)}), tmp_path / "out", transform=content, format="parquet")
    (file,) = (tmp_path / "out").glob("*.parquet")
    assert pa.parquet.ParquetFile(file).num_row_groups == 8

    def cost(*filters: Any, **options: str) -> tuple[int, int]:
        found = reader(tmp_path / "out", *filters, **options)
        read_bytes.clear()
        table = everything(found)
        return table.num_rows, read_bytes["parquet"]

    rows, all_of_it = cost()
    assert rows == 8000
    rows, some = cost(EqualTo(("text",), "0000003."))
    assert rows == 1000
    assert some < all_of_it / 2
    assert cost(GreaterThan(("n",), 999), LessThan(("n",), 5))[0] == 0
    rows, one = cost(columns="n")
    assert rows == 8000
    assert one < all_of_it


def test_only_columns_of_directories_need_no_row(tmp_path: Path, read_bytes: Counter[str]) -> None:
    gather(
        days(tmp_path / "in", 3, 1_200_000), tmp_path / "out", transform="raw", format="parquet", layout="directories", compression="none"
    )
    found = reader(tmp_path / "out", columns="dt")
    read_bytes.clear()
    table = everything(found)
    assert Counter(table["dt"].to_pylist()) == Counter(DAY + dt.timedelta(i) for i in range(3))
    assert read_bytes["parquet"] < sum(file.stat().st_size for file in (tmp_path / "out").glob("dt=*/*")) / 4


def test_a_large_file_is_read_by_several_tasks_each_row_group_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet.ParquetWriter, "group", 1)
    monkeypatch.setattr(rows, "PIECE", 1_000)
    monkeypatch.setattr(tasks, "TOGETHER", 1_000)
    gather(write(tmp_path / "in", {f"f{i}": b"%07d." % i * 100 for i in range(8)}), tmp_path / "out", transform=content, format="parquet")
    found = reader(tmp_path / "out")
    assert len(found.partitions()) > 8
    assert Counter(everything(found)["text"].to_pylist()) == {f"{i:07}.": 1000 for i in range(8)}


def test_small_files_are_read_together(tmp_path: Path) -> None:
    gather(days(tmp_path / "in", 50), tmp_path / "out", transform="raw", format="parquet", layout="directories")
    assert len(reader(tmp_path / "out").partitions()) < 5


@pytest.mark.parametrize("merged", [False, True])
def test_raw_content_is_spread_by_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, merged: bool) -> None:
    gather(write(tmp_path / "in", {f"f{i}": b"%09d" % i * 1000 for i in range(8)}), tmp_path / "out", transform="raw", target_size="9 KB")
    if merged:
        quire.Ledger(tmp_path / "out").checkpoint(spark=quire.LocalRunner())
    monkeypatch.setattr(tasks, "OPENING", 0)
    monkeypatch.setattr(tasks, "TOGETHER", 20_000)
    found = reader(tmp_path / "out")
    assert len(found.partitions()) == (1 if merged else 4)
    assert len(set(everything(found)["content"].to_pylist())) == 8
