"""5 KB blobs over a round trip of 140 ms: quire's reading and listing of Azure Blob, and adlfs, which asks for one after the other.

    python tests/benchmarks/objects.py --files 20000

A small server of our own answers after a delay: emulators stop at 1,700 files/s. Each way runs in a process of its own and reads by
the same shared key; the server has a core of its own. CPU is that of the process that reads.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from common import Verdict, alternate, arguments, listed, machine, median, table, workplace

ARTICLE = 7  # files a second and task, in the article: one round trip of 140 ms after the other
DELAY = 0.14
SIZE = 5000
ETAG = "0x8DC0FFEE0000001"

READ = ("quire", "adlfs, asynchronous, 128 at once", "adlfs cat")
MIXED = "quire, 5 GB among them"
LIST = ("quire: list", "adlfs find")
LONG = 5 << 30
BUDGET = 350  # MB at the peak: 128 MiB of answers, what a piece is copied into, and Python with its packages
SHARE = {"adlfs cat": 100, "adlfs, asynchronous, 128 at once": 4}  # of the files: the slow ways would take hours


def connection(port: int) -> str:
    """Of the server of ours."""
    return f"DefaultEndpointsProtocol=http;AccountName=acc;AccountKey=a2V5a2V5a2V5a2V5;BlobEndpoint=http://127.0.0.1:{port}/acc;"


def measure(way: str, port: int, files: int) -> dict[str, float]:
    """One way, once, with what it imports and connects behind it."""
    files = 1001 if way == MIXED else max(100, files // SHARE.get(way, 1)) if way in READ else files
    ways = {"quire": quire_reads, MIXED: quire_reads_long, "quire: list": quire_lists, "adlfs find": adlfs_finds, "adlfs cat": adlfs_cats}
    run = ways.get(way, adlfs_gathers)(port, files)
    next(run)
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    first = next(run) - started
    found = sum(run)
    took, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_SELF)
    assert found == (files * SIZE if way in READ else LONG + 1000 * SIZE if way == MIXED else files), (found, files)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "seconds": round(took, 2),
        "first": round(first, 2),
        "files_per_second": round(files / took, 1),
        "cpu_us": round(cpu / files * 1e6),
        "rss_mb": after.ru_maxrss >> 10,
    }


def quire_reads(port: int, files: int) -> Iterator[float]:
    """As a task reads."""
    from quire.storage import Request, bare

    store = bare("abfs://c", {"connection_string": connection(port)})
    warm = [Request("warm", ETAG, SIZE, 0, SIZE)]
    assert [len(content) for _, content in store.read_many(warm)] == [SIZE]  # type: ignore[arg-type]
    yield 0
    answers = store.read_many(Request(f"b/{i:08}", ETAG, SIZE, 0, SIZE) for i in range(files))
    size = len(next(answers)[1])  # type: ignore[arg-type]
    yield time.monotonic()
    yield size
    for _, content in answers:
        yield len(content)  # type: ignore[arg-type]


def quire_reads_long(port: int, files: int) -> Iterator[float]:
    """A blob of 5 GB in the middle of a thousand small ones."""
    from quire.storage import Request, bare

    store = bare("abfs://c", {"connection_string": connection(port)})
    wanted = [Request(f"b/{i:08}", ETAG, SIZE, 0, SIZE) for i in range(1000)]
    wanted.insert(500, Request("long", ETAG, LONG, 0, LONG))
    yield 0
    yield time.monotonic()
    for _, content in store.read_many(wanted):
        yield len(content) if isinstance(content, bytes) else sum(len(piece) for piece in content)  # type: ignore[union-attr]


def quire_lists(port: int, files: int) -> Iterator[float]:
    """As a listing is made."""
    from quire.storage import bare

    store = bare("abfs://c", {"connection_string": connection(port)})
    store.stat("warm")
    yield 0
    entries = iter(store.scan("b"))
    next(entries)
    yield time.monotonic()
    yield 1
    yield sum(1 for _ in entries)


def _adlfs(port: int, **more: Any) -> Any:
    import adlfs

    return adlfs.AzureBlobFileSystem(connection_string=connection(port), skip_instance_cache=True, use_listings_cache=False, **more)


def adlfs_finds(port: int, files: int) -> Iterator[float]:
    """Everything below a prefix, as a list."""
    fs = _adlfs(port)
    fs.exists("c/warm")
    yield 0
    found = fs.find("c/b", withdirs=False)
    yield time.monotonic()
    yield len(found)


def adlfs_cats(port: int, files: int) -> Iterator[float]:
    """As the article's mappers, and as whoever gives fsspec a list."""
    fs = _adlfs(port)
    fs.cat_file("c/warm")
    yield 0
    found = fs.cat([f"c/b/{i:08}" for i in range(files)], batch_size=256)
    yield time.monotonic()
    yield sum(len(data) for data in found.values())


