"""Forget, retry, compact, expire and pins: what leaves the ledger leaves it whole, and what stays is where the ledger says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import quire
from checker import check, look, unchanged
from gathering import documents, gather, refused, write
from quire import Ledger, LocalRunner
from quire.commit import protocol
from quire.errors import FormatError, QuireError, RefusedError, UsageError
from quire.ledger import forget as forgetting
from quire.read import first_rows, live
from quire.storage import Unreadable, Vanished
from quire.storage.local import LocalStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE: dict[str, Any] = {"spark": LocalRunner(), "progress": False}


def gathered(tmp_path: Path, n: int = 9, **settings: Any) -> tuple[Path, Path, Ledger]:
    source, dest = write(tmp_path / "in", documents(n)), tmp_path / "out"
    gather(source, dest, **settings)
    return source, dest, Ledger(dest)


def rest(source: Path, *without: str) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in source.rglob("*") if p.is_file() and os.path.relpath(p, source) not in without}


def expire(dest: Path) -> None:
    Ledger(dest).expire()


SHAPES: list[dict[str, Any]] = [
    {"transform": "lines"},
    {"transform": "raw", "compression": "gzip", "target_size": "100 B"},
    {"transform": "raw", "format": "parquet"},
    {"transform": "lines", "layout": "directories", "compression": "zstd"},
]


# ----------------------------------------------------------------------------------------------------------------------- forget
def test_what_a_condition_chooses_is_written_by_tasks(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "in", {**documents(9, "xml"), "bad.xml": b"<a>"})
    gather(source, tmp_path / "out", transform="xml", target_size="100 B")
    ledger = Ledger(tmp_path / "out")
    monkeypatch.setattr(forgetting, "put_drops", None)  # the driver writes no row
    done = ledger.forget(where="path like '%/d0/%' or state = 'quarantined'", spark=spark, progress=False)
    assert done.files_out == 4, "three that were gathered, and the one in quarantine"
    assert (ledger.summary().files, ledger.summary().quarantined) == (6, 0)
    expire(tmp_path / "out")
    check(rest(source, "bad.xml", *(f"d0/f{i:04}.xml" for i in (0, 3, 6))), tmp_path / "out", None)


@pytest.mark.nth(2)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_forgotten_file_leaves_and_the_others_stay_as_they_are(tmp_path: Path, shape: dict[str, Any]) -> None:
    source, dest, ledger = gathered(tmp_path, **shape)
    expected = unchanged if shape["transform"] == "raw" else None
    done = ledger.forget(source / "d0/f0003.txt", reason="a wrong file", **HERE)
    assert (done.files_out, done.removed, done.written) == (1, 1, 1)
    expire(dest)
    check(rest(source, "d0/f0003.txt"), dest, expected)
    assert ledger.summary().files == 8
    assert "a wrong file" in set(ledger.inspect.history()["note"])
    assert ledger.verify(spark=LocalRunner()).ok
    with pytest.raises(UsageError, match="not in the ledger"):
        ledger.locate(source / "d0/f0003.txt")


def test_the_next_run_reads_what_was_forgotten_and_the_source_still_has(tmp_path: Path) -> None:
    source, dest, ledger = gathered(tmp_path)
    ledger.forget([source / "d0", source / "d1/f0001.txt"], **HERE)
    assert ledger.summary().files == 5
    (source / "d0/f0003.txt").unlink()
    report = gather(source, dest)
    assert (report.files, report.skipped) == (3, 5)
    expire(dest)
    check(source, dest)


def test_a_directory_is_forgotten_whole_but_not_one_whose_name_only_begins_alike(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"a/x": b"1\n", "a/y/z": b"2\n", "ab/x": b"3\n", "a.txt": b"4\n"})
    gather(source, tmp_path / "out")
    assert Ledger(tmp_path / "out").forget(f"{source}/a/", **HERE).files_out == 2
    expire(tmp_path / "out")
    check(rest(source, "a/x", "a/y/z"), tmp_path / "out")


def test_what_is_in_quarantine_or_empty_is_forgotten_too(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"a.xml": b"<a>", "b.xml": b"<b/>", "c.xml": b"<c/>"})
    gather(source, tmp_path / "out", transform="xml")
    ledger = Ledger(tmp_path / "out")
    assert ledger.summary().quarantined == 1
    done = ledger.forget(source / "a.xml", **HERE)
    assert (done.files_out, done.removed) == (1, 0), "a file in quarantine has no data file"
    assert ledger.summary().quarantined == 0
    assert ledger.inspect.quarantined().empty
    write(source, {"a.xml": b"<a/>"})
    assert gather(source, tmp_path / "out", transform="xml").files == 1


def test_a_lost_data_file_is_forgotten_and_its_sources_are_read_again(tmp_path: Path) -> None:
    source, dest, ledger = gathered(tmp_path, target_size="60 B")
    lost = ledger.locate(source / "d1/f0004.txt")[0].data_file
    assert lost is not None
    (dest / lost).unlink()
    with refused(FormatError, FormatError.exit_code, lost, "forget(file="):
        ledger.forget(source / "d1/f0004.txt", **HERE)  # others are in it too, and cannot be carried
    ledger.forget(file=lost, **HERE)
    gather(source, dest, target_size="60 B")
    check(source, dest)


def test_a_damaged_record_is_never_carried_over(tmp_path: Path) -> None:
    source, dest, ledger = gathered(tmp_path)
    (name,) = look(dest).data
    data = bytearray((dest / name).read_bytes())
    data[3] ^= 1
    (dest / name).write_bytes(data)
    with refused(FormatError, FormatError.exit_code, name, "checksum"):
        ledger.forget(source / "d2/f0005.txt", **HERE)
    quire.recover(dest, abort="open")
    data[3] ^= 1
    (dest / name).write_bytes(data)
    check(source, dest)


LATE = ["\U0010ffff", "\U0010ffffq", "\U0010ffff\U0010ffff", "\U0010ffffd/\U0010ffffe"]  # names after which hardly any other comes


def test_a_directory_is_all_that_lies_below_it_and_nothing_beside(tmp_path: Path) -> None:
    """Names begin with any character and have more behind it; `a0` is the first text behind all of them."""
    source, dest = tmp_path / "in", tmp_path / "out"
    below = [f"a/{name}" for name in ["1", *LATE]]
    write(source, {name: name.encode() for name in [*below, "a0", "a!", "a.b", "a00"]})
    gather(source, dest)
    ledger = Ledger(dest)
    assert {*ledger.rows(path=f"{source}/a/").table["path"]} == {f"file://{source}/{name}" for name in below}
    with refused(RefusedError, 2, "holds files of the ledger"):
        ledger.export_markers(source / "a", spark=LocalRunner())
    assert ledger.forget(source / "a", reason="wrong", **HERE).files_out == len(below)
    left = {Path(path).name for path in ledger.inspect.splits(spark=LocalRunner())["path"]}
    assert left == {"a0", "a!", "a.b", "a00"}
    assert ledger.export_markers(source / "a", spark=LocalRunner()).written == 4, "nothing of the ledger lies there any more"


@pytest.mark.parametrize("piece", [{}, {"include": "[!0]*"}], ids=str)
def test_files_that_have_gone_are_counted_whatever_they_are_called(tmp_path: Path, piece: dict[str, Any]) -> None:
    source, dest = tmp_path / "in", tmp_path / "out"
    write(source, {name: name.encode() for name in ["1", *LATE, *(f"a/{name}" for name in LATE)]})
    write(tmp_path / "in0", {"x": b"beside"})
    gather([source, tmp_path / "in0"], dest)
    for name in [*LATE, *(f"a/{name}" for name in LATE)]:
        (source / name).unlink()
    report = gather(source, dest, **piece)
    assert report.deleted == 2 * len(LATE) == len(Ledger(dest).inspect.deleted(source, spark=LocalRunner(), **piece))


def test_forgetting_what_was_never_done_is_refused(tmp_path: Path) -> None:
    source, _, ledger = gathered(tmp_path)
    with refused(UsageError, 2, "nope.txt", "not in the ledger"):
        ledger.forget([source / "d0/f0000.txt", source / "nope.txt"], **HERE)
    with refused(UsageError, 2, "not a live data file"):
        ledger.forget(file="part-1.txt", **HERE)
    with refused(UsageError, 2, "one of the three"):
        ledger.forget(**HERE)
    assert ledger.summary().files == 9


# ------------------------------------------------------------------------------------------------------------------------ retry
def xml(tmp_path: Path) -> tuple[Path, Path, Ledger]:
    files = {"good.xml": b"<a/>", "long.xml": b"<a>" + b" " * 900 + b"</a>", "bad.xml": b"<a>", "dir/bad2.xml": b"<b>"}
    source = write(tmp_path / "in", files)
    gather(source, tmp_path / "out", transform="xml", max_file_size="500 B")
    return source, tmp_path / "out", Ledger(tmp_path / "out")


def test_retry_takes_what_is_in_quarantine_alone_and_swaps_its_state(tmp_path: Path) -> None:
    source, dest, ledger = xml(tmp_path)
    done = ledger.retry(tmp_path / "in", **HERE)  # the larger file is allowed by now
    assert (done.gathered, done.quarantined) == (1, 2)
    assert list(ledger.inspect.quarantined()["tries"]) == [2, 2]
    assert ledger.summary().files == 2
    assert ledger.summary().quarantined == 2
    check(source, dest, None)


def test_retry_by_paths_leaves_the_others(tmp_path: Path) -> None:
    source, dest, ledger = xml(tmp_path)
    assert ledger.retry(tmp_path / "in", paths=source / "long.xml", **HERE).gathered == 1
    assert set(ledger.inspect.quarantined()["tries"]) == {1}
    check(source, dest, None)


def test_what_has_changed_or_gone_since_is_not_retried(tmp_path: Path) -> None:
    source, dest, ledger = xml(tmp_path)
    write(source, {"bad.xml": b"<a></a>"})
    (source / "dir/bad2.xml").unlink()
    done = ledger.retry(tmp_path / "in", **HERE)
    assert done.gathered == 1
    assert {os.path.basename(path): why.split(":")[0] for path, why in done.left} == {
        "bad.xml": "it has changed since", "bad2.xml": "it is gone at its source",
    }  # fmt: skip
    assert gather(source, dest, transform="xml", max_file_size="500 B").files == 1


def test_what_changes_while_it_is_retried_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, _, ledger = xml(tmp_path)
    real = LocalStore.read_many

    def changing(self: LocalStore, requests: Any) -> Any:
        for request, content in real(self, requests):
            yield request, Vanished("changed") if request.name.endswith("bad2.xml") else content

    monkeypatch.setattr(LocalStore, "read_many", changing)
    done = ledger.retry(tmp_path / "in", **HERE)
    assert (done.gathered, done.quarantined, done.left) == (1, 1, ((f"file://{source}/dir/bad2.xml", "changed"),))
    assert ledger.summary().quarantined == 2, "it stays quarantined"


def test_poison_is_left_alone_after_so_many_attempts(tmp_path: Path) -> None:
    _, _, ledger = xml(tmp_path)
    for tries in (2, 3):
        ledger.retry(tmp_path / "in", max_attempts=3, max_file_size="500 B", max_quarantined=3, **HERE)
        assert set(ledger.inspect.quarantined()["tries"]) == {tries}
    version = ledger.version
    done = ledger.retry(tmp_path / "in", max_attempts=3, max_file_size="500 B", max_quarantined=3, **HERE)
    assert len(done.left) == 3
    assert not done.jobs
    assert ledger.version == version, "nothing was read, so nothing was committed"


def test_a_repaired_function_takes_what_it_could_not_before(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"a": b"1", "b": b"x", "c": b"3"})

    def first(content: bytes, file: quire.FileInfo) -> bytes:
        return b"%d\n" % (2 * int(content))

    gather(source, tmp_path / "out", transform=first, format="lines")
    ledger = Ledger(tmp_path / "out")
    with refused(UsageError, 2, "function="):
        ledger.retry(tmp_path / "in", **HERE)

    def repaired(content: bytes, file: quire.FileInfo) -> bytes:
        return b"%d\n" % (2 * int(content)) if content.isdigit() else b"none\n"

    assert ledger.retry(tmp_path / "in", function=repaired, **HERE).gathered == 1
    assert sorted(first_rows(ledger._store, 9)) == [b"2", b"6", b"none"]


def test_a_retry_does_not_go_on_with_what_was_read_before_the_repair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "in", {"a": b"1", "b": b"x"})

    def first(content: bytes, file: quire.FileInfo) -> bytes:
        return b"%d\n" % (2 * int(content))

    def repaired(content: bytes, file: quire.FileInfo) -> bytes:
        return b"of %s\n" % file.name.encode()

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    gather(source, tmp_path / "out", transform=first, format="lines")
    ledger = Ledger(tmp_path / "out")
    with monkeypatch.context() as patch:
        patch.setattr("quire.commit.protocol.commit", killed)
        with pytest.raises(KeyboardInterrupt):
            ledger.retry(tmp_path / "in", function=first, **HERE)
    assert ledger.retry(tmp_path / "in", function=repaired, **HERE).gathered == 1
    assert sorted(first_rows(ledger._store, 9)) == [b"2", b"of b"]


# ---------------------------------------------------------------------------------------------------------------------- compact
@pytest.mark.nth(4)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_compaction_merges_the_files_of_many_runs_and_loses_nothing(tmp_path: Path, shape: dict[str, Any]) -> None:
    shape = {**shape, "target_size": "1 MiB"}
    source, dest, ledger = gathered(tmp_path, 3, **shape)
    for i in range(1, 4):
        write(source, {f"d{i % 2}/later{i}.txt": b"more %d\n" % i})
        gather(source, dest, **shape)
    before = ledger.refresh().summary()
    done = ledger.compact(**HERE)
    after = ledger.summary()
    by_folder = "layout" in shape  # then d2 has one file from the beginning
    assert (done.removed, after.data_files) == (before.data_files - by_folder, 3 if by_folder else 1)
    assert (after.files, after.ledger_rows) == (before.files, before.ledger_rows)
    expire(dest)
    check(source, dest, unchanged if shape["transform"] == "raw" else None)
    assert gather(source, dest, **shape).files == 0, "coverage stays"
    assert ledger.verify(spark=LocalRunner()).ok
    assert not ledger.compact(**HERE).jobs, "there is nothing left to merge"
    write(source, {"d0/last.txt": b"new\n"})
    gather(source, dest, **shape)
    ledger.refresh().compact(**HERE)
    expire(dest)
    check(source, dest, unchanged if shape["transform"] == "raw" else None)


def test_what_others_commit_just_now_is_not_taken_for_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that commits while a compaction looks is published before anything is planned."""
    source, dest, ledger = gathered(tmp_path, 3)
    write(source, {"b.txt": b"2\n"})
    gather(source, dest)
    opened, did = protocol.open_jobs, list[int]()

    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    def looked(store: Any, log: Any, listed: Any) -> Any:
        if not did:
            did.append(1)
            write(source, {"c.txt": b"3\n"})
            with monkeypatch.context() as patch:
                patch.setattr(protocol, "publish", stop)
                with pytest.raises(KeyboardInterrupt):
                    gather(source, dest)
        return opened(store, log, listed)

    monkeypatch.setattr(protocol, "open_jobs", looked)
    assert ledger.compact(**HERE).removed == 3
    expire(dest)
    check(source, dest)


