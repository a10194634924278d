"""The entries of the commit log, manifests and plan heads: their fields, and how they are written as JSON and read back.

Every object names its format; one of a newer quire is refused, not guessed. All fields are checked before they are used:
types here, names in `names.py`. A field has a default only where an object without it means the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

import msgspec

from quire.commit import names
from quire.errors import FormatError
from quire.formats import COMPRESSIONS, FORMATS
from quire.storage.base import safe

FORMAT = 1
# The kinds of input that the rest of quire speaks of by name; each is a file in `engine/kinds/`.
FILES, SPLITS, OFFSETS = "files", "splits", "offsets"  # whole files or their ranges; what a function is given of them; Kafka's topics
COMMITS = "commits"  # of a table, whose changes are read
TABLE = "table"  # the closer of what goes into a table, whose commits may be of any transforms
CLAIM = "claim"  # splits that a user's own job reads, and the transform of what it has written
COMPACT = "compact"  # the verb of commits that write again what is there, in fewer files
PURGE = "purge"  # the verb of commits that say which sources are deleted
WRITE = "write"  # the verb of a user's own job that calls the committer itself: its tasks cover no splits

# What counts something, and what people look at: an entry that somebody forged must not cost hours or break a table.
LARGEST, PARTS = 1 << 62, 100_000
Natural = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
Parts = Annotated[int, msgspec.Meta(ge=1, le=PARTS)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=9_000_000_000)]


class Uncover(msgspec.Struct, frozen=True, array_like=True):
    """Ranges of a file version whose rows leave the ledger: (path, version, [(start, length), …])."""

    path: str
    version: str
    ranges: tuple[tuple[Natural, Natural], ...]


class Deferred(msgspec.Struct, frozen=True, array_like=True):
    """A split that was planned and not taken, because the file vanished or changed: it is tried again from a new listing."""

    path: str
    why: str


class DataFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A data file: final name, bytes, rows, and the handle by which its committer publishes it."""

    name: str
    size: Natural
    records: Natural
    handle: str


class Keys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of the records that a task of a deduplicated load has kept: the object that holds them, and how many."""

    name: str
    count: Natural
    by: str  # what tells records apart, as `sources.kafka.deduplicate` says it
    within: Natural  # milliseconds in which a record of the same key is left out
    last: int  # the latest time of a record, in milliseconds since 1970


class Coverage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rows of the ledger that a task adds and takes away."""

    segment: str | None = None
    quarantine: str | None = None  # the file with the records that a function has quarantined
    first: str = ""  # the smallest and the greatest path in the segment
    last: str = ""
    removes: tuple[str, ...] = ()  # data files whose rows leave; those of them that stay stand in the segment, carried
    uncovers: tuple[Uncover, ...] = ()
    left: tuple[Deferred, ...] = ()
    keys: Keys | None = None

    @property
    def objects(self) -> set[str]:
        """The objects of the ledger that the task has put."""
        return {name for name in (self.segment, self.quarantine, self.keys and self.keys.name) if name}


