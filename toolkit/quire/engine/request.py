"""The arguments of the main job: checked once, before anything is read or written."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from msgspec.structs import replace

from quire.arguments import ROWS, count, flag, parse_target, refuse_needless, seconds, whole
from quire.commit.committers import choice
from quire.commit.entries import SPLITS, Keep, Spec
from quire.commit.held import Held
from quire.commit.retire import can_keep
from quire.engine.exports import step as exporting
from quire.engine.take_up import Identity
from quire.errors import UsageError, about, choose, quoted
from quire.formats import TRANSFORMS, compression_for, pair
from quire.formats.lines import compressor
from quire.planning.changes import Policy
from quire.planning.columns import Columns
from quire.planning.hashing import FUNCTIONS
from quire.planning.listing import Cut
from quire.planning.plan import Wanted
from quire.sources import files, transforms
from quire.sources.archives import uncut as archive_names
from quire.sources.compression import AUTO, NONE, uncut
from quire.sources.compression import by_spec as decoded_by
from quire.sources.compression import mode as compression_mode
from quire.sources.identity import IDENTITIES
from quire.sources.splits import FileInfo
from quire.sources.transforms import BadContent, columnar, schemas, text
from quire.sources.transforms.columns import MORE
from quire.sources.transforms.convert import Convert
from quire.sources.transforms.text.reading import Reading
from quire.storage import OnRetry, Store, connect, destination, plain, silent
from quire.storage.within import is_table

if TYPE_CHECKING:
    import pyarrow as pa

PLANNERS = ("balanced", "hash", "directory")
PARTIAL_LINES = ("hold", "take")
LAYOUTS = ("flat", "directories")
EVOLUTION = ("refuse", "add")
RANGE = 64 << 20  # bytes of lines of a long file that are held at once


@dataclass(frozen=True)
class Wishes:
    """The wishes for the destination that its log keeps for all later calls.

    keep     how many older versions stay readable; None: as before
    exports  the formats by which other readers find it, beside those that it has
    """

    keep: Keep | None = None
    exports: tuple[str, ...] = ()


@dataclass(frozen=True)
class Request:
    """A call, checked: what it reads, how, and which job of which destination that is."""

    roots: tuple[files.Root, ...]
    dest: str
    dest_options: files.Options = field(repr=False)
    identity: Identity
    convert: Convert
    cut: Cut
    selection: files.Selection = field(default_factory=files.Selection)
    min_age: float | None = None  # seconds
    max_quarantined: int | None = None
    policy: Policy = field(default_factory=Policy)
    allow_nonempty: bool = False
    wishes: Wishes = field(default_factory=Wishes)
    reduce: Callable[[Any], Any] | None = field(default=None, repr=False)  # all rows of a job go through it together
    # Of a table, which says itself which columns it has: those of rows in its types; an error where it does not take them.
    takes: Callable[[pa.Schema], pa.Schema] | None = field(default=None, repr=False, compare=False)
    held: Held = field(default_factory=Held, repr=False, compare=False)  # the destination's log, for all runs of the call

    @property
    def spec(self) -> Spec:
        """The contents of the destination after it."""
        return self.identity.spec

    @property
    def shown(self) -> str:
        """The destination as people know it."""
        return plain(self.dest)

    def store(self, on_retry: OnRetry = silent) -> Store:
        """The destination; `on_retry` is called at what is tried again."""
        return connect(self.dest, self.dest_options, on_retry)

    def named(self, spec: Spec | None = None, **intent: Any) -> Request:
        """The same, as another job: of which these words are said, and which is meant by these intentions, too."""
        given = dataclasses.replace(self.identity, spec=spec or self.spec, intent={**self.identity.intent, **intent})
        return dataclasses.replace(self, identity=given)

    def wanted(self, without: frozenset[str] = frozenset(), *, supersede: bool = False) -> Wanted:
        """The listing and plan to make now: of what is new, or (`supersede`) what was gathered in another version."""
        newest = None if self.min_age is None else time.time_ns() - int(self.min_age * 1e9)
        selection = dataclasses.replace(self.selection, newest=newest, without=without)
        convert, columns = self.convert, None
        if convert.has_columns:
            reader = convert.process.reader if isinstance(convert.process, Reading) else None
            columns = Columns(convert.transform, reader, convert.columns, convert.compression, convert.evolves)
        known = self.convert.transform in ("lines", "raw") and self.convert.compression == "none" and self.convert.format != "parquet"
        decodes = any(root.decompress != NONE or root.archives for root in self.roots)
        guessed = not ((known and not decodes) or self.convert.transform == "callable" or columns)
        estimate = Estimate(self.convert, not known) if guessed else None
        ratio, policy = None if guessed or columns else 1.0, dataclasses.replace(self.policy, supersede=supersede)
        return Wanted(self.roots, selection, self.cut, self.dest, self.dest_options, estimate, ratio, policy, columns=columns)


@dataclass(frozen=True)
class Estimate:
    """How many bytes would be written for a file."""

    convert: Convert
    of_all: bool = True  # also of files that are not compressed

    def __call__(self, content: bytes, file: FileInfo) -> int:
        """The size that the content of one file comes to, compressed as it will be (a file alone: a little more than among others)."""
        try:
            made = self.convert.records(content, file)
        except BadContent:
            return 0
        data = made if isinstance(made, bytes) else b"".join(made.column("content").to_pylist())
        return len(data) if self.convert.compression == "none" else len(compressor(self.convert.compression)(data))


class Settings(TypedDict, total=False):
    """The keyword arguments of `quire.consolidate` and `quire.plan` that say what to do; `build` has their defaults."""

    transform: str | Callable[..., Any]
    format: str | None
    compression: str | None
    target_size: str | int
    planner: str
    parts: int
    hash_function: str
    committer: str
    layout: str
    include: str | Iterable[str] | None
    exclude: str | Iterable[str] | None
    hidden: bool
    follow_links: bool
    min_age: str | float | None
    max_quarantined: int | None
    on_change: str
    on_append: str
    partial_lines: str
    change_detection: str
    max_file_size: str | int
    decompress: str | None
    archives: bool
    schema: Any
    encoding: str
    delimiter: str
    quote: str
    header: bool
    null_values: str | Iterable[str] | None
    rescued: str | None
    keep_messages: bool
    function_version: str | None
    storage_options: Mapping[str, Any] | None
    source_options: Mapping[str, Any] | None
    dest_options: Mapping[str, Any] | None
    allow_nonempty: bool
    keep_versions: int | str | None
    exports: str | Iterable[str] | None
    schema_evolution: str


F = TypeVar("F", bound=Callable[..., Any])


def shows(spelled: Callable[..., Any], *without: str) -> Callable[[F], F]:
    """Give a function with `**settings` the signature that it really has, for help() and for the notebook's tooltip.

    They are the keywords of the function that is `spelled` out, which checks them, but for those `without` which users do.
    """

    def showing(function: F) -> F:
        signature = inspect.signature(function)
        own = {name: p for name, p in signature.parameters.items() if p.kind is not p.VAR_KEYWORD}
        settings = [p for p in inspect.signature(spelled).parameters.values() if p.kind is p.KEYWORD_ONLY]
        shown = [*own.values(), *(p for p in settings if p.name not in (*own, *without))]
        vars(function).update(__signature__=signature.replace(parameters=shown), spelled=spelled)
        return function

    return showing


def check_names(settings: Iterable[str], of: type = Settings) -> None:
    """UsageError for an option that does not exist, with the nearest one `of` those that do."""
    known = [*of.__annotations__]
    for name in settings:
        if name not in known:
            near = difflib.get_close_matches(name, {*known, "spark", "every", "max_runs", "progress"} - {name}, n=1)
            raise UsageError(
                f"unknown option {name!r}." + (f" Did you mean {near[0]!r}?" if near else f" It is one of: {', '.join(known)}.")
            )


def check_options(storage_options: object, source_options: object, dest_options: object) -> None:
    """UsageError for options that are not a dictionary."""
    for what, given in (("storage_options", storage_options), ("source_options", source_options), ("dest_options", dest_options)):
        if given is not None and not isinstance(given, Mapping):
            raise UsageError(f"{what} is a dictionary of options for the store, not {type(given).__name__}.")


def build(
    source: Any, dest: Any, *, transform: str | Callable[..., Any] = "lines", format: str | None = None, compression: str | None = None,
    target_size: str | int = "256 MiB", planner: str = "balanced", parts: int = 8, hash_function: str = "xxh64", committer: str = "auto",
    layout: str = "flat", include: Any = None, exclude: Any = None, hidden: bool = False, follow_links: bool = False, min_age: Any = None,
    max_quarantined: int | None = None, on_change: str = "report", on_append: str = "report",
    partial_lines: str = "hold", change_detection: str = "store", max_file_size: str | int = "256 MiB",
    decompress: str | None = None, archives: bool = False, schema: Any = None, encoding: str = "auto", delimiter: str = ",",
    quote: str = '"', header: bool = True,
    null_values: str | Iterable[str] | None = None, rescued: str | None = None,
    keep_messages: bool = False, function_version: str | None = None, storage_options: Mapping[str, Any] | None = None,
    source_options: Mapping[str, Any] | None = None, dest_options: Mapping[str, Any] | None = None, allow_nonempty: bool = False,
    keep_versions: int | str | None = None, exports: Any = None, schema_evolution: str = "refuse", waits: bool = False,
) -> Request:  # fmt: skip
    """Check the arguments of `quire.consolidate` and `quire.plan`; every wrong one is a UsageError of one line.

    `waits`: the call is repeated, so a place that is not there yet, in a store without directories, may fill later.
    """
    kind = "callable" if callable(transform) else choose(transform, TRANSFORMS, "transform")
    with about("format"):
        laid_out = pair(kind, format)
    with about("compression"):
        compression = compression_for(laid_out, compression)
    target = parse_target(target_size)
    choose(planner, PLANNERS, "planner")
    choose(layout, LAYOUTS, "layout")
    choose(hash_function, FUNCTIONS, "hash_function")
    choose(on_change, ("report", "reprocess", "ignore"), "on_change")
    choose(on_append, ("report", "tail", "reprocess"), "on_append")
    if on_append == "tail" and (kind, laid_out) not in (("lines", "lines"), ("jsonl", "parquet")):
        with about("on_append"):
            raise UsageError(f"on_append='tail' takes new lines of files, as of transform='lines', and this is {kind!r}. Use 'reprocess'.")
    flush = choose(partial_lines, PARTIAL_LINES, "partial_lines") == "take"
    choose(change_detection, IDENTITIES, "change_detection")
    if change_detection == "content" and on_append != "report":
        with about("change_detection"):
            raise UsageError(
                f"change_detection='content' knows a file by all of its content, and on_append={on_append!r} by how it begins. Say "
                f"on_append='report'; on_change='reprocess' reads again what has grown, too."
            )
    policy = Policy(on_append, on_change, flush)
    hidden, follow_links = flag(hidden, "hidden"), flag(follow_links, "follow_links")
    archives = flag(archives, "archives")
    keep_messages, allow_nonempty = flag(keep_messages, "keep_messages"), flag(allow_nonempty, "allow_nonempty")
    whole(parts, "parts", 1, 100_000)
    refuse_needless(
        {"function_version": function_version, "keep_messages": keep_messages, "parts": parts, "hash_function": hash_function,
         "partial_lines": partial_lines},
        {"transform=function": callable(transform), "planner='hash'": planner == "hash", "on_append='tail'": on_append == "tail"},
    )  # fmt: skip
    adds = _adds(schema_evolution, laid_out, kind)
    given = {
        "encoding": encoding,
        "delimiter": delimiter,
        "quote": quote,
        "header": header,
        "null_values": _texts(null_values),
        "rescued": rescued,
    }
    reader = _reader(kind, given, schema, on_append)
    count(max_quarantined, "max_quarantined")
    check_options(storage_options, source_options, dest_options)
    with about("source"):
        found = files.roots(source, {**(storage_options or {}), **(source_options or {})} or None, waits=waits)
        how = compression_mode(decompress, kind)
        as_asked = functools.partial(
            dataclasses.replace, identity=change_detection, links=follow_links, decompress=how, archives=archives
        )  # fmt: skip
        roots = tuple(map(as_asked, found))
    _check_archives(how, archives=archives)
    with about("dest"):
        to_options = {**(storage_options or {}), **(dest_options or {})} or None
        to = destination(dest, to_options)
        files.apart(roots, to, to_options)
        there = connect(to, to_options)
    by = choice(committer, there)
    name = transforms.identity(transform, function_version) if callable(transform) else kind
    convert = Convert(
        kind,
        laid_out,
        compression,
        target,
        parse_target(max_file_size, "max_file_size"),
        transform if callable(transform) else None,
        keep_messages,
        marks=policy.marks,
        holds=on_append == "tail" and not flush,
        evolves=MORE if adds else "",
    )
    cut = Cut(
        planner,
        layout,
        parts if planner == "hash" else 1,
        hash_function,
        target,
        convert.streams and not convert.holds and change_detection == "store",
        uncut=uncut(how) + archive_names(archives=archives),
        members=kind == "raw" and how == NONE,
    )
    include, exclude = files.patterns(include, "include"), files.patterns(exclude, "exclude")
    age = None if min_age is None else seconds(min_age, "min_age")
    intent = {
        "sources": [[r.url, list(r.wanted)] for r in roots], "dest": to, "transform": name, "format": laid_out, "compression": compression,
        "target": target, "planner": planner, "parts": cut.parts, "hash_function": hash_function if planner == "hash" else None,
        "committer": by, "layout": layout, "include": list(include), "exclude": list(exclude), "hidden": hidden,
        "follow_links": follow_links, "min_age": age, "max_file_size": convert.max_file_size,
        **({"on_append": on_append, "partial_lines": partial_lines} if on_append != "report" else {}),
        **({"on_change": on_change} if on_change == "reprocess" else {}),
        **({"identity": change_detection} if change_detection != "store" else {}),
        **({"decompress": how} if how != NONE else {}),
        **evolution(adds=adds),
        **({"archives": True} if archives else {}),
    }  # fmt: skip
    spec = Spec(
        transform=name.rpartition("@")[0] if callable(transform) else kind, format=laid_out, compression=compression, layout=layout,
        decompress=decoded_by(how, kind), archives=archives and kind in ("raw", "callable"),
    )  # fmt: skip
    made = Request(
        roots, to, to_options, Identity(intent, spec, by), convert, cut, files.Selection(include, exclude, hidden, follow_links), age,
        max_quarantined, policy, allow_nonempty, Wishes(keep(keep_versions, there), exporting.wanted(exports, laid_out, there)),
    )  # fmt: skip
    return made if reader is None else _of_text(made, reader, text.said(given))


def _adds(schema_evolution: str, laid_out: str, kind: str) -> bool:
    """Whether the columns of the destination may grow."""
    of_rows = laid_out == "parquet" and kind in ("callable", *columnar.NAMES, *text.NAMES)
    refuse_needless({"schema_evolution": choose(schema_evolution, EVOLUTION, "schema_evolution")}, {ROWS: of_rows})
    return schema_evolution == "add"


def evolution(*, adds: bool) -> dict[str, Any]:
    """A job's intention to let the columns of its destination grow; another one says nothing of it."""
    return {"schema_evolution": "add"} if adds else {}


