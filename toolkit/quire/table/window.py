"""The writes in a window of the timeline: those after an instant, up to another, in the order in which they count.

Where the timeline says when instants ended (layout 2), a write counts from then on, so that no window misses one that was begun before
it and ended in it. An instant of the timeline stands for when it ended there, each other time for itself.
"""

from __future__ import annotations

from collections.abc import Collection

from quire.errors import RefusedError
from quire.table.format.names import Instant
from quire.table.timeline import Timeline


def writes(line: Timeline, since: str, until: str) -> list[Instant]:
    """The completed writes after `since`, up to `until`. Raises RefusedError where some may have left the timeline."""
    since, until = (counts_from(line, each) for each in (since, until))
    if (first := first_known(line)) and since < first:
        raise RefusedError(
            f"{line.store.url} has archived instants before {line.first}, so changes since {since} are not all known. Ask for those since "
            f"{first} or later, or read a snapshot."
        )
    return sorted((each for each in line.completed if since < each.counts[0] <= until), key=lambda each: each.counts)


def counts_from(line: Timeline, instant: str) -> str:
    """The time for which an instant, or a time, of a user stands."""
    return line.ends(()).get(instant, instant)


def last_of(line: Timeline, instants: Collection[str]) -> tuple[str, str]:
    """When the last one of some instants counts, and which it is; also an archived one."""
    ends = line.ends(instants)
    return max((ends.get(each, each), each) for each in instants)


def first_known(line: Timeline) -> str:
    """The time since which all writes are on the timeline, one more at least being from then or before; "": all are there."""
    if not line.archived:
        return ""
    last = line.left.last() if line.left is not None else ""
    return max(last, min((each.counts[0] for each in line.completed), default=""))


def archived_since(line: Timeline, since: str) -> bool:
    """Whether there may be writes after `since` that have left the timeline: nobody can tell which."""
    return since < first_known(line)
