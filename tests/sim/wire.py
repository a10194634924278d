"""A real service in the place of a simulated store: each request that quire makes is an operation of the world.

A process may so die before a request is sent, in the middle of its body, or after the answer; an answer may be lost, or the request
may arrive later. Requests of nobody (who looks from outside) pass as they are. What is read many at once passes as well: nothing
changes by it, and the sources of these runs are in memory.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import partial
from typing import Any, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

import urllib3

from quire.storage.asking import Asking, Steps
from quire.storage.message import Answer
from quire.storage.wire import Ask

__all__ = ["Place", "Wire", "changes", "tears"]

NOTICED = 0.3  # seconds until a service has dealt with a request that was cut off: to HDFS it is a file that ends early


class Place(Protocol):
    """An empty place on a service, and what lies in it, seen by somebody else than quire."""

    url: str
    path: str  # as it stands in the addresses of requests
    options: Mapping[str, object]

    def objects(self) -> Mapping[str, bytes]: ...

    def folders(self) -> list[str]: ...

    def waiting(self) -> list[str]:
        """The uploads that are open."""
        ...

    def expire(self) -> None:
        """Drop them all."""
        ...


Opens = Callable[[], AbstractContextManager[Place]]  # a new and empty place, which goes with its context


class Watch(Protocol):
    """Who is asked at each request."""

    actor: Any

    def do(self, store: Any, op: str, name: str, effect: Callable[[], Any], changes: bool, half: Callable[..., Any] | None) -> Any: ...


class _Cut(BaseException):
    """The connection ends here."""


def _begun(data: bytes, share: float) -> Iterator[bytes]:
    if share:
        yield data[: int(len(data) * share)]
    raise _Cut


def changes(op: str) -> bool:
    """Whether a request may change something."""
    return op.startswith(("PUT", "POST", "DELETE"))


def tears(op: str) -> bool:
    """Whether it has a body, which can be cut off."""
    return op.startswith("PUT") and op.endswith(" …")


def _answered(once: Callable[..., Any], asking: Asking, ask: Ask, body: bytes | Iterator[bytes] | None) -> Answer:
    """The answer to a request. Of a body that does not end the service hears what there is of it."""
    if not isinstance(body, bytes | None):
        where = urlsplit(ask.origin)
        with closing(http.client.HTTPConnection(str(where.hostname), where.port, timeout=20)) as connection:
            connection.putrequest(ask.method, ask.target, skip_accept_encoding=True)
            for line in ask.headers.splitlines():
                connection.putheader(*line.split(": ", 1))
            connection.putheader("Content-Length", str(len(ask.body or b"")))
            connection.endheaders()
            for piece in body:
                connection.send(piece)

    def steps() -> Steps:
        return (yield ask)

    return once(asking, steps)  # type: ignore[no-any-return]


class Wire:
    """All requests of this process to one place."""

    def __init__(self, place: Place, watch: Watch) -> None:
        self.place, self.watch = place, watch
        self.url = place.url  # whose operations these are

    @contextmanager
    def installed(self) -> Iterator[Wire]:
        urlopen, request, once = urllib3.HTTPConnectionPool.urlopen, http.client.HTTPConnection.request, Asking.once
        wire = self

        def asked(pool: Any, method: str, url: str, body: Any = None, headers: Any = None, **more: Any) -> Any:
            """Of `requests` and of botocore."""
            if wire.watch.actor is None:
                return urlopen(pool, method, url, body, headers, **more)
            data = body if isinstance(body, bytes | None) else body.read()
            return wire._do(
                method, url, data, lambda body: urlopen(pool, method, url, body, headers, **more), lambda answer: answer.close()
            )

        def sent(connection: Any, method: str, url: str, body: Any = None, headers: Any = None, **more: Any) -> None:
            """Of the standard library's client alone: urllib3's connections have a `request` of their own."""
            if wire.watch.actor is None:
                return request(connection, method, url, body, headers or {}, **more)

            def effect(body: Any) -> Any:
                connection.__dict__.pop("getresponse", None)
                request(connection, method, url, body, headers or {}, **more)
                return connection.getresponse()

            def close(answer: Any) -> None:
                answer.close()
                connection.close()

            answer = wire._do(method, url, body, effect, close)

            def once() -> Any:
                del connection.getresponse  # a kept connection outlives this wire
                return answer

            connection.getresponse = once
            return None

        def single(asking: Asking, begin: Callable[[], Steps]) -> Any:
            """Of Azure and Google."""
            return once(asking, begin) if wire.watch.actor is None else wire._single(once, asking, begin)

        urllib3.HTTPConnectionPool.urlopen = asked  # type: ignore[method-assign, assignment]
        Asking.once = single  # type: ignore[method-assign]
        http.client.HTTPConnection.request = sent  # type: ignore[method-assign, assignment]
        try:
            yield self
        finally:
            urllib3.HTTPConnectionPool.urlopen = urlopen  # type: ignore[method-assign]
            Asking.once = once  # type: ignore[method-assign]
            http.client.HTTPConnection.request = request  # type: ignore[method-assign]

    def _single(self, once: Callable[..., Any], asking: Asking, begin: Callable[[], Steps]) -> Any:
        """The end of one request's steps."""
        steps = begin()
        ask: Ask = next(steps)
        data = None if ask.body is None else bytes(ask.body)
        try:
            answer = self._do(ask.method, ask.target, data, lambda body: _answered(once, asking, ask, body), lambda _: None)
        except Exception as e:
            goes_on = partial(steps.throw, e)
        else:
            goes_on = partial(steps.send, answer)
        try:
            goes_on()
        except StopIteration as e:
            return e.value
        raise AssertionError("a single request has one step")

    def _do(self, method: str, url: str, data: bytes | None, effect: Callable[[Any], Any], close: Callable[[Any], None]) -> Any:
        """One request; `close` ends the connection of an answer that nobody reads."""

        def half(share: float = 0.5) -> None:
            with suppress(_Cut):
                effect(_begun(data or b"", share))
            time.sleep(NOTICED)

        unread, nobody_waits = list[Any](), False

        def whole() -> Any:
            answer = effect(data)
            if nobody_waits:
                close(answer)
            else:
                unread.append(answer)
            return answer

        op, name = self._named(method, url, data)
        try:
            return self.watch.do(self, op, name, whole, changes(op), half if tears(op) else None)
        except BaseException:
            nobody_waits = True
            for answer in unread:
                close(answer)
            raise

    def _named(self, method: str, url: str, data: bytes | None) -> tuple[str, str]:
        """Such as `PUT block …` and the name below the place."""
        where = urlsplit(url)
        query = {key: values[0] for key, values in parse_qs(where.query, keep_blank_values=True).items()}
        what = query.get("comp") or query.get("op") or next((key for key in ("partNumber", "uploads", "uploadId") if key in query), "")
        path = unquote(query.get("destination") or f"{where.path.rstrip('/')}/{query.get('prefix') or query.get('name', '')}")
        name = path.partition(self.place.path)[2].strip("/")
        return " ".join(filter(None, (method, what, "…" if data else ""))), name
