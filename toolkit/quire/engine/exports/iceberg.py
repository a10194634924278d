"""A table of Iceberg over a destination's data files: `_iceberg/metadata/`, as Iceberg's own specification (version 2) has it.

Each commit is one object `v<n>.metadata.json` that is put if absent; its snapshot names the version of quire's log that it offers, so a
repeated export finds it and no file is added twice. `version-hint.text` leads readers of the directory to the newest one, and a catalog,
if there is one, is brought to the same snapshot. The snapshots that it has are whole: when files leave, the older ones go.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from quire.commit.closers import offering
from quire.commit.entries import Export
from quire.commit.log import Log
from quire.commit.names import EXPORTS
from quire.engine.exports import catalogs, iceberg_types, offered
from quire.engine.exports.iceberg_files import ADDED, DELETED, DataFile, listed, living, manifest, manifest_list, manifests
from quire.engine.exports.pointer import point
from quire.errors import FormatError, NotFoundError
from quire.formats import partition_columns
from quire.storage import Store
from quire.storage.address import readable

if TYPE_CHECKING:
    import pyarrow as pa

FOLDER = EXPORTS["iceberg"]
PARQUET_ALONE = True
FILES = 10_000  # of a manifest, at most, but for those of one commit
TIER = 10  # manifests of one size that become one
SNAPSHOTS = 100
VERSION, NUMBER, PARTITIONS = "quire.version", "quire.number", "quire.partitions"
_METADATA = f"{FOLDER}/metadata"
_HINT = f"{_METADATA}/version-hint.text"
_NUMBERED = re.compile(rf"{_METADATA}/v([0-9]{{1,18}})\.metadata\.json")
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_OWN = re.compile(rf"{_NUMBERED.pattern}|{re.escape(_HINT)}|{_METADATA}/(?:{_UUID}-m0|snap-[0-9]+-1-{_UUID})\.avro")
_MAPPING = "schema.name-mapping.default"
_T = TypeVar("_T")


class _Tip(NamedTuple):
    """The table's newest metadata: their number, the version of quire's log that they offer, and themselves."""

    number: int
    version: int
    said: dict[str, Any]

    @property
    def made(self) -> dict[str, str]:
        """The columns that directories make, with Iceberg's types."""
        return dict(json.loads(self.said["properties"][PARTITIONS]))


def check_free(store: Store) -> bool:
    """Whether a table of ours is there; RefusedError where another program's is, or anything else."""
    return offered.check_ours(store, _numbers(offered.objects(store, FOLDER, _OWN)), _read, "an Iceberg table", FOLDER)


def check_options(store: Store, options: Mapping[str, str]) -> None:
    """UsageError or RefusedError for what cannot be exported so."""
    offered.check_known(options, "catalog", "table", "location", format="iceberg")
    _where(store, options)
    catalogs.check(options)


def release(store: Store, one: Export) -> None:
    """Take the table out of its catalog."""
    catalogs.drop(one.options, f"{_where(store, one.options)}/{FOLDER}")


def remove(store: Store) -> None:
    """Take the metadata away."""
    offered.take_away(store, FOLDER, _OWN)


def bring(
    log: Log, one: Export, version: int, *, always: bool = False, watch: offered.Watch = offered.unwatched
) -> tuple[int, int]:  # fmt: skip
    """Let the table offer a settled version, or a later one; returns it, and the number of the metadata that do (0: there are none).

    `always`: with metadata of its own, so that a call that has begun before finds their number taken.
    """
    store, where, tip = log.store, _where(log.store, one.options), _tip(log.store, one.commit)
    while True:
        if tip:
            offered.check_version(log, tip.version, _name(tip.number), "iceberg")
        if tip and one.version and tip.number == one.commit:
            tip = tip._replace(version=max(tip.version, one.version))  # nothing had changed up to there
        moved = tip is not None and tip.said["location"] != f"{where}/{FOLDER}"
        if tip and tip.version >= version and not moved:
            break
        writer = _Writer(log, where, tip, max(version, tip.version if tip else 0), watch)
        made = writer.whole() if tip is None or moved else writer.increment(always=always)
        if made is None:
            break
        if store.put_if_absent(_name(made.number), json.dumps(made.said, ensure_ascii=False).encode()):
            tip = made
            break
        tip = _read(store, made.number)  # somebody else's call was first, or the answer to ours was lost
        if tip.said["current-snapshot-id"] != writer.snapshot:
            for name in writer.written:
                store.remove(name)
    if tip is None:
        return version, 0
    found = tip
    point(store, _HINT, lambda: str(_newest_after(store, found.number)).encode())

    def newest() -> tuple[Mapping[str, Any], str]:
        number = _newest_after(store, found.number)
        return found.said if number == found.number else _read(store, number).said, f"{where}/{_name(number)}"

    catalogs.bring(one.options, newest)
    return max(tip.version, version), tip.number


