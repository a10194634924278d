"""One connection of `wire`: how it is made, and one request after the other on it."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import selectors
import socket
import ssl
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException
from typing import TYPE_CHECKING, Any

from quire.storage.message import Incoming
from quire.storage.place import Place, ProxyRefused

if TYPE_CHECKING:
    from quire.storage.wire import Wire

CONNECT = 10.0  # seconds until a connection is made
NEXT = 2.0  # seconds until another address of the same host is tried
CHUNK = 256 << 10  # bytes that are read at once
SESSIONS = 256
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
LATER = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

_NOTHING = Incoming(0)
sessions: dict[tuple[ssl.SSLContext | None, str, int], Any] = {}  # of TLS, by place, to be taken up again


class Flying:
    """A request on its way."""

    __slots__ = ("bodiless", "body", "head", "most", "moved", "place", "resend", "token")

    def __init__(
        self, token: object, place: Place, head: bytes, body: bytes | memoryview, most: int, *, bodiless: bool, resend: bool
    ) -> None:
        self.token, self.place, self.head, self.body, self.most, self.bodiless = token, place, head, body, most, bodiless
        self.resend = resend  # whether it may be sent twice
        self.moved = 0  # bytes of it and of its answer that have gone over the connection


class Connection:
    """One connection, which takes one request after the other. `ready` is called where it can go on."""

    __slots__ = (
        "_behind",
        "_fresh",
        "_incoming",
        "_queued",
        "_unsent",
        "flying",
        "heard",
        "making",
        "patience",
        "place",
        "ready",
        "sock",
        "wire",
    )

    def __init__(self, wire: Wire, flying: Flying) -> None:
        self.wire, self.place = wire, flying.place
        self.sock: Any = None
        self.flying: Flying | None = flying
        self.heard, self.patience = wire.now, CONNECT
        self.ready: Callable[[], None] = nothing
        self._fresh = True  # no answer has come on it yet
        self._incoming = _NOTHING
        self._unsent: bytes | memoryview = b""
        self._behind: bytes | memoryview = b""  # of the request, after what is unsent
        self._queued = 0  # bytes that the system had not brought over when it was last asked
        self.making: Making | None = Making(self)

    def take(self, sock: socket.socket) -> None:
        """Go on with this socket, in place of the one before."""
        self.wire.sockets.discard(self.sock)
        self.sock = sock
        self.wire.sockets.add(sock)

    def drop(self) -> None:
        """Close its socket, where it has one."""
        if self.sock is not None:
            self.wire.sockets.discard(self.sock)
            self.sock.close()

    def wait(self, events: int, ready: Callable[[], None], *, changed: bool = False) -> None:
        """Call `ready` at one of the `events`; `changed`: the selector knows the socket already."""
        self.ready = ready
        if changed:
            self.wire.selector.modify(self.sock, events, self)
        else:
            self.wire.selector.register(self.sock, events, self)

    @property
    def readable(self) -> bool:
        """Whether the other side has said something while nobody asked: most likely that it has closed the connection."""
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        return bool(poll.poll(0))

    def grant(self, seconds: float) -> None:
        """It may be silent for so long from now on."""
        self.heard, self.patience = self.wire.now, seconds

    def made(self) -> None:
        """It takes requests from now on."""
        assert self.flying is not None
        self.making = None
        self.wire.selector.modify(self.sock, READ, self)
        self.begin(self.flying)

    def begin(self, flying: Flying) -> None:
        """Send a request."""
        self.flying, self._incoming = flying, Incoming(flying.most, bodiless=flying.bodiless)
        self.grant(self.wire.silence)
        self.ready, self._unsent, self._behind = self._reading, flying.head, flying.body
        self._send()

    def _send(self) -> None:
        flying = self.flying
        assert flying is not None
        try:
            while self._unsent:
                sent = self.sock.send(self._unsent)
                flying.moved += sent
                if sent < len(self._unsent):
                    self._unsent = memoryview(self._unsent)[sent:]
                else:
                    self._unsent, self._behind = self._behind, b""
                self.heard = self.wire.now
        except LATER:
            self._queued = queued(self.sock)
            if self.ready != self._sending:
                self.wait(READ | WRITE, self._sending, changed=True)
            return
        except OSError as e:
            self._unheard(e)
            return
        if self.ready != self._reading:
            self._queued = queued(self.sock)
            self.wait(READ, self._reading, changed=True)

    def _sending(self) -> None:
        """Go on with a request, unless its answer comes already."""
        flying = self.flying
        self._reading()
        if self.flying is flying and self.ready == self._sending:
            self._send()

    def _unheard(self, error: OSError) -> None:
        """The other side takes no more of a request: it may have said why."""
        flying = self.flying
        self._reading()
        if self.flying is flying and self.ready != nothing:
            self._lost(error)

    def _reading(self) -> None:
        flying, incoming, plain = self.flying, self._incoming, self.place.trust is None
        if flying is None:
            self._idle()
            return
        self.heard = self.wire.now
        most = min(flying.most + 4096, CHUNK)
        try:
            while True:
                room = incoming.room
                if room is None:
                    data = self.sock.recv(most)
                    count = len(data)
                    whole = count and incoming.feed(data)
                else:
                    most = len(room)
                    count = self.sock.recv_into(room)
                    whole = count and incoming.took(count)
                flying.moved += count
                if not count:
                    incoming.ended()
                if whole or not count:
                    break
                if plain and count < most:
                    return
        except LATER:
            return
        except (OSError, HTTPException) as e:
            self._lost(e)
            return
        self._whole(flying, incoming)

    def _whole(self, flying: Flying, incoming: Incoming) -> None:
        place, wire = self.place, self.wire
        self.flying, self._incoming = None, _NOTHING  # while it waits it holds no body
        if self._fresh:
            self._fresh = False
            if place.secure:
                if len(sessions) >= SESSIONS:
                    sessions.clear()
                sessions[place.key] = self.sock.session
        if incoming.keeps and not self._unsent and (not place.secure or not self.sock.pending()):
            place.idle.append(self)
        else:
            wire.close_one(self)
        if self._unsent and incoming.status < 300:
            wire.done.append((flying.token, HTTPException("an answer before the end of the request")))
        elif incoming.status == 407 and place.proxied:
            wire.done.append((flying.token, ProxyRefused("status 407")))
        else:
            wire.done.append((flying.token, incoming.answer()))

    def _idle(self) -> None:
        """Nobody has asked: the other side has closed it, or answers all the same; TLS may have something to say of its own."""
        with suppress(OSError):
            try:
                self.sock.recv(1)
            except LATER:
                return
        self.place.idle.remove(self)
        self.wire.close_one(self)

    def late(self) -> None:
        """Nothing has come for too long."""
        if self.making:
            self.making.late()
        elif self._queued and (left := queued(self.sock)) < self._queued:  # a thin line, which brings over what was sent before
            self._queued, self.heard = left, self.wire.now
        else:
            self.failed(TimeoutError("no answer in time"))

    def _lost(self, error: Exception) -> None:
        """The connection is over."""
        flying = self.flying
        if self._fresh or self._incoming.begun or flying is None or not flying.resend:
            self.failed(error)
        else:
            self.wire.close_one(self)
            self.wire.again(flying)

    def failed(self, error: Exception) -> None:
        """It is over, and so is the request on it."""
        flying = self.flying
        assert flying is not None
        self.wire.close_one(self)
        self.wire.done.append((flying.token, error))


class Making:
    """A connection while it is made: by one address of its host after the other, through a proxy's tunnel, and greeted by TLS."""

    __slots__ = ("_tried", "connection", "greets", "incoming", "place", "wire")

    def __init__(self, connection: Connection) -> None:
        self.connection, self.wire, self.place = connection, connection.wire, connection.place
        self.incoming = Incoming(0)
        self.greets = False
        self._tried = set[tuple[Any, ...]]()

    def go(self, error: Exception | None = None) -> None:
        """Begin with the next address of the host; `error`: why not with those before."""
        error = error or OSError("the host has no address")
        try:
            left = [each for each in self.place.addresses(self.wire.now) if each not in self._tried]
            for others, (family, where) in zip(range(len(left) - 1, -1, -1), left, strict=True):
                self._tried.add((family, where))
                sock = socket.socket(family, socket.SOCK_STREAM)
                self.connection.take(sock)
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                code = sock.connect_ex(where)
                if code in (0, errno.EINPROGRESS):
                    self.connection.grant(NEXT if others else CONNECT)
                    self.connection.wait(WRITE, self._connecting)
                    return
                self.connection.drop()
                error = OSError(code, os.strerror(code))
        except (OSError, ValueError) as e:  # ValueError: a name that no host can have
            error = e
        self.failed(error)

    def _connecting(self) -> None:
        if code := self.connection.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._elsewhere(OSError(code, os.strerror(code)))
        elif not self.place.secure:
            self.connection.made()
        elif self.place.proxied:
            self._tunnel()
        else:
            self._greet()

    def _elsewhere(self, error: OSError) -> None:
        """Try another address, where there is one."""
        self.wire.selector.unregister(self.connection.sock)
        self.connection.drop()
        self.place.last(self._tried)
        self.go(error)

    def _tunnel(self) -> None:
        place = self.place
        where = f"{f'[{place.host}]' if ':' in place.host else place.host}:{place.port}"
        self.incoming = Incoming(0, bodiless=True)
        self.connection.grant(self.wire.silence)
        try:
            self.connection.sock.send(f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n{place.proof}\r\n".encode("latin-1"))
        except (OSError, ValueError) as e:
            self.failed(e)
        else:
            self.connection.wait(READ, self._tunnelling, changed=True)

    def _tunnelling(self) -> None:
        try:
            data = self.connection.sock.recv(CHUNK)
            if not data:
                self.incoming.ended()
            if self.incoming.feed(data):
                if self.incoming.status != 200:
                    raise ProxyRefused(f"status {self.incoming.status}")
                self._greet()
        except LATER:
            return
        except (OSError, HTTPException) as e:
            self.failed(e)

    def _greet(self) -> None:
        place = self.place
        assert place.trust is not None
        self.greets = True
        self.connection.grant(self.wire.silence)
        self.wire.selector.unregister(self.connection.sock)
        try:
            plain, session = self.connection.sock, sessions.get(place.key)
            greeting = place.trust.wrap_socket(plain, server_hostname=place.host, do_handshake_on_connect=False, session=session)
            self.connection.take(greeting)
            self.connection.wait(WRITE, self._greeting)
        except (OSError, ValueError) as e:
            self.failed(e)

    def _greeting(self) -> None:
        try:
            self.connection.sock.do_handshake()
        except ssl.SSLWantReadError:
            self.connection.wait(READ, self._greeting, changed=True)
        except ssl.SSLWantWriteError:
            self.connection.wait(WRITE, self._greeting, changed=True)
        except (OSError, ValueError) as e:  # ValueError: a certificate with odd names
            self.failed(e)
        else:
            self.connection.made()

    def late(self) -> None:
        """Nothing has come for too long."""
        error = TimeoutError("no connection in time")
        if self.greets or self.connection.ready != self._connecting:
            self.failed(error)
        else:
            self._elsewhere(error)

    def failed(self, error: Exception) -> None:
        """No connection could be made. Whatever keeps us from the proxy, or it from the service, is said of the proxy."""
        if self.place.proxied and not self.greets and not isinstance(error, ProxyRefused):
            error = ProxyRefused(type(error).__name__)
        self.connection.failed(error)


def queued(sock: socket.socket) -> int:
    """Bytes that were sent, and that the other side has not taken yet; 0 where the system does not tell."""
    try:
        return int.from_bytes(fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4)), sys.byteorder)
    except OSError:
        return 0


def nothing() -> None:
    """A connection that is closed, or not begun, is never ready."""
