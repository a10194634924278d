"""JVM Hudi 0.15.0 and 1.2.0 read the tables that quire writes, write into them, and quire goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hudi import HudiTableBuilder

import quire
from gathering import refused
from quire.errors import RefusedError
from quire.table.format import names
from quire.table.format.schema import META
from quire.table.table import Table
from services import jvm_hudi
from services.jvm_hudi import TURNS, VERSIONS, Session

pytestmark = pytest.mark.services

LOCAL = quire.LocalRunner()
PLACE = pa.struct([("lat", pa.float64()), ("seen", pa.list_(pa.timestamp("us", "UTC")))])
COLUMNS = pa.schema(
    [
        ("id", pa.string()), ("n", pa.int32()), ("city", pa.string()), ("kind", pa.string()), ("ts", pa.int64()),
        ("fare", pa.decimal128(12, 2)), ("at", pa.timestamp("us", "UTC")), ("day", pa.date32()), ("tags", pa.list_(pa.string())),
        ("place", PLACE), ("points", pa.map_(pa.string(), pa.int32())), ("raw", pa.binary()),
    ]
)  # fmt: skip
# The settings of a table, and what a writer on the JVM has to be told beside its key, partitions and ordering.
SHAPES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "hive": ({"key": "id", "partition_by": "city", "ordering": "ts"}, {"hoodie.index.type": "BLOOM"}),
    # Its one file has a null in a list, which the JVM refuses to rewrite otherwise.
    "flat": ({"key": "id", "index": "simple"}, {"parquet.avro.write-old-list-structure": "false"}),
    "keys": (
        {"key": ["id", "n"], "partition_by": ["city", "kind"], "ordering": "ts", "index": "bucket", "buckets": 2, "hive_style": False},
        {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"},
    ),
}
Rows = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def sessions() -> Iterator[dict[str, Session]]:
    with jvm_hudi.sessions() as found:
        yield found


def row(id: str, ts: int, city: str | None = "sf") -> dict[str, Any]:
    """One whose values all follow from its key and its time; some are null."""
    at, odd = datetime(2026, 11, 22, 10, 30, ts, 123456, tzinfo=UTC), [None] if id == "h" else []
    place = {"lat": ts / 2, "seen": [at, *odd]} if ts % 2 else None
    return {
        "id": id, "n": len(id), "city": city, "kind": "a", "ts": ts, "fare": Decimal(f"{ts}.05"), "at": at, "day": date(1969, 12, 1 + ts),
        "tags": [id, *odd, "é"], "place": place, "points": [("x", ts)], "raw": id.encode(),
    }  # fmt: skip


def frame(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), COLUMNS)


def keyed(*rows: dict[str, Any]) -> Rows:
    return {each["id"]: each for each in rows}


def by_id(rows: pa.Table) -> Rows:
    found = Rows()
    for each in rows.select(COLUMNS.names).to_pylist():
        assert each["id"] not in found, f"{each['id']} is there twice"
        found[each["id"]] = each
    return found


def create(folder: Path, shape: str) -> Table:
    return Table.create(folder, **SHAPES[shape][0])


def write(table: Table, operation: str, *rows: dict[str, Any]) -> str:
    """By quire; the instant."""
    instant: str = getattr(table, operation)(frame(*rows), spark=LOCAL, progress=False).instant
    return instant


def ours(table: Table) -> Rows:
    return by_id(table.snapshot(spark=LOCAL))


def theirs(table: Table) -> Rows:
    """By hudi-rs."""
    return by_id(pa.Table.from_batches(HudiTableBuilder.from_base_uri(table.url).build().read()))


def since(session: Session, table: Table, instant: str) -> Rows:
    """By an incremental query on the JVM."""
    options = {"hoodie.datasource.query.type": "incremental", "hoodie.datasource.read.begin.instanttime": instant}
    return by_id(session.read(table.url, options))


def asked(table: Table, shape: str, operation: str) -> dict[str, str]:
    """The options of a writer on the JVM."""
    config, prefix = table.config, "hoodie.datasource.write"
    ordering = {f"{prefix}.precombine.field": config.ordering} if config.ordering else {}
    return {
        "hoodie.table.name": config.name, f"{prefix}.operation": operation, f"{prefix}.recordkey.field": ",".join(config.key),
        f"{prefix}.partitionpath.field": ",".join(config.partition_by), f"{prefix}.hive_style_partitioning": str(config.hive_style).lower(),
        **ordering, **SHAPES[shape][1],
    }  # fmt: skip


def changed(before: Rows, after: Rows) -> dict[str, tuple[str, Any, Any]]:
    """Key → what happened to it, and its row before and after."""
    found = dict[str, tuple[str, Any, Any]]()
    for key in before.keys() | after.keys():
        was, now = before.get(key), after.get(key)
        if was != now:
            found[key] = ("i" if was is None else "d" if now is None else "u", was, now)
    return found


def new(before: Rows, after: Rows) -> Rows:
    """The rows that an incremental query gives: it has no deletes."""
    return {key: now for key, (op, _, now) in changed(before, after).items() if op != "d"}


def changes(table: Table, instant: str, *, net: bool = True) -> list[tuple[str, Any, Any]]:
    rows = table.changes(instant, images="both", net=net, spark=LOCAL).to_pylist()
    return [(each["op"], each["before"], each["after"]) for each in rows]


def by_change(found: list[tuple[str, Any, Any]]) -> dict[str, tuple[str, Any, Any]]:
    keyed = {(each[2] or each[1])["id"]: each for each in found}
    assert len(keyed) == len(found), "a key has one net change"
    return keyed


def steps(table: Table) -> Iterator[tuple[str, Rows]]:
    """Each kind of write by quire: its instant, and the rows that are there then."""
    first = [row("a", 1), row("b", 1, "la"), row("c", 1), row("d", 1, None), row("e", 1, "la")]
    known = keyed(*first)
    yield write(table, "bulk_insert", *first), dict(known)
    known |= (more := keyed(row("f", 2), row("g", 2, None)))
    yield write(table, "insert", *more.values()), dict(known)
    known |= (more := keyed(row("a", 3), row("d", 3, None), row("h", 3, "ny")))
    yield write(table, "upsert", *more.values()), dict(known)
    del known["b"], known["g"], known["c"]
    yield write(table, "delete", row("b", 4, "la"), row("g", 4, None), row("c", 4)), dict(known)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_jvm_reads_each_kind_of_write(shape: str, sessions: dict[str, Session], tmp_path: Path) -> None:
    table = create(tmp_path / "t", shape)
    before, last = Rows(), "0"
    for instant, known in steps(table):
        assert ours(table) == theirs(table) == known
        for session in sessions.values():
            found = session.read(table.url)
            assert by_id(found) == known
            assert set(META) <= set(found.column_names)
            assert since(session, table, last) == new(before, known)
        before, last = known, instant


@pytest.mark.nth(2)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_jvm_writes_and_quire_goes_on(shape: str, version: str, sessions: dict[str, Session], tmp_path: Path) -> None:
    session, table = sessions[version], create(tmp_path / "t", shape)
    *_, (instant, before) = steps(table)
    known = dict(before)

    def jvm(operation: str, *rows: dict[str, Any]) -> None:
        session.write(table.url, frame(*rows), asked(table, shape, operation) | TURNS)
        assert ours(table) == theirs(table) == known

    known |= (more := keyed(row("a", 5), row("d", 5, None), row("i", 5), row("j", 5, "rm")))
    jvm("upsert", *more.values())
    known |= (more := keyed(row("k", 6, "la"), row("l", 6, None)))
    jvm("insert", *more.values())
    del known["e"], known["i"]
    jvm("delete", row("e", 7, "la"), row("i", 7))
    assert Table(table.url).config == table.config, "its version and settings stay"
    assert by_change(changes(table, instant)) == changed(before, known)
    assert sorted(op for op, _, _ in changes(table, instant, net=False)) == ["d", "d", *"iiii", "u", "u"]

    between, more = dict(known), keyed(row("a", 8), row("k", 8, "la"), row("e", 8, "la"), row("m", 8))
    middle = write(table, "upsert", *more.values())
    known |= more
    assert ours(table) == theirs(table) == by_id(session.read(table.url)) == known
    assert by_change(changes(table, instant)) == changed(before, known)
    assert since(session, table, max(each for each in instants(table) if each < middle)) == new(between, known)
    del known["m"], known["j"]
    write(table, "delete", row("m", 9), row("j", 9, "rm"))
    assert ours(table) == theirs(table) == by_id(session.read(table.url)) == known


def instants(table: Table) -> list[str]:
    return sorted(path.stem for path in Path(table.url.removeprefix("file://"), ".hoodie").glob("*.commit"))


def test_a_jvm_with_its_defaults_upgrades_the_table_and_quire_reads_it_and_says_why_it_does_not_write(
    sessions: dict[str, Session], tmp_path: Path
) -> None:
    table = create(tmp_path / "t", "hive")
    *_, (instant, known) = steps(table)
    before = known
    options = asked(table, "hive", "upsert")
    del options["hoodie.index.type"]
    sessions["1.2.0"].write(table.url, frame(row("a", 5)), options)
    known = known | {"a": row("a", 5)}
    found = Table(table.url)
    assert found.config.version == 9
    assert theirs(table) == known
    with refused(RefusedError, 2, "table version 9"):
        write(found, "upsert", row("a", 6))
    assert ours(found) == known
    assert ours(found.as_of(instant)) == before
    sessions["1.2.0"].write(table.url, frame(row("d", 7, None), row("n", 7)), options)
    known = known | keyed(row("d", 7, None), row("n", 7))
    assert ours(found) == theirs(table) == by_id(sessions["1.2.0"].read(table.url)) == known


def cdc(session: Session, table: Table, instant: str) -> list[tuple[str, Any, Any]]:
    """By a CDC query on the JVM: op, and some values of both images."""
    options = {
        "hoodie.datasource.query.type": "incremental", "hoodie.datasource.query.incremental.format": "cdc",
        "hoodie.datasource.read.begin.instanttime": instant,
    }  # fmt: skip
    found = session.read(table.url, options).select(["op", "before", "after"]).to_pylist()
    images = [(each["op"], *(each[name] and json.loads(each[name]) for name in ("before", "after"))) for each in found]
    return sorted(((op, before and told(before), after and told(after)) for op, before, after in images), key=str)


def told(row: dict[str, Any]) -> tuple[Any, ...]:
    """The values that the JVM's JSON has as Arrow has them."""
    return tuple(row.get(name) for name in ("id", "n", "ts", "city", "kind"))


