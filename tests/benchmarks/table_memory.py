"""The most memory of a process that writes into a table with files of 120 MiB: it stages, sorts, looks keys up and merges all by itself.

    python tests/benchmarks/table_memory.py [--rows 1250000]

All rows are of one partition and go into one file. The first process inserts them from a dataset, the second updates 1 % of them; each is a
process of its own, without Spark, so its peak is more than that of a worker, which does one of these steps at a time.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from common import Result, Verdict, arguments, fresh, load, machine, workplace
from table_open import peak
from table_peers import Rows

MOST = 1024  # MB


def build(place: Path, rows: int) -> None:
    """What is inserted and updated, and an empty table."""
    import quire

    made, nothing = Rows(rows), np.zeros(0, np.int64)
    for name, places, at in (("all", made.new(rows), 1), ("some", None, 2)):
        found = made.brought(made.drawn(rows // 100, nothing) if places is None else places, at)
        one = found.set_column(1, "city", pa.array(["x"] * len(found)))
        pq.write_table(one, place / f"{name}.parquet", row_group_size=100_000)
    quire.Table.create(place / "t", key="id", partition_by="city", ordering="ts")


def measure(way: str, at: str) -> Result:
    """One call."""
    import quire

    table, runner, place = quire.Table(f"{at}/t"), quire.LocalRunner(), Path(at)
    if way == "bulk insert":
        report = table.bulk_insert(ds.dataset(place / "all.parquet"), spark=runner, progress=False)
    else:
        report = table.upsert(pq.read_table(place / "some.parquet"), spark=runner, progress=False)
    assert report.data_files == 1
    return {"rows": report.inserted + report.updated, "mib": report.written >> 20, "peak_mb": peak()}


def main() -> int:
    """Each in a process of its own."""
    args = arguments(__doc__, rows={"type": int, "default": 1_250_000})
    if args.way:
        print(json.dumps(measure(args.way, json.loads(args.job)["at"])), flush=True)
        return 0
    print(f"{machine()}; load {load()}", flush=True)
    verdict = Verdict()
    with workplace(args.at) as place:
        build(place, args.rows)
        for way in ("bulk insert", "upsert 1 %"):
            found = fresh(__file__, way, at=str(place))
            what = f"{way}: {found['rows']:,} rows, a file of {found['mib']} MiB"
            verdict.check(what, f"≤ {MOST:,} MB", f"{found['peak_mb']} MB", found["peak_mb"] <= MOST)
    return verdict.end()


if __name__ == "__main__":
    sys.exit(main())