def _check_archives(how: str, *, archives: bool) -> None:
    """UsageError for a codec that all files have, where some are archives."""
    if archives and how not in (NONE, AUTO):
        with about("archives"):
            raise UsageError(f"decompress={how!r} takes all files by one codec, and archives=True does not. Say decompress='auto'.")


def _texts(given: Any) -> Any:
    return tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else given


def _reader(kind: str, given: Mapping[str, Any], schema: Any, on_append: str) -> text.Reader | None:
    """The reader of text that holds rows, with the columns that the call says; UsageError for what does not go together."""
    refuse_needless({**given, "schema": schema}, {"transform='csv' or 'jsonl'": kind in text.NAMES, "transform='csv'": kind == "csv"})
    if kind not in text.NAMES:
        return None
    reader = text.reader(kind, given, None if schema is None else text.canonical(kind, schema))
    if on_append == "tail" and reader.wide:
        with about("on_append"):
            raise UsageError(f"on_append='tail' finds lines by their ends, and text in {reader.encoding} has none that stand alone.")
    return reader


def _of_text(made: Request, reader: text.Reader, reads: str) -> Request:
    """A call whose files `reader` reads: its splits are ranges of lines, or files."""
    convert, cut, how = made.convert, made.cut, made.roots[0].decompress if made.roots else NONE
    ranges = reader.split == "lines" and not convert.holds and made.roots[0].identity == "store"
    spec = replace(made.spec, kind=SPLITS, split=reader.split, decompress=decoded_by(how, convert.transform, reader.split))
    return dataclasses.replace(
        made.named(spec, schema="" if reader.columns is None else schemas.text(reader.columns), reads=reads),
        convert=dataclasses.replace(convert, process=Reading.by(reader, convert.max_file_size, cut.uncut), columns=reader.columns),
        cut=dataclasses.replace(
            cut, streams=ranges, longest=min(RANGE, convert.max_file_size), uncut=("",) if reader.wide else cut.uncut, wide=True
        ),
    )


