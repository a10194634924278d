"""Small files of the kinds that people have into few large ones: gzip of JSON lines, Parquet, and JSON lines and CSV into Parquet.

    python tests/benchmarks/formats.py                      (40 minutes)
    python tests/benchmarks/formats.py --gzip 20000 --parquet 5000 --jsonl 0 --csv 0 --rounds 1 --long 0
    python tests/benchmarks/formats.py --gzip 0 --parquet 0 --jsonl 0 --csv 0 --long 5

Each way runs in a process of its own; the start of its session does not count, all after it does. All ways write the same rows. quire
has its ledger, checksums, fsync and commit on, as always; no other way has any of them.

`--long`: memory, with a gzip file of JSON lines among 10,000 small ones that decodes to so many GB.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from common import (
    CORES,
    HEAP,
    Peaks,
    Verdict,
    alternate,
    arguments,
    cpu_seconds,
    data_bytes,
    fresh,
    listed,
    machine,
    median,
    session,
    table,
    warm,
    workplace,
)

ROWS, LINES = 200, 16  # of a Parquet file; of a gzip file, some 2 KB
RECORDS = {"jsonl": 40, "csv": 75}  # of a text, some 5 KB
COLUMNS = "id bigint, name string, city string, fare double, at string, ok boolean, note string"
TARGET = "128 MiB"


def zcat(source: Path, out: Path) -> None:
    """All files through one pipe into one file, without any check."""
    with out.open("wb") as sink:
        find = subprocess.Popen(["find", str(source), "-name", "*.gz", "-print0"], stdout=subprocess.PIPE)
        subprocess.run(["xargs", "-0", "-n", "2000", "zcat"], stdin=find.stdout, stdout=sink, check=True)
        find.wait()


def duck(source: Path, out: Path) -> None:
    """COPY of all files into files of about the same size."""
    import duckdb

    connection = duckdb.connect()
    connection.execute(f"set threads={CORES}")
    connection.execute(
        f"copy (select * from read_parquet('{source}/*/*.parquet')) to '{out}' (format parquet, compression zstd, file_size_bytes '128MB')"
    )


def arrow(source: Path, out: Path) -> None:
    """A dataset of all files, written as one."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    pa.set_cpu_count(CORES)
    rows = ds.dataset(str(source), format="parquet")
    options = ds.ParquetFileFormat().make_write_options(compression="zstd")
    ds.write_dataset(rows.scanner(), str(out), format="parquet", file_options=options, max_rows_per_group=1 << 20)


def linked(source: Path, out: Path) -> None:
    """The same files in one directory, which becomes the table: that takes no time of the measure."""
    out.mkdir()
    for path in source.glob("*/*.parquet"):
        (out / path.name).hardlink_to(path)


def delta(_source: Path, out: Path) -> Mapping[str, float]:
    """The files become a Delta table, then OPTIMIZE of delta-rs, which leaves the small ones where they are until somebody calls vacuum."""
    from deltalake import DeltaTable, WriterProperties, convert_to_deltalake

    convert_to_deltalake(str(out))
    started = time.monotonic()
    found = DeltaTable(str(out)).optimize.compact(
        target_size=128 << 20, max_concurrent_tasks=CORES, writer_properties=WriterProperties(compression="ZSTD")
    )
    assert found["numFilesAdded"], found
    return {"optimize_alone": round(time.monotonic() - started, 2)}


def spark_text(spark: Any, source: Path, out: Path) -> None:
    """As users write it."""
    spark.read.option("recursiveFileLookup", "true").text(str(source)).coalesce(2 * CORES).write.text(str(out))


def spark_parquet(spark: Any, source: Path, out: Path) -> None:
    """The same of Parquet."""
    spark.read.option("recursiveFileLookup", "true").parquet(str(source)).coalesce(2 * CORES).write.option("compression", "zstd").parquet(
        str(out)
    )


def spark_jsonl(spark: Any, source: Path, out: Path) -> None:
    """The same of JSON lines, with the columns said, so that nothing is read twice."""
    rows = spark.read.option("recursiveFileLookup", "true").schema(COLUMNS).json(str(source))
    rows.coalesce(2 * CORES).write.option("compression", "zstd").parquet(str(out))


def spark_csv(spark: Any, source: Path, out: Path) -> None:
    """The same of CSV files."""
    rows = spark.read.option("recursiveFileLookup", "true").option("header", "true").schema(COLUMNS).csv(str(source))
    rows.coalesce(2 * CORES).write.option("compression", "zstd").parquet(str(out))


def duck_text(source: Path, out: Path) -> None:
    """COPY of texts, whose columns DuckDB finds by itself."""
    import duckdb

    connection = duckdb.connect()
    connection.execute(f"set threads={CORES}")
    kind = source.name
    reads = f"read_csv('{source}/*/*.csv')" if kind == "csv" else f"read_json('{source}/*/*.jsonl', format='newline_delimited')"
    connection.execute(f"copy (select * from {reads}) to '{out}' (format parquet, compression zstd, file_size_bytes '128MB')")


