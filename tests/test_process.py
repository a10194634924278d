"""`quire.process`: any function, once a split; its rows and what the ledger says of the splits in one commit."""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quire
import sums
from gathering import MANY, gather, not_taken, refused, write
from quire import Ledger, QuarantineError, Report, Split
from quire.cli import app, upkeep
from quire.commit import names
from quire.commit.log import Log
from quire.errors import QuireError, RefusedError, TooManyQuarantined, UsageError
from quire.read import first_rows
from quire.sources.transforms import schemas
from quire.storage import connect, normalise
from quire.storage.local import LocalStore

HERE: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False}


def process(source: Any, dest: Any, function: Any, **settings: Any) -> Report:
    return quire.process(source, dest, function, **{**HERE, "max_quarantined": MANY, **settings})


def rows(dest: Any) -> list[Any]:
    return list(first_rows(connect(normalise(dest)), 1_000_000))


def records(n: int, at: int = 0, bad: tuple[int, ...] = ()) -> bytes:
    """Lines of JSON of very different lengths, the bad ones no JSON."""
    return b"".join(b"BROKEN %d\n" % i if i in bad else b'{"id": %d, "pad": "%s"}\n' % (i, b"x" * (i * 37 % 90)) for i in range(at, at + n))


def parsed(split: Split, content: bytes) -> list[dict[str, Any]]:
    return [{"id": json.loads(line)["id"]} for line in content.splitlines()]


def careful(split: Split, content: bytes) -> Iterator[dict[str, Any]]:
    for line in content.splitlines():
        try:
            yield {"id": json.loads(line)["id"]}
        except ValueError as e:
            split.quarantine(line, e)


def repaired(split: Split, content: bytes) -> Iterator[dict[str, Any]]:
    """Takes what `careful` rejects, too."""
    for line in content.splitlines():
        yield {"id": int(line.split()[1]) if line.startswith(b"BROKEN") else json.loads(line)["id"]}


careful.__qualname__ = repaired.__qualname__ = "careful"


def ids(dest: Any) -> list[int]:
    return sorted(row["id"] for row in rows(dest))


def covered(dest: Any) -> None:
    """The ledger covers each file without gap and overlap, and what it says of the data files holds."""
    ledger = Ledger(dest)
    for path, found in ledger._fold.rows(ledger._store, ["path", "version", "start", "length"]).to_pandas().groupby("path"):
        at = 0
        for row in found.sort_values("start").itertuples():
            assert row.start == at, f"{path}: {row.start} follows {at}"
            at += row.length
        assert at == int(row.version.rpartition("-")[2]), path
    assert ledger.verify(spark=quire.LocalRunner()).ok
    assert ledger.summary().ledger_rows == ledger._fold.rows(ledger._store, ["path"]).num_rows


# --------------------------------------------------------------------------------------------------------------- what it returns
WAYS: dict[str, Callable[[list[int]], Any]] = {
    "dicts": lambda found: [{"id": i, "name": f"n{i}"} for i in found],
    "generator": lambda found: ({"id": i, "name": f"n{i}"} for i in found),
    "table": lambda found: pa.table({"id": found, "name": [f"n{i}" for i in found]}),
    "batch": lambda found: pa.record_batch({"name": [f"n{i}" for i in found], "id": found}),  # another order
    "pandas": lambda found: pd.DataFrame({"id": found, "name": [f"n{i}" for i in found]}),
}


@pytest.mark.nth(3)
@pytest.mark.parametrize("way", WAYS)
def test_a_function_may_return_rows_in_any_of_the_usual_forms(tmp_path: Path, way: str) -> None:
    source = write(tmp_path / "in", {f"d{i}/f{i}.txt": b"%d %d" % (i, 10 + i) for i in range(3)} | {"empty": b""})

    def function(split: Split, content: bytes) -> Any:
        assert (split.name, split.start, split.length, split.attempt) == (split.path.rpartition("/")[2], 0, len(content), 1)
        return WAYS[way]([int(x) for x in content.split()])

    report = process(source, tmp_path / "out", function, schema="id long, name string", function_version="1")
    assert (report.files, not_taken(report)) == (4, 0)
    found = sorted(rows(tmp_path / "out"), key=lambda row: row["id"])
    assert found == [{"id": i, "name": f"n{i}"} for i in (0, 1, 2, 10, 11, 12)]
    covered(tmp_path / "out")
    assert process(source, tmp_path / "out", function, schema="id long, name string", function_version="1").files == 0


@pytest.mark.parametrize("way", ["array", "frame", "bytes"])
def test_a_function_may_use_its_buffers_again(tmp_path: Path, way: str) -> None:
    """Rows wait for their row group: those of the last split had taken the place of all others."""
    numbers, text, ends = np.zeros(1, np.int64), bytearray(1), np.array([0, 1], np.int32)
    frame = pd.DataFrame({"n": numbers}, copy=False)

    def again(split: Split, content: bytes) -> Any:
        numbers[:], text[:] = int(content), content.strip()
        if way == "frame":
            return frame
        if way == "array":
            return pa.table({"n": pa.array(numbers)})
        return pa.table({"n": pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(ends), pa.py_buffer(text)])})

    write(tmp_path / "in", {f"{n}.txt": f"{n}\n".encode() for n in range(6)})
    process(tmp_path / "in", tmp_path / "out", again)
    assert sorted(int(row["n"]) for row in rows(tmp_path / "out")) == list(range(6))


def test_bytes_become_lines_and_none_is_done_without_output(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"a": b"x", "b": b"nothing", "c": b"z\n"})
    calls = list[str]()

    def function(split: Split, content: bytes) -> bytes | None:
        calls.append(split.name)
        return None if content == b"nothing" else content.upper()

    report = process(source, tmp_path / "out", function)
    assert rows(tmp_path / "out") == [b"X", b"Z"]
    assert (report.files, Ledger(tmp_path / "out").summary().format) == (3, "lines")
    calls.clear()
    assert process(source, tmp_path / "out", function).files == 0
    assert not calls, "the function was called for what is done"


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([{"a": 2**64}], "the column 'a' holds a whole number of more than 64 bits: let the function give text or a decimal"),
        ([{"a": ["\ud800"]}], "the column 'a' holds text with half of a surrogate pair, which is not valid Unicode"),
        ([{"\ud800": 1}], r"the rows have the column '\ud800', whose name is not valid Unicode"),
        ([{"a": 1}, {1: 2}], "the function returned a dict (item 2) with a key that is int: columns have text for names"),
        ([{"a": object()}], "the column 'a' holds values of several types, or of one that Arrow does not know"),
    ],
    ids=["number", "text", "name", "key", "object"],
)
def test_the_reason_says_what_it_is_that_cannot_become_a_column(tmp_path: Path, rows: Any, reason: str) -> None:
    source = write(tmp_path / "in", {"a": b"x"})
    ((_, found),) = process(source, tmp_path / "out", lambda split, content: rows, function_version="1", max_quarantined=1).quarantined
    assert found.startswith(f"TypeError: {reason}")


