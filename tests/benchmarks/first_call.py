"""A first call on few files, in a session that has just started: with the workers of `quire.session()`, and with Spark's own.

    python tests/benchmarks/first_call.py --files 1000

Each run is a process of its own; the ways alternate. The session's start is told apart: with Spark's own workers it takes as long.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import pairwise
from pathlib import Path

from common import CORES, HEAP, alternate, arguments, listed, machine, median, table, tree, workplace

OURS, OWN = "workers of quire.session()", "Spark's own workers"


def measure(way: str, source: Path, out: Path, files: int) -> dict[str, float]:
    """Seconds of the session's start, of a first call, and of one more that finds nothing new."""
    import quire

    started = time.monotonic()
    settings = {"spark.master": f"local[{CORES}]", "spark.driver.memory": HEAP}
    spark = quire.session(settings if way == OURS else {**settings, "spark.python.daemon.module": None})
    moments = [started, time.monotonic()]
    for new in (files, 0):
        assert quire.consolidate(str(source), str(out), spark=spark, progress=False).files == new
        moments.append(time.monotonic())
    return dict(zip(("session", "first", "second"), (round(b - a, 2) for a, b in pairwise(moments)), strict=True))


def main() -> int:
    """Run both ways alternately, and print the seconds."""
    args = arguments(__doc__, files={"type": int, "default": 1000}, rounds={"type": int, "default": 5})
    if args.way:
        job = json.loads(args.job)
        print(json.dumps(measure(args.way, Path(job["source"]), Path(job["out"]), job["files"])))
        return 0
    print(f"{machine()}\n{args.files:,} files of 5 KB, {args.rounds} rounds", flush=True)
    with workplace(args.at) as place:
        source = tree(place, args.files, dirs=5)
        found = alternate(__file__, [OURS, OWN], args.rounds, place, source=str(source), files=args.files)
    lines = []
    for way, results in found.items():
        first = [r["first"] for r in results]
        others = (f"{median([r[name] for r in results]):.2f} s" for name in ("session", "second"))
        lines.append([way, f"{median(first):.2f} s", listed(first, "{:.2f}"), *others])
    print("\n" + table(["way", "first call (median)", "rounds", "session's start", "second call"], lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
