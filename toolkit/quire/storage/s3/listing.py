"""Listings of S3, page by page on connections that stay: boto3 takes 2.8 µs of processor time a name to ask for a page, 85 to read it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import NamedTuple
from urllib.parse import quote, unquote_plus
from xml.parsers import expat
from xml.sax.saxutils import unescape

from quire.errors import StorageError
from quire.storage import pages as columns
from quire.storage.asking import MOST, Onward, Steps
from quire.storage.base import Entry, Files, instant
from quire.storage.retry import again
from quire.storage.s3.account import S3Account
from quire.storage.s3.read import Signer, asked, refusal
from quire.storage.wire import Ask

_TEXTS = frozenset(("Key", "LastModified", "ETag", "Size", "Prefix", "IsTruncated", "NextContinuationToken", "EncodingType"))
_TOKEN = re.compile(rb"<NextContinuationToken>([^<]+)</NextContinuationToken>")


class S3Page(NamedTuple):
    """Part of a listing."""

    objects: list[Entry]  # their names are keys
    prefixes: list[str]
    token: str  # where the next page begins; empty: this is the last one
    files: Files = Files.of(())  # the objects as columns, where that was wanted


def parsed(body: bytes) -> S3Page:
    """A page's XML; ValueError for anything else."""
    objects, prefixes, said, text = list[Entry](), list[str](), dict[str, str](), list[str]()
    parser, take = expat.ParserCreate("utf-8"), said.pop

    def root(tag: str, _: object) -> None:
        if tag != "ListBucketResult":
            raise ValueError(tag)
        parser.StartElementHandler = begin

    def begin(_: str, __: object) -> None:
        text.clear()

    def end(tag: str) -> None:
        if tag in _TEXTS:
            said[tag] = text[0] if len(text) == 1 else "".join(text)
        elif tag == "Contents":  # taken out, so that what an object lacks is not that of the one before
            objects.append(Entry(take("Key"), int(take("Size", 0)), take("ETag", "").strip('"'), moment(take("LastModified", ""))))
        elif tag == "CommonPrefixes":
            prefixes.append(take("Prefix"))

    def refuse(*_: object) -> None:
        raise ValueError("DOCTYPE")  # no listing has one, and what it defines may be without end

    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = root, end, text.append
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(body, True)
        goes_on = take("IsTruncated", "").strip() in ("true", "1")
        more = take("NextContinuationToken") if goes_on else ""
        if goes_on and not more:
            raise LookupError("NextContinuationToken")
    except (expat.ExpatError, LookupError) as e:
        raise ValueError(str(e)) from None
    if take("EncodingType", "").strip() == "url":
        objects = [each._replace(name=unquote_plus(each.name)) if "%" in each.name or "+" in each.name else each for each in objects]
        prefixes = [unquote_plus(prefix) for prefix in prefixes]
    return S3Page(objects, prefixes, more)


# As AWS and most who speak its language write an object; others are read by `parsed`.
_OBJECT = re.compile(
    rb"<Contents><Key>([^<]*)</Key><LastModified>([^<]*)</LastModified><ETag>(?:&quot;|\")?([^<&\"]*)(?:&quot;|\")?</ETag>"
    rb"(?:<Checksum\w+>[^<]*</Checksum\w+>)*<Size>(\d+)</Size>"
)
_ENCODED = re.compile(rb"<EncodingType>\s*url\s*</EncodingType>")


def in_columns(body: bytes) -> S3Page:
    """The same, with its objects as columns: a fifth of the time."""
    found = columns.split(body, b"Contents", _OBJECT, b"</ListBucketResult>")
    if found is not None and b"<CommonPrefixes>" not in body[body.find(b"<Contents>") : body.rfind(b"<Contents>")]:
        objects = columns.files(found[0], moment, unquote_plus if _ENCODED.search(found[1]) else None)
        if objects is not None:
            return parsed(found[1])._replace(files=objects)
    page = parsed(body)
    return page._replace(objects=[], files=Files.of(page.objects))


@lru_cache(maxsize=4096)
def moment(text: str) -> int:
    """`2026-11-21T10:00:00.000Z` → ns since 1970, in whole seconds: looks at single objects tell no more."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return 0
    return instant(int(at.replace(tzinfo=at.tzinfo or UTC, microsecond=0).timestamp()) * 1_000_000_000)


def pages(account: S3Account, bucket: str, what: str, wanted: Mapping[str, str], parse: Callable[[bytes], S3Page]) -> Iterator[S3Page]:
    """A listing, page by page; `wanted`: its arguments by the service's names, `what` is like 'cannot list s3://bucket/x'."""
    signer = Signer.of(account, bucket, what)
    with account.asking.line() as line:
        yield from following(
            lambda token: line.ask(partial(_page, signer, what, _from(token, wanted))), partial(_read, signer, what, parse), what
        )


def following(
    begin: Callable[[str], Callable[[], bytes]], parse: Callable[[bytes], S3Page], what: str = "cannot list"
) -> Iterator[S3Page]:  # fmt: skip
    """Pages, by where each begins: `begin` requests one, and gives the function that waits for its XML.

    From the second on the next one is on its way before one is read. A page that fails for the moment is requested again, from where the
    one before it ended; the first one is left to the caller, who can begin again.
    """
    way, page = Onward(what), parse(begin("")())
    way.to(page.token)
    yield page
    token, coming = page.token, begin(page.token) if page.token else None
    while coming is not None:
        body = again(coming)
        token, coming = _goes_on(body), None
        if token:
            coming = begin(token)
        page = parse(body)
        way.to(page.token)
        if page.token != token:  # it is written as nobody writes it
            coming = begin(page.token) if page.token else None
        yield page


def _goes_on(body: bytes) -> str:
    """Where the next page begins, which can be told before the page is read as XML; empty: this is the last one, or it cannot."""
    found = _TOKEN.findall(body) if b"<IsTruncated>true</IsTruncated>" in body else []
    return unescape(found[0].decode("utf-8", "replace"), columns.ENTITIES) if len(found) == 1 else ""


def _from(token: str, wanted: Mapping[str, str]) -> dict[str, str]:
    """The arguments of a page: of the first one, or of what follows the one that gave this token."""
    if token:
        wanted = {**{name: value for name, value in wanted.items() if name != "start-after"}, "continuation-token": token}
    return {**wanted, "list-type": "2", "encoding-type": "url"}


def _page(signer: Signer, what: str, wanted: Mapping[str, str]) -> Steps:
    """Ask for a page, and return its XML."""
    query = "&".join(f"{name}={quote(wanted[name], safe='-_.~')}" for name in sorted(wanted))

    def ask() -> Ask:
        path = signer.path.rstrip("/") or "/"
        return Ask("GET", signer.origin, f"{path}?{query}", signer.headers(path, query=query), MOST)

    answer = yield from asked(signer, what, ask)
    if answer.status == 200:
        return answer.body
    raise refusal(what, answer, signer)


def _read(signer: Signer, what: str, parse: Callable[[bytes], S3Page], body: bytes) -> S3Page:
    try:
        return parse(body)
    except ValueError:
        host = signer.account.host
        raise StorageError(f"{what}: {host} did not answer with a listing. Check endpoint_url, and the proxy between.") from None
