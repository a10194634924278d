"""Rows that leave the ledger by a job, as objects of its plan: of files that are forgotten, or superseded by their new version."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from quire.storage import Store

# `data_file` is "" where a row has none, and `records` 0.
DROPS = pa.schema(
    [
        ("data_file", pa.string()), ("path", pa.string()), ("version", pa.string()), ("start", pa.int64()), ("length", pa.int64()),
        ("state", pa.string()), ("records", pa.int64()),
    ]
)  # fmt: skip
PIECE = 20_000  # rows in one object


def put_drops(store: Store, drops: pa.Table, named: Callable[[str], str]) -> list[tuple[str, str]]:
    """Write rows that leave the ledger, in the order of their data files; each object with each of the files ("" for none) of its rows."""
    found = list[tuple[str, str]]()
    drops = drops.sort_by("data_file")
    for at in range(0, drops.num_rows, PIECE):
        name, piece = named("drops"), drops.slice(at, PIECE).cast(DROPS)
        put_table(store, name, piece)
        found += [(name, file) for file in pc.unique(piece.column("data_file")).to_pylist()]
    return found


def filled(rows: pa.Table) -> pa.Table:
    """Rows of the ledger as `DROPS` has them, which lacks no value."""
    for name, lacking in (("data_file", ""), ("records", 0)):
        column = rows.column(name)
        rows = rows.set_column(rows.schema.get_field_index(name), name, pc.fill_null(column, pa.scalar(lacking, column.type)))
    return rows.select(DROPS.names).cast(DROPS)


def put_table(store: Store, name: str, table: pa.Table) -> None:
    """Write a small table of a plan."""
    out = pa.BufferOutputStream()
    pq.write_table(table, out, compression="zstd", row_group_size=10_000)
    store.put(name, out.getvalue().to_pybytes())
