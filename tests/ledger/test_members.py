"""Members of archives are documents: each byte once, whatever the ledger's verbs do to some of them."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import random
import time
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quire
from gathering import MANY, gather, look, refused, tar, write, zipped
from quire import AllQuarantined, Ledger, Split
from quire.coverage import segments
from quire.engine.kinds import archived
from quire.errors import QuireError, RefusedError, UsageError
from quire.sources import archives as of_archives

LOCAL: dict[str, Any] = {"spark": quire.LocalRunner()}
HERE: dict[str, Any] = {**LOCAL, "progress": False}
FILES = {"a.txt": b"one\ntwo\n", "d/b.txt": b"three", "c!.txt": b"", "e.txt": b"four\n"}
LINES = [b"four", b"one", b"three", b"two"]


PACK = {"a.zip": zipped, "a.tar": tar, "a.tar.gz": lambda files: gzip.compress(tar(files), mtime=0)}


def lines_of(dest: Path) -> list[bytes]:
    return sorted(b"".join(path.read_bytes() for path in dest.glob("part-*")).splitlines())


def told(dest: Path) -> list[tuple[str, int, int, str, str | None]]:
    """Path, start, length, state and member of each row."""
    found = Ledger(dest).inspect.splits(**LOCAL)
    rows = found[["path", "start", "length", "state", "member"]].itertuples(index=False, name=None)
    return sorted((row[0].rpartition("/")[2], *row[1:]) for row in rows)


def members(dest: Path, state: str) -> list[str]:
    return sorted(f"{name}!{member}" for name, _, _, was, member in told(dest) if was == state and member)


def older(path: Path, content: bytes) -> None:
    """Another content, as old as a file must be that is purged."""
    path.write_bytes(content)
    os.utime(path, (time.time() - 7_200, time.time() - 7_200))


def covered(dest: Path) -> None:
    """The rows of each archive cover each of its bytes once."""
    spans = dict[str, list[tuple[int, int]]]()
    for name, start, length, *_ in told(dest):
        spans.setdefault(name, []).append((start, start + length))
    for found in spans.values():
        assert [a for a, _ in sorted(found)][1:] == [b for _, b in sorted(found)][:-1]
        assert min(found)[0] == 0


@pytest.mark.parametrize("name", PACK)
def test_each_member_is_gathered_once_and_read_back_as_it_was(name: str, tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {name: PACK[name](FILES), "z.txt": b"five\n"}), tmp_path / "out"
    report = gather(source, dest, archives=True)
    assert (report.files, report.quarantined_count, lines_of(dest)) == (2, 0, sorted([*LINES, b"five"]))
    covered(dest)
    again = gather(source, dest, archives=True)
    assert (again.jobs, again.skipped) == ((), 2)
    ledger = Ledger(dest)
    for member, content in FILES.items():
        assert ledger.read(source / f"{name}!{member.replace('!', '%21')}") == content
        (found,) = ledger.locate(source / f"{name}!{member.replace('!', '%21')}")
        assert found.member == member.replace("!", "%21")
    assert len(ledger.locate(source / name)) == len(FILES) + 1
    with refused(UsageError, 2, "archive", "Name one of them", "!a.txt"):
        ledger.read(source / name)
    with refused(UsageError, 2, "nothing.txt", "not in the ledger"):
        ledger.read(source / f"{name}!nothing.txt")
    assert ledger.verify(**LOCAL).ok
    assert sorted(ledger.rows(source / name).table["member"].dropna()) == sorted(["", "a.txt", "c%21.txt", "d/b.txt", "e.txt"])


@pytest.mark.parametrize("transform", ["raw", "json", "xml"])
def test_every_transform_of_documents_takes_members(transform: str, tmp_path: Path) -> None:
    kinds = {"raw": b"\0\1", "json": b'{"a": 1}', "xml": b"<a><b/></a>"}
    source = write(tmp_path / "in", {"a.zip": zipped({"1": kinds[transform], "2": b"{<"}), "b.tar": tar({"3": kinds[transform]})})
    dest = tmp_path / "out"
    report = gather(source, dest, transform=transform, format="parquet", archives=True)
    found = [path for file in dest.glob("part-*") for path in pq.read_table(file).column("path").to_pylist()]
    paths = sorted(path.rpartition("/")[2] for path in found)
    assert paths == (["a.zip!1", "a.zip!2", "b.tar!3"] if transform == "raw" else ["a.zip!1", "b.tar!3"])
    assert members(dest, "quarantined") == ([] if transform == "raw" else ["a.zip!2"])
    assert report.quarantined_count == (transform != "raw")
    assert Ledger(dest).read(source / "a.zip!1") == (b"<a><b/></a>" if transform == "xml" else kinds[transform].replace(b" ", b"") if
                                                    transform == "json" else kinds[transform])  # fmt: skip


def test_without_archives_they_stay_what_they_were(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"a.zip": zipped(FILES), "b.txt": b"x\n"})
    gather(source, tmp_path / "lines")
    assert told(tmp_path / "lines") == [("a.zip", 0, len(zipped(FILES)), "quarantined", None), ("b.txt", 0, 2, "done", None)]
    gather(source, tmp_path / "raw", transform="raw")
    assert Ledger(tmp_path / "raw").read(source / "a.zip") == zipped(FILES)
    with refused(RefusedError, 2, "archives True", "Say the same"):
        gather(source, tmp_path / "raw", transform="raw", archives=True)


def test_a_run_that_takes_archives_may_follow_one_that_did_not(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a.zip": zipped(FILES), "b.txt": b"x\n"}), tmp_path / "out"
    gather(source, dest)
    write(source, {"c.tar": tar({"t": b"y\n"})})
    gather(source, dest, archives=True)
    assert lines_of(dest) == [b"x", b"y"]
    Ledger(dest).retry(source, max_quarantined=9, **HERE)
    assert lines_of(dest) == [b"x", b"y"]
    Ledger(dest).retry(source, archives=True, **HERE)
    assert lines_of(dest) == sorted([*LINES, b"x", b"y"])
    covered(dest)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"decompress": "gzip"}, ("archives", "decompress='auto'")),
        ({"archives": "yes"}, ("archives",)),
        ({"archive": True}, ("Did you mean 'archives'",)),
    ],
)
def test_what_does_not_go_with_archives_is_said(settings: dict[str, Any], words: tuple[str, ...], tmp_path: Path) -> None:
    with refused(UsageError, 2, *words):
        gather(write(tmp_path / "in", {"a": b"x"}), tmp_path / "out", **{"archives": True, **settings})


# ----------------------------------------------------------------------------------------------------------------------- quarantine
def bad(split: Split, content: bytes) -> Iterator[dict[str, Any]]:
    """Takes numbers; raises at the word bad, and rejects lines that are no numbers."""
    if content == b"bad":
        raise ValueError("bad")
    for line in content.splitlines(keepends=True):
        if line.strip().isdigit():
            yield {"n": int(line), "of": split.path.rpartition("/")[2], "start": split.start, "length": split.length}
        else:
            split.quarantine(line, "no number")


def good(split: Split, content: bytes) -> list[dict[str, Any]]:
    return [{"n": len(content), "of": split.path.rpartition("/")[2], "start": split.start, "length": split.length}]


good.__qualname__ = bad.__qualname__


def rows(dest: Path) -> list[tuple[Any, ...]]:
    return sorted((r["n"], r["of"]) for path in dest.glob("part-*") for r in pq.read_table(path).to_pylist())


def test_a_function_takes_members_and_rejects_them_or_records_of_them(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"a.zip": zipped({"1": b"1\n2\n", "2": b"bad", "3": b"3\nx\n4\ny\n"}), "b": b"7\n"})
    dest = tmp_path / "out"
    report = quire.process(source, dest, bad, archives=True, **HERE)
    assert rows(dest) == [(1, "a.zip!1"), (2, "a.zip!1"), (3, "a.zip!3"), (4, "a.zip!3"), (7, "b")]
    assert (report.files, report.quarantined_count) == (2, 3)
    assert members(dest, "quarantined") == ["a.zip!2", "a.zip!3", "a.zip!3"]
    covered(dest)
    records = Ledger(dest).inspect.quarantined_records(**LOCAL)
    assert [*records["content"]] == [b"x\n", b"y\n"]
    assert [*records["error"]] == ["no number (at byte 2 of the member)", "no number (at byte 6 of the member)"]
    Ledger(dest).retry(source, function=bad, max_quarantined=9, **HERE)
    assert members(dest, "quarantined") == ["a.zip!2", "a.zip!3", "a.zip!3"]
    Ledger(dest).retry(source, paths=source / "a.zip!2", function=good, **HERE)
    assert (members(dest, "quarantined"), rows(dest)[2]) == (["a.zip!3"] * 2, (3, "a.zip!2"))
    Ledger(dest).retry(source, function=good, **HERE)
    assert rows(dest)[1:3] == [(2, "a.zip!1"), (2, "a.zip!3")]
    covered(dest)
    assert quire.process(source, dest, bad, archives=True, **HERE).jobs == ()


def test_records_of_a_member_that_is_read_alone_have_no_bytes_to_be_told_by(tmp_path: Path) -> None:
    def once(split: Split, content: bytes) -> Iterator[dict[str, Any]]:
        if split.attempt == 1 and split.path.endswith("!1"):
            raise ValueError("not yet")
        yield from bad(split, content)

    once.__qualname__ = bad.__qualname__
    source, dest = write(tmp_path / "in", {"a.zip": zipped({"0": b"5\n", "1": b"1\nx\n", "2": b"6\n"})}), tmp_path / "out"
    quire.process(source, dest, once, archives=True, **HERE)
    Ledger(dest).retry(source, function=once, max_quarantined=9, **HERE)
    assert (members(dest, "quarantined"), rows(dest)) == (["a.zip!1"], [(5, "a.zip!0"), (6, "a.zip!2")])
    assert "too few to stand for them" in Ledger(dest).inspect.quarantined().reason[0]
    covered(dest)
    Ledger(dest).forget(paths=source / "a.zip", **HERE)
    quire.process(source, dest, bad, archives=True, **HERE)
    assert rows(dest) == [(1, "a.zip!1"), (5, "a.zip!0"), (6, "a.zip!2")]


def test_row_groups_of_members_are_refused(tmp_path: Path) -> None:
    with refused(UsageError, 2, "archives", "row_groups"):
        quire.process(write(tmp_path / "in", {"a": b"x"}), tmp_path / "out", good, split="row_groups", archives=True, **HERE)


def test_csv_members_have_their_own_headers_and_their_wrong_lines(tmp_path: Path) -> None:
    source = write(
        tmp_path / "in",
        {
            "a.zip": zipped({"1.csv": b"a,b\n1,x\n", "2.csv": b"b,a\ny,2\nz,no\n"}),
            "b.tgz": gzip.compress(tar({"3.csv.gz": gzip.compress(b"a,b\n3,w\n")})),
        },
    )
    dest = tmp_path / "out"
    gather(source, dest, transform="csv", schema="a long, b string", archives=True)
    assert sorted(r["a"] for file in dest.glob("part-*") for r in pq.read_table(file).to_pylist()) == [1, 2, 3]
    assert members(dest, "quarantined") == ["a.zip!2.csv"]
    covered(dest)
    Ledger(dest).retry(source, text_options={"null_values": ["", "no"]}, **HERE)
    found = [r for file in dest.glob("part-*") for r in pq.read_table(file).to_pylist()]
    assert {"a": None, "b": "z"} in found  # by the header of its own member
    covered(dest)


def test_columns_of_members_are_inferred_and_rows_of_parquet_members_taken(tmp_path: Path) -> None:
    def packed(**columns: Any) -> bytes:
        sink = io.BytesIO()
        pq.write_table(pa.table(columns), sink)
        return sink.getvalue()

    source = write(tmp_path / "csv", {"a.zip": zipped({"1.csv": b"a,b\n1,x\n"}), "b.zip": zipped({"2.csv": b"a,c\n2,1.5\n"})})
    plan = look(source, tmp_path / "out", transform="csv", archives=True)
    assert sorted(plan.columns.split(", ")) == ["`a` bigint", "`b` string", "`c` double"]
    source = write(tmp_path / "pq", {"a.tar": tar({"1": packed(a=[1]), "2": packed(a=[2], b=["x"]), "3": b"no"}), "b": packed(a=[3])})
    gather(source, tmp_path / "of", transform="parquet", archives=True)
    assert sorted(r["a"] for file in (tmp_path / "of").glob("part-*") for r in pq.read_table(file).to_pylist()) == [1, 2, 3]
    assert members(tmp_path / "of", "quarantined") == ["a.tar!3"]


def test_an_archive_of_which_no_member_can_be_taken_is_quarantined_whole_and_its_better_version_taken(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a.zip": zipped({"../x": b"1", "/y": b"2"}), "b.txt": b"b\n"}), tmp_path / "out"
    gather(source, dest, archives=True)
    assert told(dest)[0][1:] == (0, (source / "a.zip").stat().st_size, "quarantined", "")
    assert "none of its 2 members could be taken" in Ledger(dest).inspect.quarantined().reason[0]
    (source / "a.zip").write_bytes(zipped({"x": b"good\n"}))
    gather(source, dest, archives=True)
    assert lines_of(dest) == [b"b", b"good"]
    with pytest.raises(AllQuarantined):
        quire.consolidate(write(tmp_path / "bad", {"a.zip": b"no"}), tmp_path / "none", archives=True, **HERE)


def test_many_quarantined_members_are_tried_again_in_one_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest = write(tmp_path / "in", {"a.zip": zipped({f"{i}": b"{" if i else b"{}" for i in range(200)})}), tmp_path / "out"
    gather(source, dest, transform="json", archives=True)
    opened = list[Any]()
    inner = of_archives.Archive.__init__
    monkeypatch.setattr(of_archives.Archive, "__init__", lambda self, *args: (opened.append(1), inner(self, *args))[1])
    Ledger(dest).retry(source, max_quarantined=MANY, **HERE)
    assert len(opened) == 1
    assert len(members(dest, "quarantined")) == 199
    assert set(Ledger(dest).inspect.quarantined()["tries"]) == {2}
    covered(dest)


# ------------------------------------------------------------------------------------------------------------------ whole or not at all
def _damaged(files: Mapping[str, bytes]) -> bytes:
    """A long tar archive whose last header is damaged."""
    data = bytearray(tar({**files, "last": b"x"}))
    data[data.rindex(b"last")] ^= 255
    return bytes(data)


@pytest.mark.parametrize("transform", ["lines", "raw", "json"])
def test_nothing_is_taken_of_an_archive_that_turns_out_to_be_damaged(transform: str, tmp_path: Path) -> None:
    noise = [b'"' + random.Random(i).randbytes(1 << 20).hex().encode() + b'"\n' for i in range(3)]
    source = write(
        tmp_path / "in",
        {"a.tar": _damaged({f"{i}": line for i, line in enumerate(noise)}), "b.tar": tar({f"{i}": b"%d\n" % i for i in range(3)}),
         "c.tar.gz": gzip.compress(tar({"c": noise[0] * 5}), 1)[:-9], "d": b"9\n"},
    )  # fmt: skip
    dest = tmp_path / "out"
    gather(source, dest, transform=transform, archives=True)
    assert lines_of(dest) == [b"0", b"1", b"2", b"9"]
    assert [row for row in told(dest) if row[3] == "quarantined"] == [
        ("a.tar", 0, (source / "a.tar").stat().st_size, "quarantined", ""),
        ("c.tar.gz", 0, (source / "c.tar.gz").stat().st_size, "quarantined", ""),
    ]
    covered(dest)
    (source / "a.tar").write_bytes(tar({"0": b"7\n"}))  # it was still being written
    gather(source, dest, transform=transform, archives=True)
    assert lines_of(dest) == [b"0", b"1", b"2", b"7", b"9"]


def test_a_damaged_long_member_leaves_no_trace_beside_the_others(tmp_path: Path) -> None:
    noise = random.Random(1).randbytes(3 << 20).hex().encode() + b"\n"
    data = bytearray(zipped({"0": b"0\n", "bad": noise, "1": noise, "2": b"2\n"}))
    data[1 << 20] ^= 255
    source, dest = write(tmp_path / "in", {"a.zip": bytes(data)}), tmp_path / "out"
    gather(source, dest, archives=True)
    assert lines_of(dest) == [b"0", b"2", noise.strip()]
    assert members(dest, "quarantined") == ["a.zip!bad"]
    covered(dest)


def test_an_archive_that_changes_while_it_is_read_is_left_to_the_next_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noise = random.Random(1).randbytes(3 << 20).hex().encode() + b"\n"
    source, dest = write(tmp_path / "in", {"a.tar": tar({"0": b"0\n", "1": noise}), "b": b"b\n"}), tmp_path / "out"
    inner, changed = archived.Unpacking._member, list[int]()

    def member(self: Any, *given: Any) -> None:
        inner(self, *given)
        if not changed:
            changed.append(1)
            (source / "a.tar").write_bytes(tar({"0": b"00\n", "1": noise}))

    monkeypatch.setattr(archived.Unpacking, "_member", member)
    gather(source, dest, archives=True)
    gather(source, dest, archives=True)
    assert lines_of(dest) == sorted([b"00", noise.strip(), b"b"])
    covered(dest)


# ---------------------------------------------------------------------------------------------------------------- changes and verbs
@pytest.mark.parametrize("name", PACK)
def test_an_archive_that_grew_has_changed_and_is_never_a_tail(name: str, tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {name: PACK[name](FILES)}), tmp_path / "out"
    gather(source, dest, archives=True, on_append="tail")
    more = {**FILES, "f.txt": b"six\n"}
    (source / name).write_bytes(PACK[name](more))
    report = gather(source, dest, archives=True, on_append="tail")
    assert (report.changed_count, lines_of(dest)) == (1, LINES)
    gather(source, dest, archives=True, on_append="tail", on_change="reprocess")
    assert lines_of(dest) == sorted([*LINES, b"six"])
    covered(dest)
    (source / name).write_bytes(PACK[name]({"a.txt": b"new\n"}))
    gather(source, dest, archives=True, on_change="reprocess")
    assert lines_of(dest) == [b"new"]
    assert Ledger(dest).read(source / f"{name}!a.txt") == b"new\n"
    (source / name).write_bytes(b"no archive")  # of which nothing can be taken
    gather(source, dest, archives=True, on_change="reprocess")
    assert lines_of(dest) == [b"new"]


def test_members_of_a_lost_data_file_are_read_again_and_no_others(tmp_path: Path) -> None:
    files = {f"{i}": b"%d" % i * 40 + b"\n" for i in range(12)}
    source, dest = write(tmp_path / "in", {"a.zip": zipped(files), "b.tgz": gzip.compress(tar(files))}), tmp_path / "out"
    gather(source, dest, archives=True, target_size="200 B")
    names = sorted(path.name for path in dest.glob("part-*"))
    assert len(names) > 5
    for name in (names[0], names[-1]):
        Ledger(dest).forget(file=name, **HERE)
        assert len(lines_of(dest)) < 24
        gather(source, dest, archives=True, target_size="200 B")
        assert lines_of(dest) == sorted(2 * [content.strip() for content in files.values()])
        covered(dest)
    Ledger(dest).forget(paths=source / "a.zip", **HERE)
    assert lines_of(dest) == sorted(content.strip() for content in files.values())
    gather(source, dest, archives=True)
    Ledger(dest).compact(**HERE)
    assert len(lines_of(dest)) == 24
    assert Ledger(dest).read(source / "b.tgz!7") == files["7"]
    assert Ledger(dest).verify(**LOCAL).ok
    Ledger(dest).checkpoint(**LOCAL)
    assert gather(source, dest, archives=True).jobs == ()
    assert Ledger(dest).read(source / "a.zip!7") == files["7"]


@pytest.mark.parametrize("transform", ["lines", "raw", "json"])
def test_a_purge_of_an_archive_needs_every_member_done_and_verified(transform: str, tmp_path: Path) -> None:
    dest, source, one, two = tmp_path / "out", tmp_path / "in", b'{"a":1}', b'{"a":2}\n'
    for name, pack in PACK.items():
        write(
            source, {f"good {name}": pack({"1": one, "2.gz": gzip.compress(two), "3": one}), f"bad {name}": pack({"1": one, "../2": two})}
        )
    write(source, {"empty.zip": zipped({}), "plain": two})
    gather(source, dest, transform=transform, archives=True)
    plan = Ledger(dest).purge_sources(source, min_age=0, **LOCAL)
    assert (plan.files, dict(plan.stays)) == (5, {"not all of it is done": 3})
    done = Ledger(dest).purge_sources(source, min_age=0, dry_run=False, **LOCAL)
    assert done.files == 5
    assert sorted(path.name for path in source.iterdir()) == sorted(f"bad {name}" for name in PACK)
    assert Ledger(dest).read(source / "good a.zip!1") == one + b"\n" * (transform == "json")
    assert gather(source, dest, transform=transform, archives=True).jobs == ()
    write(source, {"good a.zip": zipped({"1": two})})  # a new file, whatever had its name before
    gather(source, dest, transform=transform, archives=True)
    assert Ledger(dest).read(source / "good a.zip!1").strip() == two.strip()


def test_a_purge_keeps_an_archive_whose_members_are_not_what_was_gathered(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a.zip": zipped(FILES, zipfile.ZIP_STORED)}), tmp_path / "out"
    path = source / "a.zip"
    gather(source, dest, archives=True)
    before = path.stat()
    path.write_bytes(zipped({**FILES, "a.txt": b"ONE\ntwo\n"}, zipfile.ZIP_STORED))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # the same version to the ledger
    plan = Ledger(dest).purge_sources(source, min_age=0, **LOCAL)
    assert (plan.files, [*plan.stays]) == (0, ["its content is not what was gathered, though its version is the same"])
    path.write_bytes(zipped(FILES, zipfile.ZIP_STORED))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    (data,) = dest.glob("part-*")
    data.write_bytes(data.read_bytes().replace(b"three", b"THREE"))
    plan = Ledger(dest).purge_sources(source, min_age=0, **LOCAL)
    assert (plan.files, [*plan.stays]) == (0, ["what was written of it cannot be read back as it was written"])


# -------------------------------------------------------------------------------------------------------------------------- naming
def test_files_and_members_of_odd_names_are_told_apart(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"a!b.zip": zipped({"x": b"1\n"}), "c.zip": zipped({"x": b"2\n"}), "c.zip!x": b"3\n"})
    dest = tmp_path / "out"
    gather(source, dest, archives=True)
    ledger = Ledger(dest)
    assert ledger.read(source / "a!b.zip!x") == b"1\n"
    assert ledger.read(source / "c.zip!x") == b"3\n"  # a file goes before a member
    assert ledger.read(source / "c.zip!x!0") == b"2\n"


def test_two_members_of_one_name_are_two_documents_and_told_by_their_starts(tmp_path: Path) -> None:
    data = zipped({"x": b"1\n", "y": b"2\n", "z": b"3\n"}).replace(b"y", b"x").replace(b"z", b"x")
    source, dest = write(tmp_path / "in", {"a.zip": data}), tmp_path / "out"
    gather(source, dest, archives=True)
    assert lines_of(dest) == [b"1", b"2", b"3"]
    ledger = Ledger(dest)
    assert len(ledger.locate(source / "a.zip!x")) == 3
    with refused(UsageError, 2, "3 members", "called 'x'", "a.zip!x!0"):
        ledger.read(source / "a.zip!x")
    assert ledger.read(source / "a.zip!x!2") == b"3\n"


def test_a_long_archive_is_never_cut_whatever_it_is_called(tmp_path: Path) -> None:
    files = {f"{i}": b"%d" % i * 99 + b"\n" for i in range(30)}
    source = write(tmp_path / "in", {"a.zip": zipped(files, zipfile.ZIP_STORED), "called nothing": tar(files)})
    dest = tmp_path / "out"
    for transform in ("lines", "raw"):
        gather(source, dest / transform, transform=transform, archives=True, target_size="500 B")
        assert lines_of(dest / transform) == sorted(2 * [content.strip() for content in files.values()])
        covered(dest / transform)
    plan = look(source, dest / "plan", archives=True, target_size="500 B")
    assert sorted(plan.files()["start"]) == [0, 0]


def test_files_larger_than_allowed_are_still_refused_beside_archives_that_are(tmp_path: Path) -> None:
    files = {f"{i}": b'{"n": %d, "x": "%s"}' % (i, random.Random(i).randbytes(20_000).hex().encode()) for i in range(40)}
    source = write(tmp_path / "in", {"a.tar": tar(files), "b.json": b'{"x": "%s"}' % (b"y" * 1_500_000), "c.json": b"{}"})
    dest = tmp_path / "out"
    gather(source, dest, transform="json", archives=True, max_file_size="100 KB")
    assert len(lines_of(dest)) == 41
    assert "larger than max_file_size" in Ledger(dest).inspect.quarantined().reason[0]
    quire.process(source, tmp_path / "of", good, archives=True, max_file_size="100 KB", **HERE)
    assert len(rows(tmp_path / "of")) == 41


def test_versions_by_content_and_directories_go_with_archives(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"d=1/a.zip": zipped(FILES), "d=2/b.tar": tar(FILES)}), tmp_path / "out"
    how = {"archives": True, "change_detection": "content", "layout": "directories"}
    gather(source, dest, **how)
    assert sorted(path.parent.name for path in dest.glob("d=*/part-*")) == ["d=1", "d=2"]
    os.utime(source / "d=1/a.zip")
    assert gather(source, dest, **how).jobs == ()
    for name in sorted(dest.glob("d=*/part-*")):  # parts of archives are read again, too
        Ledger(dest).forget(file=name.relative_to(dest).as_posix(), **HERE)
    report = gather(source, dest, **how)
    assert (report.files, report.deferred) == (2, ())
    covered(dest)
    assert Ledger(dest).purge_sources(source, min_age=0, **LOCAL).files == 2


def test_more_members_than_bytes_quarantine_the_whole_archive(tmp_path: Path) -> None:
    data = lzma.compress(tar({"a": b""})[:512] * 2_000 + bytes(1024))
    assert len(data) < 2_000
    source, dest = write(tmp_path / "in", {"a.txz": data, "b": b"b\n"}), tmp_path / "out"
    gather(source, dest, archives=True)
    assert lines_of(dest) == [b"b"]
    assert "too few to stand for them" in Ledger(dest).inspect.quarantined().reason[0]


def test_a_ledger_that_is_older_than_members_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest = write(tmp_path / "in", {"a": b"a\n", "b": b"b\n"}), tmp_path / "out"
    now = segments.SCHEMA
    before = pa.schema([field for field in now if field.name != "member"])
    inner = segments.SegmentWriter.add
    monkeypatch.setattr(segments.SegmentWriter, "__init__", _older(segments.SegmentWriter.__init__, before))
    monkeypatch.setattr(segments.SegmentWriter, "add", lambda self, rows: inner(self, rows.select(before.names)))
    gather(source, dest)
    monkeypatch.undo()
    assert told(dest) == [("a", 0, 2, "done", None), ("b", 0, 2, "done", None)]
    assert gather(source, dest).jobs == ()
    assert Ledger(dest).read(source / "a") == b"a\n"
    Ledger(dest).compact(**HERE)
    assert Ledger(dest).read(source / "b") == b"b\n"


def _older(init: Any, schema: pa.Schema) -> Any:
    return lambda self, _=None: init(self, schema)


def test_a_plan_that_names_no_archive_any_more_quarantines_and_loses_nothing(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a.zip": zipped({"1": b"1\n", "../2": b"2\n"})}), tmp_path / "out"
    gather(source, dest, archives=True)
    with pytest.raises(QuireError, match=r"quarantined.*its name leads"):
        Ledger(dest).read(source / "a.zip!%2E%2E/2")
    before = (source / "a.zip").stat()
    (source / "a.zip").write_bytes(b"x" * before.st_size)
    os.utime(source / "a.zip", ns=(before.st_atime_ns, before.st_mtime_ns))
    Ledger(dest).retry(source, max_quarantined=9, **HERE)
    assert lines_of(dest) == [b"1"]
    covered(dest)
