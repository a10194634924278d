"""A closer of another package, with a step of its own between the data files of a commit and its entry `published`."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import quire
import sim
from gathering import refused
from quire.commit import protocol
from quire.commit.entries import Commit
from quire.commit.log import Log
from quire.engine import driver, request
from quire.engine.closers.shuffle import ShuffleCloser
from quire.errors import FormatError
from quire.progress import Progress
from quire.storage import Store

if TYPE_CHECKING:
    import pyarrow as pa

CALLS = list[str]()  # the jobs for which the step was called


class Instant(ShuffleCloser):
    """Writes down beside the data which files a commit has brought, as a table does."""

    name = "instant"

    def before_published(self, store: Store, commit: Commit, number: int) -> None:
        """Put the list if absent."""
        CALLS.append(commit.job)
        log, files = Log(store).refresh(), [file.name for task in commit.tasks for file in task.data_files]
        assert files, "what a commit shows is in its entry"
        assert all(store.stat(name) for name in files), "the data files are in their places"
        assert log.published(commit.job) is None, "and the log does not say so yet"
        assert isinstance(log.entries[number - 1], Commit)
        store.put_if_absent(f"{commit.job}.instant", json.dumps(files).encode())


@pytest.fixture(autouse=True)
def _brought(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As an installer brings it."""
    info = tmp_path / "site/instant-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: instant\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[quire.closers]\ninstant = {__name__}:Instant\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    CALLS.clear()
    sim.forget_all()
    yield
    sim.forget_all()


def ordered(rows: pa.Table) -> pa.Table:
    """The rows of all files together."""
    return rows.sort_by("path")


def gather(committer: str = "rename") -> None:
    """A job that this closer closes."""
    made = request.build(sim.SOURCE, sim.DEST, transform="raw", format="parquet", committer=committer)
    made = request.reducing(made, ordered)
    made = dataclasses.replace(made, identity=dataclasses.replace(made.identity, closer="instant"))
    driver.gather(made, quire.LocalRunner(), Progress(False))


def instants() -> dict[str, list[str]]:
    there = sim.objects(sim.DEST)
    return {name: json.loads(data) for name, data in there.items() if name.endswith(".instant")}


@pytest.mark.parametrize("committer", ["rename", "upload"])
@pytest.mark.parametrize("fault", ["before", "after", "ambiguous", "transient"])
def test_the_step_of_a_closer_comes_before_published_whoever_completes_it(fault: str, committer: str) -> None:
    """The process dies before or after it, or gets no answer: another one completes it, and the readers see the commit then."""
    sim.Tree().put("a", b"one\n")
    world = sim.World(kind=sim.KINDS["s3" if committer == "upload" else "hdfs"])
    with world.installed():
        dead = sim.Actor(faults={1: fault}, only=sim.about(".instant"))
        ended = sim.run(world, dead, lambda: gather(committer))
        assert dead.hit, "it came to the step"
        log = Log(world.store(sim.DEST)).refresh()
        (commit,) = (entry for entry in log.entries if isinstance(entry, Commit))
        if fault in ("before", "after"):
            assert isinstance(ended, sim.Crash)
            assert log.published(commit.job) is None
            assert log.unpublished() == [commit]
        with world.acting(sim.Actor("next")):
            log = protocol.recover(world.store(sim.DEST))
        assert log.published(commit.job) is not None
        assert instants() == {f"{commit.job}.instant": [file.name for task in commit.tasks for file in task.data_files]}
        assert len(quire.Ledger(sim.DEST).inspect.files()) == 1
        calls = len(CALLS)
        with world.acting(sim.Actor("again")):
            protocol.publish(log, commit)
            protocol.recover(world.store(sim.DEST))
        assert len(CALLS) == calls, "what is published is complete"


def test_the_step_of_a_closer_is_not_called_for_output_that_was_lost() -> None:
    """The store has dropped the uploads of a dead process: its commit does not count, and a table must not show it."""
    sim.Tree().put("a", b"one\n")
    world = sim.World(kind=sim.KINDS["s3"])
    with world.installed():
        dead = sim.Actor(faults={1: "before"}, only=lambda op, name: op == "complete")
        assert isinstance(sim.run(world, dead, lambda: gather("upload")), sim.Crash)
        world.expire()
        with world.acting(sim.Actor("next")):
            log = protocol.recover(world.store(sim.DEST))
            (lost,) = (entry for entry in log.entries if isinstance(entry, Commit))
            assert (CALLS, instants(), log.in_effect(lost)) == ([], {}, ())
            gather("upload")
        assert len(instants()) == 1
        assert f"{lost.job}.instant" not in instants()


def test_a_commit_whose_closer_nobody_brings_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the package is not installed nobody publishes without its step: one line, and once it is there, it goes on."""
    sim.Tree().put("a", b"one\n")
    world = sim.World()
    with world.installed():
        dead = sim.Actor(faults={1: "before"}, only=lambda op, name: op == "rename")
        assert isinstance(sim.run(world, dead, gather), sim.Crash)
        with monkeypatch.context() as without:
            without.setattr(sys, "path", [path for path in sys.path if not path.endswith("/site")])
            with refused(FormatError, 2, "is closed by 'instant'", "it is committed, and not published", "install the package"):
                protocol.recover(world.store(sim.DEST))
        assert not [name for name in sim.objects(sim.DEST) if not name.startswith("_quire/")], "nothing is visible"
        log = protocol.recover(world.store(sim.DEST))
        assert (len(instants()), log.unpublished()) == (1, [])
