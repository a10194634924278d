"""Single requests to Google Cloud Storage, and its listings, by the JSON interface. Nothing is tried again here: `retry` does that."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from quire.errors import StorageError
from quire.storage.base import Entry, instant
from quire.storage.gcs.account import GcsAccount
from quire.storage.gcs.errors import refused, unreachable
from quire.storage.retry import again
from quire.storage.session import Sessions

TIMEOUTS = (10.0, 60.0)  # seconds until a connection is made, and without a byte
PAGE = 1000  # names, the most that the service gives at once
OF_ONE = "name,size,generation,updated"  # of all that the service tells of an object


class GcsResponse(NamedTuple):
    """An answer of the service."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class GcsPage(NamedTuple):
    """Part of a listing."""

    objects: list[Entry]  # their names are keys
    prefixes: list[str]
    token: str  # of the next page; empty: this is the last one


@lru_cache(maxsize=4096)
def moment(text: str) -> int:
    """`2026-11-21T10:00:00.123Z` → ns since 1970."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return 0
    return instant(int(at.replace(microsecond=0).timestamp()) * 1_000_000_000 + at.microsecond * 1000)


def described(found: Mapping[str, Any], cut: int = 0) -> Entry:
    """An object, from what the service tells of it; `cut`: characters of its key that are left out."""
    return Entry(found["name"][cut:], int(found["size"]), str(found["generation"]), moment(found.get("updated", "")))


class GcsRest:
    """Requests about the objects of one bucket."""

    def __init__(self, account: GcsAccount, bucket: str) -> None:
        self.account, self.bucket = account, bucket
        self._sessions = Sessions("gcs", "Google Cloud Storage")

    def target(self, key: str = "", query: Mapping[str, object] | None = None, after: str = "", before: str = "") -> str:
        """The path and query of a request about an object, or about the bucket's objects if the key is empty."""
        asked = {name: value for name, value in (query or {}).items() if value != ""}
        if self.account.pays:
            asked["userProject"] = self.account.pays
        path = f"{self.account.before}{before}/storage/v1/b/{self.bucket}/o" + (f"/{self.quoted(key)}" if key else "") + after
        return f"{path}?{urlencode(asked)}" if asked else path

    @staticmethod
    def quoted(key: str) -> str:
        """A key as part of a path."""
        return quote(key, safe="")

    def send(
        self, method: str, what: str, target: str, body: bytes = b"", kind: str = "application/octet-stream",
        headers: Mapping[str, str] | None = None, *, answers: tuple[int, ...] = (), limit: int | None = None,
    ) -> GcsResponse:  # fmt: skip
        """The answer to one request. Raises what `refused` makes of it, unless it is a success, or its status is one of `answers`.

        `limit`: bytes of a body that is too long to be held; of it nothing is read.
        """
        given = {**self.account.authorization(), **(headers or {}), **({"Content-Type": kind} if method == "POST" else {})}
        session = self._sessions.get()
        from requests.exceptions import RequestException
        from urllib3.exceptions import HTTPError

        try:
            with session.request(
                method, self.account.origin + target, data=body, headers=given, timeout=TIMEOUTS, stream=True, allow_redirects=False
            ) as found:
                too_long = limit is not None and int(found.headers.get("Content-Length") or 0) > limit
                # The bytes as they lie there: what is stored with Content-Encoding: gzip is not unpacked.
                content = b"" if too_long else found.raw.read(decode_content=False)
                if too_long:
                    found.raw.close()
                answer = GcsResponse(found.status_code, found.headers, content)
        except (RequestException, HTTPError, OSError) as e:
            raise unreachable(what, self.account.host, e) from None
        if answer.status < 300:
            return answer
        error = refused(what, answer.status, answer.headers, answer.body, self.account.host, self.bucket)
        if answer.status in answers and not (answer.status == 404 and "bucket" in str(error).removeprefix(what)):
            return answer
        raise error

    def told(self, what: str, answer: GcsResponse) -> Any:
        """The JSON of an answer."""
        try:
            return json.loads(answer.body)
        except (ValueError, RecursionError):
            raise StorageError(f"{what}: {self.account.host} did not answer as the service does. Check endpoint_url.") from None

    def look(self, what: str, key: str, fields: str = OF_ONE) -> Any:
        """The description of an object, or None."""
        answer = self.send("GET", what, self.target(key, {"fields": fields}), answers=(404,))
        return None if answer.status == 404 else self.told(what, answer)

    def page(self, what: str, query: Mapping[str, object]) -> GcsPage:
        """One page of a listing."""
        fields = f"items({OF_ONE}),prefixes,nextPageToken"
        found = self.told(what, self.send("GET", what, self.target("", {"fields": fields, "maxResults": PAGE, **query})))
        try:
            objects = [described(item) for item in found.get("items", ())]
            return GcsPage(objects, [str(prefix) for prefix in found.get("prefixes", ())], str(found.get("nextPageToken") or ""))
        except (AttributeError, LookupError, TypeError, ValueError):
            raise StorageError(f"{what}: {self.account.host} did not answer with a listing. Check endpoint_url.") from None

    def pages(self, what: str, query: Mapping[str, object]) -> Iterator[GcsPage]:
        """A listing, page by page; from the second on the next one is requested while one is worked on.

        A page that fails for the moment is requested again; the first one is left to the caller, who can begin again.
        """
        page = self.page(what, query)
        yield page
        if not page.token:
            return

        def more(token: str) -> GcsPage:
            return again(lambda: self.page(what, {**query, "pageToken": token}))

        pool = ThreadPoolExecutor(1, "quire-pages")
        try:
            coming = pool.submit(more, page.token)
            while page.token:
                page = coming.result()
                if page.token:
                    coming = pool.submit(more, page.token)
                yield page
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
