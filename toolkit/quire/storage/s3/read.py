"""Many requests at once: how `window` asks S3 for an object, and `sending` sends a part.

The signature is AWS's version 4 (S3's reference, "Authenticating Requests: Using the Authorization Header").
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import time
from typing import Any
from urllib.parse import quote, urlsplit
from xml.sax.saxutils import unescape

from quire.errors import StorageError
from quire.storage import sending
from quire.storage.base import ReadRequest, Vanished
from quire.storage.http import span, trusted
from quire.storage.message import Answer
from quire.storage.s3.account import Endpoint, S3Account
from quire.storage.s3.errors import everywhere, explained, refused
from quire.storage.window import UNANSWERED, Fetch, Steps, failure
from quire.storage.wire import SILENCE as WAITED
from quire.storage.wire import Ask, Wire

RENEW = 60.0  # seconds after which the credentials are asked for again: whether they end soon is known there
_EMPTY = hashlib.sha256(b"").hexdigest()


class Signer:
    """Signs requests of one place. Its key holds for a day, and all but the path's part of what is signed for a second."""

    def __init__(self, account: S3Account, place: Endpoint) -> None:
        self.account, self.place = account, place
        where = urlsplit(place.base)
        self.host, self.path = where.netloc.rpartition("@")[2], where.path
        self.origin = f"{where.scheme}://{self.host}"
        self.day, self.until, self.who, self.key = "", 0.0, None, b""
        self._at, self._lines, self._parts = -1, "", ("", "", "")

    def headers(self, path: str, method: str = "GET", query: str = "", digest: str = _EMPTY) -> str:
        """The headers, as lines, that sign a request of this path (already quoted); the host is signed, too, and is not among them.

        query   its arguments, quoted, in the order of their names; digest: of its body, by SHA-256, which the service compares
        """
        now, clock = int(time.time()), time.monotonic()
        if digest != _EMPTY:
            lines, parts = self._constant(now, clock, digest)
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

    def _constant(self, now: int, clock: float, digest: str = _EMPTY) -> tuple[str, tuple[str, str, str]]:
        """All that holds for this second: the headers' lines, and what stands around the path's part when it is signed."""
        signed = {"host": self.host}
        if self.account.pays:
            signed["x-amz-request-payer"] = "requester"
        if not self.account.anonymous:
            at = time.gmtime(now)
            moment, day = time.strftime("%Y%m%dT%H%M%SZ", at), time.strftime("%Y%m%d", at)
            if clock > self.until or day != self.day:
                self._renew(day, clock)
            who: Any = self.who
            signed |= {"x-amz-content-sha256": digest, "x-amz-date": moment}
            if who.token:
                if not (who.token.isascii() and who.token.isprintable()):
                    raise StorageError("the token of S3's credentials is not one: it holds a line's end. Look at the option token.")
                signed["x-amz-security-token"] = who.token
        lines = "".join(f"{name}: {value}\r\n" for name, value in signed.items() if name != "host")
        if self.account.anonymous:
            return lines, ("", "", "")
        names = ";".join(sorted(signed))
        listed = "".join(f"{name}:{signed[name]}\n" for name in sorted(signed))
        scope = f"{day}/{self.place.region}/s3/aws4_request"
        proof = f"authorization: AWS4-HMAC-SHA256 Credential={who.access_key}/{scope}, SignedHeaders={names}, Signature="
        return lines, (f"\n{listed}\n{names}\n{digest}", f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n", proof)

    def _renew(self, day: str, clock: float) -> None:
        self.who = self.account.credentials()
        key = b"AWS4" + self.who.secret_key.encode()  # type: ignore[attr-defined]  # botocore has no types
        for part in (day, self.place.region, "s3", "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        self.key, self.day, self.until = key, day, clock + RENEW


def wire(account: S3Account, silence: float = WAITED) -> Wire:
    """Connections, which believe as those of single requests do."""
    verify = account.kwargs.get("verify")
    own = verify if isinstance(verify, str) else (os.environ.get("AWS_CA_BUNDLE") or True) if verify is not False else False
    return Wire(lambda: trusted(own), silence=silence)


def opened(account: S3Account, place: Endpoint, bucket: str, root: str, url: str) -> tuple[Wire, Fetch]:
    """Connections for one call, and how they fetch what lies below `root` (with a slash at its end, or empty)."""
    signer = Signer(account, place)

    def fetch(request: ReadRequest) -> Steps:
        name, version, size, start, length = request
        if not (version.isascii() and version.isprintable()):
            raise Vanished("changed")  # no object has such a version, and in a header it would be another header
        path = signer.path + quote(root + name, safe="/-_.~")
        headers = f'{signer.headers(path)}If-Match: "{version}"\r\n'
        if asked := span(size, start, length):
            headers += f"Range: {asked}\r\n"
        try:
            answer = yield Ask("GET", signer.origin, path, headers, length)
        except UNANSWERED as e:
            raise explained(f"cannot read {url}/{name}", e, account.host, bucket) from None
        if answer.status in (200, 206):
            return answer.body if length else b""
        raise failed(name, answer)

    def failed(name: str, answer: Answer) -> Exception:
        status, code = answer.status, _said(answer.body, "Code")
        if status == 412:
            return Vanished("changed")
        if status == 416:
            return Vanished("changed: it is shorter than it was")
        if status == 404 and not everywhere(code, status):
            return Vanished("vanished")
        return _refused(f"cannot read {url}/{name}", answer, account.host, bucket, alone=True)

    return wire(account), fetch


def part(signer: Signer, key: str, query: str, piece: bytes | memoryview, digest: str, what: str, bucket: str) -> sending.Steps:
    """Put a part of the object `key`, and return its etag; `what` is like 'cannot write s3://bucket/x'."""
    path, host = signer.path + quote(key, safe="/-_.~"), signer.account.host
    try:
        headers = signer.headers(path, "PUT", query, digest)
        answer = yield Ask("PUT", signer.origin, f"{path}?{query}", headers, 0, piece)
    except StorageError:
        raise
    except Exception as e:  # of the connection, or of boto3 where credentials are renewed
        raise explained(what, e, host, bucket) from None
    if answer.status == 200 and (etag := answer.headers.get("etag", "").strip('"')):
        return etag
    raise _refused(what, answer, host, bucket)


def _refused(what: str, answer: Answer, host: str, bucket: str, *, alone: bool = False) -> Exception:
    """`alone`: an object that cannot be read is told of by itself."""
    status, code = answer.status, _said(answer.body, "Code")
    error = refused(what, status, code, _said(answer.body, "Message"), answer.headers, host, bucket)
    return failure(what, error, busy=status in (429, 503), everywhere=not alone or everywhere(code, status))


def _said(body: bytes, what: str) -> str:
    found = re.search(rf"<{what}>([^<]{{0,1000}})</{what}>".encode(), body)
    return unescape(found[1].decode("utf-8", "replace")) if found else ""
