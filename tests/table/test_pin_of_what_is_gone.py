"""A pin of a version of a table that cannot be read any more is one line at once, and no pin: it would hold nothing, and hinder upkeep."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_archive import archive
from test_clean import clean, files, refused, roll_back, written
from test_writes import frame, log_of, ours, write

import quire
from quire.table import taking_back
from quire.table.format import avro_file, cleaning
from quire.table.table import Table


def versions(folder: Path) -> dict[str, int]:
    """Instant → the first version whose readers see it."""
    return {commit.tasks[-1].instant: number + 1 for number, commit in log_of(folder).recent()}


def pinned(table: Table, version: int) -> None:
    with quire.Ledger(table.url).pin(version):
        pass


def archived(table: Table, folder: Path, instants: list[str]) -> str:
    assert archive(table, 2).first == instants[3]
    return "has expired"


def cleaned(table: Table, folder: Path, instants: list[str]) -> str:
    assert clean(table, versions=2).readable_from == instants[3]
    return "has expired"


def restored(table: Table, folder: Path, instants: list[str]) -> str:
    table.restore(instants[1], progress=False)
    return f"its write {instants[2]} was rolled back"


def rolled_back_by_another_program(table: Table, folder: Path, instants: list[str]) -> str:
    for instant in instants[:1:-1]:
        roll_back(folder, instant)
    quire.recover(table.url)
    return f"its write {instants[2]} was rolled back"


def archived_by_another_program(table: Table, folder: Path, instants: list[str]) -> str:
    (folder / ".hoodie/archived").mkdir()
    (folder / ".hoodie/archived/.commits_.archive.1_1-0-1").write_bytes(b"of a JVM")
    for path in (folder / ".hoodie").iterdir():
        if path.name[:17] in instants[:3]:
            path.unlink()
    return f"instants before {instants[3]} are archived"


def cleaned_by_another_program(table: Table, folder: Path, instants: list[str]) -> str:
    old = next(name for name in files(folder) if instants[2] in name and name.endswith(".parquet"))
    (folder / old).unlink()
    partition, _, name = old.rpartition("/")
    said = avro_file.record(cleaning.plan("file:/elsewhere", {}, ("", ""), ""), "plan") | {
        "filesToBeDeletedPerPartition": {partition: [name]}
    }
    (folder / ".hoodie/20990101000000000.clean.requested").write_bytes(avro_file.of_record(said, cleaning._PLAN))
    return f"the clean 20990101000000000 has deleted {old}"


TAKEN = [archived, cleaned, restored, rolled_back_by_another_program, archived_by_another_program, cleaned_by_another_program]


@pytest.mark.nth(6)
@pytest.mark.parametrize("take", TAKEN)
def test_a_pin_of_what_is_gone_is_one_line_and_no_pin(tmp_path: Path, take: Callable[..., str]) -> None:
    table, instants = written(tmp_path / "trips", 5)
    version = versions(tmp_path / "trips")
    why = take(table, tmp_path / "trips", instants)
    log = log_of(tmp_path / "trips").tip
    line = refused(lambda: pinned(table, version[instants[2]]))
    assert why in line, line
    assert log_of(tmp_path / "trips").tip == log, "nothing was put"
    assert quire.Ledger(table.url).pins() == {}


@pytest.mark.nth(3)
@pytest.mark.parametrize("take", TAKEN[:3])
def test_what_is_still_there_can_be_pinned_and_is_held(tmp_path: Path, take: Callable[..., str]) -> None:
    table, instants = written(tmp_path / "trips", 5)
    take(table, tmp_path / "trips", instants)
    newest, now = instants[1 if take is restored else 4], ours(table)
    with quire.Ledger(table.url).pin(quire.Ledger(table.url).version):
        write(table, "upsert", frame(("a", "sf", 99, 9.9)))
        clean(table)
        archive(table)
        assert ours(table.as_of(newest)) == now


@pytest.mark.nth(2)
@pytest.mark.parametrize("take", [archived, cleaned])
def test_a_version_before_the_commit_that_it_ends_with_is_published_has_expired(tmp_path: Path, take: Callable[..., str]) -> None:
    """Its readers do not see that commit yet, so they need what was before it."""
    table, instants = written(tmp_path / "trips", 5)
    first = versions(tmp_path / "trips")[instants[3]]
    take(table, tmp_path / "trips", instants)
    assert "has expired" in refused(lambda: pinned(table, first - 1))
    pinned(table, first)


def test_a_table_that_had_no_row_cannot_be_pinned_once_an_archive_has_taken_its_first_instants(tmp_path: Path) -> None:
    table, instants = written(tmp_path / "trips", 5)
    archived(table, tmp_path / "trips", instants)
    assert "has expired" in refused(lambda: pinned(table, 0))
    assert archive(table).instants == 1, "and no pin of it hinders the next one"


def test_a_pin_beside_a_restore_that_has_its_slot_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its instants are still on the timeline, and the log does not say yet that they were rolled back."""
    table, instants = written(tmp_path / "trips", 3)
    version, carry_out, told = versions(tmp_path / "trips")[instants[2]], taking_back.carry_out, list[str]()

    def late(*given: Any) -> Any:
        told.append(refused(lambda: pinned(table, version)))
        return carry_out(*given)

    monkeypatch.setattr(taking_back, "carry_out", late)
    restored(table, tmp_path / "trips", instants)
    assert [f"its write {instants[2]} was rolled back" in line for line in told] == [True]
