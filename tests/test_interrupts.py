"""Ctrl-C always ends a call of quire's, wherever it meets it, and leaves the process as it was."""

from __future__ import annotations

import gc
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import quire
from checker import check
from gathering import documents, gather, write
from quire.errors import Interrupted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OURS = threading.main_thread()


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    assert signal.getsignal(signal.SIGINT) is before


def press() -> None:
    signal.raise_signal(signal.SIGINT)


class Dying:
    """Python only prints what is raised while it dies."""

    def __del__(self) -> None:
        press()


def dying() -> None:
    Dying()


def swallowed() -> None:
    with suppress(BaseException):
        press()


@pytest.mark.nth(3)
@pytest.mark.parametrize("meeting", [press, dying, swallowed])
@pytest.mark.parametrize("where", ["a function of the user's", "the progress"])
def test_an_interrupt_that_python_would_forget_ends_the_call_and_the_next_one_goes_on(tmp_path: Path, meeting: Any, where: str) -> None:
    source, calls = write(tmp_path / "in", documents(20)), list[int]()

    def function(content: bytes, file: quire.FileInfo) -> bytes:
        calls.append(1)
        if where != "the progress" and len(calls) == 3:
            meeting()
        return content

    def progress(step: quire.ProgressEvent) -> None:
        if where == "the progress" and step.phase == "gathering" and not calls:
            meeting()

    settings: dict[str, Any] = {"transform": function, "function_version": "1", "planner": "hash", "parts": 2}
    with pytest.raises(Interrupted, match="what was committed is safe"):
        quire.consolidate(source, tmp_path / "out", spark=quire.LocalRunner(), progress=progress, **settings)
    assert len(calls) < 20
    gather(source, tmp_path / "out", **settings)
    assert len(check(source, tmp_path / "out").done) == 20


def test_an_interrupt_that_comes_when_all_is_done_is_heard_too(tmp_path: Path) -> None:
    def progress(step: quire.ProgressEvent) -> None:
        if step.phase == "publishing" and step.done == step.total:
            dying()

    source = write(tmp_path / "in", documents(3))
    with pytest.raises(Interrupted):
        quire.consolidate(source, tmp_path / "out", spark=quire.LocalRunner(), progress=progress)
    assert gather(source, tmp_path / "out").skipped == 3


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a listing that is cut off is closed by Python
@pytest.mark.parametrize("presses", [6, pytest.param(1000, marks=pytest.mark.chaos)])
def test_interrupts_at_random_moments_are_all_heard_and_lose_nothing(tmp_path: Path, presses: int) -> None:
    source, rng = write(tmp_path / "in", documents(24)), random.Random(presses)

    class Slow:
        def __init__(self) -> None:
            self.me = self  # only the collector finds it

        def __del__(self) -> None:
            time.sleep(0.004)

    def progress(step: quire.ProgressEvent) -> None:
        Slow()
        gc.collect(0)

    def call(dest: Path) -> None:
        quire.consolidate(source, dest, spark=quire.LocalRunner(), progress=progress, planner="hash", parts=4)

    def interrupted(dest: Path) -> None:
        threading.Timer(rng.uniform(0, 0.15), signal.pthread_kill, (OURS.ident, signal.SIGINT)).start()
        call(dest)
        time.sleep(10)  # it came after the call

    dests = [tmp_path / f"out{n}" for n in range(5)]
    for turn in range(presses):
        with pytest.raises(KeyboardInterrupt):
            interrupted(dests[turn % 5])
    for dest in dests:
        call(dest)
        assert len(check(source, dest).done) == 24


def test_a_second_interrupt_ends_what_the_first_one_waits_for(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(3))

    def stubborn(content: bytes, file: quire.FileInfo) -> bytes:
        try:
            press()
        finally:
            press()
        return content

    with pytest.raises(Interrupted):
        gather(source, tmp_path / "out", transform=stubborn, function_version="1")
    assert gather(source, tmp_path / "out").files == 3


def test_a_loop_ends_after_its_commit_and_at_once_if_asked_twice(tmp_path: Path) -> None:
    source, runs = write(tmp_path / "in", documents(3)), list[str]()

    def once(step: quire.ProgressEvent) -> None:
        if step.phase == "gathering" and not runs:
            runs.append(step.phase)
            press()

    report = quire.consolidate(source, tmp_path / "out", spark=quire.LocalRunner(), every="1 h", progress=once)
    assert report.files == 3

    def twice(step: quire.ProgressEvent) -> None:
        if step.phase == "gathering":
            press()
            dying()

    write(tmp_path / "in", {"more.txt": b"more"})
    with pytest.raises(Interrupted):
        quire.consolidate(source, tmp_path / "out", spark=quire.LocalRunner(), every="1 h", progress=twice)
    assert gather(source, tmp_path / "out").files == 1


