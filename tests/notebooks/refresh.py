"""Runs notebooks again, in place, and keeps of their outputs what is compared: `make notebooks`.

    python tests/notebooks/refresh.py [notebook …]

A cell that raises ends it with exit code 1 and one line, and leaves the notebook as it was.
"""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbval.kernel import CURRENT_ENV_KERNEL_NAME, NbvalKernelspecManager
from normal import faults, normalised, notebooks, read

CELL_TIMEOUT, START_TIMEOUT = 300, 180  # seconds, as `make test` gives nbval
AT_ONCE = 3  # kernels, as `make test` has processes


class Failed(Exception):
    """A notebook could not be refreshed, in one line."""


def refresh(path: Path) -> bool:
    """Run one notebook; True if what is kept of it is another text than before."""
    before, notebook = path.read_text("utf-8"), read(path)
    # This interpreter, whatever kernels the user has installed: the very kernel that nbval takes with --nbval-current-env
    kernel = AsyncKernelManager(kernel_name=CURRENT_ENV_KERNEL_NAME, kernel_spec_manager=NbvalKernelspecManager())
    client = NotebookClient(
        notebook, km=kernel, timeout=CELL_TIMEOUT, startup_timeout=START_TIMEOUT, record_timing=False, store_widget_state=False,
        extra_arguments=["--log-level=ERROR"], resources={"metadata": {"path": str(path.parent)}},
    )  # fmt: skip
    try:
        client.execute()
    except CellExecutionError as error:
        raise Failed(f"{path.name}: a cell raised {error.ename}: {error.evalue}") from error
    except CellTimeoutError as error:
        raise Failed(f"{path.name}: a cell took longer than {CELL_TIMEOUT} s") from error
    except DeadKernelError as error:
        raise Failed(f"{path.name}: its kernel died") from error
    text = normalised(notebook, kept=read(path))
    path.write_text(text, "utf-8")
    found = faults(read(path))
    if found:
        raise Failed("\n".join(f"{path.name}: {fault}" for fault in found))
    return text != before


def main(paths: list[str]) -> int:
    """Refresh these notebooks, or all."""
    # With it ipykernel leaves file descriptor 2 alone, as under nbval: what a JVM writes there is no output of a cell.
    os.environ.setdefault("PYTEST_CURRENT_TEST", "refresh")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return max(pool.map(refreshed, [Path(p).resolve() for p in paths] or notebooks()))


def refreshed(path: Path) -> int:
    """Refresh a notebook and say how that went; 1 if it failed."""
    began = time.monotonic()
    try:
        changed = refresh(path)
    except Failed as problem:
        print(problem, file=sys.stderr)
        return 1
    print(f"{path.name}: {'changed' if changed else 'the same'}, {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
