"""The names that a run is to look at, in the place of a listing: each is looked up in its store, and nothing else is.

They say nothing of what is not among them: a name that is missing there does not mean that its file has gone.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from quire.errors import StorageError, TransientError
from quire.planning.pieces import Piece
from quire.sources.files import Root, Selection
from quire.storage import Entry, Looking, Store, Trouble, below, normalise
from quire.storage.local import LINK, to_os
from quire.storage.threads import Pool

if TYPE_CHECKING:
    from quire.planning.listing import Listed

EACH = 2_000  # names that one task looks up
LOOKING = 32  # at once


@dataclass
class Among:
    """Files and directories, below the roots of a call by their numbers.

    first   what the first look at all of them has found
    seen    what the last look at a file has found; None: it is not there
    """

    files: Sequence[tuple[int, str]] = ()
    folders: Sequence[tuple[int, str]] = ()
    first: Listed | None = field(default=None, repr=False)
    seen: dict[tuple[int, str], Entry | None] = field(default_factory=dict, repr=False)

    def saw(self, looks: Iterable[Sequence[Any]]) -> None:
        """Remember what tasks have found, each as `Differing.looks` has it."""
        self.seen.update(((number, name), None if found is None else Entry(*found)) for number, name, found in looks)

    def pieces(self, each: int = EACH, *, again: bool = True) -> list[Piece]:
        """The parts that tasks look at, of `each` files by their names; a name that lies in one of the directories is looked at with it.

        `again` is False where the last look at a file will do.
        """
        folders = list[tuple[int, str]]()
        tops = set[tuple[int, str]]()
        for where in sorted(set(self.folders)):  # what lies in another one comes after it
            if not lies_in(where, tops):
                tops.add(where)
                folders.append(where)
        alone = sorted({where for where in self.files if not tops or not lies_in(where, tops)})
        found, at = [Piece(number, folder, below=True) for number, folder in folders], 0
        while at < len(alone):
            number = alone[at][0]
            names = [name for n, name in alone[at : at + each] if n == number]
            seen = () if again else tuple((name, self.seen[number, name]) for name in names if (number, name) in self.seen)
            found.append(Piece(number, "", names=tuple(names), seen=seen))
            at += len(names)
        return found


def lies_in(where: tuple[int, str], others: set[tuple[int, str]]) -> bool:
    """Whether a name below a root is one of others, or lies in a directory that is."""
    number, name = where
    if where in others or (number, "") in others:
        return True
    return any((number, name[:at]) in others for at, c in enumerate(name) if c == "/")


def looked_up(
    store: Store, root: Root, selection: Selection, names: Iterable[str], dest: str
) -> Iterator[tuple[str, Entry | Trouble | None]]:  # fmt: skip
    """Each name with the file that is there now, as a listing would give it; None: there is none, or the listing would not show it."""

    def look(name: str) -> Entry | Trouble | None:
        if not all(map(selection.shows, name.split("/"))):
            return Trouble(name, "hidden", "")
        if selection.links and dest and below(normalise(f"{root.url}/{name}"), dest):
            return Trouble(name, "link", "a link into the destination")
        try:
            entry = met[name] if name in met else store.stat(name)
        except TransientError:
            raise
        except StorageError as e:
            store.is_folder()  # which raises where the store itself is what does not answer
            return Trouble(name, "unreadable", str(e))
        if entry is None or not root.url.startswith("file://"):
            return entry
        if entry.version == LINK:
            return Trouble(name, "link", "a symbolic link, not followed")
        return entry if _is_regular(root, name) else None

    names, met = list(names), dict[str, Entry | None]()
    if isinstance(store, Looking) and len(names) > 1:
        met.update(store.look_at([name for name in names if all(map(selection.shows, name.split("/")))]))
    with Pool(LOOKING, "quire-look") as pool:
        yield from zip(names, pool.map(look, names), strict=True)


def _is_regular(root: Root, name: str) -> bool:
    """Whether it is a file, and not a pipe, a socket or a device."""
    try:
        found = os.stat(f"{to_os(root.url.removeprefix('file://').rstrip('/'))}/{to_os(name)}", follow_symlinks=root.links)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode)
