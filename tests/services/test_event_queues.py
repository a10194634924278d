"""Events by real queues: SQS as moto has it, which S3 itself writes to; Azurite's; Pub/Sub's emulator, and a stand-in for it."""

from __future__ import annotations

import base64
import json
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import quire
from gathering import gather, refused
from quire.errors import StorageError, UsageError
from quire.sources import azure_queue, pubsub, sqs
from quire.sources.events import Event, asked
from quire.storage import bare
from services import s3
from services.azurite import connection_string
from services.event_queues import ask, azurite_queues, pubsub_emulator, pubsub_stand_in

LOCAL = quire.LocalRunner()


def names(out: Path) -> list[str]:
    return sorted(row["path"].rpartition("/")[2] for row in quire.Ledger(out).inspect.splits(as_="arrow", spark=LOCAL).to_pylist())


# -------------------------------------------------------------------------------------------------------------------------- SQS
class Sqs:
    """A bucket of moto's that tells a queue of its objects."""

    def __init__(self, endpoint: str) -> None:
        self.options, self.s3 = s3.options(endpoint), s3.client(endpoint)
        self.bucket = f"b{uuid.uuid4().hex}"
        from quire.storage.s3.account import account

        self.sqs = account(self.options).beside("sqs", "us-east-1", endpoint)
        self.url = self.sqs.create_queue(QueueName=self.bucket)["QueueUrl"]
        self.place = f"{endpoint}/{self.url.split('/', 3)[3]}"
        arn = self.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        self.s3.create_bucket(Bucket=self.bucket)
        self.s3.put_bucket_notification_configuration(
            Bucket=self.bucket,
            NotificationConfiguration={"QueueConfigurations": [{"QueueArn": arn, "Events": ["s3:ObjectCreated:*", "s3:ObjectRemoved:*"]}]},
        )

    def put(self, *keys: str) -> None:
        for key in keys:
            self.s3.put_object(Bucket=self.bucket, Key=key, Body=f"{key}\n".encode())

    def send(self, body: str) -> None:
        self.sqs.send_message(QueueUrl=self.url, MessageBody=body)

    @property
    def held(self) -> int:
        said = self.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=["All"])["Attributes"]
        return int(said["ApproximateNumberOfMessages"]) + int(said["ApproximateNumberOfMessagesNotVisible"])


@pytest.fixture
def told(moto: str) -> Sqs:
    return Sqs(moto)


def test_s3_tells_sqs_what_is_gathered(tmp_path: Path, told: Sqs) -> None:
    source, out = f"s3://{told.bucket}/in", tmp_path / "out"
    call: dict[str, Any] = {"source_options": told.options, "events": told.place}
    told.put("in/before.txt")
    first = gather(source, out, **call)
    assert (first.files, first.events.lists, first.events.known, told.held) == (1, 1, 1, 0)
    odd = ["in/a b+c.txt", "in/é%20.txt", "in/d/e&f=g?.txt"]
    told.put(*odd, "other/x.txt", "in/gone.txt")
    told.s3.delete_object(Bucket=told.bucket, Key="in/gone.txt")
    told.send("hello")
    told.sqs.send_message(QueueUrl=told.url, MessageBody=json.dumps({"Event": "s3:TestEvent", "Bucket": told.bucket}))
    report = gather(source, out, **call)
    assert (report.files, report.events.lists, report.events.new, report.events.gone) == (3, 0, 3, 1)
    assert report.events.not_understood == told.held == 1
    assert names(out) == sorted(name.rpartition("/")[2] for name in (*odd, "in/before.txt"))
    assert gather(source, out, **call).files == 0
    assert gather(source, out, source_options=told.options).files == 0, "a listing finds the very versions that were looked up"


