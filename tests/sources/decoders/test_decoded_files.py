"""Columns of JSON and XML documents by expressions, and decoders where functions may stand: consolidate, process, retry."""

from __future__ import annotations

import gzip
import json
import pickle
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import quire
from gathering import MANY, gather, look, refused, write
from quire import Ledger
from quire.errors import AllQuarantined, RefusedError, UsageError
from quire.sources.decoders import decoder
from quire.sources.splits import FileInfo
from quire.sources.transforms.content import BadContent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False}
JSON = {
    "id": "$.order.id: long not null",
    "skus": "$.lines[*].sku: array<string>",
    "price": "$.price: decimal(10, 2)",
    "day": "$.day: date",
}
XML = {
    "id": "/order/@id: long not null",
    "skus": "/order/line/@sku: array<string>",
    "price": "/order/price: decimal(10, 2)",
    "day": "//day: date",
}
BY = {"json": JSON, "xml": XML}
KINDS = pytest.mark.parametrize("kind", ["json", "xml"])


def document(kind: str, i: Any) -> bytes:
    if kind == "json":
        lines = [{"sku": f"a{i}"}, {"sku": "b"}]
        return json.dumps({"order": {"id": i}, "lines": lines, "price": 1.25, "day": "2026-11-27", "more": [{}]}, indent=1).encode()
    return f'<order id="{i}">\n <line sku="a{i}"/><line sku="b"/><price> 1.25 </price><day>2026-11-27</day></order>'.encode()


def rows_of(dest: Path) -> list[dict[str, Any]]:
    found = ds.dataset(sorted(map(str, dest.rglob("part-*.parquet")))).to_table().to_pylist()
    return sorted(found, key=lambda row: row["id"])


def want(i: int) -> dict[str, Any]:
    return {"id": i, "skus": [f"a{i}", "b"], "price": Decimal("1.25"), "day": date(2026, 11, 27)}


def tree(kind: str, n: int = 20) -> dict[str, bytes]:
    return {f"d{i % 3}/{i:03}.{kind}": document(kind, i) for i in range(n)}


@KINDS
def test_documents_become_rows_of_typed_columns(kind: str, tmp_path: Path) -> None:
    wrong = {
        f"x.{kind}": document(kind, "secret"),
        f"y.{kind}": b"<a" if kind == "xml" else b"{",
        f"z.{kind}.gz": gzip.compress(document(kind, 20)),
    }
    source, dest = write(tmp_path / "in", {**tree(kind), **wrong}), tmp_path / "out"
    assert look(source, dest, transform=kind, columns=BY[kind]).run(progress=False).quarantined_count == 2
    assert rows_of(dest) == [want(i) for i in range(21)]
    ledger = Ledger(dest)
    found = {row["path"].rpartition("/")[2]: row["reason"] for row in ledger.inspect.quarantined().to_dict("records")}
    assert found[f"x.{kind}"].startswith("the column 'id' is bigint, and")
    assert not any("secret" in why for why in found.values())
    assert gather(source, dest, transform=kind, columns=BY[kind]).files == 0
    write(source, {f"x.{kind}": document(kind, 30)})
    again = decoder(kind, columns=BY[kind])
    with refused(UsageError, 2, f"quire.decoder.{kind}", "function="):
        ledger.retry(source, **LOCAL)
    report = gather(source, dest, transform=kind, columns=BY[kind], on_change="reprocess")
    assert report.files == 1
    write(source, {f"x.{kind}": document(kind, 31), f"new.{kind}": document(kind, 40)})
    assert gather(source, dest, transform=again).files == 1, "the decoder is the same function"
    ledger = Ledger(dest)
    ledger.compact(**LOCAL)
    assert len(list(dest.rglob("part-*.parquet"))) == 1
    assert rows_of(dest) == [want(i) for i in [*range(21), 30, 40]]
    ledger.forget([str(source / f"new.{kind}")], **LOCAL)
    assert rows_of(dest) == [want(i) for i in [*range(21), 30]]


