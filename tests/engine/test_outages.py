"""Loops outlive outages of stores, on a clock that a test turns: each gap is told once, and what is not an outage ends the loop at once."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import quire
from checker import check
from gathering import documents, refused, write
from quire.engine import driver, outages
from quire.errors import (
    DataLossError,
    FormatError,
    QuireError,
    RefusedError,
    StorageError,
    TooManyQuarantined,
    TransientError,
    UsageError,
)
from quire.storage import STORES, retry
from quire.storage.local import LocalStore

HOUR, DAY = 3600.0, 86400.0
MIDDAY = 1_764_244_800.0  # 2025-11-27T12:00:00 UTC


class Clock:
    """Time that passes where somebody waits, and a little with each look; a store is away at the times that a test says."""

    def __init__(self) -> None:
        self.now, self.away, self.waits, self.act = MIDDAY, list[tuple[float, float]](), list[float](), dict[float, Callable[[], object]]()

    def read(self) -> float:
        self.now += 0.001
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds
        for at in [at for at in self.act if at <= self.now]:
            self.act.pop(at)()

    def wait(self, stopped: threading.Event, seconds: float) -> bool:
        self.waits.append(seconds)
        self.pause(seconds)
        return stopped.is_set()

    @property
    def gone(self) -> bool:
        return any(begin <= self.now < end for begin, end in self.away)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """It stands in the place of the machine's; `late://` is a directory behind a store that may be away."""
    found = Clock()
    for module, name, value in (
        (retry, "clock", found.read), (retry, "pause", found.pause), (outages, "clock", found.read), (outages, "pause", found.wait),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)

    class Late(LocalStore):
        def __getattribute__(self, name: str) -> Any:
            if found.gone and name in (
                "stat",
                "is_folder",
                "get",
                "put",
                "put_if_absent",
                "create",
                "walk",
                "peek",
                "check_writable",
                "rename",
            ):
                raise TransientError(f"cannot reach {object.__getattribute__(self, 'url')}: connection refused")
            return super().__getattribute__(name)

    module = SimpleNamespace(
        normalise=lambda scheme, rest: f"{scheme}:{rest}", opened=lambda url, options: Late(url.removeprefix("late://"))
    )
    monkeypatch.setitem(sys.modules, "late_of_a_test", module)  # type: ignore[arg-type]  # it has what a module of a store has
    monkeypatch.setitem(STORES.own, "late", "late_of_a_test")  # type: ignore[arg-type]  # it is a dictionary
    random.seed(7)
    return found


class Runs:
    """The runs of a loop, as its progress tells of them; `then`: what a test does when one begins."""

    def __init__(self, then: Callable[[int], object] = lambda run: None) -> None:
        self.number, self.then, self.steps = 0, then, list[quire.ProgressEvent]()

    def __call__(self, step: quire.ProgressEvent) -> None:
        if step.phase == "listing" and (not self.steps or self.steps[-1].phase != "listing"):
            self.number += 1
            self.then(self.number)
        self.steps.append(step)

    @property
    def waiting(self) -> list[quire.ProgressEvent]:
        return [step for step in self.steps if step.phase == "waiting" and step.waits]


def loop(source: Path, dest: str, **settings: Any) -> quire.Report:
    settings = {"every": "1 ms", "max_runs": 3, "spark": quire.LocalRunner(), "progress": False, **settings}
    return quire.consolidate(source, dest, **settings)


def more(source: Path, runs: int) -> None:
    write(source, {f"more/{runs}-{i}.txt": b"%d %d" % (runs, i) for i in range(3)})


