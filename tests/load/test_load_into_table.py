"""Topics into a table: the table says which columns there are, and a transform's new one is added to it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import quire
from gathering import KEY, refused
from loading import load, topic
from quire import RefusedError, UsageError
from quire.commit.log import Log
from quire.coverage.fold import Fold
from quire.table import streamer
from services.kafka import Mock, Record, mock

LOCAL = quire.LocalRunner()
Transform = Callable[[pa.RecordBatch], pa.RecordBatch]


@pytest.fixture(scope="module")
def kafka() -> Iterator[Mock]:
    with mock(brokers=1) as cluster:
        yield cluster


def columns(*fields: tuple[str, pa.DataType]) -> Transform:
    """A transform that gives these fields of JSON values."""

    def parse(records: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([json.loads(value) for value in records.column("value").to_pylist()], pa.schema(fields))

    return parse


def record(**values: Any) -> Record:
    return Record(json.dumps(values).encode())


def found(table: quire.Table) -> dict[str, Any]:
    rows = table.snapshot(spark=LOCAL).to_pylist()
    return {row["id"]: {name: value for name, value in row.items() if name != "id" and not name.startswith("_")} for row in rows}


ID, AT, NOTE = ("id", pa.string()), ("at", pa.int64()), ("note", pa.string())


def test_a_new_column_of_a_transform_is_added_to_the_table_and_null_where_a_later_one_lacks_it(kafka: Mock, tmp_path: Path) -> None:
    table, name = quire.Table.create(tmp_path / "t", key="id", ordering="at"), topic(kafka, 1, [record(id="a", at=1)])
    load(kafka, name, table, columns(ID, AT))
    kafka.produce(name, [record(id="b", at=2, note="x")])
    report = load(kafka, name, table, columns(ID, ("at", pa.int32()), NOTE))
    assert (report.records, report.data_files) == (1, 1), "not those of the file that was written anew, nor its change file"
    kafka.produce(name, [record(id="c", at=3)])
    load(kafka, name, table, columns(ID, AT))
    assert found(table) == {"a": {"at": 1, "note": None}, "b": {"at": 2, "note": "x"}, "c": {"at": 3, "note": None}}


def test_the_report_of_a_load_names_the_instant_of_its_last_commit(kafka: Mock, tmp_path: Path) -> None:
    records = [record(id=f"k{i}", at=i) for i in range(40)]
    table, name = quire.Table.create(tmp_path / "t", key="id", ordering="at"), topic(kafka, 1, records)
    report = load(kafka, name, table, columns(ID, AT), max_bytes="200 B")
    ends = [instant.time for instant in table._timeline(table._store).completed]
    assert len(ends) == len(report.jobs) > 1
    assert report.instant == ends[-1] == report.as_dict()["instant"]
    assert report.instant in str(report)
    assert report.instant in report._repr_html_()
    assert load(kafka, name, table, columns(ID, AT)).instant == ""


def test_a_table_that_is_given_as_such_is_opened_with_its_own_options(kafka: Mock, vault: str) -> None:
    table, name = quire.Table.create(vault, key="id", ordering="at", storage_options=KEY), topic(kafka, 1, [record(id="a", at=1)])
    load(kafka, name, table, columns(ID, AT))
    assert found(table) == {"a": {"at": 1}}
    with refused(RefusedError, 2, "is not opened without its key"):
        load(kafka, name, table.url, columns(ID, AT))


def test_columns_that_depend_on_the_records_are_those_of_the_new_ones(kafka: Mock, tmp_path: Path) -> None:
    def parse(records: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([json.loads(value) for value in records.column("value").to_pylist()])

    table, name = quire.Table.create(tmp_path / "t", key="id", ordering="at"), topic(kafka, 1, [record(id="a", at=1)])
    load(kafka, name, table, parse)
    kafka.produce(name, [record(id="b", at=2, note="x")])
    assert load(kafka, name, table, parse).quarantined_count == 0
    assert found(table) == {"a": {"at": 1, "note": None}, "b": {"at": 2, "note": "x"}}


@pytest.mark.nth(2)
@pytest.mark.parametrize(
    ("fields", "kind", "said"),
    [
        ((ID, ("at", pa.date32())), RefusedError, "the column 'at' is date32[day], and int64 in the table"),
        ((AT,), UsageError, "no column 'id', which is the record key"),
        ((ID, AT, ("when", pa.timestamp("us"))), UsageError, "local timestamps"),
    ],
)
def test_a_transform_that_does_not_fit_the_table_is_one_line_and_nothing_is_loaded(
    kafka: Mock, tmp_path: Path, fields: tuple[Any, ...], kind: Any, said: str
) -> None:
    table, name = quire.Table.create(tmp_path / "t", key="id", ordering="at"), topic(kafka, 1, [record(id="a", at=1)])
    load(kafka, name, table, columns(ID, AT))
    kafka.produce(name, [record(id="b", at=2)])
    with refused(kind, 2, said) as caught:
        load(kafka, name, table, columns(*fields))
    assert "table+" not in str(caught.value)
    assert set(found(table)) == {"a"}
    assert quire.Ledger(tmp_path / "t").summary().open_jobs == ()
    load(kafka, name, table, columns(ID, AT))
    assert set(found(table)) == {"a", "b"}


def said(table: quire.Table) -> list[str | None]:
    """The checkpoint of Hudi Streamer in each commit."""
    instants = sorted(Path(table.url.removeprefix("file://")).glob(".hoodie/*.commit"))
    return [json.loads(path.read_bytes())["extraMetadata"].get(streamer.KEY) for path in instants]


def test_hudi_streamer_can_go_on_where_loads_have_ended(kafka: Mock, tmp_path: Path) -> None:
    """By each commit of a load of one topic; a frame's says nothing, and Streamer looks at the one before."""
    table, name = quire.Table.create(tmp_path / "t", key="id", ordering="at"), topic(kafka, 2, [record(id=f"k{i}", at=i) for i in range(5)])
    load(kafka, name, table, columns(ID, AT))
    ends = {0: 0, 1: 0} | {number: len([r for r in kafka.read(name) if r.partition() == number]) for number in (0, 1)}
    assert said(table) == [f"{name},0:{ends[0]},1:{ends[1]}"]
    kafka.produce(name, [record(id="b", at=9)])
    load(kafka, name, table, columns(ID, AT))
    table.upsert(pa.table({"id": ["c"], "at": [1]}), spark=LOCAL, progress=False)
    first, second, third = said(table)
    assert third is None
    assert first != second
    assert second is not None
    assert sum(int(part.split(":")[1]) for part in second.split(",")[1:]) == 6


