"""Changes of tables of version 8 and 9: their commits count in the order in which they end."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from test_archived_timeline import STALE, archive, lay, leave, line_of
from test_changes import START, Rows, applied
from test_merge_on_read import UNREAD
from test_newer_versions import NEWER, upgrade
from test_views import unpacked
from test_writes import LOCAL, create, frame, write

from gathering import refused
from quire.errors import FormatError, RefusedError
from quire.table import changes
from quire.table.format import lsm, names
from quire.table.format.names import Instant
from quire.table.table import Table

LEFT_OUT = (*UNREAD, "duplicate_keys", *(f"delete_ord_{kind}" for kind in ("decimal", "double", "long", "string", "timestamp")))
DELETED = "_hoodie_is_deleted"
LOGS = [name for name in NEWER if name.endswith(("stale", "delete_ord_int", "log_only", "parquet_log_block"))]


def ended(folder: Path) -> list[Instant]:
    """The writes in the order in which they end."""
    return sorted(line_of(folder).completed, key=lambda each: each.ended)


def states(folder: Path, copy: Path) -> list[Rows]:
    """The rows after each write: of a table in which the later ones are still under way."""
    shutil.copytree(folder, copy)
    found = list[Rows]()
    for each in reversed(ended(folder)):
        found.insert(0, rows_now(copy, Table(folder)))
        (copy / names.TIMELINE / each.name).unlink()
        (copy / names.TIMELINE / Instant(each.time, each.action, "inflight").name).touch()
    shutil.rmtree(copy)
    return [{}, *found]


def plain(found: pa.Table) -> pa.Table:
    """Changes without the column that says of a row that it deletes: some writers make it one of the table later."""
    for name in ("before", "after"):
        kind = found.schema.field(name).type
        kept = pa.struct([kind.field(i) for i in range(kind.num_fields) if kind.field(i).name != DELETED])
        rows = [image and {key: value for key, value in image.items() if key != DELETED} for image in found[name].to_pylist()]
        found = found.set_column(found.column_names.index(name), name, pa.array(rows, kept))
    return found


def rows_now(folder: Path, newest: Table) -> Rows:
    """All rows, with the columns that the table has in the end."""
    found, now = Table(folder).snapshot(spark=LOCAL), dict.fromkeys(newest.snapshot(spark=LOCAL).column_names[5:])
    keys = found.select(["_hoodie_partition_path", "_hoodie_record_key"]).to_pylist()
    rows = found.drop_columns([name for name in found.column_names if name.startswith("_hoodie_")]).to_pylist()
    now.pop(DELETED, None)
    return {tuple(key.values()): now | each for key, each in zip(keys, rows, strict=True)}  # type: ignore[misc]


def check_by_end(folder: Path) -> None:
    """All windows between the writes, each named by its instant and by when it ended."""
    table, there = Table(folder), ended(folder)
    seen = states(folder, folder.with_name(f"{folder.name}-copy"))
    order = {each.time: at for at, each in enumerate(there)}
    for i in range(len(seen)):
        for j in range(i, len(seen)):
            since, until = ((there[at - 1].time, there[at - 1].ended) if at else (START, START) for at in (i, j))
            each = table.changes(since[0], until[1], images="both", net=False, spark=LOCAL)
            assert applied(seen[i], plain(each)) == seen[j]
            told = [order[instant] for instant in each["instant"].to_pylist()]
            assert told == sorted(told)
            assert set(told) <= set(range(i, j))
            net = table.changes(since[1], until[0], images="both", spark=LOCAL)
            assert applied(seen[i], plain(net)) == seen[j]
            keys = list(zip(net["_hoodie_partition_path"].to_pylist(), net["_hoodie_record_key"].to_pylist(), strict=True))
            assert len(set(keys)) == len(keys)
            assert set(net["instant"].to_pylist()) <= order.keys()


@pytest.mark.nth(12)
@pytest.mark.parametrize("name", [name for name in NEWER if not name.endswith(LEFT_OUT)])
def test_changes_of_tables_of_jvm_hudi_of_newer_versions_lead_from_any_snapshot_to_any_later_one(tmp_path: Path, name: str) -> None:
    unpacked(name, tmp_path / "t")
    check_by_end(tmp_path / "t")


def reorder(folder: Path, seed: int | None) -> None:
    """Let the writes after the first one end in another order; None: in the opposite one."""
    _, *later = ended(folder)
    last = int(later[-1].ended)
    later.reverse() if seed is None else random.Random(seed).shuffle(later)
    for place, each in enumerate(later):
        path = folder / names.TIMELINE / each.name
        path.rename(path.with_name(replace(each, ended=f"{last + 1 + place}").name))


@pytest.mark.nth(2)
@pytest.mark.parametrize("name", LOGS)
@settings(
    max_examples=2, deadline=None, phases=[Phase.explicit, Phase.generate], suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 1000))
def test_logs_that_were_written_at_once_count_in_the_order_in_which_they_end(
    tmp_path_factory: pytest.TempPathFactory, name: str, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("t") / "t"
    unpacked(name, folder)
    reorder(folder, seed)
    check_by_end(folder)


def test_of_logs_with_one_key_that_end_in_the_opposite_order_the_last_one_counts(tmp_path: Path) -> None:
    settings = unpacked(STALE, tmp_path / "t") / names.PROPERTIES
    settings.write_text(settings.read_text().replace("EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING"))
    _, first, *_, last = (each.time for each in ended(tmp_path / "t"))
    log, later = (next((tmp_path / "t").glob(f".*_{instant}.log.1_*")) for instant in (first, last))
    later.write_bytes(log.read_bytes().replace(first.encode(), last.encode()).replace(b"stale-A", b"other-A"))
    reorder(tmp_path / "t", None)
    check_by_end(tmp_path / "t")
    assert {row["rider"] for row in Table(tmp_path / "t").snapshot(spark=LOCAL).to_pylist() if row["uuid"] == "a"} == {"stale-A"}


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    """A copy-on-write table in which the second write, of a partition of its own, ends after the third and the fourth."""
    table, folder = create(tmp_path / "t"), tmp_path / "t"
    write(table, "upsert", frame(("a", "sf", 1, 1.5), ("b", "sf", 1, 2.5), ("c", "la", 1, 3.5)))
    write(table, "upsert", frame(("c", "la", 2, 9.0), ("d", "la", 2, 4.5)))
    write(table, "upsert", frame(("b", "sf", 2, 9.0), ("e", "sf", 2, 4.5)))
    write(table, "delete", frame(("a", "sf", 3, 0.0)))
    upgrade(folder, 9)
    path = folder / names.TIMELINE / (late := ended(folder)[1]).name
    path.rename(path.with_name(replace(late, ended=f"{int(ended(folder)[-1].ended) + 1}").name))
    return folder


def test_a_write_that_was_begun_before_a_window_and_ended_in_it_is_in_it(slow: Path) -> None:
    table, there = Table(slow), ended(slow)
    assert [each.time for each in there] != sorted(each.time for each in there)
    check_by_end(slow)
    for since in (there[-2].time, there[-2].ended):
        found = table.changes(since, spark=LOCAL)
        assert sorted(zip(found["op"].to_pylist(), found["_hoodie_record_key"].to_pylist(), strict=True)) == [("i", "d"), ("u", "c")]
        assert set(found["instant"].to_pylist()) == {there[-1].time}
    for since in (there[-1].time, there[-1].ended):
        assert table.changes(since, spark=LOCAL).num_rows == 0


@pytest.mark.seldom
def test_spark_gives_the_same_changes_in_the_order_in_which_they_end(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "SHARE", 1)
    unpacked(STALE, tmp_path)
    reorder(tmp_path, 3)
    table = Table(tmp_path)
    for asked, most in (({"images": "both"}, changes.TOGETHER), ({"net": False}, changes.TOGETHER), ({"images": "both"}, 0)):
        monkeypatch.setattr(changes, "TOGETHER", most)
        found, expected = table.changes(START, spark=spark, **asked), table.changes(START, spark=LOCAL, **asked)  # type: ignore[arg-type]
        assert sorted(map(str, found.toArrow().to_pylist())) == sorted(map(str, expected.to_pylist()))
        assert set(expected["instant"].to_pylist()) <= {each.time for each in ended(tmp_path)}
        assert expected.num_rows


def test_changes_since_what_is_archived_are_one_line_and_later_ones_are_given(tmp_path: Path) -> None:
    table, there = Table(unpacked(STALE, tmp_path)), ended(tmp_path)
    expected = table.changes(there[2].time, images="both", spark=LOCAL)
    archive(tmp_path, 2)
    assert table.changes(there[2].time, images="both", spark=LOCAL).equals(expected)
    for since in (START, there[0].ended, there[1].time, there[1].ended):
        with refused(RefusedError, 2, "has archived instants before", f"since {there[2].ended} or later"):
            table.changes(since, spark=LOCAL)


def test_an_archived_write_that_ended_in_the_window_is_missed_by_none(tmp_path: Path) -> None:
    """It was begun before all that is on the timeline, and ended after some of it."""
    table, there = Table(unpacked(STALE, tmp_path)), ended(tmp_path)
    late = f"{int(there[-1].ended) - 1}"
    assert there[-2].ended < late
    lay(tmp_path, [[(there[1].time, late, there[1].action)]])
    leave(tmp_path, {there[1].time})
    with refused(RefusedError, 2, f"since {late} or later"):
        table.changes(there[-2].time, spark=LOCAL)
    assert set(table.changes(late, spark=LOCAL)["instant"].to_pylist()) == {there[-1].time}


def test_a_damaged_archived_timeline_does_not_pass_for_none(tmp_path: Path) -> None:
    table, there = Table(unpacked(STALE, tmp_path)), ended(tmp_path)
    (name,) = lay(tmp_path, [[(there[0].time, there[0].ended, there[0].action)]])
    leave(tmp_path, {there[0].time})
    (tmp_path / lsm.FOLDER / name).write_bytes(b"PAR1 no PAR1")
    with refused(FormatError, 2, "is damaged"):
        table.changes(there[-1].time, spark=LOCAL)
