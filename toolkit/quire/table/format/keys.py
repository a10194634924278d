"""Record keys and partition paths as text, from columns, exactly as JVM Hudi's key generators write them.

Source: `KeyGenUtils`, `SimpleKeyGenerator`, `ComplexKeyGenerator` and `PartitionPathEncodeUtils` of Hudi, whose encoding is Hive's.

A key of one field is its value as text; of several it is `id:2,name:Bob`, with `__null__` and `__empty__` where some of them say nothing.
A date is `2026-11-22`, a timestamp the microseconds since 1970, a decimal all the digits of its scale. Fractions have no text: it would
differ between versions of Java.

The text of several fields escapes nothing, so two different keys could have one, and the later row would take the other's place. Parts that
make this possible are refused, unless a table holds their rows already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quire.commit.names import EXPORTS, STATE
from quire.errors import RefusedError, UsageError, quoted

NULL = "__HIVE_DEFAULT_PARTITION__"
LONGEST = 255  # bytes of a directory's name, on every file system that we know
_NULL_PART, _EMPTY_PART = "__null__", "__empty__"
# Readers leave these out where they are a directory at the top of a table, and say nothing.
_HIDDEN = ("metadata", ".hoodie", "_delta_log")
_SPECIAL = [chr(c) for c in range(1, 32)] + list("\"#%'*/:=?\\\x7f{[]^")
_ENCODED = r"[\x01-\x1f\"#%'*/:=?\\\x7f{\[\]^]"
_of = pa.types


def record_keys(
    rows: pa.RecordBatch | pa.Table, fields: Sequence[str], *, named: bool | None = None, stored: bool = False
) -> pa.Array:  # fmt: skip
    """A string for each row; RefusedError where one says nothing, or could be that of another key as well.

    `named`: with the fields' names, which else several fields have alone. `stored`: a table holds these rows, whoever wrote them.
    """
    if not fields:
        raise UsageError("a table needs a field for its record key: give key=")
    if not (named if named is not None else len(fields) > 1):
        text = _text(rows, fields[0], "record key")
        blank = pc.fill_null(pc.equal(text, ""), True)
        if pc.any(blank).as_py():
            raise _refused(rows, fields, blank, "no record key", "A key must not be null or empty: give one, or filter these rows out")
        return text
    texts = [_text(rows, field, "record key") for field in fields]
    blank = pa.scalar(True)
    parts: list[Any] = []
    for at, (field, text) in enumerate(zip(fields, texts, strict=True)):
        if len(fields) > 1 and not stored and _is_text(rows.schema.field(field).type):
            _refuse_ambiguous(rows, fields, at, text)
        blank = pc.and_(blank, pc.fill_null(pc.equal(text, ""), True))
        said = pc.if_else(pc.equal(text, ""), _EMPTY_PART, text)
        parts += [f"{',' if parts else ''}{field}:", pc.fill_null(said, _NULL_PART)]
    if pc.any(blank).as_py():
        raise _refused(rows, fields, blank, "no record key", "Its fields must not all be null or empty: give one, or filter these rows out")
    return pc.binary_join_element_wise(*parts, "")


def _refuse_ambiguous(rows: Any, fields: Sequence[str], at: int, text: pa.Array) -> None:
    """RefusedError for a part that reads as one that says nothing, or in which the next part seems to begin.

    No other part makes two keys alike: of the first two that differ the longer one holds the next field's head where the shorter one ends,
    as a field's name has no comma, so that heads do not overlap.
    """
    checks = [(sign, pc.equal(text, sign)) for sign in (_NULL_PART, _EMPTY_PART)]
    checks += [(head, pc.match_substring(text, head)) for head in (f",{name}:" for name in fields[at + 1 : at + 2])]
    for said, which in checks:
        if pc.any(which).as_py():
            raise RefusedError(
                f"{pc.sum(which).as_py():,} of {rows.num_rows:,} rows have {said[:80]!r} in {fields[at]!r}, such as "
                f"{quoted(text.filter(which)[0].as_py(), 80)}: a record key of {', '.join(fields)[:200]} with it could be that of another "
                "row as well. Write these values otherwise, or filter these rows out."
            )


def partition_paths(rows: pa.RecordBatch | pa.Table, fields: Sequence[str], *, hive_style: bool, url_encode: bool) -> pa.DictionaryArray:
    """The partition's path for each row, `""` without a field; RefusedError for a value that cannot be a directory."""
    if not fields:
        return pa.DictionaryArray.from_arrays(pa.nulls(rows.num_rows, pa.int32()).fill_null(0), pa.array([""]))
    path: pa.DictionaryArray | None = None
    for field in fields:
        text = _text(rows, field, "partition")
        values = text.dictionary_encode(null_encoding="encode")
        level = _level(field, values.dictionary, hive_style, url_encode, path is None)
        each = pa.DictionaryArray.from_arrays(values.indices, level)
        path = each if path is None else _joined(path, each)
    assert path is not None
    return path


