"""The arguments of the main job: checked once, before anything is read or written."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypedDict, TypeVar

from msgspec.structs import replace

from quire.arguments import ROWS, count, flag, parse_target, refuse_needless, seconds, whole
from quire.commit.committers import choice
from quire.commit.entries import SPLITS, UNSAID, Commit, Keep, Spec
from quire.commit.held import Held
from quire.commit.retire import can_keep
from quire.coverage.near import Near
from quire.engine.closers.sorting import Sorting, sorting
from quire.engine.exports import step as exporting
from quire.engine.retrying import MAX_ATTEMPTS, Retries
from quire.engine.take_up import Identity
from quire.errors import UsageError, about, choose, quoted
from quire.formats import TRANSFORMS, compression_for, pair
from quire.formats import parquet_options as parquet
from quire.formats.lines import compressor
from quire.formats.parquet import CONTENT, USUAL
from quire.formats.parquet_options import ParquetOptions
from quire.planning.among import Among
from quire.planning.changes import Policy
from quire.planning.columns import Columns
from quire.planning.hashing import FUNCTIONS
from quire.planning.listing import MANY, MANY_AFAR, MANY_OF_ROWS, Cut
from quire.planning.ordered import Bound
from quire.planning.plan import Wanted
from quire.sources import decoders, files, transforms
from quire.sources.archives import uncut as archive_names
from quire.sources.compression import AUTO, NONE, uncut
from quire.sources.compression import by_spec as decoded_by
from quire.sources.compression import mode as compression_mode
from quire.sources.identity import IDENTITIES
from quire.sources.partition_by import PartitionBy, check_seen
from quire.sources.partition_by import parse as directories_of
from quire.sources.splits import FileInfo
from quire.sources.transforms import BadContent, columnar, schemas, text
from quire.sources.transforms.columns import MORE
from quire.sources.transforms.convert import Convert
from quire.sources.transforms.functions import check_call
from quire.sources.transforms.text.chunks import RANGE
from quire.sources.transforms.text.reading import Reading
from quire.storage import OnRetry, Store, connect, destination, plain, silent
from quire.storage.within import is_table

if TYPE_CHECKING:
    import pyarrow as pa

PLANNERS = ("balanced", "hash", "directory")
PARTIAL_LINES = ("hold", "take")
LAYOUTS = ("flat", "directories")
EVOLUTION = ("refuse", "add")


@dataclass(frozen=True)
class Wishes:
    """The wishes for the destination that its log keeps for all later calls.

    keep     how many older versions stay readable; None: as before
    exports  the formats by which other readers find it, beside those that it has
    """

    keep: Keep | None = None
    exports: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pace:
    """When a call takes files, and how many at once.

    min_age  seconds for which a file must not have changed; None: any is taken
    bound    of each commit
    retries  of what is quarantined; None: only the verb `retry` takes it
    among    names that a run looks at; None: it lists
    """

    min_age: float | None = None
    bound: Bound = field(default_factory=Bound)
    retries: Retries | None = None
    among: Among | None = field(default=None, repr=False, compare=False)


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
    pace: Pace = field(default_factory=Pace)
    max_quarantined: int | None = None
    policy: Policy = field(default_factory=Policy)
    allow_nonempty: bool = False
    wishes: Wishes = field(default_factory=Wishes)
    reduce: Callable[[Any], Any] | None = field(default=None, repr=False)  # all rows of a job go through it together
    # Of a table, which says itself which columns it has: those of rows in its types; an error where it does not take them.
    takes: Callable[[pa.Schema], pa.Schema] | None = field(default=None, repr=False, compare=False)
    near: Near = field(default_factory=Near, repr=False, compare=False)  # the destination's log and newest rows, for all runs of the call

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

    @property
    def held(self) -> Held:
        """The destination's log, for all runs of the call."""
        return self.near.log

    def ask_once(self, version: int, want: Callable[[tuple[str, ...]], object]) -> None:
        """Want the exports that this call has not asked for yet: one that was refused, or that a user has ended, does not begin again.

        A destination that was made anew has a smaller `version` than the one that was asked. A failure lets the next run ask again.
        """
        begun = self.near.begun
        new = tuple(name for name in self.wishes.exports if version < begun.get(name, version + 1))
        want(new)
        begun.update(dict.fromkeys(new, version))

    def anew(self) -> Self:
        """The same with nothing held that was read before, as after an outage."""
        return dataclasses.replace(self, near=Near())

    def ended(self, commit: Commit) -> None:
        """Learn from a job of the call that was committed."""

    def looking_at(self, among: Among) -> Self:
        """The same of a run that looks at these names, and does not list."""
        return dataclasses.replace(self, pace=dataclasses.replace(self.pace, among=among))

    def named(self, spec: Spec | None = None, **intent: Any) -> Request:
        """The same, as another job: of which these words are said, and which is meant by these intentions, too."""
        given = dataclasses.replace(self.identity, spec=spec or self.spec, intent={**self.identity.intent, **intent})
        return dataclasses.replace(self, identity=given)

    def wanted(self, without: frozenset[str] = frozenset(), *, supersede: bool = False) -> Wanted:
        """The listing and plan to make now: of what is new, or (`supersede`) what was gathered in another version."""
        newest = None if self.pace.min_age is None else time.time_ns() - int(self.pace.min_age * 1e9)
        selection = dataclasses.replace(self.selection, newest=newest, without=without)
        convert, columns = self.convert, None
        if convert.has_columns:
            reader = convert.process.reader if isinstance(convert.process, Reading) else None
            order = self.reduce.columns if isinstance(self.reduce, Sorting) else ()
            columns = Columns(
                convert.transform, reader, convert.columns, convert.compression, convert.evolves, convert.partitions, order, convert.by
            )  # fmt: skip
        known = self.convert.transform in ("lines", "raw") and self.convert.compression == "none" and self.convert.format != "parquet"
        decodes = any(root.decompress != NONE or root.archives for root in self.roots)
        guessed = not ((known and not decodes) or self.convert.transform == "callable" or columns)
        estimate = Estimate(self.convert, not known) if guessed else None
        ratio, policy = None if guessed or columns else 1.0, dataclasses.replace(self.policy, supersede=supersede)
        return Wanted(
            self.roots, selection, self.cut, self.dest, self.dest_options, estimate, ratio, policy, columns=columns, among=self.pace.among,
            near=self.near,
        )  # fmt: skip


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
    max_bytes: str | int | None
    max_files: int | None
    order: str
    retry_quarantined: str | float | None
    max_attempts: int
    max_quarantined: int | None
    on_change: str
    on_append: str
    partial_lines: str
    change_detection: str
    max_file_size: str | int
    decompress: str | None
    archives: bool
    schema: Any
    columns: Mapping[str, str] | None
    encoding: str
    delimiter: str
    quote: str
    header: bool
    null_values: str | Iterable[str] | None
    partition_by: str | Iterable[str] | None
    partition_columns: str | None
    sort_by: str | Iterable[str] | None
    split_by_schema: bool
    parquet_options: Mapping[str, Any] | None
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
    max_bytes: str | int | None = None, max_files: int | None = None, order: str = "oldest",
    retry_quarantined: str | float | None = None, max_attempts: int = MAX_ATTEMPTS,
    max_quarantined: int | None = None, on_change: str = "report", on_append: str = "report",
    partial_lines: str = "hold", change_detection: str = "store", max_file_size: str | int = "256 MiB",
    decompress: str | None = None, archives: bool = False, schema: Any = None, columns: Any = None, encoding: str = "auto",
    delimiter: str = ",", quote: str = '"', header: bool = True,
    null_values: str | Iterable[str] | None = None, rescued: str | None = None, partition_by: Any = None,
    partition_columns: str | None = None,
    sort_by: str | Iterable[str] | None = None, split_by_schema: bool = False, parquet_options: Mapping[str, Any] | None = None,
    keep_messages: bool = False, function_version: str | None = None, storage_options: Mapping[str, Any] | None = None,
    source_options: Mapping[str, Any] | None = None, dest_options: Mapping[str, Any] | None = None, allow_nonempty: bool = False,
    keep_versions: int | str | None = None, exports: Any = None, schema_evolution: str = "refuse", waits: bool = False,
    of_splits: bool = False,
) -> Request:  # fmt: skip
    """Check the arguments of `quire.consolidate` and `quire.plan`; every wrong one is a UsageError of one line.

    `waits`: the call is repeated, so a place that is not there yet, in a store without directories, may fill later. `of_splits`: the
    function is one of splits, as `quire.process` takes it.
    """
    text_of, transform, wanted = ("", transform, format) if of_splits else _by_path(transform, columns, format)
    kind = _kind(transform, of_splits=of_splits)
    with about("format"):
        laid_out = pair(kind, wanted)
    with about("compression"):
        compression = compression_for(laid_out, compression)
    target = parse_target(target_size)
    choose(planner, PLANNERS, "planner")
    choose(layout, LAYOUTS, "layout")
    choose(hash_function, FUNCTIONS, "hash_function")
    policy = _policy(on_change, on_append, partial_lines, change_detection, kind, laid_out)
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
        "encoding": encoding, "delimiter": delimiter, "quote": quote, "header": header, "null_values": _texts(null_values),
        "rescued": rescued,
    }  # fmt: skip
    reader = _reader(kind, given, schema, on_append, laid_out)
    count(max_quarantined, "max_quarantined")
    check_options(storage_options, source_options, dest_options)
    partitions = partition_columns is not None and _partitions(partition_columns, kind, laid_out, layout, header)
    directories = PartitionBy() if partition_by is None else _by(partition_by, kind, laid_out, layout, of_splits=of_splits)
    how = compression_mode(decompress, text_of or kind)
    with about("source"):
        found = files.roots(source, {**(storage_options or {}), **(source_options or {})} or None, waits=waits)
        as_asked = functools.partial(
            dataclasses.replace, identity=change_detection, links=follow_links, decompress=how, archives=archives
        )  # fmt: skip
        roots = tuple(map(as_asked, found))
    together = {"partition_columns": partition_columns, "split_by_schema": split_by_schema}
    _check_archives(how, archives=archives, others=together | {"format='lines'": kind == "csv" and laid_out == "lines"})
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
        holds=on_append == "tail" and not policy.flush,
        parquet=writes(parquet_options, laid_out),
        by=dataclasses.replace(directories, source=partitions),
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
        many=MANY_OF_ROWS if convert.of_columns else MANY if all(root.near for root in roots) else MANY_AFAR,
        by=directories,
    )
    retries = Retries.parsed(retry_quarantined, max_attempts)
    if retries and split_by_schema:
        with about("retry_quarantined"):
            raise UsageError("split_by_schema=True has a ledger in each destination. Retry there: quire.Ledger(…).retry(source).")
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
        **({"partition_columns": partition_columns} if partitions else {}), **({"partition_by": str(directories)} if directories else {}),
        **({"writes": convert.parquet.said} if convert.parquet.said else {}),
        **evolution(adds=adds),
        **({"archives": True} if archives else {}),
    }  # fmt: skip
    spec = Spec(
        transform=name.rpartition("@")[0] if callable(transform) else kind, format=laid_out, compression=compression,
        layout="directories" if directories else layout, by=str(directories), decompress=decoded_by(how, kind),
        archives=archives and kind in ("raw", "callable"), partitions=partitions,
    )  # fmt: skip
    made = Request(
        roots, to, to_options, Identity(intent, spec, by), convert, cut,
        files.Selection(include, exclude, hidden, follow_links, schema=_schemas(split_by_schema, kind, waits=waits)),
        Pace(age, Bound.parsed(max_bytes, max_files, order), retries), max_quarantined, policy, allow_nonempty,
        Wishes(keep(keep_versions, there), exporting.wanted(exports, laid_out, there)),
    )  # fmt: skip
    return _sorted(_of_text(made, reader, text.said(given)), None if sort_by is None else sorting(sort_by, target))