def keep(keep_versions: int | str | None, store: Store) -> Keep | None:
    """How many older versions of the destination at `store` stay readable; None: as before. UsageError for anything else."""
    if keep_versions is None:
        return None
    with about("keep_versions"):
        if is_table(store):
            raise UsageError(f"{store.url} is a table, which keeps older versions until table.clean(). Leave keep_versions out.")
        if isinstance(keep_versions, str) and keep_versions.strip().isdecimal() and len(keep_versions) < 20:
            keep_versions = int(keep_versions)  # of a shell
        if isinstance(keep_versions, str):
            found = Keep(seconds=seconds(keep_versions, "keep_versions"))
        else:
            found = Keep(versions=whole(keep_versions, "keep_versions", 0))
        if (found.versions or found.seconds) and not can_keep(store):
            raise UsageError(f"the store of {store.url} neither renames nor copies an object, so it keeps no older version. Say 0.")
        return found


def reducing(request: Request, reduce: Callable[[Any], Any], version: str | None = None) -> Request:
    """The same call, whose rows go through `reduce` together (see `quire.engine.closers.shuffle`), all of a job's in one commit.

    `version` names the edition of the function instead of a hash of its source. UsageError for what does not go with a shuffle.
    """
    with about("reduce"):
        if not callable(reduce):
            raise UsageError(f"reduce= takes a function from a DataFrame to a DataFrame, not {quoted(reduce)}.")
        name = transforms.identity(reduce, version)
        if request.spec.format == "raw":
            raise UsageError("reduce= takes rows, and format 'raw' has none. Use format='parquet' or 'lines'.")
        if request.spec.layout != "flat":
            raise UsageError("reduce= brings rows of all directories together, so layout='directories' cannot stay. Leave layout out.")
        if "reprocess" in (request.policy.on_change, request.policy.on_append):
            raise UsageError(
                "what came out of a shuffle cannot be taken apart, so a single file's rows cannot be replaced: with reduce= leave "
                "on_change and on_append at 'report', or forget the whole commit first."
            )
    named = request.named(replace(request.spec, reduce=name.rpartition("@")[0]), reduce=name)
    return dataclasses.replace(named, reduce=reduce, identity=dataclasses.replace(named.identity, closer="shuffle"))
