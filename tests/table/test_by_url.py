"""A table by its URL, where a destination's is expected: questions are answered, and nothing takes it for a directory of files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jvm
import pytest
from click.testing import CliRunner

import quire
from gathering import documents, gather, refused, snapshot, write
from quire import committers
from quire.cli.app import cli
from quire.engine import driver
from quire.errors import RefusedError, UsageError
from quire.storage import connect

LOCAL = quire.LocalRunner()
NAME = next((name for name in jvm.names() if "-cow-v6_" in name), "v6_none")


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A table that JVM Hudi has written, and quire never."""
    for path, content in jvm.files(NAME):
        (tmp_path / "t" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "t" / path).write_bytes(content)
    return tmp_path / "t"


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """A table of quire's, with a ledger: ten files of a source are done."""
    write(tmp_path / "in", documents(10))
    table = quire.Table.create(tmp_path / "own", key="path", ordering="modified")
    quire.consolidate(str(tmp_path / "in"), table, transform="raw", format="parquet", spark=LOCAL, progress=False)
    assert sorted(os.listdir(tmp_path / "own/.hoodie/_quire")) == ["ledger", "log", "table.entry", "tmp"]
    assert not (tmp_path / "own/_quire").exists()
    return tmp_path / "own"


def test_a_tables_url_reads_its_rows(theirs: Path) -> None:
    before = snapshot(theirs)
    found, expected = quire.read(str(theirs), spark=LOCAL), quire.table.table.Table(theirs).snapshot(spark=LOCAL)
    assert found.num_rows > 0
    assert found.equals(expected)
    with refused(UsageError, 2, "is a table", "as_of"):
        quire.read(str(theirs), spark=LOCAL, version=1)
    assert snapshot(theirs) == before


def test_a_table_that_quire_never_wrote_has_no_ledger(theirs: Path) -> None:
    before = snapshot(theirs)
    with refused(UsageError, 2, "holds no ledger", f"file://{theirs}") as caught:
        quire.Ledger(theirs)
    assert "table+" not in str(caught.value)
    with refused(UsageError, 2, "nothing of quire's"):
        quire.recover(theirs)
    assert snapshot(theirs) == before


def test_the_ledger_of_a_table_answers_by_the_tables_url(ours: Path, tmp_path: Path) -> None:
    ledger = quire.Ledger(ours)
    assert ledger.summary().dest == f"file://{ours}"
    assert ledger.summary().files == 10
    assert repr(ledger) == f"Ledger('file://{ours}', version={ledger.version})"
    assert ledger.verify(spark=LOCAL).ok
    first = min(p for p in (tmp_path / "in").rglob("*") if p.is_file())
    with refused(UsageError, 2, "went into the table with 9 others in commit 1"):
        ledger.read(first)
    assert len(ledger.inspect.splits(spark=LOCAL)) == 10
    assert ledger.inspect.unprocessed(str(tmp_path / "in"), spark=LOCAL).empty
    assert ledger.checkpoint(spark=LOCAL).dest == f"file://{ours}"
    assert quire.Ledger(ours).summary().files == 10
    assert not (ours / "_quire").exists()


def test_recover_makes_good_what_a_table_was_left_in(ours: Path) -> None:
    store = connect(f"table+file://{ours}")
    last = max(e.name for e in store.walk("_quire/log"))
    assert json.loads(store.get(last))["kind"] == "published"
    store.remove(last)  # as if the process had died before
    assert quire.recover(ours).published
    assert store.stat(last) is not None
    assert quire.recover(ours).dest == f"file://{ours}"


VERBS: dict[str, Callable[[quire.Ledger, Path], Any]] = {
    "forget": lambda ledger, place: ledger.forget(place / "in/d0/f0000.txt", spark=LOCAL),
    "retry": lambda ledger, place: ledger.retry(str(place / "in"), spark=LOCAL),
    "compact": lambda ledger, place: ledger.compact("1 MiB", spark=LOCAL),
    "expire": lambda ledger, place: ledger.expire(grace=0),
    "purge_sources": lambda ledger, place: ledger.purge_sources(str(place / "in"), dry_run=False, min_age=0, spark=LOCAL),
    "import_markers": lambda ledger, place: ledger.import_markers(str(place / "marks"), str(place / "in"), spark=LOCAL),
    "import_offsets": lambda ledger, place: ledger.import_offsets("kafka://nobody:1/t", "group", spark=LOCAL),
    "claim": lambda ledger, place: ledger.claim(str(place / "in"), spark=LOCAL).__enter__(),
}


@pytest.mark.nth(2)
@pytest.mark.parametrize("verb", VERBS)
def test_verbs_that_change_data_files_are_not_for_tables(ours: Path, tmp_path: Path, verb: str) -> None:
    before = snapshot(tmp_path)
    with refused(RefusedError, 2, f"ledger.{verb} is not for tables", f"file://{ours}", "nothing was touched"):
        VERBS[verb](quire.Ledger(ours), tmp_path)
    assert snapshot(tmp_path) == before


def test_nothing_is_gathered_into_a_table(theirs: Path, tmp_path: Path) -> None:
    """Its readers would take the files for rows, or fail at those of quire's."""
    write(tmp_path / "in", documents(10))
    before = snapshot(theirs)
    for allowed in (False, True):
        with refused(UsageError, 2, "a table takes rows with columns"):
            gather(tmp_path / "in", theirs, allow_nonempty=allowed)
    with refused(RefusedError, 2, "the rows have no column"):
        gather(tmp_path / "in", theirs, transform="raw", format="parquet")
    with refused(RefusedError, 2, "is a table"):
        committers.run(lambda task: None, str(theirs), tasks=1, name="x", spark=LOCAL, allow_nonempty=True)
    with pytest.raises(RefusedError):
        driver.check_destination(connect(f"file://{theirs}"), allow_nonempty=True)
    left = {name: content for name, content in snapshot(theirs).items() if not name.startswith(".hoodie/_quire/")}
    assert left == before


def test_a_table_as_a_source_gives_its_base_files_alone(ours: Path, tmp_path: Path) -> None:
    """What lies below `.hoodie` is hidden, and with it all that is quire's."""
    report = gather(ours, tmp_path / "out", transform="raw", format="parquet")
    assert report.files > 0
    paths = quire.Ledger(tmp_path / "out").inspect.splits(spark=LOCAL)["path"]
    assert not [path for path in paths if ".hoodie" in path]


def test_in_a_shell_a_tables_url_is_told_from_others(ours: Path) -> None:
    run = CliRunner()
    found = run.invoke(cli, ["recover", str(ours)])
    assert found.exit_code == 0, found.output
    assert run.invoke(cli, ["ledger", "summary", str(ours)]).exit_code == 0
    printed = run.invoke(cli, ["read", str(ours), "--limit", "1000000"])
    assert printed.exit_code == 0, printed.output
    assert len(printed.output.splitlines()) == quire.Table(ours).snapshot(spark=LOCAL).num_rows
