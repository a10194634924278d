"""Which records are the same: by their key, a header or a column of what they hold, within a time; and the fingerprints of these values."""

from __future__ import annotations

import difflib
from decimal import Context
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from quire.arguments import format_span, seconds
from quire.coverage.deduplicate import COLUMN, Deduplicate, Prints
from quire.errors import UsageError, about, quoted

KEY, HEADER, OFF = "key", "header:", "off"
_EXACT, _MIDNIGHT = Context(prec=76), r" 00:00:00(\.0+)?$"
_FORMS = "'key', 'header:NAME', a column that decode= makes, or 'off'"


def parsed(deduplicate: Any, within: Any, *, decodes: bool) -> Deduplicate | None:
    """The words of a call; None: as the destination does. UsageError for what says nothing.

    `decodes`: the call makes columns of what the records hold, by which they may be told apart.
    """
    if deduplicate is None:
        if within is not None:
            with about("within"):
                raise UsageError(f"within= says for how long deduplicate= holds. Say deduplicate=, too: {_FORMS}.")
        return None
    with about("deduplicate"):
        by = _by(deduplicate, decodes=decodes)
        if by and within is None:
            raise UsageError(f"deduplicate={quoted(deduplicate)} needs within=, the time between two records of one key: within='1 day'.")
    if not by:
        if within is not None:
            with about("within"):
                raise UsageError("deduplicate='off' ends it, and within= says for how long it holds. Leave one of them out.")
        return Deduplicate("")
    span = round(seconds(within, "within") * 1000)
    if span < 1:
        with about("within"):
            raise UsageError(f"within={quoted(within, 60)} is shorter than a millisecond. Write for example '1 h' or '1 day'.")
    return Deduplicate(by, span)


def _by(given: Any, *, decodes: bool) -> str:
    if not isinstance(given, str) or not given:
        raise UsageError(f"deduplicate={quoted(given)} is not one of {_FORMS}.")
    if given in (KEY, OFF):
        return given if given == KEY else ""
    if given in (HEADER, COLUMN, "header"):
        raise UsageError(f"deduplicate={given!r} lacks a name: write {given.removesuffix(':')}:NAME.")
    if given.startswith(HEADER):
        return str(given)
    if not decodes:
        near = difflib.get_close_matches(given.lower(), [KEY, OFF], n=1, cutoff=0.6)
        why = f"Did you mean {near[0]!r}?" if near else "A column is one that decode= makes, and this call has no decode=."
        raise UsageError(f"deduplicate={quoted(given)} is not one of {_FORMS}. {why}")
    return COLUMN + given.removeprefix(COLUMN)


def changed(before: Deduplicate | None, now: Deduplicate) -> str:
    """How a load differs from those before it, in words; "" where it does not."""
    if not now.by:
        return "records are not deduplicated any more" if before else ""
    if before is None:
        return f"deduplicate={now.by!r} is new here: it is exact for what is loaded from now on, as records before have no keys"
    if before.by != now.by:
        return f"deduplicate was {before.by!r} and is {now.by!r}: it is exact for what is loaded from now on"
    if before.within < now.within:
        spans = [format_span(each.within / 1000) for each in (before, now)]
        return f"within was {spans[0]} and is {spans[1]}: keys that are older than twice the former may be gone"
    return ""


def check_column(column: str, schema: pa.Schema) -> None:
    """UsageError where no column has this name, or one that does not tell records apart."""
    if not column:
        return
    if column not in schema.names:
        near = difflib.get_close_matches(column, schema.names, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else f" The columns are {', '.join(schema.names[:20])}."
        raise UsageError(f"deduplicate={column!r} is not a column.{hint}")
    kind = schema.field(column).type
    if not _tells(kind):
        raise UsageError(f"deduplicate={column!r} is of type {kind}: text, bytes, numbers without floating point, dates and times do.")


def _tells(kind: pa.DataType) -> bool:
    is_ = pa.types
    of_text = is_.is_string(kind) or is_.is_large_string(kind) or is_.is_binary(kind) or is_.is_large_binary(kind)
    fixed = is_.is_fixed_size_binary(kind) or is_.is_boolean(kind) or is_.is_decimal(kind)
    return bool(of_text or fixed or is_.is_integer(kind) or is_.is_temporal(kind) or is_.is_null(kind))


# ------------------------------------------------------------------------------------------------------------------- fingerprints
def prints(by: str, records: pa.RecordBatch) -> Prints:
    """The fingerprints of records by their key or a header, as `quire.formats.parquet.RECORDS` has them."""
    values = records.column("key") if by == KEY else _of_header(by.removeprefix(HEADER), records.column("headers"))
    return of_values(values, records.column("timestamp"))


def of_values(values: pa.Array, times: pa.Array) -> Prints:
    """The fingerprints of values, each with the time of its record."""
    told = pc.and_(pc.is_valid(values), pc.is_valid(times)).to_numpy(zero_copy_only=False)
    if not (pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type)):
        if not (pa.types.is_null(values.type) or pa.types.is_fixed_size_binary(values.type)):
            values = _text(values)
        values = values.cast(pa.binary())
    digests = b"".join(map(xxhash.xxh3_128_digest, pc.fill_null(values, b"").to_pylist()))
    halves = np.frombuffer(digests, ">u8").astype("<u8").reshape(-1, 2)
    at = pc.fill_null(times.cast(pa.timestamp("ms", times.type.tz)).cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    return Prints(np.ascontiguousarray(halves[:, 0]), np.ascontiguousarray(halves[:, 1]), at, told)


def _text(values: pa.Array) -> pa.Array:
    """Values as a column that has become wider has them, too: decimals without zeros at their end, a midnight as its day."""
    if pa.types.is_decimal(values.type):
        return pa.array([None if value is None else str(value.normalize(_EXACT)) for value in values.to_pylist()], pa.string())
    text = values.cast(pa.string())
    return pc.replace_substring_regex(text, _MIDNIGHT, "") if pa.types.is_timestamp(values.type) else text


def _of_header(name: str, headers: pa.Array) -> pa.Array:
    """The value of the last header of this name, of each record; null where it has none."""
    if headers.null_count == len(headers):
        return pa.nulls(len(headers), pa.binary())
    pairs, parents = headers.flatten(), pc.list_parent_indices(headers).to_numpy(zero_copy_only=False)
    mine = np.flatnonzero(pc.fill_null(pc.equal(pc.struct_field(pairs, "key"), name), False).to_numpy(zero_copy_only=False))
    last = np.full(len(headers), -1, np.int64)
    np.maximum.at(last, parents[mine], mine)
    return pc.struct_field(pairs, "value").take(pa.array(last, mask=last < 0))
