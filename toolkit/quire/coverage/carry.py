"""Writes data files again that a job removes: the rows that stay are carried over, record by record, with their checksums compared.

A compaction carries all of them, a `forget` all but what is forgotten, a job that supersedes a file all but its old content.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from quire.commit.entries import Uncover
from quire.coverage.counts import Counts, counts
from quire.coverage.fold import Fold, Source
from quire.errors import FormatError, NotFoundError, StorageError
from quire.formats import lines, parquet, running
from quire.storage import Store

_COLUMNS = ["path", "version", "start", "length", "data_file", "offset", "skip", "written", "records", "checksum", "fingerprint",
            "state", "reason", "member"]  # fmt: skip
LONG = 4 << 20  # bytes; a longer record goes through in pieces


@dataclass(frozen=True)
class Dropped:
    """The rows that a task takes out of the ledger, and what they counted."""

    uncovers: tuple[Uncover, ...]
    counts: Counts
    keys: frozenset[tuple[str, str, int, int]]  # path, version, start, length


def dropped(drops: pa.Table, files: Iterable[str]) -> Dropped:
    """Those of the rows of `drops` whose data file is one of `files`."""
    mine = drops.filter(pc.is_in(drops.column("data_file"), pa.array(list(files), pa.string()))).to_pylist()
    ranges = defaultdict[tuple[str, str], list[tuple[int, int]]](list)
    for row in mine:
        ranges[row["path"], row["version"]].append((row["start"], row["length"]))
    return Dropped(
        tuple(Uncover(path, version, tuple(sorted(found))) for (path, version), found in sorted(ranges.items())),
        counts=counts(mine),
        keys=frozenset((row["path"], row["version"], row["start"], row["length"]) for row in mine),
    )  # fmt: skip


class Carrying:
    """Takes out of data files what stays, and reads once what the ledger says of their sources, not for each file."""

    def __init__(self, store: Store, fold: Fold, files: Iterable[str], compression: str, without: Dropped) -> None:
        self.store, self.fold, self.compression, self.without = store, fold, compression, without
        self._sources = fold.sources_of(store, files)
        self._held: str | None = None  # whose rows are held, by their data files: of a segment, or ("") of the checkpoint
        self._rows: dict[str, pa.Table] = {}

    def carried(self, name: str) -> Iterator[tuple[dict[str, Any], Any]]:
        """The rows of a data file that stay, each with its record: bytes, or a batch, or an iterator of such for a long one.

        NotFoundError if the file is gone, FormatError if it does not hold what the ledger says.
        """
        riders = defaultdict[tuple[int, int], list[dict[str, Any]]](list)  # pieces of a split that stand for the record of its first one
        rows = self._of(name)
        for row in rows:
            if not row["written"] and not row["records"]:
                riders[row["offset"], row["skip"]].append(row)
        rows = [r for r in rows if r["written"] or r["records"]]
        staying = [{**r, "riders": riders[r["offset"], r["skip"]]} for r in rows
                   if (r["path"], r["version"], r["start"], r["length"]) not in self.without.keys]  # fmt: skip
        if not staying:
            return  # none to carry: the file is not read, and may be gone
        store = self.store
        if store.stat(name) is None:
            raise NotFoundError(f"{store.url}/{name} is gone")
        try:
            taker: Any = parquet.RowReader(store, name) if name.endswith(".parquet") else lines.cursor(store, name, self.compression)
            for row in staying:
                if isinstance(taker, parquet.RowReader):
                    if row["written"] > running.SHORT:
                        _compare(running.read_back(taker, row), row, name)
                        yield row, (each for some in taker.pieces(row["offset"], row["records"]) for each in some.to_batches())
                        continue
                    found = taker.take(row["offset"], row["records"]).combine_chunks()
                    _compare(running.compared(found, row["checksum"]), row, name)
                    (batch,) = found.to_batches()
                    yield row, batch
                elif row["written"] > LONG:
                    yield row, _checked(taker, row, name)
                else:
                    yield row, b"".join(_checked(taker, row, name))
        except StorageError:
            raise
        except lines.UNREADABLE as e:
            raise _damaged(store.url, name, type(e).__name__) from e

    def _of(self, name: str) -> list[dict[str, Any]]:
        """The rows of a data file, in the order of their records."""
        source = self._sources.get(name)
        if source is None:
            raise NotFoundError(f"{self.store.url}/{name} is not a data file of the ledger")
        held = "" if self._is_merged(source) else source.segment
        if held != self._held:
            rows = self.fold.of(source).rows(self.store, _COLUMNS) if held else self._merged()
            rows = rows.sort_by([("data_file", "ascending"), ("offset", "ascending"), ("skip", "ascending")])
            runs = pc.run_end_encode(rows.column("data_file").combine_chunks())
            ends = runs.run_ends.to_pylist()
            files = zip(runs.values.to_pylist(), pairwise([0, *ends]), strict=True)
            self._held, self._rows = held, {file: rows.slice(start, end - start) for file, (start, end) in files}
        return self._rows[name].to_pylist() if name in self._rows else []

    def _is_merged(self, source: Source) -> bool:
        return self.fold.base is not None and source.number <= self.fold.base.version

    def _merged(self) -> pa.Table:
        """The rows of all files that a checkpoint has merged: a piece of it is long, and is read once for all of them."""
        mine = {name: source for name, source in self._sources.items() if self._is_merged(source)}
        first, last = min(source.first for source in mine.values()), max(source.last for source in mine.values())
        files, tables = pa.array(list(mine), pa.string()), list[pa.Table]()
        for piece in (source for source in self.fold.sources if source.piece):
            rows = self.fold.of(piece).rows(self.store, _COLUMNS, first, last)
            tables.append(rows.filter(pc.is_in(rows.column("data_file"), files)))
        return pa.concat_tables(tables)


def _checked(taker: lines.Plain | lines.Framed, row: dict[str, Any], name: str) -> Iterator[bytes]:
    digest = xxhash.xxh3_64()
    for piece in taker.take(row["offset"], row["skip"], row["written"]):
        digest.update(piece)
        yield piece
    _compare(digest.intdigest(), row, name)


def _compare(found: int, row: dict[str, Any], name: str) -> None:
    if found != row["checksum"]:
        raise _damaged(row["path"], name, "its checksum differs")


def _damaged(of: str, name: str, what: str) -> FormatError:
    # What to do comes before the path, which may be long: a message is cut at its end.
    return FormatError(
        f"the data file {name} is damaged ({what}): nothing was changed. Put back a good copy, or give it up with "
        f"ledger.forget(file={name!r}) and run again. It does not hold what the ledger says of {of}"
    )
