"""Changes of a table: those of any window, applied to its first snapshot, give its last, whoever has written it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jvm
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from by_hand import Hand, Row
from hypothesis import given, settings
from hypothesis import strategies as st

import quire
from gathering import refused
from quire.errors import FormatError, RefusedError, UsageError
from quire.table import changes, timeline
from quire.table.changes import KEY, PARTITION
from quire.table.format import change_file
from quire.table.format.config import EVENT_TIME
from quire.table.table import Table

LOCAL = quire.LocalRunner()
START = "00000000000000000"
COLUMNS = pa.schema(
    [
        pa.field("key", pa.string(), False), ("p", pa.string()), ("at", pa.int64()),
        pa.field("deep", pa.struct([pa.field("x", pa.list_(pa.field("element", pa.int64(), False)), False)])),
    ]
)  # fmt: skip
Rows = dict[tuple[str, str], Row]


def row(key: int, at: int, deletes: bool = False) -> Row:
    return {"key": f"k{key:03d}", "p": "ab"[key % 2], "at": at, "deep": {"x": [at]} if at % 2 else None, "deletes": deletes}


def snapshot(table: Table, at: str) -> Rows:
    """With the columns that the table has now."""
    if at == START:
        return {}
    found = table.as_of(at).snapshot(spark=LOCAL)
    now = dict.fromkeys(table.snapshot(spark=LOCAL).column_names[5:])
    keys = found.select(["_hoodie_partition_path", "_hoodie_record_key"]).to_pylist()
    rows = found.drop_columns([name for name in found.column_names if name.startswith("_hoodie_")]).to_pylist()
    return {tuple(key.values()): now | each for key, each in zip(keys, rows, strict=True)}  # type: ignore[misc]


def applied(rows: Rows, changes: pa.Table) -> Rows:
    """A snapshot with changes; each says right what was there before."""
    rows = dict(rows)
    for change in changes.to_pylist():
        key = change["_hoodie_partition_path"], change["_hoodie_record_key"]
        op, before, after = change["op"], change["before"], change["after"]
        assert rows.get(key) == before, change
        assert op == ("d" if after is None else "i" if before is None else "u")
        assert before is not None or after is not None
        if after is None:
            del rows[key]
        else:
            rows[key] = after
    return rows


def check(table: Table, instants: list[str], run: Callable[[Callable[[], Any]], Any] = lambda work: work()) -> None:
    """All windows between the instants; `run` does the work of one."""
    states = [run(lambda at=at: snapshot(table, at)) for at in instants]
    for i, since in enumerate(instants):
        for j, until in list(enumerate(instants))[i:]:
            run(lambda since=since, until=until, first=states[i], last=states[j]: window(table, (since, until), first, last))


def window(table: Table, ends: tuple[str, str], first: Rows, last: Rows) -> None:
    """The changes of a window lead from its first snapshot to its last."""
    each = table.changes(*ends, images="both", net=False, spark=LOCAL)
    assert applied(first, each) == last
    assert each["instant"].to_pylist() == sorted(each["instant"].to_pylist())
    net = table.changes(*ends, images="both", spark=LOCAL)
    assert applied(first, net) == last
    keys = list(zip(net["_hoodie_partition_path"].to_pylist(), net["_hoodie_record_key"].to_pylist(), strict=True))
    assert len(set(keys)) == len(keys)
    after = table.changes(*ends, spark=LOCAL)
    assert after.num_rows == net.num_rows
    assert sorted(map(str, after.to_pylist())) == sorted(map(str, net.drop_columns("before").to_pylist()))


batches_of_rows = st.lists(
    st.lists(st.tuples(st.integers(0, 15), st.booleans()), min_size=1, max_size=12, unique_by=lambda row: row[0]), min_size=1, max_size=4
)


@given(commits=batches_of_rows, files=st.sampled_from([True, False, None]), by_time=st.booleans())
@settings(max_examples=8, deadline=None)
def test_the_changes_of_a_window_applied_to_its_first_snapshot_give_its_last(
    tmp_path_factory: pytest.TempPathFactory, commits: list[list[tuple[int, bool]]], files: bool | None, by_time: bool
) -> None:
    """With change files, without any, and with both kinds of commits."""
    mode: Any = {"ordering": "at", "mode": EVENT_TIME} if by_time else {}
    table = Hand(tmp_path_factory.mktemp("changes"), COLUMNS, target_size=3000, **mode)
    for at, rows in enumerate(commits):
        table.change_files = at % 2 == 0 if files is None else files
        table.commit([row(key, at if key % 5 else 3 - at, deletes) for key, deletes in rows], most=4)
    instants = [START, *(i.time for i in timeline.read(table.store).completed)]
    assert len(instants) == len(commits) + 1
    check(Table(table.url), instants)


@pytest.mark.nth(4)
@pytest.mark.parametrize("name", [name for name in jvm.names() if "-cow-v6_" in name and "no_meta" not in name])
def test_changes_of_tables_of_jvm_hudi_by_comparing_files(tmp_path: Path, name: str) -> None:
    for path, content in jvm.files(name):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    table = Table(tmp_path)
    check(table, [START, *(i.time for i in timeline.read(quire.storage.connect(table.url)).completed)])


def test_changes_are_those_of_hudi_rs_and_what_was_deleted(tmp_path: Path) -> None:
    """Its incremental query has no deletes."""
    made = Hand(tmp_path / "t", COLUMNS)
    for at in range(4):
        made.commit([row(key, at, deletes=key % 4 == at) for key in range(5 * at, 12 + 5 * at)])
    for start in (f"2026112210000{at}000" for at in (1, 2, 3)):
        found = {
            (change["_hoodie_partition_path"], change["_hoodie_record_key"]): change["after"]
            for change in Table(made.url).changes(start, spark=LOCAL).to_pylist()
        }
        there = {key: after for key, after in found.items() if after is not None}
        assert there == made.theirs(start=start) != {}
        assert found.keys() - there.keys() == snapshot(Table(made.url), start).keys() - made.rows().keys() != set()


def test_a_table_without_meta_fields_says_no_changes(tmp_path: Path) -> None:
    made = Hand(tmp_path / "t", COLUMNS)
    made.commit([row(1, 1)])
    path = tmp_path / "t/.hoodie/hoodie.properties"
    path.write_text(path.read_text().replace("populate.meta.fields=true", "populate.meta.fields=false"))
    with refused(RefusedError, 2, "populate.meta.fields"):
        Table(made.url).changes(START, spark=LOCAL)


def test_spark_gives_the_same_changes(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "SHARE", 1)
    made = Hand(tmp_path / "t", COLUMNS)
    for at in range(3):
        made.commit([row(key, at, deletes=key % 3 == at) for key in range(5 * at, 10 + 5 * at)])
    table = Table(made.url)
    for asked, most in (({"images": "both"}, changes.TOGETHER), ({"net": False}, changes.TOGETHER), ({"images": "both"}, 0)):
        monkeypatch.setattr(changes, "TOGETHER", most)  # 0: too many for one task
        found = table.changes("20261122100001000", spark=spark, **asked)  # type: ignore[arg-type]
        expected = table.changes("20261122100001000", spark=LOCAL, **asked)
        assert found.columns == expected.column_names
        assert sorted(map(str, found.toArrow().to_pylist())) == sorted(map(str, expected.to_pylist()))


@given(steps=st.lists(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=8), min_size=2, max_size=4), size=st.integers(1, 5))
@settings(max_examples=40)
def test_sorted_changes_are_netted_as_they_stream(steps: list[list[tuple[int, bool]]], size: int) -> None:
    rows, there = list[dict[str, Any]](), set[int]()
    for at, step in enumerate(steps):
        for key, deletes in dict(step).items():
            if deletes and key not in there:
                continue
            op = "d" if deletes else "u" if key in there else "i"
            image = None if deletes else {"key": f"k{key}", "at": at}
            rows.append({"op": op, "instant": f"{at}", PARTITION: "ab"[key % 2], KEY: f"k{key}", "before": None, "after": image})
            (there.discard if deletes else there.add)(key)
    kinds = changes.schema_of(pa.schema([("key", pa.string()), ("at", pa.int64())]), "both")
    whole = pa.Table.from_pylist(rows, kinds).sort_by([(name, "ascending") for name in (PARTITION, KEY, "instant")])
    found = list(changes.net_of_sorted(iter(whole.to_batches(max_chunksize=size))))
    assert pa.Table.from_batches(found, kinds).to_pylist() == changes.net_of(whole).to_pylist()


def test_only_what_changed_is_read_where_change_files_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Hand(tmp_path / "t", COLUMNS)
    made.commit([row(key, 0) for key in range(100)])
    for at in (1, 2):
        made.commit([row(3, at), row(4, at, deletes=True)])
    for path in tmp_path.glob("t/[ab]/*.parquet"):
        path.unlink()
    found = Table(made.url).changes("20261122100001000", images="both", spark=LOCAL).to_pylist()
    assert [(change["op"], change["before"]["at"], change["after"] and change["after"]["at"]) for change in found] == [
        ("d", 0, None), ("u", 0, 2),
    ]  # fmt: skip
    with refused(RefusedError, 2, "20261122100001000", "was cleaned", "since"):
        Table(made.url).changes(START, spark=LOCAL)


def test_a_column_that_came_later_is_null_in_older_changes(tmp_path: Path) -> None:
    made = Hand(tmp_path / "t", COLUMNS)
    made.commit([row(1, 0)])
    made.commit([row(1, 1)])
    made.columns = pa.schema([*COLUMNS, ("more", pa.date32())])
    made.commit([row(1, 2)])
    check(Table(made.url), [START, *(i.time for i in timeline.read(made.store).completed)])


def test_what_cannot_be_known_is_one_line(tmp_path: Path) -> None:
    made = Hand(tmp_path / "t", COLUMNS, change_files=False)
    for at in range(3):
        made.commit([row(1, at)])
    table, one, two = Table(made.url), "20261122100001000", "20261122100002000"
    for path in tmp_path.glob(f"t/*/*{two}.parquet"):
        path.unlink()
    with refused(RefusedError, 2, "20261122100003000", "was cleaned"):
        table.changes(one, spark=LOCAL)
    made.store.put(".hoodie/archived/.commits_.archive.1_1-0-1", b"")
    with refused(RefusedError, 2, "archived instants before", one):
        table.changes(START, spark=LOCAL)
    with refused(UsageError, 2, "since takes an instant"):
        table.changes("yesterday", spark=LOCAL)
    with refused(UsageError, 2, "until takes an instant"):
        table.changes(one, "now", spark=LOCAL)
    with refused(UsageError, 2, "images", "both"):
        table.changes(one, images="before", spark=LOCAL)  # type: ignore[arg-type]


def test_a_change_file_that_is_not_the_commits_is_one_line(tmp_path: Path) -> None:
    made = Hand(tmp_path / "t", COLUMNS)
    for at in range(3):
        made.commit([row(key, at) for key in range(0, 9 - 3 * at, 2)])
    files = sorted(tmp_path.glob("t/.hoodie/_quire/changes/**/*.rows"))
    assert len(files) == 2
    files[0].write_bytes(files[-1].read_bytes())
    with refused(FormatError, 2, files[0].name, "look who writes there"):
        Table(made.url).changes("20261122100001000", spark=LOCAL)
    files[0].write_bytes(b"PAR1")
    with refused(FormatError, 2, files[0].name, "cannot be read"):
        Table(made.url).changes("20261122100001000", spark=LOCAL)
    pq.write_table(pa.table({"op": ["u"] * 3, "key": ["k000", "k002", "k004"]}), files[0])
    with refused(FormatError, 2, files[0].name, "is not a change file"):
        Table(made.url).changes("20261122100001000", spark=LOCAL)


def test_calls_of_a_table_leave_change_files_and_an_insert_of_a_key_that_its_file_has_updates_it(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", key="key", partition_by="p")

    def frame(*rows: Row) -> pa.Table:
        return pa.Table.from_pylist([{name: each[name] for name in ("key", "p", "at")} for each in rows])

    table.insert(frame(row(1, 0), row(2, 0), row(3, 0)), spark=LOCAL, progress=False)
    table.upsert(frame(row(1, 1), row(5, 1)), spark=LOCAL, progress=False)
    table.delete(frame(row(3, 2)), spark=LOCAL, progress=False)
    instants = [i.time for i in timeline.read(quire.storage.connect(table.url)).completed]
    assert len(list(tmp_path.glob("t/.hoodie/_quire/changes/**/*.rows"))) == 2
    check(table, [START, *instants])
    assert table.changes(instants[0], spark=LOCAL)["op"].to_pylist() == ["u", "d", "i"]
    report = table.insert(frame(row(1, 3), row(7, 3), row(7, 4)), spark=LOCAL, progress=False)
    assert (report.inserted, report.updated, report.duplicates) == (1, 1, 1)
    assert sorted(table.snapshot(spark=LOCAL)["key"].to_pylist()) == ["k001", "k002", "k005", "k007"]


def test_images_of_rows_and_of_none_have_one_type() -> None:
    rows = pa.table({"x": [1, 2], "y": ["a", None]})
    kind = pa.struct([("y", pa.large_string()), ("x", pa.int64())])
    image = change_file.as_image(rows, 2, kind)
    assert (image.type, image.to_pylist()) == (kind, [{"y": "a", "x": 1}, {"y": None, "x": 2}])
    for some, n in ((rows.slice(0, 0), 0), (None, 3)):
        image = change_file.as_image(some, n, kind)
        assert (image.type, image.to_pylist()) == (kind, [None] * n)
