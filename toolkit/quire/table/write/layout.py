"""The order in which a clustering lays rows out, as text that sorts as their columns do, or along a curve through several of them.

Rows that have the same place are in the order of their record keys. Source: a Z-order is G. M. Morton's (1966), the Hilbert curve is walked
as J. Skilling does it ("Programming the Hilbert curve", 2004). A column's step on a curve is its rank among values that were looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from quire.table.write.key_order import numbers

LINEAR, Z_ORDER, HILBERT = LAYOUTS = ("linear", "z-order", "hilbert")
MOST = 8  # columns of a curve
_BITS = 10  # of a column's step on a curve, at most: 1,024 steps
_TEXT = 256  # characters of a text that count
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
_SIGN = np.uint64(1 << 63)
_END = "\x00\x00"
_Numbers = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Scale:
    """The steps of a column on a curve: the numbers from which each next one begins; of text, what all values begin with before that."""

    steps: tuple[int, ...]
    prefix: str = ""


@dataclass(frozen=True)
class Layout:
    """The columns by which rows are sorted, none: by their record keys; `scales`: of a curve, a scale for each of them."""

    sort: tuple[str, ...] = ()
    curve: str = LINEAR
    scales: tuple[Scale, ...] = ()

    @property
    def bits(self) -> int:
        """A column's step has so many."""
        return min(_BITS, 64 // max(1, len(self.sort)))

    def places(self, rows: pa.RecordBatch, keys: pa.Array) -> pa.Array:
        """Where each row comes, as text."""
        if self.curve == LINEAR:
            return _joined([*(_sorting(rows.column(name)) for name in self.sort), keys])
        steps = [_steps(rows.column(name), scale) for name, scale in zip(self.sort, self.scales, strict=True)]
        walked = hilbert(steps, self.bits) if self.curve == HILBERT else z_order(steps, self.bits)
        return _joined([_hexadecimal(walked), keys])


def sortable(kind: pa.DataType) -> bool:
    """Whether rows can be sorted by a column of this type."""
    of = pa.types
    return (
        of.is_boolean(kind) or _is_text(kind) or of.is_integer(kind) or of.is_floating(kind) or of.is_temporal(kind) or of.is_decimal(kind)
    )


def possible(layout: Layout, columns: pa.Schema) -> bool:
    """Whether rows of these columns can be laid out so: a mark that others have written may say anything."""
    names = set(layout.sort)
    curved = layout.curve == LINEAR or 2 <= len(names) <= MOST
    return (
        layout.curve in LAYOUTS and curved and len(names) == len(layout.sort)
        and all(name in columns.names and sortable(columns.field(name).type) for name in names)
    )  # fmt: skip


def shortened(rows: pa.Table) -> pa.Table:
    """Rows with the part of texts that counts."""
    columns = [pc.utf8_slice_codeunits(c.cast(pa.string()), 0, _TEXT) if _is_text(c.type) else c for c in rows.columns]
    return pa.table(columns, names=rows.column_names)


def scaled(layout: Layout, sample: pa.Table) -> Layout:
    """The layout with the scales that some rows give."""
    if layout.curve == LINEAR:
        return layout
    return Layout(layout.sort, layout.curve, tuple(_scale(sample.column(name), 1 << layout.bits) for name in layout.sort))


def _scale(values: pa.ChunkedArray, steps: int) -> Scale:
    values, prefix = values.drop_null(), ""
    if not len(values):
        return Scale(())
    if _is_text(values.type):
        values = values.cast(pa.string())
        ends = pc.min_max(values).as_py()
        pairs = zip(ends["min"], ends["max"], strict=False)
        prefix = "".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    found = np.sort(np.concatenate([_codes(chunk, prefix) for chunk in values.chunks if len(chunk)]))
    at = (np.arange(1, steps) * len(found)) // steps
    return Scale(tuple(np.unique(found[at]).tolist()), prefix)


def _steps(values: Any, scale: Scale) -> _Numbers:
    """The step of each value; a missing one has the first."""
    steps = np.searchsorted(np.array(scale.steps, np.uint64), _codes(values, scale.prefix), side="right").astype(np.uint64)
    steps[np.asarray(pc.is_null(values))] = 0
    return steps


def _codes(values: Any, prefix: str) -> _Numbers:
    """Numbers that are ordered as values are; of text, what follows after the prefix says it."""
    if not _is_text(values.type):
        return _whole(values)
    text = pc.fill_null(values.cast(pa.string()), "")
    found = numbers(text, len(prefix.encode()))
    other = np.asarray(pc.invert(pc.starts_with(text, prefix)))
    found[other] = np.where(np.asarray(pc.less(text, prefix))[other], 0, np.iinfo(np.uint64).max)
    return found


def _whole(values: Any) -> _Numbers:
    """Numbers, times and truth values as whole numbers that are ordered as these are; a missing one as 0."""
    kind, of = values.type, pa.types
    if of.is_decimal(kind):
        values = values.cast(pa.float64())
    elif of.is_date32(kind) or of.is_time32(kind):
        values = values.cast(pa.int32())
    elif of.is_boolean(kind):
        values = values.cast(pa.int8())
    if of.is_floating(values.type):
        floats = np.asarray(pc.fill_null(values.cast(pa.float64()), 0.0)) + 0.0  # minus zero is zero
        bits = np.where(np.isnan(floats), np.inf, floats).view(np.uint64)
        return np.where(bits & _SIGN, ~bits, bits | _SIGN)
    if of.is_uint64(values.type):
        return np.asarray(pc.fill_null(values, 0), np.uint64)
    return np.asarray(pc.fill_null(values.cast(pa.int64()), 0), np.int64).view(np.uint64) ^ _SIGN


def _words(values: Any) -> tuple[_Numbers, _Numbers]:
    """Decimals as two whole numbers, the first of which counts first; a missing one as the least."""
    whole = pc.fill_null(values.cast(pa.decimal128(38, values.type.scale)), 0)
    found = np.frombuffer(whole.buffers()[1], np.uint64)[2 * whole.offset : 2 * (whole.offset + len(whole))]
    return found[1::2] ^ _SIGN, found[0::2]


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


# ----------------------------------------------------------------------------------------------------------------------- as text
def _sorting(values: Any) -> pa.Array:
    """Text that sorts as the values of a column do, whatever follows it; missing ones first."""
    if _is_text(values.type):
        # No value is the beginning of another one with its end.
        cut = pc.utf8_slice_codeunits(values.cast(pa.string()), 0, _TEXT)
        text = _joined([pc.replace_substring(pc.fill_null(cut, ""), "\x00", "\x00\x01"), _END])
    elif pa.types.is_decimal(values.type):
        text = _joined([_hexadecimal(word) for word in _words(values)])
    else:
        text = _hexadecimal(_whole(values))
    return pc.if_else(pc.is_null(values), "0", _joined(["1", text]))


def _joined(parts: Sequence[Any]) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "") if len(parts) > 1 else parts[0]


