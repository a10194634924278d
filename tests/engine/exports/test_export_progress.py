"""Whoever begins an export sees how many data files are offered, and may end the call."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from exported import OPTIONS

import quire
from gathering import gather, refused, write
from quire import Ledger, LocalRunner
from quire.errors import UsageError
from quire.ledger import export

LOCAL = LocalRunner()


class Stop(Exception):
    """What a caller's function raises to end a call."""


def files(tmp_path: Path) -> Path:
    for i in range(5):
        gather(write(tmp_path / "in", {f"f{i}": b"x"}), tmp_path / "out", transform="raw", format="parquet")
    return tmp_path / "out"


@pytest.fixture(autouse=True)
def _each_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "SOME", 2)


@pytest.mark.parametrize("format", OPTIONS)
def test_the_caller_is_told_each_step_from_nothing_to_all(tmp_path: Path, format: str) -> None:
    dest, told = files(tmp_path), list[quire.ProgressEvent]()
    Ledger(dest).export(format, progress=told.append, **OPTIONS[format])
    assert {(step.phase, step.total, step.unit) for step in told} == {("exporting", 5, "file")}
    assert [step.done for step in told] == [0, 2, 4, 5]
    told.clear()
    Ledger(dest).export(format, progress=told.append)
    assert told == [] or format == "symlinks", "there is nothing to be done"


def test_rows_of_a_table_are_counted_before(tmp_path: Path) -> None:
    table = quire.Table.create(tmp_path / "trips", key="id", partition_by="k")
    table.upsert(pa.table({"id": range(5), "k": list("abcde")}), spark=LOCAL, progress=False)
    told = list[quire.ProgressEvent]()
    Ledger(tmp_path / "trips").export("delta", progress=told.append)
    assert [step.done for step in told] == [0, 2, 4, 5] * 2


@pytest.mark.parametrize("format", OPTIONS)
def test_a_call_that_is_stopped_is_made_good_by_the_next_one(tmp_path: Path, format: str) -> None:
    def stop(step: quire.ProgressEvent) -> None:
        if step.done:
            raise Stop

    dest = files(tmp_path)
    with pytest.raises(Stop):
        Ledger(dest).export(format, progress=stop, **OPTIONS[format])
    assert Ledger(dest).exports() == {format: 0}
    report = gather(tmp_path / "in", dest, transform="raw", format="parquet")
    assert "behind" not in report.exports[0]
    assert Ledger(dest).exports()[format] > 0


def test_another_progress_is_one_line(tmp_path: Path) -> None:
    with refused(UsageError, 2, "progress= takes True, False or a function"):
        Ledger(files(tmp_path)).export("delta", progress="yes")  # type: ignore[arg-type]
    assert Ledger(tmp_path / "out").exports() == {}
