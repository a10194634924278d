"""A table under a name: a view in the catalog of a Spark session."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Protocol

from quire.errors import UsageError, quoted
from quire.spark.runner import LocalRunner

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LONGEST = 128  # characters of a name
_NAME = re.compile(rf"[A-Za-z_][A-Za-z0-9_]{{0,{LONGEST - 1}}}", re.ASCII)


class Readable(Protocol):
    """A table that gives its rows as a frame."""

    def snapshot(self, *, spark: Any = None, read_optimized: bool = False) -> Any:
        """See `Table.snapshot`."""
        ...


def identifier(value: Any, what: str) -> str:
    """A name that SQL takes without quotes; UsageError for another one."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise UsageError(
            f"{what} takes a name of letters, digits and _, at most {LONGEST} of them and no digit first, as 'trips', and not "
            f"{quoted(value, 60)}"
        )
    return value


def create_view(table: Readable, name: str, spark: Any, *, read_optimized: bool) -> DataFrame:
    """See `Table.create_view`."""
    identifier(name, "name")
    if isinstance(spark, LocalRunner):
        raise UsageError("a view lives in a Spark session: pass spark=quire.session(), or leave spark= out.")
    found: DataFrame = table.snapshot(spark=spark, read_optimized=read_optimized)
    found.createOrReplaceTempView(name)
    return found
