"""The closers of output: each writes, after all tasks of a job, what the job shows, in one task more. The engine finds it by name.

Other packages bring their own: an entry point of the group `quire.closers` names the class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from quire.commit.closers import named
from quire.commit.entries import Entry, PlanHead, Task
from quire.commit.log import Log
from quire.progress import Progress
from quire.spark.runner import Runner

if TYPE_CHECKING:
    from quire.engine.attempt import Work

Reduce = Callable[[Any], Any]  # DataFrame → DataFrame; without Spark pyarrow.Table → pyarrow.Table


class Closer(Protocol):
    """How one kind of job is closed. It may also have a step of its own before `published`: `quire.commit.closers.Finishing`."""

    name: str

    def close(
        self, runner: Runner, log: Log, work: Work, tasks: list[Task], reduce: Reduce | None, progress: Progress
    ) -> list[Task] | None:
        """All results of a job, with that of its last task; None: the job is over.

        The last task's manifest is put if absent, and the one that is there counts, whoever wrote it. `tasks` are the results of the
        others, `reduce` is the call's own function, which no plan can hold.
        """
        ...


@runtime_checkable
class Rounds(Protocol):
    """An offer that a closer may make beside: what it has made may be outdated when the log is read again, and then it closes once more."""

    def ready(self, done: Task, log: Log) -> bool | Entry:
        """Whether its last task, as `close` has given it, may be committed at the log's tip; an entry that has to stand in the log first.

        False: the round is over, and stays so for every driver, as the log only grows; `close` is called for the next one.
        """
        ...


def of(head: PlanHead) -> Closer:
    """The closer of a job; FormatError if nobody brings it."""
    found: Closer = named(head.closer, head.job, "nothing was committed")
    return found
