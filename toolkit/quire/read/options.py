"""The options of `format("quire")`: texts, whose names Spark passes in small letters."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from quire.arguments import parse_size, whole
from quire.errors import UsageError, choose, quoted
from quire.storage.secret import secret

READ = ("path", "version", "columns", "pushdown")
STREAM = ("startingVersion", "maxCommitsPerTrigger", "maxBytesPerTrigger", "changes")
CHANGES = ("refuse", "skip", "again")
_COLUMN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^`,]+?))\s*(?:,|$)")
_FLAGS = {"true": True, "false": False}


def check(options: Mapping[str, str], names: Sequence[str] = (*READ, *STREAM)) -> None:
    """Refuse what is not an option: a slip would be passed over."""
    known = {name.lower(): name for name in names}
    for name in options:
        if name.lower() not in known and not re.match(r"(?:storage|secret)\..", name):
            choose(name, known.values(), "option", " Those of the store are called storage.NAME, or secret.NAME for a variable's name.")


def refuse_of_streams(options: Mapping[str, str]) -> None:
    """UsageError for a batch with an option of a stream, which would be passed over."""
    if found := next((name for name in STREAM if name in options), None):
        raise UsageError(
            f"{found} is an option of spark.readStream, and spark.read gives the rows of one version, which version names: leave it out."
        )


def refuse_of_batches(options: Mapping[str, str]) -> None:
    """UsageError for a stream with an option of a batch, likewise."""
    if "version" in options:
        raise UsageError("a stream has no version: startingVersion says where it begins, and quire.read reads one version.")
    if "pushdown" in options:
        raise UsageError("pushdown is an option of spark.read, and a stream gives all rows of its commits: leave it out.")


def place(options: Mapping[str, str], example: str = 'spark.read.format("quire").load("/data/out")') -> str:
    """The URL of the destination."""
    if found := options.get("path"):
        return found
    raise UsageError(f'format("quire") needs the destination: {example}.')


def of_store(options: Mapping[str, str]) -> dict[str, Any] | None:
    """The options of the store: `storage.NAME` is a value, `secret.NAME` the variable that has it where the store is opened."""
    found = dict[str, Any]()
    for name, value in options.items():
        kind, _, own = name.partition(".")
        if kind == "storage":
            found[own] = _FLAGS.get(value, value)
        elif kind == "secret":
            found[own] = secret(value)
    return found or None


def flag(options: Mapping[str, str], name: str) -> bool:
    """Whether an option is true; left out it is false."""
    said = options.get(name, "false").strip().lower()
    if said not in _FLAGS:
        raise UsageError(f"{name}={quoted(options[name], 60)} is neither true nor false.")
    return _FLAGS[said]


def number(options: Mapping[str, str], name: str, least: int = 0) -> int | None:
    """A whole number; None where it is not given."""
    said = options.get(name)
    if said is None:
        return None
    return whole(int(said) if re.fullmatch(r"-?[0-9]{1,30}", said.strip()) else said, name, least)


def size(options: Mapping[str, str], name: str) -> int | None:
    """Bytes, as in "1 GiB"; None where they are not given."""
    said = options.get(name)
    return None if said is None else parse_size(said, name)


def columns(options: Mapping[str, str], name: str = "columns") -> list[str] | None:
    """The names in an option, between commas; one that holds a comma stands in backticks. None where they are not given."""
    said = options.get(name)
    if said is None:
        return None
    found, at = list[str](), 0
    while at < len(said):
        if (one := _COLUMN.match(said, at)) is None:
            break
        found.append((one[1] or "").replace("``", "`") or one[2])
        at = one.end()
    if not found or at < len(said) or said.rstrip().endswith(","):
        raise UsageError(f"{name}={quoted(said, 80)} are not names between commas, as in 'dt, value' or '`a, b`, value'.")
    return found
