"""Readers of delimited text and of JSON lines: records that do not fit stand alone, with line and column, and all others become rows."""

from __future__ import annotations

import codecs
import csv
import io
import json
import random
import re
import string
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.errors import UsageError
from quire.sources.transforms import BadContent, schemas, text
from quire.sources.transforms.text import Csv, JsonLines, Reader, encodings
from quire.sources.transforms.text.jsonl import _objects
from quire.sources.transforms.text.rejects import MOST

COLUMNS = "id bigint, name string, price decimal(10, 2), day date, at timestamp, ntz timestamp_ntz, ok boolean, x double, small tinyint"
TIMES = {"day": "2026-01-31", "at": "2026-01-31T10:00:00+02:00", "ntz": "2026-01-31 10:00:00.5"}
FULL = {"id": 1, "name": "n", "price": "1.50", "ok": True, "x": 1.5, "small": 7, **TIMES}


def read(reader: Reader, content: bytes, begins: bool = True) -> tuple[list[dict[str, Any]], list[tuple[int, bytes, str]]]:
    """The rows, and the records that do not fit."""
    batches, rejected = reader.read(content, begins=begins)
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema == reader.columns
    return [row for batch in batches for row in batch.to_pylist()], [tuple(each) for each in rejected]


def jsonl(columns: str = COLUMNS) -> JsonLines:
    return JsonLines(columns=text.canonical("jsonl", columns))


def delimited(columns: str = COLUMNS, **options: Any) -> Csv:
    return Csv(columns=text.canonical("csv", columns), **options)


def line(**fields: Any) -> bytes:
    return json.dumps(fields).encode() + b"\n"


# ------------------------------------------------------------------------------------------------------------------- JSON lines
WRONG = [
    (b'{"id": 1.5}\n', "the column 'id' is bigint, and here it is a fraction"),
    (b'{"id": true}\n', "the column 'id' is bigint, and here it is true or false"),
    (b'{"id": 9223372036854775808}\n', "the column 'id' is bigint, and here it is another number"),
    (b'{"small": 128}\n', "the column 'small' is tinyint, and here it is another number"),
    (b'{"ok": 1}\n', "the column 'ok' is boolean, and here it is another number"),
    (b'{"name": 1}\n', "the column 'name' is string, and here it is another number"),
    (b'{"name": {}}\n', "the column 'name' is string, and here it is an object"),
    (b'{"x": "1"}\n', "the column 'x' is double, and here it is text"),
    (b'{"price": 1.505}\n', "the column 'price' is decimal(10, 2), and here it is a fraction"),
    (b'{"day": "2026-02-30"}\n', "the column 'day' is date, and here it is text that is not one"),
    (b'{"day": 5}\n', "the column 'day' is date, and here it is another number"),
    (b'{"at": "2026-01-31 10:00:00"}\n', "the column 'at' is timestamp, and here it is text that is not one"),  # of no time zone
    (b'{"ntz": "2026-01-31 10:00:00Z"}\n', "the column 'ntz' is timestamp_ntz, and here it is text that is not one"),
    (b'{"other": 1}\n', "the field 'other' is not among the columns"),
    (b'{"ID": 1}\n', "the field 'ID' is not among the columns, where it is called 'id'"),
    (b'{"id": 1, "id": 2}\n', "it names a field twice"),
    (b"null\n", "not a JSON object: Expected `object`, got `null`"),
    (b"[1]\n", "not a JSON object: Expected `object`, got `array`"),
    (b"7\n", "not a JSON object: Expected `object`, got `int`"),
    (b'{"id": 1}{"id": 2}\n', "not valid JSON: JSON is malformed: trailing characters (byte 10)"),
    (b'{"id": 1\n', "not valid JSON: Input data was truncated"),
    (b'{"id": 01}\n', "not valid JSON: JSON is malformed: invalid number (byte 8)"),
    (b'{"x": NaN}\n', "not valid JSON: JSON is malformed: invalid character (byte 6)"),
    (b'{"name": "\xff"}\n', "not valid UTF-8 at its byte 10: say encoding="),
    (b"\xfe\xed\n", "not valid UTF-8 at its byte 0: say encoding="),
    (b'{"name": "\\ud800"}\n', "not valid JSON: Input data was truncated"),
    (b'{"name": ' + b"[" * 200_000 + b"\n", "its objects are nested too deeply"),
    (b'{"x": 1e999}\n', "not a JSON object: Number out of range - at `$[...]`"),
]


