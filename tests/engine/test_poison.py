"""Files and directories that a run can make nothing of: each is told of with its reason, and all others are gathered."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import quire
from gathering import gather, look, not_taken, write
from quire import Ledger, StorageError
from quire.planning import listing

YEAR = 31_556_952


@pytest.mark.parametrize("when", [2300 - 1970, 2261 - 1970, 1901 - 1970, 1960 - 1970])
def test_a_file_of_any_time_is_gathered_and_its_time_is_never_another(tmp_path: Path, when: int) -> None:
    source = write(tmp_path / "in", {"a.txt": b"one\n", "b.txt": b"two\n"})
    ns = when * YEAR * 1_000_000_000 + 7
    os.utime(source / "b.txt", ns=(ns, ns))
    if os.stat(source / "b.txt").st_mtime_ns != ns:  # a file system that knows no such times shows another one from the beginning
        ns = os.stat(source / "b.txt").st_mtime_ns
    plan = look(source, tmp_path / "look")
    assert len(plan.files()) == 2
    plan.discard()
    assert Ledger(tmp_path / "none", create=True).inspect.unprocessed(source, "arrow", spark=quire.LocalRunner()).num_rows == 2
    report = gather(source, tmp_path / "out", transform="raw", format="parquet")
    assert (report.files, not_taken(report)) == (2, 0)
    (data,) = (tmp_path / "out").glob("part-*")
    found = {Path(row["path"]).name: row["modified"] for row in pq.read_table(data).to_pylist()}
    there = found["b.txt"]
    assert there is None if abs(ns) >= 1 << 63 else int(there.timestamp()) == ns // 1_000_000_000
    assert gather(source, tmp_path / "out", transform="raw", format="parquet").files == 0


@pytest.mark.parametrize("folder", ["_quire", "_QUIRE/log", "d" * 250])
def test_a_directory_that_the_destination_cannot_have_is_told_of_and_the_others_are_gathered(tmp_path: Path, folder: str) -> None:
    source = write(tmp_path / "in", {"ok/a.txt": b"fine\n"})
    at, parts = os.open(source, os.O_RDONLY), folder.split("/")
    if len(folder) > 200:  # as long as a path below the source can be
        n, rest = divmod(4060 - len(os.fsencode(source)), 251)
        parts = [folder] * n + ["d" * max(1, rest - 1)]
    for part in parts:
        os.mkdir(part, dir_fd=at)
        at, before = os.open(part, os.O_RDONLY, dir_fd=at), at
        os.close(before)
    with open(os.open("x.txt", os.O_CREAT | os.O_WRONLY, dir_fd=at), "wb") as file:
        file.write(b"x\n")
    os.close(at)
    for files in (1, 0):
        report = gather(source, tmp_path / "out", layout="directories", hidden=True)
        assert (report.files, not_taken(report)) == (files, 1)
        assert "layout='flat'" in report.unreadable[0][1]
    assert (tmp_path / "out/ok").is_dir()


def test_a_file_of_more_ranges_than_any_has_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that is sparse: it takes no space, and a list of its ranges would fill the memory."""
    source = write(tmp_path / "in", {"a.txt": b"one\n"})
    with open(source / "sparse", "wb") as file:
        file.truncate(1 << 42)
    monkeypatch.setattr(listing, "RANGES", 1000)
    report = gather(source, tmp_path / "out")
    assert (report.files, not_taken(report)) == (1, 1)
    assert "use a larger target_size" in report.unreadable[0][1]
    (source / "a.txt").unlink()
    with pytest.raises(StorageError, match=r"larger target_size\. Nothing was gathered: mend this first") as told:
        gather(source, tmp_path / "alone")
    assert "let this user" not in str(told.value), "no right is lacking"
