"""The place where the first load of a topic begins: its earliest record, what comes from now on, or a time.

All that lies before is marked in the ledger as done elsewhere, so later calls, whatever they say, never load it.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from quire.errors import UsageError, choose, quoted
from quire.sources.kafka.client import Cluster
from quire.sources.kafka.topics import Key
from quire.sources.kafka.until import moment_of
from quire.storage import OnRetry

EARLIEST, LATEST = "earliest", "latest"


@dataclass(frozen=True)
class Start:
    """The end that a topic has now, or a moment (ms since 1970); without either the earliest record.

    `since`: the ends when the call began, where it knows them: what came later is loaded, whichever of its runs is the first to commit.
    """

    latest: bool = False
    moment: int | None = None
    since: Mapping[Key, int] | None = field(default=None, repr=False, compare=False)

    @classmethod
    def parsed(cls, given: object) -> Start:
        """The meaning of `start=`; UsageError for any other value."""
        if isinstance(given, str) and (given in (EARLIEST, LATEST) or given.isalpha()):
            return cls(latest=choose(given, (EARLIEST, LATEST), "start") == LATEST)
        if isinstance(given, str):
            try:
                given = dt.datetime.fromisoformat(given)
            except ValueError:
                raise _wrong(given) from None
        if not isinstance(given, dt.datetime):
            raise _wrong(given)
        moment = moment_of(given)
        if moment > time.time() * 1000:
            raise UsageError(
                f"start={given.isoformat()} lies in the future: all that is there would count as done, for good. Give a time that has "
                f"passed, or 'latest' for what comes from now on."
            )
        return cls(moment=moment)

    def __str__(self) -> str:
        return LATEST if self.latest else EARLIEST if self.moment is None else f"{self.moment} ms"

    def begins(
        self, cluster: Cluster, new: Iterable[Key], ends: Mapping[Key, int], known: Iterable[str], on_retry: OnRetry
    ) -> dict[Key, int]:  # fmt: skip
        """Where partitions begin that are `new` to the ledger; what is left out begins at its earliest record.

        A partition that was added to a topic (`known`) since it is loaded has nothing but records that came after "latest"; likewise one
        that was not there when the call began.
        """
        if self.latest:
            topics, now = set(known), ends if self.since is None else self.since
            return {key: now[key] for key in new if key in now and key.topic not in topics}
        if self.moment is None:
            return {}
        found = cluster.at(new, self.moment, on_retry)
        return {key: ends[key] if at < 0 else at for key, at in found.items()}


def _wrong(given: object) -> UsageError:
    return UsageError(f"start={quoted(given, 80)} says no place: give 'earliest', 'latest', or a time as '2026-11-22T08:00:00+01:00'.")
