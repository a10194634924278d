"""Cleaning a table of 10,000 superseded slices: seconds, and how many requests a file that goes costs.

    python tests/benchmarks/table_clean.py [--groups 10000] [--commits 2000]

The table is that of `table_open.py`: 10,000 file groups in 100 partitions, 2,000 commits that write five of them each, so 10,000 slices are
superseded; the files are empty. A process of its own cleans it to one version of each file group, and counts what it asks of the store.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from common import Result, Verdict, arguments, fresh, load, machine, workplace
from table_open import build, peak

SECONDS, REQUESTS = 5.0, 1.1  # of the clean; for each file that goes, with all that the call asks beside


def measure(at: str) -> Result:
    """Clean it, and count."""
    import quire
    from quire.storage.local import LocalStore

    asked = Counter[str]()

    def counted(name: str) -> None:
        real = getattr(LocalStore, name)

        def call(*args: Any, **more: Any) -> Any:
            asked[name] += 1
            return real(*args, **more)

        setattr(LocalStore, name, call)

    for name in ("get", "put", "put_if_absent", "remove", "stat", "scan", "rename", "remove_tree", "get_range"):
        counted(name)
    table, before = quire.Table(at), len(list(Path(at).rglob("*.parquet")))
    quire.recover(at)  # which enters the commits, as no call of quire's has made them
    asked.clear()
    began, cpu, held = time.monotonic(), time.process_time(), peak()
    report = table.clean(versions=1, progress=False)
    seconds, cpu = time.monotonic() - began, time.process_time() - cpu
    assert before - len(list(Path(at).rglob("*.parquet"))) == report.files
    return {
        "slices": report.slices, "files": report.files, "s": round(seconds, 2), "cpu": round(cpu, 2), "mb": peak() - held,
        "asked": dict(asked.most_common()), "each": round(sum(asked.values()) / report.files, 3),
    }  # fmt: skip


def main() -> int:
    """Build it, and measure in a process of its own."""
    args = arguments(__doc__, groups={"type": int, "default": 10_000}, commits={"type": int, "default": 2_000})
    if args.way:
        print(json.dumps(measure(json.loads(args.job)["at"])), flush=True)
        return 0
    print(f"{machine()}; load {load()}", flush=True)
    verdict = Verdict()
    with workplace(args.at) as place:
        build(place / "t", args.groups, args.commits)
        found = fresh(__file__, "quire", at=str(place / "t"))
    print(found)
    what = f"{found['slices']:,} slices cleaned"
    verdict.check(what, f"< {SECONDS:g} s", f"{found['s']} s (CPU {found['cpu']} s), {found['mb']} MB", found["s"] < SECONDS)
    verdict.check(f"{what}: requests a file", f"≤ {REQUESTS}", f"{found['each']}", found["each"] <= REQUESTS)
    return verdict.end()


if __name__ == "__main__":
    sys.exit(main())
