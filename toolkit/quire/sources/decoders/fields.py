"""Columns that a call names by expressions: `{"id": "$.order.id: long not null"}`; each is a path, a colon and a type."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pyarrow as pa

from quire.errors import UsageError, about, quoted
from quire.sources.transforms import schemas, text
from quire.sources.transforms.columns import check_names
from quire.sources.transforms.functions import WrongTypeError

E = TypeVar("E")


@dataclass(frozen=True)
class Field(Generic[E]):
    """A column, and where its values are found in a document."""

    name: str
    expression: str
    found: E  # the expression, ready to be evaluated
    type: pa.DataType
    required: bool

    @property
    def takes_all(self) -> bool:
        """Whether it takes all that the expression finds."""
        return bool(pa.types.is_list(self.type))


def fields(given: Any, read: Callable[[str], E]) -> tuple[Field[E], ...]:
    """Check `columns=`, whose expressions `read` reads; UsageError names the column that is wrong."""
    with about("columns"):
        if not isinstance(given, Mapping) or not given or not all(isinstance(x, str) for item in given.items() for x in item):
            said = "empty" if isinstance(given, Mapping) and not given else quoted(given)
            raise UsageError(f"columns={said} does not say columns. Write for example columns={{'id': '$.order.id: long'}}.")
        try:
            check_names([pa.field(name, pa.string()) for name in given], "columns= has")
        except WrongTypeError as e:
            raise UsageError(f"{e}. Give each column a name of its own.") from None
        return tuple(_field(name, said, read) for name, said in given.items())


def _field(name: str, said: str, read: Callable[[str], E]) -> Field[E]:
    expression, kind = _typed(name, said)
    try:
        found = read(expression)
    except UsageError as e:
        raise UsageError(f"the column {name[:100]!r}: {e}") from None
    schema = text.canonical("jsonl", pa.schema([pa.field(name, kind.type)]))
    return Field(name, expression, found, schema.field(0).type, not kind.nullable)


def _typed(name: str, said: str) -> tuple[str, pa.Field]:
    """The expression and the type: the type begins behind the first colon behind which one stands."""
    at = said.find(":")
    while at >= 0:
        try:
            (found,) = schemas.parse(f"c {said[at + 1 :]}")
        except (UsageError, ValueError):
            at = said.find(":", at + 1)
        else:
            return said[:at].strip(), found
    raise UsageError(f"the column {name[:100]!r} is {quoted(said, 200)}, which ends with no type. Write for example '{said[:40]}: string'.")


def schema_of(found: tuple[Field[Any], ...]) -> pa.Schema:
    """The columns."""
    return pa.schema([pa.field(f.name, f.type) for f in found])


def said(found: tuple[Field[Any], ...]) -> str:
    """The columns as JSON."""
    return json.dumps([[f.name, f.expression, schemas.type_text(f.type, f.name), f.required] for f in found])
