"""Look at a sample of a source, and say which kinds of files lie there, and which call takes them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pyarrow as pa

from quire import display, skew
from quire.arguments import format_size, whole
from quire.errors import NotFoundError, UsageError, about, printable
from quire.formats.parquet import stored
from quire.interrupts import interruptible
from quire.planning.first import some_files
from quire.planning.routes import named
from quire.skew import SkewResult
from quire.sources import compression, files
from quire.sources.files import Root, Selection
from quire.sources.looking import BEGINNING, Found, Kind, looked, settings_of
from quire.sources.transforms import columnar, schemas, text
from quire.storage import Entry, ReadRequest, Unreadable, Vanished, plain

if TYPE_CHECKING:
    import pandas as pd

SEEN = 100_000  # files that are listed
WHOLE = 1 << 20  # bytes of a file that is read whole
PATTERNS = 20  # that tell one schema's files from others
MOSTLY = 0.95  # the share of the files that one transform must take, so that it is chosen without a question


@dataclass(frozen=True)
class Sniffed:
    """A source, as a sample of it shows it.

    sources   the places that were looked at
    files     that were listed, and `bytes` in them; `more`: there are others, as only the first 100,000 are looked through
    found     each file that was looked at: path, kind, and its columns, where it holds rows
    transform, settings   the call that takes most of them, `share` of those that were looked at; "" where none does
    sizes     bytes of the files that were listed: the smallest, the median and the largest
    skew      whether the bytes are even over the source's directories: a `quire.skew.SkewResult`

        found = quire.sniff("/data/drop")           # a quire.Sniffed
        print(found)
        found.call                                  # 'quire.consolidate(…, transform="csv", delimiter=";")'
        found.kinds(), found.schemas(), found.columns, found.as_dict()
        quire.consolidate("/data/drop", "/data/out", transform=found.transform, **found.settings)
    """

    sources: tuple[str, ...]
    files: int
    bytes: int
    more: bool
    found: tuple[Found, ...] = field(repr=False)
    transform: str
    settings: Mapping[str, Any]
    share: float
    sizes: tuple[int, int, int]
    skew: SkewResult = field(repr=False, compare=False)

    @property
    def source(self) -> str:
        """The places that were looked at, as a text."""
        return ", ".join(self.sources)

    def kinds(self) -> pd.DataFrame:
        """One row a kind: kind, codec, transform, files (of those that were looked at), share, example."""
        import pandas as pd  # here, as a shell answers without it

        counted, example = _counted(self.found)
        rows = [(k.name, k.codec, k.transform, n, n / len(self.found), example[k].path) for k, n in counted]
        return pd.DataFrame(rows, columns=["kind", "codec", "transform", "files", "share", "example"])

    def schemas(self) -> pd.DataFrame:
        """One row a schema of the files that name their columns, with the patterns of `include=` that take its files alone.

        Columns: name (of its destination with split_by_schema=True; "" of a transform that has none), transform, columns, files (of
        those that were looked at), example, include (a list, as include= takes it, of patterns that match none of the other files that
        were looked at; "", which include= refuses: there are none).
        """
        import pandas as pd

        groups = dict[tuple[str, str], list[Found]]()
        for each in self.found:
            if each.columns is not None:
                of_rows = each.kind.transform in columnar.NAMES
                key = named(each.columns) if of_rows else schemas.text(pa.schema([(name, pa.string()) for name in each.columns.names]))
                groups.setdefault((each.kind.transform, key), []).append(each)
        rows = [
            (key if kind in columnar.NAMES else "", kind, schemas.text(_typed(held[0].columns)), len(held), held[0].path,
             self._alone({each.path for each in held}) or "")
            for (kind, key), held in sorted(groups.items(), key=lambda group: -len(group[1]))
        ]  # fmt: skip
        return pd.DataFrame(rows, columns=["name", "transform", "columns", "files", "example", "include"])

    def _alone(self, wanted: Set[str]) -> list[str]:
        """Patterns that match these of the files and none of the others: by directories, else by the beginnings of their names."""
        mine, others = list[str](), list[str]()
        for each in self.found:
            (mine if each.path in wanted else others).append(_below(each.path, self.sources))
        for part in (_folder, _beginning, _numbered):
            found = sorted(set(map(part, mine)))
            if len(found) <= PATTERNS and "" not in found:
                taken = files.Selection(include=tuple(found)).chooser(files.Root(self.sources[0])).match
                if all(map(taken, mine)) and not any(map(taken, others)):
                    return found
        return []

    @property
    def columns(self) -> str:
        """The columns of the rows that the call makes, as `schema=` takes them; "" where it makes none."""
        schemas_of = Counter(each.columns for each in self.found if each.columns is not None and each.kind.transform == self.transform)
        common = text.common(self.transform, schemas_of.items()) if self.transform in text.NAMES else columnar.common(schemas_of.items())
        return "" if common is None else schemas.text(common)

    @property
    def call(self) -> str:
        """The call that takes most of the files, as one types it; "" where no transform does."""
        if not self.transform:
            return ""
        said = {"transform": self.transform, **self.settings}
        source = self.sources[0] if len(self.sources) == 1 else list(self.sources)
        return f"quire.consolidate({source!r}, dest, {', '.join(f'{name}={value!r}' for name, value in said.items())})"

    def as_dict(self) -> dict[str, Any]:
        """All of it, as JSON takes it."""
        counted, example = _counted(self.found)
        return {
            "source": self.source, "files": self.files, "bytes": self.bytes, "more": self.more, "looked_at": len(self.found),
            "kinds": [
                {"kind": k.name, "codec": k.codec, "transform": k.transform, "settings": dict(k.settings), "files": n,
                 "example": example[k].path, "why": example[k].why} for k, n in counted
            ],
            "transform": self.transform, "settings": dict(self.settings), "share": self.share, "call": self.call, "columns": self.columns,
            "sizes": list(self.sizes), "skew": self.skew.as_dict(),
        }  # fmt: skip

    def _facts(self) -> dict[str, object]:
        counted, example = _counted(self.found)
        least, middle, largest = map(format_size, self.sizes)
        rows: dict[str, object] = {
            "files": f"{'more than ' if self.more else ''}{self.files:,} ({format_size(self.bytes)})",
            "sizes": f"{least} to {largest}, median {middle}",
            "skew": self.skew.verdict,
            "looked at": f"{len(self.found):,}",
        }
        for kind, n in counted[:8]:
            rows[str(kind)] = (f"{n / len(self.found):.0%}" if 200 * n >= len(self.found) else "less than 1%") + (
                f"  (of no use: {why})" if (why := example[kind].why) else ""
            )
        if self.columns:
            rows["columns"] = self.columns
        return rows

    def _note(self) -> str:
        return f"try: {printable(self.call)}" if self.call else "no transform takes these files as they are: raw keeps their bytes"

    def __str__(self) -> str:
        return display.lines(self.source, self._facts(), self._note())

    def _repr_html_(self) -> str:
        return display.facts(self.source, self._facts(), self._note())


def _typed(columns: Any) -> pa.Schema:
    """The same, where text stands for what has no type."""
    return pa.schema([field.with_type(pa.string()) if pa.types.is_null(field.type) else field for field in columns])


def _below(path: str, sources: Sequence[str]) -> str:
    """The name of a file below the source that it is of."""
    places = (f"{source.rstrip('/')}/" for source in sources)
    return next(path[len(place) :] for place in places if path.startswith(place))


def _folder(name: str) -> str:
    """The pattern of the first directory below the source; "" of a file without one."""
    first, slash, _ = name.partition("/")
    return f"{files.literal(first)}/**" if slash and first else ""


def _beginning(name: str) -> str:
    """The pattern of the letters that a file's name begins with, up to its first digit; "" of one without any."""
    found = re.match(r"[^0-9*?\[]+", name.rpartition("/")[2])
    return f"{found[0]}*" if found and "." not in found[0] else ""


