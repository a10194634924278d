"""Pages of S3's listings as services write them: each name once, with what is known of it; what is no page is refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from xml.sax.saxutils import escape

import pytest

from quire.errors import TransientError
from quire.storage import retry
from quire.storage.base import Entry
from quire.storage.s3.listing import S3Page, following, moment, parsed

NS = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'


def page(*inner: str, root: str = "ListBucketResult") -> bytes:
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<{root} {NS}>{"".join(inner)}</{root}>'.encode()


def an_object(key: str, size: object = 5, etag: str = "&quot;e-1&quot;", at: str = "2026-11-21T10:00:00.000Z", more: str = "") -> str:
    return f"<Contents><Key>{key}</Key><LastModified>{at}</LastModified><ETag>{etag}</ETag><Size>{size}</Size>{more}</Contents>"


def names(found: S3Page) -> list[str]:
    return [each.name for each in found.objects]


def test_a_page_of_aws() -> None:
    owner = "<Owner><ID>1</ID><DisplayName>me</DisplayName></Owner><StorageClass>STANDARD</StorageClass>"
    found = parsed(
        page(
            "<Name>bucket</Name><Prefix>a/</Prefix><NextContinuationToken>1/x==</NextContinuationToken><KeyCount>3</KeyCount>",
            "<MaxKeys>2</MaxKeys><Delimiter>/</Delimiter><IsTruncated>true</IsTruncated>",
            an_object("a/1", more=owner), an_object("a/2", 0, "abc"),
            "<CommonPrefixes><Prefix>a/b/</Prefix></CommonPrefixes><CommonPrefixes><Prefix>a/c/</Prefix></CommonPrefixes>",
        )
    )  # fmt: skip
    at = moment("2026-11-21T10:00:00Z")
    assert found == S3Page([Entry("a/1", 5, "e-1", at), Entry("a/2", 0, "abc", at)], ["a/b/", "a/c/"], "1/x==")


def test_an_empty_page_is_the_last_one() -> None:
    assert parsed(page("<IsTruncated>false</IsTruncated><NextContinuationToken>x</NextContinuationToken>")) == S3Page([], [], "")
    assert parsed(b"<ListBucketResult/>") == S3Page([], [], "")


def test_a_page_that_goes_on_and_does_not_say_where_is_refused() -> None:
    with pytest.raises(ValueError, match="NextContinuationToken"):
        parsed(page("<IsTruncated>true</IsTruncated>", an_object("a")))
    for yes in ("true", "1"):
        for nowhere in ("<NextContinuationToken/>", "<NextContinuationToken></NextContinuationToken>"):
            with pytest.raises(ValueError, match="NextContinuationToken"):
                parsed(page(f"<IsTruncated>{yes}</IsTruncated>", nowhere, an_object("a")))


def test_what_an_object_lacks_is_not_that_of_the_one_before() -> None:
    found = parsed(page(an_object("a"), "<Contents><Key>b</Key></Contents>")).objects[1]
    assert found == Entry("b", 0, "", 0)
    with pytest.raises(ValueError, match="Key"):
        parsed(page(an_object("a"), "<Contents><Size>1</Size></Contents>"))


def test_names_are_taken_as_they_are_written() -> None:
    keys = [" a ", "a\tb", "ü😀", "a&b<c>", "a]]>b", "x" * 1024, "%41+b", ""]
    assert names(parsed(page(*(an_object(escape(key).replace("\t", "&#9;")) for key in keys)))) == keys
    pretty = page("\n  ", *(an_object(key).replace("><", ">\n    <") + "\n" for key in ("a", "b")))
    assert names(parsed(pretty)) == ["a", "b"]


def test_names_that_xml_cannot_hold_come_encoded() -> None:
    encoded = parsed(
        page(
            "<EncodingType>url</EncodingType>", an_object("a%0Ab+c%2B%C3%BC/d"), an_object("plain"),
            "<CommonPrefixes><Prefix>p%01/</Prefix></CommonPrefixes>",
        )
    )  # fmt: skip
    assert (names(encoded), encoded.prefixes) == (["a\nb c+ü/d", "plain"], ["p\x01/"])


@pytest.mark.parametrize(
    "body",
    [
        b"", b"<html><body>Sign in</body></html>", b"<ListBucketResult>", b"\xff\xfe", b"<Error><Code>SlowDown</Code></Error>",
        page(root="ListAllMyBucketsResult"), page(an_object("a", "many")), page("<CommonPrefixes></CommonPrefixes>"),
        b'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]><ListBucketResult>&b;</ListBucketResult>',
    ],
)  # fmt: skip
def test_what_is_no_page_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parsed(body)


def test_a_page_that_is_cut_off_is_never_taken_for_a_shorter_one() -> None:
    whole = page("<IsTruncated>false</IsTruncated>", *(an_object(f"{i:03}") for i in range(20)))
    for at in range(len(whole)):
        with pytest.raises(ValueError, match=r"."):
            parsed(whole[:at])


def test_pages_that_are_damaged_are_read_or_refused() -> None:
    random.seed(3)
    whole = page("<IsTruncated>false</IsTruncated>", *(an_object(f"{i:03}") for i in range(5)))
    read = 0
    for _ in range(3000):
        body = bytearray(whole)
        for _ in range(random.randrange(1, 3)):
            body[random.randrange(len(body))] = random.randrange(256)
        try:
            found = parsed(bytes(body))
        except ValueError:
            continue
        read += 1
        assert len(found.objects) <= 5
    assert 100 < read < 2900


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:01.999Z", 1), ("2026-11-21T10:00:00.000Z", 1_795_255_200), ("2026-11-21T11:00:00+01:00", 1_795_255_200),
        ("2026-11-21T10:00:00", 1_795_255_200), ("", 0), ("yesterday", 0), ("9999-12-31T23:59:59Z", 0), ("1600-01-01T00:00:00Z", 0),
    ],
)  # fmt: skip
def test_times_are_whole_seconds_or_not_known(text: str, seconds: int) -> None:
    assert moment(text) == seconds * 10**9


def going_on(at: int, token: str, *, more: bool = True) -> bytes:
    """A page that says where the next one begins."""
    goes = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{escape(token)}</NextContinuationToken>"
    return page(an_object(str(at)), goes if more else "<IsTruncated>false</IsTruncated>")


def test_the_next_page_is_on_its_way_before_one_is_read() -> None:
    told = list[str]()

    def begin(token: str) -> Callable[[], bytes]:
        told.append(f"ask {token}")
        at = int(token.removeprefix("&<t") or 0)
        return lambda: going_on(at, f"&<t{at + 1}", more=at < 4)

    def read(body: bytes) -> S3Page:
        found = parsed(body)
        told.append(f"read {found.objects[0].name}")
        return found

    given = following(begin, read)
    next(given)
    assert told == ["ask ", "read 0"], "whoever wants a first page alone asks for no other"
    assert [page.objects[0].name for page in given] == ["1", "2", "3", "4"]
    assert told[2:] == ["ask &<t1", "ask &<t2", "read 1", "ask &<t3", "read 2", "ask &<t4", "read 3", "read 4"]


@pytest.mark.parametrize(
    "odd",
    [
        "<IsTruncated>true</IsTruncated><Next>wrong</Next><Next>3</Next>",
        "<IsTruncated>true</IsTruncated><!-- <Next>wrong</Next> --><Next >3</Next>",
        "<IsTruncated> true </IsTruncated><Next>3</Next>",
        "<IsTruncated>true</IsTruncated><Next>&#51;</Next>",
    ],
)
def test_where_a_page_goes_on_is_what_its_xml_says(odd: str) -> None:
    """However it is written: another page than the one that follows would leave names out, or give them twice."""
    pages = {str(at or ""): going_on(at, str(at + 1), more=at < 4) for at in (0, 1, 3, 4)}
    pages |= {"2": page(an_object("2"), odd.replace("Next", "NextContinuationToken")), "wrong": going_on(9, "", more=False)}

    def begin(token: str) -> Callable[[], bytes]:
        return lambda: pages.get(token, pages["wrong"])

    assert [found.objects[0].name for found in following(begin, parsed)] == ["0", "1", "2", "3", "4"]


def test_a_page_that_fails_for_the_moment_is_asked_for_again_from_where_the_one_before_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "pause", lambda _: None)
    asked, failed = list[str](), set[str]()

    def begin(token: str) -> Callable[[], bytes]:
        def come() -> bytes:
            asked.append(token)
            if token and token not in failed:
                failed.add(token)
                raise TransientError("busy")
            return going_on(int(token or 0), str(int(token or 0) + 1), more=token != "3")

        return come

    assert [found.objects[0].name for found in following(begin, parsed)] == ["0", "1", "2", "3"]
    assert asked == ["", "1", "1", "2", "2", "3", "3"]
