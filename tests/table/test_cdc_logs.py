"""Hudi's CDC logs: each commit of a table that has them writes what it changes beside its base files, and they go with these."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_into import process, put
from test_writes import LOCAL, create, frame, home, ours, theirs, write

import quire
from gathering import refused
from quire.errors import UsageError
from quire.table.format import cdc_log, config, log_content, log_file
from quire.table.table import Table

VERSIONS = (6, 9)
MODES = tuple(mode.lower() for mode in config.MODES_OF_CDC)


def logs(place: Path) -> list[Path]:
    return sorted(place.rglob(".*.cdc"))


def records(path: Path) -> list[dict[str, Any]]:
    """The changes in a log, by Avro's own schema of its blocks."""
    found = list[dict[str, Any]]()
    for block in log_file.decode(path.read_bytes(), str(path)):
        assert block.kind == log_file.CDC
        parsed = fastavro.parse_schema(json.loads(block.words[log_file.SCHEMA]))
        found += log_content._data(block.content, parsed)
    return found


def cdc_stats(place: Path, instant: str) -> dict[str, int]:
    (path,) = home(place).glob(f"{instant}*.commit")
    said: Any = json.loads(path.read_bytes()) if home(place).name == ".hoodie" else next(fastavro.reader(io.BytesIO(path.read_bytes())))
    stats = (stat for each in said["partitionToWriteStats"].values() for stat in each)
    return {name: size for stat in stats for name, size in (stat["cdcStats"] or {}).items()}


def steps(table: Table) -> tuple[str, str]:
    write(table, "upsert", frame(("a", "sf", 1, 1.0), ("b", "sf", 1, 1.0), ("c", "la", 1, 1.0)))
    first = write(table, "upsert", frame(("a", "sf", 2, 2.0), ("d", "sf", 2, 2.0), ("c", "la", 0, 9.0))).instant
    second = write(table, "delete", frame(("b", "sf", 3, 0.0), ("c", "la", 3, 0.0))).instant
    return first, second


@pytest.mark.nth(2)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("version", VERSIONS)
def test_each_commit_writes_what_it_changes_and_its_statistics_name_the_logs(tmp_path: Path, version: int, mode: str) -> None:
    table = create(tmp_path, cdc=mode, version=version)
    first, second = steps(table)
    assert Table(tmp_path).config.cdc == mode.upper()
    for instant, expected in (
        (first, [("i", None, "d"), ("u", "a", "a")]),
        (second, [("d", "b", None), ("d", "c", None)]),
    ):
        there = {str(path.relative_to(tmp_path)): path for path in logs(tmp_path) if f"_{instant}.log.1_" in path.name}
        assert cdc_stats(tmp_path, instant) == {name: path.stat().st_size for name, path in there.items()}
        found = [each for path in there.values() for each in records(path)]
        if mode == "data_before_after":
            assert {each["ts_ms"] for each in found} == {instant}
            said = [(each["op"], *((each[i] and each[i]["id"]) for i in ("before", "after"))) for each in found]
            assert sorted(said, key=str) == sorted(expected, key=str)
        else:
            assert sorted(each["record_key"] for each in found) == sorted(after or before for _, before, after in expected)
            assert all(("before" in each) == (mode == "data_before") for each in found)
    assert set(ours(table)) == set(theirs(tmp_path)) == {"a", "d"}
    assert table.doctor().healthy
    assert sorted(each["op"] for each in table.changes(first, spark=LOCAL).to_pylist()) == ["d", "d"]


def test_new_file_groups_have_no_log_and_a_table_without_the_setting_has_none(tmp_path: Path) -> None:
    table = create(tmp_path / "a", cdc="data_before_after")
    write(table, "upsert", frame(("a", "sf", 1, 1.0)))
    assert logs(tmp_path) == []
    steps(create(tmp_path / "b"))
    assert logs(tmp_path) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_logs_go_with_the_base_files_that_a_clean_or_a_rollback_deletes(tmp_path: Path, version: int) -> None:
    table = create(tmp_path, cdc="data_before_after", version=version)
    first, second = steps(table)
    third = write(table, "upsert", frame(("a", "sf", 4, 4.0))).instant
    table.rollback(third, progress=False)
    assert {path.name.split("_")[1].partition(".")[0] for path in logs(tmp_path)} == {first, second}
    table.clean(versions=1, progress=False)
    assert {path.name.split("_")[1].partition(".")[0] for path in logs(tmp_path)} == {second}
    assert table.doctor().healthy
    assert set(ours(table)) == {"a", "d"}


