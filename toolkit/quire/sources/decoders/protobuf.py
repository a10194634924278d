"""Protobuf's messages, by a descriptor that a registry gives as text, or the user as a compiled descriptor set.

    int32, sint32, sfixed32   int              enum                its value's name (a number that has none: the number as text)
    int64, sint64, sfixed64   bigint           message             struct; an empty one: boolean, true where it is there
    uint32, fixed32           bigint           repeated, map       array, map
    uint64, fixed64           decimal(20, 0)   Timestamp           timestamp, to the microsecond
    float, double, bool       the same         Int32Value, …       the type that they wrap
    string, bytes             string, binary   Struct, Value, …    JSON as text

A field with presence (`optional`, a member of a oneof, a message, all of proto2) is null where it is not there; any other is its default.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from quire.errors import UsageError, about, choose
from quire.sources.decoders import protoc
from quire.sources.decoders.base import Decoder, Form
from quire.sources.decoders.frames import Frame
from quire.sources.decoders.registry import Found
from quire.sources.transforms.columns import DEEP, storable, stored
from quire.sources.transforms.content import BadContent
from quire.sources.transforms.functions import WrongTypeError

_SCALARS: dict[str, pa.DataType] = {
    "DOUBLE": pa.float64(), "FLOAT": pa.float32(), "BOOL": pa.bool_(), "STRING": pa.string(), "BYTES": pa.binary(),
    "INT32": pa.int32(), "SINT32": pa.int32(), "SFIXED32": pa.int32(), "INT64": pa.int64(), "SINT64": pa.int64(), "SFIXED64": pa.int64(),
    "UINT32": pa.int64(), "FIXED32": pa.int64(), "UINT64": pa.decimal128(20, 0), "FIXED64": pa.decimal128(20, 0), "ENUM": pa.string(),
}  # fmt: skip
_WRAPPED = {
    f"google.protobuf.{name}Value": name for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}
_AS_JSON = ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue")
_TIMESTAMP = "google.protobuf.Timestamp"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


# ------------------------------------------------------------------------------------------------------------------- descriptors
@functools.lru_cache(maxsize=200)
def _pool(files: bytes) -> tuple[Any, Any]:
    """A pool of descriptors, and the file that says the schema: the last one. BadContent for anything else."""
    from google.protobuf import (
        any_pb2,
        descriptor_pb2,
        descriptor_pool,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        message,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )

    try:
        found = descriptor_pb2.FileDescriptorSet.FromString(files)
    except message.DecodeError:
        raise BadContent("not a compiled descriptor set (protoc --include_imports --descriptor_set_out=FILE)") from None
    if not found.file:
        raise BadContent("a compiled descriptor set without any file")
    pool, names = descriptor_pool.DescriptorPool(), {file.name for file in found.file}
    known = (any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2, descriptor_pb2)
    try:
        for module in known:
            if module.DESCRIPTOR.name not in names:
                pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
        for file in found.file:
            pool.AddSerializedFile(file.SerializeToString())
    except TypeError as e:
        first = (str(e).strip().splitlines() or [""])[0]
        raise BadContent(f"its descriptors do not fit together ({first[:150]}): compile them with --include_imports") from None
    return pool, found.file[-1]


def _named(file: Any, places: Sequence[int]) -> str:
    """The full name of a message by its place in a file; BadContent where there is none."""
    within, names = file.message_type, [file.package] if file.package else []
    for place in places:
        if not 0 <= place < len(within):
            raise BadContent(f"it has no message {'.'.join(map(str, places))}, which the frame names")
        names.append(within[place].name)
        within = within[place].nested_type
    return ".".join(names)


def messages(files: bytes) -> list[str]:
    """The names of all messages of a descriptor set that are not Google's."""
    from google.protobuf import descriptor_pb2

    def names(within: Any, of: str) -> list[str]:
        found = [f"{of}.{each.name}".lstrip(".") for each in within if not each.options.map_entry]
        return found + [name for each in within for name in names(each.nested_type, f"{of}.{each.name}".lstrip("."))]

    _pool(files)
    found = descriptor_pb2.FileDescriptorSet.FromString(files).file
    return [name for file in found if not file.name.startswith("google/protobuf/") for name in names(file.message_type, file.package)]


