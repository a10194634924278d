"""The plan of `docs/scale.md` is of the code as it is: its counts are those of real jobs, its speeds those that were measured."""

from __future__ import annotations

import re
import sys
import time
import uuid
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gathering import gather
from quire.commit import parts
from quire.planning import listing
from quire.storage import ReadRequest, bare, window
from quire.storage.azure import read as azure_read
from quire.storage.azure import rest as azure_rest
from quire.storage.azure.store import AzureStore
from quire.storage.window import Throttled
from services.azurite import azurite, connection_string

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from scale import Cluster, Prices, _cost, gathered
from scale_counts import Job, batches, folder_name, kinds, name, requests, shape
from scale_flow import Line, flow, play

PAGE_OF_PLAN = Path(__file__).parents[2] / "docs" / "scale.md"
# Without what is assumed: slow answers, and round trips for connections. The server of the measurements had neither.
MEASURED = Line(slow=(), connect=0, cpu=203e-6)


@pytest.fixture(scope="module")
def account() -> Iterator[dict[str, str]]:
    """An Azurite with a container; the options for it."""
    with azurite() as endpoint:
        options = {"connection_string": connection_string(endpoint)}
        store = bare("abfs://scale", options)
        assert isinstance(store, AzureStore)
        store.create_container()
        yield options


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What is asked of Azure from now on: requests by kind, and the calls of `read_many`."""
    found = Counter[str]()
    kind = {"GET": "read", "PUT": "write", "HEAD": "look", "DELETE": "delete"}
    send, ask = azure_rest.BlobRest.send, azure_read._BlobReader._ask
    opened, staged, page = azure_read.opened, azure_read.staged, azure_rest.BlobRest._page

    def sent(self: Any, method: str, *more: Any, **named: Any) -> Any:
        found[kind[method]] += 1
        return send(self, method, *more, **named)

    def listed(self: Any, *more: Any, **named: Any) -> Any:
        found["list"] += 1
        return page(self, *more, **named)

    def read(self: Any, method: str, *more: Any) -> Any:
        found[kind[method]] += 1
        return ask(self, method, *more)

    def opening(*given: Any) -> Any:
        found["calls"] += 1
        return opened(*given)

    def staging(*given: Any) -> Any:
        found["write"] += 1
        return staged(*given)

    monkeypatch.setattr(azure_read, "staged", staging)
    monkeypatch.setattr(azure_rest.BlobRest, "send", sent)
    monkeypatch.setattr(azure_rest.BlobRest, "_page", listed)
    monkeypatch.setattr(azure_read._BlobReader, "_ask", read)
    monkeypatch.setattr(azure_read, "opened", opening)
    return found


@pytest.mark.nth(5)
@pytest.mark.parametrize(
    ("job", "small"),
    [
        (Job(files=90, size=3000, folders=3, parallelism=1), {}),
        (Job(files=93, size=3000, folders=3, target=64 << 10, parallelism=1), {}),
        (Job(files=240, size=3000, folders=2, target=128 << 10, parallelism=1), {"PAGE": 10, "ROW_GROUP": 7}),
        (Job(files=120, size=500, folders=3, target=16 << 10, parallelism=1), {"CHUNK": 25}),
        (Job(files=60, size=3000, folders=2, target=64 << 10, parallelism=1), {"parts.LONGEST": 500}),
    ],
    ids=["one task", "three tasks", "many pages", "several objects of a plan", "a long entry"],
)  # fmt: skip
def test_the_plan_counts_every_request_that_a_job_makes(
    account: dict[str, str], asked: Counter[str], job: Job, small: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"abfs://scale/{uuid.uuid4().hex}"
    tree = bare(place, account)
    for folder in range(job.folders):
        for i in range(job.held):
            tree.put(f"in/{folder_name(folder)}/{name(i)}", b"x" * (job.size - 1) + b"\n")
    for module in (listing, azure_rest, parts):
        for constant, value in small.items():
            where, _, attribute = constant.rpartition(".")
            if hasattr(module, attribute) and module.__name__.endswith(where):
                monkeypatch.setattr(module, attribute, value)
    monkeypatch.setattr("quire.spark.runner.LocalRunner.parallelism", job.parallelism)
    shape.cache_clear()
    asked.clear()
    report = gather(f"{place}/in", f"{place}/out", storage_options=account, target_size=f"{job.target} B")
    calls, plan = asked.pop("calls"), shape(job)
    assert report.files == job.files
    assert calls == sum(len(batches(task)) for task in plan.tasks)
    looks = len(plan.tasks)  # here, one after each task
    assert {kind: count for kind, count in asked.items() if count} == {k: n for k, n in kinds(requests(job, looks)).items() if n}
    shape.cache_clear()


def test_simulated_reading_is_as_fast_as_measured_reading() -> None:
    one_call = (20_000,)
    assert flow(1, MEASURED, 5000, one_call).rate == pytest.approx(1744, rel=0.03)  # RESULTS.md: 256 in flight, one call
    for flight, files_per_second in ((32, 221), (128, 867)):  # the same client and server, with fewer in flight
        line = Line(slow=(), connect=0, cpu=203e-6, flight=flight)
        assert flow(1, line, 5000, one_call).rate == pytest.approx(files_per_second, rel=0.03)


class Account:
    """Admits `limit` requests a second, answers the others with 503, all of them after `latency`."""

    def __init__(self, limit: float, latency: float) -> None:
        self.limit, self.latency = limit, latency
        self.tokens, self.filled, self.refused = limit, time.monotonic(), 0
        self.coming = deque[tuple[float, Any, Any]]()
        self.came = list[float]()  # when each file had come

    # As connections are used.
    def opened(self) -> tuple[Account, window.Fetch]:
        return self, self.fetch

    def fetch(self, request: ReadRequest) -> window.Steps:
        return (yield request)

    @property
    def now(self) -> float:
        return time.monotonic()

    def send(self, ask: ReadRequest, token: Any) -> None:
        now = self.now
        self.tokens = min(self.limit, self.tokens + (now - self.filled) * self.limit)
        self.filled = now
        admitted = self.tokens >= 1
        self.tokens -= admitted
        self.refused += not admitted
        self.coming.append((now + self.latency, token, bytes(ask.length) if admitted else Throttled("ServerBusy")))

    def wait(self, seconds: float) -> list[tuple[Any, Any]]:
        until = self.now + seconds
        time.sleep(max(0.0, (min(until, self.coming[0][0]) if self.coming else until) - self.now))
        found = list[tuple[Any, Any]]()
        while self.coming and self.coming[0][0] <= self.now:
            at, token, answer = self.coming.popleft()
            found.append((token, answer))
            self.came += [at] * isinstance(answer, bytes)
        return found

    def cancel(self, token: Any) -> None:
        self.coming = deque(each for each in self.coming if each[1] is not token)

    def close(self) -> None:
        self.coming.clear()


@pytest.mark.seldom
def test_the_simulated_window_slows_down_for_a_busy_account_as_the_real_one_does() -> None:
    """As the real one does where it is not kept waiting by a busy machine: the best of a few times counts."""
    files, limit, latency = 2000, 500.0, 0.05
    line = Line(latency=latency, slow=(), connect=0, cpu=100e-6, limit=limit)
    seconds, refused = play(1, line, 10, (files,), files)
    seen = list[tuple[float, int]]()
    for _ in range(4):
        busy = Account(limit, latency)
        before = time.monotonic()
        answers = window.read([ReadRequest(name(i), "v", 10, 0, 10) for i in range(files)], busy.opened)
        assert all(isinstance(content, bytes) for _, content in answers)
        seen.append((busy.came[files * 99 // 100 - 1] - before, busy.refused))  # the last few wait for as long as they were unlucky
        if seen[-1] == (pytest.approx(seconds, rel=0.25), pytest.approx(refused, rel=0.3)):
            return
    raise AssertionError(f"simulated {seconds:.2f} s and {refused} refusals; real: {seen}")


def test_the_page_says_what_the_model_says() -> None:
    """Its main figures, so that it cannot drift from what makes it; if they do, make its tables and its picture again."""
    text = PAGE_OF_PLAN.read_text("utf-8")
    job = Job()
    assert f"{job.files:,} × $ 0.0044 / 10,000 = **$ {_cost(Prices(), 'read', job.files):,.2f}**" in text
    plan = shape(job)
    assert len(plan.tasks) == pytest.approx(3900, rel=0.03)
    assert "about 3,900" in text
    for nodes in (5, 10):
        (row,) = re.findall(rf"^\| 1 +\| {nodes} +\| ([0-9.]+) +\| [0-9,]+ +\| ([a-z ]+?) +\|", text, re.MULTILINE)
        fares, seconds = gathered(plan, job, Cluster(nodes), Line())
        assert seconds / 3600 == pytest.approx(float(row[0]), rel=0.05)
        assert fares.by == row[1]