def test_a_store_that_is_away_for_nine_hours_and_again_is_outlived(
    tmp_path: Path, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    source, dest = write(tmp_path / "in", documents(9)), f"late://{tmp_path}/out"

    def then(run: int) -> None:
        more(source, run)
        if run in (2, 4):
            clock.away.append((clock.now, clock.now + (9 * HOUR if run == 2 else 90)))

    runs = Runs(then)
    report = loop(source, dest, max_runs=4, progress=runs)
    assert len(check(source, tmp_path / "out").done) == 9 + 3 * runs.number, "each file once, also those of runs that failed"
    assert report.gap_count == len(report.gaps) == 2
    long, short = report.gaps
    assert (long.began[:10], "connection refused" in long.away, "/out: " in long.away) == ("2025-11-27", True, True)
    assert 9 * HOUR - 120 < long.seconds < 9 * HOUR + 120
    assert short.seconds < 180
    assert max(clock.waits) <= outages.LONGEST
    assert clock.waits[0] < 1
    assert len(set(clock.waits)) > len(clock.waits) / 2, "pauses have a random part"
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 4, told
    assert told[0].startswith("2025-11-27T12:")
    assert " UTC: " in told[0]
    assert "waits, for 1 d at most: " in told[0]
    assert "connection refused" in told[0]
    assert "goes on, after 8 h 5" in told[1] or "goes on, after 9 h" in told[1]
    assert len(runs.waiting) == 2
    assert "connection refused" in runs.waiting[0].waits
    assert "2, the last one " in str(report)
    assert "outages outlived" in str(report)
    assert report.as_dict()["gaps"][0]["began"] == long.began


def test_a_loop_ends_where_an_outage_lasts_longer_than_it_allows(tmp_path: Path, clock: Clock) -> None:
    source = write(tmp_path / "in", documents(9))
    runs = Runs(lambda run: clock.away.append((clock.now, clock.now + DAY)) if run == 2 else None)
    with refused(TransientError, 3, "connection refused", "outage='1 h' allows no more", "since 2025-11-27T12:"):
        loop(source, f"late://{tmp_path}/out", outage="1 h", progress=runs)
    assert HOUR - 120 < clock.now - MIDDAY < HOUR + 240
    clock.away.clear()
    assert loop(source, f"late://{tmp_path}/out").gaps == (), "the next process goes on"
    assert len(check(source, tmp_path / "out").done) == 9


def test_no_outage_is_shorter_than_nothing_where_the_clock_is_set_back_in_it(tmp_path: Path, clock: Clock) -> None:
    source, stop = write(tmp_path / "in", documents(9)), threading.Event()
    runs = Runs(lambda run: clock.away.append((0, clock.now + DAY)) if run == 2 else None)

    def back() -> None:
        clock.now -= 9 * HOUR
        stop.set()

    clock.act[MIDDAY + HOUR] = back
    report = loop(source, f"late://{tmp_path}/out", max_runs=None, progress=runs, stop=stop)
    assert [gap.seconds for gap in report.gaps] == [0.0]


@pytest.mark.parametrize(
    ("settings", "waits"), [({}, False), ({"outage": "1 h"}, True), ({"outage": "0 s"}, False), ({"every": None, "max_runs": None}, False),
                            ({"every": None, "max_runs": None, "outage": "1 h"}, True)],
)  # fmt: skip
def test_an_outage_at_the_beginning_is_waited_for_where_the_call_says_so(
    tmp_path: Path, clock: Clock, settings: dict[str, Any], waits: bool
) -> None:
    source = write(tmp_path / "in", documents(9))
    dest = f"late://{tmp_path}/out"
    quire.consolidate(source, dest, spark=quire.LocalRunner(), progress=False)
    more(source, 1)
    runs = Runs(lambda run: clock.away.append((clock.now, clock.now + HOUR / 2)) if run == 1 else None)
    if waits:
        report = loop(source, dest, progress=runs, **settings)
        assert (report.gap_count, len(check(source, tmp_path / "out").done)) == (1, 12)
    else:
        with refused(QuireError, 3, "connection refused"):
            loop(source, dest, progress=runs, **settings)
        assert not clock.waits


ENDS = (UsageError("wrong"), RefusedError("lost"), DataLossError("gone"), TooManyQuarantined("many"), FormatError("forged"))


@pytest.mark.parametrize("error", [*ENDS, ZeroDivisionError("ours")], ids=lambda e: type(e).__name__)
def test_what_is_not_an_outage_ends_a_loop_at_once(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    source, gather = write(tmp_path / "in", documents(9)), driver._rounds

    def failing(*args: Any, **more: Any) -> Any:
        if (tmp_path / "out").exists():
            raise error
        return gather(*args, **more)

    monkeypatch.setattr(driver, "_rounds", failing)
    with pytest.raises(type(error)):
        loop(source, f"late://{tmp_path}/out", outage="9 d")
    assert not clock.waits


@pytest.mark.parametrize(
    "error", [QuireError("tasks failed"), StorageError("the credentials have expired"), TransientError("busy")], ids=str
)
def test_what_the_next_run_goes_on_from_is_an_outage(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, error: QuireError
) -> None:
    source, gather, calls = write(tmp_path / "in", documents(9)), driver._rounds, list[int]()

    def failing(*args: Any, **more: Any) -> Any:
        calls.append(1)
        if 1 < len(calls) < 9:
            raise error
        return gather(*args, **more)

    monkeypatch.setattr(driver, "_rounds", failing)
    report = loop(source, f"late://{tmp_path}/out")
    assert (len(clock.waits), report.gap_count, report.gaps[0].away.startswith(str(error))) == (7, 1, True)


def test_a_loop_that_is_told_to_stop_in_an_outage_ends_with_its_last_report(tmp_path: Path, clock: Clock) -> None:
    source, stop = write(tmp_path / "in", documents(9)), threading.Event()
    runs = Runs(lambda run: clock.away.append((clock.now, clock.now + DAY)) if run == 2 else None)
    clock.act[MIDDAY + HOUR] = stop.set
    report = loop(source, f"late://{tmp_path}/out", max_runs=None, progress=runs, stop=stop)
    assert (report.files, report.gap_count) == (9, 1)
    assert HOUR - 180 < report.gaps[0].seconds < HOUR + 180
    clock.act[clock.now + 60] = stop.set
    stop.clear()
    with refused(TransientError, 3, "connection refused"):
        loop(source, f"late://{tmp_path}/out", outage="1 d", stop=stop)


def test_the_log_is_read_again_after_an_outage(tmp_path: Path, clock: Clock) -> None:
    """Another call has gathered all of it while the loop could not reach the store."""
    source = write(tmp_path / "in", documents(9))

    def others() -> None:
        away, clock.away = clock.away, []
        quire.consolidate(source, f"late://{tmp_path}/out", spark=quire.LocalRunner(), progress=False)
        clock.away = away

    def then(run: int) -> None:
        if run == 2:
            more(source, run)
            clock.away.append((clock.now, clock.now + HOUR))
            clock.act[clock.now + HOUR / 2] = others

    report = loop(source, f"late://{tmp_path}/out", progress=Runs(then))
    assert (report.gap_count, report.files, report.skipped) == (1, 0, 12)
    assert len(check(source, tmp_path / "out").done) == 12


def test_very_many_gaps_are_counted_and_the_last_ones_told(clock: Clock) -> None:
    met = outages.Outages(outages.Allowed(HOUR), quire.progress.Progress(False), "/data/out")
    for _ in range(outages.KEPT + 7):
        met.met(TransientError("busy"), worked=True)
        met.over(clock.read())
    report = met.noted(quire.Report("in", "out"))
    assert (report.gap_count, len(report.gaps)) == (outages.KEPT + 7, outages.KEPT)


@pytest.mark.parametrize("wrong", ["soon", -1, True, "1 fortnight", {}])
def test_a_wrong_outage_is_one_line(tmp_path: Path, wrong: Any) -> None:
    with refused(UsageError, 2, "outage=") as caught:
        loop(write(tmp_path / "in", documents(3)), str(tmp_path / "out"), outage=wrong)
    assert caught.value.argument == "outage"
