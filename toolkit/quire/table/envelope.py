"""A change as a record of Kafka: its key and its value in Debezium's envelope, in JSON.

The forms of values are those of Debezium's JSON converter without schemas, with decimals as text, times in ISO 8601 and bytes in base64.
Source: Debezium's documentation of change events, "Change event values".
"""

from __future__ import annotations

import datetime as dt
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from quire.table.changes import INSTANT, PARTITION
from quire.table.format.change_file import AFTER, BEFORE, DELETE, INSERT, OP, UPDATE
from quire.table.reading import as_python

CONNECTOR = "quire"
READ = "r"  # the op of a row of the first snapshot
_OPS = {INSERT: "c", UPDATE: "u", DELETE: "d"}
_encoder = msgspec.json.Encoder()  # built here: two threads at its first use would end the process


class Message(NamedTuple):
    """A record as it is produced; a `value` of None is a tombstone."""

    key: bytes
    value: bytes | None


class Envelope(NamedTuple):
    """The way in which the changes of a table become records.

    table        its name, in `source`
    key          the columns that the key of a record has
    snapshot     the rows are those that were there first, and not changes
    tombstones   a record without a value follows a delete, so that a compacted topic forgets the key
    """

    table: str
    key: tuple[str, ...]
    snapshot: bool = False
    tombstones: bool = False

    def messages(self, batch: pa.RecordBatch) -> Iterator[Message]:
        """The records of some changes, which have both images, in their order."""
        form = _plain if _floats(batch.schema.field(AFTER).type) else _as_it_is
        names = (OP, INSTANT, PARTITION, BEFORE, AFTER)
        columns = (as_python(batch.column(name), self.table) for name in names)
        for op, instant, partition, was, becomes in zip(*columns, strict=True):
            before, after = form(was), form(becomes)
            row = before if after is None else after
            key = _encoder.encode({name: row[name] for name in self.key})
            value = {
                "before": before, "after": after,
                "source": {
                    "connector": CONNECTOR, "name": CONNECTOR, "table": self.table, "partition": partition, "instant": instant,
                    "ts_ms": millis(instant), "snapshot": "true" if self.snapshot else "false",
                },
                "op": READ if self.snapshot else _OPS[op], "ts_ms": time.time_ns() // 1_000_000,
            }  # fmt: skip
            yield Message(key, _encoder.encode(value))
            if self.tombstones and op == DELETE:
                yield Message(key, None)


def millis(instant: str) -> int:
    """An instant (UTC) in milliseconds since 1970."""
    at = dt.datetime.strptime(instant[:14], "%Y%m%d%H%M%S").replace(tzinfo=dt.UTC)
    return int(at.timestamp()) * 1000 + int(instant[14:17] or 0)


def keys_of(columns: pa.Schema, wanted: Sequence[str]) -> tuple[str, ...]:
    """Those of some columns that the rows have."""
    return tuple(name for name in wanted if name in columns.names)


def _as_it_is(value: Any) -> Any:
    return value


def _floats(kind: pa.DataType) -> bool:
    """Whether there are numbers in such values that JSON may not have."""
    if pa.types.is_floating(kind):
        return True
    return any(_floats(kind.field(i).type) for i in range(kind.num_fields))


def _plain(value: Any) -> Any:
    """A value without a number that JSON does not have: it is the text that JavaScript and Debezium have for it."""
    if isinstance(value, float):
        return value if math.isfinite(value) else "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
