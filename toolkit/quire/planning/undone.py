"""The splits that a ledger does not cover, as a task finds them in its piece of a listing: nothing is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from quire.coverage.antijoin import remaining
from quire.planning.changes import Policy, decide
from quire.planning.deleted import Blind
from quire.planning.listing import Listed, Listing, _chunks, _columns, _identified, _named, _table, _taker
from quire.planning.pieces import Piece
from quire.storage import Files, connect

COLUMNS = ["path", "start", "length", "size", "version", "modified"]  # of a plan, of a listing
SPLITS = pa.schema(
    [
        ("path", pa.string()), ("start", pa.int64()), ("length", pa.int64()), ("size", pa.int64()), ("version", pa.string()),
        ("modified", pa.timestamp("us", "UTC")),
    ]
)  # fmt: skip
TOLD = SPLITS.append(pa.field("reason", pa.string()))  # why a file is told that is not to be done; null of the others


def undone(listing: Listing, piece: Piece, *, changed: bool = False) -> Iterator[pa.Table]:
    """The splits of a piece that are to be done, as rows of `SPLITS`; of `TOLD`, where `changed` asks for what has changed since, too."""
    dest, policy = connect(listing.dest, listing.dest_options), Policy(told=changed)
    root = listing.roots[piece.root]
    for files in _chunks(listing, piece, Listed(), Blind(root, listing.selection, piece)):
        left = remaining(_table(root.url, files), listing.fold, dest, policy.needs)
        decided = decide(left.known, policy, root.store, root.url)
        rows = shown(pa.concat_tables([left.files, pa.Table.from_pylist(decided.again, left.files.schema)]))
        if not changed:
            yield rows
            continue
        why = dict(decided.reported)
        told = [{**file, "start": 0, "length": file["size"]} for file, _ in left.known if file["path"] in why]
        rows = pa.concat_tables([rows, shown(pa.Table.from_pylist(told, left.files.schema))])
        reasons = [*[None] * (rows.num_rows - len(told)), *(why[file["path"]] for file in told)]
        yield rows.append_column(TOLD.field("reason"), pa.array(reasons, pa.string()))


def unsettled(listing: Listing, piece: Piece) -> tuple[list[str], int]:
    """The names of a piece that a next look would take, or look at again: of a piece with all below a directory, that directory's.

    And how many of the names are not there.
    Nothing of the others is to be done: the ledger has them as they are there, or they are not there, or the call does not mean them.
    """
    root, dest, policy = listing.roots[piece.root], connect(listing.dest, listing.dest_options), listing.policy
    found, later = Listed(), list[str]()
    takes, prefix = _taker(root, listing.selection, found, listing.dest, piece.root), len(root.url.rstrip("/")) + 1
    needs = tuple(dict.fromkeys((*policy.needs, *replace(policy, supersede=True).needs)))
    if piece.names:
        chunks: Iterator[pa.Table] = iter([_columns(Files.of(sorted(_named(listing, piece, found, takes, later))))])
    else:
        chunks = _chunks(listing, piece, found, Blind(root, listing.selection, piece))
    for listed in chunks:
        files, _ = _identified(root, listed, found)
        if not files.num_rows:
            continue
        left = remaining(_table(root.url, files), listing.fold, dest, needs)
        again = [decide(left.known, replace(policy, supersede=each), root.store, root.url).again for each in (False, True)]
        paths = {*left.files.column("path").to_pylist(), *(row["path"] for rows in again for row in rows)}
        later += sorted(path[prefix:] for path in paths)
    if not piece.names and (later or found.young or found.unreadable.count):
        later = [piece.folder]
    return later, found.differing.missing


def shown(rows: pa.Table) -> pa.Table:
    """Rows with `COLUMNS` as users see them: a time is a time, and missing where the store tells none."""
    known = pc.not_equal(rows.column("modified"), 0)
    moment = pc.if_else(known, pc.divide(rows.column("modified"), 1000), pa.scalar(None, pa.int64()))
    at = rows.schema.get_field_index("modified")
    return rows.set_column(at, "modified", moment.cast(pa.timestamp("us", "UTC"))).select(COLUMNS).cast(SPLITS)
