"""The rows of the files that a command names: Parquet, CSV, and JSON with an object a line."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.dataset
import pyarrow.fs
import pyarrow.json

from quire.arguments import format_size
from quire.errors import UsageError, quoted, scrub
from quire.formats.damage import ARROW

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset

MOST = 1 << 30  # bytes of a file of text, which is held whole; Parquet is read in pieces
BLOCK = 64 << 20  # bytes that Arrow parses at once: no row is longer
_ZONED = r":[0-9.]+ *(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"
_NO_ZONE = "the column {!r} has times without a zone: say --utc if they are UTC, or write the zone, as 2026-11-22T10:00:00Z."
_ROW = msgspec.json.Decoder(dict[str, msgspec.Raw])


def rows_of(files: Sequence[str], known: pa.Schema | None, *, utc: bool = False) -> Dataset:
    """The rows of the files, in their order, as one dataset; text is taken for the types of the columns that are `known`.

    `utc`: times without a zone are UTC; else they are refused. Raises UsageError for a file that is not there, is of another kind, is
    damaged, or has other columns than the first one.
    """
    found = [_opened(text, known, utc) for text in files]
    first = next((i for i, each in enumerate(found) if each.schema.names), 0)
    names = found[first].schema.names
    for text, each in zip(files, found, strict=True):
        if lacking := [name for name in each.schema.names and names if name not in each.schema.names]:
            raise UsageError(f"{_said(text)} has no column {lacking[0]!r}, which {_said(files[first])} has: give it one, or call apart.")
        if more := [name for name in each.schema.names if name not in names]:
            raise UsageError(f"{_said(files[first])} has no column {more[0]!r}, which {_said(text)} has: give it one, or call apart.")
    rows = [each for each in found if each.schema.names]
    if not rows:  # nothing but empty files
        return pyarrow.dataset.dataset((known or pa.schema([])).empty_table())
    try:
        columns = reduce(_together, (_moments(each.schema.remove_metadata(), utc) for each in rows))
        same = pa.schema([columns.field(name) for name in names])
        return pyarrow.dataset.dataset([_as(each, same) for each in rows])
    except (*ARROW, ValueError) as e:
        raise UsageError(f"the columns of the files do not fit together: {scrub(str(e), 300)}. Call for each file apart.") from e


def _moments(columns: pa.Schema, utc: bool) -> pa.Schema:
    """The columns, with times that have a zone; UsageError for one without, where these are not said to be UTC."""
    local = [f.name for f in columns if pa.types.is_timestamp(f.type) and f.type.tz is None]
    if local and not utc:
        raise UsageError(_NO_ZONE.format(local[0]))
    return pa.schema([f.with_type(pa.timestamp(f.type.unit, "UTC")) if f.name in local else f for f in columns])


def _together(one: pa.Schema, other: pa.Schema) -> pa.Schema:
    return pa.unify_schemas([one, other], promote_options="permissive")


def _as(rows: Dataset, columns: pa.Schema) -> Dataset:
    if isinstance(rows, pyarrow.dataset.InMemoryDataset):
        return pyarrow.dataset.dataset(rows.to_table(columns=columns.names).cast(columns))
    return _parquet(rows.files[0], columns)


def _parquet(path: str, columns: pa.Schema | None = None) -> Dataset:
    return pyarrow.dataset.dataset([path], columns, format="parquet", filesystem=pa.fs.LocalFileSystem())


def _opened(text: str, known: pa.Schema | None, utc: bool) -> Dataset:
    if "://" in text:
        raise UsageError(f"{scrub(text)!r} is a URL: name files of this machine here, or give Table.upsert a frame in Python.")
    path = Path(os.path.expanduser(text))  # with a user whom nobody knows it is a name as any other
    if os.path.isdir(path):
        raise UsageError(f"{_said(text)} is a directory: name the files in it, as {_said(text.rstrip('/'))}/*.parquet.")
    if not os.path.exists(path):  # which a name that is too long for the disk does not, either
        raise UsageError(f"the file {_said(text)} does not exist. Check the spelling.")
    packed = path.suffix.lower() in _PACKED
    suffix = (path.with_suffix("") if packed else path).suffix.lower()
    read = _TEXT.get(suffix)
    try:
        if suffix == ".parquet" and not packed:
            found = _parquet(str(path.absolute()))
        elif read is not None:
            found = pyarrow.dataset.dataset(_timed(read(_content(path, _PACKED.get(path.suffix.lower())), _timeless(known)), known, utc))
        else:
            raise UsageError(
                f"{_said(text)} does not say by its suffix what it holds: .parquet, {', '.join(_TEXT)}, the last ones also .gz or .zst."
            )
    except (*ARROW, OSError) as e:
        why = os.strerror(e.errno) if isinstance(e, OSError) and e.errno else str(e)
        raise UsageError(f"{_said(text)} cannot be read: {scrub(why.rstrip('.'), 300)}.") from e
    if twice := next((name for name in found.schema.names if found.schema.names.count(name) > 1), None):
        raise UsageError(f"{_said(text)} has two columns {twice!r}: give one of them another name.")
    return found


def _said(text: str) -> str:
    return quoted(text).strip("'\"")


def _content(path: Path, packed: str | None) -> bytes:
    with pa.input_stream(str(path), compression=packed) as stream:
        found: bytes = stream.read(MOST + 1)
    if len(found) > MOST:
        raise UsageError(f"{path.name} has more than {format_size(MOST)} of text. Cut it, or make Parquet of it, which is read in pieces.")
    return found


def _timeless(known: pa.Schema | None) -> pa.Schema | None:
    """The known columns, in which moments are text still: Arrow's readers refuse those without a zone, and do not say where they are."""
    return known and pa.schema([f.with_type(pa.string()) if pa.types.is_timestamp(f.type) else f for f in known])


