"""Readers that know nothing of quire read a destination as the ledger does: Spark, DuckDB, pandas and pyarrow, by listing its directory,
after each verb, of each format and layout. And nothing of quire's own lies where a crawler would take it for data."""

from __future__ import annotations

import fnmatch
import gzip
import io
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pytest
import zstandard

import sim
from gathering import gather, write
from matrix import cases
from quire import Ledger, LocalRunner, Split, process
from quire.engine.request import LAYOUTS
from quire.read import first_rows
from quire.sources.splits import FileInfo
from quire.storage import connect
from sim.ways import Case
from sim.witness import Log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE: dict[str, Any] = {"spark": LocalRunner(), "progress": False}
Rows = Counter[tuple[str, str]]  # the value of its directory and the text of a row → how often


def tabled(content: bytes, file: FileInfo) -> pa.RecordBatch:
    """A row for each line, with a nested column and a time beside it."""
    lines = content.decode().splitlines()
    at = pa.array([1_700_000_000_000_000 + i for i in range(len(lines))], pa.timestamp("us", "UTC"))
    return pa.record_batch({"text": lines, "n": list(range(len(lines))), "tags": [[line[:1]] for line in lines], "at": at})


def text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes | bytearray) else str(value)


# ------------------------------------------------------------------------------------------------------------------ who reads Parquet
def by_spark(spark: SparkSession, dest: Path, column: str) -> Rows:
    frame = spark.read.parquet(str(dest)) if column != "lines" else spark.read.text(str(dest)).withColumnRenamed("value", "lines")
    return Counter((str(row["dt"]) if "dt" in frame.columns else "", text(row[column])) for row in frame.collect())


def by_duckdb(dest: Path, column: str) -> Rows:
    with duckdb.connect() as db:
        table = db.sql(f"select * from read_parquet('{dest}/**/*.parquet')")  # it takes directories for columns by itself
        at, by = table.columns.index(column), table.columns.index("dt") if "dt" in table.columns else None
        return Counter(("" if by is None else str(row[by]), text(row[at])) for row in table.fetchall())


def by_pyarrow(dest: Path, column: str) -> Rows:
    found = pa.dataset.dataset(str(dest), format="parquet", partitioning="hive").to_table()
    days = found.column("dt").to_pylist() if "dt" in found.column_names else [""] * found.num_rows
    return Counter(zip(map(str, days), map(text, found.column(column).to_pylist()), strict=True))


def by_pandas(dest: Path, column: str) -> Rows:
    found = pd.read_parquet(dest)
    days = found["dt"].astype(str) if "dt" in found else [""] * len(found)
    return Counter(zip(days, map(text, found[column]), strict=True))


# --------------------------------------------------------------------------------------------------------------------- who reads text
def lines_by_duckdb(dest: Path, suffix: str) -> Rows:
    how = "header=false, delim='\\x01', quote='', escape='', auto_detect=false, columns={'line': 'varchar'}, hive_partitioning=true"
    with duckdb.connect() as db:
        table = db.sql(f"select * from read_csv('{dest}/**/*.{suffix}', {how})")
        by = table.columns.index("dt") if "dt" in table.columns else None
        return Counter(("" if by is None else str(row[by]), row[0]) for row in table.fetchall())


def lines_by_pandas(dest: Path, suffix: str) -> Rows:
    found: Rows = Counter()
    for path in dest.glob(f"**/*.{suffix}"):
        lines = pd.read_csv(path, sep="\x01", header=None, names=["line"], quoting=3, dtype=str)["line"]
        found.update((path.parent.name.partition("=")[2], line) for line in lines)
    return found


def lines_by_glob(dest: Path, suffix: str) -> Rows:
    """A script of somebody's own, with the standard tools."""
    found: Rows = Counter()
    for path in dest.glob(f"**/*.{suffix}"):
        data = path.read_bytes()
        if suffix.endswith("gz"):
            data = gzip.decompress(data)
        elif suffix.endswith("zst"):
            data = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data), read_across_frames=True).read()
        found.update((path.parent.name.partition("=")[2], line) for line in data.decode().splitlines())
    return found