@pytest.mark.nth(3)
@pytest.mark.parametrize("mode", ["data_before_after", "data_before", "op_key_only"])
@pytest.mark.parametrize("version", [6, 9])
def test_a_cdc_query_of_the_jvm_tells_the_changes_that_quire_does(
    version: int, mode: str, sessions: dict[str, Session], tmp_path: Path
) -> None:
    """Over each kind of write, by quire and then by the JVM, whose CDC logs quire passes over."""
    table = Table.create(tmp_path / "t", **SHAPES["hive"][0], cdc=mode, version=version)
    readers = {name: session for name, session in sessions.items() if version == 6 or name == "1.2.0"}
    first = next(iter(list(steps(table))))[0]
    write(table, "insert_overwrite", row("z", 5, "ny"))
    write(table, "upsert", row("z", 6, "ny"), row("y", 6, "ny"))

    def agree() -> None:
        expected = [(op, before and told(before), after and told(after)) for op, before, after in changes(table, first, net=False)]
        then = first if version == 6 else end_of(tmp_path / "t", first)
        for name, session in readers.items():
            assert cdc(session, table, then) == sorted(expected, key=str), name

    if mode == "data_before_after":
        agree()
    known = ours(table)
    for number, session in enumerate(readers.values()):
        known |= keyed(row("z", 7 + number, "ny"), row(f"x{number}", 7, "ny"))
        options = asked(table, "hive", "upsert") | (TURNS if version == 6 else NINE)
        session.write(table.url, frame(row("z", 7 + number, "ny"), row(f"x{number}", 7, "ny")), options)
        assert ours(table) == theirs(table) == known
    known |= keyed(row("x0", 9, "ny"))
    last = write(table, "upsert", row("x0", 9, "ny"))
    assert ours(table) == theirs(table) == known
    agree()
    written = {path.relative_to(tmp_path / "t").as_posix() for path in (tmp_path / "t").rglob(".*.cdc")}
    table.rollback(last, progress=False)
    table.clean(versions=2, progress=False)
    left = {path.relative_to(tmp_path / "t").as_posix() for path in (tmp_path / "t").rglob(".*.cdc")}
    assert left < written
    assert not [name for name in left if last in name]
    for session in readers.values():
        assert by_id(session.read(table.url)) == ours(table)


