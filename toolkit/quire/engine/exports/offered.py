"""Contents of exports: the data files that commits have added and removed, and the columns that these have."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol, TypeVar

import pyarrow as pa

from quire.commit.closers import offering
from quire.commit.log import Log
from quire.coverage.fold import fold
from quire.coverage.live import live
from quire.errors import FormatError, RefusedError, UsageError
from quire.formats import parquet, partition_columns, partitions
from quire.sources.transforms import schemas
from quire.storage import Store, remove_all

READING = 32  # objects at once
T = TypeVar("T")


class Offer(NamedTuple):
    """A data file as exports name it."""

    name: str
    size: int
    records: int


class Watch(Protocol):
    """Hands on each of some things, of which there are so many, so that somebody sees how many are done."""

    def __call__(self, those: Iterable[T], total: int, /) -> Iterable[T]: ...


def unwatched(those: Iterable[T], _: int, /) -> Iterable[T]:
    """Nobody looks."""
    return those


class Change(NamedTuple):
    """Data files that came and went between two versions, each with whether its rows did, or only moved to other files."""

    added: dict[str, tuple[Any, bool]]  # name → (with its size and records, …)
    gone: dict[str, bool]

    def __bool__(self) -> bool:
        return bool(self.added or self.gone)


def files(log: Log, version: int, known: Mapping[str, Offer] | None = None, watch: Watch = unwatched) -> list[Offer]:
    """All data files of a version; of a table those of now. `known`: what an export says of some."""
    table = offering(log.store)
    if table is None:
        return [Offer(file.name, file.size, file.records) for file in live(log, fold(log, version, reader=True), reader=True)]
    sizes, known = table.data_files(log), known or {}
    new = [name for name in sizes if name not in known]
    records = dict(zip(new, each(new, lambda name: int(_opened(log.store, name).metadata.num_rows), watch), strict=True))
    return [Offer(name, size, records[name] if name in records else known[name].records) for name, size in sizes.items()]


def between(log: Log, since: int, until: int, content: Callable[[], Mapping[str, Offer]]) -> Change:
    """The changes of the commits after one version and up to another; `content`: the files that an export names."""
    if offering(log.store):
        # A rollback takes instants away, and other programs write, too: what the export says is sure.
        known = content()
        now = {file.name: file for file in files(log, until, known)}
        return Change(
            {name: (file, True) for name, file in now.items() if name not in known}, {name: True for name in known if name not in now}
        )
    added, gone = dict[str, tuple[Any, bool]](), dict[str, bool]()
    for _, commit in log.commits(since, until):
        change = commit.verb != "compact"  # else the same rows in other files
        for task in log.in_effect(commit, until, reader=True):
            added |= {file.name: (file, change) for file in task.data_files}
            gone |= dict.fromkeys(task.coverage.removes, change)
    # Nobody has seen what came and went, and its rows may lie in the files of a compaction now: then these hold more than what moved.
    both = added.keys() & gone.keys()
    unseen = bool(both)
    return Change(
        {n: (file, change or unseen) for n, (file, change) in added.items() if n not in both},
        {n: change or unseen for n, change in gone.items() if n not in both},
    )


def check_known(options: Mapping[str, str], *known: str, format: str) -> None:
    """UsageError for an option that a format does not have."""
    if other := next((key for key in options if key not in known), None):
        raise UsageError(
            f"the export {format} takes no {other}: its readers find it by {' and '.join(known) or 'its directory'}. Leave it out."
        )


def objects(store: Store, folder: str, own: re.Pattern[str]) -> list[str]:
    """The names of an export's objects; RefusedError where something else lies among them."""
    found = [entry.name for entry in store.walk(folder)]
    if other := next((name for name in found if not own.fullmatch(name)), None):
        raise RefusedError(
            f"{store.url}/{other} is another program's, or a data file, where the metadata of an export would lie. An export needs another "
            "destination."
        )
    return found


def take_away(store: Store, folder: str, own: re.Pattern[str]) -> None:
    """Delete an export's objects, by their names: whatever else lies among them stays."""
    found = [entry.name for entry in store.walk(folder)]
    mine = [name for name in found if own.fullmatch(name)]
    if len(mine) < len(found):
        remove_all(store, mine)
    else:
        store.remove_tree(folder)


def check_ours(store: Store, numbers: Sequence[int], read: Callable[[Store, int], object], table: str, folder: str) -> bool:
    """Whether a table of ours is there; RefusedError where another program's is."""
    try:
        return bool(numbers and read(store, max(numbers)))
    except RefusedError:
        raise RefusedError(f"{store.url} holds {table} of another program, in {folder}/. An export needs another destination.") from None


