"""The columns of users' rows as data files have them: one decision for runs and rewrites of which columns go together.

`stored` gives the types that Parquet gives back as they were, and that Spark reads: every value may be missing, no metadata, times in
microseconds. `unify` says whether rows of two schemas may lie in one destination. `fit` brings rows into the columns that were decided.
Rows that all three accept can be written, read and written again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quire.formats.damage import ARROW
from quire.formats.parquet import CONTENT
from quire.sources.transforms.functions import WrongTypeError
from quire.sources.transforms.widening import DiffersError, as_wider, difference, widened

DEEP = 50  # lists, structs and maps within each other
LARGEST = 1 << 30  # bytes of one value: what is near 2 GiB fits into no page of Parquet
_PLAIN: list[tuple[Callable[[pa.DataType], bool], pa.DataType]] = [
    (lambda kind: pa.types.is_large_string(kind) or str(kind) == "string_view", pa.string()),
    (lambda kind: pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind) or str(kind) == "binary_view", pa.binary()),
    (pa.types.is_date, pa.date32()),
    (pa.types.is_float16, pa.float32()),
]
_AS_IT_IS = (
    pa.types.is_null, pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_string, pa.types.is_binary,
)  # fmt: skip
# The years 1 to 9999, in microseconds and in days.
_FIRST, _LAST = (-62_135_596_800_000_000, -719_162), (253_402_300_799_999_999, 2_932_896)
_HOLLOW = "Parquet holds no struct without fields. Leave the column out, or give text"
_WIDE = 38  # digits of a decimal that Spark reads

# How the columns of a destination go together with others: left out, they are the same; they may be fewer, as the destination's have grown;
# or the destination's grow by them.
FEWER, MORE = "fewer", "more"


# ------------------------------------------------------------------------------------------------------------------- what is stored
def stored(schema: pa.Schema) -> pa.Schema:
    """The columns in which rows of a schema are written; WrongTypeError says which column Parquet or Spark does not take.

    A type without any value (null) stays: it fits every other one, and alone it can not be written (see `storable`).
    """
    check_names(schema)
    return pa.schema([pa.field(f.name, _stored(f.type, f.name), True) for f in schema])


def refined(schema: pa.Schema) -> pa.Schema:
    """The same, and what must not be missing is still said."""
    return pa.schema([kind.with_nullable(said.nullable) for kind, said in zip(stored(schema), schema, strict=True)])


def nullable(schema: pa.Schema) -> pa.Schema:
    """The same columns where every value may be missing."""
    return pa.schema([f.with_nullable(True) for f in schema])


def storable(schema: pa.Schema) -> pa.Schema:
    """The same schema; WrongTypeError where a column has no type, as none of its rows has a value."""
    for field in schema:
        if (path := next(places(field.type, field.name, pa.types.is_null), None)) is not None:
            raise WrongTypeError(f"the column {path!r} has no value, so its type is not known: let the function say it")
    return schema


def check_names(fields: Iterable[pa.Field], who: str = "the rows have") -> None:
    """WrongTypeError for a column that is there twice, also where its names differ in their case alone, or for none at all."""
    seen = dict[str, str]()
    for name in (field.name for field in fields):
        if (other := seen.get(name.lower())) is not None:
            how = "" if other == name else f", which to Spark is {other!r}"
            raise WrongTypeError(f"{who} a column twice: {name!r}{how}")
        seen[name.lower()] = name
    if not seen:
        raise WrongTypeError(f"{who} no column")


def _stored(kind: pa.DataType, at: str, depth: int = 1) -> pa.DataType:
    of = pa.types
    if depth > DEEP:
        raise WrongTypeError(
            f"the column {at.partition('.')[0].rstrip('[]')!r} holds more than {DEEP} lists, structs or maps within each other"
        )
    if isinstance(kind, pa.BaseExtensionType) or of.is_dictionary(kind):
        return _stored(kind.value_type if of.is_dictionary(kind) else kind.storage_type, at, depth + 1)
    if found := next((to for like, to in _PLAIN if like(kind)), None):
        return found
    if of.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if of.is_decimal(kind):
        return _decimal(kind, at)
    if of.is_time(kind) or of.is_duration(kind):
        raise _no(kind, at, "Spark reads no such column. Give a whole number of microseconds, or text")
    return kind if any(like(kind) for like in _AS_IT_IS) else _nested(kind, at, depth + 1)


def _decimal(kind: Any, at: str) -> pa.DataType:
    digits = kind.precision - min(kind.scale, 0)
    if digits > _WIDE or kind.scale > kind.precision:
        raise _no(kind, at, f"Spark reads {_WIDE} digits at most. Give fewer, or text")
    return pa.decimal128(digits, max(kind.scale, 0))


def _nested(kind: Any, at: str, depth: int) -> pa.DataType:
    of = pa.types
    if of.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        if not fields:
            raise _no(kind, at, _HOLLOW)
        check_names(fields, f"the struct {at!r} has")
        return pa.struct([pa.field(f.name, _stored(f.type, f"{at}.{f.name}", depth), True) for f in fields])
    if of.is_map(kind):
        return pa.map_(_stored(kind.key_type, f"{at}.key", depth), _stored(kind.item_type, f"{at}.value", depth))
    if of.is_list(kind) or of.is_large_list(kind) or of.is_fixed_size_list(kind):
        return pa.list_(_stored(kind.value_type, f"{at}[]", depth))
    check_cast(kind, at)
    raise _no(kind, at, "it has no place in Parquet. Give another type")


def check_cast(kind: pa.DataType, at: str) -> None:
    """WrongTypeError for a type that Arrow casts wrongly, and says nothing: a list_view's values are others as a list, or gone."""
    if "list_view<" in str(kind):
        raise _no(kind, at, "Arrow loses values where it casts one. Give it as list")


