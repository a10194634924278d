"""The frame of a schema registry around a record: a zero byte, four bytes of the schema's id, and for Protobuf which of its messages it is.

Source: Confluent's documentation of its wire format. Records that name their schema by a GUID in a header, or in 16 bytes behind a byte 1,
are not taken.
"""

from __future__ import annotations

from typing import NamedTuple

from quire.sources.transforms.content import BadContent

HEAD = 5  # bytes
DEEP = 100  # messages within each other


class Frame(NamedTuple):
    """The words of a frame: a schema's id, and the way to the message in it, by the places of messages within messages."""

    schema: int
    message: tuple[int, ...] = ()


def unframed(value: bytes, *, indexed: bool = False) -> tuple[Frame, bytes]:
    """A record's frame and its content, with the places of a message where it is `indexed`; BadContent for a record without a frame."""
    if len(value) < HEAD:
        raise BadContent(f"it has {len(value)} bytes, and a schema registry's frame alone has {HEAD}")
    if value[0]:
        raise BadContent(f"its first byte is {value[0]}, and a schema registry's frame begins with 0")
    number = int.from_bytes(value[1:HEAD], "big")
    if not indexed:
        return Frame(number), value[HEAD:]
    n, at = _number(value, HEAD)
    if not n:
        return Frame(number, (0,)), value[at:]  # the short form of the first message
    if not 0 < n <= DEEP:
        raise BadContent(f"its frame names a message {n} levels deep, and {DEEP} is the most")
    places = list[int]()
    for _ in range(n):
        place, at = _number(value, at)
        if place < 0:
            raise BadContent("its frame names a message by a number below 0")
        places.append(place)
    return Frame(number, tuple(places)), value[at:]


def _number(value: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint, and where it ends."""
    found = shift = 0
    while at < len(value) and shift < 35:
        byte = value[at]
        found |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return (found >> 1) ^ -(found & 1), at
    raise BadContent("its frame is cut off, or damaged")
