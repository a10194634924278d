"""The places that `wire` asks: a host's addresses, the proxy before it, and whose certificates are believed there."""

from __future__ import annotations

import base64
import socket
import ssl
import threading
import urllib.request
from collections import deque
from collections.abc import Callable, Container, Mapping
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

KNOWN, UNKNOWN = 300.0, 1.0  # seconds that an address is known, and that a host has none


class ProxyRefused(OSError):
    """The proxy does not answer, or does not let us through."""


class NameResolutionFailed(OSError):
    """A host's name could not be looked up just now."""


def plain(text: str) -> bool:
    """Whether it is one word of a request: an address may come from a service, and a line's end in it would begin a header."""
    return text.isascii() and text.isprintable() and " " not in text


def port_of(split: SplitResult) -> int | None:
    """The port that an address means; None: it names none that there is."""
    try:
        return (443 if split.scheme == "https" else 80) if split.port is None else split.port or None
    except ValueError:
        return None


class Place:
    """A host and port, how it is reached, and its connections that wait."""

    def __init__(self, origin: str, trust: Callable[[], ssl.SSLContext], proxies: Mapping[str, str]) -> None:
        split = urlsplit(origin)
        port = port_of(split)
        if split.scheme not in ("http", "https") or not split.hostname or not port or not plain(origin):
            raise ValueError("not an address of http")
        self.netloc = split.netloc.rpartition("@")[2]
        self.host, self.port = split.hostname, port
        self.secure = split.scheme == "https"
        self.trust = trust() if self.secure else None
        self.key = self.trust, self.host, self.port
        self.idle = deque[Any]()
        self.before = self.more = self.proof = ""  # before a target; further headers, and those of a tunnel
        self.proxied = False
        self.at = self.host, self.port  # where to connect
        found = proxies.get(split.scheme)
        # NO_PROXY may name a port, too.
        if found and not any(map(urllib.request.proxy_bypass, (self.host, f"{self.host}:{self.port}"))):
            self._by(found, origin)
        self._addresses = deque[tuple[Any, ...]]()
        self._error: OSError | ValueError | None = None
        self._until = -1.0

    def _by(self, proxy: str, origin: str) -> None:
        split = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        port = port_of(split)
        if split.scheme != "http" or not split.hostname or not port:
            raise ProxyRefused("a proxy is asked by http alone")
        self.proxied, self.at = True, (split.hostname, port)
        if split.username:
            who = f"{unquote(split.username)}:{unquote(split.password or '')}".encode()
            self.proof = f"Proxy-Authorization: Basic {base64.b64encode(who).decode()}\r\n"
        if not self.secure:
            self.before, self.more = origin, self.proof

    def addresses(self, now: float) -> deque[tuple[Any, ...]]:
        """The host's addresses, looked up when they are not known; another thread does it, since no signal ends a look-up."""
        if now >= self._until:
            looking = threading.Thread(target=self._look_up, name="quire-names", daemon=True)
            looking.start()
            looking.join()
            self._until = now + (UNKNOWN if self._error else KNOWN)
        if self._error:
            raise self._error
        return self._addresses

    def _look_up(self) -> None:
        self._error = None
        try:
            found = socket.getaddrinfo(*self.at, type=socket.SOCK_STREAM)
            self._addresses = deque((family, address) for family, _, _, _, address in found)
        except (socket.gaierror, ValueError) as e:
            self._error = e
        except OSError as e:
            self._error = NameResolutionFailed(e.errno, e.strerror)

    def last(self, failed: Container[tuple[Any, ...]]) -> None:
        """Addresses that take no connections are tried last from now on."""
        if self._addresses and self._addresses[0] in failed:
            self._addresses.rotate(-1)
