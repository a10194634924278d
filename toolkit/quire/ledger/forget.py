"""Forget: rows and coverage leave in one commit, with the reason in the log; the next run reads what the source still has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from quire.commit.log import Log
from quire.coverage import quarantine
from quire.coverage.counts import batch
from quire.coverage.finished import FINISHED, PURGING
from quire.coverage.fold import Fold, after, fold
from quire.errors import RefusedError, UsageError
from quire.ledger import whole
from quire.ledger.job import Change, Changed, Dest, PlannedChange, spec_of
from quire.ledger.tables import alike
from quire.planning.drops import DROPS, filled, put_drops
from quire.planning.pack import read_drops
from quire.planning.rewriting import live_files, rewriting
from quire.storage import Store, connect

TOLD = 1_000  # files that are told where there may be very many

_COLUMNS = DROPS.names
_FILE = _COLUMNS[:4]  # two files may have had one name, one after the other, and lie in one data file


class RowChooser(Protocol):
    """Chooses rows of the ledger, and writes them to objects of a plan, where they are found; each object with each of its data files."""

    def __call__(self, folded: Fold, named: Callable[[str], str]) -> list[tuple[str, str]]: ...


def forget(
    dest: Dest, paths: Sequence[Sequence[str]], file: str | None, rows: RowChooser | None, said: dict[str, Any], target: int,
    *, last_copy: bool,
) -> Changed:  # fmt: skip
    """Forget source files (each by the keys that it may have; a directory means all below it), a data file, or chosen `rows`.

    `said` is what the user has asked for, for the log. UsageError for what the ledger does not know, RefusedError for what was purged,
    unless `last_copy` allows it, and for what a purge has not ended with.
    """

    def plan(log: Log, base: int, named: Callable[[str], str]) -> PlannedChange:
        folded = fold(log, base)
        live = live_files(log, base, folded)
        traced = spec_of(log).traced
        if file is not None and not traced:
            whole.refuse_file(log, file, live)
        if file is not None:
            drops = _of_file(log, folded, file, live)
            if spec_of(log).by:
                drops = with_riders(log.store, folded, drops)
        elif rows is not None:
            objects = rows(folded, named)
            if traced:
                return PlannedChange(rewriting(objects, live, target))
            drops = read_drops(log.store, dict.fromkeys(name for name, _ in objects))
        else:
            drops = pa.concat_tables([_of_path(log, folded, keys) for keys in paths])
        drops = _distinct(filled(drops))
        refuse_finished(log.store.url, finished(drops, last_copy=last_copy))
        if not traced:
            return PlannedChange(whole.leaving(log, folded, drops, live, named) if drops.num_rows else [])
        return PlannedChange(rewriting(put_drops(log.store, drops, named), live, target))

    done = Change(dest, {"verb": "forget", **said}, plan, target=target).run()
    if done.quarantined_out:
        store = connect(dest.url, dest.options)
        quarantine.forget(store, Log(store))
    return done


def finished(drops: pa.Table, *, last_copy: bool) -> list[tuple[str, str]]:
    """State and path of the files, or of some of very many, that must not leave (rows with path, state): their sources were or are deleted.

    A file that a dead purge was about to delete may lie under a private name, which only rows in this state let the next purge find.
    """
    states = pa.array([PURGING] if last_copy else FINISHED)
    found = drops.filter(pc.is_in(drops.column("state"), states)).group_by(["state", "path"], use_threads=False).aggregate([])
    return list(zip(*(found.column(name)[:TOLD].to_pylist() for name in ("state", "path")), strict=True))


def refuse_finished(url: str, found: Sequence[tuple[str, str]]) -> None:
    """RefusedError where files are to be forgotten whose sources were deleted, or are about to be: `found` by `finished`."""
    under_way = [path for state, path in found if state == PURGING]
    if under_way:
        raise RefusedError(
            f"{_many(under_way)} of the files that {url} is to forget are being deleted at their source, by a purge that has not ended: "
            f"nothing was changed. Call ledger.purge_sources(…, dry_run=False) again, which ends it, then forget. One of them is "
            f"{under_way[0]}"
        )
    if found:
        paths = [path for _, path in found]
        refusal = RefusedError(
            f"{_many(paths)} of the files that {url} is to forget were purged, and to forget them deletes the last copy: nothing was "
            f"changed. If that is meant, say last_copy=True (in a shell --last-copy). One of them is {paths[0]}"
        )
        refusal.last_copies = tuple(paths)
        raise refusal


def _many(paths: Sequence[str]) -> str:
    return f"{len(paths):,} or more" if len(paths) >= TOLD else f"{len(paths):,}"


def _of_file(log: Log, folded: Fold, file: str, live: dict[str, Any]) -> pa.Table:
    if file not in live:
        raise UsageError(f"{file[:200]!r} is not a live data file of {log.store.url}. ledger.inspect.files() lists them.")
    source = folded.source_of(log.store, file)
    assert source is not None  # it is live
    rows = folded.of(source).rows(log.store, _COLUMNS)
    return rows.filter(pc.equal(rows.column("data_file"), file)).select(_COLUMNS)


def _of_path(log: Log, folded: Fold, keys: Sequence[str]) -> pa.Table:
    """The rows of a file, or of all files below a directory."""
    for key in (key.rstrip("/") for key in keys):
        rows = folded.rows(log.store, _COLUMNS, key, after(f"{key}/")).select(_COLUMNS)
        path = rows.column("path")
        rows = rows.filter(pc.or_(pc.equal(path, key), pc.starts_with(path, f"{key}/")))
        if rows.num_rows:
            return rows
    hint = alike(folded, log.store, keys)
    raise UsageError(
        f"{keys[-1]} is not in the ledger of {log.store.url}, so there is nothing to forget{hint}. Look with ledger.inspect.splits()."
    )


def with_riders(store: Store, folded: Fold, drops: pa.Table) -> pa.Table:
    """With a piece of a split that was cut around quarantined records go all that stand for the same output.

    And with a batch of records that lie in several data files, as they have several dates, go all of its rows: which of its offsets, or
    bytes, are in which data file, the ledger does not say.
    """
    files = [name for name in pc.unique(drops.column("data_file")).to_pylist() if name]
    if not files:
        return _distinct(filled(drops))
    paths = pc.unique(drops.column("path"))  # a piece's path is that of its split
    ends = pc.min_max(paths).as_py()
    rows = folded.rows(store, [*_COLUMNS, "offset", "skip", "written"], ends["min"], ends["max"], paths)
    if pc.any(pc.and_(pc.equal(rows.column("length"), 0), pc.greater(rows.column("records"), 0))).as_py():
        rows = rows.filter(pc.is_valid(rows.column("data_file")))
        return _distinct(pa.concat_tables([filled(drops), filled(_batches(rows, drops))]))
    rows = rows.filter(pc.is_in(rows.column("data_file"), pa.array(files, pa.string())))
    rider = pc.and_(pc.equal(rows.column("written"), 0), pc.equal(rows.column("records"), 0))
    tables = [drops]
    if pc.any(rider).as_py():
        chosen = {tuple(row.values()) for row in drops.select(_FILE).to_pylist()}
        places = [tuple(row.values()) for row in rows.select(["data_file", "offset", "skip"]).to_pylist()]
        keys = [tuple(row.values()) for row in rows.select(_FILE).to_pylist()]
        going = {place for place, key in zip(places, keys, strict=True) if key in chosen}
        found = rows.take([i for i, place in enumerate(places) if place in going])
        tables.append(filled(found.select(_COLUMNS)))
    return _distinct(pa.concat_tables([filled(table) for table in tables]))


def _batches(rows: pa.Table, drops: pa.Table) -> pa.Table:
    """The rows of all batches of which one is to leave: those of each data file, and what rides with them."""
    found = rows.select(["path", "version", "start", "length", "data_file", "offset", "skip", "records"]).to_pylist()
    places = [(row["data_file"], row["offset"], row["skip"]) for row in found]
    batch_of = {
        place: (row["path"], row["version"], batch(row["path"], row["start"], row["length"]))
        for place, row in zip(places, found, strict=True) if row["records"]
    }  # fmt: skip
    chosen = {tuple(row.values()) for row in drops.select(_FILE).to_pylist()}
    named = [tuple(row[name] for name in _FILE) in chosen for row in found]
    going = {batch_of[place] for place, mine in zip(places, named, strict=True) if mine}
    return rows.take([i for i, place in enumerate(places) if batch_of[place] in going]).select(_COLUMNS)


def _distinct(rows: pa.Table) -> pa.Table:
    """Each row once, though two of the user's paths may name it."""
    return rows.group_by(DROPS.names, use_threads=False).aggregate([]).select(DROPS.names)