def test_the_columns_are_those_of_the_first_rows_and_stay(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"a": b"[]", "b": b'[{"n": 1, "tag": null}]', "c": b'[{"n": 2, "tag": "x"}]'})
    dest = tmp_path / "out"

    def function(split: Split, content: bytes) -> Any:
        return json.loads(content)

    process(source, dest, function)
    assert [commit.schema for _, commit in Log(connect(normalise(dest))).refresh().commits()] == ["`n` bigint, `tag` string"]
    write(source, {"d": b'[{"n": 3.5, "tag": "y"}]', "e": b'[{"n": 4.0, "tag": null}]', "f": b'[{"n": 5}]', "g": b'[{"n": 6, "new": 1}]'})
    report = process(source, dest, function)
    assert {path.rpartition("/")[2]: reason for path, reason in report.quarantined} == {
        "d": "TypeError: the column 'n' holds a value that is not of type int64 (ArrowInvalid)",
        "g": "TypeError: the rows have the column 'new', which the schema does not: n, tag",
    }
    assert sorted((row["n"], row["tag"]) for row in rows(dest)) == [(1, None), (2, "x"), (4, None), (5, None)] or sorted(
        row["n"] for row in rows(dest)
    ) == [1, 2, 4, 5]
    before = Ledger(dest).version
    with refused(RefusedError, 2, "holds rows of the columns `n` bigint, `tag` string", "schema= says"):
        process(source, dest, function, schema="n double, tag string")
    assert Ledger(dest).version == before


def test_a_column_without_any_value_is_asked_for_before_anything_is_written(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"a": b"1"})
    with refused(UsageError, 2, "the column 'x' has no value", "schema="):
        process(source, tmp_path / "out", lambda split, content: [{"x": None}])
    assert not (tmp_path / "out").exists()


@pytest.mark.nth(6)
@pytest.mark.parametrize(
    ("schema", "values", "said"),
    [
        ("x int", [1, 2**40], "int32"),
        ("x float", [1.5, 1e300], "float"),
        ("x array<float>", [[1.5], [1e300]], "float"),
        ("x struct<k: float>", [{"k": 1e300}], "float"),
        ("x map<string, float>", [[("k", 1e300)]], "float"),
        ("x decimal(4, 1)", ["1.25"], "decimal"),
        ("x date", ["no date"], "date32"),
        ("x long not null", [1, None], "not null"),
        ("y long", [1], "column"),
    ],
)
def test_rows_that_lose_something_set_their_split_aside(tmp_path: Path, schema: str, values: list[Any], said: str) -> None:
    source = write(tmp_path / "in", {"a": b"1"})
    of_dicts = process(source, tmp_path / "dicts", lambda split, content: [{"x": value} for value in values], schema=schema)
    kind = pa.map_(pa.string(), pa.float64()) if "map" in schema else None
    report = process(source, tmp_path / "out", lambda split, content: pa.table({"x": pa.array(values, kind)}), schema=schema)
    assert (report.files, not_taken(report)) == (of_dicts.files, not_taken(of_dicts)) == (0, 1)
    assert said in report.quarantined[0][1]
    assert "TypeError" in report.quarantined[0][1]
    assert "no date" not in report.quarantined[0][1], "a reason holds no data"


@pytest.mark.parametrize("values", [[[4]], [[1, 2], None, [3]]], ids=["whole", "missing"])
@pytest.mark.parametrize("kind", [pa.list_view(pa.int64()), pa.large_list_view(pa.int64())], ids=str)
@pytest.mark.parametrize("schema", [None, "x array<long>"])
def test_a_list_view_is_refused_with_its_column(tmp_path: Path, kind: pa.DataType, schema: str | None, values: list[Any]) -> None:
    """Arrow casts it to lists of other values, and does not always notice."""
    source = write(tmp_path / "in", {"a": b"1"})
    why = f"the column 'x' is {kind}, and Arrow loses values where it casts one. Give it as list"

    def table(split: Split, content: bytes) -> pa.Table:
        return pa.table({"x": pa.array(values, kind)})

    if schema is None:  # no file gives columns
        with refused(UsageError, 2, why):
            process(source, tmp_path / "out", table)
        return
    ((_, said),) = process(source, tmp_path / "out", table, schema=schema).quarantined
    assert said == f"TypeError: {why}"


def test_a_line_of_compiled_code_is_not_named_as_the_users(tmp_path: Path) -> None:
    def table(split: Split, content: bytes) -> pa.Table:
        return pa.table({"x": pa.array(["a"]).cast(pa.int64())})

    line = table.__code__.co_firstlineno + 1
    ((_, why),) = process(write(tmp_path / "in", {"a": b"1"}), tmp_path / "out", table).quarantined
    assert why == f"ArrowInvalid (test_process.py line {line})"


def test_schemas_say_what_spark_says_and_come_back_as_they_were() -> None:
    ddl = (
        "id long NOT NULL, `a ``b` int, c decimal(10,2), d array<struct<x: string, y: map<string, double>>>, e timestamp, f timestamp_ntz, "
        "g binary comment 'what', h varchar(20), i date, j boolean, k tinyint, l float, m decimal"
    )
    found = schemas.parse(ddl)
    assert str(found.field("a `b").type) == "int32"
    assert not found.field("id").nullable
    assert found.field("d").type == pa.list_(pa.struct([("x", pa.string()), ("y", pa.map_(pa.string(), pa.float64()))]))
    assert found.field("m").type == pa.decimal128(10, 0)
    other = pa.schema(
        [
            ("u", pa.uint16()), ("t", pa.time64("ns")), ("z", pa.timestamp("ms", "Europe/Berlin")), ("s", pa.timestamp("s")),
            ("big", pa.decimal256(60, 3)), ("ls", pa.large_list(pa.large_string())), ("d", pa.duration("us")), ("h", pa.float16()),
        ]
    )  # fmt: skip
    for schema in (found, other):
        assert schemas.parse(schemas.text(schema)) == schema
    coded = pa.schema([("c", pa.dictionary(pa.int8(), pa.string()))], metadata={"a": "b"})
    assert schemas.canonical(coded) == pa.schema([("c", pa.string())])
    for wrong in ("", "x", "x lng", "x array<", "x decimal(50)", "x int,", "x int, X int", "x int y", "x 'int'", 7, "x " + "array<" * 99):
        with refused(UsageError, 2, "schema"):
            schemas.canonical(wrong)


# -------------------------------------------------------------------------------------------------------------------- splits
@pytest.mark.nth(2)
@pytest.mark.parametrize("end", [b"\n", b""], ids=["ended", "not ended"])
def test_each_line_is_given_once_however_the_files_are_cut(tmp_path: Path, end: bytes) -> None:
    files = {"a.jsonl": records(60)[:-1] + end, "b.jsonl": b"\n\n" + records(1, 60) + b"\n" * 9, "c.jsonl": b"", "d.jsonl": b"\n"}
    source = write(tmp_path / "in", files)

    def function(split: Split, content: bytes) -> Any:
        assert content
        lines = content.removesuffix(b"\n").split(b"\n")
        return [{"id": int(json.loads(line)["id"]) if line else -1, "start": split.start} for line in lines]

    for size in ("1 B", "2 B", "7 B", "64 B", "100 B", "4 KiB"):
        dest = tmp_path / f"out{size}"
        report = process(source, dest, function, split="lines", split_size=size, schema="id long, start long")
        assert (report.files, not_taken(report)) == (4, 0)
        found = sorted(row["id"] for row in rows(dest))
        assert found == [-1] * (2 + 9 + 1) + list(range(61)), f"split_size={size}"
        covered(dest)


