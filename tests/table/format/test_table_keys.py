"""Record keys and partition paths: the text that JVM Hudi writes, and one line for what makes neither."""

from __future__ import annotations

import datetime as dt
from contextlib import suppress
from decimal import Decimal
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gathering import refused
from quire.errors import RefusedError, UsageError
from quire.table.format.keys import NULL, partition_paths, record_keys

UTC = dt.UTC
ROWS = pa.table({"id": [2, 1], "name": ["Bob", "Alice"]})
WORDS = st.lists(
    st.none() | st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), max_size=5), min_size=1, max_size=8
)


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (pa.int8(), -5, "-5"), (pa.int64(), 2**62, str(2**62)), (pa.string(), " a:b,c ", " a:b,c "), (pa.large_string(), "é", "é"),
        (pa.bool_(), True, "true"), (pa.date32(), dt.date(2026, 11, 2), "2026-11-02"), (pa.dictionary(pa.int8(), pa.string()), "x", "x"),
        (pa.timestamp("us", "UTC"), dt.datetime(1970, 1, 1, 0, 0, 1, 5, UTC), "1000005"),
        (pa.timestamp("ms", "Europe/Berlin"), dt.datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), "-1000000"),
        (pa.decimal128(10, 5), Decimal("65432.12345"), "65432.12345"), (pa.decimal128(5, 2), Decimal("-1.5"), "-1.50"),
        (pa.decimal128(3, 0), Decimal(7), "7"), (pa.decimal128(9, 8), Decimal("0.00000001"), "1E-8"),  # as BigDecimal has it
    ],
    ids=str,
)  # fmt: skip
def test_a_value_is_the_text_that_the_jvm_makes_of_it(kind: pa.DataType, value: Any, text: str) -> None:
    rows = pa.table({"a": pa.array([value], kind), "b": [1]})
    assert record_keys(rows, ["a"]).to_pylist() == [text]
    assert record_keys(rows, ["a", "b"]).to_pylist() == [f"a:{text},b:1"]
    assert partition_paths(rows, ["a"], hive_style=True, url_encode=False).to_pylist() == [f"a={text}"]


def test_a_key_of_several_fields_names_them() -> None:
    assert record_keys(ROWS, ["id", "name"]).to_pylist() == ["id:2,name:Bob", "id:1,name:Alice"]
    assert record_keys(ROWS, ["id"], named=True).to_pylist() == ["id:2", "id:1"]
    some = pa.table({"id": [None, 1], "name": ["", None], "x": ["", "y"]})
    assert record_keys(some.slice(1), ["id", "name"]).to_pylist() == ["id:1,name:__null__"]
    assert record_keys(some.append_column("z", [["z", "z"]]), ["id", "name", "z"]).to_pylist()[0] == "id:__null__,name:__empty__,z:z"
    assert record_keys(ROWS.slice(0, 0), ["id", "name"]).to_pylist() == []
    assert record_keys(pa.concat_tables([ROWS, ROWS]), ["name"]).to_pylist() == ["Bob", "Alice"] * 2


@pytest.mark.parametrize("values", [["a", None], ["a", ""]])
def test_a_row_without_a_key_is_refused(values: list[Any]) -> None:
    rows = pa.table({"id": pa.array(values, pa.string()), "other": pa.array(["x", None], pa.string())})
    for fields in (["id"], ["id", "other"]):
        with pytest.raises(RefusedError, match=rf"^1 of 2 rows have no record key in {', '.join(fields)}\."):
            record_keys(rows, fields)


ALIKE = [
    ({"k1": ["a,k2:b"], "k2": ["c"]}, {"k1": ["a"], "k2": ["b,k2:c"]}, ",k2:"),
    ({"k1": ["__null__"], "k2": ["c"]}, {"k1": pa.array([None], pa.string()), "k2": ["c"]}, "__null__"),
    ({"k1": ["c"], "k2": ["__empty__"]}, {"k1": ["c"], "k2": [""]}, "__empty__"),
]


@pytest.mark.parametrize(("one", "other", "sign"), ALIKE)
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())], ids=str)
def test_a_part_with_which_two_keys_would_be_one_is_refused(one: Any, other: Any, sign: str, kind: pa.DataType) -> None:
    """The later row would take the other's place. Rows that a table holds already are read as they are."""
    fields = ["k1", "k2"]
    rows, others = (pa.table({name: pa.array(values, pa.string()).cast(kind) for name, values in each.items()}) for each in (one, other))
    assert record_keys(rows, fields, stored=True) == record_keys(others, fields)
    bad = next(repr(values[0]) for values in one.values() if sign in str(values[0]))
    with refused(RefusedError, 2, f"1 of 1 rows have {sign!r} in 'k", f"such as {bad}", "Write these values otherwise"):
        record_keys(rows, fields)
    assert record_keys(rows, ["k1"]).to_pylist() == one["k1"]  # the text of a single field is its own


def test_no_two_keys_of_several_fields_have_one_text() -> None:
    """All keys of what is left of parts that look like heads, and like signs."""
    fields, tokens = ["k1", "k2", "k3"], ["", "a", ",k2", ":", ",k2:", ",k3:", "__null__", "__empty__"]
    every = [None, *dict.fromkeys(map("".join, product(tokens, repeat=2)))]

    def taken(field: str, part: str | None) -> bool:
        with suppress(RefusedError):
            return bool(record_keys(pa.table({f: pa.array([part if f == field else "x"], pa.string()) for f in fields}), fields))
        return False

    def texts(parts: list[list[str | None]]) -> list[str]:
        columns = zip(*(row for row in product(*parts) if any(row)), strict=True)
        found: list[str] = record_keys(
            pa.table({f: pa.array(column, pa.string()) for f, column in zip(fields, columns, strict=True)}), fields, stored=True
        ).to_pylist()
        return found

    left = texts([[part for part in every if taken(field, part)] for field in fields])
    assert len(set(left)) == len(left) > 50_000
    everything = texts([every] * 3)
    assert len(set(everything)) < len(everything)