class Stats(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The counts of a task."""

    assigned: Natural = 0  # files that the plan gave to the task = gathered + quarantined + deferred
    gathered: Natural = 0
    quarantined_files: Natural = 0
    quarantined_records: Natural = 0  # single records that a function has quarantined
    vain: Natural = 0  # of the gathered splits those that gave nothing: records of them were quarantined, or (of a topic) there was none
    lost: Natural = 0  # offsets that were removed at their source before they were read
    pieces: Natural = 0  # rows of the segment beyond one a split: of splits that such records cut
    held: Natural = 0  # rows for last lines without newline, held back
    waiting: Natural = 0  # splits that hold nothing else
    files_in: Natural = 0  # files gathered whole, or their first range, also where its first record is quarantined
    bytes_in: Natural = 0
    started: Seconds = 0.0  # seconds since 1970, by the clock of the machine that did it: for people alone
    seconds: Seconds = 0.0
    retries: Natural = 0  # how often a store could not do something at once
    carried: Natural = 0  # rows of removed data files that this task has written again
    restated: Natural = 0  # rows of its segment that add none, and say what is the state of rows that are there
    files_out: Natural = 0  # what the uncovered rows counted in `files_in`, `bytes_in` and `quarantined_files` of earlier tasks
    bytes_out: Natural = 0
    quarantined_out: Natural = 0
    held_out: Natural = 0
    duplicates: Natural = 0  # records that were left out, as one of their key was kept
    early: Natural = 0  # data files that were ended before they had their size, as too many directories were open
    written: dict[str, Any] = {}  # a table's statistics of what was written; quire gives none

    @property
    def quarantined(self) -> int:
        """Splits and single records that went into quarantine."""
        return self.quarantined_files + self.quarantined_records

    @property
    def rows(self) -> int:
        """The rows that its segment adds."""
        return self.gathered + self.quarantined_files + self.held + self.pieces + self.carried - self.restated


class Task(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The result of the attempt that won a task: the manifest's content and, kept, the commit entry's."""

    task: Natural
    attempt: str
    data_files: tuple[DataFile, ...]
    coverage: Coverage
    stats: Stats
    folder: str = ""  # of the source, where the plan kept directories apart
    part: Natural = 0  # of the directory, in a hash plan
    schema: str = ""  # of the rows that a user's function gave
    schema_of: str = ""  # the first file that gave such rows
    differs: str = ""  # the first file whose rows have other columns than the destination, and which

    @property
    def instant(self) -> str:
        """The time on the timeline, of a round that closes a job into a table; else ""."""
        return str(self.stats.written.get("instant", ""))

    @property
    def records(self) -> int:
        """Lines or rows in its data files; of a round that closes a job into a table, the rows that came: files hold others beside them."""
        counts = self.stats.written.get("counts")
        if not self.instant or not isinstance(counts, dict):
            return sum(file.records for file in self.data_files)
        said = [counts.get(what, 0) for what in ("inserts", "updates", "deletes", "stale", "duplicates")]
        return sum(count for count in said if type(count) is int)


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The contents of a destination; the same for all of its commits, but for those that hold marks alone and say nothing of it."""

    transform: str
    format: str
    compression: str
    layout: str
    kind: str = FILES  # of the input
    split: str = ""  # how a function was given its input, where it was given splits: file | lines | row_groups
    reduce: str = ""  # the function that all rows of a job went through together, after the transform
    by: str = ""  # the columns by whose values the rows lie in directories; of a write with their types
    decompress: str = ""  # how compressed files were taken, where that is not what is usual for the transform
    archives: bool = False  # whether the members of archives were taken as documents, where archives could be kept as they are
    dialect: Annotated[str, msgspec.Meta(max_length=2)] = ""  # of lines of delimited text: the delimiter, and the quote if there is one
    partitions: bool = False  # whether directories of the sources made columns
    header: bool = False  # whether the first line of each data file is the header of the others

    @property
    def said(self) -> bool:
        """Whether it says anything."""
        return bool(self.transform)

    @property
    def traced(self) -> bool:
        """Whether the ledger says where the record of each split lies; not after a shuffle, nor in what a user's own job has written."""
        return not self.reduce and self.kind != CLAIM


# A commit of nothing but marks says nothing of what a destination will hold.
UNSAID = Spec(transform="", format="lines", compression="none", layout="flat")


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="manifest"):
    """Put if absent by the attempt that wins its task."""

    job: str
    task: Task
    format: int = FORMAT


class LeftOut(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="left"):
    """Some of what an entry's tasks have left, where that stands in the entry's part."""

    left: tuple[Deferred, ...]
    format: int = FORMAT


class PlanHead(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="plan"):
    """`plan.entry`: which plan of a job counts, and all that is needed to go on with it (no secrets)."""

    job: str
    base: Natural
    plan: str
    tasks: Natural
    committer: str
    spec: Spec
    intent: dict[str, Any]
    source: str = ""  # topics: the brokers and names that the user has given
    closer: str  # who writes all that the job shows, in a task more than the plan has: a shuffle, or a claim's block
    format: int = FORMAT

    @property
    def verb(self) -> str:
        """The work of the job: it reads files ("run"), or changes what is there ("forget", "compact", …)."""
        return str(self.intent.get("verb", "run"))

    def complete(self, results: Sequence[int]) -> bool:
        """Whether these are the numbers of its tasks: those of its plan, and of the one that closes it (the last of several rounds)."""
        planned, closing = results[: self.tasks], results[self.tasks :]
        return list(planned) == list(range(self.tasks)) and len(closing) == bool(self.closer) and all(n >= self.tasks for n in closing)


