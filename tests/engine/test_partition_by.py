"""Directories `name=value` that `partition_by` makes: of columns of rows, of parts of a file's path, of its last change."""

from __future__ import annotations

import datetime as dt
import functools
import gzip
import json
import os
import resource
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quire
from gathering import MANY, gather, look, refused, tar, write
from quire import Ledger, Split
from quire.errors import AllQuarantined, RefusedError, UsageError
from quire.formats import folders
from quire.read import first_rows
from quire.sources import partition_by
from quire.sources.partition_by import parse
from quire.storage import connect, normalise

HERE: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False}
DAYS = {"dt=2026-11-21/a": b"one\ntwo\n", "dt=2026-11-21/sub/b": b"three\n", "dt=2026-11-22/c": b"four\n", "stray": b"five\n"}
NONE = "__HIVE_DEFAULT_PARTITION__"


def process(source: Any, dest: Any, function: Any, **settings: Any) -> quire.Report:
    return quire.process(source, dest, function, **{**HERE, "max_quarantined": MANY, **settings})


def there(dest: Path) -> list[Any]:
    return list(first_rows(connect(normalise(dest)), 1_000_000))


def places(dest: Path) -> Counter[str]:
    """The directories of the data files that a plain reader of the directory sees."""
    found = (path.relative_to(dest) for path in dest.rglob("*") if path.is_file() and "_quire" not in path.parts)
    return Counter(path.parent.as_posix() for path in found)


def of_content(content: bytes, file: object) -> bytes:
    return content


def of_lines(split: Split, content: bytes) -> Iterator[dict[str, Any]]:
    """A row for each line `city,n`; one that begins with a minus is quarantined."""
    for line in content.splitlines():
        if line.startswith(b"-"):
            split.quarantine(line, "it begins with a minus")
        else:
            city, n = line.decode().split(",")
            yield {"city": city or None, "n": int(n)}


CITIES = {"a": b"Bonn,1\nRom,2\nBonn,3\n", "b": b"Rom,4\n", "c": b"-bad\n,5\nKiel,6\n", "d": b""}
WANTED = Counter({("Bonn", 1): 1, ("Rom", 2): 1, ("Bonn", 3): 1, ("Rom", 4): 1, (None, 5): 1, ("Kiel", 6): 1})


def cities(dest: Path) -> Counter[tuple[str | None, int]]:
    return Counter((row["city"], row["n"]) for row in there(dest))


# ------------------------------------------------------------------------------------------------------------------------ the words
@pytest.mark.parametrize(
    ("given", "said", "names"),
    [
        ("country", "country", ("country",)),
        ("path.dt", "path.dt", ("dt",)),
        (["path.dt", "path[-1] as site", "country"], "path.dt, path[-1] as site, country", ("dt", "site", "country")),
        ("days(modified)", "day(modified)", ("date",)),
        (" hour( modified ) AS `the hour`", "hour(modified) as `the hour`", ("the hour",)),
        ("`path.dt`", "`path.dt`", ("path.dt",)),
        (["`a, b`", "`c``d`"], "`a, b`, `c``d`", ("a, b", "c`d")),
        ("path.a b", "path.`a b`", ("a b",)),
        ("path.`x, as y` as z", "path.`x, as y` as z", ("z",)),
    ],
)
def test_what_is_said_means_the_same_when_it_is_read_again(given: Any, said: str, names: tuple[str, ...]) -> None:
    made = parse(given)
    assert made.names == names
    assert parse(partition_by._items(str(made))) == made
    assert str(made) == said


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("", ["says no directories", "'path.dt'"]),
        ([], ["says no directories"]),
        (5, ["says no directories"]),
        (["a", None], ["says no directories"]),
        ("path[0]", ["needs a name", "'path[0] as site'"]),
        ("path[x] as y", ["is not understood"]),
        ("minute(modified)", ["is not understood", "day(modified)"]),
        ("day(changed)", ["is not understood"]),
        ("country as land", ["keeps its name"]),
        ("`country", ["a backquote without its other half"]),
        (["country", "path.dt"], ["before what comes of files", "['path.dt', 'country']"]),
        (["path.dt", "path[0] as DT"], ["directories dt=… twice"]),
        ("path[0] as _hidden", ["names no directory that readers see"]),
        ("path[0] as a/b", ["names no directory that readers see"]),
    ],
)
def test_what_is_not_understood_is_said_with_what_would_be(given: Any, words: list[str]) -> None:
    with refused(UsageError, 2, *words) as caught:
        parse(given)
    assert caught.value.argument == "partition_by"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"partition_by": "country"}, ["'country' is a column", "quire.process", "path.country"]),
        ({"partition_by": "country", "transform": "csv"}, ["'country' is a column", "a function gives", "path.country"]),
        (
            {"partition_by": "_x", "transform": of_content, "format": "parquet"},
            ["'_x' names no directory", "begin with '_'"],
        ),
        ({"partition_by": "country", "transform": of_content}, ["bytes have none", "format='parquet'"]),
        ({"partition_by": "path.dt", "layout": "directories"}, ["Leave one of both out"]),
        ({"partition_by": "path[0] as value"}, ["the rows have a column 'value'"]),
        ({"partition_by": "path[0] as Path", "transform": "raw"}, ["the rows have a column 'path'"]),
        ({"partition_by": "path[0] as modified", "transform": "raw", "format": "parquet"}, ["the rows have a column 'modified'"]),
        ({"partition_by": "path.dt", "transform": "parquet", "sort_by": "n"}, ["partition_by= has no files to go by"]),
    ],
)
def test_what_does_not_go_together_is_refused_before_anything_is_read(tmp_path: Path, settings: Any, words: list[str]) -> None:
    with refused(UsageError, 2, *words):
        gather(write(tmp_path / "in", DAYS), tmp_path / "out", **settings)
    assert not (tmp_path / "out").exists()


