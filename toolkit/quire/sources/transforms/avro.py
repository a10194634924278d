"""Avro object files: their rows as Arrow has them. fastavro reads the records, each of which is an object of Python's for a moment.

Source: Avro's specification 1.12, object container files and schemas. Blocks are decoded here, with a bound, since a block of a few bytes
may mean any number of them.
"""

from __future__ import annotations

import bz2
import io
import json
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import fastavro
import pyarrow as pa
import zstandard
from fastavro.schema import SchemaParseException

from quire.formats.damage import ARROW
from quire.sources.transforms.columns import DEEP
from quire.sources.transforms.content import BadContent

MAGIC = b"Obj\x01"
BLOCK = 64 << 20  # decoded bytes of a block
SCHEMA = 4 << 20  # characters of a schema
MEMORY = 256 << 20  # bytes that a decoder may take
TYPES = 10_000  # of a schema, each as often as it is named
_MAP = fastavro.parse_schema({"type": "map", "values": "bytes"})
DAMAGED = (
    *ARROW, OSError, EOFError, ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError, MemoryError,
    SchemaParseException, SystemError, zlib.error, lzma.LZMAError, zstandard.ZstdError, StopIteration, AssertionError,
)  # fmt: skip


def schema_of(file: Any) -> pa.Schema:
    """The columns of a file; BadContent where it is damaged, or has a column that is not taken."""
    return _guarded(lambda: _Head(file).columns)


def table(content: bytes) -> pa.Table:
    """All rows of a file; BadContent where it is damaged."""
    return _guarded(lambda: _table(content))


