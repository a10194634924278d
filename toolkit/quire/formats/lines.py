"""Data files of bytes: records one after the other, plain or in gzip members or zstd frames; a header may stand before the first one.

A frame ends at a record's end and holds at most 1 MiB of input (a longer record has frames of its own), so any record is read
back without reading the file: go to `offset`, decompress, leave out `skip` bytes. Concatenated members and frames are valid
gzip and zstd files for every other reader.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import zstandard

from quire.errors import QuireError
from quire.formats.damage import ARROW
from quire.storage import Sink, Store, held

DAMAGED = (zlib.error, zstandard.ZstdError)  # what decompressing a damaged file raises
UNREADABLE = (EOFError, OSError, ValueError, *ARROW, *DAMAGED)  # what reading a damaged data file of any format raises
FRAME = 1 << 20
BUFFER = 4 << 20
LONGEST = (1 << 31) - 2  # bytes of one line as a value, with its newline: Arrow counts them in 31 bits, and so does Java
STEP = 4 << 10  # compressed bytes that are decompressed at once: to 128 MiB at most


def _gzip(data: bytes) -> bytes:
    # zlib writes a gzip header without time and name, so that equal input gives equal bytes
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    return packer.compress(data) + packer.flush()


def compressor(compression: str) -> Callable[[bytes], bytes]:
    """The compressor of one piece: a gzip member, or a zstd frame."""
    if compression == "gzip":
        return _gzip
    packer = zstandard.ZstdCompressor(level=3)
    # Copied: the answer keeps the room for a frame that does not shrink, and thousands that shrink to some bytes wait to be written.
    return lambda data: bytes(memoryview(packer.compress(data)))


class FrameWriter:
    """Writes records into data files of at most `target` bytes; where each record lies is in `files`, `offsets`, `skips`.

    `create(index)` opens the next data file, which begins with the `header`: it is of no record. A record goes into one file; only a
    record that is longer than `target` makes a file longer than that.
    """

    def __init__(self, create: Callable[[int], Sink], target: int, compression: str, header: bytes = b"") -> None:
        self.create, self.target = create, target
        self.compress = None if compression == "none" else compressor(compression)
        self._header = header if self.compress is None or not header else self.compress(header)
        self.sizes: list[int] = []  # of the files so far
        self.files: list[int] = []  # a value a record, from here on
        self.offsets: list[int] = []
        self.skips: list[int] = []
        self._sink: Sink | None = None
        self._size = 0  # bytes of the current file, written or buffered
        self._buffer: list[bytes] = []
        self._buffered = 0
        self._frame: list[bytes] = []
        self._framed = 0
        self._frame_skips: list[int] = []

    def add(self, data: bytes) -> None:
        """Append a record. Its place is known after the next `add` or `close`."""
        n = len(data)
        if self.compress is not None:
            if n > FRAME:
                self.add_stream([data], n)
                return
            if self._framed + n > FRAME:
                self._end_frame()
            self._frame_skips.append(self._framed)
            self._frame.append(data)
            self._framed += n
            return
        if self._sink is None or (self._size + n > self.target and self._size):
            self._next_file()
        self.files.append(len(self.sizes) - 1)
        self.offsets.append(self._size)
        self.skips.append(0)
        self._buffer.append(data)
        self._size += n
        self._buffered += n
        if self._buffered >= BUFFER:
            self._flush()

    def add_all(self, records: Sequence[bytes]) -> None:
        """Append records, as `add` does one after the other."""
        sizes = list(map(len, records))
        size = sum(sizes)
        if self.compress is not None or self._sink is None or self._size + size > self.target:
            for record in records:
                self.add(record)
            return
        self.files += [len(self.sizes) - 1] * len(records)
        self.offsets += accumulate(sizes[:-1], initial=self._size) if records else ()
        self.skips += [0] * len(records)
        self._buffer += records
        self._size += size
        self._buffered += size
        if self._buffered >= BUFFER:
            self._flush()

    def add_stream(self, pieces: Iterable[bytes], expected: int) -> None:
        """Append a record that comes in pieces, of about `expected` bytes."""
        if self.compress is None:
            self._begin(expected)
            for piece in pieces:
                for start in range(0, len(piece), FRAME):
                    self._write(piece[start : start + FRAME])
            return
        self._end_frame()
        held, size, taken, begun = list[bytes](), 0, 0, False  # frames whose file is not decided yet
        for piece in pieces:
            for start in range(0, len(piece), FRAME):
                part = piece[start : start + FRAME]
                packed = self.compress(part)
                if begun:
                    self._write(packed)
                    continue
                held.append(packed)
                size, taken = size + len(packed), taken + len(part)
                # It fits no more, or is too much to hold: then the rest is guessed from what there is.
                if self._sink is None or not self._size or self._size + size > self.target or size > BUFFER:
                    self._begin(size * max(expected, taken) // taken)
                    begun = True
                    for frame in held:
                        self._write(frame)
                    held.clear()
        if not begun:
            self._begin(size)
            for frame in held:
                self._write(frame)

    def _begin(self, size: int) -> None:
        """The place of a record of `size` bytes: here if it fits, else in the next file."""
        if self._sink is None or (self._size + size > self.target and self._size):
            self._next_file()
        self.files.append(len(self.sizes) - 1)
        self.offsets.append(self._size)
        self.skips.append(0)

    def _write(self, data: bytes) -> None:
        self._buffer.append(data)
        self._size += len(data)
        self._buffered += len(data)
        if self._buffered >= BUFFER:
            self._flush()

    def _end_frame(self) -> None:
        if not self._frame_skips or self.compress is None:
            return
        packed = self.compress(b"".join(self._frame))
        if self._sink is None or (self._size + len(packed) > self.target and self._size):
            self._next_file()
        n = len(self._frame_skips)
        self.files.extend([len(self.sizes) - 1] * n)
        self.offsets.extend([self._size] * n)
        self.skips.extend(self._frame_skips)
        self._write(packed)
        self._frame, self._framed, self._frame_skips = [], 0, []

    @property
    def held(self) -> int:
        """Bytes in memory: records that wait, and what the sink has not sent."""
        return self._framed + self._buffered + (held(self._sink) if self._sink is not None else 0)

    def spill(self) -> None:
        """Give the sink all that waits."""
        self._end_frame()
        self._flush()

    def _flush(self) -> None:
        if self._buffered:
            assert self._sink is not None
            self._sink.write(b"".join(self._buffer))
            self._buffer, self._buffered = [], 0

    def _next_file(self) -> None:
        self._close_file()
        self._sink = self.create(len(self.sizes))
        self.sizes.append(0)
        self._size = 0
        if self._header:
            self._write(self._header)

    def _close_file(self) -> None:
        if self._sink is not None:
            self._flush()
            self._sink.close()
            self.sizes[-1] = self._size
            self._sink = None

    def close(self) -> None:
        """Make everything durable."""
        if self.compress is not None:
            self._end_frame()
        self._close_file()

    def discard(self) -> None:
        """Give up what was written."""
        if self._sink is not None:
            self._sink.discard()
            self._sink = None


class Plain:
    """Takes records out of an uncompressed data file, reading each byte once if they are taken in their order."""

    def __init__(self, store: Store, name: str, size: int = BUFFER) -> None:
        self.store, self.name, self.size = store, name, size
        self._start, self._window = 0, b""

    def take(self, offset: int, skip: int, length: int) -> Iterator[bytes]:
        """The `length` bytes at `offset + skip`, in pieces."""
        at, end = offset + skip, offset + skip + length
        while at < end:
            if not self._start <= at < self._start + len(self._window):
                self._start, self._window = at, self.store.get_range(self.name, at, self.size)
                if not self._window:
                    raise EOFError(f"{self.name} ends before its records do")
            piece = self._window[at - self._start : end - self._start]
            at += len(piece)
            yield piece


class Framed:
    """Takes records out of a compressed data file, decompressing each frame once if they are taken in their order."""

    def __init__(self, store: Store, name: str, compression: str, size: int = BUFFER) -> None:
        self.store, self.name, self.size = store, name, size
        self._new = _gunzip if compression == "gzip" else _unzstd
        self._pieces: Iterator[tuple[int, bytes]] = iter(())
        self._frame = self._next = -1  # offset of the frame that we are in, and of the piece that comes next
        self._at = 0  # decompressed bytes taken since that frame's start
        self._rest = memoryview(b"")

    def take(self, offset: int, skip: int, length: int) -> Iterator[bytes]:
        """The `length` bytes at `skip` of what decompresses from the frame at `offset` on, in pieces."""
        if not self._rest and self._frame != offset:
            self._pull()
        if self._frame != offset or self._at > skip:
            self._pieces, self._frame = self._decompress(offset), -1
            self._pull()
        for _ in self._produce(skip - self._at):
            pass
        for piece in self._produce(length):
            yield bytes(piece)

    def _pull(self) -> None:
        frame, piece = next(self._pieces, (-1, b""))
        self._rest = memoryview(piece)
        if frame != self._frame:
            self._frame, self._at = frame, 0

    def _produce(self, n: int) -> Iterator[memoryview]:
        while n > 0:
            if not self._rest:
                self._pull()
                if not self._rest:
                    raise EOFError(f"{self.name} ends before its records do")
            out, self._rest = self._rest[:n], self._rest[n:]
            n -= len(out)
            self._at += len(out)
            yield out

    def _decompress(self, offset: int) -> Iterator[tuple[int, bytes]]:
        """Pieces of decompressed bytes with the offset of the frame that each is of."""
        unpacker, frame = None, offset
        while data := self.store.get_range(self.name, offset, self.size):
            offset += len(data)
            at = 0
            while at < len(data):
                unpacker = unpacker or self._new()
                # A little at a time: a forged frame may mean thirty thousand times its bytes.
                if out := unpacker.decompress(data[at : at + STEP]):
                    yield frame, out
                at = min(at + STEP, len(data)) - (len(unpacker.unused_data) if unpacker.eof else 0)
                if unpacker.eof:
                    unpacker, frame = None, offset - len(data) + at
        if unpacker is not None:
            raise EOFError(f"{self.name} ends within a compressed frame")


def _gunzip() -> Any:
    return zlib.decompressobj(31)


def _unzstd() -> Any:
    return zstandard.ZstdDecompressor().decompressobj()


def cursor(store: Store, name: str, compression: str, size: int = BUFFER) -> Plain | Framed:
    """A reader of records in a data file; `size` is the number of bytes to request at once."""
    return Plain(store, name, size) if compression == "none" else Framed(store, name, compression, size)


def contents(store: Store, name: str, compression: str) -> Iterator[bytes]:
    """All of a data file, decompressed, in pieces."""
    if compression == "none":
        offset = 0
        while data := store.get_range(name, offset, BUFFER):
            offset += len(data)
            yield data
    else:
        for _, piece in Framed(store, name, compression)._decompress(0):
            yield piece


def batches(store: Store, name: str, compression: str, *, headed: bool = False) -> Iterator[pa.RecordBatch]:
    """The lines of a data file as batches of `value`; nothing is decoded. QuireError for a line that no batch holds.

    headed  its first line is its header, and is left out
    """
    rest, held = list[bytes](), 0  # of a line that goes on; joined once, so that a long one costs its length
    pieces = contents(store, name, compression)
    for piece in below_header(pieces) if headed else pieces:
        end = piece.rfind(b"\n") + 1
        if end:
            yield from _whole(store, name, [*rest, piece[:end]])
            rest, held = [], 0
        rest.append(piece[end:])
        held += len(piece) - end
        if held > LONGEST:
            raise _too_long(store, name)
    if held:
        yield _split(b"".join([*rest, b"\n"]))


def below_header(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same without the first line."""
    rest = iter(pieces)
    for piece in rest:
        if end := piece.find(b"\n") + 1:
            yield piece[end:]
            break
    yield from rest


