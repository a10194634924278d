"""The first rows of a destination, without Spark: for the shell."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from quire.commit.kept import with_kept
from quire.errors import QuireError, RefusedError, StorageError
from quire.formats import lines, parquet, partition_columns
from quire.read import rows
from quire.read.content import Content, content, of_version
from quire.sources.transforms.widening import in_columns
from quire.storage import Store
from quire.storage.within import is_table


def first_rows(store: Store, limit: int) -> Iterator[Any]:
    """The first rows of a destination: bytes a line, or a dict a row or file."""
    if is_table(store):
        raise RefusedError(f"{store.url} is a table: read it with quire.Table({store.url!r}).snapshot(), or any reader of Hudi.")
    store = with_kept(store)
    held = content(store, store.url)
    try:
        with of_version(store, held.version):
            yield from itertools.islice(_rows(store, held), max(limit, 0))
    except QuireError:
        raise
    except lines.UNREADABLE as e:
        raise StorageError(f"a data file of {store.url} is damaged ({type(e).__name__}). See which with quire ledger verify.") from e


def _rows(store: Store, held: Content) -> Iterator[Any]:
    compression = held.spec.compression
    if held.spec.format == "raw":
        for source in held.folded.sources:
            for _, batch in rows.of_raw(store, (source, ""), compression, held.folded):
                yield from batch.to_pylist()
    for file in held.files if held.spec.format == "lines" else ():
        for batch in lines.batches(store, file.name, compression, headed=held.spec.header):
            yield from batch.column(0).to_pylist()
    made = held.columns()[1] if held.spec.format == "parquet" and held.spec.by and held.files else held.by
    for file in held.files if held.spec.format == "parquet" else ():
        for batch in parquet.open_file(store, file.name).iter_batches(batch_size=100):
            found = batch if held.grown is None else in_columns(batch, held.grown)
            lacking = {key: kind for key, kind in made.items() if key not in found.schema.names}
            yield from partition_columns.with_values(found, file.name, lacking).to_pylist()
