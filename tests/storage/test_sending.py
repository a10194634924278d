"""Pieces of uploads on their way: several at once and within a bound, retried, given up, and in processes and threads of any kind."""

from __future__ import annotations

import gc
import hashlib
import os
import re
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import unescape

import pytest

from quire.errors import StorageError, TransientError
from quire.storage import bare, retry, sending
from services.scripted import Asked, Says, scripted

BLOCK = 8 << 20
AZURE, S3 = "abfs://tests", "s3://tests"


def at(url: str, endpoint: str) -> Any:
    if url == S3:
        return bare(url, {"key": "k", "secret": "s", "endpoint_url": endpoint})
    return bare(url, {"account_name": "acc", "account_host": endpoint, "account_key": "a2V5"})


def _etag(piece: bytes) -> str:
    return f'"{hashlib.md5(piece).hexdigest()}"'


class Service:
    """Keeps blocks and parts as a service does, and what it made of them; `trouble` answers in its place, before or after it has."""

    def __init__(self, trouble: Callable[[Asked, int], Says | None] = lambda *_: None, *, after: bool = False) -> None:
        self.trouble, self.after = trouble, after
        self.pieces = dict[str, bytes]()
        self.made = b""
        self.tries = dict[str, int]()
        self.now = self.most = 0  # pieces in work, and the most there ever were
        self._lock = threading.Lock()

    def __call__(self, asked: Asked) -> Says:
        query = {name: found[0] for name, found in parse_qs(urlsplit(asked.target).query, keep_blank_values=True).items()}
        piece = query.get("blockid") or query.get("partNumber")
        if asked.method == "PUT" and piece:
            with self._lock:
                number = self.tries[piece] = self.tries.get(piece, 0) + 1
                self.now += 1
                self.most = max(self.most, self.now)
            try:
                told = None if self.after else self.trouble(asked, number)
                if told is None:
                    self.pieces[piece] = asked.body
                    told = self.trouble(asked, number) if self.after else None
            finally:
                with self._lock:
                    self.now -= 1
            return told or (200 if "partNumber" in query else 201, {"ETag": _etag(asked.body)}, b"")
        if asked.method == "POST" and "uploads" in query:
            return 200, {}, b"<InitiateMultipartUploadResult><UploadId>u1</UploadId></InitiateMultipartUploadResult>"
        if asked.method == "DELETE":
            return 204, {}, b""
        if asked.method == "POST":
            parts = re.findall(rb"<Part>(.*?)</Part>", asked.body, re.DOTALL)
            numbers = [re.findall(rb"<PartNumber>(\d+)<", part)[0].decode() for part in parts]
            etags = [unescape(re.findall(rb"<ETag>([^<]*)<", part)[0].decode()) for part in parts]
            assert etags == [_etag(self.pieces[number]) for number in numbers]
            assert numbers == [str(i + 1) for i in range(len(numbers))]
        else:
            numbers = re.findall(r">([^<>]+)</(?:Latest|Uncommitted)>", asked.body.decode())
        self.made = b"".join(self.pieces[number] for number in numbers)
        return (
            (200, {}, b"<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>")
            if asked.method == "POST"
            else (201, {}, b"")
        )


@pytest.fixture(params=[AZURE, S3])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST", 0.02)
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def contents(number: int) -> bytes:
    return b"".join(bytes([i + 1]) * BLOCK for i in range(number)) + b"the rest"


def written(store: Any, data: bytes, at_once: int = 3 << 20) -> Any:
    sink = store.create("a")
    for start in range(0, len(data), at_once):
        sink.write(memoryview(data)[start : start + at_once])
    return sink


@pytest.mark.parametrize("at_once", [1000_003, BLOCK, 3 * BLOCK + 5])
def test_pieces_come_in_their_order_however_they_are_written(url: str, at_once: int) -> None:
    service, data = Service(), contents(5)
    with scripted(service) as (endpoint, _):
        written(at(url, endpoint), data, at_once).close()
    assert service.made == data
    assert set(service.tries.values()) == {1}


def test_several_are_on_their_way_within_a_bound_of_bytes(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "BUDGET", 3 * BLOCK + 1)
    service = Service(lambda *_: time.sleep(0.1))
    with scripted(service) as (endpoint, _):
        store = at(url, endpoint)
        sinks, most = [store.create(name) for name in "ab"], 0
        for _ in range(6):
            for sink in sinks:
                sink.write(bytes(BLOCK))
                most = max(most, sum(sink.held for sink in sinks))
        for sink in sinks:
            sink.close()
    assert service.most == 3
    assert most <= 3 * BLOCK


@pytest.mark.parametrize("lost", [False, True])
def test_what_fails_for_the_moment_is_sent_again_also_where_it_was_done(url: str, lost: bool) -> None:
    """A lost answer, or a refusal: each piece in turn."""
    service = Service(lambda _, number: (0 if lost else 500, {}, b"") if number < 3 else None, after=lost)
    with scripted(service) as (endpoint, _):
        written(at(url, endpoint), contents(4)).close()
    assert service.made == contents(4)
    assert all(3 <= number <= 4 for number in service.tries.values())  # a kept connection is replaced once, besides