# ------------------------------------------------------------------------------------------------------------------------ types
def _type(field: Any, within: tuple[str, ...]) -> pa.DataType:
    """Arrow's type of a field; `within`: the messages around it."""
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return pa.map_(_one(key, within), _one(value, within))
    return pa.list_(_one(field, within)) if field.is_repeated else _one(field, within)


def _one(field: Any, within: tuple[str, ...]) -> pa.DataType:
    message = field.message_type
    if message is None:
        return _SCALARS[_kind(field)]
    if message.full_name in _AS_JSON:
        return pa.string()
    if message.full_name == _TIMESTAMP:
        return pa.timestamp("us", "UTC")
    if message.full_name in _WRAPPED:
        return _one(message.fields_by_name["value"], within)
    if message.full_name in within or len(within) > DEEP:
        raise BadContent(
            f"the field {field.name!r} of {field.containing_type.full_name} holds messages of {message.full_name} without an end, and no "
            f"column does: say schema= as columns without it"
        )
    return pa.struct(_fields(message, (*within, message.full_name))) if message.fields else pa.bool_()


def _fields(message: Any, within: tuple[str, ...]) -> list[pa.Field]:
    return [pa.field(field.name, _type(field, within)) for field in message.fields]


def _kind(field: Any) -> str:
    return next(name for name in _SCALARS if getattr(field, f"TYPE_{name}") == field.type)


# ----------------------------------------------------------------------------------------------------------------------- values
def _array(field: Any, messages: Sequence[Any], kind: Any) -> pa.Array:
    """The values of a field of some messages (None: a message that is not there), as far as the column `kind` asks for them."""
    name, of = field.name, pa.types
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = (field.message_type.fields_by_name[part] for part in ("key", "value"))
        held = [None if each is None else getattr(each, name) for each in messages]
        keys = [key_ for each in held if each is not None for key_ in each]
        items = [each[key_] for each in held if each is not None for key_ in each]
        inner = kind.item_type if of.is_map(kind) else None
        return pa.MapArray.from_arrays(_offsets(held), _values(key, keys, None), _values(value, items, inner), mask=_missing(held))
    if field.is_repeated:
        held = [None if each is None else getattr(each, name) for each in messages]
        flat = [item for each in held if each is not None for item in each]
        inner = kind.value_type if of.is_list(kind) else None
        return pa.ListArray.from_arrays(_offsets(held), _values(field, flat, inner), mask=_missing(held))
    if not field.has_presence and None not in messages:
        return _values(field, list(map(attrgetter(name), messages)), kind)
    there = [None if each is None or (field.has_presence and not each.HasField(name)) else getattr(each, name) for each in messages]
    return _values(field, there, kind)


def _values(field: Any, values: list[Any], kind: Any) -> pa.Array:
    message = field.message_type
    if message is None:
        if field.enum_type is not None:
            names = {value.number: value.name for value in reversed(field.enum_type.values)}
            values = [None if value is None else names.get(value) or str(value) for value in values]
        return pa.array(values, _SCALARS[_kind(field)])
    if message.full_name == _TIMESTAMP:
        return pa.array(map(_moment, values), pa.timestamp("us", "UTC"))
    if message.full_name in _AS_JSON:
        from google.protobuf import json_format

        return pa.array([None if each is None else json_format.MessageToJson(each, indent=None) for each in values], pa.string())
    if message.full_name in _WRAPPED:
        return _values(message.fields_by_name["value"], [None if each is None else each.value for each in values], kind)
    if not message.fields:
        return pa.array([None if each is None else True for each in values], pa.bool_())
    asked = [kind.field(i) for i in range(kind.num_fields)] if kind is not None and pa.types.is_struct(kind) else _fields(message, ())
    return pa.StructArray.from_arrays(_columns(message, values, asked), [f.name for f in asked], mask=_missing(values))


def _columns(message: Any, values: Sequence[Any], asked: Sequence[pa.Field]) -> list[pa.Array]:
    known = message.fields_by_name
    return [_array(known[f.name], values, f.type) if f.name in known else pa.nulls(len(values), f.type) for f in asked]


def _moment(value: Any) -> datetime | None:
    return None if value is None else _EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)


def _missing(values: Sequence[Any]) -> pa.Array:
    return pa.array([each is None for each in values], pa.bool_())