def parquet(folder: Path, name: str, start: int, groups: list[int]) -> None:
    folder.mkdir(exist_ok=True)
    with pq.ParquetWriter(folder / name, pa.schema([("id", pa.int64()), ("pad", pa.string())])) as writer:
        for n in groups:
            writer.write_table(pa.table({"id": list(range(start, start + n)), "pad": [f"{i:x}" * 40 for i in range(n)]}))
            start += n


def taken(split: Split, content: pa.Table) -> pa.Table:
    return content.select(["id"])


def test_each_row_group_is_given_once_however_the_files_are_cut(tmp_path: Path) -> None:
    source = tmp_path / "in"
    parquet(source, "a.parquet", 0, [50, 1, 300, 20, 7])
    parquet(source, "b.parquet", 378, [100])
    parquet(source, "c.parquet", 0, [])
    for size in ("100 B", "1000 B", "5000 B", "1 MiB"):
        dest = tmp_path / f"out{size}"
        report = process(source, dest, taken, split="row_groups", split_size=size)
        assert (report.files, not_taken(report)) == (3, 0)
        assert ids(dest) == list(range(478)), f"split_size={size}"
        covered(dest)


@pytest.mark.parametrize("split", ["lines", "row_groups", "file"])
def test_another_split_size_repeats_nothing(tmp_path: Path, split: str) -> None:
    source, dest = tmp_path / "in", tmp_path / "out"
    function = taken if split == "row_groups" else parsed

    def add(name: str, start: int) -> None:
        if split == "row_groups":
            parquet(source, name, start, [40, 60])
        else:
            write(source, {name: records(100, start)})

    def files(size: str) -> int:
        how = {} if split == "file" else {"split_size": size}  # a whole file has none
        return process(source, dest, function, split=split, **how).files

    add("a", 0)
    assert files("1 MiB") == 1
    add("b", 100)
    assert files("3 KiB") == 1
    assert files("300 B") == 0
    assert ids(dest) == list(range(200))
    covered(dest)


def test_a_range_that_was_lost_is_taken_again_and_nothing_else(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a": records(200)}), tmp_path / "out"
    process(source, dest, parsed, split="lines", split_size="700 B", target_size="2000 B")
    ledger = Ledger(dest)
    file = ledger.inspect.files()["data_file"][1]
    ledger.forget(file=file, reason="lost", **HERE)
    assert len(ids(dest)) < 200
    assert process(source, dest, parsed, split="lines", split_size="333 B").quarantined_count == 0
    assert ids(dest) == list(range(200))
    covered(dest)


def test_compressed_files_are_one_split_and_stay_compressed(tmp_path: Path) -> None:
    import gzip

    source = write(tmp_path / "in", {"a.gz": gzip.compress(records(50)), "b.txt": records(50, 50)})

    def function(split: Split, content: bytes) -> Any:
        return parsed(split, gzip.decompress(content) if split.name.endswith(".gz") else content)

    assert process(source, tmp_path / "out", function, split="lines", split_size="64 B", decompress="none").files == 2
    assert ids(tmp_path / "out") == list(range(100))


def test_what_is_no_parquet_is_set_aside(tmp_path: Path) -> None:
    source = tmp_path / "in"
    parquet(source, "a.parquet", 0, [5])
    good = (source / "a.parquet").read_bytes()
    worse = good[:4] + b"\xff" * 60 + good[64:]
    write(source, {"b": b"no", "c": b"", "d": good[:-200] + bytes(192) + good[-8:], "e": worse, "f": good[:-3]})
    report = process(source, tmp_path / "out", taken, split="row_groups")
    assert report.files == 1
    assert {path.rpartition("/")[2] for path, _ in report.quarantined} == {"b", "c", "d", "e", "f"}
    assert all("not a Parquet file, or damaged" in reason for _, reason in report.quarantined)
    assert ids(tmp_path / "out") == list(range(5))


def test_what_is_too_large_to_hold_is_set_aside(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"a": b"x" * 5000, "b": records(3)})
    for split, how in (("file", {}), ("lines", {"split_size": "500 B"})):
        report = process(source, tmp_path / split, parsed, split=split, max_file_size="1000 B", **how)
        assert ids(tmp_path / split) == [0, 1, 2]
        assert all("larger than max_file_size" in r or "longer than max_file_size" in r for _, r in report.quarantined)
    parquet(tmp_path / "p", "a", 0, [1000])
    report = process(tmp_path / "p", tmp_path / "out", taken, split="row_groups", max_file_size="1000 B")
    assert "its row groups are larger than max_file_size" in report.quarantined[0][1]


def test_a_file_that_changes_while_its_row_groups_are_read_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest = tmp_path / "in", tmp_path / "out"
    parquet(source, "a", 0, [20_000, 20_000])
    write(source, {"b": b""})
    calls = list[int]()
    real = LocalStore.read_many

    def read_many(self: LocalStore, requests: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:  # the footer was read; now its first row group
            parquet(source, "a", 7, [3])
        return real(self, requests)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "read_many", read_many)
        report = process(source, dest, taken, split="row_groups", schema="id long")
    assert ids(dest) == [7, 8, 9], "rows of two versions, or of the old one"
    assert report.files == 1


# ------------------------------------------------------------------------------------------------------------- bad splits, records
def test_one_bad_record_is_set_aside_and_the_rest_is_done(tmp_path: Path) -> None:
    bad = (0, 5, 6, 39)
    source, dest = write(tmp_path / "in", {"a": records(40, bad=bad), "b": records(10, 40)}), tmp_path / "out"
    report = process(source, dest, careful, split="lines", split_size="600 B")
    assert not_taken(report) == 4
    assert ids(dest) == [i for i in range(50) if i not in bad]
    covered(dest)
    ledger = Ledger(dest)
    assert ledger.summary().quarantined == 4
    found = ledger.inspect.quarantined_records()
    content = (source / "a").read_bytes()
    assert found["content"].tolist() == [b"BROKEN %d" % i for i in bad]
    assert found["offset"].tolist() == [content.index(b"BROKEN %d\n" % i) for i in bad]
    assert found["tries"].tolist() == [1] * 4
    assert all(error.startswith("JSONDecodeError (test_process.py line") for error in found["error"])
    assert (
        ledger.inspect.quarantined()
        .assign(length=lambda rows: rows["length"] - 1)[["path", "start", "length", "reason"]]
        .to_numpy()
        .tolist()
        == found[["path", "offset", "length", "error"]].to_numpy().tolist()
    )
    assert process(source, dest, careful, split="lines", split_size="99 B").files == 0
    # The others are tried again by nobody but retry, and are there once then.
    still = ledger.retry(function=careful, max_quarantined=MANY, **HERE)
    assert (still.gathered, still.quarantined) == (0, 4)
    assert ledger.inspect.quarantined_records()["tries"].tolist() == [2] * 4
    done = ledger.retry(function=repaired, **HERE)
    assert (done.gathered, done.quarantined) == (4, 0)
    assert ids(dest) == list(range(50))
    covered(dest)
    assert (ledger.summary().quarantined, len(ledger.inspect.quarantined_records()), ledger.summary().files) == (0, 0, 2)
    ledger.compact(**HERE)
    ledger.expire()
    covered(dest)
    assert ids(dest) == list(range(50))
    assert not list(dest.glob("_quire/quarantine/*")), "quarantine files of which nothing is in quarantine any more"


