"""A log of Delta Lake over a destination's data files: `_delta_log/`, as Delta's own protocol (PROTOCOL.md of delta-io/delta) has it.

Each commit is one object that is put if absent; it names the version of quire's log that it offers, so a repeated export finds it and no
file is added twice. Readers need no feature beyond version 1 (timestamps without a zone need `timestampNtz`). For writers the table names
a feature that none of them has, so other programs' writers and VACUUM refuse it by themselves.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from quire.commit.entries import Export
from quire.commit.log import Log
from quire.coverage.fold import fold
from quire.coverage.live import LiveFile, live
from quire.engine.exports import delta_types
from quire.errors import FormatError, NotFoundError, RefusedError
from quire.formats import parquet, partition_columns, partitions
from quire.formats.damage import ARROW
from quire.sources.transforms import schemas
from quire.storage import Store

FOLDER = "_delta_log"
EVERY = 50  # commits from one checkpoint to the next
APP = "quire"
_LAST = f"{FOLDER}/_last_checkpoint"


class _Tip(NamedTuple):
    """Delta's last commit: its number, the version of quire's log that it offers, the types of the partition columns, the table's id."""

    number: int
    version: int
    made: dict[str, str]
    id: str


def check_free(store: Store) -> bool:
    """Whether a log of ours is there; RefusedError where another program's is."""
    numbers = _numbers(store)
    try:
        return bool(numbers and _read(store, max(numbers)))
    except RefusedError:
        raise RefusedError(
            f"{store.url} holds a Delta table of another program, in {FOLDER}/. An export needs another destination."
        ) from None


def remove(store: Store) -> None:
    """Take the log away."""
    store.remove_tree(FOLDER)


def bring(log: Log, one: Export, version: int) -> tuple[int, int]:
    """Let the log offer a settled version, or a later one; returns it, and the number of Delta's commit (0 also where nothing is there)."""
    store, tip = log.store, _tip(log.store, one.commit)
    while True:
        if tip:
            _check_version(log, tip)
        if tip and one.version and tip.number == one.commit:
            tip = tip._replace(version=max(tip.version, one.version))  # nothing had changed up to there
        if tip and tip.version >= version:
            return tip.version, tip.number
        made = _first(log, version) if tip is None else _next(log, tip, version)
        if made is None:
            return version, tip.number if tip else 0
        new, actions = made
        if store.put_if_absent(_name(new.number), b"".join(json.dumps(each, ensure_ascii=False).encode() + b"\n" for each in actions)):
            if new.number and new.number % EVERY == 0:
                _checkpoint(log, new)
            return version, new.number
        tip = _read(store, new.number)  # somebody else's call was first


def _check_version(log: Log, tip: _Tip) -> None:
    """FormatError where a commit offers what the destination never had: an entry that believed it would hold files for ever, or none."""
    if tip.version > log.tip:
        log.refresh()  # somebody else has gone on
    if not 0 < tip.version <= log.tip:
        raise FormatError(
            f"{log.store.url}/{_name(tip.number)} offers version {tip.version:,}, and the destination has the versions 1 to {log.tip:,}: "
            f"it is another destination's, or damaged. ledger.drop_export('delta') takes the log away, and ledger.export('delta') makes it "
            f"anew."
        )


# ------------------------------------------------------------------------------------------------------------------ the last commit
def _name(number: int) -> str:
    return f"{FOLDER}/{number:020}.json"


def _numbers(store: Store) -> list[int]:
    """Those of all commits, by a listing."""
    names = (entry.name.rpartition("/")[2] for entry in store.walk(FOLDER))
    return [int(name[:20]) for name in names if name[20:] == ".json" and name[:20].isdecimal()]


