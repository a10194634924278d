"""Base files: Parquet with five meta columns first, and what an index reads of a file in its footer.

Source: Hudi's storage format, `HoodieAvroWriteSupport` and `HoodieBloomFilterWriteSupport`, for the keys of the footer; Parquet as pyarrow
writes it for readers of any kind, without Arrow's own schema.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from quire.errors import FormatError
from quire.formats import dictionaries
from quire.formats.damage import ARROW
from quire.formats.parquet import ParquetFile, SinkFile, Writable
from quire.table.format import bloom, schema
from quire.table.format.names import BaseFile

GROUP = 32 << 20  # bytes of rows, as Arrow has them, in a row group
LARGEST_FOOTER = 64 << 20
COMPRESSION = "zstd"
TIME, SEQNO, KEY, PARTITION, NAME = schema.META
_BLOOM, _KIND = "org.apache.hudi.bloomfilter", "hoodie_bloom_filter_type_code"
_MIN, _MAX, _AVRO, _MODEL = "hoodie_min_record_key", "hoodie_max_record_key", "parquet.avro.schema", "writer.model.name"
_LAYOUT = "quire.layout"  # how a clustering has sorted the rows
_MAGIC = (b"PAR1", b"PARE")


class BaseFileWriter:
    """Writes one base file as a stream: a row group's rows are in memory, no more.

    `columns` are those of `schema.storable`, without meta columns; `table` names Avro's record. Rows come sorted by key, which nothing here
    checks, or as a layout says. Without `filter_holds_keys` each key that is written is added to `keys_filter`.

        writer = BaseFileWriter(sink, name, "city=sf", columns, table="trips", keys_filter=bloom.Filter.sized(rows))
        writer.write(rows, keys)                        # rows of this commit
        writer.write(kept, kept_keys, times, seqnos)    # rows that an earlier commit wrote keep its time and number
        size, rows = writer.close()
    """

    def __init__(
        self, sink: Writable, name: BaseFile, partition: str, columns: pa.Schema, *, table: str, keys_filter: bloom.Filter,
        filter_holds_keys: bool = False, group: int = GROUP,
    ) -> None:  # fmt: skip
        self.name, self.partition, self.columns, self.group = name, partition, schema.storable(columns), group
        self.filter, self._holds = keys_filter, filter_holds_keys
        self._schema = schema.with_meta(self.columns)
        self._avro = schema.to_avro(self.columns, table, meta=True)
        self._file = SinkFile(sink)
        self._opened: pq.ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = self.rows = 0
        self.min_key: str | None = None
        self.max_key: str | None = None

    def write(self, rows: pa.RecordBatch, keys: pa.Array, times: pa.Array | None = None, seqnos: pa.Array | None = None) -> None:
        """Append rows with their keys. Where `times` is null or not given, a row is one of this commit.

        Other types than the file's are cast; Arrow's error says where that would lose something.
        """
        if len(keys) != rows.num_rows or keys.null_count:
            raise ValueError(f"{rows.num_rows:,} rows have {len(keys) - keys.null_count:,} keys")
        if not rows.num_rows:
            return
        if not self._holds:
            self.filter.add(keys)
        least, most = pc.min_max(keys).as_py().values()  # by the bytes of UTF-8
        self.min_key = least if self.min_key is None else min(self.min_key, least, key=str.encode)
        self.max_key = most if self.max_key is None else max(self.max_key, most, key=str.encode)
        whole = self._with_meta(rows, keys, times, seqnos)
        self.rows += rows.num_rows
        for part in _parts(whole, self.group):
            self._waiting.append(part)
            self._bytes += part.nbytes
            if self._bytes >= self.group:
                self._flush()

    def close(self, layout: str = "") -> tuple[int, int]:
        """End the file, which says how it is sorted, unless by key; its bytes and rows. The sink stays open: its giver makes it durable."""
        self._flush()
        footer = {_AVRO: self._avro, _MODEL: "avro", _BLOOM: self.filter.serialise(), _KIND: self.filter.kind}
        if self.min_key is not None and self.max_key is not None:
            footer |= {_MIN: self.min_key, _MAX: self.max_key}
        if layout:
            footer[_LAYOUT] = layout
        writer = self._writer(self._schema.empty_table())
        writer.add_key_value_metadata(footer)
        writer.close()
        return self._file.at, self.rows

    def stop(self) -> None:
        """Write nothing more, also when the writer is collected, as pyarrow's ends its file then."""
        self._file.given_up = True

    def _with_meta(self, rows: pa.RecordBatch, keys: pa.Array, times: pa.Array | None, seqnos: pa.Array | None) -> pa.RecordBatch:
        number = pa.array(np.arange(self.rows, self.rows + rows.num_rows)).cast(pa.string())
        ours = pc.binary_join_element_wise(f"{self.name.instant}_{self.name.token.partition('-')[0]}", number, "_")
        one = pa.scalar(self.name.instant)
        meta = [
            pa.repeat(one, rows.num_rows) if times is None else pc.fill_null(times, one),
            ours if times is None or seqnos is None else pc.if_else(pc.is_null(times), ours, seqnos),
            keys, pa.repeat(pa.scalar(self.partition), rows.num_rows), pa.repeat(pa.scalar(self.name.name), rows.num_rows),
        ]  # fmt: skip
        data = [rows.column(each.name) for each in self.columns]
        data = [a if a.type.equals(f.type, check_metadata=True) else a.cast(f.type) for a, f in zip(data, self.columns, strict=True)]
        return pa.record_batch([a.cast(pa.string()) for a in meta] + data, schema=self._schema)

    def _flush(self) -> None:
        if self._waiting:
            rows = pa.Table.from_batches(self._waiting)
            self._writer(rows).write_table(rows, row_group_size=rows.num_rows)
            self._waiting, self._bytes = [], 0

    def _writer(self, first: pa.Table) -> pq.ParquetWriter:
        """The file, begun by its first rows."""
        if self._opened is None:
            self._opened = pq.ParquetWriter(
                self._file, self._schema, compression=COMPRESSION, use_dictionary=dictionaries.worth(first), store_schema=False
            )
        return self._opened


