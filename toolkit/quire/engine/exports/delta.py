"""A log of Delta Lake over a destination's data files: `_delta_log/`, as Delta's own protocol (PROTOCOL.md of delta-io/delta) has it.

Each commit is one object that is put if absent; it names the version of quire's log that it offers, so a repeated export finds it and no
file is added twice. Readers need no feature beyond version 1 (timestamps without a zone need `timestampNtz`). For writers the table names
a feature that none of them has, so other programs' writers and VACUUM refuse it by themselves.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq

from quire.commit.closers import offering
from quire.commit.entries import Export
from quire.commit.log import Log
from quire.commit.names import EXPORTS
from quire.engine.exports import delta_types, offered
from quire.errors import FormatError, NotFoundError
from quire.formats import parquet, partition_columns
from quire.formats.parquet import DAMAGED
from quire.storage import Store

FOLDER = EXPORTS["delta"]
PARQUET_ALONE = True
EVERY = 50  # commits from one checkpoint to the next
APP = "quire"
_LAST = f"{FOLDER}/_last_checkpoint"
_COMMIT = re.compile(rf"{FOLDER}/([0-9]{{20}})\.json")
_OWN = re.compile(rf"{_COMMIT.pattern}|{FOLDER}/[0-9]{{20}}\.checkpoint\.parquet|{_LAST}")


class _Tip(NamedTuple):
    """Delta's last commit: its number, the version of quire's log that it offers, the types of the partition columns, the table's id.

    columns   those of a table of Hudi's format, or of rows whose columns have grown, as their schema's checksum
    """

    number: int
    version: int
    made: dict[str, str]
    id: str
    columns: str = ""


def check_free(store: Store) -> bool:
    """Whether a table of ours is there; RefusedError where another program's is, or anything else."""
    return offered.check_ours(store, _numbers(offered.objects(store, FOLDER, _OWN)), _read, "a Delta table", FOLDER)


def check_options(_: Store, options: Mapping[str, str]) -> None:
    """UsageError for options: there are none."""
    offered.check_known(options, format="delta")


def release(_store: Store, _: Export) -> None:
    """Nobody else knows of it."""


def remove(store: Store) -> None:
    """Take the log away."""
    offered.take_away(store, FOLDER, _OWN)


def bring(
    log: Log, one: Export, version: int, *, always: bool = False, watch: offered.Watch = offered.unwatched
) -> tuple[int, int]:  # fmt: skip
    """Let the log offer a settled version, or a later one; returns it, and the number of Delta's commit (0 also where nothing is there).

    `always`: with a commit of its own, so that a call that has begun before finds its number taken.
    """
    store, tip = log.store, _tip(log.store, one.commit)
    while True:
        if tip:
            offered.check_version(log, tip.version, _name(tip.number), "delta")
        if tip and one.version and tip.number == one.commit:
            tip = tip._replace(version=max(tip.version, one.version))  # nothing had changed up to there
        if tip and tip.version >= version:
            return tip.version, tip.number
        made = _first(log, version, watch) if tip is None else _next(log, tip, version, always=always)
        if made is None:
            return version, tip.number if tip else 0
        new, actions = made
        if store.put_if_absent(_name(new.number), b"".join(json.dumps(each, ensure_ascii=False).encode() + b"\n" for each in actions)):
            if new.number and new.number % EVERY == 0:
                _checkpoint(log, new)
            return version, new.number
        tip = _read(store, new.number)  # somebody else's call was first


# ------------------------------------------------------------------------------------------------------------------ the last commit
def _name(number: int) -> str:
    return f"{FOLDER}/{number:020}.json"


def _numbers(objects: Iterable[str]) -> list[int]:
    """Those of all commits among some objects."""
    return [int(at[1]) for at in map(_COMMIT.fullmatch, objects) if at]


def _newest(store: Store) -> int | None:
    """The number of the last commit."""
    numbers = _numbers(entry.name for entry in store.walk(FOLDER))
    if not numbers:
        return None
    if len(numbers) <= max(numbers):
        raise FormatError(
            f"{store.url}/{FOLDER} lacks commits before number {max(numbers)}: no reader can make out the table. {offered.anew('delta')}"
        )
    return max(numbers)


def _tip(store: Store, near: int) -> _Tip | None:
    try:
        return _read(store, near)
    except NotFoundError:
        number = _newest(store)
        return None if number is None else _read(store, number)


