"""The columns of a table before and after a commit, and rows in them: one decision for frames, staged rows and every round."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from quire.errors import RefusedError, UsageError, quoted
from quire.formats.damage import ARROW
from quire.table.format import filled
from quire.table.format.config import TableConfig
from quire.table.format.schema import META, storable
from quire.table.write.blocks import DELETES

RESERVED = "_quire_"  # with it begin the names of columns that rows have only on their way into a file
DELETED = "_hoodie_is_deleted"  # a row of this mark deletes its key
OPERATIONS = ("upsert", "insert", "bulk_insert", "insert_overwrite", "delete")
_of = pa.types
_ORDERED = (
    _of.is_integer, _of.is_floating, _of.is_decimal, _of.is_string, _of.is_boolean, _of.is_date, _of.is_timestamp, _of.is_binary,
)  # fmt: skip
# Types whose values another one holds without loss: rows of the first are cast to the second, wherever either of them stands.
_WIDER = {
    (pa.int32(), pa.int64()), (pa.int32(), pa.float64()), (pa.float32(), pa.float64()),
}  # fmt: skip


def brought(comes: pa.Schema, config: TableConfig, operation: str) -> pa.Schema:
    """The columns that rows of `comes` bring into a table, as it stores them, each nullable; a column without a type (null) keeps none.

    The meta columns of a snapshot stay away. A delete brings the fields of the key, of the partition and of the ordering alone.
    UsageError where one of these is not there, or for what readers of Hudi do not take.
    """
    fields = [f for f in comes if f.name not in META]
    if not fields:
        raise UsageError("the rows have no column: a table needs at least that of its key")
    needed = _needed(config)
    names = [f.name for f in fields]
    if taken := next((name for name in names if name.startswith(RESERVED)), None):
        raise UsageError(f"the column {quoted(taken)} has a name that quire needs while it sorts rows: give it one without {RESERVED!r}")
    for name, use in needed.items():
        if name not in names:
            raise UsageError(f"the rows have no column {name!r}, which is {use} of the table: they have {', '.join(names)[:300]}")
    if operation == "delete":
        fields = [f for f in fields if f.name in needed]
    typed = storable(pa.schema([f.with_type(pa.bool_()) if _of.is_null(f.type) else f for f in fields]))
    found = pa.schema([(f if _of.is_null(f.type) else ours).with_nullable(True) for f, ours in zip(fields, typed, strict=True)])
    if config.ordering is not None:
        _check_ordering(found.field(config.ordering))
    if DELETED in found.names and found.field(DELETED).type not in (pa.bool_(), pa.null()):
        raise UsageError(f"the column {DELETED!r} is {found.field(DELETED).type}, and says whether a row deletes its key: give a boolean")
    return found


def after(
    there: pa.Schema | None, comes: pa.Schema, operation: str, *, lacking: bool = False, named: Collection[str] = ()
) -> pa.Schema:  # fmt: skip
    """The columns of a table with the columns `there` after a commit of rows that bring `comes`; None: nothing has been written yet.

    Columns that are new come last and may be null. A column whose type holds less than that of the rows gets theirs: readers cast what is
    older. The mark of deleted rows is stored where the table has a column for it already. `lacking`: a column that the rows do not have
    is null in them. `named`: the columns of which keys and partitions are made, whose types stay. RefusedError for a column that is
    missing, is of another type, or differs from one of the table in its name's case alone.
    """
    if there is None or not there.names:
        return _typed([f for f in comes if f.name != DELETED])
    if other := next((f for f in there if not _is_storable(f)), None):
        raise RefusedError(f"the column {other.name!r} of the table is {str(other.type)[:200]}, which quire does not write: use Hudi")
    known = {name.lower(): name for name in there.names}
    new, kinds = list[pa.Field](), dict[str, pa.DataType]()
    for field in comes:
        name = known.get(field.name.lower())
        if name is None:
            new.append(field)
        elif name != field.name:
            raise RefusedError(f"the column {field.name!r} is called {name!r} in the table: give it this name")
        else:
            kinds[name] = _common(there.field(name), field, keeps=name in named or operation == "delete")
    if operation == "delete":
        return there
    missing = [f for f in there if f.name not in comes.names and f.name != DELETED]
    if missing := [f.name for f in missing if not (lacking and f.nullable)]:
        raise RefusedError(
            f"the rows have no column {missing[0]!r}, which the table has: a row replaces the one of its key as a whole. Give all of "
            f"{', '.join(there.names)[:300]}"
        )
    wider = [f.with_type(kinds.get(f.name, f.type)) for f in there]
    return pa.schema([*wider, *_typed([f for f in new if f.name != DELETED])])


def as_known(comes: pa.Schema, there: pa.Schema | None) -> pa.Schema:
    """The columns of rows, each in the table's type where that one is only more of the same: another number, a struct with more fields."""
    kinds = {f.name: f.type for f in there or []}
    return pa.schema([f.with_type(kinds[f.name]) if f.name in kinds and _is_part(f.type, kinds[f.name]) else f for f in comes])


