"""A queue of SQS by what is sent to it and what it answers, of a server that says anything (moto's is in `services`)."""

from __future__ import annotations

import datetime as dt
import json
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest

from gathering import refused
from quire.errors import StorageError, TransientError
from quire.sources import sqs
from quire.sources.events import AT_ONCE, Message
from quire.storage.s3 import read as s3_read
from speaking import serving

MARK = "open-sesame"
Said = tuple[int, bytes, str]  # an answer: its status, body, and more headers
OK: Said = (200, b"{}", "")


class Server:
    """What was asked of it: action, body and headers of each request. It gives its answers one after the other, then `OK`."""

    def __init__(self, answers: list[Said | Callable[[dict[str, Any]], Said]]) -> None:
        self.answers, self.asked, self.heads = answers, list[tuple[str, dict[str, Any]]](), list[str]()

    def talk(self, sock: socket.socket, _: int) -> None:
        held = b""
        while data := sock.recv(65536):
            held += data
            head, _, body = held.partition(b"\r\n\r\n")
            size = re.search(rb"\r\nContent-Length: (\d+)", head, re.IGNORECASE)
            if size is None or len(body) < int(size[1]):
                continue
            held = b""
            self.heads.append(head.decode())
            action = re.search(r"\r\nx-amz-target: AmazonSQS\.(\w+)", head.decode())
            assert action
            self.asked.append((action[1], json.loads(body)))
            given = self.answers.pop(0) if self.answers else OK
            status, found, more = given(self.asked[-1][1]) if callable(given) else given
            sock.sendall(f"HTTP/1.1 {status} X\r\nContent-Length: {len(found)}\r\n{more}\r\n".encode() + found)


@contextmanager
def queue_at(*answers: Said | Callable[[dict[str, Any]], Said], **options: Any) -> Iterator[tuple[sqs.SqsQueue, Server]]:
    server = Server(list(answers))
    with serving(server.talk) as (origin, _):
        given = {"key": "k", "secret": MARK, "endpoint_url": origin, "client_kwargs": {"region_name": "eu-west-7"}, **options}
        yield sqs.opened(f"{origin}/123456789012/landing", given, []), server


def quiet(_: str) -> None:
    """Nobody listens."""


def told(*names: str) -> Said:
    rows = [{"MessageId": name, "ReceiptHandle": f"r-{name}", "Body": json.dumps({"Event": "s3:TestEvent"})} for name in names]
    return 200, json.dumps({"Messages": rows}).encode(), ""


def done(asked: dict[str, Any]) -> Said:
    return 200, json.dumps({"Successful": [{"Id": each["Id"]} for each in asked["Entries"] if each["Id"] != "3"]}).encode(), ""


MANY = [Message(f"m{i}", f"r{i}", ()) for i in range(25)]


@pytest.mark.parametrize("token", [None, "a-token"])
def test_the_signature_is_botocores(token: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    moment = time.gmtime(1_790_000_000)
    monkeypatch.setattr(s3_read.time, "gmtime", lambda *_: moment)
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda **_: dt.datetime.fromtimestamp(1_790_000_000, dt.UTC))
    with queue_at(**({"token": token} if token else {})) as (queue, server):
        queue.delete(MANY[:1], quiet)
        (sent,), ((_, body),) = server.heads, server.asked
    lines = dict(line.split(": ", 1) for line in sent.splitlines()[1:])
    signed = {name: lines[name] for name in ("content-type", "x-amz-content-sha256", "x-amz-target")}
    request = AWSRequest("POST", f"http://{lines['Host']}/", headers=signed, data=json.dumps(body).encode())
    SigV4Auth(queue.account.credentials(), "sqs", "eu-west-7").add_auth(request)
    ours, theirs = (each.split("Credential=")[1].replace(" ", "") for each in (lines["authorization"], request.headers["Authorization"]))
    assert ours == theirs
    assert MARK not in sent


def test_nothing_is_signed_where_nobody_asks() -> None:
    with queue_at(key=None, secret=None, anon=True) as (queue, server):
        queue.delete(MANY[:1], quiet)
    assert "authorization" not in server.heads[0].lower()


