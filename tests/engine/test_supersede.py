"""Files that were rewritten at their source: reported, or their new content takes the old one's place in one commit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import quire
from checker import check, look, unchanged
from gathering import documents, gather, not_taken, refused, write
from quire import Ledger
from quire.commit import log, parts, retire
from quire.commit.entries import Abort
from quire.errors import FormatError, UsageError
from quire.read import first_rows, live
from quire.storage.local import LocalStore

SHAPES: list[dict[str, Any]] = [
    {"transform": "lines"},
    {"transform": "raw", "compression": "gzip", "target_size": "100 B"},
    {"transform": "raw", "format": "parquet"},
    {"transform": "lines", "layout": "directories", "compression": "zstd"},
    {"transform": "lines", "planner": "hash", "parts": 2},
]


def rewritten(source: Path) -> dict[str, bytes]:
    files = {"d0/f0003.txt": b"another line, and a longer one\n", "d1/f0004.txt": b"short", "d2/f0005.txt": b""}
    for name in files:
        (source / name).unlink()
    write(source, files)
    return files


@pytest.mark.nth(4)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_new_content_takes_the_old_ones_place(tmp_path: Path, shape: dict[str, Any]) -> None:
    source, dest = write(tmp_path / "in", documents(9)), tmp_path / "out"
    gather(source, dest, **shape)
    rewritten(source)
    write(source, {"d0/new.txt": b"new\n"})
    report = gather(source, dest, on_change="reprocess", **shape)
    assert (report.files, not_taken(report), len(report.jobs)) == (4, 0, 2)
    ledger = Ledger(dest)
    assert ledger.summary().files == 10
    ledger.expire()
    check(source, dest, unchanged if shape["transform"] == "raw" else None)
    assert gather(source, dest, on_change="reprocess", **shape).files == 0


def test_a_reader_of_the_log_sees_the_old_content_or_the_new_one(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", documents(6)), tmp_path / "out"
    gather(source, dest)
    before = Ledger(dest).version
    rewritten(source)
    gather(source, dest, on_change="reprocess")
    ledger = Ledger(dest)
    contents, places = [], retire.places(ledger._store)
    for version in range(before, ledger.version + 1):
        files = [places.get(f.name, f.name) for f in live(ledger._store, version)[1]]
        contents.append(b"".join(sorted(b"".join((dest / f).read_bytes() for f in files).splitlines(True))))
    old, new = contents[0], contents[-1]
    assert set(contents) == {old, new}
    assert old.count(b"second of 3") == 1
    assert new.count(b"second of 3") == 0


def test_left_to_itself_the_old_content_stays(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", documents(6)), tmp_path / "out"
    gather(source, dest)
    held = look(dest).data
    rewritten(source)
    report = gather(source, dest)
    assert not_taken(report) == 3
    assert all("rewritten" in why for _, why in report.changed)
    assert not_taken(gather(source, dest, on_change="ignore")) == 0
    assert look(dest).data == held
    with refused(UsageError, 2, "on_change", "reprocess"):
        gather(source, dest, on_change="replace")


def test_a_report_of_changed_files_points_at_what_names_them(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", documents(6)), tmp_path / "out"
    gather(source, dest)
    rewritten(source)
    report = gather(source, dest)
    assert (report.quarantined_count, report.changed_count, report.unreadable) == (0, 3, ())
    assert len(Ledger(dest).inspect.quarantined()) == 0
    assert "quire ledger quarantined" not in str(report)
    assert f"quire ledger changed {dest} {source} " in str(report)
    found = Ledger(dest).inspect.changed(source, "pandas", spark=quire.LocalRunner())
    assert [*zip(found["path"], found["reason"], strict=True)] == sorted(report.changed)
    assert set(found["commit"]) == {1}
    assert [*found["size"]] == [Path(path.removeprefix("file://")).stat().st_size for path in found["path"]]
    gather(source, dest, on_change="reprocess")
    assert len(Ledger(dest).inspect.changed(source, "pandas", spark=quire.LocalRunner())) == 0


def test_of_what_only_grew_the_ledger_says_so_where_it_can_tell(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a": b"1\n", "b": b"1\n", "c": b"1\n"}), tmp_path / "out"
    gather(source, dest, on_append="tail")
    write(source, {"a": b"1\n2\n", "b": b"3\n4\n"})
    found = Ledger(dest).inspect.changed(source, "pandas", exclude="c", spark=quire.LocalRunner())
    assert [reason.partition(" since")[0] for reason in found["reason"]] == ["appended to", "rewritten"]


def test_old_rows_stay_until_the_new_version_is_good(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a.xml": b"<a/>", "b.xml": b"<b/>"}), tmp_path / "out"
    how: dict[str, Any] = {"transform": "xml", "on_change": "reprocess"}
    gather(source, dest, **how)
    write(source, {"a.xml": b"<a>broken", "b.xml": b"<b>better</b>"})
    report = gather(source, dest, **how)
    assert report.files == 1, "the other one goes through"
    ((path, why),) = report.deferred
    assert path.endswith("a.xml")
    assert "cannot be taken, and what was gathered before stays" in why
    assert "what was gathered before stays" in str(report)
    assert "new version not taken, old one stays" in str(report)
    assert "deferred (changed or gone)" not in str(report), "it is neither"
    assert sorted(first_rows(Ledger(dest)._store, 9)) == [b"<a/>", b"<b>better</b>"]
    assert (Ledger(dest).summary().files, Ledger(dest).summary().quarantined) == (2, 0)
    assert gather(source, dest, **how).files == 0, "the next call looks once more, and ends"
    write(source, {"a.xml": b"<a>mended at last</a>"})
    assert gather(source, dest, **how).files == 1
    Ledger(dest).expire()
    check(source, dest, None)


def test_of_many_bad_new_versions_no_entry_of_the_log_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "LONGEST", 2_000)
    monkeypatch.setattr(parts, "TOGETHER", 7)
    source, dest = write(tmp_path / "in", {f"{i}.xml": b"<a/>" for i in range(50)}), tmp_path / "out"
    how: dict[str, Any] = {"transform": "xml", "on_change": "reprocess"}
    gather(source, dest, **how)
    write(source, {f"{i}.xml": b"<a>broken" for i in range(49)} | {"49.xml": b"<b>better</b>"})
    report = gather(source, dest, **how)
    assert (report.files, len(report.deferred)) == (1, 49), "they are known to the round that goes on without them"
    entries = sorted((dest / "_quire/log").glob("*.entry"))
    assert max(entry.stat().st_size for entry in entries) <= 2_000
    (given_up,) = (entry for entry in log.Log(LocalStore(str(dest))).refresh().entries if isinstance(entry, Abort))
    assert sorted(item.path for item in given_up.left) == sorted(path for path, _ in report.deferred)
    Ledger(dest).expire()
    check(source, dest, None)
    Ledger(dest).checkpoint(spark=quire.LocalRunner())
    quire.recover(dest)
    assert (dest / str(given_up.parts)).exists(), "whoever reads the log from its beginning finds it"
    (dest / str(given_up.parts)).write_bytes(b"?")
    with refused(FormatError, 2, "damaged", str(given_up.parts)):
        log.Log(LocalStore(str(dest))).refresh().entries  # noqa: B018


def test_what_others_compacted_meanwhile_is_planned_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that supersedes is all or nothing: where its data files were removed by another, it is given up and begins again."""
    source, dest = write(tmp_path / "in", documents(6)), tmp_path / "out"
    gather(source, dest)
    write(source, {"d0/later.txt": b"later\n"})
    gather(source, dest)
    rewritten(source)
    compacted = list[Any]()
    real = quire.engine.job._check

    def check_and_compact(*args: Any) -> None:
        real(*args)
        if not compacted:
            compacted.append(None)
            compacted.append(Ledger(dest).compact(spark=quire.LocalRunner(), progress=False))

    monkeypatch.setattr("quire.engine.job._check", check_and_compact)
    assert gather(source, dest, on_change="reprocess").files == 3
    assert compacted[1].jobs
    assert "abort" in set(Ledger(dest).inspect.history()["kind"])
    Ledger(dest).expire()
    check(source, dest)


