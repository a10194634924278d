"""`quire.recover`: what others left behind is published and cleaned, unfinished work is given up on request and never otherwise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import quire
from checker import check, look
from gathering import documents, gather, refused, snapshot, write
from quire.commit import protocol
from quire.engine import job as jobs
from quire.errors import QuireError, UsageError
from quire.storage import connect


@pytest.fixture
def died(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a call that ends when it comes to a step of the protocol."""

    def run(step: str, source: Path, dest: Path, **settings: Any) -> str:
        def stop(*_: Any, **__: Any) -> None:
            raise QuireError("killed here")

        before = {p.name for p in dest.glob("_quire/jobs/*")}
        with monkeypatch.context() as patch:
            patch.setattr(jobs if step == "run" else protocol, step, stop)
            with pytest.raises(QuireError, match="killed here"):
                gather(source, dest, **settings)
        (job,) = {p.name for p in dest.glob("_quire/jobs/*")} - before
        return job

    return run


def test_where_all_is_well_nothing_happens(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(5))
    gather(source, tmp_path / "out")
    before = snapshot(tmp_path / "out")
    done = quire.recover(tmp_path / "out")
    assert (done.dest, done.published, done.given_up, done.open, done.version) == (f"file://{tmp_path}/out", (), (), (), 2)
    assert snapshot(tmp_path / "out") == before


def test_what_was_committed_is_published(tmp_path: Path, died: Any) -> None:
    source = write(tmp_path / "in", documents(5))
    job = died("publish", source, tmp_path / "out")
    assert not list((tmp_path / "out").glob("part-*"))
    done = quire.recover(str(tmp_path / "out"))
    assert (done.published, done.given_up, done.open, done.version) == ((job,), (), (), 2)
    check(source, tmp_path / "out")
    assert quire.recover(tmp_path / "out").published == ()


@pytest.mark.parametrize("step", ["run", "commit"])
@pytest.mark.parametrize("committer", ["rename", "rename_v2"])
def test_unfinished_work_stays_until_it_is_given_up(tmp_path: Path, died: Any, step: str, committer: str) -> None:
    source = write(tmp_path / "in", documents(5))
    job = died(step, source, tmp_path / "out", committer=committer)
    before = snapshot(tmp_path / "out")
    for _ in range(2):
        done = quire.recover(tmp_path / "out")
        assert (done.published, done.given_up, done.open, done.version) == ((), (), (job,), 0)
    assert snapshot(tmp_path / "out") == before
    done = quire.recover(tmp_path / "out", abort=job)
    assert (done.published, done.given_up, done.open, done.version) == ((), (job,), (), 1)
    assert [e["kind"] for e in look(tmp_path / "out").entries] == ["abort"]
    assert [p.name for p in (tmp_path / "out").rglob("*") if p.is_file()] == [f"{1:020d}.entry"], "nothing else is left"
    assert gather(source, tmp_path / "out", committer=committer).files == 5
    check(source, tmp_path / "out")


def test_open_gives_up_all_of_them_and_publishes_what_is_committed(tmp_path: Path, died: Any) -> None:
    source = write(tmp_path / "in", documents(6))
    dest = tmp_path / "out"
    one = died("commit", source, dest, include="f0000*")
    two = died("run", source, dest, include="f0001*")
    three = died("publish", source, dest, include="f0002*")
    assert len({one, two, three}) == 3
    report = gather(source, dest, include="f0003*")
    assert set(report.others) == {one, two}, "those of other calls are named"
    for job in (one, two):
        assert f"quire recover {dest} --abort {job}" in str(report)
    done = quire.recover(dest, abort="open")
    assert (set(done.given_up), done.open) == ({one, two}, ())
    assert gather(source, dest).files == 4
    check(source, dest)
    assert quire.recover(dest, abort="open").given_up == ()


def test_a_finished_job_is_not_another_calls_open_one(tmp_path: Path, died: Any) -> None:
    source = write(tmp_path / "in", documents(4))
    job = died("commit", source, tmp_path / "out")
    report = gather(source, tmp_path / "out")
    assert (report.others, report.jobs) == ((), (job,))
    check(source, tmp_path / "out")


def test_empty_directories_of_a_writer_that_died_before_its_first_file_go(tmp_path: Path) -> None:
    """Also of a job that nobody has heard of: it had not frozen its plan."""
    source, out = write(tmp_path / "in", documents(5)), tmp_path / "out"
    gather(source, out)
    (out / "_quire/jobs/7-0123456789abcdef/attempts/0-0123456789ab").mkdir(parents=True)
    quire.recover(out)
    assert not list(out.glob("_quire/jobs/*"))


def test_an_unknown_job_is_one_clear_line_that_names_the_open_ones(tmp_path: Path, died: Any) -> None:
    source = write(tmp_path / "in", documents(4))
    job = died("commit", source, tmp_path / "out")
    before = snapshot(tmp_path / "out")
    for unknown in ("0-0123456789abcdef", "nonsense", "../../etc", "", f"{job} "):
        with refused(UsageError, 2, "is not known", f"Open: {job}"):
            quire.recover(tmp_path / "out", abort=unknown)
    assert snapshot(tmp_path / "out") == before
    quire.recover(tmp_path / "out", abort=job)
    with refused(UsageError, 2, "is over already", "No job is open"):
        quire.recover(tmp_path / "out", abort=job)


def test_where_nothing_is_quires_is_one_clear_line_and_nothing_is_made(tmp_path: Path) -> None:
    write(tmp_path / "full", {"a": b"a"})
    for place in ("full", "nothing", "full/a"):
        with refused(UsageError, 2, "nothing of quire's", place):
            quire.recover(tmp_path / place, abort="open")
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a", "full"]


def test_how_it_shows_itself(tmp_path: Path, died: Any) -> None:
    source = write(tmp_path / "in", documents(2))
    job = died("commit", source, tmp_path / "out")
    done = quire.recover(tmp_path / "out")
    assert job in str(done)
    assert job in done._repr_html_()
    assert json.loads(json.dumps(done.as_dict()))["open"] == [job]
    assert repr(done).startswith("Recovered(dest=")


def test_in_memory_too() -> None:
    connect("memory://recover/in").put("x", b"x")
    gather("memory://recover/in", "memory://recover/out")
    assert quire.recover("memory://recover/out").version == 2


@pytest.mark.parametrize("other", [".DS_Store", "Thumbs.db", "copy of 0-0123456789abcdef/plan.entry", "0-0123456789ABCDEF/tasks/0.entry"])
def test_what_others_have_put_among_the_jobs_stops_nobody(tmp_path: Path, other: str) -> None:
    source, out = write(tmp_path / "in", documents(5)), tmp_path / "out"
    gather(source, out)
    write(out / "_quire/jobs", {other: b"not quire's"})
    write(source, {"new": b"1\n"})
    assert gather(source, out).files == 1
    assert quire.recover(out, abort="open").open == ()
    assert quire.Ledger(out).summary().open_jobs == ()
    assert (out / "_quire/jobs" / other).read_bytes() == b"not quire's"
