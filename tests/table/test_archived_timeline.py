"""The archived timeline of tables of version 8 and 9: what has left the timeline still counts by when it completed."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_merge_on_read import LATER, UNREAD, gold
from test_views import same, unpacked
from test_writes import LOCAL

from gathering import refused
from quire.errors import FormatError, RefusedError
from quire.table.format import lsm, names
from quire.table.table import Table
from quire.table.timeline import Timeline

STALE = "quickstart_trips_table-mor-avro-table_event_time_stale"
DELETES = "quickstart_trips_table-mor-avro-table_delete_ord_int"  # in its one log
# As JVM Hudi 1.2 writes it.
ROWS = pa.schema(
    [
        ("instantTime", pa.string()), ("completionTime", pa.string()), ("action", pa.string()), ("metadata", pa.binary()),
        ("plan", pa.binary()), pa.field("version", pa.int32(), False),
    ]
)  # fmt: skip
Row = tuple[str, str, str]  # instant, completion, action


def line_of(folder: Path) -> Timeline:
    table = Table(folder)
    return table._timeline(table._store)


def lay(folder: Path, files: Sequence[Sequence[Row]], number: int = 1) -> list[str]:
    """Write an archived timeline of these files; their names."""
    at, listed = folder / lsm.FOLDER, list[str]()
    at.mkdir(parents=True, exist_ok=True)
    for rows in files:
        name = f"{min(rows)[0]}_{max(rows)[0]}_0.parquet"
        made = [(time, ended or None, action, b"{}", None, 1) for time, ended, action in rows]
        pq.write_table(pa.table(list(map(list, zip(*made, strict=True))), schema=ROWS), at / name)
        listed.append(name)
    said = {"files": [{"fileName": name, "fileLen": (at / name).stat().st_size} for name in listed]}
    (at / f"manifest_{number}").write_text(json.dumps(said))
    (at / "_version_").write_text(str(number))
    return listed


def leave(folder: Path, times: set[str]) -> None:
    """Take instants off the timeline."""
    for path in (folder / names.TIMELINE).iterdir():
        if path.is_file() and path.name[:17] in times:
            path.unlink()


def archive(folder: Path, count: int) -> set[str]:
    """Archive the oldest writes, a file each; their instants."""
    gone = line_of(folder).completed[:count]
    lay(folder, [[(one.time, one.ended, one.action)] for one in gone])
    leave(folder, {one.time for one in gone})
    return {one.time for one in gone}


def late_base(folder: Path) -> tuple[pa.Table, str, str]:
    """A table whose base file was begun while its log was being written, as a compaction would: its rows, and both instants."""
    unpacked(DELETES, folder)
    base, log = line_of(folder).completed[:2]
    begun = f"{int(log.ended) - 1}"
    for path in [*folder.glob("*.parquet"), *(folder / names.TIMELINE).glob(f"{base.time}*")]:
        path.rename(path.with_name(path.name.replace(base.ended, f"{int(log.ended) + 1}").replace(base.time, begun)))
    assert log.time < begun < log.ended
    return Table(folder).snapshot(spark=LOCAL), log.time, begun


@pytest.mark.parametrize("name", [name for name in LATER if not name.endswith(UNREAD)])
def test_a_table_reads_the_same_once_its_older_instants_are_archived(tmp_path: Path, name: str) -> None:
    table, expected = Table(unpacked(name, tmp_path)), gold(name)
    last = line_of(tmp_path).completed[-1].time
    gone = archive(tmp_path, len(line_of(tmp_path).completed) - 1)
    found = table.snapshot(spark=LOCAL)
    assert expected is not None
    assert same(found, expected.select(found.column_names))
    assert same(table.as_of(last).snapshot(spark=LOCAL), found)
    for instant in gone:
        with refused(RefusedError, 2, "are archived", last):
            table.as_of(instant).snapshot(spark=LOCAL)
    assert set(table.timeline()["instant"]) == {last}


def test_a_log_that_completed_after_its_base_file_was_begun_counts_once_it_is_archived(tmp_path: Path) -> None:
    rows, log, _ = late_base(tmp_path)
    line = line_of(tmp_path)
    ended = line.ends({log})[log]
    lay(tmp_path, [[(log, ended, "deltacommit")]])
    leave(tmp_path, {log})
    assert line_of(tmp_path).left is not None
    assert line_of(tmp_path).ends({log})[log] == ended
    assert same(Table(tmp_path).snapshot(spark=LOCAL), rows)
    # Had it completed before, its rows would be in the base file.
    lay(tmp_path, [[(log, log, "deltacommit")]], 2)
    assert not same(Table(tmp_path).snapshot(spark=LOCAL), rows)


def test_a_savepoint_of_an_archived_write_does_not_change_when_that_completed(tmp_path: Path) -> None:
    rows, log, _ = late_base(tmp_path)
    ended = line_of(tmp_path).ends({log})[log]
    for order in (1, -1):
        lay(tmp_path, [[(log, ended, "deltacommit"), (log, log, "savepoint")][::order]])
        leave(tmp_path, {log})
        assert same(Table(tmp_path).snapshot(spark=LOCAL), rows)


def test_a_write_that_is_archived_while_older_ones_are_on_the_timeline_counts(tmp_path: Path) -> None:
    """A listing was under way while it was archived, or a savepoint holds an older one."""
    table = Table(unpacked(STALE, tmp_path))
    rows, middle = table.snapshot(spark=LOCAL), line_of(tmp_path).completed[2]
    leave(tmp_path, {middle.time})
    assert not same(table.snapshot(spark=LOCAL), rows)
    lay(tmp_path, [[(middle.time, middle.ended, middle.action)]])
    assert same(table.snapshot(spark=LOCAL), rows)
    assert line_of(tmp_path).holds()(middle.time)
    assert not line_of(tmp_path).as_of(line_of(tmp_path).first).holds()(middle.time)
    lay(tmp_path, [[(middle.time, middle.ended, "clean")]], 2)
    assert not line_of(tmp_path).holds()(middle.time)


@pytest.mark.parametrize("version", [None, b"", b"x", b"2\n"])
def test_the_newest_manifest_counts_also_while_a_writer_puts_its_number_again(tmp_path: Path, version: bytes | None) -> None:
    _, log, _ = late_base(tmp_path)
    lay(tmp_path, [[(log, log, "deltacommit")]], 1)
    lay(tmp_path, [[(log, "", "deltacommit"), ("20991122100000000", "20991122100000001", "commit")]], 2)
    path = tmp_path / lsm.VERSION
    path.unlink() if version is None else path.write_bytes(version)
    leave(tmp_path, {log})
    assert line_of(tmp_path).ends({log})[log] == log
    assert [file.last for file in line_of(tmp_path).left.files] == ["20991122100000000"]  # type: ignore[union-attr]


def test_files_that_are_merged_while_a_table_is_read_are_read_where_their_rows_have_moved(tmp_path: Path) -> None:
    rows, log, _ = late_base(tmp_path)
    ended = line_of(tmp_path).ends({log})[log]
    (old,) = lay(tmp_path, [[(log, ended, "deltacommit")]])
    leave(tmp_path, {log})
    before = line_of(tmp_path)
    lay(tmp_path, [[("20250101000000000", "20250101000000001", "commit"), (log, ended, "deltacommit")]], 2)
    (tmp_path / lsm.FOLDER / old).unlink()
    assert before.ends({log})[log] == ended
    assert same(Table(tmp_path).snapshot(spark=LOCAL), rows)


def test_only_files_that_may_have_an_instant_are_read(tmp_path: Path) -> None:
    _, log, _ = late_base(tmp_path)
    ended = line_of(tmp_path).ends({log})[log]
    (other, _) = lay(tmp_path, [[("20250101000000000", "20250101000000001", "commit")], [(log, ended, "deltacommit")]])
    leave(tmp_path, {log})
    (tmp_path / lsm.FOLDER / other).write_bytes(b"not read")
    Table(tmp_path).snapshot(spark=LOCAL)
    line = line_of(tmp_path)
    assert line.left is not None
    (tmp_path / lsm.FOLDER / line.left.files[1].name.rpartition("/")[2]).unlink()
    assert dataclasses.replace(line, left=None).ends({log}) == line.ends(set())  # an instant of the timeline needs none


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda at, _: (at / "manifest_1").write_bytes(b""), "manifest_1 is damaged"),
        (lambda at, _: (at / "manifest_1").write_bytes(b"[" * 100_000), "manifest_1 is damaged"),
        (lambda at, _: (at / "manifest_1").write_text('{"files": [{"fileName": "../x.parquet"}]}'), "names '../x.parquet'"),
        (lambda at, _: (at / "manifest_1").unlink(), "lacks a file"),
        (lambda at, name: (at / name).write_bytes(b"PAR1 no PAR1"), "is damaged"),
        (lambda at, name: (at / name).unlink(), "lacks a file"),
        (lambda at, name: pq.write_table(pa.table({"x": [1]}), at / name), "is damaged"),
        (lambda at, name: pq.write_table(pa.table([["x"], ["x"], ["commit"]], names=lsm.COLUMNS), at / name), "instant 'x'"),
    ],
)  # fmt: skip
def test_a_damaged_archived_timeline_is_one_line(
    tmp_path: Path, damage: Callable[[Path, str], object], said: str
) -> None:  # fmt: skip
    _, log, _ = late_base(tmp_path)
    (name,) = lay(tmp_path, [[(log, log, "deltacommit")]])
    leave(tmp_path, {log})
    damage(tmp_path / lsm.FOLDER, name)
    with refused(FormatError, 2, said):
        Table(tmp_path).snapshot(spark=LOCAL)
