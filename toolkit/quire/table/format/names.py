"""Names of a table's objects: base files, log files, instants of the timeline, and the paths that stored commits give.

Source: Hudi's storage format and its `FSUtils`, `FSFileName` and `HoodieInstant`, timeline layouts 1 (table version 6) and 2 (8 and 9).

    <fileId>_<task>-<stage>-<attempt>_<instant>.parquet            a base file
    .<fileId>_<base instant>.log.<n>_<task>-<stage>-<attempt>      a log file of the slice that began at the base instant; in layout 2
                                                                   it is the instant of its own commit
    .hoodie/<instant>.<action>[.requested|.inflight]               an instant: yyyyMMddHHmmssSSS, in UTC
    .hoodie/<instant>.inflight                                     the same of `commit`, whose name Hudi leaves out
    .hoodie/timeline/<instant>_<time>.<action>                     in layout 2: an instant and when it completed; the others as before
    _quire/changes/<instant>/[partition/]<fileId>_<task>-<stage>-<attempt>.rows    rows that a base file of quire's has changed
"""

from __future__ import annotations

import datetime as dt
import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from quire.errors import FormatError
from quire.storage import within
from quire.storage.base import STATE, is_safe

FOLDER, PROPERTIES = within.HOME, within.PROPERTIES
TIMELINE = f"{FOLDER}/timeline"  # of layout 2
PARTITION_METADATA = ".hoodie_partition_metadata"
CDC = ".cdc"  # ends the name of a CDC log
CHANGES = f"{STATE}/changes"
State = Literal["requested", "inflight", "completed"]

_FILE_ID = r"[0-9A-Za-z][0-9A-Za-z.-]{0,199}"
_THREE = r"\d{1,10}-\d{1,10}-\d{1,10}"
_TIME = r"\d{17}|\d{14}"  # older writers drew instants by the second
_BASE = re.compile(rf"({_FILE_ID})_({_THREE})_({_TIME})\.parquet", re.ASCII)
_LOG = re.compile(rf"\.({_FILE_ID})_({_TIME})\.log\.(\d{{1,9}})_({_THREE})", re.ASCII)
_INSTANT = re.compile(rf"({_TIME})(?:_({_TIME}))?\.(?:([a-z]+)(?:\.(requested|inflight))?)", re.ASCII)
_ATTEMPT = re.compile(r"[0-9a-f]{12}")
_NUMBERS = 1 << 31  # JVM Hudi reads each number of a token as an int
# Actions, and what each is called when it has completed: a compaction gives a commit.
ACTIONS = {
    "commit": "commit", "deltacommit": "deltacommit", "replacecommit": "replacecommit", "compaction": "commit",
    "logcompaction": "deltacommit", "clean": "clean", "rollback": "rollback", "restore": "restore", "savepoint": "savepoint",
    "indexing": "indexing", "schemacommit": "schemacommit", "clustering": "replacecommit",
}  # fmt: skip
WRITES = ("commit", "deltacommit", "replacecommit")  # those that bring files, as they are called when they have completed
_NEVER_COMPLETED = {action for action, completed in ACTIONS.items() if action != completed}
_FIRST = "%Y%m%d%H%M%S"


@dataclass(frozen=True)
class BaseFile:
    """A base file's name: its file group, the attempt that wrote it, the instant of its commit."""

    file_id: str
    token: str
    instant: str

    @property
    def name(self) -> str:
        return f"{self.file_id}_{self.token}_{self.instant}.parquet"


@dataclass(frozen=True)
class LogFile:
    """A log file's name: its file group, the instant of the slice, its number within the slice, the attempt that wrote it."""

    file_id: str
    instant: str
    number: int
    token: str

    @property
    def name(self) -> str:
        return f".{self.file_id}_{self.instant}.log.{self.number}_{self.token}"