def _where(store: Store, options: Mapping[str, str]) -> str:
    """The destination's address in the metadata."""
    return readable(store.url, options.get("location"), s3="s3")


# ---------------------------------------------------------------------------------------------------------------- the last metadata
def _name(number: int) -> str:
    return f"{_METADATA}/v{number}.metadata.json"


def _numbers(objects: Iterable[str]) -> list[int]:
    """Those of all metadata among some objects."""
    return [int(at[1]) for at in map(_NUMBERED.fullmatch, objects) if at]


def _newest_after(store: Store, number: int) -> int:
    while store.stat(_name(number + 1)) is not None:
        number += 1
    return number


def _tip(store: Store, near: int) -> _Tip | None:
    """The newest metadata, or some near to them."""
    if near:
        try:
            return _read(store, near)
        except NotFoundError:
            pass
    numbers = _numbers(entry.name for entry in store.walk(_METADATA))
    return _read(store, max(numbers)) if numbers else None


def _read(store: Store, number: int) -> _Tip:
    """Metadata of ours. NotFoundError where there are none, RefusedError for those that are not ours."""
    name = _name(number)
    data = offered.content(store, name)
    try:
        said = json.loads(data)
        if said["properties"][NUMBER] != str(number):  # another program has taken over what we had said
            raise ValueError("not ours")
        tip = _Tip(number, int(_current(said)["summary"][VERSION]), said)
        if not set(tip.made.values()) <= iceberg_types.MADE.keys():
            raise ValueError("a type that no column of directories has")
        _check(said)
        return tip
    except (ValueError, TypeError, KeyError, AttributeError, StopIteration, RecursionError):
        raise offered.foreign(store, name, "iceberg") from None


def _current(said: Mapping[str, Any]) -> dict[str, Any]:
    """The newest snapshot."""
    return next(each for each in said["snapshots"] if each["snapshot-id"] == said["current-snapshot-id"])


def _check(said: Mapping[str, Any]) -> None:
    """ValueError, or another of a wrong shape, for what the next metadata would go on from, and is not of its kind."""
    for key in ("last-sequence-number", "last-column-id", "last-partition-id", "last-updated-ms"):
        if not isinstance(said[key], int) or not 0 <= said[key] < 1 << 62:
            raise ValueError(key)
    if not all(isinstance(text, str) for text in (said["location"], said["table-uuid"], _current(said)["manifest-list"])):
        raise ValueError("a text")
    current = _of(said["schemas"], "schema-id", said["current-schema-id"]), _of(said["partition-specs"], "spec-id", said["default-spec-id"])
    if [field["name"] for field in current[1]["fields"]] != [name for name, _ in json.loads(said["properties"][PARTITIONS])]:
        raise ValueError("the columns of directories")
    if not all(
        isinstance(number, int) for number in [*(f["field-id"] for f in current[1]["fields"]), *(f["id"] for f in current[0]["fields"])]
    ):
        raise ValueError("an id")
    iceberg_types.check_ids(current[0]["fields"])  # ids within columns, too
    if not all(isinstance(each["snapshot-id"], int) for each in (*said["snapshots"], *said["snapshot-log"])):
        raise ValueError("a snapshot")


