"""Secrets by name: what travels to the tasks says where a value is found, and the value is looked up where a store is opened."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quire.errors import UsageError, scrub


@dataclass(frozen=True)
class Secret:
    """A value that is looked up where it is used; its repr and its pickle hold the name alone."""

    source: str | Path | Callable[[], object]

    def value(self) -> object:
        """The value of the variable, the file or the provider, in this process. Raises UsageError if it is empty."""
        if isinstance(self.source, Path):
            return self._read(self.source)
        if isinstance(self.source, str):
            if found := os.environ.get(self.source):
                return found
            raise UsageError(
                f"the variable {self.source!r} of {self!r} is not set {_here()}. Set it before the {_process()} starts, or give the value."
            )
        try:
            given, failed = self.source(), ""
        except Exception as e:
            given, failed = None, type(e).__name__  # its own words stay away: what looks up secrets may say them
        if failed:
            raise UsageError(f"{self!r} failed {_here()}: {failed}. Call the function there to see why.")
        if given is None or given == "":
            raise UsageError(f"{self!r} gave nothing {_here()}. Let the function return the value.")
        return given

    def _read(self, path: Path) -> str:
        try:
            found = path.read_text("utf-8").removesuffix("\n").removesuffix("\r")
        except (OSError, UnicodeDecodeError) as e:
            raise UsageError(
                f"the file of {self!r} cannot be read {_here()}: {getattr(e, 'strerror', None) or 'it is not UTF-8'}."
            ) from None
        if not found:
            raise UsageError(f"the file of {self!r} is empty {_here()}. Write the value into it.")
        return found

    def __repr__(self) -> str:
        simple = isinstance(self.source, str | Path)
        name = repr(str(self.source)) if simple else getattr(self.source, "__qualname__", type(self.source).__name__)
        return f"quire.secret({scrub(name, 100)})"


def secret(source: str | Path | Callable[[], object]) -> Secret:
    """An option's value by its `source`: the name of a variable of the environment, a `pathlib.Path` of a file with it, or a function.

    It is looked up on the driver and in each task, whenever a store is opened there, so it must be found in both places, and a newer value
    of the file or the function is taken; what travels is the name, or the function. A source that is none of these, or that has no value
    there, raises UsageError.
    `storage_options={"account_key": quire.secret("AZURE_KEY")}`.
    """
    named = isinstance(source, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", source)
    if not callable(source) and not isinstance(source, Path) and not named:
        # It is not repeated: it may be the secret itself.
        raise UsageError(
            f"quire.secret() takes the name of a variable or a function without arguments, or a pathlib.Path, and this "
            f"{type(source).__name__} is none of them."
        )
    return Secret(source)


def resolved(options: Any) -> Any:
    """The options with the values of all secrets in them."""
    if isinstance(options, Secret):
        return options.value()
    if isinstance(options, Mapping):
        return {name: resolved(value) for name, value in options.items()}
    if isinstance(options, list | tuple):
        if not any(_holds(value) for value in options):
            return options
        found = [resolved(value) for value in options]
        # A named tuple takes its values one by one.
        return type(options)(*found) if hasattr(options, "_fields") else type(options)(found)
    return options


def _holds(value: object) -> bool:
    if isinstance(value, Mapping | list | tuple):
        return any(map(_holds, value.values() if isinstance(value, Mapping) else value))
    return isinstance(value, Secret)


def _in_a_task() -> bool:
    context = sys.modules.get("pyspark.taskcontext")
    return context is not None and context.TaskContext.get() is not None


def _here() -> str:
    return f"on the executor {socket.gethostname()}" if _in_a_task() else "on the driver"


def _process() -> str:
    return "worker (with local[*]: the session)" if _in_a_task() else "program"
