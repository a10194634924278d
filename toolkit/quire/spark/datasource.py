"""The parts of pyspark for Python data sources: some of them since Spark 4.0, all since 4.2. Before, the import says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quire.spark.releases import no_sources

try:
    from pyspark.sql import datasource
except ImportError:
    raise no_sources() from None

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxFiles, SupportsTriggerAvailableNow
else:
    try:  # since Spark 4.2
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxFiles, SupportsTriggerAvailableNow
    except ImportError:
        ReadAllAvailable = ReadMaxBytes = ReadMaxFiles = SupportsTriggerAvailableNow = object

__all__ = [
    "ArrowWriter", "ReadAllAvailable", "ReadMaxBytes", "ReadMaxFiles", "StreamArrowWriter", "SupportsTriggerAvailableNow", "datasource",
]  # fmt: skip

ArrowWriter: Any = getattr(datasource, "DataSourceArrowWriter", None)
StreamArrowWriter: Any = getattr(datasource, "DataSourceStreamArrowWriter", None)  # since 4.1