def test_each_line_that_is_wrong_is_told_with_line_and_column() -> None:
    content = line(**FULL) + b"\n" + b"".join(wrong + line(id=i) for i, (wrong, _) in enumerate(WRONG))
    rows, rejected = read(jsonl(), content)
    assert [row["id"] for row in rows] == [1, *range(len(WRONG))]
    assert [reason for *_, reason in rejected] == [f"line {3 + 2 * i}: {reason}" for i, (_, reason) in enumerate(WRONG)]
    assert [record for _, record, _ in rejected] == [wrong for wrong, _ in WRONG]
    assert all(content[at : at + len(record)] == record for at, record, _ in rejected)


@pytest.mark.parametrize(("wrong", "reason"), WRONG)
def test_a_wrong_line_alone(wrong: bytes, reason: str) -> None:
    assert read(jsonl(), wrong) == ([], [(0, wrong, f"line 1: {reason}")])
    assert read(jsonl(), wrong.rstrip(b"\n"), begins=False) == ([], [(0, wrong.rstrip(b"\n"), reason)])


def test_values_become_what_the_columns_say() -> None:
    (row,), _ = read(jsonl(), line(**FULL))
    row = {name: str(value) for name, value in row.items()}
    assert (row["id"], row["name"], row["price"], row["ok"], row["x"], row["small"]) == ("1", "n", "1.50", "True", "1.5", "7")
    assert (row["day"], row["at"], row["ntz"]) == ("2026-01-31", "2026-01-31 08:00:00+00:00", "2026-01-31 10:00:00.500000")
    nested = jsonl("a struct<days array<date>, m struct<k: bigint>>, l array<struct<v: double>>")
    good = line(a={"days": ["2026-01-01", None], "m": {"k": 1}}, l=[{"v": 1}, None, {}])
    rows, rejected = read(nested, good + line(a={"days": ["x"]}) + line(a={"m": {"k": "x"}}) + line(l=[{"w": 1}]) + b"{}\n")
    assert [str(row["a"] and row["a"]["days"]) for row in rows] == ["[datetime.date(2026, 1, 1), None]", "None"]
    assert [reason for *_, reason in rejected] == [
        "line 2: the column 'a.days[]' is date, and here it is text that is not one",
        "line 3: the column 'a.m.k' is bigint, and here it is text",
        "line 4: the field 'l[].w' is not among the columns",
    ]


@pytest.mark.parametrize("content", [b"", b"\n", b" \n\t\r\n  ", b"\xef\xbb\xbf", b"\xff\xfe"])
def test_empty_files_have_no_rows(content: bytes) -> None:
    assert read(jsonl(), content) == ([], [])
    assert read(delimited(), content) == ([], [])


def test_one_object_over_several_lines_is_not_lines() -> None:
    rows, rejected = read(jsonl("a bigint"), b'{"a":\n1}\n')
    assert (rows, len(rejected)) == ([], 2)
    assert _objects(b'\n{"a":1}\n \n\r\n{}') == 2


@given(st.lists(st.sampled_from([line(**FULL), b"\n", b"  \n", *(wrong for wrong, _ in WRONG if len(wrong) < 100)]), max_size=30))
def test_of_any_lines_those_that_fit_become_rows(lines: list[bytes]) -> None:
    rows, rejected = read(jsonl(), b"".join(lines))
    wrong = {each for each, _ in WRONG}
    assert len(rows) == sum(each == line(**FULL) for each in lines)
    assert [record for _, record, _ in rejected] == [each for each in lines if each in wrong]


# --------------------------------------------------------------------------------------------------------------------------- CSV
HEADER = b"id,name,price,day,at,ntz,ok,x,small\n"


