"""Rows as they come into a table: with their keys and partitions, in order, each key once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quire.errors import RefusedError
from quire.table.format.config import TableConfig
from quire.table.format.keys import partition_paths, record_keys
from quire.table.write import columns
from quire.table.write.blocks import KEY, laid
from quire.table.write.columns import DELETED
from quire.table.write.key_order import order

PARTITION = "_quire_partition"  # a column of rows that are not in runs yet
INSERTS = ("insert", "bulk_insert", "insert_overwrite")  # operations that do not look for keys, and delete nothing
LONGEST = 32 << 10  # bytes of a record key: each file says its first and its last one


def prepare(rows: pa.RecordBatch, wanted: pa.Schema, config: TableConfig, operation: str) -> pa.RecordBatch:
    """Rows as they stand in a block, with their partitions before their keys; RefusedError for one that has no key, say."""
    deletes: Any = pa.array(np.full(rows.num_rows, operation == "delete"))
    if operation != "delete" and DELETED in rows.schema.names and not pa.types.is_null(rows.schema.field(DELETED).type):
        deletes = pc.fill_null(rows.column(DELETED), False)
    keys = record_keys(rows, config.key, named=None)
    if (longest := pc.max(pc.binary_length(keys)).as_py() or 0) > LONGEST:
        raise RefusedError(
            f"a record key of {', '.join(config.key)} has {longest:,} bytes, and it may have {LONGEST:,}: name another field"
        )
    paths = partition_paths(rows, config.partition_by, hive_style=config.hive_style, url_encode=config.url_encode)
    if config.ordering is not None:
        _check_ordering(rows, config.ordering)
    fitted = columns.fit(rows, wanted)
    return laid(keys, deletes, fitted.append_column(pa.field(PARTITION, paths.type), paths))


def _check_ordering(rows: pa.RecordBatch, name: str) -> None:
    column = rows.column(name)
    if column.null_count:
        raise RefusedError(f"{column.null_count:,} of {rows.num_rows:,} rows have no value in the ordering field {name!r}: give one.")
    if pa.types.is_floating(column.type) and (nans := pc.sum(pc.is_nan(column)).as_py()):
        raise RefusedError(
            f"{nans:,} of {rows.num_rows:,} rows have NaN in the ordering field {name!r}, which comes neither before nor after."
        )


def in_order(rows: pa.Table, ordering: str | None, *, by: str = KEY, every: bool = False) -> pa.Table:
    """Prepared rows by partition and key; of each key the last by ordering alone, and of equal ones the one that came later.

    `by`: the column that is the key here. `every`: all rows of a key stay, as they came.
    """
    rows = rows.unify_dictionaries()
    paths = rows.column(PARTITION).combine_chunks() if rows.num_rows else pa.array([], pa.dictionary(pa.int32(), pa.string()))
    distinct = paths.dictionary.take(pc.sort_indices(paths.dictionary))
    ranks = pc.index_in(paths.dictionary, value_set=distinct).take(paths.indices)
    keys = rows.column(by)
    places, last = order(ranks, keys)
    if ordering is not None and not last.all():
        sorting = pa.table({"p": ranks, "k": keys, "o": rows.column(ordering)})
        places = np.asarray(pc.sort_indices(sorting, [("p", "ascending"), ("k", "ascending"), ("o", "ascending")]))  # a stable sort
    rows = rows.set_column(rows.schema.get_field_index(PARTITION), PARTITION, pa.DictionaryArray.from_arrays(ranks, distinct))
    return rows.take(pa.array(places if every else places[last]))


def bytes_of(rows: pa.RecordBatch) -> int:
    """Bytes of the rows; the names of all partitions, which each batch points to, are not theirs."""
    return int(rows.drop_columns([PARTITION]).nbytes) if PARTITION in rows.schema.names else int(rows.nbytes)


def cut(rows: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    """The rows in batches of at most `most` bytes, or of a single row."""
    if rows.num_rows > 1 and bytes_of(rows) > most:
        half = rows.num_rows // 2
        yield from cut(rows.slice(0, half), most)
        yield from cut(rows.slice(half), most)
    elif rows.num_rows:
        yield rows
