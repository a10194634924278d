"""Tagging: rows that come, with the file group that holds their key.

Each task takes runs of about BLOCK bytes, of neighbouring keys, asks the index, and writes the rows of runs whose keys are in several
groups into a new block file, by group and key. A run whose keys are all in one group, or in none, stays where it is.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from quire.errors import QuireError
from quire.formats.damage import ARROW
from quire.spark.runner import Runner
from quire.table import index as indexes
from quire.table.file_groups import Slice
from quire.table.format import names
from quire.table.index import Index, Partition, lookup
from quire.table.index.lookup import Places
from quire.table.reading import deleted
from quire.table.realtime import Merging
from quire.table.write.blocks import BLOCK, DELETES, KEY, PIECE, Blocks, BlockWriter, Closing, Run
from quire.table.write.failures import answers

_FAILING = "the keys could not be looked up"
MANY = 100  # slices of a partition, beyond which their ranges are read by tasks of their own
_Numbers = npt.NDArray[np.int32]  # of groups, for each key; 0: none


@dataclass(frozen=True)
class Planned:
    """The file groups (partition and id) that pending compactions will rewrite, and how their logs are merged.

    groups   with the instants of these compactions: a plan names what was begun before it
    ends     instant → when it ended, where the timeline says it: from then on its log belongs to a slice
    """

    groups: Mapping[tuple[str, str], str]
    merging: Merging = field(repr=False)
    ends: Mapping[str, str] = field(default_factory=dict, repr=False)

    def gone(self, partition: Partition, group: str) -> pa.Array:
        """The keys that will not be in the new base file, as logs of the plan delete them: none, of a group that no plan has."""
        one = next((each for each in partition.slices if each.group == group), None)
        asked = self.groups.get((partition.path, group), "")
        if one is None or not asked:
            return pa.array([], pa.string())
        found = ((name, names.log_file(name.rpartition("/")[2])) for name in one.logs)
        logs = [name for name, log in found if log and self.ends.get(log.instant, log.instant) < asked]
        return deleted(partition.store, replace(one, logs=tuple(logs)), self.merging) if logs else pa.array([], pa.string())


@dataclass(frozen=True)
class _Share:
    """The runs that one task takes. It travels to the executors."""

    closing: Closing
    index: str
    runs: tuple[Run, ...] = field(repr=False)
    slices: Mapping[str, tuple[Slice, ...]] = field(repr=False)  # of their partitions, that may hold their keys
    ended: Mapping[str, frozenset[str]] = field(repr=False)
    planned: Planned | None = field(repr=False)


@dataclass(frozen=True)
class _Look:
    """Slices whose ranges one task reads. It travels to the executors."""

    closing: Closing
    slices: tuple[Slice, ...] = field(repr=False)


def tag(
    runner: Runner, closing: Closing, runs: Sequence[Run], slices: Sequence[Slice], index: str,
    ended: Collection[tuple[str, str]] = (), planned: Planned | None = None,
) -> list[Run]:  # fmt: skip
    """The same rows as runs with their groups, in the order of partitions, groups and keys; of a run without a group no key is there yet.
    A row whose key is in several groups, by an insert, comes back for each of them, as Hudi does it.

    `slices`: the newest of the table. `index`: its name. `ended`: partition and id of the file groups that were replaced, which an index
    that computes groups must not name again. `planned`: a key that a plan deletes is not there, as no index would find it in the new base
    file, and it would be brought again beside a log that has it since. With an index that computes groups each run has a group, which need
    not have a slice yet.

    Raises FormatError for a damaged file, and TransientError where a store was busy and nothing else was wrong.
    """
    computes = indexes.named(index).computes
    there, over = defaultdict[str, list[Slice]](list), defaultdict[str, set[str]](set)
    for one in slices:
        there[one.partition].append(one)
    for partition, group in ended:
        over[partition].add(group)
    parts = [list(some) for some in _parts(sorted(runs, key=lambda run: (run.partition, run.first)))]
    ready, shares = list[Run](), list[_Share]()
    for part, near in zip(parts, _near(runner, closing, parts, there, everywhere=computes), strict=True):
        ready += [run for run in part if not (computes or near[run.partition])]  # nothing is there to look up
        if waiting := tuple(run for run in part if computes or near[run.partition]):
            shares.append(_Share(closing, index, waiting, near, {path: frozenset(over.get(path, ())) for path in near}, planned))
    for share, answer in zip(shares, answers(runner.run(_tagged, shares), _FAILING), strict=True):
        found = [Run(**run) for run in answer["runs"]]
        _check_counts(share, found, *answer["copies"])
        ready += found
    # Deletes for a file group that nobody has written yet change nothing: it must not be written for them.
    known = {(one.partition, one.group) for one in slices}
    vain = [run.deletes == run.rows and (run.partition, run.group) not in known for run in ready]
    ready = [replace(run, group="") if none else run for run, none in zip(ready, vain, strict=True)]
    return sorted(ready, key=lambda run: (run.partition, run.group, run.first))


def _parts(runs: Iterable[Run]) -> Iterator[list[Run]]:
    """Runs of about BLOCK bytes."""
    some, size = list[Run](), 0
    for run in runs:
        if some and size + run.size > BLOCK:
            yield some
            some, size = [], 0
        some.append(run)
        size += run.size
    if some:
        yield some


def _near(
    runner: Runner, closing: Closing, parts: list[list[Run]], there: Mapping[str, Sequence[Slice]], *, everywhere: bool
) -> list[dict[str, tuple[Slice, ...]]]:
    """For each part and partition the slices that may hold its keys: where there are many, by their ranges, of which each is read once.

    `everywhere`: all slices, as they are not read.
    """
    runs = defaultdict[str, list[tuple[Run, int]]](list)
    for number, part in enumerate(parts):
        for run in part:
            runs[run.partition].append((run, number))
    all_of = {path: tuple(there.get(path, ())) for path in runs}
    many = [path for path in runs if len(all_of[path]) > MANY and not everywhere]
    found = [{run.partition: all_of[run.partition] for run in part} for part in parts]
    ranges = _ranges_of(runner, closing, [one for path in many for one in all_of[path]])
    for path in many:
        firsts, lasts, numbers = zip(*((run.first, run.last, number) for run, number in runs[path]), strict=True)
        near = {number: list[Slice]() for number in numbers}
        for one in all_of[path]:
            # Runs are in order and apart, so those that a range meets follow one another, as their parts do.
            ends = ranges[one]
            begin, end = (bisect_left(lasts, ends[0]), bisect_right(firsts, ends[1])) if ends else (0, len(numbers))
            for number in range(numbers[begin], numbers[end - 1] + 1) if begin < end else ():
                near[number].append(one)
        for number, some in near.items():
            found[number][path] = tuple(some)
    return found


def _ranges_of(runner: Runner, closing: Closing, slices: Sequence[Slice]) -> dict[Slice, tuple[str, str] | None]:
    looks = [_Look(closing, tuple(slices[at : at + MANY])) for at in range(0, len(slices), MANY)]
    found = [ends for answer in answers(runner.run(_ranges, looks), _FAILING) for ends in answer["ranges"]] if looks else []
    return dict(zip(slices, found, strict=True))


def _check_counts(share: _Share, found: Sequence[Run], rows: int, deletes: int) -> None:
    """Each row must have come back; of those whose keys are in several groups so many copies more."""
    counts = [(sum(run.rows for run in runs), sum(run.deletes for run in runs)) for runs in (share.runs, found)]
    if counts[0] != (counts[1][0] - rows, counts[1][1] - deletes):
        raise QuireError(
            f"{counts[0][0]:,} rows ({counts[0][1]:,} that delete) of {share.closing.store.url} went to the index {share.index!r}, and "
            f"{counts[1][0]:,} ({counts[1][1]:,}) came back: call again"
        )


# ----------------------------------------------------------------------------------------------------------------------- in a task
def _ranges(look: _Look) -> dict[str, Any]:
    return {"ranges": lookup.ranges(look.closing.store, look.slices)}


def _tagged(share: _Share) -> dict[str, Any]:
    index, output, found = indexes.named(share.index), _Output(share.closing), list[Run]()
    try:
        for path, runs in groupby(share.runs, lambda run: run.partition):
            partition = Partition(share.closing.store, share.closing.config, path, share.slices[path], share.ended[path])
            found += _partition(index, partition, list(runs), output, None if index.computes else share.planned)
        output.close()
    except BaseException:
        output.discard()
        raise
    return {"runs": [asdict(run) for run in found], "copies": output.copies}


def _partition(
    index: Index, partition: Partition, runs: list[Run], output: _Output, planned: Planned | None
) -> Iterator[Run]:  # fmt: skip
    keys = pa.concat_arrays([batch.column(KEY) for batch in _read(partition, runs, [KEY])])
    ids, numbers, places = _looked_up(index, partition, keys)
    if planned is not None:
        numbers, places = _without_planned(planned, partition, keys, ids, numbers, places)
    mixed, parts, taken, start, before = list[Run](), list[_Numbers](), list[Places](), 0, 0
    for run in runs:
        own = slice(*np.searchsorted(places, (start, start + run.rows)))
        part = numbers[own]
        if len(part) == run.rows and len(alike := np.unique(part)) == 1:
            yield replace(run, group=ids[alike[0]])
        else:
            mixed.append(run)
            parts.append(part)
            taken.append(places[own] - start + before)
            before += run.rows
        start += run.rows
    if mixed:
        rows = pa.Table.from_batches(_read(partition, mixed)).combine_chunks().to_batches()[0]
        yield from output.add(partition.path, rows, np.concatenate(taken), ids, np.concatenate(parts))


def _read(partition: Partition, runs: Iterable[Run], columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    files = dict[str, Blocks]()
    for run in runs:
        if run.name not in files:
            files[run.name] = Blocks(partition.store, run.name, columns)
        yield files[run.name].batch(run.batch, run.rows)


def _looked_up(index: Index, partition: Partition, keys: pa.Array) -> tuple[list[str], _Numbers, Places]:
    """The ids of groups, the first one being "", the number of each key's among them, and the key: one in several groups comes again."""
    answer = index.lookup(partition, keys)
    try:
        size, places = len(answer), np.arange(len(answer))
        if pa.types.is_list(answer.type):
            counts = np.asarray(pc.fill_null(pc.list_value_length(answer), 0))
            each = np.maximum(counts, 1)  # a key in no group stands there once, too
            held = np.repeat(counts > 0, each)
            places, answer = np.repeat(places, each), answer.flatten().take(pa.array(np.cumsum(held) - 1, mask=~held))
        # Decoded, as a dictionary may have an id twice, or null.
        answer = answer.cast(pa.string()).dictionary_encode()
        numbers = np.asarray(pc.add(pc.fill_null(answer.indices, -1), 1), dtype=np.int32)
    except (AttributeError, *ARROW) as e:
        raise QuireError(f"the index {index.name!r} gave {type(answer).__name__}, and not an Arrow array of text") from e
    ids = ["", *answer.dictionary.to_pylist()]
    known = {one.group for one in partition.slices}
    wrong = [i for i in ids[1:] if i not in known and not (index.computes and names.is_file_id(i))]
    if size != len(keys) or len(numbers) != len(places) or wrong or (index.computes and not numbers.all()):
        said = f"the file group {wrong[0][:80]!r}" if wrong else f"{int(np.count_nonzero(numbers)):,} file groups"
        raise QuireError(f"the index {index.name!r} gave {said} for {len(keys):,} keys of the partition {partition.path[:200]!r}")
    return ids, numbers, places