def _newest(store: Store) -> int | None:
    """The number of the last commit."""
    numbers = _numbers(store)
    if not numbers:
        return None
    if len(numbers) <= max(numbers):
        raise FormatError(
            f"{store.url}/{FOLDER} lacks commits before number {max(numbers)}: no reader can make out the table. "
            f"ledger.drop_export('delta') takes the log away, and ledger.export('delta') makes it anew."
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
    data = store.get(name)
    if not data:  # SeaweedFS keeps an empty object of a write that was cut off
        raise FormatError(f"{store.url}/{name} is empty: a write of it was cut off. Delete it and call again; nothing is lost.")
    try:
        actions = [json.loads(line) for line in data.splitlines() if line.strip()]
        said = next(each["commitInfo"][APP] for each in actions if APP in each.get("commitInfo", {}))
        made = {str(key): str(kind) for key, kind in said["partitions"].items()}
        if not set(made.values()) <= delta_types.ARROW.keys():
            raise ValueError("a type that no partition column has")
        return _Tip(number, int(said["version"]), made, str(said["id"]))
    except (ValueError, TypeError, KeyError, AttributeError, StopIteration, RecursionError):
        raise RefusedError(
            f"{store.url}/{name} is a commit of another program, and an export takes none: it offers what quire has committed. Nothing was "
            f"changed. ledger.drop_export('delta') takes the whole Delta log away; other Delta tables need a place of their own."
        ) from None


# ---------------------------------------------------------------------------------------------------------------- what is written
def _first(log: Log, version: int) -> tuple[_Tip, list[dict[str, Any]]] | None:
    """The first commit: all data files of a version; None where there are none."""
    files = list(live(log, fold(log, version, reader=True), reader=True))
    if not files:
        return None
    made = _made(log, [file.name for file in files])
    tip = _Tip(0, version, made, str(uuid.uuid4()))
    adds = ({"add": _add(file.name, file.size, file.records, made, change=True)} for file in files)
    return tip, [*_head(tip), *_table(log, tip, files[0].name), *adds]


def _next(log: Log, tip: _Tip, version: int) -> tuple[_Tip, list[dict[str, Any]]] | None:
    """The next commit: what the commits since the last one have added and removed; None where that is nothing."""
    added, gone = dict[str, tuple[Any, bool]](), dict[str, bool]()
    for _, commit in log.commits(tip.version, version):
        change = commit.verb != "compact"  # else the same rows in other files
        for task in log.in_effect(commit, version, reader=True):
            added |= {file.name: (file, change) for file in task.data_files}
            gone |= dict.fromkeys(task.coverage.removes, change)
    both = added.keys() & gone.keys()
    new = {name: said for name, said in added.items() if name not in both}
    if not new and not gone.keys() - both:
        return None
    made = _joined(log, tip.made, list(new))
    found = _Tip(tip.number + 1, version, made, tip.id)
    table = _table(log, found, next(iter(new))) if made != tip.made else ()
    adds = ({"add": _add(name, file.size, file.records, made, change=change)} for name, (file, change) in new.items())
    removes = (
        {"remove": {"path": quote(name), "deletionTimestamp": _now(), "dataChange": change}}
        for name, change in gone.items() if name not in both
    )  # fmt: skip
    return found, [*_head(found), *table, *adds, *removes]


def _head(tip: _Tip) -> Iterator[dict[str, Any]]:
    """The commit says who has made it, and the version that it offers."""
    told = {"version": tip.version, "partitions": tip.made, "id": tip.id}
    yield {"commitInfo": {"timestamp": _now(), "operation": "WRITE", "operationParameters": {}, "engineInfo": APP, APP: told}}
    yield {"txn": {"appId": APP, "version": tip.version, "lastUpdated": _now()}}


def _table(log: Log, tip: _Tip, file: str) -> Iterator[dict[str, Any]]:
    """The columns of the table, and what readers and writers have to know; `file`: a data file, which says its own columns."""
    fields, unzoned = delta_types.fields(_own(log.store, file), tip.made, log.store.url)
    features = ["timestampNtz"] if unzoned else []
    reading = {"minReaderVersion": 3, "readerFeatures": features} if features else {"minReaderVersion": 1}
    yield {"protocol": reading | {"minWriterVersion": 7, "writerFeatures": [*features, "quireExport"]}}
    text = json.dumps({"type": "struct", "fields": fields})
    yield {
        "metaData": {
            "id": tip.id, "format": {"provider": "parquet", "options": {}}, "schemaString": text, "partitionColumns": list(tip.made),
            "configuration": {}, "createdTime": _now(),
        }
    }  # fmt: skip


def _own(store: Store, name: str) -> pa.Schema:
    """The columns of a data file."""
    try:
        return parquet.open_file(store, name).schema_arrow
    except ARROW as e:
        raise FormatError(f"the data file {store.url}/{name} is damaged ({type(e).__name__}). ledger.forget(file=…) takes it out.") from e


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


def _made(log: Log, files: Iterable[str]) -> dict[str, str]:
    """The columns that directories make, with Delta's types."""
    names, spec = list(files), log.spec()
    if spec is None or spec.layout != "directories" or not names:
        return {}
    found = partition_columns.of(names, _own(log.store, names[0]).names, schemas.by(log, spec))
    return {key: delta_types.of(kind, key, log.store.url) for key, kind in found.items()}


def _joined(log: Log, before: Mapping[str, str], files: list[str]) -> dict[str, str]:
    """The same with those of new files; RefusedError where these lie in directories of other columns."""
    made = _made(log, files) if files else dict(before)
    if not before and not made:
        return {}
    if made.keys() != before.keys():
        raise RefusedError(
            f"{log.store.url}/{files[0]} does not lie in directories of the columns {', '.join(before) or 'none'}, as the files before do, "
            f"so no Delta table can hold all of them. ledger.drop_export('delta') ends the export."
        )
    # A column without a value in them says nothing of its type.
    said = {key for name in files for key, value in partitions.values(name).items() if value is not None}
    return {key: delta_types.both(kind, made[key]) if key in said else kind for key, kind in before.items()}


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
    files: list[LiveFile] = list(live(log, fold(log, tip.version, reader=True), reader=True))
    if not files:
        return  # nothing says the columns any more
    actions = [*_head(tip), *_table(log, tip, files[0].name)]
    rows = [each for each in actions if "commitInfo" not in each]
    rows += [{"add": _add(file.name, file.size, file.records, tip.made, change=False)} for file in files]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist([_pairs(row) for row in rows], _CHECKPOINT), sink, compression="zstd")
    log.store.put(f"{FOLDER}/{tip.number:020}.checkpoint.parquet", sink.getvalue().to_pybytes())
    log.store.put(_LAST, json.dumps({"version": tip.number, "size": len(rows)}).encode())


def _pairs(action: dict[str, Any]) -> dict[str, Any]:
    """An action with its maps as Arrow takes them."""
    (kind, said), *_ = action.items()
    if kind == "add":
        return {kind: said | {"partitionValues": list(said["partitionValues"].items())}}
    if kind == "metaData":
        return {kind: said | {"configuration": [], "format": said["format"] | {"options": []}}}
    return action