def test_each_record_that_is_wrong_is_told_with_line_and_column() -> None:
    wrong = [
        (b"1.5,,,,,,,,\n", "the column 'id' is bigint, and a value of it is not"),
        (b",,1.505,,,,,,\n", "the column 'price' is decimal(10, 2), and a value of it is not"),
        (b",,,2026-02-30,,,,,\n", "the column 'day' is date, and a value of it is not"),
        (b",,,,2026-01-31 10:00:00,,,,\n", "the column 'at' is timestamp, and a value of it is not"),
        (b",,,,,2026-01-31 10:00:00Z,,,\n", "the column 'ntz' is timestamp_ntz, and a value of it is not"),
        (b",,,,,,maybe,,\n", "the column 'ok' is boolean, and a value of it is not"),
        (b',,,,,,,"1,5",\n', "the column 'x' is double, and a value of it is not"),
        (b",,,,,,,,128\n", "the column 'small' is tinyint, and a value of it is not"),
        (b"1,2\n", "it has 2 values, and there are 9 columns"),
        (b"1,,,,,,,,,,\n", "it has 11 values, and there are 9 columns"),
        (b",\xff,,,,,,,\n", "not valid UTF-8 at its byte 1: say encoding="),
    ]
    good = b'7,"a ""b"",\n\nc",1.5,2026-01-31,2026-01-31T10:00:00Z,2026-01-31 10:00:00,TRUE, 1e3 ,-128\r\n'
    content = HEADER + good + b"\n" + b"".join(each + good for each, _ in wrong)
    rows, rejected = read(delimited(), content + b'8,"without an end,,,,,,,\n9,,,,,,,,\n')
    assert len(rows) == 1 + len(wrong)
    assert (rows[0]["name"], rows[0]["ok"], rows[0]["x"], rows[0]["small"]) == ('a "b",\n\nc', True, 1000.0, -128)
    reasons = [f"line {6 + 4 * i}: {reason}" for i, (_, reason) in enumerate(wrong)]
    assert [reason for *_, reason in rejected] == [*reasons, "line 50: a quoted value of it has no end"]
    assert all(content[at : at + len(record)] == record for at, record, _ in rejected[:-1])


def test_values_that_are_missing_and_values_that_are_empty() -> None:
    assert read(delimited("a string, b bigint"), b'a,b\n,\n"",\nNULL,1\n')[0] == [
        {"a": None, "b": None}, {"a": "", "b": None}, {"a": "NULL", "b": 1},
    ]  # fmt: skip
    nulls = delimited("a string, b bigint", nulls=("", "NULL"))
    assert read(nulls, b'a,b\nNULL,NULL\n"NULL",1\n')[0] == [{"a": None, "b": None}, {"a": "NULL", "b": 1}]


@pytest.mark.parametrize("content", [b"a,b", b"a,b\n", b"b,a\r\n\r\n", b'"a"'])
def test_a_file_with_a_header_alone_has_no_rows(content: bytes) -> None:
    assert read(delimited("a bigint, b string"), content) == ([], [])


def test_columns_in_another_order_and_columns_that_lack() -> None:
    assert read(delimited("a bigint, b string, c double"), b" c ,a\n1.5,2\n")[0] == [{"a": 2, "b": None, "c": 1.5}]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"a,a\n1,2\n", "its header names a column twice: 'a'"),
        (b"a,z\n1,2\n", "the column 'z' of its header is not among the columns of the job, or its destination"),
        (b"A\n1\n", "the column 'A' of its header is not among the columns of the job, or its destination, where it is called 'a'"),
        (b'a,"b\n1,2\n', "a quoted value of its header has no end"),
        (b"\xff\xfe\xfd,a\n\n", "not valid utf-16-le at byte 6: say its encoding="),
        (b"\xfc,a\n", "its first record is not readable: not valid UTF-8 at its byte 0: say encoding="),
        (b"PK\x03\x04", "the file is of the kind zip"),
        (b"PAR1\x15", "the file is of the kind Parquet, and transform 'csv' takes text: gather it with transform='parquet'"),
    ],
)
def test_a_header_that_cannot_be_used(content: bytes, reason: str) -> None:
    with pytest.raises(BadContent, match=re.escape(reason)):
        read(delimited("a bigint, b string"), content)


def test_other_marks_and_no_header() -> None:
    reader = delimited("a bigint, b string", delimiter=";", quote="'", header=False)
    assert read(reader, b"1;'x;y'\n2;\"z\"\n3\n") == (
        [{"a": 1, "b": "x;y"}, {"a": 2, "b": '"z"'}],
        [(14, b"3\n", "line 3: it has 1 values, and there are 2 columns")],
    )
    assert read(delimited("a bigint, b string", quote=""), b'a,b\n1,"x\n2,y"\n')[0] == [{"a": 1, "b": '"x'}, {"a": 2, "b": 'y"'}]


@given(
    st.lists(st.lists(st.text(string.ascii_letters + ' ,"\n\r;é'), min_size=3, max_size=3), max_size=12), st.sampled_from(["\n", "\r\n"])
)
def test_what_pythons_writer_writes_is_read(rows: list[list[str]], end: str) -> None:
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator=end, quoting=csv.QUOTE_ALL)
    writer.writerows([["a", "b", "c"], *rows])
    found, rejected = read(delimited("a string, b string, c string"), sink.getvalue().encode())
    assert ([list(row.values()) for row in found], rejected) == (rows, [])