def test_what_lies_behind_a_link_that_was_followed_is_retried(tmp_path: Path) -> None:
    write(tmp_path / "else", {"bad.xml": b"<a>" + b" " * 900 + b"</a>"})
    source = write(tmp_path / "in", {"good.xml": b"<a/>"})
    (source / "link").symlink_to(tmp_path / "else")
    gather(source, tmp_path / "out", transform="xml", max_file_size="500 B", follow_links=True)
    assert Ledger(tmp_path / "out").retry(source, follow_links=True, **HERE).gathered == 1


# ------------------------------------------------------------------------------------------------------------- expire and pins
def test_an_older_version_is_readable_until_it_expires(tmp_path: Path) -> None:
    source, dest, ledger = gathered(tmp_path, target_size="100 B")
    before, files = ledger.version, ledger.summary().data_files
    ledger.compact("1 MiB", **HERE)
    store = ledger._store
    assert len(live(store, before)[1]) == files
    kept = ledger.expire(before_version=before)
    assert (kept.data_files, kept.before_version, len(live(store, before)[1])) == (0, before, files), "this version stays readable"
    for wrong in (-1, "1", ledger.version + 1):
        with refused(UsageError, 2, "version"):
            ledger.expire(before_version=wrong)  # type: ignore[arg-type]
    with ledger.pin(before):
        assert ledger.expire().data_files == 0
    with refused(UsageError, 2, "pin"):
        ledger.unpin("nobody's")
    gone = ledger.expire()
    assert (gone.data_files, ledger.pins()) == (files, {})
    with refused(UsageError, 2, "expired"):
        live(store, before)
    with refused(UsageError, 2, "expired"), ledger.pin(before):
        pass
    assert ledger.expire().data_files == 0
    check(source, dest)


