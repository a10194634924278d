"""Shared by stores that are reached by HTTP: connections for reading many objects, and the meaning of answers and errors."""

from __future__ import annotations

import socket
import ssl
import time
import urllib.request
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from quire.errors import TransientError, UsageError
from quire.packaging import install

CONNECT, SILENCE = 10.0, 30.0  # seconds until a connection is made, and without a byte
BUSY = frozenset((408, 425, 429, 500, 502, 503, 504))  # answers that may be others a moment later
LONGEST_WAIT = 300.0  # seconds that a service may ask for
LONGEST_ERROR = 1 << 20  # bytes of an answer that says what is wrong

# The codes for a name that is unknown or has no address: the system's (not each system has each), and c-ares', which aiohttp may ask.
_UNKNOWN = tuple(getattr(socket, code) for code in ("EAI_NONAME", "EAI_NODATA", "EAI_ADDRFAMILY") if hasattr(socket, code))
_UNKNOWN_TO_CARES = ((1,), (4,), (8,))  # ENODATA, ENOTFOUND, EBADNAME

# Why a request had no answer: the host's name is not known, or not just now; the other side speaks no TLS, or its certificate is not
# believed; a proxy; nobody listens; no answer in time; the connection was lost.
Unanswered = Literal["no host", "no name", "no tls", "no trust", "proxy", "nobody", "late", "lost"]


def session(extra: str, *, trust: Any = True, silence: float = SILENCE, keepalive: float = 60, proxies: bool = True) -> Any:
    """aiohttp's, for one call of `read_many`: as many connections as there are reads in flight, and bytes as they lie there.

    `extra`: of quire's packages, to be named where aiohttp is missing. `trust`: what aiohttp takes as `ssl`.
    """
    try:
        import aiohttp
    except ImportError as e:
        raise UsageError(f"this store needs more packages: {install(extra)}") from e
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=keepalive, ttl_dns_cache=300, ssl=trust),
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=("User-Agent", "Accept-Encoding"),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT, sock_read=silence),
        trust_env=proxies and bool(urllib.request.getproxies()),  # to ask for each request costs as much as the request
    )


def span(size: int, start: int, length: int) -> dict[str, str]:
    """The header that asks for a range of an object of `size` bytes; none for all of it.

    For an empty range the first byte is requested: without the header a service sends the whole object.
    """
    if not size or (not start and length == size):
        return {}
    return {"Range": f"bytes={start}-{start + length - 1}" if length else "bytes=0-0"}


async def body(answer: Any, most: int) -> bytes:
    """The body of aiohttp's answer, `most` bytes and one at most: a service that sends more than it was asked for fills no memory."""
    most = most if answer.status in (200, 206) else LONGEST_ERROR
    if answer.content_length is not None and answer.content_length <= most:
        data: bytes = await answer.read()
        return data
    pieces, left = list[bytes](), most + 1
    while left and (piece := await answer.content.read(left)):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def seconds(text: str) -> float:
    """The seconds of a Retry-After, which is a number of seconds or a date."""
    try:
        wait = float(text)
    except ValueError:
        try:
            wait = parsedate_to_datetime(text).timestamp() - time.time()
        except (ValueError, OverflowError):
            return 0.0
    return max(0.0, min(wait, LONGEST_WAIT))


def unanswered(error: BaseException) -> tuple[Unanswered, str]:
    """Why a request had no answer, from what any client of HTTP raised; and the name of the innermost error."""
    found = _causes(error)
    names, innermost = " ".join(type(c).__name__ for c in found), type(found[-1]).__name__
    if "gaierror" in names or "NameResolution" in names or "DNS" in names or any(map(_unknown, found)):
        return "no host" if any(map(_unknown, found)) else "no name", innermost
    if "Certificate" in names or any("CERTIFICATE_" in str(c) for c in found):
        return "no trust", innermost
    if any(isinstance(c, ssl.SSLError) and not isinstance(c, ssl.SSLEOFError | ssl.SSLZeroReturnError) for c in found):
        return "no tls", innermost
    if "Proxy" in names:
        return "proxy", innermost
    if any(isinstance(c, ConnectionRefusedError) for c in found):
        return "nobody", innermost
    return "late" if "imeout" in names else "lost", innermost


def _unknown(error: BaseException) -> bool:
    """Whether it says that DNS does not know a name, or that none can be so: not that DNS, or this machine, cannot look it up just now."""
    if isinstance(error, socket.gaierror):
        return error.errno in _UNKNOWN
    if isinstance(error, UnicodeError):
        return "idna" in str(error)  # no name can be so: a part is too long, or empty
    return type(error).__name__ == "DNSError" and error.args[:1] in _UNKNOWN_TO_CARES


def for_now(what: str, host: str, why: Unanswered, innermost: str) -> TransientError:
    """The error for a request that may have an answer next time."""
    said = {"nobody": "nobody listens there", "late": "no answer in time", "no name": "its name cannot be looked up just now"}
    return TransientError(f"{what}: {said.get(why, 'the connection was lost')} ({host}: {innermost})")


def _causes(error: BaseException) -> list[BaseException]:
    """An error and what it came from, wherever the clients keep that."""
    found, cause = list[BaseException](), error
    while cause is not None and len(found) < 10:
        found.append(cause)
        held = (getattr(cause, "os_error", None), (getattr(cause, "kwargs", None) or {}).get("error"), getattr(cause, "reason", None))
        inner = next((e for e in (*held, *cause.args) if isinstance(e, BaseException)), None)
        cause = inner or cause.__cause__ or cause.__context__  # type: ignore[assignment]
    return found
