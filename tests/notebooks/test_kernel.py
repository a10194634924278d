"""In a notebook's kernel: errors and interrupts are one line, an interrupt ends the job, and Spark says that it starts."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from jupyter_client.manager import AsyncKernelManager
from nbval.kernel import CURRENT_ENV_KERNEL_NAME, NbvalKernelspecManager

if TYPE_CHECKING:
    from jupyter_client.asynchronous.client import AsyncKernelClient

BEGIN = "import time\nimport quire\nhere = {'spark': quire.LocalRunner(), 'progress': False}"


class Kernel:
    """What runs cells, and is interrupted as by ■."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.manager = AsyncKernelManager(kernel_name=CURRENT_ENV_KERNEL_NAME, kernel_spec_manager=NbvalKernelspecManager())
        self.client = self.loop.run_until_complete(self._start())

    async def _start(self) -> AsyncKernelClient:
        await self.manager.start_kernel(extra_arguments=["--log-level=ERROR"])
        client: AsyncKernelClient = self.manager.client()
        client.start_channels()
        await client.wait_for_ready(timeout=60)
        return client

    def run(self, code: str, interrupt_at: float | None = None) -> list[str]:
        """The outputs of a cell, as text without colours; `interrupt_at` seconds after it has printed."""
        shown = list[str]()

        def see(message: dict[str, Any]) -> None:
            content = message["content"]
            text = content.get("text") or "\n".join(content.get("traceback", ())) or content.get("data", {}).get("text/plain", "")
            if text:
                shown.append(re.sub(r"\x1b\[[\d;]*m", "", text))
            if interrupt_at is not None and message["msg_type"] == "stream":
                self.loop.call_later(interrupt_at, lambda: self.loop.create_task(self.manager.interrupt_kernel()))

        self.loop.run_until_complete(self.client.execute_interactive(code, output_hook=see, timeout=200))
        return shown

    def stop(self) -> None:
        self.client.stop_channels()
        self.loop.run_until_complete(self.manager.shutdown_kernel(now=True))
        self.loop.close()


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    started = Kernel()
    started.run(BEGIN)
    yield started
    started.stop()


def test_an_error_is_one_line_and_tb_shows_the_frames(kernel: Kernel, tmp_path: Path) -> None:
    (line,) = kernel.run(f"quire.consolidate({str(tmp_path / 'inn')!r}, {str(tmp_path / 'out')!r}, **here)")
    assert re.fullmatch(r"UsageError: the source \S+/inn does not exist\. .*\(%tb shows where\)", line)
    (frames,) = kernel.run("%tb")
    assert "Cell" in frames
    assert "consolidate.py" in frames
    assert kernel.run("1 / 0")[0].count("\n") > 3  # errors of others look as ever


@pytest.mark.nth(2)
@pytest.mark.parametrize("cell", ["{}", "import asyncio\nawait asyncio.sleep(0)\n{}"])
def test_an_interrupt_is_one_line_and_ends_the_call(kernel: Kernel, tmp_path: Path, cell: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.txt").write_text("a")
    stuck = "def stuck(content, file):\n    print('begun', flush=True)\n    time.sleep(60)\n"
    call = f"quire.consolidate({str(tmp_path / 'in')!r}, {str(tmp_path / 'out')!r}, transform=stuck, function_version='1', **here)"
    began = time.monotonic()
    shown = kernel.run(stuck + cell.format(call), interrupt_at=0.2)
    assert shown == ["begun\n", "Interrupted: what was committed is safe, and the same call goes on with the rest (%tb shows where)"]
    assert time.monotonic() - began < 30
    assert kernel.run("1 + 1") == ["2"]


@pytest.mark.services
def test_spark_says_that_it_starts_and_interrupts_end_its_jobs(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.txt").write_text("a")
    stuck = "def stuck(content, file):\n    time.sleep(120)\n"
    call = f"quire.consolidate({str(tmp_path / 'in')!r}, {str(tmp_path / 'out')!r}, transform=stuck, function_version='1', progress=False)"
    kernel = Kernel()
    try:
        kernel.run(BEGIN + "\n" + stuck)
        first, then, *_ = kernel.run("spark = quire.session(master='local[2]')")
        assert first == "Starting Spark …"
        assert re.fullmatch(r"Spark started in \d+ s", then)
        assert kernel.run("quire.session()")[0].startswith("<")
        for moment in (0.05, 0.3, 1.0, 2.0, 4.0):
            shown = kernel.run(f"print('begun', flush=True)\n{call}", interrupt_at=moment)
            assert [line.partition(":")[0] for line in shown] == ["begun\n", "Interrupted"]
            assert kernel.run("len(spark.sparkContext.statusTracker().getActiveJobsIds())") == ["0"]
    finally:
        kernel.stop()
