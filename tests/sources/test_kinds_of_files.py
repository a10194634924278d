"""Files of another kind than a transform expects are quarantined with the kind's name, however long they are; `raw` keeps their bytes."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import tarfile
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

import quire
from gathering import gather, not_taken, write
from quire.sources import magic


def _tar() -> bytes:
    with io.BytesIO() as held, tarfile.open(fileobj=held, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a.txt"))
        archive.close()
        return held.getvalue()


def _zip() -> bytes:
    with io.BytesIO() as held, zipfile.ZipFile(held, "w") as archive:
        archive.writestr("a.txt", "x")
        archive.close()
        return held.getvalue()


def _parquet(rows: int) -> bytes:
    with io.BytesIO() as held:
        pq.write_table(pa.table({"a": list(range(rows))}), held)
        return held.getvalue()


KINDS = {
    "gzip": gzip.compress(b"line\n"),
    "bzip2": bz2.compress(b"line\n"),
    "xz": lzma.compress(b"line\n"),
    "zstd": zstandard.compress(b"line\n"),
    "lz4": pa.compress(b"line\n", codec="lz4", asbytes=True),
    "zip": _zip(),
    "tar": _tar(),
    "Parquet": _parquet(3),
}


@pytest.mark.parametrize("transform", ["lines", "xml", "json"])
def test_files_of_another_kind_are_quarantined_by_name_and_stay_at_their_source(tmp_path: Path, transform: str) -> None:
    good = {"lines": b"one\n", "xml": b"<a/>", "json": b'{"a": 1}'}[transform]
    source = write(tmp_path / "in", {"good.txt": good, **{f"{kind}.log": content for kind, content in KINDS.items()}})
    report = gather(source, tmp_path / "out", transform=transform, decompress="none")
    assert (report.files, not_taken(report)) == (1, len(KINDS))
    reasons = {Path(path).stem: reason for path, reason in report.quarantined}
    assert all(f"of the kind {kind}," in reasons[kind] for kind in KINDS), reasons
    purged = quire.Ledger(tmp_path / "out").purge_sources(source, dry_run=False, min_age=0, spark=quire.LocalRunner())
    assert purged.files == 1
    assert len(list(source.iterdir())) == len(KINDS)


def test_no_range_of_a_long_file_of_another_kind_is_gathered(tmp_path: Path) -> None:
    lines = b"".join(b"%d\n" % i for i in range(40_000))
    source = write(tmp_path / "in", {"long.gz": gzip.compress(os.urandom(200_000)), "long.txt": lines})
    report = gather(source, tmp_path / "out", target_size="40 KB", compression="none", decompress="none")
    assert report.files == 1
    assert b"".join(sorted((p.read_bytes() for p in (tmp_path / "out").glob("*.txt")), key=lambda b: int(b.split()[0]))) == lines
    assert all("of the kind gzip," in reason for _, reason in report.quarantined)


def test_raw_keeps_the_bytes_of_any_kind(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {f"{kind}.bin": content for kind, content in KINDS.items()})
    report = gather(source, tmp_path / "out", transform="raw", format="parquet")
    assert (report.files, not_taken(report)) == (len(KINDS), 0)


@pytest.mark.parametrize("text", [b"", b"B", b"BZh9 is a name\n", b"PAR1 of 2\n", b"ORCA\n", b"PK\n", "ÿþ".encode(), b"7z\n" * 200])
def test_text_that_begins_alike_is_text(text: bytes) -> None:
    assert not magic.is_other(text)


def test_an_empty_file_of_parquet_is_known_too() -> None:
    assert magic.is_other(_parquet(0))