@pytest.mark.nth(2)
@pytest.mark.parametrize("verb", ["clean", "rollback", "remove_leftovers"])
@pytest.mark.parametrize("version", VERSIONS)
def test_further_logs_of_other_programs_go_with_their_base_files(tmp_path: Path, version: int, verb: str) -> None:
    """JVM Hudi begins another log where one is full; and an attempt that did not count may have left one of its own."""
    table = create(tmp_path, cdc="data_before_after", version=version)
    first, second = steps(table)
    going = first if verb == "clean" else second
    one = next(path for path in logs(tmp_path) if f"_{going}.log.1_" in path.name)
    stays = next(path for path in logs(tmp_path) if f"_{second if verb == 'clean' else first}.log.1_" in path.name)
    further = [Path(str(path).replace(".log.1_", ".log.2_")) for path in (one, stays)]
    further.append(one.with_name(f"{one.name.partition('.log.')[0]}.log.1_7-8-9.cdc"))
    for path in further:
        path.write_bytes(one.read_bytes())
    if verb == "clean":
        table.clean(versions=1, progress=False)
    elif verb == "rollback":
        table.rollback(second, progress=False)
    else:
        for path in home(tmp_path).glob(f"{second}*"):
            path.unlink()
        assert table.remove_leftovers(older_than=0)
    assert [path.exists() for path in (one, stays, *further)] == [False, True, False, True, False]
    assert table.doctor().healthy


@settings(max_examples=10, deadline=None)
@given(
    rows=st.lists(st.tuples(st.sampled_from("iud"), st.integers(0, 9), st.integers(-5, 5)), min_size=1, max_size=30),
    block=st.integers(1, 400),
)
def test_a_log_of_many_blocks_says_what_it_was_told(rows: list[tuple[str, int, int]], block: int) -> None:
    columns = frame(("a", "sf", 1, 1.0)).schema
    sink = io.BytesIO()
    writer = cdc_log.CdcLogWriter(sink, columns, cdc_log.BEFORE_AFTER, "20261122093015123", "t")
    before, expected = cdc_log.BLOCK, list[tuple[str, Any, Any]]()
    cdc_log.BLOCK = block
    try:
        for op, key, ts in rows:
            images = [None if op == "i" else frame((f"k{key}", "sf", ts, 1.0)), None if op == "d" else frame((f"k{key}", "sf", ts, 2.0))]
            there = next(each for each in images if each is not None)
            writer.write(op, there.column("id"), *images)
            expected.append((op, *(each and each.to_pylist()[0] for each in images)))
        size, count = writer.close()
    finally:
        cdc_log.BLOCK = before
    assert (size, count) == (len(sink.getvalue()), len(rows))
    found = list[tuple[str, Any, Any]]()
    for part in log_file.decode(sink.getvalue(), "it"):
        parsed = fastavro.parse_schema(json.loads(part.words[log_file.SCHEMA]))
        found += [(each["op"], each["before"], each["after"]) for each in log_content._data(part.content, parsed)]
    assert found == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_the_ledger_verifies_logs_and_knows_those_that_a_clean_has_taken(tmp_path: Path, version: int) -> None:
    source, table = tmp_path / "in", create(tmp_path / "t", cdc="data_before_after", version=version)
    for n in range(1, 4):
        put(source, f"{n}.json", ("a", "sf", n, float(n)))
        process(source, table)
    assert len(logs(tmp_path / "t")) == 2
    assert quire.Ledger(table.url).verify(spark=LOCAL).ok
    table.clean(versions=1, progress=False)
    one = logs(tmp_path / "t")
    assert len(one) == 1
    assert quire.Ledger(table.url).verify(spark=LOCAL).ok
    one[0].write_bytes(one[0].read_bytes()[:-30] + b"x" * 30)
    assert not quire.Ledger(table.url).verify(spark=LOCAL).ok


def test_what_does_not_go_together_is_one_line(tmp_path: Path) -> None:
    with refused(UsageError, 2, "cdc", "copy-on-write"):
        Table.create(tmp_path, key="id", ordering="ts", type="merge_on_read", cdc="data_before")
    with refused(UsageError, 2, "cdc", "data_before_after"):
        Table.create(tmp_path, key="id", cdc="full")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_commit_that_was_killed_leaves_no_log(tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from quire.table.write import output

    table = create(tmp_path, cdc="data_before_after", version=version)
    write(table, "upsert", frame(("a", "sf", 1, 1.0)))

    def dies(*_: Any) -> Any:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(output.Output, "close", dies)
        with pytest.raises(quire.QuireError):
            write(table, "upsert", frame(("a", "sf", 2, 2.0)))
    assert logs(tmp_path) == []
    write(table, "upsert", frame(("a", "sf", 2, 2.0)))
    assert len(logs(tmp_path)) == 1
