"""The Azurite that a notebook starts: it leaves nothing behind, and can be put far away."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from azure.storage.blob import ContainerClient
from normal import NOTEBOOKS

START = """
import sys
from azurite import Azurite
azurite = Azurite()
print(azurite.connection_string, azurite.far(0.2), flush=True)
sys.stdin.read()
"""
AWAY = 0.2  # seconds


@pytest.fixture
def started(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """A process like a notebook's kernel, with the connection strings of its Azurite: near and far."""
    command, around = [sys.executable, "-c", START], {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, cwd=NOTEBOOKS, env=around, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as kernel:
        assert kernel.stdout is not None
        near, far = kernel.stdout.readline().split()
        yield kernel, near, far
        kernel.kill()


def listens(string: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(re.findall(r"127.0.0.1:(\d+)", string)[0]))) == 0


def test_it_ends_with_the_kernel_however_that_ends_and_leaves_nothing(
    started: tuple[subprocess.Popen[str], str, str], tmp_path: Path
) -> None:
    kernel, near, far = started
    assert listens(near)
    assert listens(far)
    assert list(tmp_path.iterdir())
    kernel.kill()
    end = time.monotonic() + 20
    while (listens(near) or listens(far) or list(tmp_path.iterdir())) and time.monotonic() < end:
        time.sleep(0.1)
    assert not listens(near)
    assert not listens(far)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.seldom
def test_far_away_each_answer_comes_later_and_many_come_at_once(started: tuple[subprocess.Popen[str], str, str]) -> None:
    _, near, far = started
    content = os.urandom(1 << 20)

    def ask(number: int = 0) -> float:
        began = time.monotonic()
        assert container.download_blob(f"{number}").readall() == content
        return time.monotonic() - began

    with ContainerClient.from_connection_string(near, "tests") as container:
        container.create_container()
        for number in range(20):
            container.upload_blob(f"{number}", content)
    with ContainerClient.from_connection_string(far, "tests") as container, ThreadPoolExecutor(20) as pool:
        assert ask() >= AWAY
        began = time.monotonic()
        assert min(pool.map(ask, range(20))) >= AWAY
        assert time.monotonic() - began < 20 * AWAY
