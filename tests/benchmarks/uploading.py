"""Uploads of a large data file, 5 ms and 140 ms an answer: quire, obstore, and for S3 `rclone copy`.

    python tests/benchmarks/uploading.py
    python tests/benchmarks/uploading.py --azure --rounds 5
    python tests/benchmarks/uploading.py --peers quire       # without the others

The bytes are random. quire gets them as its tasks give them, 256 KiB at a time, and sends them in blocks or parts of 8 MiB; rclone and
obstore read them from a file in the page cache, in pieces as long. The processor time is that of all of a way's processes and of none of
the server's, which takes its share of the same cores and keeps no body. obstore is installed beside this environment (see `region.py`).
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

from accounts import account
from common import Result, Verdict, alternate, arguments, cpu_seconds, listed, machine, median, serving, table, workplace
from objects_s3 import options
from region import PEERS, peers, rclone

DELAYS = (0.005, 0.14)  # seconds before an answer
QUIRE, COPY, OB = "quire", "rclone copy", "obstore"
PIECE, GIVEN = 8 << 20, 256 << 10  # bytes of a block or part, and of what is written at once


def measure(way: str, job: dict[str, Any]) -> Result:
    """One way, once: the processor time from its first byte on, that of rclone from its start on."""
    source, size = Path(job["source"]), job["mib"] << 20
    started, cpu = time.monotonic(), cpu_seconds()
    if way == QUIRE:
        started, cpu, store = uploaded(job, source)
    elif way == COPY:
        sizes = ["--s3-chunk-size", "8Mi", "--s3-upload-concurrency", "16", "--s3-upload-cutoff", "16Mi"]
        command = ["rclone", "copyto", str(source), "bench:out/big", "--ignore-checksum", "--no-check-dest", "-q", "--config", "/dev/null"]
        subprocess.run([*command, *sizes, "--s3-no-check-bucket", "--s3-no-head"], env=rclone(job["given"]), check=True)
    else:
        started, cpu = put(job, source)
    took, used = time.monotonic() - started, cpu_seconds() - cpu
    if way == QUIRE:
        assert store.stat("big").size == size
    return {"seconds": round(took, 2), "mib_per_second": round(size / took / (1 << 20)), "cpu_ms": round(used / job["mib"] * 1000, 2)}


def uploaded(job: dict[str, Any], source: Path) -> tuple[float, float, Any]:
    """By quire: when it began, the processor time until then, and the store."""
    from quire.storage import bare

    store, data = bare(job["url"].replace("src", "out"), job["given"]), memoryview(source.read_bytes())
    store.put("warm", b"x")
    began = time.monotonic(), cpu_seconds()
    sink = store.create("big")
    for start in range(0, len(data), GIVEN):
        sink.write(data[start : start + GIVEN])
    sink.close()
    return *began, store


def put(job: dict[str, Any], source: Path) -> tuple[float, float]:
    """By obstore."""
    import obstore  # type: ignore[import-not-found]  # of the peers' environment
    from region import obstore_at

    store = obstore_at(job["given"], "out")
    obstore.put(store, "warm", b"x")
    began = time.monotonic(), cpu_seconds()
    obstore.put(store, "big", source, use_multipart=True, chunk_size=PIECE, max_concurrency=16)
    return began


def main() -> int:
    """Run all ways alternately at each delay, and print the ratios."""
    args = arguments(
        __doc__,
        mib={"type": int, "default": 256},
        rounds={"type": int, "default": 5},
        azure={"action": "store_true"},
        peers={"choices": ("all", "quire"), "default": "all"},
    )
    if args.way:
        job = json.loads(args.job)
        if args.way == OB and Path(sys.prefix).name != "bench-region":
            os.execv(job["python"], [job["python"], __file__, *sys.argv[1:]])
        print(json.dumps(measure(args.way, job)), flush=True)
        return 0
    others = args.peers == "all"
    python = peers() if others else sys.executable
    # Not every rclone reaches an account of Azure at an address of its own.
    ways = [QUIRE, *[COPY] * bool(others and shutil.which("rclone") and not args.azure), *[OB] * others]
    print(f"{machine()}; {PEERS[0] if others else 'no peers'}; {args.mib} MiB, {'Azure' if args.azure else 'S3'}", flush=True)
    verdict = Verdict()
    with workplace(args.at) as at:
        source = at / "source"
        source.write_bytes(os.urandom(args.mib << 20))
        for delay in DELAYS:
            job: dict[str, Any] = {"source": str(source), "mib": args.mib, "python": python}
            print(f"\n{delay * 1000:.0f} ms an answer", flush=True)
            if args.azure:
                with account(1, azurite=False, delay=delay) as (string, _):
                    found = alternate(__file__, ways, args.rounds, at, url="abfs://src", given={"connection_string": string}, **job)
            else:
                with serving("bucketserver.py", delay=delay) as port:
                    found = alternate(__file__, ways, args.rounds, at, url="s3://src", given=options(port), **job)
            middle = {way: {key: median([r[key] for r in results]) for key in results[0]} for way, results in found.items()}
            rows = [
                [way, f"{m['mib_per_second']:,.0f}", listed([r["mib_per_second"] for r in found[way]]), f"{m['cpu_ms']:.2f}"]
                for way, m in middle.items()
            ]
            print("\n" + table(["way", "MiB/s", "rounds", "CPU ms a MiB"], rows))
            for way in ways[1:]:
                ratio = middle[QUIRE]["mib_per_second"] / middle[way]["mib_per_second"]
                verdict.check(f"{delay * 1000:.0f} ms: × {way}", "≥ 1.0", f"{ratio:.2f}", ratio >= 1)
    return verdict.end()


if __name__ == "__main__":
    sys.exit(main())