def test_a_data_file_that_is_gone_is_named_with_what_to_do(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a": b"1\n", "b": b"2\n"}), tmp_path / "out"
    gather(source, dest)
    (gone,) = Ledger(dest).inspect.files()["data_file"]
    (dest / gone).unlink()
    (source / "a").write_bytes(b"new one\n")
    with refused(FormatError, FormatError.exit_code, gone, "forget(file="):
        gather(source, dest, on_change="reprocess")
    Ledger(dest).forget(file=gone, spark=quire.LocalRunner(), progress=False)
    assert gather(source, dest, on_change="reprocess").files == 2
    Ledger(dest).expire()
    check(source, dest)


def test_a_damaged_data_file_that_was_given_up_keeps_nobody_from_going_on(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a": b"1\n", "b": b"2\n"}), tmp_path / "out"
    gather(source, dest)
    (damaged,) = Ledger(dest).inspect.files()["data_file"]
    (dest / damaged).write_bytes(b"x\ny\n")
    (source / "a").write_bytes(b"new one\n")
    with refused(FormatError, FormatError.exit_code, damaged, "forget(file="):
        gather(source, dest, on_change="reprocess")
    Ledger(dest).forget(file=damaged, spark=quire.LocalRunner(), progress=False)
    assert gather(source, dest, on_change="reprocess").files == 2
    Ledger(dest).expire()
    check(source, dest)


def test_another_call_does_not_end_what_would_replace_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest = write(tmp_path / "in", {"a": b"1\n", "b": b"2\n"}), tmp_path / "out"
    gather(source, dest)
    (source / "a").write_bytes(b"new one\n")

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("quire.commit.protocol.commit", killed)
        with pytest.raises(KeyboardInterrupt):
            gather(source, dest, on_change="reprocess")
    report = gather(source, dest)
    assert (not_taken(report), len(report.others)) == (1, 1)
    assert sorted(first_rows(Ledger(dest)._store, 9)) == [b"1", b"2"]
    assert gather(source, dest, on_change="reprocess").files == 1
