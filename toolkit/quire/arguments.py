"""Values of arguments, checked: sizes in bytes as people write them (`256 MiB`, `5KB`) and back, time spans, whole numbers, flags.

    parse_size("5KB")    5000          KB, MB, GB, TB, PB count in thousands
    parse_size("5 KiB")  5120          KiB, MiB, GiB, TiB, PiB count in 1024s
    parse_size("256m")   268435456     a single letter counts in 1024s, as it does in Spark, Hadoop and the JVM
    format_size(5000)    '4.9 KiB'

Upper and lower case are the same, a space before the unit and `_` between digits are allowed, and a number alone is bytes; where a
small one is rather meant of MiB, `parse_target` asks for the unit.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from quire.errors import UsageError, about, quoted, scrub

_PREFIXES = "kmgtp"
_UNITS = {"": 1, "b": 1, "byte": 1, "bytes": 1}
for _power, _prefix in enumerate(_PREFIXES, start=1):
    _UNITS |= {_prefix: 1024**_power, f"{_prefix}ib": 1024**_power, f"{_prefix}b": 1000**_power}

_WRITTEN = re.compile(r"([0-9](?:_?[0-9]){0,29})(\.[0-9]{1,20})?[ \u00a0]*([a-z]*)", re.IGNORECASE)
_LIMIT = 2**63
_BARE = 64 << 10  # bytes from which on a number without a unit is taken
LONGEST = 100 * 366 * 86400  # seconds of a time span
_SPANS = {
    "ns": 1e-9, "ms": 1e-3, "s": 1, "sec": 1, "second": 1, "min": 60, "minute": 60, "m": 60, "h": 3600, "hour": 3600, "d": 86400,
    "day": 86400,
}  # fmt: skip


def parse_size(text: str | int, what: str = "size") -> int:
    """Return the whole number of bytes, at least 1, that `text` says; a fraction of a byte is dropped.

    `what` names the option in the message. Raises UsageError for anything that is not such a size: no number, an unknown
    unit, zero, a negative number, a bool, NaN, infinity, or more than 8 EiB.
    """
    size = _written(text) if isinstance(text, str) else _whole(text)
    if size is None or not 1 <= size < _LIMIT:
        why = "which is not a size in bytes of at least 1"
        if size is not None and size >= _LIMIT:
            why = f"and the largest size is {_LIMIT - 1:,} bytes, which is a little less than 8,192 PiB"
        elif isinstance(text, str) and (written := _WRITTEN.fullmatch(text.strip())) and written[3].lower() not in _UNITS:
            why = f"and the unit {quoted(written[3], 20)} is not known: the largest are PB and PiB, the largest size is below 8,192 PiB"
        with about(what):
            raise UsageError(f"{scrub(what)} is {quoted(text, 60)}, {why}: write for example '256 MiB', '5KB', '1.5GB' or 268435456")
    return size


def parse_target(text: str | int, what: str = "target_size") -> int:
    """As `parse_size`, but of a small number the unit has to be said: whoever writes 200 means MiB, and 200 bytes would make a task, a
    split or a commit of each file. At 64 KiB or more a number alone is bytes; with a unit, as in "200 B", any size is taken.
    """
    size = parse_size(text, what)
    written = _WRITTEN.fullmatch(text.strip()) if isinstance(text, str) else None
    if size < _BARE and not (written and written[3]):
        with about(what):
            raise UsageError(f"{what}={size} is {size:,} bytes. Did you mean '{size} MiB'? If bytes are meant, write '{size} B'.")
    return size


def _written(text: str) -> int | None:
    match = _WRITTEN.fullmatch(text.strip())
    if match is None or match[3].lower() not in _UNITS:
        return None
    return int(Fraction(match[1] + (match[2] or "")) * _UNITS[match[3].lower()])


def _whole(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def format_size(size: int) -> str:
    """Return `size` bytes in the largest unit of 1024s that gives at least 1, with at most one decimal: '256 MiB', '0 B'."""
    sign, rest = ("-", -size) if size < 0 else ("", size)
    if rest < 1024:
        return f"{sign}{rest} B"
    for power, prefix in enumerate(_PREFIXES.upper(), start=1):
        unit = 1024**power
        tenths = (rest * 10 + unit // 2) // unit  # rounded before the unit is chosen, so that 1024 KiB is never shown
        if tenths < 10240 or prefix == "P":
            break
    units, tenth = divmod(tenths, 10)
    return f"{sign}{units}.{tenth} {prefix}iB" if tenth else f"{sign}{units} {prefix}iB"


def seconds(value: str | float, what: str) -> float:
    """`"1 min"`, `"30 s"`, `90` → seconds; UsageError for anything else."""
    text = f"{value:.9f}" if isinstance(value, float) else str(value).lower()  # of 0.000001 Python says 1e-06
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)\s*", text) if not isinstance(value, bool) else None
    unit = (match[2] or "s") if match else ""
    unit = unit if unit in _SPANS else unit.removesuffix("s")  # "ms" is not a plural
    if match and unit in _SPANS and (found := float(match[1]) * _SPANS[unit]) <= LONGEST:
        return found
    why = "is longer than 100 years" if match else "is not a time span"
    if unit and unit not in _SPANS and match:
        why = f"has the unit {quoted(match[2], 20)}, which is not one of {', '.join(_SPANS)}"
    with about(what):
        raise UsageError(f"{what}={quoted(value, 60)} {why}. Write for example '30 s', '1 min', '2 h' or '365 d'.")


def format_span(span: float) -> str:
    """Return a time span in its two largest units, as '2 h 10 min'; below a second with three digits."""
    if span < 1:
        return f"{span:.3g} s"
    left, told = round(span), list[str]()
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        n, left = divmod(left, size)
        if n or told:
            told.append(f"{n} {unit}" if n else "")
    return " ".join(part for part in told[:2] if part)


def whole(value: Any, what: str, least: int, most: int = 1 << 62) -> int:
    """A whole number in [least, most], or UsageError."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        span = f"{least:,} to {most:,}." if most < 1 << 62 else f"{least:,} on."
        with about(what):
            raise UsageError(f"{what}={quoted(value)} is not a whole number from {span}")
    return value


