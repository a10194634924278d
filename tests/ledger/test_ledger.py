"""The ledger: where every file is, what is in it, why one was quarantined, and whether the data files still hold what they should."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import quire
from checker import check, look, tree, unchanged
from gathering import documents, gather, refused, write
from quire import Ledger, LocalRunner
from quire.commit import protocol
from quire.errors import QuireError, UsageError
from quire.ledger.ledger import Location, _check_whole
from quire.sources import transforms
from quire.sources.splits import FileInfo
from quire.storage import connect
from quire.storage.local import LocalStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = {
    **documents(40),
    "d0/empty": b"",
    "d1/no end": b"no end",
    "d1/binary": bytes(range(256)) * 20,
    "d2/big": b"0123456789abcde\n" * 90_000,  # longer than a frame
    "d2/random": os.urandom(1_200_000),
}
KINDS = [("raw", "raw", "none"), ("raw", "raw", "gzip"), ("raw", "raw", "zstd"), ("raw", "parquet", "zstd"), ("raw", "parquet", "none")]


def one_commit(tmp_path: Path, transform: str, format: str, compression: str, **settings: Any) -> tuple[Path, Ledger]:
    source = write(tmp_path / "in", FILES)
    gather(source, tmp_path / "out", transform=transform, format=format, compression=compression, **settings)
    return source, Ledger(tmp_path / "out")


def test_whoever_looks_again_learns_that_a_destination_was_deleted_or_begun_anew(tmp_path: Path) -> None:
    for name in ("a", "b"):
        gather(write(tmp_path / "in", {name: b"1\n"}), tmp_path / "out")
    asleep, ledger = Ledger(tmp_path / "out"), Ledger(tmp_path / "out")
    assert ledger.is_current()
    shutil.rmtree(tmp_path / "out")
    assert not ledger.is_current()
    assert (ledger.refresh().is_current(), ledger.summary().files) == (True, 0)
    gather(write(tmp_path / "new", {"c": b"1\n"}), tmp_path / "out")
    assert not ledger.is_current()
    assert not asleep.is_current(), "it has fewer entries now"
    assert asleep.refresh().summary().files == 1


# ------------------------------------------------------------------------------------------------------ every file of every commit


@pytest.mark.nth(12)
@pytest.mark.parametrize(("transform", "format", "compression"), KINDS)
@pytest.mark.parametrize("target", ["256 MiB", "300 KB"])
def test_the_original_bytes_of_every_file_come_back(tmp_path: Path, transform: str, format: str, compression: str, target: str) -> None:
    source, ledger = one_commit(tmp_path, transform, format, compression, target_size=target)
    check(source, tmp_path / "out", unchanged)
    for path, content in tree(source).items():
        assert ledger.read(path) == content
        with ledger.open(path) as stream:
            assert stream.read(7) + stream.read() == content
    assert ledger.verify(spark=LocalRunner()).ok


@pytest.mark.parametrize(
    ("version", "size"),
    [
        ("1795456796000000000-9", 9), ("-315619200000000000-9", 9), ("1795456796000-9-16431", 9),
        ("xxh3-128:0123456789abcdef0123456789abcdef-9", 9),
        ('"d41d8cd98f00b204e9800998ecf8427e-2000"', 0), ("d41d8cd98f00b204e9800998ecf8427e-2000", 0), ("0x8DC0FFEE-9", 0),
    ],
)  # fmt: skip
def test_a_part_of_a_file_is_told_from_all_of_it_by_versions_that_say_its_size(version: str, size: int) -> None:
    """On a disk, of HDFS (they end with the inode's number), and of content; the etag of an object may end with the number of its parts."""
    for length in (4, 9):
        found = [Location("p", version, 0, length, "done", None, "f", 0, 0, length, 1, "0", 1, "a")]
        if length < size:
            with pytest.raises(QuireError, match="only a part of p was gathered"):
                _check_whole(found)
        else:
            _check_whole(found)


@pytest.mark.nth(3)
@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_of_other_transforms_the_written_record_comes_back(tmp_path: Path, compression: str) -> None:
    source, ledger = one_commit(tmp_path, "lines", "lines", compression, target_size="300 KB")
    for path, content in tree(source).items():
        assert ledger.read(path) == content, "without the newline that its last line was given"
    convert: dict[str, Callable[[bytes], Any]] = {"xml": transforms.xml, "json": lambda c: b"\n".join(transforms.json(c))}
    for kind, laid_out in [("xml", "lines"), ("xml", "parquet"), ("json", "lines"), ("json", "parquet")]:
        source = write(tmp_path / kind, {**documents(9, kind), **({"many.json": b'{"a": 1}\n{"a": 2}'} if kind == "json" else {})})
        gather(source, tmp_path / "o" / laid_out / kind, transform=kind, format=laid_out, compression=compression)
        ledger = Ledger(tmp_path / "o" / laid_out / kind)
        for path, content in tree(source).items():
            record = convert[kind](content)
            assert ledger.read(path).removesuffix(b"\n") == record
        assert ledger.verify(spark=LocalRunner()).ok


def own_rows(content: bytes, file: FileInfo) -> pa.RecordBatch:
    return pa.record_batch({"n": [1, 2], "name": [file.name] * 2})


def test_rows_of_ones_own_are_verified_and_read_through_spark_only(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(5))
    gather(source, tmp_path / "out", transform=own_rows, format="parquet")
    ledger = Ledger(tmp_path / "out")
    assert ledger.verify(spark=LocalRunner()).files == 5
    assert ledger.locate(source / "d0/f0000.txt")[0].records == 2
    with refused(UsageError, 2, "2 rows", "quire.read"):
        ledger.read(source / "d0/f0000.txt")


def test_every_file_of_every_commit_is_there_with_all_that_is_known(tmp_path: Path, spark: SparkSession) -> None:
    source = write(tmp_path / "in", {**documents(20, "xml"), "bad.xml": b"<a>"})
    gather(source, tmp_path / "out", transform="xml", compression="gzip")
    write(source, {"late.xml": b"<late/>", "empty.xml": b""})
    gather(source, tmp_path / "out", transform="xml", compression="gzip")
    ledger, found = Ledger(tmp_path / "out"), look(tmp_path / "out")
    frame = ledger.inspect.splits(as_="spark", spark=spark)
    assert frame.columns == [*Location.__dataclass_fields__]
    rows = {row.path: row.asDict() for row in frame.collect()}
    assert rows.keys() == {f"file://{p}" for p in tree(source)}
    for row in found.rows:
        mine = rows[row["path"]]
        assert ledger.locate(row["path"]) == [Location(**mine)]
        expected = {
            k: row[k] for k in ("version", "start", "length", "state", "reason", "data_file", "offset", "skip", "written", "records")
        }
        assert {k: mine[k] for k in expected} == expected
        assert mine["checksum"] == (None if row["checksum"] is None else f"{row['checksum']:016x}")
        assert mine["attempt"]
    late = {row["path"].rpartition("/")[2] for row in rows.values() if row["commit"] == 3}
    assert late == {"late.xml", "empty.xml"}
    bad = ledger.inspect.splits("state = 'quarantined'", "spark", spark=spark)
    assert sorted(r.path.rpartition("/")[2] for r in bad.collect()) == ["bad.xml", "empty.xml"]
    with refused(UsageError, 2, "where=", "data_file"):
        ledger.inspect.splits("colour = 'red'", "spark", spark=spark)
    with refused(UsageError, 2, "where="):
        ledger.inspect.splits("state === ", "spark", spark=spark)


def test_a_long_file_is_one_location_a_range_and_reads_as_one(tmp_path: Path) -> None:
    content = os.urandom(1_000_000)
    source = write(tmp_path / "in", {"long": content, "short": b"s"})
    gather(source, tmp_path / "out", transform="raw", target_size="300 KB", compression="zstd")
    ledger = Ledger(tmp_path / "out")
    found = ledger.locate(source / "long")
    assert len(found) == 4
    assert [x.start for x in found] == [250_000 * i for i in range(4)]
    assert sum(x.length for x in found) == len(content)
    assert ledger.read(source / "long") == content
    assert ledger.summary().files == 2


def test_a_part_of_a_file_is_never_given_for_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "in", {"long": b"a" * 400_000 + b"b" * 400_000})
    read_many, seen = LocalStore.read_many, list[int]()

    def rewritten_between_two_tasks(self: LocalStore, requests: Any) -> Any:
        if "plan" not in str(self) and self.root == str(source):
            seen.append(1)
            if len(seen) == 3:  # the first look is the plan's, at how the file begins
                (source / "long").write_bytes(b"new")
        return read_many(self, requests)

    monkeypatch.setattr(LocalStore, "read_many", rewritten_between_two_tasks)
    gather(source, tmp_path / "out", transform="raw", target_size="400 KB")
    ledger = Ledger(tmp_path / "out")
    assert [x.start for x in ledger.locate(source / "long")] == [0]
    with refused(QuireError, 3, "only a part", "long"):
        ledger.read(source / "long")


