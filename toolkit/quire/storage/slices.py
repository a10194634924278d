"""Slices of a directory's names, in stores that list names in order and begin where they are asked to.

Services agree on the order of names but for two things, and neither may lose a name at a slice's end or give it twice:

- A directory `a` stands in the list as `a/`, behind the file `a!`; where a service has real directories, it stands as `a`, before it.
- Characters beyond U+D7FF come in the order of UTF-8 or of UTF-16. So a bound that holds one cannot begin or end a slice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from quire.storage.base import Entry, Files, Folder, Trouble
from quire.storage.retry import again

Item = Entry | Folder | Trouble
Found = Item | Files
T = TypeVar("T", Item, Found)

_HIGH = "\ud7a3"  # hardly a name goes on with it, and all orders agree on it
_LAST = "\ud7ff"


UNSAYABLE = frozenset(("", ".", ".."))  # parts of a name: `scan` tells of them, `walk` leaves them out
_WHY = "an empty part, '.' or '..' in the name, which no path can say: copy it to another name"


def level(below: str, cut: int, prefixes: Iterable[str], files: Iterable[tuple[str, Entry]]) -> list[tuple[str, Item]]:
    """A page of one level: the last parts of names, and what they are. `files` are keys with what they hold, `cut` is the root's length."""
    start, items = len(below), list[tuple[str, Item]]()
    for prefix in prefixes:
        last = prefix[start:-1]
        item = (last + "/", Trouble(prefix[cut:], "unreadable", _WHY)) if last in UNSAYABLE else (last, Folder(prefix[cut:-1]))
        items.append(item)
    for key, entry in files:
        last = key[start:]
        if last or entry.size:  # else it is a mark of the directory
            items.append((last, Trouble(key[cut:], "unreadable", _WHY) if last in UNSAYABLE else entry))
    return items


def columns(below: str, cut: int, files: Files) -> list[tuple[str, Found]]:
    """The same of files that are columns, with their keys as names; they stay together where each can be said."""
    start = len(below)
    if not UNSAYABLE.isdisjoint([key[start:] for key in files.names]):
        return [*level(below, cut, (), ((each.name, each._replace(name=each.name[cut:])) for each in files.entries()))]
    return [("", files._replace(names=[key[cut:] for key in files.names]))] if files.names else []


def names(items: Iterable[Item]) -> Iterator[tuple[str, bool]]:
    """`peek`, from what `scan` gives."""
    for item in items:
        yield "." if isinstance(item, Trouble) else item.name.rsplit("/", 1)[-1], isinstance(item, Folder)


def plain(name: str) -> bool:
    """Whether all services agree on which names come before this one."""
    return max(name, default="") <= _LAST


def just_before(name: str) -> str:
    """A name close before this one (empty: there is none), for services that begin behind what they are told."""
    while name:
        last = ord(name[-1]) - 1
        if last > 0x20 and not 0x7E < last < 0xA1:  # XML holds no other
            return name[:-1] + chr(last - (last == 0x2F)) + _HIGH  # no slash, which would lead into a directory
        name = name[:-1]
    return ""


def behind(after: str, until: str) -> list[str]:
    """The names of directories that belong to [after, until) and that a list may show behind `until`, as `a/` behind `a!`."""
    found = [until[:n] for n in range(1, len(until)) if until[n] < "/"]
    return [name for name in found if name >= after and name not in (".", "..")]


def within(
    pages: Iterable[Sequence[tuple[str, T]]], folder: str, after: str, until: str, is_folder: Callable[[str], bool]
) -> Iterator[T | Folder]:
    """The items of a list with a name in [after, until); a list of pages of (last part of the name, item) is left when it is beyond that.

    Names that a service may have shown behind that place are requested: `is_folder` is called with names of directories in full.
    """
    certain, missed = bool(until) and plain(until), dict.fromkeys(behind(after, until))
    for page in pages:
        beyond = False
        for last, item in page:
            if item.__class__ is Files:
                some, further = _between(item, folder, after, until)
                if some.names:
                    yield some
                beyond = beyond or (certain and further)
            elif last >= after and (not until or last < until):
                if item.__class__ is Folder:
                    missed.pop(last, None)
                yield item
            elif last >= after:
                beyond = certain
        if beyond:
            break
    else:
        return
    for last in missed:
        name = f"{folder}/{last}" if folder else last
        if again(partial(is_folder, name)):
            yield Folder(name)


def _between(files: Files, folder: str, after: str, until: str) -> tuple[Files, bool]:
    """Those with a name in [after, until), and whether there are others behind them."""
    start = f"{folder}/" if folder else ""
    first, end = start + after, start + until
    further = bool(until) and max(files.names) >= end
    if further or min(files.names) < first:
        files = files.take([i for i, name in enumerate(files.names) if name >= first and (not until or name < end)])
    return files, further


def first_of(pages: Iterable[Sequence[tuple[str, Item]]], after: str, most: int) -> list[tuple[str, bool]]:
    """The first `most` names of a list from `after` on, with whether each is a directory."""
    found = list[tuple[str, bool]]()
    for page in pages:
        # A name that no path can express counts, so that its directory is listed; it is never a bound of a slice.
        found += [("." if item.__class__ is Trouble else last, item.__class__ is Folder) for last, item in page if last >= after]
        if len(found) >= most:
            break
    return sorted(found)[:most]
