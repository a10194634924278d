"""What the ledger shows: tables in one schema each, whatever there is, as pandas, Arrow or Spark; and paths that look alike."""

from __future__ import annotations

import inspect
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from gathering import documents, gather, refused, snapshot, write
from quire import Ledger, LocalRunner, recover
from quire.errors import FormatError, QuireError, UsageError
from quire.ledger import tables, verbs
from quire.ledger.inspect import Inspect
from quire.spark.runner import OnSpark
from quire.storage import connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE: dict[str, Any] = {"spark": LocalRunner(), "progress": False}
LOOKS = ["history", "commits", "tasks", "files", "quarantined", "reasons", "sizes"]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    source = write(tmp_path / "in", {**documents(5, "xml"), "bad.xml": b"<a>", "d0/long.xml": b"<a>" + b" " * 3000 + b"</a>"})
    gather(source, tmp_path / "out", transform="xml")
    ledger = Ledger(tmp_path / "out")
    ledger.forget(source / "d1", reason="why not", **HERE)
    with ledger.pin():
        ledger.expire()
    return ledger.refresh()


@pytest.mark.nth(2)
@pytest.mark.parametrize("look", LOOKS)
def test_a_table_has_its_schema_whatever_there_is(ledger: Ledger, tmp_path: Path, look: str) -> None:
    gather(write(tmp_path / "nothing", {"a": b"a"}), tmp_path / "new", transform="raw")
    empty = Ledger(tmp_path / "new").as_of(0)
    schema = tables.TABLES[look]
    full, none = (getattr(one.inspect, look)(as_="arrow") for one in (ledger, empty))
    assert full.schema == none.schema == schema
    assert full.num_rows
    assert not none.num_rows
    shown, nothing = getattr(ledger.inspect, look)(), getattr(empty.inspect, look)(as_="pandas")
    assert isinstance(shown, pd.DataFrame)
    assert list(shown.columns) == list(nothing.columns) == schema.names
    assert list(nothing.dtypes) == list(shown.dtypes)
    assert shown.equals(full.to_pandas())


def test_a_table_comes_as_a_spark_dataframe_too(ledger: Ledger, tmp_path: Path, spark: SparkSession) -> None:
    frame = ledger.inspect.quarantined(as_="spark")
    assert frame.columns == tables.TABLES["quarantined"].names
    assert [row.path for row in frame.where("reason like '%malformed%'").collect()] == [f"file://{tmp_path}/in/bad.xml"]
    with refused(UsageError, 2, "as_", "pandas, arrow, spark", "'arrow'"):
        ledger.inspect.files(as_="arow")


def test_every_table_has_the_same_forms_and_refuses_another_one_before_it_reads(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "_store", None)
    calls = [name for name in vars(Inspect) if not name.startswith("_")]
    assert {"history", "files", "splits", "quarantined", "unprocessed", "lag"} <= set(calls)
    for name in calls:
        call = getattr(ledger.inspect, name)
        parameters = inspect.signature(call).parameters
        assert parameters["as_"].default == "pandas", name
        assert (parameters["spark"].kind, parameters["spark"].default) == (inspect.Parameter.KEYWORD_ONLY, None), name
        given = ["x"] if next(iter(parameters)) in ("path", "source") else []
        with refused(UsageError, 2, "as_", "pandas, arrow, spark"):
            call(*given, as_="arow")
        with refused(UsageError, 2, "as_='spark' needs a SparkSession"):
            call(*given, as_="spark", spark=HERE["spark"])


def test_every_row_comes_without_spark_too_but_a_condition_needs_it(ledger: Ledger) -> None:
    rows = ledger.inspect.splits(as_="arrow", spark=HERE["spark"])
    assert rows.schema == tables.TABLES["splits"]
    assert set(rows.column("path").to_pylist()) == set(ledger.rows().table["path"])
    assert ledger.inspect.splits(spark=HERE["spark"]).equals(rows.to_pandas())
    with refused(UsageError, 2, "where=", "needs Spark"):
        ledger.inspect.splits("state = 'done'", spark=HERE["spark"])