def _numbered(name: str) -> str:
    """The same with a digit behind them, which `order1` has and `orders1` has not."""
    found = re.match(r"([^0-9*?\[.]+)[0-9]", name.rpartition("/")[2])
    return f"{found[1]}[0-9]*" if found else ""


def _counted(found: tuple[Found, ...]) -> tuple[list[tuple[Kind, int]], dict[Kind, Found]]:
    """Each kind with how many files are of it, the most frequent one first, and the first file of each."""
    example = dict[Kind, Found]()
    for each in found:
        example.setdefault(each.kind, each)
    return Counter(each.kind for each in found).most_common(), example


@interruptible
def sniff(
    source: Any, *, include: Any = None, exclude: Any = None, hidden: bool = False, sample: int = 200,
    storage_options: Mapping[str, Any] | None = None,
) -> Sniffed:  # fmt: skip
    """Look at some files of a source: which kinds lie there, and which call of `quire.consolidate` takes them.

    It reads the beginnings of at most `sample` files, on the driver, and writes nothing.

    source    a directory's path or URL, a glob, a list of them, or of (url, options) pairs
    include, exclude, hidden   which files count, as for `quire.consolidate`
    sample    how many files to look at; they are spread over the first 100,000 that the source lists
    storage_options   for its store

    Returns a `Sniffed`. Raises UsageError where nothing is there, or an argument is wrong.
    """
    whole(sample, "sample", 1, 100_000)
    with about("source"):
        roots = files.roots(source, dict(storage_options) if storage_options else None)
    selection = Selection(files.patterns(include, "include"), files.patterns(exclude, "exclude"), hidden)
    listed = list(some_files(tuple(roots), selection, SEEN + 1))
    more, listed = len(listed) > SEEN, sorted(listed[:SEEN], key=lambda each: (each[0].url, each[1].name))
    shown = tuple(plain(root.url) for root in roots)
    if not listed:
        with about("source"):
            raise UsageError(f"{', '.join(shown)} has no file to look at. Check the spelling, or what include= and exclude= leave.")
    chosen = [listed[i * len(listed) // min(sample, len(listed))] for i in range(min(sample, len(listed)))]
    found = tuple(each for root in roots for each in _looked(root, [entry for of, entry in chosen if of is root]))
    transform, settings, share = _suggested(found)
    sizes = sorted(entry.size for _, entry in listed)
    by_folder = Counter[str]()
    for root, entry in listed:
        by_folder[f"{root.url}/{entry.name.rpartition('/')[0]}"] += entry.size
    return Sniffed(
        shown, len(listed), sum(sizes), more, found, transform, settings, share, (sizes[0], sizes[len(sizes) // 2], sizes[-1]),
        skew.check(dict(by_folder), unit="bytes"),
    )  # fmt: skip


def _looked(root: Root, entries: list[Entry]) -> Iterator[Found]:
    store = root.store()
    requests = [ReadRequest(e.name, e.version, e.size, 0, e.size if e.size <= WHOLE else min(e.size, BEGINNING)) for e in entries]
    with closing(store.read_many(requests)) as answers:  # type: ignore[type-var]  # a store's answers are a generator
        for request, content in answers:
            if isinstance(content, Vanished | Unreadable):
                continue
            with suppress(Vanished, Unreadable, NotFoundError):
                held = content if isinstance(content, bytes) else b"".join(content)
                complete = request.length == request.size
                yield looked(
                    f"{root.url.rstrip('/')}/{request.name}", held, whole=complete, file=None if complete else stored(store, request.name)
                )


def _suggested(found: tuple[Found, ...]) -> tuple[str, dict[str, Any], float]:
    """The transform that takes most of the files that hold something and are not damaged, with its settings, and their share."""
    holding = [each for each in found if each.kind.name not in ("empty", "damaged")]
    counted = Counter(each.kind.transform for each in holding if each.kind.transform)
    if not counted:
        return "", {}, 0.0
    transform, n = counted.most_common(1)[0]
    taken = [each for each in holding if each.kind.transform == transform]
    settings = settings_of(each.kind for each in taken)
    if compression.mode(None, transform) == compression.AUTO:  # which quarantines what is not compressed as its name says
        misnamed = [each for each in taken if compression.by_name(each.path) not in (None, each.kind.codec)]
        if misnamed and not settings.get("archives") and not any(each.kind.codec for each in taken):
            settings["decompress"] = compression.NONE
        else:
            n -= len(misnamed)
    return transform, settings, n / len(holding)


# Which a shell says in any case.
USUAL = {"encoding": "auto", "delimiter": ",", "header": True, "archives": False, "decompress": None}
S = TypeVar("S", bound=Mapping[str, Any])


def settled(source: Any, settings: S) -> S:
    """The settings of a call; with transform="auto" those that a look at the source suggests, beside those that the call says itself.

    UsageError where no transform takes nearly all of what lies there.
    """
    if settings.get("transform") != "auto":
        return settings
    options = {**(settings.get("storage_options") or {}), **(settings.get("source_options") or {})} or None
    which = {name: settings[name] for name in ("include", "exclude", "hidden") if name in settings}
    found = sniff(source, storage_options=options, **which)
    if found.share < MOSTLY:
        counted, _ = _counted(found.found)
        what = "; ".join(f"{kind}: {n:,}" for kind, n in counted[:5])
        with about("transform"):
            raise UsageError(
                f"transform='auto' finds several kinds of files in {found.source} ({what}, of {len(found.found):,} that were looked at), "
                f"and no transform takes nearly all of them. Say transform=, and leave the others out with include= or exclude=."
            )
    said = {name: value for name, value in settings.items() if name not in found.settings or value != USUAL[name]}
    return cast("S", {**found.settings, **said, "transform": found.transform})
