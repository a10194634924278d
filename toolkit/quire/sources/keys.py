"""The paths that rows of a ledger may have for what a user calls a file: as the ledger shows it, or spelled in another way."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress

from quire.errors import UsageError, encodable
from quire.sources.kafka.topics import is_kafka
from quire.storage import canonical, normalise
from quire.storage.local import to_text

ROWS = re.compile(r"(?:rows|batch|stream):(?!//)")  # how the path begins by which a ledger knows rows that were written as such


def keys(path: str | os.PathLike[str], options: Mapping[str, object] | None, known: Iterable[str]) -> list[str]:
    """The keys that a path may have: as the ledger shows it, and with its links resolved: all, or only those it is found through.

    (A link that was followed below a source keeps its own name, while the links above the source are resolved.) `options`: of the store
    that may be meant; `known`: some paths of the ledger, which tell the account where neither path nor options do. Raises UsageError.
    """
    if is_kafka(path) or (isinstance(path, str) and ROWS.match(path)):
        return [str(path).rstrip("/")]
    resolved = normalise(os.fsdecode(path) if isinstance(path, bytes) else path)
    text = os.fsdecode(path)
    shown = [text] if text.startswith(("file:///", "memory://")) else [f"file://{text}"] if text.startswith("/") else []
    shown = [key for key in shown if key.isascii() or encodable(key)]  # a name as Python gives it is not a key of the ledger
    if not resolved.startswith("file://"):
        return list(dict.fromkeys([*shown, *_remote(resolved, options, known)]))
    plain = os.path.abspath(os.path.expanduser(text.removeprefix("file://")))
    parts = plain.split("/")
    through = [os.path.join(os.path.realpath("/".join(parts[:i]) or "/"), *parts[i:]) for i in range(1, len(parts))]
    return list(dict.fromkeys([*shown, *("file://" + to_text(p) for p in through), resolved]))


def _remote(url: str, options: Mapping[str, object] | None, known: Iterable[str]) -> list[str]:
    """The keys of a normalised URL. Its options may be those of another account: then the URL says its own, or the ledger does."""
    found = [url]
    with suppress(UsageError):  # nothing is asked there: what does not fit together is in no ledger
        found.append(canonical(url, options))
    with suppress(UsageError):
        found.append(canonical(url))
    place, slash, name = url.removeprefix("abfs://").partition("/")
    if not url.startswith("abfs://") or "@" in place:
        return found
    theirs = {key.split("/")[2] for key in known if key.startswith(f"abfs://{place}@")}
    meant = {key.split("/")[2] for key in found} & theirs or theirs
    if len(meant) > 1:
        said = " and ".join(sorted(host.partition("@")[2] for host in meant))
        raise UsageError(f"{url} may be in the accounts {said}. Write which one is meant, as in abfs://{min(meant)}{slash}{name}.")
    return [*found, *(f"abfs://{host}{slash}{name}" for host in meant)]
