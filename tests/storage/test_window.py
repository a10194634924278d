"""The engine that reads many objects at once: their order, what is held, a busy service, and an end that leaves nothing behind."""

from __future__ import annotations

import asyncio
import math
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any

import pytest

from quire.errors import StorageError, TransientError
from quire.storage import ReadRequest, Unreadable, Vanished, window
from quire.storage.threads import Threads
from quire.storage.window import Throttled

MiB = 1 << 20


def requests(count: int, size: int = 100) -> list[ReadRequest]:
    return [ReadRequest(f"f{i:05}", "v", size, 0, size) for i in range(count)]


def content(request: ReadRequest) -> bytes:
    return request.name[-1:].encode() * request.length


def well(request: ReadRequest, tries: int) -> None:
    """It goes well."""


class Service:
    """Counts what is asked of it; `act` says what one request does: nothing, bytes, an error, or seconds until it is answered."""

    def __init__(self, act: Callable[[ReadRequest, int], Any] = well, delay: float = 0.0) -> None:
        self.act, self.delay = act, delay
        self.most = self.opened = self.closed = 0
        self.tries = dict[tuple[str, int], int]()
        self.began = list[float]()
        self.coming = list[tuple[float, int, Any, ReadRequest, bool]]()
        self.order = count()

    @property
    def now_asked(self) -> int:
        return len(self.coming)

    # As connections are used.
    @property
    def now(self) -> float:
        return time.monotonic()

    def send(self, ask: ReadRequest, token: Any) -> None:
        self.began.append(self.now)
        heappush(self.coming, (self.now + self.delay * random.random(), next(self.order), token, ask, False))
        self.most = max(self.most, len(self.coming))

    def wait(self, seconds: float) -> list[tuple[Any, Any]]:
        assert seconds >= 0
        until = self.now + min(seconds, 0.25)
        if self.coming:
            until = min(until, self.coming[0][0])
        time.sleep(max(0.0, until - self.now))
        found, now = list[tuple[Any, Any]](), self.now
        while self.coming and self.coming[0][0] <= now:
            came = self._answer(*heappop(self.coming))
            found += [came] if came else []
        return found

    def _answer(self, due: float, order: int, token: Any, ask: ReadRequest, again: bool) -> tuple[Any, Any] | None:
        if again:
            return token, content(ask)
        key = ask.name, ask.start
        self.tries[key] = self.tries.get(key, 0) + 1
        try:
            found = self.act(ask, self.tries[key])
        except Exception as e:
            return token, e
        if isinstance(found, float):
            heappush(self.coming, (due + found, order, token, ask, True))
            return None
        return token, content(ask) if found is None else found

    def cancel(self, token: Any) -> None:
        self.coming = [each for each in self.coming if each[2] is not token]
        heapify(self.coming)

    def close(self) -> None:
        self.coming.clear()
        self.closed += 1

    def fetch(self, request: ReadRequest) -> Any:
        return (yield request)

    def connections(self) -> tuple[Any, Any]:
        self.opened += 1
        return self, self.fetch

    def read(self, wanted: Any, flight: int = 64) -> Iterator[tuple[ReadRequest, Any]]:
        return window.read(wanted, self.connections, flight)


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    assert not [t for t in threading.enumerate() if t.name == "quire-window"]


def test_answers_come_in_order_however_late_single_ones_are() -> None:
    service, wanted = Service(delay=0.01), requests(2000)
    found = list(service.read(iter(wanted)))
    assert [request for request, _ in found] == wanted
    assert all(data == content(request) for request, data in found)
    assert (service.most, service.opened, service.closed) == (64, 1, 1)


def test_nothing_is_opened_where_nothing_is_asked() -> None:
    service = Service()
    assert list(service.read([])) == []
    never = service.read(requests(10))
    del never
    assert service.opened == 0


def test_what_is_gone_or_unreadable_is_an_answer() -> None:
    def act(request: ReadRequest, tries: int) -> None:
        if request.name.endswith("3"):
            raise Vanished("vanished")
        if request.name.endswith("4"):
            raise Unreadable("it lies in the archive tier")

    found = [data for _, data in Service(act).read(requests(10))]
    assert [type(data).__name__ for data in found] == ["bytes"] * 3 + ["Vanished", "Unreadable"] + ["bytes"] * 5


def test_a_long_object_is_a_stream_and_never_held_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "PIECE", 1000)
    monkeypatch.setattr(window, "BUDGET", 10_000)
    service = Service(delay=0.002)
    small, long = requests(50), ReadRequest("long", "v", 1_000_500, 250, 999_999)
    read = service.read([*small[:25], long, *small[25:]])
    for request, data in read:
        if request is not long:
            assert data == content(request)
            continue
        sizes = []
        for piece in data:
            assert piece == b"g" * len(piece)
            sizes.append(len(piece))
            if len(sizes) == 3:
                time.sleep(0.1)
                ahead = len(service.tries) - 25 - 3
                assert ahead <= 10, "what waits for its reader is bounded"
        assert sizes == [1000] * 999 + [999]
    assert sum(service.tries.values()) == 50 + 1000


