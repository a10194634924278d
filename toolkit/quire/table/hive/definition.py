"""The form in which a Hive metastore has a table of Hudi's, so that Hive, Trino and Spark with Hudi read it.

Source: Hudi's `HiveSyncTool`, `HMSDDLExecutor`, `HiveSchemaUtil` and `SparkDataSourceTableUtils`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from quire.errors import RefusedError, UsageError, quoted, scrub
from quire.spark.releases import from_arrow_schema
from quire.table.format.config import COMPLEX, MERGE_ON_READ, SIMPLE, TableConfig
from quire.table.hive.thrift import Fields, Value, flag, listed, mapping, number, record, said, text, texts

EXTERNAL, SYNCED = "EXTERNAL", "last_commit_time_sync"
PART = 4_000  # characters of a property's value, which the databases behind metastores hold
_SCHEMA = "spark.sql.sources.schema."
_PARTS = re.compile(re.escape(_SCHEMA) + r"(numParts|part\.[0-9]+)$")
_INPUT = "org.apache.hudi.hadoop.HoodieParquetInputFormat", "org.apache.hudi.hadoop.realtime.HoodieParquetRealtimeInputFormat"
_OUTPUT = "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat"
_SERDE = "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"
_of = pa.types
_PLAIN: dict[Any, str] = {
    pa.bool_(): "boolean", pa.int32(): "int", pa.int64(): "bigint", pa.float32(): "float", pa.float64(): "double", pa.string(): "string",
    pa.binary(): "binary", pa.date32(): "date", pa.time32("ms"): "int", pa.time64("us"): "bigint",
}  # fmt: skip


@dataclass(frozen=True)
class Definition:
    """A table under one name; `realtime`: with what is in logs."""

    database: str
    name: str
    location: str
    columns: tuple[tuple[str, str], ...]
    keys: tuple[tuple[str, str], ...]  # the columns that name the partitions
    properties: dict[str, str] = field(repr=False)
    realtime: bool = False
    optimized: bool = False

    def fresh(self, now: int) -> Fields:
        """The table as it is created."""
        found: Fields = {1: text(self.name), 2: text(self.database), 4: number(now), 5: number(0), 6: number(0), 12: text("EXTERNAL_TABLE")}
        return found | {7: record(self.storage({})), 8: _columns(self.keys, {}), 9: mapping({EXTERNAL: "TRUE", **self.properties})}

    def storage(self, there: Fields, path: str = "") -> Fields:
        """The storage of the table, or of the partition at `path`; what is `there` beside stays."""
        serde: Fields = dict(said(there, 7, {}))
        settings = said(serde, 3, {}) | {"path": self.location, "hoodie.query.as.ro.table": str(self.optimized).lower()}
        serde |= {2: text(_SERDE), 3: mapping({"serialization.format": "1", **settings})}
        usual: Fields = {5: flag(False), 6: number(-1), 8: texts(()), 9: listed(()), 10: mapping({})}
        return {**usual, **there} | {
            1: _columns(self.columns, there), 2: there[2] if 2 in there and not path else text(f"{self.location}/{path}".rstrip("/")),
            3: text(_INPUT[self.realtime]), 4: text(_OUTPUT), 7: record(serde),
        }  # fmt: skip

    def partition(self, values: Sequence[str], path: str, now: int) -> Fields:
        """A partition of it."""
        found: Fields = {1: texts(values), 2: text(self.database), 3: text(self.name), 4: number(now), 5: number(0)}
        return found | {6: record(self.storage({}, path)), 7: mapping({})}

    def changed(self, there: Fields, instant: str | None = None) -> Fields | None:
        """The table that is there, as it should be, with what else was set; None: it is as it should be. RefusedError for another table.

        `instant`: say that all is there as of it.
        """
        self._check(there)
        has: dict[str, str] = said(there, 9, {})
        # Hudi's own sync writes the same schema in other words, and would change it back.
        properties = self.properties | ({name: has[name] for name in has if _PARTS.match(name)} if _same(has, self.properties) else {})
        stale = {name for name in has if name.startswith(_SCHEMA)} - set(properties)
        kept = {name: value for name, value in has.items() if name not in stale} | properties
        kept |= {SYNCED: instant} if instant else {}
        before: Fields = said(there, 7, {})
        storage = self.storage(before)
        if kept == has and _meant(storage) == _meant(before):
            return None
        return there | {7: record(storage), 9: mapping(kept)}

    def _check(self, there: Fields) -> None:
        where = f"{self.database}.{self.name}"
        location = str(said(said(there, 7, {}), 2, ""))
        if _place(location) != _place(self.location):
            raise RefusedError(
                f"the metastore has another {where}, at {scrub(location, 200) or 'no place'}, and not at {self.location}: give "
                "another name=."
            )
        keys = tuple((said(each, 1), said(each, 2)) for each in said(there, 8, []))
        if keys != self.keys:
            now = ", ".join(map(" ".join, self.keys)) or "none"
            raise RefusedError(
                f"{where} has other partition columns in the metastore than {now}, and these cannot be changed: "
                "drop it there, and call again."
            )


def _same(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether Spark reads the same columns from the settings."""
    try:
        return bool(_read(one) == _read(other))
    except (KeyError, ValueError):  # there are none, or others than Spark's
        return False


