"""5 KB blobs over a round trip of 140 ms: quire's reading and listing of Azure Blob, and adlfs, which asks for one after the other.

    python tests/benchmarks/objects.py --files 20000
    python tests/benchmarks/objects.py --azurite --files 10000

A small server of our own answers after a delay: emulators stop at 1,700 files/s. Each way runs in a process of its own and reads by
the same shared key; the server has a core of its own. CPU is that of the process that reads.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

from accounts import DELAY, SIZE, account
from common import Result, Verdict, alternate, arguments, listed, machine, median, table, workplace

ARTICLE = 7  # files a second and task, in the article: one round trip of 140 ms after the other

READ = ("quire", "adlfs, asynchronous, 128 at once", "adlfs cat")
MIXED = "quire, 5 GB among them"
LIST = ("quire: list", "adlfs find")
LONG = 5 << 30
BUDGET = 350  # MB at the peak: 128 MiB of answers, what a piece is copied into, and Python with its packages
SHARE = {"adlfs cat": 100, "adlfs, asynchronous, 128 at once": 4}  # of the files: the slow ways would take hours


def measure(way: str, string: str, etag: str, files: int) -> Result:
    """One way, once."""
    files = 1001 if way == MIXED else max(100, files // SHARE.get(way, 1)) if way in READ else files
    if way.startswith("quire"):
        from quire.storage import bare

        store = bare("abfs://src", {"connection_string": string})
        run = quire_lists(store) if way in LIST else quire_reads(store, wanted(store, etag, files, way == MIXED))
    else:
        run = {"adlfs find": adlfs_finds, "adlfs cat": adlfs_cats}.get(way, adlfs_gathers)(string, files)
    return timed(run, files, files * SIZE if way in READ else LONG + 1000 * SIZE if way == MIXED else files)


def timed(run: Iterator[float], files: int, expected: int) -> Result:
    """One way, with what it imports and connects behind it. It yields: ready, the first is there, then numbers that make up `expected`."""
    next(run)
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    first = next(run) - started
    found = sum(run)
    took, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_SELF)
    assert found == expected, (found, expected)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "seconds": round(took, 2),
        "first": round(first, 2),
        "files_per_second": round(files / took, 1),
        "cpu_us": round(cpu / files * 1e6),
        "rss_mb": after.ru_maxrss >> 10,
    }


def shown(found: dict[str, list[Result]]) -> dict[str, Result]:
    """Print the table of the ways; the median of each figure."""
    middle = {way: {key: median([r[key] for r in results]) for key in results[0]} for way, results in found.items()}
    rows = [
        [
            way,
            f"{m['files_per_second']:,.0f}",
            listed([r["files_per_second"] for r in found[way]]),
            f"{m['first']:.2f}",
            f"{m['cpu_us']:.0f}",
            f"{m['rss_mb']:.0f}",
        ]
        for way, m in middle.items()
    ]
    print("\n" + table(["way", "files/s (or names/s)", "rounds", "first after s", "CPU µs a file", "peak MB"], rows))
    return middle


def wanted(store: Any, etag: str, files: int, mixed: bool = False) -> list[Any]:
    """What to read: known beforehand where all have one etag, else listed; `mixed`: a blob of 5 GB among a thousand small ones."""
    from quire.storage import ReadRequest

    if not etag:
        return [ReadRequest(e.name, e.version, e.size, 0, e.size) for e in islice(store.scan("b"), files)]
    found = [ReadRequest(f"b/{i:08}", etag, SIZE, 0, SIZE) for i in range(files - mixed)]
    if mixed:
        found.insert(500, ReadRequest("long", etag, LONG, 0, LONG))
    return found


def quire_reads(store: Any, requests: list[Any]) -> Iterator[float]:
    """As a task reads."""
    for _ in store.read_many(requests[:1]):
        pass
    yield 0
    answers = store.read_many(requests)
    size = len(next(answers)[1])
    yield time.monotonic()
    yield size
    for _, content in answers:
        yield len(content) if isinstance(content, bytes) else sum(len(piece) for piece in content)


def quire_lists(store: Any) -> Iterator[float]:
    """As a listing is made."""
    store.stat("warm")
    yield 0
    entries = iter(store.scan("b"))
    next(entries)
    yield time.monotonic()
    yield 1
    yield sum(1 for _ in entries)


def _adlfs(string: str, **more: Any) -> Any:
    import adlfs

    return adlfs.AzureBlobFileSystem(connection_string=string, skip_instance_cache=True, use_listings_cache=False, **more)


def adlfs_finds(string: str, files: int) -> Iterator[float]:
    """Everything below a prefix, as a list."""
    fs = _adlfs(string)
    fs.exists("src/warm")
    yield 0
    found = fs.find("src/b", withdirs=False)
    yield time.monotonic()
    yield len(found)


def adlfs_cats(string: str, files: int) -> Iterator[float]:
    """As the article's mappers, and as whoever gives fsspec a list."""
    fs = _adlfs(string)
    fs.cat_file("src/warm")
    yield 0
    found = fs.cat([f"src/b/{i:08}" for i in range(files)], batch_size=256)
    yield time.monotonic()
    yield sum(len(data) for data in found.values())