def test_a_stream_may_be_left_and_is_then_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "PIECE", 1000)
    monkeypatch.setattr(window, "BUDGET", 10_000)
    service, left = Service(delay=0.001), []
    wanted = [r for i in range(20) for r in (ReadRequest(f"long{i}", "v", 50_000, 0, 50_000), *requests(3))]
    found = []
    for request, data in service.read(wanted):
        found.append(request)
        if not isinstance(data, bytes):
            assert len(next(data)) == 1000
            left.append(data)
    assert found == wanted
    with pytest.raises(RuntimeError, match="read it before"):
        next(left[0])


def test_a_stream_that_changes_says_so_at_the_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "PIECE", 1000)

    def act(request: ReadRequest, tries: int) -> bytes | None:
        if request.start == 3000:
            raise Vanished("changed")
        return b"short" if request.name == "short" and request.start == 1000 else None

    wanted = [ReadRequest("a", "v", 9000, 0, 9000), ReadRequest("short", "v", 9000, 0, 9000), *requests(2)]
    sizes = []
    for _, data in Service(act, 0.002).read(wanted):
        if isinstance(data, bytes):
            sizes.append(len(data))
            continue
        got = []
        with pytest.raises(Vanished, match="changed"):
            got.extend(data)
        sizes.append(sum(map(len, got)))
    assert sizes == [3000, 1000, 100, 100]


def test_a_busy_service_is_asked_less_and_not_before_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[float]()

    def act(request: ReadRequest, tries: int) -> None:
        if request.name == "f00100" and tries == 1:
            told.append(time.monotonic())
            raise Throttled("the service is busy", wait=0.6)

    service = Service(act, 0.02)
    found = list(service.read(requests(1000)))
    assert len(found) == 1000
    assert all(isinstance(data, bytes) for _, data in found)
    gap = [t for t in service.began if told[0] + 0.05 < t < told[0] + 0.55]
    assert not gap, "nobody asks before the time that the service named"


def test_the_limit_comes_down_once_a_moment_and_slowly_up_again() -> None:
    most = list[int]()

    def act(request: ReadRequest, tries: int) -> None:
        most.append(service.now_asked + 1)
        if int(request.name[1:]) < 300 and tries == 1:
            raise Throttled("the service is busy")

    service = Service(act, 0.02)
    assert len(list(service.read(requests(3000), 256))) == 3000
    assert max(most[-500:]) < 256
    assert max(most[-500:]) >= 100


def test_what_fails_for_the_moment_is_tried_again_in_its_place() -> None:
    def act(request: ReadRequest, tries: int) -> None:
        if request.name.endswith("7") and tries < 3:
            raise TransientError("the connection was lost")

    service, wanted = Service(act), requests(100)
    assert [r for r, data in service.read(wanted) if data == content(r)] == wanted
    assert {service.tries[r.name, 0] for r in wanted if r.name.endswith("7")} == {3}


def test_a_file_that_never_comes_is_set_aside_in_the_services_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "PATIENCE", 1.0)

    def act(request: ReadRequest, tries: int) -> Any:
        if request.name == "f00050":
            raise TransientError("the service did not manage it (500 InternalError sig=abcdef)")
        return 0.01

    found = dict(Service(act).read(requests(3000), 16))
    (aside,) = [data for data in found.values() if not isinstance(data, bytes)]
    assert isinstance(aside, Unreadable)
    assert "did not manage it (500 InternalError" in str(aside)
    assert "abcdef" not in str(aside)
    assert "tried" in str(aside)


def test_a_service_that_is_away_sets_nothing_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "PATIENCE", 0.5)

    def act(request: ReadRequest, tries: int) -> None:
        if int(request.name[1:]) >= 100:
            raise TransientError("the connection was lost")

    read = Service(act).read(requests(300))
    with pytest.raises(TransientError, match=r"the connection was lost \(tried"):
        list(read)


def test_a_try_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "TRY", 0.2)

    def act(request: ReadRequest, tries: int) -> Any:
        return math.inf if request.name == "f00003" and tries == 1 else None

    service = Service(act)
    assert [data for _, data in service.read(requests(10))] == [content(r) for r in requests(10)]
    assert service.tries["f00003", 0] == 2


@pytest.mark.parametrize("error", [StorageError("the SAS has expired"), ValueError("a mistake"), KeyError("x")])
def test_any_other_error_ends_the_reading(error: Exception) -> None:
    def act(request: ReadRequest, tries: int) -> None:
        if request.name == "f00050":
            raise error

    service = Service(act, 0.01)
    with pytest.raises(type(error)) as caught:
        list(service.read(requests(10_000)))
    assert caught.value is error
    assert service.closed == 1


def test_connections_that_cannot_be_made_are_an_error() -> None:
    def broken() -> Any:
        raise StorageError("unknown host 'x'")

    with pytest.raises(StorageError, match="unknown host"):
        list(window.read(requests(3), broken))