# ----------------------------------------------------------------------------------------------------------------- how it is called


def test_a_path_may_be_given_in_any_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "real/in", {"d/f": b"content\n", "elsewhere/x": b"through a link\n"})
    (tmp_path / "linked").symlink_to(tmp_path / "real")
    outside = write(tmp_path / "outside", {"o": b"outside\n", "deep/p": b"deep\n"})
    (source / "to").symlink_to(outside)
    (source / "one").symlink_to(outside / "o")
    gather(tmp_path / "linked/in", tmp_path / "out", follow_links=True)
    ledger = Ledger(tmp_path / "out")
    monkeypatch.chdir(source)
    forms: list[Any] = [
        source / "d/f", str(source / "d/f"), "d/f", "./d/../d/f", f"file://{source}/d/f", f"file:{source}/d/f", f"FILE://{source}/d/f",
        f"file://localhost{source}/d/f", tmp_path / "linked/in/d/f", f"file://{tmp_path}/linked/in/d/f", os.fsencode(source / "d/f"),
    ]  # fmt: skip
    for form in forms:
        assert ledger.read(form) == b"content\n", form
    for name, content in {"to/o": b"outside\n", "to/deep/p": b"deep\n", "one": b"outside\n"}.items():
        for form in (source / name, name, tmp_path / "linked/in" / name, f"file://{tmp_path}/linked/in/{name}"):
            assert ledger.read(form) == content, "a link that was followed keeps its own name"