@pytest.mark.parametrize("type", ["copy_on_write", "merge_on_read"])
def test_the_jvm_reads_and_writes_a_table_whose_columns_became_wider(type: str, sessions: dict[str, Session], tmp_path: Path) -> None:
    narrow = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("n", pa.int32()), ("f", pa.float32()), ("d", pa.decimal128(6, 2))])
    wide = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("n", pa.int64()), ("f", pa.float64()), ("d", pa.decimal128(12, 2))])

    def some(columns: pa.Schema, *those: tuple[str, int, int]) -> pa.Table:
        made = [{"id": key, "ts": ts, "n": n, "f": n / 4, "d": Decimal(n % 1000)} for key, ts, n in those]
        return pa.Table.from_pylist(made, columns)

    def plain(rows: pa.Table) -> list[tuple[Any, ...]]:
        return sorted(tuple(each[name] for name in wide.names) for each in rows.select(wide.names).to_pylist())

    table = Table.create(tmp_path / "t", key="id", ordering="ts", type=type, target_size="1 KiB")
    for columns, those in (
        (narrow, [("a", 1, 1), ("b", 1, 2), ("c", 1, 3)]), (narrow, [("b", 2, 5)]), (wide, [("a", 2, 2**33)]), (wide, [("d", 2, 2**34)]),
    ):  # fmt: skip
        if type == "merge_on_read" and columns is wide:
            table.compact(spark=LOCAL, progress=False)  # no program but quire reads logs of a narrower type
        table.upsert(some(columns, *those), spark=LOCAL, progress=False)
    known = some(wide, ("a", 2, 2**33), ("b", 2, 5), ("c", 1, 3), ("d", 2, 2**34))
    assert plain(table.snapshot(spark=LOCAL)) == plain(known)
    prefix, rows = "hoodie.datasource.write", {each["id"]: each for each in known.to_pylist()}
    options = {
        "hoodie.table.name": table.config.name, f"{prefix}.operation": "upsert", f"{prefix}.recordkey.field": "id",
        f"{prefix}.precombine.field": "ts", f"{prefix}.partitionpath.field": "", "hoodie.index.type": "BLOOM",
        f"{prefix}.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator", f"{prefix}.table.type": type.upper(), **TURNS,
    }  # fmt: skip
    for number, session in enumerate(sessions.values()):
        assert plain(session.read(table.url)) == plain(pa.Table.from_pylist(list(rows.values()), wide))
        more = some(wide, ("c", 5 + number, 2**35 + number), (f"e{number}", 5, number))
        session.write(table.url, more, options)
        rows |= {each["id"]: each for each in more.to_pylist()}
        assert plain(table.snapshot(spark=LOCAL)) == plain(pa.Table.from_pylist(list(rows.values()), wide))


