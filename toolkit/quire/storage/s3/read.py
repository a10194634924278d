"""Reading many objects at once: the connections with which `window` asks S3.

aiohttp and a signature of our own take about 200 µs of processor time a small file. obstore is as fast, but a child that was forked
after its first use hangs, a process that ends right after it may abort, and it takes neither `a//b` nor empty objects in ranges.
The signature is AWS's version 4 (S3's reference, "Authenticating Requests: Using the Authorization Header").
"""

from __future__ import annotations

import hashlib
import hmac
import re
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote, urlsplit
from xml.sax.saxutils import unescape

from quire.storage.base import ReadRequest, Vanished
from quire.storage.http import body, session, span
from quire.storage.s3.account import Endpoint, S3Account
from quire.storage.s3.errors import everywhere, explained, refused
from quire.storage.window import Fetch, failure

RENEW = 60.0  # seconds after which the credentials are asked for again: whether they end soon is known there
_EMPTY = hashlib.sha256(b"").hexdigest()


class Signer:
    """Signs GETs of one place; its key holds for a day."""

    def __init__(self, account: S3Account, place: Endpoint) -> None:
        self.account, self.place = account, place
        where = urlsplit(place.base)
        self.host, self.path = where.netloc, where.path
        self.day, self.until, self.who, self.key = "", 0.0, None, b""

    def headers(self, path: str) -> dict[str, str]:
        """The signature of a GET of this path (already quoted)."""
        signed = {"host": self.host}
        if self.account.pays:
            signed["x-amz-request-payer"] = "requester"
        if self.account.anonymous:
            return signed
        now, clock = time.gmtime(), time.monotonic()
        moment, day = time.strftime("%Y%m%dT%H%M%SZ", now), time.strftime("%Y%m%d", now)
        if clock > self.until or day != self.day:
            self._renew(day, clock)
        who: Any = self.who
        signed |= {"x-amz-content-sha256": _EMPTY, "x-amz-date": moment}
        if who.token:
            signed["x-amz-security-token"] = who.token
        names = ";".join(sorted(signed))
        lines = "".join(f"{name}:{signed[name]}\n" for name in sorted(signed))
        asked = f"GET\n{path}\n\n{lines}\n{names}\n{_EMPTY}"
        scope = f"{day}/{self.place.region}/s3/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{hashlib.sha256(asked.encode()).hexdigest()}"
        signature = hmac.new(self.key, text.encode(), hashlib.sha256).hexdigest()
        proof = f"AWS4-HMAC-SHA256 Credential={who.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
        return {**signed, "authorization": proof}

    def _renew(self, day: str, clock: float) -> None:
        self.who = self.account.credentials()
        key = b"AWS4" + self.who.secret_key.encode()  # type: ignore[attr-defined]  # botocore has no types
        for part in (day, self.place.region, "s3", "aws4_request"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        self.key, self.day, self.until = key, day, clock + RENEW


@asynccontextmanager
async def opened(account: S3Account, place: Endpoint, bucket: str, root: str, url: str) -> AsyncIterator[Fetch]:
    """Connections for one call; the value fetches the bytes of one request below `root` (with a slash at its end, or empty)."""
    made = session("s3", trust=_trust(account))
    from aiohttp import ClientError
    from yarl import URL

    signer = Signer(account, place)
    origin = place.base[: len(place.base) - len(signer.path)]

    async def fetch(request: ReadRequest) -> bytes:
        name, version, size, start, length = request
        path = signer.path + quote(root + name, safe="/-_.~")
        headers = signer.headers(path)
        headers |= {"If-Match": f'"{version}"', **span(size, start, length)}
        try:
            async with connections.get(URL(origin + path, encoded=True), headers=headers, allow_redirects=False) as answer:
                data = await body(answer, length)
                if answer.status in (200, 206):
                    return data if length else b""
                status, told = answer.status, answer.headers
        except (ClientError, OSError, TimeoutError) as e:
            raise explained(f"cannot read {url}/{name}", e, account.host, bucket) from None
        raise failed(name, status, told, data)

    def failed(name: str, status: int, told: Any, data: bytes) -> Exception:
        code = _said(data, "Code")
        if status == 412:
            return Vanished("changed")
        if status == 416:
            return Vanished("changed: it is shorter than it was")
        if status == 404 and not everywhere(code, status):
            return Vanished("vanished")
        what = f"cannot read {url}/{name}"
        error = refused(what, status, code, _said(data, "Message"), told, account.host, bucket)
        return failure(what, error, busy=status in (429, 503), everywhere=everywhere(code, status))

    async with made as connections:
        yield fetch


def _trust(account: S3Account) -> Any:
    """The trusted certificates: what aiohttp takes as `ssl`."""
    verify = account.kwargs.get("verify")
    if isinstance(verify, str):
        return ssl.create_default_context(cafile=verify)
    return verify is not False


def _said(body: bytes, what: str) -> str:
    found = re.search(rf"<{what}>([^<]{{0,1000}})</{what}>".encode(), body)
    return unescape(found[1].decode("utf-8", "replace")) if found else ""
