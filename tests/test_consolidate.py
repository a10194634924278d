"""The main job: every byte once, found again, whatever the transform, the format, the compression and the names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from checker import check, look, tree, unchanged
from gathering import documents, gather, not_taken, refused, write
from gathering import look as plan
from quire.errors import UsageError
from quire.sources import transforms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINES = {
    "a/one.txt": b"1\n2\n", "a/no newline.txt": b"1\n2", "a/empty.txt": b"", "b/c/newlines.txt": b"\n\n", "b/cr.txt": b"1\r\n2\r",
    "top.bin": bytes(range(256)) * 20, "b/long.txt": b"x" * (3 << 20), "b/lines.txt": b"some line\n" * 200_000,
}  # fmt: skip


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
@pytest.mark.parametrize("transform", ["lines", "raw"])
def test_every_byte_of_lines_and_raw_files_is_there_once(tmp_path: Path, transform: str, compression: str) -> None:
    source = write(tmp_path / "in", LINES)
    report = gather(source, tmp_path / "out", transform=transform, compression=compression)
    found = check(source, tmp_path / "out", *([unchanged] if transform == "raw" else []))
    assert report.files == len(LINES) == len(found.done)
    assert report.bytes == sum(map(len, LINES.values()))
    assert report.written == sum(found.data.values())
    assert report.data_files == len(found.data)
    assert (not_taken(report), report.deferred, report.version) == (0, (), 2)


@pytest.mark.nth(2)
@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
@pytest.mark.parametrize("format", ["lines", "parquet"])
@pytest.mark.parametrize("transform", ["xml", "json"])
def test_documents_become_records_and_broken_ones_are_set_aside(tmp_path: Path, transform: str, format: str, compression: str) -> None:
    files = {**documents(40, transform), f"d0/broken.{transform}": b"<a>", f"d1/empty.{transform}": b""}
    source = write(tmp_path / "in", files)
    report = gather(source, tmp_path / "out", transform=transform, format=format, compression=compression)
    convert = {"xml": transforms.xml, "json": lambda c: b"\n".join(transforms.json(c))}[transform]
    end = b"\n" if format == "lines" else b""
    found = check(source, tmp_path / "out", lambda content: convert(content) + end)
    assert report.files == 40
    assert not_taken(report) == 2
    assert {Path(p).name for p in found.quarantined} == {f"broken.{transform}", f"empty.{transform}"}
    assert dict(report.quarantined).keys() == {f"file://{p}" for p in found.quarantined}


@pytest.mark.parametrize("compression", [None, "none", "gzip"])
def test_raw_content_goes_into_parquet_with_its_path_and_time(tmp_path: Path, compression: str | None) -> None:
    source = write(tmp_path / "in", {**documents(30), "empty": b""})
    gather(source, tmp_path / "out", transform="raw", format="parquet", compression=compression)
    found = check(source, tmp_path / "out", unchanged)
    (name,) = found.data
    assert name.endswith({None: ".zst.parquet", "none": ".parquet", "gzip": ".gz.parquet"}[compression])
    rows = pq.read_table(tmp_path / "out" / name).to_pylist()
    assert len(rows) == 31
    for row in rows:
        assert abs(row["modified"].timestamp() - os.stat(row["path"].removeprefix("file://")).st_mtime) < 1e-5


def test_a_second_run_gathers_nothing_and_changes_nothing(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {**documents(20, "xml"), "bad.xml": b"<", "empty.xml": b""})
    gather(source, tmp_path / "out", transform="xml")
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*") if p.is_file()}
    report = gather(source, tmp_path / "out", transform="xml")
    assert (report.files, report.bytes, report.data_files, report.jobs) == (0, 0, 0, ())
    assert report.skipped == 22
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*") if p.is_file()} == before


def test_only_new_files_are_gathered_also_late_ones_in_old_directories(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(20))
    gather(source, tmp_path / "out")
    write(source, {"d0/a late one": b"late", "new/x": b"x", "d1/deep/y": b"y"})
    report = gather(source, tmp_path / "out")
    assert (report.files, report.skipped) == (3, 20)
    (source / "d0" / "f0000.txt").unlink()  # what is gone from the source stays gathered
    content = {f"{source}/d0/f0000.txt": documents(1)["d0/f0000.txt"], **tree(source)}
    assert gather(source, tmp_path / "out").files == 0
    check(content, tmp_path / "out")


def test_all_of_it_on_spark(tmp_path: Path, spark: SparkSession) -> None:
    source = write(tmp_path / "in", {**documents(300, "xml"), "bad.xml": b"<a>", "é\n%.xml": b"<a/>"})
    report = gather(source, tmp_path / "out", spark=spark, transform="xml", target_size="2KB")
    assert (report.files, not_taken(report)) == (301, 1)
    assert report.data_files > 3
    check(source, tmp_path / "out", lambda c: transforms.xml(c) + b"\n")
    assert gather(source, tmp_path / "out", spark=spark, transform="xml", target_size="2KB").files == 0


def test_a_memory_store_works_without_spark() -> None:
    import uuid

    from quire.storage import connect

    name = uuid.uuid4().hex
    source = connect(f"memory://{name}/in")
    for i in range(10):
        source.put(f"a/{i}", b"%d\n" % i)
    assert gather(f"memory://{name}/in", f"memory://{name}/out").files == 10
    assert gather(f"memory://{name}/in", f"memory://{name}/out").files == 0
    (data,) = (e.name for e in connect(f"memory://{name}/out").walk() if not e.name.startswith("_quire/"))
    assert connect(f"memory://{name}/out").get(data) == b"".join(b"%d\n" % i for i in range(10))


# ------------------------------------------------------------------------------------------------------------ which files


def names(dest: Path, source: Path) -> set[str]:
    return {os.path.relpath(p, source) for p in look(dest).done}


def test_include_and_exclude_are_globs_about_names_or_whole_paths(tmp_path: Path) -> None:
    source = write(
        tmp_path / "in", dict.fromkeys(["a.xml", "b.txt", "d/c.xml", "d/tmp-e.xml", "dt=1/x.json", "dt=2/x.json", "e/dt=1/x.json"], b"1")
    )
    gather(source, tmp_path / "1", include="*.xml", exclude=["tmp-*"])
    assert names(tmp_path / "1", source) == {"a.xml", "d/c.xml"}
    gather(source, tmp_path / "2", include=["dt=*/*.json", "b.???"])
    assert names(tmp_path / "2", source) == {"dt=1/x.json", "dt=2/x.json", "b.txt"}
    gather(source, tmp_path / "3", exclude="**/*.json")
    assert names(tmp_path / "3", source) == {"a.xml", "b.txt", "d/c.xml", "d/tmp-e.xml"}


def test_names_with_an_underscore_or_a_dot_are_hidden_unless_asked_for(tmp_path: Path) -> None:
    shown = ["a", "_year=1/b", "c_/_d=e"]
    hid = ["_SUCCESS", ".crc", "_temporary/0/x", ".git/x", "d/_x", "copy._COPYING_"]
    source = write(tmp_path / "in", dict.fromkeys(shown + hid, b"1"))
    report = gather(source, tmp_path / "1")
    assert (report.files, report.hidden) == (3, 6), "a hidden directory counts as one"
    assert "6 (hidden=True takes them)" in str(report)
    assert "6 (hidden=True takes them)" in str(plan(source, tmp_path / "1"))
    assert names(tmp_path / "1", source) == set(shown)
    assert gather(source, tmp_path / "2", hidden=True).hidden == 0
    assert names(tmp_path / "2", source) == set(shown + hid)


def test_files_that_are_too_young_wait_for_another_run(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(5))
    (source / "young").write_bytes(b"1")
    report = gather(source, tmp_path / "out", min_age="30 s")
    assert (report.files, report.young) == (5, 1)
    os.utime(source / "young", (time.time() - 40,) * 2)
    assert gather(source, tmp_path / "out", min_age="30 s").files == 1
    check(source, tmp_path / "out")


def test_links_are_followed_only_when_asked_and_loops_end(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"d/a": b"a", "d/e/b": b"b"})
    elsewhere = write(tmp_path / "elsewhere", {"x": b"x", "deep/y": b"y"})
    (source / "file").symlink_to(elsewhere / "x")
    (source / "nothing").symlink_to(tmp_path / "nothing")
    (source / "d" / "e" / "up").symlink_to(source / "d")
    (source / "top").symlink_to(source)
    (source / "there").symlink_to(elsewhere)
    (elsewhere / "back").symlink_to(source)
    report = gather(source, tmp_path / "1")
    assert (report.files, report.links) == (2, 5)
    report = gather(source, tmp_path / "2", follow_links=True)
    assert sorted(r["path"].rpartition("/in/")[2] for r in look(tmp_path / "2").rows) == [
        "d/a", "d/e/b", "file", "there/deep/y", "there/x",
    ]  # fmt: skip
    assert gather(source, tmp_path / "2", follow_links=True).files == 0


def test_several_sources_nested_ones_and_globs_take_each_file_once(tmp_path: Path) -> None:
    one = write(tmp_path / "one", {"a/x": b"1", "a/b/y": b"2", "z[1]/x": b"3", "c/x": b"4"})
    two = write(tmp_path / "two", {"x": b"5"})
    report = gather([two, one, one / "a", f"{one}/a/b/", (str(one), {})], tmp_path / "1")
    assert report.files == 5
    check({**tree(one), **tree(two)}, tmp_path / "1")
    assert gather([f"{one}/a", f"{one}/*/x"], tmp_path / "2").files == 4
    assert names(tmp_path / "2", one) == {"a/x", "a/b/y", "z[1]/x", "c/x"}
    assert gather(f"{one}/z[1]", tmp_path / "3").files == 1, "a directory that has such a name is meant"
    assert gather(f"{one}/[ac]/*", tmp_path / "4").files == 3, "a directory that a glob names is taken whole"
    with refused(UsageError, 2, "/no*/x' matches none of the names"):
        gather(f"{one}/no*/x", tmp_path / "5")
    assert gather([one / "a", one / "c"], tmp_path / "6").files == 3
    assert gather(one, tmp_path / "6").files == 1, "the path is the key, not the source that it was found by"


NAMES = [
    b"new\nline",
    b"quote'\"`$x",
    b"%41%2F",
    b"..a",
    b"a..",
    b"...",
    b"x" * 255,
    b"\xff\xfe not UTF-8",
    b"half \xc3",
    b"two words",
    "Süd/Größe".encode(),
    b"\xef\x9e\x80 private",
    b"tab\t",
    b"back\\slash",
    b"-rf",
    b"a*?[b]",
    b"\xe2\x80\xae",
    b"\x01\x7f",
    b"C:",
    b"file:",
    b"a=b=c",
    b"{x}",
    b"~",
]


def test_names_of_any_bytes_are_gathered_and_shown_in_one_line(tmp_path: Path) -> None:
    source = os.fsencode(tmp_path / "in")
    for i, name in enumerate(NAMES):
        for folder in (b"", b"d/" + name.replace(b"/", b"") + b"/" if len(name) < 200 else b""):
            path = source + b"/" + folder + name
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(b"%d" % i)
    report = gather(tmp_path / "in", tmp_path / "out", layout="directories", hidden=True)
    assert report.files == len(NAMES) * 2 - 1
    content = tree(tmp_path / "in", hidden=True)
    assert len(content) == report.files
    check(content, tmp_path / "out")
    assert gather(tmp_path / "in", tmp_path / "out", layout="directories", hidden=True).files == 0


def test_the_report_and_its_html_escape_every_name(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"<script>alert(1)<&\n>.xml": b"<", "ok.xml": b"<a/>"})
    report = gather(source, tmp_path / "out", transform="xml")
    assert "<script>" not in report._repr_html_()
    assert "&lt;script&gt;" in report._repr_html_()
    assert "\n" not in repr(report)
    assert json.loads(json.dumps(report.as_dict()))["quarantined_count"] == 1
    assert "quarantined" in str(report)
    assert r"alert(1)<&\n>.xml" in str(report), "a newline in a name breaks no line of the report"
    assert sys.getsizeof(str(report)) < 10_000


def test_no_thread_is_left_that_could_abort_the_interpreter_at_its_end(tmp_path: Path) -> None:
    """A thread of Arrow's that still holds a Python object when the interpreter ends aborts the process, its work well done."""
    script = """
import os, sys, threading, quire, pyarrow.compute, pyarrow.parquet
source, dest = sys.argv[1:]
for i in range(9):
    with open(f"{source}/{i}", "wb") as out:
        out.write(b"a line")
def threads():
    return len(os.listdir("/proc/self/task")) - threading.active_count()  # those that Python does not know
before = threads()
for _ in range(2):
    quire.consolidate(source, dest, spark=quire.LocalRunner(), target_size="12 B", progress=False)
ledger = quire.Ledger(dest)
assert ledger.verify(spark=quire.LocalRunner()).ok and len(ledger.inspect.quarantined()) == 0 and ledger.read(f"{source}/3") == b"a line"
print(threads() - before)
"""
    (tmp_path / "in").mkdir()
    command = [sys.executable, "-c", script, str(tmp_path / "in"), str(tmp_path / "out")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout.strip(), ended.stderr) == (0, "0", "")