def test_many_looks_at_once_find_what_single_ones_find(told: Sqs) -> None:
    names = ["a b+c.txt", "é%20.txt", "d/e&f=g?.txt", "~x_-.txt", "empty", "gone", "d", "n" * 1000]
    told.put(*(f"in/{name}" for name in names[:4]), f"in/{names[-1]}")
    told.s3.put_object(Bucket=told.bucket, Key="in/empty", Body=b"")
    store = bare(f"s3://{told.bucket}/in", told.options)
    found = dict(store.look_at([*names, "gone"]))  # type: ignore[attr-defined]  # it is optional
    assert found == {name: store.stat(name) for name in names}
    assert [name for name, entry in found.items() if entry is None] == ["gone", "d"]


def test_many_messages_of_sqs_are_received_and_deleted(tmp_path: Path, told: Sqs) -> None:
    source, out = f"s3://{told.bucket}/in", tmp_path / "out"
    call: dict[str, Any] = {"source_options": told.options, "events": told.place}
    told.put("in/before.txt")
    gather(source, out, **call)
    told.put(*(f"in/f{i:03}.txt" for i in range(130)))
    reports = [gather(source, out, **call) for _ in range(3)]  # a queue may hide some of its messages for a moment
    assert (told.held, len(names(out)), sum(report.files for report in reports)) == (0, 131, 130)
    assert [report.events.lists for report in reports] == [0, 0, 0]


def test_what_sqs_gives_and_nobody_deletes_comes_again(told: Sqs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqs, "HIDDEN", 1.0)
    told.put("in/a.txt")
    queue = sqs.opened(told.place, told.options, [])
    first = received(queue.receive)
    assert Event(("s3", told.bucket), "in/a.txt") in first[0]
    held = list(first[1].values())
    for _ in range(4):
        time.sleep(0.5)
        held = queue.hold(held, lambda _: None)
        assert len(held) == len(first[1])
    assert queue.receive(10, lambda _: None) == [], "it was held for longer than it would have been hidden"
    again = received(queue.receive)
    assert again[1].keys() == first[1].keys()
    queue.delete(list(again[1].values()), lambda _: None)
    time.sleep(1.2)
    assert queue.receive(10, lambda _: None) == []


