"""A loop that waits for its next run holds no memory that it does not need."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import quire
from gathering import documents, write

SOME = 16  # MB


def resident() -> float:
    """Megabytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


class Looking(threading.Event):
    """Ends a loop in its first pause, and sees how much Arrow could have given back."""

    kept = 1e9

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout == 3600
        before = resident()
        pa.default_memory_pool().release_unused()
        self.kept = before - resident()
        return True


def test_what_arrow_keeps_of_a_run_goes_back_before_the_next_one_is_waited_for(tmp_path: Path) -> None:
    numbers, looking, left = pa.table({"n": np.random.default_rng(1).random(3_000_000)}), Looking(), list[float]()

    def works(_: object) -> None:
        if not left:
            for _ in range(3):
                sink = pa.BufferOutputStream()
                pq.write_table(numbers, sink)
                pq.read_table(pa.BufferReader(sink.getvalue()), use_threads=False)
            left.append(resident())

    write(tmp_path / "in", documents(3))
    began = resident()
    quire.consolidate(
        tmp_path / "in", tmp_path / "out", every="1 h", stop=looking, spark=quire.LocalRunner(), progress=works, maintain=False
    )
    assert left[0] - began > 4 * SOME  # else there is nothing to give back
    assert looking.kept < SOME
