"""The protocol of tables holds in every order of small cases (`table_model.py`), and each mistake that docs/protocol.md names breaks it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import table_model

LONG = {one.name for one in table_model.CASES if one.undo and len(one.drivers) > 1}  # a minute each
LONG |= {"a slice is lost, two batches", "another program writes beside two batches"}
LONG |= {"a clean beside rows that are taken away", "a clean beside a batch", "an archive by two drivers", "a restore by two drivers"}
LONG |= {"a clean beside a batch and a pin", "a clean beside another program's savepoint"}
LONG |= {f"an archive beside {other}" for other in ("a batch", "a batch that loses a slice", "rows that are taken away", "a restore")}
LONG |= {f"a restore beside {other}" for other in ("a batch", "a clean")}
LONG |= {f"rows are laid out anew {other}" for other in ("beside a delete", "beside an insert", "twice")}
LONG |= {
    "logs: two runs, a file is lost", "logs: a run of a delete, then a batch, beside a batch", "logs: a batch, a schedule, a run",
    "logs: another program runs the plan", "logs: another program schedules", "logs: another program is slow beside a schedule",
    "logs: another program is slow beside a run", "logs: a log is lost beside a schedule", "logs: two drivers of a batch, a log is lost",
}  # fmt: skip
LONG |= {f"version 9: another program is slow beside {other}" for other in ("two batches", "a run")}


@pytest.mark.nth(51)
@pytest.mark.parametrize(
    "case", [pytest.param(one, id=one.name, marks=[pytest.mark.nightly] if one.name in LONG else []) for one in table_model.CASES]
)
@pytest.mark.timeout(600)
def test_a_table_s_protocol_holds_in_every_order(case: table_model.Case) -> None:
    why, way, _ = table_model.check(case)
    assert why is None, "\n".join([str(why), *way])


@pytest.mark.nth(24)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.nightly] if case is table_model.LATER else []) for name, case in table_model.BUGS.items()],
)
def test_a_mistake_of_a_table_is_found(name: str) -> None:
    why, *_ = table_model.check(replace(table_model.BUGS[name], bug=name))
    assert why is not None, "it was not found"
    assert not why.startswith("LIMIT"), why
