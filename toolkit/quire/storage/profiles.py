"""Options of stores by name: a file of profiles, in which secrets stand by reference."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quire.errors import UsageError, choose, hide, quoted
from quire.storage.secret import secret

VARIABLE = "QUIRE_PROFILES"
_PLACE = "~/.config/quire/profiles.toml"


def profile(name: str) -> dict[str, Any]:
    """Return the options of a store that a file of profiles holds under a `name`, as a dictionary.

    The file is `~/.config/quire/profiles.toml`, or another one that the variable QUIRE_PROFILES names: a table for each profile. Secrets
    stand in it by reference, `{ env = "NAME" }` or `{ file = "path" }` (relative to the file), and are looked up as `quire.secret` says.
    Raises UsageError for a file that cannot be read, and for a name that it does not have.

        quire.consolidate(source, dest, source_options=quire.profile("partner"), dest_options=quire.profile("lake"))
    """
    if not isinstance(name, str) or not name:
        raise UsageError(f"a profile has a name, as 'lake', and not {quoted(name, 80)}.")
    at = Path(os.environ.get(VARIABLE) or _PLACE).expanduser()
    try:
        found = tomllib.loads(at.read_text("utf-8"))
    except OSError as e:
        raise UsageError(f"the file of profiles {at} cannot be read: {e.strerror}. Write it, or name another one in {VARIABLE}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as e:
        raise UsageError(f"{at} is not TOML: {e}. Repair that place.") from None
    if not found:
        raise UsageError(f"{at} holds no profiles. Write one as a table: [{name}], with options of the store.")
    choose(name, found, f"profile of {at}")
    try:
        return referred(found[name], at.absolute().parent)
    except UsageError as e:
        raise UsageError(f"{at}: profile {name!r}: {e}") from e


def referred(given: Any, folder: Path) -> dict[str, Any]:
    """Options of a file in `folder`, in which secrets stand by reference: { env = "NAME" } or { file = "path" }."""
    if not isinstance(given, Mapping):  # it is not repeated: it may be a secret
        raise UsageError(f"options are a table of names and values, and this {type(given).__name__} is none.")
    return {name: _referred(name, value, folder) for name, value in given.items()}


def _referred(name: str, value: Any, folder: Path) -> Any:
    """An option, which may hold others."""
    if isinstance(value, dict):
        if len(value) == 1 and value.keys() <= {"env", "file"} and isinstance(next(iter(value.values())), str):
            return secret(value["env"]) if "env" in value else secret(folder / value["file"])
        return {inner: _referred(inner, each, folder) for inner, each in value.items()}
    if isinstance(value, list):
        return [_referred(name, each, folder) for each in value]
    if isinstance(value, str) and hide(text := f"{name}={value}") != text:
        raise UsageError(f"{name!r} looks like a secret that is written out. Refer to it: {{ env = 'VARIABLE' }} or {{ file = 'path' }}.")
    return value