def _policy(on_change: str, on_append: str, partial_lines: str, change_detection: str, kind: str, laid_out: str) -> Policy:
    """The way with files that have changed or grown; UsageError for what does not go together."""
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
    return Policy(on_append, on_change, flush)


def _schemas(given: bool, kind: str, *, waits: bool) -> str:
    """Which schema is meant, where each gets a destination; UsageError for files whose schemas are not known by their footers."""
    with about("split_by_schema"):
        if flag(given, "split_by_schema") and kind not in columnar.NAMES:
            raise UsageError(f"split_by_schema=True is for files that name their columns: {', '.join(columnar.NAMES)}. Leave it out.")
        if given and waits:
            raise UsageError("split_by_schema=True runs once: call it again in a loop of your own, or leave every= out.")
    return files.EVERY if given else ""


def _partitions(given: str, kind: str, format: str, layout: str, header: bool) -> bool:
    """True; UsageError where directories make no columns, or would be there twice."""
    choose(given, ("directories",), "partition_columns")
    with about("partition_columns"):
        if kind not in (*columnar.NAMES, *text.NAMES) or format != "parquet":
            kinds = ", ".join((*columnar.NAMES, *text.NAMES))
            raise UsageError(f"partition_columns= puts columns beside those of files with rows ({kinds}, into Parquet). Leave it out.")
        if layout == "directories":
            raise UsageError("layout='directories' keeps the directories, whose readers make columns of them. Leave one of both out.")
        if not header:
            raise UsageError("header=False takes the columns of schema= in their order, all of them from the files. Leave one of both out.")
    return True


