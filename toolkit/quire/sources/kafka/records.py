"""Kafka's records on their way to data files: columns as they are, lines of values, or the columns of a user's function.

A function gets a batch with the columns of `RECORDS` and returns one with its own, of as many rows as it likes. Where it raises, it is
called again with halves of the batch, until what it does not take stands alone: these records are quarantined, each with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from quire.coverage.deduplicate import Deduplicate
from quire.coverage.keys import Window
from quire.errors import UsageError
from quire.sources import partition_by
from quire.sources.decoders import Decoder
from quire.sources.kafka.deduplicate import check_column
from quire.sources.kafka.rows import as_batch, fitted
from quire.sources.transforms import schemas
from quire.sources.transforms.columns import MORE, fit, nullable
from quire.sources.transforms.content import BadContent, told_apart
from quire.sources.transforms.functions import WrongTypeError, alone, passes, reason, type_name
from quire.sources.transforms.widening import DiffersError, in_columns, rounded

BatchFunction = Callable[[pa.RecordBatch], pa.RecordBatch]
# Leaves out rows of records that are known: (rows, the records, of each row the number of its record) → those that stay.
Distinct = Callable[[pa.RecordBatch, pa.RecordBatch, Sequence[int]], pa.RecordBatch]
RECORDS, VALUES, ESCAPED = RECORDS_AS = ("records", "values", "escaped values")  # what they become without a function
NEWLINES = ("quarantine", "escape")
DATE = "date"  # where no column has this name, the day of the record's timestamp (UTC)
OUT_OF_RANGE = "out of range: "  # and the number that the producer has given, instead of the kind of a time that is null


class QuarantinedMessage(NamedTuple):
    """A record that is quarantined."""

    offset: int
    value: bytes | None
    reason: str
    message: str | None


@dataclass
class Growing:
    """The columns of the records that an attempt has made so far, where they may grow; why some have other ones."""

    schema: pa.Schema | None = None
    differs: str = ""


class FolderOutput(NamedTuple):
    """A batch's output for one directory ("" without directories)."""

    folder: str
    made: bytes | pa.RecordBatch


