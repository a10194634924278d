"""Merge-on-read tables of other writers: base files with the logs that change them, as every reader of Hudi sees them."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro
import jvm
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_views import same, theirs, unpacked

import quire
from gathering import refused
from quire.errors import FormatError, RefusedError
from quire.storage import connect
from quire.table import reading, timeline
from quire.table.file_groups import Slice
from quire.table.format import config, log_content, log_file, names, schema
from quire.table.format.log_content import Delete
from quire.table.format.log_file import Block
from quire.table.overview import overview
from quire.table.realtime import Merging
from quire.table.table import Table
from quire.table.timeline import Holds

LOCAL = quire.LocalRunner()
SIX = [name for name in jvm.names() if "-mor-" in name and "v6" in name]
LATER = [name for name in jvm.names() if "-mor-avro-table_" in name and not name.endswith(("_v6", "_v9"))]
# Of these hudi-rs and quire read rows by another way than this: rows with some of their columns, HFile.
UNREAD = ("partial_update", "partial_update_event_time", "hfile_log_block", "evo_promotion")
ROWS = pa.schema([("id", pa.string()), ("at", pa.int64()), ("name", pa.string())])
A, B = "aaaaaaaa-0000-0000-0000-000000000000-0", "bbbbbbbb-0000-0000-0000-000000000000-0"
Row = tuple[int, str]  # at, name


def gold(table: str) -> pa.Table | None:
    """The rows that JVM Hudi reads."""
    with zipfile.ZipFile(jvm._archives()[table]) as archive:
        found = [name for name in archive.namelist() if name.startswith("gold_data/") and name.endswith(".parquet")]
        parts = [pq.read_table(io.BytesIO(archive.read(name))) for name in found]
    if not parts:
        return None
    whole = pa.concat_tables(parts)
    utc = [pa.field(f.name, pa.timestamp("us", "UTC")) if pa.types.is_timestamp(f.type) else f for f in whole.schema]
    return whole.cast(pa.schema(utc))


# ------------------------------------------------------------------------------------------------------- tables of JVM Hudi
@pytest.mark.parametrize("name", SIX)
def test_a_table_of_jvm_hudi_reads_as_it_and_hudi_rs_read_it_at_each_instant(tmp_path: Path, name: str) -> None:
    table = Table(unpacked(name, tmp_path))
    found, expected = table.snapshot(spark=LOCAL), gold(name)
    assert expected is not None
    assert same(found, expected.select(found.column_names))
    for instant in timeline.read(connect(table.url)).completed:
        then = theirs(tmp_path, instant.time)
        assert then is not None
        assert same(table.as_of(instant.time).snapshot(spark=LOCAL), then.select(found.column_names))


def test_there_are_merge_on_read_tables_of_jvm_hudi() -> None:
    assert len(SIX) >= 10
    assert len(LATER) >= 19


@pytest.mark.parametrize("name", [name for name in LATER if not name.endswith(UNREAD)])
def test_logs_of_newer_versions_are_merged_as_jvm_hudi_merges_them(tmp_path: Path, name: str) -> None:
    """Their timeline is another one, but their files are of the same kind: here all of them count."""
    folder, has = unpacked(name, tmp_path), config.TableConfig.from_properties(dict(jvm.files(name))[names.PROPERTIES], name)
    bases = [path for path in folder.iterdir() if names.base_file(path.name)]
    logs = sorted((path.name for path in folder.iterdir() if names.log_file(path.name)), key=lambda each: each.rpartition("_")[0])
    expected = gold(name)
    assert expected is not None
    last = [block for each in logs for block in log_file.decode((folder / each).read_bytes(), each) if block.kind != log_file.CORRUPT][-1]
    columns = schema.from_avro(last.words[log_file.SCHEMA], name)
    ordering = columns.field(has.ordering) if has.mode == config.EVENT_TIME and has.ordering else None
    merging = Merging(Holds(frozenset(), frozenset(), "~", "~"), (), ordering)
    one = Slice("", "it", "", max((path.name for path in bases), default=""), 0, tuple(logs))
    found = pa.Table.from_batches(reading.rows_of(connect(f"file://{folder}"), one, columns, merging), columns)
    assert same(found, expected.select(found.column_names).cast(columns))


def test_spark_gives_the_same_rows(tmp_path: Path, spark: Any) -> None:
    """One slice with logs, two without."""
    table = Table(unpacked("quickstart_trips_table-mor-avro-v6_trips_8i3d", tmp_path))
    whole = table.snapshot(spark=LOCAL)
    assert same(table.snapshot(spark=spark).toArrow(), whole)
    some = table.snapshot(spark=spark, columns=["fare", "rider"], where="fare > 30")
    assert same(some.toArrow(), table.snapshot(spark=LOCAL, columns=["fare", "rider"], where=pc.field("fare") > 30))
    assert same(table.snapshot(spark=spark, columns=["fare"]).toArrow(), whole.select(["fare"]))
    assert table.snapshot(spark=spark, read_optimized=True).count() == 8 == whole.num_rows + 3
    assert table.snapshot(spark=spark).count() == 5


# ------------------------------------------------------------------------------------------------------ tables made by hand
@dataclass
class Made:
    """A merge-on-read table of one file group that a test lays by hand."""

    at: Path
    event_time: bool = True
    meta: bool = True
    ticks: int = 0
    begun: str = ""  # the instant of its slice
    number: int = 0
    columns: pa.Schema = field(default_factory=lambda: ROWS)

    def __post_init__(self) -> None:
        (self.at / ".hoodie").mkdir(parents=True)
        mode = config.EVENT_TIME if self.event_time else config.COMMIT_TIME
        made = config.TableConfig(name="t", key=("id",), type=config.MERGE_ON_READ, ordering="at", mode=mode)
        text = made.to_properties()
        (self.at / names.PROPERTIES).write_bytes(text if self.meta else text.replace(b"meta.fields=true", b"meta.fields=false"))

    def instant(self) -> str:
        self.ticks += 1
        return f"2026112210{self.ticks // 60:02}{self.ticks % 60:02}000"

    def table(self, rows: dict[str, Row], instant: str) -> pa.Table:
        meta = {name: list(rows) if "key" in name else [instant] * len(rows) for name in schema.META}
        meta["_hoodie_partition_path"] = [""] * len(rows)
        own = {"id": list(rows), "at": [at for at, _ in rows.values()], "name": [name for _, name in rows.values()]}
        more = {name: [None] * len(rows) for name in self.columns.names if name not in own}
        if not self.meta:
            meta = {name: [None] * len(rows) for name in meta}
        return pa.table({**meta, **own, **more}, schema.with_meta(self.columns))

    def complete(self, instant: str, *files: str, action: str = "deltacommit", schema_of: pa.Schema | None = None) -> None:
        stats = [{"fileId": A, "path": name, "partitionPath": ""} for name in files]
        said = {"partitionToWriteStats": {"": stats}, "extraMetadata": {"schema": schema.to_avro(schema_of or self.columns, "t")}}
        (self.at / f".hoodie/{instant}.{action}").write_text(json.dumps({"operationType": "UPSERT", **said}))

    def base(self, rows: dict[str, Row], instant: str) -> str:
        name = f"{A}_0-1-2_{instant}.parquet"
        pq.write_table(self.table(rows, instant), self.at / name)
        self.begun, self.number = instant, 0
        return name

    def log(self, *blocks: Block, more: bytes = b"", group: str = A, number: int = 0) -> str:
        self.number += 1
        name = f".{group}_{self.begun}.log.{number or self.number}_0-1-2"
        (self.at / name).write_bytes(b"".join(map(log_file.encode, blocks)) + more)
        return name

    def upsert(self, rows: dict[str, Row], instant: str, *, avro: bool = False) -> Block:
        found = self.table(rows, instant)
        return avro_of(instant, found) if avro else log_content.of_rows(instant, found, "t")

    def delete(self, keys: dict[str, int | None], instant: str) -> list[Block]:
        """Each with its ordering; None: whatever is there. hudi-rs wants a block for each kind."""
        kinds = [[Delete(key, "", ("Int", 0)) for key, at in keys.items() if at is None]]
        kinds.append([Delete(key, "", ("Long", at)) for key, at in keys.items() if at is not None])
        avro = schema.to_avro(self.columns, "t", meta=True)
        return [log_content.of_deletes(instant, avro, said) for said in kinds if said]

    def rows(self, instant: str = "", **how: Any) -> dict[str, Row]:
        table = Table(self.at).as_of(instant) if instant else Table(self.at)
        found = table.snapshot(spark=LOCAL, **how)
        assert len(set(found["id"].to_pylist())) == found.num_rows, "a key twice"
        return {row["id"]: (row["at"], row["name"]) for row in found.to_pylist()}


def avro_of(instant: str, rows: pa.Table) -> Block:
    text = schema.to_avro(schema.without_meta(rows.schema), "t", meta=True)
    parsed, sink = fastavro.parse_schema(json.loads(text)), io.BytesIO(struct.pack(">ii", 3, rows.num_rows))
    sink.seek(0, io.SEEK_END)
    for row in rows.to_pylist():
        datum = io.BytesIO()
        fastavro.schemaless_writer(datum, parsed, row)
        sink.write(struct.pack(">i", datum.tell()) + datum.getvalue())
    return Block(log_file.AVRO, {log_file.INSTANT: instant, log_file.SCHEMA: text}, sink.getvalue())


def begun(folder: Path, rows: dict[str, Row], **how: Any) -> tuple[Made, str]:
    made = Made(folder, **how)
    instant = made.instant()
    made.complete(instant, made.base(rows, instant))
    return made, instant


@pytest.mark.parametrize("avro", [False, True])
def test_logs_change_a_base_file_by_event_time(tmp_path: Path, avro: bool) -> None:
    made, first = begun(tmp_path, {"a": (5, "a"), "b": (5, "b"), "c": (5, "c"), "d": (5, "d")})
    two = made.instant()
    made.complete(two, made.log(made.upsert({"a": (5, "A"), "b": (4, "stale"), "new": (1, "new"), "e": (3, "e")}, two, avro=avro)))
    assert made.rows() == {"a": (5, "A"), "b": (5, "b"), "c": (5, "c"), "d": (5, "d"), "new": (1, "new"), "e": (3, "e")}
    three = made.instant()
    made.complete(three, made.log(*made.delete({"c": 4, "d": 5, "new": None, "e": 2, "nobody": None}, three)))
    assert made.rows() == {"a": (5, "A"), "b": (5, "b"), "c": (5, "c"), "e": (3, "e")}
    assert made.rows(two)["new"] == (1, "new")
    assert made.rows(first) == made.rows(read_optimized=True) == {"a": (5, "a"), "b": (5, "b"), "c": (5, "c"), "d": (5, "d")}
    expected = theirs(tmp_path)
    assert expected is not None
    assert same(expected, Table(tmp_path).snapshot(spark=LOCAL))


def test_logs_change_a_base_file_by_commit_time(tmp_path: Path) -> None:
    made, _ = begun(tmp_path, {"a": (5, "a"), "b": (5, "b"), "c": (5, "c")}, event_time=False)
    two = made.instant()
    made.complete(
        two, made.log(made.upsert({"a": (7, "A"), "b": (1, "B")}, two), *made.delete({"c": 1}, two), made.upsert({"a": (6, "last")}, two))
    )
    assert made.rows() == {"a": (6, "last"), "b": (1, "B")}


def test_logs_of_instants_that_do_not_count_are_left_out(tmp_path: Path) -> None:
    made, _ = begun(tmp_path, {"a": (1, "a")})
    lost, other, last = made.instant(), made.instant(), made.instant()
    made.log(made.upsert({"a": (9, "never"), "x": (9, "never")}, lost))
    (tmp_path / f".hoodie/{lost}.deltacommit.requested").write_bytes(b"")
    (tmp_path / f".hoodie/{lost}.deltacommit.inflight").write_bytes(b"")
    assert made.rows() == {"a": (1, "a")}
    made.complete(other, made.log(made.upsert({"a": (2, "A")}, other), more=log_file.encode(made.upsert({"a": (9, "cut")}, other))[:-1]))
    assert made.rows() == {"a": (2, "A")}, "a part of a block is what a writer has left that died"
    made.complete(last, made.log(log_file.rollback(last, other), number=11))
    assert made.rows() == {"a": (1, "a")}, "a rollback takes back what stands before it"
    made.log(made.upsert({"a": (3, "again")}, other), number=12)
    made.log(made.upsert({"a": (4, "before the rollback: 9 is less than 11")}, other), number=9)
    assert made.rows() == {"a": (3, "again")}


def test_logs_older_than_the_timeline_count_unless_their_writer_is_still_at_work(tmp_path: Path) -> None:
    made = Made(tmp_path)
    old, open_, rolled, first = (made.instant() for _ in range(4))
    made.base({"a": (1, "a")}, old)
    (tmp_path / f".hoodie/{open_}.deltacommit.inflight").write_bytes(b"")
    made.log(made.upsert({"b": (1, "b")}, old), made.upsert({"c": (1, "c")}, open_), made.upsert({"d": (1, "d")}, rolled))
    made.complete(first, made.log(log_file.rollback(first, rolled)))
    assert made.rows() == {"a": (1, "a"), "b": (1, "b")}


def test_a_slice_of_logs_alone_and_the_one_that_a_compaction_begins(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.begun = one = made.instant()
    made.complete(one, made.log(made.upsert({"a": (1, "a"), "b": (1, "b")}, one), *made.delete({"b": None}, one)))
    assert made.rows() == {"a": (1, "a")}
    assert made.rows(read_optimized=True) == {}
    asked = made.instant()
    (tmp_path / f".hoodie/{asked}.compaction.requested").write_bytes(b"")
    made.begun, made.number = asked, 0
    two = made.instant()
    made.complete(two, made.log(made.upsert({"a": (2, "A"), "c": (1, "c")}, two)))
    assert made.rows() == {"a": (2, "A"), "c": (1, "c")}, "until it is done, both slices are one"
    assert made.rows(one) == {"a": (1, "a")}
    (tmp_path / f".hoodie/{asked}.compaction.inflight").write_bytes(b"")
    name = made.base({"a": (1, "a")}, asked)
    assert made.rows() == {"a": (2, "A"), "c": (1, "c")}, "its file does not count yet"
    made.complete(asked, name, action="commit")
    assert made.rows() == {"a": (2, "A"), "c": (1, "c")}
    assert made.rows(read_optimized=True) == made.rows(asked) == {"a": (1, "a")}
    (tmp_path / f".{A}_{one}.log.1_0-1-2").unlink()
    assert made.rows() == {"a": (2, "A"), "c": (1, "c")}, "the slice before is not read any more"
    shown = overview(Table(tmp_path))
    assert (shown.files, shown.rows) == (1, None)


def test_blocks_that_were_compacted_stand_where_they_stood(tmp_path: Path) -> None:
    made, _ = begun(tmp_path, {"a": (1, "a")}, event_time=False)
    two, three, four, later = (made.instant() for _ in range(4))
    whole = made.upsert({"a": (2, "A"), "b": (3, "b")}, later)
    whole = Block(whole.kind, whole.words | {log_file.COMPACTED: f"{three},{two}"}, whole.content)
    made.log(made.upsert({"a": (2, "A")}, two), made.upsert({"b": (3, "b")}, three), made.upsert({"b": (4, "newer")}, four), whole)
    for instant in (two, three, four):
        made.complete(instant)
    assert made.rows() == {"a": (2, "A"), "b": (4, "newer")}
    made.complete(later)
    assert made.rows() == {"a": (2, "A"), "b": (4, "newer")}


def test_of_a_key_that_a_base_file_has_twice_the_first_row_alone_changes(tmp_path: Path) -> None:
    made, first = begun(tmp_path, {})
    twice = pa.concat_tables([made.table({"a": (1, "one")}, first), made.table({"a": (1, "two")}, first)])
    pq.write_table(twice, tmp_path / f"{A}_0-1-2_{first}.parquet", row_group_size=1)
    two = made.instant()
    made.complete(two, made.log(made.upsert({"a": (2, "A")}, two)))
    assert Table(tmp_path).snapshot(spark=LOCAL)["name"].to_pylist() == ["A", "two"]


def test_columns_that_came_later_and_rows_that_delete(tmp_path: Path) -> None:
    made, _ = begun(tmp_path, {"a": (1, "a"), "b": (1, "b"), "c": (1, "c")})
    made.columns = pa.schema([*ROWS, ("_hoodie_is_deleted", pa.bool_()), ("more", pa.int32())])
    two = made.instant()
    gone = made.table({"a": (2, "a"), "b": (0, "b"), "c": (2, "C")}, two)
    gone = gone.set_column(gone.column_names.index("_hoodie_is_deleted"), "_hoodie_is_deleted", pa.array([True, True, False]))
    made.complete(two, made.log(log_content.of_rows(two, gone, "t")))
    assert made.rows() == {"b": (1, "b"), "c": (2, "C")}
    assert Table(tmp_path).snapshot(spark=LOCAL, columns=["more", "name"]).to_pydict() == {"more": [None, None], "name": ["b", "C"]}
    assert Table(tmp_path).snapshot(spark=LOCAL, columns=["name"], where=pc.field("at") > 1).to_pydict() == {"name": ["C"]}


def test_a_table_without_meta_fields_is_merged_by_the_columns_of_its_key(tmp_path: Path) -> None:
    made, _ = begun(tmp_path, {"a": (1, "a"), "b": (1, "b")}, meta=False)
    two = made.instant()
    made.complete(two, made.log(made.upsert({"a": (2, "A"), "c": (1, "c")}, two), *made.delete({"b": None}, two)))
    assert made.rows() == {"a": (2, "A"), "c": (1, "c")}


def test_what_cannot_be_merged_is_one_line(tmp_path: Path) -> None:
    made, _ = begun(tmp_path, {"a": (1, "a")})
    table = Table(tmp_path)
    two = made.instant()
    made.complete(two)
    good = made.upsert({"a": (2, "A")}, two)
    cases: list[tuple[Block, type[Exception], str]] = [
        (Block(log_file.HFILE, good.words, b""), RefusedError, "HFile"),
        (Block(good.kind, good.words | {log_file.PARTIAL: "true"}, good.content), RefusedError, "some of their columns"),
        (Block(log_file.COMMAND, good.words | {log_file.COMMAND_TYPE: "1"}), FormatError, "a command that is not known"),
        (Block(9, good.words), FormatError, "a block of the kind 9"),
        (Block(good.kind, {log_file.SCHEMA: good.words[log_file.SCHEMA]}, good.content), FormatError, "without an instant"),
        (Block(good.kind, good.words, good.content[:-9]), FormatError, "has a damaged block"),
        (log_content.of_deletes(two, "", [Delete("a", "", ("String", "x"))]), FormatError, "cannot be read with the columns of its table"),
        (
            log_content.of_rows(two, made.table({"a": (1, "a")}, two).set_column(7, "name", pa.array([b"\xff"])), "t"),
            FormatError,
            "columns",
        ),
    ]
    for block, error, said in cases:
        made.number = 0
        name = made.log(block)
        with refused(error, 2, name, said):
            table.snapshot(spark=LOCAL)
        assert table.snapshot(spark=LOCAL, read_optimized=True).num_rows == 1
    made.number = 0
    made.log(good)
    path = tmp_path / names.PROPERTIES
    text = path.read_text()
    path.write_text(text.replace("DefaultHoodieRecordPayload", "MyPayload"))
    with refused(RefusedError, 2, "MyPayload", "read_optimized=True"):
        Table(tmp_path).snapshot(spark=LOCAL)
    path.write_text(text.replace("precombine.field=at", "precombine.field=since"))
    with refused(RefusedError, 2, "'since'", "read_optimized=True"):
        Table(tmp_path).snapshot(spark=LOCAL)


# --------------------------------------------------------------------------------------------------------------- any sequence
def folded(base: dict[str, Row], said: Sequence[tuple[str, int | None, Row | None]], *, event_time: bool) -> dict[str, Row]:
    """The rows by the rules, one word after another: key, ordering (None: whatever was there), row (None: it is deleted)."""
    logs = dict[str, tuple[int | None, Row | None]]()

    def wins(new: int | None, old: int | None) -> bool:
        return not event_time or new is None or old is None or new >= old

    for key, at, row in said:
        if key not in logs or wins(at, logs[key][0]):
            logs[key] = at, row
    found = dict(base)
    for key, (at, row) in logs.items():
        if key in base and not wins(at, base[key][0]):
            continue
        found.pop(key, None)
        if row is not None:
            found[key] = row
    return found


KEYS = st.sampled_from("abcdef")
UPSERTS = st.dictionaries(KEYS, st.integers(1, 5), min_size=1, max_size=4)
DELETES = st.dictionaries(KEYS, st.none() | st.integers(1, 5), min_size=1, max_size=3)
STEPS = st.lists(
    st.tuples(st.sampled_from(["parquet", "avro"]), UPSERTS) | st.tuples(st.just("delete"), DELETES)
    | st.tuples(st.sampled_from(["lost", "torn"]), UPSERTS) | st.tuples(st.sampled_from(["rollback", "compact", "compacted"]), st.none()),
    max_size=8,
)  # fmt: skip


def run(made: Made, steps: Sequence[tuple[str, Any]]) -> Iterator[dict[str, Row]]:
    """Lay each step; the rows that the table has after it."""
    base: dict[str, Row] = {"a": (3, "base a"), "b": (3, "base b"), "c": (3, "base c")}
    first = made.instant()
    made.complete(first, made.base(base, first))
    words = dict[str, list[tuple[str, int | None, Row | None]]]()  # instant → what it says, in the order of the logs
    waiting: tuple[str, dict[str, Row]] | None = None  # a compaction, and the rows that it will write

    def now() -> dict[str, Row]:
        return folded(base, [each for said in words.values() for each in said], event_time=made.event_time)

    for n, (step, what) in enumerate(steps):
        instant = made.instant()
        rows = {key: (at, f"{n} {key}") for key, at in what.items()} if step not in ("delete", "rollback", "compact", "compacted") else {}
        if step in ("parquet", "avro"):
            made.complete(instant, made.log(made.upsert(rows, instant, avro=step == "avro")))
            words[instant] = [(key, row[0], row) for key, row in rows.items()]
        elif step == "delete":
            made.complete(instant, made.log(*made.delete(what, instant)))
            words[instant] = [(key, at, None) for key, at in what.items()]
        elif step == "lost":
            made.log(made.upsert(rows, instant))
        elif step == "torn":
            made.log(more=log_file.encode(made.upsert(rows, instant))[:-1])
            made.complete(instant)
        elif step == "rollback" and words and waiting is None:
            target = list(words)[-1]
            made.log(log_file.rollback(instant, target))
            (made.at / f".hoodie/{target}.deltacommit").unlink()
            del words[target]
        elif step == "compact" and waiting is None:
            (made.at / f".hoodie/{instant}.compaction.requested").write_bytes(b"")
            waiting, made.begun, made.number = (instant, now()), instant, 0
        elif step == "compacted" and waiting is not None:
            asked, base = waiting
            number = made.number
            made.complete(asked, made.base(base, asked), action="commit")
            made.number, waiting = number, None
            words = {instant: said for instant, said in words.items() if instant > asked}
        yield now()


@given(steps=STEPS, event_time=st.booleans())
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture], derandomize=True,
    database=None,
)  # fmt: skip
def test_any_sequence_of_blocks_is_what_the_rules_say(tmp_path_factory: pytest.TempPathFactory, steps: Any, event_time: bool) -> None:
    made = Made(tmp_path_factory.mktemp("t") / "t", event_time)
    for expected in run(made, steps):
        assert made.rows() == expected
    if steps and not timeline.read(connect(f"file://{made.at}")).compactions():  # since which hudi-rs 0.5 does not find logs
        their = theirs(made.at)
        assert {row["id"]: (row["at"], row["name"]) for row in (their.to_pylist() if their else [])} == expected
