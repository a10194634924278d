"""The options of a store, as a user gives them: which names are its own, and what they may be."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from quire.errors import UsageError, choose

T = TypeVar("T")
KEPT = 64  # of a process that is given new tokens for ever
NEAR = 0.85  # how like one of ours a name must be to be taken for a slip


def spelled(given: Iterable[str], names: Iterable[str], of: str) -> None:
    """Refuse a name that is nearly one of `names`: it is a slip, and to pass over it would sign in as somebody else.

    A name that is like none of them is for another kind of store, as source and destination may share one dictionary.
    """
    names = tuple(names)
    for name in given:
        if name not in names and difflib.get_close_matches(str(name), names, n=1, cutoff=NEAR):
            try:
                choose(name, names, f"option of {of}")
            except UsageError as e:
                e.option = name
                raise


def names(said: str, path: str) -> list[str]:
    """The parts of a URL's path; `said`: the URL, for the error."""
    found = path.rstrip("/").split("/") if path.strip("/") else []
    if any(name in ("", ".", "..") for name in found):
        raise UsageError(f"{said!r} has an empty part, '.' or '..' in its path. Write the path as it is.")
    return found


def shared(made: dict[str, T], key: object, make: Callable[[], T]) -> T:
    """The result of `make` for the same options before, since clients and connections outlive a store; else a new one."""
    try:
        name = json.dumps(key, sort_keys=True)
    except (TypeError, ValueError):
        return make()
    found = made.get(name)
    if found is None:
        if len(made) >= KEPT:
            made.clear()
        found = made[name] = make()
    return found


def text(options: Mapping[str, object], name: str) -> str:
    """An option that is a text; nothing where it is not given."""
    value = options.get(name, "")
    if not isinstance(value, str):
        raise UsageError(f"the option {name} is a text, and not of the type {type(value).__name__}.")
    return value.strip()
