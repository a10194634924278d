"""Kinds of input are found by name: quire's own, and those that other packages bring."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as replace_head

from gathering import documents, gather, refused, write
from quire.commit.entries import UNSAID, PlanHead
from quire.engine import closers, kinds
from quire.engine.kinds.listing import OfFiles
from quire.errors import FormatError, UsageError

HEAD = PlanHead(job="0-0123456789abcdef", base=0, plan="0" * 12, tasks=1, committer="rename", spec=UNSAID, intent={}, closer="")


class Drawer(OfFiles):
    name, phase = "drawer", "looking"

    def attempt(self, attempt: Any, source: Any, runs: list[Any]) -> None:
        """Nothing is in it."""


def register(folder: Path, name: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an installer does it."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[quire.kinds]\n{name} = {what}\n")
    monkeypatch.syspath_prepend(folder)


def test_a_package_brings_a_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(tmp_path, "drawer", f"{__name__}:Drawer", monkeypatch)
    assert kinds.REGISTRY.known() == [*kinds.REGISTRY.own, "drawer"]
    assert isinstance(kinds.REGISTRY.make("drawer"), Drawer)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("no_such_module_anywhere:X", "cannot be loaded: No module named 'no_such_module_anywhere'. Install it again"),
        ("builtins:object", "has no plan, attempt, owns, split, taken, report, phase, noun, so it cannot be used"),
        (f"{__name__}:Drawer", "calls itself 'drawer', so it cannot be used"),
    ],
)
def test_a_kind_that_cannot_be_used_is_one_line(what: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(tmp_path / "site", "broken", what, monkeypatch)
    with refused(UsageError, 2, "the kind of input 'broken' of the package broken", said):
        kinds.REGISTRY.make("broken")
    gather(write(tmp_path / "in", documents(2)), tmp_path / "out")  # nobody else is disturbed


def test_a_name_of_quire_s_own_cannot_be_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(tmp_path / "site", "files", f"{__name__}:Drawer", monkeypatch)
    assert kinds.REGISTRY.known().count("files") == 1
    assert gather(write(tmp_path / "in", documents(2)), tmp_path / "out").files == 2


def test_a_plan_of_a_kind_that_nobody_brings_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "REGISTRY", replace(kinds.REGISTRY, own={}))
    with refused(FormatError, 2, "the plan of job 0-0123456789abcdef reads 'files'", "install the package that brings it"):
        kinds.of(HEAD)


def test_a_job_with_a_closer_that_nobody_brings_is_one_line() -> None:
    head = replace_head(HEAD, closer="drawer")
    with refused(FormatError, 2, "job 0-0123456789abcdef is closed by 'drawer'", "install the package that brings it"):
        closers.of(head)
