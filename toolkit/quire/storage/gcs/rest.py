"""Single requests to Google Cloud Storage, and its listings, by the JSON interface. Nothing is tried again here: `retry` does that."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from quire.errors import StorageError
from quire.storage.asking import MOST, Asked, Asking, Onward, Steps
from quire.storage.base import Entry, instant
from quire.storage.gcs.account import GcsAccount
from quire.storage.gcs.errors import refused, unreachable
from quire.storage.message import Answer
from quire.storage.retry import again
from quire.storage.window import UNANSWERED
from quire.storage.wire import Ask, bundled, lines

SILENCE = 60.0  # seconds without a byte
PAGE = 1000  # names, the most that the service gives at once
OF_ONE = "name,size,generation,updated"  # of all that the service tells of an object


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
        self._asking = Asking(lambda: bundled(SILENCE))

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
        self, method: str, what: str, target: str, body: bytes | None = None, kind: str = "application/octet-stream",
        headers: Mapping[str, str] | None = None, *, answers: tuple[int, ...] = (), most: int = MOST,
    ) -> Answer:  # fmt: skip
        """The answer to one request. Raises what `refused` makes of it, unless it is a success, or its status is one of `answers`.

        `most`: bytes of a body that are wanted; of a longer one there is a byte more.
        """
        return self._asking.once(partial(self._steps, method, what, target, body, kind, headers or {}, answers, most))  # type: ignore[no-any-return]

    def _steps(
        self, method: str, what: str, target: str, body: bytes | None, kind: str, headers: Mapping[str, str], answers: tuple[int, ...],
        most: int,
    ) -> Steps:  # fmt: skip
        account, posts = self.account, method == "POST"
        given = {**account.authorization(), **headers, **({"Content-Type": kind} if posts else {})}
        try:
            answer: Answer = yield Ask(method, account.origin, target, lines(given), most, body or b"" if posts else None)
        except UNANSWERED as e:
            raise unreachable(what, account.host, e) from None
        if answer.status < 300:
            return answer
        error = refused(what, answer.status, answer.headers, answer.body, account.host, self.bucket)
        if answer.status in answers and not (answer.status == 404 and "bucket" in str(error).removeprefix(what)):
            return answer
        raise error

    def told(self, what: str, answer: Answer) -> Any:
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
        found: GcsPage = self._asking.once(partial(self._page, what, query))
        return found

    def _page(self, what: str, query: Mapping[str, object]) -> Steps:
        fields = f"items({OF_ONE}),prefixes,nextPageToken"
        target = self.target("", {"fields": fields, "maxResults": PAGE, **query})
        found = self.told(what, (yield from self._steps("GET", what, target, None, "", {}, (), MOST)))
        try:
            objects = [described(item) for item in found.get("items", ())]
            return GcsPage(objects, [str(prefix) for prefix in found.get("prefixes", ())], str(found.get("nextPageToken") or ""))
        except (AttributeError, LookupError, TypeError, ValueError):
            raise StorageError(f"{what}: {self.account.host} did not answer with a listing. Check endpoint_url.") from None

    def pages(self, what: str, query: Mapping[str, object]) -> Iterator[GcsPage]:
        """A listing, page by page; from the second on the next one is on its way while one is worked on.

        A page that fails for the moment is requested again; the first one is left to the caller, who can begin again.
        """
        with self._asking.line() as line:

            def ask(token: str) -> Asked | None:
                return line.ask(partial(self._page, what, {**query, "pageToken": token})) if token else None

            way, page = Onward(what), line.ask(partial(self._page, what, query))()
            way.to(page.token)
            yield page
            coming = ask(page.token)
            while coming is not None:
                page = again(coming)
                way.to(page.token)
                coming = ask(page.token)
                yield page
