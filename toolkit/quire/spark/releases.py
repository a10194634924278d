"""Spark's releases, from 3.5 on: which one this is, and what each does in a way of its own. No other room asks for the release.

Whatever a session or a frame can do by itself is asked of it, as vendors bring parts of Spark 4 into their 3.5; the number decides where
Spark 3.5 has the name of a call, and refuses it.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from quire.errors import UsageError, scrub

if TYPE_CHECKING:
    import pyarrow as pa  # below, it is imported where it is used: a session starts without it
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

OLDEST = (3, 5)
JAVAS = {(3, 5): 17, (4, 0): 21, (4, 1): 21}  # the newest Java of each; later ones run on any newer one

# What Spark 3.5 has no format("quire") for, and the call that does it there: (module of pyspark, class, call, advice).
_DOORS = (
    ("readwriter", "DataFrameReader", "spark.read", "quire.read(dest) gives the same rows"),
    (
        "readwriter", "DataFrameWriter", "df.write",
        "quire.Table.create(url, key=…).insert(df) takes its rows, and quire.Ledger(dest).claim(source) commits what a job of yours writes",
    ),
    (
        "streaming.readwriter", "DataStreamReader", "spark.readStream",
        "quire.read(dest) gives the rows of now, and quire.Table(url).changes() those that commits of a table have brought",
    ),
    (
        "streaming.readwriter", "DataStreamWriter", "df.writeStream",
        "foreachBatch with quire.Table(url).upsert(batch) takes the rows of a stream, each once by its key",
    ),
)  # fmt: skip


def release() -> tuple[int, int]:
    """The release of the pyspark that is imported here: (4, 3) of 4.3.0."""
    import pyspark

    found = re.match(r"(\d+)\.(\d+)", pyspark.__version__)
    return (int(found[1]), int(found[2])) if found else OLDEST


def check() -> None:
    """Raise UsageError for a Spark that is too old, and for one that this Python is too new for."""
    import pyspark

    here, python = f"Spark {scrub(pyspark.__version__)}", f"{sys.version_info[0]}.{sys.version_info[1]}"
    if release() < OLDEST:
        raise UsageError(
            f"this is {here}, and quire needs 3.5 or newer: pip install 'pyspark>=3.5', or choose a newer runtime of your platform."
        )
    # The standard library has it up to Python 3.11; platforms that run this Spark on a newer Python bring it.
    if importlib.util.find_spec("distutils") is None and release() < (4, 0):
        raise UsageError(
            f"this is {here} on Python {python}, and it runs on 3.11 and older: use Python 3.11, or install a Spark that runs on "
            f"Python {python}: pip install 'pyspark>=4'."
        )


# ------------------------------------------------------------------------------------------------------------------- sending code
def send(spark: SparkSession, archive: str) -> None:
    """Put an archive of modules in front of all others on the executors of a session; before Spark 4 on those of its context."""
    context = getattr(spark, "_sc", None)
    if context is not None and release() < (4, 0):
        context.addPyFile(archive)
    else:
        spark.addArtifacts(archive, pyfile=True)


def sending(path: str) -> str:
    """The user's own call for it, as errors name it."""
    return f"spark.addArtifacts({path!r}, pyfile=True)" if release() >= (4, 0) else f"spark.sparkContext.addPyFile({path!r})"


# -------------------------------------------------------------------------------------------------------------------------- Arrow
def is_frame(found: Any) -> bool:
    """Whether it is a DataFrame of Spark's."""
    return hasattr(type(found), "mapInArrow")


def to_arrow(frame: DataFrame) -> pa.Table:
    """All rows of a frame, here."""
    if hasattr(type(frame), "toArrow"):
        return frame.toArrow()
    import pyarrow as pa

    schema, old = to_arrow_schema(frame.schema), cast("Any", frame)
    if hasattr(type(frame), "_collect_as_arrow"):
        batches = old._collect_as_arrow()
        return pa.Table.from_batches(batches).cast(schema) if batches else schema.empty_table()
    client = old.sparkSession.client  # over Spark Connect, whose frames have no public call for it
    return client.to_table(vars(old)["_plan"].to_proto(client))[0].cast(schema)


def from_arrow(spark: SparkSession, table: pa.Table) -> DataFrame:
    """A frame of these rows; before Spark 4 for as many as a list takes."""
    if release() >= (4, 0):
        return spark.createDataFrame(table)
    rows = [tuple(row.values()) for row in table.to_pylist()]
    return spark.createDataFrame(rows, from_arrow_schema(table.schema))


def from_arrow_schema(schema: pa.Schema) -> StructType:
    """Arrow's columns as Spark's; timestamps without a time zone stay such. Raises pyspark's error for a type that Spark does not have."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import from_arrow_schema as of_pyspark

    if release() < (4, 0):
        schema = pa.schema([field.with_type(_plain(field.type)) for field in schema])
    return of_pyspark(schema, prefer_timestamp_ntz=True)


def to_arrow_schema(schema: StructType) -> pa.Schema:
    """Spark's columns as Arrow's, with timestamps in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema as of_pyspark

    # Since Spark 4.2 it wants to be told; before, it is UTC.
    zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in inspect.signature(of_pyspark).parameters else {}
    return of_pyspark(schema, **zone)


def _plain(kind: Any) -> Any:
    """A type of Arrow's for which Spark 3.5 knows only another spelling."""
    import pyarrow as pa

    of = pa.types
    if of.is_fixed_size_binary(kind):
        return pa.binary()
    if of.is_list(kind) or of.is_large_list(kind) or of.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    if of.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind])
    return pa.map_(_plain(kind.key_type), kind.item_field.with_type(_plain(kind.item_type))) if of.is_map(kind) else kind


# ----------------------------------------------------------------------------------------------------------------------- settings
def settings(spark: SparkSession) -> dict[str, str]:
    """All that was set in a session."""
    if hasattr(type(spark.conf), "getAll"):
        return dict(spark.conf.getAll)
    return {row["key"]: row["value"] for row in spark.sql("SET").collect()}


# ---------------------------------------------------------------------------------------------------------------- format("quire")
def lock_doors(spark: SparkSession) -> None:
    """Let `format("quire")` be refused with advice where Spark has no Python data sources: it would not find the format, and say so."""
    home = "pyspark.sql.connect" if ".connect." in type(spark).__module__ else "pyspark.sql"
    for module, name, call, advice in _DOORS:
        kind = getattr(importlib.import_module(f"{home}.{module}"), name)
        if not hasattr(kind.format, "__wrapped__"):
            kind.format = _locked(kind.format, call, advice)


def _locked(format: Callable[..., Any], call: str, advice: str) -> Callable[..., Any]:
    @functools.wraps(format)
    def named(self: Any, source: str) -> Any:
        if isinstance(source, str) and source.lower() == "quire":
            raise UsageError(f"{call}.format('quire') {_missing()}: {advice}.")
        return format(self, source)

    return named


def no_sources() -> UsageError:
    """The error where pyspark has no Python data sources."""
    advice = "quire.read(dest) gives the rows of a destination, and quire.Table(url) takes those of a frame"
    return UsageError(f"quire.DataSource, which is format('quire'), {_missing()}: {advice}.")


def _missing() -> str:
    import pyspark

    return f"needs Spark 4, and this is Spark {scrub(pyspark.__version__)}"
