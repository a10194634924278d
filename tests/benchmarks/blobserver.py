"""A server that speaks as much of Azure Blob as reading and listing ask for, after a delay, and fast: emulators stop at 1,700 files/s.

    python tests/benchmarks/blobserver.py --delay 0.14        # prints its port, and serves until its input ends

Every blob `b/00000000` … of every container has the same content and etag; one, `long`, has 5 GiB. Signatures are not looked at.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from functools import lru_cache
from typing import cast
from urllib.parse import parse_qs, unquote, urlsplit

ETAG = "0x8DC0FFEE0000001"
MODIFIED = "Sat, 21 Nov 2026 10:00:00 GMT"
PAGE = 5000
LONG = 5 << 30  # bytes of the blob `long`, all of them zero
ZEROS = bytes(8 << 20)  # it is not asked for more at once
_BLOBS = re.compile(rb"/(?:\d{8}|long|warm)(?:\?|$)")
_RANGE = re.compile(rb"\r\n(?:x-ms-)?range: bytes=(\d+)-(\d+)", re.IGNORECASE)

_BLOB = (
    "<Blob><Name>{name}</Name><Properties><Creation-Time>" + MODIFIED + "</Creation-Time><Last-Modified>" + MODIFIED + "</Last-Modified>"
    "<Etag>" + ETAG + "</Etag><Content-Length>{size}</Content-Length><Content-Type>application/octet-stream</Content-Type>"
    "<Content-Encoding /><Content-Language /><Content-CRC64 /><Content-MD5>1B2M2Y8AsgTpgAmY7PhCfg==</Content-MD5><Cache-Control />"
    "<Content-Disposition /><BlobType>BlockBlob</BlobType><AccessTier>Hot</AccessTier><AccessTierInferred>true</AccessTierInferred>"
    "<LeaseStatus>unlocked</LeaseStatus><LeaseState>available</LeaseState><ServerEncrypted>true</ServerEncrypted></Properties>"
    "<OrMetadata /></Blob>"
)
_PAGE = (
    '<?xml version="1.0" encoding="utf-8"?><EnumerationResults ServiceEndpoint="http://x/" ContainerName="c"><Prefix>{prefix}</Prefix>'
    "<Blobs>{blobs}</Blobs>"
    "<NextMarker>{marker}</NextMarker></EnumerationResults>"
)


class Server(asyncio.Protocol):
    """A connection: one request after the other, none with a body."""

    def __init__(self, delay: float, size: int, blobs: int) -> None:
        self.delay, self.blobs = delay, blobs
        self.body = bytes(i % 251 for i in range(size))
        self.rest = b""
        self.loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.rest += data
        while (end := self.rest.find(b"\r\n\r\n")) >= 0:
            head, self.rest = self.rest[:end], self.rest[end + 4 :]
            self.loop.call_later(self.delay, self.answer, head)

    def answer(self, head: bytes) -> None:
        if self.transport.is_closing():
            return
        method, target, _ = head.split(b"\r\n", 1)[0].split(b" ")
        if b"comp=list" in target:
            query = parse_qs(urlsplit(target.decode()).query)
            body = page(int(query.get("marker", ["0"])[0]), self.blobs, len(self.body), query.get("prefix", [""])[0])
            self.send(200, "OK", body, "Content-Type: application/xml\r\n")
            return
        if not _BLOBS.search(target):
            self.send(404, "Not Found", b"", "x-ms-error-code: BlobNotFound\r\n")
            return
        common = f'ETag: "{ETAG}"\r\nLast-Modified: {MODIFIED}\r\nx-ms-blob-type: BlockBlob\r\nAccept-Ranges: bytes\r\n'
        if method == b"HEAD":
            self.send(200, "OK", self.body, common, head=True)
        elif found := _RANGE.search(head):
            start, end = int(found[1]), int(found[2])
            long = b"/long" in target
            end = end if long else min(end, len(self.body) - 1)
            body = ZEROS[: end + 1 - start] if long else self.body[start : end + 1]
            size = LONG if long else len(self.body)
            self.send(206, "Partial Content", body, f"{common}Content-Range: bytes {start}-{end}/{size}\r\n")
        else:
            self.send(200, "OK", self.body, common)

    def send(self, status: int, words: str, body: bytes, headers: str, *, head: bool = False) -> None:
        start = f"HTTP/1.1 {status} {words}\r\nContent-Length: {len(body)}\r\nx-ms-version: 2021-12-02\r\n{headers}\r\n".encode()
        self.transport.write(start if head else start + body)


@lru_cache(64)
def page(start: int, blobs: int, size: int, prefix: str) -> bytes:
    """A page of a listing as the service sends it, about 900 bytes a blob."""
    end = min(start + PAGE, blobs)
    found = "".join(_BLOB.format(name=f"{unquote(prefix)}{i:08}", size=size) for i in range(start, end))
    return _PAGE.format(prefix=unquote(prefix), blobs=found, marker=end if end < blobs else "").encode()


async def serve(delay: float, size: int, blobs: int) -> None:
    """Until standard input ends: whoever started it is gone then."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Server(delay, size, blobs), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delay", type=float, default=0.14, help="seconds before each answer")
    parser.add_argument("--size", type=int, default=5000, help="bytes of a blob")
    parser.add_argument("--blobs", type=int, default=100_000, help="in a listing")
    args = parser.parse_args()
    import uvloop

    uvloop.run(serve(args.delay, args.size, args.blobs))


if __name__ == "__main__":
    main()