# -------------------------------------------------------------------------------------------------------------------------- by files
FORMATS: dict[str, dict[str, Any]] = {
    "lines": {"transform": "lines"},
    "lines.gz": {"transform": "lines", "compression": "gzip"},
    "raw": {"transform": "raw"},
    "raw.gz": {"transform": "raw", "compression": "gzip"},
    "parquet": {"transform": "raw", "format": "parquet"},
}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("planner", ["balanced", "hash", "directory"])
def test_files_go_where_their_path_says(tmp_path: Path, name: str, planner: str) -> None:
    source, dest = write(tmp_path / "in", {**DAYS, "dt=2026-11-22/empty": b""}), tmp_path / "out"
    how = {**FORMATS[name], "partition_by": ["path.dt", "path[-1] as last"], "planner": planner}
    report = gather(source, dest, **how)
    assert (report.files, report.quarantined_count) == (5, 0)
    day, escaped = "dt=2026-11-21", "last=dt%3D2026-11-2"
    assert {*places(dest)} == {f"{day}/{escaped}1", f"{day}/last=sub", f"dt=2026-11-22/{escaped}2", f"dt={NONE}/last={NONE}"}
    for path, content in DAYS.items():
        assert Ledger(dest).read(source / path) == content
    assert gather(source, dest, **how).skipped == 5
    assert Ledger(dest).verify(spark=HERE["spark"]).ok
    tasks = look(write(tmp_path / "more", {"dt=x/a": b"n"}), dest, **how).tasks
    assert tasks["directory"].tolist() == ["dt=x/last=dt%3Dx"]


@pytest.mark.parametrize(("unit", "wanted"), [("year", "2026"), ("month", "2026-03"), ("day", "2026-03-01"), ("hour", "2026-03-01-23")])
def test_files_go_where_their_last_change_says(tmp_path: Path, unit: str, wanted: str) -> None:
    source = write(tmp_path / "in", {"a": b"one\n", "sub/b": b"two\n", "c": b"three\n"})
    at = dt.datetime(2026, 3, 1, 23, 59, 59, tzinfo=dt.UTC).timestamp()
    for name in ("a", "sub/b"):
        os.utime(source / name, (at, at))
    os.utime(source / "c", (at + 400 * 86400, at + 400 * 86400))
    gather(source, tmp_path / "out", partition_by=f"{unit}(modified)")
    name = "date" if unit == "day" else unit
    assert places(tmp_path / "out")[f"{name}={wanted}"] == 1
    assert len(places(tmp_path / "out")) == 2