def _joined(path: pa.DictionaryArray, level: pa.DictionaryArray) -> pa.DictionaryArray:
    """Paths one level deeper; text is made only of the combinations that are there."""
    wide = len(level.dictionary)
    pairs = pc.add(pc.multiply(path.indices.cast(pa.int64()), wide), level.indices.cast(pa.int64())).dictionary_encode()
    above = pc.divide(pairs.dictionary, wide)
    below = pc.subtract(pairs.dictionary, pc.multiply(above, wide))
    deeper = pc.binary_join_element_wise(path.dictionary.take(above), level.dictionary.take(below), "/")
    return pa.DictionaryArray.from_arrays(pairs.indices, deeper)


def _level(field: str, values: pa.Array, hive_style: bool, url_encode: bool, top: bool) -> pa.Array:
    """The directories of distinct values."""
    said = pc.if_else(pc.fill_null(pc.equal(values, ""), True), NULL, values)
    if url_encode:
        said = _encoded(said)
    names = pc.binary_join_element_wise(f"{field}=", said, "") if hive_style else said
    _refuse(said, pc.match_substring(said, "/"), field, "a partition's value is one directory: create the table with URL encoding")
    _refuse(said, pc.match_substring(said, "\0"), field, "no directory's name holds a NUL")
    _refuse(said, pc.is_in(names, pa.array([".", ".."])), field, "this leads to another directory")
    _refuse(said, pc.greater(pc.binary_length(names), LONGEST), field, f"its directory's name would have more than {LONGEST} bytes")
    if top:
        _refuse(said, pc.is_in(names, pa.array(_HIDDEN)), field, "readers of Hudi leave out a directory of this name. Use hive style")
        _refuse(said, pc.is_in(names, pa.array(list(EXPORTS.values()))), field, "the metadata of an export lie there. Use hive style")
        _refuse(said, pc.equal(names, STATE), field, "quire keeps its own state under this name. Use hive style")
    return names


def _encoded(text: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring_regex(text, _ENCODED)).as_py():
        return text
    for c in sorted(_SPECIAL, key=lambda c: c != "%"):  # the escape's own sign first
        text = pc.replace_substring(text, c, f"%{ord(c):02X}")
    return text


def _text(rows: pa.RecordBatch | pa.Table, field: str, use: str) -> pa.Array:
    """A column as Java writes its values; null stays null."""
    if rows.schema.names.count(field) != 1:
        raise UsageError(f"the rows have no column {field!r}, which the {use} is made of: they have {', '.join(rows.schema.names)[:300]}")
    column = rows.column(field)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = column.type
    if _of.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    if _of.is_timestamp(kind) and kind.tz is not None:
        return column.cast(pa.timestamp("us", kind.tz), safe=False).view(pa.int64()).cast(pa.string())
    if _is_text(kind) or _of.is_integer(kind) or _of.is_boolean(kind) or _of.is_date32(kind) or _of.is_decimal(kind):
        return column.cast(pa.string())
    raise UsageError(
        f"the column {field!r} is {str(kind)[:200]}, and a {use} is made of text, whole numbers, dates and the like: name another"
    )


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if _of.is_dictionary(kind) else kind
    return bool(_of.is_string(kind) or _of.is_large_string(kind) or str(kind) == "string_view")


def _refused(rows: Any, fields: Sequence[str], which: Any, what: str, todo: str) -> RefusedError:
    return RefusedError(f"{pc.sum(which).as_py():,} of {rows.num_rows:,} rows have {what} in {', '.join(fields)}. {todo}.")


def _refuse(values: pa.Array, which: pa.Array, field: str, why: str) -> None:
    if pc.any(which).as_py():
        raise RefusedError(f"the value {values.filter(which)[0].as_py()[:100]!r} of {field!r} makes no partition: {why}")