def test_leaving_cancels_what_is_in_flight() -> None:
    def act(request: ReadRequest, tries: int) -> Any:
        return math.inf if request.name > "f00010" else None

    service = Service(act)
    answers = service.read(requests(1000))
    for _ in range(5):
        next(answers)
    began = time.monotonic()
    answers.close()  # type: ignore[attr-defined]
    assert time.monotonic() - began < 0.1
    assert (service.now_asked, service.closed) == (0, 1)


def test_a_source_of_requests_that_fails_is_heard() -> None:
    def failing() -> Iterator[ReadRequest]:
        yield from requests(10)
        raise OSError("the plan cannot be read")

    service = Service()
    with pytest.raises(OSError, match="plan"):
        list(service.read(failing()))
    assert service.opened == service.closed


def test_reading_works_where_a_loop_runs_already() -> None:
    async def notebook() -> int:
        return sum(len(data) for _, data in Service().read(requests(10)))

    assert asyncio.run(notebook()) == 1000


def test_whatever_goes_wrong_between_reaches_who_waits_for_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Any) -> None:
        raise MemoryError("no room")

    service = Service()
    monkeypatch.setattr(window._Engine, "_pump", fails)
    with pytest.raises(MemoryError, match="no room"):
        list(service.read(requests(3)))
    assert service.opened == service.closed


def test_a_source_of_requests_that_is_slow_holds_up_no_answer() -> None:
    given = list[int]()

    def slow() -> Iterator[ReadRequest]:
        for i, request in enumerate(requests(40)):
            time.sleep(0.01)
            given.append(i)
            yield request

    answers = Service(delay=0.005).read(slow())
    next(answers)
    assert len(given) < 10, "the first answer comes before all is known"
    assert sum(1 for _ in answers) == 39


def test_whoever_takes_long_over_an_answer_loses_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """His time is not the service's: what has come meanwhile is no late answer, and no try has failed."""
    monkeypatch.setattr(window, "BUDGET", 1000)
    service = Service(delay=0.001)
    for i, (request, data) in enumerate(service.read(requests(200), 8)):
        assert data == content(request)
        if i in (3, 50):
            time.sleep(0.3)
    assert set(service.tries.values()) == {1}


def test_a_pause_when_nothing_waits_is_not_the_end() -> None:
    """The service asks for time just when all that was asked for is answered, and there is more to ask for."""

    def act(request: ReadRequest, tries: int) -> None:
        if request.name == "f00007" and tries == 1:
            raise Throttled("the service is busy", wait=0.3)

    assert [r.name for r, _ in Service(act).read(requests(60), 1)] == [r.name for r in requests(60)]


def test_a_reading_does_not_go_on_in_a_fork() -> None:
    """Two processes would read from the same connections, and mix their answers."""
    service = Service(delay=0.01)
    answers = service.read(requests(100), 4)
    next(answers)
    if not (child := os.fork()):
        try:
            list(answers)
        except StorageError as e:
            os._exit(17 if "forked" in str(e) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17
    assert sum(1 for _ in answers) == 99


def test_a_client_that_blocks_is_asked_in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a call hangs: it is forgotten, and what it gives in the end is nobody's."""
    monkeypatch.setattr(window, "TRY", 0.3)
    monkeypatch.setattr(window, "FIRST", 0.05)
    tries, most = list[str](), list[int]()

    def blocking(request: ReadRequest) -> bytes:
        tries.append(request.name)
        most.append(sum(t.name.startswith("quire-reads") for t in threading.enumerate()))
        if request.name == "f00007":
            time.sleep(0.8 if tries.count(request.name) == 1 else 0.0)
        if request.name == "f00009":
            raise Vanished("vanished")
        return content(request)

    def fetch(request: ReadRequest) -> Any:
        return (yield partial(blocking, request))

    found = dict(window.read(requests(300), lambda: (Threads(8), fetch), 8))
    assert tries.count("f00007") == 2
    assert isinstance(found.pop(requests(10)[9]), Vanished)
    assert all(data == content(request) for request, data in found.items())
    assert max(most) <= 8
    assert not [t for t in threading.enumerate() if t.name.startswith("quire-reads")]


def test_a_service_that_wants_time_when_all_else_is_answered_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is given up with such an answer, and by then nothing waits: what was not asked for yet is not left out."""
    monkeypatch.setattr(window, "PATIENCE", 0.3)
    monkeypatch.setattr(window, "FIRST", 0.05)

    def act(request: ReadRequest, tries: int) -> None:
        if request.name == "f00007":
            raise TransientError("the connection was lost") if tries == 1 else Throttled("the service is busy", wait=0.5)

    found = list(Service(act, 0.002).read(requests(300), 2))
    assert [r for r, _ in found] == requests(300)
    assert [r.name for r, data in found if isinstance(data, Unreadable)] == ["f00007"]