def _read(properties: Mapping[str, str]) -> Any:
    parts = int(properties[f"{_SCHEMA}numParts"])
    return json.loads("".join(properties[f"{_SCHEMA}part.{i}"] for i in range(parts)))


def _meant(storage: Fields) -> tuple[Any, ...]:
    """The part of it that readers go by."""
    serde = said(storage, 7, {})
    columns = [(said(each, 1), said(each, 2)) for each in said(storage, 1, [])]
    return columns, said(storage, 3), said(storage, 4), said(serde, 2), said(serde, 3)


def _columns(columns: Sequence[tuple[str, str]], there: Fields) -> Value:
    """The columns, with the comments that these have in a storage or table."""
    comments = {said(each, 1): said(each, 3, "") for each in said(there, 1, [])}
    return listed(record({1: text(name), 2: text(kind), 3: text(comments.get(name, ""))}) for name, kind in columns)


def _place(location: str) -> tuple[str, str]:
    """Scheme and place, whatever a metastore has made of them."""
    scheme, _, rest = location.partition(":")
    return {"s3": "s3a", "s3n": "s3a", "abfs": "abfss"}.get(scheme, scheme), "/" + re.sub("/+", "/", rest).strip("/")


# ----------------------------------------------------------------------------------------------------------------- what is wanted
def definitions(config: TableConfig, rows: pa.Schema, database: str, name: str, location: str) -> list[Definition]:
    """The tables of a table: of a merge-on-read one also `_ro` and `_rt`. UsageError for columns that Hive does not have."""
    if config.partition_by and (config.generator or SIMPLE) not in (SIMPLE, COMPLEX):
        raise RefusedError(
            f"the partitions of {name} are made by {config.generator[:200]}, whose values quire does not know: sync it with Hudi."
        )
    lower = [each.lower() for each in rows.names]
    if twice := [each for each in lower if lower.count(each) > 1]:
        raise UsageError(f"Hive does not tell capitals from small letters, and there are two columns {twice[0]!r}: they need other names.")
    kinds = {each.name: hive_type(each.type, each.name) for each in rows}
    keys = tuple((each.lower(), kinds.get(each, "string")) for each in config.partition_by)
    columns = tuple((each.lower(), kinds[each]) for each in rows.names if each not in config.partition_by)
    properties = spark_properties(rows, config.partition_by)

    def one(named: str, realtime: bool, optimized: bool) -> Definition:
        return Definition(database, named.lower(), location, columns, keys, properties, realtime, optimized)

    if config.type == MERGE_ON_READ:
        return [one(f"{name}_ro", False, True), one(f"{name}_rt", True, False), one(name, True, False)]
    return [one(name, False, False)]


def hive_type(kind: Any, at: str) -> str:
    """The type by which Hive reads what lies in base files; times as numbers, as Hudi's own sync has them."""
    if found := _PLAIN.get(kind):
        return found
    if _of.is_timestamp(kind):
        return "bigint"  # Hive before 4 fails on others
    if _of.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if _of.is_struct(kind):
        fields = (kind.field(i) for i in range(kind.num_fields))
        return f"struct<{','.join(f'{each.name.lower()}:{hive_type(each.type, at)}' for each in fields)}>"
    if _of.is_list(kind):
        return f"array<{hive_type(kind.value_type, at)}>"
    if _of.is_map(kind):
        return f"map<{hive_type(kind.key_type, at)},{hive_type(kind.item_type, at)}>"
    raise UsageError(f"the column {at!r} is of the type {scrub(str(kind), 80)}, which Hive does not have.")


def spark_properties(rows: pa.Schema, partition_by: Sequence[str]) -> dict[str, str]:
    """Settings by which Spark knows that Hudi reads the table, and its columns, those of partitions last."""
    ordered = [each for each in rows if each.name not in partition_by] + [rows.field(each) for each in partition_by if each in rows.names]
    try:
        schema = from_arrow_schema(pa.schema(ordered)).json()
    except Exception as e:  # of pyspark
        raise UsageError(f"Spark has no such columns: {scrub(str(e), 200)}.") from e
    parts = [schema[start : start + PART] for start in range(0, len(schema), PART)]
    found = {"spark.sql.sources.provider": "hudi", f"{_SCHEMA}numParts": str(len(parts))}
    found |= {f"{_SCHEMA}part.{i}": part for i, part in enumerate(parts)}
    if partition_by:
        found |= {f"{_SCHEMA}numPartCols": str(len(partition_by))}
        found |= {f"{_SCHEMA}partCol.{i}": each for i, each in enumerate(partition_by)}
    return found


def values(config: TableConfig, path: str) -> tuple[str, ...]:
    """The values of a partition's columns, by its path; RefusedError where it does not have a level for each."""
    levels = path.split("/") if path else []
    if len(levels) != len(config.partition_by):
        raise RefusedError(
            f"the partition {quoted(path, 80)} does not have a directory for each of its columns ({', '.join(config.partition_by)}), and a "
            "metastore cannot have it."
        )
    return tuple(_values(config, levels))


def _values(config: TableConfig, levels: Sequence[str]) -> Iterator[str]:
    for name, level in zip(config.partition_by, levels, strict=True):
        value = level.removeprefix(f"{name}=") if config.hive_style else level
        yield unquote(value) if config.url_encode else value


def parsed(name: str) -> tuple[str, ...]:
    """The values in the name that a metastore gives to a partition."""
    return tuple(unquote(level.partition("=")[2]) for level in name.split("/"))