NINE = {"hoodie.metadata.enable": "false"}


@pytest.mark.parametrize("shape", ["hive"])
def test_jvm_hudi_reads_a_table_of_version_9_and_writes_into_it_in_turns_with_quire(
    shape: str, sessions: dict[str, Session], tmp_path: Path
) -> None:
    table, jvm, folder = Table.create(tmp_path / "t", version=9, **SHAPES[shape][0]), sessions["1.2.0"], tmp_path / "t"
    *_, (middle, before), (start, first) = steps(table)
    settings = (folder / names.PROPERTIES).read_bytes()
    assert since(jvm, table, end_of(folder, middle)) == new(before, first) == {}, "an incremental query has no deletes"
    known = dict(first)

    def turn(operation: str, ts: int, *rows: dict[str, Any]) -> None:
        """The JVM writes, then quire over some of its rows."""
        nonlocal known
        jvm.write(table.url, frame(*rows), {**asked(table, shape, operation), **NINE})
        for each in rows:
            known.pop(each["id"], None)
        known |= {} if operation == "delete" else keyed(*rows)
        assert ours(table) == theirs(table) == known
        more = keyed(row("a", ts + 1), row("d", ts + 1, None), row(f"m{ts}", ts))
        write(table, "upsert", *more.values())
        known |= more

    turn("upsert", 5, row("a", 5), row("d", 5, None), row("i", 5), row("j", 5, "rm"))
    turn("delete", 7, row("e", 7, "la"), row("i", 7))
    assert (folder / names.PROPERTIES).read_bytes() == settings, "the JVM has not upgraded it"
    assert ours(table) == theirs(table) == by_id(jvm.read(table.url)) == known
    assert by_change(changes(table, start)) == changed(first, known)
    assert since(jvm, table, end_of(folder, start)) == new(first, known)
    write(table, "insert_overwrite", row("z", 20, "rm"))
    known = {key: each for key, each in known.items() if each["city"] != "rm"} | keyed(row("z", 20, "rm"))
    assert ours(table) == theirs(table) == by_id(jvm.read(table.url)) == known


def end_of(folder: Path, instant: str) -> str:
    """When an instant ended."""
    (name,) = (names.instant(path.name) for path in (folder / names.TIMELINE).glob(f"{instant}_*"))
    assert name is not None
    return name.ended
