"""Answers of HTTP, however their bytes are cut: each is read as it is meant, or refused; none fills the memory."""

from __future__ import annotations

import random
from collections.abc import Iterator
from http.client import HTTPException

import pytest

from quire.storage import message
from quire.storage.message import Incoming

Outcome = tuple[int, bytes] | type[Exception]
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
GOOD = {
    "length": (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n12345", 200, b"12345", True),
    "spelling": (b"HTTP/1.1 206 Partial Content\r\ncoNTENT-length:5\t\r\n\r\n12345", 206, b"12345", True),
    "no-reason": (b"HTTP/1.1 200\r\nContent-Length: 1\r\n\r\n1", 200, b"1", True),
    "empty": (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, b"", True),
    "twice-the-same": (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: y\r\nContent-Length: 2\r\n\r\n12", 200, b"12", True),
    "none": (b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", 204, b"", True),
    "continue": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n12", 200, b"12", True,
    ),
    "close": (b"HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 2\r\n\r\n12", 200, b"12", False),
    "old": (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n12", 200, b"12", False),
    "old-kept": (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\n12", 200, b"12", True),
    "chunks": (CHUNKED + b"3\r\n123\r\n2;name=x\r\n45\r\n0\r\nTrailer: x\r\n\r\n", 200, b"12345", True),
    "chunks-hex": (CHUNKED + b"00B\r\n12345678901\r\n0\r\n\r\n", 200, b"12345678901", True),
    "no-chunk": (CHUNKED + b"0\r\n\r\n", 200, b"", True),
    "line-ends": (CHUNKED + b"4\r\n\r\n\r\n\r\n0\r\n\r\n", 200, b"\r\n\r\n", True),
    "chunks-and-length": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", 200, b"x", False,
    ),
    "refusal": (b"HTTP/1.1 503 Busy\r\nContent-Length: 200\r\n\r\n" + b"x" * 200, 503, b"x" * 200, True),
}  # fmt: skip
UNTIL_THE_END = b"HTTP/1.1 200 OK\r\nServer: x\r\n\r\n12345"
REFUSED = {
    "another-protocol": b"SSH-2.0-OpenSSH_9.6\r\n",
    "old": b"12345",
    "no-status": b"HTTP/1.1 OK\r\n\r\n",
    "status-of-two": b"HTTP/1.1 20 OK\r\n\r\n",
    "other-version": b"HTTP/2.0 200 OK\r\n\r\n",
    "two-lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n12345",
    "below-zero": b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
    "no-number": b"HTTP/1.1 200 OK\r\nContent-Length: 0x5\r\n\r\n12345",
    "two-in-one": b"HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n12345",
    "endless-number": b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
    "unknown-coding": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunk-without-length": CHUNKED + b"\r\n1\r\n",
    "chunk-below-zero": CHUNKED + b"-1\r\nx\r\n",
    "chunk-too-long": CHUNKED + b"2\r\n123\r\n0\r\n\r\n",
    "chunk-longer-by-a-line's-end": CHUNKED + b"2\r\n12340\r\n\r\n",
    "endless-line": CHUNKED + b"1;" + b"x" * 10_000,
    "endless-size": CHUNKED + b"0" * 100 + b"1\r\nx\r\n0\r\n\r\n",
    "endless-head": b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 20_000,
    "endless-trailer": CHUNKED + b"0\r\n" + b"A: b\r\n" * 20_000,
    "cut-body": b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n12345",
    "cut-chunk": CHUNKED + b"5\r\n123",
    "no-last-chunk": CHUNKED + b"3\r\n123\r\n",
    "cut-head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "nothing": b"",
}


def cuts(raw: bytes) -> Iterator[list[bytes]]:
    """The same bytes in one piece, in two anywhere, one by one, and at random."""
    yield [raw] if raw else []
    for at in range(1, min(len(raw), 400)):
        yield [raw[:at], raw[at:]]
    if len(raw) < 2000:
        yield [raw[i : i + 1] for i in range(len(raw))]
    for seed in range(20):
        random.seed(seed)
        places = sorted({random.randrange(1, len(raw)) for _ in range(5)}) if len(raw) > 1 else []
        yield [raw[a:b] for a, b in zip([0, *places], [*places, len(raw)], strict=True)]


def read(pieces: list[bytes], most: int = 100, *, bodiless: bool = False) -> Incoming:
    """As a connection does it; what ends before the answer is whole is its end."""
    incoming = Incoming(most, bodiless=bodiless)
    for piece in pieces:
        rest = piece
        while rest:
            if incoming.room is None:
                whole, rest = incoming.feed(rest), b""
            else:
                part = min(len(rest), len(incoming.room))
                incoming.room[:part] = rest[:part]
                whole, rest = incoming.took(part), rest[part:]
            if whole:
                return incoming
    incoming.ended()
    return incoming


@pytest.mark.parametrize("name", GOOD)
def test_an_answer_is_the_same_however_it_is_cut(name: str) -> None:
    raw, *meant = GOOD[name]
    for pieces in cuts(raw):
        found = read(pieces)
        assert [found.status, found.body, found.keeps] == meant, pieces


def test_a_body_without_a_length_ends_with_its_connection() -> None:
    for pieces in cuts(UNTIL_THE_END):
        found = read(pieces)
        assert (found.status, found.body, found.keeps) == (200, b"12345", False)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_answer_is_refused_however_it_is_cut(name: str) -> None:
    for pieces in cuts(REFUSED[name]):
        with pytest.raises((HTTPException, ConnectionError)):
            read(pieces)


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n" + b"x" * 1000,
        CHUNKED + b"ffffffff\r\n" + b"x" * 1000,
        CHUNKED + b"64\r\n" + b"x" * 100 + b"\r\n64\r\n" + b"x" * 100 + b"\r\n0\r\n\r\n",
        UNTIL_THE_END + b"x" * 1000,
    ],
    ids=["length", "chunk", "chunks", "end"],
)
def test_more_than_was_asked_for_is_cut_off_one_byte_behind_it(raw: bytes) -> None:
    """That byte tells the reader that there is more; nothing else comes on this connection."""
    for pieces in cuts(raw):
        found = read(pieces)
        assert (len(found.body), found.keeps) == (101, False)


def test_an_answer_without_a_body_by_its_request() -> None:
    for pieces in cuts(b"HTTP/1.1 200 OK\r\nContent-Length: 5000000000\r\nETag: x\r\n\r\n"):
        found = read(pieces, bodiless=True)
        assert (found.status, found.body, found.keeps, found.answer().headers["etag"]) == (200, b"", True, "x")


def test_what_follows_an_answer_is_no_answer_to_the_next_request() -> None:
    found = read([GOOD["length"][0] + b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"])
    assert (found.body, found.keeps) == (b"12345", False)


def test_refusals_are_read_to_a_bound() -> None:
    found = read([b"HTTP/1.1 403 No\r\n\r\n", *[b"x" * 65536] * 100], 5)
    assert (found.status, len(found.body)) == (403, message.LONGEST_ERROR + 1)


@pytest.mark.parametrize("seed", range(8))
def test_answers_that_are_damaged_are_read_or_refused(seed: int) -> None:
    """A fuzzer: bytes are changed, lost, doubled and moved; whatever comes, it is an answer or one of two kinds of error."""
    random.seed(seed)
    corpus = [raw for raw, *_ in GOOD.values()] + [*REFUSED.values(), UNTIL_THE_END]
    corpus = [raw for raw in corpus if 0 < len(raw) < 2000]
    words = [b"\r\n", b"\r", b"\n", b"\0", b"0", b"-", b"chunked", b"Content-Length: ", b"HTTP/1.1 ", b"\xff", b"f" * 20, b" "]
    answers = refused = 0
    for _ in range(1500):
        raw = bytearray(random.choice(corpus))
        for _ in range(random.randrange(4)):
            at = random.randrange(len(raw) + 1)
            kind = random.randrange(4)
            if kind == 0:
                raw[at : at + 1] = bytes([random.randrange(256)])
            elif kind == 1:
                del raw[at : at + random.randrange(8)]
            elif kind == 2:
                raw[at:at] = random.choice(words)
            else:
                raw[at:at] = random.choice(corpus)[: random.randrange(60)]
        places = sorted(random.randrange(len(raw) + 1) for _ in range(random.randrange(6)))
        pieces = [bytes(raw[a:b]) for a, b in zip([0, *places], [*places, len(raw)], strict=True) if a < b]
        try:
            found = read(pieces, 50)
        except (HTTPException, ConnectionError):
            refused += 1
            continue
        answers += 1
        assert 100 <= found.status <= 999
        assert len(found.body) <= (51 if found.status in (200, 206) else len(raw))
        assert found.answer().headers is not None
    assert answers > 100
    assert refused > 100