@given(st.text('ab,"\n\r', max_size=40))
def test_records_end_where_arrow_ends_them(body: str) -> None:
    """So that halves of a text are the halves that Arrow has seen."""
    reader, content = delimited("a string, b string"), b"a,b\n" + body.encode()
    rows, rejected = read(reader, content)
    records = [content[first:end] for first, end in reader.records(content, 4)]
    again = [read(reader, b"a,b\n" + record) for record in records]
    assert [row for found, _ in again for row in found] == rows
    assert [record for _, each in again for _, record, _ in each] == [record for _, record, _ in rejected]


# ------------------------------------------------------------------------------------------------------------- both, and encodings
@pytest.mark.parametrize(
    "encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1", "cp1252", "shift_jis", "gb18030"]
)
def test_text_in_other_encodings_and_where_its_wrong_records_lie(encoding: str) -> None:
    name = "naïve" if encoding in ("latin-1", "cp1252") else "日本" if encoding == "shift_jis" else "日ï本"
    lines = [f'{{"id": 1, "name": "{name}"}}\n', f'{{"id": "{name}"}}\n', f'{{"id": 2, "name": "{name}"}}\n', f'{{"{name}": 1}}']
    rows = [f"id,name\n1,{name}\n", f"{name},x\n", f"2,{name}\n", f"3,{name},1"]
    auto = encoding in ("utf-8-sig", "utf-16", "utf-32")
    for reader, parts in ((jsonl("id bigint, name string"), lines), (delimited("id bigint, name string"), rows)):
        said = encodings.checked(encoding)
        content = "".join(parts).encode(encoding)
        found, rejected = read(reader if auto else type(reader)(said, reader.columns), content)
        assert found == [{"id": 1, "name": name}, {"id": 2, "name": name}]
        assert [content[at : at + len(record)] for at, record, _ in rejected] == [record for _, record, _ in rejected]
        little = {"utf-16": "utf-16-le", "utf-32": "utf-32-le", "utf-8-sig": "utf-8"}.get(encoding, encoding)
        assert [record.decode(little) for _, record, _ in rejected] == [parts[1], parts[3]]


def test_what_is_not_of_its_encoding_is_told() -> None:
    with pytest.raises(BadContent, match="not valid ascii at byte 2"):
        read(JsonLines("ascii", jsonl().columns), b"{}\xff")
    with pytest.raises(BadContent, match="not valid utf-16-le at byte 2"):
        read(jsonl(), codecs.BOM_UTF16_LE + b"{")
    for wrong in ("utf-99", "", 7, None, "base64", "rot13", "utf-7-or-so", "\0"):
        with pytest.raises(UsageError, match="encoding is 'auto'"):
            encodings.checked(wrong)
    assert encodings.checked("UTF8") == "utf-8"
    assert encodings.is_wide(b"", "utf-16")
    assert not encodings.is_wide(b"", "cp1252")


@pytest.mark.parametrize("kind", text.NAMES)
def test_files_that_are_made_rows_of_together_have_the_rows_of_each(kind: str) -> None:
    draw = random.Random(5)
    reader: Reader = jsonl("id bigint, name string") if kind == "jsonl" else delimited("id bigint, name string")

    def content(i: int) -> bytes:
        n, end = draw.randrange(4), draw.choice([b"", b"\n", b"\n\n", b"\r\n"])
        if kind == "jsonl":
            return b"\n".join(line(id=i, name=f"n{k}").strip() for k in range(n)) + end
        return b"id,name\n" + b"\n".join(b'%d,"n\n%d"' % (i, k) for k in range(n)) + end

    for _ in range(30):
        contents = [content(i) for i in range(draw.randrange(1, 9))]
        assert len({reader.key(each) for each in contents}) == 1
        rows, counts = reader.together(contents)
        alone = [read(reader, each)[0] for each in contents]
        assert counts == list(map(len, alone))
        assert rows.to_pylist() == [row for one in alone for row in one]


