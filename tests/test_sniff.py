"""A look at a source: which kinds of files lie there, and which call takes them."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

import quire
from gathering import gather, look, refused, tar, write, zipped
from quire import Ledger
from quire.errors import UsageError
from quire.sources.looking import Kind, looked


def packed(kind: str, n: int = 10) -> bytes:
    table, sink = pa.table({"id": range(n), "name": [f"n{i}" for i in range(n)]}), io.BytesIO()
    if kind == "avro":
        fields = [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]
        fastavro.writer(sink, {"type": "record", "name": "r", "fields": fields}, table.to_pylist())
    else:
        {"parquet": pq.write_table, "orc": pyarrow.orc.write_table}[kind](table, sink)
    return sink.getvalue()


def archived(kind: str) -> bytes:
    sink = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(sink, "w") as archive:
            archive.writestr(zipfile.ZipInfo("a"), b"x")
    else:
        with tarfile.open(fileobj=sink, mode="w") as archive:
            archive.addfile(tarfile.TarInfo("a"), io.BytesIO())
    return sink.getvalue()


DOCUMENT = json.dumps({"Records": [{"a": 1}]}).encode()
LINES = b'{"id": 1, "name": "a"}\n{"id": 2, "name": "b"}\n'
CSV = b"id,name,price\n1,a,1.5\n2,b,2.5\n"


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("a.csv", CSV, Kind("CSV", "csv")),
        ("a", CSV, Kind("CSV", "csv")),
        ("a.csv", CSV.replace(b",", b";"), Kind("CSV", "csv", (("delimiter", ";"),))),
        ("a.tsv", CSV.replace(b",", b"\t"), Kind("CSV", "csv", (("delimiter", "\t"),))),
        ("a.csv", b"1;x, y\n2;z\n3;a, b\n", Kind("CSV", "csv", (("delimiter", ";"), ("header", False)))),
        ("a.csv", "id,stadt\n1,Köln\n".encode("cp1252"), Kind("CSV", "csv", (("encoding", "cp1252"),))),
        ("a.csv", CSV.decode().encode("utf-16"), Kind("CSV", "csv")),
        ("a.csv", b"one\nx\n", Kind("CSV", "csv")),
        ("a.csv", b"one,two", Kind("CSV", "csv")),
        ("a.csv", b'id,name\n1,"x', Kind("CSV", "csv")),
        ("a", b'"a quote without an end', Kind("lines", "lines")),
        ("a.csv.gz", gzip.compress(CSV, mtime=0), Kind("CSV", "csv", codec="gzip")),
        ("a.jsonl", LINES, Kind("JSON lines", "jsonl")),
        ("a", LINES, Kind("JSON lines", "jsonl")),
        ("a.jsonl", LINES[:23], Kind("JSON lines", "jsonl")),
        ("a.json.gz", gzip.compress(LINES, mtime=0), Kind("JSON lines", "jsonl", codec="gzip")),
        ("a.json", DOCUMENT, Kind("JSON", "json")),
        ("a.json", b'[\n{"a": 1},\n{"a": 2}\n]', Kind("JSON", "json")),
        ("a.json.gz", gzip.compress(DOCUMENT, mtime=0), Kind("JSON", "json", codec="gzip")),
        ("a.xml", b"\xef\xbb\xbf <?xml version='1.0'?><a/>", Kind("XML", "xml")),
        ("a.log", b"2026-11-27 hello, world\nwhat is this\n", Kind("lines", "lines")),
        ("a.log", b"one\n", Kind("lines", "lines")),
        ("a", b"{not json\n", Kind("lines", "lines")),
        ("a.bin", b"\x00\x01\x02\xff", Kind("binary", "raw")),
        ("a", b"", Kind("empty")),
        ("a.zip", archived("zip"), Kind("zip archive", "lines", (("archives", True),))),
        ("a.tar", archived("tar"), Kind("tar archive")),
        ("a.tar.gz", gzip.compress(archived("tar"), mtime=0), Kind("tar archive", codec="gzip")),
        ("a.parquet", packed("parquet"), Kind("Parquet", "parquet")),
        ("a", packed("orc"), Kind("ORC", "orc")),
        ("a", packed("avro"), Kind("Avro", "avro")),
        ("a.gz", gzip.compress(packed("parquet"), mtime=0), Kind("Parquet", "", codec="gzip")),
        ("a.gz", gzip.compress(CSV * 9, mtime=0)[:-20], Kind("damaged", codec="gzip")),
    ],
)
def test_a_file_is_known_by_its_content(name: str, content: bytes, kind: Kind) -> None:
    found = looked(name, content, whole=True)
    assert found.kind == kind
    assert (found.columns is None) == (kind.transform not in ("csv", "jsonl", "parquet", "orc", "avro"))
    if kind.transform in ("csv", "jsonl", "xml", "lines", "json") and content[:2] != b"\x1f\x8b":
        long = looked(name, content * 3, whole=False)  # its beginning, whose end is cut off
        assert long.kind.transform in (kind.transform, "jsonl", "json", "lines")


def test_a_damaged_file_says_why() -> None:
    for content in (packed("parquet")[:-9], packed("avro")[:30]):
        found = looked("a", content, whole=True)
        assert (found.columns, "not readable as" in found.why) == (None, True)


def test_a_source_is_told_with_its_kinds_and_the_call_that_takes_it(tmp_path: Path) -> None:
    files = {f"d{i % 2}/{i:03}.csv": CSV.replace(b",", b";") for i in range(28)}
    files |= {"x.parquet": packed("parquet"), "y.zip": archived("zip"), "empty": b""}
    source = write(tmp_path / "in", files)
    found = quire.sniff(source)
    assert (found.files, found.bytes, found.more, len(found.found)) == (31, sum(map(len, files.values())), False, 31)
    assert (found.transform, found.settings, round(found.share, 2)) == ("csv", {"delimiter": ";"}, 0.93)
    assert found.call == f"quire.consolidate('file://{source}', dest, transform='csv', delimiter=';')"
    assert found.columns == "`id` bigint, `name` string, `price` double"
    assert sorted(found.kinds()[["kind", "transform", "files"]].values.tolist()) == [
        ["CSV", "csv", 28], ["Parquet", "parquet", 1], ["empty", "", 1], ["zip archive", "lines", 1],
    ]  # fmt: skip
    assert json.loads(json.dumps(found.as_dict()))["kinds"][0]["settings"] == {"delimiter": ";"}
    assert all(text in str(found) for text in ("CSV (delimiter=';')", "90%", "zip archive", "columns", found.call))
    assert "zip archive" in found._repr_html_()
    assert quire.sniff(source, include="*.parquet").transform == "parquet"
    assert len(quire.sniff(source, sample=5).found) == 5


def test_a_look_reads_little_of_long_files(tmp_path: Path) -> None:
    source = write(
        tmp_path / "in",
        {"1.jsonl": LINES * 100_000, "2.parquet": packed("parquet", 300_000), "3.json.gz": gzip.compress(LINES * 300_000, mtime=0)},
    )
    found = {each.path.rpartition("/")[2]: each for each in quire.sniff(source).found}
    assert [found[name].kind.transform for name in ("1.jsonl", "2.parquet", "3.json.gz")] == ["jsonl", "parquet", "jsonl"]
    assert all(each.columns is not None and each.columns.names == ["id", "name"] for each in found.values())


@pytest.mark.parametrize(
    ("files", "transform", "rows"),
    [
        ({f"{i}.csv": CSV.replace(b",", b"|") for i in range(5)}, "csv", 10),
        ({f"{i}.json.gz": gzip.compress(LINES, mtime=0) for i in range(5)}, "jsonl", 10),
        ({f"{i}": packed("avro") for i in range(5)}, "avro", 50),
    ],
)
def test_auto_gathers_what_a_look_suggests(files: dict[str, bytes], transform: str, rows: int, tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", files), tmp_path / "out"
    plan = look(source, dest, transform="auto")
    assert plan.columns.startswith("`id` bigint, `name` string")
    plan.discard()
    assert gather(source, dest, transform="auto").files == 5
    assert ds.dataset(sorted(map(str, dest.glob("*.parquet")))).count_rows() == rows
    assert Ledger(dest).summary().transform == transform
    assert gather(source, dest, transform="auto").files == 0
    assert gather(source, dest, transform=transform, **quire.sniff(source).settings).files == 0


def test_a_look_at_plain_files_with_names_of_compressed_ones_suggests_what_takes_them(tmp_path: Path) -> None:
    source = write(
        tmp_path / "in", {f"{i}.log.gz": b"some words\nand others\n" for i in range(4)} | {"plain.log": b"a line\nand another\n"}
    )
    found = quire.sniff(source)
    assert (found.transform, found.settings, found.share) == ("lines", {"decompress": "none"}, 1.0)
    assert found.call.endswith("transform='lines', decompress='none')")
    report = gather(source, tmp_path / "out", transform="auto")
    assert (report.files, report.quarantined_count) == (5, 0)
    write(source, {"packed.log.gz": gzip.compress(b"words in gzip\n")})
    found = quire.sniff(source)
    assert (found.transform, found.settings, found.share) == ("lines", {}, 2 / 6), "decompress='none' would take the packed one as lines"


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_a_look_into_archives_suggests_to_take_their_members(kind: str, tmp_path: Path) -> None:
    pack = zipped if kind == "zip" else tar
    members = {f"{i}.csv": CSV.replace(b",", b";") for i in range(3)}
    files = {f"{i}.{kind}": pack({**members, "inner.zip": archived("zip")}) for i in range(3)}
    files |= {f"long.{kind}": pack({"0.csv": CSV.replace(b",", b";") * 90_000, **members}), "plain.csv": members["0.csv"]}
    source, dest = write(tmp_path / "in", files), tmp_path / "out"
    found = quire.sniff(source)
    assert (found.transform, found.settings, found.share) == ("csv", {"delimiter": ";", "archives": True}, 1.0)
    assert found.call.endswith("transform='csv', delimiter=';', archives=True)")
    assert f"{kind} archive (delimiter=';', archives=True)" in str(found)
    assert found.columns == "`id` bigint, `name` string, `price` double"
    (source / f"long.{kind}").unlink()
    gather(source, dest, transform="auto")
    assert ds.dataset(sorted(map(str, dest.glob("*.parquet")))).count_rows() == 20
    assert gather(source, tmp_path / "without", transform="auto", archives=False, include="*.csv").files == 1


def test_a_look_into_archives_that_nobody_can_open_says_why() -> None:
    whole = zipped({"a": b"x"})
    assert "damaged or cut off" in looked("a.zip", whole[:-5], whole=True).why
    assert "cut off" in looked("a.tar", tar({"a": b"x"})[:300], whole=True).why
    assert looked("a.zip", zipped({"a.zip": whole}), whole=True).kind == Kind("zip archive")


def test_damaged_and_empty_files_are_of_no_other_kind(tmp_path: Path) -> None:
    files = {f"{i}.json.gz": gzip.compress(LINES, mtime=0) for i in range(3)} | {
        "bad.json.gz": gzip.compress(LINES, mtime=0)[:-9],
        "empty": b"",
    }
    assert gather(write(tmp_path / "in", files), tmp_path / "out", transform="auto").quarantined_count == 1


def test_auto_asks_where_several_kinds_lie(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {**{f"{i}.csv": CSV for i in range(3)}, "x.parquet": packed("parquet")})
    with refused(UsageError, 2, "transform='auto' finds several kinds", "CSV: 3; Parquet: 1", "include="):
        gather(source, tmp_path / "out", transform="auto")
    assert gather(source, tmp_path / "out", transform="auto", exclude="*.parquet").files == 3
    # What the call says itself counts.
    assert gather(source, tmp_path / "lines", transform="auto", exclude="*.parquet", schema="id long, name string, price string").files == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"source": "nowhere"}, ["nowhere"]),
        ({"source": "in", "include": "*.gz"}, ["has no file to look at", "include="]),
        ({"source": "in", "sample": 0}, ["sample=0"]),
        ({"source": 7}, ["a source is a path or URL"]),
    ],
)
def test_wrong_words(arguments: dict[str, Any], words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "in", {"a": b"x\n"})
    with refused(UsageError, 2, *words):
        quire.sniff(**arguments)


def test_schemas_are_told_with_the_patterns_that_take_one_alone(tmp_path: Path) -> None:
    files = {f"orders/{i}.parquet": packed("parquet") for i in range(3)}
    files |= {f"other/csv{i}.csv": CSV for i in range(2)} | {"other/people1.csv": b"first,last\na,b\nc,d\n"}
    source = write(tmp_path / "in", files)
    rows = [*quire.sniff(source).schemas().itertuples()]
    assert [(row.transform, row.files, row.include) for row in rows] == [
        ("parquet", 3, ["orders/**"]),
        ("csv", 2, ["csv*"]),
        ("csv", 1, ["people*"]),
    ]
    assert rows[0].name.count("-") >= 1
    assert rows[2].columns == "`first` string, `last` string"
    for row in rows:
        assert gather(source, tmp_path / row.include[0].strip("*/"), transform=row.transform, include=row.include).files == row.files
    mixed = write(tmp_path / "mixed", {"1.csv": CSV, "2.csv": b"first,last\na,b\n"})
    assert [*quire.sniff(mixed).schemas()["include"]] == ["", ""]
    with refused(UsageError, 2, "include takes globs"):  # and not all files, as an empty list would
        gather(mixed, tmp_path / "none", transform="csv", include="")


@pytest.mark.parametrize(
    ("one", "other", "patterns"),
    [
        (["order1", "order2"], ["orders1"], [["order[0-9]*"], ["orders*"]]),
        (["run[1]/a"], ["run1/a"], [["run[[]1]/**"], ["run1/**"]]),
        (["a*/x", "site a/x"], ["ab/x", "site/x"], [["a[*]/**", "site a/**"], ["ab/**", "site/**"]]),
        (["a,b/x"], ["b/x"], [["a,b/**"], ["b/**"]]),
        (["x/order1"], ["orders/order1"], [["x/**"], ["orders/**"]]),
        (["x/order1", "order2"], ["x/orders1"], [["order[0-9]*"], ["orders*"]]),
        (["a?1"], ["ab1"], ["", ["ab*"]]),
        (["top1"], ["below/top1"], ["", ["below/**"]]),
    ],
    ids=str,
)  # fmt: skip
def test_patterns_take_the_files_of_one_schema_and_no_others(tmp_path: Path, one: list[str], other: list[str], patterns: Any) -> None:
    """They are what a call takes: characters that mean others in a glob, blanks, and beginnings of other names among them."""
    source = write(tmp_path / "in", {})
    for names, column in ((one, "a"), (other, "b")):
        for name in names:
            write(source, {f"{name}.parquet": b""})
            pq.write_table(pa.table({column: [1]}), source / f"{name}.parquet")
    rows = sorted(quire.sniff(source).schemas().itertuples(), key=lambda row: str(row.columns))
    assert [row.include for row in rows] == patterns
    for row in rows:
        if row.include:
            report = gather(source, tmp_path / row.columns[1], transform="parquet", include=row.include)
            assert report.files == row.files
            assert pq.read_schema(next((tmp_path / row.columns[1]).glob("*.parquet"))).names == [row.columns[1]]
