"""Change files: the rows of one file group that a commit has changed, as they were before and as they are after.

They are quire's own, in Parquet: `op` (i, u, d: inserted, updated, deleted), `key`, and the images `before` and `after`, structs of the
table's columns, null where the row was not there.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from quire.formats.parquet import SinkFile, Writable
from quire.table.format.base_file import COMPRESSION, GROUP

INSERT, UPDATE, DELETE = "i", "u", "d"
OP, CHANGED_KEY, BEFORE, AFTER = "op", "key", "before", "after"
_of = pa.types


def image(columns: pa.Schema) -> pa.DataType:
    """A row that may not be there, so that each of its values may be missing."""
    return _optional(pa.struct(list(columns)))


def rows_schema(columns: pa.Schema) -> pa.Schema:
    """The columns of a change file."""
    return pa.schema([(OP, pa.string()), (CHANGED_KEY, pa.string()), (BEFORE, image(columns)), (AFTER, image(columns))])


class ChangeFileWriter:
    """Writes one change file as a stream: a row group's rows are in memory, no more. `columns`: the table's."""

    def __init__(self, sink: Writable, columns: pa.Schema) -> None:
        self._schema, self._file, self.rows = rows_schema(columns), SinkFile(sink), 0
        self._writer = pq.ParquetWriter(self._file, self._schema, compression=COMPRESSION, store_schema=False)
        self._waiting: list[pa.Table] = []
        self._bytes = 0

    def write(self, op: str, keys: pa.ChunkedArray, before: pa.Table | None, after: pa.Table | None) -> None:
        """Append rows that changed in one way; an image that is None is of no row."""
        images = [as_image(rows, len(keys), self._schema.field(name).type) for name, rows in ((BEFORE, before), (AFTER, after))]
        self._waiting.append(pa.table([pa.repeat(pa.scalar(op), len(keys)), keys, *images], schema=self._schema))
        self._bytes += self._waiting[-1].nbytes
        self.rows += len(keys)
        if self._bytes >= GROUP:
            self._flush()

    def close(self) -> tuple[int, int]:
        """End the file; its bytes and rows. The sink stays open: who gave it makes it durable."""
        self._flush()
        self._writer.close()
        return self._file.at, self.rows

    def stop(self) -> None:
        """Write nothing more, also when the writer is collected."""
        self._file.given_up = True

    def _flush(self) -> None:
        if self._waiting:
            whole = pa.concat_tables(self._waiting)
            self._writer.write_table(whole, row_group_size=whole.num_rows)
            self._waiting, self._bytes = [], 0


def as_image(rows: pa.Table | None, n: int, kind: pa.DataType) -> Any:
    """Rows as structs of a kind; None: n that are not there."""
    if rows is None:
        return pa.nulls(n, kind)
    fields = [kind.field(i) for i in range(kind.num_fields)]
    cast = rows.select([field.name for field in fields]).cast(pa.schema(fields))
    return pa.chunked_array([batch.to_struct_array().cast(kind) for batch in cast.to_batches()], kind)  # of a table without rows, too


def _optional(kind: Any) -> pa.DataType:
    """The same type where every value within may be missing: within a row that is not there all are."""
    if _of.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return pa.struct([pa.field(f.name, _optional(f.type)) for f in fields])
    if _of.is_list(kind):
        return pa.list_(pa.field("element", _optional(kind.value_type)))
    if _of.is_map(kind):
        return pa.map_(kind.key_type, pa.field("value", _optional(kind.item_type)))
    return kind
