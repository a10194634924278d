"""A topic of a real broker into a table, against the same columns into files: `quire.load`, a process each, session start excluded.

    python tests/benchmarks/table_load.py [--records 1000000] [--rounds 3]

Records of 200 B become five columns by one function. `files` writes them into one directory, the others into a new table with one partition
for each of the topic's: `insert` without a look for keys, `upsert` with it.
"""

from __future__ import annotations

import json
import sys
import time

import pyarrow as pa
import pyarrow.compute as pc
from common import Result, Verdict, alternate, arguments, cpu_seconds, listed, load, machine, median, session, table, workplace
from kafka import PARTITIONS, records

WAYS = ("files", "insert", "upsert")
LEAST = 0.6


def to_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The place of each record as its key."""
    part, offset = (batch.column(name).cast(pa.string()) for name in ("partition", "offset"))
    keys = pc.binary_join_element_wise(batch.column("topic"), part, offset, "/")
    names = ["id", "part", "at", "key", "value"]
    return pa.record_batch(
        [keys, part, batch.column("offset"), *(batch.column(name).cast(pa.binary()) for name in ("key", "value"))], names
    )


def measure(way: str, address: str, out: str, count: int) -> Result:
    """One load."""
    import quire

    spark = session()
    asked = {} if way == "files" else {"operation": way}
    if way != "files":
        quire.Table.create(out, key="id", partition_by="part")
    cpu, began = cpu_seconds(), time.monotonic()
    quire.load(f"kafka://{address}/small", out, to_columns, spark=spark, function_version="1", progress=False, **asked)
    seconds, cpu = time.monotonic() - began, cpu_seconds() - cpu
    (row,) = quire.read(out, spark=spark).selectExpr("count(1)", "sum(at)", "count(distinct id)").collect()
    each = count // PARTITIONS
    assert tuple(row) == (count, PARTITIONS * each * (each - 1) // 2, count), row
    return {"seconds": round(seconds, 2), "cpu": round(cpu, 2), "rate": round(count / seconds)}


def main() -> int:
    """Run the ways alternately."""
    from services.kafka_broker import broker

    args = arguments(__doc__, records={"type": int, "default": 1_000_000}, rounds={"type": int, "default": 3})
    if args.way:
        job = json.loads(args.job)
        print(json.dumps(measure(args.way, job["address"], job["out"], job["count"])), flush=True)
        return 0
    print(f"{machine()}; {args.records:,} records, {args.rounds} rounds; load {load()}", flush=True)
    with workplace(args.at) as place, broker() as cluster:
        cluster.create("small", PARTITIONS)
        cluster.produce("small", records(args.records, 200), linger_ms=20)
        found = alternate(__file__, WAYS, args.rounds, place, address=cluster.address, count=args.records)
    rows, verdict = [], Verdict()
    middle = {way: {what: median([r[what] for r in of]) for what in ("seconds", "cpu", "rate")} for way, of in found.items()}
    for way, of in found.items():
        m = middle[way]
        rows.append([way, f"{m['rate']:,.0f}", listed([r["rate"] for r in of]), f"{m['seconds']:.1f}", f"{m['cpu']:.1f}"])
        if way != "files":
            ratio, cpu = m["rate"] / middle["files"]["rate"], middle["files"]["cpu"] / m["cpu"]
            verdict.check(f"load into a table ({way}), × into files", f"≥ {LEAST}", f"{ratio:.2f} (CPU {cpu:.2f})", ratio >= LEAST)
    print("\n" + table(["way", "records/s (median)", "rounds", "s", "CPU s"], rows))
    return verdict.end()


if __name__ == "__main__":
    sys.exit(main())
