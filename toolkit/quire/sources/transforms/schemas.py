"""Columns of rows that a user's function gives: `"id long, name string"` as Spark's DDL says it → an Arrow schema, and back.

The text is also how a schema is frozen in a plan and kept in the log, so every type that is taken has a name here: Spark's where Spark
has one, else Arrow's (`uint8`, `time64(us)`, `timestamp(ns, 'Europe/Berlin')`). Other parts of a schema than names, types and whether
a value may be missing (metadata, dictionaries, names of list items) are left out.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from quire.commit.entries import CLAIM, OFFSETS, Spec
from quire.commit.log import Log
from quire.errors import FormatError, RefusedError, UsageError, about, quoted
from quire.formats import parquet
from quire.sources import partition_by
from quire.sources.transforms import columns
from quire.sources.transforms.functions import WrongTypeError
from quire.sources.transforms.widening import DiffersError, widened

_NAMED: dict[str, pa.DataType] = {
    "boolean": pa.bool_(), "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(), "float": pa.float32(),
    "double": pa.float64(), "string": pa.string(), "binary": pa.binary(), "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"), "uint8": pa.uint8(), "uint16": pa.uint16(), "uint32": pa.uint32(), "uint64": pa.uint64(),
    "float16": pa.float16(), "large_string": pa.large_string(), "large_binary": pa.large_binary(), "date64": pa.date64(),
}  # fmt: skip
_ALSO = {
    "bool": "boolean", "byte": "tinyint", "int8": "tinyint", "short": "smallint", "int16": "smallint", "integer": "int", "int32": "int",
    "long": "bigint", "int64": "bigint", "real": "float", "float32": "float", "float64": "double", "str": "string", "bytes": "binary",
    "date32": "date", "timestamp_ltz": "timestamp", "dec": "decimal", "numeric": "decimal", "decimal128": "decimal", "list": "array",
    "varchar": "string", "char": "string", "halffloat": "float16",
}  # fmt: skip
GROWS = " Or say schema_evolution='add': new columns are added."
_UNITS: dict[str, tuple[Callable[..., pa.DataType], tuple[str, ...]]] = {
    "timestamp": (pa.timestamp, ("s", "ms", "us", "ns")), "time32": (pa.time32, ("s", "ms")), "time64": (pa.time64, ("us", "ns")),
    "duration": (pa.duration, ("s", "ms", "us", "ns")),
}  # fmt: skip
_TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)*)`|'([^']*)'|([^\W]+)|([<>(),:]))")


def canonical(schema: Any) -> pa.Schema:
    """The schema that a user means, by an Arrow schema or a text, in the types that are stored; UsageError for anything else."""
    with about("schema"):
        if isinstance(schema, str | pa.Schema):
            try:
                return columns.storable(columns.refined(parse(schema) if isinstance(schema, str) else schema))
            except WrongTypeError as e:
                raise UsageError(f"{e}, or say the columns: schema='id long, name string, …'.") from None
        raise UsageError(f"schema is a pyarrow.Schema or a text such as 'id long, name string', not {quoted(schema)}.")


def frozen(log: Log) -> pa.Schema | None:
    """The columns that the rows of a destination have, where a plan has frozen them, and those by which they have grown since."""
    said = log.frozen()
    found, more = parse(said) if said else None, grown(log)
    return found if found is None or more is None else widened(found, more)


def by(log: Log, spec: Spec) -> dict[str, pa.DataType]:
    """The columns by whose values quire has put rows into directories, with the types that they had, as far as these are known."""
    if spec.kind == CLAIM:
        return written_by(spec)
    columns = partition_by.columns_of(spec)
    if not columns:
        return {}
    if spec.kind == OFFSETS:
        found = frozen(log) or parquet.RECORDS
        return {spec.by: found.field(spec.by).type if spec.by in found.names else pa.date32()}
    known = frozen(log)
    return {name: known.field(name).type for name in columns if known is not None and name in known.names}


def written_by(spec: Spec) -> dict[str, pa.DataType]:
    """The same of what quire's own jobs have not gathered: a write has said them with their types, and others say none."""
    try:
        return {field.name: field.type for field in parse(spec.by)} if spec.by else {}
    except UsageError as e:
        raise FormatError(f"the log says partition_by={quoted(spec.by)}, which no write of quire's has said: {e} Look who wrote it.") from e


