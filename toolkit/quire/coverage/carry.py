"""Writes data files again that a job removes: the rows that stay are carried over, record by record, with their checksums compared.

A compaction carries all of them, a `forget` all but what is forgotten, a job that supersedes a file all but its old content.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from quire.commit.entries import Uncover
from quire.coverage.counts import Counts, counts
from quire.coverage.fold import Fold
from quire.errors import FormatError, NotFoundError, StorageError
from quire.formats import lines, parquet
from quire.storage import Store

__all__ = ["Dropped", "carried", "dropped"]

_COLUMNS = ["path", "version", "start", "length", "data_file", "offset", "skip", "written", "records", "checksum", "fingerprint",
            "state", "reason"]  # fmt: skip
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


def carried(store: Store, fold: Fold, name: str, compression: str, without: Dropped) -> Iterator[tuple[dict[str, Any], Any]]:
    """The rows of a data file that stay, each with its record: bytes, an iterator of them for a long one, or a batch.

    NotFoundError if the file is gone, FormatError if it does not hold what the ledger says.
    """
    source = fold.source_of(store, name)
    if source is None:
        raise NotFoundError(f"{store.url}/{name} is not a data file of the ledger")
    rows = fold.of(source).rows(store, _COLUMNS)
    rows = rows.filter(pc.equal(rows.column("data_file"), name)).sort_by([("offset", "ascending"), ("skip", "ascending")])
    rows = rows.to_pylist()
    riders = defaultdict[tuple[int, int], list[dict[str, Any]]](list)  # pieces of a split that stand for the record of its first one
    for row in rows:
        if not row["written"] and not row["records"]:
            riders[row["offset"], row["skip"]].append(row)
    rows = [r for r in rows if r["written"] or r["records"]]
    staying = [{**r, "riders": riders[r["offset"], r["skip"]]} for r in rows
               if (r["path"], r["version"], r["start"], r["length"]) not in without.keys]  # fmt: skip
    if not staying:
        return  # none to carry: the file is not read, and may be gone
    if store.stat(name) is None:
        raise NotFoundError(f"{store.url}/{name} is gone")
    try:
        taker: Any = parquet.Rows(store, name) if name.endswith(".parquet") else lines.cursor(store, name, compression)
        for row in staying:
            if isinstance(taker, parquet.Rows):
                found = taker.take(row["offset"], row["records"]).combine_chunks()
                _compare(parquet.checksum(found), row, name)
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
