"""What the upkeep of a table costs its writer: commits a second, alone and beside `maintain(every=…)`, on two cores.

    python tests/benchmarks/table_upkeep.py [--rows 400000] [--commits 60] [--rounds 3]

A merge-on-read table of 400,000 rows in eight partitions; a writer without Spark upserts 5,000 rows in each of 60 commits, 0.5 s apart, and
measures the time within its calls. Beside it a second process, of a lower priority, maintains the table every 5 s with small limits, so
that it compacts, cleans and archives again and again. Rounds alternate, each on a table of its own.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from common import Result, Verdict, arguments, fresh, load, machine, workplace

SLOWER = 0.10  # of the writer's speed
MAINTAIN = """
import os, sys, quire
os.nice(10)  # as `quire table maintain --every` does
kinds = ("compaction", "clean", "archive")
done, spark = dict.fromkeys(kinds, 0), quire.LocalRunner()
table, stop = quire.Table(sys.argv[1]), sys.argv[1] + ".stop"
while not os.path.exists(stop):
    report = table.maintain(every="5 s", max_runs=2, log_ratio=0.05, keep_for="5 s", keep=10, spark=spark, progress=False)
    done = {kind: n + (getattr(report, kind) is not None) for kind, n in done.items()}
t = os.times()
print(done, round(t.user + t.system, 1))
"""


def rows(begin: int, count: int, at: int, every: int) -> Any:
    import pyarrow as pa

    rng = random.Random(at)
    ids = range(begin, begin + count) if every == count else rng.sample(range(every), count)
    keys, cities = [f"trip-{n:08}" for n in ids], [f"c{n % 8}" for n in ids]
    notes = [f"{rng.getrandbits(400):0100x}" for _ in ids]
    return pa.table({"id": keys, "city": cities, "at": pa.array([at] * count, pa.int64()), "note": notes})


def measure(at: str, size: int, commits: int, beside: bool) -> Result:
    """Write, and count."""
    import quire

    local: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False}
    table = quire.Table.create(at, key="id", partition_by="city", ordering="at", type="merge_on_read")
    table.bulk_insert(rows(0, size, 0, size), **local)
    table.upsert(rows(0, 5_000, 1, size), **local)  # what a first call loads is loaded
    frames = [rows(0, 5_000, n + 2, size) for n in range(commits)]
    other = None
    if beside:
        other = subprocess.Popen([sys.executable, "-c", MAINTAIN, at], stdout=subprocess.PIPE, text=True)
        time.sleep(3)
    each, cpu = list[float](), time.process_time()
    for frame in frames:
        began = time.monotonic()
        table.upsert(frame, **local)
        each.append(time.monotonic() - began)
        time.sleep(0.5)
    cpu, said = time.process_time() - cpu, ""
    if other is not None:
        Path(at + ".stop").touch()
        said = other.communicate(timeout=120)[0].strip()
        assert other.returncode == 0
    assert table.snapshot(spark=quire.LocalRunner(), columns=["id"]).num_rows == size
    return {
        "s": round(sum(each), 2), "median": round(statistics.median(each), 4), "most": round(max(each), 2), "cpu": round(cpu, 2),
        "said": said,
    }  # fmt: skip


def main() -> int:
    """Rounds that alternate."""
    args = arguments(
        __doc__, rows={"type": int, "default": 400_000}, commits={"type": int, "default": 60}, rounds={"type": int, "default": 3}
    )
    if args.way:
        print(json.dumps(measure(**json.loads(args.job))), flush=True)
        return 0
    print(f"{machine()}; load {load()}", flush=True)
    verdict, found = Verdict(), dict[bool, list[Result]]({False: [], True: []})
    with workplace(args.at) as place:
        for number in range(args.rounds):
            for beside in (False, True):
                one = fresh(__file__, "quire", at=str(place / f"t{number}-{beside}"), size=args.rows, commits=args.commits, beside=beside)
                found[beside].append(one)
                print("beside " if beside else "alone  ", one, "load", load(), flush=True)
    alone, beside = ({name: statistics.median(one[name] for one in found[way]) for name in ("s", "cpu")} for way in (False, True))
    slower, more = (1 - alone[name] / beside[name] for name in ("s", "cpu"))
    verdict.check(
        f"{args.commits} commits beside maintain", f"< {SLOWER:.0%} slower",
        f"{slower:.1%} slower ({alone['s']} s, {beside['s']} s); its processor time {more:+.1%} ({alone['cpu']} s, {beside['cpu']} s)",
        slower < SLOWER,
    )  # fmt: skip
    return verdict.end()


if __name__ == "__main__":
    sys.exit(main())