def test_a_round_reads_no_segment_of_the_ledger_that_an_earlier_one_has_read(
    kafka: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each commit of a load that goes on for months takes longer than the one before. Each says what reading all of them says."""
    table, name = (
        quire.Table.create(tmp_path / "t", key="id", ordering="at"),
        topic(kafka, 1, [record(id=f"k{i}", at=i) for i in range(40)]),
    )
    real, rows, reads, same = streamer.checkpoint, Fold.rows, list[int](), list[bool]()

    def counted(log: Log, *given: Any) -> dict[str, str]:
        with monkeypatch.context() as patched:
            read = list[None]()
            patched.setattr(Fold, "rows", lambda *args: (read.append(None), rows(*args))[1])
            found = real(log, *given)
        reads.append(len(read))
        same.append(found == real(Log(log.store).refresh(), *given) != {})
        return found

    monkeypatch.setattr(streamer, "checkpoint", counted)
    report = load(kafka, name, table, columns(ID, AT), max_bytes="200 B")
    assert len(report.jobs) == len(reads) > 5
    assert max(reads) == 2, "that of the commit before, and its own"
    assert same == [True] * len(reads)


def test_two_topics_give_hudi_streamer_nothing(kafka: Mock, tmp_path: Path) -> None:
    table, names = quire.Table.create(tmp_path / "t", key="id", ordering="at"), [topic(kafka, 1, [record(id=k, at=1)]) for k in "ab"]
    load(kafka, ",".join(names), table, columns(ID, AT))
    assert said(table) == [None]
    assert set(found(table)) == {"a", "b"}