NAMES = [
    b"\xff\xfe",
    b"half \xc3",
    b"new\nline",
    b"%41%2F",
    "Süd %".encode(),
    b"two  words ",
    b"\xef\x9e\x80",
    b"a*?[b]",
    b"~",
    b"file:",
    b"C:",
    b"<b>",
]


def test_odd_names_are_found_as_they_are_on_disk_and_as_the_ledger_shows_them(tmp_path: Path) -> None:
    source = os.fsencode(tmp_path / "in")
    os.mkdir(source)
    for i, name in enumerate(NAMES):
        Path(os.fsdecode(source + b"/" + name)).write_bytes(b"%d\n" % i)
    gather(tmp_path / "in", tmp_path / "out")
    ledger = Ledger(tmp_path / "out")
    for i, name in enumerate(NAMES):
        path = source + b"/" + name
        shown = ledger.locate(path)[0].path
        for form in (path, os.fsdecode(path), Path(os.fsdecode(path)), shown, shown.removeprefix("file://")):
            assert ledger.read(form) == b"%d\n" % i, form


def test_what_is_not_in_it_is_one_clear_line(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {**documents(5, "xml"), "bad\n.xml": b"<a>", "_hidden": b""})
    gather(source, tmp_path / "out", transform="xml")
    ledger = Ledger(tmp_path / "out")
    for unknown in (source / "nothing", source / "_hidden", source / "d0", "relative", f"file://{source}/f\n", tmp_path / "f\udcff"):
        with refused(UsageError, 2, "is not in the ledger of", str(tmp_path / "out")):
            ledger.read(unknown)
    for odd in (None, 3, "", "nosuch://x/y"):
        with refused(UsageError, 2):
            ledger.locate(odd)  # type: ignore[arg-type]
    for call in (ledger.read, ledger.open):
        with refused(QuireError, 3, "bad\\n.xml", "is quarantined", "its source"):
            call(source / "bad\n.xml")


