"""Where the processor time of reading small blobs goes: by thread, by package and by function.

    python tests/benchmarks/reading_cpu.py --files 20000
    python tests/benchmarks/reading_cpu.py --s3

What a task does with each file of 5 KB is done here, on the server of our own: ask, receive, check the length, hand over in order. The
time is measured without a profiler first (all threads of the process, user and system, less what importing and connecting take), and
its parts by `cProfile` with each thread's processor time as its clock. The profiler makes every call dearer, so it tells shares; the
µs beside them are those shares of the time without it.
"""

from __future__ import annotations

import cProfile
import json
import pstats
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

from accounts import DELAY, SIZE, account
from bucketserver import ETAG
from common import Result, alternate, arguments, listed, machine, median, serving, table, workplace
from objects import quire_reads, timed, wanted
from objects_s3 import options

SHOWN = 18
_PACKAGES = ("quire", "selectors", "socket", "hmac", "urllib", "email")


@contextmanager
def profiled(found: list[cProfile.Profile]) -> Iterator[None]:
    """Profile this thread and those that begin meanwhile, each by its own processor time."""
    plain = threading.Thread.run

    def run(self: threading.Thread) -> None:
        with cProfile.Profile(time.thread_time) as profile:
            plain(self)
        found.append(profile)

    threading.Thread.run = run  # type: ignore[method-assign]
    try:
        with cProfile.Profile(time.thread_time) as profile:
            yield
        found.append(profile)
    finally:
        threading.Thread.run = plain  # type: ignore[method-assign]


def measure(way: str, url: str, given: dict[str, Any], etag: str, files: int) -> Result:
    """Read, with or without the profiler."""
    from quire.storage import bare

    store = bare(url, given)
    run = quire_reads(store, wanted(store, etag, files))
    if way == "plain":
        return timed(run, files, files * SIZE)
    next(run)
    found = list[cProfile.Profile]()
    with profiled(found):
        assert sum(islice(run, 1, None)) == files * SIZE
    functions, packages = defaultdict[str, float](float), defaultdict[str, float](float)
    for profile in found:
        for (file, _, name), calls, own in _rows(profile):
            package = next((part for part in _PACKAGES if f"/{part}/" in file or file.endswith(f"/{part}.py")), "")
            package = package or ("built into Python" if file == "~" else "others")
            functions[f"{name} ({package}; {calls / files:.1f} calls a file)"] += own
            packages[package] += own
    total = sum(packages.values())

    def largest(found: dict[str, float]) -> dict[str, float]:
        return {name: own / total for name, own in sorted(found.items(), key=lambda x: -x[1])[:SHOWN]}

    return {"functions": largest(functions), "packages": largest(packages)}


def _rows(profile: cProfile.Profile) -> list[tuple[tuple[str, int, str], int, float]]:
    stats: dict[Any, Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    return [(where, calls, own) for where, (_, calls, own, _, _) in stats.items()]


@contextmanager
def place_to_read(s3: bool) -> Iterator[dict[str, Any]]:
    """The server, and how to reach what it has."""
    if s3:
        with serving("bucketserver.py", delay=DELAY, size=SIZE) as port:
            yield {"url": "s3://src", "given": options(port), "etag": ETAG}
    else:
        with account(0, azurite=False) as (string, etag):
            yield {"url": "abfs://src", "given": {"connection_string": string}, "etag": etag}


def main() -> int:
    """Print the two tables."""
    args = arguments(
        __doc__,
        files={"type": int, "default": 20_000},
        rounds={"type": int, "default": 3, "help": "without the profiler; with it there is one"},
        s3={"action": "store_true"},
    )
    if args.way:
        job = json.loads(args.job)
        print(json.dumps(measure(args.way, job["url"], job["given"], job["etag"], job["files"])), flush=True)
        return 0
    print(f"{machine()}; {DELAY * 1000:.0f} ms a request, {SIZE:,} bytes a file", flush=True)
    with workplace(args.at) as place, place_to_read(args.s3) as job:
        job |= {"files": args.files}
        plain = alternate(__file__, ("plain",), args.rounds, place, **job)["plain"]
        profile = alternate(__file__, ("profile",), 1, place, **job)["profile"][0]
    cpu = median([r["cpu_us"] for r in plain])
    rounds = listed([r["cpu_us"] for r in plain])
    print(f"\nCPU a file: {cpu:.0f} µs (rounds: {rounds})")
    for what in ("packages", "functions"):
        rows = [(name, f"{share:.1%}", f"{share * cpu:.0f}") for name, share in profile[what].items() if share >= 0.01]
        print("\n" + table([what, "share", "µs a file"], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
