"""Records of a topic of which one of the same key was kept are left out: the window of a job, and what its attempts keep.

An attempt looks its records up in the window of the job's base, and in what it has kept itself. Its keys are compared with those of the
job's other tasks, and with what was committed since the base, before the commit (`coverage.keys.clashing`): a task that has a key of
theirs is dropped whole, and its ranges are planned again, on a base at which that key is known. So no decision is made twice, and none by
memory alone.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quire.commit import names
from quire.commit.entries import Keys
from quire.commit.log import Log
from quire.coverage import keys
from quire.coverage.deduplicate import Deduplicate, Prints, stored
from quire.coverage.known_keys import OwnKeys, held, rows_of
from quire.engine.attempt import Attempt
from quire.errors import RefusedError, UsageError
from quire.sources.decoders import Decoder
from quire.sources.kafka.deduplicate import check_column, of_values, prints
from quire.sources.kafka.records import FolderOutput, Loading, QuarantinedMessage

Array = npt.NDArray[Any]
Made = tuple[list[FolderOutput], list[QuarantinedMessage]]


def windowed(loading: Loading, log: Log, base: int) -> Loading:
    """With the window that records planned at a settled version are looked up in, where the call or the destination wants it."""
    said = loading.deduplicate or stored(log.deduplicates())
    if said is None or not said.by:
        return loading
    check_decodes(said, loading.function)
    return dataclasses.replace(loading, deduplicate=said, window=keys.window(log, said.by, said.within, base))


def check_decodes(said: Deduplicate, function: Any) -> None:
    """RefusedError where records are told apart by a column, and a call makes its columns in another way."""
    if said.column and not isinstance(function, Decoder):
        raise RefusedError(
            f"records are told apart by the column {said.column!r}, which only a decoder makes of each record alone: nothing was loaded. "
            f"Say decode= (to retry, function=quire.decoder(…)), or deduplicate='off'."
        )


class Kept:
    """The records that an attempt keeps; of the others it counts those that it leaves out."""

    def __init__(self, attempt: Attempt, window: keys.Window) -> None:
        self.attempt, self.window = attempt, window
        self.known, self.own = held(attempt.store, window), OwnKeys(window.within)
        self.paths = dict[tuple[str, str], int]()
        self.part = 0

    def of(self, path: str, version: str) -> None:
        """The next records are of this partition."""
        self.part = self.paths.setdefault((path, version), len(self.paths))

    def made(self, loading: Loading, records: pa.RecordBatch) -> Made:
        """A batch's output without records that are known, and those that were quarantined: of these no key is kept."""
        looked, offsets = self._looked(prints(self.window.by, records)), records.column("offset").to_numpy()
        left, parts, quarantined, kept = np.flatnonzero(~looked.known), list[FolderOutput](), list[QuarantinedMessage](), 0
        while len(left):
            first = looked.first(left, self.window.within)
            made, wrong = loading.made(_rows(records, left[first]))
            taken = left[first][~_are(offsets[left[first]], wrong)]
            self._keep(looked, offsets, taken)
            parts, quarantined, kept = parts + made, quarantined + wrong, kept + len(taken)
            left = left[~first]
            if wrong and len(left):
                left = left[~self._looked(looked.wanted.take(left)).known]
                # Where the first of a key is quarantined, the next one may be, too: those that are not taken do not stand for others.
                wrong = loading.made(_rows(records, left))[1] if len(left) else []
                quarantined, left = quarantined + wrong, left[~_are(offsets[left], wrong)]
            else:
                left = left[:0]
        self.attempt.tally.duplicates += records.num_rows - kept - len(quarantined)
        return parts, quarantined

    def rows(self, made: pa.RecordBatch, records: pa.RecordBatch, places: Sequence[int]) -> pa.RecordBatch:
        """The rows that a decoder has made without those of records that are known; `places`: of each row its record's."""
        column = Deduplicate(self.window.by).column
        if column not in made.schema.names:
            return made  # no record has a value there
        try:
            check_column(column, made.schema)
        except UsageError as e:
            raise RefusedError(str(e)) from None
        of = np.array(places, np.int64)
        looked = self._looked(of_values(made.column(column), records.column("timestamp").take(pa.array(of))))
        left = np.flatnonzero(~looked.known)
        stays = left[looked.first(left, self.window.within)]
        self._keep(looked, records.column("offset").to_numpy()[of], stays)
        self.attempt.tally.duplicates += made.num_rows - len(stays)
        return _rows(made, stays)

    def finish(self) -> Keys | None:
        """Put the keys of what was kept into an object beside the segment; None: no record has any."""
        count, attempt = len(self.own), self.attempt
        if not count:
            return None
        name = names.keys(attempt.work.head.job, attempt.task, attempt.id)
        last = self.own.put(attempt.store, name, [*self.paths])
        return Keys(name=name, count=count, by=self.window.by, within=self.window.within, last=last)

    def _looked(self, wanted: Prints) -> _Looked:
        order = np.argsort(wanted.high)
        known, in_order = np.zeros(len(order), np.bool_), wanted.take(order)
        known[order] = self.known.known(self.window, in_order) | self.own.known(in_order)
        again = np.flatnonzero(np.diff(in_order.high) == 0)
        several = np.zeros(len(order), np.bool_)
        several[order[again]] = several[order[again + 1]] = True
        return _Looked(wanted, order, known, several)

    def _keep(self, looked: _Looked, offsets: Array, rows: Array) -> None:
        kept = np.zeros(len(looked.order), np.bool_)
        kept[rows] = looked.wanted.told[rows]
        rows = looked.order[kept[looked.order]]  # in the order of their fingerprints: so they are added more quickly
        self.own.add(rows_of(looked.wanted.take(rows), offsets[rows], self.part))


class _Looked(NamedTuple):
    """Records that were looked up: which are known, and which have the first half of their fingerprint with another one.

    `order`: that of their fingerprints.
    """

    wanted: Prints
    order: Array
    known: Array
    several: Array

    def first(self, rows: Array, within: int) -> Array:
        """Which of the rows have no row of their key before them that is taken, at a time that is near enough."""
        found = np.ones(len(rows), np.bool_)
        told = np.flatnonzero(self.wanted.told[rows] & self.several[rows])
        high, low, at = (each[rows[told]] for each in (self.wanted.high, self.wanted.low, self.wanted.at))
        order = np.lexsort((low, high))  # rows of one key stay in their order
        same = (high[order][1:] == high[order][:-1]) & (low[order][1:] == low[order][:-1])
        groups = np.cumsum(np.append(0, ~same))[: len(told)]
        taken = defaultdict[int, list[int]](list)
        for group, place, time in zip(groups.tolist(), told[order].tolist(), at[order].tolist(), strict=True):
            times = taken[group]
            i = bisect_left(times, time - within)
            if i < len(times) and times[i] <= time + within:
                found[place] = False
            else:
                insort(times, time)
        return found


def _rows(batch: pa.RecordBatch, rows: Array) -> pa.RecordBatch:
    return batch if len(rows) == batch.num_rows else batch.take(pa.array(rows, pa.int64()))


def _are(offsets: Array, quarantined: Sequence[QuarantinedMessage]) -> Array:
    return np.isin(offsets, np.array([record.offset for record in quarantined], np.int64))
