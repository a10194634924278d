"""How Parquet files are written, beside their rows: row groups, statistics and Bloom filters, as `parquet_options=` says it.

They are of the files, and not of the rows: another call may say others, and what quire writes again it writes as the last call said.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from quire.arguments import parse_size, whole
from quire.errors import FormatError, RefusedError, UsageError, about, quoted

WORDS = ("row_group_size", "statistics", "bloom_filters")
LARGEST = 256 << 20  # bytes of rows that a writer holds for a row group
SMALLEST = 64 << 10
WRONG = 0.05  # the share of values that are not there and that a Bloom filter takes for one that is
NEW = "bloom_filter_options"  # of pyarrow's writer, from its version 26 on
CAN_FILTER = NEW in inspect.signature(pq.ParquetWriter.__init__).parameters


@dataclass(frozen=True)
class ParquetOptions:
    """The rows of a row group, or the bytes that they have in memory (0: as usual), and which columns have statistics and filters."""

    rows: int = 0
    bytes: int = 0
    statistics: bool | tuple[str, ...] = True
    bloom_filters: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        """As JSON, as `parse` takes it; "" where they are the usual ones."""
        given = {
            "row_group_size": self.rows or (f"{self.bytes} B" if self.bytes else None),
            "statistics": None if self.statistics is True else self.statistics,
            "bloom_filters": self.bloom_filters or None,
        }
        chosen = {name: value for name, value in given.items() if value is not None}
        return json.dumps(chosen, sort_keys=True) if chosen else ""

    def writer(self, first: pa.Table) -> dict[str, Any]:
        """The words of pyarrow's writer for files whose first row group holds these rows; RefusedError for columns that they lack."""
        leaves = _leaves(first.schema) if self.bloom_filters or isinstance(self.statistics, tuple) else {}
        found: dict[str, Any] = {"write_statistics": self.statistics}
        if isinstance(self.statistics, tuple):
            found["write_statistics"] = [leaf for name in self.statistics for leaf in _of(name, leaves, "statistics")]
        if self.bloom_filters:
            of = {"ndv": max(1_000, first.num_rows), "fpp": WRONG}
            found[NEW] = {leaf: of for name in self.bloom_filters for leaf in _of(name, leaves, "bloom_filters")}
            if odd := next((name for name in self.bloom_filters if pa.types.is_boolean(first.schema.field(name).type)), None):
                raise RefusedError(f"parquet_options: bloom_filters names {odd!r}, which holds true and false. Leave it out.")
        return found


def parse(given: Any) -> ParquetOptions:
    """The options that a call says, as a dictionary; UsageError for wrong ones."""
    with about("parquet_options"):
        if not isinstance(given, Mapping) or (unknown := [name for name in given if name not in WORDS]):
            what = f"not {quoted(given)}" if not isinstance(given, Mapping) else f"and not {quoted(unknown[0])}"
            raise UsageError(f"parquet_options is a dictionary of {', '.join(WORDS)}, {what}.")
        rows = size = 0
        group = given.get("row_group_size")
        if isinstance(group, str) and not group.strip().replace("_", "").isdecimal():
            size = parse_size(group, "row_group_size")
            if not SMALLEST <= size <= LARGEST:
                raise UsageError(
                    f"row_group_size={quoted(group)} is not from 64 KiB to 256 MiB, which its rows have in memory. A number alone is rows."
                )
        elif group is not None:
            rows = whole(int(group.replace("_", "")) if isinstance(group, str) else group, "row_group_size", 1, 1 << 31)
        statistics = given.get("statistics", True)
        if not isinstance(statistics, bool):
            statistics = _columns(statistics, "statistics", "True, False or ")
        filters = _columns(given.get("bloom_filters", ()), "bloom_filters")
        if filters and not CAN_FILTER:
            raise UsageError(f"bloom_filters needs pyarrow 26 or newer, and this is {pa.__version__}. Update it, or leave them out.")
    return ParquetOptions(rows, size, statistics, filters)


def stored(text: str, where: str) -> ParquetOptions:
    """The options that a log says, as JSON; FormatError for what no writer of ours has written."""
    try:
        return parse(json.loads(text)) if text else ParquetOptions()
    except (ValueError, RecursionError, UsageError) as e:
        raise FormatError(f"the log of {where} does not say how its Parquet files are written: it is damaged. Say parquet_options=.") from e


def _columns(given: Any, what: str, others: str = "") -> tuple[str, ...]:
    found = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else (None,)
    if not all(isinstance(name, str) and name for name in found):
        raise UsageError(f"{what} is {others}a list of columns, and not {quoted(given)}.")
    return tuple(dict.fromkeys(found))


def _leaves(schema: pa.Schema) -> dict[str, list[str]]:
    """The columns of a schema, each with the names that Parquet gives to its parts."""
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, schema).close()
    parts = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    found: dict[str, list[str]] = {name: [] for name in schema.names}
    for i in range(len(parts)):
        path = parts.column(i).path
        found[max((name for name in found if path == name or path.startswith(f"{name}.")), key=len)].append(path)
    return found


def _of(name: str, leaves: Mapping[str, list[str]], what: str) -> list[str]:
    if name not in leaves:
        raise RefusedError(f"parquet_options: {what} names the column {name!r}, and the rows have {', '.join(leaves)[:300]}.")
    return leaves[name]