def test_messages_are_received_until_none_comes() -> None:
    with queue_at(told("a", "b"), told("c"), told("a")) as (queue, server):
        assert queue.receive(100, quiet) == [Message(name, f"r-{name}", ()) for name in "abc"]
    waits = [asked["WaitTimeSeconds"] for action, asked in server.asked if action == "ReceiveMessage"]
    assert (waits[0], set(waits[1:]), len(waits)) == (sqs.WAIT, {0}, 1 + AT_ONCE + sqs.FLIGHT)
    assert server.asked[0][1] == {
        "QueueUrl": queue.url, "MaxNumberOfMessages": sqs.PAGE, "WaitTimeSeconds": sqs.WAIT, "VisibilityTimeout": int(sqs.HIDDEN),
    }  # fmt: skip


def test_an_empty_queue_is_asked_once() -> None:
    with queue_at((200, b"", "")) as (queue, server):
        assert queue.receive(100, quiet) == []
    assert len(server.asked) == 1


def test_messages_are_deleted_and_held_by_pages() -> None:
    with queue_at(*[done] * 6) as (queue, server):
        queue.delete(MANY, quiet)
        kept = queue.hold(MANY, quiet)
    assert kept == [one for one in MANY if one.id != "m3"], "one that is not held any more is left"
    deleted = [each["ReceiptHandle"] for action, asked in server.asked for each in asked["Entries"] if action == "DeleteMessageBatch"]
    assert sorted(deleted) == sorted(one.handle for one in MANY)
    assert {len(asked["Entries"]) for _, asked in server.asked} == {10, 5}
    hidden = {
        each.get("VisibilityTimeout") for action, asked in server.asked for each in asked["Entries"] if action != "DeleteMessageBatch"
    }
    assert hidden == {int(sqs.HIDDEN)}


def test_a_message_that_nobody_asked_about_is_not_held() -> None:
    strange = 200, b'{"Successful": [{"Id": "-1"}, {"Id": "99"}, {"Id": "x"}, {"Id": "1"}]}', ""
    with queue_at(strange) as (queue, _):
        assert queue.hold(MANY[:3], quiet) == [MANY[1]]


def error(status: int, code: str, words: str = "", more: str = "") -> Said:
    return status, json.dumps({"__type": f"com.amazonaws.sqs#{code}", "message": words}).encode(), more


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (error(400, "QueueDoesNotExist"), "such a queue is not there"),
        (error(400, "X", more="x-amzn-query-error: AWS.SimpleQueueService.NonExistentQueue;Sender\r\n"), "such a queue is not there"),
        (error(403, "AccessDenied", "User: x is not authorized"), "no permission (User: x is not authorized)"),
        (error(403, "SignatureDoesNotMatch", f"we calculated {MARK}"), "does not take this secret"),
        (error(403, "ExpiredToken"), "the credentials have expired"),
        (error(400, "InvalidSecurity", "no"), "the service refused it (400 InvalidSecurity: no)"),
        ((200, b"<html>", ""), "the answer is not one of a queue"),
        ((200, b"[1]", ""), "the answer is not one of a queue"),
        ((200, b'{"Messages": 7}', ""), "the answer is not one of a queue"),
        ((200, b'{"Messages": ["x"]}', ""), "the answer is not one of a queue"),
        ((200, b'{"Messages": [{"MessageId": "a"}]}', ""), "the answer is not one of a queue"),
        ((200, b'{"Messages": [{"MessageId": "a", "ReceiptHandle": "r", "Body": null}]}', ""), "the answer is not one of a queue"),
        ((302, b"", "Location: http://127.0.0.1:1/\r\n"), "is somewhere else"),
        ((407, b"", ""), "the proxy refused"),
        ((418, b"[" * 5_000, ""), "418 without a reason"),
    ],
)  # fmt: skip
def test_a_refusal_is_one_line(answer: Said, words: str) -> None:
    with queue_at(answer) as (queue, _), refused(StorageError, 3, "cannot receive events from sqs://", words) as e:
        queue.receive(10, quiet)
    assert MARK not in str(e.value)


@pytest.mark.parametrize("busy", [error(400, "RequestThrottled"), error(503, "ServiceUnavailable"), error(500, "InternalError")])
def test_a_busy_queue_is_asked_again(busy: Said) -> None:
    said = list[str]()
    with queue_at(busy, told("a")) as (queue, _):
        assert [one.id for one in queue.receive(1, said.append)] == ["a"]
    assert len(said) == 1


def test_a_server_that_is_away_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.storage.retry.PATIENCE", 0.1)
    with queue_at() as (queue, _):
        pass
    with pytest.raises(TransientError, match="cannot delete events from sqs://"):
        queue.delete(MANY[:1], quiet)


def test_a_region_that_nobody_says_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with queue_at(client_kwargs={}) as (queue, _), refused(Exception, 2, "no region is said"):
        queue.receive(1, quiet)