def _is_part(comes: pa.DataType, there: pa.DataType) -> bool:
    if _of.is_struct(comes) and _of.is_struct(there):
        of = {f.name: f.type for f in there}
        return all(f.name in of and _is_part(f.type, of[f.name]) for f in comes)
    if _of.is_list(comes) and _of.is_list(there):
        return _is_part(comes.value_type, there.value_type)
    if _of.is_map(comes) and _of.is_map(there):
        return _is_part(comes.key_type, there.key_type) and _is_part(comes.item_type, there.item_type)
    numbers = (_of.is_integer, _of.is_floating, _of.is_decimal)
    return _of.is_null(comes) or comes == there or all(any(like(kind) for like in numbers) for kind in (comes, there))


def fit(rows: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Rows in these columns, each nullable: a column that they do not have is null, and one that `columns` does not have goes.

    RefusedError for a value that its column does not hold.
    """
    arrays = []
    for field in columns:
        at = rows.schema.get_field_index(field.name)
        column = rows.column(at) if at >= 0 else filled.nulls(rows.num_rows, field.type)
        if not column.type.equals(field.type, check_metadata=True):
            try:
                column = filled.cast(column, field.type)
            except (*ARROW, ValueError) as e:
                raise RefusedError(
                    f"the column {field.name!r} is {column.type}, and has values that {field.type} does not hold ({type(e).__name__})"
                ) from None
        arrays.append(column)
    return pa.record_batch(arrays, schema=pa.schema([f.with_nullable(True) for f in columns]))


def check_values(block: pa.RecordBatch, must: pa.Schema) -> None:
    """RefusedError where a row of a block that is to be stored lacks a value that `must` must have."""
    for field in must:
        if not field.nullable and block.column(field.name).null_count:
            missing = pc.sum(pc.and_not(pc.is_null(block.column(field.name)), block.column(DELETES))).as_py()
            if missing:
                raise RefusedError(f"{missing:,} of {block.num_rows:,} rows have no value in {field.name!r}, which the table needs.")


def _is_storable(field: pa.Field) -> bool:
    try:
        return bool(storable(pa.schema([field])).field(0).type == field.type)
    except UsageError:
        return False


def _needed(config: TableConfig) -> dict[str, str]:
    found = dict.fromkeys(config.key, "the record key")
    for name in config.partition_by:
        found.setdefault(name, "a partition field")
    if config.ordering is not None:
        found.setdefault(config.ordering, "the ordering field")
    return found


def _typed(fields: list[pa.Field]) -> pa.Schema:
    if untyped := [f.name for f in fields if _of.is_null(f.type)]:
        raise RefusedError(f"the column {untyped[0]!r} has no value, so its type is not known: give the column a type, or leave it out")
    return pa.schema([f.with_nullable(True) for f in fields])


def _check_ordering(field: pa.Field) -> None:
    if not _of.is_null(field.type) and not any(like(field.type) for like in _ORDERED):
        raise UsageError(f"the ordering field {field.name!r} is {field.type}, whose values have no order: give a number, a time or text")


def _common(there: pa.Field, comes: pa.Field, *, keeps: bool) -> pa.DataType:
    """The type of a column after rows of another type; `keeps`: it stays as it is."""
    found = _wider(there.type, comes.type)
    if found is None or (keeps and found != there.type):
        why = ", and keys and partitions are made of it" if found is not None and keeps else ""
        raise RefusedError(f"the column {comes.name!r} is {comes.type}, and {there.type} in the table{why}: cast it to this type")
    return found


def _wider(there: pa.DataType, comes: pa.DataType) -> pa.DataType | None:
    """The type that holds each value of both, which is one of them, also of parts; what has to have a value still has; None: none does."""
    if _of.is_null(comes) or _nullable(there) == _nullable(comes) or _holds(there, comes):
        return there
    if _holds(comes, there):
        return comes
    if _of.is_struct(there) and _of.is_struct(comes) and [f.name for f in there] == [f.name for f in comes]:
        kinds = [_wider(one.type, other.type) for one, other in zip(there, comes, strict=True)]
        return None if None in kinds else pa.struct([f.with_type(kind) for f, kind in zip(there, kinds, strict=True)])
    if _of.is_list(there) and _of.is_list(comes):
        kind = _wider(there.value_type, comes.value_type)
        return None if kind is None else pa.list_(there.value_field.with_type(kind))
    if _of.is_map(there) and _of.is_map(comes) and there.key_type == comes.key_type:
        kind = _wider(there.item_type, comes.item_type)
        return None if kind is None else pa.map_(there.key_type, there.item_field.with_type(kind))
    return None


def _holds(there: pa.DataType, comes: pa.DataType) -> bool:
    """Whether a type holds each value of another one, and as the same text, too, which is a part of keys: decimals of one scale."""
    if _of.is_decimal(there) and _of.is_decimal(comes):
        return bool(there.scale == comes.scale and there.precision >= comes.precision)
    return (comes, there) in _WIDER


def _nullable(kind: pa.DataType) -> pa.DataType:
    """The same type, where every value within it may be null."""
    if _of.is_struct(kind):
        return pa.struct([pa.field(kind.field(i).name, _nullable(kind.field(i).type)) for i in range(kind.num_fields)])
    if _of.is_list(kind):
        return pa.list_(pa.field("element", _nullable(kind.value_type)))
    if _of.is_map(kind):
        return pa.map_(kind.key_type, pa.field("value", _nullable(kind.item_type)))
    return kind
