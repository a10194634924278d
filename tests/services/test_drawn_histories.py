"""Drawn histories of files, process and Kafka on each kind of store: who lists the directory agrees with a dictionary after each step."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import directory_readers
import quire
from gathering import gather, write
from loading import load, topic
from quire import Ledger
from quire.commit import retire
from quire.read import first_rows
from quire.storage import bare
from services import s3
from services.azurite import connection_string
from services.hdfs import HOME, USER
from services.kafka import Mock, Record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False}
STEPS = st.lists(st.sampled_from(["run", "rewrite", "forget", "compact", "retry", "expire", "killed", "keep"]), min_size=3, max_size=7)
Place = tuple[str, dict[str, Any]]  # a URL, and the options that open it


class Killed(BaseException):
    """The process ends here."""


class Pipeline:
    """A destination and what it holds: `there`, name → the texts of its rows, which are in a `column`."""

    column: ClassVar[str]

    def __init__(self, place: Place, local: Path) -> None:
        self.dest, self.options = place
        self.local, self.source, self.there = local, local / "in", dict[str, list[str]]()

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.dest, storage_options=self.options)

    def listed(self, spark: SparkSession | None = None) -> list[str]:
        """The rows that somebody finds who lists the directory: readers of Parquet's, or Spark."""
        here = Path(self.dest.removeprefix("file://"))
        if not self.dest.startswith("file://"):
            here = self.local / "listed"
            shutil.rmtree(here, ignore_errors=True)
            directory_readers.copied(bare(self.dest, self.options), here)
        seen = directory_readers.values_in_spark(spark, here, self.column) if spark else directory_readers.values(here, self.column)
        return [_text(value) for value in seen]

    def check(self, after: str) -> None:
        wanted = sorted(text for texts in self.there.values() for text in texts)
        assert self.listed() == wanted, f"after {after}"
        if wanted:
            rows = first_rows(bare(self.dest, self.options), 10_000)
            assert sorted(_text(row[self.column]) for row in rows) == wanted, f"after {after}"
        assert self.ledger.verify(spark=HERE["spark"]).ok

    def write(self, name: str, i: int) -> None:
        self.there[name] = [f"{name} at {i}"]
        write(self.source, {name: self.there[name][0].encode()})

    def call(self) -> None:
        gather(self.source, self.dest, transform="raw", format="parquet", on_change="reprocess", dest_options=self.options)

    def forget(self, name: str) -> None:
        self.ledger.forget(self.source / name, **HERE)
        (self.source / name).unlink()

    def retry(self) -> None:
        self.ledger.retry(self.source, **HERE)


class Files(Pipeline):
    """Whole files, each a row."""

    column = "content"


class Process(Pipeline):
    """Lines of files, each a row of a function's."""

    column = "line"

    def write(self, name: str, i: int) -> None:
        self.there[name] = [f"{name} {i} {n}" for n in range(3)]
        write(self.source, {name: "".join(f"{line}\n" for line in self.there[name]).encode()})

    def call(self) -> None:
        quire.process(
            self.source, self.dest, _lines, split="lines", schema="line string", function_version="1", on_change="reprocess",
            dest_options=self.options, **HERE,
        )  # fmt: skip

    def retry(self) -> None:
        self.ledger.retry(self.source, function=_lines, **HERE)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _lines(split: quire.Split, content: bytes) -> Iterator[dict[str, str]]:
    for line in content.decode().splitlines():
        yield {"line": line}


class Kafka(Pipeline):
    """Records of a topic: they are never changed, and none is forgotten alone."""

    column = "value"

    def __init__(self, place: Place, local: Path, cluster: Mock) -> None:
        super().__init__(place, local)
        self.cluster, self.topic = cluster, topic(cluster, 2, [])

    def write(self, name: str, i: int) -> None:
        texts = [f"{name} {i} {n}" for n in range(3)]
        self.cluster.produce(self.topic, [Record(text.encode(), partition=n % 2) for n, text in enumerate(texts)])
        self.there.setdefault(name, []).extend(texts)

    def call(self) -> None:
        load(self.cluster, self.topic, self.dest, dest_options=self.options)

    def forget(self, name: str) -> None:
        self.ledger.checkpoint(spark=HERE["spark"])

    def retry(self) -> None:
        self.ledger.checkpoint(spark=HERE["spark"])


