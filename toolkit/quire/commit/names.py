"""Where each of quire's objects lies below a destination, and what its name may look like.

_quire/log/<number, 20 digits>.entry           entries, from 1 on, without a gap
_quire/log/parts/<job>-<id>.rows               the tasks of an entry that would be too long
_quire/log/archive/<number, 20 digits>.rows    ten thousand old entries, up to this number, in the place of their own objects
_quire/jobs/<job>/plan-<id>*.rows              a plan, in names of its own for each writer
_quire/jobs/<job>/plan.entry                   which of them counts
_quire/jobs/<job>/tasks/<task>.entry           the manifest of the attempt that won
_quire/jobs/<job>/turn.entry                   of a table: a wish that others begin no round before this job's next one is committed
_quire/jobs/<job>/attempts/<task>-<attempt>/   output that nobody sees yet: <name of the data file>.staged
_quire/ledger/<job>-<task>-<attempt>.rows      a ledger segment
_quire/ledger/<job>-<task>-<attempt>.keys      the keys of the records that a deduplicated load has kept
_quire/ledger/<version, 20 digits>-<id>-<n>.keys              several of these in one, which a checkpoint names
_quire/quarantine/<job>-<task>-<attempt>.rows  records that a function has quarantined
_quire/kept/<version, 20 digits>/<name of the data file>.kept  a data file that was superseded at that version, and can still be read
_quire/changes/<instant>/[partition/]<file group>_<try>-<attempt as two numbers>.rows  the rows that a base file has changed
_quire/checkpoints/<version, 20 digits>-<id>.entry            the head of a checkpoint, put after all of its pieces
_quire/checkpoints/<version, 20 digits>-<id>/<kind>-<n>.rows  a piece of it
_quire/listings/<intent>-<milliseconds>-<version>.entry  a full listing of a call that goes by events: when it began, at which version
[directory/]part-<job>-<task>-<attempt>-<i>.*  a data file
[directory/]00-columns.parquet                 no rows, in the columns that all data files have together, where some have fewer
[directory/]<file group>_<try>-<attempt as two numbers>_<instant>.parquet  a data file of a table
[directory/].<file group>_<instant>.log.<n>_<try>-<attempt as two numbers>  the same of a merge-on-read table: what changes another file

Entries are JSON, rows are Parquet, and keys are binary (`coverage.keys`). Their suffixes are not those of data formats, so a program that
reads `dest/**/*.parquet` takes in data files only. A file that a user's own job writes by path into an attempt's folder keeps the name
that this job gives it.
"""

from __future__ import annotations

import hashlib
import re
import uuid

from quire.errors import FormatError
from quire.storage import base
from quire.storage.base import safe

STATE = base.STATE
TABLE = ".hoodie"  # the timeline of a table; no data file lies there
LOG = f"{STATE}/log"
PARTS = f"{LOG}/parts"
ARCHIVE = f"{LOG}/archive"
JOBS = f"{STATE}/jobs"
LEDGER = f"{STATE}/ledger"
QUARANTINE = f"{STATE}/quarantine"
CHECKPOINTS = f"{STATE}/checkpoints"
CHANGES = f"{STATE}/changes"
KEPT = f"{STATE}/kept"
LISTINGS = f"{STATE}/listings"
EXPORTS = {"delta": "_delta_log", "iceberg": "_iceberg", "symlinks": "_symlinks"}  # where the metadata of other formats lie
COLUMNS = "00-columns.parquet"  # the first name of its directory, since many readers take the first file's columns for those of all

ENTRY, ROWS, KEYS = base.ENTRY, ".rows", ".keys"
FORMER = f"{LOG}/{1:020d}.json"  # an earlier quire's first entry: its log must not pass for an empty one
KEEPING = ".kept"  # follows the name of a data file that was superseded
STAGED = ".staged"  # follows the name of a data file until it is published

