"""What the tests of loading share: topics of a mock cluster, calls without Spark, and what lies in the files afterwards."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quire
from gathering import MANY
from quire import LoadReport
from quire.commit import protocol
from services.kafka import Kafka, Record
from services.kafka_witness import Account, account, look, parquet

_numbers = itertools.count(1)


def load(cluster: Kafka, topics: str, dest: Any, transform: Any = None, **settings: Any) -> LoadReport:
    """`quire.load`, in this process and without bars; a few bad records may be all that there is."""
    settings = {
        "max_quarantined": MANY,
        "spark": quire.LocalRunner(),
        "progress": False,
        "source_options": dict(cluster.settings),
        **settings,
    }
    return quire.load(f"kafka://{cluster.address}/{topics}", dest, transform, **settings)


def topic(cluster: Any, partitions: int = 1, records: Iterable[Record | bytes | None] = ()) -> str:
    """A new topic with these records."""
    name = f"t{next(_numbers)}"
    cluster.create(name, partitions)
    cluster.produce(name, records)
    return name


def dead(cluster: Kafka, topics: str, dest: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A load that has died before its commit; the job that it left open."""

    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(protocol, "commit", dies)
        with pytest.raises(KeyboardInterrupt):
            load(cluster, topics, dest)
    (job,) = quire.Ledger(dest).summary().open_jobs
    return str(job)


def numbered(n: int, partitions: int = 1, size: int = 0, first: int = 0) -> list[Record]:
    """Records that differ, spread over the partitions one after the other."""
    return [Record(b"v%d" % i + b"." * size, b"k%d" % (i % 10), partition=i % partitions) for i in range(first, first + n)]


def exact(cluster: Kafka, dest: Path, *topics: str, may: Any = None) -> Account:
    """What the topics hold, against what the files do that the ledger counts."""
    names = quire.Ledger(dest).inspect.files()["data_file"]
    return account(look(cluster, *topics), parquet(dest, names), may)


def rows(dest: Path) -> pa.Table:
    """All that the ledger's files hold."""
    return pa.concat_tables([pq.ParquetFile(dest / name).read() for name in quire.Ledger(dest).inspect.files()["data_file"]])


def files(dest: Path) -> list[Path]:
    """The data files that a plain reader of the directory sees."""
    return sorted(p for p in dest.rglob("part-*") if "_quire" not in p.parts)
