"""Requests one after another, the next one on its way: connections that stay, answers that are late, and whose they are."""

from __future__ import annotations

import gc
import os
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import count, islice
from typing import Any

import pytest

from quire.errors import FormatError, StorageError, TransientError
from quire.storage import ReadRequest, Store, asking, bare, objects, retry
from quire.storage.asking import Asking, Line, Steps
from quire.storage.azure.rest import moment
from quire.storage.http import trusted
from quire.storage.message import Answer
from quire.storage.wire import Ask, Wire
from speaking import Talk, head, serving


def target(sock: socket.socket) -> bytes:
    """Of the next request; nothing at the connection's end."""
    found = head(sock)
    return found.split(b" ")[1] if found else b""


def says(sock: socket.socket, body: bytes, status: bytes = b"200 OK") -> None:
    sock.sendall(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body))


def echoes(sock: socket.socket, _: int) -> None:
    while name := target(sock):
        says(sock, name)


def to(silence: float = 30.0) -> Asking:
    return Asking(lambda: Wire(trusted, silence=silence))


def get(line: Line, origin: str, target: str) -> asking.Asked:
    def steps() -> Steps:
        try:
            answer = yield Ask("GET", origin, target, "", 1000)
        except OSError as e:
            raise TransientError(f"cannot list: {e}") from None
        if answer.status != 200:
            raise TransientError(f"status {answer.status}")
        return answer.body

    return line.ask(steps)


def test_the_next_one_is_on_its_way_while_an_answer_is_worked_on() -> None:
    came = list[bytes]()

    def talk(sock: socket.socket, _: int) -> None:
        while name := target(sock):
            came.append(name)
            says(sock, name)

    with serving(talk) as (origin, connections), to().line() as line:
        assert get(line, origin, "/1")() == b"/1"
        second = get(line, origin, "/2")
        until = time.monotonic() + 10
        while len(came) < 2 and time.monotonic() < until:
            time.sleep(0.01)
        assert came == [b"/1", b"/2"], "nobody has waited for it yet"
        assert second() == b"/2"
        third, fourth = get(line, origin, "/3"), get(line, origin, "/4")
        assert (fourth(), third()) == (b"/4", b"/3")
        assert len(connections) == 2, "two at once, one after the other on the first"


def test_connections_stay_for_whoever_asks_next_and_no_longer_than_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(echoes) as (origin, connections):
        asks = to()
        for _ in range(5):
            with asks.line() as line:
                assert get(line, origin, "/x")() == b"/x"
        assert len(connections) == 1
        monkeypatch.setattr(asking, "KEPT", 0.0)
        with asks.line() as line:
            assert get(line, origin, "/x")() == b"/x"
        assert len(connections) == 2


def test_a_listing_that_is_left_gives_its_answer_to_nobody() -> None:
    with serving(echoes) as (origin, connections):
        asks = to()
        with asks.line() as line:
            assert get(line, origin, "/1")() == b"/1"
            get(line, origin, "/late")
        with asks.line() as line:
            assert get(line, origin, "/2")() == b"/2"
        assert len(connections) == 2


def test_what_fails_for_the_moment_is_sent_again_when_it_is_called_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "pause", lambda _: None)
    tries = list[bytes]()

    def talk(sock: socket.socket, _: int) -> None:
        while name := target(sock):
            tries.append(name)
            if len(tries) == 2:
                return
            says(sock, name, b"503 Busy" if len(tries) == 1 else b"200 OK")

    with serving(talk) as (origin, _), to().line() as line:
        assert retry.again(get(line, origin, "/1")) == b"/1"
    assert set(tries) == {b"/1"}


def trickles(sock: socket.socket, _: int) -> None:
    """A byte now and then, without end."""
    head(sock)
    sock.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(200):
        sock.sendall(b"1\r\nx\r\n")
        time.sleep(0.02)


def is_silent(sock: socket.socket, _: int) -> None:
    head(sock)
    time.sleep(3)


@pytest.mark.parametrize("talk", [trickles, is_silent])
def test_an_answer_that_does_not_end_is_left(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "LASTS", 0.5)
    began = time.monotonic()
    with serving(talk) as (origin, _), to(silence=1.0).line() as line:
        with pytest.raises(TransientError, match="no answer in time"):
            get(line, origin, "/1")()
        assert time.monotonic() - began < 2.5
        assert not line.flying


def test_a_thin_line_brings_an_answer_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "LASTS", 0.3)
    monkeypatch.setattr(asking, "THIN", 5_000)

    def thin(sock: socket.socket, _: int) -> None:
        head(sock)
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n")
        for _ in range(20):
            sock.sendall(b"x" * 500)
            time.sleep(0.05)

    def steps() -> Steps:
        return (yield Ask("GET", origin, "/1", "", 10_000)).body

    began = time.monotonic()
    with serving(thin) as (origin, _):
        assert len(to().once(steps)) == 10_000
    assert time.monotonic() - began > 0.8, "as long as no answer may take that does not come"


