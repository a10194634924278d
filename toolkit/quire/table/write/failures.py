"""Failed tasks of a step: which of several says most, and the error that is raised for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from quire.errors import QuireError, StorageError, TransientError, UsageError, scrub
from quire.spark.runner import Failure, Outcome


def worst(failed: Sequence[Failure]) -> tuple[Failure, type[QuireError]]:
    """The failure that no other call mends, where there is one, and the kind of its error; what a busy store could not do comes last."""
    kinds = [(each, _kind(each)) for each in failed]
    return min(kinds, key=lambda each: (each[1] is TransientError, each[1] is QuireError))


def answers(outcomes: Sequence[Outcome], failing: str) -> list[dict[str, Any]]:
    """The answers of all tasks, or the error of the worst failure: `failing` says what was not done."""
    if failed := [each for each in outcomes if isinstance(each, Failure)]:
        one, kind = worst(failed)
        said = scrub(str(one).rstrip("."), 500)
        if kind is not QuireError:
            raise kind(one.text)
        kind = StorageError if one.kind == StorageError.__name__ else QuireError
        raise kind(f"{failing}: {said}. Nothing of this call is visible: call again.")
    return [each for each in outcomes if not isinstance(each, Failure)]


def _kind(failure: Failure) -> type[QuireError]:
    if failure.transient:
        return TransientError
    return UsageError if failure.kind == UsageError.__name__ else failure.kind_of_error