def agreed(there: pa.Schema | None, said: pa.Schema | None, dest: str, evolves: str = "") -> pa.Schema | None:
    """The columns of a destination and those of a call, as one; RefusedError where they do not go together."""
    if said is None:
        return there
    try:
        return columns.together(there, said, evolves)
    except DiffersError as e:
        assert there is not None
        raise RefusedError(
            f"the destination {dest} holds rows of the columns {text(there)}; schema= says {text(said)}: {e}. Say the same, leave schema= "
            f"out, or choose another destination.{'' if evolves == columns.MORE else GROWS}"
        ) from None


def there(log: Log, version: int | None = None) -> pa.Schema | None:
    """The columns of the rows that a destination has at a version, as its commits say them: those that hold the rows of all."""
    found = _said(log, version)
    try:
        return functools.reduce(widened, found) if found else None
    except DiffersError as e:
        raise FormatError(f"the commits of {log.store.url} have columns that do not go together: {e}. Look who wrote them.") from None


def grown(log: Log, version: int | None = None) -> pa.Schema | None:
    """The same where some commits have fewer or narrower columns than others, so that no data file speaks for all; else None."""
    if len(log.schemas(version)) < 2:  # nearly always
        return None
    try:
        found = there(log, version)
    except UsageError:  # of files that others have written, whose columns have names of Arrow's
        return None
    assert found is not None
    return None if all({*each} == {*found} for each in _said(log, version)) else found


def evolving(log: Log, wanted: str = "") -> str:
    """How columns go together with those of a destination (see `columns.together`)."""
    return wanted or (columns.FEWER if grown(log) is not None else "")


def _said(log: Log, version: int | None) -> list[pa.Schema]:
    return sorted(map(parse, log.schemas(version)), key=lambda schema: (len(schema), str(schema)))


# --------------------------------------------------------------------------------------------------------------------- to text
def text(schema: pa.Schema) -> str:
    """An Arrow schema as DDL; UsageError for a type that has no name here."""
    return ", ".join(_column(field, " ") for field in schema)


def told(schema: pa.Schema) -> str:
    """The columns of files that others may have written, as the log says them: DDL, or Arrow's words where a type has no name in that."""
    try:
        return text(columns.nullable(schema))
    except UsageError:
        return ", ".join(f"{f.name}: {f.type}" for f in schema)


def type_text(kind: pa.DataType, column: str) -> str:
    """An Arrow type as DDL; UsageError for one that has no name here."""
    return _type(kind, column)


def _column(field: pa.Field, between: str) -> str:
    if pa.types.is_null(field.type):
        raise UsageError(f"the column {field.name!r} has no value, so its type is not known. Say it: schema='{field.name} string, …'.")
    name = field.name.replace("`", "``")
    return f"`{name}`{between}{_type(field.type, field.name)}{'' if field.nullable else ' not null'}"


def _type(kind: pa.DataType, column: str) -> str:
    of = pa.types
    if named := next((name for name, known in _NAMED.items() if kind == known), None):
        return named
    if of.is_dictionary(kind):
        return _type(kind.value_type, column)
    if str(kind) in ("string_view", "binary_view"):
        return str(kind).removesuffix("_view")
    if of.is_decimal128(kind) or of.is_decimal256(kind):
        return f"decimal{'' if of.is_decimal128(kind) else '256'}({kind.precision}, {kind.scale})"
    if of.is_timestamp(kind):
        return f"timestamp({kind.unit}, '{kind.tz}')" if kind.tz else f"timestamp({kind.unit})"
    for name, test in (("time32", of.is_time32), ("time64", of.is_time64), ("duration", of.is_duration)):
        if test(kind):
            return f"{name}({kind.unit})"
    return _nested(kind, column)


def _nested(kind: pa.DataType, column: str) -> str:
    of = pa.types
    if of.is_struct(kind):
        return f"struct<{', '.join(_column(kind.field(i), ': ') for i in range(kind.num_fields))}>"
    if of.is_map(kind):
        return f"map<{_type(kind.key_type, column)}, {_type(kind.item_type, column)}>"
    if of.is_list(kind) or of.is_large_list(kind):
        return f"{'array' if of.is_list(kind) else 'large_list'}<{_type(kind.value_type, column)}>"
    raise UsageError(f"the column {column!r} has the type {kind}, which quire does not write. Say another one with schema=.")


