"""How far a call loads: up to an offset, or up to a time."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from quire.errors import UsageError, quoted
from quire.sources.kafka.client import Cluster
from quire.sources.kafka.topics import Key
from quire.storage import OnRetry

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Until:
    """One offset for all partitions, one for some of them, or a moment (ms since 1970)."""

    offset: int | None = None
    offsets: Mapping[Key | int, int] = field(default_factory=dict)
    moment: int | None = None

    @classmethod
    def parsed(cls, given: object) -> Until:
        """The meaning of `until=`; UsageError for any other value."""
        if isinstance(given, Mapping):
            if not given:
                raise _wrong(given)
            return cls(offsets={_key(key, given): _offset(value) for key, value in given.items()})
        if isinstance(given, str):
            try:
                given = dt.datetime.fromisoformat(given)
            except ValueError:
                raise _wrong(given) from None
        if isinstance(given, dt.datetime):
            moment = moment_of(given)
            if moment > time.time() * 1000:
                raise UsageError(f"until={given.isoformat()} lies in the future, and what comes until then is not there. Leave it out.")
            return cls(moment=moment)
        return cls(offset=_offset(given))

    def __str__(self) -> str:
        if self.moment is not None:
            return f"{self.moment} ms"
        return str(self.offset) if self.offset is not None else str(sorted((str(k), v) for k, v in self.offsets.items()))

    def ends(self, cluster: Cluster, ends: Mapping[Key, int], on_retry: OnRetry, *, first: bool) -> dict[Key, int]:
        """Where each partition's loading ends; UsageError for what lies beyond its end, or, of a `first` load, before all that is there."""
        if self.moment is not None:
            found = cluster.at(ends, self.moment, on_retry)
            chosen = {key: end if found[key] < 0 else min(found[key], end) for key, end in ends.items()}
            if first:
                _check_some(cluster, chosen, ends, on_retry)
            return chosen
        wanted = dict[Key, int]()
        for key in ends:
            own = self.offsets.get(key, self.offsets.get(key.partition)) if self.offset is None else self.offset
            if own is not None:
                wanted[key] = own
        for named in self.offsets:
            if not any(named in (k, k.partition) for k in wanted):
                raise UsageError(f"until= names partition {_shown(named)}, which is not there.")
        for key, offset in wanted.items():
            if offset > ends[key]:
                raise UsageError(
                    f"until={offset:,} lies beyond the end of {key.topic} partition {key.partition}, which is {ends[key]:,}: nothing was "
                    f"read. Leave it out to load what is there."
                )
        if first:
            _check_some(cluster, wanted, ends, on_retry)
        return {key: wanted.get(key, end) for key, end in ends.items()}


def moment_of(given: dt.datetime) -> int:
    """A time as milliseconds since 1970; without a zone it is UTC. To a broker, numbers below 0 mean the end, or the beginning."""
    given = given if given.tzinfo is not None else given.replace(tzinfo=dt.UTC)
    return max(0, -((_EPOCH - given) // dt.timedelta(milliseconds=1)))


def _check_some(cluster: Cluster, wanted: Mapping[Key, int], ends: Mapping[Key, int], on_retry: OnRetry) -> None:
    """Refuse to load nothing at all where there is something."""
    starts = cluster.starts(wanted, on_retry)
    late = [key for key in wanted if starts[key] < ends[key]]
    if late and all(wanted[key] <= starts[key] for key in late):
        raise UsageError(
            f"until= lies before the first record that is there: {late[0].topic} partition {late[0].partition} begins at "
            f"{starts[late[0]]:,}. Nothing was read."
        )


def _key(key: object, given: object) -> Key | int:
    if isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], str) and isinstance(key[1], int):
        return Key(*key)
    if isinstance(key, int) and not isinstance(key, bool):
        return key
    raise _wrong(given)


def _shown(key: Key | int) -> str:
    return f"{key.partition} of {key.topic}" if isinstance(key, Key) else str(key)


def _offset(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(value)
    if value.bit_length() > 63:
        raise UsageError("until= is a number that is not an offset: offsets end below 2**63.")
    if value < 0:
        raise UsageError(f"until={value:,} is below 0, and offsets begin there.")
    return value


def _wrong(given: object) -> UsageError:
    return UsageError(
        f"until={quoted(given, 80)} says no place: give an offset, {{partition: offset}}, {{(topic, partition): offset}}, or a time as "
        f"'2026-11-22T08:00:00+01:00'."
    )
