"""Reading many blobs at once: the connections with which `window` asks Azure Blob storage.

aiohttp and a signature of our own take about 200 µs of processor time a small file. obstore is as fast, but a child that was forked
after its first use hangs, a process that ends right after it may abort, and it takes neither `a//b` nor empty blobs in ranges.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from quire.storage.azure.account import AzureAccount
from quire.storage.azure.errors import explained, refusal, unreachable
from quire.storage.base import ReadRequest, Vanished
from quire.storage.http import body, session, span
from quire.storage.window import Fetch, failure


@asynccontextmanager
async def opened(account: AzureAccount, container: str, root: str, url: str) -> AsyncIterator[Fetch]:
    """Connections for one call; the value fetches the bytes of one request below `root` (with a slash at its end, or empty)."""
    async with session("azure") as connections:
        yield _BlobReader(connections, account, container, root, url).fetch


class _BlobReader:
    def __init__(self, session: Any, account: AzureAccount, container: str, root: str, url: str) -> None:
        self.session, self.account, self.container, self.root, self.url = session, account, container, root, url

    async def fetch(self, request: ReadRequest) -> bytes:
        name, version, size, start, length = request
        headers = {"If-Match": f'"{version}"', **span(size, start, length)}
        if self.account.stale():
            await asyncio.get_running_loop().run_in_executor(None, self.account.token)
        status, told, data = await self._ask("GET", name, headers, length)
        if status in (200, 206):
            return data if length else b""
        if status == 412:  # also where there is none, which has no version either
            status, told, data = await self._ask("HEAD", name, {})
            if status == 200:
                raise Vanished("changed")
        raise self._failed(name, status, told, data)

    async def _ask(self, method: str, name: str, headers: dict[str, str], most: int = 0) -> tuple[int, Mapping[str, str], bytes]:
        from aiohttp import ClientError
        from yarl import URL

        address, headers = self.account.signed(method, f"/{self.container}/{self.root}{name}", {}, headers)
        try:
            async with self.session.request(method, URL(address, encoded=True), headers=headers, allow_redirects=False) as answer:
                return answer.status, answer.headers, await body(answer, most)
        except (ClientError, OSError, TimeoutError) as e:
            raise unreachable(f"cannot read {self.url}/{name}", self.account, e) from None

    def _failed(self, name: str, status: int, told: Mapping[str, str], data: bytes) -> Exception:
        said = refusal(status, told, data)
        if status == 416:
            return Vanished("changed: it is shorter than it was")
        if status == 404 and not said.everywhere:
            return Vanished("vanished")
        what = f"cannot read {self.url}/{name}"
        error = explained(what, said, self.account, self.container)
        return failure(what, error, busy=status in (429, 503), everywhere=said.everywhere or 300 <= status < 400)