def _kind(transform: str | Callable[..., Any], *, of_splits: bool) -> str:
    if not callable(transform):
        return choose(transform, TRANSFORMS, "transform")
    if not of_splits:
        check_call(transform, "transform", "content", "file")
    return "callable"


def _by(given: Any, kind: str, format: str, layout: str, *, of_splits: bool) -> PartitionBy:
    """The directories that a call asks for; UsageError for those that its rows cannot lie in."""
    by = directories_of(given)
    with about("partition_by"):
        for name in by.columns:
            check_seen(name)
        if by.columns and kind != "callable":
            raise UsageError(
                f"partition_by={quoted(by.columns[0])} is a column, and only rows that a function gives have columns to go by "
                f"(transform=function, or quire.process). Here say 'path.{by.columns[0][:50]}', 'path[0] as site' or 'day(modified)'."
            )
        if by.columns and format != "parquet" and not of_splits:  # whose format the first rows may tell
            raise UsageError(
                f"partition_by={quoted(by.columns[0])} is a column, and bytes have none. Say format='parquet' where the function gives "
                f"rows; else 'path.{by.columns[0][:50]}', 'path[0] as site' or 'day(modified)'."
            )
        if layout == "directories":
            raise UsageError("layout='directories' keeps the source's directories, and partition_by= makes others. Leave one of both out.")
        own = {"lines": ["value"], "raw": ["path", "content"], "parquet": CONTENT.names if kind in transforms.NAMES else []}
        if name := by.clash(own[format]):
            raise UsageError(f"partition_by makes directories {name}=…, and the rows have a column {name!r}. Say '… as' another name.")
    return by


