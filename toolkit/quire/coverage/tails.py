"""Appended files: whether what the ledger covers of a file still lies before what is new in it.

A row may have a fingerprint, the xxh3-64 of the first and of the last 4 KiB of its bytes in the source. A file has grown if it is
longer than what is covered, and the first and the last of its rows still show the same bytes. Then its new end is taken alone: a
path's rows may be of several versions, one following the other, and the last one tells which version is done.

Two changes escape this: bytes that were changed far from the ends of rows in a file that was also appended to; and a file whose
content was changed while size and time stayed (`rsync -t`), which has the same version.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import xxhash

from quire.coverage.finished import GATHERED
from quire.storage import Entry, ReadRequest, Store, Unreadable, Vanished

EDGE = 4 << 10  # bytes at either end of a row
WAITED = -1  # instead of how often a row was tried: it was not, its line waited for its end
PIECE = 1 << 20  # bytes in which the end of a long file is searched
TRIES = 8  # looks at a file that is being appended to


class Mark(NamedTuple):
    """The fingerprint of a row's bytes."""

    start: int
    length: int
    fingerprint: int


class Prefix(NamedTuple):
    """The coverage of a file, up to `end`; a gap stems from a data file that was given up."""

    end: int
    marks: tuple[Mark, ...]  # of the first row and the last one, also on either side of a gap
    held: tuple[tuple[str, int, int, int], ...]  # version, start, length and tries of a last line held back, or an end quarantined
    gaps: tuple[tuple[int, int], ...] = ()


def fingerprint(content: bytes) -> int:
    """A hash of a row's bytes."""
    return xxhash.xxh3_64_intdigest(content if len(content) <= 2 * EDGE else content[:EDGE] + content[-EDGE:])