def play(pipeline: Pipeline, steps: list[str], seed: int, monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> None:
    for i, step in enumerate(["run", *steps]):
        n = (seed + i) % 5
        if step in ("run", "rewrite", "killed"):
            pipeline.write(f"f{n if step != 'rewrite' else i % 2}", i)
        if step == "killed":
            with monkeypatch.context() as patch, suppress(Killed):
                patch.setattr(retire, "carry_out", _die)  # between the entry that says which files go, and the first of them
                pipeline.call()
        if step in ("run", "rewrite", "killed"):
            pipeline.call()
        elif step == "forget" and pipeline.there:
            name = sorted(pipeline.there)[n % len(pipeline.there)]
            pipeline.forget(name)
            if not isinstance(pipeline, Kafka):
                del pipeline.there[name]
        elif step == "compact":
            pipeline.ledger.compact(**HERE)
        elif step == "retry":
            pipeline.retry()
        elif step == "expire":
            pipeline.ledger.expire()
        elif step == "keep":
            pipeline.ledger.keep_versions((0, "1 hour", 2)[n % 3])
        pipeline.check(step)
    assert pipeline.listed(spark) == pipeline.listed()


def _die(*_: object) -> None:
    raise Killed


MAKE: dict[str, Callable[[Place, Path, Any], Pipeline]] = {
    "files": lambda place, local, _: Files(place, local),
    "process": lambda place, local, _: Process(place, local),
    "kafka": lambda place, local, request: Kafka(place, local, request.getfixturevalue("kafka_mock")),
}


def _place(kind: str, request: pytest.FixtureRequest, local: Path) -> Place:
    """A new place of a kind."""
    name = uuid.uuid4().hex
    if kind == "disk":
        return f"file://{local}/out", {}
    if kind == "azurite":
        return f"abfs://tests/{name}", {"connection_string": connection_string(request.getfixturevalue("azurite_endpoint"))}
    if kind == "seaweedfs":
        return f"s3://{s3.BUCKET}/{name}", dict(s3.options(request.getfixturevalue("seaweedfs")))
    return f"{request.getfixturevalue('hdfs_cluster').url}{HOME}/{name}", {"user": USER}


LOOSE: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture]}


def _drawn(most: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def of(test: Callable[..., None]) -> Callable[..., None]:
        return settings(max_examples=most, **LOOSE)(given(steps=STEPS, seed=st.integers(0, 4))(test))

    return of


@pytest.mark.parametrize("pipeline", ["process", "kafka"])  # files: in tests/ledger/test_retire.py
@_drawn(8)
def test_after_any_history_whoever_lists_the_directory_agrees(
    pipeline: str, steps: list[str], seed: int, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch, spark: SparkSession,
) -> None:  # fmt: skip
    local = tmp_path_factory.mktemp("history")
    play(MAKE[pipeline](_place("disk", request, local), local, request), steps, seed, monkeypatch, spark)


@pytest.mark.chaos
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("pipeline", ["process", "kafka"])
@_drawn(2_000)
def test_after_very_many_histories_whoever_lists_the_directory_agrees(
    pipeline: str, steps: list[str], seed: int, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch, spark: SparkSession,
) -> None:  # fmt: skip
    local = tmp_path_factory.mktemp("history")
    play(MAKE[pipeline](_place("disk", request, local), local, request), steps, seed, monkeypatch, spark)


@pytest.mark.nightly
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("kind", ["seaweedfs", "azurite", "hdfs"])
@pytest.mark.parametrize("pipeline", list(MAKE))
@_drawn(50)
def test_after_any_history_on_a_service_whoever_lists_the_directory_agrees(
    pipeline: str, kind: str, steps: list[str], seed: int, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch, spark: SparkSession,
) -> None:  # fmt: skip
    local = tmp_path_factory.mktemp("history")
    play(MAKE[pipeline](_place(kind, request, local), local, request), steps, seed, monkeypatch, spark)
