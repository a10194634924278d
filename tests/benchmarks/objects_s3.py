"""5 KB objects of S3 over a round trip of 140 ms: quire's reading and listing, and s3fs.

    python tests/benchmarks/objects_s3.py --files 20000

As `objects.py`, on a server of our own that speaks S3 (`bucketserver.py`). s3fs needs a botocore of its own, so it is installed once
beside this virtual environment's packages, in an environment of its own, and runs from there.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from accounts import DELAY, SIZE
from bucketserver import ETAG
from common import Result, Verdict, alternate, arguments, machine, serving, workplace
from objects import ARTICLE, quire_lists, quire_reads, shown, timed, wanted

PEER = "s3fs==2026.9.0"
CAT, GATHER, FIND = "s3fs cat", "s3fs, asynchronous, 256 at once", "s3fs find"
READ = ("quire", GATHER, CAT)
LIST = ("quire: list", FIND)
SHARE = {CAT: 40, GATHER: 4}  # of the files: the slow ways would take hours


def options(port: int) -> dict[str, Any]:
    """By the names that s3fs gave them."""
    endpoint = f"http://127.0.0.1:{port}"
    return {"key": "bench", "secret": "of-benchmarks-alone", "endpoint_url": endpoint, "client_kwargs": {"region_name": "us-east-1"}}


def peer() -> str:
    """The Python that has s3fs; it is installed if it is not there yet."""
    place = Path(sys.prefix) / f"bench-{PEER.replace('==', '-')}"
    python = place / "bin" / "python"
    if not (place / "done").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", "--no-cache-dir", "--disable-pip-version-check", PEER], check=True)
        (place / "done").touch()
    return str(python)


def measure(way: str, port: int, files: int) -> Result:
    """One way, once."""
    files = max(100, files // SHARE.get(way, 1)) if way in READ else files
    if way.startswith("quire"):
        from quire.storage import bare

        store = bare("s3://src", options(port))
        run = quire_lists(store) if way in LIST else quire_reads(store, wanted(store, ETAG, files))
    else:
        run = {CAT: s3fs_cats, GATHER: s3fs_gathers, FIND: s3fs_finds}[way](port, files)
    return timed(run, files, files * SIZE if way in READ else files)


def _s3fs(port: int, **more: Any) -> Any:
    import s3fs  # type: ignore[import-not-found]  # of the peer's environment

    return s3fs.S3FileSystem(**options(port), skip_instance_cache=True, use_listings_cache=False, **more)


def s3fs_cats(port: int, files: int) -> Iterator[float]:
    """As whoever gives fsspec a list."""
    fs = _s3fs(port)
    fs.cat_file("src/warm")
    yield 0
    found = fs.cat([f"src/b/{i:08}" for i in range(files)])
    yield time.monotonic()
    yield sum(len(data) for data in found.values())


def s3fs_gathers(port: int, files: int) -> Iterator[float]:
    """Its best: its single reads, without a look-up before each, 256 of them at once in a loop of one's own."""

    async def run(names: list[str]) -> int:
        fs = _s3fs(port, asynchronous=True, config_kwargs={"max_pool_connections": 256})
        session = await fs.set_session()
        free = asyncio.Semaphore(256)

        async def one(name: str) -> int:
            async with free:
                return len(await fs._cat_file(name, max_concurrency=1))

        try:
            return sum(await asyncio.gather(*(one(name) for name in names)))
        finally:
            await session.close()

    asyncio.run(run(["src/warm"]))
    yield 0
    found = asyncio.run(run([f"src/b/{i:08}" for i in range(files)]))
    yield time.monotonic()
    yield found


def s3fs_finds(port: int, files: int) -> Iterator[float]:
    """Everything below a prefix, as a list."""
    fs = _s3fs(port)
    fs.exists("src/warm")
    yield 0
    found = fs.find("src/b", withdirs=False)
    yield time.monotonic()
    yield len(found)


def main() -> int:
    """Run all ways alternately, and print the ratios."""
    args = arguments(
        __doc__, files={"type": int, "default": 20_000}, blobs={"type": int, "default": 100_000}, rounds={"type": int, "default": 3}
    )
    if args.way:
        job = json.loads(args.job)
        if not args.way.startswith("quire") and sys.executable != job["peer"]:
            os.execv(job["peer"], [job["peer"], __file__, *sys.argv[1:]])
        print(json.dumps(measure(args.way, job["port"], job["blobs"] if args.way in LIST else job["files"])), flush=True)
        os._exit(0)  # a loop of s3fs' own may still run
    python = peer()
    print(f"{machine()}, {PEER}; {DELAY * 1000:.0f} ms a request, {SIZE:,} bytes an object, {args.rounds} rounds")
    verdict = Verdict()
    server = serving("bucketserver.py", delay=DELAY, size=SIZE, blobs=args.blobs)
    with workplace(args.at) as place, server as port:
        found = alternate(__file__, [*READ, *LIST], args.rounds, place, port=port, files=args.files, blobs=args.blobs, peer=python)
    middle = shown(found)
    ours, names = middle["quire"], middle["quire: list"]

    def times(ratio: float, least: float, promise: str) -> None:
        verdict.check(promise, f"≥ {least:g} ×", f"{ratio:,.1f} ×", ratio >= least)

    times(ours["files_per_second"] / ARTICLE, 200, "reading, to the article's 7 files/s")
    times(ours["files_per_second"] / middle[CAT]["files_per_second"], 30, "reading, to s3fs cat")
    verdict.check("CPU a file", "≤ 550 µs", f"{ours['cpu_us']:.0f} µs", ours["cpu_us"] <= 550)
    best, find = middle[GATHER], middle[FIND]
    print(f"\nquire reads {ours['files_per_second'] / best['files_per_second']:.1f} × as fast as s3fs at its best.")
    print(
        f"It lists {find['seconds'] / names['seconds']:.1f} × as fast as s3fs find, in 1/{find['cpu_us'] / names['cpu_us']:.1f} of the CPU."
    )
    verdict.check("first name listed", "< 3 s", f"{names['first']:.2f} s", names["first"] < 3)
    return verdict.end()


if __name__ == "__main__":
    sys.exit(main())
