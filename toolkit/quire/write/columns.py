"""The columns of the rows that are written: those of the frame, as the destination has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from quire.commit.log import Log
from quire.coverage.fold import fold
from quire.coverage.live import live
from quire.errors import NotFoundError, RefusedError, UsageError, about, choose, scrub
from quire.formats import parquet
from quire.sources.partition_by import check_seen
from quire.sources.transforms import schemas
from quire.sources.transforms.columns import check_fields, together
from quire.sources.transforms.functions import WrongTypeError
from quire.spark.releases import from_arrow_schema, to_arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# What may name a directory; others have several spellings.
_NAMING = (pa.types.is_string, pa.types.is_integer, pa.types.is_date, pa.types.is_boolean)


def of_frame(schema: StructType, by: tuple[str, ...]) -> tuple[pa.Schema, pa.Schema]:
    """The columns of a frame that go into files, and those that make directories; UsageError where they cannot."""
    found = to_arrow_schema(schema)
    if not found.names:
        raise UsageError("the frame has no columns, so nothing of its rows can be written. Select some.")
    for i, name in enumerate(found.names):
        if name.lower() in (other.lower() for other in found.names[:i]):
            raise UsageError(f"two columns of the frame are called {name!r}, so no reader could tell them apart. Rename one of them.")
        if pa.types.is_null(found.field(name).type):
            raise UsageError(f"the column {name!r} has no type, as it holds nothing but nulls. Cast it: col({name!r}).cast('string').")
        try:
            check_fields(found.field(name))
        except WrongTypeError as e:
            raise UsageError(f"{e}.") from None
    with about("partition_by"):
        for name in by:
            choose(name, found.names, "column in partition_by")
            check_seen(name)
            if not any(fits(found.field(name).type) for fits in _NAMING):
                raise UsageError(
                    f"the column {name!r} of partition_by is {found.field(name).type}: directories are named by texts, whole numbers, "
                    f"dates and booleans. Cast it."
                )
        if len(by) == len(found.names):
            raise UsageError("partition_by names all columns, and nothing would be left for the files.")
    own = pa.schema([pa.field(f.name, _loose(f.type)) for f in found if f.name not in by])
    return own, pa.schema([(name, found.field(name).type) for name in by])


def as_there(log: Log, own: pa.Schema, by: tuple[str, ...], wanted: str = "") -> pa.Schema:
    """The columns in the order and the types of the destination's files; RefusedError where they are others.

    Where no file is there any more, the log says the columns, and keeps to them.

    `wanted`: how they go together with those (see `columns.together`).
    """
    first = next((file.name for file in live(log, fold(log))), "")
    if not first and not log.schemas():
        return own
    try:
        there = schemas.grown(log) or (parquet.open_file(log.store, first).schema_arrow.remove_metadata() if first else schemas.there(log))
    except NotFoundError:
        tip = log.tip
        if log.refresh().tip == tip:
            raise  # it is lost
        return as_there(log, own, by, wanted)  # another call has put it together with others
    except UsageError:  # of files that others have written, and none is there any more, whose columns have names of Arrow's
        if schemas.told(own) in log.schemas():
            return own
        raise _others(log, f"there they are {scrub(min(log.schemas()), 200)}", wanted, by, first) from None
    assert there is not None
    if evolves := schemas.evolving(log, wanted):
        try:
            return together(there, own, evolves)
        except WrongTypeError as e:
            raise _others(log, str(e), wanted, by, first) from None
    mine, theirs = {f.name: _of_spark(f) for f in own}, {f.name: _of_spark(f) for f in there}
    if mine == theirs:
        return there
    missing, more = sorted(theirs.keys() - mine.keys()), sorted(mine.keys() - theirs.keys())
    said = [f"{name!r} is {theirs[name]} there and {mine[name]} here" for name in mine if theirs.get(name, mine[name]) != mine[name]]
    said += [f"{name!r} is missing here" for name in missing] + [f"{name!r} is not there" for name in more]
    raise _others(log, "; ".join(said[:3]), wanted, by, first)


def _others(log: Log, said: str, wanted: str, by: tuple[str, ...], file: str) -> RefusedError:
    hint = " Its files lie in directories: say option('partition_by', …) as before." if not by and "=" in file else ""
    grows = "" if wanted or hint else " Or say option('schema_evolution', 'add'): new columns are added."
    return RefusedError(
        f"the frame has other columns than {log.store.url}: {said}. Nothing was written: write the same columns, or into "
        f"another destination.{hint}{grows}"
    )


def _of_spark(field: pa.Field) -> str:
    found: Any = from_arrow_schema(pa.schema([pa.field(field.name, _loose(field.type))]))
    return str(found[0].dataType.simpleString())


def _loose(kind: Any) -> Any:
    """The same type where every value may be missing: one frame says so, and the next one does not."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _loose(f.type)) for f in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _loose(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, _loose(kind.value_type)))
    if pa.types.is_large_string(kind):
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(kind) else kind
