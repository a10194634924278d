"""Whether what a call asks for was there at all: a glob that matches none of the names, as a rule a misspelt one, and a source that
cannot be listed.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from quire.errors import StorageError, UsageError, about, printable, quoted
from quire.planning.listing import Listed, globs_of
from quire.sources.files import Root, is_glob, literal


def check_listed(roots: Iterable[Any], listed: Listed) -> None:
    """StorageError where nothing was found but what could not be listed or planned: that is not an empty source."""
    if listed.unreadable.count and not (listed.files or listed.young or listed.unwanted.count):
        path, reason = listed.unreadable.pairs[0]
        more = f" (and {listed.unreadable.count - 1:,} more)" if listed.unreadable.count > 1 else ""
        raise StorageError(
            printable(
                f"nothing could be listed or planned in {_places(roots)}: {path}: {reason}{more}. Nothing was gathered: mend this first."
            )
        )


@dataclass(frozen=True)
class Unmatched:
    """Globs that match none of the names that are there."""

    argument: str  # include | source
    globs: tuple[str, ...]
    places: str
    listed: Listed

    def refuse(self, exclude: tuple[str, ...]) -> NoReturn:
        """UsageError, with a near name."""
        with about(self.argument):
            but = f" and exclude={', '.join(map(quoted, exclude))}" if exclude else ""
            there = self.listed.files + self.listed.young + self.listed.unwanted.count
            raise UsageError(
                f"{self.argument}={', '.join(map(quoted, self.globs))}{but} matches none of the names in {self.places} (files: {there:,}): "
                f"nothing was gathered. {_hint(self.globs, self.listed.unwanted.examples)}"
            )


def unmatched(roots: Sequence[Root], include: Sequence[str], listed: Listed) -> Unmatched | None:
    """The globs that match no name: of a source each of them, of `include`, which says what may come, all together.

    Where no name is there at all, every one may come later.
    """
    met = {(root, glob) for root, glob in listed.met}
    globs = [(i, glob) for i, root in enumerate(roots) for glob in globs_of(root)]
    placed = [(i, glob) for i, glob in globs if (i, "") in met and (i, glob) not in met]
    if not placed and listed.unwanted.count and not (listed.files or listed.young):
        if include:
            return Unmatched("include", tuple(include), _places(roots), listed)
        placed = globs
    if placed:
        among = [root for i, root in enumerate(roots) if i in dict(placed)]
        return Unmatched("source", tuple(f"{roots[i].url}/{glob}" for i, glob in placed), _places(among), listed)
    return None


def _hint(given: Sequence[str], names: Sequence[str]) -> str:
    if not names:
        return "Check the spelling, or leave it out."
    last = [name.rpartition("/")[2] for name in names]
    for folder, slash, name in (glob.rpartition("/") for glob in given):
        if name in last and is_glob(name):
            return f"The name {quoted(name, 100)} is there: to take this one, write {quoted(folder + slash + literal(name))}."
    endings = [f"*.{name.rpartition('.')[2]}" for name in last if "." in name]
    ends = [glob.rpartition("/")[2] for glob in given]
    near = [n for end in ends for n in difflib.get_close_matches(end, {*endings, *last}.difference(ends), n=1)]
    there = f"did you mean {quoted(near[0])}?" if near else f"there is for example {quoted(names[0], 100)}."
    return f"Check the spelling: {there}"


def _places(roots: Iterable[Any]) -> str:
    return ", ".join(root.url for root in roots)
