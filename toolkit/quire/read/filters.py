"""Which data can be passed over, by what is known of a column: the value of a directory, or the statistics of a row group.

Spark computes each filter once more on the rows that come, so nothing here has to be certain but a No. Numbers with a fraction are not
looked at: statistics leave NaN out, and Spark takes it for the largest of all.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

ORDERED = (bool, int, str, bytes, dt.date, dt.datetime)  # whose order is Spark's, and Parquet's


@dataclass(frozen=True)
class Bounds:
    """The least and the greatest value of a column, None where that is not known; whether there may be nulls, and whether others."""

    least: Any
    most: Any
    nulls: bool
    others: bool


@dataclass(frozen=True)
class Condition:
    """A filter of Spark's on one column, as plain data: `kind` is the name of its class."""

    kind: str
    column: str
    value: Any = None
    negated: bool = False


Filters = Sequence[Condition]
Known = Callable[[str], Bounds | None]


def condition(filter: Any) -> Condition | None:
    """A filter that Spark offers; None for one of which nothing is known here."""
    negated = type(filter).__name__ == "Not"
    inner = filter.child if negated else filter
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    if len(path) != 1:
        return None
    return Condition(type(inner).__name__, path[0], getattr(inner, "value", None), negated)


def may_hold(filters: Filters, known: Known) -> bool:
    """Whether rows of which this is known may pass all filters."""
    return all((bounds := known(one.column)) is None or _may_pass(one, bounds) for one in filters)


def _may_pass(one: Condition, bounds: Bounds) -> bool:
    if one.kind in ("IsNull", "IsNotNull"):
        return bounds.nulls if (one.kind == "IsNull") != one.negated else bounds.others
    if one.kind == "EqualNullSafe":
        if one.value is None:
            return bounds.others if one.negated else bounds.nulls
        if one.negated and bounds.nulls:
            return True
    if not bounds.others:
        return False  # a comparison with null is never true, nor is its contrary
    values = one.value if one.kind == "In" else (one.value,)
    if not all(_comparable(value, end) for value in values for end in (bounds.least, bounds.most)):
        return True
    test = _CONTRARY.get(one.kind) if one.negated else _TESTS.get(one.kind)
    return test is None or test(bounds.least, bounds.most, one.value)


def _comparable(value: Any, end: Any) -> bool:
    """Whether two values are of one kind with one order; a time with a zone is not of the kind of one without."""
    if type(value) is not type(end) or type(end) not in ORDERED:
        return False
    return not isinstance(end, dt.datetime) or (value.tzinfo is None) == (end.tzinfo is None)


_TESTS: dict[str, Callable[[Any, Any, Any], bool]] = {
    "EqualTo": lambda least, most, value: least <= value <= most,
    "EqualNullSafe": lambda least, most, value: least <= value <= most,
    "In": lambda least, most, values: any(least <= value <= most for value in values),
    "GreaterThan": lambda _, most, value: most > value,
    "GreaterThanOrEqual": lambda _, most, value: most >= value,
    "LessThan": lambda least, _, value: least < value,
    "LessThanOrEqual": lambda least, _, value: least <= value,
    "StringStartsWith": lambda least, most, value: least[: len(value)] <= value <= most[: len(value)],
}
_CONTRARY: dict[str, Callable[[Any, Any, Any], bool]] = {
    "EqualTo": lambda least, most, value: not least == most == value,
    "EqualNullSafe": lambda least, most, value: not least == most == value,
    "In": lambda least, most, values: not (least == most and least in values),
    "GreaterThan": _TESTS["LessThanOrEqual"],
    "GreaterThanOrEqual": _TESTS["LessThan"],
    "LessThan": _TESTS["GreaterThanOrEqual"],
    "LessThanOrEqual": _TESTS["GreaterThan"],
}