def _no(kind: pa.DataType, at: str, why: str) -> WrongTypeError:
    return WrongTypeError(f"the column {at!r} is {kind}, and {why}")


def check_fields(field: pa.Field) -> None:
    """WrongTypeError for a struct without fields in a column, at any depth."""
    hollow = pa.struct([])
    if (path := next(places(field.type, field.name, hollow.equals), None)) is not None:
        raise _no(hollow, path, _HOLLOW)


def places(kind: Any, at: str, meant: Callable[[Any], bool]) -> Iterator[str]:
    """The places in a type of `stored` whose own type is meant."""
    of = pa.types
    if meant(kind):
        yield at
    elif of.is_struct(kind):
        for i in range(kind.num_fields):
            yield from places(kind.field(i).type, f"{at}.{kind.field(i).name}", meant)
    elif of.is_map(kind):
        yield from places(kind.key_type, f"{at}.key", meant)
        yield from places(kind.item_type, f"{at}.value", meant)
    elif of.is_list(kind):
        yield from places(kind.value_type, f"{at}[]", meant)


# -------------------------------------------------------------------------------------------------------------- what goes together
def unify(frozen: pa.Schema | None, new: pa.Schema) -> pa.Schema:
    """The columns of a destination that has those of `frozen` and gets rows of `new`: DiffersError where names or types differ.

    Order, metadata and whether a value may be missing do not matter; a column without any value takes the other's type.
    """
    new = refined(new)
    if frozen is None:
        return new
    frozen = refined(frozen)
    kinds = _unified(list(frozen), list(new), "")
    return pa.schema([f.with_nullable(f.nullable or new.field(f.name).nullable) for f in kinds])


def together(there: pa.Schema | None, new: pa.Schema, evolves: str = "") -> pa.Schema:
    """The same (`unify`), or, where columns may be FEWER or MORE than those of `there`, the columns that hold the rows of both."""
    if there is None or not evolves:
        return unify(there, new)
    there = nullable(there)
    # A column without any value may be left out: nothing says its type, and nothing is lost.
    found = widened(there, pa.schema([f for f in stored(new) if f.name in there.names or not pa.types.is_null(f.type)]))
    if evolves == FEWER and found != there:
        raise DiffersError(difference(there, found))
    return found