@pytest.mark.parametrize(
    ("kind", "value"),
    [(pa.float64(), 1.5), (pa.float32(), 1.0), (pa.binary(), b"x"), (pa.timestamp("us"), dt.datetime(2026, 1, 1)),  # noqa: DTZ001
    (pa.list_(pa.int32()), [1]),
     (pa.struct([("x", pa.int32())]), {"x": 1}), (pa.time32("s"), dt.time(1))],
    ids=str,
)  # fmt: skip
def test_a_type_without_a_text_of_its_own_is_refused(kind: pa.DataType, value: Any) -> None:
    rows = pa.table({"a": pa.array([value], kind)})
    with pytest.raises(UsageError, match=r"^the column 'a' is .*, and a record key is made of"):
        record_keys(rows, ["a"])
    with pytest.raises(UsageError, match="partition"):
        partition_paths(rows, ["a"], hive_style=True, url_encode=False)


def test_a_column_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match=r"no column 'x', which the record key is made of: they have id, name"):
        record_keys(ROWS, ["x"])
    with pytest.raises(UsageError, match="give key="):
        record_keys(ROWS, [])


def paths(values: Any, hive: bool = True, encode: bool = False, kind: Any = None) -> list[Any]:
    found: list[Any] = partition_paths(
        pa.table({"c": pa.array(values, kind or pa.string())}), ["c"], hive_style=hive, url_encode=encode
    ).to_pylist()
    return found


def test_partitions_are_hive_style_or_not() -> None:
    assert paths(["sf", None, "", "sf"]) == ["c=sf", f"c={NULL}", f"c={NULL}", "c=sf"]
    assert paths(["sf", None], hive=False) == ["sf", NULL]
    assert paths([10, None], hive=False, kind=pa.int16()) == ["10", NULL]
    assert paths([dt.date(2026, 11, 22)], kind=pa.date32()) == ["c=2026-11-22"]
    assert paths([]) == []
    assert paths([None]) == [f"c={NULL}"]


def test_several_fields_are_directories_within_each_other() -> None:
    rows = pa.table({"x": [1, 1, 2, 1], "y": ["a", "b", None, "a"]})
    assert partition_paths(rows, ["x", "y"], hive_style=True, url_encode=False).to_pylist() == [
        "x=1/y=a",
        "x=1/y=b",
        f"x=2/y={NULL}",
        "x=1/y=a",
    ]
    assert partition_paths(rows, ["y", "x"], hive_style=False, url_encode=False).to_pylist() == ["a/1", "b/1", f"{NULL}/2", "a/1"]
    assert partition_paths(rows, [], hive_style=True, url_encode=False).to_pylist() == [""] * 4
    assert len(partition_paths(rows, ["x", "y"], hive_style=True, url_encode=False).dictionary) == 3


def test_url_encoding_is_hive_s() -> None:
    assert paths(["a/b c%=é:"], encode=True) == ["c=a%2Fb c%25%3Dé%3A"]
    assert paths(["a\n\x7f{}[]^\\"], encode=True) == ["c=a%0A%7F%7B}%5B%5D%5E%5C"]
    assert paths(["a:b=c"]) == ["c=a:b=c"]


@pytest.mark.parametrize(
    ("value", "hive", "encode", "why"),
    [
        ("a/b", True, False, "URL encoding"), ("..", False, False, "another directory"), (".", False, True, "another directory"),
        ("x" * 254, True, False, "255 bytes"), ("é" * 128, False, False, "255 bytes"), ("metadata", False, False, "leave out.*hive style"),
        (".hoodie", False, True, "leave out"), ("_delta_log", False, False, "leave out"), ("a\0", True, True, "NUL"),
        ("/" * 100, True, True, "255"), ("_iceberg", False, False, "an export.*hive style"), ("_symlinks", False, True, "an export"),
        ("_quire", False, False, "its own state.*hive style"),
    ],
)  # fmt: skip
def test_a_value_that_makes_no_partition_is_refused(value: str, hive: bool, encode: bool, why: str) -> None:
    with pytest.raises(RefusedError, match=rf"^the value .* of 'c' makes no partition: .*{why}"):
        paths(["ok", value], hive, encode)


def test_below_the_top_and_in_hive_style_these_names_are_harmless() -> None:
    rows = pa.table({"x": ["a"], "y": ["metadata"]})
    assert partition_paths(rows, ["x", "y"], hive_style=False, url_encode=False).to_pylist() == ["a/metadata"]
    assert paths(["metadata", ".."]) == ["c=metadata", "c=.."]


@given(WORDS, WORDS)
@settings(max_examples=50, deadline=None)
def test_columns_are_what_one_row_after_the_other_would_be(one: list[str | None], two: list[str | None]) -> None:
    size = min(len(one), len(two))
    rows = pa.table({"a": pa.array(one[:size], pa.string()), "b": pa.array(two[:size], pa.string())})
    expected = [f"a={a or NULL}/b={b or NULL}" for a, b in zip(one[:size], two[:size], strict=True)]
    assert partition_paths(rows, ["a", "b"], hive_style=True, url_encode=False).to_pylist() == expected
    numbered = rows.append_column("n", [list(range(size))])

    def part(value: str | None) -> str:
        return "__null__" if value is None else value or "__empty__"

    assert record_keys(numbered, ["a", "b", "n"]).to_pylist() == [
        f"a:{part(a)},b:{part(b)},n:{i}" for i, (a, b) in enumerate(zip(one[:size], two[:size], strict=True))
    ]
