"""Writing the rows of a DataFrame: `df.write.format("quire")` against `df.write.parquet`, which promises nothing if a driver dies.

    python tests/benchmarks/write_ratio.py                       (3 minutes)
    python tests/benchmarks/write_ratio.py --rows 500000 --rounds 3
    python tests/benchmarks/write_ratio.py --jars DIR            (also SeaweedFS, against S3A's magic committer)

Both ways write the same rows, which Spark computes, into a new place each time, in one session, one after the other, in every second round
backwards, after a round outside of the time: so a busy machine is busy for both. Each compresses by its own default. "Small rows" are those
of which Spark does not measure a batch after each row, as docs/writers.md says. A last way hands the same rows to Python, which counts them
and writes nothing: less than that no writer in Python can take. `--jars` is a directory with hadoop-aws of Spark's Hadoop version, and what
it needs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from common import CORES, Result, Verdict, arguments, cpu_seconds, listed, load, machine, median, session, table, workplace

WAYS = PLAIN, QUIRE, SMALL, FLOOR, SMALL_FLOOR = (
    "df.write.parquet", 'df.write.format("quire")', 'df.write.format("quire"), small rows', "mapInArrow, counted alone",
    "mapInArrow, counted alone, small rows",
)  # fmt: skip
LIMIT = "spark.sql.execution.arrow.maxBytesPerBatch"
TARGETS = {"disk": 0.8, "SeaweedFS, magic": 1.0}


def frame(spark: Any, rows: int) -> Any:
    """A number, two texts, a fraction, a time."""
    return spark.range(0, rows, 1, 2 * CORES).selectExpr(
        "id", "concat('name ', id * 7919 % 100003) name", "element_at(array('sf', 'nyc', 'berlin', 'tokyo'), cast(id % 4 + 1 as int)) city",
        "id * 0.37d % 90 fare", "timestamp_micros(1767225600000000 + id * 1000) at",
    )  # fmt: skip


def write(way: str, spark: Any, rows: int, url: str, options: dict[str, str]) -> None:
    """Into a new place."""
    if way in (SMALL, SMALL_FLOOR):
        spark.conf.set(LIMIT, 2**31 - 1)
    else:
        spark.conf.unset(LIMIT)
    if way == PLAIN:
        frame(spark, rows).write.parquet(url.replace("s3://", "s3a://"))
    elif way in (FLOOR, SMALL_FLOOR):
        assert sum(row.n for row in frame(spark, rows).mapInArrow(counted, "n long").collect()) == rows
    else:
        frame(spark, rows).write.format("quire").mode("append").options(**options).save(url)


def counted(batches: Iterator[Any]) -> Iterator[Any]:
    """The number of rows."""
    import pyarrow as pa

    yield pa.RecordBatch.from_pydict({"n": [sum(batch.num_rows for batch in batches)]})


def measure(spark: Any, rows: int, rounds: int, place: str, options: dict[str, str]) -> dict[str, list[Result]]:
    """Each way `rounds` times."""
    found: dict[str, list[Result]] = {way: [] for way in WAYS}
    for r in range(rounds + 1):
        for way in WAYS if r % 2 else reversed(WAYS):
            cpu, started = cpu_seconds(), time.monotonic()
            write(way, spark, rows, f"{place}/{WAYS.index(way)}-{r}", options)
            took, cpu = time.monotonic() - started, cpu_seconds() - cpu
            if r:
                found[way].append({"seconds": took, "cpu": cpu})
                print(f"  round {r} {way}: {took:.2f} s, CPU {cpu:.2f} s; load {load()}", flush=True)
    return found


@contextmanager
def places(at: str | None, jars: str | None) -> Iterator[dict[str, tuple[str, dict[str, str], dict[str, str]]]]:
    """Store → its place, the options of a write there, and the settings of its session."""
    with workplace(at) as place:  # type: ignore[arg-type]
        found: dict[str, tuple[str, dict[str, str], dict[str, str]]] = {"disk": (str(place), {}, {})}
        if not jars:
            yield found
            return
        sys.path.append(str(Path(__file__).parents[1]))
        from services import s3

        with s3.seaweedfs() as endpoint:
            given = {"key": s3.KEY, "secret": s3.SECRET, "endpoint_url": endpoint}
            magic = {
                "spark.jars": ",".join(map(str, sorted(Path(jars).glob("*.jar")))),
                "spark.hadoop.fs.s3a.endpoint": given["endpoint_url"],
                "spark.hadoop.fs.s3a.access.key": s3.KEY,
                "spark.hadoop.fs.s3a.secret.key": s3.SECRET,
                "spark.hadoop.fs.s3a.path.style.access": "true",
                "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
                "spark.hadoop.fs.s3a.committer.name": "magic",
                "spark.hadoop.fs.s3a.committer.magic.enabled": "true",
                "spark.sql.sources.commitProtocolClass": "org.apache.spark.internal.io.cloud.PathOutputCommitProtocol",
                "spark.sql.parquet.output.committer.class": "org.apache.spark.internal.io.cloud.BindingParquetOutputCommitter",
            }
            yield {**found, "SeaweedFS, magic": (f"s3://{s3.BUCKET}", {f"storage.{k}": v for k, v in given.items()}, magic)}


def main() -> int:
    """Run the ways, and print the ratios."""
    args = arguments(__doc__, rows={"type": int, "default": 5_000_000}, rounds={"type": int, "default": 5}, jars={"default": ""})
    print(f"{machine()}; local[{CORES}], {args.rows:,} rows, {args.rounds} rounds", flush=True)
    verdict = Verdict()
    with places(args.at, args.jars) as found:
        for store, (place, options, conf) in found.items():
            print(f"\n{store}", flush=True)
            spark = session(**conf)
            results = measure(spark, args.rows, args.rounds, place, options)
            for i, way in enumerate((PLAIN, QUIRE, SMALL)):
                plain = way == PLAIN
                reader = spark.read.format("parquet") if plain else spark.read.format("quire").options(**options)
                url = f"{place}/{i}-1"
                counts = reader.load(url.replace("s3://", "s3a://") if plain else url).selectExpr("count(*)", "sum(id)").head()
                assert tuple(counts) == (args.rows, args.rows * (args.rows - 1) // 2), (way, counts)
            spark.stop()
            middle = {way: {key: median([r[key] for r in mine]) for key in ("seconds", "cpu")} for way, mine in results.items()}
            lines = [
                [way, f"{m['seconds']:.2f}", listed([r["seconds"] for r in results[way]], "{:.2f}"), f"{m['cpu']:.1f} s"]
                for way, m in middle.items()
            ]  # fmt: skip
            print("\n" + table(["way", "seconds (median)", "rounds", "CPU time"], lines))
            for way in (QUIRE, SMALL):
                ratio = middle[PLAIN]["seconds"] / middle[way]["seconds"]
                verdict.check(f"{store}: {way} × df.write.parquet", f"≥ {TARGETS[store]}", f"{ratio:.2f}", ratio >= TARGETS[store])
    return verdict.end()


if __name__ == "__main__":
    sys.exit(main())
