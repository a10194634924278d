"""Files below one or several URLs as a source: which of them are meant.

A source is a directory's URL, a glob, a list of them, or a list of `(url, options)` pairs. Places that lie in one another are
listed once, so that no file is read twice. Names that start with `_` or `.` are hidden, by Spark's rule.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import islice, takewhile
from typing import Any, cast

from quire.errors import RefusedError, StorageError, UsageError, about, encodable, quoted, scrub
from quire.sources.identity import ByContent
from quire.storage import (
    Content,
    OnRetry,
    ReadRequest,
    Store,
    Vanished,
    account,
    below,
    canonical,
    connect,
    is_safe,
    normalise,
    overlap,
    silent,
)
from quire.storage.aside import is_private
from quire.storage.local import to_text
from quire.storage.within import MARK, is_marked, plain

Options = Mapping[str, object] | None
_STAR = "[^/]*"  # as glob_translate writes a star; a class of characters cannot look so, since a slash ends a part
_FOLDERS = ("file", "hdfs", "webhdfs", "swebhdfs")  # stores in which a directory is there by itself; in others its first object makes it
_LOOKED_AT = 1000  # names among which a nearer one is looked for
_MAGIC = re.compile(r"[*?\[]")
_ITSELF = re.compile(r"\[[*?\[]\]")  # as `literal` writes a character that would mean others


@dataclass(frozen=True)
class Root:
    """A directory to list, with what of it is wanted; `options` (they may hold secrets) are never shown."""

    url: str
    wanted: tuple[str, ...] = ("",)  # below the root: a directory ("" is all), or a glob
    options: Options = field(default=None, repr=False)
    identity: str = "store"  # "content": what is read is hashed on its way (see `identity`)
    links: bool = False  # symbolic links are followed: whoever may make links there chooses what is read
    decompress: str = "none"  # how compressed files are taken (see `compression`)
    archives: bool = False  # the members of archives are documents (see `archives`)

    def store(self, on_retry: OnRetry = silent) -> Store:
        """The store at the root; `on_retry` is called at what is tried again."""
        store = connect(self.url, self.options, on_retry, links=self.links)
        return cast("Store", ByContent(store)) if self.identity == "content" else store

    @property
    def shared(self) -> bool:
        """Whether other processes reach it."""
        return self.store().shared

    @property
    def near(self) -> bool:
        """Whether its files come from this machine, and not over a network."""
        return self.url.startswith(("file://", "memory://"))

    @property
    def account(self) -> str:
        """The account that it lies in, as a progress line names it; roots of one account share what the account allows."""
        return account(self.url, self.options)


class _Silent:
    """A task may not read anything from a place that its call does not name."""

    def read_many(self, requests: Iterable[ReadRequest]) -> Iterator[tuple[ReadRequest, Content]]:
        return ((request, Vanished("its source is not named in this call")) for request in requests)


@dataclass(frozen=True)
class Unread(Root):
    """A place of which a ledger speaks and a call does not: a plan may name it, and nothing there is looked up or read."""

    shared = True

    def store(self, on_retry: OnRetry = silent) -> Store:
        """A store that gives nothing, whatever the place holds."""
        return cast("Store", _Silent())

    @property
    def account(self) -> str:
        """It is asked for nothing."""
        return "quarantine"


EVERY = "*"


@dataclass(frozen=True)
class Selection:
    """Which files of the roots are taken."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    hidden: bool = False
    links: bool = False
    newest: int | None = None  # ns since 1970: files changed later are left for another run
    without: frozenset[str] = frozenset()  # paths that this call has taken up often enough
    schema: str = ""  # of the files with rows those of this schema alone (see `planning.routes`); EVERY: each has a destination

    def chooser(self, root: Root) -> re.Pattern[str]:
        """The pattern for names of files below the root."""
        wanted = "|".join(_place(w) for w in root.wanted)
        include = f"(?={'|'.join(map(_anywhere, self.include))})" if self.include else ""
        exclude = f"(?!{'|'.join(map(_anywhere, self.exclude))})" if self.exclude else ""
        return re.compile(f"{exclude}{include}(?:{wanted})", re.DOTALL)

    def shows(self, name: str) -> bool:
        """Whether the last part of a name is not hidden, nor that of a file which a purge is deleting."""
        return not is_hidden(name) or (self.hidden and not is_private(name))

    def hides(self, names: list[str], start: int) -> list[int]:
        """Which of several names it does not show; their last parts begin at `start`."""
        # As `is_hidden` has it: nearly no name need be looked at as a whole.
        odd = (i for i, name in enumerate(names) if name[start] in "_." or name[-1] == "_")
        return [i for i in odd if not self.shows(names[i][start:])]


def is_hidden(name: str) -> bool:
    """Spark's rule: `_x` and `.x` are hidden, but not a partition's `_x=1`; neither is a copy that is still under way shown."""
    first = name[:1]  # nothing, of a name that ends in a slash
    return (first == "_" and "=" not in name) or first == "." or (name[-1:] == "_" and name.endswith("._COPYING_"))


