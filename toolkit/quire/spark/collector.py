"""Python's cyclic garbage collector, kept from going through objects that are in no cycle again and again."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_known = 0  # modules that were there when a worker's objects were set aside


@contextmanager
def without_collector() -> Iterator[None]:
    """Keep it from going through millions of rows: worth a fifth of the time of a task that copies small files.

    Not for functions of users', whose objects may be in cycles.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def settle() -> None:
    """Set aside what lives in a worker of Spark's at the end of a task: functions and classes of modules, nearly all of it.

    Spark's worker collects after each task, and goes through all of that each time: 30 ms a task, more than many tasks take. Modules that
    come with a later task are set aside at its end, so nothing grows. Objects in no cycle go as ever.
    """
    global _known  # noqa: PLW0603 - it is the process that has modules
    if len(sys.modules) != _known:
        gc.collect()
        gc.freeze()
        _known = len(sys.modules)