def test_a_busy_service_is_asked_for_nothing_before_it_says(url: str) -> None:
    when = list[float]()

    def busy(_: Asked, number: int) -> Says | None:
        when.append(time.monotonic())
        return (503, {"Retry-After": "1"}, b"") if len(when) == 1 else time.sleep(0.05)

    service = Service(busy)
    with scripted(service) as (endpoint, _):
        sink = at(url, endpoint).create("a")
        sink.write(bytes(BLOCK))
        time.sleep(0.3)
        sink.write(bytes(3 * BLOCK))
        sink.close()
    assert sorted(when)[1] - min(when) > 0.99
    assert service.made == bytes(4 * BLOCK)


def test_patience_ends_with_what_was_tried(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "PATIENCE", 0.3)
    with scripted(Service(lambda *_: (500, {}, b""))) as (endpoint, _):
        sink = written(at(url, endpoint), contents(1))
        with pytest.raises(TransientError, match=r"cannot write .*/a: .*500.*\(tried \d+ times in 0 s\)"):
            sink.close()
        sink.discard()
    assert threads() == []


def test_a_refusal_fails_the_writer_and_is_not_sent_again(url: str) -> None:
    service = Service(lambda *_: (403, {"x-ms-error-code": "AuthorizationFailure"}, b"<Error><Code>AccessDenied</Code></Error>"))
    with scripted(service) as (endpoint, _):
        sink = written(at(url, endpoint), contents(1))
        with pytest.raises(StorageError, match="cannot write"):
            sink.close()
        sink.discard()
    assert set(service.tries.values()) == {1}


def test_a_writer_hears_of_a_failure_before_its_end(url: str) -> None:
    with scripted(Service(lambda *_: (403, {}, b""))) as (endpoint, _):
        sink, until = at(url, endpoint).create("a"), time.monotonic() + 30

        def write() -> None:
            while time.monotonic() < until:
                sink.write(bytes(BLOCK))

        with pytest.raises(StorageError, match="cannot write"):
            write()
        sink.discard()


def test_what_is_given_up_is_begun_no_more_and_waited_for_where_it_was(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "FLIGHT", 2)
    begun = threading.Event()

    def slow(_: Asked, number: int) -> None:
        begun.set()
        time.sleep(0.3)

    service = Service(slow)
    with scripted(service) as (endpoint, came):
        sink = at(url, endpoint).create("a")
        sink.write(bytes(6 * BLOCK))
        assert begun.wait(10)
        sink.discard()
        assert service.now == 0
        assert len(service.pieces) == 2
        done = len(came)
        time.sleep(0.3)
        assert len(came) == done
        assert url == AZURE or came[-1].method == "DELETE"  # after the last part
    assert threads() == []


def test_what_waits_for_its_next_try_is_given_up_at_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST", 30.0)
    with scripted(Service(lambda *_: (500, {}, b""))) as (endpoint, _):
        sink = written(at(url, endpoint), contents(2))
        time.sleep(0.3)
        began = time.monotonic()
        sink.discard()
        assert time.monotonic() - began < 5


def threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name == "quire-pieces"]


def test_one_file_after_the_other_goes_by_the_same_connections_and_no_thread_stays(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wires = list[Any]()
    with scripted(Service()) as (endpoint, _):
        store = at(url, endpoint)
        real = type(store)._wire

        def recorded(store: Any) -> Any:
            wires.append(real(store))
            return wires[-1]

        monkeypatch.setattr(type(store), "_wire", recorded)
        ports = set[int]()
        for _ in range(4):
            written(store, contents(1)).close()
            assert threads() == []
            ports |= {each.sock.getsockname()[1] for each in wires[0]._open}
        assert len(wires) == 1
        assert 1 <= len(ports) <= 2
        assert wires.pop()._open
        before = len(os.listdir("/dev/fd"))
        del store
        gc.collect()
        assert len(os.listdir("/dev/fd")) < before  # with the store its connections go


def test_connections_that_cannot_be_made_fail_the_writer() -> None:
    """Those of the environment are looked at in the thread: what is wrong there must not leave the writer waiting."""

    def opened() -> Any:
        raise StorageError("no certificates")

    way = sending.Sending(opened)
    for _ in range(2):
        parcel = way.send(lambda: iter(()), 5)  # type: ignore[arg-type,return-value]
        with pytest.raises(StorageError, match="no certificates"):
            way.result(parcel)


def test_an_error_of_the_thread_itself_is_heard_by_all(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise MemoryError("none left")

    with scripted(Service()) as (endpoint, _):
        store = at(url, endpoint)
        with monkeypatch.context() as patch:
            patch.setattr(sending._Thread, "_try", broken)
            with pytest.raises(MemoryError):
                written(store, contents(2)).close()
        written(store, contents(2)).close()  # and the next upload goes as ever


def test_a_fork_has_a_way_of_its_own(url: str) -> None:
    service = Service()
    with scripted(service) as (endpoint, _):
        store = at(url, endpoint)
        parents = written(store, contents(2))
        if not (child := os.fork()):
            try:
                written(store, contents(2)).close()
                try:
                    parents.close()
                except StorageError as e:
                    os._exit(0 if "forked" in str(e) else 2)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        parents.close()
    assert service.made == contents(2)


def test_threads_write_beside_each_other(url: str) -> None:
    with scripted(Service()) as (endpoint, _):
        store, failed = at(url, endpoint), list[BaseException]()

        def one() -> None:
            try:
                for _ in range(3):
                    written(store, contents(1)).close()
            except BaseException as e:
                failed.append(e)

        all_of = [threading.Thread(target=one) for _ in range(4)]
        for each in all_of:
            each.start()
        for each in all_of:
            each.join(60)
        assert not failed
        assert not any(each.is_alive() for each in all_of)
    assert threads() == []
