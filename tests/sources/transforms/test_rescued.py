"""The column that takes what does not fit: no record is lost or stays out for a field more, and nothing else goes there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import quire
from gathering import gather, look, refused, write
from quire.errors import RefusedError, UsageError
from quire.read import first_rows
from quire.sources.transforms import text
from quire.sources.transforms.text import Csv, JsonLines, Reader
from quire.storage import connect, normalise

LOCAL: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False}
COLUMNS = pa.schema([("id", pa.int64()), ("_rescued", pa.string()), ("x", pa.string())])


def rows(dest: Path) -> list[dict[str, Any]]:
    return list(first_rows(connect(normalise(dest)), 1_000))


def taken(reader: Reader, content: bytes) -> tuple[list[tuple[Any, ...]], list[str]]:
    """The rows (id, x, what was rescued), and the reasons of records that stay out."""
    batches, rejected = reader.read(content, begins=True)
    found = pa.Table.from_batches(batches, COLUMNS).select(["id", "x", "_rescued"]).to_pylist()
    return [tuple(row.values()) for row in found], [each.reason for each in rejected]


@pytest.mark.parametrize(
    ("line", "row"),
    [
        (b'{"id": 1, "x": "a"}', (1, "a", None)),
        (b'{"id": 1, "new": {"k": 1.50, "l": [1, null]}}', (1, None, '{"new":{"k": 1.50, "l": [1, null]}}')),
        (b'{"id": "one", "x": "a"}', (None, "a", '{"id":"one"}')),
        (b'{"id": 123456789012345678901234567890}', (None, None, '{"id":123456789012345678901234567890}')),
        (b'{"ID": 1, "x": 5}', (None, None, '{"ID":1,"x":5}')),
        ('{"ü\\"": "ü"}'.encode(), (None, None, '{"ü\\"":"ü"}')),
        (b'{"_rescued": "x"}', (None, None, '{"_rescued":"x"}')),
        (b'{"id": null, "x": null, "y": null}', (None, None, '{"y":null}')),
        (b'{"id": 1, "id": 2}', "it names a field twice"),
        (b'{"new": {"a": 1, "a": 2}}', (None, None, '{"new":{"a": 1, "a": 2}}')),
        (b'{"id": 1', "not valid JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"x": "\xff"}', "not valid UTF-8"),
        (b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested"),
    ],
)
def test_a_field_that_does_not_fit_is_rescued_as_it_stands(line: bytes, row: tuple[Any, ...] | str) -> None:
    reader = JsonLines(columns=COLUMNS, rescued="_rescued")
    found, reasons = taken(reader, b'{"id": 0}\n' + line + b'\n{"id": 9}\n')
    assert found[0] == (0, None, None)
    assert found[-1] == (9, None, None)
    if isinstance(row, str):
        assert len(found) == 2
        assert row in reasons[0]
    else:
        assert (found[1:-1], reasons) == ([row], [])


@pytest.mark.parametrize(
    ("record", "row"),
    [
        (b"1,a", (1, "a", None)),
        (b"one,a", (None, "a", '{"id": "one"}')),
        (b'"1,5",a', (None, "a", '{"id": "1,5"}')),
        (b"1,a,b,", (1, "a", '{"_c2": "b"}')),
        (b'1,a,"say ""\xc3\xbc"""', (1, "a", '{"_c2": "say \\"ü\\""}')),
        (b"1", "1 values, and there are 2"),
        (b"\xff,a", "UTF-8"),
    ],
)
def test_a_value_that_does_not_fit_is_rescued_and_a_record_that_is_cut_stays_out(record: bytes, row: tuple[Any, ...] | str) -> None:
    reader = Csv(columns=COLUMNS, rescued="_rescued")
    found, reasons = taken(reader, b"id,x\n0,\n" + record + b"\n9,\n")
    assert found[0] == (0, None, None)
    assert found[-1] == (9, None, None)
    if isinstance(row, str):
        assert len(found) == 2
        assert row in reasons[0]
    else:
        assert (found[1:-1], reasons) == ([row], [])