def adlfs_gathers(string: str, files: int) -> Iterator[float]:
    """Its best: its single reads, 128 of them at once in a loop of one's own."""

    async def run(names: list[str]) -> int:
        fs = _adlfs(string, asynchronous=True)
        free = asyncio.Semaphore(128)

        async def one(name: str) -> int:
            async with free:
                return len(await fs._cat_file(name))

        try:
            return sum(await asyncio.gather(*(one(name) for name in names)))
        finally:
            await fs.service_client.close()

    asyncio.run(run(["src/warm"]))
    yield 0
    found = asyncio.run(run([f"src/b/{i:08}" for i in range(files)]))
    yield time.monotonic()
    yield found


def main() -> int:
    """Run all ways alternately, and print the ratios."""
    args = arguments(
        __doc__,
        files={"type": int, "default": 20_000},
        blobs={"type": int, "default": 100_000, "help": "to be listed"},
        rounds={"type": int, "default": 3},
        azurite={"action": "store_true", "help": "read from Azurite, made to be far away; nothing is listed"},
    )
    if args.way:
        job = json.loads(args.job)
        files = job["blobs"] if args.way in LIST else job["files"]
        print(json.dumps(measure(args.way, job["string"], job["etag"], files)), flush=True)
        os._exit(0)  # what adlfs does at the end of a process fails where its loop was ours
    print(f"{machine()}; {DELAY * 1000:.0f} ms a request, {SIZE:,} bytes a blob, {args.rounds} rounds", flush=True)
    ways = READ if args.azurite else (*READ, MIXED, *LIST)
    blobs = args.files if args.azurite else args.blobs
    with workplace(args.at) as place, account(blobs, args.azurite) as (string, etag):
        found = alternate(__file__, ways, args.rounds, place, string=string, etag=etag, files=args.files, blobs=args.blobs)
    return judge(shown(found), args.azurite)


def judge(middle: dict[str, Result], azurite: bool) -> int:
    """What was promised; of Azurite, which itself stops at 1,700 files/s, the peers alone."""
    verdict, ours = Verdict(), middle["quire"]

    def times(ratio: float, least: float, promise: str) -> None:
        verdict.check(promise, f"≥ {least:g} ×", f"{ratio:,.1f} ×", ratio >= least)

    cat, best = middle["adlfs cat"]["files_per_second"], middle[READ[1]]["files_per_second"]
    if azurite:
        print(f"\nquire is {ours['files_per_second'] / cat:,.1f} × as fast as adlfs cat.")
        print(f"It is {ours['files_per_second'] / best:,.1f} × as fast as adlfs at its best.")
        return 0
    names = middle["quire: list"]
    times(ours["files_per_second"] / ARTICLE, 200, "reading, to the article's 7 files/s")
    times(ours["files_per_second"] / cat, 200, "reading, to adlfs cat")
    times(ours["files_per_second"] / best, 2.5, "reading, to the best of adlfs")
    verdict.check("CPU a file", "≤ 550 µs", f"{ours['cpu_us']:.0f} µs", ours["cpu_us"] <= 550)
    times(middle["adlfs find"]["seconds"] / names["seconds"], 5, "listing in time, to adlfs find")
    times(middle["adlfs find"]["cpu_us"] / names["cpu_us"], 10, "listing in CPU, to adlfs find")
    peak = middle[MIXED]["rss_mb"]
    verdict.check("memory with 5 GB among them", f"≤ {BUDGET} MB", f"{peak:.0f} MB", peak <= BUDGET)
    verdict.check("first name listed", "< 3 s", f"{names['first']:.2f} s", names["first"] < 3)
    return verdict.end()


if __name__ == "__main__":
    sys.exit(main())
