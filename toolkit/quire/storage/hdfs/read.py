"""Reading many files at once: how `window` asks a namenode and its datanodes for one.

A small file takes three requests: the namenode says which datanode has it, the datanode gives its bytes, and the namenode says in
which version it is now. Connections to the namenode are kept; a datanode closes each of its own.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any
from urllib.parse import urlsplit

from quire.errors import NotFoundError
from quire.storage.base import ReadRequest, Unreadable, Vanished
from quire.storage.hdfs.errors import NO_NAMENODE, Said, busy, everywhere, explained, said
from quire.storage.hdfs.rest import WebHdfsRest, located
from quire.storage.message import LONGEST_ERROR, Answer
from quire.storage.window import Fetch, Steps, failure
from quire.storage.wire import Ask, Wire

FLIGHT = 64  # a cluster is near by, and its namenode answers everybody


def version_of(status: Any) -> str:
    """The version of a file, of its status: `<mtime in ms>-<bytes>-<id of the inode>`."""
    return f"{status['modificationTime']}-{status['length']}-{status['fileId']}"


def opened(rest: WebHdfsRest, root: str, url: str) -> tuple[Wire, Fetch]:
    """Connections for one call, and how they fetch what lies below `root` (without a slash at its end)."""
    return rest.wire(), _WebHdfsReader(rest, root, url).fetch


class _WebHdfsReader:
    def __init__(self, rest: WebHdfsRest, root: str, url: str) -> None:
        self.rest, self.root, self.url = rest, root, url

    def fetch(self, request: ReadRequest) -> Steps:
        data, failed = b"", None
        if request.length:
            try:
                data = yield from self._bytes(request)
            except (Unreadable, Vanished) as e:
                failed = e
        # Looked at after reading, against what the listing saw before: bytes of another version are not given.
        _, found = yield from self._asked(request.name, self.rest.address("GETFILESTATUS", f"{self.root}/{request.name}", {}))
        try:
            version = version_of(json.loads(found)["FileStatus"])
        except (ValueError, KeyError, TypeError, RecursionError):
            what, where = f"cannot read {self.url}/{request.name}", self.rest.access.netloc
            raise explained(what, Said(200, NO_NAMENODE, ""), self.rest.access, where) from None
        if version != request.version:
            raise Vanished("changed")
        if failed is not None:
            raise failed
        return data

    def _bytes(self, request: ReadRequest) -> Steps:
        where = {"offset": request.start, "length": request.length}
        asked = self.rest.address("OPEN", f"{self.root}/{request.name}", where)
        location, data = yield from self._asked(request.name, asked, request.length)
        if location:  # else a gateway gives the content itself
            _, data = yield from self._asked(request.name, self.rest.onwards(location, f"{self.root}/{request.name}"), request.length)
        return data

    def _asked(self, name: str, address: str, most: int = LONGEST_ERROR) -> Generator[Ask, Answer, tuple[str, bytes]]:
        """Where we are sent on to, or the answer."""
        what = f"cannot read {self.url}/{name}"
        # The store has had answers from this namenode: it listed the file.
        answer: Answer = yield from self.rest.steps(what, "GET", address, most=most, known=True)
        if answer.status < 300 or located(answer):
            return located(answer), answer.body
        raise self._failed(what, said(answer.status, answer.body), urlsplit(address).netloc)

    def _failed(self, what: str, told: Said, where: str) -> Exception:
        error = explained(what, told, self.rest.access, where)
        if isinstance(error, NotFoundError) or told.name == "ParentNotDirectoryException":
            return Vanished("vanished")
        return failure(what, error, busy=busy(told), everywhere=everywhere(told))
