"""Hudi's CDC logs: the rows of one file group that a commit has changed, as JVM Hudi's CDC query reads them, in blocks of Avro.

    DATA_BEFORE_AFTER   op, ts_ms (the instant), before, after
    DATA_BEFORE         op, record_key, before
    OP_KEY_ONLY         op, record_key

Source: `HoodieCDCUtils`, `HoodieCDCLogger` and `HoodieCDCDataBlock` of Hudi.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from quire.table.format import config, log_content, log_file, schema
from quire.table.format.log_file import Block

if TYPE_CHECKING:
    import pyarrow as pa

    from quire.formats.parquet import Writable

BEFORE_AFTER, BEFORE, KEYS = config.MODES_OF_CDC
BLOCK = 16 << 20  # bytes of rows, as Arrow has them, that wait for a block


def to_avro(columns: pa.Schema, table: str, mode: str) -> str:
    """The Avro schema of a CDC log of a table with these columns."""
    text: Any = ["null", "string"]
    if mode == KEYS:
        plain = [{"name": name, "type": ["string", "null"]} for name in ("op", "record_key")]
        return json.dumps({"type": "record", "name": "Record", "fields": plain}, separators=(",", ":"))
    row = json.loads(schema.to_avro(columns, table))
    kinds = {"op": text, "ts_ms": text} if mode == BEFORE_AFTER else {"op": text, "record_key": text}
    kinds |= {"before": ["null", row]}
    kinds |= {"after": ["null", f"{row['namespace']}.{row['name']}"]} if mode == BEFORE_AFTER else {}
    fields = [{"name": name, "type": kind, "doc": "", "default": None} for name, kind in kinds.items()]
    return json.dumps({"type": "record", "name": "CDC", "namespace": row["namespace"], "fields": fields}, separators=(",", ":"))


class CdcLogWriter:
    """Writes one CDC log as a stream: the rows of a block are in memory, no more. `columns`: the table's, without the meta columns."""

    def __init__(self, sink: Writable, columns: pa.Schema, mode: str, instant: str, table: str) -> None:
        self._sink, self._columns, self._mode, self._instant = sink, schema.storable(columns), mode, instant
        self._avro = to_avro(columns, table, mode)
        self.rows = self.size = self._bytes = self._count = 0
        self._waiting: list[Iterator[dict[str, Any]]] = []

    def write(self, op: str, keys: pa.ChunkedArray, before: pa.Table | None, after: pa.Table | None) -> None:
        """Append rows that changed in one way; an image that is None is of no row."""
        self._waiting.append(self._changes(op, keys, before, after))
        self._bytes += keys.nbytes + sum(rows.nbytes for rows in (before, after) if rows is not None)
        self._count += len(keys)
        if self._bytes >= BLOCK:
            self._flush()

    def close(self) -> tuple[int, int]:
        """End the log; its bytes and rows. The sink stays open: who gave it makes it durable."""
        self._flush()
        return self.size, self.rows

    def _changes(self, op: str, keys: pa.ChunkedArray, before: pa.Table | None, after: pa.Table | None) -> Iterator[dict[str, Any]]:
        names = {BEFORE_AFTER: ("before", "after"), BEFORE: ("before",), KEYS: ()}[self._mode]
        images = {name: self._rows(rows) for name, rows in (("before", before), ("after", after)) if name in names}
        for key in itertools.chain.from_iterable(chunk.to_pylist() for chunk in keys.iterchunks()):
            said = {"op": op, "ts_ms": self._instant} if self._mode == BEFORE_AFTER else {"op": op, "record_key": key}
            yield said | {name: next(rows) for name, rows in images.items()}

    def _rows(self, rows: pa.Table | None) -> Iterator[dict[str, Any] | None]:
        return itertools.repeat(None) if rows is None else log_content.records(rows.select(self._columns.names).cast(self._columns))

    def _flush(self) -> None:
        if not self._waiting:
            return
        content = log_content.encoded(itertools.chain.from_iterable(self._waiting), self._count, self._avro)
        data = log_file.encode(Block(log_file.CDC, {log_file.INSTANT: self._instant, log_file.SCHEMA: self._avro}, content))
        self._sink.write(data)
        self.size += len(data)
        self.rows += self._count
        self._waiting, self._bytes, self._count = [], 0, 0
