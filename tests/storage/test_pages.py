"""A page of a listing that is read column by column says what it says as XML, or is read as XML."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from xml.sax.saxutils import escape

import pytest

from quire.storage import slices
from quire.storage.azure import rest
from quire.storage.base import Entry, Files, Folder, Trouble
from quire.storage.s3 import listing as s3

AT = "2026-11-21T10:00:00.000Z"
MOMENT = "Sat, 21 Nov 2026 10:00:00 GMT"
NAMES = ("a/1", "a/2 b", "a/é", "a/&<>\"'", "a/\U0001f600", "a/x=1,y=2", "a/%41+", "a/…")


def s3_object(key: str, size: int = 7, etag: str = "&quot;e&quot;") -> str:
    return f"<Contents><Key>{escape(key)}</Key><LastModified>{AT}</LastModified><ETag>{etag}</ETag><Size>{size}</Size></Contents>"


def s3_page(*inside: str, more: str = "<IsTruncated>false</IsTruncated>") -> bytes:
    return f'<?xml version="1.0"?><ListBucketResult xmlns="x"><Name>b</Name>{more}{"".join(inside)}</ListBucketResult>'.encode()


def azure_blob(name: str, size: int = 7, more: str = "", before: str = "") -> str:
    return (
        f"<Blob><Name>{escape(name)}</Name><Properties>{before}<Last-Modified>{MOMENT}</Last-Modified><Etag>0x8D</Etag>"
        f"<Content-Length>{size}</Content-Length></Properties>{more}</Blob>"
    )


def azure_page(*inside: str, marker: str = "") -> bytes:
    blobs = f"<Blobs>{''.join(inside)}</Blobs><NextMarker>{marker}</NextMarker>"
    return f'<?xml version="1.0" encoding="utf-8"?><EnumerationResults>{blobs}</EnumerationResults>'.encode()


def same_on_s3(body: bytes) -> Files:
    """The columns, which are those that the page has as XML."""
    page, whole = s3.in_columns(body), s3.parsed(body)
    assert page.objects == []
    assert (list(page.files.entries()), page.prefixes, page.token) == (whole.objects, whole.prefixes, whole.token)
    return page.files


def same_on_azure(body: bytes) -> Files:
    page, whole = rest.in_columns(body), rest.parsed(body)
    entries = [Entry(name, size, etag, rest.moment(at)) for name, size, etag, at, folder in whole.blobs if not folder]
    assert page.blobs == []
    assert (list(page.files.entries()), page.prefixes, page.marker) == (entries, whole.prefixes, whole.marker)
    return page.files


@pytest.fixture
def by_element(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The pages, or what is left of them, that are read as XML."""
    found = list[bytes]()

    def counted(parse: Callable[[bytes], object]) -> Callable[[bytes], object]:
        return lambda body: found.append(body) or parse(body)

    for module in (s3, rest):
        monkeypatch.setattr(module, "parsed", counted(module.parsed))
    return found


def test_names_sizes_versions_and_times_are_those_of_the_xml() -> None:
    more = "<IsTruncated>true</IsTruncated><NextContinuationToken>t&amp;1</NextContinuationToken>"
    prefixes = "<CommonPrefixes><Prefix>a/b/</Prefix></CommonPrefixes>"
    found = same_on_s3(s3_page(*map(s3_object, NAMES), prefixes, more=more))
    assert found.names == list(NAMES)
    assert same_on_azure(azure_page(*map(azure_blob, NAMES), "<BlobPrefix><Name>a/b/</Name></BlobPrefix>", marker="m")).names == list(NAMES)
    for etag in ('"e"', "&#34;e&#34;", "e", "&quot;e-2&quot;", ""):
        same_on_s3(s3_page(s3_object("a", etag=etag), s3_object("b")))
    checked = s3_object("a").replace("<Size>", "<ChecksumAlgorithm>C</ChecksumAlgorithm><ChecksumType>FULL</ChecksumType><Size>")
    owned = s3_object("b").replace("</Contents>", "<Owner><ID>x</ID></Owner><StorageClass>STANDARD</StorageClass></Contents>")
    assert same_on_s3(s3_page(checked, owned)).names == ["a", "b"]


def test_encoded_names_are_decoded_once() -> None:
    encoding = "<EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>"
    assert same_on_s3(s3_page(s3_object("a%2Bb+c%25"), s3_object("d"), more=encoding)).names == ["a+b c%", "d"]
    assert same_on_s3(s3_page(s3_object("a%2Bb+c%25"))).names == ["a%2Bb+c%25"]