def test_the_name_of_a_directory_of_which_no_file_has_a_value_is_misspelt(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", DAYS), tmp_path / "out"
    with refused(UsageError, 2, "partition_by='path.day'", "no new file of", "Check the spelling"):
        gather(source, dest, partition_by="path.day")
    with refused(UsageError, 2, "partition_by='path[7] as site'"):
        gather(source, dest, partition_by="path[7] as site")
    assert not places(dest)
    gather(source, dest, partition_by="path.dt")
    write(source, {"late": b"six\n"})
    assert gather(source, dest, partition_by="path.dt").files == 1, "a stray file alone is none, once there are others"


def test_a_misspelt_name_is_told_of_a_loop_and_not_of_the_first_files_of_many_commits(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {**DAYS, "a-stray": b"stray\n"}), tmp_path / "out"
    os.utime(source / "a-stray", (1e9, 1e9))
    with refused(UsageError, 2, "partition_by='path.day'", "Check the spelling"):
        gather(source, dest, partition_by="path.day", every="0.01 s", max_runs=1)
    with refused(UsageError, 2, "partition_by='path.day'", "Check the spelling"):
        gather(source, dest, partition_by="path.day", max_files=1)
    assert not places(dest)
    assert gather(source, dest, partition_by="path.dt", max_files=1).files == len(DAYS) + 1


def test_directories_that_are_spelt_in_two_ways_are_refused_before_anything_is_frozen(tmp_path: Path) -> None:
    for folder in ("dt=1/DT=2", "dt=1"):
        source, dest = tmp_path / folder[-1] / "in", tmp_path / folder[-1] / "out"
        write(source, {f"{folder}/a.jsonl": b'{"i": 1}\n', "DT=2/b.jsonl": b'{"i": 2}\n'})
        for _ in range(2):
            with refused(RefusedError, 2, "dt=… ", "DT=… ", "make one column", "nothing was read"):
                gather(source, dest, partition_columns="directories", transform="jsonl")
        assert gather(source, dest, partition_columns="directories", transform="jsonl", include="DT=2/**").files == 1
        assert not Ledger(dest).summary().open_jobs


def test_a_directory_that_no_store_takes_is_told_and_the_others_are_gathered(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"good/a": b"one\n", f"{'=' * 100}/b": b"two\n"})
    report = gather(source, tmp_path / "out", partition_by="path[0] as site")
    assert (report.files, report.unreadable_count) == (1, 1)
    assert "a name has 305 bytes, and may have 255" in report.unreadable[0][1]


def test_a_call_with_other_directories_is_refused(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", DAYS), tmp_path / "out"
    gather(source, dest, partition_by="path.dt")
    for other in ({}, {"partition_by": "day(modified)"}, {"layout": "directories"}):
        with refused(RefusedError, 2, "partition_by 'path.dt'"):
            gather(source, dest, **other)


def test_the_plan_says_the_directories(tmp_path: Path) -> None:
    found = look(write(tmp_path / "in", DAYS), tmp_path / "out", partition_by="path.dt")
    assert "path.dt (3)" in str(found)
    assert sorted(found.tasks["directory"]) == ["dt=2026-11-21", "dt=2026-11-22", f"dt={NONE}"]
    assert gather(tmp_path / "in", tmp_path / "out", partition_by="path.dt").data_files == 3


def test_files_that_hold_rows_go_by_their_path_and_none_has_the_column_twice(tmp_path: Path) -> None:
    for day in ("2026-11-21", "2026-11-22"):
        (tmp_path / "in" / f"dt={day}").mkdir(parents=True)
        for i in range(3):
            pq.write_table(pa.table({"n": [i], "dt2": [day]}), tmp_path / "in" / f"dt={day}" / f"{i}.parquet")
    gather(tmp_path / "in", tmp_path / "out", transform="parquet", partition_by="path.dt")
    assert {*places(tmp_path / "out")} == {"dt=2026-11-21", "dt=2026-11-22"}
    with refused(RefusedError, 2, "the files have a column 'dt2'"):
        gather(tmp_path / "in", tmp_path / "other", transform="parquet", partition_by="path.dt as DT2")
    with refused(RefusedError, 2, "the files have a column 'dt'"):
        gather(tmp_path / "in", tmp_path / "other", transform="parquet", partition_by="path.dt", partition_columns="directories")


@pytest.mark.parametrize("name", FORMATS)
def test_every_verb_keeps_files_in_their_directories(tmp_path: Path, name: str) -> None:
    how, source, dest = {**FORMATS[name], "partition_by": "path[0] as site", "on_change": "reprocess"}, tmp_path / "in", tmp_path / "out"
    wanted = {f"s{i % 3}/f{i}": f"content {i}\n".encode() for i in range(9)}

    def check() -> None:
        ledger = Ledger(dest)
        for path, content in wanted.items():
            assert ledger.read(source / path) == content
            (data_file,) = {one.data_file for one in ledger.locate(source / path)}
            assert str(data_file).startswith(f"site={path[:2]}/")
        assert {*places(dest)} == {f"site={path[:2]}" for path in wanted}
        assert ledger.verify(spark=HERE["spark"]).ok

    gather(write(source, wanted), dest, target_size="40 B", **how)
    check()
    Ledger(dest).compact("1 MiB", **HERE)
    check()
    assert len(list(places(dest).elements())) == 3
    wanted["s1/f4"] = b"rewritten\n"
    write(source, {"s1/f4": wanted["s1/f4"]})
    gather(source, dest, **how)
    check()
    Ledger(dest).forget(source / "s2", **HERE)
    assert {*places(dest)} == {"site=s0", "site=s1"}
    gather(source, dest, **how)
    check()
    Ledger(dest).expire()
    check()


def test_a_retry_takes_a_file_to_its_directory_whatever_place_it_names(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"s0/a": b"<a/>", "s1/b": b"<BROKEN", "s1/c": b"<c/>"}), tmp_path / "out"
    gather(source, dest, transform="xml", partition_by="path[0] as site", max_file_size="5 B")
    Ledger(dest).checkpoint(spark=HERE["spark"])
    done = Ledger(dest).retry(tmp_path, max_file_size="1 MiB", max_quarantined=MANY, **HERE)
    assert (done.gathered, done.quarantined) == (0, 1)
    write(tmp_path / "more", {"s2/long": b"<long/>"})
    gather(tmp_path / "more", dest, transform="xml", partition_by="path[0] as site", max_file_size="5 B")
    done = Ledger(dest).retry(tmp_path, max_file_size="1 MiB", max_quarantined=MANY, **HERE)
    assert done.gathered == 1
    assert {*places(dest)} == {"site=s0", "site=s1", "site=s2"}


