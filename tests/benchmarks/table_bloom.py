"""How many record keys a second a core adds to a bloom filter, and looks up in one: at least a million each.

    python tests/benchmarks/table_bloom.py [--keys 1000000]

Keys are random text, in no order: 20 characters, or 8 to 36. Times are
of the processor, the best of four rounds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from quire.table.format.bloom import Filter

GOAL = 1_000_000  # keys a second


def keys(count: int, shortest: int, longest: int, seed: int) -> pa.Array:
    random = np.random.default_rng(seed)
    lengths = random.integers(shortest, longest + 1, count)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    letters = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz0123456789", np.uint8)
    return pa.StringArray.from_buffers(
        count, pa.py_buffer(offsets), pa.py_buffer(letters[random.integers(0, len(letters), int(offsets[-1]))])
    )


def rate(act: Callable[[], object], count: int) -> float:
    best = 0.0
    for _ in range(4):
        began = time.process_time()
        act()
        best = max(best, count / (time.process_time() - began))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--at", help="ignored: nothing is written")
    count = parser.parse_args().keys
    slow = []
    for shortest, longest in ((20, 20), (8, 36)):
        here, others = keys(count, shortest, longest, 1), keys(count, shortest, longest, 2)
        bloom = Filter.sized(count)
        bloom.add(here)
        wrong = int(bloom.might_contain(others).sum())
        rates = {
            "built": rate(lambda here=here: Filter.sized(count).add(here), count),
            "probed, present": rate(lambda bloom=bloom, here=here: bloom.might_contain(here), count),
            "probed, absent": rate(lambda bloom=bloom, others=others: bloom.might_contain(others), count),
        }
        print(f"keys of {shortest} to {longest} characters: {wrong} false positives of {count:,}")
        for name, each in rates.items():
            print(f"  {name:16} {each / 1e6:6.2f} million a second")
            if each < GOAL:
                slow.append(f"{name} ({shortest} to {longest} characters)")
    if slow:
        raise SystemExit(f"slower than {GOAL:,} keys a second: {', '.join(slow)}")


if __name__ == "__main__":
    main()