def _parts(rows: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    """Rows in pieces of about so many bytes."""
    step = max(1, rows.num_rows * most // max(1, rows.nbytes))
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)


# ------------------------------------------------------------------------------------------------------------------------ reading
@dataclass(frozen=True)
class Footer:
    """The words of a base file about itself; a file of a table without meta fields says neither keys nor a filter."""

    where: str
    rows: int
    columns: pa.Schema = field(repr=False)  # with the meta columns, as Parquet has them
    min_key: str | None
    max_key: str | None
    avro: str | None = field(repr=False)
    filter_text: str | None = field(repr=False)
    filter_kind: str | None
    layout: str | None = None  # how a clustering has sorted its rows

    def keys_filter(self) -> bloom.Filter | None:
        """Its bloom filter; None: it has none. FormatError where it is damaged."""
        return None if self.filter_text is None else bloom.parse(self.filter_text, self.filter_kind or bloom.SIMPLE, self.where)

    @property
    def has_meta(self) -> bool:
        """Whether the five meta columns are there, in their order and as text."""
        return self.columns.names[: len(schema.META)] == list(schema.META) and all(
            pa.types.is_string(kind) for kind in self.columns.types[: len(schema.META)]
        )


def open_base_file(source: Any, where: str) -> ParquetFile:
    """A base file as Parquet, read in the calling thread; FormatError where its footer is damaged or far too long.

    `source`: bytes, or a file that can seek, such as `formats.parquet.stored` gives.
    """
    file = io.BytesIO(source) if isinstance(source, bytes) else source
    size = file.seek(0, io.SEEK_END)
    file.seek(max(0, size - 8))
    tail = file.read(8)
    length = int.from_bytes(tail[:4], "little")
    if size < 12 or tail[4:] not in _MAGIC or length > size - 12:
        raise FormatError(f"{where} is damaged: it does not end as a Parquet file does. Restore it from a copy.")
    if length > LARGEST_FOOTER:
        raise FormatError(f"{where} has a footer of {length:,} bytes, and one has {LARGEST_FOOTER:,} at most: look who wrote it")
    file.seek(0)
    try:
        return ParquetFile(file)
    except (*ARROW, OSError, ValueError, KeyError, TypeError) as e:
        raise FormatError(f"{where} is damaged: its footer cannot be read ({type(e).__name__}). Restore it from a copy.") from e


def read_footer(source: Any, where: str) -> Footer:
    """The footer of a base file; FormatError where it is damaged, or says what cannot be."""
    return footer_of(open_base_file(source, where), where)


def footer_of(file: ParquetFile, where: str) -> Footer:
    """The same of a file that is open."""
    try:
        metadata, rows, columns = file.metadata.metadata or {}, file.metadata.num_rows, file.schema_arrow.remove_metadata()
        said = {name: metadata[name.encode()].decode() for name in (_BLOOM, _KIND, _MIN, _MAX, _AVRO, _LAYOUT) if name.encode() in metadata}
        groups = sum(file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups))
    except (*ARROW, OSError, ValueError, KeyError, TypeError) as e:
        raise FormatError(f"{where} is damaged: its footer cannot be read ({type(e).__name__}). Restore it from a copy.") from e
    least, most = said.get(_MIN), said.get(_MAX)
    if rows < 0 or rows != groups:
        raise FormatError(f"{where} is damaged: it says {rows:,} rows, and its row groups {groups:,}. Restore it from a copy.")
    if (least is None) != (most is None) or (least is not None and most is not None and least.encode() > most.encode()):
        raise FormatError(f"{where} is damaged: its keys are from {str(least)[:80]!r} to {str(most)[:80]!r}. Restore it from a copy.")
    return Footer(
        where=where, rows=rows, columns=columns, min_key=least, max_key=most, avro=said.get(_AVRO), filter_text=said.get(_BLOOM),
        filter_kind=said.get(_KIND), layout=said.get(_LAYOUT),
    )  # fmt: skip