@pytest.mark.parametrize(
    "body",
    [
        s3_page(),
        s3_page(s3_object("a"), "<CommonPrefixes><Prefix>b/</Prefix></CommonPrefixes>", s3_object("c")),
        s3_page(s3_object("a"), "<!-- <Contents><Key>x</Key> -->", s3_object("c")),
        s3_page(s3_object("a"), f"<!-- {s3_object('x')} -->", s3_object("c")),
        s3_page(s3_object("a"), "<Contents><Key>b</Key></Contents>", s3_object("c")),
        s3_page(s3_object("a"), "<Contents><Key><![CDATA[b<]]></Key><Size>1</Size></Contents>"),
        s3_page(s3_object("a&#233;").replace("&amp;", "&")),
        s3_page(s3_object("a\r\nb")),
        s3_page(s3_object("a")).replace(b"<Size>", b"\n  <Size>"),
        s3_page("<Contents><Size>7</Size><Key>a</Key></Contents>", s3_object("b")),
    ],
)  # fmt: skip
def test_a_page_that_is_written_otherwise_is_read_as_xml(body: bytes, by_element: list[bytes]) -> None:
    same_on_s3(body)
    assert by_element[0] == body


def is_refused(body: bytes) -> bool:
    """Whether it is not taken for a page, in columns as little as otherwise."""
    for parse in (s3.parsed, s3.in_columns):
        try:
            parse(body)
        except ValueError:
            continue
        return False
    return True


def test_what_is_not_a_page_is_refused_as_ever() -> None:
    whole = s3_page(s3_object("a"), s3_object("b"))
    assert not is_refused(whole)
    assert all(is_refused(whole[:at]) for at in range(1, len(whole) - 1))
    for bad in (b"", b"<Error><Code>x</Code></Error>", b"<html>" + whole, whole.replace(b"<Key>b", b"<Key>\xff")):
        assert is_refused(bad)
    assert is_refused(s3_page(s3_object("a"), more="<IsTruncated>true</IsTruncated>"))


@pytest.mark.parametrize(
    ("odd", "shown"),
    [
        (azure_blob("a/b", 0, "<Metadata><Hdi_isfolder>true</Hdi_isfolder></Metadata>"), False),
        (azure_blob("a/b", 0), True),
        (azure_blob("a/b", before="<ResourceType>directory</ResourceType>"), False),
        (azure_blob("a/b").replace("<Content-Length>", "<ResourceType>directory</ResourceType><Content-Length>"), False),
        (azure_blob("a/b").replace("<Name>", '<Name Encoded="true">'), True),
        (azure_blob("a/b", more="<Metadata><Blob>x</Blob></Metadata>"), True),
        ("<BlobPrefix><Name>a/b/</Name></BlobPrefix>", False),
    ],
)  # fmt: skip
def test_a_blob_that_stands_for_a_directory_is_not_a_file(odd: str, shown: bool) -> None:
    assert ("a/b" in same_on_azure(azure_page(azure_blob("a/a"), odd, azure_blob("a/c"))).names) == shown


def test_what_is_common_is_not_read_element_by_element(by_element: list[bytes]) -> None:
    s3.in_columns(s3_page(*(s3_object(f"k{i}") for i in range(100))))
    rest.in_columns(azure_page(*(azure_blob(f"k{i}", before="<Creation-Time>x</Creation-Time>") for i in range(100))))
    assert all(len(each) < 300 for each in by_element)
    assert len(by_element) == 2


def whole(items: Iterator[Files | Entry | Folder | Trouble]) -> list[Entry | Folder | Trouble]:
    return [each for item in items for each in (item.entries() if isinstance(item, Files) else [item])]


@pytest.mark.parametrize("seed", range(20))
def test_a_slice_of_columns_has_the_files_of_a_slice_of_names(seed: int) -> None:
    draw = random.Random(seed)
    below, cut = "root/in/", 5
    keys = sorted({"".join(draw.choices("ab.!-0é\U0001f600", k=draw.randint(1, 3))) for _ in range(60)} | {"", "."})
    pages = [sorted(draw.sample(keys, draw.randint(1, 20))) for _ in range(3)]
    prefixes = [[f"{below}{x}/" for x in draw.sample(["a", "b!", "..", "zz"], 2)] for _ in pages]
    entries = [[(below + last, Entry(below + last, draw.randint(0, 2), "v", 1)) for last in page] for page in pages]
    after, until = sorted(draw.sample(["", "a", "a!", "b", "é", "\U0001f600"], 2))
    one = [slices.level(below, cut, p, ((k, e._replace(name=k[cut:])) for k, e in page)) for p, page in zip(prefixes, entries, strict=True)]
    other = [
        [*slices.level(below, cut, p, ()), *slices.columns(below, cut, Files.of([e for _, e in page]))]
        for p, page in zip(prefixes, entries, strict=True)
    ]
    found = [whole(slices.within(each, "in", after, until, lambda _: True)) for each in (one, other)]  # type: ignore[type-var]
    assert sorted(found[0], key=str) == sorted(found[1], key=str)
