"""`quire table …`: created, written from files, read and asked in a shell, with the words that Python has."""

from __future__ import annotations

import gzip
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import hive_service
import jvm
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quire
from commands import Run, answer, one_line, parsed, rows, strict
from gathering import snapshot
from quire.cli import app, table
from quire.cli import rows as reading
from quire.errors import RefusedError
from quire.table.format.schema import META
from quire.table.overview import Overview

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = quire.LocalRunner()
ALL = "00000000000000"
FIRST = "id,city,at,fare\na,sf,1,1.5\nb,la,2,2.5\n"
SECOND = '{"id": "a", "city": "sf", "at": 5, "fare": 9}\n\n{"id": "c", "city": "sf", "at": 3, "fare": null}\n'


def file(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


@pytest.fixture
def trips(run: Run, tmp_path: Path) -> Path:
    """An empty table."""
    assert run("table", "create", tmp_path / "t", "--key", "id", "--partition-by", "city", "--ordering", "at")[0] == 0
    return tmp_path / "t"


@pytest.fixture
def filled(run: Run, trips: Path, tmp_path: Path) -> list[Any]:
    """Its reports of two calls."""
    first, second = file(tmp_path / "a.csv", FIRST), file(tmp_path / "b.jsonl", SECOND)
    return [answer(run("table", "upsert", trips, each, "--quiet", "--json")) for each in (first, second)]


def content(trips: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = quire.Table(trips).snapshot(spark=LOCAL).drop_columns(list(META)).to_pylist()
    return sorted(found, key=lambda row: str(row["id"]))


def test_a_table_is_created_filled_and_read(run: Run, trips: Path, filled: list[Any]) -> None:
    first, second = filled
    assert set(first) == set(quire.TableReport.__dataclass_fields__)
    assert (first["inserted"], second["inserted"], second["updated"], second["data_files"]) == (2, 1, 1, 1)
    expected = [
        {"id": "a", "city": "sf", "at": 5, "fare": 9.0}, {"id": "b", "city": "la", "at": 2, "fare": 2.5},
        {"id": "c", "city": "sf", "at": 3, "fare": None},
    ]  # fmt: skip
    assert content(trips) == expected
    columns = ("--columns", "id,city", "--columns", "at", "--columns", "fare")
    assert sorted(rows(run("table", "snapshot", trips, *columns)), key=lambda row: row["id"]) == expected
    assert run("table", "snapshot", trips, *columns, "--json") == run("table", "snapshot", trips, *columns)
    assert len(rows(run("table", "snapshot", trips, "-n", 1))) == 1
    assert run("table", "snapshot", trips, "--limit", 0) == (0, "", "")
    then = rows(run("table", "snapshot", trips, "--as-of", first["instant"], "--columns", "id,fare"))
    assert sorted(then, key=lambda row: row["id"]) == [{"id": "a", "fare": 1.5}, {"id": "b", "fare": 2.5}]


def test_read_prints_what_a_snapshot_has(run: Run, trips: Path, filled: list[Any]) -> None:
    assert len(rows(run("read", trips))) == 3
    for form in ((), ("--json",), ("-n", 2)):
        assert run("read", trips, *form) == run("table", "snapshot", trips, *form)


def test_the_first_rows_are_read_without_the_others(run: Run, trips: Path, filled: list[Any]) -> None:
    """A table is larger than memory: what is not asked for is not read."""
    for last in trips.rglob("city=sf/*.parquet"):
        last.write_bytes(b"")
    assert [row["id"] for row in rows(run("table", "snapshot", trips, "-n", 1))] == ["b"]
    assert [row["id"] for row in rows(run("read", trips, "-n", 1))] == ["b"]
    code, out, err = run("table", "snapshot", trips)
    assert (code, out.count("\n"), err.count("\n")) == (2, 1, 1)
    assert "city=sf/" in err


def test_changes_are_printed_one_a_line(run: Run, trips: Path, filled: list[Any], tmp_path: Path) -> None:
    key = file(tmp_path / "gone.csv", "id,city,at\nb,la,9\n")
    deleted = answer(run("table", "delete", trips, key, "--quiet", "--json"))
    assert (deleted["deleted"], deleted["operation"]) == (1, "delete")
    first, second = filled

    def changed(*options: object) -> list[tuple[str, str]]:
        return sorted((row["op"], row["_hoodie_record_key"]) for row in rows(run("table", "changes", trips, *options)))

    assert changed("--since", ALL) == [("i", "a"), ("i", "c")]
    assert changed("--since", ALL, "--no-net") == [("d", "b"), ("i", "a"), ("i", "b"), ("i", "c"), ("u", "a")]
    assert changed("--since", first["instant"], "--until", second["instant"]) == [("i", "c"), ("u", "a")]
    assert len(changed("--since", ALL, "--no-net", "-n", 2)) == 2
    (update,) = [row for row in rows(run("table", "changes", trips, "--since", first["instant"], "--images", "both")) if row["op"] == "u"]
    assert (update["before"]["fare"], update["after"]["fare"], update["instant"]) == (1.5, 9.0, second["instant"])
    assert run("table", "changes", trips, "--since", deleted["instant"]) == (0, "", "")


def test_show_says_settings_and_what_each_partition_holds(run: Run, trips: Path, filled: list[Any]) -> None:
    said = answer(run("table", "show", trips, "--json"))
    assert set(said) == set(Overview.__dataclass_fields__)
    created = set(inspect.signature(quire.Table.create).parameters) - {"url", "storage_options"}
    assert created <= set(said), "each setting has the name that it was given by"
    assert (said["key"], said["partition_by"], said["ordering"], said["index"], said["buckets"]) == (["id"], ["city"], "at", "bloom", None)
    assert said["columns"] == {"id": "string", "city": "string", "at": "int64", "fare": "double"}
    held = {each["partition"]: (each["rows"], each["files"]) for each in said["partitions"]}
    assert (held, said["rows"], said["files"]) == ({"city=la": (1, 1), "city=sf": (2, 1)}, 3, 2)
    assert said["bytes"] == sum(each["bytes"] for each in said["partitions"])
    assert [each["instant"] for each in said["instants"]] == [each["instant"] for each in filled]
    code, out, err = run("table", "show", trips)
    assert (code, err) == (0, "")
    assert "city=sf: rows 2, base files 1" in out
    code, out, err = run("table", "create", trips, "--key", "id", "--partition-by", "city", "--ordering", "at")
    assert (code, err) == (0, ""), "as it was created, rows or not"
    assert "city=sf: rows 2, base files 1" in out


def test_older_slices_are_cleaned_and_a_savepoint_holds_them(run: Run, trips: Path, tmp_path: Path) -> None:
    for fare in range(4):
        assert run("table", "upsert", trips, file(tmp_path / "x.csv", f"id,city,at,fare\na,sf,{fare},{fare}\n"), "--quiet")[0] == 0
        if fare == 1:
            code, held, _ = run("table", "savepoint", trips, "--comment", "before")
            assert code == 0
    (saved,) = answer_lines(run("table", "savepoints", trips))
    assert (saved["instant"], saved["comment"], saved["by"]) == (held.strip(), "before", "quire")
    planned = answer(run("table", "clean", trips, "--versions", "1", "--dry-run", "--json"))
    assert (planned["slices"], planned["dry_run"]) == (2, True)
    done = answer(run("table", "clean", trips, "--versions", "1", "--quiet", "--json"))
    assert (done["slices"], done["files"], done["savepoints"]) == (2, 2, [saved["instant"]])
    gone = answer(run("table", "savepoint", trips, "--instant", saved["instant"], "--delete", "--json"))
    assert gone == {"deleted": saved["instant"]}
    assert answer(run("table", "savepoint", trips, "--json"))["instant"] > saved["instant"]
    assert answer(run("table", "stats", trips, "--json"))["superseded"] == 1
    assert "write amplification" in run("table", "stats", trips)[1]
    code, out, _ = run("table", "clean", trips, "--versions", "1", "--quiet")
    assert code == 0
    assert "deleted" in out
    assert "1 slices" in out
    assert answer(run("table", "clean", trips, "--json", "--quiet"))["files"] == 0
    assert answer(run("table", "archive", trips, "--keep", "2", "--dry-run", "--json"))["instants"] >= 2
    assert "the last 2 writes stay" in run("table", "archive", trips, "--keep", "2", "--quiet")[1]
    assert answer(run("table", "archive", trips, "--json", "--quiet"))["instants"] == 0
    assert answer(run("table", "maintain", trips, "--dry-run", "--json"))["due"] == {}
    assert "nothing" in run("table", "maintain", trips, "--quiet")[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quire.Table, "archive", lambda *_, **__: (_ for _ in ()).throw(RefusedError("another program is writing.")))
        found = answer(run("table", "maintain", trips, "--keep", "1", "--quiet", "--json"), 3)
        assert found["hindered"] == {"archive": "another program is writing."}


def answer_lines(said: tuple[int, str, str]) -> list[Any]:
    return [json.loads(line) for line in said[1].splitlines()]


def test_a_table_is_registered_in_a_metastore(run: Run, trips: Path, filled: list[Any]) -> None:
    with hive_service.service() as hive:
        asked = ("table", "sync-metastore", trips, hive.uri, "--name", "rides")
        said = answer(run(*asked, "--json"))
        assert set(said) == set(quire.MetastoreReport.__dataclass_fields__)
        assert (said["created"], said["added"], said["instant"]) == (["default.rides"], 2, filled[-1]["instant"])
        code, out, err = run(*asked, "--location", f"{trips.as_uri()}/")
        assert (code, err) == (0, "")
        assert "0 added, 0 dropped" in out
        one_line(run(*asked, "--database", "lake"), 2, "has no database lake")
    one_line(run(*asked), 3, "no metastore answers")


def test_a_loop_of_maintenance_leaves_the_processor_to_others(trips: Path) -> None:
    asked = ["quire", "table", "maintain", str(trips), "--every", "1 s", "--max-runs", "1", "--quiet"]
    code = f"import atexit, os, sys, quire.cli; sys.argv = {asked}; atexit.register(lambda: print(os.nice(0))); quire.cli.main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout.split()[-1]) == min(19, os.nice(0) + 10)


def test_logs_are_compacted(run: Run, tmp_path: Path) -> None:
    place, first, second = tmp_path / "m", file(tmp_path / "a.csv", FIRST), file(tmp_path / "b.jsonl", SECOND)
    create = ("--key", "id", "--partition-by", "city", "--ordering", "at", "--type", "merge_on_read", "--log-format", "avro")
    assert run("table", "create", place, *create)[0] == 0
    for each in (first, file(tmp_path / "c.csv", FIRST.replace(",1.5", ",3.5"))):
        assert run("table", "upsert", place, each, "--quiet")[0] == 0
    laid = answer(run("table", "compact", place, "--schedule-only", "--json"))
    assert (len(laid["scheduled"]), laid["pending"], laid["file_groups"]) == (1, laid["scheduled"], 0)
    pending = answer(run("table", "timeline", place, "--last", 1, "--json"))
    assert [(each["action"], each["state"]) for each in pending] == [("compaction", "requested")]
    assert run("table", "upsert", place, second, "--quiet")[0] == 0
    before, shown = content(place), answer(run("table", "show", place, "--json"))
    assert (shown["log_format"], shown["logs"], shown["log_bytes"] > 500) == ("avro", 3, True)
    assert "logs          3 (" in run("table", "show", place)[1]
    done = answer(run("table", "compact", place, "--pending-only", "--quiet", "--json"))
    assert (done["completed"], done["file_groups"], done["logs"]) == (laid["scheduled"], 2, 2)
    (said,) = [each for each in answer(run("table", "timeline", place, "--json")) if each["operation"] == "compact"]
    assert (said["files"], said["inserted"], said["updated"], said["deleted"]) == (2, 0, 0, 0)
    code, out, _ = run("table", "compact", place, "--quiet", "--time-limit", "1 min", "--strategy", "oldest", "--plan-size", "1 GiB")
    assert (code, "file groups left with logs  0" in out) == (0, True)
    assert content(place) == before


def test_files_are_clustered(run: Run, tmp_path: Path) -> None:
    place, first = tmp_path / "k", file(tmp_path / "a.csv", FIRST)
    second = file(tmp_path / "b.csv", "id,city,at,fare\nc,sf,3,\nd,sf,1,0.5\n")
    assert run("table", "create", place, "--key", "id", "--partition-by", "city", "--ordering", "at")[0] == 0
    for each in (first, second):
        assert run("table", "bulk-insert", place, each, "--quiet")[0] == 0
    before = content(place)
    how = ("--sort", "city,fare", "--curve", "hilbert")
    planned = answer(run("table", "cluster", place, *how, "--dry-run", "--json"))
    assert (planned["file_groups"], planned["files"], planned["dry_run"], planned["sort"]) == (3, 0, True, ["city", "fare"])
    done = answer(run("table", "cluster", place, *how, "--partition", "sf", "--quiet", "--json"))
    assert (done["file_groups"], done["files"], done["curve"]) == (2, 1, "hilbert")
    code, out, _ = run("table", "cluster", place, *how, "--partition", "sf", "--quiet")
    assert (code, "0 file groups" in out) == (0, True)
    assert content(place) == before


def test_partitions_are_replaced_and_taken_away(run: Run, tmp_path: Path) -> None:
    place, first, second = tmp_path / "p", file(tmp_path / "a.csv", FIRST), file(tmp_path / "b.jsonl", SECOND)
    assert run("table", "create", place, "--key", "id", "--partition-by", "city", "--ordering", "at")[0] == 0
    assert run("table", "insert", place, first, "--quiet")[0] == 0
    for again in (False, True):
        done = answer(run("table", "insert-overwrite", place, second, "--batch", "day", "--quiet", "--json"))
        assert (done["inserted"], done["replaced"], done["again"]) == (2, 1, again)
    assert {row["id"] for row in content(place)} == {"a", "b", "c"}
    before = content(place)
    code, out, err = run("table", "delete-partitions", place, "sf", "city=la", "--json")
    assert (code, [(each["partition"], each["rows"]) for each in json.loads(out)]) == (0, [("city=la", 1), ("city=sf", 2)])
    assert "with --yes" in err
    assert content(place) == before, "nothing has changed"
    gone = answer(run("table", "delete-partitions", place, "sf", "--yes", "--batch", "day", "--quiet", "--json"))
    assert (gone["operation"], gone["replaced"], gone["data_files"]) == ("delete_partition", 1, 0)
    assert {row["id"] for row in content(place)} == {"b"}
    assert "file groups replaced" in run("table", "delete-partitions", place, "la", "--yes", "--quiet")[1]
    assert content(place) == []
    said = answer(run("table", "timeline", place, "--json"))
    assert [each["operation"] for each in said] == ["insert", "insert_overwrite", "delete_partition", "delete_partition"]


def test_rows_of_a_commit_that_was_archived_are_not_known(run: Run, trips: Path, filled: list[Any]) -> None:
    for name in (trips / ".hoodie").glob(f"{filled[0]['instant']}.*"):
        name.unlink()
    said = answer(run("table", "show", trips, "--json"))
    assert ({each["partition"]: each["rows"] for each in said["partitions"]}, said["rows"]) == ({"city=la": None, "city=sf": 2}, None)
    assert "city=la: rows not known" in run("table", "show", trips)[1]


def test_the_timeline_says_what_each_instant_has_changed(run: Run, trips: Path, filled: list[Any]) -> None:
    file(trips / ".hoodie/20991122093015123.commit.requested", "")
    found = answer(run("table", "timeline", trips, "--json"))
    assert [(each["instant"], each["operation"], each["inserted"], each["updated"]) for each in found[:2]] == [
        (filled[0]["instant"], "upsert", 2, 0), (filled[1]["instant"], "upsert", 1, 1),
    ]  # fmt: skip
    assert (found[2]["instant"], found[2]["state"], found[2]["files"]) == ("20991122093015123", "requested", None)
    assert answer(run("table", "timeline", trips, "--last", 2, "--json")) == found[1:]
    assert run("table", "timeline", trips)[1].count("\n") == 4


def test_a_record_s_history_is_a_version_a_line(run: Run, trips: Path, filled: list[Any]) -> None:
    code, out, err = run("table", "history", trips, "a")
    found = [strict(line) for line in out.splitlines()]
    assert (code, [(each["instant"], each["op"], each["after"]["fare"]) for each in found]) == (
        0, [(filled[0]["instant"], "i", 1.5), (filled[1]["instant"], "u", 9.0)],
    )  # fmt: skip
    assert "are known: all" in err
    code, out, err = run("table", "history", trips, "a", "--partition", "la")
    assert (code, out) == (0, "")
    assert "not in the table" in err
    one_line(run("table", "history", trips, "a", "--partition", "rome"), 2, "has no partition 'city=rome'")


def test_a_batch_is_committed_once(run: Run, trips: Path, tmp_path: Path) -> None:
    call = ("table", "insert", trips, file(tmp_path / "a.csv", FIRST), "--batch", "2026-11-22", "--quiet", "--json")
    first, again = answer(run(*call)), answer(run(*call))
    assert (first["again"], again["again"], again["instant"]) == (False, True, first["instant"])
    assert len(content(trips)) == 2


# --------------------------------------------------------------------------------------------------------------------- the files


def test_parquet_csv_and_json_come_together_in_their_order(run: Run, tmp_path: Path) -> None:
    """Without an ordering the later row counts, so the order of the files does, too; numbers meet in the wider type."""
    run("table", "create", tmp_path / "t", "--key", "id")
    pq.write_table(pa.table({"n": pa.array([1, 1], pa.int32()), "id": ["a", "p"]}), tmp_path / "_1.parquet", row_group_size=1)
    (tmp_path / "2.CSV.gz").write_bytes(gzip.compress(b"id,n\na,2\nc,2.5\n"))
    file(tmp_path / "3.json", '{"n": 3, "id": "a"}\n')
    file(tmp_path / "empty.ndjson", "")
    files = [tmp_path / name for name in ("_1.parquet", "2.CSV.gz", "3.json", "empty.ndjson")]
    report = answer(run("table", "bulk-insert", tmp_path / "t", *files, "--quiet", "--json"))
    assert (report["inserted"], report["operation"]) == (3, "bulk_insert")
    assert content(tmp_path / "t") == [{"n": 3.0, "id": "a"}, {"n": 2.5, "id": "c"}, {"n": 1.0, "id": "p"}]


def test_text_takes_the_types_that_the_table_has(run: Run, tmp_path: Path) -> None:
    kinds = pa.schema([("id", pa.string()), ("price", pa.decimal128(20, 2)), ("at", pa.timestamp("us", "UTC")), ("day", pa.date32())])
    run("table", "create", tmp_path / "t", "--key", "id")
    pq.write_table(kinds.empty_table(), tmp_path / "none.parquet")
    row = {"id": "007", "price": "123456789012345678.05", "at": "2026-11-22T10:00:00Z", "day": "2026-11-22"}
    quire.Table(tmp_path / "t").upsert(
        pa.Table.from_pylist([{"id": "0", "price": None, "at": None, "day": None}], kinds), spark=LOCAL, progress=False
    )
    written = [file(tmp_path / "r.csv", ",".join(row) + "\n" + ",".join(row.values()) + "\n")]
    lines = [{**row, "id": 1} | {"id": "NA"}, {"id": "2026-11-22 10:00:00", "price": 1.25, "at": None}]
    written += [file(tmp_path / "r.jsonl", "".join(json.dumps(each) + "\n" for each in lines))]
    for each in written:
        assert run("table", "upsert", tmp_path / "t", each, "--quiet")[0] == 0
    assert quire.Table(tmp_path / "t").snapshot(spark=LOCAL, columns=kinds.names).schema.equals(kinds)
    shown = {each["id"]: each for each in rows(run("table", "snapshot", tmp_path / "t"))}
    assert (shown["007"]["price"], shown["007"]["at"], shown["007"]["day"]) == (row["price"], "2026-11-22 10:00:00+00:00", "2026-11-22")
    assert shown["NA"]["price"] == row["price"]
    assert shown["2026-11-22 10:00:00"]["price"] == "1.25"


def test_times_without_a_zone_are_utc_where_that_is_said(run: Run, tmp_path: Path) -> None:
    """In a column that the table has, and in a new one; those with a zone are what they say."""
    run("table", "create", tmp_path / "t", "--key", "id")
    new = file(tmp_path / "1.csv", "id,at\na,2026-11-22 10:00:00\n")
    said = "the column 'at' has times without a zone: say --utc if they are UTC, or write the zone, as 2026-11-22T10:00:00Z"
    one_line(run("table", "upsert", tmp_path / "t", new, "--quiet"), 2, said)
    assert run("table", "upsert", tmp_path / "t", new, "--utc", "--quiet")[0] == 0
    some = [
        file(tmp_path / "2.csv", "id,at\nb,2026-11-22T11:00:00.5\nc,2026-11-22T12:00:00+01:00\nd,\n"),
        file(
            tmp_path / "3.jsonl",
            '{"id": "e", "at": "2026-11-22 13:00:00"}\n{"id": "f", "at": "2026-11-22T14:00:00Z"}\n{"id": "g", "at": null}\n',
        ),
    ]
    pq.write_table(pa.table({"id": ["h"], "at": pa.array([0], pa.timestamp("ms"))}), tmp_path / "4.parquet")
    for each in (*some, tmp_path / "4.parquet"):
        one_line(run("table", "upsert", tmp_path / "t", each, "--quiet"), 2, said)
    assert run("table", "upsert", tmp_path / "t", *some, tmp_path / "4.parquet", "--utc", "--quiet")[0] == 0
    found = {each["id"]: each["at"] and each["at"].isoformat() for each in content(tmp_path / "t")}
    day = "2026-11-22T"
    assert found == {
        "a": f"{day}10:00:00+00:00", "b": f"{day}11:00:00.500000+00:00", "c": f"{day}11:00:00+00:00", "d": None,
        "e": f"{day}13:00:00+00:00", "f": f"{day}14:00:00+00:00", "g": None, "h": "1970-01-01T00:00:00+00:00",
    }  # fmt: skip


@pytest.mark.nth(8)
@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("no.csv", None, "does not exist"), ("x.txt", "id", ".parquet, .csv"), ("x.csv", "", "Empty CSV file"),
        ("x.jsonl", '{"id": "a"}\n[1]\n', "line 2 is not a JSON object"), ("x.json", '{\n"id": "a"}', "line 1 is not a JSON object"),
        ("x.parquet", "PAR1 nothing PAR1", "cannot be read"), ("x.csv.gz", "id\n", "cannot be read"), ("d", None, "is a directory"),
        ("x.csv", "id,city,at,fare\na,sf,one,2\n", "one"), ("x.csv", "id,id,city,at,fare\n1,2,sf,3,4\n", "two columns 'id'"),
        ("x.csv", "id,cty,at,fare\na,sf,1,2\n", "no column 'city'"), ("x.jsonl", '{"id": "a", "city": "sf", "at": 1}', "no column 'fare'"),
        ("x.csv", "id,city,at,fare\n,sf,1,2\n", "no record key"), ("x.csv", "id,city,at,fare\na,sf,,2\n", "ordering field"),
    ],
)  # fmt: skip
def test_a_file_that_does_not_fit_is_one_line_and_changes_nothing(
    run: Run, trips: Path, filled: list[Any], tmp_path: Path, name: str, text: str | None, words: str
) -> None:
    (tmp_path / "d").mkdir()
    if text is not None:
        file(tmp_path / name, text)
    before = content(trips)
    one_line(run("table", "upsert", trips, tmp_path / name, "--quiet"), 2, words)
    assert content(trips) == before