def writes(given: Mapping[str, Any] | None, format: str) -> ParquetOptions:
    """How Parquet files are to be written; UsageError for wrong options, and where none is written."""
    if given is None:
        return USUAL
    found = parquet.parse(given)
    if format != "parquet":
        with about("parquet_options"):
            raise UsageError(f"parquet_options= is about Parquet files, and this call writes format {format!r}. Leave it out.")
    return found


def _adds(schema_evolution: str, laid_out: str, kind: str) -> bool:
    """Whether the columns of the destination may grow."""
    of_rows = laid_out == "parquet" and kind in ("callable", *columnar.NAMES, *text.NAMES)
    refuse_needless({"schema_evolution": choose(schema_evolution, EVOLUTION, "schema_evolution")}, {ROWS: of_rows})
    return schema_evolution == "add"


def evolution(*, adds: bool) -> dict[str, Any]:
    """A job's intention to let the columns of its destination grow; another one says nothing of it."""
    return {"schema_evolution": "add"} if adds else {}


def _check_archives(how: str, *, archives: bool, others: Mapping[str, object]) -> None:
    """UsageError for what does not go with archives: a codec that all files have, and for what is told of files by their place."""
    if archives and (other := next((name for name, given in others.items() if given), None)):
        with about("archives"):
            raise UsageError(
                f"archives=True and {other} do not go together: members of an archive lie in no directory. Leave one of them out."
            )
    if archives and how not in (NONE, AUTO):
        with about("archives"):
            raise UsageError(f"decompress={how!r} takes all files by one codec, and archives=True does not. Say decompress='auto'.")


