"""A second run that finds nothing new, and what the ledger takes on disk.

    python tests/benchmarks/rerun.py --files 400000

The first run gathers the tree; then runs with nothing new are timed, each in a process of its own (session start excluded, the
start of Spark's Python workers included) and the same again in a session that is warm.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from common import Verdict, arguments, fresh, listed, machine, median, session, table, tree, workplace


def measure(source: Path, out: Path, files: int, again: int) -> dict[str, object]:
    """Run `again` times in one session."""
    import quire

    spark = session()
    seconds, done = [], []
    for _ in range(again):
        started = time.monotonic()
        report = quire.consolidate(str(source), str(out), spark=spark, progress=False)
        seconds.append(round(time.monotonic() - started, 2))
        done.append((report.files, report.skipped))
        assert report.files + report.skipped == files, report
    return {"seconds": seconds, "done": done}


def main() -> int:
    """Gather once, then run again."""
    args = arguments(__doc__, files={"type": int, "default": 400_000}, rounds={"type": int, "default": 3})
    if args.way:
        job = json.loads(args.job)
        print(json.dumps(measure(Path(job["source"]), Path(job["out"]), job["files"], job["again"])))
        return 0
    print(f"{machine()}\n{args.files:,} files of 5 KB in 20 directories, {args.rounds} rounds", flush=True)
    cold, warm = [], []
    with workplace(args.at) as place:
        source, out = tree(place, args.files), place / "out"
        job = {"source": str(source), "out": str(out), "files": args.files}
        first = fresh(__file__, "quire", **job, again=1)
        for _ in range(args.rounds):
            result = fresh(__file__, "quire", **job, again=2)
            assert all(tuple(d) == (0, args.files) for d in result["done"]), result
            print(f"  {result}", flush=True)
            cold.append(result["seconds"][0])
            warm.append(result["seconds"][1])
        ledger = sum(f.stat().st_size for f in (out / "_quire" / "ledger").iterdir())
    rows = [
        ("the first run", f"{first['seconds'][0]:.1f} s", ""),
        ("nothing new, new process", f"{median(cold):.1f} s", listed(cold, "{:.1f}")),
        ("nothing new, same session", f"{median(warm):.1f} s", listed(warm, "{:.1f}")),
    ]
    print("\n" + table(["run", "median", "rounds"], rows) + f"\n\nledger: {ledger:,} bytes, {ledger / args.files:.1f} a file")
    verdict = Verdict()
    verdict.check(f"nothing new, {args.files:,} files", "< 15 s", f"{median(cold):.1f} s", median(cold) < 15)
    verdict.check("ledger bytes a file", "≤ 40", f"{ledger / args.files:.1f}", ledger / args.files <= 40)
    return verdict.end()


if __name__ == "__main__":
    sys.exit(main())
