"""Records that no careful client makes, sent to a broker as bytes of Kafka's protocol."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence

__all__ = ["produce"]


def produce(address: str, topic: str, value: bytes, headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Append one record to partition 0; names of headers may be any bytes."""
    body = b"\0" + _number(0) + _number(0) + _number(-1) + _sized(value) + _number(len(headers))
    body += b"".join(_sized(name) + _sized(content) for name, content in headers)
    now = int(time.time() * 1000)
    inner = struct.pack(">hiqqqhii", 0, 0, now, now, -1, -1, -1, 1) + _number(len(body)) + body
    batch = struct.pack(">iBI", -1, 2, _crc32c(inner)) + inner
    batch = struct.pack(">qi", 0, len(batch)) + batch
    asked = struct.pack(">hhi", 0, 7, 1) + _text("tests")  # Produce, version 7
    asked += struct.pack(">hhii", -1, 1, 10_000, 1) + _text(topic) + struct.pack(">iii", 1, 0, len(batch)) + batch
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection, connection.makefile("rb") as answers:
        connection.sendall(struct.pack(">i", len(asked)) + asked)
        (size,) = struct.unpack(">i", answers.read(4))
        answer = answers.read(size)
    # correlation, topics, its name, partitions, partition, error
    (error,) = struct.unpack_from(">h", answer, 4 + 4 + 2 + len(topic) + 4 + 4)
    if error:
        raise RuntimeError(f"the broker answers {error}")


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _sized(data: bytes) -> bytes:
    return _number(len(data)) + data


def _number(n: int) -> bytes:
    n, found = (n << 1) ^ (n >> 63), b""
    while n > 0x7F:
        found, n = found + bytes([n & 0x7F | 0x80]), n >> 7
    return found + bytes([n])


def _crc32c(data: bytes) -> int:
    found = 0xFFFFFFFF
    for byte in data:
        found ^= byte
        for _ in range(8):
            found = found >> 1 ^ (0x82F63B78 if found & 1 else 0)
    return found ^ 0xFFFFFFFF
