"""Writes again what stays of the data files that a task removes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from quire.commit.entries import Deferred
from quire.commit.log import Log
from quire.coverage.carry import Carrying
from quire.coverage.fold import fold
from quire.engine.rows import Growing, LedgerRow, Record
from quire.errors import FormatError, NotFoundError
from quire.sources.transforms.columns import fit
from quire.sources.transforms.functions import WrongTypeError

if TYPE_CHECKING:
    from quire.engine.attempt import Attempt

_COLUMNS = ("path", "version", "start", "length", "state", "reason", "fingerprint", "member")


def carry(attempt: Attempt) -> None:
    """Write the records that stay, with the rows that they had."""
    head, store, rows = attempt.work.head, attempt.store, attempt.rows
    writer, convert = attempt.output.writer, attempt.work.convert
    columns = convert.by.without(convert.columns)  # those of directories stand in no file
    folded = fold(Log(store).refresh(), head.base)
    files = attempt.planned.removes if head.spec.traced else ()  # else all rows of a file leave with it
    carrying = Carrying(store, folded, files, head.spec.compression, attempt.dropped)
    for name in files:
        try:
            for row, record in carrying.carried(name):
                written = Record(row["records"], row["written"], row["checksum"])
                if isinstance(record, pa.RecordBatch):
                    fitted = fit(record, writer.schema or columns, convert.evolves)
                    writer.add(fitted)
                    written = written if fitted.schema.equals(record.schema) else Record.of(fitted)
                elif name.endswith(".parquet"):
                    grown = Growing()
                    fitting = (fit(some, writer.schema or columns, convert.evolves) for some in record)
                    writer.add_stream(map(grown.add, fitting), row["written"])
                    written = grown.record or written
                elif isinstance(record, bytes):
                    attempt.output.add(record, whole=name.endswith(".gz"))
                else:
                    attempt.output.add_stream(record, row["written"], whole=name.endswith(".gz"))
                parts = [LedgerRow(**{c: each[c] for c in _COLUMNS}) for each in (row, *row["riders"])]
                rows.add(parts, written)
        except NotFoundError as e:
            attempt.left.append(Deferred(name, str(e)))
        except WrongTypeError as e:
            raise FormatError(
                f"the data file {name} holds columns that cannot lie beside those of the others: {e}. Nothing was changed: give it up "
                f"with ledger.forget(file={name!r}), and run again."
            ) from e
        except FormatError as e:
            if fold(Log(store).refresh()).source_of(store, name) is not None:
                raise
            attempt.left.append(Deferred(name, str(e)))  # damaged, and given up by another job meanwhile: this one is planned again
        rows.flush()
