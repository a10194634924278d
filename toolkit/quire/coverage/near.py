"""The newest rows of the ledger, held from run to run of a call that goes on and on: it commits often, and each of its plans needs them.

They are what small segments since the newest checkpoint say at a settled version, as a piece of a checkpoint would say it: what is folded
up to there can never change, and a segment's name means one content for ever. So a run reads those that have come since, and none twice.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow.compute as pc

from quire.commit.held import Held
from quire.commit.log import Log
from quire.coverage import segments
from quire.coverage.fold import NEAR, Fold, Source

SMALL, MOST = 1_000, 20_000  # rows of a segment that is held, and of all of them, as they travel to the tasks
_COLUMNS = [name for name in segments.PIECE.names if name != "commit"]


class Near:
    """Nothing at first; then the newest rows of the destination that was planned for last, beside its `log`.

    begun   the exports that the call has asked for, and the version that there was
    """

    def __init__(self) -> None:
        self.log, self._asked = Held(), False
        self.begun = dict[str, int]()
        self._forget("")

    def _forget(self, base: str) -> None:
        self._base, self._version, self._names, self._rows = base, 0, frozenset[str](), segments.PIECE.empty_table()

    def of(self, folded: Fold, log: Log) -> Fold:
        """The same fold, which reads no segment that is held. A call that plans once holds nothing: its tasks read what they need."""
        if not self._asked or log.settled_version(folded.version) != folded.version:
            self._asked = True
            return folded
        base = folded.base.head if folded.base else ""
        there = {source.segment for source in folded.sources}
        if base != self._base or not self._names <= there or folded.version < self._version:  # made again, rolled back, or merged
            self._forget(base)
        room, new = MOST - self._rows.num_rows, list[Source]()
        for source in folded.sources:
            if not source.piece and source.segment not in self._names and source.rows <= min(SMALL, room):
                new.append(source)
                room -= source.rows
        if new or self._version != folded.version:
            known = replace(folded, sources=(*self._source(), *new), near=self._rows)
            self._rows = known.rows(log.store, _COLUMNS).select(segments.PIECE.names).combine_chunks()
            self._names, self._version = self._names.union(source.segment for source in new), folded.version
        rest = (source for source in folded.sources if source.segment not in self._names)
        return replace(folded, sources=(*rest, *self._source()), near=self._rows)

    def _source(self) -> tuple[Source, ...]:
        """The rows that are held, as a source; none, where there are none."""
        if not self._rows.num_rows:
            return ()
        ends, states = pc.min_max(self._rows.column("path")).as_py(), self._rows.column("state")
        quarantined, held = (pc.sum(pc.equal(states, state)).as_py() for state in ("quarantined", "held"))
        return (Source(self._version, NEAR, ends["min"], ends["max"], quarantined, held, self._rows.num_rows, piece=True),)
