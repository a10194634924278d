"""A function may fork. A child that comes back from it does not go on as quire: it would write into the files that its parent has open."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from gathering import write

SCRIPT = """
import os, sys
import pyarrow as pa
import quire
from quire.sources.kafka.records import Loading

source, dest = sys.argv[1:]
codes = []


def forked(*given):
    if os.fork() == 0:
        if len(codes) % 2:
            raise ValueError("child")
        return None
    codes.append(os.waitstatus_to_exitcode(os.wait()[1]))
    return given[0]


def rows(*given):
    if os.fork() == 0:
        return
    codes.append(os.waitstatus_to_exitcode(os.wait()[1]))
    yield {"a": given[-1].decode()}


HERE = {"spark": quire.LocalRunner(), "progress": False}
batch = pa.record_batch({"value": [b"1"]})
counts = [
    quire.consolidate(source, dest + "/one", transform=forked, **HERE).files,
    quire.process(source, dest + "/two", rows, schema="a string", **HERE).files,
    Loading("parquet", function=forked).call(batch).num_rows,
]
print(counts, codes)
"""


def test_a_child_that_comes_back_from_a_function_ends_there(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {name: name.encode() for name in "abc"})
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(source), str(tmp_path / "out")],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout == f"[3, 3, 1] {[70] * 7}\n", done
    line = "quire: a process that the function has forked came back from it, and was ended: end it with os._exit()"
    assert done.stderr.splitlines() == [line] * 7
