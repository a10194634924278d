"""Writes again what whole data files hold, where the ledger says only which commit their rows are of: what a shuffle, a claim or
`format("quire")` has written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from quire.commit.entries import Deferred
from quire.errors import FormatError, NotFoundError, StorageError
from quire.formats import lines, parquet
from quire.sources.transforms import columnar

if TYPE_CHECKING:
    from quire.engine.attempt import Attempt
    from quire.storage import Store

BATCH = 20_000  # rows that are written together


def rewrite(attempt: Attempt) -> None:
    """Write all rows of the data files that a task removes, in the order of the files; sorted, where the job says by which columns."""
    head, output = attempt.work.head, attempt.output
    order, held, counts = head.intent.get("sort_by") or [], list[pa.Table](), list[int]()

    def add(batch: pa.RecordBatch) -> None:
        output.writer.add(batch)
        counts.append(batch.num_rows)

    for name in attempt.planned.removes:
        try:
            if not name.endswith(".parquet"):
                for data in _lines(attempt.store, name, head.spec.compression):
                    output.add(data, whole=False)
                    counts.append(data.count(b"\n"))
            elif order:
                held.append(pa.Table.from_batches(columnar.rows_of(parquet.stored(attempt.store, name))))
            else:
                for batch in columnar.rows_of(parquet.stored(attempt.store, name)):
                    add(batch)
        except NotFoundError as e:
            attempt.left.append(Deferred(name, str(e)))
        except StorageError:
            raise
        except (*lines.UNREADABLE, *parquet.DAMAGED) as e:
            raise FormatError(
                f"the data file {name} is damaged ({type(e).__name__}): nothing was changed. Put back a good copy, or forget the commit "
                f"that has written it."
            ) from e
    for table in _sorted(held, order):
        for batch in table.to_batches(max_chunksize=BATCH):
            add(batch)
    output.writer.close()
    output.places(counts)


def _lines(store: Store, name: str, compression: str) -> Iterator[bytes]:
    """The lines of a data file, some at a time; the last one is ended, too."""
    begun = list[bytes]()  # pieces of a line, put together once: a long one has very many
    for piece in lines.contents(store, name, compression):
        end = piece.rfind(b"\n") + 1
        if end:
            yield b"".join([*begun, piece[:end]])
            begun = []
        if end < len(piece):
            begun.append(piece[end:])
    if begun:
        yield b"".join([*begun, b"\n"])


def _sorted(held: list[pa.Table], order: list[str]) -> Iterator[pa.Table]:
    """The rows of files with the same columns, in order."""
    while held:
        alike = [table for table in held if table.schema.equals(held[0].schema)]
        held = [table for table in held if not table.schema.equals(held[0].schema)]
        yield pa.concat_tables(alike).sort_by([(name, "ascending") for name in order])