# ---------------------------------------------------------------------------------------------------------------- what is written
class _Writer:
    """Makes the next metadata, with the manifests and the list that they name."""

    def __init__(self, log: Log, where: str, tip: _Tip | None, version: int, watch: offered.Watch) -> None:
        self.log, self.store, self.where, self.tip, self.version, self.watch = log, log.store, where, tip, version, watch
        self.snapshot = uuid.uuid4().int >> 65
        self.sequence = tip.said["last-sequence-number"] + 1 if tip else 1
        self.written: list[str] = []

    def whole(self) -> _Tip | None:
        """All data files of the version, by a schema of their own; None where there are none, and there never were any."""
        files = offered.files(self.log, self.version, self._content() if self.tip and offering(self.store) else None, self.watch)
        if not files:
            return None if self.tip is None else self._done([], self.tip.said, "delete", whole=False)
        if offered.changes_columns(self.log):
            self._check_promoted([file.name for file in files])
        made = self._kinds(offered.made(self.log, [file.name for file in files]))
        each = ((file.name, file.records, file.size) for file in self.watch(files, len(files)))
        return self._stated(each, made, files[0].name)

    def increment(self, *, always: bool) -> _Tip | None:
        """The changes of the commits since the last one; None where that is nothing, unless `always`."""
        assert self.tip
        changed = offered.between(self.log, self.tip.version, self.version, self._content)
        if not changed and not always:
            return None
        before = {key: iceberg_types.MADE[kind] for key, kind in self.tip.made.items()}
        made = self._kinds(offered.joined(self.log, before, list(changed.added), "iceberg"))
        if made != self.tip.made or (changed.added and self._other_columns(next(iter(changed.added)))):
            return self.whole()  # a column's type is another one, or a column is new: no old manifest fits
        added = [self._file(name, file.records, file.size, made) for name, (file, _) in changed.added.items()]
        kept = self._without(changed.gone.keys())
        those = [*kept, *([self._manifest(added, self.tip.said)] if added else [])]
        only_moved = not any(change for _, change in changed.added.values()) and not any(changed.gone.values())
        operation = "append" if not changed.gone else "replace" if only_moved else "overwrite" if added else "delete"
        return self._done(self._merged(those), self.tip.said, operation, whole=not changed.gone)

    def _check_promoted(self, names: Sequence[str]) -> None:
        """RefusedError where a column has become wider than readers widen it."""
        now = offered.columns(self.log, names[0])
        for name, own in zip(names, offered.each_own(self.store, names), strict=True):
            iceberg_types.check_promoted(own, now, f"{self.store.url}/{name}")

    def _other_columns(self, file: str) -> bool:
        assert self.tip
        if not offered.changes_columns(self.log):
            return False
        said = self.tip.said
        before = _of(said["schemas"], "schema-id", said["current-schema-id"])["fields"]
        now = iceberg_types.Schema(offered.columns(self.log, file), self.tip.made, self.store.url, before, said["last-column-id"])
        return bool(now.fields != before)

    def _content(self) -> dict[str, offered.Offer]:
        """The data files that the last snapshot has, by name."""
        assert self.tip
        start, found = f"{self.tip.said['location'].removesuffix(FOLDER)}", dict[str, offered.Offer]()
        for each in self._parsed(manifests, _current(self.tip.said)["manifest-list"]):
            for file in self._parsed(living, each["manifest_path"]) if _alive(each) else ():
                name = file.path.removeprefix(start)
                found[name] = offered.Offer(name, file.size, file.records)
        return found

    # ------------------------------------------------------------------------------------------------ manifests
    def _without(self, gone: Iterable[str]) -> list[dict[str, Any]]:
        """The manifests of the last snapshot that still have files; those of files that are gone are written anew."""
        assert self.tip
        there = [each for each in self._parsed(manifests, _current(self.tip.said)["manifest-list"]) if _alive(each)]
        left, found = {self._address(name) for name in gone}, list[dict[str, Any]]()
        for each in there:
            files = self._parsed(living, each["manifest_path"]) if left else []
            if left.isdisjoint(file.path for file in files):
                found.append(each)
                continue
            marked = [file._replace(status=DELETED, snapshot=self.snapshot) if file.path in left else file for file in files]
            left -= {file.path for file in files}
            found.append(self._manifest(marked, self.tip.said))
        return found

    def _merged(self, those: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The same, with small ones of one size made one, so that their number grows with the logarithm of the files'."""
        assert self.tip
        tiers = defaultdict[int, list[dict[str, Any]]](list)
        for each in those:
            fresh = each["added_snapshot_id"] == self.snapshot  # then it tells what is deleted by this commit
            if not (fresh and each["deleted_files_count"]) and _alive(each) < FILES:
                tiers[int(math.log(_alive(each), TIER))].append(each)
        for tier in sorted(tiers):
            if len(tiers[tier]) < TIER:
                continue
            going = tiers[tier]
            files = [self._settled(file) for each in going for file in self._parsed(living, each["manifest_path"])]
            those = [*(each for each in those if each not in going), self._manifest(files, self.tip.said)]
        return list(those)

    def _settled(self, file: DataFile) -> DataFile:
        return file._replace(status=ADDED) if file.snapshot == self.snapshot else file

    def _manifest(self, files: Sequence[DataFile], said: Mapping[str, Any]) -> dict[str, Any]:
        schema, spec = (
            _of(said["schemas"], "schema-id", said["current-schema-id"]),
            _of(said["partition-specs"], "spec-id", said["default-spec-id"]),
        )
        kinds = dict(json.loads(said["properties"][PARTITIONS]))
        data = manifest(files, iceberg_types.partition(spec["fields"], kinds), schema, spec)
        name = f"{uuid.uuid4()}-m0.avro"
        self._put(name, data)
        return listed(f"{self.where}/{_METADATA}/{name}", data, files, spec["spec-id"], self.snapshot, self.sequence)

    def _file(self, name: str, records: int, size: int, made: Mapping[str, str]) -> DataFile:
        values = {
            iceberg_types.avro_name(key): partition_columns.value(name, key, iceberg_types.MADE[kind])[0].as_py()
            for key, kind in made.items()
        }  # fmt: skip
        return DataFile(self._address(name), values, records, size, self.snapshot, self.sequence)

    def _kinds(self, made: Mapping[str, pa.DataType]) -> dict[str, str]:
        return {key: iceberg_types.of(kind, key, self.store.url) for key, kind in made.items()}

    def _address(self, name: str) -> str:
        return f"{self.where}/{name}"

    def _parsed(self, parse: Callable[[bytes], list[_T]], address: str) -> list[_T]:
        """A file of ours by its address, of which the last part is the name."""
        name = f"{_METADATA}/{address.rpartition('/')[2]}"
        try:
            return parse(self.store.get(name))
        except NotFoundError:
            raise FormatError(f"{self.store.url}/{name} is gone: no reader can make out the table. {offered.anew('iceberg')}") from None
        except (ValueError, LookupError, TypeError) as e:
            raise FormatError(f"{self.store.url}/{name} is damaged ({type(e).__name__}). {offered.anew('iceberg')}") from e

    def _put(self, name: str, data: bytes) -> None:
        self.store.put(f"{_METADATA}/{name}", data)
        self.written.append(f"{_METADATA}/{name}")

    # ------------------------------------------------------------------------------------------------ metadata
    def _stated(self, files: Iterable[tuple[str, int, int]], made: Mapping[str, str], first: str) -> _Tip:
        """Metadata of a schema of their own, and all files by it."""
        said = self.tip.said if self.tip else _nothing()
        before = _of(said["schemas"], "schema-id", said["current-schema-id"])["fields"] if self.tip else []
        schema = iceberg_types.Schema(offered.columns(self.log, first), made, self.store.url, before, said["last-column-id"])
        number = max((each["schema-id"] for each in said["schemas"]), default=-1) + 1
        said = said | self._spec(said, schema.made, number) | {
            "schemas": [*said["schemas"], {"type": "struct", "schema-id": number, "fields": schema.fields}], "current-schema-id": number,
            "last-column-id": schema.last,
            "properties": said["properties"] | {_MAPPING: json.dumps(schema.mapping()), PARTITIONS: json.dumps(list(made.items()))},
        }  # fmt: skip
        found = (self._file(name, records, size, made) for name, records, size in files)
        those = [self._manifest(some, said) for some in _batched(found, FILES)]
        return self._done(those, said, "overwrite" if self.tip else "append", whole=False)

    def _spec(self, said: Mapping[str, Any], made: Mapping[str, int], number: int) -> dict[str, Any]:
        """The columns that directories make, by their ids: as before, or anew where these are other ones.

        All files are stated anew with it, so no older one stays: Java refuses a column of the name that another id had in one of them.
        """
        if self.tip:
            before = _of(said["partition-specs"], "spec-id", said["default-spec-id"])
            if {field["name"]: field["source-id"] for field in before["fields"]} == made:
                return {"partition-specs": [before]}
        last = said["last-partition-id"]
        fields = [
            {"source-id": source, "field-id": last + i, "name": name, "transform": "identity"}
            for i, (name, source) in enumerate(made.items(), 1)
        ]
        return {
            "partition-specs": [{"spec-id": number, "fields": fields}], "default-spec-id": number, "last-partition-id": last + len(fields)
        }  # fmt: skip

    def _done(self, those: Sequence[dict[str, Any]], said: dict[str, Any], operation: str, *, whole: bool) -> _Tip:
        """The metadata with the new snapshot; `whole`: those before it still are."""
        now = max(_now(), said["last-updated-ms"] + 1)
        parent = said["current-snapshot-id"] if self.tip else None
        name = f"snap-{self.snapshot}-1-{uuid.uuid4()}.avro"
        self._put(name, manifest_list(those, self.snapshot, parent, self.sequence))
        counts = [sum(each[f"{kind}_count"] for each in those) for kind in _COUNTED]
        snapshot = {
            "snapshot-id": self.snapshot, "sequence-number": self.sequence, "timestamp-ms": now,
            "summary": {"operation": operation, VERSION: str(self.version), **_totals(*counts)},
            "manifest-list": f"{self.where}/{_METADATA}/{name}", "schema-id": said["current-schema-id"],
        } | ({} if parent is None else {"parent-snapshot-id": parent})  # fmt: skip
        snapshots = [*(said["snapshots"][1 - SNAPSHOTS :] if whole else []), snapshot]
        there = {each["snapshot-id"] for each in snapshots}
        log = [*said["snapshot-log"], {"timestamp-ms": now, "snapshot-id": self.snapshot}]
        number = self.tip.number + 1 if self.tip else 1
        said = said | {
            "location": f"{self.where}/{FOLDER}", "last-updated-ms": now, "last-sequence-number": self.sequence,
            "current-snapshot-id": self.snapshot, "refs": {"main": {"snapshot-id": self.snapshot, "type": "branch"}},
            "snapshots": snapshots, "snapshot-log": [each for each in log if each["snapshot-id"] in there],
            "properties": said["properties"] | {NUMBER: str(number)},
        }  # fmt: skip
        return _Tip(number, self.version, dict(said))


_COUNTED = ("added_files", "existing_files", "added_rows", "existing_rows")


def _totals(added: int, existing: int, added_rows: int, existing_rows: int) -> dict[str, str]:
    return {"total-data-files": str(added + existing), "total-records": str(added_rows + existing_rows)}


def _nothing() -> dict[str, Any]:
    """The metadata of a table before its first commit."""
    return {
        "format-version": 2, "table-uuid": str(uuid.uuid4()), "last-sequence-number": 0, "last-updated-ms": 0, "last-column-id": 0,
        "schemas": [], "partition-specs": [], "last-partition-id": 999, "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}], "snapshots": [], "snapshot-log": [], "metadata-log": [],
        # Other programs shall delete no data file: they ask for this before they expire snapshots.
        "properties": {"gc.enabled": "false"},
    }  # fmt: skip


def _alive(each: Mapping[str, Any]) -> int:
    """The files that a manifest has."""
    return int(each["added_files_count"] + each["existing_files_count"])


def _of(those: Iterable[dict[str, Any]], key: str, number: int) -> dict[str, Any]:
    return next(each for each in those if each[key] == number)


def _batched(files: Iterable[_T], size: int) -> Iterator[list[_T]]:
    left = iter(files)
    return iter(lambda: list(itertools.islice(left, size)), [])


def _now() -> int:
    return int(time.time() * 1000)