def _timed(rows: pa.Table, known: pa.Schema | None, utc: bool) -> pa.Table:
    """Rows whose moments are moments, and not text."""
    for at, name in enumerate(rows.schema.names):
        if known is not None and name in known.names and pa.types.is_timestamp(known.field(name).type):
            text = rows.column(at)
            zoned = pc.match_substring_regex(text, _ZONED)
            if not utc and not (pc.all(zoned).as_py() or len(zoned) == zoned.null_count):
                raise UsageError(_NO_ZONE.format(name))
            whole = pc.if_else(zoned, text, pc.binary_join_element_wise(text, "Z", ""))
            rows = rows.set_column(at, name, whole.cast(known.field(name).type))
    return rows


def _csv(data: bytes, known: pa.Schema | None) -> pa.Table:
    """The rows of a file with a header; an empty field is null."""
    return pyarrow.csv.read_csv(
        pa.BufferReader(data),
        read_options=pyarrow.csv.ReadOptions(block_size=BLOCK),
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(column_types=known, null_values=[""], strings_can_be_null=True),
    )


def _lines(data: bytes, known: pa.Schema | None) -> pa.Table:
    """The rows of a file with an object a line; a name that an object lacks is null."""
    names = set[str]()
    for number, line in enumerate(io.BytesIO(data), 1):
        if line.strip():
            try:
                names |= _ROW.decode(line).keys()
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
                raise pa.ArrowInvalid(f"line {number:,} is not a JSON object, and each line has to be one ({e})") from e
    if not names:
        return pa.table({})
    kinds = {f.name: f.type for f in known or [] if f.name in names}  # of others Arrow would say that they are there, and null
    types = pa.schema([(name, pa.string() if pa.types.is_date(kind) else kind) for name, kind in kinds.items()])  # as JSON has no dates
    found = pyarrow.json.read_json(
        pa.BufferReader(data),
        read_options=pyarrow.json.ReadOptions(block_size=BLOCK),
        parse_options=pyarrow.json.ParseOptions(explicit_schema=types, unexpected_field_behavior="infer"),
    )
    return found.cast(pa.schema([f.with_type(kinds.get(f.name, f.type)) for f in found.schema]))


_TEXT: dict[str, Callable[[bytes, pa.Schema | None], pa.Table]] = {".csv": _csv, ".json": _lines, ".jsonl": _lines, ".ndjson": _lines}
_PACKED = {".gz": "gzip", ".zst": "zstd"}
