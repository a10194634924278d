"""The mock cluster that a notebook starts, and the loaders that it kills: really, by signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from normal import NOTEBOOKS

sys.path.append(str(NOTEBOOKS))

from mock_kafka import Mock, Record
from mock_kafka.lives import PLACES, live

START = """
import sys
from mock_kafka import Mock
cluster = Mock()
print(cluster.process.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Mock]:
    with Mock() as started:
        started.create("orders", 2)
        started.produce("orders", [Record(b"%d" % i, partition=i % 2) for i in range(500)])
        yield started


def runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    # Who has ended stays in the table until somebody asks.
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z" if Path("/proc/self/stat").exists() else True


def visible(dest: Path) -> list[bytes]:
    return [line for path in dest.glob("[!_.]*") for line in path.read_bytes().splitlines()]


def test_it_ends_with_the_kernel_however_that_ends() -> None:
    with subprocess.Popen([sys.executable, "-c", START], cwd=NOTEBOOKS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as kernel:
        assert kernel.stdout is not None
        cluster = int(kernel.stdout.readline())
        assert runs(cluster)
        kernel.send_signal(signal.SIGKILL)
        kernel.wait()
    end = time.monotonic() + 20
    while runs(cluster) and time.monotonic() < end:
        time.sleep(0.05)
    assert not runs(cluster)


def test_it_says_whether_it_runs() -> None:
    cluster = Mock()
    assert repr(cluster) == "Mock(running)"
    cluster.stop()
    assert repr(cluster) == "Mock(stopped)"
    with pytest.raises(RuntimeError, match="mock cluster is gone"):
        cluster.create("any")


def test_a_loader_is_killed_where_its_data_is_written_and_goes_on_in_another_life(cluster: Mock, tmp_path: Path) -> None:
    assert live("quire", cluster, "orders", tmp_path / "out", "before the commit") == "SIGKILL"
    assert (visible(tmp_path / "out"), len([*(tmp_path / "out/_quire/jobs").rglob("part-*")])) == ([], 1)
    assert live("quire", cluster, "orders", tmp_path / "out") == "ended"
    assert sorted(map(int, visible(tmp_path / "out"))) == [*range(500)]


def test_a_place_that_a_design_has_not_is_refused_and_what_fails_is_told(cluster: Mock, tmp_path: Path) -> None:
    assert set(PLACES) == {"acknowledged", "beside", "quire"}
    with pytest.raises(ValueError, match="beside does not die 'before the commit', but between two files or between data and offsets"):
        live("beside", cluster, "orders", tmp_path, "before the commit")
    with pytest.raises(RuntimeError, match=r"quire has failed[\s\S]*no topic 'order'[\s\S]*Did you mean 'orders'"):
        live("quire", cluster, "order", tmp_path)