def _guarded(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except DAMAGED as e:
        first = (str(e).strip().splitlines() or [type(e).__name__])[0]
        raise BadContent(f"not readable as avro ({first[:150] or type(e).__name__})") from None


def _table(content: bytes) -> pa.Table:
    file = io.BytesIO(content)
    head, batches = _Head(file), list[pa.RecordBatch]()
    kind, columns = pa.struct(list(head.columns)), head.columns
    for n, block in _blocks(file, head.codec, head.sync, len(content)):
        records = io.BytesIO(block)
        rows = pa.array([fastavro.schemaless_reader(records, head.parsed, None) for _ in range(n)], kind)
        if records.tell() < len(block):
            raise ValueError("a block holds more than its records")
        batches.append(pa.RecordBatch.from_struct_array(rows))
    return pa.Table.from_batches(batches, columns)


class _Head:
    """The beginning of a file."""

    def __init__(self, file: Any) -> None:
        if file.read(len(MAGIC)) != MAGIC:
            raise ValueError("it does not begin as an Avro file")
        said: dict[str, bytes] = fastavro.schemaless_reader(file, _MAP, None)  # type: ignore[assignment]  # of such a map
        self.sync = file.read(16)
        text, self.codec = said["avro.schema"], said.get("avro.codec", b"null").decode()
        if len(text) > SCHEMA:
            raise ValueError(f"its schema has {len(text):,} characters")
        schema = json.loads(text)
        kind = kind_of(schema)
        if not pa.types.is_struct(kind):
            raise ValueError("its records have no fields")
        self.columns = pa.schema([kind.field(i) for i in range(kind.num_fields)])
        self.parsed = fastavro.parse_schema(schema)


# -------------------------------------------------------------------------------------------------------------------------- blocks
def _blocks(file: io.BytesIO, codec: str, sync: bytes, size: int) -> Iterator[tuple[int, bytes]]:
    """How many records each block has, and its decoded bytes."""
    if codec not in _DECODERS:
        raise ValueError(f"its codec {codec[:40]!r} is none of {', '.join(_DECODERS)}")
    while file.tell() < size:
        n, length = _long(file), _long(file)
        if not 0 <= length <= size - file.tell() - len(sync) or n < 0:
            raise ValueError(f"it is cut off, or damaged, before byte {file.tell():,}")
        block = _DECODERS[codec](file.read(length))
        if len(block) > BLOCK:
            raise ValueError(f"a block of it decodes to more than {BLOCK:,} bytes: write smaller ones")
        if n > max(1, len(block)):
            raise ValueError("a block says that it has more records than bytes")
        if file.read(len(sync)) != sync:
            raise ValueError(f"it is damaged before byte {file.tell():,}")
        yield n, block


def _long(file: io.BytesIO) -> int:
    found: int = fastavro.schemaless_reader(file, "long", None)  # type: ignore[assignment]  # of such a number
    return found


def _inflated(block: bytes) -> bytes:
    return zlib.decompressobj(-15).decompress(block, BLOCK + 1)


def _unsnapped(block: bytes) -> bytes:
    import cramjam  # where it is needed: every task would start later

    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    if size > BLOCK:
        return bytes(BLOCK + 1)
    try:
        found = bytes(cramjam.snappy.decompress_raw(block[:-4]))
    except cramjam.DecompressionError as e:
        raise ValueError(str(e)) from None
    if zlib.crc32(found) != int.from_bytes(block[-4:], "big"):
        raise ValueError("the checksum of a block differs")
    return found


_DECODERS: dict[str, Callable[[bytes], bytes]] = {
    "null": lambda block: block,
    "deflate": _inflated,
    "snappy": _unsnapped,
    "zstandard": lambda block: zstandard.ZstdDecompressor(max_window_size=MEMORY).stream_reader(block).read(BLOCK + 1),
    "bzip2": lambda block: bz2.BZ2Decompressor().decompress(block, BLOCK + 1),
    "xz": lambda block: lzma.LZMADecompressor(lzma.FORMAT_AUTO, MEMORY).decompress(block, BLOCK + 1),
}


# -------------------------------------------------------------------------------------------------------------------------- schema
_PLAIN: dict[str, pa.DataType] = {
    "null": pa.null(), "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "string": pa.string(), "bytes": pa.binary(),
}  # fmt: skip
_LOGICAL: dict[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}


def kind_of(schema: Any) -> pa.DataType:
    """Arrow's type of a schema, from which logical types that have none here are taken out; ValueError where no column holds its values."""
    return _Kinds().kind(schema, "", 0)


class _Kinds:
    """Arrow's types of one schema, from which logical types that have none here are taken out; it knows the names that were given."""

    def __init__(self) -> None:
        self.named, self.left = dict[str, pa.DataType](), TYPES

    def kind(self, avro: Any, space: str, depth: int) -> pa.DataType:
        self.left -= 1
        if depth > DEEP or self.left < 0:
            raise ValueError(f"its schema has more than {DEEP} levels, or {TYPES:,} types")
        if isinstance(avro, list):
            others = [each for each in avro if each != "null"]
            if len(others) != 1:
                raise ValueError("a column is a union of several types, and no column holds these" if others else "a union has no type")
            return self.kind(others[0], space, depth)
        if isinstance(avro, str):
            if (known := _PLAIN.get(avro) or self.named.get(avro if "." in avro or not space else f"{space}.{avro}")) is None:
                raise ValueError(f"its schema names the type {avro[:80]!r}, which it has not told before: columns do not hold themselves")
            return known
        return self._complex(avro, avro["type"], space, depth)

    def _complex(self, avro: dict[str, Any], name: Any, space: str, depth: int) -> pa.DataType:
        logical = str(avro.get("logicalType", ""))
        if logical == "decimal" and name in ("bytes", "fixed"):
            found = pa.decimal128(avro["precision"], avro.get("scale", 0))
        elif isinstance(name, str) and (name, logical) in _LOGICAL:
            found = _LOGICAL[name, logical]
        else:
            avro.pop("logicalType", None)  # fastavro would make objects of it that Arrow does not know
            found = self._plain(avro, name, space, depth)
        if name in ("record", "error", "enum", "fixed"):
            self.named[_full(avro, space)] = found
        return found

    def _plain(self, avro: dict[str, Any], name: Any, space: str, depth: int) -> pa.DataType:
        match name:
            case "record" | "error":
                inner = _full(avro, space).rpartition(".")[0]
                return pa.struct([pa.field(each["name"], self.kind(each["type"], inner, depth + 1)) for each in avro["fields"]])
            case "array":
                return pa.list_(_held(self.kind(avro["items"], space, depth + 1)))
            case "map":
                return pa.map_(pa.string(), _held(self.kind(avro["values"], space, depth + 1)))
            case "enum" | "fixed":
                if name == "fixed" and not avro["size"]:
                    raise ValueError("a fixed type of it has no bytes")
                return pa.string() if name == "enum" else pa.binary()
            case _:
                return self.kind(name, space, depth + 1)


def _full(avro: dict[str, Any], space: str) -> str:
    name, own = avro["name"], avro.get("namespace", space)
    return name if "." in name or not own else f"{own}.{name}"


def _held(kind: Any) -> pa.DataType:
    """The type of the items of a list or map: one without any byte could be there any number of times."""
    of = pa.types
    if of.is_null(kind) or (of.is_struct(kind) and all(of.is_null(field.type) for field in kind)):
        raise ValueError("a list of it has items without any value")
    return kind