@dataclass(frozen=True)
class Loading:
    """How the records of a destination are made; travels to the tasks."""

    format: str  # parquet | lines
    function: BatchFunction | None = field(default=None, repr=False)
    schema: pa.Schema | None = None  # of a function's columns
    newlines: str = "quarantine"  # of values that are to become one line each: quarantined | escape
    by: str = ""  # a column, by the values of which files lie in directories
    keep_messages: bool = False
    record_loss: bool = False  # records that retention removed are written into the ledger, instead of an error
    evolves: str = ""  # how the columns of rows go together with `schema` (see `columns.together`)
    deduplicate: Deduplicate | None = None  # which records are the same; None: as the destination has it
    window: Window | None = field(default=None, repr=False, compare=False)  # the keys of the records that were kept
    distinct: Distinct | None = field(default=None, repr=False, compare=False)  # by a column that a decoder makes
    growing: Growing = field(default_factory=Growing, repr=False, compare=False)

    def made(self, records: pa.RecordBatch) -> tuple[list[FolderOutput], list[QuarantinedMessage]]:
        """A batch's output, and the records that were quarantined."""
        quarantined = list[QuarantinedMessage]()
        records = self._readable(records, quarantined)
        if not records.num_rows:
            return [], quarantined
        if self.function is not None:
            columns = [*self._called(records, quarantined)]
            if self.evolves:  # later ones may have more columns
                columns = [in_columns(each, self.growing.schema or each.schema) for each in columns]
            rows = as_batch(pa.Table.from_batches(columns)) if columns else None
        else:
            rows = records
        if self.format == "lines":
            return [*self._lines(records, quarantined)], quarantined
        return ([*self._folders(rows)] if rows is not None and rows.num_rows else []), quarantined

    # -------------------------------------------------------------------------------------------------------------- a function
    def call(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """The function's result for a batch, in the destination's columns; BadContent if it raises, or returns anything else."""
        return self._guarded(lambda: self._fitted(self._given(records)))

    def _given(self, records: pa.RecordBatch) -> pa.Table:
        assert self.function is not None
        with alone():
            found = self.function(records)
        if isinstance(found, pa.RecordBatch):
            found = pa.Table.from_batches([found])
        if not isinstance(found, pa.Table):
            raise WrongTypeError(f"the function returned {type_name(found)}, and not a pyarrow.RecordBatch")
        return found

    def _fitted(self, rows: pa.Table) -> pa.RecordBatch:
        there = self.growing.schema or (None if self.schema is None else nullable(self.schema))
        made = fit(as_batch(fitted(rows, self.schema, self.evolves)), there, self.evolves)
        self._check_folders(made)
        self._check_told(made)
        if self.evolves:
            self.growing.schema = made.schema
        return made

    def _guarded(self, work: Callable[[], pa.RecordBatch]) -> pa.RecordBatch:
        try:
            return work()
        except WrongTypeError as e:
            if isinstance(e, DiffersError):
                self.growing.differs = self.growing.differs or str(e)
            raise BadContent(f"TypeError: {e}") from None
        except BaseException as e:
            if passes(e):
                raise
            raise BadContent(reason(self.function, e, self.keep_messages)) from None

    def _check_folders(self, rows: pa.RecordBatch) -> None:
        """Refuse rows whose values name no directory."""
        if self.by in rows.schema.names and (why := partition_by.unfit(self.by, rows.column(self.by))):
            raise WrongTypeError(why)

    def _check_told(self, rows: pa.RecordBatch) -> None:
        """Refuse rows with values that tell no records apart."""
        if self.distinct is not None and self.deduplicate is not None and self.deduplicate.column in rows.schema.names:
            try:
                check_column(self.deduplicate.column, rows.schema)
            except UsageError as e:
                raise WrongTypeError(str(e)) from None

    def _readable(self, records: pa.RecordBatch, quarantined: list[QuarantinedMessage]) -> pa.RecordBatch:
        """The records without those whose headers the client cannot give, or whose time is none, where it would be written or given on."""
        records = _nameable(records, quarantined)
        if self.format == "lines" and self.by != DATE:
            return records
        kinds = records.column("timestamp_type")
        bad = pc.fill_null(pc.starts_with(kinds, OUT_OF_RANGE), False)
        if not bad.true_count:
            return records
        for i in pc.indices_nonzero(bad).to_pylist():
            given = kinds[i].as_py().removeprefix(OUT_OF_RANGE)
            why = f"its timestamp, {given} milliseconds since 1970, lies in no year from 1 to 9999 (are these micro- or nanoseconds?)"
            quarantined.append(_quarantined(records, i, why))
        return records.filter(pc.invert(bad))

    def columns(self, records: pa.RecordBatch) -> pa.Schema | None:
        """The columns that the function gives for the first records that it takes; None where it takes none of these."""
        if isinstance(self.function, Decoder):
            return self.function.shown(records) if records.num_rows else None
        found = next(self._called(self._readable(records, []), []), None) if records.num_rows else None
        return None if found is None else schemas.canonical(found.schema)

    def _called(self, records: pa.RecordBatch, quarantined: list[QuarantinedMessage]) -> Iterator[pa.RecordBatch]:
        if isinstance(self.function, Decoder):
            # Where columns may be added, those of each record's own schema come.
            decoder = self.function.reading(None if self.evolves == MORE else self.schema)
            yield from self._decoded(decoder, records, quarantined)
            return
        for first, _, found in told_apart(records.num_rows, lambda first, end: self.call(records.slice(first, end - first))):
            if isinstance(found, BadContent):
                quarantined.append(_quarantined(records, first, found.reason))
            else:
                yield found

    def _decoded(self, decoder: Decoder, records: pa.RecordBatch, quarantined: list[QuarantinedMessage]) -> Iterator[pa.RecordBatch]:
        """A decoder tells itself which records are wrong; a registry that is of no use now ends the attempt."""
        made = decoder.decoded(records)
        shows = self.evolves and decoder.registry is None and records.num_rows > 1  # else a record's own schema says its columns
        if shows and made.rows is not None and self._mixed(as_batch(made.rows)):
            half = records.num_rows // 2
            for some in (records.slice(0, half), records.slice(half)):
                yield from self._decoded(decoder, some, quarantined)
            return
        quarantined += [_quarantined(records, i, why) for i, why in made.wrong]
        rows = made.rows
        if rows is None:
            return

        def fit_some(first: int, end: int) -> pa.RecordBatch:
            return self._guarded(lambda: self._fitted(rows.slice(first, end - first)))

        for first, _, found in told_apart(rows.num_rows, fit_some):
            if isinstance(found, BadContent):
                quarantined.append(_quarantined(records, made.places[first], found.reason))
            else:
                yield found if self.distinct is None else self.distinct(found, records, made.places[first : first + found.num_rows])

    def _mixed(self, rows: pa.RecordBatch) -> bool:
        """Whether whole numbers have become fractions as they were decoded beside such, and may be others now."""
        there = self.growing.schema or self.schema or pa.schema([])
        return any(rounded(rows.column(f.name), f.type) for f in there if f.name in rows.schema.names)

    # ------------------------------------------------------------------------------------------------------------------- lines
    def _lines(self, records: pa.RecordBatch, quarantined: list[QuarantinedMessage]) -> Iterator[FolderOutput]:
        """Values with a newline behind each; one that is none, or that is several lines, is quarantined."""
        values = records.column("value")
        if self.newlines == "escape":
            values = pc.replace_substring(pc.replace_substring(values, b"\\", b"\\\\"), b"\n", b"\\n")
            several = pa.repeat(pa.scalar(False), len(values))
        else:
            several = pc.fill_null(pc.match_substring(values, b"\n"), False)
        bad = pc.or_(pc.is_null(values), several)
        for i in pc.indices_nonzero(bad).to_pylist():
            why = "the value holds a newline, and would be several lines" if values[i].is_valid else "a tombstone: no value, so no line"
            quarantined.append(_quarantined(records, i, why))
        if len(quarantined):
            keep = pc.invert(bad)
            records, values = records.filter(keep), values.filter(keep)
        if records.num_rows:
            for part in self._folders(records.set_column(1, "value", values)):
                assert isinstance(part.made, pa.RecordBatch)
                yield FolderOutput(part.folder, b"\n".join(part.made.column("value").to_pylist()) + b"\n")

    # ------------------------------------------------------------------------------------------------------------- directories
    def _folders(self, rows: pa.RecordBatch) -> Iterator[FolderOutput]:
        """The rows by the values of a column, which then stands in the directory's name alone."""
        if not self.by:
            yield FolderOutput("", rows)
            return
        own = self.by in rows.schema.names
        column = rows.column(self.by) if own else rows.column("timestamp").cast(pa.date32(), safe=False)
        rest = rows.drop_columns([self.by]) if own and self.format == "parquet" else rows
        yield from (FolderOutput(*part) for part in partition_by.apart(rest, [(self.by, column)]))


def check_by(by: str, schema: pa.Schema) -> None:
    """Refuse a column that makes no directories."""
    if not by:
        return
    if by not in schema.names:
        if by == DATE and "timestamp" in schema.names and pa.types.is_timestamp(schema.field("timestamp").type):
            return
        raise UsageError(f"partition_by={by!r} is not a column. The columns are {', '.join(schema.names)}, and 'date' of 'timestamp'.")
    partition_by.check_kind(by, schema.field(by).type)
    if len(schema) == 1:
        raise UsageError(f"partition_by={by!r}: it is the only column, and nothing would be left in the files.")


def _nameable(records: pa.RecordBatch, quarantined: list[QuarantinedMessage]) -> pa.RecordBatch:
    """The records without those whose headers the client cannot give."""
    headers = records.column("headers")
    if headers.null_count == len(headers) or not (nameless := pc.is_null(pc.struct_field(headers.flatten(), "key"))).true_count:
        return records
    bad = pc.is_in(pa.array(range(len(headers))), pc.list_parent_indices(headers).filter(nameless))
    quarantined += [_quarantined(records, i, "a header's name is not UTF-8") for i in pc.indices_nonzero(bad).to_pylist()]
    return records.filter(pc.invert(bad))


def _quarantined(records: pa.RecordBatch, row: int, why: str, message: str | None = None) -> QuarantinedMessage:
    return QuarantinedMessage(records.column("offset")[row].as_py(), records.column("value")[row].as_py(), BadContent(why).reason, message)
