"""A wire to a store that is longer than this machine's: each answer comes a while later, and what is asked for is counted.

    python -m quire.committers.lab.wire HOST:PORT SECONDS     prints its own port; each line of input is answered with the counts so far

It understands as much of HTTP/1.1 as counting needs, and changes nothing. Bytes that a store copies by itself are counted by the size that
the source had when it was written through this wire.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from typing import cast
from urllib.parse import parse_qs, unquote, urlsplit


class Traffic:
    """The traffic so far. `sizes`: path → bytes that were written there."""

    def __init__(self) -> None:
        self.found = Counter[str](requests=0, copies=0, copied=0, sent=0)
        self.sizes = Counter[str]()

    def request(self, method: str, target: str, headers: dict[str, str]) -> None:
        """One request, as its head says."""
        parts = urlsplit(target)
        path, query = unquote(parts.path).strip("/"), parse_qs(parts.query, keep_blank_values=True)
        length = int(headers.get("x-amz-decoded-content-length") or headers.get("content-length") or 0)
        self.found["requests"] += 1
        self.found[method.lower()] += 1
        source = headers.get("x-amz-copy-source") or headers.get("x-ms-copy-source") or ""
        if source:
            size = self.sizes[unquote(urlsplit(source).path).strip("/")]
            self.found["copies"] += 1
            self.found["copied"] += size
            self.sizes[path] = size
        elif method == "PUT":
            self.found["sent"] += length
            if "partNumber" in query or query.get("comp") == ["block"]:
                self.sizes[path] += length
            elif "comp" not in query:
                self.sizes[path] = length


class _Requests:
    """Finds the heads of requests in what a client says."""

    def __init__(self, counts: Traffic) -> None:
        self.counts, self.left, self.skip, self.chunked = counts, b"", 0, False

    def feed(self, data: bytes) -> None:
        """Some more of it."""
        self.left += data
        while self.left:
            if self.skip:
                n = min(self.skip, len(self.left))
                self.left, self.skip = self.left[n:], self.skip - n
                continue
            end = self.left.find(b"\r\n" if self.chunked else b"\r\n\r\n")
            if end < 0:
                return
            head, self.left = self.left[:end].decode("latin-1"), self.left[end + (2 if self.chunked else 4) :]
            if self.chunked:
                size = int(head.partition(";")[0] or "0", 16)
                self.chunked, self.skip = size > 0, size + 2
                continue
            first, *lines = head.split("\r\n")
            method, target, *_ = first.split(" ")
            headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            self.counts.request(method, target, headers)
            self.chunked = "chunked" in headers.get("transfer-encoding", "").lower()
            self.skip = 0 if self.chunked else int(headers.get("content-length") or 0)


class _Client(asyncio.Protocol):
    """A connection from a client: what it says goes on at once."""

    def __init__(self, wire: Wire) -> None:
        self.wire, self.service = wire, cast("asyncio.Transport | None", None)
        self.requests = _Requests(wire.counts)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.pause_reading()  # until there is somebody to tell
        self.calling = asyncio.get_running_loop().create_task(self._call())

    async def _call(self) -> None:
        await asyncio.sleep(self.wire.delay)  # a connection takes a round trip, too
        try:
            self.service, _ = await asyncio.get_running_loop().create_connection(lambda: _Service(self), self.wire.host, self.wire.port)
        except OSError:
            self.transport.close()
        if not self.transport.is_closing():
            self.transport.resume_reading()
        elif self.service is not None:
            self.service.close()

    def data_received(self, data: bytes) -> None:
        assert self.service is not None
        self.requests.feed(data)
        self.service.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        if self.service is not None:
            self.service.close()

    def answer(self, data: bytes) -> None:
        """Say what the service has said a while ago."""
        if not self.transport.is_closing():
            self.transport.write(data)


class _Service(asyncio.Protocol):
    """The connection to the service for one client: what it says waits."""

    def __init__(self, client: _Client) -> None:
        self.client, self.loop = client, asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        self.loop.call_later(self.client.wire.delay, self.client.answer, data)

    def connection_lost(self, error: Exception | None) -> None:
        self.loop.call_later(self.client.wire.delay, self.client.transport.close)


class Wire:
    """To one service."""

    def __init__(self, host: str, port: int, delay: float) -> None:
        self.host, self.port, self.delay, self.counts = host, port, delay, Traffic()

    async def serve(self) -> None:
        """Until the input ends."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Client(self), "127.0.0.1", 0, backlog=1024)
        print(server.sockets[0].getsockname()[1], flush=True)
        while await loop.run_in_executor(None, sys.stdin.readline):
            print(json.dumps(self.counts.found), flush=True)


if __name__ == "__main__":
    _host, _, _port = sys.argv[1].rpartition(":")
    asyncio.run(Wire(_host, int(_port), float(sys.argv[2])).serve())