_JOB = r"[0-9]{1,20}-[0-9a-f]{16}"
_ATTEMPT = r"[0-9a-f]{12}"
_SEGMENT = re.compile(rf"({_JOB})-([0-9]+)-({_ATTEMPT})(?:{re.escape(ROWS)}|{re.escape(KEYS)})")
_MERGED = re.compile(rf"{LEDGER}/([0-9]{{20}}-{_ATTEMPT})-[0-9]+{re.escape(KEYS)}")
_DATA = re.compile(rf"(?:.*/)?part-({_JOB})-([0-9]+)-({_ATTEMPT})-[0-9]+\.[a-z0-9.]+", re.DOTALL)
# A base or log file of a table, as Apache Hudi calls it; the attempt's id stands there as two numbers of 24 bits.
_WRITTEN = r"(?:.*/)?[0-9A-Za-z][0-9A-Za-z.-]*_[0-9]{1,10}-([0-9]{1,8})-([0-9]{1,8})"
_OF_TABLE = re.compile(rf"{_WRITTEN}_[0-9]{{17}}\.parquet", re.DOTALL | re.ASCII)
_OF_LOGS = re.compile(
    r"(?:.*/)?\.[0-9A-Za-z][0-9A-Za-z.-]*_(?:[0-9]{14}|[0-9]{17})\.log\.[0-9]{1,9}"
    r"_[0-9]{1,10}-([0-9]{1,8})-([0-9]{1,8})", re.DOTALL | re.ASCII,
)  # fmt: skip
_OF_CHANGES = re.compile(rf"{CHANGES}/[0-9]{{17}}/{_WRITTEN}{re.escape(ROWS)}", re.DOTALL | re.ASCII)
_OF_CDC = re.compile(_OF_LOGS.pattern + r"\.cdc", re.DOTALL | re.ASCII)
_PART = re.compile(rf"({_JOB})-[0-9a-f]{{12}}{re.escape(ROWS)}")
_KEPT = re.compile(rf"{KEPT}/([0-9]{{20}})(?:/(.+){re.escape(KEEPING)})?", re.DOTALL)
_ENTRY = re.compile(rf"{LOG}/([0-9]{{20}}){re.escape(ENTRY)}")
_ARCHIVED = re.compile(rf"{ARCHIVE}/([0-9]{{20}}){re.escape(ROWS)}")
_HEAD = re.compile(rf"{CHECKPOINTS}/([0-9]{{20}})-({_ATTEMPT}){re.escape(ENTRY)}")
_LISTING = re.compile(rf"{LISTINGS}/[0-9a-f]{{16}}-([0-9]{{15}})-([0-9]{{20}}){re.escape(ENTRY)}")
_IS_JOB = re.compile(_JOB)
_IS_ATTEMPT = re.compile(_ATTEMPT)  # or the id of a plan


def new_id() -> str:
    """A random id that its process alone draws: for attempts, plans and the like. Never a counter."""
    return uuid.uuid4().hex[:12]


def mark(job: str) -> str:
    """The first half of the ids of a job's attempts at a table: names of base files have no place for the job itself."""
    return hashlib.sha256(job.encode()).hexdigest()[:6]


def new_id_of(job: str) -> str:
    """The id of an attempt at a table. Its file groups, tries and instant make its names its own, should two ids ever be the same."""
    return mark(job) + uuid.uuid4().hex[:6]


def entry(number: int) -> str:
    return f"{LOG}/{number:020d}{ENTRY}"


def number_of(name: str) -> int:
    """The number of an entry of the log; 0: it is not one."""
    match = _ENTRY.fullmatch(name)
    return int(match[1]) if match else 0


def archived(last: int) -> str:
    """The object that has old entries, up to this one."""
    return f"{ARCHIVE}/{last:020d}{ROWS}"


def last_archived(name: str) -> int:
    """The last entry that such an object has; 0: it is not one."""
    match = _ARCHIVED.fullmatch(name)
    return int(match[1]) if match else 0


def base_of(job: str) -> int | None:
    """The version that a job was planned from, which its name begins with; None: that is not a job's name."""
    return int(job.partition("-")[0]) if _IS_JOB.fullmatch(job) else None


def job_folder(job: str) -> str:
    if not _IS_JOB.fullmatch(job):
        raise FormatError(f"{job[:80]!r} is not the name of a job, which looks like 12-0123456789abcdef")
    return f"{JOBS}/{job}"


def turn(job: str) -> str:
    return f"{job_folder(job)}/turn{ENTRY}"


def plan_head(job: str) -> str:
    return f"{job_folder(job)}/plan{ENTRY}"


def plan_parquet(job: str, plan: str, piece: str = "") -> str:
    if not _IS_ATTEMPT.fullmatch(plan):
        raise FormatError(f"{plan[:80]!r} is not the id of a plan")
    return f"{job_folder(job)}/plan-{plan}{piece and '-' + piece}{ROWS}"


def manifests(job: str) -> str:
    return f"{job_folder(job)}/tasks"


def manifest(job: str, task: int) -> str:
    return f"{manifests(job)}/{task}{ENTRY}"


def attempts(job: str) -> str:
    return f"{job_folder(job)}/attempts"


def attempt_folder(job: str, task: int, attempt: str) -> str:
    if not _IS_ATTEMPT.fullmatch(attempt):
        raise FormatError(f"{attempt[:80]!r} is not the id of an attempt")
    return f"{attempts(job)}/{task}-{attempt}"


def staged(job: str, task: int, attempt: str, final: str) -> str:
    """Where an attempt writes the data file that will be called `final`."""
    return f"{attempt_folder(job, task, attempt)}/{final}{STAGED}"


def segment(job: str, task: int, attempt: str) -> str:
    return f"{LEDGER}/{job}-{task}-{attempt}{ROWS}"


def quarantine(job: str, task: int, attempt: str) -> str:
    return f"{QUARANTINE}/{job}-{task}-{attempt}{ROWS}"


def keys(job: str, task: int, attempt: str) -> str:
    return f"{LEDGER}/{job}-{task}-{attempt}{KEYS}"


def merged_keys(version: int, merged: str, number: int) -> str:
    return f"{LEDGER}/{version:020d}-{merged}-{number}{KEYS}"