def test_a_handler_of_the_users_own_decides(tmp_path: Path) -> None:
    source, heard = write(tmp_path / "in", documents(3)), list[int]()

    def pressing(content: bytes, file: quire.FileInfo) -> bytes:
        press()
        return content

    def leave(number: int, frame: object) -> None:
        raise SystemExit(7)

    before = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        assert gather(source, tmp_path / "out", transform=pressing, function_version="1").files == 3
        assert len(heard) == 3
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        assert gather(source, tmp_path / "ignored", transform=pressing, function_version="1").files == 3
        signal.signal(signal.SIGINT, leave)
        with pytest.raises(SystemExit, match="7"):
            gather(source, tmp_path / "left", transform=pressing, function_version="1")
    finally:
        signal.signal(signal.SIGINT, before)


def test_calls_in_another_thread_and_calls_in_calls_leave_the_handler_alone(tmp_path: Path) -> None:
    source, found = write(tmp_path / "in", documents(3)), list[Any]()
    thread = threading.Thread(target=lambda: found.append(gather(source, tmp_path / "out")))
    thread.start()
    thread.join()
    assert found[0].files == 3

    def nested(step: quire.ProgressEvent) -> None:
        if step.phase == "publishing":
            handler = signal.getsignal(signal.SIGINT)
            quire.Ledger(tmp_path / "out").inspect.history()
            assert signal.getsignal(signal.SIGINT) is handler
            press()

    with pytest.raises(Interrupted):
        quire.consolidate(source, tmp_path / "again", spark=quire.LocalRunner(), progress=nested)


@pytest.mark.parametrize("presses", [2, pytest.param(40, marks=pytest.mark.chaos)])
def test_an_interrupt_ends_the_job_on_spark_wherever_it_meets_the_caller(tmp_path: Path, presses: int, spark: SparkSession) -> None:
    """Also where py4j's callbacks run, and when it comes twice."""
    source, rng = write(tmp_path / "in", documents(4)), random.Random(presses)

    begun = tmp_path / "begun"

    def stuck(content: bytes, file: quire.FileInfo) -> bytes:
        begun.touch()
        time.sleep(60)
        return content

    def kill(twice: bool) -> None:
        until = time.monotonic() + 60
        while not begun.exists() and time.monotonic() < until:
            time.sleep(0.02)
        time.sleep(rng.uniform(0, 0.5))
        for _ in range(1 + twice):
            signal.pthread_kill(OURS.ident or 0, signal.SIGINT)
            time.sleep(0.05)

    def progress(step: quire.ProgressEvent) -> None:
        for _ in range(20):
            spark._jvm.java.lang.Object()  # type: ignore[union-attr]  # whose end py4j tells the JVM in a callback

    def interrupted(twice: bool) -> None:
        begun.unlink(missing_ok=True)
        killing = threading.Thread(target=kill, args=(twice,))
        killing.start()
        try:
            quire.consolidate(source, tmp_path / "out", spark=spark, transform=stuck, function_version="1", progress=progress)
        finally:
            killing.join()  # the second one may come after the call

    jobs = spark.sparkContext.statusTracker()
    for turn in range(presses):
        with pytest.raises(KeyboardInterrupt):
            interrupted(bool(turn % 2))
        until = time.monotonic() + 20
        while jobs.getActiveJobsIds() and time.monotonic() < until:
            time.sleep(0.1)
        assert not jobs.getActiveJobsIds()
    assert spark.range(3).count() == 3


def test_an_interrupt_closes_the_connection_that_it_met_and_no_other(spark: SparkSession) -> None:
    """py4j has the JVM close all, once the call that was interrupted is over there: a later call, or another thread's, would fail."""
    assert spark._jvm is not None
    thread, asked, told = spark._jvm.java.lang.Thread, threading.Semaphore(0), list[int]()

    def other() -> None:
        for _ in range(2):
            asked.acquire()
            told.append(thread.currentThread().getId())

    beside = threading.Thread(target=other)
    beside.start()
    asked.release()
    while not told:
        time.sleep(0.01)
    threading.Timer(0.3, signal.pthread_kill, (OURS.ident, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        thread.sleep(1500)
    mine, until = thread.currentThread().getId(), time.monotonic() + 2
    while time.monotonic() < until:
        assert thread.currentThread().getId() == mine
    asked.release()
    beside.join()
    assert told[0] == told[1]
