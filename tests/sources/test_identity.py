"""What makes a file another one: what its store tells, which is cheap, or its content, which nothing escapes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import quire
from gathering import documents, gather, not_taken, refused, write
from quire import Ledger, LocalRunner
from quire.errors import RefusedError, UsageError
from quire.read import first_rows
from quire.sources import identity
from quire.storage.local import LocalStore

CONTENT: dict[str, Any] = {"change_detection": "content"}
HERE: dict[str, Any] = {"spark": LocalRunner(), "progress": False}


def restored(path: Path, content: bytes) -> None:
    """Write as `rsync -t` does: the time stays what it was."""
    then = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(then.st_atime_ns, then.st_mtime_ns))


def rows(dest: Path) -> list[Any]:
    return sorted(first_rows(Ledger(dest)._store, 1 << 30))


@pytest.mark.parametrize("size", [3, 3_000_000])
def test_another_content_under_the_same_time_and_size_is_seen_by_content_alone(tmp_path: Path, size: int) -> None:
    source = write(tmp_path / "in", {"a": b"1" * size, "b": b"b"})
    for dest, how in ((tmp_path / "store", {}), (tmp_path / "content", CONTENT)):
        gather(source, dest, **how)
    restored(source / "a", b"2" * size)
    assert not_taken(gather(source, tmp_path / "store")) == 0, "local disk tells a time and a size, and they are the same"
    report = gather(source, tmp_path / "content", **CONTENT)
    assert (not_taken(report), report.skipped) == (1, 1)
    assert "rewritten" in report.changed[0][1]
    gather(source, tmp_path / "content", on_change="reprocess", **CONTENT)
    assert rows(tmp_path / "content") == [b"2" * size, b"b"]
    assert rows(tmp_path / "store") == [b"1" * size, b"b"]
    restored(source / "a", b"2" * size + b"\n")
    assert not_taken(gather(source, tmp_path / "store")) == 1, "another size is seen"


def test_the_same_content_under_another_time_is_no_change(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(5))
    gather(source, tmp_path / "out", **CONTENT)
    for path in source.rglob("*.txt"):
        os.utime(path)
    report = gather(source, tmp_path / "out", **CONTENT)
    assert (report.skipped, report.files, not_taken(report)) == (5, 0, 0)


@pytest.mark.nth(2)
@pytest.mark.parametrize(
    "shape", [{}, {"transform": "raw", "format": "parquet"}, {"transform": "xml"}, {"transform": "raw", "target_size": "50 B"}], ids=str
)
def test_whatever_is_made_of_a_file_its_version_is_the_content_that_was_read(tmp_path: Path, shape: dict[str, Any]) -> None:
    source = write(tmp_path / "in", {**documents(5, "xml"), "long.xml": b"<a>" + b"x" * 2_000_000 + b"</a>"})
    gather(source, tmp_path / "out", **CONTENT, **shape)
    ledger = Ledger(tmp_path / "out")
    for path in source.rglob("*.xml"):
        (found,) = ledger.locate(path)
        assert identity.by_content(found.version)
        assert " " not in found.version
        assert found.version.endswith(f"-{path.stat().st_size}")
    assert gather(source, tmp_path / "out", **CONTENT, **shape).jobs == ()
    assert ledger.verify(spark=LocalRunner()).ok


@pytest.mark.parametrize("size", [4, 3_000_000])
def test_what_changes_between_the_listing_and_the_reading_is_never_taken_for_what_was_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    source = write(tmp_path / "in", {"a": b"1" * size, "b": b"b"})
    real, frozen = quire.engine.job.run, list[int]()

    def run(*args: Any) -> None:
        if not frozen:
            frozen.append(1)
            restored(source / "a", b"2" * size)
        real(*args)

    monkeypatch.setattr("quire.engine.driver.jobs.run", run)
    report = gather(source, tmp_path / "out", **CONTENT)
    assert (report.files, report.deferred, frozen) == (2, (), [1]), "the next round has listed it again"
    assert rows(tmp_path / "out") == [b"2" * size, b"b"]
    assert gather(source, tmp_path / "out", **CONTENT).skipped == 2


def test_what_cannot_be_read_when_it_is_listed_is_told_and_the_rest_is_gathered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "in", {"a": b"a", "b": b"b"})
    real = LocalStore.read_many

    def forbidden(self: LocalStore, requests: Any) -> Any:
        for request, content in real(self, requests):
            yield request, quire.storage.Unreadable("no permission") if request.name == "a" else content

    monkeypatch.setattr(LocalStore, "read_many", forbidden)
    report = gather(source, tmp_path / "out", **CONTENT)
    assert (report.files, report.unreadable) == (1, ((f"file://{source}/a", "no permission"),))


def test_retry_purge_and_marks_know_files_by_their_content_too(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {**documents(3, "xml"), "long.xml": b"<a>" + b" " * 900 + b"</a>"}), tmp_path / "out"
    gather(source, dest, transform="xml", max_file_size="500 B", **CONTENT)
    os.utime(source / "long.xml")
    ledger = Ledger(dest)
    assert ledger.retry(tmp_path / "in", **HERE).gathered == 1
    write(source, {"new.xml": b"<n/>"})
    assert ledger.export_markers(tmp_path / "m", spark=LocalRunner()).written == 4
    name = next((tmp_path / "m").glob("*long*")).name.replace("long", "new").replace("@907", "@4")
    (tmp_path / "m" / name).touch()
    assert ledger.import_markers(tmp_path / "m", source, **HERE).gathered == 1
    assert gather(source, dest, transform="xml", **CONTENT).jobs == ()
    restored(source / "d0/f0000.xml", (source / "d0/f0000.xml").read_bytes().replace(b"0", b"7"))
    found = ledger.purge_sources(tmp_path / "in", dry_run=False, min_age=0, spark=LocalRunner())
    assert (found.files, sum(found.stays.values())) == (3, 1)
    assert sorted(p.name for p in source.rglob("*.xml")) == ["f0000.xml", "new.xml"]


def test_one_destination_knows_its_files_in_one_way(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(2))
    gather(source, tmp_path / "out", **CONTENT)
    with refused(RefusedError, 2, "change_detection='content'", "'store'", "look rewritten"):
        gather(source, tmp_path / "out")
    with refused(UsageError, 2, "change_detection", "on_append='tail'"):
        gather(source, tmp_path / "new", on_append="tail", **CONTENT)
    with refused(UsageError, 2, "change_detection", "store, content"):
        gather(source, tmp_path / "new", change_detection="contents")