def test_where_no_ledger_is_one_clear_line(tmp_path: Path) -> None:
    write(tmp_path / "full", {"a": b"a"})
    for place in ("full", "nothing"):
        with refused(UsageError, 2, "holds no ledger", place):
            Ledger(tmp_path / place)
    with refused(UsageError, 2, "holds no ledger"):
        Ledger("memory://nothing-here")
    assert not (tmp_path / "nothing").exists()


# ------------------------------------------------------------------------------------------------------------------------ numbers


def numbers(dest: Path) -> dict[str, Any]:
    """What the summary should say, counted from the files."""
    found = look(dest)
    done = [r for r in found.rows if r["state"] == "done"]
    return {
        "files": len({r["path"] for r in done}), "bytes_read": sum(r["length"] for r in done), "quarantined": len(found.quarantined),
        "data_files": len(found.data), "bytes_written": sum((dest / n).stat().st_size for n in found.data),
        "ledger_rows": len(found.rows), "version": len(found.entries),
    }  # fmt: skip


def test_the_summary_agrees_with_an_independent_count_over_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest = write(tmp_path / "in", {**documents(30, "xml"), "bad.xml": b"<a>", "worse.xml": b"<"}), tmp_path / "out"
    gather(source, dest, transform="xml", target_size="200 B")
    ledger = Ledger(dest)

    def agree(**more: Any) -> None:
        summary = ledger.refresh().summary()
        expected = {**numbers(dest), **more}
        assert {k: getattr(summary, k) for k in expected} == expected
        assert len(ledger.inspect.quarantined()) == summary.quarantined
        assert json.loads(json.dumps(summary.as_dict())) == {**summary.as_dict(), "open_jobs": list(summary.open_jobs)}

    agree(
        commits=1, unpublished=0, open_jobs=(), files=30, quarantined=2, transform="xml", format="lines", compression="none", layout="flat"
    )
    (source / "bad.xml").write_bytes(b"<repaired/>")
    gather(source, dest, transform="xml")
    agree(commits=2, files=31, quarantined=1)
    (source / "worse.xml").write_bytes(b"<still bad>")
    gather(source, dest, transform="xml")
    agree(commits=3, files=31, quarantined=1)
    write(source, {"more.xml": b"<more/>"})
    with monkeypatch.context() as patch:
        patch.setattr(protocol, "commit", lambda *_, **__: (_ for _ in ()).throw(QuireError("stop")))
        with pytest.raises(QuireError, match="stop"):
            gather(source, dest, transform="xml")
    (job,) = ledger.refresh().summary().open_jobs
    agree(commits=3, open_jobs=(job,))
    assert job in str(ledger.summary())
    gather(source, dest, transform="xml")
    agree(commits=4, files=32, open_jobs=())
    history = ledger.inspect.history()
    assert list(history.version) == list(range(1, 9))
    assert list(history.kind) == ["commit", "published"] * 4
    assert list(history.files)[::2] == [30, 1, 0, 1]
    assert list(history.quarantined)[::2] == [2, 0, 1, 0]
    assert set(history.columns) == {
        "version", "kind", "verb", "job", "time", "tasks", "files", "bytes", "data_files", "quarantined", "deferred", "note",
    }  # fmt: skip


def test_failed_says_which_file_why_and_by_which_attempt(tmp_path: Path) -> None:
    source = write(
        tmp_path / "in", {**documents(5, "xml"), "a/open.xml": b"<a>", "b/empty.xml": b"", "long.xml": b"<a>" + b" " * 3000 + b"</a>"}
    )
    gather(source, tmp_path / "out", transform="xml", max_file_size="2000 B")
    failed = Ledger(tmp_path / "out").inspect.quarantined().set_index("path")
    assert list(failed.columns) == ["version", "start", "length", "reason", "tries", "attempt", "commit", "member"]
    assert {p.rpartition("/in/")[2] for p in failed.index} == {"a/open.xml", "b/empty.xml", "long.xml"}
    assert "max_file_size" in failed.reason[f"file://{source}/long.xml"]
    assert failed.reason.str.len().between(5, 300).all()
    attempts = {p.stem.rpartition("-")[2] for p in (tmp_path / "out/_quire/ledger").iterdir()}
    assert set(failed.attempt) <= attempts
    assert failed.length[f"file://{source}/a/open.xml"] == 3
    gather(write(tmp_path / "good", documents(2)), tmp_path / "fine")
    assert len(Ledger(tmp_path / "fine").inspect.quarantined()) == 0
    assert list(Ledger(tmp_path / "fine").inspect.quarantined().columns) == [
        "path",
        "version",
        "start",
        "length",
        "reason",
        "tries",
        "attempt",
        "commit",
        "member",
    ]


