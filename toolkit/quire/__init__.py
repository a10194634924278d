"""quire gathers millions of small files into a few large ones, on Spark, from a notebook: each byte exactly once.

    spark = quire.session()
    found = quire.sniff("/data/in")                                         # a quire.Sniffed: what lies there, and which call takes it
    plan = quire.plan("/data/in", "/data/out")                              # a quire.Plan: look before you run
    report = quire.consolidate("/data/in", "/data/out")                     # a quire.Report
    report = quire.consolidate("/data/in", "/data/out", transform="parquet", split_by_schema=True)  # a quire.SplitReport
    report = quire.process("/data/in", "/data/parsed", function)            # def function(split: quire.Split, content: bytes)
    report = quire.load("kafka://host:9092/topic", "/data/events")          # a quire.LoadReport
    decoder = quire.decoder("avro", registry="https://host:8081")           # a function of quire's own, for load, process and retry
    df = quire.read("/data/out")
    spark.dataSource.register(quire.DataSource)                             # format("quire") in a session that quire has not started
    ledger = quire.Ledger("/data/out")
    status = quire.status("/data/out")                                      # a quire.Status: is it well, and what to do
    quire.recover("/data/out")                                              # what any job does first
    table = quire.Table.create("/data/trips", key="id", ordering="at")      # a table that takes updates; then quire.Table("/data/trips")
    report = table.upsert(df)                                               # a quire.TableReport
    report = table.compact()                                                # of a merge-on-read table: a quire.CompactionReport
    report = quire.emit(table, "kafka://host:9092/topic")                   # what commits change, as records: a quire.EmitReport
    report = table.cluster(sort="city")                                     # fewer, larger, sorted files: a quire.ClusterReport
    report = table.maintain(every="10 min")                                 # what is due of these: a quire.MaintenanceReport
    report = ledger.maintain(time_limit="10 min")                           # the same of any other destination: a quire.UpkeepReport
    report = table.archive(keep=100)                                        # shortens the timeline: a quire.ArchiveReport
    report = table.restore(instant)                                         # takes later commits back: a quire.RestoreReport
    report = table.clean(keep_for="7 days")                                 # deletes superseded slices: a quire.CleanReport
    report = table.sync_metastore("thrift://host:9083")                     # gives it a name in Hive's: a quire.MetastoreReport

    quire.consolidate(source, dest, spark=quire.LocalRunner())              # without Spark
    quire.consolidate(source, dest, progress=lambda event: print(event))    # each event is a quire.ProgressEvent
    quire.consolidate(source, dest, storage_options={"account_key": quire.secret("AZURE_KEY")})
    quire.install_on(spark)                                                 # for functions of your own that import quire
    quire.populate("/data/in", files=10_000)                                # small files to try things on

Errors are `quire.QuireError` and its children.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from quire.errors import (
    AllQuarantined,
    DataLossError,
    FormatError,
    NotFoundError,
    QuireError,
    RefusedError,
    StorageError,
    TooManyQuarantined,
    TopicsFailed,
    TransientError,
    UsageError,
)  # fmt: skip
from quire.interrupts import interruptible as _interruptible
from quire.packaging import warn_of_another as _warn_of_another

if TYPE_CHECKING:
    from quire import committers, skew
    from quire.consolidate import Plan, consolidate, plan
    from quire.engine.by_schema import SplitReport
    from quire.engine.by_topic import TopicsReport
    from quire.engine.report import EventCounts, Gap, LoadReport, Report
    from quire.ledger import Ledger
    from quire.ledger.maintaining import UpkeepReport
    from quire.ledger.status import Status, status
    from quire.load import load
    from quire.process import process
    from quire.progress import ProgressEvent
    from quire.read import read
    from quire.read.source import DataSource
    from quire.recover import recover
    from quire.samples.populate import populate
    from quire.sniff import Sniffed, sniff
    from quire.sources.decoders import decoder
    from quire.sources.splits import FileInfo, QuarantineError, Split
    from quire.spark.runner import LocalRunner
    from quire.spark.session import session
    from quire.spark.shipping import install_on
    from quire.storage.profiles import profile
    from quire.storage.secret import secret
    from quire.table.cluster import ClusterReport
    from quire.table.compacting import CompactionReport
    from quire.table.doctor import TableHealth
    from quire.table.emit import EmitReport, emit
    from quire.table.history import RecordHistory
    from quire.table.hive.sync import MetastoreReport
    from quire.table.maintaining import MaintenanceReport
    from quire.table.restoring import RestoreReport
    from quire.table.stats import TableStats
    from quire.table.table import Table
    from quire.table.upkeep import ArchiveReport, CleanReport
    from quire.table.writing import TableReport

# Where the names above are, each imported when it is first asked for: a task on an executor unpickles functions of a few modules,
# and a shell asks for one command, but both import this package.
_PACKAGES = ("committers", "skew")
_HOMES = {
    name: module
    for module, names in {
        "quire.consolidate": ("Plan", "consolidate", "plan"),
        "quire.engine.by_schema": ("SplitReport",),
        "quire.engine.by_topic": ("TopicsReport",),
        "quire.engine.report": ("EventCounts", "Gap", "LoadReport", "Report"),
        "quire.ledger": ("Ledger",),
        "quire.ledger.maintaining": ("UpkeepReport",),
        "quire.ledger.status": ("Status", "status"),
        "quire.load": ("load",),
        "quire.process": ("process",),
        "quire.progress": ("ProgressEvent",),
        "quire.read": ("read",),
        "quire.read.source": ("DataSource",),
        "quire.recover": ("recover",),
        "quire.samples.populate": ("populate",),
        "quire.sources.decoders": ("decoder",),
        "quire.sources.splits": ("FileInfo", "QuarantineError", "Split"),
        "quire.sniff": ("Sniffed", "sniff"),
        "quire.spark.runner": ("LocalRunner",),
        "quire.spark.session": ("session",),
        "quire.spark.shipping": ("install_on",),
        "quire.storage.profiles": ("profile",),
        "quire.storage.secret": ("secret",),
        "quire.table.cluster": ("ClusterReport",),
        "quire.table.compacting": ("CompactionReport",),
        "quire.table.doctor": ("TableHealth",),
        "quire.table.emit": ("EmitReport", "emit"),
        "quire.table.history": ("RecordHistory",),
        "quire.table.hive.sync": ("MetastoreReport",),
        "quire.table.restoring": ("RestoreReport",),
        "quire.table.maintaining": ("MaintenanceReport",),
        "quire.table.upkeep": ("ArchiveReport", "CleanReport"),
        "quire.table.stats": ("TableStats",),
        "quire.table.table": ("Table",),
        "quire.table.writing": ("TableReport",),
    }.items()
    for name in names
}


_import = _interruptible(importlib.import_module)  # a Ctrl-C that meets it is one line, as in the call that it is for


class _Lazy(ModuleType):
    """The kind of module that this package is: six functions are called like the modules that hold them."""

    def __getattr__(self, name: str) -> Any:
        if name in _PACKAGES:
            return _import(f"quire.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module 'quire' has no attribute {name!r}")
        found = getattr(_import(_HOMES[name]), name)
        setattr(self, name, found)
        return found

    def __setattr__(self, name: str, value: object) -> None:
        # Python sets each module that it imports as an attribute of its package: `quire.load` stays the function.
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*vars(self), *__all__})

    def __reduce__(self) -> tuple[Any, ...]:
        return importlib.import_module, ("quire",)  # picklers know modules by their exact class; functions of users' name this one


sys.modules[__name__].__class__ = _Lazy

__version__ = "0.1.0"

_warn_of_another()

__all__ = [
    "AllQuarantined",
    "ArchiveReport",
    "CleanReport",
    "ClusterReport",
    "CompactionReport",
    "DataLossError",
    "DataSource",
    "EmitReport",
    "EventCounts",
    "FileInfo",
    "FormatError",
    "Gap",
    "Ledger",
    "LoadReport",
    "LocalRunner",
    "MaintenanceReport",
    "MetastoreReport",
    "NotFoundError",
    "Plan",
    "ProgressEvent",
    "QuarantineError",
    "QuireError",
    "RecordHistory",
    "RefusedError",
    "Report",
    "RestoreReport",
    "Sniffed",
    "Split",
    "SplitReport",
    "Status",
    "StorageError",
    "Table",
    "TableHealth",
    "TableReport",
    "TableStats",
    "TooManyQuarantined",
    "TopicsFailed",
    "TopicsReport",
    "TransientError",
    "UpkeepReport",
    "UsageError",
    "__version__",
    "committers",
    "consolidate",
    "decoder",
    "emit",
    "install_on",
    "load",
    "plan",
    "populate",
    "process",
    "profile",
    "read",
    "recover",
    "secret",
    "session",
    "skew",
    "sniff",
    "status",
]  # fmt: skip