# ---------------------------------------------------------------------------------------------------------------------- the destination
LAID_OUT = {  # transform, format, compression; the column that is looked at, or what names of text files end with
    "lines": ("lines", None, "none", "txt"),
    "lines.gz": ("lines", None, "gzip", "txt.gz"),
    "lines.zst": ("lines", None, "zstd", "txt.zst"),
    "json": ("json", None, "none", "txt"),
    "raw": ("raw", "parquet", "zstd", "content"),
    "table": (tabled, "parquet", "zstd", "text"),
    "rows": ("a function of splits", "parquet", "zstd", "text"),
}
OTHER = "2026-12-24"  # a day of rows that is not that of their files


def daily(split: Split, content: bytes) -> list[dict[str, Any]]:
    """A row for each line, every other one of another day than its file's."""
    day = split.path.split("/")[-2].partition("=")[2]
    return [{"text": line, "dt": day if i % 2 else OTHER, "n": i} for i, line in enumerate(content.decode().splitlines())]


class Story:
    """A destination, what must be in it, and all readers of it."""

    def __init__(self, at: Path, spark: SparkSession, name: str, layout: str) -> None:
        self.source, self.dest, self.spark, self.layout, self.name = at / "in", at / "out", spark, layout, name
        self.transform, self.format, self.compression, self.column = LAID_OUT[name]

    def put(self, names: str, word: str) -> None:
        for name in names.split():
            lines = [f'{{"word":"{word} {name} {i}"}}' if self.name == "json" else f"{word} {name} {i}" for i in range(3)]
            text = lines[0] if self.name == "json" else "\n".join(lines)
            write(self.source, {name: f"{text}\n".encode()})

    def call(self) -> None:
        how: dict[str, Any] = {"format": self.format} if self.format else {}
        how |= {"layout": self.layout} if self.layout in LAYOUTS else {"partition_by": self.layout}
        if self.name == "rows":
            process(self.source, self.dest, daily, on_change="reprocess", compression=self.compression, **how, **HERE)
            return
        gather(self.source, self.dest, transform=self.transform, compression=self.compression, on_change="reprocess", **how)

    def wanted(self) -> Rows:
        """From the sources alone."""
        found: Rows = Counter()
        for path in self.source.rglob("*"):
            if path.is_file():
                day = path.parent.name.partition("=")[2] if self.layout != "flat" else ""
                rows = [path.read_text()] if self.name == "raw" else path.read_text().splitlines()
                found.update((day if i % 2 or self.layout != "dt" else OTHER, row) for i, row in enumerate(rows))
        return found

    def check(self, after: str, *, spark: bool = False) -> None:
        wanted, dest, column = self.wanted(), self.dest, self.column
        if self.format:
            seen = {"DuckDB": by_duckdb(dest, column), "pyarrow": by_pyarrow(dest, column), "pandas": by_pandas(dest, column)}
        else:
            seen = {"DuckDB": lines_by_duckdb(dest, column), "a glob": lines_by_glob(dest, column)}
            seen["pandas"] = lines_by_pandas(dest, column)
        if spark and column != "txt.zst":  # which the Spark of PyPI cannot decompress: it has no native library of Hadoop
            seen["Spark"] = by_spark(self.spark, dest, column if self.format else "lines")
        for reader, rows in seen.items():
            assert rows == wanted, f"{reader} after {after}"
        there = [text(row[column]) if self.format else row.decode() for row in first_rows(connect(f"file://{dest}"), 10_000)]
        assert Counter(there) == Counter(row for _, row in wanted.elements()), f"the ledger after {after}"
        assert Ledger(dest).verify(spark=LocalRunner()).ok