def test_a_rejected_record_is_tried_again_though_its_source_has_gone(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a": records(20, bad=(3,)), "b": records(20, 20, bad=(30,))}), tmp_path / "out"
    process(source, dest, careful, split="lines")
    (source / "a").unlink()
    write(source, {"b": b"rewritten"})
    assert Ledger(dest).retry(function=repaired, **HERE).gathered == 2
    assert ids(dest) == list(range(40))


def test_a_long_record_is_kept_at_its_source_alone(tmp_path: Path) -> None:
    long = b"BROKEN 1 " + b"y" * (2 << 20)
    source, dest = write(tmp_path / "in", {"a": records(1) + long + b"\n" + records(1, 2)}), tmp_path / "out"
    process(source, dest, careful, split="lines", split_size="1 MiB")
    ledger = Ledger(dest)
    found = ledger.inspect.quarantined_records()
    assert (found["content"].tolist(), found["length"].tolist()) == ([None], [len(long)])
    covered(dest)
    assert sum(p.stat().st_size for p in (dest / "_quire" / "quarantine").iterdir()) < 100_000
    (source / "a").rename(tmp_path / "away")
    assert ledger.retry(tmp_path / "in", function=repaired, max_quarantined=1, **HERE).gathered == 0
    assert len(ledger.inspect.quarantined_records()) == 1, "a record that could not be read is lost"
    (tmp_path / "away").rename(source / "a")
    assert ledger.retry(tmp_path / "in", function=repaired, **HERE).gathered == 1
    assert ids(dest) == [0, 1, 2]
    covered(dest)


def test_forgetting_by_a_condition_takes_all_of_a_cut_split(tmp_path: Path, spark: Any) -> None:
    """Its output stands in one place: a piece that stayed would say that it is done."""
    source, dest = write(tmp_path / "in", {"a": records(20, bad=(5, 9)), "b": records(20, 20)}), tmp_path / "out"
    process(source, dest, careful, split="lines")
    ledger = Ledger(dest)
    (at,) = {row.start for row in ledger.locate(source / "a") if row.records and row.state == "done"}
    ledger.forget(where=f"start = {at} and path like '%/a'", spark=spark, progress=False)
    assert ids(dest) == list(range(20, 40))
    report = process(source, dest, careful, split="lines")
    assert not_taken(report) == 0
    assert ids(dest) == [i for i in range(40) if i not in (5, 9)]
    covered(dest)
    one = ledger.refresh().inspect.quarantined_records()["offset"][1]
    assert ledger.retry(tmp_path / "in", function=repaired, where=f"start = {one}", spark=spark, progress=False).gathered == 1
    assert ids(dest) == [i for i in range(40) if i != 5]


def test_expire_keeps_what_is_in_quarantine(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a": records(9, bad=(5,))}), tmp_path / "out"
    process(source, dest, careful, split="lines")
    Ledger(dest).compact(**HERE)
    Ledger(dest).expire()
    assert Ledger(dest).inspect.quarantined_records()["content"].tolist() == [b"BROKEN 5"]


def test_poison_is_left_alone_after_max_attempts(tmp_path: Path) -> None:
    def broken(split: Split, content: bytes) -> Any:
        if split.name == "b":
            raise ValueError("never")
        return careful(split, content)

    source, dest = write(tmp_path / "in", {"a": records(4, bad=(2,)), "b": records(1, 9)}), tmp_path / "out"
    process(source, dest, broken, split="lines", function_version="1")
    ledger = Ledger(dest)
    assert ledger.inspect.quarantined()["tries"].tolist() == [1, 1]
    for tries in (2, 3):
        assert ledger.retry(tmp_path / "in", function=broken, max_attempts=3, max_quarantined=2, **HERE).quarantined == 2
        assert ledger.inspect.quarantined()["tries"].tolist() == [tries, tries]
    found = ledger.retry(tmp_path / "in", function=broken, max_attempts=3, **HERE)
    assert (found.jobs, len(found.left)) == ((), 2)
    assert all("max_attempts=3" in why for _, why in found.left)


def test_only_the_rejected_record_is_given_again_and_the_split_says_how_often(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a": b"one\nBROKEN\ntwo\n"}), tmp_path / "out"
    seen = list[tuple[bytes, int]]()

    def function(split: Split, content: bytes) -> bytes:
        seen.append((content, split.attempt))
        if split.attempt == 1:
            split.quarantine(b"BROKEN", "no")
            return content.replace(b"BROKEN\n", b"")
        return content

    process(source, dest, function, format="lines")
    Ledger(dest).retry(function=function, **HERE)
    assert seen == [(b"one\nBROKEN\ntwo\n", 1), (b"BROKEN", 2)]
    assert rows(dest) == [b"one", b"two", b"BROKEN"]
    covered(dest)


def test_what_is_infinite_stays_infinite(tmp_path: Path) -> None:
    source, values = write(tmp_path / "in", {"a": b"1"}), [{"x": float("inf"), "y": [float("-inf"), None, 1.5], "z": None}]
    process(source, tmp_path / "out", lambda split, content: values, schema="x float, y array<float>, z map<string, float>")
    assert rows(tmp_path / "out") == values


def test_a_short_record_is_not_taken_for_a_part_of_another_line(tmp_path: Path) -> None:
    def function(split: Split, content: bytes) -> Iterator[dict[str, Any]]:
        for at, line in zip((0, 3, 5), content.splitlines(), strict=True):
            if line == b"x":
                split.quarantine(line, "no")
            elif line == b"y":
                split.quarantine(line, "no", np.int64(at))
            else:
                yield {"n": 1}

    source, dest = write(tmp_path / "in", {"a": b"yx\nx\ny"}), tmp_path / "out"
    assert process(source, dest, function, split="lines").files == 1
    assert Ledger(dest).inspect.quarantined_records()["offset"].tolist() == [3, 5]


def test_very_many_records_are_rejected_in_time(tmp_path: Path) -> None:
    lines = [b"line %d\r" % i if i % 3 else b"line %d" % i for i in range(50_000)]

    def function(split: Split, content: bytes) -> None:
        for line in (found.rstrip(b"\r") for found in content.split(b"\n") if found):
            split.quarantine(line, "no")

    source, dest = write(tmp_path / "in", {"a": b"\n".join([*lines, b""]), "b": b"\n".join([*lines, lines[6]])}), tmp_path / "out"
    began = time.monotonic()
    report = process(source, dest, function, split="lines", schema="n int")
    assert time.monotonic() - began < 60, "each one once took a search through all of the content"
    assert not_taken(report) == 50_001
    failed = Ledger(dest).inspect.quarantined()
    assert failed[failed["path"].str.endswith("/b")]["reason"].tolist() == [
        "QuarantineError: the record that was quarantined is in the content several times: say which by offset="
    ]


@pytest.mark.nth(2)
@pytest.mark.parametrize(
    ("content", "rejects", "said"),
    [
        (b"a\na\nb\n", [(b"a", None)], "several times: say which by offset="),
        (b"a\nb\n", [(b"c", None)], "is not in the content"),
        (b"a\nb\n", [(b"b", 0)], "not at that offset"),
        (b"a\nb\n", [(b"", None)], "takes the bytes of a record"),
        (b"a\nb\n", [("a", None)], "takes the bytes of a record, not str"),
        (b"ab\n", [(b"b", None)], "one or more whole lines"),
        (b"ab\n", [(b"a", None)], "one or more whole lines"),
        (b"a\nb\n", [(b"a", None), (b"a\nb", None)], "the same bytes twice"),
        (b"a\n", [(b"a\n", None)], "has quarantined all of the split, and made rows"),
    ],
)
def test_what_is_no_record_sets_the_split_aside_with_the_reason(tmp_path: Path, content: bytes, rejects: list[Any], said: str) -> None:
    def function(split: Split, content: bytes) -> Any:
        for record, offset in rejects:
            split.quarantine(record, "bad", offset)
        return [{"n": 1}]

    source = write(tmp_path / "in", {"a": content})
    report = process(source, tmp_path / "out", function, split="lines", schema="n int")
    assert (report.files, not_taken(report)) == (0, 1)
    assert said in report.quarantined[0][1]
    assert not Ledger(tmp_path / "out").inspect.quarantined_records()["path"].tolist()


def test_of_row_groups_single_rows_cannot_be_rejected(tmp_path: Path) -> None:
    parquet(tmp_path / "in", "a", 0, [5])

    def function(split: Split, content: Any) -> Any:
        split.quarantine(b"x", "bad")

    report = process(tmp_path / "in", tmp_path / "out", function, split="row_groups")
    assert "of row groups single rows cannot be quarantined" in report.quarantined[0][1]


def test_a_function_that_raises_sets_its_split_aside_and_tells_no_data(tmp_path: Path) -> None:
    def function(split: Split, content: bytes) -> Any:
        if b"BROKEN" in content:
            raise ValueError(content[content.index(b"BROKEN") :][:9])
        return parsed(split, content)

    source = write(tmp_path / "in", {"a": records(100, bad=(50,))})
    report = process(source, tmp_path / "out", function, split="lines", split_size="1000 B")
    ((_, reason),) = report.quarantined
    assert reason.startswith("ValueError (test_process.py line")
    assert "BROKEN" not in reason
    covered(tmp_path / "out")
    (start,) = Ledger(tmp_path / "out").inspect.quarantined()["start"].tolist()
    assert start > 0
    kept = process(source, tmp_path / "kept", function, split="lines", split_size="1000 B", keep_messages=True)
    assert "BROKEN" in kept.quarantined[0][1]
    assert Ledger(tmp_path / "out").retry(source, function=repaired_as(function), **HERE).gathered == 1
    assert ids(tmp_path / "out") == list(range(100))
    covered(tmp_path / "out")


def repaired_as(function: Any) -> Any:
    return repaired


def test_rejected_records_count_for_max_quarantined(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a": records(20, bad=(1, 2, 3))}), tmp_path / "out"
    with refused(TooManyQuarantined, 1, "3 splits or records", "nothing was committed"):
        process(source, dest, careful, split="lines", max_quarantined=2)
    assert not [p for p in dest.rglob("*") if p.is_file() and "/log/" not in str(p)], "the quarantine of what was given up is left"
    assert process(source, dest, careful, split="lines", max_quarantined=3).quarantined_count == 3


def test_forgetting_takes_rows_and_rejected_records_with_it(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a": records(20, bad=(3, 9)), "b": records(20, 20, bad=(30,))}), tmp_path / "out"
    process(source, dest, careful, split="lines", split_size="300 B")
    ledger = Ledger(dest)
    before = ledger.summary()
    ledger.forget(source / "a", **HERE)
    assert ids(dest) == [i for i in range(20, 40) if i != 30]
    assert ledger.inspect.quarantined_records()["content"].tolist() == [b"BROKEN 30"]
    assert (ledger.summary().files, ledger.summary().quarantined) == (1, 1)
    covered(dest)
    process(source, dest, careful, split="lines", split_size="1000 B")
    after = Ledger(dest).summary()
    assert (after.files, after.bytes_read, after.quarantined) == (before.files, before.bytes_read, before.quarantined)
    assert len(ids(dest)) == 37
    covered(dest)


def test_a_rewritten_file_takes_its_rejected_records_with_it(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a": records(20, bad=(3,))}), tmp_path / "out"
    process(source, dest, careful, split="lines", split_size="300 B")
    (source / "a").unlink()
    write(source, {"a": records(5, 100, bad=(102,)) + b"\n"[:0]})
    process(source, dest, careful, split="lines", split_size="300 B", on_change="reprocess")
    assert ids(dest) == [100, 101, 103, 104]
    assert Ledger(dest).inspect.quarantined_records()["content"].tolist() == [b"BROKEN 102"]
    covered(dest)


def refusing(split: Split, content: bytes) -> Iterator[dict[str, Any]]:
    """Raises where nothing else comes of a split that holds something broken."""
    if content and content.count(b"BROKEN") == len(content.splitlines()):
        raise ValueError("all is broken")
    yield from careful(split, content)


refusing.__qualname__ = "careful"
ALL = tuple(range(100, 108))
NOW: dict[str, tuple[Any, dict[str, Any]]] = {  # how a new version is read of which nothing can be taken
    "records that are rejected": (careful, {}),
    "a function that raises": (refusing, {}),
    "several splits": (careful, {"split": "lines", "split_size": "60 B"}),
    "several tasks": (refusing, {"split": "lines", "split_size": "30 B", "target_size": "20 B"}),
    "splits without a record": (careful, {"split": "lines", "split_size": "4 B"}),
}


@pytest.mark.nth(6)
@pytest.mark.parametrize("how", NOW)
def test_old_rows_stay_until_anything_of_a_new_version_can_be_taken(tmp_path: Path, how: str) -> None:
    function, settings = NOW[how]
    source, dest = write(tmp_path / "in", {"a": records(3), "b": records(3, 10), "c": records(3, 20)}), tmp_path / "out"
    settings = {**settings, "on_change": "reprocess", "schema": "id long", "function_version": "1"}
    process(source, dest, function, **settings)
    write(source, {"a": records(8, 100, bad=ALL), "b": records(2, 50), "c": b""})
    report = process(source, dest, function, **{**settings, "max_quarantined": 0})
    ((path, why),) = report.deferred
    assert path.endswith("/a")
    assert "cannot be taken, and what was gathered before stays: " in why
    assert (report.files, report.quarantined_count) == (2, 0), "a file that is empty by now is a good one"
    assert ids(dest) == [*range(3), *range(50, 52)]
    assert (Ledger(dest).summary().quarantined, len(Ledger(dest).inspect.quarantined_records())) == (0, 0)
    sums.check(connect(normalise(dest)))
    again = process(source, dest, function, **settings)
    assert (again.files, len(again.deferred)) == (0, 1), "the next call looks once more, and ends"
    write(source, {"a": records(8, 100, bad=ALL[1:])})
    report = process(source, dest, function, **settings)
    assert (report.files, report.deferred) == (1, ()), "one record is enough"
    assert ids(dest) == [*range(50, 52), 100]
    assert Ledger(dest).summary().quarantined > 0, "the others are quarantined"
    sums.check(connect(normalise(dest)))
    covered(dest)


def test_a_part_of_what_is_given_whole_is_not_given_again_alone(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a": records(9, bad=(4,))}), tmp_path / "out"
    process(source, dest, careful)
    ledger = Ledger(dest)
    ledger.forget(file=ledger.inspect.files()["data_file"][0], **HERE)
    report = process(source, dest, careful)
    assert "ledger.forget(path)" in report.quarantined[0][1]
    ledger.forget(source / "a", **HERE)
    process(source, dest, careful)
    assert ids(dest) == [0, 1, 2, 3, 5, 6, 7, 8]


def test_a_file_that_grows_is_taken_from_where_it_was_and_rejects_do_not_hinder(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a": records(10, bad=(2, 9)) + b'{"id"'}), tmp_path / "out"
    first = process(source, dest, careful, split="lines", on_append="tail")
    assert (not_taken(first), first.held_back) == (2, 1)
    for at in (10, 11):
        with (source / "a").open("ab") as f:
            f.write(b': 10}\n{"id' if at == 10 else b'": 11}\nBROKEN 12\n')
        process(source, dest, careful, split="lines", on_append="tail")
    assert ids(dest) == [0, 1, 3, 4, 5, 6, 7, 8, 10, 11]
    ledger = Ledger(dest)
    assert ledger.inspect.quarantined_records()["content"].tolist() == [b"BROKEN 2", b"BROKEN 9", b"BROKEN 12"]
    assert ledger.retry(function=repaired, **HERE).gathered == 3
    assert ids(dest) == list(range(13))
    with (source / "a").open("ab") as f:
        f.write(records(5, 13))
    assert process(source, dest, careful, split="lines", on_append="tail").quarantined_count == 0
    assert ids(dest) == list(range(18))


@pytest.mark.nth(4)
@pytest.mark.parametrize("on_append", ["tail", "reprocess"])
@pytest.mark.parametrize("begins", [b"BROKEN 0\n", b'{"id": 0}\n'], ids=["rejected", "done"])
def test_what_was_rejected_is_not_given_again_when_the_file_grows(tmp_path: Path, begins: bytes, on_append: str) -> None:
    source, dest = write(tmp_path / "in", {"a": begins + b"BROKEN 1\n", "b": b"BROKEN 1\n"}), tmp_path / "out"
    settings: dict[str, Any] = {"split": "lines", "on_append": "tail", "format": "parquet", "schema": "id long"}
    given = list[bytes]()

    def seen(split: Split, content: bytes) -> Iterator[dict[str, Any]]:
        given.append(content)
        yield from careful(split, content)

    process(source, dest, seen, **settings)
    for at in (2, 3, 4):
        with (source / "a").open("ab") as f:
            f.write(records(1, at, bad=(at % 2 * at,)))
        given.clear()
        process(source, dest, seen, **settings)
        assert given == [records(1, at, bad=(at % 2 * at,))]
        given.clear()
        assert process(source, dest, seen, **settings).jobs == ()
        assert not given
    rejected = [line for line in (source / "a").read_bytes().splitlines() if line.startswith(b"BROKEN")]
    assert Ledger(dest).inspect.quarantined_records()["content"].tolist() == [*rejected, b"BROKEN 1"]
    assert set(Ledger(dest).inspect.quarantined_records()["tries"]) == {1}
    (source / "b").write_bytes(b"BROKEN 7\nBROKEN 8\n")
    process(source, dest, seen, **settings | {"on_append": on_append})
    assert given == [b"BROKEN 7\nBROKEN 8\n"], "what was all rejected is read again when it is rewritten"
    assert Ledger(dest).inspect.quarantined_records()["content"].tolist() == [*rejected, b"BROKEN 7", b"BROKEN 8"]


@pytest.mark.nth(2)
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_what_was_given_up_is_read_again_also_where_a_rejected_record_comes_before_it(tmp_path: Path, end: bytes) -> None:
    source, dest = write(tmp_path / "in", {"a": records(2).replace(b"\n", end)}), tmp_path / "out"
    settings: dict[str, Any] = {"split": "lines", "on_append": "tail"}
    process(source, dest, careful, **settings)
    for at in (2, 5):
        with (source / "a").open("ab") as f:
            f.write(records(3, at, bad=(at,)).replace(b"\n", end))
        process(source, dest, careful, **settings)
    ledger = Ledger(dest)
    assert ledger.retry(function=careful, max_quarantined=MANY, **HERE).quarantined == 2
    for file in ledger.refresh().inspect.files()["data_file"].tolist()[1:]:
        ledger.forget(file=file, **HERE)
    with (source / "a").open("ab") as f:
        f.write(records(2, 8).replace(b"\n", end))
    assert not [why for _, why in process(source, dest, careful, **settings).quarantined if "rewritten" in why]
    ledger.retry(function=repaired, **HERE)
    assert ids(dest) == list(range(10))
    assert "gap" not in ledger.inspect.coverage(source / "a")["state"].tolist()


# ------------------------------------------------------------------------------------------------------------------ use, going on
def test_a_killed_job_goes_on_with_the_columns_that_it_had_frozen(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {f"f{i}": b"%d" % i for i in range(6)}), tmp_path / "out"
    switch, calls = {"kind": int, "killed": True}, set[str]()

    def function(split: Split, content: bytes) -> Any:
        calls.add(split.name)
        if switch["killed"] and split.name == "f3":
            raise KeyboardInterrupt
        return [{"n": switch["kind"](content)}]  # type: ignore[operator]

    with pytest.raises(KeyboardInterrupt):
        process(source, dest, function, function_version="1", target_size="2 B")
    # The first rows look otherwise by now; what is done and what is to do must agree all the same.
    switch.update(killed=False, kind=float)
    calls.clear()
    write(source, {"e": b"9"})
    report = process(source, dest, function, function_version="1", target_size="2 B")
    assert not_taken(report) == 0
    assert sorted(row["n"] for row in rows(dest)) == [0, 1, 2, 3, 4, 5, 9]
    assert {commit.schema for _, commit in Log(connect(normalise(dest))).refresh().commits()} == {"`n` bigint"}
    assert not calls & {"f0", "f1", "f2"}, "what was done before the kill was done again"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"split": "line"}, "Did you mean 'lines'"),
        ({"split_size": "many"}, "split_size"),
        ({"schema": "id lng"}, "is wrong at character 4"),
        ({"schema": 5}, "schema is a pyarrow.Schema or a text"),
        ({"schema": "id long", "format": "lines"}, "schema= is for rows"),
        ({"format": "raw"}, "parquet, lines"),
        ({"transform": "xml"}, "takes a function, and no transform"),
        ({"on_append": "tail"}, "split='lines'"),
        ({"split": "lines", "split_size": "1 GiB"}, "larger than max_file_size"),
        ({"split": "lines", "partial_lines": "take"}, "on_append='tail'"),
        ({"splitsize": 4}, "unknown option 'splitsize'"),
    ],
)
def test_a_wrong_argument_is_one_line(tmp_path: Path, wrong: dict[str, Any], said: str) -> None:
    source = write(tmp_path / "in", {"a": b"1"})
    with refused(UsageError, 2, said):
        process(source, tmp_path / "out", parsed, **wrong)
    with refused(UsageError, 2, "takes a function"):
        process(source, tmp_path / "out", "xml")
    assert not (tmp_path / "out").exists()


def test_a_function_that_cannot_be_called_so_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    """Else each file would go into quarantine, with a TypeError whose text may hold data and is not kept."""
    source, dest = write(tmp_path / "in", {"a": b"1\n"}), tmp_path / "out"

    def alone(split: Any, *, token: str = "secret") -> list[bytes]:
        raise AssertionError((split, token))

    def rows(split: Any, content: Any) -> list[dict[str, int]]:
        raise ValueError

    with refused(UsageError, 2, "function= is called as alone(split, content), and it takes (split, token)") as said:
        process(source, dest, alone)
    assert "secret" not in str(said.value)
    with refused(UsageError, 2, "transform= is called as <lambda>(content, file), and it takes ()"):
        quire.consolidate(source, dest, transform=lambda: b"", spark=quire.LocalRunner(), progress=False)
    with refused(UsageError, 2, "reduce= is called as <lambda>(rows), and it takes (left, right)"):
        process(source, dest, rows, schema="a int", reduce=lambda left, right: left)
    assert not dest.exists()
    assert process(source, dest, rows, schema="a int").quarantined
    with refused(UsageError, 2, "is called as alone(split, content)"):
        quire.Ledger(dest).retry(source, function=alone, spark=quire.LocalRunner(), progress=False)
    process(source, tmp_path / "other", functools.partial(lambda word, split, content: [word, content], b"x"))  # as are all others


def test_a_destination_holds_the_output_of_one_function_in_one_way(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a": records(3)}), tmp_path / "out"
    process(source, dest, parsed, split="lines")
    with refused(RefusedError, 2, "split 'lines'", "split 'file'"):
        process(source, dest, parsed)
    with refused(RefusedError, 2, "test_process.parsed", "test_process.careful"):
        process(source, dest, careful, split="lines")
    with refused(RefusedError, 2, "test_process.parsed"):
        gather(source, dest)


def test_what_a_function_gives_must_fit_the_format(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"a": records(3)})
    with refused(UsageError, 2, "returned bytes for", "Say format='lines'"):
        process(source, tmp_path / "out", lambda split, content: content, format="parquet")
    report = process(source, tmp_path / "out", lambda split, content: [{"a": 1}], format="lines")
    assert "returned rows, and format 'lines' takes bytes" in report.quarantined[0][1]
    report = process(source, tmp_path / "other", lambda split, content: 7)
    assert "the function returned int; allowed are" in report.quarantined[0][1]


def test_a_quarantine_file_counts_only_by_the_log(tmp_path: Path) -> None:
    """What a loser or a job that was given up has left is seen by nobody and cleaned."""
    source, dest = write(tmp_path / "in", {"a": records(9, bad=(4,))}), tmp_path / "out"
    process(source, dest, careful, split="lines")
    (job,) = {commit.job for _, commit in Log(connect(normalise(dest))).refresh().commits()}
    (own,) = (dest / "_quire" / "quarantine").iterdir()
    stray = dest / names.quarantine(job, 0, "0123456789ab")
    stray.write_bytes(own.read_bytes())
    assert len(Ledger(dest).inspect.quarantined_records()) == 1
    quire.recover(dest)
    assert own.exists()
    assert not stray.exists()
    own.unlink()
    with refused(QuireError, 2, "the quarantine file", "is missing", "backup"):
        Ledger(dest).inspect.quarantined_records()


def test_on_spark(tmp_path: Path, spark: Any) -> None:
    source, dest = write(tmp_path / "in", {"a": records(200, bad=(7,)), "b": records(50, 200)}), tmp_path / "out"

    def function(split: Split, content: bytes) -> Any:
        found = []
        for line in content.splitlines():
            try:
                found.append({"id": json.loads(line)["id"]})
            except ValueError as e:
                split.quarantine(line, e)
        return pd.DataFrame(found, columns=["id"]).astype("int64")

    report = quire.process(source, dest, function, spark=spark, progress=False, split="lines", split_size="1000 B", target_size="3000 B")
    assert not_taken(report) == 1
    found = quire.read(dest, spark=spark)
    assert sorted(row["id"] for row in found.collect()) == [i for i in range(250) if i != 7]
    assert [(f.name, f.dataType.simpleString()) for f in found.schema] == [("id", "bigint")]


# ------------------------------------------------------------------------------------------------------------------- from a shell
JOB = """
import json


def careful(split, content):
    rows = []
    for line in content.splitlines():
        try:
            rows.append({"id": json.loads(line)["id"]})
        except ValueError as e:
            split.quarantine(line, e)
    return rows


def broken(split, content):
    return 1 / 0


word = "no function"
"""


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    """The command line, in this process: (exit code, output, errors)."""

    @contextmanager
    def here(master: str | None) -> Iterator[Any]:
        yield quire.LocalRunner()

    monkeypatch.setattr(app, "spark_of", here)
    monkeypatch.setattr(upkeep, "spark_of", here)

    def call(*arguments: object) -> tuple[int, str, str]:
        code = 0
        try:
            app.main([str(a) for a in arguments])
        except SystemExit as e:
            code = int(e.code or 0)
        return code, *capsys.readouterr()

    return call


def test_from_a_shell(tmp_path: Path, shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest = write(tmp_path / "in", {"a": records(20, bad=(3,)), "b": records(20, 20)}), tmp_path / "out"
    write(tmp_path / "jobs", {"shell_job.py": JOB.encode()})
    file = f"{tmp_path}/jobs/shell_job.py"
    code, out, err = shell("process", source, f"{file}:careful", dest, "--split", "lines", "--split-size", "300 B", "--json", "--quiet")
    assert (code, json.loads(out)["quarantined_count"]) == (0, 1), err
    assert ids(dest) == [i for i in range(40) if i != 3]
    code, out, _ = shell("ledger", "quarantined-records", dest, "--json")
    assert [row["content"] for row in json.loads(out)] == ["BROKEN 3"]
    code, out, err = shell("ledger", "retry", dest, "--function", f"{file}:careful", "--json", "--quiet")
    assert (code, json.loads(out)["quarantined"]) == (4, 1), err
    # The same function by its module's name: nothing is left to do.
    monkeypatch.chdir(tmp_path / "jobs")
    code, out, err = shell("process", source, "shell_job:careful", dest, "--split", "lines", "--json", "--quiet")
    assert (code, json.loads(out)["files"]) == (0, 0), err
    assert shell("process", source, f"{file}:broken", tmp_path / "no", "--max-quarantined", "0", "--quiet")[0] == 1
    for function, said in (
        ("shell_job", "Write module:name"), ("shell_job:word", "function of shell_job"), ("shell_job:carefull", "Did you mean 'careful'"),
        ("no_such_module:f", "the module 'no_such_module' does not exist"), ("no.py:f", "no.py' does not exist"),
    ):  # fmt: skip
        code, _, err = shell("process", source, function, tmp_path / "no", "--quiet")
        assert (code, err.count("\n")) == (2, 1)
        assert said in err


# ------------------------------------------------------------------------------------------------------------- all rows together
def total(rows: pa.Table) -> pa.Table:
    """How many there are, and their sum."""
    return pa.table({"n": [rows.num_rows], "sum": [sum(rows.column("id").to_pylist())]})


def test_all_rows_of_a_job_go_through_one_function_together(tmp_path: Path) -> None:
    """What a split gives, and what all of them give together, are of other columns; what was rejected is retried through both."""
    source, dest = write(tmp_path / "in", {"a": records(10, bad=(3,)), "b": records(10, 10)}), tmp_path / "out"
    how: dict[str, Any] = {"split": "lines", "split_size": "40 B", "reduce": total}
    report = process(source, dest, careful, **how)
    assert (rows(dest), report.files, not_taken(report)) == ([{"n": 19, "sum": 190 - 3}], 2, 1)
    assert process(source, dest, careful, **{**how, "split_size": "70 B"}).bytes == 0, "another size of splits repeats nothing"
    write(source, {"c": records(2, 100)})
    assert process(source, dest, careful, **how).files == 1
    assert rows(dest)[1:] == [{"n": 2, "sum": 201}]
    done = Ledger(dest).retry(function=repaired, reduce=total, **HERE)
    assert (rows(dest)[2:], done.gathered, len(Ledger(dest).inspect.quarantined())) == ([{"n": 1, "sum": 3}], 1, 0)
    with refused(RefusedError, 2, "reduce='test_process.total'"):
        process(source, dest, careful, **{**how, "reduce": None})


def test_a_shuffle_that_fails_leaves_the_tasks_done_and_nothing_visible(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a": records(5), "b": records(5, 5)}), tmp_path / "out"
    calls = list[int]()

    def noted(split: Split, content: bytes) -> list[dict[str, Any]]:
        calls.append(split.start)
        return parsed(split, content)

    def failing(rows: pa.Table) -> pa.Table:
        raise ValueError("no")

    with pytest.raises(QuireError, match="reduce failed"):
        process(source, dest, noted, reduce=failing, schema="id long", function_version="1")
    assert (len(calls), Ledger(dest).summary().commits) == (2, 0)
    assert process(source, dest, noted, reduce=total, schema="id long", function_version="2").files == 2
    assert rows(dest) == [{"n": 10, "sum": 45}]


def test_the_columns_of_a_shuffles_output_are_not_those_of_the_function(tmp_path: Path) -> None:
    """Where the first files gave no row, nothing is frozen; what there is to look at then is what the shuffle gave."""
    source, dest = write(tmp_path / "in", {f"{i}": b"%d\n" % i for i in range(10)}), tmp_path / "out"

    def of_nine(split: Split, content: bytes) -> list[dict[str, Any]] | None:
        return [{"v": int(content)}] if int(content) == 9 else None

    def counted(rows: pa.Table) -> pa.Table:
        return pa.table({"n": [rows.num_rows]})

    for name in ("9", "91"):
        write(source, {name: b"9\n"})
        report = process(source, dest, of_nine, reduce=counted)
        assert report.quarantined == ()
    assert rows(dest) == [{"n": 1}, {"n": 1}]


@pytest.mark.nth(2)
@pytest.mark.parametrize("late", [False, True])
def test_times_that_no_shuffle_holds_are_one_line(tmp_path: Path, late: bool) -> None:
    exact = pa.table({"t": pa.array([123456789], pa.timestamp("ns"))})
    source, given = write(tmp_path / "in", {"a": b"1"}), pa.table({"n": [1]}) if late else exact

    def run() -> Report:
        return process(source, tmp_path / "out", lambda split, content: given, reduce=lambda rows: exact)

    if late:  # what reduce gave is all there is
        with refused(QuireError, 3, "would lose data", "recover(dest, abort="):
            run()
    else:  # what the function gave is its split's
        report = run()
        assert (report.files, not_taken(report)) == (0, 1)
        assert "not all of it fits into timestamp[us]" in report.quarantined[0][1]


def test_a_function_that_ends_its_process_sets_its_split_aside(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a": b"1", "b": b"end"}), tmp_path / "out"
    report = process(source, dest, lambda split, content: [{"n": 1}] if content == b"1" else sys.exit("enough"))
    assert report.files == 1
    assert "SystemExit" in report.quarantined[0][1]


def test_columns_of_a_shuffle_without_a_type_are_refused_and_dictionaries_written_out(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a": b"1"}), tmp_path / "out"

    def untyped(rows: pa.Table) -> pa.Table:
        return rows.append_column("m", pa.nulls(rows.num_rows))

    def encoded(rows: pa.Table) -> pa.Table:
        return pa.table({"n": rows.column("n").dictionary_encode()})

    with refused(QuireError, 3, "'m' without any value or type"):
        process(source, dest, lambda split, content: [{"n": "x"}], reduce=untyped)
    quire.recover(dest, abort="open")
    process(source, dest, lambda split, content: [{"n": "x"}], reduce=encoded)
    assert next(Ledger(dest)._log.commits())[1].tasks[-1].schema == "`n` string"


def test_a_retry_counts_the_records_that_are_rejected_now(tmp_path: Path) -> None:
    def none(split: quire.Split, content: bytes) -> list[dict[str, int]]:
        raise ValueError("no")

    def some(split: quire.Split, content: bytes) -> list[dict[str, int]]:
        numbers = []
        for line in content.splitlines():
            if line.isdigit():
                numbers.append({"n": int(line)})
            else:
                split.quarantine(line, "no number")
        return numbers

    source, dest = write(tmp_path / "in", {"a": b"1\nx\n3\n"}), tmp_path / "out"
    quire.process(source, dest, none, split="lines", function_version="1", schema="n long", max_quarantined=9, **HERE)
    done = Ledger(dest).retry(source, function=some, **HERE)
    assert (done.gathered, done.quarantined) == (1, 1) == (1, Ledger(dest).summary().quarantined)
    assert Ledger(dest).inspect.history()["quarantined"].max() == 1


class Cyclic(list[Any]):
    """A list within itself: Arrow would look into it until its process ends."""

    def __init__(self) -> None:
        super().__init__([self])


@pytest.mark.nth(3)
@pytest.mark.parametrize("deep", [300, 30_000, None])
@pytest.mark.parametrize("kind", [None, "a bigint"])
@pytest.mark.parametrize("frame", [False, True])
def test_values_nested_beyond_measure_set_their_split_aside(tmp_path: Path, deep: int | None, kind: str | None, frame: bool) -> None:
    def nested(split: Split, content: bytes) -> Any:
        value: Any = 1 if content == b"good" else Cyclic()
        if content == b"deep" and deep is not None:
            value = functools.reduce(lambda inner, n: [inner] if n % 2 else {"k": inner}, range(deep), 1)
        return pd.DataFrame({"a": pd.Series([value], dtype=None if content == b"good" else object)}) if frame else [{"a": value}]

    source, dest = write(tmp_path / "in", {"a": b"deep", "b": b"good"}), tmp_path / "out"
    report = process(source, dest, nested, schema=kind, function_version="1")
    assert (report.files, not_taken(report)) == (1, 1)
    assert "more than 50 lists or dicts within each other" in report.quarantined[0][1]


def test_tables_nested_beyond_measure_set_their_split_aside(tmp_path: Path) -> None:
    kind = functools.reduce(lambda inner, _: pa.list_(inner), range(200), pa.int64())

    def nested(split: Split, content: bytes) -> pa.Table:
        return pa.table({"a": pa.nulls(1, kind) if content == b"deep" else [1]})

    source, dest = write(tmp_path / "in", {"a": b"deep", "b": b"good"}), tmp_path / "out"
    report = process(source, dest, nested, function_version="1")
    assert (report.files, not_taken(report)) == (1, 1)


def test_a_record_that_is_rejected_when_the_function_has_returned_is_not_lost_in_silence(tmp_path: Path) -> None:
    kept = list[Split]()

    def function(split: Split, content: bytes) -> list[dict[str, int]]:
        kept.append(split)
        return [{"a": 1}]

    process(write(tmp_path / "in", {"a": b"x\n"}), tmp_path / "out", function, function_version="1")
    with pytest.raises(QuarantineError, match="after the function had returned"):
        kept[-1].quarantine(b"x\n", "too late")
