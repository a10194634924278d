"""A server that speaks as much of Azure Blob as quire and its peers ask for, after a delay, and fast: emulators stop at 1,700 files/s.

    python tests/benchmarks/blobserver.py --delay 0.14        # prints its port, and serves until its input ends

The container `src` is there already, and cannot be changed. Its blobs `<any prefix>00000000` … have one content and one etag, `long`
has 5 GiB. Below `tree/` the blobs lie in folders, below `mixed/` a thousand lie beside a long one. All other containers hold what is
written, but of contents that are longer than 1 MiB only the length is kept. Signatures are not looked at.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import ssl
import sys
from bisect import bisect_left
from functools import lru_cache
from http import HTTPStatus
from typing import NamedTuple, Protocol, cast
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

ETAG = "0x8DC0FFEE0000001"
MODIFIED = "Sat, 21 Nov 2026 10:00:00 GMT"
PAGE = 5000
LONG = 5 << 30  # bytes of the blob `long`, all of them zero
MIXED = 1000  # blobs beside a long one
KEPT = 1 << 20  # bytes; of longer contents only the length is kept
ZEROS = bytes(8 << 20)  # it is not asked for more at once
_BLOBS = re.compile(rb"/(?:\d{8}|long|warm)(?:\?|$)")
_THERE = re.compile(rb"/[^/]+/src[/?]")  # the container that is there already
_RANGE = re.compile(rb"\r\n(?:x-ms-)?range: bytes=(\d+)-(\d+)", re.IGNORECASE)
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_COPY = re.compile(rb"\r\nx-ms-copy-source: *([^\r]+)", re.IGNORECASE)
_IF_ABSENT = re.compile(rb"\r\nif-none-match: *\*", re.IGNORECASE)
_EXPECTS = re.compile(rb"\r\nexpect: *100-continue", re.IGNORECASE)
_BLOCK = re.compile(r"<(?:Uncommitted|Latest|Committed)>([^<]+)<")

_BLOB = (
    "<Blob><Name>{name}</Name><Properties><Creation-Time>" + MODIFIED + "</Creation-Time><Last-Modified>" + MODIFIED + "</Last-Modified>"
    "<Etag>{etag}</Etag><Content-Length>{size}</Content-Length><Content-Type>application/octet-stream</Content-Type>"
    "<Content-Encoding /><Content-Language /><Content-CRC64 /><Content-MD5>1B2M2Y8AsgTpgAmY7PhCfg==</Content-MD5><Cache-Control />"
    "<Content-Disposition /><BlobType>BlockBlob</BlobType><AccessTier>Hot</AccessTier><AccessTierInferred>true</AccessTierInferred>"
    "<LeaseStatus>unlocked</LeaseStatus><LeaseState>available</LeaseState><ServerEncrypted>true</ServerEncrypted></Properties>"
    "<OrMetadata /></Blob>"
)
_PAGE = (
    '<?xml version="1.0" encoding="utf-8"?><EnumerationResults ServiceEndpoint="http://x/" ContainerName="src"><Prefix>{prefix}</Prefix>'
    "<Blobs>{blobs}</Blobs>"
    "<NextMarker>{marker}</NextMarker></EnumerationResults>"
)


class Reply(NamedTuple):
    """An answer; `size` is that of a body which is not sent, since it was asked for the head alone; `wait`: seconds before it is sent."""

    status: int
    body: bytes = b""
    headers: str = ""
    size: int | None = None
    wait: float = 0.0


class Answers(Protocol):
    """What is served: one request after the other."""

    def answer(self, method: bytes, target: bytes, head: bytes, body: bytes) -> Reply: ...


class Connection(asyncio.Protocol):
    """One request after the other, each answered after the delay."""

    def __init__(self, answers: Answers, delay: float) -> None:
        self.answers, self.delay = answers, delay
        self.rest = bytearray()
        self.long, self.left = (b"", 0), 0  # the head of a request whose body is not kept, with its length; bytes of that to come
        self.loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self.left:
            taken = min(self.left, len(data))
            self.left -= taken
            if self.left:
                return
            head, length = self.long
            self.loop.call_later(self.delay, self.send, head, bytes(length))
            data = data[taken:]
        self.rest += data
        while (end := self.rest.find(b"\r\n\r\n")) >= 0:
            head, start = bytes(self.rest[:end]), end + 4
            length = None if head.startswith((b"GET", b"HEAD")) else _LENGTH.search(head)
            stop = start + int(length[1]) if length else start
            if len(self.rest) < stop:
                if len(self.rest) == start and _EXPECTS.search(head):
                    self.loop.call_later(self.delay, self.transport.write, b"HTTP/1.1 100 Continue\r\n\r\n")
                if stop - start > KEPT:
                    self.long, self.left = (head, stop - start), stop - len(self.rest)
                    self.rest.clear()
                return
            body = bytes(self.rest[start:stop])
            del self.rest[:stop]
            self.loop.call_later(self.delay, self.send, head, body)

    def send(self, head: bytes, body: bytes) -> None:
        if self.transport.is_closing():
            return
        method, target, _ = head.split(b"\r\n", 1)[0].split(b" ")
        status, answer, headers, size, wait = self.answers.answer(method, target, head, body)
        length = len(answer) if size is None else size
        start = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Length: {length}\r\n{headers}\r\n".encode()
        self.loop.call_later(wait, self.transport.write, start + answer) if wait else self.transport.write(start + answer)


def asked(target: bytes) -> tuple[str, dict[str, str]]:
    """The path and the query of a request."""
    where = urlsplit(target.decode())
    return unquote(where.path), {name: found[0] for name, found in parse_qs(where.query).items()}


def virtual(content: bytes, target: bytes, method: bytes, head: bytes, headers: str) -> Reply:
    """A read of a blob that is there already: a whole one, a range, or its head."""
    long = b"/long" in target
    size = LONG if long else len(content)
    if method == b"HEAD":
        return Reply(200, b"", headers, size)
    if found := _RANGE.search(head):
        start, end = int(found[1]), min(int(found[2]), size - 1)
        body = ZEROS[: end + 1 - start] if long else content[start : end + 1]
        return Reply(206, body, f"{headers}Content-Range: bytes {start}-{end}/{size}\r\n")
    return Reply(200, content, headers)


class Blobs:
    """An account: the container that is there already, and what is written into others."""

    def __init__(self, size: int, blobs: int, folders: int) -> None:
        self.content = bytes(i % 251 for i in range(size))
        self.blobs, self.folders = blobs, folders
        self.made = dict[str, tuple[str, bytes | int, list[str]]]()  # path → etag, content or its length, blocks
        self.staged = dict[str, dict[str, bytes | int]]()
        self.pages = dict[tuple[int, int, str], bytes]()
        self.writes = 0

    def answer(self, method: bytes, target: bytes, head: bytes, body: bytes) -> Reply:
        """Any request."""
        if _THERE.match(target):
            if _BLOBS.search(target):  # nearly always so
                return virtual(self.content, target, method, head, _head(ETAG))
            _, query = asked(target)
            return Reply(200, self.listed(query), _XML) if query.get("comp") == "list" else _refused(404, "BlobNotFound")
        path, query = asked(target)
        if query.get("comp") == "list":
            return Reply(200, self.found(path.rstrip("/") + "/", query), _XML)
        if query.get("restype") == "container":
            return Reply(201)
        if method == b"PUT":
            return self.write(path, query, head, body)
        if path not in self.made:
            return _refused(404, "BlobNotFound")
        if method == b"DELETE":
            del self.made[path]
            return Reply(202)
        return self.read(path, query, method, head)

    def read(self, path: str, query: dict[str, str], method: bytes, head: bytes) -> Reply:
        """Something that was written."""
        etag, content, blocks = self.made[path]
        if query.get("comp") == "blocklist":
            named = "".join(f"<Block><Name>{block}</Name><Size>1</Size></Block>" for block in blocks)
            return Reply(200, f"<BlockList><CommittedBlocks>{named}</CommittedBlocks></BlockList>".encode(), _XML)
        size = content if isinstance(content, int) else len(content)
        if method == b"HEAD":
            return Reply(200, b"", _head(etag), size)
        found = _RANGE.search(head)
        start, end = (int(found[1]), min(int(found[2]) + 1, size)) if found else (0, size)
        if found and start >= size:
            return _refused(416, "InvalidRange")
        body = ZEROS[: end - start] if isinstance(content, int) else content[start:end]
        return Reply(206 if found else 200, body, f"{_head(etag)}Content-Range: bytes {start}-{end - 1}/{size}\r\n")

    def write(self, path: str, query: dict[str, str], head: bytes, body: bytes) -> Reply:
        """A block, a list of blocks, a whole blob or a copy of one."""
        kept = body if len(body) <= KEPT else len(body)
        if query.get("comp") == "block":
            self.staged.setdefault(path, {})[query["blockid"]] = kept
            return Reply(201)
        if path in self.made and _IF_ABSENT.search(head):
            return _refused(409, "BlobAlreadyExists")
        blocks = list[str]()
        if query.get("comp") == "blocklist":
            blocks = _BLOCK.findall(body.decode())
            staged = self.staged.get(path, {})
            if not staged.keys() >= set(blocks):
                return _refused(400, "InvalidBlockList")
            pieces = [staged[block] for block in blocks]
            whole = all(isinstance(piece, bytes) for piece in pieces)
            kept = b"".join(cast("list[bytes]", pieces)) if whole else sum(p if isinstance(p, int) else len(p) for p in pieces)
        elif source := _COPY.search(head):
            copied = self.made.get(unquote(urlsplit(source[1].decode()).path))
            if copied is None:
                return _refused(404, "CannotVerifyCopySource")
            kept = copied[1]
        self.staged.pop(path, None)
        self.writes += 1
        etag = f"0x8DC{self.writes:012X}"
        self.made[path] = etag, kept, blocks
        return Reply(202 if _COPY.search(head) else 201, b"", f"{_head(etag)}x-ms-copy-status: success\r\n")

    def found(self, container: str, query: dict[str, str]) -> bytes:
        """A page of what was written into a container; so little of it is listed that there is only one."""
        prefix, delimiter, start = query.get("prefix", ""), query.get("delimiter", ""), len(container)
        blobs, prefixes = list[str](), list[str]()
        names = set(self.made) | (set(self.staged) if "uncommitted" in query.get("include", "") else set())
        for path in sorted(path for path in names if path.startswith(container + prefix)):
            name = path[start:]
            if name < query.get("startFrom", ""):
                continue
            rest, slash, _ = name[len(prefix) :].partition(delimiter) if delimiter else (name, "", "")
            if slash:
                prefixes.append(prefix + rest + slash)
                continue
            etag, content, _ = self.made.get(path, ("", 0, []))
            blobs.append(_BLOB.format(name=escape(name), size=content if isinstance(content, int) else len(content), etag=etag))
        return _paged(prefix, blobs, list(dict.fromkeys(prefixes)))

    def listed(self, query: dict[str, str]) -> bytes:
        """A page of what is there already."""
        prefix, start = query.get("prefix", ""), query.get("startFrom", "")
        if prefix == "tree/" and query.get("delimiter"):
            folders = (f"tree/{folder:04}/" for folder in range(self.folders))
            return _paged(prefix, [], [folder for folder in folders if folder >= start])
        number = query.get("marker") or bisect_left(range(self.blobs), start, key=lambda i: self.name(prefix, i))
        return self.page(int(number), min(PAGE, int(query.get("maxresults", PAGE))), prefix)

    def name(self, prefix: str, i: int) -> str:
        """Of a blob that is there already."""
        return f"tree/{((i + 1) * self.folders - 1) // self.blobs:04}/{i:08}" if prefix == "tree/" else f"{prefix}{i:08}"

    def page(self, start: int, most: int, prefix: str) -> bytes:
        """A page of a listing as the service sends it, about 900 bytes a blob; kept, since it takes long to make."""
        if (kept := self.pages.get((start, most, prefix))) is not None:
            return kept
        first, end = 0, self.blobs
        if prefix.startswith("tree/") and prefix != "tree/":
            folder = int(prefix.removeprefix("tree/").rstrip("/"))
            first, end = folder * self.blobs // self.folders, (folder + 1) * self.blobs // self.folders
        elif prefix == "mixed/":
            end = MIXED
        first = max(first, start)
        last = min(first + most, end)
        found = [_BLOB.format(name=self.name(prefix, i), size=len(self.content), etag=ETAG) for i in range(first, last)]
        if prefix == "mixed/" and last == end:
            found.append(_BLOB.format(name="mixed/long", size=LONG, etag=ETAG))
        made = self.pages[start, most, prefix] = _paged(prefix, found, [], str(last) if last < end else "")
        return made


_XML = "Content-Type: application/xml\r\nx-ms-version: 2021-12-02\r\n"


@lru_cache
def _head(etag: str) -> str:
    return (
        f'x-ms-version: 2021-12-02\r\nETag: "{etag}"\r\nLast-Modified: {MODIFIED}\r\nx-ms-blob-type: BlockBlob\r\nAccept-Ranges: bytes\r\n'
    )


def _refused(status: int, code: str) -> Reply:
    return Reply(status, b"", f"x-ms-version: 2021-12-02\r\nx-ms-error-code: {code}\r\n")


def _paged(prefix: str, blobs: list[str], prefixes: list[str], marker: str = "") -> bytes:
    found = "".join(blobs) + "".join(f"<BlobPrefix><Name>{escape(name)}</Name></BlobPrefix>" for name in prefixes)
    return _PAGE.format(prefix=escape(prefix), blobs=found, marker=marker).encode()


async def serve(answers: Answers, delay: float, certificate: str = "") -> None:
    """Until standard input ends: whoever started it is gone then. `certificate`: a directory with `cert` and `key`; then it speaks TLS."""
    loop, tls = asyncio.get_running_loop(), None
    if certificate:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(f"{certificate}/cert", f"{certificate}/key")
    server = await loop.create_server(lambda: Connection(answers, delay), "127.0.0.1", 0, backlog=4096, ssl=tls)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delay", type=float, default=0.14, help="seconds before each answer")
    parser.add_argument("--size", type=int, default=5000, help="bytes of a blob")
    parser.add_argument("--blobs", type=int, default=100_000, help="in a listing")
    parser.add_argument("--folders", type=int, default=8, help="below tree/, where the blobs lie in equal parts")
    parser.add_argument("--certificate", default="", help="a directory with cert and key: it speaks TLS")
    args = parser.parse_args()
    import uvloop

    uvloop.run(serve(Blobs(args.size, args.blobs, args.folders), args.delay, args.certificate))


if __name__ == "__main__":
    main()