def test_members_of_archives_go_where_the_archive_does(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"s0/a.tar": tar({"x": b"one\n", "y": b"two\n"}), "s1/b": b"three\n"})
    gather(source, tmp_path / "out", archives=True, partition_by="path[0] as site")
    assert {*places(tmp_path / "out")} == {"site=s0", "site=s1"}


def test_a_column_that_a_directory_would_hide_is_quarantined_with_its_file(tmp_path: Path) -> None:
    def rows(content: bytes, file: quire.FileInfo) -> pa.RecordBatch:
        return pa.record_batch({"n": [1], **({"Site": ["elsewhere"]} if content == b"bad" else {})})

    source = write(tmp_path / "in", {"s0/a": b"good", "s1/b": b"bad"})
    report = gather(source, tmp_path / "out", transform=rows, format="parquet", partition_by="path[0] as site", function_version="1")
    assert (report.files, report.quarantined_count) == (1, 1)
    assert "the rows have a column 'Site', which the directories" in report.quarantined[0][1]


# ------------------------------------------------------------------------------------------------------------------------ by columns
@pytest.mark.parametrize("split", ["file", "lines"])
def test_rows_go_where_their_columns_say(tmp_path: Path, split: str) -> None:
    source, dest = write(tmp_path / "in", CITIES), tmp_path / "out"
    size = {} if split == "file" else {"split_size": "8 B"}
    run = functools.partial(process, source, dest, of_lines, partition_by="city", split=split, **size)
    report = run()
    assert (report.files, report.records, report.quarantined_count) == (4, 6, 1)
    assert {*places(dest)} == {"city=Bonn", "city=Rom", "city=Kiel", f"city={NONE}"}
    assert cities(dest) == WANTED
    for name, content in CITIES.items():
        assert sum(x.length for x in Ledger(dest).locate(source / name)) == len(content), "each byte is covered once"
    assert Ledger(dest).summary().files == 4
    assert Ledger(dest).verify(spark=HERE["spark"]).ok
    again = run()
    assert (again.files, again.skipped, again.jobs) == (0, 4, ())
    assert all(pq.read_schema(path).names == ["n"] for path in dest.rglob("part-*.parquet") if "_quire" not in path.parts)


