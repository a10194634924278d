"""The settings of a table: `hoodie.properties` as an object, read of table versions 6, 8 and 9, written of 6 and 9.

Source: Hudi's table configurations, `org.apache.hudi.common.table.HoodieTableConfig`, as tables of JVM Hudi 0.14 to 1.2 have them.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from quire.errors import FormatError, RefusedError
from quire.table.format import names, properties

MODES_OF_CDC = ("DATA_BEFORE_AFTER", "DATA_BEFORE", "OP_KEY_ONLY")
VERSION, READABLE = 6, (6, 8, 9)
NEWER = 9  # which is written, too
COPY_ON_WRITE, MERGE_ON_READ = "COPY_ON_WRITE", "MERGE_ON_READ"
SIMPLE, COMPLEX, NON_PARTITIONED = "SIMPLE", "COMPLEX", "NON_PARTITION"
EVENT_TIME, COMMIT_TIME = "EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING"

_GENERATORS = {
    SIMPLE: "org.apache.hudi.keygen.SimpleKeyGenerator", COMPLEX: "org.apache.hudi.keygen.ComplexKeyGenerator",
    NON_PARTITIONED: "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
}  # fmt: skip
_PAYLOADS = {
    EVENT_TIME: "org.apache.hudi.common.model.DefaultHoodieRecordPayload",
    COMMIT_TIME: "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload",
}
MODES = tuple(_PAYLOADS)
_STRATEGY = "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5"  # the newest by ordering: the only one that a table of version 6 names
_WRITE = "hoodie.datasource.write"
_CHECKSUM, _TYPE, _TIMELINE = "hoodie.table.checksum", "hoodie.table.keygenerator.type", "hoodie.timeline.layout.version"
_PATH, _HISTORY, _ARCHIVE = "hoodie.timeline.path", "hoodie.timeline.history.path", "hoodie.archivelog.folder"
_INITIAL, _FORMAT = "hoodie.table.initial.version", "hoodie.table.base.file.format"
_MERGERS = ("hoodie.compaction.record.merger.strategy", "hoodie.record.merge.strategy.id")

_CDC, CDC_MODE = "hoodie.table.cdc.enabled", "hoodie.table.cdc.supplemental.logging.mode"
# Names that a table may have beside those of the fields below, and the values with which rows mean the same without them; None: any.
_HARMLESS: dict[str, tuple[str, ...] | None] = {
    _ARCHIVE: ("archived",), "hoodie.bootstrap.index.enable": None, "hoodie.bootstrap.index.class": None,
    "hoodie.bootstrap.index.type": None, "hoodie.bootstrap.base.path": ("",), _MERGERS[0]: (_STRATEGY,), _MERGERS[1]: (_STRATEGY,),
    "hoodie.partition.metafile.use.base.format": ("false",), _FORMAT: ("PARQUET", "parquet"),
    _CDC: None, CDC_MODE: None, _CHECKSUM: None,
    "hoodie.table.format": ("native",), _INITIAL: None, "hoodie.table.log.file.format": None,
    "hoodie.table.metadata.partitions.inflight": ("",), "hoodie.table.multiple.base.file.formats.enable": ("false",),
    "hoodie.index.type": None, "hoodie.index.bucket.engine": ("SIMPLE",), "hoodie.bucket.index.num.buckets": None,
    "hoodie.bucket.index.hash.field": None, "hoodie.storage.layout.type": None, "hoodie.storage.layout.partitioner.class": None,
    "hoodie.table.secondary.indexes.metadata": ("",), _HISTORY: None, _TIMELINE: ("1",), _PATH: None,
}  # fmt: skip
# The same of version 9.
_OF_NEWER: dict[str, tuple[str, ...] | None] = {
    _ARCHIVE: ("archived", "history"), _TIMELINE: ("2",), _PATH: ("timeline",), _HISTORY: ("history",), _INITIAL: (str(NEWER),),
    "hoodie.table.partition_extractor_class": None,
}  # fmt: skip
_NAMES = {
    "name": "hoodie.table.name", "database": "hoodie.database.name", "type": "hoodie.table.type", "version": "hoodie.table.version",
    "key": "hoodie.table.recordkey.fields", "partition_by": "hoodie.table.partition.fields", "ordering": "hoodie.table.precombine.field",
    "orderings": "hoodie.table.ordering.fields", "hive_style": f"{_WRITE}.hive_style_partitioning",
    "url_encode": f"{_WRITE}.partitionpath.urlencode", "generator": "hoodie.table.keygenerator.class", "mode": "hoodie.record.merge.mode",
    "payload": "hoodie.compaction.payload.class", "schema": "hoodie.table.create.schema", "timezone": "hoodie.table.timeline.timezone",
    "meta_fields": "hoodie.populate.meta.fields", "drops_partitions": f"{_WRITE}.drop.partition.columns",
    "metadata": "hoodie.table.metadata.partitions",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TableConfig:
    """The settings of a table; those without a field of their own stand in `others`, by their names in Hudi."""

    name: str
    type: str = COPY_ON_WRITE
    key: tuple[str, ...] = ()  # the fields of a record's key
    partition_by: tuple[str, ...] = ()
    ordering: str | None = None  # the greatest value of a key wins; of several fields of version 9, the first
    mode: str = COMMIT_TIME  # whether the ordering also counts against stored rows
    database: str = "default"
    version: int = VERSION
    hive_style: bool = True
    url_encode: bool = False
    generator: str = ""  # how key and partition path are made: a kind of ours, or the class that a table names
    schema: str = ""  # Avro's, of the table as it was created
    timezone: str = "UTC"  # of the instants that JVM writers draw
    meta_fields: bool = True
    drops_partitions: bool = False  # whether base files lack the partition fields
    metadata: tuple[str, ...] = ()  # the parts of the metadata table, where there is one
    others: tuple[tuple[str, str], ...] = ()

    @classmethod
    def from_properties(cls, data: bytes, where: str) -> TableConfig:
        """The settings in `hoodie.properties`; FormatError where they are damaged, or of a version that is not read."""
        found = properties.parse(data, where)
        took = {field: found.pop(name) for field, name in _NAMES.items() if name in found}
        if not took.get("name"):
            raise FormatError(f"{where} is damaged: it has no {_NAMES['name']}. Put back a good copy.")
        version = _version(took.get("version", ""), where)
        if took.get("type") not in (COPY_ON_WRITE, MERGE_ON_READ):
            raise FormatError(f"{where} is damaged: {_NAMES['type']} is {took.get('type', '')[:80]!r}. Put back a good copy.")
        database = took.get("database", "")
        if found.get(_CHECKSUM, (right := _checksum(database, took["name"]))) != right:
            raise FormatError(
                f"{where} is damaged: its checksum is {found[_CHECKSUM][:80]!r}, of {database}.{took['name']} it is {right}. Put back a "
                f"good copy."
            )
        orderings = _listed(took.get("orderings") or took.get("ordering", ""))
        if len(orderings) > 1:
            found[_NAMES["orderings"]] = ",".join(orderings)  # by which quire does not write
        fields = {name: took[name] for name in ("schema", "payload") if name in took}
        return cls(
            name=took["name"], type=took["type"], version=version, database=database, ordering=orderings[0] if orderings else None,
            key=_listed(took.get("key", "")), partition_by=_listed(took.get("partition_by", "")), schema=fields.get("schema", ""),
            timezone=took.get("timezone", "LOCAL"), metadata=_listed(took.get("metadata", "")), others=tuple(sorted(found.items())),
            mode=_mode(took, bool(orderings), version), generator=_generator(took.get("generator", ""), found.get(_TYPE, "")),
            hive_style=_flag(took, "hive_style", False, where), url_encode=_flag(took, "url_encode", False, where),
            meta_fields=_flag(took, "meta_fields", True, where), drops_partitions=_flag(took, "drops_partitions", False, where),
        )  # fmt: skip

    def to_properties(self) -> bytes:
        """`hoodie.properties` of a table of version 6 or 9, which JVM Hudi takes; RefusedError for what quire does not write."""
        if self.unsuitable:
            raise RefusedError(f"quire does not create the table {self.name}: {self.unsuitable}")
        kind = self.generator or default_generator(self.key, self.partition_by)
        values = dict(self.others) | {
            _NAMES["name"]: self.name, _NAMES["database"]: self.database, _NAMES["type"]: self.type, _NAMES["version"]: str(self.version),
            _NAMES["key"]: ",".join(self.key), _NAMES["hive_style"]: _word(self.hive_style), _NAMES["url_encode"]: _word(self.url_encode),
            _NAMES["meta_fields"]: "true", _NAMES["drops_partitions"]: "false", _NAMES["timezone"]: self.timezone,
            _CHECKSUM: _checksum(self.database, self.name), _FORMAT: "PARQUET",
        }  # fmt: skip
        if self.version == VERSION:
            values |= {
                _NAMES["generator"]: _GENERATORS[kind], _NAMES["payload"]: _PAYLOADS[self.mode], _TIMELINE: "1", _ARCHIVE: "archived",
            }  # fmt: skip
        else:
            values |= {
                _TYPE: kind, _NAMES["mode"]: self.mode, _TIMELINE: "2", _PATH: "timeline", _HISTORY: "history",
                _ARCHIVE: values.get(_ARCHIVE, "history"), "hoodie.table.format": "native",
            }  # fmt: skip
        ordering = "ordering" if self.version == VERSION else "orderings"
        optional = {"partition_by": ",".join(self.partition_by), ordering: self.ordering, "schema": self.schema}
        values |= {_NAMES[field]: value for field, value in optional.items() if value}
        if self.type == MERGE_ON_READ:
            values[_MERGERS[0]] = _STRATEGY
        return properties.render(values, ["Properties of a table, as Apache Hudi has them"])

    @property
    def cdc(self) -> str:
        """The mode of the CDC logs that each commit writes, as `cdc_log` has them; "": none."""
        said = dict(self.others)
        return said.get(CDC_MODE, MODES_OF_CDC[0]).upper() if said.get(_CDC, "false").lower() == "true" else ""

    @property
    def timeline(self) -> str | None:
        """The directory of the timeline; None: it lies where no table of this version has it."""
        said = dict(self.others)
        if self.version == VERSION:
            return names.FOLDER if said.get(_TIMELINE, "1") == "1" else None
        where = said.get(_TIMELINE), said.get(_PATH, "timeline"), said.get(_HISTORY, "history")
        return names.TIMELINE if where == ("2", "timeline", "history") else None

    @property
    def written(self) -> str:
        """The directory of the timeline, as quire writes it: of a table that another program has upgraded that of before."""
        return names.TIMELINE if self.version == NEWER and dict(self.others).get(_INITIAL) == str(NEWER) else names.FOLDER

    @property
    def unwritable(self) -> str | None:
        """The reason why quire would not write into this table, though it may read it; None: it would."""
        if _CHECKSUM not in dict(self.others):
            return self.unsuitable or "it has no checksum, so it may be cut off"
        return self.unsuitable

    @property
    def unsuitable(self) -> str | None:
        """The same of a table that is yet to be created."""
        reasons = {
            f"it is of table version {self.version}, and quire writes version {VERSION} (JVM Hudi with its defaults upgrades a "
            "table that it writes into)": self.version != VERSION and self.written == names.FOLDER,
            "its base files lack the partition columns (drop.partition.columns)": self.drops_partitions,
            "its rows have no meta fields (populate.meta.fields=false)": not self.meta_fields,
            f"it has a metadata table ({', '.join(self.metadata)[:200]}): table.adopt() drops it": bool(self.metadata),
            "it names no field as record key": not self.key,
            f"its keys are made by {self.generator[:200]}": bool(self.generator) and self.generator not in _GENERATORS,
            f"its rows are merged by {self.mode[:200]}": self.mode not in _PAYLOADS,
            f"it keeps CDC logs ({_CDC}=true), which quire writes into copy-on-write tables alone": bool(self.cdc)
            and self.type != COPY_ON_WRITE,
            f"its CDC logs are of the mode {self.cdc[:80]!r}": self.cdc not in ("", *MODES_OF_CDC),
            "it orders by event time and names no field for it": self.mode == EVENT_TIME and self.ordering is None,
        }
        for name, value in self.others:
            known = _HARMLESS | _OF_NEWER if self.version == NEWER else _HARMLESS
            allowed = known.get(name, ()) if name != _TYPE else tuple(_GENERATORS)
            reasons[f"quire does not know {name[:200]}={value[:200]}"] = allowed is not None and value not in allowed
        return next((reason for reason, holds in reasons.items() if holds), None)

    def without_metadata(self) -> TableConfig:
        """The same table without its metadata table."""
        return replace(self, metadata=(), others=tuple(o for o in self.others if not o[0].startswith(_NAMES["metadata"])))


def check_writable(table: TableConfig, where: str) -> None:
    """RefusedError with the reason why quire would not write into a table."""
    if reason := table.unwritable:
        raise RefusedError(f"{where} can be read and not written by quire: {reason}")


def newer_settings() -> dict[str, str]:
    """The settings of a table that was created in version 9."""
    return {_INITIAL: str(NEWER)}


def cdc_settings(mode: str) -> dict[str, str]:
    """The settings of a table with CDC logs of a mode."""
    return {_CDC: "true", CDC_MODE: mode}


def default_generator(key: tuple[str, ...], partition_by: tuple[str, ...]) -> str:
    """The kind of key generator with which JVM Hudi writes what quire writes: the simplest that fits."""
    if not partition_by:
        return NON_PARTITIONED
    return SIMPLE if len(key) == len(partition_by) == 1 else COMPLEX


def partition_metadata(instant: str, depth: int) -> bytes:
    """`.hoodie_partition_metadata` of a partition that is `depth` directories deep; JVM Hudi lists only what has one."""
    return properties.render({"commitTime": instant, "partitionDepth": str(depth)}, ["partition metadata"])


def _version(text: str, where: str) -> int:
    if text not in map(str, READABLE):
        raise FormatError(f"{where} is of table version {text[:80]!r}, and quire reads {READABLE[0]}, {READABLE[1]} and {READABLE[2]}")
    return int(text)


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _flag(took: Mapping[str, str], field: str, usual: bool, where: str) -> bool:
    text = took.get(field, _word(usual)).strip().lower()
    if text not in ("true", "false"):
        raise FormatError(f"{where} is damaged: {_NAMES[field]} is {text[:80]!r}, and not true or false. Put back a good copy.")
    return text == "true"


def _word(flag: bool) -> str:
    return "true" if flag else "false"


def _mode(took: Mapping[str, str], ordered: bool, version: int) -> str:
    """The merge mode that a table names, or that its payload class means; any other class by its name."""
    if took.get("mode"):
        return took["mode"]
    if "payload" not in took and version > VERSION:
        return EVENT_TIME if ordered else COMMIT_TIME
    payload = took.get("payload", _PAYLOADS[COMMIT_TIME])
    return next((mode for mode, name in _PAYLOADS.items() if name == payload), payload)


def _generator(name: str, kind: str) -> str:
    return next((ours for ours, theirs in _GENERATORS.items() if theirs == name), name or kind)


def _checksum(database: str, name: str) -> str:
    return str(zlib.crc32(f"{database}.{name}".encode()))
