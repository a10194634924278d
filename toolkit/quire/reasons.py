"""Which reasons for a quarantine are of one kind: those that differ only in values, numbers and paths.

In regular expressions that mean the same to Python and to Spark's SQL, so that both take the same files.
"""

from __future__ import annotations

import re

LONGEST = 120  # characters of a kind
# The words before the first colon; where they are an exception's name, which alone says too little, those after it, too.
_HEAD = r"^([A-Za-z0-9_.]+(?: \([^()]*\))?:[^:]*|[^:]*)"
# What differs from file to file: quoted values, paths, numbers. Where to look stays: a column's or key's
# name, the line of a function.
_VALUE = (
    r"(?<=[ (=,\[])(?<!column )(?<!field )(?<!attribute )(?!(?<=: )'[^']*'(?![\s\S]))(?:'[^']*'|\"[^\"]*\")"
    r"|(?<![A-Za-z0-9_.])/[^ ]+|(?<![A-Za-z0-9_'\"])(?<!\.py line )-?[0-9][0-9.,]*"
)


def kind(reason: str | None) -> str:
    """Return what a reason has in common with others of its kind; at most 120 characters."""
    head = re.match(_HEAD, reason or "")
    return re.sub(_VALUE, "…", head[1] if head else "").strip(" ")[:LONGEST]


def condition(of: str) -> str:
    """The same as an SQL condition on the column `reason`: whether it is of this kind."""
    if ":" not in of and "…" not in of and len(of) < LONGEST and kind(of) == kind(f"{of}: more") == of:
        return f"trim(substring_index(reason, ':', 1)) = {_sql(of)}"
    found = f"trim(regexp_replace(regexp_extract(reason, {_sql(_HEAD)}, 1), {_sql(_VALUE)}, '…'))"
    return f"left({found}, {LONGEST}) = {_sql(of)}"


def _sql(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
