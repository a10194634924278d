"""Committers for users' own Spark jobs: which one for this store, and whether the session has it.

advice = quire.committers.advise("s3a://lake/events", needs={"append", "speculation"}, spark=spark)
advice.apply(SparkSession.builder); print(advice.defaults)
quire.committers.advise.check(spark, url="s3a://lake/events", format="parquet")
quire.committers.inspect_success("s3a://lake/events"); quire.committers.sweep("s3a://lake/events")
"""

from __future__ import annotations

from quire.committers.advice import Advice, Alternative, Refusal, advise
from quire.committers.checking import Check, Finding
from quire.committers.success import Inspection, inspect_success
from quire.committers.sweeping import Swept, sweep

__all__ = ["Advice", "Alternative", "Check", "Finding", "Inspection", "Refusal", "Swept", "advise", "inspect_success", "sweep"]
