"""A committer of somebody else: found by its entry point, under the promises of all committers, and quire's own jobs use it, too."""

from __future__ import annotations

from pathlib import Path

import pytest

import quire
from gathering import documents, gather, refused, write
from quire import committers
from quire.committers import lab
from quire.committers.lab import tested
from quire.committers.lab.places import place_of
from quire.errors import FormatError, UsageError
from services.committing import *  # noqa: F403 (the tests, by whatever names they have)


def register(folder: Path, name: str, what: str) -> None:
    """As an installer does it."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[quire.committers]\n{name} = {what}\n")


def test_a_job_of_quire_s_own_takes_it_by_its_name(tmp_path: Path) -> None:
    assert "ferry" in committers.known()
    source, dest = write(tmp_path / "in", documents(5)), tmp_path / "out"
    report = gather(source, dest, committer="ferry")
    assert (report.files, gather(source, dest, committer="ferry").skipped) == (5, 5)
    assert quire.Ledger(dest).verify(spark=quire.LocalRunner()).ok
    assert not list((dest / "_quire" / "jobs").glob("*"))
    assert committers.OutputCommitter(tmp_path / "other").committer == "rename", "auto stays one of quire's"


def test_the_lab_tries_it_by_its_name(tmp_path: Path) -> None:
    mine = lab.UnderTest("mine", quire="ferry")
    for one in ("quire_ferry", mine):
        found = tested.chosen(one)[0]
        assert found.quire == "ferry"
        tested.check(found, place_of(tmp_path / "out", tmp_path, None))


def test_what_others_have_written_by_path_counts(tmp_path: Path) -> None:
    by = committers.OutputCommitter(tmp_path / "out", "ferry")
    job = by.setup_job(1)
    attempt = by.setup_task(job, 0)
    folder = Path(attempt.work_path.removeprefix("file://"))
    folder.mkdir(parents=True)
    (folder / "a.csv").write_text("1,2\n")
    by.commit_task(attempt)
    assert by.commit_job(job).bytes == 4


def test_names_of_committers_that_nobody_brings_are_one_line(tmp_path: Path) -> None:
    with refused(UsageError, 2, "unknown committer 'fery'", "Did you mean 'ferry'?"):
        committers.OutputCommitter(tmp_path, "fery")


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("no_such_module_anywhere:X", "cannot be loaded: No module named 'no_such_module_anywhere'. Install it again"),
        ("ferry:Ferry", "calls itself 'ferry', so it cannot be used"),
        ("builtins:object", "has no serves, create, handle"),
    ],
)
def test_a_committer_that_is_none_is_one_line(what: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(tmp_path / "site", "broken", what)
    monkeypatch.syspath_prepend(tmp_path / "site")
    with refused(UsageError, 2, "the committer 'broken' of the package broken", said):
        committers.OutputCommitter(tmp_path / "out", "broken")
    gather(write(tmp_path / "in", documents(2)), tmp_path / "out")  # nobody else is disturbed


def test_a_name_of_quire_s_own_cannot_be_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(tmp_path / "site", "rename", "ferry:Ferry")
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert committers.known().count("rename") == 1
    gather(write(tmp_path / "in", documents(2)), tmp_path / "out", committer="rename")


def test_its_jobs_wait_where_it_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An open job, or one that is not published, is told in one line, and goes on where the package is."""
    by = committers.OutputCommitter(tmp_path / "out", "ferry")
    job = by.setup_job(1, "orders")
    attempt = by.setup_task(job, 0)
    with attempt.create("a.txt") as file:
        file.write(b"1\n")
    by.commit_task(attempt)
    with monkeypatch.context() as patch:
        patch.setattr("quire.packaging.Registry.brought", lambda *_: {})
        with refused(FormatError, 2, "'ferry' is not a committer that this quire knows", "install the package that brings it"):
            committers.OutputCommitter(tmp_path / "out").commit_job(job)
    assert by.commit_job(job).bytes == 2
