"""quire gathers millions of small files into a few large ones, on Spark, from a notebook: each byte exactly once.

spark  = quire.session()
report = quire.consolidate("/data/in", "/data/out")
df     = quire.read("/data/out")
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
from quire.packaging import warn_of_another
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

__version__ = "0.1.0"

warn_of_another()

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