def is_shown(name: str) -> bool:
    """Whether who reads a directory as Spark does sees the file of this name: no part of it is hidden."""
    return not any(map(is_hidden, name.split("/")))


def _glob(pattern: str) -> str:
    """A glob as a regular expression; `**` is a whole part of it, and means any directories."""
    *folders, last = pattern.split("/")
    found = "".join("(?:.+/)?" if part == "**" else f"{_part(part)}/" for part in folders)
    return rf"(?s:{found}{_part(last)})"


def _part(part: str) -> str:
    """One part of a glob. Text between two stars matches at its first occurrence, and is not searched for elsewhere: a name of
    255 dashes would keep `*-*-*-*-*-*` busy for hours.
    """
    from fsspec.utils import glob_translate  # which brings asyncio: tasks start without it

    first, *rest = str(glob_translate(part)).removeprefix("(?s:").removesuffix(r")\Z").split(_STAR)
    return first + "".join(rf"(?>[^/]*?{fixed})" for fixed in rest[:-1]) + "".join(_STAR + fixed for fixed in rest[-1:])


def _place(wanted: str) -> str:
    """A glob may name files, or directories of which all is meant."""
    if not wanted:
        return r".*\Z"
    inner = _glob(wanted) if _MAGIC.search(wanted) else re.escape(wanted)
    return rf"{inner}(?:/.*)?\Z"


def _anywhere(pattern: str) -> str:
    """A pattern without a slash is about the last part of the name, one with a slash about the whole name."""
    return rf"{_glob(pattern)}\Z" if "/" in pattern else rf"(?:.*/)?{_glob(pattern)}\Z"


def patterns(given: str | Iterable[str] | None, what: str) -> tuple[str, ...]:
    """`include=` and `exclude=` as a tuple of globs."""
    found = tuple(given or ()) if isinstance(given, Iterable) and not isinstance(given, str) else () if given is None else (given,)
    with about(what):
        for pattern in found:
            if not isinstance(pattern, str) or not pattern:
                raise UsageError(f"{what} takes globs such as '*.xml' or 'dt=*/*.json', not {quoted(pattern)}")
            _compiled(pattern, what)
    return found


def _compiled(pattern: str, what: str) -> None:
    try:
        if not encodable(pattern):
            raise ValueError("it holds half of a character")
        re.compile(_glob(pattern))
    except (re.error, ValueError) as e:
        raise UsageError(f"{what}: {scrub(pattern)!r} is not a glob: {e}. Write for example '*.xml' or 'dt=*/*.json'.") from e


def roots(source: object, options: Options = None, *, waits: bool = False) -> list[Root]:
    """The directories to list for a source, outermost ones only, in the order of their URLs.

    UsageError for a place that does not exist. A store without directories has a place from its first object on: there one that is empty
    is not told from one that is not there, and is refused likewise, unless the call `waits` for what will come.
    """
    given = list(source) if isinstance(source, Sequence) and not isinstance(source, str | bytes) and not _is_pair(source) else [source]
    if not given:
        raise UsageError("the source is an empty list. Give a directory, a glob, or a list of them.")
    found: list[Root] = []
    for root in sorted((_root(item, options, waits=waits) for item in given), key=lambda r: r.url):
        outer = next((r for r in found if below(root.url, r.url)), None)
        if outer is None:
            found.append(root)
            continue
        if (outer.options or {}) != (root.options or {}):
            if root.url == outer.url:
                raise UsageError(
                    f"{root.url} is given with two sets of options. If these are two accounts, let the URLs name them, as in "
                    "abfs://container@account.dfs.core.windows.net/path; else give one of them only."
                )
            raise UsageError(f"{root.url} lies in {outer.url}, but has other options. Give one of them only.")
        inside = root.url[len(outer.url) :].strip("/")
        wanted = tuple(re.sub(r"(?<=.)/$", "", f"{literal(inside)}{'/' if inside and w else ''}{w}") for w in root.wanted)
        found[found.index(outer)] = Root(outer.url, outer.wanted + wanted, outer.options)
    return found


def spellings(source: object, found: Sequence[Root]) -> tuple[tuple[str, str], ...]:
    """The local directories of a source as they were written, where links lead elsewhere: path as written → path that it means."""
    pairs = set[tuple[str, str]]()
    for item in source if isinstance(source, Sequence) and not isinstance(source, str) and not _is_pair(source) else [source]:
        place = item[0] if _is_pair(item) else item  # type: ignore[index]  # a pair
        text = os.fspath(place) if isinstance(place, str | os.PathLike) else ""
        plain = os.path.abspath(os.path.expanduser(os.fsdecode(text).removeprefix("file://")))
        pairs |= {(to_text(plain), root.url.removeprefix("file://")) for root in found if root.url == normalise(plain)}
    return tuple(sorted((written, meant) for written, meant in pairs if written != meant))


def is_glob(wanted: str) -> bool:
    """Whether it is more than the name of a directory, of which each character stands for itself."""
    return _MAGIC.search(_ITSELF.sub("", wanted)) is not None