@pytest.mark.parametrize("where", ["", " \n"])
def test_an_empty_condition_chooses_nothing_rather_than_all(ledger: Ledger, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    for form in ("arrow", "spark"):
        with refused(UsageError, 2, "where=", "empty condition", "Leave it out for all rows"):
            ledger.inspect.splits(where, form)
    on_spark = object.__new__(OnSpark)
    on_spark.spark = None
    monkeypatch.setattr(verbs, "runner_of", lambda *_: on_spark)
    with refused(UsageError, 2, "where=", "empty condition"):
        ledger.forget(where=where, progress=False)
    assert ledger.refresh().summary().files


@pytest.mark.nth(2)
@pytest.mark.parametrize("look", ["unprocessed", "changed", "deleted"])
@pytest.mark.parametrize("name", ["hidden", "follow_links"])
def test_what_is_neither_true_nor_false_is_refused_by_each_look_at_a_source(ledger: Ledger, tmp_path: Path, look: str, name: str) -> None:
    settings: dict[str, Any] = {name: "no"}
    with refused(UsageError, 2, f"{name}='no'", "neither True nor False"):
        getattr(ledger.inspect, look)(tmp_path / "in", **settings, spark=HERE["spark"])


def test_of_one_file_too(ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / "in/d0/long.xml"
    assert ledger.inspect.coverage(path, as_="arrow").schema == tables.TABLES["coverage"]
    (found,) = ledger.locate(path)
    assert ledger.inspect.locations(path, as_="arrow").to_pylist() == [vars(found)]
    assert list(ledger.inspect.locations(path).columns) == tables.TABLES["locations"].names


def test_the_history_says_what_an_entry_was_about(ledger: Ledger) -> None:
    found = ledger.inspect.history().set_index("kind")["note"]
    assert "why not" in set(found["commit"])
    assert all(note.startswith("versions before ") for note in found[["expired"]])
    assert all("have left the directory" in note for note in found[["retired"]])
    assert found["pin"] == found["unpin"]


def test_two_paths_that_differ_only_by_their_unicode_form_are_two_files(tmp_path: Path) -> None:
    composed, apart = (unicodedata.normalize(form, "Größe é") for form in ("NFC", "NFD"))
    source = write(tmp_path / "in", {composed: b"one", apart: b"two"})
    assert gather(source, tmp_path / "out", transform="raw").files == 2
    ledger = Ledger(tmp_path / "out")
    assert (ledger.read(source / composed), ledger.read(source / apart)) == (b"one", b"two")
    ledger.forget(source / apart, **HERE)
    with refused(UsageError, 2, "not in the ledger", "other Unicode characters", r"Gr\xf6\xdfe \xe9"):
        ledger.locate(source / apart)
    with refused(UsageError, 2, "not in the ledger", "other Unicode characters"):
        ledger.forget(source / apart, **HERE)
    assert ledger.read(source / composed) == b"one"


def test_a_path_with_two_slashes_means_the_one_without_them(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"d/a": b"one"})
    gather(source, tmp_path / "out", transform="raw")
    ledger = Ledger(tmp_path / "out")
    for form in (f"{source}//d///a", f"file://{source}//d//a", f"/{source}/d/./a"):
        assert ledger.read(form) == b"one", form
    assert gather(f"{tmp_path}//in/", tmp_path / "out", transform="raw").files == 0, "nothing is read a second time"
    assert ledger.forget(f"{source}//d/", **HERE).files_out == 1


def test_a_ledger_is_created_by_true_alone(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"create": "no"}
    with refused(UsageError, 2, "create='no'", "neither True nor False"):
        Ledger(tmp_path / "out", **settings)
    assert not (tmp_path / "out").exists()


def test_a_ledger_of_an_earlier_quire_is_refused_and_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"a": b"a"})
    gather(source, tmp_path / "out")
    for entry in (tmp_path / "out/_quire/log").glob("*.entry"):
        entry.rename(entry.with_suffix(".json"))
    before = snapshot(tmp_path / "out")
    for call in (lambda: Ledger(tmp_path / "out"), lambda: gather(source, tmp_path / "out"), lambda: recover(tmp_path / "out")):
        with refused(QuireError, 2, "earlier quire", "nothing was touched", "00000000000000000001.json"):
            call()
    assert snapshot(tmp_path / "out") == before


def test_a_ledger_of_a_newer_quire_is_refused_and_left_alone(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"a": b"a"})
    gather(source, tmp_path / "out")
    store = connect(f"file://{tmp_path}/out")
    store.put("_quire/log/00000000000000000003.entry", b'{"kind": "merge", "format": 2}')
    before = snapshot(tmp_path / "out")
    for call in (lambda: Ledger(tmp_path / "out"), lambda: gather(source, tmp_path / "out")):
        with refused(QuireError, 2, "newer quire", "Update quire", "00000000000000000003.entry"):
            call()
    assert snapshot(tmp_path / "out") == before


@pytest.mark.seldom
def test_a_damaged_segment_is_one_line_wherever_spark_has_read_it(tmp_path: Path, spark: SparkSession) -> None:
    source, dest = write(tmp_path / "in", {"a": b"1\n"}), tmp_path / "out"
    gather(source, dest)
    (segment,) = (dest / "_quire/ledger").glob("*.rows")
    segment.write_bytes(segment.read_bytes()[:-9] + b"PAR0 PAR0")
    ledger = Ledger(dest)
    for question in (
        lambda: ledger.inspect.splits(spark=spark),
        lambda: ledger.inspect.splits("start = 0", "arrow", spark=spark),
        lambda: ledger.forget(where="start = 0", spark=spark, progress=False),
    ):
        with refused(FormatError, 2, segment.name, "is damaged"):
            question()