def test_before_the_first_commit_the_ledger_is_empty(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "in", documents(3))
    with monkeypatch.context() as patch:
        patch.setattr(protocol, "commit", lambda *_, **__: (_ for _ in ()).throw(QuireError("stop")))
        with pytest.raises(QuireError, match="stop"):
            gather(source, tmp_path / "out")
    ledger = Ledger(tmp_path / "out")
    assert (
        ledger.version,
        len(ledger.inspect.history()),
        len(ledger.inspect.quarantined()),
        ledger.inspect.splits(as_="spark", spark=spark).count(),
    ) == (0, 0, 0, 0)
    assert len(ledger.summary().open_jobs) == 1
    assert ledger.verify(spark=LocalRunner()).ok
    assert ledger.skew().parts == 0
    with refused(UsageError, 2, "is not in the ledger"):
        ledger.read(source / "d0/f0000.txt")


@pytest.mark.nth(4)
@pytest.mark.parametrize("planner", ["balanced", "hash", "directory"])
def test_skew_is_that_of_the_last_commit(tmp_path: Path, planner: str) -> None:
    even = {f"d{i % 4}/f{i}": b"x" * 100 for i in range(400)}
    source = write(tmp_path / "in", even)
    report = gather(source, tmp_path / "out", planner=planner, target_size="10 KB", layout="directories")
    skew = Ledger(tmp_path / "out").skew()
    assert report.skew is not None
    assert (skew.verdict, skew.parts, skew.total) == (report.skew.verdict, report.skew.parts, report.skew.total)
    assert skew.total == {"balanced": 40_000, "hash": 400, "directory": 40_000}[planner]
    assert skew.verdict == "even"
    write(source, {f"d0/g{i}": b"y" * 100 for i in range(40)} | {"d1/heavy": b"z" * 900_000})
    gather(source, tmp_path / "out", planner=planner, target_size="1 MB", layout="directories")
    assert Ledger(tmp_path / "out").skew().total == {"balanced": 904_000, "hash": 41, "directory": 904_000}[planner]


# ------------------------------------------------------------------------------------------------------------------------ a notebook


def test_nothing_that_a_name_holds_becomes_html(tmp_path: Path) -> None:
    name = "<script>alert(1)&'\"\n.xml"
    source = write(tmp_path / "<b>in", {name: b"<", f"ok{name}": b"<a/>"})
    dest = tmp_path / "<i>out&"
    report = gather(source, dest, transform="xml")
    ledger = Ledger(dest)
    (data,) = dest.glob("part-*")
    data.write_bytes(b"")
    shown = [
        report, ledger, ledger.summary(), ledger.verify(spark=LocalRunner()), ledger.skew(), quire.recover(dest),
        quire.plan(source, tmp_path / "<u>", spark=LocalRunner(), progress=False),
    ]  # fmt: skip
    for thing in shown:
        page = thing._repr_html_()
        for tag in ("<script", "<b>", "<i>", "<u>"):
            assert tag not in page
        assert "&lt;" in page or thing is shown[4]
        assert repr(thing).isprintable()
    assert "alert(1)&'\"\\n.xml" in str(shown[3]), "one line for each damaged file"
    assert repr(ledger) == f"Ledger('file://{dest}', version=2)"


def test_a_ledger_in_memory(tmp_path: Path) -> None:
    store = connect("memory://ledger-test/in")
    store.put("d/x", b"content")
    gather("memory://ledger-test/in", "memory://ledger-test/out", transform="raw")
    ledger = Ledger("memory://ledger-test/out")
    assert ledger.read("memory://ledger-test/in/d/x") == b"content"
    assert ledger.verify(spark=LocalRunner()).ok
    with refused(UsageError, 2, "is not in the ledger"):
        ledger.read("memory://ledger-test/in/y")
