"""Shared by stores that are reached by HTTP: whose certificates are believed, and the meaning of answers and errors."""

from __future__ import annotations

import os
import socket
import ssl
import time
from contextlib import suppress
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Literal

from quire.errors import TransientError, UsageError, scrub

BUSY = frozenset((408, 425, 429, 500, 502, 503, 504))  # answers that may be others a moment later
LONGEST_WAIT = 300.0  # seconds that a service may ask for

# The system's codes for a name that is unknown or has no address; not each system has each.
_UNKNOWN = tuple(getattr(socket, code) for code in ("EAI_NONAME", "EAI_NODATA", "EAI_ADDRFAMILY") if hasattr(socket, code))

# Why a request had no answer: the host's name is not known, or not just now; the other side speaks no TLS, or its certificate is not
# believed; a proxy; nobody listens; no answer in time; the connection was lost.
Unanswered = Literal["no host", "no name", "no tls", "no trust", "proxy", "nobody", "late", "lost"]


def trusted(verify: bool | str = True) -> ssl.SSLContext:
    """The certificates that are believed: those of a file or directory, or whatever comes (False), or those of this machine.

    The last are those that OpenSSL finds (SSL_CERT_FILE, SSL_CERT_DIR, then its own places), or else those of the package certifi.
    """
    return _trusted(verify, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@lru_cache(16)
def _trusted(verify: bool | str, *_: str | None) -> ssl.SSLContext:
    if isinstance(verify, str):
        there = os.path.isdir(verify)
        try:
            return ssl.create_default_context(cafile=None if there else verify, capath=verify if there else None)
        except OSError as e:
            raise UsageError(f"{scrub(verify, 150)} holds no certificates that can be read ({e.strerror or type(e).__name__}).") from None
    made = ssl.create_default_context()
    if verify:
        found = ssl.get_default_verify_paths()
        if not found.cafile and not (found.capath and os.listdir(found.capath)):
            with suppress(ImportError):
                import certifi

                made.load_verify_locations(certifi.where())
    else:
        made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    return made


def span(size: int, start: int, length: int) -> str:
    """The value of the header Range that asks for part of an object of `size` bytes; empty for all of it.

    For an empty range the first byte is requested: without the header a service sends the whole object.
    """
    if not size or (not start and length == size):
        return ""
    return f"bytes={start}-{start + length - 1}" if length else "bytes=0-0"


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
    return isinstance(error, UnicodeError) and "idna" in str(error)  # no name can be so: a part is too long, or empty


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
