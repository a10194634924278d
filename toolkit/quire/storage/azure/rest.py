"""Single requests to Azure Blob storage, and its listings, page by page, on connections that stay.

The service's own client takes 1 to 2 ms of processor time a request and 250 µs a listed name; these requests, and the parsing of a
page by lxml, take a tenth of it. Its retries are not wanted here either: `retry` is the one place for them.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from io import BytesIO
from typing import Any, NamedTuple
from urllib.parse import unquote
from xml.sax.saxutils import unescape

from lxml import etree

from quire.errors import StorageError
from quire.storage import pages
from quire.storage.asking import MOST, Asked, Asking, Line, Onward, Steps
from quire.storage.azure.account import AzureAccount
from quire.storage.azure.errors import explained, refusal, unreachable
from quire.storage.base import Entry, Files, instant
from quire.storage.message import Answer
from quire.storage.retry import again
from quire.storage.window import UNANSWERED
from quire.storage.wire import Ask, bundled, lines

SILENCE = 60.0  # seconds without a byte
PAGE = 5000  # names, the most that the service gives at once
SEEKING = "2026-02-06"  # of the REST interface: the first whose listings begin where they are asked to; only they are asked by it


_MONTHS = {m: i for i, m in enumerate(["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"], 1)}

# Where to go on stands at the end of a page, so it is known before the page is parsed.
_MARKER = re.compile(rb"<NextMarker>([^<]+)</NextMarker>\s*</EnumerationResults>\s*$")


class BlobPage(NamedTuple):
    """Part of a listing."""

    blobs: list[tuple[str, int, str, str, bool]]  # name, bytes, etag, last change, whether it stands for a directory
    prefixes: list[str]
    marker: str
    files: Files = Files.of(())  # the blobs as columns, where that was wanted, but for directories

    @property
    def unsure(self) -> bool:
        """Whether one of them may stand for a directory, which only its metadata tell: it is empty then."""
        return 0 in self.files.sizes or any(not size and not folder for _, size, _, _, folder in self.blobs)


def _name(element: Any) -> str:
    text = element.text or ""
    return unquote(text) if element.get("Encoded") == "true" else text


def _child(element: Any, tag: str) -> Any:
    found = element.find(tag)
    if found is None:
        raise ValueError(tag)
    return found


def parsed(body: bytes) -> BlobPage:
    """A page's XML; it raises XMLSyntaxError or ValueError for anything else.

    Read element by element: a tree of 5,000 names would take six times the page's bytes, and several pages are read at once.
    """
    blobs, prefixes, marker, whole = list[tuple[str, int, str, str, bool]](), list[str](), "", False
    wanted = ("Blob", "BlobPrefix", "Blobs", "NextMarker")
    for _, item in etree.iterparse(BytesIO(body), tag=wanted, resolve_entities=False, no_network=True, huge_tree=True):
        parent = item.getparent()
        if item.tag == "Blobs":
            whole = True
        elif item.tag == "NextMarker":
            marker = item.text or ""
        elif parent is not None and parent.tag == "Blobs":  # else it is somebody's metadata of that name
            if item.tag == "BlobPrefix":
                prefixes.append(_name(_child(item, "Name")))
            else:
                blobs.append(_blob(item))
            item.clear()
            while item.getprevious() is not None:
                del parent[0]
    if not whole:
        raise ValueError("Blobs")
    return BlobPage(blobs, prefixes, marker)


@lru_cache(maxsize=4096)
def moment(text: str) -> int:
    """`Sat, 21 Nov 2026 19:58:32 GMT` → ns since 1970."""
    try:
        day, month, year, time = text[5:].split(" ")[:4]
        hour, minute, second = time.split(":")
        return instant(calendar.timegm((int(year), _MONTHS[month], int(day), int(hour), int(minute), int(second))) * 1_000_000_000)
    except (LookupError, ValueError):
        return 0


# As the service writes a blob that is not a directory; others are read by `parsed`.
_BLOB = re.compile(
    rb"<Blob><Name>([^<]*)</Name><Properties>(?:<Creation-Time>[^<]*</Creation-Time>)?<Last-Modified>([^<]*)</Last-Modified>"
    rb"<Etag>\"?([^<&\"]*)\"?</Etag>(?:<ResourceType>file</ResourceType>)?<Content-Length>([1-9]\d*)</Content-Length>"
)


def in_columns(body: bytes) -> BlobPage:
    """The same, with its blobs as columns: a tenth of the time. An empty blob may stand for a directory."""
    found = pages.split(body, b"Blob", _BLOB, b"</EnumerationResults>")
    if found is not None and b"<BlobPrefix>" not in body[body.find(b"<Blob>") : body.rfind(b"<Blob>")]:
        blobs = pages.files(found[0], moment)
        if blobs is not None:
            return parsed(found[1])._replace(files=blobs)
    page = parsed(body)
    entries = [Entry(name, size, etag, moment(changed)) for name, size, etag, changed, folder in page.blobs if not folder]
    return page._replace(blobs=[], files=Files.of(entries))


def _blob(item: Any) -> tuple[str, int, str, str, bool]:
    properties, metadata = _child(item, "Properties"), item.find("Metadata")
    get = properties.findtext
    size = int(get("Content-Length") or 0)
    folder = get("ResourceType") == "directory" or (
        size == 0 and metadata is not None and any(m.tag.lower() == "hdi_isfolder" and (m.text or "").lower() == "true" for m in metadata)
    )
    return _name(_child(item, "Name")), size, (get("Etag") or "").strip('"'), get("Last-Modified") or "", folder


class BlobRest:
    """Requests about the blobs of one container."""

    def __init__(self, account: AzureAccount, container: str) -> None:
        self.account, self.container = account, container
        self._asking = Asking(lambda: bundled(SILENCE))

    def send(
        self, method: str, what: str, name: str = "", query: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None,
        body: bytes | memoryview | None = None, *, answers: tuple[int | str, ...] = (), most: int = MOST,
    ) -> Answer:  # fmt: skip
        """The answer to one request about a blob, or about the container if the name is empty.

        Raises what `explained` makes of it, unless it is a success, or its status or the service's code is one of `answers`. `most`:
        bytes of a body that are wanted; of a longer one there is a byte more.
        """
        path = f"/{self.container}/{name}" if name else f"/{self.container}"
        return self._asking.once(partial(self._steps, method, what, path, query or {}, headers or {}, body, answers, most))  # type: ignore[no-any-return]

    def _steps(
        self, method: str, what: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes | memoryview | None,
        answers: tuple[int | str, ...], most: int,
    ) -> Steps:  # fmt: skip
        account = self.account
        sent = b"" if body is None and method == "PUT" else body
        url, signed = account.signed(method, path, query, headers, len(sent or b""))
        try:
            answer: Answer = yield Ask(method, account.origin, url.removeprefix(account.origin), lines(signed), most, sent)
        except UNANSWERED as e:
            raise unreachable(what, account, e) from None
        if answer.status < 300 or answer.status in answers:
            return answer
        said = refusal(answer.status, answer.headers, answer.body)
        if said.code in answers:
            return answer
        raise explained(what, said, account, self.container)

    def pages(
        self, what: str, prefix: str, delimiter: str = "", include: str = "metadata", most: int = 0, start: str = "",
        parse: Callable[[bytes], BlobPage] = parsed,
    ) -> Iterator[BlobPage]:  # fmt: skip
        """A listing, page by page; from the second on the next one is asked for while one is worked on.

        A page that fails for the moment is asked for again, from where the one before it ended; the first one is left to whoever
        asked for the listing, who can begin again. `start`: the first name to list, which a service that does not know of it passes over.

        Metadata are asked for from the first page on that needs them: names are listed without, as long as no blob is empty.
        """
        query = {
            "restype": "container",
            "comp": "list",
            "prefix": prefix,
            "delimiter": delimiter,
            "include": "" if include == "metadata" else include,
            "maxresults": str(min(most or PAGE, PAGE)),
        }
        query, lean = {name: value for name, value in query.items() if value}, include == "metadata"
        with self._asking.line() as line:
            headers, body = self._first(line, what, query, start)
            query |= {"startFrom": start} if headers else {}

            def ask(marker: str = "") -> Asked:
                return line.ask(partial(self._page, what, {**query, "marker": marker} if marker else query, headers))

            page = self._parsed(what, body, parse)
            if lean and page.unsure:
                lean, query = False, {**query, "include": "metadata"}
                page = self._parsed(what, ask()().body, parse)
            way = Onward(what)
            way.to(page.marker)
            yield page
            here, coming = page.marker, ask(page.marker) if page.marker else None
            while coming is not None:
                body = again(coming).body
                early = _MARKER.search(body, max(0, len(body) - 4096))
                marker = unescape(early[1].decode()) if early else ""
                coming = ask(marker) if marker else None
                page = self._parsed(what, body, parse)
                if lean and page.unsure:
                    lean, query, marker = False, {**query, "include": "metadata"}, ""
                    page = self._parsed(what, again(ask(here)).body, parse)
                way.to(page.marker)
                if page.marker != marker:
                    coming = ask(page.marker) if page.marker else None
                here = page.marker
                yield page

    def _first(self, line: Line, what: str, query: Mapping[str, str], start: str) -> tuple[Mapping[str, str], bytes]:
        """The first page of a listing, from `start` on where the service knows of that: then with the headers that the next ones need."""
        if start:
            headers = {"x-ms-version": SEEKING}
            found = line.ask(partial(self._page, what, {**query, "startFrom": start}, headers, answers=(400,)))()
            if found.status < 300:
                return headers, found.body
        return {}, line.ask(partial(self._page, what, query, {}))().body

    def _page(self, what: str, query: Mapping[str, str], headers: Mapping[str, str], answers: tuple[int, ...] = ()) -> Steps:
        """Ask for a page; the answer, if it is one, or has one of the statuses `answers`."""
        return self._steps("GET", what, f"/{self.container}", query, headers, None, answers, MOST)

    def _parsed(self, what: str, body: bytes, parse: Callable[[bytes], BlobPage]) -> BlobPage:
        try:
            return parse(body)
        except (etree.XMLSyntaxError, ValueError):
            raise StorageError(
                f"{what}: {self.account.host} did not answer with a listing. Check account_host, and the proxy between."
            ) from None