def test_every_verb_keeps_rows_in_their_directories_and_counts_a_file_once(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", CITIES), tmp_path / "out"
    run = functools.partial(process, source, dest, of_lines, partition_by="city", function_version="1")
    run(on_change="reprocess")
    ledger = Ledger(dest)
    assert ledger.forget(source / "a", **HERE).files_out == 1
    assert cities(dest) == WANTED - Counter({("Bonn", 1): 1, ("Rom", 2): 1, ("Bonn", 3): 1})
    assert run(on_change="reprocess").files == 1
    assert cities(dest) == WANTED
    beside = next(x.data_file for x in ledger.refresh().locate(source / "a") if not x.length)
    assert ledger.forget(file=beside, **HERE).files_out == 1
    assert not [city for city, n in cities(dest) if n < 4], "the rows of its file leave the other directories, too"
    assert run(on_change="reprocess").files == 1
    assert cities(dest) == WANTED
    ledger.refresh().compact("1 MiB", **HERE)
    assert cities(dest) == WANTED
    assert max(places(dest).values()) == 1
    write(source, {"a": b"Ulm,1\nBonn,9\n"})
    assert run(on_change="reprocess").files == 1
    changed = WANTED - Counter({("Bonn", 1): 1, ("Rom", 2): 1, ("Bonn", 3): 1}) + Counter({("Ulm", 1): 1, ("Bonn", 9): 1})
    assert cities(dest) == changed
    done = ledger.refresh().retry(source, function=lambda split, content: [{"city": "Rom", "n": 7}], max_quarantined=MANY, **HERE)
    assert (done.gathered, done.quarantined) == (1, 0)
    assert cities(dest) == changed + Counter({("Rom", 7): 1})
    ledger.refresh().checkpoint(spark=HERE["spark"])
    assert run(on_change="reprocess").files == 0
    assert ledger.refresh().summary().files == 4
    assert ledger.verify(spark=HERE["spark"]).ok


def test_lines_that_are_appended_go_to_their_directories_once(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a": b"Bonn,1\nRom,2\n", "b": b""}), tmp_path / "out"
    run = functools.partial(
        process, source, dest, of_lines, partition_by="city", split="lines", on_append="tail", schema="city string, n long"
    )
    run()
    for more in (b"Bonn,3\nKiel,4\nUl", b"m,5\n"):
        for name in ("a", "b"):
            with (source / name).open("ab") as file:
                file.write(more)
        run()
    both = Counter({("Bonn", 3): 2, ("Kiel", 4): 2, ("Ulm", 5): 2})
    assert cities(dest) == both + Counter({("Bonn", 1): 1, ("Rom", 2): 1})
    assert Ledger(dest).summary().files == 2
    assert Ledger(dest).verify(spark=HERE["spark"]).ok


def test_an_empty_file_may_give_rows_for_several_directories(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a": b"", "b": b"Bonn,1\nRom,2\n"}), tmp_path / "out"

    def rows(split: Split, content: bytes) -> list[dict[str, Any]]:
        return [{"city": city, "n": len(content)} for city in ("Bonn", "Rom", "Kiel")]

    for _ in range(2):
        process(source, dest, rows, partition_by="city", function_version="1")
    assert sum(cities(dest).values()) == 6
    ledger = Ledger(dest)
    assert ledger.forget(file=min(ledger.inspect.files()["data_file"]), **HERE).files_out == 2
    assert not cities(dest)
    assert process(source, dest, rows, partition_by="city", function_version="1").files == 2
    assert (sum(cities(dest).values()), Ledger(dest).summary().files) == (6, 2)


def test_several_columns_make_directories_within_each_other_and_keep_their_types(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"s0/a": b"x", "s1/b": b"y"}), tmp_path / "out"

    def rows(split: Split, content: bytes) -> pa.Table:
        days = [dt.date(2026, 11, 21), dt.date(2026, 11, 22), None]
        return pa.table({"day": pa.array(days, pa.date32()), "code": ["007", "", None], "n": [1, 2, 3]})

    process(source, dest, rows, partition_by=["path[0] as site", "day", "code"])
    assert f"site=s0/day={NONE}/code={NONE}" in places(dest)
    wanted = {(site, day, code) for site in ("s0", "s1") for day, code in (("2026-11-21", "007"), ("2026-11-22", ""), (None, None))}
    assert {(row["site"], row["day"] and str(row["day"]), row["code"]) for row in there(dest)} == wanted


def test_columns_may_grow_and_a_row_without_the_column_lies_with_missing_ones(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a": b'{"city": "Bonn", "n": 1}'}), tmp_path / "out"

    def rows(split: Split, content: bytes) -> list[dict[str, Any]]:
        return [json.loads(content)]

    run = functools.partial(process, source, dest, rows, partition_by="city", schema_evolution="add", function_version="1")
    run()
    write(source, {"b": b'{"n": 2}', "c": b'{"city": "Rom", "n": 3, "more": "x"}'})
    report = run()
    assert (report.files, report.quarantined_count) == (2, 0)
    assert {(row["city"], row["n"], row["more"]) for row in there(dest)} == {("Bonn", 1, None), (None, 2, None), ("Rom", 3, "x")}
    Ledger(dest).compact("1 MiB", **HERE)
    assert {(row["city"], row["n"], row["more"]) for row in there(dest)} == {("Bonn", 1, None), (None, 2, None), ("Rom", 3, "x")}


@pytest.mark.parametrize("grows", [False, True])
def test_rows_that_are_written_again_have_no_column_of_their_directory_in_them(tmp_path: Path, grows: bool) -> None:
    """Else the column would stand in the file, as missing values, and in the directories' names."""
    source, dest = write(tmp_path / "in", {"a": b'{"city": "Rom", "n": 1}', "b": b'{"city": "Rom", "n": 2}'}), tmp_path / "out"

    def rows(split: Split, content: bytes) -> list[dict[str, Any]]:
        return [json.loads(content)]

    how = {"partition_by": "city", "schema": "n long, city string", "function_version": "1", "on_change": "reprocess"}
    run = functools.partial(process, source, dest, rows, **how, **({"schema_evolution": "add"} if grows else {}))
    run()
    write(source, {"a": b'{"city": "Rom", "n": 11}'})
    assert run().files == 1
    assert {(row["city"], row["n"]) for row in there(dest)} == {("Rom", 11), ("Rom", 2)}
    assert {tuple(pq.read_schema(path).names) for path in dest.glob("city=*/*.parquet")} == {("n",)}


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"n": 1}], ["partition_by='city' is not a column"]),
        ([{"city": "Bonn"}], ["names all columns (city)"]),
        ([{"city": [1], "n": 1}], ["makes no directories"]),
        ([{"city": 1.5, "n": 1}], ["makes no directories"]),
    ],
)
def test_columns_that_make_no_directories_are_refused(tmp_path: Path, rows: list[Any], words: list[str]) -> None:
    with refused(UsageError, 2, *words):
        process(write(tmp_path / "in", {"a": b"x"}), tmp_path / "out", lambda *_: rows, partition_by="city")
    assert not places(tmp_path / "out")