def _read(store: Store, number: int) -> _Tip:
    """One of our commits. NotFoundError where there is none, RefusedError for one that is not ours."""
    name = _name(number)
    data = offered.content(store, name)
    try:
        actions = [json.loads(line) for line in data.splitlines() if line.strip()]
        said = next(each["commitInfo"][APP] for each in actions if APP in each.get("commitInfo", {}))
        made = {str(key): str(kind) for key, kind in said["partitions"].items()}
        if not set(made.values()) <= delta_types.ARROW.keys():
            raise ValueError("a type that no partition column has")
        return _Tip(number, int(said["version"]), made, str(said["id"]), str(said.get("columns", "")))
    except (ValueError, TypeError, KeyError, AttributeError, StopIteration, RecursionError):
        raise offered.foreign(store, name, "delta") from None


# ---------------------------------------------------------------------------------------------------------------- what is written
def _first(log: Log, version: int, watch: offered.Watch) -> tuple[_Tip, list[dict[str, Any]]] | None:
    """The first commit: all data files of a version; None where there are none."""
    files = offered.files(log, version, watch=watch)
    if not files:
        return None
    made = _kinds(offered.made(log, [file.name for file in files]), log.store.url)
    tip, table = _with_table(log, _Tip(0, version, made, str(uuid.uuid4())), files[0].name)
    adds = ({"add": _add(file.name, file.size, file.records, made, change=True)} for file in watch(files, len(files)))
    return tip, [*_head(tip), *table, *adds]


def _next(log: Log, tip: _Tip, version: int, *, always: bool) -> tuple[_Tip, list[dict[str, Any]]] | None:
    """The next commit: what the commits since the last one have added and removed; None where that is nothing, unless `always`."""
    changed = offered.between(log, tip.version, version, lambda: _content(log.store, tip.number))
    if not changed and not always:
        return None
    before = {key: delta_types.ARROW[kind] for key, kind in tip.made.items()}
    made = _kinds(offered.joined(log, before, list(changed.added), "delta"), log.store.url)
    found, table = tip._replace(number=tip.number + 1, version=version, made=made), list[dict[str, Any]]()
    if changed.added and (made != tip.made or tip.columns or offered.changes_columns(log)):
        found, table = _with_table(log, found, next(iter(changed.added)))
        table = table if (made, found.columns) != (tip.made, tip.columns) else []
    added = dict(changed.added)
    if made != tip.made:  # no value may stay that was written for another type: 1.50 would be '1.5' as text
        there = _content(log.store, tip.number).items()
        added |= {name: (file, False) for name, file in there if name not in added and name not in changed.gone}
    adds = ({"add": _add(name, file.size, file.records, made, change=change)} for name, (file, change) in added.items())
    removes = (
        {"remove": {"path": quote(name), "deletionTimestamp": _now(), "dataChange": change}} for name, change in changed.gone.items()
    )  # fmt: skip
    return found, [*_head(found), *table, *adds, *removes]


def _head(tip: _Tip) -> Iterator[dict[str, Any]]:
    """The commit says who has made it, and the version that it offers."""
    told = {"version": tip.version, "partitions": tip.made, "id": tip.id} | ({"columns": tip.columns} if tip.columns else {})
    yield {"commitInfo": {"timestamp": _now(), "operation": "WRITE", "operationParameters": {}, "engineInfo": APP, APP: told}}
    yield {"txn": {"appId": APP, "version": tip.version, "lastUpdated": _now()}}


def _with_table(log: Log, tip: _Tip, file: str) -> tuple[_Tip, list[dict[str, Any]]]:
    """The columns of the table, and what readers and writers have to know; `file`: a data file, which says its own columns."""
    fields, unzoned = delta_types.fields(offered.columns(log, file), tip.made, log.store.url)
    features = ["timestampNtz"] if unzoned else []
    reading = {"minReaderVersion": 3, "readerFeatures": features} if features else {"minReaderVersion": 1}
    protocol = reading | {"minWriterVersion": 7, "writerFeatures": [*features, "quireExport"]}
    text = json.dumps({"type": "struct", "fields": fields})
    said = {
        "id": tip.id, "format": {"provider": "parquet", "options": {}}, "schemaString": text, "partitionColumns": list(tip.made),
        "configuration": {}, "createdTime": _now(),
    }  # fmt: skip
    columns = hashlib.sha256(text.encode()).hexdigest()[:16] if offered.changes_columns(log) else ""
    return tip._replace(columns=columns), [{"protocol": protocol}, {"metaData": said}]


def _add(name: str, size: int, records: int, made: Mapping[str, str], *, change: bool) -> dict[str, Any]:
    values = {key: _text(name, key, kind) for key, kind in made.items()}
    return {
        "path": quote(name), "partitionValues": values, "size": size, "modificationTime": _now(), "dataChange": change,
        "stats": json.dumps({"numRecords": records}),
    }  # fmt: skip


