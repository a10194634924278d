"""Puts a service on this machine far away: a proxy on a loopback port that hands on each answer a while later.

python distance.py PORT SECONDS        # prints its own port, and serves until its input ends
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast


class Client(asyncio.Protocol):
    """A connection from a client: what it says goes on at once."""

    def __init__(self, port: int, delay: float) -> None:
        self.port, self.delay = port, delay
        self.service: asyncio.Transport | None = None
        self.loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.pause_reading()  # until there is somebody to tell
        self.calling = self.loop.create_task(self.call())

    async def call(self) -> None:
        """Reach the service; a connection takes a round trip, too."""
        await asyncio.sleep(self.delay)
        try:
            self.service, _ = await self.loop.create_connection(lambda: Service(self), "127.0.0.1", self.port)
        except OSError:
            self.transport.close()
        if not self.transport.is_closing():
            self.transport.resume_reading()
        elif self.service is not None:
            self.service.close()

    def data_received(self, data: bytes) -> None:
        assert self.service is not None
        self.service.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        if self.service is not None:
            self.service.close()

    def answer(self, data: bytes) -> None:
        """Say what the service has said a while ago."""
        if not self.transport.is_closing():
            self.transport.write(data)


class Service(asyncio.Protocol):
    """The connection to the service for one client: what it says waits."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def data_received(self, data: bytes) -> None:
        self.client.loop.call_later(self.client.delay, self.client.answer, data)

    def connection_lost(self, error: Exception | None) -> None:
        self.client.loop.call_later(self.client.delay, self.client.transport.close)


async def serve(port: int, delay: float) -> None:
    """Until standard input ends: whoever started it is gone then."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Client(port, delay), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2])))
