"""The lab on real Spark: each fault really comes about, and what it finds is what these committers are known to do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from quire.committers import lab
from services import s3

pytestmark = [pytest.mark.services, pytest.mark.timeout(900)]


@pytest.mark.nightly
def test_v2_leaks_and_doubles_and_quire_does_neither(tmp_path: Path) -> None:
    """4,000 rows in 40 files by four tasks; three are committed when the driver dies."""
    matrix = lab.run(["v2", "quire_rename"], "driver_in_job", tmp_path, progress=False)
    assert list(tmp_path.iterdir()) == []  # what it wrote is gone
    assert {row.how for row in matrix.rows} == {"measured"}, str(matrix)
    v2, ours = (matrix.guarantees[name] for name in ("v2", "quire_rename"))
    assert (v2.hidden, v2.clean, v2.restart) == (False, False, False)
    assert (ours.hidden, ours.clean, ours.restart) == (True,) * 3
    assert [(row.early, row.left, row.doubled) for row in matrix.rows] == [(30, 30, 3000), (0, 0, 0)]


@pytest.mark.nightly
def test_v1_hides_and_doubles_v2_leaks_and_quire_does_neither() -> None:
    """Also when a task fails, and when another job writes to the same place."""
    matrix = lab.run(["v1", "v2", "quire_rename"], ["none", "task_fails", "two_jobs", "driver_in_job"], progress=False)
    assert {row.how for row in matrix.rows} == {"measured"}, str(matrix)
    v1, v2, ours = (matrix.guarantees[name] for name in ("v1", "v2", "quire_rename"))
    assert (v1.hidden, v1.clean, v1.restart) == (True, True, False)
    assert (v2.hidden, v2.clean, v2.restart) == (False, False, False)
    assert (ours.hidden, ours.clean, ours.restart, ours.concurrent, ours.visible_in_log) == (True,) * 5
    assert [matrix.row(name, "task_fails").left for name in ("v1", "v2", "quire_rename")] == [0, 30, 0]


@pytest.mark.nightly
def test_an_executor_that_dies_in_commit_task_doubles_rows_with_v2() -> None:
    """On a cluster; the second attempt writes other names, as of a partition that depends on it."""
    matrix = lab.run(["v2"], ["executor_in_commit", "speculation"], progress=False)
    assert {row.how for row in matrix.rows} == {"measured"}, str(matrix)
    row = matrix.row("v2", "executor_in_commit")
    assert row.partial
    assert row.doubled
    assert matrix.row("v2", "speculation").doubled == 0


@pytest.mark.nightly
def test_the_window_of_uploads_is_none_to_readers_of_the_log(seaweedfs: str) -> None:
    url = f"s3://{s3.BUCKET}/lab-{time.time_ns()}"
    matrix = lab.run("quire_upload", "driver_in_commit", url, storage_options=s3.options(seaweedfs), progress=False)
    assert {row.how for row in matrix.rows} == {"measured"}, str(matrix)
    row = matrix.row("quire_upload", "driver_in_commit")
    assert row.partial is not None
    assert 0 < row.partial < 800
    assert (row.partial_log, row.doubled, row.lost) == (0, 0, 0)
    assert s3.SECRET not in matrix.json


@pytest.mark.nightly
def test_costs_are_counted_on_the_wire(seaweedfs: str) -> None:
    """An upload copies nothing, whatever the number of files; its requests grow with them."""
    url = f"s3://{s3.BUCKET}/costs-{time.time_ns()}"
    found = lab.costs("quire_upload", url, storage_options=s3.options(seaweedfs), files=[5, 20], delay=0.005, progress=False)
    few, many = found.rows
    assert not few.note + many.note
    assert (few.copies, many.copies) == (0, 0)
    assert (many.requests or 0) - (few.requests or 0) >= 15 * 3  # an upload, a part, a completion
    assert (many.sent or 0) > (few.sent or 0) > 0


def test_all_processes_end_with_the_lab(tmp_path: Path) -> None:
    program = "from quire.committers import lab; lab.run('v1', 'executor_in_task', progress=False)"
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(Path(lab.__file__).parents[3])}
    with subprocess.Popen([sys.executable, "-c", program], env=environment) as process:
        end = time.monotonic() + 120
        while not list(tmp_path.glob("quire-lab-*/driver-*.log")) and time.monotonic() < end:
            time.sleep(0.1)
        time.sleep(2)
        started = [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and str(tmp_path) in _environment(int(pid))]
        assert len(started) > 1
        process.send_signal(signal.SIGKILL)
    end = time.monotonic() + 60
    while (left := [pid for pid in started if str(tmp_path) in _environment(pid)]) and time.monotonic() < end:
        time.sleep(0.2)
    assert not left


def _environment(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return ""
