"""Turns of writers: one whose rounds others have outdated again and again asks them to begin none before its next one is committed.

A round that takes a minute would never come in beside commits of seconds, each of which has a later instant. It is politeness and decides
nothing: who does not wait breaks no promise, and nobody waits much longer than that writer's last round took, lest it be dead.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from quire.commit import names
from quire.commit.entries import FORMAT, decode, encode, stored
from quire.commit.log import Log
from quire.errors import FormatError, NotFoundError
from quire.storage import Folder, retry

AFTER = 2  # rounds that were over
LONGEST = 900.0  # seconds that anybody waits
_LOOK = 0.5  # seconds between two looks


@stored
class Turn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="turn"):
    """The wish of a job, in its folder; `seconds`: so long its last round took."""

    seconds: float
    format: int = FORMAT


def ask(log: Log, job: str, seconds: float) -> None:
    """Ask the others to wait for the next round of a job; the wish goes with the job's folder."""
    log.store.put(names.turn(job), encode(Turn(seconds=seconds)))


def wait(log: Log, job: str, tell: Callable[[str], object]) -> None:
    """Wait while another job has its turn; of two that ask, the one whose name is the smaller."""
    since, told = dict[str, float](), ""  # when each was seen first
    while other := next((other for other in _asking(log, job) if _waits(log, other, since, tell)), None):
        if other != told:
            tell(f"waits for job {other}, which other commits have outdated {AFTER} times")
            told = other
        retry.pause(_LOOK)


def _asking(log: Log, job: str) -> list[str]:
    """The jobs for which this one waits."""
    there = [item.name.rpartition("/")[2] for item in log.store.scan(names.JOBS) if isinstance(item, Folder)]
    asking = sorted(other for other in there if log.store.stat(names.turn(other)) is not None)
    return asking[: asking.index(job)] if job in asking else asking


def _waits(log: Log, other: str, since: dict[str, float], tell: Callable[[str], object]) -> bool:
    """Whether the turn of another job is not over. One that nobody uses is taken away, for all."""
    try:
        turn: Turn = decode(log.store.get(names.turn(other)), Turn, f"{log.store.url}/{names.turn(other)}")
    except NotFoundError:
        return False
    except FormatError as e:  # a wish that nobody can read must not stop every writer
        tell(f"{e}: it is taken away, and nobody waits for job {other}")
        log.store.remove(names.turn(other))
        return False
    if log.refresh().outcome(other) is not None:
        return False
    began = since.setdefault(other, retry.clock())
    if retry.clock() - began <= min(LONGEST, 2 * turn.seconds + 10 * _LOOK):
        return True
    log.store.remove(names.turn(other))
    return False