def count(value: Any, what: str, least: int = 0) -> int | None:
    """A whole number from `least` on, or None where it was left out; else UsageError."""
    return None if value is None else whole(value, what, least)


def flag(value: Any, what: str) -> bool:
    """True or False, or UsageError: what else counts as one of them is rather a mistake."""
    if not isinstance(value, bool):
        with about(what):
            raise UsageError(f"{what}={quoted(value)} is neither True nor False.")
    return value


class Needs(NamedTuple):
    """An argument that does nothing without another one: what it is, and what the call has to say too."""

    argument: str
    default: object
    what: str
    other: str


_FUNCTION, _HASH, _TAIL, _RANGES = "transform=function", "planner='hash'", "on_append='tail'", "split='lines' or 'row_groups'"
_TEXT, _CSV, _DOCUMENTS, _DECODE = "transform='csv' or 'jsonl'", "transform='csv'", "transform='json' or 'xml'", "decode="
ROWS = "rows with columns of their own, format='parquet'"
NEEDS = (
    Needs("schema_evolution", "refuse", "says what becomes of other columns", ROWS),
    Needs("function_version", None, "names the edition of a function", _FUNCTION),
    Needs("keep_messages", False, "keeps the text of what a function raises", _FUNCTION),
    Needs("schema", None, "says the columns that a function makes", _FUNCTION),
    Needs("columns", None, "says which parts of documents become columns", _DOCUMENTS),
    Needs("columns", None, "says which parts of documents become columns", _DECODE),
    Needs("registry", None, "says where the schemas of records are", _DECODE),
    Needs("registry_options", None, "is for a schema registry", _DECODE),
    Needs("message", None, "names a message of Protobuf", _DECODE),
    Needs("metadata", None, "names columns beside decoded ones", _DECODE),
    Needs("decode_key", None, "says what keys hold", _DECODE),
    Needs("schema", None, "says the columns of rows", _TEXT),
    Needs("encoding", "auto", "says how text is encoded", _TEXT),
    Needs("delimiter", ",", "stands between the values of a record", _CSV),
    Needs("quote", '"', "stands around a value", _CSV),
    Needs("header", True, "says whether files name their columns", _CSV),
    Needs("rescued", None, "names the column for what does not fit", _TEXT),
    Needs("null_values", None, "says which texts stand for null", _CSV),
    Needs("parts", 8, "says into how many parts a directory is hashed", _HASH),
    Needs("hash_function", "xxh64", "says how paths are hashed", _HASH),
    Needs("partial_lines", "hold", "takes last lines that were held back", _TAIL),
    Needs("split_size", "64 MiB", "is the size of a range of a file", _RANGES),
    Needs("order", "oldest", "says which files the first commit takes", "max_bytes= or max_files="),
    Needs("max_attempts", 5, "says how often a file is read", "retry_quarantined="),
    Needs("max_runs", None, "says how often to run", "every="),
    Needs("relist", None, "says how often files are listed all the same", "events="),
    Needs("follow_links", False, "says what is read at the source", "source="),
)


def refuse_needless(given: Mapping[str, object], said: Mapping[str, bool]) -> None:
    """UsageError for a given argument that does nothing, as the other one that it needs is not `said`."""
    for needs in NEEDS:
        value = given.get(needs.argument, needs.default)
        given_as_default = type(value) is type(needs.default) and value == needs.default
        if not given_as_default and not said.get(needs.other, True):
            with about(needs.argument):
                raise UsageError(
                    f"{needs.argument}={quoted(value, 60)} {needs.what}, and without {needs.other} it does nothing. Say that too, or leave "
                    f"{needs.argument} out."
                )