def received(receive: Callable[..., list[Any]], patience: float = 30.0) -> tuple[list[Event], dict[str, Any]]:
    """What a queue gives, once it gives anything."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if found := receive(100, lambda _: None):
            return [event for one in found for event in one.events or ()], {one.id: one for one in found}
        time.sleep(0.2)
    raise AssertionError("nothing came")


def test_a_queue_of_sqs_that_is_not_there_is_said_at_once(tmp_path: Path, told: Sqs) -> None:
    with refused(StorageError, 3, "such a queue is not there"):
        gather(f"s3://{told.bucket}", tmp_path / "out", source_options=told.options, events=f"{told.place}x", every="1 s")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("sqs://example.org/1/q", ("example.org", "endpoint_url")), ("sqs://sqs.eu-west-1.amazonaws.com/q", ("names no queue",)),
        ("http://sqs.eu-west-1.amazonaws.com/1/q", ("https",)), ("arn:aws:sns:eu-west-1:1:q", ("names no queue",)),
        ("azure-queue://acct", ("names no queue",)), ("azure-queue://acct/UPPER", ("names no queue",)),
        ("pubsub://p", ("names no subscription",)), ("pubsub://project/s?x", ("names no subscription",)),
    ],
)  # fmt: skip
def test_a_place_that_is_no_queue_is_said(place: str, words: tuple[str, ...]) -> None:
    wish = asked(place, None, loops=True)
    assert wish is not None
    with refused(UsageError, 2, *words):
        wish.opened([])


def test_an_arn_is_the_queue_that_it_names() -> None:
    options = {"key": "k", "secret": "open sesame"}
    for place in ("arn:aws:sqs:eu-west-1:123456789012:landing", "sqs://sqs.eu-west-1.amazonaws.com/123456789012/landing",
                  "https://sqs.eu-west-1.amazonaws.com/123456789012/landing"):  # fmt: skip
        wish = asked((place, options), None, loops=False)
        assert wish is not None
        assert wish.opened([]).shown == "sqs://sqs.eu-west-1.amazonaws.com/123456789012/landing"
        assert "sesame" not in repr(wish)


# ------------------------------------------------------------------------------------------------------------------------ Azure
@pytest.fixture(scope="session")
def queues() -> Iterator[str]:
    with azurite_queues() as endpoint:
        yield endpoint


@pytest.fixture
def azure(azurite_endpoint: str, queues: str) -> dict[str, Any]:
    """The options of the account, with both endpoints."""
    return {"connection_string": f"{connection_string(azurite_endpoint)}QueueEndpoint={queues};"}


def grid(container: str, name: str, kind: str = "BlobCreated") -> str:
    topic = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/devstoreaccount1"
    subject = f"/blobServices/default/containers/{container}/blobs/{name}"
    return json.dumps({"topic": topic, "subject": subject, "eventType": f"Microsoft.Storage.{kind}", "id": "1", "data": {"url": ""}})


class AzureMessages:
    def __init__(self, options: dict[str, Any]) -> None:
        self.name = f"q{uuid.uuid4().hex}"
        self.queue = azure_queue.opened(f"devstoreaccount1/{self.name}", options, [])
        self.queue._rest.send("PUT", "make a queue")

    def send(self, *texts: str) -> None:
        for text in texts:
            body = f"<QueueMessage><MessageText>{base64.b64encode(text.encode()).decode()}</MessageText></QueueMessage>".encode()
            self.queue._rest.send("POST", "send", "messages", body=body, headers={"Content-Type": "application/xml"})

    @property
    def held(self) -> int:
        said = self.queue._rest.send("GET", "look", query={"comp": "metadata"}).headers
        return int(said["x-ms-approximate-messages-count"])


def test_event_grid_tells_a_queue_what_is_gathered(tmp_path: Path, azure: dict[str, Any]) -> None:
    place, out, sent = uuid.uuid4().hex, tmp_path / "out", AzureMessages(azure)
    store = bare(f"abfs://tests/{place}", azure)
    store.put("in/before.txt", b"before\n")
    call: dict[str, Any] = {"source_options": azure, "events": f"azure-queue://devstoreaccount1/{sent.name}"}
    assert gather(f"abfs://tests/{place}/in", out, **call).files == 1
    odd = ["a b.txt", "d/é+%20.txt"]
    for name in (*odd, *(f"f{i:02}.txt" for i in range(40))):
        store.put(f"in/{name}", b"new\n")
        sent.send(grid("tests", f"{place}/in/{name}"))
    sent.send(grid("tests", f"{place}/in/gone"), grid("tests", f"{place}/elsewhere/x"), grid("other", "x"), "hello")
    report = gather(f"abfs://tests/{place}/in", out, **call)
    assert (report.files, report.events.new, report.events.lists, report.events.not_understood) == (42, 42, 0, 1)
    assert sent.held == 1
    assert len(names(out)) == 43
    assert gather(f"abfs://tests/{place}/in", out, source_options=azure).files == 0


def test_what_azure_gives_and_nobody_deletes_comes_again(azure: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(azure_queue, "HIDDEN", 1.0)
    sent = AzureMessages(azure)
    sent.send(grid("tests", "x"))
    first = received(sent.queue.receive)
    held = list(first[1].values())
    for _ in range(5):
        time.sleep(0.5)
        held = sent.queue.hold(held, lambda _: None)
        assert [one.id for one in held] == list(first[1])
    assert sent.queue.receive(10, lambda _: None) == [], "it was held for longer than it would have been hidden"
    again = received(sent.queue.receive)
    assert first[1].keys() == again[1].keys()
    assert sent.queue.hold(held, lambda _: None) == [], "somebody has received it since"
    sent.queue.delete(held, lambda _: None)
    assert sent.held == 1, "somebody has received it since"
    sent.queue.delete(list(again[1].values()), lambda _: None)
    assert sent.held == 0


def test_a_queue_of_azure_that_is_not_there_is_said_at_once(tmp_path: Path, azure: dict[str, Any]) -> None:
    place = uuid.uuid4().hex
    bare(f"abfs://tests/{place}", azure).put("x.txt", b"x\n")
    with refused(StorageError, 3, "such a queue is not there"):
        gather(f"abfs://tests/{place}", tmp_path / "out", source_options=azure, events="azure-queue://devstoreaccount1/nobody")
    del azure["connection_string"]
    with refused(UsageError, 2, "QueueEndpoint") as e:
        wish = asked(("azure-queue://acct/queue", {"account_key": "QUJD", "account_host": "127.0.0.1:1"}), None, loops=False)
        assert wish is not None
        wish.opened([])
    assert "QUJD" not in str(e.value)


# ---------------------------------------------------------------------------------------------------------------------- Pub/Sub
@pytest.fixture(scope="session")
def stand_in() -> Iterator[str]:
    with pubsub_stand_in() as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def emulator() -> Iterator[str]:
    with pubsub_emulator() as endpoint:
        yield endpoint


@pytest.mark.parametrize("kind", ["stand_in", pytest.param("emulator", marks=pytest.mark.services)])
def test_cloud_storage_tells_pubsub(kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pubsub, "HIDDEN", 2.0)
    endpoint, name = request.getfixturevalue(kind), f"s{uuid.uuid4().hex}"
    project = f"{endpoint}/v1/projects/tests"
    ask(f"{project}/topics/{name}", {}, "PUT")
    ask(f"{project}/subscriptions/{name}", {"topic": f"projects/tests/topics/{name}"}, "PUT")

    def send(**attributes: str) -> None:
        ask(f"{project}/topics/{name}:publish", {"messages": [{"attributes": attributes}]})

    queue = pubsub.opened(f"tests/{name}", {"endpoint_url": endpoint}, [])
    for i in range(30):
        send(eventType="OBJECT_FINALIZE", bucketId="landing", objectId=f"in/é {i}.txt", payloadFormat="NONE")
    send(eventType="PING")
    found, end = dict[str, Any](), time.monotonic() + 30
    while len(found) < 31 and time.monotonic() < end:
        found |= received(queue.receive)[1]
    events = {event for one in found.values() for event in one.events or ()}
    assert events == {Event(("gs", "landing"), f"in/é {i}.txt") for i in range(30)}
    assert [one.said for one in found.values() if one.events is None] == [
        'it is not a notification of Cloud Storage: \'{"eventType": "PING"}\''
    ]
    held = list(found.values())
    for _ in range(6):
        time.sleep(0.5)
        assert len(held := queue.hold(held, lambda _: None)) == 31
    assert queue.receive(10, lambda _: None) == [], "they were held for longer than they would have been hidden"
    again = dict[str, Any]()
    while len(again) < 31 and time.monotonic() < end + 30:
        again |= received(queue.receive)[1]
    assert again.keys() == found.keys(), "what nobody acknowledges comes again"
    queue.delete(list(again.values()), lambda _: None)
    time.sleep(2.5)
    assert queue.receive(10, lambda _: None) == []
    with refused(StorageError, 3, "such a subscription is not there"):
        pubsub.opened(f"tests/{name}x", {"endpoint_url": endpoint}, []).receive(1, lambda _: None)


def test_credentials_of_pubsub_are_not_shown(tmp_path: Path) -> None:
    key = tmp_path / "key.json"
    key.write_text('{"type": "service_account", "private_key": "open sesame"}')
    for token in (str(key), key.read_text(), json.loads(key.read_text())):
        queue = pubsub.opened("tests/s1234", {"token": token}, [])
        with refused(UsageError, 2, "the option token", "key file") as e:
            queue.receive(1, lambda _: None)
        assert "sesame" not in str(e.value) + repr(queue)