def test_a_reader_whose_version_has_expired_hears_that_and_not_that_a_file_is_missing(tmp_path: Path) -> None:
    source, _, ledger = gathered(tmp_path)
    Ledger(tmp_path / "out").forget(source / "d0", **HERE)
    expire(tmp_path / "out")
    with refused(QuireError, 3, "has expired", "refresh()", f"version {ledger.version}"):
        ledger.read(source / "d1/f0001.txt")
    assert ledger.refresh().read(source / "d1/f0001.txt") == (source / "d1/f0001.txt").read_bytes()


def test_a_killed_forget_is_ended_by_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest, ledger = gathered(tmp_path)

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("quire.commit.protocol.commit", killed)
        with pytest.raises(KeyboardInterrupt):
            ledger.forget(source / "d0", **HERE)
    assert ledger.refresh().summary().files == 9
    done = ledger.forget(source / "d0", **HERE)
    assert (done.files_out, len(done.jobs)) == (3, 1), "what the call has done is told, though another one had begun it"
    assert ledger.refresh().summary().files == 6
    with refused(UsageError, 2, "not in the ledger"):
        ledger.forget(source / "d0", **HERE)
    expire(dest)
    check(rest(source, *(f"d0/f{i:04}.txt" for i in (0, 3, 6))), dest)