class Fingerprints:
    """Fingerprints of the parts of a stream, of which one knows only when their bytes have passed where they begin and end.

    found = Fingerprints(start, 0)
    for piece in found.passing(pieces): ...
    found.settle(end, spans)        # all parts up to `end` are known now
    found.last(end)
    found.of[start, length]
    """

    def __init__(self, start: int, at: int) -> None:
        """The first part begins at byte `start` of a file, the stream at byte `at`, which is not behind it."""
        self.of = dict[tuple[int, int], int]()
        self._waiting = deque[memoryview]()
        self._start = self._at = at
        self._first = self._rest = b""  # the edges of the part that goes on
        self._begins = start

    def passing(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """The same pieces."""
        for piece in pieces:
            self._waiting.append(memoryview(piece))
            yield piece

    def settle(self, end: int, spans: Iterable[tuple[int, int]] = ()) -> None:
        """Say which parts there are up to byte `end`: `spans`, as (start, length), and what lies between them."""
        if self._at < self._begins:
            self._pass(min(end, self._begins))
            self._start, self._first, self._rest = self._at, b"", b""
        for start, length in spans:
            self._part(min(start, end))
            self._part(min(start + length, end))
        self._pass(end)

    def last(self, end: int) -> None:
        """End the last part at byte `end`."""
        self.settle(end)
        self._part(end)

    def _part(self, end: int) -> None:
        self._pass(end)
        if end > self._start:
            self.of[self._start, end - self._start] = xxhash.xxh3_64_intdigest(self._first + self._rest)
        self._start, self._first, self._rest = end, b"", b""

    def _pass(self, end: int) -> None:
        while self._at < end:
            piece = self._waiting.popleft()
            part, left = piece[: end - self._at], piece[end - self._at :]
            if left:
                self._waiting.appendleft(left)
            self._at += len(part)
            n = EDGE - len(self._first)
            self._first += bytes(part[:n])
            self._rest = (self._rest + bytes(part[n:][-EDGE:]))[-EDGE:]


def prefix(rows: Iterable[dict[str, Any]]) -> Prefix | None:
    """The coverage by a path's rows; None if it is not known well enough to continue from it."""
    rows = list(rows)
    # A single record that was quarantined is as done as what lies around it.
    settled = [r["state"] in GATHERED or (r["state"] == "quarantined" and r.get("records") == 1) for r in rows]
    done = sorted((r for r, is_settled in zip(rows, settled, strict=True) if is_settled), key=lambda r: (r["start"], r["length"]))
    end, gaps, edges = 0, list[tuple[int, int]](), set[int]()
    for i, row in enumerate(done):
        if row["start"] < end:
            return None
        if row["start"] > end:
            gaps.append((end, row["start"] - end))
            edges |= {i - 1, i}
        end = row["start"] + row["length"]
    rest = [r for r, is_settled in zip(rows, settled, strict=True) if not is_settled]
    held = tuple((r["version"], r["start"], r["length"], WAITED if r["state"] == "held" else r["tries"] or 1) for r in rest)
    if any(r["state"] == "mark" for r in rows) or len(held) > 1 or any(start != end for _, start, _, _ in held):
        return None
    taken = [(i, r) for i, r in enumerate(done) if r["length"]]
    if any(r["fingerprint"] is None for _, r in taken):
        return None
    ends = {i for i, _ in (*taken[:1], *taken[-1:])} | edges
    return Prefix(end, tuple(Mark(r["start"], r["length"], r["fingerprint"]) for i, r in taken if i in ends), held, tuple(gaps))


def _edges(marks: Sequence[Mark]) -> Iterator[tuple[int, int]]:
    for start, length, _ in marks:
        if length <= 2 * EDGE:
            yield start, length
        else:
            yield start, EDGE
            yield start + length - EDGE, EDGE


def still_there(marks: Sequence[Mark], read: Callable[[int, int], bytes], *, lines: bool) -> bool:
    """Whether a file's bytes are those of `marks`, and with `lines` the last of them ends one; `read(start, length)` gives them."""
    seen = b"\n"
    for mark in marks:
        seen = b"".join(read(*edge) for edge in _edges([mark]))
        if len(seen) < min(mark.length, 2 * EDGE) or xxhash.xxh3_64_intdigest(seen) != mark.fingerprint:
            return False
    return not lines or seen.endswith(b"\n")


class _Changed(Exception):
    """Another version by now."""


def reread(
    store: Store, name: str, version: str, size: int, marks: Sequence[Mark], span: tuple[int, int], *, lines: bool = True
) -> tuple[Entry, bytes] | None:
    """The bytes (start, length) of a file that may be appended to meanwhile, and the version of which they are: all of one version.

    None: it is gone, shorter, or no longer goes on from what `marks` tell of.
    """
    entry: Entry | None = Entry(name, size, version, 0)
    for _ in range(TRIES):
        if entry is None or entry.size < sum(span):
            return None
        try:
            if not still_there(marks, functools.partial(_read, store, entry), lines=lines):
                return None
            return entry, _read(store, entry, *span)
        except _Changed:
            entry = store.stat(name)
    return None


def unfinished(store: Store, name: str, version: str, size: int, start: int) -> int:
    """How many bytes come after the last newline of a file, from `start` on; Vanished if it has another version by now.

    It is looked for from the end: a line without its end may be longer than the memory.
    """
    at, entry = size, Entry(name, size, version, 0)
    try:
        while at > start:
            begin = max(start, at - PIECE)
            found = _read(store, entry, begin, at - begin).rfind(b"\n")
            if found >= 0:
                return size - begin - found - 1
            at = begin
    except _Changed as e:
        raise Vanished("changed while it was read") from e
    return size - start


def mark(store: Store, name: str, version: str, size: int, start: int, length: int) -> int:
    """The fingerprint of a long range; Vanished if the file has another version by now."""
    try:
        return fingerprint(b"".join(_read(store, Entry(name, size, version, 0), *edge) for edge in _edges([Mark(start, length, 0)])))
    except _Changed as e:
        raise Vanished("changed while it was read") from e


def _read(store: Store, entry: Entry, start: int, length: int) -> bytes:
    if not length:
        return b""
    for _, content in store.read_many([ReadRequest(entry.name, entry.version, entry.size, start, length)]):
        if isinstance(content, bytes):
            return content
        if isinstance(content, Vanished):
            raise _Changed
        if isinstance(content, Unreadable):
            raise content
        try:
            return b"".join(content)
        except Vanished as e:
            raise _Changed from e
    raise _Changed