def test_files_of_several_kinds_of_rows_are_one_line(run: Run, trips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = file(tmp_path / "a.csv", FIRST)
    less, more = file(tmp_path / "less.csv", "id,city,at\na,sf,1\n"), file(tmp_path / "more.csv", "id,city,at,fare,tip\na,sf,1,1,1\n")
    for no_file in ("x" * 300 + ".csv", "~nobody-is-called-so/x.csv"):
        one_line(run("table", "upsert", trips, no_file, "--quiet"), 2, "does not exist")
    one_line(run("table", "upsert", trips, good, less, "--quiet"), 2, "less.csv has no column 'fare', which", "a.csv has")
    one_line(run("table", "upsert", trips, good, more, "--quiet"), 2, "a.csv has no column 'tip', which", "more.csv has")
    text = file(tmp_path / "text.csv", "id,city,at,fare\na,sf,1,cheap\n")
    one_line(run("table", "upsert", trips, good, text, "--quiet"), 2, "do not fit together", "double", "string")
    one_line(run("table", "upsert", trips, "s3://lake/a.csv", "--quiet"), 2, "is a URL")
    monkeypatch.setattr(reading, "MOST", 10)
    one_line(run("table", "upsert", trips, good, "--quiet"), 2, "more than 10 B of text", "Parquet")
    assert quire.Ledger(trips, create=True).version == 0


def test_a_damaged_part_of_parquet_is_one_line_and_changes_nothing(run: Run, tmp_path: Path) -> None:
    """The footer is whole, and what lies before it is not: that shows while rows are staged."""
    run("table", "create", tmp_path / "t", "--key", "id")
    pq.write_table(pa.table({"id": [f"key-{i}" for i in range(5_000)]}), tmp_path / "x.parquet", compression="zstd")
    data = bytearray((tmp_path / "x.parquet").read_bytes())
    data[100:2_000] = bytes(1_900)
    (tmp_path / "x.parquet").write_bytes(data)
    one_line(run("table", "upsert", tmp_path / "t", tmp_path / "x.parquet", "--quiet"), 2, "cannot be read", "Nothing was written")
    one_line(run("table", "snapshot", tmp_path / "t"), 2, "nothing has been written yet")


# ------------------------------------------------------------------------------------------------------------- words and mistakes


@pytest.mark.parametrize("verb", ["create", "upsert", "insert", "bulk_insert", "delete", "snapshot", "changes"])
def test_every_option_has_the_name_and_default_that_it_has_in_python(verb: str) -> None:
    command = {each.name: each for each in table.TABLE}[verb.replace("_", "-")]
    assert isinstance(command, click.Command)
    options = {p.name: p for p in command.params if isinstance(p, click.Option)}
    python = dict(inspect.signature(getattr(quire.Table, verb)).parameters)
    ours = {"as_json", "json", "quiet", "master", "options", "secrets", "store_profile", "utc"} | ({"limit", "as_of"} & set(options))
    assert set(options) - ours <= set(python)
    assert set(python) - set(options) == (
        {"url", "storage_options"} if verb == "create" else {"self", "spark", *({"df", "progress"} & set(python))}
    )
    required = ["--key", "id"] if verb == "create" else ["--since", ALL] if verb == "changes" else []
    found = parsed(command, "t", *(["a.csv"] if "df" in python else []), *required)
    for name in set(options) - ours - {"key", "since"}:
        assert (found[name] or None if options[name].multiple else found[name]) == python[name].default, name
        assert options[name].opts[0] == f"--{name.replace('_', '-')}"


def test_create_takes_every_setting(run: Run, tmp_path: Path) -> None:
    said = answer(
        run(
            "table", "create", tmp_path / "t", "--key", "a,b", "--key", "c", "--partition-by", "d, e", "--index", "bucket", "--buckets", 4,
            "--flat", "--no-change-files", "--target-size", "1 MiB", "--name", "trips", "--type", "copy_on_write", "--json",
        )
    )  # fmt: skip
    assert (said["key"], said["partition_by"], said["ordering"]) == (["a", "b", "c"], ["d", "e"], None)
    assert (said["index"], said["buckets"], said["hive_style"], said["change_files"]) == ("bucket", 4, False, False)
    assert (said["target_size"], said["name"], said["type"], said["rows"]) == (1 << 20, "trips", "copy_on_write", 0)


def test_what_is_typed_wrong_is_one_line_before_spark_starts(
    run: Run, trips: Path, filled: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "spark_of", lambda _: pytest.fail("it was started"))
    new, good = tmp_path / "new", tmp_path / "a.csv"
    wrong: list[tuple[tuple[object, ...], tuple[str, ...]]] = [
        (("shw", trips), ("Did you mean 'show'?",)),
        (("show", tmp_path / "tt"), ("is not a table", "Check the spelling")),
        (("create", new), ("Missing option '--key'", "quire table create --help")),
        (("create", new, "--key", "id", "--index", "blom"), ("Did you mean 'bloom'?",)),
        (("create", new, "--key", "id", "--index", "bucket"), ("needs buckets",)),
        (("create", new, "--key", "id", "--buckets", 3), ("leave one of them out",)),
        (("create", new, "--key", "id", "--target-size", "3potatoes"), ("potatoes",)),
        (("create", new, "--key", ","), ("key takes",)),
        (("create", trips, "--key", "city"), ("is a table already, with other settings",)),
        (("upsert", trips), ("Missing argument 'FILE...'", "quire table upsert [OPTIONS] URL FILE...")),
        (("upsert", trips, good, "--batch", ""), ("batch takes a name",)),
        (("upsert", tmp_path / "tt", good), ("is not a table",)),
        (("delete", trips, file(tmp_path / "k.csv", "id,city\na,sf\n")), ("no column 'at'", "ordering field")),
        (("snapshot", trips, "--columns", "fair"), ("has no column 'fair'", "fare")),
        (("snapshot", trips, "--columns", "fair", "--where", "true"), ("has no column 'fair'",)),
        (("snapshot", trips, "--as-of", "yesterday"), ("as_of takes an instant", "'yesterday'")),
        (("changes", trips), ("Missing option '--since'",)),
        (("changes", trips, "--since", "1"), ("since takes an instant",)),
        (("changes", trips, "--since", ALL, "--until", "x"), ("until takes an instant",)),
        (("changes", trips, "--since", ALL, "--images", "bth"), ("Did you mean 'both'?",)),
        (("show", trips, "--option", "x"), ("--option takes NAME=VALUE",)),
        (("timeline", trips, "--last", 0), ("--last",)),
        (("insert-overwrite", trips), ("Missing argument 'FILE...'",)),
        (("delete-partitions", trips), ("Missing argument 'PARTITION...'",)),
        (("delete-partitions", trips, "nowhere"), ("has no partition 'city=nowhere'", "It has: city=la, city=sf")),
        (("delete-partitions", trips, "city=sf", "nowhere", "--yes"), ("has no partition 'city=nowhere'",)),
        (("delete-partitions", trips, "city=sf", "--batch", ""), ("batch takes a name",)),
        (("compact", trips), ("is a copy-on-write table",)),
        (("cluster", trips, "--sort", "fair"), ("sort names 'fair'", "not a column", "fare")),
        (("cluster", trips, "--curve", "spiral"), ("unknown curve 'spiral'",)),
        (("cluster", trips, "--partition", "nowhere"), ("has no partition 'city=nowhere'",)),
        (("clean", trips, "--keep-for", "soon"), ("keep_for='soon' is not a time span",)),
        (("clean", trips, "--keep-for", "1 h", "--versions", "1"), ("two ways to say what stays",)),
        (("clean", trips, "--versions", "0"), ("versions takes how many slices",)),
        (("maintain", trips, "--max-runs", "2"), ("every=",)),
        (("maintain", trips, "--small-files", "0"), ("small_files takes how many small files",)),
        (("archive", trips, "--keep", "0"), ("keep takes how many completed writes",)),
        (("savepoint", trips, "--delete"), ("--delete takes --instant",)),
        (("savepoint", trips, "--instant", "today"), ("instant takes an instant",)),
        (("compact", trips, "--strategy", "size"), ("strategy='size' is not one of",)),
        (("compact", trips, "--time-limit", "soon"), ("time_limit='soon' is not a time span",)),
        (("compact", trips, "--plan-size", "big"), ("plan_size is 'big'",)),
        (("sync-metastore", trips, "metastore:9083"), ("uri takes the address of a Hive metastore",)),
        (("sync-metastore", trips, "thrift://127.0.0.1:1", "--name", "a b"), ("name takes a name of letters",)),
        (("compact", trips, "--schedule-only", "--pending-only"), ("--schedule-only lays a plan alone",)),
    ]  # fmt: skip
    for arguments, words in wrong:
        one_line(run("table", *arguments), 2, *words)
    assert not new.exists()


@pytest.mark.parametrize(("words", "said"), [
    (("--operation", "merge"), "unknown operation 'merge'"), (("--every", "often"), "'often'"), (("--max-runs", 2), "max_runs=2"),
])  # fmt: skip
def test_what_is_typed_wrong_for_a_load_into_a_table_is_one_line_before_spark_starts(
    run: Run, trips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[object, ...], said: str
) -> None:
    monkeypatch.setattr(app, "spark_of", lambda _: pytest.fail("it was started"))
    source = tmp_path / "in"
    source.mkdir()
    file(source / "1.json", "{}")
    one_line(run("consolidate", source, trips, "--transform", "raw", "--format", "parquet", *words), 2, said)
    one_line(run("process", source, "operator:eq", trips, "--schema", "id long", *words), 2, said)
    if "--operation" in words:
        one_line(run("plan", source, trips, "--transform", "raw", "--format", "parquet", *words), 2, said)


def test_a_table_is_passed_on_into_another(run: Run, trips: Path, filled: list[Any], tmp_path: Path) -> None:
    code = file(
        tmp_path / "work.py",
        "import pyarrow as pa\n"
        "import pyarrow.compute as pc\n\n\n"
        "def same(split, changes):\n"
        "    rows = pa.Table.from_struct_array(pc.coalesce(changes['after'], changes['before']).combine_chunks())\n"
        "    return rows.append_column('_hoodie_is_deleted', pc.equal(changes['op'], 'd'))\n",
    )
    copy = tmp_path / "copy"
    assert run("table", "create", copy, "--key", "id", "--partition-by", "city")[0] == 0
    first, again = (answer(run("process", trips, f"{code}:same", copy, "--json")) for _ in range(2))
    assert (first["files"] > 0, again["files"], again["skipped"]) == (True, 0, first["files"])
    assert content(copy) == content(trips)
    one_line(run("process", trips, f"{code}:same", copy, "--include", "*.json"), 2, "include= is for files")
    one_line(run("process", trips, f"{code}:same", trips), 2, "lies in the source")


def test_options_of_the_store_are_handed_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIDDEN", "of the environment")
    seen = list[dict[str, Any]]()

    def opened(url: str, *, storage_options: dict[str, Any]) -> None:
        seen.append({name: value() if callable(value) else value for name, value in storage_options.items()})
        raise quire.UsageError("seen")

    monkeypatch.setattr(quire, "Table", opened)
    given = ("--option", "endpoint_url=http://h:1/?a=b", "--option", "anon=true", "--secret", "secret=HIDDEN")
    for verb in (("show",), ("timeline",), ("snapshot",), ("changes", "--since", ALL), ("upsert", "x.csv"), ("delete", "x.csv")):
        one_line(run("table", verb[0], "s3://lake/t", *verb[1:], *given), 2, "seen")
    assert len(seen) == 6
    assert all((each["endpoint_url"], each["anon"]) == ("http://h:1/?a=b", True) for each in seen)
    assert all("secret" in each for each in seen)


def test_a_table_of_another_program_with_logs_is_shown_and_printed(run: Run, tmp_path: Path) -> None:
    """Merge on read, of version 9: with what is in logs, and without."""
    for path, data in jvm.files("quickstart_trips_table-mor-avro-table_log_only"):
        (tmp_path / "t" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "t" / path).write_bytes(data)
    assert len(rows(run("table", "snapshot", tmp_path / "t"))) == len(rows(run("read", tmp_path / "t"))) == 2
    assert rows(run("table", "snapshot", tmp_path / "t", "--read-optimized")) == []
    assert answer(run("table", "show", tmp_path / "t", "--json"))["version"] == 9
    assert len(answer(run("table", "timeline", tmp_path / "t", "--json"))) == 3


def test_looks_change_nothing(run: Run, trips: Path, filled: list[Any]) -> None:
    before = snapshot(trips)
    for verb in (("show",), ("timeline",), ("snapshot",), ("changes", "--since", ALL)):
        assert run("table", verb[0], trips, *verb[1:])[0] == 0
    assert run("read", trips)[0] == 0
    assert snapshot(trips) == before


def test_a_table_that_quire_does_not_read_is_not_shown_as_empty(run: Run, trips: Path, filled: list[Any]) -> None:
    properties = trips / ".hoodie/hoodie.properties"
    properties.write_text(properties.read_text().replace("hoodie.table.version=6", "hoodie.table.version=8"))
    for verb in (("show",), ("timeline",), ("snapshot",), ("changes", "--since", ALL)):
        one_line(run("table", verb[0], trips, *verb[1:]), 2, "table version 8")
    one_line(run("read", trips), 2, "table version 8")


def test_conditions_and_changes_on_spark(
    run: Run, trips: Path, filled: list[Any], spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def shared(master: str | None) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(table, "spark_of", shared)
    here = rows(run("table", "snapshot", trips))
    assert rows(run("table", "snapshot", trips, "--where", "fare > 5")) == [row for row in here if row["id"] == "a"]
    assert rows(run("table", "snapshot", trips, "--where", "fare > 0", "-n", 1, "--columns", "city")) in (
        [{"city": "la"}],
        [{"city": "sf"}],
    )
    one_line(run("table", "snapshot", trips, "--where", "colour = 1"), 2, "where='colour = 1'", "colour")
    found = rows(run("table", "changes", trips, "--since", filled[0]["instant"], "--images", "both"))
    assert sorted((row["op"], row["before"] and row["before"]["fare"], row["after"]["fare"]) for row in found) == [
        ("i", None, None), ("u", 1.5, 9.0),
    ]  # fmt: skip
    assert app.tables.commands["snapshot"] is table.snapshot


def test_the_doctor_says_what_is_wrong_with_exit_code_2(run: Run, trips: Path, filled: list[Any]) -> None:
    assert run("table", "doctor", trips)[0] == 0
    there = next(trips.rglob("*.parquet"))
    left = there.with_name("f0000000-0000-4000-8000-000000000000-0_0-1-2_20990101000000000.parquet")
    left.write_bytes(there.read_bytes())
    code, out, _ = run("table", "doctor", trips, "--json")
    assert code == 2
    assert json.loads(out)["findings"][0]["mend"] == "table.remove_leftovers()"
    assert run("table", "remove-leftovers", trips)[1] == "deleted: 0 files\n"
    assert left.exists(), "it may be of a program that is asleep"
    assert answer(run("table", "remove-leftovers", trips, "--older-than", "0 s", "--json")) == {"deleted": 1}
    assert run("table", "doctor", trips)[0] == 0