# ------------------------------------------------------------------------------------------------------------------- looking in
def test_the_sizes_of_a_long_file_whose_first_range_was_set_aside_are_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "in", {"long": b"x" * 400, "short": b"y" * 10})
    real = LocalStore.read_many

    def forbidden(self: LocalStore, requests: Any) -> Any:
        for request, content in real(self, requests):
            yield request, Unreadable("no permission") if request.name == "long" and not request.start else content

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "read_many", forbidden)
        gather(source, tmp_path / "out", transform="raw", target_size="100 B")
    found = Ledger(tmp_path / "out").inspect.sizes()
    assert (list(found["files_before"].iloc[:2]), found["bytes_before"].sum()) == ([1, 0], 310)
    assert found["files_before"].sum() == 2


def test_a_directory_that_was_forgotten_gives_no_partition(tmp_path: Path, spark: SparkSession) -> None:
    source = write(tmp_path / "in", {"dt=1/a": b"a", "dt=1/empty": b"", "dt=x/b": b"b", "dt=x/c": b"c"})
    gather(source, tmp_path / "out", transform="raw", layout="directories")
    ledger = Ledger(tmp_path / "out")
    assert dict(quire.read(tmp_path / "out", spark=spark).dtypes)["dt"] == "string"
    ledger.forget(source / "dt=x", **HERE)
    assert dict(quire.read(tmp_path / "out", spark=spark).dtypes)["dt"] == "int"
    ledger.forget(source / "dt=1/a", **HERE)
    assert [row.dt for row in quire.read(tmp_path / "out", spark=spark).collect()] == [1], "the empty file is still there"


