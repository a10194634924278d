"""The round of a clustering: the rows of some file groups laid out anew in other file groups, which take the place of these.

Whoever changes one of the old file groups meanwhile is first: the round is then repeated, from what is there. See docs/protocol.md,
section 10. Source: Hudi's clustering, and `HoodieReplaceCommitMetadata` with the operation CLUSTER.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from quire.errors import FormatError, RefusedError, quoted
from quire.progress import Progress
from quire.spark.runner import Runner
from quire.table import realtime, rounds
from quire.table.file_groups import Slice
from quire.table.format import commits, schema
from quire.table.format.config import TableConfig
from quire.table.rounds import CLUSTER, Round, columns_id
from quire.table.timeline import REPLACE
from quire.table.view import View, there
from quire.table.write import cluster, write
from quire.table.write import commit as made
from quire.table.write.blocks import Closing
from quire.table.write.layout import Layout, possible
from quire.table.write.output import Work
from quire.table.write.write import Written

LAYOUT = "quire.layout"  # in the extra metadata of a clustering's commit: how it has sorted rows
_ROOM = 0.75  # of a file's target size: what is left over, if less, goes into the other files


class NothingToCluster(RefusedError):
    """Others have ended, or planned to compact, what was to be clustered, or taken its columns away."""


@dataclass
class Cluster:
    """The round that clusters the `wanted` file groups (partition and id); those that others have ended since are passed over."""

    runner: Runner
    config: TableConfig
    target: int  # bytes of a file
    wanted: Sequence[tuple[str, str]]
    layout: Layout
    progress: Progress
    slices: Sequence[Slice] = ()  # of the last round,
    columns: pa.Schema = field(default_factory=lambda: pa.schema([]))  # and their table's columns

    def write(self, view: View, closing: Closing) -> list[Written]:
        """See `Body`. RefusedError where another program is writing: it may be at one of these file groups, and takes no turns."""
        url = closing.store.url
        if other := rounds.pending_elsewhere(view.log, view.line):
            raise RefusedError(
                f"another program has begun to write into {url} (a {other.action} at {other.time}): let it end, or roll that back with "
                "Hudi, and call again."
            )
        wanted = set(self.wanted) - view.line.compacting().keys()
        self.slices = [one for one in view.slices if (one.partition, one.group) in wanted]
        self.columns = there(view.line, self.config) or pa.schema([])
        if not self.slices:
            raise NothingToCluster(f"no file group of {url} that was chosen is there any more, or all are in plans of compactions.")
        merging = realtime.merging_of(self.config, view.line, self.columns, url)
        self.columns = schema.without_meta(self.columns)
        if not possible(self.layout, self.columns):  # of a call that died, before a restore took its columns away
            raise NothingToCluster(f"rows of {url} cannot be sorted by {quoted(list(self.layout.sort))}: it has no such columns by now.")
        work = Work(closing, view.drawn, schema.storable(self.columns))
        layout = cluster.scales(work, self.layout, self.slices)
        with self.progress.phase("sorting", unit="row") as bar:
            spills, rows = cluster.sort(self.runner, work, layout, self.slices, merging)
            bar.to(rows)
        aims = cluster.targets(spills, files_of(self.slices, self.target))
        laid = dataclasses.replace(work, spills=spills, layout=mark(self.layout))
        found = write.write(self.runner, laid, aims, progress=self.progress)
        if (kept := sum(each.counts.kept for each in found)) != rows:
            write.abort(closing, found)
            raise FormatError(f"{kept:,} of {rows:,} rows came into the new files of {url}: look who writes below its state. Call again.")
        return found

    def say(self, view: View, closing: Closing, written: list[Written]) -> tuple[Round, bytes]:
        """See `Body`."""
        replaced = dict[str, list[str]]()
        for one in self.slices:
            replaced.setdefault(one.partition, []).append(one.group)
        ended, named = {partition: tuple(groups) for partition, groups in replaced.items()}, columns_id(self.columns)
        counts = {"rows": made.totals(written)["kept"], "read": sum(one.size + one.logged for one in self.slices)}
        said = Round(
            instant=view.drawn, action=REPLACE, version=view.version, operation=CLUSTER, inserts=(), counts=counts, replaced=ended,
            saw=named, columns=named, ended=view.ended,
        )  # fmt: skip
        extra = {made.JOB: closing.job, LAYOUT: mark(self.layout)}
        content = made.metadata(written, self.config.name, self.columns, CLUSTER, extra, replaced=ended)
        return said, commits.encode(content)


def files_of(slices: Sequence[Slice], target: int) -> dict[str, int]:
    """Partition → how many files its slices become: none of them is small, where there are several."""
    sizes = dict[str, int]()
    for one in slices:
        sizes[one.partition] = sizes.get(one.partition, 0) + one.size + one.logged
    return {partition: max(1, int(size / target + 1 - _ROOM)) for partition, size in sizes.items()}


def mark(layout: Layout) -> str:
    """The layout as files and commits say it."""
    return json.dumps({"curve": layout.curve, "sort": layout.sort})


def marked(text: str) -> Layout | None:
    """The layout that a mark says; None: it is none of ours."""
    try:
        said = json.loads(text)
        return Layout(tuple(map(str, said["sort"])), str(said["curve"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def asked_for(intent: Mapping[str, Any]) -> tuple[list[tuple[str, str]], Layout]:
    """The file groups that a frozen job is to cluster, and how."""
    groups = [(str(partition), str(group)) for partition, group in intent.get("groups", ())]
    return groups, Layout(tuple(map(str, intent.get("sort", ()))), str(intent.get("curve", "")))
