"""The options of a store, as a user gives them: which names are its own, and what they may be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from quire.errors import UsageError, choose

NEAR = 0.85  # how like one of ours a name must be to be taken for a slip


def spelled(given: Iterable[str], names: Iterable[str], of: str) -> None:
    """Refuse a name that is nearly one of `names`: it is a slip, and to pass over it would sign in as somebody else.

    A name that is like none of them is for another kind of store, as source and destination may share one dictionary.
    """
    names = tuple(names)
    for name in given:
        if name not in names and difflib.get_close_matches(str(name), names, n=1, cutoff=NEAR):
            choose(name, names, f"option of {of}")


def text(options: Mapping[str, object], name: str) -> str:
    """An option that is a text; nothing where it is not given."""
    value = options.get(name, "")
    if not isinstance(value, str):
        raise UsageError(f"the option {name} is a text, not a {type(value).__name__}")
    return value.strip()
