"""Requests on connections of quire's own: how `window` asks S3 for an object, `sending` sends a part, and a listing asks for a page.

The signature is AWS's version 4 (S3's reference, "Authenticating Requests: Using the Authorization Header").
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, urlsplit
from xml.sax.saxutils import unescape

from quire.errors import StorageError, UsageError
from quire.storage import sending, window
from quire.storage.base import ReadRequest, Vanished
from quire.storage.http import span
from quire.storage.message import Answer
from quire.storage.objects import begun
from quire.storage.place import plain
from quire.storage.s3.account import Endpoint, S3Account
from quire.storage.s3.errors import everywhere, explained, refused, region_of
from quire.storage.window import Fetch, Steps, failure
from quire.storage.wire import Ask, Wire

RENEW = 60.0  # seconds after which the credentials are asked for again: whether they end soon is known there
_EMPTY = hashlib.sha256(b"").hexdigest()


class Signer:
    """Signs requests about one bucket, or of another service. Its key holds for a day, and all but the path's part of what is signed for
    a second.
    """

    def __init__(self, account: S3Account, place: Endpoint, bucket: str = "", service: str = "s3") -> None:
        self.account, self.bucket, self.service = account, bucket, service
        self._go(place)

    @classmethod
    def of(cls, account: S3Account, bucket: str, what: str) -> Signer:
        """The one of a bucket, if requests can be signed; `what` is like 'cannot read s3://bucket/x'."""
        try:
            place = account.place(bucket)
            account.credentials()
        except (StorageError, UsageError):
            raise
        except Exception as e:  # of boto3
            raise explained(what, e, account.host, bucket) from None
        return cls(account, place, bucket)

    def _go(self, place: Endpoint) -> None:
        self.place, where = place, urlsplit(place.base)
        self.host, self.path = where.netloc.rpartition("@")[2], where.path
        self.origin = f"{where.scheme}://{self.host}"
        self.day, self.until, self.who, self.key = "", 0.0, None, b""
        self._at, self._lines, self._parts = -1, "", ("", "", "")

    def moves(self, answer: Answer, region: str) -> bool:
        """Whether the service says that the bucket is not in `region`, but in another one that it names: there it is asked from now on."""
        told = region_of(answer.status, said(answer.body, "Code"), said(answer.body, "Message"), answer.headers)
        if not told or told == region:
            return False
        if told != self.place.region:  # else another request has been told so before
            self._go(self.account.move(self.bucket, told))
        return True

    def headers(
        self, path: str, method: str = "GET", query: str = "", digest: str = _EMPTY, also: Mapping[str, str] = MappingProxyType({})
    ) -> str:
        """The headers, as lines, that sign a request of this path (already quoted); the host is signed, too, and is not among them.

        query   its arguments, quoted, in the order of their names; digest: of its body, by SHA-256, which the service compares
        also    other headers of a request with a body, by their names in small letters
        """
        now, clock = int(time.time()), time.monotonic()
        if also or digest != _EMPTY:
            lines, parts = self._constant(now, clock, digest, also)
        else:
            if now != self._at or clock > self.until:
                self._lines, self._parts, self._at = *self._constant(now, clock), now
            lines, parts = self._lines, self._parts
        if self.account.anonymous:
            return lines
        before, behind, proof = parts
        asked = hashlib.sha256(f"{method}\n{path}\n{query}{before}".encode()).hexdigest()
        signature = hmac.digest(self.key, f"{behind}{asked}".encode(), "sha256").hex()
        return f"{lines}{proof}{signature}\r\n"

    def _constant(
        self, now: int, clock: float, digest: str = _EMPTY, also: Mapping[str, str] = MappingProxyType({})
    ) -> tuple[str, tuple[str, str, str]]:
        """All that holds for this second: the headers' lines, and what stands around the path's part when it is signed."""
        signed = {"host": self.host, **also}
        if self.account.pays and self.service == "s3":
            signed["x-amz-request-payer"] = "requester"
        if not self.account.anonymous:
            at = time.gmtime(now)
            moment, day = time.strftime("%Y%m%dT%H%M%SZ", at), time.strftime("%Y%m%d", at)
            if clock > self.until or day != self.day:
                self._renew(day, clock)
            who: Any = self.who
            signed |= {"x-amz-content-sha256": digest, "x-amz-date": moment}
            for name, value in (("key", who.access_key), ("token", who.token or "")):
                if not plain(value):
                    raise StorageError(
                        f"the {name} of S3's credentials is not one: it holds a blank, a line's end, or a letter that none has. Look at "
                        f"the option {name}, or the variables of the environment."
                    )
            if who.token:
                signed["x-amz-security-token"] = who.token
        lines = "".join(f"{name}: {value}\r\n" for name, value in signed.items() if name != "host")
        if self.account.anonymous:
            return lines, ("", "", "")
        names = ";".join(sorted(signed))
        listed = "".join(f"{name}:{signed[name]}\n" for name in sorted(signed))
        scope = f"{day}/{self.place.region}/{self.service}/aws4_request"
        proof = f"authorization: AWS4-HMAC-SHA256 Credential={who.access_key}/{scope}, SignedHeaders={names}, Signature="
        return lines, (f"\n{listed}\n{names}\n{digest}", f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n", proof)

    def _renew(self, day: str, clock: float) -> None:
        self.who = self.account.credentials()
        key = b"AWS4" + self.who.secret_key.encode()  # type: ignore[attr-defined]  # botocore has no types
        for part in (day, self.place.region, self.service, "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        self.key, self.day, self.until = key, day, clock + RENEW


def asked(signer: Signer, what: str, ask: Callable[[], Ask]) -> Generator[Any, Any, Answer]:
    """The answer to a request, which is made anew where the bucket turns out to be in another region."""
    region = signer.place.region
    try:
        answer: Answer = yield ask()
        if answer.status >= 300 and signer.moves(answer, region):
            answer = yield ask()
    except (StorageError, UsageError):
        raise
    except Exception as e:  # of the connection, or of boto3 where credentials are renewed
        raise explained(what, e, signer.account.host, signer.bucket) from None
    return answer


def opened(signer: Signer, root: str, url: str) -> tuple[Wire, Fetch]:
    """Connections for one call, and how they fetch what lies below `root` (with a slash at its end, or empty)."""

    def fetch(request: ReadRequest) -> Steps:
        name, version, size, start, length = request
        if not (version.isascii() and version.isprintable()):
            raise Vanished("changed")  # no object has such a version, and in a header it would be another header

        def ask() -> Ask:
            path = signer.path + quote(root + name, safe="/-_.~")
            headers = f'{signer.headers(path)}If-Match: "{version}"\r\n'
            if part := span(size, start, length):
                headers += f"Range: {part}\r\n"
            return Ask("GET", signer.origin, path, headers, length)

        answer = yield from asked(signer, f"cannot read {url}/{name}", ask)
        if answer.status in (200, 206):
            return begun(f"cannot read {url}/{name}", answer, start).body if length else b""
        raise failed(name, answer)

    def failed(name: str, answer: Answer) -> Exception:
        status, code = answer.status, said(answer.body, "Code")
        if status == 412:
            return Vanished("changed")
        if status == 416:
            return Vanished("changed: it is shorter than it was")
        if status == 404 and not everywhere(code, status):
            return Vanished("vanished")
        return refusal(f"cannot read {url}/{name}", answer, signer, alone=True)

    return signer.account.wire(), fetch


def heads(
    signer: Signer, root: str, url: str, names: Sequence[str], flight: int
) -> Iterator[tuple[str, int, str | None, datetime]]:  # fmt: skip
    """Objects by their names: (name, bytes, etag, last change), with None in place of the etag of what is not there.

    Left out is what cannot be looked up: an answer to HEAD does not say why.
    """
    found = dict[str, tuple[int, str | None, datetime]]()

    def fetch(request: ReadRequest) -> Steps:
        def ask() -> Ask:
            path = signer.path + quote(root + request.name, safe="/-_.~")
            return Ask("HEAD", signer.origin, path, signer.headers(path, "HEAD"), 0)

        answer = yield from asked(signer, f"cannot look up {url}/{request.name}", ask)
        headers = answer.headers
        if answer.status == 404:
            found[request.name] = 0, None, datetime.now(UTC)
        elif answer.status == 200 and (tag := headers.get("ETag", "").strip('"')):
            with suppress(KeyError, ValueError):
                found[request.name] = int(headers["Content-Length"]), tag, parsedate_to_datetime(headers["Last-Modified"])
        elif answer.status in (429, 503):
            raise refusal(f"cannot look up {url}/{request.name}", answer, signer)
        return b""

    for request, _ in window.read((ReadRequest(name, "", 0, 0, 0) for name in names), lambda: (signer.account.wire(), fetch), flight):
        if request.name in found:
            yield request.name, *found[request.name]


def part(signer: Signer, key: str, query: str, piece: bytes | memoryview, digest: str, what: str) -> sending.Steps:
    """Put a part of the object `key`, and return its etag; `what` is like 'cannot write s3://bucket/x'."""

    def ask() -> Ask:
        path = signer.path + quote(key, safe="/-_.~")
        return Ask("PUT", signer.origin, f"{path}?{query}", signer.headers(path, "PUT", query, digest), 0, piece)

    answer = yield from asked(signer, what, ask)
    if answer.status == 200 and (etag := answer.headers.get("etag", "").strip('"')):
        return etag
    raise refusal(what, answer, signer)


def refusal(what: str, answer: Answer, signer: Signer, *, alone: bool = False) -> Exception:
    """The error for an answer that is a refusal; `alone`: an object that cannot be read is told of by itself."""
    status, code = answer.status, said(answer.body, "Code")
    error = refused(what, status, code, said(answer.body, "Message"), answer.headers, signer.account.host, signer.bucket)
    return failure(what, error, busy=status in (429, 503), everywhere=not alone or everywhere(code, status))


def said(body: bytes, what: str) -> str:
    """The text of an element of a refusal; empty: it has none."""
    found = re.search(rf"<{what}>([^<]{{0,1000}})</{what}>".encode(), body)
    return unescape(found[1].decode("utf-8", "replace")) if found else ""