# ------------------------------------------------------------------------------------------------------------------- from text
def parse(ddl: str) -> pa.Schema:
    """`"id long not null, tags array<string>"` → an Arrow schema; UsageError says where it is wrong."""
    reader = _SchemaReader(ddl)
    fields = reader.columns("")
    names = [field.name for field in fields]
    if len({name.lower() for name in names}) < len(names):
        raise UsageError(f"the schema names a column twice: {', '.join(names)[:200]}.")
    return pa.schema(fields)


class _SchemaReader:
    """Reads one token after the other."""

    def __init__(self, ddl: str) -> None:
        self.ddl, self.tokens, at = ddl, list[tuple[str, str, int]](), 0
        while at < len(ddl.rstrip()):
            found = _TOKEN.match(ddl, at)
            if found is None:
                raise self.wrong(at)
            kind = ("quoted", "text", "word", "mark")[(found.lastindex or 1) - 1]
            self.tokens.append((kind, (found[found.lastindex or 1] or "").replace("``", "`"), found.start(found.lastindex or 1)))
            at = found.end()
        self.next, self.depth = 0, 0

    def wrong(self, at: int) -> UsageError:
        return UsageError(
            f"the schema {quoted(self.ddl, 200)} is wrong at character {at + 1}. Write for example 'id long, name string, "
            f"price decimal(10, 2), tags array<string>'."
        )

    def peek(self) -> tuple[str, str]:
        return self.tokens[self.next][:2] if self.next < len(self.tokens) else ("end", "")

    def take(self, *marks: str, kind: str = "mark") -> str:
        found, value = self.peek()
        if found != kind or (marks and value not in marks):
            raise self.wrong(self.tokens[self.next][2] if self.next < len(self.tokens) else len(self.ddl))
        self.next += 1
        return value

    def word(self, *words: str) -> bool:
        """Whether these words come next, which are taken then."""
        for i, word in enumerate(words):
            kind, value = self.tokens[self.next + i][:2] if self.next + i < len(self.tokens) else ("end", "")
            if kind != "word" or value.lower() != word:
                return False
        self.next += len(words)
        return True

    def columns(self, end: str) -> list[pa.Field]:
        fields = list[pa.Field]()
        while True:
            name = self.take(kind="quoted" if self.peek()[0] == "quoted" else "word")
            if self.peek() == ("mark", ":"):
                self.take()
            kind = self.type()
            nullable = not self.word("not", "null")
            if self.word("comment"):
                self.take(kind="text")
            fields.append(pa.field(name, kind, nullable))
            if self.peek() != ("mark", ","):
                break
            self.take()
        if end:
            self.take(end)
        elif self.peek()[0] != "end":
            self.take("")
        return fields

    def type(self) -> pa.DataType:
        at = self.next
        name = self.take(kind="word").lower()
        name = _ALSO.get(name, name)
        self.depth += 1
        if self.depth > columns.DEEP:
            raise self.wrong(self.tokens[at][2])
        found = self._type(name, at)
        self.depth -= 1
        return found

    def _type(self, name: str, at: int) -> pa.DataType:
        given = self.peek() == ("mark", "(")
        if name in ("decimal", "decimal256"):
            precision, scale = [int(x) if x.isdigit() else -1 for x in (*self.arguments(), "0")[:2]] if given else (10, 0)
            if not 1 <= precision <= (38 if name == "decimal" else 76) or not 0 <= scale <= precision:
                raise self.wrong(self.tokens[at][2])
            return (pa.decimal128 if name == "decimal" else pa.decimal256)(precision, scale)
        if name in _UNITS and given:
            make, units = _UNITS[name]
            unit, *zone = self.arguments()
            if unit not in units or len(zone) > (name == "timestamp"):
                raise self.wrong(self.tokens[at][2])
            return make(unit, *zone)
        if name == "string" and given:
            self.arguments()  # varchar(20): a string of any length
            return pa.string()
        if name in _NAMED:
            return _NAMED[name]
        if name not in ("array", "large_list", "map", "struct"):
            raise self.wrong(self.tokens[at][2])
        self.take("<")
        if name == "struct":
            return pa.struct(self.columns(">"))
        first = self.type()
        if name == "map":
            self.take(",")
            first = pa.map_(first, self.type())
        self.take(">")
        return {"array": pa.list_, "large_list": pa.large_list, "map": lambda kind: kind}[name](first)

    def arguments(self) -> list[str]:
        self.take("(")
        found = [self.take(kind=self.peek()[0])]
        while self.take(",", ")") == ",":
            found.append(self.take(kind=self.peek()[0]))
        return found
