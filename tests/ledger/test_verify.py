"""Damage: `verify` names the data file and the path, and checks the rest all the same; `read` never gives other bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from gathering import documents, gather, refused, write
from quire import Ledger, LocalRunner
from quire.errors import FormatError, QuireError
from quire.ledger import verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALL = [("lines", "lines", c) for c in ("none", "gzip", "zstd")] + [
    ("xml", "lines", "gzip"),
    ("raw", "parquet", "zstd"),
    ("raw", "parquet", "none"),
]


def two_data_files(tmp_path: Path, transform: str, format: str, compression: str) -> tuple[Path, Path, Path]:
    files = {f"{d}/{i}": b"<a>%s%d</a>" % (d.encode() * 50, i) for d in ("one", "two") for i in range(60)}
    source = write(tmp_path / "in", files)
    gather(source, tmp_path / "out", transform=transform, format=format, compression=compression, planner="directory", layout="directories")
    (one,), (two,) = (tmp_path / "out/one").iterdir(), (tmp_path / "out/two").iterdir()
    return source, one, two


@pytest.mark.parametrize(("transform", "format", "compression"), ALL)
def test_a_flipped_byte_is_found_with_its_file_and_the_rest_is_still_checked(
    tmp_path: Path, transform: str, format: str, compression: str
) -> None:
    source, one, _ = two_data_files(tmp_path, transform, format, compression)
    ledger, original = Ledger(tmp_path / "out"), one.read_bytes()
    found = ledger.verify(spark=LocalRunner())
    assert (found.ok, found.data_files, found.files) == (True, 2, 120)
    middle = original.index(b"one" * 50) if compression == "none" else 40
    if format == "parquet":  # the end of a page: what its header says of statistics is read by nobody
        group = pq.read_metadata(one).row_group(0)
        column = next(c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == "content")
        assert column.dictionary_page_offset is None, "the pages hold the content"
        middle = column.data_page_offset + column.total_compressed_size - 30
    for at in (middle, middle + 1):
        one.write_bytes(original[:at] + bytes([original[at] ^ 0x10]) + original[at + 1 :])
        found = ledger.verify(spark=LocalRunner())
        assert not found.ok
        assert {file for file, _, _ in found.damaged} == {f"one/{one.name}"}
        assert all(path.startswith(f"file://{source}/one/") for _, path, _ in found.damaged)
        assert found.data_files == 2
        assert found.files >= 60, "the others were compared"
        assert "DAMAGED" in str(found)
        assert one.name in str(found)
    if compression == "none" and format == "lines":
        assert len(found.damaged) == 1, "only the record that it hit"


@pytest.mark.nth(6)
@pytest.mark.parametrize(("transform", "format", "compression"), ALL)
def test_no_byte_of_damage_makes_verify_itself_fail(tmp_path: Path, transform: str, format: str, compression: str) -> None:
    _, one, _ = two_data_files(tmp_path, transform, format, compression)
    ledger, original = Ledger(tmp_path / "out"), one.read_bytes()
    for at in {*range(0, len(original), max(1, len(original) // 60)), *range(len(original) - 8, len(original))}:
        one.write_bytes(original[:at] + bytes([original[at] ^ 0xFF]) + original[at + 1 :])
        found = ledger.verify(spark=LocalRunner())
        assert {file for file, _, _ in found.damaged} <= {f"one/{one.name}"}
    for length in (0, 1, len(original) // 2, len(original) - 1):
        one.write_bytes(original[:length])
        assert not ledger.verify(spark=LocalRunner()).ok
    one.write_bytes(original + b"more")
    assert not ledger.verify(spark=LocalRunner()).ok, "what nobody wrote"


def test_missing_and_truncated_data_files_are_named(tmp_path: Path, spark: SparkSession) -> None:
    source, one, two = two_data_files(tmp_path, "lines", "lines", "none")
    one.write_bytes(one.read_bytes()[:-10])
    two.unlink()
    found = Ledger(tmp_path / "out").verify(spark=spark)
    assert not found.ok
    whats = {(file, path): what for file, path, what in found.damaged}
    assert whats[f"two/{two.name}", ""] == "the file is gone"
    assert "bytes instead of" in whats[f"one/{one.name}", ""]
    assert any(path.startswith(f"file://{source}/one/") for _, path in whats)
    assert json.loads(json.dumps(found.as_dict()))["ok"] is False
    with refused(QuireError, 3, two.name, "not there"):
        Ledger(tmp_path / "out").read(source / "two/1")


def test_a_damaged_data_file_never_gives_other_bytes_for_a_file(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {**documents(40), "d1/no end": b"no end", "d1/binary": bytes(range(256)) * 20})
    gather(source, tmp_path / "out", transform="raw")
    ledger = Ledger(tmp_path / "out")
    (data,) = (tmp_path / "out").glob("part-*")
    content = data.read_bytes()
    at = ledger.locate(source / "d1/binary")[0].offset or 0
    data.write_bytes(content[: at + 5] + b"\xff" + content[at + 6 :])
    with refused(QuireError, 3, "checksum", "d1/binary", data.name):
        ledger.read(source / "d1/binary")
    assert ledger.read(source / "d1/no end") == b"no end"


@pytest.mark.parametrize("how", ["missing", "empty", "cut", "other"])
def test_a_segment_that_is_missing_or_damaged_is_an_error_and_never_an_empty_ledger(tmp_path: Path, how: str) -> None:
    source = write(tmp_path / "in", {**documents(5, "xml"), "bad.xml": b"<"})
    gather(source, tmp_path / "out", transform="xml")
    (segment,) = (tmp_path / "out/_quire/ledger").iterdir()
    content = segment.read_bytes()
    if how == "missing":
        segment.unlink()
    else:
        segment.write_bytes({"empty": b"", "cut": content[: len(content) // 2], "other": b"PAR1" + b"\0" * 50 + b"PAR1"}[how])
    ledger = Ledger(tmp_path / "out")
    assert ledger.summary().files == 5, "the log still knows"
    word = "is missing" if how == "missing" else "damaged"
    with refused(FormatError, 2, segment.name, word):
        ledger.inspect.quarantined()
    with refused(FormatError, 2, segment.name, word):
        ledger.read(source / "d0/f0000.xml")
    with refused(FormatError, 2, segment.name, word):
        gather(source, tmp_path / "out", transform="xml")
    with pytest.raises(QuireError, match=word):
        ledger.verify(spark=LocalRunner())
    with refused(FormatError, 2, segment.name, word):
        ledger.locate(source / "d0/f0000.xml")


def test_each_row_of_a_checkpoint_is_looked_at_once_however_many_data_files_it_is_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "in", {f"{d}/{i}": b"%d\n" % d for d in range(9) for i in range(3)})
    gather(source, tmp_path / "out", planner="directory", layout="directories")
    ledger = Ledger(tmp_path / "out")
    ledger.checkpoint(spark=LocalRunner())
    looked, real = list[int](), pc.equal

    def equal(column: Any, value: object) -> Any:
        looked.append(len(column))
        return real(column, value)

    monkeypatch.setattr(verify.pc, "equal", equal)
    found = ledger.verify(spark=LocalRunner())
    assert (found.ok, found.data_files, found.files) == (True, 9, 27)
    assert sum(looked) <= 27