def test_a_split_whose_value_names_no_directory_is_quarantined_alone(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"a": b"short", "b": b"x" * 300})

    def rows(split: Split, content: bytes) -> list[dict[str, Any]]:
        return [{"city": content.decode(), "n": 1}]

    report = process(source, tmp_path / "out", rows, partition_by="city")
    assert (report.files, report.quarantined_count) == (1, 1)
    assert "305 bytes" in report.quarantined[0][1]
    with refused(UsageError, 2, "the rows have a column 'n'"):
        process(source, tmp_path / "other", rows, partition_by=["path[0] as N", "city"])


def test_bytes_have_no_columns_to_go_by(tmp_path: Path) -> None:
    with refused(UsageError, 2, "bytes have none", "day(modified)"):
        process(write(tmp_path / "in", {"a": b"x"}), tmp_path / "out", lambda *_: b"x\n", partition_by="city")
    process(tmp_path / "in", tmp_path / "out", lambda *_: b"x\n", partition_by="day(modified)")
    assert len(places(tmp_path / "out")) == 1


def test_all_rows_without_the_column_are_no_success(tmp_path: Path) -> None:
    """The first files give no row, so only the tasks see what the others give."""
    source = write(tmp_path / "in", {f"a{i}": b"nothing" for i in range(9)} | {"b": b"x"})

    def rows(split: Split, content: bytes) -> list[dict[str, Any]] | None:
        return [{"n": 1}] if content == b"x" else None

    report = process(source, tmp_path / "out", rows, partition_by="city", format="parquet")
    assert (report.files, report.quarantined_count) == (9, 1)
    assert "'city' is not a column" in report.quarantined[0][1]
    with pytest.raises(AllQuarantined):
        quire.process(write(source, {"c": b"x"}), tmp_path / "out", rows, partition_by="city", format="parquet", **HERE)


def test_columns_that_only_the_tasks_have_seen_are_found_again(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {f"a{i}": b"-" for i in range(9)} | {"b": b"Bonn,1\n"}), tmp_path / "out"
    run = functools.partial(process, source, dest, of_lines, partition_by="city", format="parquet")
    assert run().quarantined_count == 9
    write(source, {"c": b"Rom,2\n"})
    assert run().quarantined_count == 0
    assert cities(dest) == Counter({("Bonn", 1): 1, ("Rom", 2): 1})


