"""The contents of log blocks: rows as Avro or Parquet, and deletes.

Source: `HoodieAvroDataBlock`, `HoodieParquetDataBlock` and `HoodieDeleteBlock` of Hudi, with Avro's encoding by fastavro.

    rows as Avro     int32: 3  int32: how many, and of each  int32: bytes  Avro
    deletes          int32: 3  int32: bytes  Avro
"""

from __future__ import annotations

import functools
import io
import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from quire.errors import FormatError, QuireError, RefusedError, scrub
from quire.formats.damage import ARROW
from quire.formats.parquet import ParquetFile
from quire.table.format import log_file, schema
from quire.table.format.log_file import Block

VERSION = 3
COMPRESSION = "zstd"
_FREE, _GROWTH = 256 << 20, 1_000  # bytes of rows that a block may mean: some, and so many for each of its own
_FEWEST, _ROWS = 1_000, 20_000  # of Parquet at a time
_INT, _TWO = struct.Struct(">i"), struct.Struct(">ii")
_ORDERINGS = (
    ("Boolean", "boolean"), ("Int", "int"), ("Long", "long"), ("Float", "float"), ("Double", "double"), ("Bytes", "bytes"),
    ("String", "string"), ("Date", "int"), ("Decimal", {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15}),
    ("TimeMicros", "long"), ("TimestampMicros", "long"),
)  # fmt: skip
_DELETES = fastavro.parse_schema(
    {
        "type": "record", "name": "HoodieDeleteRecordList", "fields": [{"name": "deleteRecordList", "type": {"type": "array", "items": {
            "type": "record", "name": "HoodieDeleteRecord", "fields": [
                {"name": "recordKey", "type": ["null", "string"]}, {"name": "partitionPath", "type": ["null", "string"]},
                {"name": "orderingVal", "type": ["null", *(
                    {"type": "record", "name": f"{name}Wrapper", "fields": [{"name": "value", "type": kind}]} for name, kind in _ORDERINGS
                )]},
            ],
        }}}],
    }
)  # fmt: skip
# What decoding damaged Avro raises: it has no class of its own.
AVRO_ERRORS = (
    EOFError, IndexError, KeyError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError, StopIteration,
    struct.error, fastavro.schema.SchemaParseException, fastavro.schema.UnknownType, *ARROW,
)  # fmt: skip


@dataclass(frozen=True)
class Delete:
    """A delete of a key: `ordering` is a value of the ordering field by the name of its type in Hudi, such as ("Long", 7)."""

    key: str
    partition: str | None
    ordering: tuple[str, Any] | None

    @property
    def always(self) -> bool:
        """Whether it takes the row whatever its ordering is: Hudi writes the number 0 for that."""
        return self.ordering is None or self.ordering == ("Int", 0)


# ------------------------------------------------------------------------------------------------------------------------- reading
def rows(block: Block, columns: Sequence[str], where: str) -> pa.Table:
    """The rows of a block, in those of the `columns` that it has, with the types that it gives them.

    FormatError where it is damaged; RefusedError where it has rows of a kind that quire does not read.
    """
    if block.kind == log_file.HFILE:
        raise RefusedError(
            f"{where} holds rows as HFile, which quire does not read: compact the table, or write its logs as Avro or Parquet."
        )
    if block.words.get(log_file.PARTIAL, "").lower() == "true":
        raise RefusedError(f"{where} holds rows with some of their columns, which quire does not read: compact the table.")
    try:
        found = _of_parquet(block, columns) if block.kind == log_file.PARQUET else _of_avro(block, columns, where)
        found.validate(full=True)
    except QuireError:
        raise
    except (*AVRO_ERRORS, OSError) as e:
        raise _damaged(where, e) from e
    return found


def deletes(block: Block, where: str) -> list[Delete]:
    """The deletes of a block; FormatError where it is damaged."""
    try:
        version, length = _TWO.unpack_from(block.content)
        if version != VERSION:
            raise ValueError(f"deletes of version {version}")
        source = io.BytesIO(block.content[8:])
        if length != len(block.content) - 8:
            raise ValueError(f"it says that its deletes have {length:,} bytes")
        read: Any = fastavro.schemaless_reader(source, _DELETES, None, return_record_name=True)
        if source.tell() != length:
            raise ValueError(f"its deletes end at byte {source.tell():,} of {length:,}")
        return [_delete(each) for each in read["deleteRecordList"]]
    except AVRO_ERRORS as e:
        raise _damaged(where, e) from e


