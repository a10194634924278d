"""What a user's own job has written where no store renames: published by the store's own copy, long objects in parts."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quire
from gathering import documents, write
from quire.engine import driver
from quire.engine import request as options
from quire.progress import Progress
from quire.storage import connect
from quire.storage.s3 import store as of_s3
from services import s3
from services.azurite import connection_string

MiB = 1 << 20


@pytest.fixture(params=["azurite", "seaweedfs"])
def place(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """A new and empty place, with its options."""
    if request.param == "azurite":
        return f"abfs://tests/{uuid.uuid4().hex}", {"connection_string": connection_string(request.getfixturevalue("azurite_endpoint"))}
    return f"s3://{s3.BUCKET}/{uuid.uuid4().hex}", s3.options(request.getfixturevalue("seaweedfs"))


@pytest.mark.nth(2)
def test_what_a_claim_has_written_is_published(place: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    url, given = place
    source = write(tmp_path / "in", documents(5))
    ledger = quire.Ledger(f"{url}/claimed", given, create=True)
    with ledger.claim(source, progress=False, spark=quire.LocalRunner()) as c:
        assert c.path.startswith("s3a://" if url.startswith("s3") else "abfs://")
        rows = pa.table({"path": c.splits.column("path")})
        out = pa.BufferOutputStream()
        pq.write_table(rows, out)
        folder = connect(c.path.replace("s3a://", "s3://"), given)
        folder.put("day=1/part-0.c000.snappy.parquet", out.getvalue().to_pybytes())
        folder.put("_SUCCESS", b"")
    store = connect(f"{url}/claimed", given)
    (name,) = [e.name for e in store.walk() if not e.name.startswith("_quire/")]
    assert name == ledger.inspect.files()["data_file"][0]
    assert name.startswith("day=1/part-")
    assert pq.read_table(pa.BufferReader(store.get(name))).num_rows == 5
    assert [e.name for e in store.walk("_quire/jobs")] == []
    assert ledger.inspect.unprocessed(source, "arrow", spark=quire.LocalRunner()).num_rows == 0
    assert ledger.verify(spark=quire.LocalRunner()).ok
    assert ledger.forget(source, spark=quire.LocalRunner(), progress=False).files_out == 5
    assert [e.name for e in store.walk() if not e.name.startswith("_quire/")] == []
    assert ledger.expire().data_files == 0


@pytest.mark.nth(2)
def test_a_shuffle_reads_what_its_tasks_have_left_in_the_store(place: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    """Its output waits as any output of quire's, as an upload; nothing of what its tasks have made stays."""
    url, given = place
    source = write(tmp_path / "in", documents(9))
    plain = options.build(source, url, transform="raw", format="parquet", planner="directory", dest_options=given)

    def in_order(rows: pa.Table) -> pa.Table:
        return rows.sort_by("path")

    report = driver.gather(options.reducing(plain, in_order), quire.LocalRunner(), Progress(False))
    store = connect(url, given)
    (name,) = [e.name for e in store.walk() if not e.name.startswith("_quire/")]
    found = pq.read_table(pa.BufferReader(store.get(name))).column("path").to_pylist()
    assert found == sorted(found)
    assert len(found) == report.files == 9
    assert [e.name for e in store.walk("_quire/jobs")] == []
    assert store.pieces_expire or list(store.pending()) == []


def test_what_is_too_long_for_one_request_is_copied_in_parts(seaweedfs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_s3, "WHOLE", 6 * MiB)
    monkeypatch.setattr(of_s3, "SHARE", 5 * MiB)
    store = s3.SeaweedStore(f"s3://{s3.BUCKET}/{uuid.uuid4().hex}", s3.options(seaweedfs))
    data = os.urandom(12 * MiB)
    store.put("a", data)
    there = store.stat("a")
    assert there is not None
    for _ in range(2):
        assert store.copy("a", "b", there.version)
    assert store.get("b") == data
    assert not store.copy("a", "c", "another")
    assert list(store.pending()) == []
    assert sorted(e.name for e in store.walk()) == ["a", "b"]
