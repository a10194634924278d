"""The protocol holds in all interleavings of small cases (`model.py`), and each mistake that docs/protocol.md names breaks it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import log_model
import pytest
import table_model

import model

MOST = 3_000_000  # states
SMALL = {
    "purge of what is gathered meanwhile, two bytes", "purged, a new file comes, compact",
    "compact, the store expires uploads", "an empty file, two jobs", "compact, an export",
}  # fmt: skip
QUICK = {
    "purge_before_entry", "purge_unconditional", "purged_early", "purged_never", "restate_no_conflict", "carry_forgets_purge",
    "purging_not_covered", "purged_is_old", "reprocess_takes_purged", "forget_takes_purged", "uncover_takes_purged", "commit_blind_retry",
    "empty_no_conflict", "clean_before_publish", "remove_no_conflict", "expire_unpublished",
    "retire_ignores_exports", "export_over", "export_by_log", "export_unsettled",
}  # fmt: skip


def lanes(names: dict[str, model.Config], here: set[str]) -> list[object]:
    assert here <= names.keys()
    return [pytest.param(one, id=name, marks=[] if name in here else [pytest.mark.nightly]) for name, one in names.items()]


CORRECT = {one.name: one for one in model.purges() + model.new_scenarios()}
CORRECT |= {f"{one.name} ({one.committer})": one for one in model.scenarios(deep=True) if one.name not in CORRECT}


@pytest.mark.nth(3)
@pytest.mark.parametrize("case", lanes(CORRECT, SMALL))
@pytest.mark.timeout(3600)
def test_the_protocol_holds_in_every_order(case: model.Config) -> None:
    why, trace, *_ = model.check(case, MOST)[1:]
    assert why is None, "\n".join([str(why), *trace])


@pytest.mark.nth(3)
@pytest.mark.parametrize("mistake", lanes({name: replace(case, bug=name) for name, (_, case) in model.BUGS.items()}, QUICK))
@pytest.mark.timeout(3600)
def test_a_mistake_is_found(mistake: model.Config) -> None:
    why = model.check(mistake)[1]
    assert why is not None, "it was not found"
    assert not why.startswith("LIMIT"), why


def test_each_mistake_that_the_protocol_names_can_be_planted() -> None:
    text = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text().partition("## 11.")[2]
    lists = re.findall(r"\[([a-z][a-z0-9_, \n]+)\]", text)
    named = {name.strip() for names in lists for name in names.split(",")}
    assert named == {*model.BUGS, *table_model.BUGS, *log_model.BUGS}
