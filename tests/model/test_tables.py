"""The protocol of tables holds in every order of small cases (`tables.py`), and each mistake that docs/protocol.md names breaks it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tables

LONG = {"a slice is lost, two batches", "another program writes beside two batches"}  # a minute each


@pytest.mark.parametrize(
    "case", [pytest.param(one, id=one.name, marks=[pytest.mark.nightly] if one.name in LONG else []) for one in tables.CASES]
)
@pytest.mark.timeout(600)
def test_a_table_s_protocol_holds_in_every_order(case: tables.Case) -> None:
    why, way, _ = tables.check(case)
    assert why is None, "\n".join([str(why), *way])


@pytest.mark.parametrize("name", tables.BUGS)
def test_a_mistake_of_a_table_is_found(name: str) -> None:
    why, *_ = tables.check(replace(tables.BUGS[name], bug=name))
    assert why is not None, "it was not found"
    assert not why.startswith("LIMIT"), why