@KINDS
def test_a_retry_reads_what_was_quarantined(kind: str, tmp_path: Path) -> None:
    source, dest = (
        write(tmp_path / "in", {f"a.{kind}": document(kind, 1), f"b.{kind}.gz": gzip.compress(document(kind, "x"))}),
        tmp_path / "out",
    )
    gather(source, dest, transform=kind, columns=BY[kind])
    loose = {**BY[kind], "id": BY[kind]["id"].replace(": long not null", ": string")}
    with refused(AllQuarantined, 4):
        Ledger(dest).retry(source, function=decoder(kind, columns=BY[kind]), **LOCAL)
    done = Ledger(dest).retry(source, function=decoder(kind, columns=loose), max_quarantined=MANY, **LOCAL)
    assert (done.gathered, done.quarantined) == (0, 1), "text is in no column of whole numbers"
    fixed = {**BY[kind], "id": "count(//line): long" if kind == "xml" else "$.price: long"}
    done = Ledger(dest).retry(source, function=decoder(kind, columns=fixed), max_quarantined=MANY, **LOCAL)
    assert (done.gathered, done.quarantined) == ((1, 0) if kind == "xml" else (0, 1))


@KINDS
def test_a_changed_expression_is_another_function(kind: str, tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", tree(kind, 3)), tmp_path / "out"
    made = [
        decoder(kind, columns={**BY[kind], "id": expression})
        for expression in (BY[kind]["id"], "$.price: long" if kind == "json" else "1: long")
    ]
    assert made[0].__edition__ != made[1].__edition__
    assert made[0].__edition__ == decoder(kind, columns=dict(BY[kind])).__edition__
    gather(source, dest, transform=kind, columns=BY[kind])
    write(source, {f"n.{kind}": document(kind, 9)})
    assert gather(source, dest, transform=kind, columns=BY[kind]).files == 1
    with refused(RefusedError, 2, "transform"):
        gather(source, dest, transform=kind)
    write(source, {f"o.{kind}": document(kind, 10)})
    with refused(RefusedError, 2, "column"):
        gather(source, dest, transform=kind, columns={"id": BY[kind]["id"]})
    assert rows_of(dest) == [want(i) for i in (0, 1, 2, 9)]


def value(kind: str, said: str, content: bytes) -> Any:
    (row,) = decoder(kind, columns={"c": said})(content, FileInfo("f", len(content), "v", 0)).to_pylist()
    return row["c"]


@pytest.mark.parametrize(
    ("said", "content", "found"),
    [
        ("$.a: int", b'{"a": 1}', 1),
        ("$: int", b"7", 7),
        ("$['a b'].c: string", b'{"a b": {"c": "x"}}', "x"),
        ("$[\"a'\"][0]: string", b'{"a\'": ["x", "y"]}', "x"),
        ("$.a[-1]: string", b'{"a": ["x", "y"]}', "y"),
        ("$.a[2]: string", b'{"a": ["x", "y"]}', None),
        ("$.a: int", b"{}", None),
        ("$.a: int", b'{"a": null}', None),
        ("$.a.b: int", b'{"a": [1]}', None),
        ("$.a[*]: array<int>", b'{"a": [1, null, 2]}', [1, None, 2]),
        ("$.a[*]: array<int>", b"{}", []),
        ("$.a: array<int>", b'{"a": [1, 2]}', [1, 2]),
        ("$.a: array<int>", b"{}", None),
        ("$.*: array<int>", b'{"a": 1, "b": 2}', [1, 2]),
        ("$.a[*]: int", b'{"a": [1]}', 1),
        ("$.a: double", b'{"a": 1}', 1.0),
        ("$.a: double", b'{"a": 0.1}', 0.1),
        ("$.a: decimal(38, 18)", b'{"a": 12345678901234567890.123456789012345678}', Decimal("12345678901234567890.123456789012345678")),
        ("$.a: decimal(5, 2)", b'{"a": "1.5"}', Decimal("1.50")),
        ("$.a: boolean", b'{"a": true}', True),
        ("$.a: struct<b: int, c: array<date>>", b'{"a": {"b": 1, "z": 2, "c": []}}', {"b": 1, "c": []}),
        ("$.größe: string", '{"größe": "x"}'.encode("utf-16"), "x"),
        ("$.a: bigint", b'{"a": 9223372036854775807}', 2**63 - 1),
    ],
)  # fmt: skip
def test_paths_of_json(said: str, content: bytes, found: Any) -> None:
    assert value("json", said, content) == found


@pytest.mark.parametrize(
    ("said", "content", "words"),
    [
        ("$.a: int", b'{"a": "1"}', "there is text"),
        ("$.a: int", b'{"a": 1.0}', "a fraction"),
        ("$.a: int", b'{"a": true}', "true or false"),
        ("$.a: int", b'{"a": 3000000000}', "a value of it is not"),
        ("$.a: boolean", b'{"a": 1}', "another number"),
        ("$.a: string", b'{"a": {}}', "an object"),
        ("$.a: string", b'{"a": 5}', "another number"),
        ("$.a[*]: int", b'{"a": [1, 2]}', "2 values are found: say array<int>"),
        ("$.a: array<int>", b'{"a": 1}', "another number"),
        ("$.a: array<int>", b'{"a": ["x"]}', "text"),
        ("$.a: double", b'{"a": 1e400}', "too large"),
        ("$.a: decimal(5, 2)", b'{"a": 1.555}', "a value of it is not"),
        ("$.a: decimal(5, 2)", b'{"a": "x"}', "not a number"),
        ("$.a: decimal(5, 2)", b'{"a": "NaN"}', "not a number"),
        ("$.a: decimal(5, 2)", b'{"a": 1e999999}', "a value of it is not"),
        ("$.a: date", b'{"a": "2026-13-01"}', "a value of it is not"),
        ("$.a: int not null", b"{}", "is not null"),
        ("$.a: array<string> not null", b"{}", "is not null"),
        ("$.a: int", b"", "empty"),
        ("$.a: int", b'{"a": NaN}', "JSON"),
        ("$.a: int", b'{"a": 1}\n{"a": "x"}', "its document 2: the column 'c'"),
        ("$.a: int", b"\x1f\x8b\x08\x00", "gzip"),
    ],
)
def test_values_of_json_that_do_not_fit_name_the_column(said: str, content: bytes, words: str) -> None:
    with pytest.raises(BadContent) as caught:
        value("json", said, content)
    assert words in caught.value.reason


def test_json_lines_are_a_row_each() -> None:
    made = decoder("json", columns={"c": "$.a: int"})(b'{"a": 1}\n\n{"a": 2}\n', FileInfo("f", 20, "v", 0))
    assert made.column("c").to_pylist() == [1, 2]


@pytest.mark.parametrize(
    ("said", "content", "found"),
    [
        ("/a/@id: long", b'<a id="5"/>', 5),
        ("/a/b: string", b"<a><b>x <i>y</i><!-- no --></b></a>", "x y"),
        ("/a/b: string", b"<a><b/></a>", ""),
        ("/a/b: int", b"<a><b> </b></a>", None),
        ("/a/b: int", b"<a/>", None),
        ("/a/b: array<int>", b"<a><b>1</b><b/><b>2</b></a>", [1, None, 2]),
        ("/a/b: array<int>", b"<a/>", []),
        ("/a/b[2]: int", b"<a><b>1</b><b>2</b></a>", 2),
        ("count(/a/b): int", b"<a><b>1</b><b>2</b></a>", 2),
        ("sum(/a/b): double", b"<a><b>1.5</b></a>", 1.5),
        ("/a/b = 1: boolean", b"<a><b>1</b></a>", True),
        ("normalize-space(/a): string", b"<a>  x\n y </a>", "x y"),
        ("/{http://x/y:z}a/{http://x/y:z}b: string", b'<n:a xmlns:n="http://x/y:z"><n:b>t</n:b></n:a>', "t"),
        ("/Q{http://x}a/@{http://y}k: string", b'<a xmlns="http://x" xmlns:y="http://y" y:k="v"/>', "v"),
        ("//b[. = '{not} a namespace']: string", b"<a><b>{not} a namespace</b></a>", "{not} a namespace"),
        ("/a/b: timestamp", b"<a><b>2026-11-27T08:00:00Z</b></a>", "2026-11-27 08:00:00+00:00"),
        ("/a: string", '<?xml version="1.0" encoding="ISO-8859-1"?><a>é</a>'.encode("latin-1"), "é"),
        ("/a: string", "<?xml version='1.0' encoding='utf-16'?><a>é</a>".encode("utf-16"), "é"),
        ("/a: string", b'<!DOCTYPE a SYSTEM "http://127.0.0.1:1/x.dtd"><a>x</a>', "x"),
    ],
)
def test_expressions_of_xml(said: str, content: bytes, found: Any) -> None:
    got = value("xml", said, content)
    assert (str(got) if said.endswith("timestamp") else got) == found


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"<a><b>1</b><b>2</b></a>", "2 values are found: say array<int>"),
        (b"<a><b>secret</b></a>", "the column 'c' is int"),
        (b"<a><b>1</a>", "malformed XML"),
        (b'<!DOCTYPE a [<!ENTITY e "1">]><a><b>&e;</b></a>', "entity"),
        (b'<!DOCTYPE a [<!ENTITY e SYSTEM "file:///etc/passwd">]><a><b>&e;</b></a>', "entity"),
        (b"<a>" * 1001 + b"</a>" * 1001, "levels"),
        (b"", "empty"),
        (b'{"a": 1}', "malformed"),
    ],
)
def test_documents_of_xml_that_do_not_fit(content: bytes, words: str) -> None:
    with pytest.raises(BadContent) as caught:
        value("xml", "/a/b: int", content)
    assert words in caught.value.reason
    assert "secret" not in caught.value.reason


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"transform": "lines"}, "transform='json' or 'xml'"),
        ({"transform": "json", "format": "lines"}, "Parquet"),
        ({"transform": "json", "columns": {"a": "$.a[: int"}}, "the column 'a': the path '$.a[' is wrong at character 4"),
        ({"transform": "json", "columns": {"a": "$.a: integr"}}, "ends with no type"),
        ({"transform": "json", "columns": {"a": "$..a: int"}}, "wrong at character 2"),
        ({"transform": "json", "columns": ["a"]}, "does not say columns"),
        ({"transform": "xml", "columns": {"a": "document('x'): int"}}, "not an XPath"),
        ({"transform": "csv"}, "transform='json' or 'xml'"),
    ],
)  # fmt: skip
def test_wrong_columns_are_said_before_anything_is_read(given: dict[str, Any], words: str, tmp_path: Path) -> None:
    with refused(UsageError, 2, words):
        gather(tmp_path / "in", tmp_path / "out", **{"columns": {"a": "$.a: int"}, **given})
    assert not (tmp_path / "out").exists()


