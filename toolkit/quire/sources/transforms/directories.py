"""Columns that the directories `name=value` of a file's path make, as Hive and Spark have them, beside those of its rows."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from quire.errors import RefusedError
from quire.formats import partition_columns, partitions
from quire.formats.damage import ARROW
from quire.sources.transforms.content import BadContent
from quire.sources.transforms.schemas import type_text

_MADE = {b"quire": b"directories"}  # in the metadata of a schema: its columns are not those of files


def seen(paths: Iterable[str]) -> pa.Schema | None:
    """The columns that the directories of some files make, with the types of their values (null: none has one); None: there is none."""
    found = dict[str, set[str | None]]()
    for folder in {path.rpartition("/")[0] for path in paths}:
        for name, value in partitions.values(f"{folder}/").items():
            found.setdefault(name, set()).add(value)
    columns = [(name, partition_columns.inferred([v for v in values if v is not None])) for name, values in sorted(found.items())]
    return pa.schema(columns, metadata=_MADE) if columns else None


def are_made(schema: pa.Schema) -> bool:
    """Whether a schema is of `seen`."""
    return bool(schema.metadata == _MADE)


def beside(columns: pa.Schema | None, files: Iterable[pa.Schema], made: Iterable[pa.Schema]) -> pa.Schema | None:
    """The columns of a job with those that directories make.

    RefusedError where files have one of them as their own, and where one is spelt in two ways.
    """
    types = dict[str, pa.DataType]()
    for schema in made:
        for field in schema:
            types[field.name] = partition_columns.both(types.get(field.name, pa.null()), field.type)
    lower = {name.lower(): name for name in types}
    if other := next((name for name in types if lower[name.lower()] != name), None):
        raise RefusedError(
            f"directories {other}=… and {lower[other.lower()]}=… make one column to Spark, and two to others: nothing was read. Rename "
            f"one, or gather the files of each into a destination by include=."
        )
    if own := next((name for schema in files for name in schema.names if name.lower() in lower), None):
        raise RefusedError(
            f"files have a column {own!r} of their own, and directories {lower[own.lower()]}=… name one, too: nothing was read. Leave "
            f"partition_columns out, or gather the ones without the others by include=."
        )
    if columns is None:
        return None
    known = {name.lower() for name in columns.names}
    more = [
        pa.field(name, kind if not pa.types.is_null(kind) else pa.string()) for name, kind in types.items() if name.lower() not in known
    ]
    return pa.schema([*columns, *more])


def filled(path: str, rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of a file with the values of its directories, whose columns are null; BadContent where they hold others."""
    for name, text in partitions.values(path).items():
        i = rows.schema.get_field_index(name)
        if i < 0:
            raise BadContent(f"its directory {name[:100]}=… makes a column that is not among those of the job, or its destination")
        field = rows.schema.field(i)
        if rows.column(i).null_count < rows.num_rows:
            raise BadContent(f"it has values of its own in the column {name!r}, which its directory names, too")
        try:
            value = partitions.typed(text, field.type)
        except (ValueError, OverflowError, *ARROW):
            kind = type_text(field.type, name)
            raise BadContent(f"its directory {name[:100]}={str(text)[:100]} is not {kind}, which the column is") from None
        rows = rows.set_column(i, field, pa.repeat(value[0], rows.num_rows))
    return rows
