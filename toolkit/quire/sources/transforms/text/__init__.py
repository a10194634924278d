"""Files of text that hold rows, made into columns.

    csv    delimited text, whose first record names the columns; also into lines below one header
    jsonl  one JSON object a line

`reader` is what a task calls, `rejects` tells the records that do not fit from those that do, `typed` makes values of texts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from quire.commit.entries import Spec
from quire.errors import UsageError, about, quoted
from quire.sources.transforms import schemas
from quire.sources.transforms.columnar import merged
from quire.sources.transforms.text import encodings
from quire.sources.transforms.text.csv import Csv
from quire.sources.transforms.text.csv_lines import CsvLines
from quire.sources.transforms.text.jsonl import JsonLines
from quire.sources.transforms.text.reader import Reader
from quire.sources.transforms.text.typed import holds

__all__ = ["NAMES", "WORDS", "Csv", "CsvLines", "JsonLines", "Reader", "canonical", "common", "header", "reader", "said"]

NAMES = ("csv", "jsonl")


def common(kind: str, found: Iterable[tuple[pa.Schema, int]]) -> pa.Schema | None:
    """The columns of files of which some were looked at (schema, how many have it): text where nothing says a type."""
    if kind == "csv":
        columns, spelled = dict[str, pa.DataType](), dict[str, str]()
        for schema, _ in sorted(found, key=lambda each: (-each[1], -len(each[0]), str(each[0]))):
            for field in schema:
                if spelled.setdefault(field.name.lower(), field.name) != field.name:
                    continue  # to Spark both are one: who spells it otherwise is quarantined, and told
                columns[field.name] = holds(columns.get(field.name, pa.null()), field.type)
        return pa.schema([pa.field(name, _known(kind)) for name, kind in columns.items()]) if columns else None
    schema = merged(found, of_text=True)
    return None if schema is None else pa.schema([pa.field(f.name, _known(f.type)) for f in schema])


def _known(kind: pa.DataType) -> pa.DataType:
    """The same, where text stands for what has no type."""
    of = pa.types
    if of.is_null(kind):
        return pa.string()
    if of.is_struct(kind):
        return pa.struct([pa.field(f.name, _known(f.type)) for f in kind])
    return pa.list_(_known(kind.value_type)) if of.is_list(kind) else kind


# ------------------------------------------------------------------------------------------------------------------- what a call says
WORDS = ("encoding", "delimiter", "quote", "header", "null_values", "rescued")


def reader(kind: str, given: Mapping[str, Any], columns: pa.Schema | None, spec: Spec | None = None) -> Reader:
    """The reader that a call's words ask for; UsageError for a wrong one. A word that `given` lacks is as usual.

    spec  of the destination, where that holds lines of delimited text
    """
    encoding = encodings.checked(given.get("encoding", encodings.AUTO))
    rescued = given.get("rescued") or ""
    if not isinstance(rescued, str) or "\0" in rescued:
        with about("rescued"):
            raise UsageError(f"rescued={quoted(rescued)} is not the name of a column, such as '_rescued'.")
    if rescued and columns is not None:
        columns = with_rescued(columns, rescued)
    if kind == "jsonl":
        return JsonLines(encoding, columns, rescued=rescued)
    delimiter, quote = given.get("delimiter", ","), given.get("quote", '"')
    for name, mark, least in (("delimiter", delimiter, 1), ("quote", quote, 0)):
        if not isinstance(mark, str) or not least <= len(mark) <= 1 or not mark.isascii() or mark in ("\n", "\r", "\0"):
            with about(name):
                none = "" if least else ", or '' where values have none"
                raise UsageError(f"{name} is one character of ASCII, but no line end{none}, and not {quoted(mark)}.")
    if delimiter == quote:
        with about("quote"):
            raise UsageError(f"quote is the same as delimiter, {quoted(quote)}. Say another one, or quote='' where values have none.")
    nulls = given.get("null_values")
    nulls = ("",) if nulls is None else (nulls,) if isinstance(nulls, str) else tuple(nulls) if isinstance(nulls, Iterable) else (None,)
    if not all(isinstance(each, str) for each in nulls):
        with about("null_values"):
            raise UsageError(f"null_values is a text or a list of texts, such as ['', 'NULL'], not {quoted(given['null_values'])}.")
    if not isinstance(header := given.get("header", True), bool):
        with about("header"):
            raise UsageError(f"header={quoted(header)} is neither True nor False.")
    if spec is None or not spec.dialect:
        return Csv(encoding, columns, b"", rescued, delimiter, quote, header, nulls)
    for name, given_too in (("null_values", nulls != ("",)), ("rescued", bool(rescued))):
        if given_too:
            with about(name):
                raise UsageError(f"{name}= is about typed values, and in format='lines' each value stays its text. Leave it out.")
    return CsvLines(encoding, columns, b"", "", delimiter, quote, header, nulls, spec.dialect, spec.header)


def header(spec: Spec, columns: pa.Schema | None) -> bytes:
    """The beginning of each data file of a destination with these columns; nothing where it has no header."""
    return CsvLines(columns=columns, dialect=spec.dialect, headed=spec.header).headline if spec.dialect else b""


def with_rescued(columns: pa.Schema, name: str) -> pa.Schema:
    """The columns with the one that takes what does not fit; UsageError where one of that name is something else."""
    if near := next((f for f in columns if f.name.lower() == name.lower()), None):
        if near.name == name and near.type == pa.string():
            return columns
        with about("rescued"):
            raise UsageError(f"rescued={quoted(name)} is a column of the rows already, {near.name!r} ({near.type}). Choose another name.")
    return columns.append(pa.field(name, pa.string()))


def said(given: Mapping[str, Any]) -> str:
    """The words of a call, as JSON."""
    return json.dumps({name: v if isinstance(v, str | bool | None) else list(v) for name, v in given.items()}, sort_keys=True)


def canonical(kind: str, columns: Any) -> pa.Schema:
    """The columns that a call says, in the types that are stored; UsageError for one that no such file can hold."""
    found, of = schemas.canonical(columns), pa.types
    for field in found:
        nested = of.is_nested(field.type) and (kind == "csv" or "map<" in str(field.type))
        if nested or "binary" in str(field.type):
            with about("schema"):
                raise UsageError(f"the column {field.name!r} is {field.type}, and transform={kind!r} makes no such value. Say string.")
    return pa.schema([field.with_nullable(True) for field in found])