def _text(name: str, key: str, kind: str) -> str | None:
    """The value of a partition column as Delta writes it; there, empty text is a missing value."""
    value = partition_columns.value(name, key, delta_types.ARROW[kind])[0].as_py()
    return None if value is None or value == "" else str(value).lower() if kind == "boolean" else str(value)


def _kinds(made: Mapping[str, pa.DataType], where: str) -> dict[str, str]:
    """Delta's types of the columns that directories make."""
    return {key: delta_types.of(kind, key, where) for key, kind in made.items()}


def _now() -> int:
    return int(time.time() * 1000)


# --------------------------------------------------------------------------------------------------------------------- checkpoints
_TEXTS = pa.map_(pa.string(), pa.string())
_FEATURES = pa.list_(pa.string())
_CHECKPOINT = pa.schema(
    {
        "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
        "add": pa.struct(
            {
                "path": pa.string(), "partitionValues": _TEXTS, "size": pa.int64(), "modificationTime": pa.int64(),
                "dataChange": pa.bool_(), "stats": pa.string(),
            }
        ),
        "metaData": pa.struct(
            {
                "id": pa.string(), "format": pa.struct({"provider": pa.string(), "options": _TEXTS}), "schemaString": pa.string(),
                "partitionColumns": pa.list_(pa.string()), "configuration": _TEXTS, "createdTime": pa.int64(),
            }
        ),
        "protocol": pa.struct(
            {"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32(), "readerFeatures": _FEATURES, "writerFeatures": _FEATURES}
        ),
    }
)  # fmt: skip


def _checkpoint(log: Log, tip: _Tip) -> None:
    """Put a checkpoint of a commit, so that readers need none before it. Anybody may do it again: it says the same."""
    files = list(_content(log.store, tip.number).values()) if offering(log.store) else offered.files(log, tip.version)
    if not files:
        return  # nothing says the columns any more
    actions = [*_head(tip), *_with_table(log, tip, files[0].name)[1]]
    rows = [each for each in actions if "commitInfo" not in each]
    rows += [{"add": _add(file.name, file.size, file.records, tip.made, change=False)} for file in files]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist([_pairs(row) for row in rows], _CHECKPOINT), sink, compression="zstd")
    log.store.put(_checkpointed(tip.number), sink.getvalue().to_pybytes())
    log.store.put(_LAST, json.dumps({"version": tip.number, "size": len(rows)}).encode())


def _checkpointed(number: int) -> str:
    return f"{FOLDER}/{number:020}.checkpoint.parquet"


def _content(store: Store, number: int) -> dict[str, offered.Offer]:
    """The data files that the table has as of one of our commits, by name; FormatError where they cannot be made out."""
    try:
        return _played(store, number)
    except (NotFoundError, *DAMAGED, AttributeError) as e:
        what = "lacks an object" if isinstance(e, NotFoundError) else f"is damaged ({type(e).__name__})"
        raise FormatError(f"{store.url}/{FOLDER} {what}: no reader can make out the table. {offered.anew('delta')}") from e


def _played(store: Store, number: int) -> dict[str, offered.Offer]:
    """The same, from the last checkpoint that is there, and the commits after it."""
    found, first = dict[str, offered.Offer](), 0
    for base in range((number - 1) // EVERY * EVERY, 0, -EVERY):  # its driver may have died before it
        if store.stat(_checkpointed(base)) is not None:
            found, first = _merged(store, base), base + 1
            break
    for commit in offered.each([_name(each) for each in range(first, number + 1)], lambda name: offered.content(store, name)):
        for line in commit.splitlines():
            action = json.loads(line)
            if add := action.get("add"):
                found[unquote(add["path"])] = _offer(add)
            elif remove := action.get("remove"):
                found.pop(unquote(remove["path"]), None)
    return found


def _merged(store: Store, number: int) -> dict[str, offered.Offer]:
    adds = parquet.open_file(store, _checkpointed(number)).read(["add"]).column("add").to_pylist()
    return {unquote(add["path"]): _offer(add) for add in adds if add}


def _offer(add: Mapping[str, Any]) -> offered.Offer:
    return offered.Offer(unquote(add["path"]), int(add["size"]), int(json.loads(add["stats"])["numRecords"]))


def _pairs(action: dict[str, Any]) -> dict[str, Any]:
    """An action with its maps as Arrow takes them."""
    (kind, said), *_ = action.items()
    if kind == "add":
        return {kind: said | {"partitionValues": list(said["partitionValues"].items())}}
    if kind == "metaData":
        return {kind: said | {"configuration": [], "format": said["format"] | {"options": []}}}
    return action
