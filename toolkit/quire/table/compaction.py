"""The rounds of a compaction: a plan on the timeline, which says what it will merge, and the plan carried out.

From the plan on, new logs of its file groups belong to the slices that it begins, so what it merges does not change any more, however long
it takes. See docs/protocol.md, section 10.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from quire.errors import NotFoundError, RefusedError
from quire.progress import Progress
from quire.spark.runner import Runner
from quire.table import realtime, rounds
from quire.table.file_groups import Slice
from quire.table.format import commits, compaction, names, schema
from quire.table.format.compaction import Operation
from quire.table.format.config import TableConfig
from quire.table.format.names import Instant
from quire.table.rounds import SCHEDULE, Round
from quire.table.timeline import COMPACTION
from quire.table.view import View, there
from quire.table.write import commit as made
from quire.table.write import write
from quire.table.write.blocks import Closing
from quire.table.write.output import Work
from quire.table.write.targets import Target
from quire.table.write.write import Written


class NothingToPlan(RefusedError):
    """Others have planned, or compacted, what was to be planned."""


@dataclass(frozen=True)
class Schedule:
    """The round that lays a plan: those of the `wanted` file groups (partition and id) that have logs, and are in no plan yet."""

    config: TableConfig
    wanted: Sequence[tuple[str, str]]

    def write(self, view: View, closing: Closing) -> list[Written]:
        """See `Body`. RefusedError where another program is writing: the plan would not name its logs."""
        if other := rounds.pending_elsewhere(view.log, view.line):
            raise RefusedError(
                f"another program has begun to write into {closing.store.url} (a {other.action} at {other.time}), and its logs would be in "
                "no plan: let it end, or roll that back with Hudi, and call again."
            )
        return []

    def say(self, view: View, closing: Closing, written: list[Written]) -> tuple[Round, bytes]:
        """See `Body`."""
        taken, wanted = view.line.compacting(), set(self.wanted)
        slices = [one for one in view.slices if one.logs and (one.partition, one.group) in wanted - taken.keys()]
        if not slices:
            raise NothingToPlan(f"no file group of {closing.store.url} that was chosen has logs any more, or all are in plans.")
        said = Round(
            instant=view.drawn, action=COMPACTION, version=view.version, operation=SCHEDULE, inserts=(), counts={},
            planned=tuple(one.group for one in slices), ended=view.ended,
        )  # fmt: skip
        return said, compaction.encode(_operation(one) for one in slices)


def _operation(one: Slice) -> Operation:
    logs = tuple(_last(name) for name in one.logs)
    return Operation(one.partition, one.group, one.instant, _last(one.name), logs, one.size, one.logged)


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def asked_for(intent: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The file groups that a frozen job is to plan."""
    return [(str(partition), str(group)) for partition, group in intent.get("groups", ())]


@dataclass
class Run:
    """The round that carries out the plan at `instant`, whoever has laid it."""

    runner: Runner
    config: TableConfig
    instant: str
    progress: Progress
    slices: Sequence[Slice] = ()  # of the last round,
    columns: pa.Schema = field(default_factory=lambda: pa.schema([]))  # and their table's columns

    def write(self, view: View, closing: Closing) -> list[Written]:
        """See `Body`. RefusedError where the plan was taken back, or another program carries it out, or has done so."""
        store, self.slices = closing.store, self._slices(view, closing)
        begun = store.stat(f"{view.line.folder}/{Instant(self.instant, COMPACTION, 'inflight').name}") is not None
        if begun or view.line.has_compacted(self.instant):
            raise RefusedError(
                f"another program {'carries out' if begun else 'has carried out'} the compaction {self.instant} of "
                f"{store.url}: nothing was done by this call. Look who compacts the table; one program is enough."
            )
        there = {name for one in view.slices for name in (one.name, *one.logs)}
        wanted = [name for one in self.slices for name in (one.name, *one.logs) if name and name not in there]
        if gone := next((name for name in wanted if store.stat(name) is None), None):
            raise RefusedError(
                f"the plan of the compaction {self.instant} of {store.url} names {gone}, which is gone: put it back from a copy. Nothing "
                "was done."
            )
        self.columns = self._columns(view)
        rows, line = schema.with_meta(self.columns), view.line.as_of(self.instant)
        merging = realtime.merging_of(self.config, line, rows, store.url)
        aims = [Target(one.partition, one.group, one, (), compacts=True) for one in self.slices]
        work = Work(closing, self.instant, schema.storable(self.columns), merging=merging)
        return write.write(self.runner, work, aims, progress=self.progress)

    def say(self, view: View, closing: Closing, written: list[Written]) -> tuple[Round, bytes]:
        """See `Body`."""
        said = Round(
            instant=self.instant, action="commit", version=view.version, operation=made.COMPACT, inserts=(), counts={}, ended=view.ended
        )  # fmt: skip
        content = made.metadata(written, self.config.name, self.columns, made.COMPACT, {made.JOB: closing.job}, self.slices)
        return said, commits.encode(content)

    def _columns(self, view: View) -> pa.Schema:
        """Those that the table had when the plan was laid: no log that it names has others."""
        found = there(view.line.as_of(self.instant), self.config) or there(view.line, self.config)
        return schema.without_meta(found) if found is not None else pa.schema([])

    def _slices(self, view: View, closing: Closing) -> list[Slice]:
        name = view.line.plan_of(self.instant)
        where = f"{closing.store.url}/{name}"
        try:
            plan = compaction.decode(closing.store.get(name), where)
        except NotFoundError:
            raise RefusedError(f"the plan {where} was taken back: there is nothing to carry out.") from None
        if not plan:  # its operations may still come: completed now, these would be of a compaction without files
            raise RefusedError(
                f"the plan {where} is empty: another program is about to lay it, or was ended while it did. Call again; if it stays empty, "
                "delete this file."
            )
        return [_slice(one) for one in plan]


def _slice(one: Operation) -> Slice:
    base, logs = names.path(one.partition, one.base) if one.base else "", tuple(names.path(one.partition, name) for name in one.logs)
    return Slice(one.partition, one.group, one.instant, base, 0, logs, one.log_size)
