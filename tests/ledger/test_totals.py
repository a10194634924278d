"""Totals always equal the rows: of topics, where a record that is rejected or forgotten counts once, and a partition is not a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import quire
import sums
from gathering import write
from loading import load, numbered, topic
from services.kafka import Mock

if TYPE_CHECKING:
    import pyarrow as pa

HERE: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False}


@pytest.fixture
def kafka() -> Iterator[Mock]:
    with Mock(1) as made:
        yield made


def told(dest: Path) -> tuple[int | None, int, int, int]:
    """Records, offsets, files and quarantined, which are those of the rows."""
    ledger = quire.Ledger(dest)
    sums.check(ledger._store)
    sums.check_history(ledger)
    found = ledger.summary()
    return found.records, found.bytes_read, found.files, found.quarantined


def test_a_record_counts_once_whether_it_is_rejected_retried_or_forgotten(kafka: Mock, tmp_path: Path) -> None:
    repaired = False

    def fifth(batch: pa.RecordBatch) -> pa.RecordBatch:
        if not repaired and any(int(v[1:]) % 5 == 0 for v in batch.column("value").to_pylist()):
            raise ValueError("bad")
        return batch.drop_columns(["headers"])

    name, dest = topic(kafka, 1, numbered(10)), tmp_path / "out"
    source = {"source": f"kafka://{kafka.address}/{name}", "storage_options": dict(kafka.settings)}
    report = load(kafka, name, dest, fifth, function_version="1")
    sums.check_report(quire.Ledger(dest), report)
    assert told(dest) == (8, 10, 0, 2)
    assert quire.Ledger(dest).retry(function=fifth, max_quarantined=9, **source, **HERE).quarantined == 2
    assert told(dest) == (8, 10, 0, 2)
    repaired = True
    assert quire.Ledger(dest).retry(function=fifth, **source, **HERE).gathered == 2
    assert told(dest) == (10, 10, 0, 0)
    for file in quire.Ledger(dest).inspect.files()["data_file"]:
        quire.Ledger(dest).forget(file=file, **HERE)
    assert told(dest) == (0, 0, 0, 0)
    load(kafka, name, dest, fifth, function_version="1")
    assert told(dest) == (10, 10, 0, 0)


def test_partitions_that_were_known_before_are_counted_by_partition_whatever_their_gaps(kafka: Mock, tmp_path: Path) -> None:
    name, dest = topic(kafka, 2, numbered(40, 2)), tmp_path / "out"
    for end in (5, 10, 15):
        load(kafka, name, dest, until={0: end})
    quire.Ledger(dest).forget(file=list(quire.Ledger(dest).inspect.files()["data_file"])[1], **HERE)
    before = told(dest)
    source, options = f"kafka://{kafka.address}/{name}", dict(kafka.settings)
    done = quire.Ledger(dest).import_offsets(source, {0: 20, 1: 20}, source_options=options, **HERE)
    assert done.known == 1, "the other one was loaded to its end"
    assert done.gathered >= 2
    assert told(dest) == before, "what another loader has done is nothing that was loaded here"
    again = quire.Ledger(dest).import_offsets(source, {0: 20, 1: 20}, source_options=options, **HERE)
    assert (again.known, again.gathered) == (2, 0)


def test_a_file_counts_though_its_first_record_is_quarantined_retried_or_replaced(tmp_path: Path) -> None:
    repaired = False

    def careful(split: quire.Split, content: bytes) -> bytes:
        bad = [line for line in content.splitlines(keepends=True) if line.startswith(b"x") and not repaired]
        for line in bad:
            split.quarantine(line, ValueError("bad"))
        return b"".join(line for line in content.splitlines(keepends=True) if line not in bad)

    def run(**how: Any) -> quire.Report:
        return quire.process(source, dest, careful, split="lines", function_version="1", format="lines", **how, **HERE)

    source, dest = write(tmp_path / "in", {"a": b"x0\n1\n", "b": b"x2\n", "c": b"3\n"}), tmp_path / "out"
    report = run(max_quarantined=9)
    sums.check_report(quire.Ledger(dest), report)
    assert (report.files, report.skipped, len(report.quarantined)) == (3, 0, 2)
    assert told(dest)[2:] == (3, 2)
    assert run().skipped == 3
    quire.Ledger(dest).retry(source, function=careful, max_quarantined=9, **HERE)
    assert told(dest)[2:] == (3, 2), "quarantined once more"
    write(source, {"a": b"x000\n11\n", "b": b"x222\n"})
    run(on_change="reprocess", max_quarantined=9)
    assert told(dest)[2:] == (3, 2), "as quarantined as before, in another version"
    repaired = True
    assert quire.Ledger(dest).retry(source, function=careful, **HERE).gathered == 2
    assert told(dest)[2:] == (3, 0)
    quire.Ledger(dest).checkpoint(spark=HERE["spark"])
    quire.Ledger(dest).forget(source / "a", **HERE)
    assert told(dest)[2:] == (2, 0)


@pytest.mark.nth(2)
@pytest.mark.parametrize("bad", [set(), {5}, {0}, {0, 1, 9}, set(range(10))], ids=str)
@pytest.mark.parametrize("size", ["64 MiB", "300 B"])
def test_a_forgotten_file_counts_once_however_much_of_it_was_quarantined(tmp_path: Path, bad: set[int], size: str) -> None:
    def careful(split: quire.Split, content: bytes) -> list[dict[str, Any]]:
        rows = []
        for line in content.splitlines(keepends=True):
            if int(line) in bad:
                split.quarantine(line, ValueError("bad"))
            else:
                rows.append({"n": int(line)})
        return rows

    source = write(tmp_path / "in", {"a": b"".join(b"%099d\n" % i for i in range(10)), "b": b"77\n"})
    quire.process(source, tmp_path / "out", careful, split="lines", split_size=size, max_quarantined=99, **HERE)
    ledger = quire.Ledger(tmp_path / "out")
    before = ledger.summary()
    done = ledger.forget(source / "a", **HERE)
    assert (done.files_out, done.quarantined_out) == (1, len(bad))
    assert ("quarantined forgotten" in str(done)) == bool(bad)
    sums.check(ledger._store)
    sums.check_history(ledger)
    sums.check_report(ledger, done)
    after = ledger.summary()
    assert (after.files, after.quarantined) == (1, before.quarantined - len(bad))
    assert ledger.inspect.commits()["forgotten"].tolist() == [0, 1]


def test_a_record_that_is_forgotten_alone_is_not_a_file(tmp_path: Path, spark: Any) -> None:
    def careful(split: quire.Split, content: bytes) -> bytes:
        split.quarantine(b"b\n", ValueError("bad"))
        return content.replace(b"b\n", b"")

    source = write(tmp_path / "in", {"x": b"a\nb\nc\n"})
    quire.process(source, tmp_path / "out", careful, split="lines", **HERE)
    ledger = quire.Ledger(tmp_path / "out")
    (row,) = ledger.inspect.quarantined().itertuples()
    done = ledger.forget(where=f"start = {row.start}", spark=spark, progress=False)
    assert (done.files_out, done.quarantined_out) == (0, 1)
    sums.check(ledger._store)
