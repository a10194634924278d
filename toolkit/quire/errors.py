"""The errors that a user of quire meets, and the rules for what may stand in them.

    QuireError                exit 3   failed; the next run goes on
    ├── UsageError            exit 2   a wrong argument, or a source and destination that do not fit
    │   └── RefusedError      exit 2   right words, but doing it would lose, hide or mix data
    ├── TooManyFailures       exit 1   more files set aside than max_failures allows; nothing was committed
    ├── FormatError           exit 2   an object below _quire/ is damaged, hostile, or of a newer quire
    └── StorageError          exit 3   the store could not do it (permission, space, network)
        └── NotFoundError     exit 3   the object is not there

A message says what was wrong, where, and what to do, in one line. No secret is ever in it: `scrub` takes them out of any
text that comes from elsewhere.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import ClassVar

__all__ = [
    "FormatError",
    "NotFoundError",
    "QuireError",
    "RefusedError",
    "StorageError",
    "TooManyFailures",
    "UsageError",
    "about",
    "choose",
    "printable",
    "scrub",
]


class QuireError(Exception):
    """What every error of quire is; `exit_code` is the shell's."""

    exit_code: ClassVar[int] = 3

    def __init__(self, *args: object) -> None:
        super().__init__(*(printable(arg) if isinstance(arg, str) else arg for arg in args))


class UsageError(QuireError, ValueError):
    """A wrong argument: nothing was read or written. `argument` names it where that is known."""

    exit_code = 2
    argument: str | None = None


class RefusedError(UsageError):
    """Understood, but refused because data would be lost, hidden or mixed."""


class TooManyFailures(QuireError):
    """More files had to be set aside than `max_failures` allows; nothing was committed."""

    exit_code = 1


class FormatError(QuireError):
    """An object of quire's own is damaged, hostile, or written by a newer quire."""

    exit_code = 2


class StorageError(QuireError):
    """The store refused or failed; what was committed before stays."""


class NotFoundError(StorageError):
    """The object is not there."""


def choose(value: object, allowed: Iterable[str], what: str) -> str:
    """Return `value` if it is one of `allowed`, else raise UsageError that names the nearest one."""
    names = list(allowed)
    if isinstance(value, str) and value in names:
        return value
    near = difflib.get_close_matches(str(value), names, n=1, cutoff=0.4)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    with about(what):
        raise UsageError(f"unknown {what} {scrub(repr(value))}: it is one of {', '.join(names)}.{hint}")


@contextmanager
def about(argument: str) -> Iterator[None]:
    """A UsageError from here on is about this argument, so that a form can say it beside its field."""
    try:
        yield
    except UsageError as e:
        e.argument = e.argument or argument
        raise


def printable(text: str) -> str:
    """Text as one line, whatever names stand in it: line breaks, control and invisible characters as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


_SECRETS = (
    # user:password@ in a URL
    (re.compile(r"(?<=://)[^/\s@:]+:[^/\s@]+@"), "***@"),
    # SAS signatures, tokens and keys as query parameters or options
    (
        re.compile(
            r"(?i)\b(sig|sv_sig|token|sas_token|account_key|accountkey|sharedaccesskey|secret|secret_key|password|passwd|pwd"
            r"|aws_secret_access_key|aws_session_token|x-amz-signature|x-amz-security-token|client_secret|access_key|api_key)"
            r"(['\"]?\s*[=:]\s*['\"]?)[^\s&;,'\"}]+"
        ),
        r"\1\2***",
    ),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9+/._=-]{8,}"), r"\1 ***"),
)


def scrub(text: str, limit: int = 300) -> str:
    """One line of at most `limit` characters without control characters and without anything that looks like a secret."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    for pattern, replacement in _SECRETS:
        line = pattern.sub(replacement, line)
    return line if len(line) <= limit else line[: limit - 1] + "…"