def content(store: Store, name: str) -> bytes:
    """A commit of an export; NotFoundError where there is none."""
    if data := store.get(name):
        return data
    # SeaweedFS keeps an empty object of a write that was cut off.
    raise FormatError(f"{store.url}/{name} is empty: a write of it was cut off. Delete it and call again; nothing is lost.")


def foreign(store: Store, name: str, format: str) -> RefusedError:
    """The error for a commit that is not ours."""
    return RefusedError(
        f"{store.url}/{name} is a commit of another program, and an export takes none: it offers what quire has committed. Nothing was "
        f"changed. ledger.drop_export({format!r}) takes all of its metadata away; other tables of this format need a place of their own."
    )


def check_version(log: Log, version: int, name: str, format: str) -> None:
    """FormatError where metadata offer what the destination never had: an entry that believed it would hold files for ever, or none."""
    if version > log.tip:
        log.refresh()  # somebody else has gone on
    if not 0 < version <= log.tip:
        raise FormatError(
            f"{log.store.url}/{name} offers version {version:,}, and the destination has the versions 1 to {log.tip:,}: "
            f"it is another destination's, or damaged. {anew(format)}"
        )


def anew(format: str) -> str:
    """The way out of damaged metadata, as the end of a message."""
    return f"ledger.drop_export({format!r}) takes its metadata away, and ledger.export({format!r}) makes them anew."


# ------------------------------------------------------------------------------------------------------------------------- columns
def columns(log: Log, name: str) -> pa.Schema:
    """The columns: a table's as it says them, else those of a data file, unless some have more or wider ones."""
    table = offering(log.store)
    if table:
        return table.columns(log.store)
    return schemas.grown(log) or own(log.store, name)


def changes_columns(log: Log) -> bool:
    """Whether the columns of now may be others than those of some data files."""
    return bool(offering(log.store)) or schemas.grown(log) is not None


_PLAIN = {  # as formats tell them apart
    pa.date64(): pa.date32(), pa.large_string(): pa.string(), pa.string_view(): pa.string(), pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}  # fmt: skip


def own(store: Store, name: str) -> pa.Schema:
    """The columns of a data file."""
    return _opened(store, name).schema_arrow


def each_own(store: Store, names: Sequence[str]) -> list[pa.Schema]:
    """The columns of each of some data files."""
    return each(names, lambda name: own(store, name))


def each(names: Sequence[str], ask: Callable[[str], T], watch: Watch = unwatched) -> list[T]:
    """The answer for each of some objects, many asked at once."""
    with ThreadPoolExecutor(READING) as pool:
        return list(watch(pool.map(ask, names), len(names)))


def _opened(store: Store, name: str) -> parquet.ParquetFile:
    try:
        return parquet.open_file(store, name)
    except parquet.DAMAGED as e:
        way = "Put back a copy." if offering(store) else "ledger.forget(file=…) takes it out."
        raise FormatError(f"the data file {store.url}/{name} is damaged ({type(e).__name__}). {way}") from e


def made(log: Log, files: Sequence[str]) -> dict[str, pa.DataType]:
    """The columns that directories make."""
    spec = log.spec()
    if spec is None or spec.layout != "directories" or not files:
        return {}
    found = partition_columns.of(files, own(log.store, files[0]).names, schemas.by(log, spec))
    return {key: _PLAIN.get(kind, kind) for key, kind in found.items()}


def joined(log: Log, before: Mapping[str, pa.DataType], files: Sequence[str], format: str) -> dict[str, pa.DataType]:
    """The same with those of new files; RefusedError where these lie in directories of other columns."""
    now = made(log, files) if files else dict(before)
    if not before and not now:
        return {}
    if now.keys() != before.keys():
        raise RefusedError(
            f"{log.store.url}/{files[0]} does not lie in directories of the columns {', '.join(before) or 'none'}, as the files before do, "
            f"so no table can hold all of them. ledger.drop_export({format!r}) ends the export."
        )
    said = _with_values(files)
    return {key: _both(kind, now[key]) if key in said else kind for key, kind in before.items()}


def _with_values(files: Iterable[str]) -> set[str]:
    """The columns of which any file has a value: the others' say nothing of their type."""
    return {key for name in files for key, value in partitions.values(name).items() if value is not None}


def _both(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The type of a column of which some values have one and some another."""
    if one == other:
        return one
    if {one, other} == {pa.int32(), pa.int64()}:
        return pa.int64()
    return pa.float64() if {one, other} == {pa.int32(), pa.float64()} else pa.string()
