"""Reading many files at once: the connections with which `window` asks a namenode and its datanodes.

A small file takes three requests: the namenode says which datanode has it, the datanode gives its bytes, and the namenode says in
which version it is now. Connections to the namenode are kept; a datanode closes each of its own.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from quire.errors import NotFoundError
from quire.storage.base import ReadRequest, Unreadable, Vanished
from quire.storage.hdfs.errors import NO_NAMENODE, Said, busy, everywhere, explained, said, unreachable
from quire.storage.hdfs.rest import WebHdfsRest
from quire.storage.http import LONGEST_ERROR, body, session
from quire.storage.window import Fetch, failure

FLIGHT = 64  # a cluster is near by, and its namenode answers everybody


def version_of(status: Any) -> str:
    """The version of a file, of its status: `<mtime in ms>-<bytes>-<id of the inode>`."""
    return f"{status['modificationTime']}-{status['length']}-{status['fileId']}"


@asynccontextmanager
async def opened(rest: WebHdfsRest, root: str, url: str) -> AsyncIterator[Fetch]:
    """Connections for one call; the value fetches the bytes of one request below `root` (without a slash at its end)."""
    trust = rest.access.trust() if rest.access.secure else True
    async with session("hdfs", trust=trust, silence=rest.access.timeout, keepalive=30, proxies=False) as connections:
        yield _WebHdfsReader(connections, rest, root, url).fetch


class _WebHdfsReader:
    def __init__(self, session: Any, rest: WebHdfsRest, root: str, url: str) -> None:
        self.session, self.rest, self.root, self.url = session, rest, root, url

    async def fetch(self, request: ReadRequest) -> bytes:
        data, failed = b"", None
        if request.length:
            try:
                data = await self._bytes(request)
            except (Unreadable, Vanished) as e:
                failed = e
        # Looked at after reading, against what the listing saw before: bytes of another version are not given.
        _, found = await self._asked(request.name, self.rest.address("GETFILESTATUS", f"{self.root}/{request.name}", {}))
        try:
            version = version_of(json.loads(found)["FileStatus"])
        except (ValueError, KeyError, TypeError):
            what, where = f"cannot read {self.url}/{request.name}", self.rest.access.netloc
            raise explained(what, Said(200, NO_NAMENODE, ""), self.rest.access, where) from None
        if version != request.version:
            raise Vanished("changed")
        if failed is not None:
            raise failed
        return data

    async def _bytes(self, request: ReadRequest) -> bytes:
        where = {"offset": request.start, "length": request.length}
        location, data = await self._asked(request.name, self.rest.address("OPEN", f"{self.root}/{request.name}", where), request.length)
        if location:  # else a gateway gives the content itself
            _, data = await self._asked(request.name, self.rest.onwards(location, f"{self.root}/{request.name}"), request.length)
        return data

    async def _asked(self, name: str, address: str, most: int = LONGEST_ERROR) -> tuple[str, bytes]:
        """Where we are sent on to, or the answer."""
        from aiohttp import ClientError
        from yarl import URL

        what, where = f"cannot read {self.url}/{name}", urlsplit(address).netloc
        ours = where == self.rest.access.netloc
        headers = self.rest.access.headers if ours else {"User-Agent": "quire"}
        try:
            async with self.session.get(URL(address, encoded=True), headers=headers, allow_redirects=False) as answer:
                if ours:
                    self.rest.access.heard()
                data = await body(answer, most)
                if answer.status == 307:
                    return str(answer.headers.get("Location", "")), b""
                if answer.status < 300:
                    return "", data
                told = said(answer.status, data)
        except (ClientError, OSError, TimeoutError, ValueError) as e:
            # Without what it came from, which names the address. The store has had answers from this namenode: it listed the file.
            raise unreachable(what, e, self.rest.access, where, known=True) from None
        raise self._failed(what, told, where)

    def _failed(self, what: str, told: Said, where: str) -> Exception:
        error = explained(what, told, self.rest.access, where)
        if isinstance(error, NotFoundError) or told.name == "ParentNotDirectoryException":
            return Vanished("vanished")
        return failure(what, error, busy=busy(told), everywhere=everywhere(told))