def _hexadecimal(values: _Numbers) -> pa.Array:
    """Sixteen digits of each."""
    octets = values.astype(">u8").view(np.uint8)
    text = np.empty(2 * len(octets), np.uint8)
    text[0::2], text[1::2] = _DIGITS[octets >> 4], _DIGITS[octets & 15]
    ends = np.arange(len(values) + 1, dtype=np.int32) * 16
    return pa.StringArray.from_buffers(len(values), pa.py_buffer(ends), pa.py_buffer(text))


# ------------------------------------------------------------------------------------------------------------------------ curves
def z_order(steps: Sequence[_Numbers], bits: int) -> _Numbers:
    """The place of each point on a Z-order: the bits of its coordinates in turn."""
    found = np.zeros(len(steps[0]), np.uint64)
    for bit in reversed(range(bits)):
        for each in steps:
            found = (found << np.uint64(1)) | ((each >> np.uint64(bit)) & np.uint64(1))
    return found


def hilbert(steps: Sequence[_Numbers], bits: int) -> _Numbers:
    """The place of each point on a Hilbert curve: points that follow one another are neighbours."""
    at, zero = [each.copy() for each in steps], np.uint64(0)
    for bit in reversed(range(1, bits)):
        one = np.uint64(1 << bit)
        below = one - np.uint64(1)
        for i, each in enumerate(at):
            swapped = np.where(each & one, zero, (at[0] ^ each) & below)
            at[0] = np.where(each & one, at[0] ^ below, at[0] ^ swapped)
            if i:
                at[i] = each ^ swapped
    for i in range(1, len(at)):
        at[i] = at[i] ^ at[i - 1]
    turned = np.zeros(len(at[0]), np.uint64)
    for bit in reversed(range(1, bits)):
        one = np.uint64(1 << bit)
        turned = np.where(at[-1] & one, turned ^ (one - np.uint64(1)), turned)
    return z_order([each ^ turned for each in at], bits)