def test_the_ledger_as_it_was_at_an_older_version(tmp_path: Path) -> None:
    source, dest, ledger = gathered(tmp_path, 3)
    first = ledger.version
    write(source, {"new.txt": b"new\n"})
    gather(source, dest)
    ledger.refresh().forget(source / "d0", **HERE)
    then = ledger.as_of(first)
    assert (then.version, then.summary().files, len(then.inspect.history()), len(then.inspect.files())) == (first, 3, 2, 1)
    assert then.locate(source / "d0/f0000.txt")
    assert (ledger.summary().files, set(ledger.inspect.files()["verb"])) == (3, {"run", "forget"})
    assert set(ledger.inspect.files()["data_file"]) == set(look(dest).data)
    with refused(UsageError, 2, "not there yet"):
        ledger.as_of(99)


def test_which_bytes_of_a_file_are_accounted_for(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"long.txt": b"".join(b"line %d\n" % i for i in range(40))})
    gather(source, tmp_path / "out", target_size="100 B")
    found = Ledger(tmp_path / "out").inspect.coverage(source / "long.txt")
    assert set(found["state"]) == {"done"}
    assert found["length"].sum() == (source / "long.txt").stat().st_size
    assert list(found["start"])[1:] == list((found["start"] + found["length"])[:-1])


def test_a_retry_that_another_has_begun_meanwhile_is_in_nobodys_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two at once one wins; what the other has left open is not gone on with: it may be older than the repair."""
    source, dest, ledger = xml(tmp_path)
    run, planted = quire.engine.job.run, list[str]()

    def thwarted(runner: Any, log: Any, work: Any, bars: Any, *more: Any, **others: Any) -> None:
        if planted:
            run(runner, log, work, bars, *more, **others)
            return
        planted.append(work.head.job)
        protocol.abort(log, work.head.job, "somebody gave it up")
        with monkeypatch.context() as patch:
            patch.setattr(protocol, "commit", killed)
            with pytest.raises(KeyboardInterrupt):
                Ledger(dest).retry(source, **HERE)

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("quire.ledger.job.jobs.run", thwarted)
    done = ledger.retry(source, **HERE)
    assert (done.gathered, done.quarantined) == (1, 2)
    assert ledger.summary().files == 2
    quire.recover(dest, abort="open")
    check(source, dest, None)
