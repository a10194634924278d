"""How many record keys a second a core adds to a bloom filter, and looks up in one: at least a million each. Then those of the indexes.

    python tests/benchmarks/table_bloom.py [--keys 1000000] [--files 20] [--slices 10000]

Keys are random text, in no order: 20 characters, or 8 to 36. Times of filters are of the processor, the best of four rounds. An index
is asked once for a tenth of the keys, sorted, in a partition with all of them in so many files. Last it is timed how long rows of a few
keys are tagged in a partition of many small slices, one after the other in this process.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

sys.path.append(str(Path(__file__).parents[1] / "table"))

import indexed

import quire
from quire.table import index as indexes
from quire.table.format.bloom import Filter
from quire.table.format.schema import META
from quire.table.write import tag
from quire.table.write.blocks import BlockWriter, Closing, Run, laid

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


def lookups(folder: Path, count: int, files: int) -> None:
    """Keys a second that each index finds, of keys that are all there, and that all are not."""
    stored, others = keys(count, 20, 20, 1), keys(count // 10, 20, 20, 2)
    slices = []
    for number in range(files):
        own = stored.slice(count * number // files, count // files)
        content = indexed.base_file(own.to_pylist(), indexed.group(number), rows=max(1, len(own) // 4))
        slices.append(indexed.put(folder, content, indexed.group(number)))
    there = indexed.seen(folder, slices, config=indexed.configured(indexes.settings("bucket", files)))
    for name in ("bloom", "simple", "bucket"):
        for what, some in (("present", stored.take(pa.array(np.arange(0, count, 10)))), ("absent", others)):
            wanted = some.take(pc.sort_indices(some))
            began = time.process_time()
            found = indexes.named(name).lookup(there, wanted)
            took = time.process_time() - began
            assert found.null_count == (0 if name == "bucket" or what == "present" else len(wanted))
            print(f"  {name}, {what:10} {len(wanted) / took / 1e6:6.2f} million a second")


def many(folder: Path, slices: int) -> None:
    """Seconds to tag rows whose keys are in one of many slices."""
    found = []
    for number in range(slices):
        own = [f"{number:06d}-{i}" for i in range(3)]
        rows = pa.table({**dict.fromkeys(META, own), "id": own})
        sink = pa.BufferOutputStream()
        pq.write_table(rows.replace_schema_metadata({"hoodie_min_record_key": own[0], "hoodie_max_record_key": own[-1]}), sink)
        found.append(indexed.put(folder, sink.getvalue().to_pybytes(), indexed.group(number)))
    of = Closing(f"file://{folder}", None, "1-0123456789abcdef", 7, "0123456789ab", "rename", indexed.CONFIG)
    brought = indexed.text([f"{slices // 2:06d}-{i}" for i in range(1000)])
    batch = laid(brought, pa.repeat(False, len(brought)), pa.record_batch([brought], ["id"]))
    name = of.new_block()
    writer = BlockWriter(of.store.create(name), batch.schema)
    run = Run(name, writer.add(batch), "", len(brought), 0, batch.nbytes, brought[0].as_py(), brought[-1].as_py())
    writer.close()
    began = time.perf_counter()
    tagged = tag.tag(quire.LocalRunner(), of, [run], found, "bloom")
    took = time.perf_counter() - began
    assert sum(each.rows for each in tagged if each.group == indexed.group(slices // 2)) == 3
    print(f"{len(brought):,} rows tagged in a partition of {slices:,} slices: {took:.1f} s, {took / slices * 1e3:.2f} ms a slice")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=20)
    parser.add_argument("--slices", type=int, default=10_000)
    parser.add_argument("--at", default=tempfile.gettempdir(), help="a directory on local disk; all that is written there goes at the end")
    given = parser.parse_args()
    count = given.keys
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
    print(f"{count // 10:,} keys looked up in {given.files} files of {count:,} in all")
    with tempfile.TemporaryDirectory(dir=given.at) as folder:
        lookups(Path(folder), count, given.files)
    with tempfile.TemporaryDirectory(dir=given.at) as folder:
        many(Path(folder), given.slices)
    if slow:
        raise SystemExit(f"slower than {GOAL:,} keys a second: {', '.join(slow)}")


if __name__ == "__main__":
    main()