def literal(name: str) -> str:
    """The glob that matches this name alone: `[z]` → `[[]z]`."""
    return _MAGIC.sub(lambda m: f"[{m[0]}]", name) if _MAGIC.search(name) else name


def _is_pair(source: object) -> bool:
    return isinstance(source, tuple) and len(source) == 2 and isinstance(source[1], Mapping)


def _root(item: object, options: Options, *, waits: bool) -> Root:
    if _is_pair(item):
        pair: Any = item
        item, options = pair[0], {**(options or {}), **pair[1]}
    if not isinstance(item, str | os.PathLike):
        raise UsageError(f"a source is a path or URL, a glob, a list of them, or (url, options) pairs, not {quoted(item)}")
    text = os.fspath(item)
    text = os.fsdecode(text) if isinstance(text, bytes) else text
    if is_marked(text.lower()):
        raise UsageError(f"the source {scrub(text)!r} is marked as a table that is written. Give its URL without {MARK!r}.")
    if _MAGIC.search(text) and not connect(canonical(text, options), options).is_folder():
        parts = text.split("/")
        first = next(i for i, part in enumerate(parts) if _MAGIC.search(part))
        pattern = "/".join(parts[first:])
        _compiled(pattern, "source")
        text = "/".join(parts[:first]) or ("/" if text.startswith("/") else ".")
        root = Root(canonical(text, options), (pattern,), options)
    else:
        root = Root(canonical(text, options), ("",), options)
    store = root.store()
    if not store.is_folder():
        parent, _, name = root.url.rpartition("/")
        if parent.partition("://")[2] and connect(parent, options).stat(name) is not None:
            raise UsageError(f"the source {root.url} is a file. Give its directory, with include={name!r} to take this file alone.")
        scheme = root.url.partition(":")[0]
        if scheme == "memory" or (waits and scheme not in _FOLDERS):
            return root  # an empty place and none are the same there
        empty = "" if scheme in _FOLDERS else ", or holds nothing, which is the same in this store"
        error = UsageError(f"the source {root.url} does not exist{empty}. {_near(root.url, options)}")
        error.missing = True
        raise error
    return root


def located(found: Iterable[Root]) -> Callable[[str], tuple[Root, str] | None]:
    """Which of these means a file, by its URL, and the file's name below it: it lies there, and matches the glob where one was given.

    The URL may come from a ledger that somebody has forged: what would lead out of the root again is meant by none.
    """
    choosers = [(root, root.url.rstrip("/") + "/", None if root.wanted == ("",) else Selection().chooser(root)) for root in found]

    def find(url: str) -> tuple[Root, str] | None:
        for root, place, chooser in choosers:
            if url.startswith(place) and (chooser is None or chooser.match(url, len(place))) and is_safe(url[len(place) :]):
                return root, url[len(place) :]
        return None

    return find


def _near(url: str, options: Options) -> str:
    """The likely meaning of a place that does not exist: the nearest name beside it, where the store can be listed."""
    parent, _, name = url.rpartition("/")
    while parent.partition("://")[2]:
        with suppress(StorageError):  # a hint is not worth an error of its own
            store = connect(parent, options)
            if store.is_folder():
                near = get_close_matches(name, (there for there, _ in islice(store.peek(), _LOOKED_AT)), n=1)
                there = f": did you mean {parent}/{near[0]}?" if near else f": {parent} is there, {name!r} in it is not."
                return f"Check the spelling{there}"
        parent, _, name = parent.rpartition("/")
    return "Check the spelling, or create it."


def among(found: Iterable[Root]) -> Callable[[str], bool]:
    """Whether a file, by its URL, is meant by one of these."""
    find = located(found)
    return lambda url: find(url) is not None


def places(urls: Iterable[str], most: int = 3) -> str:
    """The directories that files lie in, one for each store, as text for somebody who is to say whether they are meant."""
    shared = dict[str, list[str]]()
    for url in urls:
        scheme, _, rest = url.partition("://")
        host, *folders = rest.split("/")[:-1] or [rest]
        place = f"{scheme}://{host}"
        shared[place] = [a for a, b in takewhile(lambda pair: pair[0] == pair[1], zip(shared.get(place, folders), folders, strict=False))]
    shown = [scrub("/".join([place, *(folders or [""])]), 200) for place, folders in sorted(shared.items())]
    return ", ".join(shown[:most]) + (f" and {len(shown) - most:,} more" if len(shown) > most else "")


def apart(found: Iterable[Root], dest: str, options: Options = None, what: str = "destination") -> None:
    """Refuse a destination inside a source or the reverse, however they are spelled: output would be read as input."""
    for root in found:
        if overlap(dest, options, root.url, root.options):
            raise RefusedError(
                f"the {what} {plain(dest)} lies in the source {root.url}: its files would be read as input. Choose a place outside."
            )
        if overlap(root.url, root.options, dest, options):
            raise RefusedError(f"the source {root.url} lies in the {what} {plain(dest)}: choose another {what}, outside of it.")