def _by_path(transform: Any, columns: Any, format: str | None) -> tuple[str, Any, str | None]:
    """The text that a decoder reads where a call names columns by expressions, the function that it is, and the format of its rows."""
    documents = transform if transform in ("json", "xml") else ""  # a function may be anything
    refuse_needless({"columns": columns}, {"transform='json' or 'xml'": bool(documents)})
    made = decoders.decoder(documents, columns=columns) if columns is not None else transform
    if not isinstance(made, decoders.Decoder):
        return "", transform, format
    if made.metadata or made.key:
        with about("transform"):
            raise UsageError("metadata= and decode_key= of a decoder are for Kafka's records, and these are files. Leave them out.")
    if format not in (None, "parquet"):
        with about("format"):
            raise UsageError(f"columns go into Parquet, and not into format={quoted(format)}. Leave one of them out.")
    return documents or (made.name if made.name in ("json", "xml") else ""), made, "parquet"


def _texts(given: Any) -> Any:
    return tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else given


def _reader(kind: str, given: Mapping[str, Any], schema: Any, on_append: str, format: str) -> text.Reader | None:
    """The reader of text that holds rows, with the columns that the call says; UsageError for what does not go together."""
    refuse_needless({**given, "schema": schema}, {"transform='csv' or 'jsonl'": kind in text.NAMES, "transform='csv'": kind == "csv"})
    if kind not in text.NAMES:
        return None
    reader = text.reader(kind, given, None if schema is None else text.canonical(kind, schema))
    if on_append == "tail" and reader.wide:
        with about("on_append"):
            raise UsageError(f"on_append='tail' finds lines by their ends, and text in {reader.encoding} has none that stand alone.")
    return reader if format == "parquet" else _of_lines(given, reader)


def _of_lines(given: Mapping[str, Any], reader: text.Reader) -> text.CsvLines:
    """The same of a call whose data files hold lines; UsageError for columns that no header of theirs can name."""
    spec = replace(UNSAID, dialect=given["delimiter"] + given["quote"], header=given["header"])
    found = text.reader("csv", given, reader.columns, spec)
    assert isinstance(found, text.CsvLines)
    found.check_columns()
    return found


def _of_text(made: Request, reader: text.Reader | None, reads: str) -> Request:
    """A call whose files `reader` reads, if there is one: its splits are ranges of lines, or files."""
    if reader is None:
        return made
    convert, cut, how = made.convert, made.cut, made.roots[0].decompress if made.roots else NONE
    ranges = reader.split == "lines" and not convert.holds and made.roots[0].identity == "store"
    spec = replace(made.spec, kind=SPLITS, split=reader.split, decompress=decoded_by(how, convert.transform, reader.split))
    if isinstance(reader, text.CsvLines):
        spec = replace(spec, dialect=reader.dialect, header=reader.headed)
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
        check_call(reduce, "reduce", "rows")
        name = transforms.identity(reduce, version)
        if request.spec.format == "raw":
            raise UsageError("reduce= takes rows, and format 'raw' has none. Use format='parquet' or 'lines'.")
    return _shuffled(request, reduce, name, name.rpartition("@")[0], "reduce")


def _sorted(request: Request, order: Sorting | None) -> Request:
    """The same call, whose rows are sorted if there is an order; UsageError where they have no columns that are known before."""
    if order is None:
        return request
    with about("sort_by"):
        if request.spec.format != "parquet" or request.convert.of_user:
            raise UsageError(
                "sort_by= sorts rows of files into Parquet, as of transform='parquet' or 'csv'. Rows of a function are sorted by "
                "quire.process(…, reduce=function)."
            )
        if not request.convert.has_columns and (unknown := [name for name in order.columns if name not in CONTENT.names]):
            raise UsageError(f"sort_by names the column {unknown[0]!r}, and the rows have {', '.join(CONTENT.names)}.")
    return _shuffled(request, order, order.said, order.said, "sort_by")


def _shuffled(request: Request, reduce: Callable[[Any], Any], name: str, said: str, word: str) -> Request:
    with about(word):
        if request.spec.layout != "flat":
            what = "partition_by= has no files to go by" if request.spec.by else "layout='directories' cannot stay"
            raise UsageError(f"{word}= brings rows of all directories together, so {what}. Leave one of both out.")
        if "reprocess" in (request.policy.on_change, request.policy.on_append):
            raise UsageError(
                f"what came out of a shuffle cannot be taken apart, so a single file's rows cannot be replaced: with {word}= leave "
                "on_change and on_append at 'report', or forget the whole commit first."
            )
    named = request.named(replace(request.spec, reduce=said), reduce=name)
    return dataclasses.replace(named, reduce=reduce, identity=dataclasses.replace(named.identity, closer="shuffle"))