class Commit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="commit"):
    """The commit point of a job, for its data and its ledger at once."""

    job: str
    base: Natural
    committer: str
    spec: Spec
    time: str
    planner: str = ""
    hash_parts: Parts = 1
    target: Natural = 0
    tasks: tuple[Task, ...]
    dropped: tuple[int, ...]
    left: tuple[Deferred, ...]  # those of dropped tasks; the others' stand in their tasks
    verb: str = "run"  # what was asked for: run, retry, forget, compact, …
    why: str = ""  # in the user's words
    on_append: str = ""  # what a run does with files that grow, where it looks for them
    identity: str = ""  # "content": versions of the sources are hashes of their content
    schema: str = ""  # the columns of the rows, as frozen in the plan
    source: str = ""  # topics: the brokers and names that the user has given
    reads: str = ""  # how text with rows was read, as JSON
    writes: str = ""  # how Parquet files are written, as JSON, where the call says it
    deduplicate: str = ""  # which records of a topic are the same, as JSON, where the call says it
    parts: str | None  # where `tasks` and `left` stand if they would make the entry too long
    closer: str  # as in its plan
    format: int = FORMAT

    @property
    def whole(self) -> bool:
        """Whether its files are of all its tasks together."""
        return bool(self.closer) or self.verb == WRITE

    @property
    def removing(self) -> bool:
        """A job that removes data files is all or nothing, and so is one whose files are of all its tasks together."""
        return self.whole or any(task.coverage.removes for task in self.tasks)


class Abort(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="abort"):
    """The job is given up; none of its output counts."""

    job: str
    why: str
    time: str
    committer: str = ""  # where it is known
    left: tuple[Deferred, ...] = ()
    parts: str | None = None  # where `left` stands if it would make the entry too long
    format: int = FORMAT


class Published(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="published"):
    """All data files of the commit are in their places, but for those of the lost tasks, which do not count."""

    job: str
    time: str
    lost: tuple[int, ...]
    format: int = FORMAT


class Expired(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="expired"):
    """Versions below this one can no longer be read, and data files that were superseded up to the version `away` leave the directory."""

    below: int
    time: str
    away: Natural = 0
    format: int = FORMAT


class Retired(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="retired"):
    """Superseded files have left the directory up to the version `away`; those that only versions before `below` need are deleted."""

    below: Natural
    away: Natural
    time: str
    format: int = FORMAT


class Keep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many versions beside the newest one stay readable: so many, or those that were the newest one within so many seconds."""

    versions: Natural | None = None
    seconds: Seconds | None = None

    def __post_init__(self) -> None:
        if (self.versions is None) == (self.seconds is None):
            raise ValueError("it keeps either a number of versions or a time")


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="settings"):
    """The wishes of a user for a destination; the last entry counts."""

    keep: Keep
    time: str
    format: int = FORMAT


class Export(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="export"):
    """Another format's metadata offers this version of the destination to its readers; files that it names stay where they are."""

    name: Annotated[str, msgspec.Meta(pattern="^[a-z]{1,40}$")]  # of the format
    version: Natural | None  # 0: it is wanted, and offers nothing yet; None: it is not wanted any more
    time: str
    commit: Natural = 0  # the number of its own commit of that version
    options: dict[str, str] = {}  # by which readers find it, beside the destination: a catalog's name, a location
    format: int = FORMAT


class LostUpdate(msgspec.Struct, frozen=True, array_like=True):
    """File groups of which an instant's slices were built without those of an earlier one, whose updates are lost there."""

    lost: str
    by: str
    groups: Natural


class Foreign(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="foreign"):
    """Changes that other programs have made to a table's timeline; they conflict as a commit does."""

    instants: tuple[str, ...]  # that they have completed
    undone: tuple[str, ...]  # jobs of ours whose instants they have rolled back: from here on these do not count
    groups: tuple[str, ...]  # the file groups that they have touched
    inserts: tuple[str, ...]  # the partitions into which they may have inserted
    lost: tuple[LostUpdate, ...]
    time: str
    ended: str = ""  # the last time at which one of these instants ended, where the timeline says it
    format: int = FORMAT


class Pin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="pin"):
    """A reader's wish that this version stays readable."""

    version: int
    id: str
    time: str
    format: int = FORMAT


class Unpin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="unpin"):
    """The end of a pin."""

    version: int
    id: str
    time: str
    format: int = FORMAT


