"""The closers of jobs by name, and the step that one may add between the data files of a commit and its entry `published`.

A closer writes all that its job shows (`quire.engine.closers`). Whoever publishes looks it up by the name in the commit's entry.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from quire.commit.entries import CLAIM, TABLE, Commit, Entry
from quire.errors import FormatError
from quire.packaging import Registry
from quire.storage import Store
from quire.storage.within import is_table

if TYPE_CHECKING:
    import pyarrow as pa

    from quire.commit.log import Log


@runtime_checkable
class Finishing(Protocol):
    """An offer that a closer may make beside: a step of its own in each publication, as a table's completed instant."""

    def before_published(self, store: Store, commit: Commit, number: int) -> None:
        """Complete a commit whose data files are all in place, from its entry alone, which has a `number`; `published` follows.

        Anyone may call it, again and again, several at once, also after a crash and where the log says `published` by now. Where output
        was lost it is not called: such a commit does not count.
        """
        ...


@runtime_checkable
class Guarding(Protocol):
    """An offer that a closer may make beside: to look whether a commit can be completed, before a data file of it goes to its place."""

    def before_moved(self, store: Store, commit: Commit) -> None:
        """RefusedError where it cannot: then nothing of it is moved, and it stays committed and not published."""
        ...


@runtime_checkable
class Locking(Protocol):
    """An offer that a closer may make beside: to hold a lock of programs without quire, from the last look at what they did to the
    publication.
    """

    def locked(self, store: Store) -> AbstractContextManager[None]:
        """Hold it for a `with` block; within one that holds it already, nothing is done. It may wait."""
        ...


@runtime_checkable
class Following(Protocol):
    """An offer that a closer may make beside: to read what programs without quire have done to a destination, as to a table's timeline."""

    def follow(self, log: Log) -> Entry | None:
        """The entry that the log, read to its tip, needs for it; None: it says it already. Each call asks before anything else."""
        ...


@runtime_checkable
class Cleaning(Protocol):
    """An offer that a closer may make beside: to tell which data files of older commits were deleted on purpose."""

    def cleaned(self, store: Store) -> Callable[[str], bool]:
        """Whether a data file is not there any more, and nobody who reads the newest rows looks for it; as of this look."""
        ...


@runtime_checkable
class Holding(Protocol):
    """An offer that a closer may make beside: to tell which versions of its destination cannot be read any more."""

    def check_readable(self, log: Log, version: int) -> None:
        """UsageError where what readers of a version need is gone: a pin of it would hold nothing."""
        ...


@runtime_checkable
class Offering(Protocol):
    """An offer that a closer may make beside: to tell which files of now readers without quire can be offered, as a table's base files."""

    def check_offered(self, store: Store) -> None:
        """RefusedError where whole files do not hold the rows."""
        ...

    def data_files(self, log: Log) -> dict[str, int]:
        """The name and bytes of each data file of now. TransientError where listings lag behind the log."""
        ...

    def columns(self, store: Store) -> pa.Schema:
        """The columns of now."""
        ...


REGISTRY = Registry(
    "quire.closers", "closer {!r}",
    {"shuffle": "quire.engine.closers.shuffle:ShuffleCloser", "table": "quire.table.closer:TableCloser"},
    needs=("close",), reserved=(CLAIM,), docs="quire.engine.closers.Closer",
)  # fmt: skip


def named(name: str, job: str, state: str) -> Any:
    """The closer of a job; FormatError if nobody brings it, which says in which state the job stays."""
    found = REGISTRY.make(name)
    if found is None:
        raise FormatError(
            f"job {job} is closed by {name[:80]!r}, and this quire knows no such closer ({', '.join(REGISTRY.known())}): {state}. "
            f"Update quire, install the package that brings it, or look who wrote it."
        )
    return found


def follower(store: Store) -> Following | None:
    """The closer that reads what others have done to the destination at `store`; None: nobody but quire writes there."""
    found = REGISTRY.make(TABLE) if is_table(store) else None
    return found if isinstance(found, Following) else None


def cleaner(store: Store) -> Cleaning | None:
    """The closer whose destination at `store` loses files of older commits; None: it keeps them."""
    found = REGISTRY.make(TABLE) if is_table(store) else None
    return found if isinstance(found, Cleaning) else None


def offering(store: Store) -> Offering | None:
    """The closer that tells the data files of now of the destination at `store`; None: its log tells them."""
    found = REGISTRY.make(TABLE) if is_table(store) else None
    return found if isinstance(found, Offering) else None


def check_readable(log: Log, version: int) -> None:
    """UsageError where a version of a destination cannot be read any more, although the log does not say that it has expired."""
    found = REGISTRY.make(TABLE) if is_table(log.store) else None
    if isinstance(found, Holding):
        found.check_readable(log, version)


def locked(store: Store) -> AbstractContextManager[None]:
    """Hold what keeps other programs out of the destination at `store`, where there is such a thing."""
    found = REGISTRY.make(TABLE) if is_table(store) else None
    return found.locked(store) if isinstance(found, Locking) else nullcontext()


def step(commit: Commit) -> Finishing | None:
    """The closer of a commit, where it has a step of its own; a claim is closed by a user's block, which has none."""
    if commit.closer in ("", CLAIM):
        return None
    found = named(commit.closer, commit.job, "it is committed, and not published")
    return found if isinstance(found, Finishing) else None
