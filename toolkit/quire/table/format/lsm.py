"""The archived timeline of layout 2: which files hold the instants that have left the timeline.

Source: Hudi's `LSMTimeline` and `HoodieLSMTimelineInstant`, of table versions 8 and 9, in `.hoodie/timeline/history/`:

    _version_                                 the number of the newest manifest; a writer deletes it and puts it again
    manifest_<n>                              JSON: the files that count
    <instant>_<instant>_<layer>.parquet       a row for each instant between these two; a layer is merged from files of the one below it
    .quire                                    quire's: lets readers see that there may be an archive, from before the first one is there
    .quire_<horizon>_<time>                   quire's: all instants before the horizon are archived, and the last of them ended then
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from quire.errors import FormatError
from quire.formats.damage import ARROW
from quire.table.format import names
from quire.table.format.avro_file import STRING, or_null

FOLDER = f"{names.TIMELINE}/history"
VERSION, MARKER = f"{FOLDER}/_version_", f"{FOLDER}/.quire"
LAYERS = 9  # at most: a digit names them
GROUP = 8 << 20  # bytes of rows that are merged into one row group
INSTANT, ENDED, ACTION = "instantTime", "completionTime", "action"
COLUMNS = [INSTANT, ENDED, ACTION]
_MANIFEST = re.compile(r"manifest_(\d{1,9})", re.ASCII)
_TIME = re.compile(r"\d{17}|\d{14}", re.ASCII)
_FILE = re.compile(r"(\d{17}|\d{14})_(\d{17}|\d{14})_(\d)\.parquet", re.ASCII)
_HORIZON = re.compile(r"\.quire_(\d{17})_(\d{17}|\d{14})", re.ASCII)
_ENDED = "quire.ended"  # in the footer of a file of quire's: when the last of all archived writes has ended
_SCHEMA = pa.schema(
    [
        (INSTANT, pa.string()), (ENDED, pa.string()), (ACTION, pa.string()), ("metadata", pa.binary()), ("plan", pa.binary()),
        pa.field("version", pa.int32(), False),
    ]
)  # fmt: skip
_AVRO = {
    "type": "record", "name": "HoodieLSMTimelineInstant", "namespace": "org.apache.hudi.avro.model",
    "fields": [
        *({"name": name, **or_null(STRING)} for name in (INSTANT, ENDED, ACTION)),
        *({"name": name, **or_null("bytes")} for name in ("metadata", "plan")),
        {"name": "version", "type": "int", "default": 1},
    ],
}  # fmt: skip
_FOOTER = {"parquet.avro.schema": json.dumps(_AVRO), "writer.model.name": "avro"}


@dataclass(frozen=True, order=True)
class HistoryFile:
    """A file of the archived timeline: its name below the table, the first and the last instant in it, its layer and its bytes."""

    first: str
    last: str
    layer: int = 0
    size: int = 0

    @property
    def name(self) -> str:
        return f"{FOLDER}/{self.first}_{self.last}_{self.layer}.parquet"


@dataclass(frozen=True)
class Left:
    """An instant that leaves the timeline: its action, what it has said when it completed, and the plan that it had."""

    time: str
    ended: str
    action: str
    said: bytes
    plan: bytes = b""


def manifest(number: int) -> str:
    """The name of a manifest below the table."""
    return f"{FOLDER}/manifest_{number}"


def number_in(version: bytes | None) -> int | None:
    """The number of the newest manifest; None where the file is not there, or is just being written."""
    text = (version or b"").strip()
    return int(text) if text.isdigit() and len(text) <= 9 else None


def files(data: bytes, where: str) -> tuple[HistoryFile, ...]:
    """The files that a manifest names; FormatError where it is damaged."""
    try:
        listed = [(str(each["fileName"]), int(each.get("fileLen") or 0)) for each in json.loads(data)["files"]]
        found = [(_FILE.fullmatch(name), name, size) for name, size in listed]
        if wrong := next((name for parts, name, _ in found if parts is None), None):
            raise ValueError(f"it names {wrong[:80]!r}")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise FormatError(f"{where} is damaged ({type(e).__name__}: {str(e)[:200]}). Restore it from a copy.") from e
    return tuple(HistoryFile(parts[1], parts[2], int(parts[3]), size) for parts, _, size in found if parts)


def manifest_of(files: Iterable[HistoryFile]) -> bytes:
    """The content of a manifest that names some files."""
    listed = [{"fileName": each.name.rpartition("/")[2], "fileLen": each.size} for each in files]
    return json.dumps({"files": listed}, indent=2).encode()


def numbers(there: Iterable[str]) -> list[int]:
    """The numbers of the manifests among some names, in their order."""
    return sorted(int(each[1]) for each in (_MANIFEST.fullmatch(name.rpartition("/")[2]) for name in there) if each)


# ---------------------------------------------------------------------------------------------------------------------- horizons
def horizon_name(horizon: str, ended: str) -> str:
    """The name of the object that says that all instants before a horizon are archived, and when the last of them ended."""
    return f"{FOLDER}/.quire_{horizon}_{ended}"


def horizons(there: Iterable[str]) -> list[tuple[str, str]]:
    """The horizons among some names, each with when the last write before it ended, in their order. A forged one is not a time."""
    found = (_HORIZON.fullmatch(name.rpartition("/")[2]) for name in there)
    return sorted((each[1], each[2]) for each in found if each and names.is_instant(each[1]) and names.is_instant(each[2]))


# ------------------------------------------------------------------------------------------------------------------- what is made
def encode(left: Sequence[Left], ended: str) -> bytes:
    """The bytes of a file with these instants, in their order; `ended`: when the last of all archived writes has ended then."""
    rows = [(i.time, i.ended, i.action, i.said, i.plan or None, 1) for i in left]
    out = io.BytesIO()
    with _writer(out, {_ENDED: ended}) as writer:
        writer.write_table(pa.table(list(map(list, zip(*rows, strict=True))), schema=_SCHEMA))
    return out.getvalue()


def merged(files: Iterable[bytes], where: str) -> bytes:
    """The bytes of a file with the rows of all these, in their order; FormatError where one is damaged.

    A row group at a time is in memory: gzip makes what instants say many times smaller.
    """
    out = io.BytesIO()
    try:
        with _writer(out, {}) as writer:
            waiting = list[pa.Table]()
            for each in map(pq.ParquetFile, map(io.BytesIO, files)):
                for group in range(each.num_row_groups):
                    waiting.append(each.read_row_group(group, columns=_SCHEMA.names).cast(_SCHEMA))
                    if sum(rows.nbytes for rows in waiting) >= GROUP:
                        writer.write_table(pa.concat_tables(waiting))
                        waiting = []
            if waiting:
                writer.write_table(pa.concat_tables(waiting))
    except (*ARROW, OSError, ValueError, KeyError) as e:
        raise FormatError(f"{where} has a damaged file ({type(e).__name__}: {str(e)[:200]}). Restore it from a copy.") from e
    return out.getvalue()


def _writer(out: io.BytesIO, footer: dict[str, str]) -> pq.ParquetWriter:
    writer = pq.ParquetWriter(out, _SCHEMA, compression="gzip", store_schema=False)  # as Hudi has it
    writer.add_key_value_metadata(_FOOTER | footer)
    return writer


def file_of(data: bytes, where: str) -> tuple[HistoryFile, set[tuple[str, str]], str]:
    """The file that `encode` has made, its instants with their actions, and its `ended`; FormatError where it is damaged, or forged."""
    try:
        opened = pq.ParquetFile(io.BytesIO(data))
        ended = (opened.metadata.metadata or {}).get(_ENDED.encode(), b"").decode("ascii")
        there = instants(opened.read([INSTANT, ACTION]))
        if not there or not all(names.is_instant(time) for time in (ended, *(time for time, _ in there))):
            raise ValueError("it names what is not an instant")
    except (*ARROW, OSError, ValueError, KeyError) as e:
        raise FormatError(f"{where} is damaged ({type(e).__name__}: {str(e)[:200]}): nothing was touched. Look who wrote it.") from e
    times = {time for time, _ in there}
    return HistoryFile(min(times), max(times), size=len(data)), there, ended


def instants(rows: pa.Table) -> set[tuple[str, str]]:
    """The instants in the rows of a file, with their actions."""
    return {(str(row[INSTANT]), str(row[ACTION])) for row in rows.to_pylist()}


def completed(rows: pa.Table) -> list[tuple[str, str]]:
    """The instant of each write in the rows of a file, and when it completed; ValueError where one lacks its instant.

    A savepoint has the instant of the write that it holds, and a time of its own, so other actions are left out.
    """
    found = list[tuple[str, str]]()
    for row in rows.select(COLUMNS).to_pylist():
        time = row[INSTANT]
        if not isinstance(time, str) or not _TIME.fullmatch(time):
            raise ValueError(f"it has a row of the instant {str(time)[:80]!r}")
        if row[ACTION] in names.WRITES:
            found.append((time, str(row[ENDED] or time)))  # as for Hudi: where nothing says it, it completed at once
    return found