def test_very_many_directories_in_one_task_need_few_open_files_and_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    n = 500
    monkeypatch.setattr(folders, "MOST", 20)
    source = write(tmp_path / "in", {"a": b"".join(b"%d,%d\n" % (i * 7919 % n, i) for i in range(2 * n))})
    monkeypatch.setattr(folders, "HELD", 1 << 20)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_now = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 20 + 60, limits[1]))
    tracemalloc.start()
    try:
        report = process(source, tmp_path / "out", of_lines, partition_by="city", split="lines", split_size="16 KiB")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert report.records == 2 * n
    assert report.early >= n - 20
    assert f"{report.early:,}, as too many directories were written at once: quire ledger compact merges them" in str(report)
    assert len(places(tmp_path / "out")) == n
    assert peak < 40 << 20, f"{peak:,} bytes"
    assert Ledger(tmp_path / "out").verify(spark=HERE["spark"]).ok


@pytest.mark.parametrize("split", ["file", "lines"])
def test_a_source_is_purged_once_all_of_its_places_are_verified(tmp_path: Path, split: str) -> None:
    source, dest = write(tmp_path / "in", {"a": b"Bonn,1\nRom,2\nBonn,3\n", "b": b"Rom,4\n", "c": b"-bad\nUlm,5\n"}), tmp_path / "out"
    process(source, dest, of_lines, partition_by="city", split=split)
    wanted, how = cities(dest), {"dry_run": False, "derived": True, "min_age": 0, "spark": HERE["spark"]}
    with refused(RefusedError, 2, "derived=True"):
        Ledger(dest).purge_sources(source, dry_run=False, min_age=0, spark=HERE["spark"])
    (rome,) = (path for path in dest.rglob("part-*") if path.parent.name == "city=Rom")
    whole = rome.read_bytes()
    rome.write_bytes(whole[:-60])
    damaged = Ledger(dest).purge_sources(source, **how)
    assert (damaged.files, sum(damaged.stays.values())) == (0, 2), "half of what was made of a file is not enough"
    rome.write_bytes(whole)
    found = Ledger(dest).purge_sources(source, **how)
    assert found.files == 2
    assert [path.name for path in sorted(source.iterdir())] == ["c"], "a file of which a record is in quarantine stays"
    assert Ledger(dest).compact("1 MiB", **HERE).removed == 0 or cities(dest) == wanted
    write(source, {"a": b"Bonn,7\nRom,8\n"})
    process(source, dest, of_lines, partition_by="city", split=split)
    assert cities(dest) == wanted + Counter({("Bonn", 7): 1, ("Rom", 8): 1}), "a new file of a purged name is new"
    Ledger(dest).compact("1 MiB", **HERE)
    assert cities(dest) == wanted + Counter({("Bonn", 7): 1, ("Rom", 8): 1})
    assert Ledger(dest).verify(spark=HERE["spark"]).ok
    with refused(RefusedError, 2, "last_copy=True"):
        Ledger(dest).forget(source / "b", **HERE)