def adlfs_gathers(port: int, files: int) -> Iterator[float]:
    """Its best: its single reads, 128 of them at once in a loop of one's own."""

    async def run(names: list[str]) -> int:
        fs = _adlfs(port, asynchronous=True)
        free = asyncio.Semaphore(128)

        async def one(name: str) -> int:
            async with free:
                return len(await fs._cat_file(name))

        try:
            return sum(await asyncio.gather(*(one(name) for name in names)))
        finally:
            await fs.service_client.close()

    asyncio.run(run(["c/warm"]))
    yield 0
    found = asyncio.run(run([f"c/b/{i:08}" for i in range(files)]))
    yield time.monotonic()
    yield found


@contextmanager
def server(blobs: int) -> Iterator[int]:
    """The server, in a process of its own, which ends with us; its port."""
    command = [sys.executable, str(Path(__file__).with_name("blobserver.py")), "--delay", str(DELAY), "--size", str(SIZE)]
    process = subprocess.Popen([*command, "--blobs", str(blobs)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait(30)


def main() -> int:
    """Run all ways alternately, and print the ratios."""
    args = arguments(
        __doc__, files={"type": int, "default": 20_000}, blobs={"type": int, "default": 100_000}, rounds={"type": int, "default": 3}
    )
    if args.way:
        job = json.loads(args.job)
        print(json.dumps(measure(args.way, job["port"], job["blobs"] if args.way in LIST else job["files"])), flush=True)
        os._exit(0)  # what adlfs does at the end of a process fails where its loop was ours
    print(f"{machine()}; {DELAY * 1000:.0f} ms a request, {SIZE:,} bytes a blob, {args.rounds} rounds")
    verdict = Verdict()
    with workplace(args.at) as place, server(args.blobs) as port:
        found = alternate(__file__, [*READ, MIXED, *LIST], args.rounds, place, port=port, files=args.files, blobs=args.blobs)
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
    ours, names = middle["quire"], middle["quire: list"]

    def times(ratio: float, least: float, promise: str) -> None:
        verdict.check(promise, f"≥ {least:g} ×", f"{ratio:,.1f} ×", ratio >= least)

    times(ours["files_per_second"] / ARTICLE, 200, "reading, to the article's 7 files/s")
    times(ours["files_per_second"] / middle["adlfs cat"]["files_per_second"], 200, "reading, to adlfs cat")
    times(ours["files_per_second"] / middle[READ[1]]["files_per_second"], 2.5, "reading, to the best of adlfs")
    verdict.check("CPU a file", "≤ 550 µs", f"{ours['cpu_us']:.0f} µs", ours["cpu_us"] <= 550)
    times(middle["adlfs find"]["seconds"] / names["seconds"], 5, "listing in time, to adlfs find")
    times(middle["adlfs find"]["cpu_us"] / names["cpu_us"], 10, "listing in CPU, to adlfs find")
    peak = middle[MIXED]["rss_mb"]
    verdict.check("memory with 5 GB among them", f"≤ {BUDGET} MB", f"{peak:.0f} MB", peak <= BUDGET)
    verdict.check("first name listed", "< 3 s", f"{names['first']:.2f} s", names["first"] < 3)
    return verdict.end()


if __name__ == "__main__":
    sys.exit(main())
