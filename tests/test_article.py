"""Seed article on skipping processed data: its three uses, and its disadvantages, which are none here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gathering import documents, gather, not_taken, write
from quire import FileInfo, Ledger
from quire.engine import attempt
from quire.errors import QuireError
from quire.read import first_rows


def lines(dest: Path) -> list[bytes]:
    return sorted(first_rows(Ledger(dest)._store, 1 << 30))


def test_a_job_that_was_killed_goes_on_with_the_splits_that_were_not_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest, read = write(tmp_path / "in", documents(12)), tmp_path / "out", list[int]()
    real = attempt.Attempt.run

    def killed_at_the_third(self: Any) -> Any:
        read.append(self.task)
        if len(read) == 3:
            raise KeyboardInterrupt
        return real(self)

    with monkeypatch.context() as patch:
        patch.setattr(attempt.Attempt, "run", killed_at_the_third)
        with pytest.raises(KeyboardInterrupt):
            gather(source, dest, target_size="60 B")
        assert Ledger(dest).summary().files == 0, "nothing of a killed task, or of its job, counts"
    again = list[int]()
    monkeypatch.setattr(attempt.Attempt, "run", lambda self: (again.append(self.task), real(self))[1])
    assert gather(source, dest, target_size="60 B").files == 12
    assert not set(again) & set(read[:2]), "a task that was done is not done again"
    assert len(lines(dest)) == len(set(lines(dest))) == 24


def test_a_split_that_fails_leaves_no_trace_that_it_was_done(tmp_path: Path) -> None:
    source, dest, seen = write(tmp_path / "in", {"a": b"1\n", "bad": b"x\n"}), tmp_path / "out", list[str]()

    def number(content: bytes, file: FileInfo) -> bytes:
        seen.append(file.name)
        return b"%d\n" % int(content)

    assert not_taken(gather(source, dest, transform=number, format="lines", function_version="1")) == 1
    gather(source, dest, transform=number, format="lines", function_version="1")
    assert seen == ["a", "bad"], "nor is it tried twice in a run, or again before it is asked for"
    (row,) = Ledger(dest).inspect.quarantined(as_="arrow").to_pylist()
    assert (row["path"], row["tries"]) == (f"file://{source}/bad", 1)


def test_only_the_new_data_is_read_whatever_the_size_of_splits(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"long": b"".join(b"%03d\n" % i for i in range(100))}), tmp_path / "out"
    gather(source, dest, target_size="64 B")
    write(source, {"new": b"new\n"})
    for size, read in (("10 B", 4), ("100 B", 0), ("1 GiB", 0)):
        assert gather(source, dest, target_size=size).bytes == read
    assert len(lines(dest)) == 101


def test_what_is_appended_is_processed_once_a_line_also_by_a_job_that_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest = write(tmp_path / "in", {"a.log": b"1\n2\n"}), tmp_path / "out"
    tail: dict[str, Any] = {"on_append": "tail", "target_size": "16 B"}

    def stop(*_: Any, **__: Any) -> None:
        raise QuireError("stop")

    for n in range(3, 9):
        gather(source, dest, **tail)
        with (source / "a.log").open("ab") as file:
            file.write(b"%d\n%d" % (n, n) if n % 2 else b"%d\n" % n)
        with monkeypatch.context() as patch:
            patch.setattr(f"quire.commit.protocol.{'publish' if n % 3 else 'commit'}", stop)
            with pytest.raises(QuireError, match="stop"):
                gather(source, dest, **tail)
    gather(source, dest, **tail)
    assert lines(dest) == sorted((source / "a.log").read_bytes().splitlines())