QUIRE, DELTA, ALONE = "quire", "Delta, convert and OPTIMIZE (delta-rs)", "OPTIMIZE alone, of a table"
OTHERS: dict[str, dict[str, Callable[..., Mapping[str, float] | None]]] = {
    "gzip": {"Spark text().coalesce().write": spark_text, "find + zcat": zcat},
    "parquet": {"Spark parquet().coalesce().write": spark_parquet, "DuckDB COPY": duck, "pyarrow dataset": arrow, DELTA: delta},
    "jsonl": {"Spark json().coalesce().write": spark_jsonl, "DuckDB COPY": duck_text},
    "csv": {"Spark csv().coalesce().write": spark_csv, "DuckDB COPY": duck_text},
}
WITH_SPARK = ("Spark", QUIRE)


def populate(kind: str, root: Path, files: int) -> Path:
    """A tree of small files, a thousand in a directory."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    for i in range(files):
        folder = root / f"{i // 1000:03}"
        if i % 1000 == 0:
            folder.mkdir(parents=True, exist_ok=True)
        if kind == "gzip":
            lines = (
                json.dumps(
                    {"id": i * LINES + k, "name": f"name {k * 7919 % 1003}", "city": "berlin", "fare": k * 0.37, "note": "x" * (k * 5 % 40)}
                )
                for k in range(LINES)
            )
            (folder / f"{i:06}.json.gz").write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode(), 6, mtime=0))
        elif kind in RECORDS:
            (folder / f"{i:06}.{kind}").write_text("".join(_records(kind, i)))
        else:
            ids = np.arange(i * ROWS, (i + 1) * ROWS)
            columns: dict[str, Any] = {
                "id": ids,
                "city": [("sf", "nyc", "berlin", "tokyo")[x % 4] for x in ids],
                "name": [f"name {x * 7919 % 100_003}" for x in ids],
            }
            columns |= {f"n{k}": ids * (k + 1) % 1013 for k in range(4)} | {f"f{k}": ids * 0.37 % (90 + k) for k in range(4)}
            columns["at"] = pa.array(1_767_225_600_000_000 + ids * 1000, pa.timestamp("us", "UTC"))
            pq.write_table(pa.table(columns), folder / f"{i:06}.parquet")
    warm(root)
    return root


def _records(kind: str, i: int) -> Iterator[str]:
    n = RECORDS[kind]
    if kind == "csv":
        yield "id,name,city,fare,at,ok,note\n"
    for k in range(i * n, (i + 1) * n):
        row = {
            "id": k, "name": f"name {k * 7919 % 100_003}", "city": ("sf", "nyc", "berlin", "tokyo")[k % 4], "fare": k * 37 % 9_001 / 100,
            "at": f"at {k % 86_400}", "ok": k % 3 == 0, "note": f"a, b and {k % 13}" * (k % 3),
        }  # fmt: skip
        if kind == "jsonl":
            yield json.dumps(row) + "\n"
        else:
            yield f'{row["id"]},{row["name"]},{row["city"]},{row["fare"]},{row["at"]},{str(row["ok"]).lower()},"{row["note"]}"\n'


def add_long(root: Path, size: float) -> int:
    """One gzip file that decodes to `size` bytes; how many rows it has. Some members come again and again: to make them takes longest."""
    texts = ["".join(line for k in range(i, i + 1_000) for line in _records("jsonl", k)).encode() for i in range(0, 20_000, 1_000)]
    members, written, n = [gzip.compress(text, 6, mtime=0) for text in texts], 0, 0
    with (root / "long.jsonl.gz").open("wb") as sink:
        while written < size:
            sink.write(members[n % len(members)])
            written, n = written + len(texts[n % len(texts)]), n + 1
    return n * 1_000 * RECORDS["jsonl"]


def measure_long(source: Path, out: Path, files: int) -> Mapping[str, float]:
    """The most memory that any process has held, of a call that takes it, and of one that compares it with the ledger."""
    import quire

    spark = session()
    peaks, started = Peaks(), time.monotonic()
    report = quire.consolidate(str(source), str(out), transform="jsonl", target_size=TARGET, spark=spark, progress=False)
    took = time.monotonic() - started
    assert (report.files, report.quarantined_count) == (files, 0), report
    gathered = {**peaks.end()}
    peaks, started = Peaks(), time.monotonic()
    assert quire.Ledger(str(out)).verify(spark=spark).ok
    verified = {f"verify_{name}": n for name, n in peaks.end().items()}
    return {"seconds": round(took, 1), **gathered, "verify_seconds": round(time.monotonic() - started, 1), **verified,
            "bytes": data_bytes(out), "rows": _rows("jsonl", out)}  # fmt: skip


def measure(kind: str, way: str, source: Path, out: Path, files: int) -> Mapping[str, float]:
    """One way, once."""
    spark = session() if way.startswith(WITH_SPARK) else None
    if way == DELTA:
        linked(source, out)
    more: Mapping[str, float] | None = None
    started, cpu = time.monotonic(), cpu_seconds()
    if way == QUIRE:
        import quire

        transform = "lines" if kind == "gzip" else kind
        report = quire.consolidate(str(source), str(out), transform=transform, target_size=TARGET, spark=spark, progress=False)
        assert (report.files, report.quarantined_count) == (files, 0), report
    else:
        more = OTHERS[kind][way](*((spark, source, out) if spark else (source, out)))
    took, cpu = time.monotonic() - started, cpu_seconds() - cpu
    if way == DELTA:
        _vacuum(out)
    return {
        "seconds": round(took, 2),
        "cpu": round(cpu, 1),
        "bytes": out.stat().st_size if out.is_file() else data_bytes(out),
        "rows": _rows(kind, out),
        **(more or {}),
    }


def _vacuum(out: Path) -> None:
    from deltalake import DeltaTable

    DeltaTable(str(out)).vacuum(0, dry_run=False, enforce_retention_duration=False)


def _rows(kind: str, out: Path) -> int:
    """What was written is all there."""
    if kind == "gzip":
        found = [out] if out.is_file() else sorted(out.glob("part-*"))
        return sum(path.read_bytes().count(b"\n") for path in found)
    import duckdb

    pattern = f"{out}/*.parquet" if out.is_dir() else str(out)
    return int(duckdb.connect().sql(f"select count(*) from read_parquet('{pattern}')").fetchone()[0])  # type: ignore[index]


def main() -> int:
    """Run all ways alternately, and print the ratios."""
    counts = {"gzip": 100_000, "parquet": 20_000, "jsonl": 100_000, "csv": 100_000}
    more = {kind: {"type": int, "default": n} for kind, n in counts.items()} | {"long": {"type": float, "default": 5}}
    args = arguments(__doc__, rounds={"type": int, "default": 3}, **more)
    if args.way:
        job = json.loads(args.job)
        if job["kind"] == "long":
            print(json.dumps(measure_long(Path(job["source"]), Path(job["out"]), job["files"])))
            return 0
        print(json.dumps(measure(job["kind"], args.way, Path(job["source"]), Path(job["out"]), job["files"])))
        return 0
    print(f"{machine()}; heap {HEAP}")
    verdict = Verdict()
    with workplace(args.at) as place:
        for kind in counts:
            if not (files := getattr(args, kind)):
                continue
            print(f"\n{files:,} files of {kind}, {args.rounds} rounds", flush=True)
            source = populate(kind, place / kind, files)
            found = alternate(__file__, [QUIRE, *OTHERS[kind]], args.rounds, place, source=str(source), files=files, kind=kind)
            rows = {result["rows"] for results in found.values() for result in results}
            assert len(rows) == 1, f"the ways have written different numbers of rows: {rows}"
            middle = {way: median([r["seconds"] for r in results]) for way, results in found.items()}
            lines = []
            for way, results in found.items():
                each, cpu, size = [r["seconds"] for r in results], median([r["cpu"] for r in results]), results[0]["bytes"] / 1e6
                times = f"{middle[way] / middle[QUIRE]:.2f}"
                lines.append([way, f"{middle[way]:.2f}", listed(each, "{:.2f}"), f"{cpu:.1f} s", f"{size:.0f} MB", times])
            alone = [r["optimize_alone"] for r in found.get(DELTA, [])]
            if alone:  # of files that are a table already
                middle[ALONE] = median(alone)
                lines.append([ALONE, f"{middle[ALONE]:.2f}", listed(alone, "{:.2f}"), "", "", f"{middle[ALONE] / middle[QUIRE]:.2f}"])
            print("\n" + table(["way", "seconds (median)", "rounds", "CPU time", "written", "quire is × as fast"], lines), flush=True)
            spark, *others = OTHERS[kind]
            ratio = middle[spark] / middle[QUIRE]
            reach = 3 if kind == "gzip" else 2
            verdict.check(f"{kind}: × Spark", f"≥ {reach}", f"{ratio:.2f}", ratio >= reach)
            if kind in RECORDS:  # nothing is promised beside another one
                continue
            others += [ALONE] if alone else []
            ratio, reach = min(middle[way] for way in others) / middle[QUIRE], 0.4 if kind == "gzip" else 1
            verdict.check(f"{kind}: × {'zcat' if kind == 'gzip' else 'the fastest'}", f"≥ {reach}", f"{ratio:.2f}", ratio >= reach)
        if args.long:
            print(f"\na gzip file of JSON lines that decodes to {args.long:g} GB among 10,000 small ones", flush=True)
            source = populate("jsonl", place / "long", 10_000)
            rows = add_long(source, args.long * 1e9) + 10_000 * RECORDS["jsonl"]
            result = fresh(__file__, QUIRE, source=str(source), out=str(place / "out"), files=10_001, kind="long")
            print(f"  {' '.join(f'{name}={value}' for name, value in result.items())}", flush=True)
            assert result["rows"] == rows
            held = max(result["worker_mb"], result["verify_worker_mb"])
            verdict.check("long: memory of a worker", "< 512 MB", f"{held} MB", held < 512)
    return verdict.end()


if __name__ == "__main__":
    sys.exit(main())
