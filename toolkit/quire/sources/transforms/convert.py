"""A file's content on its way to a data file: a transform, and the layout of its records."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from quire.formats.lines import LONGEST
from quire.formats.parquet import CONTENT, USUAL
from quire.formats.parquet_options import ParquetOptions
from quire.sources import magic, transforms
from quire.sources.decoders import Decoder
from quire.sources.kafka.records import Loading
from quire.sources.partition_by import PartitionBy
from quire.sources.splits import FileInfo
from quire.sources.transforms import BadContent, UserFunction, columnar, text
from quire.sources.transforms.columns import LARGEST, MORE, together
from quire.sources.transforms.processing import Processing
from quire.sources.transforms.text.reading import Reading


@dataclass(frozen=True)
class Convert:
    """The transform and layout of a file's content."""

    transform: str  # lines | raw | xml | json | parquet | orc | csv | jsonl | callable
    format: str
    compression: str
    target: int
    max_file_size: int
    function: UserFunction | None = field(default=None, repr=False)
    keep_messages: bool = False
    marks: bool = False  # rows get fingerprints, by which one can tell later that a file was appended to
    holds: bool = False  # a last line without newline is held back
    process: Processing | None = None  # where splits are given to a function, and not whole files
    loading: Loading | None = None  # of Kafka's records
    by: PartitionBy = field(default_factory=PartitionBy)  # the directories of the destination, and whether those of the source count
    parquet: ParquetOptions = USUAL  # how Parquet files are written
    evolves: str = ""  # how the columns of rows go together with those that are there (see `columns.together`)
    columns: pa.Schema | None = None  # of the rows that are there, beside which those of a function, or of files with columns, have to lie

    @property
    def partitions(self) -> bool:
        """Whether the directories of a file's path make columns."""
        return self.by.source

    @property
    def of_user(self) -> bool:
        """Whether a function of the user's makes the records."""
        return self.function is not None or (self.loading is not None and self.loading.function is not None)

    @property
    def of_columns(self) -> bool:
        """Whether records are rows with columns of their own."""
        return self.of_user or self.has_columns

    @property
    def has_columns(self) -> bool:
        """Whether the files themselves hold rows, whose columns are frozen with the plan."""
        return self.transform in (*columnar.NAMES, *text.NAMES)

    @property
    def takes_text(self) -> bool:
        """Whether a file of another kind is a mistake, and no content."""
        return self.transform in ("lines", "xml", "json")

    @property
    def streams(self) -> bool:
        """Content of any length goes through without being held."""
        return self.transform in ("lines", "raw") and self.format != "parquet"

    @property
    def holds_at_most(self) -> int | None:
        """The bytes of a content that is held as a whole; None: it is not."""
        if self.process is not None:
            return None if self.process.streams else self.process.most
        return None if self.streams else self.max_file_size

    @property
    def header(self) -> bytes:
        """The names of the columns, with which each data file of delimited text begins."""
        return self.process.header if isinstance(self.process, Reading) else b""

    @property
    def together(self) -> Callable[[Sequence[bytes]], tuple[pa.RecordBatch, list[int]]] | None:
        """Makes the rows of several files at once (with how many each has), where that is possible."""
        if self.transform in columnar.NAMES and self.columns is not None:
            return functools.partial(columnar.together, self.transform, columns=self.columns)
        if isinstance(self.function, Decoder) and self.format == "parquet" and self.function.all_columns is not None:
            return self.function.together
        return None

    def of(self, columns: pa.Schema | None) -> Convert:
        """The same with the columns of the plan."""
        process = self.process.of(columns) if isinstance(self.process, Reading) else self.process
        return dataclasses.replace(self, columns=columns, process=process)

    def beside(self, there: pa.Schema | None, evolves: str) -> Convert:
        """The same for a user's function whose rows are to lie beside those that are there."""
        process = self.process and dataclasses.replace(self.process, evolves=evolves)
        if evolves and process and process.schema is not None:
            there = together(there, process.schema, MORE)
        return dataclasses.replace(self, columns=there, evolves=evolves, process=process)

    def records(self, content: bytes, file: FileInfo) -> bytes | pa.RecordBatch:
        """The output for a whole file; BadContent if it cannot be parsed."""
        made: bytes | list[bytes] | pa.RecordBatch
        if self.transform == "callable":
            assert self.function is not None
            made = transforms.call(self.function, content, file, self.keep_messages)
        elif self.transform in columnar.NAMES:
            return columnar.rows(self.transform, content, self.columns)
        else:
            if self.takes_text:
                magic.check(content, self.transform)
            made = _BUILT_IN[self.transform](content)
        if self.format == "parquet":
            return made if isinstance(made, pa.RecordBatch) else self._rows(made, file)
        if isinstance(made, pa.RecordBatch):
            raise BadContent(f"TypeError: the function returned rows, and format {self.format!r} takes bytes. Use format='parquet'.")
        if isinstance(made, bytes):
            made = [made]
        if self.format == "lines":
            return b"".join(record if record.endswith(b"\n") else record + b"\n" for record in made if record)
        return b"".join(made)

    def _rows(self, made: bytes | list[bytes], file: FileInfo) -> pa.RecordBatch:
        if self.transform == "callable":
            raise BadContent(
                "TypeError: the function returned bytes, and format 'parquet' takes a pyarrow.RecordBatch. Use format='lines'."
            )
        records = [made] if isinstance(made, bytes) else made
        n, longest, size = len(records), max(map(len, records), default=0), sum(map(len, records))
        if longest > LARGEST or size > LONGEST:
            raise BadContent(
                f"its longest record has {longest:,} bytes, all of them {size:,}, and Parquet takes {LARGEST:,} and {LONGEST:,}: "
                f"use format='lines' or 'raw'"
            )
        modified = pa.array([file.modified // 1000 or None] * n, pa.timestamp("us", "UTC"))
        return pa.record_batch([pa.array([file.path] * n), modified, pa.array(records, pa.binary())], schema=CONTENT)


_BUILT_IN: dict[str, Callable[[bytes], bytes | list[bytes]]] = {
    "lines": transforms.lines, "raw": transforms.raw, "xml": transforms.xml, "json": transforms.json,
}  # fmt: skip
