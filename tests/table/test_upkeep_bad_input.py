"""A clock that was set back, and a table that was upgraded, while it is looked after: nothing is lost, and what is refused is one line."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_clean import files, refused, written
from test_newer_versions import upgrade
from test_writes import LOCAL, create, frame, ours, theirs, write

import quire
from quire.table import archive, cleaning, taking_back, view
from quire.table.table import Table

VERBS: dict[str, Callable[[Table, list[str]], Any]] = {
    "clean": lambda table, _: table.clean(versions=1, progress=False),
    "savepoint": lambda table, instants: table.savepoint(instants[1]),
    "archive": lambda table, _: table.archive(keep=1, progress=False),
    "rollback": lambda table, _: table.rollback(progress=False),
    "restore": lambda table, instants: table.restore(instants[0], progress=False),
}


@pytest.mark.nth(2)
@pytest.mark.parametrize("type", ["copy_on_write", "merge_on_read"])
def test_where_a_clock_was_set_back_all_services_go_on_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, type: str) -> None:
    """By a day, after three writes: no instant comes before these, no slice is taken too early, and the last write is taken back."""
    next_instant = view.names.next_instant
    table = create(tmp_path / "trips", type=type, ordering="ts")
    with monkeypatch.context() as ahead:
        ahead.setattr(view.names, "next_instant", lambda known, now: next_instant(known, now + dt.timedelta(days=1)))
        instants = [write(table, "upsert", frame(("a", "sf", n, float(n)), ("b", "la", n, 0.0))).instant for n in range(3)]
    assert instants[0] > next_instant((), dt.datetime.now(dt.UTC))
    assert table.clean(keep_for=0, progress=False).files == 0, "by this clock nothing has been superseded yet"
    before = ours(table)
    last = write(table, "upsert", frame(("a", "sf", 9, 9.0)))
    assert last.instant > instants[-1]
    assert table.rollback(progress=False).taken_back == (last.instant,)
    assert ours(table) == theirs(tmp_path / "trips") == before
    again = write(table, "upsert", frame(("a", "sf", 9, 9.0)))
    saved = table.savepoint()
    done = table.maintain(log_ratio=0.0, keep_for=0, keep=1, spark=LOCAL, progress=False)
    assert not done.hindered
    assert saved == again.instant > last.instant
    now = ours(table)
    assert now == theirs(tmp_path / "trips") == before | {"a": {"id": "a", "city": "sf", "ts": 9, "fare": 9.0}}
    write(table, "upsert", frame(("b", "la", 9, 9.0)))
    assert table.clean(versions=1, progress=False).savepoints == (saved,)
    assert table.restore(saved, progress=False).instant > saved
    assert ours(table) == theirs(tmp_path / "trips") == now
    assert quire.Ledger(table.url).verify(spark=LOCAL).ok


@pytest.mark.nth(5)
@pytest.mark.parametrize("verb", VERBS)
def test_a_table_that_was_upgraded_meanwhile_is_one_line_for_each_service_and_nothing_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """After it was opened; or when the call has committed what it will do."""
    early, instants = written(tmp_path / "early", 3)
    before, there = ours(early), files(tmp_path / "early")
    upgrade(tmp_path / "early", 8)
    assert "version 8" in refused(lambda: VERBS[verb](early, instants))
    assert (ours(Table(tmp_path / "early")), files(tmp_path / "early")) == (before, there)

    late, instants = written(tmp_path / "late", 3)
    module = {"clean": cleaning, "savepoint": cleaning, "archive": archive}.get(verb, taking_back)
    carry_out = module.carry_out

    def after(*given: Any) -> None:
        if not (tmp_path / "late/.hoodie/timeline").exists():
            upgrade(tmp_path / "late", 8)
        carry_out(*given)

    monkeypatch.setattr(module, "carry_out", after)
    assert "another program has upgraded the table" in refused(lambda: VERBS[verb](late, instants))
    assert (ours(Table(tmp_path / "late")), len(files(tmp_path / "late"))) == (before, len(there))
    assert "version 8" in refused(lambda: late.maintain(spark=LOCAL, progress=False))
