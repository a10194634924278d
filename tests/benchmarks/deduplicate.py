"""How fast a task tells records that are known from others, beside a window of very many keys, and with how much memory.

    python tests/benchmarks/deduplicate.py [--keys 100000000] [--records 5000000] [--at /data/scratch]

The window lies on a disk as a checkpoint leaves it. Batches are as large as those that a load makes of a topic, and go through all that a
deduplicated load does with them beside a plain one (`Kept`): fingerprints, the window, what the task has kept itself, and its object.
Each share of known records is measured in a process of its own, which reads the window first, as the first task of a worker does.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import xxhash

from quire.commit.checkpoints import KeyRun
from quire.coverage import keys
from quire.coverage.uncovered import Uncovered
from quire.engine.kinds.distinct import Kept
from quire.engine.tally import Tally
from quire.formats.parquet import RECORDS
from quire.sources.kafka.offsets import ROWS
from quire.sources.kafka.records import Loading
from quire.storage import connect

PIECES = 64
NAMED = 2_000_000  # keys of the window of which some come again
NOON = 1_790_000_000_000
DAY = 86_400_000


def window(folder: Path, n: int) -> list[KeyRun]:
    """So many keys in objects by ranges of fingerprints: b"key 0", b"key 1", … to `NAMED`, and numbers at random, which hashes are like."""
    store, runs = connect(f"file://{folder}", None), list[KeyRun]()
    print(f"{n:,} keys …", file=sys.stderr)
    digests = np.random.default_rng(5).integers(0, 1 << 64, (n, 2), np.uint64)
    named = b"".join(xxhash.xxh3_128_digest(b"key %d" % i) for i in range(min(n, NAMED)))
    digests[:NAMED] = np.frombuffer(named, ">u8").reshape(-1, 2)
    piece = (digests[:, 0] >> np.uint64(58)).astype(np.uint8)
    for number in range(PIECES):
        mine = np.flatnonzero(piece == number)
        rows = np.zeros(len(mine), keys.ROW)
        rows["high"], rows["low"], rows["at"], rows["offset"] = digests[mine, 0], digests[mine, 1], NOON, mine
        name = f"_quire/ledger/{1:020d}-{'a' * 12}-{number}.keys"
        keys.put(store, name, keys.sorted_rows([rows]), [("kafka://c/topic/0", "id")])
        runs.append(KeyRun(name, len(rows), "key", NOON, 1, NOON))
    return runs


class Plain:
    """In the place of a load's output, which a plain load has, too: nothing is made of records."""

    def made(self, records: pa.RecordBatch) -> tuple[list[Any], list[Any]]:
        return [], []


def attempt(folder: Path) -> Any:
    """What `Kept` needs of one."""
    head = SimpleNamespace(job=f"7-{'b' * 16}")
    return SimpleNamespace(
        store=connect(f"file://{folder}", None), tally=Tally(), work=SimpleNamespace(head=head), task=0, id=uuid.uuid4().hex[:12]
    )


def measured(folder: Path, runs: list[KeyRun], n: int, known: float) -> dict[str, float]:
    """Of records of which a share is known."""
    what = keys.Window("key", DAY, tuple(runs), Uncovered())
    total = min(NAMED, sum(run.count for run in runs))
    began = time.perf_counter()
    mine = attempt(folder)
    kept, loading = Kept(mine, what), cast("Loading", Plain())
    kept.of("kafka://c/topic/0", "id")
    opened, took, cpu = time.perf_counter() - began, 0.0, 0.0
    rng = np.random.default_rng(7)
    for at in range(0, n, ROWS):
        size = min(ROWS, n - at)
        again, which = rng.random(size) < known, rng.integers(0, total, size)
        named = [b"key %d" % (which[i] if again[i] else total + at + i) for i in range(size)]
        batch = pa.RecordBatch.from_pydict({
            "key": named, "value": [b""] * size, "headers": [None] * size, "topic": ["t"] * size, "partition": [0] * size,
            "offset": range(at, at + size), "timestamp": pa.array([NOON * 1000] * size, pa.timestamp("us", "UTC")),
            "timestamp_type": ["create"] * size,
        }, schema=RECORDS)  # fmt: skip
        del named
        began, busy = time.perf_counter(), time.process_time()
        kept.made(loading, batch)
        took, cpu = took + time.perf_counter() - began, cpu + time.process_time() - busy
    began, busy = time.perf_counter(), time.process_time()
    found = kept.finish()
    took, cpu = took + time.perf_counter() - began, cpu + time.process_time() - busy
    assert found is not None
    assert found.count + mine.tally.duplicates == n
    # `ru_maxrss` begins with that of the process which has started this one.
    peak = 1024 * next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return {
        "known": known, "left out": mine.tally.duplicates, "opened": opened, "took": took, "per second": n / took, "per core": n / cpu,
        "peak": peak,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=100_000_000)
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--at", type=Path, help="a directory on the disk that is measured")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        runs = [KeyRun(*run) for run in json.loads((Path(given.one[0]) / "runs").read_text())]
        print(json.dumps(measured(Path(given.one[0]), runs, given.records, float(given.one[1]))))
        return
    folder = Path(tempfile.mkdtemp(dir=given.at))
    try:
        runs = window(folder, given.keys)
        (folder / "runs").write_text(json.dumps([[getattr(run, name) for name in KeyRun.__struct_fields__] for run in runs]))
        size = sum(path.stat().st_size for path in folder.rglob("*.keys"))
        print(f"a window of {given.keys:,} keys ({size / 1e9:.1f} GB on the disk), {given.records:,} records\n")
        print(
            "| known | left out | window read | records a second | records a second of CPU | peak memory |\n"
            "|-------|----------|-------------|------------------|-------------------------|-------------|"
        )
        for known in ("0", "0.001", "0.01", "0.1"):
            line = [sys.executable, __file__, "--records", str(given.records), "--one", str(folder), known]
            found = json.loads(subprocess.run(line, check=True, capture_output=True, text=True).stdout)
            print(f"| {float(known):.1%} | {found['left out']:,} | {found['opened']:.1f} s | {found['per second']:,.0f} "
                  f"| {found['per core']:,.0f} | {found['peak'] / 2**20:,.0f} MiB |", flush=True)  # fmt: skip
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