@pytest.mark.nth(12)
@pytest.mark.parametrize(
    ("name", "layout"),
    [(name, layout) for name in LAID_OUT for layout in (("dt",) if name == "rows" else ("flat", "directories", "path.dt"))],
)
def test_each_reader_of_the_directory_counts_each_row_once_after_each_verb(
    tmp_path: Path, spark: SparkSession, name: str, layout: str
) -> None:  # fmt: skip
    story = Story(tmp_path, spark, name, layout)
    story.put("dt=2026-11-21/a dt=2026-11-21/b dt=2026-11-22/c", "first")
    story.call()
    story.check("the first run", spark=True)
    story.put("dt=2026-11-22/d dt=2026-11-23/e", "second")
    story.call()
    story.call()
    story.check("a second and an idle run")
    story.put("dt=2026-11-21/a", "rewritten")
    story.call()
    story.check("a file was rewritten")
    ledger = Ledger(story.dest)
    ledger.forget(story.source / "dt=2026-11-22", **HERE)
    for gone in (story.source / "dt=2026-11-22").iterdir():
        gone.unlink()
    story.check("forget")
    story.put("dt=2026-11-21/f", "third")
    story.call()
    ledger.refresh().compact(**HERE)
    story.check("a compaction", spark=True)
    ledger.refresh().expire()
    story.put("dt=2026-11-22/c", "again")
    story.call()
    story.check("an expiry, and a forgotten file that came again", spark=True)


# ------------------------------------------------------------------------------------------------------------------------ crawlers
def hidden(name: str) -> bool:
    """What Spark, Hive, Trino and Athena pass over; pyarrow and pandas, too."""
    return any(part.startswith(("_", ".")) for part in name.split("/"))


# What a crawler that goes by names takes for a table's data, each in its compressions.
FORMAT = re.compile(
    r"\.(?:parquet|orc|avro|csv|tsv|psv|txt|text|log|xml|json|jsonl|ndjson|bin|xlsx?|arrow|feather|delta)"
    r"(?:\.(?:gz|zst|snappy|bz2|lz4|deflate))?$"
    r"|\.(?:gz|gzip|bz2|xz|zst|zstd|lz4|sz|snappy|deflate|zip|tar|tgz)$", re.IGNORECASE,
)  # fmt: skip
EXCLUDED = ("_quire/*", ".hoodie/*")  # what docs/readers.md tells owners of crawlers that look into files to exclude
CRAWLED = [
    *cases(["lines", "parquet", "forget", "compact", "checkpoint", "retry", "process", "load"], ["rename"], ["disk"]),
    *cases(["parquet"], ["upload"], ["s3"]),
    *cases(["table upsert", "table logs", "table clean", "table archive", "table cdc"], ["rename"], ["disk"]),
]


@pytest.mark.nth(15)
@pytest.mark.parametrize("case", CRAWLED, ids=lambda case: str(case).replace(" × ", "-"))
def test_no_crawler_takes_an_object_of_quire_s_for_data(case: Case) -> None:
    """In the middle of a job that has died, and at the end."""
    sim.forget_all()
    case.fill()
    changes = [at for at, op in enumerate(case.changed(), 1) if op in ("create", "upload", "put_if_absent")]
    with case.world() as world:
        sim.run(world, sim.Actor(faults={changes[len(changes) // 2]: "after"}), case.work(world))
        middle = dict(world.there())
        case.must(world, "next", case.work(world))
        end = world.there()
        data = {file["name"] for task in Log(end).tasks() for file in task["data_files"]}
        data |= {file["name"] for task in Log(middle).tasks() for file in task["data_files"]}
    sim.forget_all()
    own = sorted(name for name in {*middle, *end} - data if name.startswith(("_quire/", ".hoodie/")))
    assert own
    assert {*middle, *end} - data - {*own} == set() or case.pipeline.name.startswith("table"), "all else is data"
    for name in own:
        assert hidden(name)
        assert any(fnmatch.fnmatchcase(name, pattern) for pattern in EXCLUDED)
        if "_quire/" in name:
            assert not FORMAT.search(name), "nor by its suffix"
