"""The messages of stores, as their services send them: each names its objects, and what is none of them is not taken for one."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from quire.sources.events import Event, Finder, Found, NotUnderstood, message, place_of
from quire.sources.files import Root
from quire.sources.notices import of_azure, of_google, of_s3


def s3_record(key: str, bucket: str = "landing", name: str = "ObjectCreated:Put") -> dict[str, Any]:
    return {
        "eventVersion": "2.1", "eventSource": "aws:s3", "awsRegion": "eu", "eventTime": "2026-11-27T10:00:00.000Z", "eventName": name,
        "userIdentity": {"principalId": "AWS:X"}, "requestParameters": {"sourceIPAddress": "10.0.0.1"},
        "s3": {
            "s3SchemaVersion": "1.0", "configurationId": "new", "bucket": {"name": bucket, "arn": f"arn:aws:s3:::{bucket}"},
            "object": {"key": key, "size": 5, "eTag": "0123456789abcdef", "versionId": "x.y", "sequencer": "0A1B2C3D4E5F678901"},
        },
    }  # fmt: skip


def eventbridge(key: str) -> dict[str, Any]:
    return {
        "version": "0", "id": "17793124-05d4-b198-2fde-7ededc63b103", "detail-type": "Object Created", "source": "aws.s3", "account": "1",
        "time": "2026-11-27T10:00:00Z", "region": "eu-west-1", "resources": ["arn:aws:s3:::landing"],
        "detail": {"version": "0", "bucket": {"name": "landing"}, "object": {"key": key, "size": 5, "etag": "e"}, "reason": "PutObject"},
    }  # fmt: skip


def sns(inner: object) -> dict[str, Any]:
    return {
        "Type": "Notification",
        "MessageId": "m",
        "TopicArn": "arn:aws:sns:eu-west-1:1:t",
        "Message": json.dumps(inner),
        "Signature": "s",
    }


def s3(key: str) -> Event:
    return Event(("s3", "landing"), key)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"Records": [s3_record("in/a.json")]}, [s3("in/a.json")]),
        (
            {"Records": [s3_record("in/a+b%2Bc%C3%A9%2F%25.json"), s3_record("x", name="s3:ObjectCreated:Put")]},
            [s3("in/a b+cé/%.json"), s3("x")],
        ),
        ({"Records": [s3_record("in/gone.json", name="ObjectRemoved:Delete")]}, [s3("in/gone.json")]),
        ({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "landing", "RequestId": "r", "HostId": "h"}, []),
        (eventbridge("in/a+b c%20.json"), [s3("in/a+b c%20.json")]),
        (sns({"Records": [s3_record("a+b")]}), [s3("a b")]),
        (sns(eventbridge("a+b")), [s3("a+b")]),
    ],
    ids=["put", "written as a URL", "deleted", "test", "EventBridge", "SNS", "SNS and EventBridge"],
)
def test_messages_of_s3(body: object, expected: list[Event]) -> None:
    assert list(of_s3(json.dumps(body))) == expected


@pytest.mark.parametrize(
    "body",
    ["", "hello", "[]", "1", "null", "{}", '{"Records": []}', '{"Records": [7]}', '{"Records": [{"s3": {}}]}',
     json.dumps({"Records": [s3_record("%ff%fe")]}),
     json.dumps({"Records": [{"s3": {"bucket": {"name": 7}, "object": {"key": "x"}}}]}),
     json.dumps({"Type": "Notification", "Message": "hello"}), json.dumps({**eventbridge("x"), "source": "aws.ec2"}),
     json.dumps({"Type": "Notification"}), json.dumps(sns(sns({"Records": [s3_record("x")]}))), "[" * 100_000],
)  # fmt: skip
def test_what_is_no_message_of_s3_is_not_understood(body: str) -> None:
    found = message("id", "handle", body, of_s3)
    assert found.events is None
    assert len(found.said) < 400
    assert found.said.isprintable()


def grid(subject: str, kind: str = "Microsoft.Storage.BlobCreated", url: str = "") -> dict[str, Any]:
    return {
        "topic": "/subscriptions/s/resourceGroups/g/storageAccounts/Acct", "subject": subject, "eventType": kind,
        "eventTime": "2026-11-27T10:00:00Z", "id": "1", "dataVersion": "", "metadataVersion": "1",
        "data": {"api": "PutBlob", "eTag": "0x8D4BCC2E4835CD0", "contentLength": 5, "blobType": "BlockBlob", "url": url},
    }  # fmt: skip


def cloud(subject: str, kind: str = "Microsoft.Storage.BlobCreated") -> dict[str, Any]:
    return {
        "specversion": "1.0", "type": kind, "source": "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/acct",
        "id": "1", "time": "2026-11-27T10:00:00Z", "subject": subject, "data": {"api": "PutBlob", "url": ""},
    }  # fmt: skip


IN = "/blobServices/default/containers/landing/blobs/"


def azure(name: str, *, folder: bool = False) -> Event:
    return Event(("abfs", "landing", "acct"), name, folder)


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [x]], ids=["one", "list"])
@pytest.mark.parametrize("encode", [lambda s: s, lambda s: base64.b64encode(s.encode()).decode()], ids=["plain", "base64"])
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (grid(f"{IN}in/a b.json"), [azure("in/a b.json")]),
        (cloud(f"{IN}in/a.json"), [azure("in/a.json")]),
        (grid(f"{IN}in/a%20b"), [azure("in/a%20b"), azure("in/a b")]),
        (grid(f"{IN}gone", "Microsoft.Storage.BlobDeleted"), [azure("gone")]),
        (grid(f"{IN}new", "Microsoft.Storage.DirectoryRenamed"), [azure("new", folder=True)]),
        (cloud(f"{IN}new", "Microsoft.Storage.BlobRenamed"), [azure("new")]),
        (grid("", "Microsoft.EventGrid.SubscriptionValidationEvent"), []),
        ({**grid(f"{IN}x", url="https://acct.blob.core.windows.net/landing/x"), "topic": ""}, [azure("x")]),
    ],
    ids=["grid", "cloud", "URL", "deleted", "directory", "renamed", "validation", "no topic"],
)
def test_messages_of_event_grid(body: object, expected: list[Event], encode: Any, wrap: Any) -> None:
    assert list(of_azure(encode(json.dumps(wrap(body))))) == expected


@pytest.mark.parametrize(
    "body", ["", "hello!", "{}", "[1]", json.dumps(grid("/other")), json.dumps(grid(f"{IN}x", "My.Event")), "AAAA", "////"]
)
def test_what_is_no_message_of_event_grid_is_not_understood(body: str) -> None:
    assert message("id", "handle", body, of_azure).events is None


def test_notifications_of_cloud_storage() -> None:
    said = {
        "eventType": "OBJECT_FINALIZE",
        "bucketId": "landing",
        "objectId": "in/a b+c%20.json",
        "payloadFormat": "NONE",
        "objectGeneration": "1",
    }
    assert list(of_google(said)) == [Event(("gs", "landing"), "in/a b+c%20.json")]
    for wrong in (None, [], {}, {**said, "eventType": "PING"}, {**said, "objectId": ""}, {**said, "bucketId": 7}):
        with pytest.raises(NotUnderstood):
            list(of_google(wrong))


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("file:///data/in", (("file", ""), "data/in/")), ("file:///", (("file", ""), "")), ("s3://landing", (("s3", "landing"), "")),
        ("s3://landing/in/x", (("s3", "landing"), "in/x/")), ("gs://landing/in", (("gs", "landing"), "in/")),
        ("abfs://landing@acct.dfs.core.windows.net/in", (("abfs", "landing", "acct"), "in/")),
        ("abfs://landing@acct.z12.dfs.storage.azure.net", (("abfs", "landing", "acct"), "")),
    ],
)  # fmt: skip
def test_a_root_is_where_its_events_say(url: str, place: tuple[tuple[str, ...], str]) -> None:
    assert place_of(url) == place


def test_an_event_is_found_below_each_root_that_means_it() -> None:
    roots = [Root("s3://landing/in", ("*.json", "deep")), Root("s3://landing/other"), Root("s3://elsewhere")]
    finder, found = Finder(roots), Found()
    for name in (
        "in/a.json",
        "in/deep/b.txt",
        "in/c.txt",
        "in",
        "in/",
        "in/../other/x",
        "in//a.json",
        "/in/a.json",
        "other/d",
        "inner/x",
        "",
        "in/a\0b",
        "in/\ud800.json",
    ):
        finder.find(s3(name), found)
    assert (found.files, found.outside) == ([(0, "a.json"), (0, "deep/b.txt"), (1, "d")], 10)
    found = Found()
    for name in ("in", "in/x/", "oth", "other", "", "landing"):
        finder.find(Event(("s3", "landing"), name, folder=True), found)
    assert (found.folders, found.outside) == ([(0, ""), (0, "x"), (1, ""), (0, ""), (1, "")], 2)
