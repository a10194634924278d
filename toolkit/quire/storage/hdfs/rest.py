"""Single requests to a namenode, and to the datanodes that it sends us on to.

By the standard library: the common clients log each address at their lowest level, and WebHDFS has the delegation token in it.
Connections to a namenode are kept; a datanode closes each of its own. Proxies are not looked for: a cluster is asked from near by.
"""

from __future__ import annotations

import http.client
import json
import os
import select
import weakref
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from quire.errors import StorageError
from quire.storage.hdfs.access import Access
from quire.storage.hdfs.errors import NO_NAMENODE, Said, explained, said, unreachable
from quire.storage.options import shared

CONNECT = 10.0  # seconds until a connection is made
KEPT = 64  # connections to one namenode that wait for their next request
TOO_LONG = "too long"
VERSION = "/webhdfs/v1"

_answered = set[str]()  # hosts that have answered this process: if one does not, it may come back


class WebHdfsResponse(NamedTuple):
    """An answer of a namenode or a datanode."""

    refused: str  # the exception's name, or nothing
    body: bytes = b""
    location: str = ""  # where we are sent on to
    said: Any = None  # the body's JSON, if the answer is not content


_Connections = deque[http.client.HTTPConnection]


class WebHdfsRest:
    """Requests about what lies in one file system."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self._idle: _Connections = deque()
        self._process = os.getpid()
        weakref.finalize(self, _close, self._idle)

    def address(self, op: str, path: str, query: Mapping[str, object]) -> str:
        """Where the namenode is asked; it holds the delegation token, so it stands in no message."""
        asked = {"op": op, **self.access.query, **query}
        return f"{self.access.base}{quote(path or '/')}?{urlencode(asked)}"

    def ask(self, method: str, op: str, path: str, what: str, answers: tuple[str, ...] = (), **query: object) -> WebHdfsResponse:
        """One request to the namenode. A refusal by an exception named in `answers` is an answer; others are explained."""
        status, headers, body = self._send(what, method, self.address(op, path, query))
        if status == 307:
            return WebHdfsResponse("", location=headers.get("Location") or "")
        found = self._answer(what, self.access.netloc, status, body, answers)
        if found.refused or (op == "OPEN" and headers.get("Content-Type") == "application/octet-stream"):
            return found  # a gateway gives the content itself
        try:
            return found._replace(said=json.loads(found.body) if found.body else {})
        except ValueError:
            raise explained(what, Said(status, NO_NAMENODE, ""), self.access, self.access.netloc) from None

    def sent_on(
        self, method: str, op: str, path: str, what: str, answers: tuple[str, ...] = (), *, data: bytes | memoryview = b"",
        limit: int | None = None, query: Mapping[str, object] | None = None,
    ) -> WebHdfsResponse:  # fmt: skip
        """A request whose bytes go to, or come from, the datanode that the namenode names.

        `limit`: an answer of more bytes is not read; it is refused as TOO_LONG.
        """
        found = self.ask(method, op, path, what, answers, **(query or {}))
        if found.refused or (found.said is None and not found.location):
            return found
        return self.at(method, path, found.location, what, answers, data=data, limit=limit)

    def at(
        self, method: str, path: str, location: str, what: str, answers: tuple[str, ...] = (), *, data: bytes | memoryview = b"",
        limit: int | None = None,
    ) -> WebHdfsResponse:  # fmt: skip
        """The second half of `sent_on`."""
        if not location:
            raise explained(what, Said(200, NO_NAMENODE, ""), self.access, self.access.netloc)
        address = self.onwards(location, path)
        status, _, body = self._send(what, method, address, data, limit)
        if body is None:
            return WebHdfsResponse(TOO_LONG)
        return self._answer(what, urlsplit(address).netloc, status, body, answers)

    def onwards(self, location: str, path: str) -> str:
        """Where the namenode sends us, with the path as we know it: Java composes accents, which makes another name of it."""
        place = urlsplit(location)
        if place.path.startswith(f"{VERSION}/"):
            location = place._replace(path=VERSION + quote(path)).geturl()
        return self.access.moved(location)

    def _answer(self, what: str, where: str, status: int, body: bytes | None, answers: tuple[str, ...]) -> WebHdfsResponse:
        assert body is not None
        if status < 300:
            return WebHdfsResponse("", body)
        told = said(status, body)
        if told.name in answers:
            return WebHdfsResponse(told.name, body)
        raise explained(what, told, self.access, where)

    def _send(
        self, what: str, method: str, address: str, data: bytes | memoryview = b"", limit: int | None = None
    ) -> tuple[int, Mapping[str, str], bytes | None]:
        place = urlsplit(address)
        ours = place.netloc == self.access.netloc
        headers = dict(self.access.headers if ours else {"User-Agent": "quire"})
        if method in ("PUT", "POST"):
            headers |= {"Content-Type": "application/octet-stream", "Content-Length": str(len(data))}
        target = address.partition("://")[2].partition("/")[2]
        connection = self._connection(place.scheme, place.netloc, kept=ours)
        try:
            self._connect(connection)
            with suppress(BrokenPipeError, ConnectionResetError):  # it may have answered before it had read all
                try:
                    connection.request(method, f"/{target}", data or None, headers)
                except http.client.CannotSendRequest:
                    # A kept connection in the middle of something: nothing was sent, so it goes by a new one.
                    connection.close()
                    self._connect(connection := self._connection(place.scheme, place.netloc, kept=False))
                    connection.request(method, f"/{target}", data or None, headers)
            answer = connection.getresponse()
            too_long = limit is not None and (answer.length or 0) > limit
            found = answer.status, answer.headers, None if too_long else answer.read()
        except (OSError, http.client.HTTPException, ValueError) as e:
            connection.close()
            # Without what it came from: some of these errors name the address.
            raise unreachable(what, e, self.access, place.netloc, place.netloc in _answered) from None
        except BaseException:
            connection.close()
            raise
        if ours:
            self.access.heard()
        if found[0] < 500 and len(_answered) < 10_000:
            _answered.add(place.netloc)
        if not ours or too_long or answer.will_close or len(self._idle) >= KEPT:
            connection.close()
        else:
            self._idle.append(connection)
        return found  # type: ignore[return-value]  # headers are a Message, which is as good as a mapping

    def _connect(self, connection: http.client.HTTPConnection) -> None:
        if connection.sock is None:
            connection.connect()
            assert connection.sock is not None
            connection.sock.settimeout(self.access.timeout)

    def _connection(self, scheme: str, netloc: str, kept: bool) -> http.client.HTTPConnection:
        if self._process != os.getpid():  # after a fork: these connections are the parent's
            _close(self._idle)
            self._process = os.getpid()
        while kept:
            try:
                found = self._idle.pop()
            except IndexError:
                break
            if not _dropped(found) and (found.host, found.port) == _address(scheme, netloc):
                return found
            found.close()
        if scheme == "https":
            return http.client.HTTPSConnection(netloc, timeout=CONNECT, context=self.access.trust())
        if scheme != "http":
            raise StorageError(f"{netloc} sends us on to an address that is none. Look at the option data_proxy.")
        return http.client.HTTPConnection(netloc, timeout=CONNECT)


def _address(scheme: str, netloc: str) -> tuple[str | None, int]:
    place = urlsplit(f"//{netloc}")
    return place.hostname, place.port or (443 if scheme == "https" else 80)


def _dropped(connection: http.client.HTTPConnection) -> bool:
    """Whether the other side has closed it while nobody asked: then there is something to read, its end."""
    if connection.sock is None:
        return True
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))


def _close(idle: _Connections) -> None:
    while idle:
        idle.pop().close()


_rests: dict[str, WebHdfsRest] = {}


def rest(netloc: str, options: Mapping[str, object] | None) -> WebHdfsRest:
    """Requests by these options; the same options mean the same connections, also for the next store."""
    given = dict(options or {})
    return shared(_rests, [netloc, given, os.environ.get("HADOOP_USER_NAME")], lambda: WebHdfsRest(Access(netloc, given)))