def _offsets(held: Sequence[Any]) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum([0 if each is None else len(each) for each in held], dtype=np.int64)]), pa.int32())


# ------------------------------------------------------------------------------------------------------------------------- form
class ProtobufForm(Form):
    """Messages of one descriptor. `columns` are looked at where they are asked for: of a message within itself there are none."""

    def __init__(self, files: bytes, name: str) -> None:
        from google.protobuf import message, message_factory

        pool, _ = _pool(files)
        try:
            self.message = pool.FindMessageTypeByName(name)
        except KeyError:
            raise BadContent(f"it has no message {name[:100]!r}: it has {', '.join(messages(files))[:150]}") from None
        self.made, self.damaged = message_factory.GetMessageClass(self.message), message.DecodeError

    @functools.cached_property
    def columns(self) -> pa.Schema:
        """Its fields."""
        try:
            if not self.message.fields:
                raise BadContent(f"the message {self.message.full_name} has no fields")
            return storable(stored(pa.schema(_fields(self.message, (self.message.full_name,)))))
        except WrongTypeError as e:
            raise BadContent(str(e)) from None

    def row(self, document: bytes) -> Any:
        """A message."""
        try:
            found = self.made.FromString(document)
            if not found.IsInitialized():
                raise self.damaged
            return found
        except self.damaged:
            raise BadContent(
                f"not a message of {self.message.full_name}: it is cut off, damaged, or lacks what the schema requires"
            ) from None
        except (ValueError, RecursionError, SystemError) as e:
            raise BadContent(f"not a message of {self.message.full_name} ({type(e).__name__})") from None

    def batch(self, rows: list[Any], columns: pa.Schema) -> pa.RecordBatch:
        """Messages by the names of fields."""
        if not set(columns.names) & set(self.message.fields_by_name):
            raise BadContent(f"it is a message of {self.message.full_name}, which has none of the columns")
        return pa.record_batch(_columns(self.message, rows, list(columns)), names=columns.names)


@dataclass(frozen=True)
class ProtobufDecoder(Decoder):
    """Decodes Protobuf.

    files    a compiled descriptor set, by which messages are read; empty: that of their writer
    message  the full name of the message that all of them are; "": as each frame says
    """

    files: bytes = b""
    message: str = ""

    name: ClassVar[str] = "protobuf"
    kind: ClassVar[str] = "PROTOBUF"
    indexed: ClassVar[bool] = True

    def form(self, frame: Frame | None, found: Found | None) -> Form:
        """The form of messages of a writer's schema, or of the descriptor set that was given."""
        if frame is None or found is None:
            return ProtobufForm(self.files, self.message)
        files = self._compiled(found)
        name = _named(_pool(files)[1], frame.message)
        if self.message and name != self.message:
            raise BadContent(f"a message of {name}, and message= says {self.message}")
        return ProtobufForm(self.files or files, name)

    def _compiled(self, found: Found) -> bytes:
        try:
            return protoc.compiled(found.text, found.imports)
        except UsageError:
            if not self.files:
                raise
            return self.files  # without protoc the places in what the user has compiled have to do

    def first(self, payloads: Sequence[tuple[Frame | None, bytes]]) -> pa.Schema | None:
        """As of all decoders; UsageError where there are several messages, and nothing says which."""
        if not self.message and not self.files:
            names = set[str]()
            for frame in {frame for frame, _ in payloads if frame is not None}:
                form = self._form(frame)
                names |= {form.message.full_name} if isinstance(form, ProtobufForm) else set()
            if len(names) > 1:
                with about("message"):
                    raise UsageError(f"there are messages of {', '.join(sorted(names))[:200]}. Say which one with message=.")
        return super().first(payloads)

    def told(self) -> list[str]:
        """With the message, and the descriptors."""
        return [*super().told(), self.message, self.files.hex()]


def checked(files: bytes, message: str) -> pa.Schema | None:
    """The columns of a message of a descriptor set that the call gives; None where it holds itself. UsageError where it is not there."""
    try:
        with about("message"):
            choose(message, messages(files), "message")
        form = ProtobufForm(files, message)
    except BadContent as e:
        with about("schema"):
            raise UsageError(f"schema= is {e.reason}.") from None
    try:
        return form.columns
    except BadContent as e:
        with about("schema"):
            raise UsageError(f"schema=: {e.reason}.") from None
