"""5 KB files on local disk into a few large ones: quire with everything on, the fastest ways of Spark, and `find -exec cat`.

    python tests/benchmarks/gather.py --files 400000

Each way runs in a process of its own; the start of its session does not count, all after it does (for quire also the start of
Spark's Python workers).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from common import (
    HEAP,
    PEERS,
    TUNED,
    Verdict,
    alternate,
    arguments,
    cpu_seconds,
    data_bytes,
    listed,
    machine,
    median,
    session,
    table,
    tree,
    workplace,
)

DEFAULT = ", default file system"  # Hadoop's own, which looks for a .crc file beside each file, as users have it
WAYS = ("quire", *PEERS, *(peer + DEFAULT for peer in PEERS), "find -exec cat")


def measure(way: str, source: Path, out: Path, files: int) -> dict[str, float]:
    """One way, once."""
    if way == "find -exec cat":
        started, cpu = time.monotonic(), cpu_seconds()
        with out.open("wb") as sink:
            subprocess.run(["find", str(source), "-type", "f", "-exec", "cat", "{}", "+"], stdout=sink, check=True)
        return _found(files, time.monotonic() - started, cpu_seconds() - cpu, out.stat().st_size)
    tuned = {key: value for key, value in TUNED.items() if not (way.endswith(DEFAULT) and key.endswith("fs.file.impl"))}
    spark = session(**({} if way == "quire" else tuned))
    started, cpu = time.monotonic(), cpu_seconds()
    if way == "quire":
        import quire

        report = quire.consolidate(str(source), str(out), spark=spark, progress=False)
        assert (report.files, report.quarantined_count, report.deferred) == (files, 0, ()), report
    else:
        PEERS[way.removesuffix(DEFAULT)](spark, source, out)
    return _found(files, time.monotonic() - started, cpu_seconds() - cpu, data_bytes(out))


def _found(files: int, took: float, cpu: float, size: int) -> dict[str, float]:
    return {"seconds": round(took, 2), "files_per_second": round(files / took), "cpu": round(cpu, 1), "bytes": size}


def main() -> int:
    """Run all ways alternately, and print the ratios."""
    args = arguments(
        __doc__,
        files={"type": int, "nargs": "*", "default": [100_000, 400_000]},
        rounds={"type": int, "default": 3},
    )
    if args.way:
        job = json.loads(args.job)
        print(json.dumps(measure(args.way, Path(job["source"]), Path(job["out"]), job["files"])))
        return 0
    print(f"{machine()}; heap {HEAP}")
    verdict = Verdict()
    with workplace(args.at) as place:
        for files in args.files:
            print(f"\n{files:,} files of 5 KB in 20 directories, {args.rounds} rounds", flush=True)
            source = tree(place, files)
            found = alternate(__file__, WAYS, args.rounds, place, source=str(source), files=files)
            speeds = {way: [r["files_per_second"] for r in results] for way, results in found.items()}
            least = min(r["bytes"] for r in found["find -exec cat"])
            assert all(r["bytes"] >= least - files for results in found.values() for r in results), "somebody lost bytes"
            ours = median(speeds["quire"])
            best = max(median(speeds[way]) for way in WAYS if way.endswith(DEFAULT))
            cpu = {way: f"{median([r['cpu'] for r in results]):.1f} s" for way, results in found.items()}
            size = {way: results[0]["bytes"] >> 20 for way, results in found.items()}
            rows = [(way, f"{median(s):,.0f}", listed(s), f"{ours / median(s):.2f} ×", cpu[way], size[way]) for way, s in speeds.items()]
            print("\n" + table(["way", "files/s (median)", "rounds", "quire is", "CPU time", "MiB written"], rows), flush=True)
            ratio, least_ratio = ours / best, 3.0 if files >= 400_000 else 1.2
            verdict.check(f"{files:,} files: × the fastest Spark way", f"≥ {least_ratio}", f"{ratio:.2f}", ratio >= least_ratio)
            if files >= 400_000:
                floor = ours / median(speeds["find -exec cat"])
                verdict.check(f"{files:,} files: × find -exec cat", "≥ 0.33", f"{floor:.2f}", floor >= 1 / 3)
    return verdict.end()


if __name__ == "__main__":
    sys.exit(main())
