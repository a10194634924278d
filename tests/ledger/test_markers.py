"""Markers: empty files by which a Hadoop job and a ledger tell one another which splits are done, each in its own way, and both alike."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import quire
from checker import tree, with_newline
from gathering import documents, gather, not_taken, refused, snapshot, write
from quire import Ledger, LocalRunner
from quire.commit import protocol
from quire.errors import QuireError, RefusedError, UsageError
from quire.ledger import identifiers, markers
from quire.ledger.identifiers import identifier, parsed
from quire.planning import pieces
from quire.read import first_rows
from quire.storage import connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE: dict[str, Any] = {"spark": LocalRunner(), "progress": False}
LONG = "/data/" + "/".join("ordner mit ümlaut" for _ in range(40)) + "/a.txt"


def mark(folder: Path, *splits: tuple[Path, int, int]) -> Path:
    """What an old job leaves: its own output, and an empty file a split."""
    write(folder, {"_SUCCESS": b"", "_temporary/0/%2Fnot%2Fcommitted@0@1": b"", ".x.crc": b"crc"})
    for path, start, length in splits:
        name = folder / identifier(str(path), start, length)
        name.parent.mkdir(parents=True, exist_ok=True)
        name.touch()
    return folder


def whole(*paths: Path) -> list[tuple[Path, int, int]]:
    return [(path, 0, path.stat().st_size) for path in paths]


def shown(folder: Path) -> set[tuple[str, int, int]]:
    return {parsed(os.path.relpath(p, folder)) for p in folder.rglob("*") if p.is_file() and not p.name.startswith(("_", "."))}


def read(dest: Path) -> list[bytes]:
    return sorted(first_rows(Ledger(dest)._store, 1 << 30))


# ------------------------------------------------------------------------------------------------------------------------- names
@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/data/in/a_1-b.txt", "%2Fdata%2Fin%2Fa_1-b.txt@0@5"),
        ("/a b+c*d~@@0", "%2Fa%20b%2Bc%2Ad%7E%40%400@0@5"),
        ("/Größe", "%2FGr%C3%B6%C3%9Fe@0@5"),
        ("/" + "x" * 300, "%2F" + "x" * 197 + "/+" + "x" * 103 + "@0@5"),
        ("/" + "x" * 197, "%2F" + "x" * 197 + "@0@5"),
    ],
)
def test_a_name_is_what_the_rule_says(path: str, name: str) -> None:
    assert identifier(path, 0, 5) == name
    assert parsed(name) == (path, 0, 5)


def test_every_name_means_one_split_and_none_is_too_long_for_a_file_system() -> None:
    for path in (LONG, "/new\nline", "/\u00e9", "/e\u0301", "/a@1@2", "/.hidden", "/%2F", "/" + "\U0001f600" * 900):
        for start, length in ((0, 0), (10**17, 10**17)):
            name = identifier(path, start, length)
            assert parsed(name) == (path, start, length)
            assert max(map(len, name.split("/"))) <= 241
            assert name.isascii()


@pytest.mark.parametrize(
    "name",
    [
        "part-00000", "%2Fa", "%2Fa@0", "%2Fa@0@", "%2Fa@-1@5", "%2Fa@00@5", "/a@0@5", "%2fa@0@5", "%2Fa~@0@5", "a@0@5", "%2F%FF@0@5",
        "%2Fa@0@5@6", "%2Fa@0@٣", "x/%2Fa@0@5", "%2Fa/+b@0@5", "%2Fa@0@9999999999999999999", "%2@0@5", "@0@5",
    ],
)  # fmt: skip
def test_what_is_no_name_is_told_from_one(name: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parsed(name)


def test_hadoops_splits() -> None:
    assert list(markers.hadoop_splits(0, 10)) == [(0, 0)]
    assert list(markers.hadoop_splits(11, 10)) == [(0, 11)], "the last one may be a tenth longer"
    assert list(markers.hadoop_splits(32, 10)) == [(0, 10), (10, 10), (20, 10), (30, 2)]


# ---------------------------------------------------------------------------------------------------------------------------- in
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_what_an_old_job_has_done_is_not_read_again(tmp_path: Path, compression: str) -> None:
    source, dest = write(tmp_path / "in", {**documents(6), "d0/empty": b"", "ü b/c+.txt": b"c\n"}), tmp_path / "out"
    done = [source / "d0/f0000.txt", source / "d1/f0001.txt", source / "d0/empty", source / "ü b/c+.txt"]
    ledger = Ledger(dest, create=True)
    found = ledger.import_markers(mark(tmp_path / "markers", *whole(*done)), source, **HERE)
    assert (found.gathered, found.left, len(found.jobs)) == (4, (), 1)
    assert ledger.summary().ledger_rows == 4
    assert (ledger.summary().files, ledger.summary().bytes_written) == (4, 0), "they are done, and nothing of them is here"
    report = gather(source, dest, compression=compression)
    assert (report.files, report.skipped) == (4, 4)
    rest = {p: c for p, c in tree(source).items() if Path(p) not in done}
    assert read(dest) == sorted(b"".join(map(with_newline, rest.values())).splitlines())
    (mine,) = ledger.refresh().locate(done[0])
    assert (mine.state, mine.data_file) == ("mark", None)
    assert ledger.verify(spark=LocalRunner()).ok
    again = ledger.import_markers(tmp_path / "markers", source, **HERE)
    assert (again.gathered, again.known, again.jobs) == (0, 4, ())


def test_marks_may_come_after_runs_and_leave_what_is_there(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", documents(3)), tmp_path / "out"
    gather(source, dest)
    write(source, {"new.txt": b"new\n", "newer.txt": b"newer\n"})
    ledger = Ledger(dest)
    found = ledger.import_markers(mark(tmp_path / "m", *whole(source / "d0/f0000.txt", source / "new.txt")), source, **HERE)
    assert (found.gathered, found.known) == (1, 1)
    assert gather(source, dest).files == 1
    assert ledger.refresh().read(source / "d0/f0000.txt") == (source / "d0/f0000.txt").read_bytes()
    ledger.compact(**HERE)
    before = ledger.summary().files
    ledger.forget(source / "new.txt", **HERE)
    assert ledger.summary().files == before - 1
    assert gather(source, dest).files == 1, "what is no longer marked is read"


def test_splits_of_another_size_are_put_together(tmp_path: Path) -> None:
    """The article's rule skips a split only where a job cuts files alike; here it counts where lines begin.

    Hadoop reads a line that begins with a split together with the split before.
    """
    lines = b"".join(b"line %02d\n" % i for i in range(20))
    source, dest = write(tmp_path / "in", {"a.log": lines, "b.log": lines}), tmp_path / "out"
    a, b = source / "a.log", source / "b.log"
    splits = [(a, 0, 64), (a, 64, 64), (a, 128, 32), (a, 0, 100), (b, 32, 32)]
    Ledger(dest, create=True).import_markers(mark(tmp_path / "m", *splits), source, **HERE)
    assert [tuple(row) for row in Ledger(dest).inspect.coverage(a)[["start", "length", "state"]].to_numpy()] == [
        (0, 65, "mark"), (65, 36, "mark"), (101, 28, "mark"), (129, 31, "mark"),
    ]  # fmt: skip
    gather(source, dest, target_size="50 B")
    assert read(dest) == sorted(lines[:40].splitlines() + lines[72:].splitlines())


def hadoop_reads(content: bytes, start: int, length: int) -> list[bytes]:
    """The lines that Hadoop's LineRecordReader gives for a split: all but a first one, up to the one that begins at its end."""
    at, found = 0, list[bytes]()
    for line in content.splitlines(keepends=True):
        if (start < at <= start + length) or start == at == 0:
            found.append(line.rstrip())
        at += len(line)
    return found