def merged_group(name: str) -> str:
    """The version and id that merged objects of keys have in common which were written together; "": it is not one of these."""
    match = _MERGED.fullmatch(name)
    return match[1] if match else ""


def head_of_merged(name: str) -> str:
    """The head of the checkpoint that has merged such objects."""
    return f"{CHECKPOINTS}/{merged_group(name)}{ENTRY}"


def quarantine_of(segment: str) -> str:
    """The quarantine file of the attempt that has written a segment."""
    return f"{QUARANTINE}/{segment.removeprefix(f'{LEDGER}/')}"


def attempt_of_segment(segment: str) -> str:
    return segment.removesuffix(ROWS).rpartition("-")[2]


def checkpoint_head(version: int, checkpoint: str) -> str:
    return f"{CHECKPOINTS}/{version:020d}-{checkpoint}{ENTRY}"


def checkpoint_of_head(name: str) -> tuple[int, str] | None:
    match = _HEAD.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


def checkpoint_folder(version: int, checkpoint: str) -> str:
    return f"{CHECKPOINTS}/{version:020d}-{checkpoint}"


def checkpoint_piece(version: int, checkpoint: str, kind: str, number: int) -> str:
    return f"{checkpoint_folder(version, checkpoint)}/{kind}-{number:05d}{ROWS}"


def head_of_piece(piece: str) -> str | None:
    """The head of the checkpoint that a piece belongs to; None: it is not a piece."""
    head = f"{piece.rpartition('/')[0]}{ENTRY}"
    return head if checkpoint_of_head(head) else None


def part(job: str) -> str:
    return f"{PARTS}/{job}-{new_id()}{ROWS}"


def data_file(folder: str, job: str, task: int, attempt: str, index: int, extension: str) -> str:
    """The name of a data file below a directory: one that is called like those of exports gets one more underscore, so none lies there."""
    if folder.partition("/")[0] in EXPORTS.values():
        folder = f"_{folder}"
    return f"{folder}{'/' if folder else ''}part-{job}-{task}-{attempt}-{index}.{extension}"


def segment_of(data_file: str) -> str:
    """The segment of the attempt that has written a data file: it holds the file's rows."""
    match = _DATA.fullmatch(data_file)
    if not match:
        raise FormatError(f"{data_file[:200]!r} is not the name of a data file")
    return segment(match[1], int(match[2]), match[3])


def job_of_segment(name: str) -> str | None:
    """The job of a segment, of an object of keys, or of a quarantine file."""
    match = _SEGMENT.fullmatch(name.removeprefix(f"{LEDGER}/").removeprefix(f"{QUARANTINE}/"))
    return match[1] if match else None


def job_of_part(name: str) -> str | None:
    match = _PART.fullmatch(name.removeprefix(f"{PARTS}/"))
    return match[1] if match else None


def job_of_data_file(name: str) -> str | None:
    match = _DATA.fullmatch(name)
    return match[1] if match else None


def is_changes(name: str) -> bool:
    """Whether a data file's name is that of a change file, or of Hudi's CDC log, which lie beside what a table shows."""
    return name.startswith(f"{CHANGES}/") or _OF_CDC.fullmatch(name) is not None


def attempt_of_table_file(name: str) -> str | None:
    """The attempt that has written a base or log file of a table, or what a base file has changed; None: it is not one of ours."""
    match = next(filter(None, (kind.fullmatch(name) for kind in (_OF_TABLE, _OF_LOGS, _OF_CHANGES, _OF_CDC))), None)
    return f"{int(match[1]):06x}{int(match[2]):06x}" if match else None


def listing(intent: str, milliseconds: int, version: int) -> str:
    """The mark of a full listing that has come to its end, by the hash of the call's intent."""
    return f"{LISTINGS}/{intent}-{milliseconds:015d}-{version:020d}{ENTRY}"


def of_listing(name: str) -> tuple[int, int] | None:
    """When the listing of a mark began, in milliseconds since 1970, and at which version of the log; None: it is not one."""
    match = _LISTING.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def kept_folder(version: int) -> str:
    return f"{KEPT}/{version:020d}"


def kept(version: int, data_file: str) -> str:
    """The place of a data file that was superseded at a version, where no reader of the directory looks."""
    return f"{kept_folder(version)}/{data_file}{KEEPING}"


def kept_at(name: str) -> tuple[int, str] | None:
    """The version at which a kept data file was superseded, and its name; of a folder of such files the name is ""."""
    match = _KEPT.fullmatch(name)
    return (int(match[1]), match[2] or "") if match else None


def check_data_file(name: str, job: str, task: int, attempt: str) -> None:
    """Refuse a data file's name that is not this attempt's or that lies outside of the data: logs and manifests may be forged."""
    match = _DATA.fullmatch(safe(name))
    ours = match.groups() == (job, str(task), attempt) if match else attempt_of_table_file(name) == attempt
    if not ours or (name.partition("/")[0] in (STATE, TABLE) and not _OF_CHANGES.fullmatch(name)):
        raise FormatError(f"{name[:200]!r} is not a data file of task {task}, attempt {attempt} of job {job}: nothing was touched.")
