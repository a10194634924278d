"""What a call tells while it runs, how it is stopped, and what its tasks and sizes were."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import quire
import sums
from checker import check
from gathering import documents, gather, refused, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PHASES = ["listing", "planning", "gathering", "publishing"]


class Stop(Exception):
    """What a caller's function raises to end a call."""


def test_a_function_is_told_each_phase_from_nothing_to_all_and_never_back(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(60))
    told = list[quire.ProgressEvent]()
    quire.consolidate(source, tmp_path / "out", spark=quire.LocalRunner(), progress=told.append, planner="hash", parts=4)
    assert list(dict.fromkeys(step.phase for step in told)) == PHASES
    for phase in PHASES[1:]:
        steps = [step for step in told if step.phase == phase]
        first_round = steps[: next(i for i, step in enumerate(steps) if step.done == step.total) + 1]
        assert [step.done for step in first_round] == sorted(step.done for step in first_round)
        assert first_round[0].done == 0
    end = max((step for step in told if step.phase == "gathering"), key=lambda step: step.done)
    assert (end.done, end.total, end.unit, end.files) == (sum(map(len, documents(60).values())), end.done, "B", 60)


@pytest.mark.nth(4)
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("engine", ["in process", "spark"])
def test_a_call_that_is_stopped_anywhere_loses_nothing_and_the_next_one_goes_on(
    tmp_path: Path, phase: str, engine: str, spark: SparkSession
) -> None:
    source = write(tmp_path / "in", documents(60))
    by: Any = spark if engine == "spark" else quire.LocalRunner()

    def stop(step: quire.ProgressEvent) -> None:
        if step.phase == phase and (step.done or phase == "planning"):
            raise Stop

    with pytest.raises(Stop):
        quire.consolidate(source, tmp_path / "out", spark=by, progress=stop, planner="hash", parts=4)
    if phase == "gathering":
        (job,) = quire.Ledger(tmp_path / "out").summary().open_jobs
        assert gather(source, tmp_path / "out", planner="hash", parts=4).jobs == (job,)
    else:
        gather(source, tmp_path / "out", planner="hash", parts=4)
    assert len(check(source, tmp_path / "out").done) == 60


@pytest.mark.parametrize("phase", PHASES[:2])
def test_looking_that_is_stopped_leaves_nothing(tmp_path: Path, phase: str) -> None:
    source = write(tmp_path / "in", documents(60))

    def stop(step: quire.ProgressEvent) -> None:
        if step.phase == phase and (phase == "listing" or step.done == step.total):
            raise Stop

    with pytest.raises(Stop):
        quire.plan(source, tmp_path / "out", spark=quire.LocalRunner(), progress=stop)
    assert not [p for p in (tmp_path / "out").rglob("*") if p.is_file()]


def test_what_is_no_function_is_refused(tmp_path: Path) -> None:
    with refused(quire.UsageError, 2, "progress=", "quire.ProgressEvent"):
        quire.consolidate(write(tmp_path / "in", {}), tmp_path / "out", spark=quire.LocalRunner(), progress="yes")  # type: ignore[arg-type]


def test_a_resumed_call_does_not_count_its_own_files_as_done_before(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(30))

    def stop(step: quire.ProgressEvent) -> None:
        if step.phase == "gathering" and step.done:
            raise Stop

    with pytest.raises(Stop):
        quire.consolidate(source, tmp_path / "out", spark=quire.LocalRunner(), progress=stop)
    report = gather(source, tmp_path / "out")
    assert (report.files, report.skipped) == (30, 0)
    assert gather(source, tmp_path / "out").skipped == 30


@pytest.mark.parametrize(
    ("argument", "wrong"),
    [
        ("source", {"source": "nope://x"}), ("dest", {"dest": "nope://x"}),
        ("source", {"source": "/nowhere/at/all"}), ("source", {"source": ""}), ("dest", {"dest": "IN/below"}), ("dest", {"dest": "FULL"}),
        ("transform", {"transform": "yaml"}), ("planner", {"planner": "fair"}), ("parts", {"planner": "hash", "parts": 0}),
        ("target_size", {"target_size": "big"}), ("format", {"transform": "xml", "format": "raw"}), ("min_age", {"min_age": "soon"}),
    ],
)  # fmt: skip
def test_an_error_names_the_argument_it_is_about(tmp_path: Path, argument: str, wrong: dict[str, Any]) -> None:
    source = write(tmp_path / "in", documents(3))
    write(tmp_path / "full", {"somebody's": b"x"})
    call: dict[str, Any] = {"source": source, "dest": tmp_path / "out", **wrong}
    call["dest"] = {"IN/below": source / "below", "FULL": tmp_path / "full"}.get(call["dest"], call["dest"])
    for function in (quire.plan, quire.consolidate):
        with pytest.raises(quire.UsageError) as caught:
            function(**call, spark=quire.LocalRunner(), progress=False)  # type: ignore[operator]
        assert caught.value.argument == argument


# -------------------------------------------------------------------------------------------------------- tasks and sizes
def test_each_task_says_when_it_ran_and_what_it_made(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(60))
    gather(source, tmp_path / "out", planner="hash", parts=4)
    write(source, {"new/late.txt": b"late"})
    gather(source, tmp_path / "out", planner="hash", parts=4)
    tasks = quire.Ledger(tmp_path / "out").inspect.tasks()
    assert (int(tasks["files"].sum()), int(tasks["data_files"].sum()), tasks["commit"].nunique()) == (61, len(tasks), 2)
    assert tasks["bytes"].sum() == sum(p.stat().st_size for p in source.rglob("*") if p.is_file())
    assert str(tasks["started"].dt.tz) == "UTC"
    assert tasks.groupby("commit")["started"].min().is_monotonic_increasing
    assert (tasks["seconds"] >= 0).all()


def test_a_file_that_several_tasks_have_read_is_one_file(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"long.txt": b"x" * 99 + b"\n" + b"line\n" * 40_000, "short.txt": b"x\n"})
    report = gather(source, tmp_path / "out", target_size="64 KiB")
    ledger = quire.Ledger(tmp_path / "out")
    tasks = ledger.inspect.tasks()
    assert (report.files, int(tasks["files"].sum())) == (2, 2)
    assert len(tasks) > 2, "it was cut"
    sums.check_history(ledger)


def test_sizes_before_and_after_are_those_on_disk_also_of_a_long_file_in_ranges(tmp_path: Path) -> None:
    lengths = [0, 1, 2, 3, 4096, 4097, 5000, 300_000]
    source = write(tmp_path / "in", {f"f{i}.txt": b"x" * (n - 1) + b"\n" if n else b"" for i, n in enumerate(lengths)})
    planned = quire.plan(source, tmp_path / "out", spark=quire.LocalRunner(), target_size="64 KiB", progress=False)
    before = planned.sizes()
    gather(source, tmp_path / "out", target_size="64 KiB")
    found = quire.Ledger(tmp_path / "out").inspect.sizes()
    expected = Counter(0 if n == 0 else 1 << (n - 1).bit_length() for n in lengths)
    for sizes in (before, found):
        counts = {up_to: n for up_to, n in zip(sizes["up_to"], sizes["files_before"], strict=True) if n}
        assert (counts, int(sizes["bytes_before"].sum())) == (dict(expected), sum(lengths))
    data = [p.stat().st_size for p in (tmp_path / "out").iterdir() if p.is_file()]
    after = Counter(1 << (n - 1).bit_length() for n in data)
    assert {up_to: n for up_to, n in zip(found["up_to"], found["files_after"], strict=True) if n} == dict(after)
    assert int(found["bytes_after"].sum()) == sum(data)
