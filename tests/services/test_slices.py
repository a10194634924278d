"""Azure's listings from a name on, which no emulator has: a service that obeys, passes it over, refuses it or misunderstands it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import escape

import pytest

from quire.planning import listing, pieces
from quire.planning.deleted import ListedNames
from quire.sources.files import Root, Selection
from quire.storage import Entry, Folder, bare
from services.scripted import Asked, Says, refusal, scripted

PAGE = 50
FOLDERS = ["0010", "0010-x", "0200"]
NAMES = sorted(
    [f"in/{i:04}" for i in range(400) if f"{i:04}" not in FOLDERS] + ["in/0010!", "in/&<é>", "in/zoë"] + [f"in/{f}/deep/x" for f in FOLDERS]
)
NEW = "2026-02-06"


def page(query: dict[str, str], start: str) -> bytes:
    """As the service lists."""
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    begin = query.get("marker", start)
    items = dict.fromkeys(
        name[: name.index("/", len(prefix)) + 1] if delimiter and "/" in name[len(prefix) :] else name
        for name in NAMES
        if name.startswith(prefix)
    )
    some = [name for name in items if name >= begin]
    most = min(PAGE, int(query.get("maxresults", PAGE)))
    blob = "<Blob><Name>{}</Name><Properties><Etag>v</Etag><Content-Length>1</Content-Length><Last-Modified>Sat, 21 Nov 2026 10:00:00 GMT"
    blob += "</Last-Modified></Properties></Blob>"
    found = "".join(
        (f"<BlobPrefix><Name>{escape(name)}</Name></BlobPrefix>" if name.endswith("/") else blob.format(escape(name)))
        for name in some[:most]
    )
    marker = escape(some[most]) if len(some) > most else ""
    text = f"<EnumerationResults><Blobs>{found}</Blobs><NextMarker>{marker}</NextMarker></EnumerationResults>"
    return b'<?xml version="1.0" encoding="utf-8"?>' + text.encode()


def obeys(query: dict[str, str], version: str) -> Says:
    return 200, {}, page(query, query.get("startFrom", "") if version >= NEW else "")


def passes_over(query: dict[str, str], version: str) -> Says:
    return 200, {}, page(query, "")


def refuses(query: dict[str, str], version: str) -> Says:
    if version >= NEW:
        return 400, {"x-ms-error-code": "InvalidHeaderValue"}, refusal("InvalidHeaderValue")
    return 200, {}, page(query, "")


def misunderstands(query: dict[str, str], version: str) -> Says:
    """It takes the name for one below the prefix."""
    start = query.get("startFrom", "")
    return 200, {}, page(query, query.get("prefix", "") + start if start else "")


@pytest.fixture(params=[obeys, passes_over, refuses, misunderstands])
def service(request: pytest.FixtureRequest) -> Iterator[tuple[str, list[Asked], Callable[..., Says]]]:
    """Its connection string, the requests that came, and its manners."""

    def answer(asked: Asked) -> Says:
        query = {name: found[0] for name, found in parse_qs(urlsplit(asked.target).query).items()}
        if query.get("comp") != "list":
            return 404, {"x-ms-error-code": "BlobNotFound"}, b""
        says: Says = request.param(query, asked.headers["x-ms-version"])
        return says

    with scripted(answer) as (address, came):
        yield f"AccountName=logs1;AccountKey=a2V5;BlobEndpoint={address}/logs1", came, request.param


@pytest.mark.nth(4)
def test_each_name_is_in_one_slice_whatever_the_service_makes_of_its_beginning(
    service: tuple[str, list[Asked], Callable[..., Says]],
) -> None:
    string, came, manners = service
    store = bare("abfs://raw", {"connection_string": string})
    expected = [*(name for name in NAMES if name.count("/") == 1), *(f"in/{folder}" for folder in FOLDERS)]
    for bounds in (["0100", "0200", "0300"], ["0010", "0010!", "0010-x"], ["00105", "é", "zz"], ["0010-"]):
        found = list[str]()
        for after, until in pairwise(("", *bounds, "")):
            for item in store.scan("in", after=after, until=until):
                assert isinstance(item, Entry | Folder)
                last = item.name.removeprefix("in/")
                assert last >= after
                assert not until or last < until
                found.append(item.name)
        assert sorted(found) == sorted(expected)
    came.clear()
    assert len(list(store.scan("in", after="0300", until="0310"))) == 10
    lists = [asked for asked in came if asked.method == "GET"]
    assert (len(lists) <= 2) == (manners is obeys), "where the service begins there, no more than the slice is listed"


@pytest.mark.nth(2)
def test_a_container_is_cut_and_listed_once_whatever_the_service_makes_of_its_beginning(
    service: tuple[str, list[Asked], Callable[..., Says]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "GLANCE", 100)
    string, came, manners = service
    root, selection = Root("abfs://raw/in", ("",), {"connection_string": string}), Selection()
    found = list(pieces.pieces((root,), selection, 1))
    firsts = len(came)
    job = listing.Listing("memory://out", None, "", "", (root,), selection, None, None)  # type: ignore[arg-type]
    seen = [(piece, ListedNames(root, selection, piece)) for piece in found]
    names = [
        [name for chunk in listing._chunks(job, piece, listing.Listed(), noted) for name in chunk.column("name").to_pylist()]
        for piece, noted in seen
    ]
    assert sorted(name for some in names for name in some) == sorted(name.removeprefix("in/") for name in NAMES)
    if manners is obeys:
        assert len(found) > 4
        assert max(map(len, names)) < 150
        assert firsts < 300
