"""An export that is refused holds nothing for ever, however it was asked for, and each call says once what is the matter."""

from __future__ import annotations

import io
import shutil
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from exported import OPTIONS
from test_retire import Killed, kill

import quire
from gathering import gather, write
from quire import Ledger, LocalRunner
from quire.commit.log import Log
from quire.coverage.near import Near
from quire.engine.exports import delta, iceberg, iceberg_types, step
from quire.engine.request import Request
from quire.errors import RefusedError, StorageError
from quire.storage import connect

HERE: dict[str, Any] = {"transform": "parquet", "format": "parquet"}


def parquet(kind: pa.DataType, *numbers: int) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"n": pa.array(numbers, kind)}), sink)
    return sink.getvalue()


unsigned = partial(parquet, pa.uint64())  # Iceberg has no such column


def seen(dest: Path) -> list[int]:
    """What a reader of the directory finds."""
    return sorted(ds.dataset(dest, format="parquet", exclude_invalid_files=False).to_table()["n"].to_pylist())


def test_an_export_that_a_call_asks_for_and_is_refused_holds_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, dest = write(tmp_path / "in", {"a": unsigned(0, 1), "b": unsigned(2)}), tmp_path / "out"
    report = gather(source, dest, exports=("delta", "iceberg"), **HERE)
    assert report.files == 2
    assert report.exports[1:] == ("iceberg: ended, and has offered nothing",)
    assert list(Ledger(dest).exports()) == ["delta"]
    assert capsys.readouterr().err.count("the export iceberg of") == 1
    Ledger(dest).drop_export("delta")
    gather(source, dest, exports="iceberg", **HERE)  # nothing is new
    assert "'n'" in (told := capsys.readouterr().err)
    assert told.count("has ended, and has offered nothing") == 1
    Ledger(dest).forget(source / "a", spark=LocalRunner(), progress=False)
    assert seen(dest) == [2]
    assert not (dest / "_iceberg").exists()


class Loop(threading.Event):
    """So many runs; `between` is called after each."""

    def __init__(self, runs: int, between: Callable[[int], object]) -> None:
        super().__init__()
        self.runs, self.done, self.between = runs, 0, between

    def wait(self, timeout: float | None = None) -> bool:
        self.done += 1
        self.between(self.done)
        return self.done >= self.runs


def test_a_loop_asks_for_one_that_is_refused_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, dest, tips = write(tmp_path / "in", {"a": unsigned(0, 1)}), tmp_path / "out", list[int]()
    loop = Loop(4, lambda _: tips.append(Log(connect(f"file://{dest}")).refresh().tip))
    report = gather(source, dest, exports="iceberg", every=1, stop=loop, maintain=False, **HERE)
    assert report.exports == ("iceberg: ended, and has offered nothing",), "each report tells of it"
    assert len(tips) == 4
    assert len(set(tips)) == 1, "its entries would come again with each run"
    assert capsys.readouterr().err.count("has ended, and has offered nothing") == 1


def test_what_could_not_be_asked_for_is_asked_again() -> None:
    call: Any = SimpleNamespace(near=Near(), wishes=SimpleNamespace(exports=("delta",)))
    asked = list[tuple[str, ...]]()

    def away(_: object) -> None:
        raise StorageError("the store is away")

    with pytest.raises(StorageError):
        Request.ask_once(call, 3, away)
    for version in (3, 5, 1):
        Request.ask_once(call, version, asked.append)
    assert asked == [("delta",), (), ("delta",)], "the last one is of a destination that was made anew"


def test_a_loop_asks_again_for_a_destination_that_was_made_anew(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a": unsigned(0, 1), "b": unsigned(2)}), tmp_path / "out"
    gather(source, dest, include="b", **HERE)
    loop = Loop(2, lambda done: shutil.rmtree(dest) if done == 1 else None)
    report = gather(source, dest, exports="delta", every=1, stop=loop, maintain=False, **HERE)
    assert report.files == 2
    assert report.exports == (f"delta: version {report.version - 1}",), "its own entry comes after"


def test_one_that_an_earlier_call_has_left_ends_with_the_next_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest = write(tmp_path / "in", {"a": unsigned(0, 1), "b": unsigned(2)}), tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(step, "end_unbegun", lambda *_: False)
        assert gather(source, dest, exports="iceberg", **HERE).exports == ("iceberg: nothing yet, behind the newest one",)
    Ledger(dest).forget(source / "a", spark=LocalRunner(), progress=False)
    assert seen(dest) == [2]
    assert Ledger(dest).exports() == {}


def test_one_whose_call_died_between_its_metadata_and_the_log_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest = write(tmp_path / "in", {"a": unsigned(0, 1)}), tmp_path / "out"
    gather(source, dest, **HERE)

    def refusing(*_: Any) -> Any:
        raise RefusedError("no such catalog")

    with monkeypatch.context() as patch:
        patch.setattr(iceberg_types, "_refused", lambda *_: None)  # as if the column were one that it has
        patch.setattr(iceberg_types, "_of", lambda *_: "long")
        patch.setattr(iceberg, "point", kill)
        with pytest.raises(Killed):
            Ledger(dest).export("iceberg")
        assert (dest / "_iceberg").exists()
        patch.setattr(iceberg, "point", refusing)
        gather(write(source, {"b": unsigned(2)}), dest, **HERE)
    assert Ledger(dest).exports() == {}
    assert not (dest / "_iceberg").exists()


def test_what_another_program_has_put_there_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest = write(tmp_path / "in", {"a": unsigned(0, 1)}), tmp_path / "out"
    gather(source, dest, **HERE)
    with monkeypatch.context() as patch:
        patch.setattr(delta, "bring", lambda *_, **__: kill())
        with pytest.raises(Killed):
            Ledger(dest).export("delta")
    foreign = dest / "_delta_log" / f"{0:020}.json"
    write(dest, {f"_delta_log/{foreign.name}": b'{"commitInfo": {"engineInfo": "another"}}\n'})
    gather(write(source, {"b": unsigned(2)}), dest, **HERE)
    assert Ledger(dest).exports() == {}
    assert foreign.exists()


def test_one_that_somebody_else_has_begun_goes_on(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a": unsigned(0, 1)}), tmp_path / "out"
    gather(source, dest, **HERE)
    log = Log(connect(f"file://{dest}")).refresh()
    step.want(log, ("delta",))
    Ledger(dest).export("delta")
    step.end(log, "delta", begun=False)
    assert step.end_unbegun(log, "delta") is False
    assert Ledger(dest).exports()["delta"] > 0
    assert (dest / "_delta_log").exists()


@pytest.mark.parametrize("format", OPTIONS)
def test_one_that_lags_is_told_once_and_for_what_it_is(
    tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, dest = write(tmp_path / "in", {"a": parquet(pa.int64(), 0, 1), "b": parquet(pa.int64(), 2)}), tmp_path / "out"
    gather(source, dest, **HERE)
    Ledger(dest).export(format, **OPTIONS[format])

    def away(*_: Any, **__: Any) -> Any:
        raise StorageError("the disk is full")

    monkeypatch.setattr(step.FORMATS[format], "bring", away)
    capsys.readouterr()
    gather(write(source, {"c": parquet(pa.int64(), 3)}), dest, **HERE)
    assert capsys.readouterr().err.count("the disk is full") == 1
    changed = Ledger(dest).forget(source / "a", spark=LocalRunner(), progress=False)
    assert changed.exports_behind == (format,)
    assert f"1 are still in the directory: the export {format} has not come so far" in str(changed)
    with pytest.warns(UserWarning, match="the disk is full"):
        assert quire.recover(dest).version
