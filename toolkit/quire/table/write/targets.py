"""Which file each row of a commit goes into, decided from the numbers of runs alone: no row passes through here.

Source: Hudi's `UpsertPartitioner`: keys that are there go where they are, new ones fill small files first, and the rest opens new ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from quire.table.file_groups import Place, Slice
from quire.table.format import names
from quire.table.timeline import Timeline
from quire.table.write.blocks import Run
from quire.table.write.spills import Range

SMALL = 0.75  # of the target size: a file below it takes new rows
PACKED = 0.5  # bytes in a file for one of Arrow's, where a table has no file to ask
LOOK = 10  # commits that say how long rows are


@dataclass(frozen=True)
class Share:
    """Rows of a run that follow one another."""

    run: Run
    start: int
    rows: int


@dataclass(frozen=True)
class Target:
    """A file that a commit writes: the slice that it changes, and the rows that come. `base` None: the file group is new.

    `log`: the rows go into a log file there, and the base file stays; None: a new base file takes the place of the old one. `compacts`: no
    rows come, and the new base file has what the logs of `base` say. `ranges`: of a clustering, whose spills have the rows.
    """

    partition: str
    group: str
    base: Slice | None
    shares: tuple[Share, ...]
    log: Place | None = None
    compacts: bool = False
    ranges: tuple[Range, ...] = ()

    @property
    def previous(self) -> str:
        """The instant of the slice that is changed; "": the file group is new."""
        return self.base.instant if self.base else ""

    @property
    def rows(self) -> int:
        """How many rows come."""
        return sum(share.rows for share in self.shares)

    @property
    def inserts(self) -> int:
        """How many of them have a key that the index has not found."""
        return sum(share.rows for share in self.shares if not share.run.group)


def targets(
    runs: Sequence[Run], slices: Sequence[Slice], target_size: int, row_size: float, *, fill: bool = True,
    logs: Mapping[tuple[str, str], Place] | None = None,
) -> list[Target]:  # fmt: skip
    """The files of a commit, in the order of partitions and file groups.

    runs          tagged: each with the file group that has its keys, "" for inserts; a run of nothing but deletes of these changes nothing
    slices        the newest of each file group
    target_size   bytes that a file should have
    row_size      bytes of a row in a file, see `row_size`; 0: guessed by the runs
    fill          whether inserts go into small files first
    logs          of a merge-on-read table: where the next log file of each slice goes. Rows whose keys are in a file go into its logs, but
                  where inserts rewrite it anyway; a slice that has logs, or will be compacted, takes no inserts
    """
    there = {(each.partition, each.group): each for each in slices}
    found = dict[tuple[str, str], list[Share]]()
    inserts = list[Run]()
    for run in runs:
        if run.group:
            found.setdefault((run.partition, run.group), []).append(Share(run, 0, run.rows))
        elif run.deletes < run.rows:
            inserts.append(run)
    near = dict[str, list[Slice]]()
    for one in slices if fill else ():
        near.setdefault(one.partition, []).append(one)
    for partition, some in groupby(sorted(inserts, key=lambda run: (run.partition, run.first)), attrgetter("partition")):
        new = list(some)
        length = row_size or PACKED * sum(run.size for run in new) / sum(run.rows for run in new)
        own = [each for each in near.get(partition, ()) if _takes(each, target_size, logs)]
        # Files that are written anyway first; of the others the smallest ones: they cost least, and take most.
        own.sort(key=lambda each: ((partition, each.group) not in found, each.size))
        rooms = [(each.group, max(1, int((target_size - each.size) / length))) for each in own]
        for group, share in _placed(new, rooms, max(1, int(target_size / length))):
            found.setdefault((partition, group), []).append(share)
    appends = {key: place for key, place in (logs or {}).items() if all(share.run.group for share in found.get(key, ()))}
    return [Target(*key, there.get(key), tuple(shares), appends.get(key)) for key, shares in sorted(found.items())]


def _takes(one: Slice, target_size: int, logs: Mapping[tuple[str, str], Place] | None) -> bool:
    """Whether a slice takes inserts."""
    settled = logs is None or (not one.logs and not logs[one.partition, one.group].planned)
    return settled and one.size < SMALL * target_size


def row_size(timeline: Timeline) -> float:
    """Bytes of a row in the files of the newest commits that say so; 0: none does."""
    for instant in timeline.completed[: -LOOK - 1 : -1]:
        stats = [stat for _, stat, name in timeline.commit(instant).files() if isinstance(name, names.BaseFile)]
        if rows := sum(stat.num_writes for stat in stats):
            return sum(stat.total_write_bytes for stat in stats) / rows
    return 0.0


def _placed(runs: list[Run], rooms: list[tuple[str, int]], whole: int) -> list[tuple[str, Share]]:
    """The file group of each row: those with room first, then new ones of equally many rows, of `whole` ones at most."""
    left = sum(run.rows for run in runs) - sum(room for _, room in rooms)
    if left > 0:
        files = -(-left // whole)
        rooms = [*rooms, *((names.new_file_id(), -(-left // files)) for _ in range(files))]
    found, places = list[tuple[str, Share]](), iter(rooms)
    group, room = next(places)
    for run in runs:
        start = 0
        while start < run.rows:
            if not room:
                group, room = next(places)
            took = min(room, run.rows - start)
            found.append((group, Share(run, start, took)))
            start, room = start + took, room - took
    return found
