"""The closers of output: each writes, after all tasks of a job, what the job shows, in one task more. The engine finds it by name.

Other packages bring their own: an entry point of the group `quire.closers` names the class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from quire.commit.entries import PlanHead, Task
from quire.commit.log import Log
from quire.errors import FormatError
from quire.packaging import Registry
from quire.progress import Progress
from quire.spark.runner import Runner

if TYPE_CHECKING:
    from quire.engine.attempt import Work

__all__ = ["REGISTRY", "Closer", "Reduce", "of"]

Reduce = Callable[[Any], Any]  # DataFrame → DataFrame; without Spark pyarrow.Table → pyarrow.Table


class Closer(Protocol):
    """How one kind of job is closed."""

    name: str

    def close(
        self, runner: Runner, log: Log, work: Work, tasks: list[Task], reduce: Reduce | None, progress: Progress
    ) -> list[Task] | None:
        """All results of a job, with that of its last task; None: the job is over.

        The last task's manifest is put if absent, and the one that is there counts, whoever wrote it. `tasks` are the results of the
        others, `reduce` is the call's own function, which no plan can hold.
        """
        ...


REGISTRY = Registry(
    "quire.closers", "closer {!r}", {"shuffle": "quire.engine.closers.shuffle:ShuffleCloser"}, needs=("close",),
    docs="quire.engine.closers.Closer",
)  # fmt: skip


def of(head: PlanHead) -> Closer:
    """The closer of a job; FormatError if nobody brings it."""
    found: Closer | None = REGISTRY.make(head.closer)
    if found is None:
        raise FormatError(
            f"job {head.job} is closed by {head.closer[:80]!r}, and this quire knows no such closer ({', '.join(REGISTRY.known())}): "
            f"nothing was committed. Update quire, install the package that brings it, or look who wrote it."
        )
    return found