def _without_planned(
    planned: Planned, partition: Partition, keys: pa.Array, ids: Sequence[str], numbers: _Numbers, places: Places
) -> tuple[_Numbers, Places]:  # fmt: skip
    """The numbers and places without those of keys that a plan deletes: such a key is in no group, unless it is in another one, too."""
    numbers = numbers.copy()
    for number, group in enumerate(ids):
        if number and len(gone := planned.gone(partition, group)):
            mine = np.flatnonzero(numbers == number)
            numbers[mine[np.asarray(pc.is_in(keys.take(pa.array(places[mine])), value_set=gone))]] = 0
    held = np.zeros(len(keys), bool)
    held[places[numbers > 0]] = True
    _, first = np.unique(places, return_index=True)
    once = np.zeros(len(places), bool)
    once[first] = True
    stays = (numbers > 0) | (once & ~held[places])
    return numbers[stays], places[stays]


class _Output:
    """The block file of a task, which is begun when there is something to write."""

    def __init__(self, closing: Closing) -> None:
        self._closing, self._name = closing, closing.new_block()
        self._writer: BlockWriter | None = None
        self.copies = [0, 0]  # rows that were written beyond those that came, and how many of these delete

    def add(self, partition: str, rows: pa.RecordBatch, places: Places, ids: Sequence[str], numbers: _Numbers) -> Iterator[Run]:
        """Write the rows at `places`, which are sorted by key, in the order of their groups."""
        came = rows.num_rows, pc.sum(rows.column(DELETES)).as_py()
        order = np.argsort(numbers, kind="stable")
        rows, numbers = rows.take(pa.array(places[order])), numbers[order]
        wrote = rows.num_rows, pc.sum(rows.column(DELETES)).as_py()
        self.copies = [copies + after - before for copies, before, after in zip(self.copies, came, wrote, strict=True)]
        groups, starts = np.unique(numbers, return_index=True)
        for group, start, end in zip(groups, starts, [*starts[1:], len(numbers)], strict=True):
            own = rows.slice(start, end - start)
            step = max(1, own.num_rows * PIECE // max(1, own.nbytes))
            for at in range(0, own.num_rows, step):
                yield self._write(partition, own.slice(at, step), ids[group])

    def _write(self, partition: str, rows: pa.RecordBatch, group: str) -> Run:
        if self._writer is None:
            self._writer = BlockWriter(self._closing.store.create(self._name), rows.schema)
        keys = rows.column(KEY)
        return Run(
            name=self._name, batch=self._writer.add(rows), partition=partition, rows=rows.num_rows, group=group, size=rows.nbytes,
            deletes=pc.sum(rows.column(DELETES)).as_py(), first=keys[0].as_py(), last=keys[-1].as_py(),
        )  # fmt: skip

    def close(self) -> None:
        """Make it durable."""
        if self._writer is not None:
            self._writer.close()

    def discard(self) -> None:
        """Give up what was written."""
        if self._writer is not None:
            self._writer.discard()