def _unified(there: list[pa.Field], new: list[pa.Field], within: str) -> list[pa.Field]:
    ours = {f.name: f for f in new}
    said = [_missing(f, there, within) for f in new if f.name not in {t.name for t in there}]
    lower = {f.name.lower() for f in new}
    said += [f"the column {within + f.name!r} ({f.type}) is missing" for f in there if f.name.lower() not in lower]
    if said:
        raise DiffersError(_some(said))
    found = list[pa.Field]()
    for field in there:
        try:
            found.append(pa.field(field.name, _one(field.type, ours[field.name].type, within + field.name), field.nullable))
        except DiffersError as e:
            said.append(str(e))
    if said:
        raise DiffersError(_some(said))
    return found


def _missing(field: pa.Field, there: list[pa.Field], within: str) -> str:
    near = next((f.name for f in there if f.name.lower() == field.name.lower()), None)
    if near is not None:
        return f"the column {within + field.name!r} is called {within + near!r} in the destination"
    return f"the column {within + field.name!r} ({field.type}) is not in the destination"


def _some(said: list[str]) -> str:
    return "; ".join(said[:3]) + (f"; and {len(said) - 3} more" if len(said) > 3 else "")


def _one(there: Any, new: Any, at: str) -> pa.DataType:
    of = pa.types
    if of.is_null(new) or there == new:
        return there
    if of.is_null(there):
        return new
    if of.is_struct(there) and of.is_struct(new):
        ours, theirs = ([kind.field(i) for i in range(kind.num_fields)] for kind in (there, new))
        return pa.struct(_unified(ours, theirs, f"{at}."))
    if of.is_list(there) and of.is_list(new):
        return pa.list_(_one(there.value_type, new.value_type, f"{at}[]"))
    if of.is_map(there) and of.is_map(new):
        return pa.map_(_one(there.key_type, new.key_type, f"{at}.key"), _one(there.item_type, new.item_type, f"{at}.value"))
    raise DiffersError(f"the column {at!r} is {new}, and {there} in the destination")


# ------------------------------------------------------------------------------------------------------------------------- rows
def fit(rows: pa.RecordBatch, there: pa.Schema | None = None, evolves: str = "") -> pa.RecordBatch:
    """Rows in the columns in which they are written, beside those of `there`, as `together` brings them.

    DiffersError where they do not go together, WrongTypeError for what cannot be written or would lose something by it.
    """
    same = rows.schema.equals(CONTENT if there is None else there, check_metadata=True)
    schema = rows.schema if same else nullable(storable(together(there, rows.schema, evolves)))
    try:
        rows.validate(full=True)  # text that is not UTF-8, say, which could not be read again
    except ARROW as e:
        raise WrongTypeError(f"the rows are not valid ({type(e).__name__})") from None
    columns = []
    for field in schema:
        if field.name not in rows.schema.names:
            columns.append(pa.nulls(rows.num_rows, field.type))
            continue
        column = rows.column(field.name)
        if not column.type.equals(field.type, check_metadata=True):
            try:
                column = as_wider(column, stored(pa.schema([rows.schema.field(field.name)]))[0].type, field.type)
            except ARROW as e:
                raise WrongTypeError(
                    f"the column {field.name!r} is {column.type}, and would lose data as {field.type} ({type(e).__name__})"
                ) from None
        _check_values(column, field.name)
        columns.append(column)
    return pa.record_batch(columns, schema=schema)


def _check_values(column: Any, at: str) -> None:
    """WrongTypeError for a value that Parquet cannot hold, or that Python and Spark could not give back."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        if column.nbytes > LARGEST and (longest := pc.max(pc.binary_length(column)).as_py() or 0) > LARGEST:
            raise WrongTypeError(f"the column {at!r} holds a value of {longest:,} bytes, and one may have {LARGEST:,}")
    elif pa.types.is_temporal(kind):
        days = pa.types.is_date(kind)
        least, most = pc.min_max(column.cast(pa.int32() if days else pa.int64())).as_py().values()
        if least is not None and not _FIRST[days] <= least <= most <= _LAST[days]:
            raise WrongTypeError(f"the column {at!r} holds a time outside of the years 1 to 9999")
    elif pa.types.is_struct(kind):
        for field, inner in zip(kind, column.flatten(), strict=True):
            _check_values(inner, f"{at}.{field.name}")
    elif pa.types.is_map(kind):
        _check_values(column.keys, f"{at}.key")
        _check_values(column.items, f"{at}.value")
    elif pa.types.is_list(kind):
        _check_values(column.flatten(), f"{at}[]")
