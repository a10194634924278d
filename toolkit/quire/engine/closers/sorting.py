"""All rows of a job in order: the function that `sort_by=` gives to the shuffle.

Each data file is sorted, and of two files of a commit all rows of one come before those of the other. Spark sorts, and spills to disk
what its memory does not hold.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from quire.errors import FormatError, UsageError, about, quoted

_SAID = "sort_by="  # so begins what a destination says of it


@dataclass(frozen=True)
class Sorting:
    """Sorts by columns, into parts of about a data file each: `size` bytes, as the tasks have staged them, for files of `target`."""

    columns: tuple[str, ...]
    target: int
    size: int = 0

    def __call__(self, rows: Any) -> Any:
        if isinstance(rows, pa.Table):
            return rows.sort_by([(name, "ascending") for name in self.columns])
        names = [f"`{name.replace('`', '``')}`" for name in self.columns]
        return rows.repartitionByRange(max(1, -(-self.size // self.target)), *names).sortWithinPartitions(*names)

    @property
    def said(self) -> str:
        """As a destination says it."""
        return _SAID + json.dumps(self.columns, ensure_ascii=False)

    def of(self, size: int) -> Sorting:
        """The same for so many bytes."""
        return replace(self, size=size)


def sorting(columns: Any, target: int) -> Sorting:
    """The order that a call asks for; UsageError for what is not a list of columns."""
    names = (columns,) if isinstance(columns, str) else tuple(columns) if isinstance(columns, Iterable) else ()
    if not names or not all(isinstance(name, str) and name for name in names) or len(set(names)) < len(names):
        with about("sort_by"):
            raise UsageError(f"sort_by is a column or a list of columns, each once, and not {quoted(columns)}.")
    return Sorting(names, target)


def is_said(reduce: str) -> bool:
    """Whether the rows of a destination are sorted."""
    return reduce.startswith(_SAID)


def stored(reduce: str, target: int) -> Sorting:
    """The order that a destination says; FormatError for what no writer of ours has written."""
    try:
        return sorting(json.loads(reduce.removeprefix(_SAID)), target)
    except (ValueError, RecursionError, UsageError) as e:
        raise FormatError(f"the log says {reduce[:100]!r} of the order of its rows: it is damaged. Look who wrote it.") from e
