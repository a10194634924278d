"""Reads what `skew.check` is given, lists, dicts or pandas Series, into arrays with one entry for each part."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from quire.errors import UsageError, quoted, scrub

if TYPE_CHECKING:
    from numpy.typing import NDArray

# What is expected of a part, and what it holds: beyond these, sums and shares would be no numbers any more.
_LEAST, _MOST = 1e-9, 1e20
_WRITTEN_NUMBER = re.compile(r"(?<!\d)(\d++)\D*+$", re.ASCII)


@dataclass(frozen=True)
class Parts:
    """Parts, ordered by group and within the group by their number.

    names      how each part is called; unique where the caller's names are
    groups     the names of the groups
    group      int64 (parts,): the index into `groups`
    counts     float64 (parts,), not negative
    expected   float64 (parts,), positive, or None: no word about it
    listed     how many there are in all, or None: not known
    """

    names: list[str]
    groups: list[str]
    group: NDArray[np.int64]
    counts: NDArray[np.float64]
    expected: NDArray[np.float64] | None
    listed: float | None

    def of_groups(self) -> list[slice]:
        """Return where each group's parts stand."""
        ends = [0, *np.cumsum(np.bincount(self.group, minlength=len(self.groups))).tolist()]
        return [slice(start, end) for start, end in pairwise(ends)]


def read_parts(counts: Any, groups: Any, expected: Any, listed: Any) -> Parts:
    """Return the parts that the arguments of `skew.check` say; UsageError where they do not fit together."""
    keys, values = _entries(counts, "counts")
    amounts = _amounts(values, keys, "counts", least=0.0)
    belongs = [""] * len(keys) if groups is None else [str(group) for group in _aligned(groups, keys, "groups")]
    names_of_groups = list(dict.fromkeys(belongs))
    codes = {name: code for code, name in enumerate(names_of_groups)}
    group = np.array([codes[name] for name in belongs], dtype=np.int64)
    order = _order(keys, group)
    names = _names(keys, belongs, order, by_place=keys == list(range(len(keys))), grouped=groups is not None)
    fair = None if expected is None else _expected(expected, keys)[order]
    total = None if listed is None else _total(listed, names_of_groups if groups is not None else [])
    return Parts([names[i] for i in order], names_of_groups, group[order], amounts[order], fair, total)


def _entries(given: Any, what: str) -> tuple[list[Any], list[Any]]:
    """Return (keys, values); the keys of what has none are 0, 1, 2 …"""
    if hasattr(given, "items") and not hasattr(given, "columns"):
        pairs = list(given.items())
        return [key for key, _ in pairs], [value for _, value in pairs]
    if isinstance(given, Iterable) and not isinstance(given, str | bytes | set | frozenset) and not hasattr(given, "columns"):
        values = list(given)
        return list(range(len(values))), values
    raise UsageError(f"{what} is {quoted(given, 60)}: it is a sequence, a dict or a pandas Series, with one entry for each part")


def _aligned(given: Any, keys: list[Any], what: str) -> list[Any]:
    """Return the values of `given` in the order of `keys`, by key if it has keys, else by place."""
    own, values = _entries(given, what)
    if own == keys or (not hasattr(given, "items") and len(own) == len(keys)):
        return values
    if not hasattr(given, "items"):
        raise UsageError(f"{what} has {len(own):,} entries and counts {len(keys):,}: it needs one for each part")
    found = dict(zip(own, values, strict=True))
    missing = [key for key in keys if key not in found]
    if missing or len(found) != len(own):
        name = _text(missing[0] if missing else next(key for key in own if own.count(key) > 1))
        raise UsageError(f"{what} has {'no' if missing else 'more than one'} entry for the part {quoted(name, 60)} of counts")
    return [found[key] for key in keys]


def _expected(expected: Any, keys: list[Any]) -> NDArray[np.float64]:
    if isinstance(expected, int | float | np.number):
        return np.full(len(keys), _amount(expected, "expected", least=_LEAST))
    return _amounts(_aligned(expected, keys, "expected"), keys, "expected", least=_LEAST)


def _total(listed: Any, groups: list[str]) -> float:
    if not hasattr(listed, "items"):
        return _amount(listed, "listed", least=0.0)
    found = {str(group): value for group, value in listed.items()}
    if missing := [group for group in groups if group not in found]:
        raise UsageError(f"listed has no entry for the group {scrub(repr(missing[0]), 60)}: it is a number, or one for each group")
    return math.fsum(_amount(value, f"listed of {quoted(group, 60)}", least=0.0) for group, value in found.items())


def _amounts(values: list[Any], keys: list[Any], what: str, least: float) -> NDArray[np.float64]:
    for key, value in zip(keys, values, strict=True):
        _amount(value, f"{what} of {scrub(repr(_text(key)), 60)}", least)
    return np.array([float(value) for value in values], dtype=np.float64)


def _amount(value: Any, what: str, least: float) -> float:
    try:
        number = math.nan if isinstance(value, bool | np.bool_ | str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not least <= number <= _MOST:
        more = "0 or more" if least == 0 else "more than 0"
        raise UsageError(f"{what} is {quoted(value, 60)}: it is a number, {more}, and at most {_MOST:g}")
    return number


def _order(keys: list[Any], group: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the order by group and then by the numbers that the keys end with, or as given where they do not tell."""
    numbers = [_number(key) for key in keys]
    pairs = set(zip(group.tolist(), numbers, strict=True))
    numbered = None not in numbers and len(pairs) == len(keys)
    # negative numbers, as remainders are, come last: part 0 is the first
    places = [n if n >= 0 else 2**53 - n for n in numbers if n is not None] if numbered else range(len(keys))
    return np.lexsort((np.array(places, dtype=np.float64), group)).astype(np.int64)


def _number(key: Any) -> int | None:
    if isinstance(key, tuple):
        return _number(key[-1]) if key else None
    if isinstance(key, str):
        match = _WRITTEN_NUMBER.search(key)
        return int(match[1][-15:]) if match else None
    try:
        number = operator.index(key)
    except TypeError:
        return None
    return number if abs(number) < 10**15 else None


def _text(key: Any) -> str:
    return "/".join(map(str, key)) if isinstance(key, tuple) else str(key)


def _names(keys: list[Any], belongs: list[str], order: NDArray[np.int64], by_place: bool, grouped: bool) -> list[str]:
    """Return each part's name: its key, or its place in its group where the key says no more, after the group if need be."""
    texts = [_text(key) for key in keys]
    if by_place:
        seen: dict[str, int] = {}
        for i in order:
            texts[i] = str(seen.setdefault(belongs[i], 0))
            seen[belongs[i]] += 1
    if grouped and len(set(texts)) < len(texts):
        return [f"{group}/{text}" for group, text in zip(belongs, texts, strict=True)]
    return texts