Entry = Commit | Abort | Published | Expired | Retired | Settings | Export | Foreign | Pin | Unpin
Part = Manifest | LeftOut  # a row of an entry's part
S = TypeVar("S")


class _Head(msgspec.Struct):
    format: int


# All of them are built when their module is imported: msgspec builds what it knows of a Struct at its first use, without a lock, and two
# threads that do so at once may end the process.
_encoder, _head, _decoders = msgspec.json.Encoder(), msgspec.json.Decoder(_Head), dict[Any, msgspec.json.Decoder[Any]]()


def stored(kind: S) -> S:
    """Let objects of a kind be read back by `decode`; a decorator of their class."""
    _decoders[kind] = msgspec.json.Decoder(kind)
    return kind


for _kind in (Entry, Part, Manifest, PlanHead):
    stored(_kind)


def encode(thing: msgspec.Struct) -> bytes:
    """JSON, in one line; formatted for people where it is short."""
    data = _encoder.encode(thing)
    return msgspec.json.format(data, indent=1) + b"\n" if len(data) < 4096 else data


def decode(data: bytes, kind: Any, where: str) -> Any:
    """Read one object of a `stored` kind back, or say in one line what is wrong with it and where it lies."""
    try:
        if (head := _head.decode(data)).format > FORMAT:
            raise FormatError(f"{where} was written by a newer quire (format {head.format}; this one reads up to {FORMAT}). Update quire.")
        if head.format < 1:
            raise FormatError(f"{where} names the format {head.format}, which never was. It is damaged or not quire's.")
        return _decoders[kind].decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as e:
        raise FormatError(f"{where} is damaged: {str(e)[:200]}. It was not written by quire in this form; put back a good copy.") from e


def check_spec(spec: Spec, where: str) -> None:
    """Refuse words that this quire cannot read."""
    if spec.compression not in COMPRESSIONS or spec.format not in FORMATS:
        raise FormatError(
            f"{where} names the format {spec.format[:80]!r} with the compression {spec.compression[:80]!r}, which this quire does not "
            f"know. Update quire, or look who wrote it."
        )


def check_head(head: PlanHead, where: str) -> None:
    """Refuse a plan whose name, base and intent do not go together: everything after it is computed from them."""
    check_spec(head.spec, where)
    try:
        names.plan_parquet(head.job, head.plan)
    except FormatError as e:
        raise FormatError(f"{where} is damaged: {e}") from e
    for name, least, most, usual in (("parts", 1, PARTS, 1), ("target", 0, LARGEST, 0)):
        value = head.intent.get(name, usual)
        if type(value) is not int or not least <= value <= most:
            raise FormatError(
                f"{where} is damaged: its {name} are {str(value)[:80]!r}, and not from {least} to {most:,}. It was not written by quire in "
                f"this form; put back a good copy."
            )
    if head.job.partition("-")[0] != str(head.base):
        raise FormatError(f"{where} names the base {head.base}, and its job is {head.job}: it is damaged or not quire's.")


def check_task(job: str, task: Task) -> Task:
    """Refuse a task whose names are not its own attempt's, so that nothing else can be renamed or deleted through it."""
    names.attempt_folder(job, task.task, task.attempt)
    for file in task.data_files:
        names.check_data_file(file.name, job, task.task, task.attempt)
    segment, quarantine = task.coverage.segment, task.coverage.quarantine
    if segment is not None and segment != names.segment(job, task.task, task.attempt):
        raise FormatError(f"{segment[:200]!r} is not the ledger segment of task {task.task} of job {job}: nothing was touched.")
    if quarantine is not None and quarantine != names.quarantine(job, task.task, task.attempt):
        raise FormatError(f"{quarantine[:200]!r} is not the quarantine file of task {task.task} of job {job}: nothing was touched.")
    keys = task.coverage.keys
    if keys is not None and keys.name != names.keys(job, task.task, task.attempt):
        raise FormatError(f"{keys.name[:200]!r} does not hold the keys of task {task.task} of job {job}: nothing was touched.")
    for name in task.coverage.removes:
        if names.job_of_data_file(safe(name)) is None or name.split("/")[0] == names.STATE:
            raise FormatError(f"{name[:200]!r}, which job {job} wants to remove, is not a data file: nothing was touched.")
    return task