def test_columns_of_a_header_that_the_rows_do_not_have_are_rescued_also_of_files_that_are_parsed_together() -> None:
    reader = Csv(columns=COLUMNS, rescued="_rescued")
    assert taken(reader, b"new,id\na,1\n,2\n") == ([(1, None, '{"new": "a"}'), (2, None, None)], [])
    batch, counts = reader.together([b"new,id\na,1\n", b"new,id\nb,2\nc,3\n"])
    assert (batch.column("_rescued").to_pylist(), counts) == (['{"new": "a"}', '{"new": "b"}', '{"new": "c"}'], [1, 2])


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_no_record_is_lost_through_a_destinations_life(tmp_path: Path, kind: str) -> None:
    source, dest = tmp_path / "in", tmp_path / "out"

    def file(*records: dict[str, Any]) -> bytes:
        if kind == "jsonl":
            return b"".join(json.dumps(record).encode() + b"\n" for record in records)
        return "\n".join([",".join(records[0]), *(",".join(map(str, record.values())) for record in records), ""]).encode()

    settings: dict[str, Any] = {"transform": kind, "rescued": "_rescued"}
    write(source, {"a": file({"id": 1, "x": "a"}, {"id": 2, "x": "b"})})
    assert look(source, dest, **settings).columns == "`id` bigint, `x` string, `_rescued` string"
    gather(source, dest, **settings)
    write(source, {"b": file({"id": 3, "new": "n"}, {"id": "four", "new": "m"})})
    report = gather(source, dest, **settings)
    assert report.quarantined_count == 0
    found = {row["id"]: row["_rescued"] and json.loads(row["_rescued"]) for row in rows(dest)}
    assert found == {1: None, 2: None, 3: {"new": "n"}, None: {"new": "m", "id": "four"}}
    ledger = quire.Ledger(dest)
    ledger.compact(**LOCAL)
    assert ledger.verify(spark=LOCAL["spark"]).ok
    ledger.forget(source / "b", **LOCAL)
    assert gather(source, dest, schema_evolution="add", **settings).files == 1
    assert {row["id"]: row["new"] for row in rows(dest)} == {1: None, 2: None, 3: "n", None: "m"}


def test_what_was_quarantined_is_rescued_by_a_retry(tmp_path: Path) -> None:
    source, dest = tmp_path / "in", tmp_path / "out"
    write(source, {"a": b'{"id": 1, "_rescued": ""}\n{"id": "two"}\n'})
    assert gather(source, dest, transform="jsonl", schema="id long, _rescued string").quarantined_count == 1
    done = quire.Ledger(dest).retry(source, text_options={"rescued": "_rescued"}, **LOCAL)
    assert (done.gathered, done.quarantined) == (1, 0)
    assert {row["id"]: row["_rescued"] for row in rows(dest)} == {1: "", None: '{"id":"two"}'}


def test_words_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a": b"id,x\n1,a\n"}), tmp_path / "out"
    with refused(UsageError, 2, "rescued='id' is a column of the rows already", "int64"):
        gather(source, dest, transform="csv", rescued="id")
    with refused(UsageError, 2, "rescued='ID' is a column of the rows already"):
        gather(source, dest, transform="csv", rescued="ID", schema="id long, x string")
    with refused(UsageError, 2, "rescued='_r'", "transform='csv' or 'jsonl'"):
        gather(source, dest, transform="lines", rescued="_r")
    for wrong in (5, "a\0b"):
        with refused(UsageError, 2, "is not the name of a column"):
            gather(source, dest, transform="csv", rescued=wrong)
    gather(source, dest, transform="csv")
    write(source, {"b": b"id,x,y\n1,a,b\n"})
    with refused(RefusedError, 2, "'_rescued' (string) is not there"):
        gather(source, dest, transform="csv", rescued="_rescued")


def test_its_column_is_appended_once() -> None:
    columns = pa.schema([("id", pa.int64())])
    wide = text.with_rescued(columns, "_r")
    assert wide.names == ["id", "_r"]
    assert text.with_rescued(wide, "_r") is wide
