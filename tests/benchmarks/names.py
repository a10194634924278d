"""1,000,000 names in one's own region, 5 ms an answer: listed and planned by quire, and listed by others, who plan nothing.

    python tests/benchmarks/names.py                # one flat prefix, then 100 prefixes; S3's protocol
    python tests/benchmarks/names.py --azure
    python tests/benchmarks/names.py --peers quire  # without the others

quire's way is all of `quire.plan` with a session of two cores, whose start does not count: cut the directories, list them by Spark's tasks,
take out what the ledger has, write the plan as Parquet, pack it into tasks. `obstore.list` gives columns of Arrow, its fastest way; `rclone
lsf` writes names and sizes into a pipe. The processor time is that of all of a way's processes, and of none of the server's, which has its
share of the same cores. A quire that has run before (its workers are there, its code is loaded) is "again".
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from common import Result, Verdict, alternate, arguments, cpu_seconds, listed, machine, median, session, table, workplace
from region import DELAY, PEERS, obstore_at, peers, place, rclone

PLAN, AGAIN, OB, LSF = "quire.plan", "quire.plan, again", "obstore.list", "rclone lsf"
MOST = 25  # µs a name, listing and planning together


def measure(way: str, job: dict[str, Any]) -> Result:
    """One way, once."""
    run = {PLAN: planned, AGAIN: planned_again, OB: obstore_lists, LSF: rclone_lists}[way]
    if way == AGAIN:
        planned(job)
    if way == PLAN:
        session()
    started, cpu = time.monotonic(), cpu_seconds()
    found = run(job)
    took, used = time.monotonic() - started, cpu_seconds() - cpu
    assert found == job["files"], found
    return {"seconds": round(took, 2), "us": round(took / found * 1e6, 1), "cpu_us": round(used / found * 1e6, 1)}


def planned(job: dict[str, Any]) -> int:
    """All that quire does before a copying task begins."""
    import quire

    plan = quire.plan(
        f"{job['url']}/{job['prefix']}", job["out"], spark=session(), source_options=job["given"], transform="raw", progress=False
    )
    return int(plan.tasks["files"].sum())


def planned_again(job: dict[str, Any]) -> int:
    """The same."""
    return planned(job)


def obstore_lists(job: dict[str, Any]) -> int:
    """Its pages, as Arrow's columns."""
    import obstore  # type: ignore[import-not-found]

    return sum(
        page.num_rows for page in obstore.list(obstore_at(job["given"], "src"), f"{job['prefix']}/", chunk_size=5000, return_arrow=True)
    )


def rclone_lists(job: dict[str, Any]) -> int:
    """Names and sizes, as text."""
    command = [
        "rclone",
        "lsf",
        f"bench:src/{job['prefix']}",
        "-R",
        "--files-only",
        "--format",
        "ps",
        "--checkers",
        "64",
        "--config",
        "/dev/null",
    ]
    done = subprocess.run(command, env=rclone(job["given"]), stdout=subprocess.PIPE, check=True)
    return done.stdout.count(b"\n")


def main() -> int:
    """Run all ways alternately, and print the ratios."""
    args = arguments(
        __doc__,
        files={"type": int, "default": 1_000_000},
        rounds={"type": int, "default": 3},
        azure={"action": "store_true"},
        peers={"choices": ("all", "quire"), "default": "all"},
    )
    if args.way:
        job = json.loads(args.job)
        if args.way == OB and job["python"] != sys.executable:
            os.execv(job["python"], [job["python"], __file__, *sys.argv[1:]])
        print(json.dumps(measure(args.way, job)), flush=True)
        os._exit(0)
    others = args.peers == "all"
    python = peers() if others else sys.executable
    print(f"{machine()}; {', '.join(PEERS) if others else 'no peers'}; {args.files:,} names", flush=True)
    ways = [PLAN, AGAIN, OB, LSF] if others else [PLAN, AGAIN]
    if others and (args.azure or not shutil.which("rclone")):
        ways.remove(LSF)
        print("rclone does not list here" if args.azure else "rclone is not there: apt-get install rclone")
    verdict = Verdict()
    with workplace(args.at) as at, place(args.azure, DELAY, args.files) as there:
        for prefix, what in (("b", "one flat prefix"), ("tree", "100 prefixes" if not args.azure else "8 prefixes")):
            job: dict[str, Any] = {"files": args.files, "prefix": prefix, "python": python}
            judge(what, alternate(__file__, ways, args.rounds, Path(at), **job, **there), verdict)
    return verdict.end()


def judge(what: str, found: dict[str, list[Result]], verdict: Verdict) -> None:
    """What was promised."""
    middle = {way: {key: median([r[key] for r in results]) for key in results[0]} for way, results in found.items()}
    rows = [
        [way, f"{m['seconds']:.1f}", listed([r["seconds"] for r in found[way]], "{:.1f}"), f"{m['us']:.1f}", f"{m['cpu_us']:.1f}"]
        for way, m in middle.items()
    ]
    print(f"\n{what}\n\n" + table(["way", "seconds", "rounds", "µs a name", "CPU µs a name"], rows))
    verdict.check(f"{what}: listing and planning", f"≤ {MOST} µs a name", f"{middle[PLAN]['us']:.1f} µs", middle[PLAN]["us"] <= MOST)
    if OB in middle:
        ratio = middle[OB]["seconds"] / middle[PLAN]["seconds"]
        verdict.check(f"{what}: planned, to obstore's listing", "≥ 1 ×", f"{ratio:.2f} ×", ratio >= 1)
    if LSF in middle:
        ratio = middle[LSF]["seconds"] / middle[PLAN]["seconds"]
        verdict.check(f"{what}: planned, to rclone's listing", "≥ 1 ×", f"{ratio:.2f} ×", ratio >= 1)


if __name__ == "__main__":
    sys.exit(main())