@pytest.mark.nth(2)
@pytest.mark.parametrize("block", [7, 8, 20, 21])
def test_every_line_is_done_once_by_a_hadoop_job_or_here(tmp_path: Path, block: int) -> None:
    """Wherever splits begin, also with a line: what the job of the markers has left is read here, and the other way round."""
    content = b"".join(b"%d\n" % (10 ** (i % 7) + i) for i in range(40))
    source, dest = write(tmp_path / "in", {"a.log": content}), tmp_path / "out"
    splits = list(markers.hadoop_splits(len(content), block))
    theirs = [split for i, split in enumerate(splits) if i % 3]
    Ledger(dest, create=True).import_markers(mark(tmp_path / "m", *((source / "a.log", *split) for split in theirs)), source, **HERE)
    gather(source, dest, target_size="50 B")
    assert sorted([*read(dest), *(line for split in theirs for line in hadoop_reads(content, *split))]) == sorted(content.splitlines())
    assert Ledger(dest).export_markers(tmp_path / "m2", split_size=f"{block} B", spark=LocalRunner()).written == len(splits)


def test_markers_are_not_written_among_the_files_that_they_are_of(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", documents(4)), tmp_path / "out"
    gather(source, dest)
    for place in (source, source / "d0"):
        with refused(RefusedError, 2, "Choose a directory"):
            Ledger(dest).export_markers(place, spark=LocalRunner())
    assert sum(p.is_file() for p in source.rglob("*")) == 4
    assert Ledger(dest).export_markers(tmp_path / "m", source=f"{source}/d0/*", spark=LocalRunner()).written == 2, (
        "a glob means what matches it"
    )


def test_what_holds_bytes_as_they_are_takes_splits_as_bytes(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a": b"a", "b": bytes(range(60))}), tmp_path / "out"
    gather(source, dest, transform="raw", include="a")
    Ledger(dest).import_markers(mark(tmp_path / "m", (source / "b", 20, 20)), source, **HERE)
    assert [tuple(row) for row in Ledger(dest).inspect.coverage(source / "b")[["start", "length"]].to_numpy()] == [(0, 20), (20, 20)]


def test_a_marked_part_of_a_document_is_not_left_out_of_it(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", documents(2, "xml")), tmp_path / "out"
    gather(source / "d0", dest, transform="xml")
    part = mark(tmp_path / "m", (source / "d1/f0001.xml", 0, 10))
    found = Ledger(dest).import_markers(part, source, **HERE)
    assert (found.gathered, found.left_count) == (0, 1)
    assert "as a whole" in found.left[0][1]
    assert gather(source, dest, transform="xml").files == 1
    new = Ledger(tmp_path / "new", create=True)
    assert new.import_markers(part, source, **HERE).gathered == 1, "nobody knows yet what will be read there"
    report = gather(source, tmp_path / "new", transform="xml")
    assert (report.files, not_taken(report)) == (1, 1)
    assert "a part of it" in report.quarantined[0][1]


def test_broken_markers_are_told_one_line_each_and_the_others_taken(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {**documents(4), "short": b"abc", "known": b"1\n"}), tmp_path / "out"
    gather(source, dest, include="known")
    write(source, {"known": b"22\n"})
    folder = mark(tmp_path / "m", *whole(source / "d0/f0000.txt"), (source / "gone.txt", 0, 5), (source / "short", 0, 4))
    mark(folder, (source / "short", 1, 0), (tmp_path / "elsewhere", 0, 1), *whole(source / "known", source / "d1/f0001.txt"))
    (folder / "part-r-00000").touch()
    (folder / "bad\nname@1@2").touch()
    (folder / identifier(str(source / "d2/f0002.txt"), 0, 3)).write_bytes(b"x")
    (folder / "to").symlink_to("nowhere")
    old = folder / identifier(str(source / "d1/f0001.txt"), 0, (source / "d1/f0001.txt").stat().st_size)
    os.utime(old, (time.time() - 3600,) * 2)
    before = snapshot(folder)
    found = Ledger(dest).import_markers(folder, source, **HERE)
    assert found.gathered == 1
    why = {parsed(n)[0].rpartition("/")[2] if "@" in n and "\n" not in n else n: w for n, w in _short(folder, found.left)}
    assert {n: w.split(":")[0] for n, w in why.items()} == {
        "gone.txt": "its file is not there", "short": "its file has 3 bytes now", "elsewhere": why["elsewhere"],
        "known": "the ledger knows its file in another version", "f0001.txt": "its file has changed since it was written",
        "part-r-00000": "no marker", "bad\nname@1@2": "no marker", "f0002.txt": "no marker", "to": "a symbolic link, not followed",
    }  # fmt: skip
    assert "does not lie in the source" in why["elsewhere"]
    assert found.left_count == len(found.left) == 10
    assert str(found).count("\n") < 20
    assert all(line.isprintable() for line in str(found).splitlines())
    assert snapshot(folder) == before


def _short(folder: Path, left: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    return [(name.removeprefix(f"file://{folder}/"), why) for name, why in left]


def test_a_name_of_no_file_is_left_out_and_the_others_taken(tmp_path: Path) -> None:
    source, ledger = write(tmp_path / "in", {"a": b"1\n", "b": b"2\n"}), Ledger(tmp_path / "out", create=True)
    folder = mark(tmp_path / "m", *whole(source / "a"))
    for inside in ("//b", "/./b", "/../in/b", "/b/", "/b\0", f"/{'b' * 5_000}"):
        (folder / identifier(f"{source}{inside}"[:4_000], 0, 2)).touch() if len(inside) < 99 else None
    found = ledger.import_markers(folder, source, **HERE)
    assert (found.gathered, found.left_count) == (1, 5)
    assert all("does not lie in the source" in why for _, why in found.left)
    names = {"half": f"{source}/\ud800", "long": f"{source}/{'b' * 5_000}", "no-store": "s3://x/y", "b": f"{source}/b"}
    folder = write(tmp_path / "more", dict.fromkeys(names, b""))
    found = ledger.import_markers(folder, source, parse=lambda name: (names[name], 0, 2), **HERE)
    assert (found.gathered, found.left_count) == (1, 3)
    assert str(found).replace("\n", "").isprintable()


def test_a_file_of_which_a_part_is_marked_is_not_given_for_all_of_it(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"part": b"one\ntwo\nthree\n", "whole": b"three\n"}), tmp_path / "out"
    ledger = Ledger(dest, create=True)
    ledger.import_markers(mark(tmp_path / "m", (source / "part", 0, 4), *whole(source / "whole")), source, **HERE)
    gather(source, dest)
    for name, words in (("part", "from byte 0 to 5"), ("whole", "from byte 0 to 6")):
        with refused(QuireError, 3, f"{name} is not here {words}", "marks that as done elsewhere", "Read it at its source"):
            ledger.refresh().read(source / name)


def test_of_very_many_broken_ones_the_first_are_named_and_all_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "in", {"a": b"a"})
    folder = mark(tmp_path / "m", *whole(source / "a"))
    for i in range(30):
        (folder / f"part-{i}").touch()
    monkeypatch.setattr(markers, "EXAMPLES", 7)
    found = Ledger(tmp_path / "out", create=True).import_markers(folder, source, **HERE)
    assert (found.gathered, found.left_count, len(found.left)) == (1, 30, 7)
    assert "25 more" in str(found)


def test_where_a_directory_is_cut_for_the_tasks_no_path_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Overlapping markers of one path, in a directory that is listed in many slices, and in stores that list in order."""
    monkeypatch.setattr(pieces, "SLICE", 7)
    monkeypatch.setattr(markers, "CHUNK", 5)
    monkeypatch.setattr(LocalRunner, "parallelism", 8)
    content = b"x\n" * 100
    for place in (f"file://{tmp_path}", "memory://markers-cut"):
        source, folder = connect(f"{place}/in"), connect(f"{place}/m")
        for name in ("a", "a-1", "a.b", "b", "long" * 60):
            source.put(name, content)
            path = identifiers.place_of(f"{place}/in/{name}")[1]
            for start in range(0, 190, 4):
                folder.put(identifier(path, start, 10), b"")
        ledger = Ledger(f"{place}/out", create=True)
        found = ledger.import_markers(f"{place}/m", f"{place}/in", **HERE)
        assert found.left == ()
        for name in ("a", "a-1", "a.b", "b", "long" * 60):
            rows = ledger.inspect.coverage(f"{place}/in/{name}")
            assert list(rows["start"][1:]) == list((rows["start"] + rows["length"])[:-1]), "no byte twice, and no gap"
            assert (rows["start"].min(), rows["length"].sum()) == (0, 199)
        assert gather(f"{place}/in", f"{place}/out").bytes == 5


def test_a_source_may_be_named_through_a_link(tmp_path: Path) -> None:
    source = write(tmp_path / "real/in", {"a": b"a"})
    (tmp_path / "link").symlink_to(tmp_path / "real")
    folder = mark(tmp_path / "m", (tmp_path / "link/in/a", 0, 1))
    assert Ledger(tmp_path / "out", create=True).import_markers(folder, tmp_path / "link/in", **HERE).gathered == 1
    assert gather(source, tmp_path / "out").skipped == 1


@pytest.mark.parametrize("at", ["commit", "publish"])
def test_an_import_that_was_killed_is_ended_by_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    source, dest = write(tmp_path / "in", documents(5)), tmp_path / "out"
    folder = mark(tmp_path / "m", *whole(*source.rglob("*.txt")))

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(protocol, at, killed)
        with pytest.raises(KeyboardInterrupt):
            Ledger(dest, create=True).import_markers(folder, source, **HERE)
    found = Ledger(dest).import_markers(folder, source, **HERE)
    assert found.gathered + found.known == 5
    assert Ledger(dest).summary().ledger_rows == 5
    assert gather(source, dest).files == 0


def test_two_at_once_and_a_run_beside_them_mark_or_read_each_byte_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest = write(tmp_path / "in", documents(6)), tmp_path / "out"
    folder = mark(tmp_path / "m", *whole(*source.rglob("*.txt")))
    run, begun = quire.engine.job.run, list[int]()

    def beside(*args: Any, **more: Any) -> None:
        if not begun:
            begun.append(1)
            assert gather(source, dest, include="d0/*", transform="raw").files == 2
            assert Ledger(dest).import_markers(mark(tmp_path / "m2", *whole(source / "d1/f0001.txt")), source, **HERE).gathered == 1
        run(*args, **more)

    monkeypatch.setattr("quire.ledger.job.jobs.run", beside)
    found = Ledger(dest, create=True).import_markers(folder, source, **HERE)
    assert (found.gathered, found.known) == (3, 3)
    ledger = Ledger(dest)
    assert (ledger.summary().ledger_rows, ledger.summary().files, ledger.summary().transform) == (6, 6, "raw")
    assert gather(source, dest, transform="raw").files == 0


def test_wrong_places_are_refused(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a": b"a"}), tmp_path / "out"
    gather(source, dest)
    ledger = Ledger(dest)
    with refused(UsageError, 2, "no directory of markers", "nothing-here"):
        ledger.import_markers(tmp_path / "nothing-here", source, **HERE)
    with refused(RefusedError, 2, "the directory of markers", "lies in the source"):
        ledger.import_markers(mark(source / "m", (source / "a", 0, 1)), source, **HERE)
    for place in (dest, dest / "m", tmp_path, source, source / "m"):
        with refused(RefusedError, 2):
            ledger.export_markers(place, source=source, spark=LocalRunner())
    with refused(UsageError, 2, "does not exist"):
        ledger.import_markers(tmp_path / "m", tmp_path / "no-source", **HERE)
    write(tmp_path / "foreign", {"x": b"x"})
    with refused(RefusedError, 2, "not quire's"):
        Ledger(tmp_path / "foreign", create=True)


def test_on_spark_it_is_the_same(tmp_path: Path, spark: SparkSession) -> None:
    source = write(tmp_path / "in", documents(6))
    folder = mark(tmp_path / "m", *whole(source / "d0/f0000.txt", source / "d1/f0001.txt"), (source / "gone", 0, 1))
    ledger = Ledger(tmp_path / "out", create=True)
    found = ledger.import_markers(folder, source, spark=spark, progress=False)
    assert (found.gathered, found.left_count) == (2, 1)
    gather(source, tmp_path / "out")
    assert ledger.export_markers(tmp_path / "m2", spark=spark).written == 6
    gone = ledger.purge_sources(source, dry_run=False, min_age=0, spark=spark)
    assert (gone.files, gone.stays) == (4, {})
    assert sorted(tree(source)) == [str(source / "d0/f0000.txt"), str(source / "d1/f0001.txt")]


# --------------------------------------------------------------------------------------------------------------------------- out
def test_what_is_done_is_marked_once_as_hadoop_would_cut_it(tmp_path: Path) -> None:
    lines = b"".join(b"line %02d\n" % i for i in range(20))  # 160 bytes
    source, dest = write(tmp_path / "in", {"a.log": lines, "b": b"b", "empty": b"", "late": b"x"}), tmp_path / "out"
    gather(source, dest, target_size="50 B", exclude="late")
    ledger, folder = Ledger(dest), tmp_path / "m"
    found = ledger.export_markers(folder, split_size="64 B", spark=LocalRunner())
    expected = {
        (str(source / n), s, k) for n, s, k in [("a.log", 0, 64), ("a.log", 64, 64), ("a.log", 128, 32), ("b", 0, 1), ("empty", 0, 0)]
    }
    assert shown(folder) == expected
    assert (found.written, found.there) == (5, 0)
    again = ledger.export_markers(folder, split_size="64 B", spark=LocalRunner())
    assert (again.written, again.there) == (0, 5)
    (line,) = {p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    assert re.fullmatch(rb"quire [0-9a-f]{16} [0-9a-f]{16}\n", line), "by it a ledger knows its own"
    gather(source, dest, target_size="50 B")
    assert ledger.export_markers(folder, split_size="64 B", spark=LocalRunner()).written == 1


def test_what_is_in_quarantine_or_half_done_is_not_marked(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"bad.xml": b"<a>", "good.xml": b"<a/>"}), tmp_path / "out"
    gather(source, dest, transform="xml")
    Ledger(dest).export_markers(tmp_path / "m", spark=LocalRunner())
    assert shown(tmp_path / "m") == {(str(source / "good.xml"), 0, 4)}
    source, dest = write(tmp_path / "logs", {"a.log": b"one\ntw"}), tmp_path / "out2"
    gather(source, dest, on_append="tail")
    assert Ledger(dest).export_markers(tmp_path / "m2", spark=LocalRunner()).written == 0, "a last line waits"


def test_out_and_in_again_is_the_same_state(tmp_path: Path) -> None:
    names = {f"{'d' * 100}/{'é' * 60}/f{i}": b"%d\n" % i for i in range(9)}
    source, dest = write(tmp_path / "in", {**names, **documents(4)}), tmp_path / "out"
    gather(source, dest)
    assert Ledger(dest).export_markers(tmp_path / "m", spark=LocalRunner()).written == 13
    other = Ledger(tmp_path / "other", create=True)
    assert other.import_markers(tmp_path / "m", source, **HERE).gathered == 13
    assert gather(source, tmp_path / "other").files == 0
    assert other.export_markers(tmp_path / "m", spark=LocalRunner()).there == 13


def test_of_several_stores_only_one_is_marked_in_a_directory(tmp_path: Path) -> None:
    connect("memory://one/in").put("a", b"a")
    connect("memory://two/in").put("a", b"other")
    gather(["memory://one/in", "memory://two/in"], "memory://three/out")
    ledger = Ledger("memory://three/out")
    with refused(UsageError, 2, "memory://one", "memory://two", "source="):
        ledger.export_markers(tmp_path / "m", spark=LocalRunner())
    assert ledger.export_markers(tmp_path / "m2", source="memory://two/in", spark=LocalRunner()).written == 1
    assert shown(tmp_path / "m2") == {("/in/a", 0, 5)}


def test_a_part_of_a_file_may_be_marked_where_files_are_read_in_parts(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a": b"1\n" * 10}), tmp_path / "out"
    settings: dict[str, Any] = {"split": "lines", "format": "lines", **HERE}
    quire.process(source, dest, lambda split, content: content, **settings)
    write(source, {"b": b"2\n3\n4\n"})
    ledger = Ledger(dest)
    done = ledger.import_markers(mark(tmp_path / "marks", (source / "b", 0, 3)), source, **HERE)
    assert (done.gathered, done.left) == (1, ())
    quire.process(source, dest, lambda split, content: content, **settings)
    assert read(dest) == [b"1"] * 10 + [b"4"], "the line that begins in the marked bytes belongs to them"
