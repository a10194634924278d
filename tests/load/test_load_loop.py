"""A loop of loads: its runs do not become slower, and it goes on from what the store holds, whatever others do there meanwhile."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quire
from loading import exact, load, numbered, topic
from quire.commit import log
from quire.commit.entries import Pin
from quire.commit.held import Held
from quire.commit.log import Log
from quire.coverage import segments
from quire.storage import connect, normalise
from services.kafka import Mock, mock


@pytest.fixture(scope="module")
def kafka() -> Iterator[Mock]:
    with mock() as cluster:
        yield cluster


class Runs:
    """The runs of a loop: more records at the beginning of each, and then what a test does in it."""

    def __init__(self, kafka: Mock, name: str, partitions: int, **then: Any) -> None:
        self.kafka, self.name, self.partitions, self.then, self.number = kafka, name, partitions, then, 0
        self.last: tuple[str, float] = ("", 0)

    def __call__(self, step: Any) -> None:
        last, self.last = self.last, (step.phase, step.done)
        if self.last == ("listing", 0) != last:
            self.number += 1
            self.kafka.produce(self.name, numbered(4, self.partitions, first=4 * self.number))
            if act := self.then.get(f"in_{self.number}"):
                act()


def test_a_late_run_reads_no_more_of_the_store_than_an_early_one(kafka: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = topic(kafka, 2, numbered(4, 2))
    runs, entries, rows = Runs(kafka, name, 2), dict[int, int](), dict[int, int]()

    def counted(found: dict[int, int], whole: Any) -> Any:
        def read(*args: Any, **more: Any) -> Any:
            found[runs.number] = found.get(runs.number, 0) + 1
            return whole(*args, **more)

        return read

    monkeypatch.setattr(log.Log, "_get", counted(entries, log.Log._get))
    monkeypatch.setattr(segments, "read", counted(rows, segments.read))
    load(kafka, name, tmp_path / "out", every="1 ms", max_runs=14, progress=runs)
    assert runs.number == 14
    assert max(entries[n] for n in (11, 12, 13)) <= min(entries[n] for n in (3, 4, 5))
    assert max(rows[n] for n in (11, 12, 13)) <= min(rows[n] for n in (3, 4, 5))
    load(kafka, name, tmp_path / "out")
    assert exact(kafka, tmp_path / "out", name).exact


def test_a_loop_goes_on_while_others_compact_forget_checkpoint_expire_and_load(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 2, numbered(4, 2))
    spark, ledger = quire.LocalRunner(), lambda: quire.Ledger(tmp_path / "out")
    runs = Runs(
        kafka, name, 2,
        in_4=lambda: ledger().compact(spark=spark, progress=False), in_5=lambda: ledger().checkpoint(spark=spark),
        in_7=lambda: load(kafka, name, tmp_path / "out"), in_8=lambda: ledger().checkpoint(spark=spark),
        in_9=lambda: ledger().expire(), in_10=lambda: ledger().compact(spark=spark, progress=False),
        in_11=lambda: ledger().forget(f"kafka://{ledger().inspect.offsets()['cluster'][0]}/{name}/1", spark=spark, progress=False),
    )  # fmt: skip
    load(kafka, name, tmp_path / "out", every="1 ms", max_runs=13, progress=runs, consumer_group="watched")
    assert runs.number > 13, "the run that another load disturbed has planned twice"
    report = load(kafka, name, tmp_path / "out", consumer_group="watched")
    assert report.records == 4, "what came after the last run had begun; what was forgotten, the loop has loaded"
    assert exact(kafka, tmp_path / "out", name).exact
    assert ledger().inspect.lag(f"kafka://{kafka.address}/{name}")["lag"].sum() == 0
    assert report.version == ledger().version


def test_a_newer_checkpoint_takes_the_place_of_what_is_held(kafka: Mock, tmp_path: Path) -> None:
    load(kafka, topic(kafka, 1, numbered(4)), tmp_path / "out")
    store, held = connect(normalise(tmp_path / "out"), None), Held()
    before = held.read(store)
    quire.Ledger(tmp_path / "out").checkpoint(spark=quire.LocalRunner())
    assert held.read(store).merged == before.tip
    assert held.read(store) is not before


def test_a_destination_that_is_deleted_between_two_runs_is_begun_anew(tmp_path: Path) -> None:
    store, held = connect(normalise(tmp_path / "out"), None), Held()
    for n in range(3):
        log_ = held.read(store)
        log_.append(lambda found, n=n: None if found.tip > n else Pin(id=f"first-{n}", version=0, time=""))
    assert held.read(store).tip == 3
    shutil.rmtree(tmp_path / "out")
    assert held.read(store).tip == 0
    for n in range(4):  # others have made it again, and it is longer than what was read
        Log(store).append(lambda found, n=n: None if found.tip > n else Pin(id=f"second-{n}", version=0, time=""))
    assert set(held.read(store).pins()) == {f"second-{n}" for n in range(4)}
    assert held.read(store) is held.read(store), "what has not changed is not read again"
