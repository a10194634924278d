"""quire gathers millions of small files into a few large ones, on Spark, from a notebook: each byte exactly once.

    spark = quire.session()
    plan = quire.plan("/data/in", "/data/out")                              # a quire.Plan: look before you run
    report = quire.consolidate("/data/in", "/data/out")                     # a quire.Report
    report = quire.process("/data/in", "/data/parsed", function)            # def function(split: quire.Split, content: bytes)
    report = quire.load("kafka://host:9092/topic", "/data/events")          # a quire.LoadReport
    df = quire.read("/data/out")
    ledger = quire.Ledger("/data/out")
    quire.recover("/data/out")                                              # what any job does first
    table = quire.Table.create("/data/trips", key="id", ordering="at")      # a table that takes updates; then quire.Table("/data/trips")
    report = table.upsert(df)                                               # a quire.TableReport

    quire.consolidate(source, dest, spark=quire.LocalRunner())              # without Spark
    quire.consolidate(source, dest, progress=lambda event: print(event))    # each event is a quire.ProgressEvent
    quire.consolidate(source, dest, storage_options={"account_key": quire.secret("AZURE_KEY")})
    quire.install_on(spark)                                                 # for functions of your own that import quire
    quire.populate("/data/in", files=10_000)                                # small files to try things on

Errors are `quire.QuireError` and its children.
"""

from __future__ import annotations

from quire import committers, skew
from quire.consolidate import Plan, consolidate, plan
from quire.engine.report import LoadReport, Report
from quire.errors import (
    AllQuarantined,
    DataLossError,
    FormatError,
    NotFoundError,
    QuireError,
    RefusedError,
    StorageError,
    TooManyQuarantined,
    TransientError,
    UsageError,
)  # fmt: skip
from quire.ledger import Ledger
from quire.load import load
from quire.packaging import warn_of_another as _warn_of_another
from quire.process import process
from quire.progress import ProgressEvent
from quire.read import read
from quire.recover import recover
from quire.samples.populate import populate
from quire.sources.splits import FileInfo, QuarantineError, Split
from quire.spark.runner import LocalRunner
from quire.spark.session import session
from quire.spark.shipping import install_on
from quire.storage.secret import secret
from quire.table.table import Table
from quire.table.writing import TableReport

__version__ = "0.1.0"

_warn_of_another()

__all__ = [
    "AllQuarantined",
    "DataLossError",
    "FileInfo",
    "FormatError",
    "Ledger",
    "LoadReport",
    "LocalRunner",
    "NotFoundError",
    "Plan",
    "ProgressEvent",
    "QuarantineError",
    "QuireError",
    "RefusedError",
    "Report",
    "Split",
    "StorageError",
    "Table",
    "TableReport",
    "TooManyQuarantined",
    "TransientError",
    "UsageError",
    "__version__",
    "committers",
    "consolidate",
    "install_on",
    "load",
    "plan",
    "populate",
    "process",
    "read",
    "recover",
    "secret",
    "session",
    "skew",
]  # fmt: skip
