"""Reading a destination in Parquet: `quire.read` and `format("quire")` against `spark.read.parquet` on the same files.

    python tests/benchmarks/read_ratio.py                       (2 minutes)
    python tests/benchmarks/read_ratio.py --rows 5000 --rounds 3

100 directories `dt=…`, a data file each. Each way opens the destination and reads all columns of all rows into Spark's sink `noop`. All
ways run in one session, one after the other, in every second round backwards, after a round outside of the time: so a busy machine is busy
for all. `spark.read.parquet` is given the files and the root, so it lists nothing. Then a query for one of the directories: the bytes of
the files that each way opens.
"""

from __future__ import annotations

import datetime as dt
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from common import CORES, Result, Verdict, arguments, cpu_seconds, listed, load, machine, median, session, table, workplace

WAYS = PLAIN, READ, FORMAT = "spark.read.parquet", "quire.read", 'format("quire")'
DAYS = 100
DAY = dt.date(2026, 1, 1)


def rows_of(content: bytes, file: Any) -> pa.RecordBatch:
    """The rows of a day: a number, two texts, a fraction, a time."""
    n, day = (int(word) for word in content.split())
    numbers = range(day * n, day * n + n)
    return pa.record_batch(
        {
            "id": pa.array(numbers, pa.int64()),
            "name": [f"name {i * 7919 % 100_003}" for i in numbers],
            "city": [("sf", "nyc", "berlin", "tokyo")[i % 4] for i in numbers],
            "fare": [i * 0.37 % 90 for i in numbers],
            "at": pa.array([1_767_225_600_000_000 + i * 1_000 for i in numbers], pa.timestamp("us", "UTC")),
        }
    )


def made(place: Path, rows: int) -> Path:
    """The destination."""
    import quire

    for day in range(DAYS):
        folder = place / "in" / f"dt={DAY + dt.timedelta(day)}"
        folder.mkdir(parents=True)
        (folder / "day").write_text(f"{rows} {day}")
    spark: Any = session()
    quire.consolidate(place / "in", place / "lake", transform=rows_of, format="parquet", layout="directories", spark=spark, progress=False)
    spark.stop()
    return place / "lake"


def frame(way: str, spark: Any, lake: str) -> Any:
    """The rows as a way gives them."""
    import quire

    if way == READ:
        return quire.read(lake, spark=spark)
    if way == FORMAT:
        return spark.read.format("quire").load(lake)
    return spark.read.option("basePath", lake).parquet(*sorted(str(file) for file in Path(lake).glob("dt=*/*.parquet")))


def opened(way: str, spark: Any, lake: str) -> int:
    """Bytes of the files that a query for one day opens."""
    day = DAY + dt.timedelta(50)
    if way == FORMAT:
        from pyspark.sql.datasource import EqualTo

        from quire.read.source import DataSource

        source = DataSource({"path": lake, "pushdown": "true"})
        reader: Any = source.reader(source.schema())  # type: ignore[arg-type]  # a StructType
        list(reader.pushFilters([EqualTo(("dt",), day)]))
        return sum(piece.size for part in reader.partitions() for piece in part.pieces)  # type: ignore[attr-defined]
    found = frame(way, spark, lake).where(f"dt = DATE'{day}'")
    plan = found._jdf.queryExecution().executedPlan()
    found._jdf.collectToPython()
    scan = plan.collectLeaves().head()
    return int(scan.metrics().get("filesSize").get().value())


def measure(spark: Any, rounds: int, lake: str) -> dict[str, list[Result]]:
    """Each way `rounds` times."""
    found: dict[str, list[Result]] = {way: [] for way in WAYS}
    for r in range(rounds + 1):
        for way in WAYS if r % 2 else reversed(WAYS):
            cpu, started = cpu_seconds(), time.monotonic()
            frame(way, spark, lake).write.format("noop").mode("overwrite").save()
            took, cpu = time.monotonic() - started, cpu_seconds() - cpu
            if r:
                found[way].append({"seconds": took, "cpu": cpu})
                print(f"  round {r} {way}: {took:.2f} s, CPU {cpu:.2f} s; load {load()}", flush=True)
    return found


def main() -> int:
    """Run the ways, and print the ratios."""
    args = arguments(__doc__, rows={"type": int, "default": 50_000}, rounds={"type": int, "default": 7})
    print(f"{machine()}; local[{CORES}], {DAYS} directories of {args.rows:,} rows, {args.rounds} rounds", flush=True)
    with workplace(args.at) as place:
        lake = made(place, args.rows)
        total = sum(file.stat().st_size for file in lake.glob("dt=*/*.parquet"))
        spark = session()
        found = measure(spark, args.rounds, str(lake))
        for way in WAYS:
            counts = frame(way, spark, str(lake)).selectExpr("count(*)", "count(distinct id)").head()
            assert tuple(counts) == (DAYS * args.rows,) * 2, (way, counts)
        parts = {way: opened(way, spark, str(lake)) / total for way in WAYS}
        spark.stop()
    middle = {way: {key: median([r[key] for r in results]) for key in ("seconds", "cpu")} for way, results in found.items()}
    peer = middle[PLAIN]["seconds"]
    rows = [
        [way, f"{m['seconds']:.2f}", listed([r["seconds"] for r in found[way]], "{:.2f}"), f"{peer / m['seconds']:.2f} ×",
         f"{m['cpu']:.1f} s", f"{parts[way]:.2%}"]
        for way, m in middle.items()
    ]  # fmt: skip
    print("\n" + table(["way", "seconds (median)", "rounds", "× spark.read.parquet", "CPU time", "bytes for one day"], rows))
    verdict = Verdict()
    for way, least in ((READ, 0.95), (FORMAT, 0.4)):
        ratio = peer / middle[way]["seconds"]
        verdict.check(f"{way}: × spark.read.parquet", f"≥ {least}", f"{ratio:.2f}", ratio >= least)
        verdict.check(f"{way}: bytes of one of {DAYS} directories", "1 %", f"{parts[way]:.2%}", parts[way] < 0.011)
    return verdict.end()


if __name__ == "__main__":
    sys.exit(main())
