"""The promises of a committer, as tests that any committer can be put under, through the interface that users call.

Whoever writes a committer gives two fixtures and takes the tests in (docs/committers.md has the whole of it):

    # conftest.py
    @pytest.fixture
    def committer_name() -> str:
        return "ferry"

    @pytest.fixture
    def trial(committer_name, tmp_path) -> Trial:       # a new and empty place in a store that it serves
        return Trial(committer_name, f"file://{tmp_path}/out")

    # test_mine.py
    from services.committing import *

One whose output readers of the directory see early says so by `leaks = True`, and all else must hold.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

import quire
import sim
from matrix import PIPELINES
from quire.commit import protocol
from quire.commit.committers import committer
from quire.committers import Job, OutputCommitter, TaskAttempt, run
from quire.errors import QuireError, RefusedError, StorageError, UsageError
from quire.storage import Store, connect, normalise
from sim import ways
from sim.ways import By, Case

__all__ = [
    "Trial",
    "test_a_commit_that_died_is_made_good_by_anyone",
    "test_a_job_that_is_given_up_leaves_nothing",
    "test_a_process_may_die_at_any_operation",
    "test_a_store_that_answers_wrongly_is_asked_again",
    "test_an_attempt_that_comes_too_late_shows_nothing",
    "test_an_attempt_that_failed_leaves_nothing",
    "test_another_process_goes_on_with_a_job",
    "test_jobs_at_once_do_not_touch_each_other",
    "test_nothing_shows_before_commit_job_and_then_everything",
    "test_of_several_attempts_of_a_task_one_counts",
    "test_output_is_what_was_written",
]

MiB = 1 << 20


@dataclass(frozen=True)
class Trial:
    """A committer, and a new and empty place for it."""

    name: str
    url: str
    options: Any = None

    def process(self) -> OutputCommitter:
        """The committer as another process makes it."""
        return OutputCommitter(self.url, self.name, storage_options=self.options)

    @property
    def store(self) -> Store:
        return connect(normalise(self.url), self.options)

    @property
    def leaks(self) -> bool:
        return committer(self.name, self.store).leaks

    def seen(self) -> list[bytes]:
        """What a reader of the directory sees."""
        store = self.store
        return sorted(store.get(e.name) for e in store.walk() if not e.name.startswith("_quire/"))

    def check(self, *expected: bytes) -> None:
        """Each of them is there once, in the directory and in the ledger, and of all jobs nothing else is left."""
        quire.recover(self.url, storage_options=self.options)
        store = self.store
        assert self.seen() == sorted(expected)
        left = [e.name for e in store.walk("_quire") if not e.name.startswith("_quire/log/0")]
        assert not left, f"left over: {left}"
        if store.can_upload and not store.pieces_expire:
            assert list(store.pending()) == []
        ledger = quire.Ledger(self.url, self.options)
        files = ledger.inspect.files("arrow").to_pylist()
        assert sorted(store.get(file["data_file"]) for file in files) == sorted(expected)
        assert all(file["bytes"] == len(store.get(file["data_file"])) for file in files)
        assert ledger.verify(spark=quire.LocalRunner()).ok


def written(by: OutputCommitter, job: Job, task: int, *contents: bytes) -> TaskAttempt:
    """An attempt that has written some files."""
    attempt = by.setup_task(job, task)
    for content in contents:
        with attempt.create("out.txt") as file:
            file.write(content)
    return attempt


# ------------------------------------------------------------------------------------------------ what a reader sees
def test_nothing_shows_before_commit_job_and_then_everything(trial: Trial) -> None:
    by = trial.process()
    job = by.setup_job(2)
    first, second = written(by, job, 0, b"one\n", b"two\n"), written(by, job, 1, b"three\n")
    assert trial.seen() == []
    for attempt in (first, second):
        assert by.needs_task_commit(attempt)
        assert by.commit_task(attempt)
        assert not by.needs_task_commit(attempt)
        assert by.commit_task(attempt), "called again it answers the same"
        assert trial.leaks or trial.seen() == []
    assert trial.leaks == bool(trial.seen())
    done = by.commit_job(job)
    assert (done.data_files, done.bytes, by.state(job)) == (3, 14, "published")
    trial.check(b"one\n", b"two\n", b"three\n")


def test_output_is_what_was_written(trial: Trial) -> None:
    """Long, in many pieces, empty, in directories; a task without any; each file whole, and of its own name's kind."""
    rng, long = random.Random(7), hashlib.sha256()
    by = trial.process()
    job = by.setup_job(3)
    attempt = by.setup_task(job, 0)
    with attempt.create("day=1/deep down/größe.txt") as file:
        for _ in range(40):
            piece = rng.randbytes(rng.choice((1, 70_000, MiB // 2))) + b"\n"
            long.update(piece)
            assert file.write(piece) == len(piece)
    with attempt.create("day=2/empty.txt"):
        pass
    assert by.commit_task(attempt)
    assert by.commit_task(by.setup_task(job, 1)), "a task without output is done, too"
    assert by.commit_task(written(by, job, 2))
    assert by.commit_job(job).data_files == 2
    store = trial.store
    found = {e.name: store.get(e.name) for e in store.walk() if not e.name.startswith("_quire/")}
    assert sorted(name.rpartition("/")[0] for name in found) == ["day=1/deep down", "day=2"]
    assert all(name.endswith(".txt") for name in found)
    assert sorted(hashlib.sha256(data).hexdigest() for data in found.values()) == sorted([long.hexdigest(), hashlib.sha256().hexdigest()])
    trial.check(*found.values())


# ------------------------------------------------------------------------------------------------------ attempts
def test_of_several_attempts_of_a_task_one_counts(trial: Trial) -> None:
    """Speculation, also with attempts that end in the same moment."""
    by = trial.process()
    job = by.setup_job(2)
    slow, quick = written(by, job, 0, b"slow\n"), written(by, job, 0, b"quick\n")
    assert by.commit_task(quick)
    assert not by.needs_task_commit(slow)
    assert not by.commit_task(slow)
    by.abort_task(slow)  # as a framework may do all the same

    def attempt(i: int) -> bool:
        own = trial.process()
        return own.commit_task(written(own, job, 1, b"%d\n" % i))

    with ThreadPoolExecutor(4) as pool:
        won = list(pool.map(attempt, range(4)))
    assert won.count(True) == 1
    by.commit_job(job)
    if not trial.leaks:
        assert trial.seen() == sorted([b"quick\n", b"%d\n" % won.index(True)])
    trial.check(b"quick\n", b"%d\n" % won.index(True))


def test_an_attempt_that_failed_leaves_nothing(trial: Trial) -> None:
    by = trial.process()
    job = by.setup_job(1)
    failed = by.setup_task(job, 0)
    with failed.create("a.txt") as file:
        file.write(b"whole\n")
    with pytest.raises(ZeroDivisionError), failed.create("b.txt") as file:
        file.write(b"half" + b"%d" % (1 // 0))
    with pytest.raises(UsageError, match="not written to its end"):
        by.commit_task(failed)
    by.abort_task(failed)
    by.abort_task(failed)
    with pytest.raises(UsageError, match="is aborted"):
        by.commit_task(failed)
    assert by.commit_task(written(by, job, 0, b"the next one\n"))
    with pytest.raises(RefusedError, match="not committed: nothing is visible"):
        by.commit_job(two := by.setup_job(2, "another"))
    by.abort_job(two)
    by.commit_job(job)
    trial.check(b"the next one\n")


def test_an_attempt_that_comes_too_late_shows_nothing(trial: Trial) -> None:
    """A zombie, whose job was committed or given up without it."""
    by = trial.process()
    given_up, committed = by.setup_job(1), by.setup_job(1)
    late, later = written(by, given_up, 0, b"zombie\n"), written(by, committed, 0, b"zombie too\n")
    by.abort_job(given_up)
    by.commit_task(written(by, committed, 0, b"it\n"))
    by.commit_job(committed)
    for attempt in (late, later):
        assert not by.needs_task_commit(attempt)
        with pytest.raises(QuireError, match="no task of it counts any more"):
            by.commit_task(attempt)
        by.abort_task(attempt)
        with pytest.raises(QuireError, match="no task of it counts any more"):
            by.setup_task(given_up if attempt is late else committed, 0)
    trial.check(b"it\n")


# ---------------------------------------------------------------------------------------------------------- jobs
def test_a_job_that_is_given_up_leaves_nothing(trial: Trial) -> None:
    """By the one who has begun it, or by its id alone; with a committed task, an open one, and one that was abandoned."""
    by = trial.process()
    for give_up in (
        lambda job: by.abort_job(job, "I do not want it"),
        lambda job: trial.process().abort_job(job.id),
        lambda job: quire.recover(trial.url, abort=job.id, storage_options=trial.options),
    ):
        job = by.setup_job(3, "the same name")
        assert by.commit_task(written(by, job, 0, b"committed\n"))
        written(by, job, 1, b"abandoned\n")
        by.setup_task(job, 2).create("open.txt").write(b"half of it")
        give_up(job)
        assert by.state(job) == "aborted"
        assert not by.is_commit_job_repeatable(job)
        assert not by.is_recovery_supported(job)
        by.abort_job(job)
        with pytest.raises(QuireError, match="was given up"):
            by.commit_job(job)
        trial.check()


def test_another_process_goes_on_with_a_job(trial: Trial) -> None:
    by = trial.process()
    job = by.setup_job(3, "orders")
    assert not job.restarted
    by.commit_task(written(by, job, 1, b"of the first driver\n"))
    written(by, job, 0, b"of an attempt that died\n")
    other = trial.process()
    again = other.setup_job(3, "orders")
    assert (again, again.restarted, other.job(job.id)) == (job, True, job)
    assert other.is_commit_job_repeatable(again)
    assert other.is_recovery_supported(again)
    assert [other.recover_task(again, task) for task in range(3)] == [False, True, False]
    for task in (0, 2):
        other.commit_task(written(other, again, task, b"of the second\n"))
    other.commit_job(again)
    trial.check(b"of the first driver\n", b"of the second\n", b"of the second\n")
    done = trial.process()
    over = done.setup_job(3, "orders")
    assert (over.id, over.restarted, done.state(over)) == (job.id, True, "published")
    assert done.recover_task(over, 2)
    assert done.commit_job(over) == other.commit_job(again) == by.commit_job(job), "again, by anyone: nothing more"
    with pytest.raises(RefusedError, match="is committed"):
        by.abort_job(job)
    trial.check(b"of the first driver\n", b"of the second\n", b"of the second\n")


def test_a_commit_that_died_is_made_good_by_anyone(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry is in the log, and the process dies: the files come to their places by the next one who comes by."""
    goes_on: list[Callable[[Job], object]] = [
        lambda job: trial.process().commit_job(job),
        lambda _: quire.recover(trial.url, storage_options=trial.options),
        lambda job: trial.process().setup_job(1, job.name),
        lambda _: trial.process().setup_job(1, "gives up at once") and None,
    ]
    expected = []
    for i, go_on in enumerate(goes_on):
        by = trial.process()
        job = by.setup_job(1, f"job {i}")
        expected.append(b"%d\n" % i)
        by.commit_task(written(by, job, 0, expected[-1]))
        with monkeypatch.context() as patch:
            patch.setattr(protocol, "publish", _dies)
            with pytest.raises(StorageError, match="is committed: call again"):
                by.commit_job(job)
        assert by.state(job) == "committed"
        with pytest.raises(RefusedError, match="is committed"):
            by.abort_job(job)
        go_on(job)
        assert trial.process().state(job) == "published"
    by.abort_job(by.setup_job(1, "gives up at once"))
    trial.check(*expected)


def _dies(*_: object) -> None:
    raise StorageError("the network is gone")


def test_jobs_at_once_do_not_touch_each_other(trial: Trial) -> None:
    def one(i: int) -> int:
        def write(attempt: TaskAttempt) -> None:
            with attempt.create("x.txt") as file:
                file.write(b"%d %d\n" % (i, attempt.task))

        return run(
            write, trial.url, 2, spark=quire.LocalRunner(), name=f"job {i}", committer=trial.name, storage_options=trial.options
        ).data_files

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(one, range(3))) == [2, 2, 2]
    trial.check(*(b"%d %d\n" % (i, task) for i in range(3) for task in range(2)))


# ------------------------------------------------------------------------------------------------------- disturbed
@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    yield
    sim.forget_all()


def simulated(name: str) -> list[Case]:
    """A job through the interface, in simulated stores that the committer serves: with a rename, and without."""
    found = []
    for kind in (sim.KINDS["hdfs"], sim.KINDS["s3"], sim.KINDS["azure"]):
        with sim.World(kind=kind).installed() as world:
            serves = name in [by.name for by in protocol.serving(world.store(world.dest), name)]
        if serves:
            with sim.World(kind=kind).installed() as world:
                leaks = committer(name, world.store(world.dest)).leaks
            found.append(Case(PIPELINES["write"], By(name, "", leaks), kind))
    assert found, f"none of the simulated stores is one that {name} serves"
    return found


@pytest.mark.nth(2)
def test_a_process_may_die_at_any_operation(committer_name: str) -> None:
    """Before and after each one of the store: then the same name again makes it good, or it is given up by its id, and leaves nothing."""
    for case in simulated(committer_name):
        every = list(ways.crashes(case.fill()))
        # A death at a read is one before the next change: a few of them are enough.
        for scenario in [*ways.crashes(case, reads=False), *random.Random(5).sample(every, min(10, len(every)))]:
            scenario()
        for scenario in ways.some_pairs(case, 10, seed=5):
            scenario()
        for scenario in ways.expiries(case):
            scenario()
        assert case.by.leaks == bool(case.leaked)


@pytest.mark.nth(2)
def test_a_store_that_answers_wrongly_is_asked_again(committer_name: str) -> None:
    """One change, at each place, is answered by an error, though it happened, did not, or happens later; or the store is full."""
    for case in simulated(committer_name):
        answers = list(ways.answers(case.fill()))
        for scenario in [*answers[:: 3 if case.kind.uploads == "blocks" else 1], *ways.full(case, 4)]:
            scenario()