@dataclass(frozen=True, order=True, slots=True)
class Instant:
    """An instant of the timeline in one of its states; `ended`: when it completed, in layout 2."""

    time: str
    action: str
    state: State = "completed"
    ended: str = ""

    @property
    def counts(self) -> tuple[str, str]:
        """Its place among all completed ones: they count in the order in which they ended, where layout 2 says it."""
        return self.ended or self.time, self.time

    @property
    def name(self) -> str:
        """Its file's name on the timeline."""
        if self.state == "completed":
            return f"{self.time}{'_' if self.ended else ''}{self.ended}.{ACTIONS[self.action]}"
        return f"{self.time}.inflight" if (self.action, self.state) == ("commit", "inflight") else f"{self.time}.{self.action}.{self.state}"


# ------------------------------------------------------------------------------------------------------------------- what is made
def new_file_id() -> str:
    """The id of a new file group, which its process alone draws."""
    return f"{uuid.uuid4()}-0"


def write_token(task: int, attempt: str) -> str:
    """`<task>-<high>-<low>`: an attempt's id of 12 hexadecimal digits as two numbers of 24 bits."""
    if not 0 <= task < _NUMBERS:
        raise ValueError(f"the task {task} has no place in a name")
    if not _ATTEMPT.fullmatch(attempt):
        raise FormatError(f"{attempt[:80]!r} is not the id of an attempt")
    return f"{task}-{int(attempt[:6], 16)}-{int(attempt[6:], 16)}"


def attempt_of(token: str) -> tuple[int, str] | None:
    """The task and the attempt's id of a token; None where an attempt of quire's cannot have written it."""
    parts = [int(part) for part in token.split("-")] if re.fullmatch(_THREE, token, re.ASCII) else []
    return (parts[0], f"{parts[1]:06x}{parts[2]:06x}") if parts and max(parts[1:]) < 1 << 24 and parts[0] < _NUMBERS else None


def path(partition: str, name: str) -> str:
    """The name, below the table, of a file in a partition."""
    return f"{partition}/{name}" if partition else name


def change_file_of(name: str) -> str:
    """Where the rows lie that the base file `name` has changed. Readers of Hudi take Parquet anywhere but in `.hoodie/` for data."""
    partition, _, last = name.rpartition("/")
    base = base_file(last)
    if base is None:
        raise FormatError(f"{name[:300]!r} is not the name of a base file")
    return path(f"{CHANGES}/{base.instant}", path(partition, f"{base.file_id}_{base.token}.rows"))


def cdc_log_of(name: str) -> str:
    """Where the CDC log lies of what the base file `name` has changed."""
    partition, _, last = name.rpartition("/")
    base = base_file(last)
    if base is None:
        raise FormatError(f"{name[:300]!r} is not the name of a base file")
    return path(partition, f"{LogFile(base.file_id, base.instant, 1, base.token).name}{CDC}")


def cdc_logs(there: Iterable[str], of: Iterable[str]) -> list[str]:
    """The CDC logs among the names `there` that belong to some files; of a base file other programs may write several."""
    parts = ((name.rpartition("/")[0], base_file(name.rpartition("/")[2])) for name in of)
    bases = {(folder, base.file_id, base.instant) for folder, base in parts if base}
    found = ((name, *name.rpartition("/")[::2]) for name in there if name.endswith(CDC))
    logs = ((name, folder, log_file(last.removesuffix(CDC))) for name, folder, last in found)
    return [name for name, folder, log in logs if log and (folder, log.file_id, log.instant) in bases]


def next_instant(known: Iterable[str], now: dt.datetime) -> str:
    """The instant of `now`, or the first one after all that are known: also where a clock was set back, or another one is ahead."""
    drawn, last = _render(now.astimezone(dt.UTC)), max(map(_whole, known), default="")
    if drawn > last:
        return drawn
    try:
        return _render(_parse(last) + dt.timedelta(milliseconds=1))
    except (ValueError, OverflowError):
        raise FormatError(f"the timeline has the instant {last[:80]}, and none can follow it: look who wrote it") from None


