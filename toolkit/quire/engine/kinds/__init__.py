"""The kinds of input: each has an object that reads the splits of a task into its attempt. The engine finds it by name.

Other packages bring their own: an entry point of the group `quire.kinds` names the class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from quire.commit.entries import PlanHead
from quire.errors import FormatError
from quire.packaging import Registry

if TYPE_CHECKING:
    from quire.engine.attempt import Attempt
    from quire.planning.listing import Run

__all__ = ["REGISTRY", "Kind", "of"]


class Kind(Protocol):
    """How one kind of input is read."""

    name: str
    phase: str  # what a progress line calls its work

    def attempt(self, attempt: Attempt, source: Any, runs: list[Run]) -> None:
        """Read the rows of a plan that are of one source; write what becomes of them with its rows, and count it.

        Where a part was written that must not count, it raises `Again` with what the next try of the attempt must know.
        """
        ...


REGISTRY = Registry(
    "quire.kinds", "kind of input {!r}",
    {
        "files": "quire.engine.kinds.files:FilesKind",
        "splits": "quire.engine.kinds.splits:SplitsKind",
        "offsets": "quire.engine.kinds.offsets:OffsetsKind",
        "claim": "quire.engine.kinds.claim:ClaimKind",
    },
    needs=("attempt",), docs="quire.engine.kinds.Kind",
)  # fmt: skip


def of(head: PlanHead) -> Kind:
    """The kind of input that a job reads; FormatError if nobody brings it."""
    found: Kind | None = REGISTRY.make(head.words.kind)
    if found is None:
        raise FormatError(
            f"the plan of job {head.job} reads {head.words.kind[:80]!r}, and this quire knows no such kind of input "
            f"({', '.join(REGISTRY.known())}): nothing was read. Update quire, install the package that brings it, or look who wrote it."
        )
    return found
