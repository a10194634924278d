"""Requests in flight, hundreds at once: HTTP/1.1 on connections of this call's own, that one thread drives (`window` does).

The standard library's sockets, without an event loop between: a small object costs 30 to 47 µs of processor time, signed, in order and
within a bound of bytes, where aiohttp took 262, and libcurl's multi interface takes 31 to 38 without any of these (`region.py`). There
is nothing here that a fork, or an interpreter's end, could break: connections belong to the call that made them. TLS is Python's own, so
its trusted certificates are those of this machine (`http.trusted`).

- A body is sent from where it lies, as fast as the other side takes it. An answer that comes before its end is the answer, and ends the
  connection.
- A connection that is kept may have been closed by the other side just when it is asked again: then the request is sent once more, on a
  new one, before it counts as failed; one that may not be sent twice has failed.
- An address that does not take connections is passed over where its host has others.
- Proxies are those of the environment. Through one to https there is a tunnel; what goes by http is asked of the proxy itself.
"""

from __future__ import annotations

import logging
import os
import selectors
import socket
import ssl
import sys
import time
import urllib.request
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.client import HTTPException
from typing import Any, NamedTuple

from quire.errors import hide
from quire.storage.connection import Connection, Flying, nothing
from quire.storage.http import trusted
from quire.storage.message import Answer
from quire.storage.place import Place, plain

SILENCE = 30.0  # seconds without a byte
KEPT = 60.0  # seconds that a connection waits for its next request
HELD = 1.0  # seconds: longer ones between two waits are the caller's, and no connection is silent for it
LOOK = 0.25  # seconds between two looks for what is late
_log = logging.getLogger("quire.storage")


class Ask(NamedTuple):
    """A request."""

    method: str
    origin: str  # like https://host:443
    target: str  # from the path on, quoted
    headers: str  # lines with their ends
    most: int  # bytes of an answer's body that are wanted
    body: bytes | memoryview | None = None  # None: it has none, which is not the same as an empty one
    resend: bool = True  # whether it may be sent twice: its connection may have ended before it was heard


def lines(headers: Mapping[str, str]) -> str:
    """Headers as a request has them. ValueError for a value that holds a line's end: behind it would begin another header."""
    if any("\r" in value or "\n" in value for value in headers.values()):
        raise ValueError("not a header")
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items())


class Wire:
    """Requests in flight, for one thread and one process.

    trust       gives whose certificates are believed; it is called where https is used
    silence     seconds without a byte after which a request has failed
    keepalive   seconds that a connection waits for its next request
    proxies     whether the environment's are used
    """

    def __init__(
        self, trust: Callable[[], ssl.SSLContext], *, silence: float = SILENCE, keepalive: float = KEPT, proxies: bool = True
    ) -> None:
        self.trust, self.silence, self.keepalive = trust, silence, keepalive
        self.proxies = urllib.request.getproxies() if proxies else {}
        self.now, self._left = 0.0, time.monotonic()  # seconds, without those that the caller took between two waits
        self.selector = selectors.DefaultSelector()
        self.done = list[tuple[Any, Answer | Exception]]()  # since the last wait
        self._places = dict[str, Place]()
        self._open = set[Connection]()
        self.sockets = set[socket.socket]()  # of its connections
        # Connections refer to it, so that it may end as a cycle, which has no order: its sockets must not be in there.
        weakref.finalize(self, _shut, self.sockets)
        self._looked = 0.0

    def send(self, ask: Ask, token: object) -> None:
        """Send a request; `wait` gives its answer, or error, with the token. Whatever goes wrong comes by `wait`, too."""
        place = self._places.get(ask.origin)
        try:
            if place is None:
                place = self._places[ask.origin] = Place(ask.origin, self.trust, self.proxies)
            method, target = ask.method, ask.target
            if not plain(target):
                raise ValueError("not a target of http")
            length = "" if ask.body is None else f"Content-Length: {len(ask.body)}\r\n"
            head = f"{method} {place.before}{target} HTTP/1.1\r\nHost: {place.netloc}\r\n{place.more}{ask.headers}{length}\r\n"
            sent = head.encode("latin-1")
            if _log.isEnabledFor(logging.DEBUG):
                _log.debug("%s %s%s", method, place.netloc, hide(target))
            sys.audit("http.client.send", self, sent)  # as the standard library's client tells whoever audits what leaves a process
            if ask.body:
                sys.audit("http.client.send", self, ask.body)
            self._begin(Flying(token, place, sent, ask.body or b"", ask.most, bodiless=method == "HEAD", resend=ask.resend))
        except (OSError, HTTPException, ValueError) as e:
            self.done.append((token, e))

    def wait(self, seconds: float) -> list[tuple[Any, Answer | Exception]]:
        """Answers and errors that have come, as (token, answer or error), after `seconds` at most."""
        began = time.monotonic()
        self.now += min(began - self._left, HELD)
        for key, _ in self.selector.select(0 if self.done else min(seconds, LOOK)):
            key.data.ready()
        self._left = time.monotonic()
        self.now += self._left - began
        if self.now - self._looked > LOOK:
            self._looked = self.now
            for connection in [each for each in self._open if each.flying and self.now - each.heard > each.patience]:
                connection.late()
        found, self.done = self.done, []
        return found

    def moved(self, token: object) -> int:
        """Bytes of a request and its answer that have gone over its connection."""
        return sum(each.flying.moved for each in self._open if each.flying and each.flying.token is token)

    def cancel(self, token: object) -> None:
        """Forget a request, and its connection."""
        for connection in [each for each in self._open if each.flying and each.flying.token is token]:
            self.close_one(connection)
        self.done = [each for each in self.done if each[0] is not token]

    def close(self) -> None:
        """Close all connections. In a process that was forked meanwhile the parent's stay open."""
        self.selector.close()  # first: to take single connections out of it would take them out of the parent's, too
        for connection in self._open:
            connection.ready = nothing
            connection.drop()
        self._open.clear()
        self._places.clear()

    # ---------------------------------------------------------------------------------------------------- for connections
    def _begin(self, flying: Flying) -> None:
        idle = flying.place.idle
        while idle:
            connection = idle.pop()
            if self.now - connection.heard < self.keepalive and (flying.resend or not connection.readable):
                connection.begin(flying)
                return
            self.close_one(connection)
        self.again(flying)

    def again(self, flying: Flying) -> None:
        """Send it on a new connection."""
        connection = Connection(self, flying)
        self._open.add(connection)
        assert connection.making is not None
        connection.making.go()

    def close_one(self, connection: Connection) -> None:
        self._open.discard(connection)
        connection.flying, connection.ready = None, nothing
        if connection.sock is not None:
            with suppress(KeyError, ValueError):  # it was not in there, or is closed already
                self.selector.unregister(connection.sock)
        connection.drop()


def _shut(sockets: set[socket.socket]) -> None:
    while sockets:
        sockets.pop().close()


def bundled(silence: float = SILENCE) -> Wire:
    """Connections that believe as Azure's and Google's own clients do: the variables of `requests` come before what this machine has."""
    own = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE") or True
    return Wire(lambda: trusted(own), silence=silence)
