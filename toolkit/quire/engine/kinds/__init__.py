"""The kinds of input: each has an object that reads the splits of a task into its attempt. The engine finds it by name.

Other packages bring their own: an entry point of the group `quire.kinds` names the class.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from quire.commit.entries import PlanHead, Stats
from quire.errors import FormatError
from quire.packaging import Registry

if TYPE_CHECKING:
    from quire.commit.log import Log
    from quire.engine.attempt import Attempt
    from quire.planning.listing import Listed, TaskRun
    from quire.planning.plan import Look

__all__ = ["REGISTRY", "Kind", "of"]


class Calling(Protocol):
    """The state of a call so far, for its report."""

    jobs: list[str]
    left: dict[str, str]  # what was left to the next call, and why
    skipped: int  # files that were done before, and how many of them were quarantined
    quarantined: int

    @property
    def stats(self) -> Stats:
        """The counts of its tasks."""
        ...


class Kind(Protocol):
    """How one kind of input is read."""

    name: str
    phase: str  # what a progress line calls its work
    noun: str  # what it reads, for messages

    def plan(self, look: Look) -> tuple[Listed, float]:
        """List what is there, take out what is done, write the rows of the plan; with bytes written for a byte read."""
        ...

    def attempt(self, attempt: Attempt, source: Any, runs: list[TaskRun]) -> None:
        """Read the rows of a plan that are of one source; write what becomes of them with its rows, and count it.

        Where a part was written that must not count, it raises `Again` with what the next try of the attempt must know.
        """
        ...

    def owns(self, path: str) -> bool:
        """Whether a path of the ledger is of this kind."""
        ...

    def split(self, path: str, start: int) -> str:
        """How a report names a split, or a record."""
        ...

    def taken(self, files: int, records: int) -> str:
        """How much a call has taken, in words."""
        ...

    def report(self, roots: Sequence[Any], call: Calling, log: Log) -> dict[str, str]:
        """Fields of the report: `source`; `failure`, which says that nothing of the input could be processed, else nothing; and `noun`,
        where it counts something else than files.
        """
        ...


REGISTRY = Registry(
    "quire.kinds", "kind of input {!r}",
    {
        "files": "quire.engine.kinds.files:FilesKind",
        "splits": "quire.engine.kinds.splits:SplitsKind",
        "offsets": "quire.engine.kinds.offsets:OffsetsKind",
        "claim": "quire.engine.kinds.claim:ClaimKind",
        "commits": "quire.table.source:CommitsKind",
    },
    needs=("plan", "attempt", "owns", "split", "taken", "report"), texts=("phase", "noun"), docs="quire.engine.kinds.Kind",
)  # fmt: skip


def named(name: str, reader: str = "this call") -> Kind:
    """The kind of input of that name; FormatError if nobody brings it."""
    found: Kind | None = REGISTRY.make(name)
    if found is None:
        raise FormatError(
            f"{reader} reads {name[:80]!r}, and this quire knows no such kind of input "
            f"({', '.join(REGISTRY.known())}): nothing was read. Update quire, install the package that brings it, or look who wrote it."
        )
    return found


def of(head: PlanHead) -> Kind:
    """The kind of input that a job reads."""
    return named(head.spec.kind, f"the plan of job {head.job}")


def nothing_useful(call: Calling, files: int, records: int) -> str:
    """In words, that nothing of what a call has read was of use, but went into quarantine: so many files and records; else nothing."""
    useful = call.stats.gathered - call.stats.vain + call.stats.waiting  # splits of which something was taken
    if useful or call.left or not files + records:
        return ""
    aside = [f"{n:,} {what}{'s' * (n != 1)}" for n, what in ((files, "file"), (records, "record")) if n]
    return f"nothing that was read could be processed, and {' and '.join(aside)} went into quarantine"
