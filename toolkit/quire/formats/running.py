"""The checksum of rows that come some at a time, as those of a long file do: however they are cut, it is the same.

A ledger does not say which of both checksums a record has: this one, or that of `parquet`, for which all rows have to be there. A record
that is short is compared with both; a long one is read some rows at a time, and held as a whole only if an earlier quire may have done so.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa
import xxhash

from quire.formats.parquet import COUNTED, COUNTS, THERE, RowReader, checksum, parts

SHORT = 64 << 20  # bytes of rows that are held as a whole
LONG = 4 << 30  # bytes of rows that no record has that was held


class Running:
    """xxh3-64 of the values of rows: a digest for all that is alike of a column, and one of these digests.

    found = Running()
    for batch in batches:
        found.update(batch)
    found.intdigest()
    """

    def __init__(self) -> None:
        self._digests = dict[str, defaultdict[str, Any]]()  # of each column, by what is digested of it

    def update(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Some more rows."""
        for batch in rows.to_batches() if isinstance(rows, pa.Table) else (rows,):
            for name in batch.schema.names:
                column = self._digests.setdefault(name, defaultdict(xxhash.xxh3_64))
                for of, part in parts(batch.column(name), ""):
                    if not of.endswith(COUNTED):
                        column[of].update(part)
                        continue
                    n, nulls = COUNTS.unpack(part)
                    if n and not nulls:  # else the part that follows says which are there
                        column[of.removesuffix(COUNTED) + THERE].update(b"\1" * n)

    def intdigest(self) -> int:
        """The checksum of the rows so far."""
        digest = xxhash.xxh3_64()
        for name, column in self._digests.items():
            digest.update(f"{len(name)} {name}".encode())
            for of in sorted(column):
                digest.update(f"{of} {column[of].hexdigest()}".encode())
        return digest.intdigest()


def compared(rows: pa.Table | pa.RecordBatch, expected: int) -> int:
    """The checksum of rows that are held: `expected`, where one of both is that."""
    found = checksum(rows, expected)
    if found != expected:
        running = Running()
        running.update(rows)
        if running.intdigest() == expected:
            return expected
    return found


def read_back(reader: RowReader, row: dict[str, Any]) -> int:
    """The checksum of a record as its data file has it; `row` is that of the ledger (offset, records, written, checksum)."""
    if row["written"] > SHORT:
        running = Running()
        for some in reader.pieces(row["offset"], row["records"]):
            running.update(some)
        if (found := running.intdigest()) == row["checksum"] or row["written"] > LONG:
            return found
    return compared(reader.take(row["offset"], row["records"]), row["checksum"])
