"""An answer of HTTP/1.1 while its bytes come (RFC 9112): `wire` reads it from a connection.

Nothing is believed that fits two readings: what is not an answer, has two lengths, or ends too early raises HTTPException. No answer fills
the memory: a head has a longest length, and of a body no more is taken than was asked for, and one byte, which tells that there was more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http.client import BadStatusLine, HTTPException, IncompleteRead, RemoteDisconnected, parse_headers
from io import BytesIO

HEAD = 64 << 10  # bytes of the longest head
LONGEST_ERROR = 1 << 20  # bytes of an answer that says what is wrong
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-9]\d\d)(?: [^\r\n]*)?\r\n")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r\n")
_RANGE = re.compile(r"\s*bytes\s+(\d{1,19})-(?:(\d{1,19})/(\d{1,19}))?", re.IGNORECASE)
_LENGTH = b"\r\ncontent-length:"
_LINE = 4096  # bytes of the longest line before a chunk
_START = b"HTTP/1."


class Answer:
    """An answer that has come: its status, body, and headers by any spelling of their names."""

    __slots__ = ("_head", "body", "status")

    def __init__(self, status: int, head: bytes, body: bytes) -> None:
        self.status, self._head, self.body = status, head, body

    @property
    def headers(self) -> Mapping[str, str]:
        try:
            found = parse_headers(BytesIO(self._head.partition(b"\r\n")[2] + b"\r\n"))
        except HTTPException:  # more of them than anybody sends
            return {}
        return found  # type: ignore[return-value]  # a Message is as good as a mapping

    def begins(self, start: int) -> bool:
        """Whether a part of an object begins at its byte `start`, as far as it says so: servers may give another one than was wanted."""
        found = self._range
        return found is None or int(found[1]) == start

    def reaches(self, end: int) -> bool:
        """Whether it has the bytes of an object up to its byte `end`, or to its own end, likewise: servers may give fewer."""
        found = self._range
        return found is None or found[2] is None or int(found[2]) + 1 >= min(end, int(found[3]))

    @property
    def _range(self) -> re.Match[str] | None:
        return _RANGE.match(self.headers.get("Content-Range", "")) if self.status == 206 else None


class Incoming:
    """The bytes of one answer, as they come. After `feed` or `took` said so, it is whole; `ended` says the same at the connection's end.

    most        bytes of a body that are wanted
    bodiless    an answer to HEAD or CONNECT
    room        where the rest of a long body belongs: bytes that were put there are told by `took`; else they go to `feed`
    """

    __slots__ = ("_bodiless", "_head", "_held", "_left", "_limit", "_most", "_sized", "_taken", "body", "keeps", "room", "status")

    def __init__(self, most: int, *, bodiless: bool = False) -> None:
        self.status, self.body, self.keeps = 0, b"", False  # whether the connection may be used again
        self.room: memoryview | None = None
        self._most, self._bodiless = most, bodiless
        self._head = b""
        self._held = bytearray()  # of a head that is not whole, or of what stands around chunks
        self._sized: bool | None = None  # whether the body has a length; None: it comes in chunks
        self._limit = 0  # bytes of the body that are taken
        self._left = 0  # bytes to come: of the body, or of a chunk with its line's end; below 0: lines behind the last chunk
        self._taken = bytearray()  # of a body without a length

    @property
    def begun(self) -> bool:
        """Whether anything of it has come."""
        return bool(self._head or self._held)

    def answer(self) -> Answer:
        return Answer(self.status, self._head, self.body)

    def ended(self) -> None:
        """The connection has ended. HTTPException or ConnectionResetError, unless this ends the answer."""
        if not self.begun:
            raise RemoteDisconnected("closed without an answer")
        if not self._head:
            raise BadStatusLine("a head that does not end")
        if self._sized is not False:
            raise IncompleteRead(b"", self._left)
        self.body = bytes(self._taken)

    def feed(self, data: bytes) -> bool:
        """Take `data`; whether the answer is whole."""
        while not self._head:
            at = 0
            if self._held:
                at = max(0, len(self._held) - 3)
                self._held += data
                data = bytes(self._held) if self._held.find(b"\r\n\r\n", at) >= 0 else b""
            end = data.find(b"\r\n\r\n", at)
            if end < 0:
                self._held = self._held or bytearray(data)
                if len(self._held) > HEAD or not _START.startswith(bytes(self._held[: len(_START)])):
                    raise BadStatusLine("a head that does not end" if len(self._held) > HEAD else "no HTTP")
                return False
            head, data = data[: end + 2], data[end + 4 :]
            self._held = bytearray()
            if self._begin(head):
                break
            if not data:
                return False
        return self._body(data)

    def _begin(self, head: bytes) -> bool:
        """Read a head; False: another one follows it."""
        found = _STATUS.match(head)
        if not found:
            raise BadStatusLine("no HTTP")
        self.status = int(found[2])
        if self.status < 200 and self.status != 101:
            return False
        self._head, low = head, head.lower()
        said = _value(low, at) if (at := low.find(b"\r\nconnection:")) >= 0 else b""
        self.keeps = b"close" not in said and (found[1] == b"1" or b"keep-alive" in said)
        if self._bodiless or self.status in (204, 304):
            self._sized = True
            return True
        self._limit = self._most if self.status in (200, 206) else LONGEST_ERROR
        if (coded := low.find(b"\r\ntransfer-encoding:")) >= 0:
            if _value(low, coded) != b"chunked":
                raise HTTPException("Transfer-Encoding")
            if _LENGTH in low:
                self.keeps = False
        elif (sized := low.find(_LENGTH)) >= 0:
            length = _length(low, sized)
            self._sized, self._left = True, min(length, self._limit + 1)
            self.keeps = self.keeps and self._left == length
        else:
            self._sized, self.keeps = False, False
        return True

    def _body(self, data: bytes) -> bool:
        if self._sized is None:
            return self._chunks(data)
        if not self._sized:
            self._taken += data
            return self._full()
        if len(data) < self._left:
            room = memoryview(bytearray(self._left))
            room[: len(data)] = data
            self.room, self._left = room[len(data) :], self._left - len(data)
            return False
        if len(data) > self._left:  # an answer to nothing: whose bytes come next cannot be told
            self.keeps, data = False, data[: self._left]
        self.body = data
        return True

    def took(self, count: int) -> bool:
        """`count` bytes were put into the room; whether the answer is whole."""
        assert self.room is not None
        self.room, self._left = self.room[count:], self._left - count
        if self._left:
            return False
        self.body, self.room = bytes(self.room.obj), None
        return True

    def _full(self) -> bool:
        """Whether more has come than was asked for."""
        if len(self._taken) <= self._limit:
            return False
        self.body, self.keeps = bytes(self._taken[: self._limit + 1]), False
        return True

    def _chunks(self, data: bytes) -> bool:
        held = self._held
        held += data
        while held:
            if self._left > 2:
                part = min(self._left - 2, len(held))
                self._taken += held[:part]
                self._left -= part
                del held[:part]
                if self._full():
                    return True
            elif self._left > 0:  # the end of the line behind a chunk
                part = min(self._left, len(held))
                if held[:part] != b"\r\n"[2 - self._left :][:part]:
                    raise HTTPException("a chunk of another length")
                self._left -= part
                del held[:part]
            elif (end := held.find(b"\r\n")) < 0:
                if len(held) > _LINE:
                    raise HTTPException("a line without an end")
                return False
            elif self._left < 0:  # lines behind the last chunk, up to an empty one
                del held[: end + 2]
                self._left -= end + 2
                if not end:
                    self.keeps, self.body = self.keeps and not held, bytes(self._taken)
                    return True
                if -self._left > HEAD:
                    raise HTTPException("lines without an end")
            else:
                found = _SIZE.match(held)
                if not found:
                    raise HTTPException("a chunk without a length")
                size = int(found[1], 16)
                del held[: found.end()]
                self._left = size + 2 if size else -1
        return False


def _value(low: bytes, at: int) -> bytes:
    """The value of the header whose line's end before it is at `at`."""
    start = low.index(b":", at) + 1
    return low[start : low.index(b"\r\n", start)].strip()


def _length(low: bytes, at: int) -> int:
    text = _value(low, at)
    again = low.find(_LENGTH, at + len(_LENGTH)) >= 0
    if (again and len({_value(low, found.start()) for found in re.finditer(_LENGTH, low)}) > 1) or not text.isdigit() or len(text) > 15:
        raise HTTPException("Content-Length")
    return int(text)