def header_of(store: Store, name: str, compression: str) -> bytes:
    """The first line of a data file, with its end."""
    found = b""
    with closing(contents(store, name, compression)) as pieces:  # type: ignore[type-var]  # they are a generator
        for piece in pieces:
            end = piece.find(b"\n") + 1
            found += piece[:end] if end else piece
            if end:
                break
    return found


def _whole(store: Store, name: str, pieces: list[bytes]) -> Iterator[pa.RecordBatch]:
    """Pieces that end with a newline, as batches: one, unless a long line and those behind it are more than a batch holds."""
    data = b"".join(pieces)
    first = data.find(b"\n") + 1 if len(data) > LONGEST else 0
    if first > LONGEST:
        raise _too_long(store, name)
    for part in (data[:first], data[first:]):
        if part:
            yield _split(part)


def longer(data: bytes) -> int:
    """How many bytes the first line has that has more than a value may have; 0 where there is none."""
    at = 0
    while len(data) - at > LONGEST:
        end = data.rfind(b"\n", at, at + LONGEST) + 1
        if not end:
            return (data.find(b"\n", at) + 1 or len(data)) - at
        at = end
    return 0


def _too_long(store: Store, name: str) -> QuireError:
    return QuireError(
        f"a line of {store.url}/{name} has more than {LONGEST:,} bytes, which is more than one value may have. Read the file's bytes "
        f"themselves, or gather such files with transform='raw'."
    )


def _split(data: bytes) -> pa.RecordBatch:
    """Bytes that end with a newline → a batch of `value`, in one pass and without a copy of the bytes for each line."""
    if len(data) >= 1 << 31:
        raise ValueError(f"{len(data):,} bytes are more than one batch holds")
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 10)
    starts = np.concatenate(([0], ends[:-1] + 1))
    keep = np.ones(len(data), bool)
    keep[ends] = False
    offsets = np.concatenate(([0], np.cumsum(ends - starts))).astype(np.int32)
    values = np.frombuffer(data, np.uint8)[keep]
    array = pa.Array.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(values)])
    return pa.record_batch([array], ["value"])