def test_an_object_is_held_whole_if_it_is_short_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two requests for one that is longer than nearly all are; of one that is too long no more than the first brings."""
    monkeypatch.setattr(objects, "MOST", 100)
    monkeypatch.setattr(objects, "LARGEST", 1_000)
    wanted = list[int]()

    def answering(size: int, head: bytes) -> Callable[[int], Answer]:
        wanted.clear()

        def get(most: int) -> Answer:
            wanted.append(most)
            return Answer(200, b"HTTP/1.1 200 OK\r\n" + head, bytes(min(size, most + 1)))

        return get

    for size, asked in ((0, [100]), (100, [100]), (101, [100, 1_000]), (1_000, [100, 1_000])):
        for told in (b"Content-Length: %d\r\n" % size, b""):
            assert len(objects.whole("it", answering(size, told))) == size
            assert wanted == asked
    for told, asked in ((b"Content-Length: 1001\r\n", [100]), (b"", [100, 1_000])):
        with pytest.raises(FormatError, match="it is longer than"):
            objects.whole("it", answering(1_001, told))
        assert wanted == asked


def test_no_more_of_an_answer_is_held_than_was_wanted() -> None:
    def endless(sock: socket.socket, _: int) -> None:
        head(sock)
        sock.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            sock.sendall(b"400\r\n" + b"x" * 1024 + b"\r\n")

    with serving(endless) as (origin, _), to().line() as line:
        assert len(get(line, origin, "/1")()) == 1001


def test_an_error_of_ours_belongs_to_who_wants_the_answer() -> None:
    def steps() -> Steps:
        raise StorageError("no credentials")
        yield

    with serving(echoes) as (origin, connections):
        asks = to()
        with asks.line() as line:
            broken = line.ask(steps)
            assert get(line, origin, "/1")() == b"/1"
            with pytest.raises(StorageError, match="no credentials"):
                broken()
        with asks.line() as line:
            assert get(line, origin, "/1")() == b"/1"
        assert len(connections) == 1


def in_a_fork(act: Callable[[], bool]) -> bool:
    child = os.fork()
    if not child:
        code = 1
        try:
            code = 0 if act() else 2
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0


def test_a_fork_has_connections_of_its_own() -> None:
    def own(target: str) -> bool:
        with asks.line() as line:
            found: bytes = get(line, origin, target)()
        return found == target.encode()

    with serving(echoes) as (origin, connections):
        asks = to()
        with asks.line() as line:
            coming = get(line, origin, "/1")

            def goes_on() -> bool:
                for act in (coming, lambda: get(line, origin, "/2")):
                    with pytest.raises(StorageError, match="forked meanwhile"):
                        act()
                return own("/3")

            assert in_a_fork(goes_on)
            assert coming() == b"/1"
        assert in_a_fork(lambda: own("/4"))
        assert own("/5")
        assert len(connections) == 3, "the parent's own stayed open"


def test_threads_ask_beside_each_other() -> None:
    found = list[bytes]()

    def some(number: int) -> None:
        for i in range(20):
            with asks.line() as line:
                found.append(get(line, origin, f"/{number}-{i}")())

    with serving(echoes) as (origin, connections):
        asks = to()
        threads = [threading.Thread(target=some, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(found) == sorted(f"/{number}-{i}".encode() for number in range(8) for i in range(20))
        assert len(connections) <= 8


def test_no_connection_is_left_open_when_nobody_can_ask_any_more() -> None:
    with serving(echoes) as (origin, _):
        asks = to()
        with asks.line() as line:
            assert get(line, origin, "/1")() == b"/1"
            sock = next(iter(line.wire._open)).sock
        del line
        assert sock.fileno() >= 0
        del asks
        gc.collect()
        assert sock.fileno() == -1


def test_a_listing_that_ends_in_a_cycle_leaves_no_connection_open() -> None:
    """A cycle has no order: the sockets in it could end before those who close them."""
    with serving(echoes) as (origin, _):

        def listing(asks: Asking) -> Iterator[bytes]:
            with asks.line() as line:
                yield get(line, origin, "/1")()
                yield get(line, origin, "/2")()

        asks = to()
        begun = listing(asks)
        assert next(begun) == b"/1"
        around: list[Any] = [asks, begun]
        around.append(around)
        del asks, begun, around
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", ResourceWarning)
            gc.collect()
        assert [str(each.message) for each in said] == []


def store_at(kind: str, origin: str) -> Store:
    url, options = {
        "s3": ("s3://bucket/in", {"endpoint_url": origin, "anon": True, "client_kwargs": {"region_name": "eu-west-1"}}),
        "gcs": ("gs://bucket/in", {"endpoint_url": origin, "token": "anon"}),
        "azure": ("abfs://container/in", {"account_name": "acc", "account_host": origin, "account_key": "a2V5"}),
    }[kind]
    return bare(url, options)


@pytest.mark.parametrize("length", [1, 2, 3, 7])
@pytest.mark.parametrize("kind", ["s3", "gcs", "azure"])
def test_a_listing_that_turns_in_a_circle_ends(kind: str, length: int) -> None:
    """It would go on for ever, and give each name as often."""
    of_s3 = "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>{}</NextContinuationToken></ListBucketResult>"
    of_azure = "<EnumerationResults><Blobs/><NextMarker>{}</NextMarker></EnumerationResults>"
    body, pages = {"s3": of_s3, "gcs": '{{"nextPageToken": "{}"}}', "azure": of_azure}[kind], count()

    def talk(sock: socket.socket, _: int) -> None:
        while target(sock):
            at = next(pages)
            says(sock, body.format(f"t{at if at < 5 else 5 + (at - 5) % length}").encode() if at < 1000 else b"")  # some are on no circle

    with serving(talk) as (origin, _), pytest.raises(StorageError, match="the same page again and again"):
        list(store_at(kind, origin).walk())


@pytest.mark.parametrize("kind", ["s3", "gcs", "azure"])
def test_all_of_an_object_is_not_taken_for_its_part(kind: str) -> None:
    """Something between that drops the header Range makes the first bytes of what was to be those further on, without end."""
    body = b"0123456789"

    def talk(sock: socket.socket, _: int) -> None:
        while target(sock):
            says(sock, body)

    with serving(talk) as (origin, _):
        store = store_at(kind, origin)
        assert store.get_range("x", 0, 3) == b"012"
        with pytest.raises(StorageError, match="a part was asked for, and the answer is all of it"):
            store.get_range("x", 4, 3)
        body = b""
        assert store.get_range("x", 4, 3) == b""


@pytest.mark.parametrize("kind", ["s3", "gcs", "azure"])
def test_another_part_than_was_asked_for_is_not_taken_for_it(kind: str) -> None:
    """A server may give one, and says so; it has as many bytes."""

    def talk(sock: socket.socket, _: int) -> None:
        while target(sock):
            begins = b"HTTP/1.1 206 Partial Content\r\nContent-Length: 3\r\nContent-Range: bytes "
            sock.sendall(begins + b"4-6/10\r\n\r\n456")

    with serving(talk) as (origin, _):
        store = store_at(kind, origin)
        assert store.get_range("x", 4, 3) == b"456"
        assert [content for _, content in store.read_many([ReadRequest("x", "1", 10, 4, 3)])] == [b"456"]
        assert Answer(206, b"HTTP/1.1 206 OK\r\nContent-Range: bytes 4-9/10\r\n", b"").reaches(12), "to its end"
        with pytest.raises(StorageError, match="fewer bytes came than were asked for"):
            store.get_range("x", 4, 4)
        with pytest.raises(StorageError, match="another part came than was asked for"):
            store.get_range("x", 5, 3)
        with pytest.raises(StorageError, match="another part came than was asked for"):
            list(store.read_many([ReadRequest("x", "1", 10, 5, 3)]))


@pytest.mark.parametrize("kind", ["s3", "gcs", "azure"])
def test_an_answer_that_describes_no_object_is_one_line(kind: str) -> None:
    """A page of a proxy, say, which has no version."""

    def talk(sock: socket.socket, _: int) -> None:
        while head(sock):
            sock.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n" + (b"{}" if kind == "gcs" else b""))
            return

    with serving(talk) as (origin, _), pytest.raises(StorageError, match="did not answer as"):
        store_at(kind, origin).stat("x")


def test_a_time_that_nobody_can_read_is_not_known() -> None:
    times = ("2026-11-21T10:00:00Z", "", "Sat, 21 Növ 2026 19:58:32 GMT", "Sat, 21 Nov 2026 19 GMT", "Sat, 21 Nov 2026 19:58:32 GMT")
    assert [moment(text) for text in times] == [0, 0, 0, 0, 1_795_291_112_000_000_000]


def test_a_list_of_uploads_that_turns_in_a_circle_ends() -> None:
    body = "<ListMultipartUploadsResult><IsTruncated>true</IsTruncated>{}</ListMultipartUploadsResult>"
    pages = count()

    def talk(sock: socket.socket, _: int) -> None:
        while target(sock):
            further = f"<NextKeyMarker>in/k{next(pages) % 2}</NextKeyMarker><NextUploadIdMarker>u</NextUploadIdMarker>"
            says(sock, body.format(further).encode())

    with serving(talk) as (origin, _), pytest.raises(StorageError, match="the same page again and again"):
        list(islice(store_at("s3", origin).pending(), 1000))


@pytest.mark.parametrize("further", ["", "<NextKeyMarker>in/k</NextKeyMarker><NextUploadIdMarker>u</NextUploadIdMarker>"])
def test_a_list_of_uploads_that_does_not_go_on_ends(further: str) -> None:
    body = f"<ListMultipartUploadsResult><IsTruncated>true</IsTruncated>{further}</ListMultipartUploadsResult>".encode()

    def talk(sock: socket.socket, _: int) -> None:
        while target(sock):
            says(sock, body)

    with serving(talk) as (origin, _), pytest.raises(StorageError, match="does not say where its list goes on"):
        list(store_at("s3", origin).pending())
