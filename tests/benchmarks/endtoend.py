"""200,000 blobs of 5 KB below 8 prefixes through `quire.consolidate`, at 140 ms a request: listing, ledger, commit and publishing included.

    python tests/benchmarks/endtoend.py                                    (15 minutes a round)
    python tests/benchmarks/endtoend.py --files 8000 --ways one cores      (a look)
    python tests/benchmarks/endtoend.py --azurite --files 10000            (Azurite, which stops at about 1,700 files/s by itself)

Source and destination are an account that answers each request after 140 ms (`blobserver.py`), and once local disk. Ways:

one      one task reads everything, `local[1]`: what one reader of the article did, who came to 7 files/s
turns    tasks of 256 MiB, the default, one after the other, `local[1]`
cores    the default: tasks of 256 MiB on all cores
disk     as one, into a directory
long     a thousand blobs, and one of 5 GB among them: the memory of a worker

The reading phase is what the progress line calls gathering: from the start of Spark's job until all manifests are there, workers' start,
uploads and ledger rows included. "in tasks" is of the tasks' own time, as the commit entry tells it.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import pairwise
from typing import Any

from accounts import DELAY, SIZE, account
from blobserver import LONG, MIXED
from common import HEAP, Peaks, Result, Verdict, alternate, arguments, cpu_seconds, listed, machine, median, session, table, workplace
from objects import ARTICLE

WAYS = ("one", "turns", "cores", "disk", "long")
PHASES = ("before", "listing", "planning", "gathering", "publishing")
# MB of a worker: 200 are Python with its packages, 128 MiB answers, 64 MiB blocks on their way; the rest is pieces while they are copied.
BUDGET = 512
MEMORY = ("driver_mb", "jvm_mb", "worker_mb")


def measure(way: str, string: str, files: int, out: str) -> Result:
    """One way, once."""
    import quire

    options = {"connection_string": string}
    dest = out if way == "disk" else f"abfs://out/{time.time_ns()}"
    settings: dict[str, Any] = {"transform": "raw"} if way == "long" else {}
    if way in ("one", "disk"):
        settings["target_size"] = "16 GiB"
    spark = session(**({} if way == "cores" else {"spark.master": "local[1]"}))
    began = [("before", time.monotonic())]

    def step(step: quire.ProgressEvent) -> None:
        if began[-1][0] != step.phase:
            began.append((step.phase, time.monotonic()))

    peaks, cpu = Peaks(), cpu_seconds()
    source = f"abfs://src/{'mixed' if way == 'long' else 'tree'}"
    report = quire.consolidate(source, dest, spark=spark, progress=step, storage_options=options, **settings)
    end, cpu = time.monotonic(), cpu_seconds() - cpu
    began.append(("end", end))
    took = dict.fromkeys(PHASES, 0.0)
    for (phase, since), (_, until) in pairwise(began):
        took[phase] += until - since
    wanted = (MIXED + 1, MIXED * SIZE + LONG) if way == "long" else (files, files * (SIZE + 1))  # each is ended by a newline
    assert (report.files, report.written) == wanted, report
    tasks, size = _there(dest, options)
    assert size == report.written, (size, report)
    seconds = end - began[0][1]
    in_tasks = sum(task.seconds for task in tasks)
    return {
        "files_per_second": round(report.files / seconds, 1), "reading": round(report.files / took["gathering"], 1),
        "in_tasks": round(report.files / in_tasks, 1), "tasks": len(tasks), "seconds": round(seconds, 1),
        **{phase: round(took[phase], 2) for phase in PHASES}, "cpu_us": round(cpu / report.files * 1e6), **peaks.end(),
    }  # fmt: skip


def _there(dest: str, options: dict[str, Any]) -> tuple[list[Any], int]:
    """The tasks that a reader of the log finds, and the bytes of their files as the store tells them."""
    from quire.commit.log import Log
    from quire.storage import connect, normalise

    store = connect(normalise(dest), options if dest.startswith("abfs:") else None)
    log = Log(store).refresh()
    tasks = [task for _, commit in log.commits() for task in log.in_effect(commit, reader=True)]
    sizes = {entry.name: entry.size for entry in store.walk()}
    return tasks, sum(sizes[file.name] for task in tasks for file in task.data_files)


def main() -> int:
    """Run the ways alternately, and print the ratios."""
    args = arguments(
        __doc__,
        files={"type": int, "default": 200_000},
        rounds={"type": int, "default": 1},
        ways={"nargs": "*", "choices": WAYS, "default": ()},
        azurite={"action": "store_true", "help": "read from and write to Azurite, made to be far away"},
    )
    if args.way:
        job = json.loads(args.job)
        print(json.dumps(measure(args.way, job["string"], job["files"], job["out"])), flush=True)
        return 0
    print(f"{machine()}; {DELAY * 1000:.0f} ms a request, {args.files:,} files of {SIZE:,} bytes, heap {HEAP}, {args.rounds} rounds")
    ways = args.ways or (WAYS[:3] if args.azurite else WAYS)
    with workplace(args.at) as place, account(args.files, args.azurite) as (string, _):
        found = alternate(__file__, ways, args.rounds, place, string=string, files=args.files)
    middle = {way: {key: median([r[key] for r in results]) for key in results[0]} for way, results in found.items()}
    rows = [
        [
            way, f"{m['tasks']:.0f}", f"{m['reading']:,.0f}", f"{m['reading'] / ARTICLE:,.0f} ×", f"{m['in_tasks']:,.0f}",
            f"{m['files_per_second']:,.0f}", f"{m['files_per_second'] / ARTICLE:,.0f} ×",
            listed([r["files_per_second"] for r in found[way]]), f"{m['cpu_us']:,.0f}",
        ]
        for way, m in middle.items()
    ]  # fmt: skip
    head = ["way", "tasks", "reading files/s", "× 7", "in tasks", "end to end", "× 7", "rounds", "CPU µs a file"]
    print("\n" + table(head, rows))
    rows = [
        [way, *(f"{m[phase]:.1f}" for phase in PHASES), f"{m['seconds']:.1f}", *(f"{m[key]:.0f}" for key in MEMORY)]
        for way, m in middle.items()
    ]
    print("\n" + table(["way", *(f"{phase} s" for phase in PHASES), "all s", "driver MB", "JVM MB", "worker MB"], rows))
    if args.azurite:
        return 0
    verdict = Verdict()
    for way in ("one", "turns"):
        if way in middle:
            for what, key, least in (("reading", "reading", 200), ("end to end", "files_per_second", 150)):
                ratio = middle[way][key] / ARTICLE
                verdict.check(f"{way}: {what}, to the article's 7 files/s", f"≥ {least} ×", f"{ratio:,.1f} ×", ratio >= least)
    if "long" in middle:
        peak = middle["long"]["worker_mb"]
        verdict.check("a worker's memory with 5 GB among them", f"≤ {BUDGET} MB", f"{peak:.0f} MB", peak <= BUDGET)
    return verdict.end()


if __name__ == "__main__":
    sys.exit(main())