def after(instant: str) -> str:
    """The instant a millisecond later."""
    return _render(_parse(instant) + dt.timedelta(milliseconds=1))


def instant_time(instant: str) -> dt.datetime:
    """The time in an instant, as UTC; FormatError where it is not a date."""
    try:
        return _parse(_whole(instant))
    except (ValueError, OverflowError):
        raise FormatError(f"{instant[:80]!r} is not an instant, which looks like 20261122093015123") from None


def is_instant(text: str) -> bool:
    """Whether a text is an instant, and a date."""
    try:
        instant_time(text)
    except FormatError:
        return False
    return True


def _whole(instant: str) -> str:
    if not re.fullmatch(_TIME, instant, re.ASCII):
        raise FormatError(f"{instant[:80]!r} is not an instant, which looks like 20261122093015123")
    return instant if len(instant) == 17 else instant + "999"  # as Hudi does: it is over when its second is


def _render(time: dt.datetime) -> str:
    return f"{time.year:04d}{time:%m%d%H%M%S}{time.microsecond // 1000:03d}"


def _parse(instant: str) -> dt.datetime:
    return dt.datetime.strptime(instant[:14], _FIRST).replace(tzinfo=dt.UTC) + dt.timedelta(milliseconds=int(instant[14:]))


# -------------------------------------------------------------------------------------------------------------------- what is read
def is_file_id(text: str) -> bool:
    """Whether a file group may be called so."""
    return re.fullmatch(_FILE_ID, text, re.ASCII) is not None


def base_file(name: str) -> BaseFile | None:
    """The parts of a base file's name; None: it is not one."""
    found = _BASE.fullmatch(name)
    return BaseFile(found[1], found[2], found[3]) if found and _is_token(found[2]) else None


def log_file(name: str) -> LogFile | None:
    """The parts of a log file's name; None: it is not one."""
    found = _LOG.fullmatch(name)
    if not found or not _is_token(found[4]) or found[3] != str(int(found[3])):
        return None
    return LogFile(found[1], found[2], int(found[3]), found[4])


def file(name: str) -> BaseFile | LogFile | None:
    """The parts of the name of a file with rows; None: it is neither a base file nor a log file."""
    return base_file(name) or log_file(name)


def instant(name: str) -> Instant | None:
    """The instant of a name on the timeline; None: it is not one."""
    found = _INSTANT.fullmatch(name)
    if not found:
        return None
    time, ended, action, state = found[1], found[2] or "", found[3], found[4] or "completed"
    if ended and (state != "completed" or action == "inflight"):
        return None
    if (action, state) == ("inflight", "completed"):
        return Instant(time, "commit", "inflight")
    if action not in ACTIONS or (action, state) == ("commit", "inflight") or (state == "completed" and action in _NEVER_COMPLETED):
        return None
    return Instant(time, action, state, ended)  # type: ignore[arg-type]  # the pattern has no other


def _is_token(token: str) -> bool:
    return all(int(part) < _NUMBERS and part == str(int(part)) for part in token.split("-"))


# ---------------------------------------------------------------------------------------------- paths in what somebody has stored
def check_partition(partition: str, where: str) -> str:
    """The path of a partition that a stored commit names, if it lies below the table; else FormatError. The table itself is ''."""
    if partition and (not is_safe(partition) or partition.partition("/")[0] == FOLDER):
        raise FormatError(f"{where} names the partition {partition[:200]!r}, which leads out of the table: nothing was touched")
    return partition


def check_path(path: str, partition: str, file_id: str, where: str) -> BaseFile | LogFile:
    """The file at a path that a stored commit names, if it is one of that partition and file group; else FormatError."""
    folder, _, name = path.rpartition("/")
    found = file(name)
    if not is_safe(path) or folder != check_partition(partition, where) or found is None or found.file_id != file_id:
        raise FormatError(
            f"{where} names {path[:300]!r}, not a file of the group {file_id[:80]!r} in the partition {partition[:200]!r}: nothing "
            f"was touched. Look who wrote it."
        )
    return found
