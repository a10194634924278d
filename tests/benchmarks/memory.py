"""What the driver holds: the heap of its JVM and the memory of its Python, as the number of files grows.

    python tests/benchmarks/memory.py --files 10000 400000 1000000

Each number of files runs in a process of its own with the same small heap (`--heap`). "live" is the heap in use after garbage
collection when the call has ended, its objects and the session's still there; "peak live" the most that any collection of the old
generation during planning and running has left; "Python" the most that the driver's Python process has ever held (VmHWM).
The files are small (600 B): what a driver might keep of a file does not depend on its size.
"""

from __future__ import annotations

import gc
import json
import sys
import threading
import time
from pathlib import Path

from common import Verdict, arguments, fresh, machine, session, table, tree, workplace

MB = 1_000_000


def status(key: str) -> int:
    """A number of this process's, in bytes."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(key))
    return int(line.split()[1]) * 1024


class Heap:
    """The heap of the driver's JVM."""

    def __init__(self, spark: object) -> None:
        self.jvm = spark._jvm  # type: ignore[attr-defined]
        self.peak = 0

    def live(self) -> int:
        """In use after garbage collection, the least of a few."""
        runtime = self.jvm.java.lang.Runtime.getRuntime()
        found = []
        for _ in range(4):
            gc.collect()
            self.jvm.java.lang.System.gc()
            time.sleep(0.3)
            found.append(runtime.totalMemory() - runtime.freeMemory())
        return int(min(found))

    def follow(self, over: threading.Event, every: float) -> None:
        """Collect garbage now and then, and remember the most that was left."""
        runtime = self.jvm.java.lang.Runtime.getRuntime()
        while not over.wait(every):
            self.jvm.java.lang.System.gc()
            self.peak = max(self.peak, runtime.totalMemory() - runtime.freeMemory())

    def highest(self) -> int:
        """The most that was ever in use, garbage and all."""
        beans = self.jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
        return int(sum(b.getPeakUsage().getUsed() for b in beans if str(b.getType()) == "Heap memory"))


def measure(source: Path, out: Path, files: int, heap: str) -> dict[str, float]:
    """One run."""
    import quire

    spark = session(**{"spark.driver.memory": heap})
    here = Heap(spark)
    # A first small job: what Spark and Python load once is no growth.
    quire.consolidate(str(source.parent / "few"), str(out.parent / "few-out"), spark=spark, progress=False)
    live, rss = here.live(), status("VmRSS")
    over = threading.Event()
    follower = threading.Thread(target=here.follow, args=(over, 1.0))
    follower.start()
    started = time.monotonic()
    report = quire.consolidate(str(source), str(out), spark=spark, progress=False)
    took = time.monotonic() - started
    over.set()
    follower.join()
    assert report.files == files, report
    return {
        "seconds": round(took, 1),
        "live": here.live() - live, "peak_live": max(here.peak, live) - live, "highest": here.highest(),
        "python": status("VmRSS") - rss, "python_peak": status("VmHWM"),
    }  # fmt: skip


def main() -> int:
    """Run the numbers of files one after the other."""
    args = arguments(
        __doc__,
        files={"type": int, "nargs": "*", "default": [10_000, 400_000, 1_000_000]},
        heap={"default": "512m", "help": "of the driver's JVM, whose tasks run in it, too"},
        rounds={"type": int, "default": 2, "help": "the smallest of so many runs counts: what is left out is only noise of the collector"},
    )
    if args.way:
        job = json.loads(args.job)
        print(json.dumps(measure(Path(job["source"]), Path(job["out"]), job["files"], job["heap"])))
        return 0
    print(f"{machine()}; heap {args.heap}", flush=True)
    found = {}
    for files in args.files:
        runs = []
        with workplace(args.at) as place:
            tree(place, 200, "600 B").rename(place / "few")
            source = tree(place, files, "600 B")
            for r in range(args.rounds):
                (place / str(r)).mkdir()
                runs.append(fresh(__file__, "quire", source=str(source), out=str(place / str(r) / "out"), files=files, heap=args.heap))
                print(f"  {files:,} files: {runs[-1]}", flush=True)
        found[files] = {key: min(run[key] for run in runs) for key in runs[0]}
    rows = [
        (f"{files:,}", f"{r['seconds']} s", *(f"{r[k] / MB:+.1f} MB" for k in ("live", "peak_live", "python")),
         *(f"{r[k] / MB:.0f} MB" for k in ("highest", "python_peak")))
        for files, r in found.items()
    ]  # fmt: skip
    print("\n" + table(["files", "took", "heap, live after", "heap, peak live", "Python after", "heap, ever", "Python, peak"], rows))
    verdict, least = Verdict(), found[min(found)]
    for files, r in found.items():
        if files > min(found):
            grown = f"{min(found):,} → {files:,} files"
            for what, key in (("heap after collection", "live"), ("heap, peak live", "peak_live"), ("Python, peak", "python_peak")):
                more = (r[key] - least[key]) / MB
                target = "< 20 MB" if files <= 400_000 else f"runs in {args.heap}"
                verdict.check(f"{what}, {grown}", target, f"{more:+.1f} MB", more < 20 or files > 400_000)
    return verdict.end()


if __name__ == "__main__":
    sys.exit(main())
