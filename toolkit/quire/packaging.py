"""The distribution that this package comes in, another project of its name, and what other packages add to it by entry points."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from importlib.metadata import EntryPoint
from typing import Any

from quire.errors import UsageError, scrub

__all__ = ["DISTRIBUTION", "Registry", "another", "install", "warn_of_another"]

DISTRIBUTION = "quire-spark"
PUBLISHED = False  # whether an index has it: else it is installed from a clone, or from a wheel that was built of one
_OWN = ("quire/__init__.py", "quire.py")  # whoever brings one of these brings another package of our name


def install(*extras: str) -> str:
    """What to type for these extras, as every error says it that misses a package."""
    wanted = f"[{','.join(extras)}]" if extras else ""
    if PUBLISHED:
        return f'pip install "{DISTRIBUTION}{wanted}"'
    return f'pip install "PLACE{wanted}", where PLACE is a clone of quire or its wheel: ./quire, ./{DISTRIBUTION.replace("-", "_")}-….whl'


def another() -> str:
    """The version of another project called `quire` whose files stand beside this package, or in its place; else nothing."""
    for found in metadata.distributions(name="quire"):
        # A directory quire-spark-….dist-info, not normalised, is given for this name, too.
        if found.name.lower() == "quire" and any(str(file) in _OWN for file in found.files or ()):
            return found.version
    return ""


def warn_of_another() -> None:
    """One line where another project called `quire` is installed: the two packages have one name, and which one is imported is chance."""
    if version := another():
        message = (
            f"another project called quire ({version}) is installed beside this one, {DISTRIBUTION}, and both are imported as quire: "
            f"pip uninstall -y quire {DISTRIBUTION}, then {install()}"
        )
        warnings.warn_explicit(message, UserWarning, "quire", 1)  # without a line of code below it


@dataclass(frozen=True)
class Registry:
    """Objects that are found by name: quire's own, and those of other packages, by entry points of `group`.

    An object is made when it is asked for, by its class, and says its name itself. `own` is imported then, too: name → "module:class".
    So nothing that looks one up imports it, and executors need no metadata of quire's.
    """

    group: str
    noun: str  # as errors name one
    own: Mapping[str, str]
    methods: tuple[str, ...]  # that each has
    flags: tuple[str, ...] = ()  # attributes that are True or False
    docs: str = ""  # where it stands what an object has to do
    reserved: tuple[str, ...] = ()  # names that mean something else
    _classes: dict[str, Any] = field(default_factory=dict, repr=False)

    def known(self) -> list[str]:
        """All names: quire's, then those that other packages bring."""
        return [*self.own, *sorted(self.brought())]

    def brought(self, name: str = "") -> dict[str, EntryPoint]:
        """What other packages bring; looked up anew only for a `name` that was not there, since looking takes a while."""
        taken = {*self.own, *self.reserved}
        found = _entries(self.group, tuple(sys.path))
        if name and name not in {*found, *taken}:
            _entries.cache_clear()
            found = _entries(self.group, tuple(sys.path))
        return {other: entry for other, entry in found.items() if other not in taken}

    def get(self, name: str) -> Any:
        """The object of this name; None where nobody brings it, UsageError where it cannot be used."""
        if name in self.own:
            return self._made(EntryPoint(name, self.own[name], self.group))
        entry = self.brought(name).get(name)
        return None if entry is None else self._made(entry)

    def _made(self, entry: EntryPoint) -> Any:
        shown = f"the {self.noun} {entry.name!r} of the package {entry.dist.name if entry.dist else entry.value}"
        try:
            if entry.value not in self._classes:
                self._classes[entry.value] = entry.load()
            made = self._classes[entry.value]()
        except Exception as e:  # of somebody else's module
            raise UsageError(f"{shown} cannot be loaded: {scrub(str(e), 150)}. Install it again.") from e
        lacking = [name for name in self.methods if not callable(getattr(made, name, None))]
        lacking += [name for name in self.flags if not isinstance(getattr(made, name, None), bool)]
        if lacking or getattr(made, "name", None) != entry.name:
            what = f"has no {', '.join(lacking)}" if lacking else f"calls itself {scrub(str(getattr(made, 'name', None)), 80)!r}"
            raise UsageError(f"{shown} {what}, so it cannot be used. {self.docs} says what it needs.")
        return made


@functools.lru_cache(maxsize=8)
def _entries(group: str, _path: tuple[str, ...]) -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in metadata.entry_points(group=group)}
