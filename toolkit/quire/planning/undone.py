"""The splits that a ledger does not cover, as a task finds them in its piece of a listing: nothing is written."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from quire.coverage.antijoin import remaining
from quire.planning.deleted import Seen
from quire.planning.listing import Listed, Listing, _chunks, _table
from quire.planning.pieces import Piece
from quire.storage import connect

__all__ = ["COLUMNS", "SPLITS", "shown", "undone"]

COLUMNS = ["path", "start", "length", "size", "version", "modified"]  # of a plan, of a listing
SPLITS = pa.schema(
    [
        ("path", pa.string()), ("start", pa.int64()), ("length", pa.int64()), ("size", pa.int64()), ("version", pa.string()),
        ("modified", pa.timestamp("us", "UTC")),
    ]
)  # fmt: skip


def undone(listing: Listing, piece: Piece) -> Iterator[pa.Table]:
    """What of a piece is to be done, as rows of `SPLITS`."""
    dest = connect(listing.dest, listing.dest_options)
    root = listing.roots[piece.root]
    for entries in _chunks(listing, piece, Listed(), Seen(root, listing.selection, piece)):
        yield shown(remaining(_table(root.url, entries), listing.fold, dest).files)


def shown(rows: pa.Table) -> pa.Table:
    """Rows with `COLUMNS` as users see them: a time is a time, and missing where the store tells none."""
    known = pc.not_equal(rows.column("modified"), 0)
    moment = pc.if_else(known, pc.divide(rows.column("modified"), 1000), pa.scalar(None, pa.int64()))
    at = rows.schema.get_field_index("modified")
    return rows.set_column(at, "modified", moment.cast(pa.timestamp("us", "UTC"))).select(COLUMNS).cast(SPLITS)