def check(data: bytes, where: str) -> None:
    """Read all that a log file of quire's holds; FormatError where a block is damaged."""
    for block in log_file.decode(data, where):
        if block.kind == log_file.DELETES:
            deletes(block, where)
        elif block.kind in (log_file.PARQUET, log_file.AVRO):
            rows(block, check_schema(block.words.get(log_file.SCHEMA, ""), where).names, where)
        elif block.kind == log_file.CDC:
            try:
                for _ in _data(block.content, _parsed(block.words.get(log_file.SCHEMA, ""))):
                    pass
            except AVRO_ERRORS as e:
                raise _damaged(where, e) from e
        else:
            raise FormatError(f"{where} has a block of the kind {block.kind}, which quire does not write: it is damaged.")


def _delete(said: Any) -> Delete:
    key, partition, ordering = said["recordKey"], said["partitionPath"], said["orderingVal"]
    if key is None:
        raise ValueError("a delete without a key")
    return Delete(key, partition, None if ordering is None else (ordering[0].removesuffix("Wrapper"), ordering[1]["value"]))


def _of_parquet(block: Block, columns: Sequence[str]) -> pa.Table:
    file = ParquetFile(pa.BufferReader(pa.py_buffer(block.content)))
    there = file.schema_arrow
    wanted = [name for name in columns if name in there.names]
    # A value may be as long as its column, and come again in each row. Arrow aborts when it is asked for the size of a damaged column.
    widest = max((file.metadata.row_group(i).total_byte_size for i in range(file.num_row_groups)), default=0)
    step, left = max(_FEWEST, min(_ROWS, _FREE // max(1, widest))), _FREE + _GROWTH * len(block.content)
    found = list[pa.RecordBatch]()
    for batch in file.iter_batches(step, columns=wanted):
        left -= batch.nbytes
        if left < 0:
            raise ValueError("it means many times the bytes that it has")
        found.append(batch.select(wanted))
    return pa.Table.from_batches(found, pa.schema([there.field(name) for name in wanted]).remove_metadata())


def _of_avro(block: Block, columns: Sequence[str], where: str) -> pa.Table:
    if block.kind != log_file.AVRO:
        raise ValueError(f"a block of the kind {block.kind}")
    kinds, parsed = _schema(block.words.get(log_file.SCHEMA, ""), where)
    wanted = pa.schema([kinds.field(name) for name in columns if name in kinds.names])
    found = list(_data(block.content, parsed))
    return pa.table([pa.array(_values(found, f), f.type) for f in wanted], schema=wanted)


def _values(found: list[Any], of: pa.Field) -> Iterator[Any]:
    values = (each[of.name] for each in found)
    return (_as_arrow(value, of.type) for value in values) if pa.types.is_nested(of.type) else values


def _data(content: bytes | memoryview, parsed: Any) -> Iterator[Any]:
    version, count = _TWO.unpack_from(content)
    if version not in (1, 2, VERSION):
        raise ValueError(f"rows of version {version}")
    at, source = 8, io.BytesIO(content)
    for _ in range(count):
        (length,) = _INT.unpack_from(content, at)
        source.seek(at + 4)
        yield fastavro.schemaless_reader(source, parsed, None)
        at += 4 + length
        if source.tell() != at:
            raise ValueError(f"a row of {length:,} bytes ends at byte {source.tell():,}")
    if count < 0 or at != len(content):
        raise ValueError(f"{count:,} rows end at byte {at:,} of {len(content):,}")


@functools.lru_cache(8)
def _schema(text: str, where: str) -> tuple[pa.Schema, Any]:
    """The columns that a schema means, and the same for decoding: without the logical types that Arrow reads from plain numbers."""
    return check_schema(text, where), fastavro.parse_schema(_plain(json.loads(text)))


def check_schema(text: str, where: str) -> pa.Schema:
    """The columns that a schema means; FormatError for one by which few bytes mean very many values."""
    kinds = schema.from_avro(text, where)
    if any(_is_nothing(field.type) for field in kinds):
        raise FormatError(f"{where} has a list of structs without a field: any number of them has no bytes. Look who wrote it.")
    return kinds


def _is_nothing(kind: pa.DataType) -> bool:
    """Whether a list in it has values of no bytes."""
    if pa.types.is_list(kind) and _has_no_bytes(kind.value_type) and not kind.value_field.nullable:
        return True
    return any(_is_nothing(kind.field(i).type) for i in range(kind.num_fields))


def _has_no_bytes(kind: pa.DataType) -> bool:
    fields = [kind.field(i) for i in range(kind.num_fields)] if pa.types.is_struct(kind) else [None]
    return all(f is not None and not f.nullable and _has_no_bytes(f.type) for f in fields)


def _plain(avro: Any) -> Any:
    if isinstance(avro, list):
        return [_plain(each) for each in avro]
    if not isinstance(avro, dict):
        return avro
    gone = ("default", "aliases", "doc") if avro.get("logicalType") == "decimal" else ("default", "aliases", "doc", "logicalType")
    return {name: _plain(value) for name, value in avro.items() if name not in gone}


def _as_arrow(value: Any, kind: pa.DataType) -> Any:
    """A value as Arrow takes it: a map is a list of pairs."""
    if value is None or not pa.types.is_nested(kind):
        return value
    if pa.types.is_struct(kind):
        return {f.name: _as_arrow(value[f.name], f.type) for f in (kind.field(i) for i in range(kind.num_fields))}
    if pa.types.is_map(kind):
        return [(name, _as_arrow(each, kind.item_type)) for name, each in value.items()]
    return [_as_arrow(each, kind.value_type) for each in value]


def _damaged(where: str, e: Exception) -> FormatError:
    return FormatError(f"{where} has a damaged block ({type(e).__name__}: {scrub(str(e), 200)}). Restore it from a copy.")


# ------------------------------------------------------------------------------------------------------------------------- writing
def of_rows(instant: str, found: pa.Table, table: str, *, as_avro: bool = False) -> Block:
    """A block of rows with the five meta columns first, as Parquet; `as_avro`: as Avro, which takes many times as long."""
    columns = schema.without_meta(found.schema)
    avro = schema.to_avro(columns, table, meta=True)
    stored = schema.with_meta(schema.storable(columns))
    words = {log_file.INSTANT: instant, log_file.SCHEMA: avro}
    sink = io.BytesIO()
    if as_avro:
        return Block(log_file.AVRO, words, encoded(records(found.select(stored.names).cast(stored)), found.num_rows, avro))
    with pq.ParquetWriter(sink, stored, compression=COMPRESSION, store_schema=False) as writer:
        writer.write_table(found.select(stored.names).cast(stored))
    return Block(log_file.PARQUET, words, sink.getvalue())


def encoded(found: Iterable[dict[str, Any]], count: int, avro: str) -> bytes:
    """The content of a block of so many records of an Avro schema."""
    sink, parsed = io.BytesIO(), _parsed(avro)
    sink.write(_TWO.pack(VERSION, count))
    for each in found:
        record = io.BytesIO()
        fastavro.schemaless_writer(record, parsed, each)
        sink.write(_INT.pack(record.tell()) + record.getvalue())
    return sink.getvalue()


@functools.lru_cache(8)
def _parsed(avro: str) -> Any:
    """A schema for encoding rows as `records` gives them."""
    return fastavro.parse_schema(_plain(json.loads(avro)))


def records(found: pa.Table) -> Iterator[dict[str, Any]]:
    """The rows as Avro takes them: times are numbers, and a map is a dictionary."""
    plain = found.cast(pa.schema([f.with_type(_numbers(f.type)) for f in found.schema]))
    nested = [f for f in plain.schema if pa.types.is_nested(f.type)]
    for batch in plain.to_batches(max_chunksize=_FEWEST):
        for row in batch.to_pylist():
            for each in nested:
                row[each.name] = _as_avro(row[each.name], each.type)
            yield row


def _numbers(kind: pa.DataType) -> pa.DataType:
    """The type in which Avro stores times, wherever they are in it."""
    if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        return pa.int64() if pa.types.is_timestamp(kind) else pa.int32()
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(_numbers(f.type)) for f in (kind.field(i) for i in range(kind.num_fields))])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_field.with_type(_numbers(kind.item_type)))
    return pa.list_(kind.value_field.with_type(_numbers(kind.value_type))) if pa.types.is_list(kind) else kind


def _as_avro(value: Any, kind: pa.DataType) -> Any:
    """The opposite of `_as_arrow`."""
    if value is None or not pa.types.is_nested(kind):
        return value
    if pa.types.is_struct(kind):
        return {f.name: _as_avro(value[f.name], f.type) for f in (kind.field(i) for i in range(kind.num_fields))}
    if pa.types.is_map(kind):
        return {name: _as_avro(each, kind.item_type) for name, each in value}
    return [_as_avro(each, kind.value_type) for each in value]


def of_deletes(instant: str, avro: str, found: Sequence[Delete]) -> Block:
    """A block of deletes; `avro`: the schema of the table's rows with the meta fields.

    hudi-rs reads blocks of which all orderings are of one type: those that take any row have a block of their own.
    """
    said = [
        {
            "recordKey": each.key, "partitionPath": each.partition,
            "orderingVal": None if each.ordering is None else (f"{each.ordering[0]}Wrapper", {"value": each.ordering[1]}),
        } for each in found
    ]  # fmt: skip
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, _DELETES, {"deleteRecordList": said})
    return Block(log_file.DELETES, {log_file.INSTANT: instant, log_file.SCHEMA: avro}, _TWO.pack(VERSION, sink.tell()) + sink.getvalue())
