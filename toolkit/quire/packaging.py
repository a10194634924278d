"""The distribution that this package comes in, another project of its name, and what other packages add to it by entry points."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from importlib.metadata import EntryPoint
from typing import Any

from quire.errors import UsageError, scrub

DISTRIBUTION = "quire-spark"
PUBLISHED = False  # whether an index has it: else it is installed from a clone, or from a wheel that was built of one
_OWN = ("quire/__init__.py", "quire.py")  # whoever brings one of these brings another package of our name


def install(*extras: str) -> str:
    """The command that installs these extras, for errors about a missing package."""
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
    """Implementations by name: quire's own, and those that other packages register by entry points of `group`.

    own: name → "module" or "module:object", imported when it is asked for. So nothing that looks it up imports it, and executors need no
    metadata of quire's.
    """

    group: str
    noun: str  # as errors name one of it
    own: Mapping[str, str]
    reserved: tuple[str, ...] = ()  # names that mean something else
    needs: tuple[str, ...] = ()  # methods of the objects that the classes make
    flags: tuple[str, ...] = ()  # their attributes that are True or False
    texts: tuple[str, ...] = ()  # their attributes that are words
    docs: str = ""  # where it stands what they do
    _loaded: dict[str, Any] = field(default_factory=dict, repr=False)  # by entry points' values

    def known(self) -> list[str]:
        """All names: quire's, then those that other packages bring."""
        return [*self.own, *sorted(self.brought())]

    def brought(self, name: str = "") -> dict[str, EntryPoint]:
        """The implementations of other packages; looked up again only for a `name` that was not found, since the look-up takes a while."""
        taken = {*self.own, *self.reserved}
        if name and name not in {*_entries(self.group, tuple(sys.path)), *taken}:
            _entries.cache_clear()
        return {other: entry for other, entry in _entries(self.group, tuple(sys.path)).items() if other not in taken}

    def load(self, name: str) -> Any:
        """The module or class of this name; None where nobody brings it, UsageError where its package cannot give it."""
        if name in self.own:
            return EntryPoint(name, self.own[name], self.group).load()
        entry = self.brought(name).get(name)
        if entry is not None and entry.value not in self._loaded:
            with self._of_package(name):
                self._loaded[entry.value] = entry.load()
        return None if entry is None else self._loaded[entry.value]

    def make(self, name: str) -> Any:
        """An object of the class of this name, which says its name itself; None and UsageError as in `load`."""
        kind = self.load(name)
        if kind is None or name in self.own:
            return kind and kind()
        with self._of_package(name):
            made = kind()
        lacking = [need for need in self.needs if not callable(getattr(made, need, None))]
        lacking += [flag for flag in self.flags if not isinstance(getattr(made, flag, None), bool)]
        lacking += [text for text in self.texts if not isinstance(getattr(made, text, None), str)]
        if lacking or getattr(made, "name", None) != name:
            what = f"has no {', '.join(lacking)}" if lacking else f"calls itself {scrub(str(getattr(made, 'name', None)), 80)!r}"
            raise UsageError(f"{self._shown(name)} {what}, so it cannot be used. {self.docs} says what it needs.")
        return made

    @contextmanager
    def _of_package(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as e:  # of somebody else's module
            raise UsageError(f"{self._shown(name)} cannot be loaded: {scrub(str(e), 150)}. Install it again.") from e

    def _shown(self, name: str) -> str:
        entry = self.brought()[name]
        return f"the {self.noun.format(name)} of the package {entry.dist.name if entry.dist else entry.value}"


@functools.lru_cache(maxsize=8)
def _entries(group: str, _path: tuple[str, ...]) -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in metadata.entry_points(group=group)}