def test_a_source_that_has_changed_since_is_not_purged(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a": b"Bonn,1\nRom,2\n"}), tmp_path / "out"
    process(source, dest, of_lines, partition_by="city")
    (source / "a").write_bytes(b"Bonn,1\nRom,3\n")
    found = Ledger(dest).purge_sources(source, dry_run=False, derived=True, min_age=0, spark=HERE["spark"])
    assert (found.files, list(found.stays)) == (0, ["it has changed since it was gathered"])
    assert (source / "a").exists()


def test_by_parts_of_a_path_sources_are_purged_as_always(tmp_path: Path) -> None:
    gather(write(tmp_path / "more", {"s0/a": b"one\n"}), tmp_path / "by path", partition_by="path[0] as site")
    Ledger(tmp_path / "by path").purge_sources(tmp_path / "more", dry_run=False, min_age=0, spark=HERE["spark"])
    assert not (tmp_path / "more/s0/a").exists()


def test_markers_of_what_is_done_name_each_byte_once(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a": b"Bonn,1\nRom,2\n", "b": b"Kiel,3\n"}), tmp_path / "out"
    process(source, dest, of_lines, partition_by="city", split="lines")
    Ledger(dest).export_markers(tmp_path / "markers", spark=HERE["spark"])
    names = [path.name for path in (tmp_path / "markers").rglob("*@*") if path.is_file()]
    assert sorted(name.split("@")[-2] for name in names) == ["0", "0"]


def test_partitions_are_counted_and_skew_is_seen(tmp_path: Path) -> None:
    lines = b"".join(b"%s,%d\n" % (b"Bonn" if i % 50 else b"Rom", i) for i in range(5_000))
    process(write(tmp_path / "in", {"a": lines}), tmp_path / "out", of_lines, partition_by="city")
    found = Ledger(tmp_path / "out").partition_skew()
    assert dict(zip(found.rows.part, found.rows.count, strict=True)) == {"city=Bonn": 4_900, "city=Rom": 100}
    assert found.verdict != "even"
    assert {*Ledger(tmp_path / "out").partition_skew(by="bytes").rows.part} == {"city=Bonn", "city=Rom"}


def test_gzip_members_kept_raw_lie_in_their_directories(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"s0/a.gz": gzip.compress(b"one\n"), "s0/b": b"two\n", "s1/c.gz": gzip.compress(b"three\n")})
    gather(source, tmp_path / "out", transform="raw", partition_by="path[0] as site")
    assert dict(places(tmp_path / "out")) == {"site=s0": 2, "site=s1": 1}


# ------------------------------------------------------------------------------------------------------------- functions of consolidate
def of_content(content: bytes, file: Any) -> pa.RecordBatch:
    """A row for each line `city,n`."""
    rows = [line.decode().split(",") for line in content.splitlines()]
    return pa.record_batch({"city": pa.array([city or None for city, _ in rows]), "n": pa.array([int(n) for _, n in rows], pa.int64())})


def test_rows_of_a_function_of_consolidate_go_where_their_column_says(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"s0/a": b"Bonn,1\nRom,2\n,3\n", "s1/b": b"Rom,4\n"}), tmp_path / "out"
    run = functools.partial(gather, source, dest, transform=of_content, format="parquet", partition_by="city", function_version="1")
    assert (run().records, run().records) == (4, 0)
    assert {*places(dest)} == {"city=Bonn", "city=Rom", f"city={NONE}"}
    write(source, {"s2/c": b"Bonn,5\nUlm,6\n"})
    assert run().files == 1
    wanted = Counter({("Bonn", 1): 1, ("Rom", 2): 1, (None, 3): 1, ("Rom", 4): 1, ("Bonn", 5): 1, ("Ulm", 6): 1})
    assert cities(dest) == wanted
    Ledger(dest).compact("1 MiB", **HERE)
    assert (cities(dest), places(dest)["city=Bonn"]) == (wanted, 1)
    assert Ledger(dest).verify(spark=HERE["spark"]).ok
    Ledger(dest).forget(source / "s0", **HERE)
    assert sum(cities(dest).values()) == 3
    run()
    assert cities(dest) == wanted
    with refused(RefusedError, 2, "partition_by"):
        gather(source, dest, transform=of_content, format="parquet", function_version="1")


def test_a_decoder_of_columns_has_them_too(tmp_path: Path) -> None:
    """Small files are decoded some at a time where nothing parts their rows."""
    source = write(tmp_path / "in", {f"{i}.json": json.dumps({"city": ("Bonn", "Rom")[i % 2], "n": i}).encode() for i in range(20)})
    columns = {"city": "$.city: string", "n": "$.n: long"}
    gather(source, tmp_path / "out", transform="json", columns=columns, partition_by=["day(modified)", "city"])
    assert cities(tmp_path / "out") == Counter({(("Bonn", "Rom")[i % 2], i): 1 for i in range(20)})


def test_a_file_without_the_column_is_quarantined_and_all_of_them_are_no_success(tmp_path: Path) -> None:
    def other(content: bytes, file: Any) -> pa.RecordBatch:
        return pa.record_batch({"n": pa.array([1])} if content == b"x" else {"city": pa.array(["Bonn"]), "n": pa.array([1])})

    source = write(tmp_path / "in", {"a": b"x", "b": b"y"})
    how = {"transform": other, "format": "parquet", "partition_by": "city", "function_version": "1"}
    report = gather(source, tmp_path / "out", **how)
    assert (report.files, report.quarantined_count) == (1, 1)
    assert "partition_by='city' is not a column" in report.quarantined[0][1]
    (source / "b").unlink()
    with pytest.raises(AllQuarantined):
        quire.consolidate(source, tmp_path / "other", **how, **HERE)