@pytest.mark.parametrize("wrong", [b'id,name\n1,"x', b"id,name\n1\n", b"id,name\nx,\n", b"id,name\n\xff,\n"])
def test_a_file_among_others_does_not_take_in_the_next_one(wrong: bytes) -> None:
    reader = delimited("id bigint, name string")
    with pytest.raises(BadContent):
        reader.together([b"id,name\n1,a\n", wrong, b'id,name\n2,"b"\n'])
    with pytest.raises(BadContent):
        jsonl().together([line(id=1), b'{"id": 1, "name": "', b'"}\n'])
    assert reader.key(b"name,id\n") != reader.key(b"id,name\n")
    assert reader.key("id,name\n".encode("utf-16")) is None


def test_a_file_of_which_all_does_not_fit_is_given_up_soon() -> None:
    content = b"id\n" + b"x\n" * (MOST + 10)
    with pytest.raises(BadContent, match=r"more than 1,000 of its 1,010 records do not fit; of the first: the column 'id' is bigint"):
        read(delimited("id bigint"), content)
    content = b"id\n" + b"x\n" * (MOST + 10) + b"1\n" * 20 * MOST
    rows, rejected = read(delimited("id bigint"), content)
    assert (len(rows), len(rejected)) == (20 * MOST, MOST + 10), "few of many"


# ------------------------------------------------------------------------------------------------------------------- inference
def shown(kind: str, *contents: bytes, reader: Reader | None = None) -> str:
    reader = reader or (JsonLines() if kind == "jsonl" else Csv())
    found = text.common(kind, [(reader.sampled(content, whole=True), 1) for content in contents])
    assert found is not None
    return schemas.text(found).replace("`", "")


def test_the_columns_that_a_sample_shows() -> None:
    assert (
        shown("csv", b"a,b,c,d,e,f,g,h,i\n1,1.5,true,2026-01-01,2026-01-01 10:00:00,2026-01-01T10:00:00Z,01234,,x\n-7,2e3,FALSE,,,,,,\n")
        == "a bigint, b double, c boolean, d date, e timestamp_ntz, f timestamp, g string, h string, i string"
    )
    assert shown("csv", b"a,b,c\n1,2026-01-01,1\n", b"a,b,d\n1.5,2026-01-01 10:00:00,x\n", b"a,c\n,x\n") == (
        "a double, b timestamp_ntz, d string, c string"
    )
    assert shown("csv", b"a\n99999999999999999999\n12345678901234567\n") == "a string"  # no digit is lost
    assert shown("csv", b"a\n2026-13-01\n") == "a string"
    assert shown("csv", b"1,x\n2,y\n", reader=Csv(header=False)) == "_c0 bigint, _c1 string"
    assert shown("csv", b"2025,2026,true\n1,2,x\n") == "2025 bigint, 2026 bigint, true string"
    assert shown("csv", b"a,\n1,2\n") == "a bigint, _c1 bigint"
    assert shown("jsonl", line(a=1, b="2026-01-01", c=[1], d={"e": None}, f=None, g=[], h=True), line(a=1.5, d={"e": 1})) == (
        "a double, b string, c array<bigint>, d struct<e: bigint>, f string, g array<string>, h boolean"
    )
    # Where types do not go together the one of most files counts.
    assert shown("jsonl", line(a=1), line(a=2), line(a="x"), line(b=1)) == "a bigint, b bigint"
    assert shown("jsonl", line(a=1) + line(a="x") + line(a=2) + b"nonsense\n") == "a bigint"


def test_a_beginning_shows_what_is_whole_in_it() -> None:
    assert JsonLines().sampled(line(a=1) + b'{"b": 12', whole=False).names == ["a"]
    assert Csv().sampled(b'a,b\n1,2\n3,"4\n5', whole=False) == pa.schema([("a", pa.int64()), ("b", pa.int64())])
    assert Csv().sampled("a,b\n1,2\n3,ü".encode("utf-16")[:-1], whole=False).names == ["a", "b"]


@pytest.mark.parametrize(
    ("kind", "content", "reason"),
    [
        ("csv", b"", "it is empty"),
        ("csv", b"a;b\n1;2\n", "its only column is 'a;b': say delimiter=';'"),
        ("csv", b"a\tb\n1\t2\n", "say delimiter='\\t'"),
        ("jsonl", b"", "none of its lines is a JSON object"),
        ("jsonl", b'[{"a": 1}]', "none of its lines is a JSON object, but one array of all lines"),
        ("jsonl", b"\x1f\x8b\x08\x00", "the file is of the kind gzip"),
    ],
)
def test_a_file_that_shows_nothing_says_why(kind: str, content: bytes, reason: str) -> None:
    with pytest.raises(BadContent, match=re.escape(reason)):
        shown(kind, content)