# ------------------------------------------------------------------------------------------------------------------------ process
def test_a_line_that_cannot_be_decoded_is_quarantined_alone(tmp_path: Path) -> None:
    lines = b'{"order": {"id": 1}}\n{"order": {}}\nnot JSON\n\n{"order": {"id": 2}}\n'
    source, dest = write(tmp_path / "in", {"a.jsonl": lines}), tmp_path / "out"
    report = quire.process(source, dest, decoder("json", columns={"id": "$.order.id: long not null"}), split="lines", **LOCAL)
    assert [row["id"] for row in rows_of(dest)] == [1, 2]
    assert report.quarantined_count == 2
    found = Ledger(dest).inspect.quarantined_records()
    assert sorted(found["content"]) == [b"not JSON", b'{"order": {}}']
    done = Ledger(dest).retry(source, function=decoder("json", columns={"id": "$.order.id: long"}), **LOCAL)
    assert (done.gathered, done.quarantined) == (1, 1)
    assert [row["id"] for row in ds.dataset(sorted(map(str, dest.rglob("part-*.parquet")))).to_table().to_pylist()].count(None) == 1


def test_the_records_of_a_load_are_decoded_afterwards(tmp_path: Path) -> None:
    from quire.formats.parquet import RECORDS

    rows = [{"value": b'{"id": %d}' % i, "offset": i, "topic": "t", "key": b"k"} for i in range(10)]
    (tmp_path / "in").mkdir()
    pq.write_table(pa.Table.from_pylist(rows, schema=RECORDS), tmp_path / "in/a.parquet")
    pq.write_table(pa.Table.from_pylist([*rows, {"value": b"{"}], schema=RECORDS), tmp_path / "in/b.parquet")
    pq.write_table(pa.table({"other": [1]}), tmp_path / "in/c.parquet")
    made = decoder("json", schema="id long", metadata={"offset": "at"}, decode_key="string")
    report = quire.process(tmp_path / "in", tmp_path / "out", made, split="row_groups", max_quarantined=MANY, **LOCAL)
    assert report.quarantined_count == 2
    assert rows_of(tmp_path / "out") == [{"key": "k", "id": i, "at": i} for i in range(10)]
    why = sorted(Ledger(tmp_path / "out").inspect.quarantined()["reason"])
    assert why[0] == "1 of its records cannot be decoded; row 10: not one JSON object (DecodeError)"
    assert why[1].startswith("it has no column 'value' of bytes")
    with refused(UsageError, 2, "row_groups"):
        quire.process(tmp_path / "in", tmp_path / "x", made, **LOCAL)
    with refused(UsageError, 2, "format"):
        quire.process(tmp_path / "in", tmp_path / "x", decoder("json", schema="id long"), format="lines", **LOCAL)


def test_a_decoder_travels_to_spark_s_tasks(spark: SparkSession, tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", tree("xml")), tmp_path / "out"
    gather(source, dest, transform="xml", columns=XML, spark=spark)
    assert rows_of(dest) == [want(i) for i in range(20)]
    made = decoder("json", columns=JSON)
    assert pickle.loads(pickle.dumps(made)) == made
