"""Messages of Thrift in its strict binary protocol: values that know their kind, to bytes and back.

Source: Thrift's specification of the binary protocol. Each field of a reply is kept, so that a struct can be sent back as it
came, with those of newer servers in it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

BOOL, BYTE, DOUBLE, I16, I32, I64, STRING, STRUCT, MAP, SET, LIST = 2, 3, 4, 6, 8, 10, 11, 12, 13, 14, 15
CALL, REPLY, EXCEPTION = 1, 2, 3
DEEP, LARGEST = 32, 1 << 28  # levels within each other; bytes of a text, and things in a list
_VERSION = 0x80010000
_NUMBERS = {BOOL: "!?", BYTE: "!b", DOUBLE: "!d", I16: "!h", I32: "!i", I64: "!q"}


class Value(NamedTuple):
    """A value and its kind. A struct holds {field id: Value}, a list (kind, [Value]), a map (kind, kind, [(Value, Value)])."""

    kind: int
    of: Any


Fields = dict[int, Value]


class NotThrift(Exception):
    """Bytes that are not a message, or not one that could be meant."""


def text(value: str) -> Value:
    """A text."""
    return Value(STRING, value)


def number(value: int) -> Value:
    """A whole number of 32 bits."""
    return Value(I32, value)


def flag(value: bool) -> Value:
    """True or false."""
    return Value(BOOL, value)


def record(fields: Fields) -> Value:
    """A struct."""
    return Value(STRUCT, fields)


def listed(values: Iterable[Value], kind: int = STRUCT) -> Value:
    """A list of values of one kind."""
    return Value(LIST, (kind, list(values)))


def texts(values: Iterable[str]) -> Value:
    """A list of texts."""
    return listed(map(text, values), STRING)


def mapping(values: Mapping[str, str]) -> Value:
    """A map of texts to texts."""
    return Value(MAP, (STRING, STRING, [(text(name), text(values[name])) for name in values]))


def said(fields: Fields, number: int, other: Any = None) -> Any:
    """The content of a field, or something else where it is not there: of a list its contents, of a map of texts a dictionary."""
    if number not in fields:
        return other
    kind, of = fields[number]
    if kind in (LIST, SET):
        return [each.of for each in of[1]]
    return {name.of: value.of for name, value in of[2]} if kind == MAP else of


def fits(value: Value, shape: Any) -> bool:
    """Whether a value is of a shape: a kind (a map: of texts), {field: its shape} where the field is there, or [the shape of each]."""
    kind, of = value
    if isinstance(shape, dict):
        return kind == STRUCT and all(fits(of[at], each) for at, each in shape.items() if at in of)
    if isinstance(shape, list):
        return kind == LIST and all(fits(each, shape[0]) for each in of[1])
    return bool(kind == shape) and (kind != MAP or all(each.kind == STRING for pair in of[2] for each in pair))


# ---------------------------------------------------------------------------------------------------------------------- to bytes
def message(name: str, sequence: int, fields: Fields, kind: int = CALL) -> bytes:
    """A call of a method, or an answer to one."""
    written = bytearray(struct.pack("!I", _VERSION | kind))
    _put(written, text(name))
    written += struct.pack("!i", sequence)
    _put(written, record(fields))
    return bytes(written)


def _put(to: bytearray, value: Value) -> None:
    kind, of = value
    if kind in _NUMBERS:
        to += struct.pack(_NUMBERS[kind], of)
    elif kind == STRING:
        data = of.encode("utf-8", "surrogateescape")
        to += struct.pack("!i", len(data)) + data
    elif kind == STRUCT:
        for at, each in of.items():
            to += struct.pack("!bh", each.kind, at)
            _put(to, each)
        to += b"\0"
    elif kind == MAP:
        to += struct.pack("!bbi", of[0], of[1], len(of[2]))
        for pair in of[2]:
            for each in pair:
                _put(to, each)
    else:
        to += struct.pack("!bi", of[0], len(of[1]))
        for each in of[1]:
            _put(to, each)


# -------------------------------------------------------------------------------------------------------------------- from bytes
def read(take: Callable[[int], bytes]) -> tuple[int, str, int, Fields]:
    """Kind, method, sequence and fields of the next message; `take` gives so many bytes. NotThrift for what is not one."""
    (first,) = struct.unpack("!I", take(4))
    if first & 0xFFFFFF00 != _VERSION & 0xFFFFFF00 or first & 0xFF not in (CALL, REPLY, EXCEPTION):
        raise NotThrift(f"it begins with {first:08x}")
    name = _get(take, STRING, 0).of
    (sequence,) = struct.unpack("!i", take(4))
    return first & 0xFF, name, sequence, _get(take, STRUCT, 0).of


def _get(take: Callable[[int], bytes], kind: int, depth: int) -> Value:
    if depth > DEEP:
        raise NotThrift(f"it has more than {DEEP} levels within each other")
    if kind in _NUMBERS:
        form = _NUMBERS[kind]
        return Value(kind, struct.unpack(form, take(struct.calcsize(form)))[0])
    if kind == STRING:
        return Value(kind, take(_size(take)).decode("utf-8", "surrogateescape"))
    if kind == STRUCT:
        fields = Fields()
        while (each := take(1)[0]) != 0:
            (at,) = struct.unpack("!h", take(2))
            fields[at] = _get(take, each, depth + 1)
        return Value(kind, fields)
    if kind == MAP:
        key, value = take(2)
        pairs = [(_get(take, key, depth + 1), _get(take, value, depth + 1)) for _ in range(_size(take))]
        return Value(kind, (key, value, pairs))
    if kind in (SET, LIST):
        (each,) = take(1)
        return Value(kind, (each, [_get(take, each, depth + 1) for _ in range(_size(take))]))
    raise NotThrift(f"it has a value of the kind {kind}")


def _size(take: Callable[[int], bytes]) -> int:
    (size,) = struct.unpack("!i", take(4))
    if not 0 <= size <= LARGEST:
        raise NotThrift(f"it has something of the size {size:,}")
    return int(size)
