"""Retries within runs: what is quarantined is read again once it has waited, so often as was said, by what the store says alone."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import quire
from checker import check
from gathering import documents, gather, refused, write
from quire.errors import UsageError
from quire.ledger import due

LOCAL = quire.LocalRunner()
HOUR = 3600.0


class Clock:
    """The time of the machine, which tests turn; commits are dated by it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_800_000_000.0
        monkeypatch.setattr("quire.commit.protocol.now", lambda: dt.datetime.fromtimestamp(self.now, dt.UTC).isoformat())
        monkeypatch.setattr(due, "time", self)

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def mended(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Whatever was wrong with a file that is read is so no more, though the file has not changed."""

    def mend() -> None:
        function.mended = True  # type: ignore[attr-defined]

    function.mended = False  # type: ignore[attr-defined]
    return mend


def function(split: quire.Split, content: bytes) -> bytes:
    """Lines in capitals; of a file that says BAD nothing, until that is mended."""
    if b"BAD" in content and not function.mended:  # type: ignore[attr-defined]
        raise ValueError("it says BAD")
    return content.upper()


def process(source: Path, dest: Path, **settings: Any) -> quire.Report:
    settings = {"format": "lines", "max_quarantined": 100, "function_version": "1", "spark": LOCAL, "progress": False, **settings}
    return quire.process(source, dest, function, **settings)


def waiting(dest: Path) -> list[tuple[str, int]]:
    found = quire.Ledger(dest).inspect.quarantined(as_="arrow").to_pylist()
    return [(Path(row["path"]).name, row["tries"]) for row in found]


def tried(report: quire.Report) -> tuple[int, int, int]:
    return report.retried, report.retried_taken, report.given_up_count


def test_a_file_is_read_again_once_its_wait_is_over_and_waits_twice_as_long_then(
    tmp_path: Path, clock: Clock, mended: Callable[[], None]
) -> None:
    source, out, say = write(tmp_path / "in", {"good": b"good\n", "bad": b"BAD\n"}), tmp_path / "out", {"retry_quarantined": "1 h"}
    assert tried(process(source, out, **say)) == (0, 0, 0)
    for hours, expected in ((0.99, 0), (0.01, 1), (1.99, 0), (0.01, 1), (3.9, 0), (0.1, 1)):
        clock.now += hours * HOUR
        assert tried(process(source, out, **say)) == (expected, 0, 0), hours
    assert waiting(out) == [("bad", 4)]
    mended()
    clock.now += 8 * HOUR
    report = process(source, out, **say)
    assert (tried(report), report.files, report.skipped, len(report.jobs)) == ((1, 1, 0), 0, 2, 1)
    assert "tried again of the quarantine  1, 1 of them taken now" in str(report)
    assert waiting(out) == []
    clock.now += 1000 * HOUR
    assert tried(process(source, out, **say)) == (0, 0, 0)


def test_what_was_read_so_often_is_told_once_with_the_call_that_takes_it(tmp_path: Path, clock: Clock, mended: Callable[[], None]) -> None:
    source, out, say = write(tmp_path / "in", {"good": b"good\n", "bad": b"BAD\n"}), tmp_path / "out", {"retry_quarantined": "1 h"}
    process(source, out, **say)
    clock.now += HOUR
    assert tried(process(source, out, **say, max_attempts=3)) == (1, 0, 0)
    clock.now += 2 * HOUR
    report = process(source, out, **say, max_attempts=3)
    assert tried(report) == (1, 0, 1)
    assert [path for path, _ in report.given_up] == [f"file://{source}/bad"]
    assert f"quire ledger retry {out} --source {source} --max-attempts N" in str(report)
    clock.now += 1000 * HOUR
    assert tried(process(source, out, **say, max_attempts=3)) == (0, 0, 0), "told once"
    status = quire.status(out, max_attempts=3)
    assert (status.given_up, status.tries, quire.status(out).given_up) == (1, 3, 0)
    (advice,) = [line for line in status.advice if "given up" in line]
    assert advice == (
        f"1 in quarantine is given up, after up to 3 reads: no run tries again. See why: quire ledger quarantined {out}, then repair them "
        f"and quire ledger retry {out} --source … --max-attempts 4"
    )
    assert "1, read 3 times at most" in str(status)
    quire.Ledger(out).checkpoint(spark=LOCAL)
    assert quire.status(out, max_attempts=3).given_up == 1, "a checkpoint knows it, too"
    mended()
    quire.Ledger(out).retry(source, function=function, max_attempts=4, spark=LOCAL, progress=False)
    assert waiting(out) == []
    assert "given up" not in [each.kind for each in quire.status(out, max_attempts=3).findings]


def test_the_wait_has_a_limit(tmp_path: Path) -> None:
    retries = quire.engine.retrying.Retries(60.0, 100)
    assert [retries.after(tries) for tries in (1, 2, 3, 7, 8, 99, 10**9)] == [60, 120, 240, 3840, 3840, 3840, 3840]


@pytest.mark.parametrize("jump", [-10 * 365 * 24 * HOUR, 10 * 365 * 24 * HOUR])
def test_a_clock_that_jumps_loses_nothing_and_takes_nothing_twice(
    tmp_path: Path, clock: Clock, mended: Callable[[], None], jump: float
) -> None:
    source, out, say = write(tmp_path / "in", {"good": b"good\n", "bad": b"BAD\n"}), tmp_path / "out", {"retry_quarantined": "1 h"}
    process(source, out, **say)
    clock.now += jump
    mended()
    assert tried(process(source, out, **say)) == (1, 1, 0), "one that is dated ten years ahead does not wait ten years"
    clock.now -= jump
    assert tried(process(source, out, **say)) == (0, 0, 0)
    lines = b"".join(path.read_bytes() for path in out.iterdir() if path.is_file())
    assert sorted(lines.splitlines()) == [b"BAD", b"GOOD"]


def test_only_what_lies_in_the_source_of_the_call_is_read(tmp_path: Path, clock: Clock, mended: Callable[[], None]) -> None:
    source, out = write(tmp_path / "in", {"a/bad": b"BAD a\n", "b/bad": b"BAD b\n", "a/good": b"good\n"}), tmp_path / "out"
    process(source, out)
    mended()
    clock.now += HOUR
    assert tried(process(source / "a", out, retry_quarantined="1 h")) == (1, 1, 0)
    assert waiting(out) == [("bad", 1)]


def lines(split: quire.Split, content: bytes) -> bytes:
    """Lines as they are; one that says BAD is quarantined alone, until that is mended."""
    kept = b""
    for line in content.splitlines(True):
        if line.startswith(b"BAD") and not function.mended:  # type: ignore[attr-defined]
            split.quarantine(line.rstrip(b"\n"), "bad")
        else:
            kept += line
    return kept


def test_records_of_another_source_wait_for_a_call_that_names_it(tmp_path: Path, clock: Clock, mended: Callable[[], None]) -> None:
    source, out = write(tmp_path / "in", {"a/f": b"one\nBAD a\n", "b/f": b"two\nBAD b\n"}), tmp_path / "out"
    more: dict[str, Any] = {"format": "lines", "split": "lines", "function_version": "1", "spark": LOCAL, "progress": False}
    quire.process(source, out, lines, **more)
    mended()
    clock.now += HOUR
    assert quire.process(source / "a", out, lines, **more, retry_quarantined="1 h").retried == 1
    assert waiting(out) == [("f", 1)]


def test_single_records_are_tried_again_though_their_file_has_gone(tmp_path: Path, clock: Clock, mended: Callable[[], None]) -> None:
    source, out = write(tmp_path / "in", {"f": b"one\nBAD 1\ntwo\nBAD 2\n", "g": b"three\n"}), tmp_path / "out"
    more: dict[str, Any] = {"format": "lines", "split": "lines", "function_version": "1", "spark": LOCAL, "progress": False}
    quire.process(source, out, lines, **more)
    (source / "f").unlink()
    mended()
    clock.now += HOUR
    report = quire.process(source, out, lines, **more, retry_quarantined="1 h")
    assert (report.retried, waiting(out)) == (2, [])
    found = b"".join(path.read_bytes() for path in out.iterdir() if path.is_file()).splitlines()
    assert sorted(found) == [b"BAD 1", b"BAD 2", b"one", b"three", b"two"]


def test_a_loop_tries_again_and_a_run_without_anything_due_writes_nothing(tmp_path: Path, clock: Clock, mended: Callable[[], None]) -> None:
    source, out = write(tmp_path / "in", {"good": b"good\n", "bad": b"BAD\n"}), tmp_path / "out"
    process(source, out)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    process(source, out, retry_quarantined="1 h", every="1 ms", max_runs=3)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()} == before
    mended()
    clock.now += HOUR
    report = process(source, out, retry_quarantined="1 h", every="1 ms", max_runs=1)
    assert tried(report) == (1, 1, 0)
    assert waiting(out) == []


def test_a_loop_looks_at_the_quarantine_some_times_in_each_wait_and_not_in_each_run(
    tmp_path: Path, clock: Clock, mended: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, retry_due = list[int](), due.retry_due

    def counted(*args: Any) -> Any:
        looks.append(1)
        return retry_due(*args)

    monkeypatch.setattr(due, "retry_due", counted)
    source = write(tmp_path / "in", {"good": b"good\n", "bad": b"BAD\n"})
    process(source, tmp_path / "out", retry_quarantined="1 h", every="1 ms", max_runs=4)
    assert len(looks) == 1
    process(source, tmp_path / "out", retry_quarantined="0 s", every="1 ms", max_runs=4)
    assert len(looks) == 5


def test_two_runs_at_once_read_it_once(tmp_path: Path, clock: Clock, mended: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    source, out = write(tmp_path / "in", {"good": b"good\n", "bad": b"BAD\n"}), tmp_path / "out"
    process(source, out)
    mended()
    clock.now += HOUR
    retry, inner = due.retry, list[quire.Report]()

    def beside(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr(due, "retry", retry)
        inner.append(process(source, out, retry_quarantined="1 h"))
        return retry(*args, **kwargs)

    monkeypatch.setattr(due, "retry", beside)
    outer = process(source, out, retry_quarantined="1 h")
    assert (tried(outer), tried(inner[0])) == ((0, 0, 0), (1, 1, 0))
    lines = b"".join(path.read_bytes() for path in out.iterdir() if path.is_file())
    assert sorted(lines.splitlines()) == [b"BAD", b"GOOD"]


def test_consolidate_tries_again_what_was_too_long_for_an_earlier_call(tmp_path: Path, clock: Clock) -> None:
    source, out = write(tmp_path / "in", {**documents(4, "xml"), "long.xml": b"<a>" + b"x" * 500 + b"</a>"}), tmp_path / "out"
    report = gather(source, out, transform="xml", max_file_size="100 B")
    assert report.quarantined_count == 1
    clock.now += HOUR
    report = gather(source, out, transform="xml", retry_quarantined="1 h", max_files=2)
    assert (tried(report), report.skipped) == ((1, 1, 0), 5)
    check(source, out, None)


def test_rows_through_a_function_together_are_tried_again(tmp_path: Path, clock: Clock) -> None:
    source, out = write(tmp_path / "in", {"a.csv": b"n\n2\n1\n", "b.csv": b'"'}), tmp_path / "out"
    gather(source, out, transform="csv", schema="n long", max_file_size="5 B")
    clock.now += HOUR
    report = gather(source, out, transform="csv", schema="n long", retry_quarantined="1 h")
    assert report.retried in {1, 2}


@pytest.mark.parametrize("text", ["2001-01-01T00:00:00", "never", ""])
def test_an_entry_whose_time_says_little_is_old(tmp_path: Path, clock: Clock, mended: Callable[[], None], text: str) -> None:
    source, out = write(tmp_path / "in", {"good": b"good\n", "bad": b"BAD\n"}), tmp_path / "out"
    process(source, out)
    entry = out / "_quire/log/00000000000000000001.entry"
    entry.write_text(json.dumps({**json.loads(entry.read_text()), "time": text}))
    assert process(source, out, retry_quarantined="1 h").retried == 1


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"retry_quarantined": "abc"}, "retry_quarantined='abc' is not a time span"),
        ({"retry_quarantined": -1}, "retry_quarantined=-1 is not a time span"),
        ({"retry_quarantined": "2 fortnights"}, "retry_quarantined"),
        ({"retry_quarantined": True}, "retry_quarantined=True is not a time span"),
        ({"retry_quarantined": "1 h", "max_attempts": 0}, "max_attempts=0 is not a whole number from 2 on"),
        ({"retry_quarantined": "1 h", "max_attempts": 1}, "max_attempts=1 is not a whole number from 2 on"),
        ({"retry_quarantined": "1 h", "max_attempts": "abc"}, "max_attempts='abc' is not a whole number"),
        ({"max_attempts": 3}, "without retry_quarantined= it does nothing"),
        ({"retry_quarantine": "1 h"}, "Did you mean 'retry_quarantined'?"),
        ({"retry_quarantined": "1 h", "split_by_schema": True, "transform": "parquet"}, "split_by_schema=True has a ledger in each"),
    ],
)
def test_a_wrong_wait_is_one_line(tmp_path: Path, wrong: dict[str, Any], words: str) -> None:
    source = write(tmp_path / "in", documents(1))
    with refused(UsageError, 2, words):
        gather(source, tmp_path / "out", **wrong)
    assert not (tmp_path / "out").exists()


def test_a_table_refuses_it(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"a.jsonl": b'{"id": 1, "at": 1}\n'})
    table = quire.Table.create(tmp_path / "table", key="id", ordering="at")
    with refused(UsageError, 2, "Leave retry_quarantined= out"):
        gather(source, table, transform="jsonl", retry_quarantined="1 h")
