"""Exports on services: what their readers would find is what the ledger has, after each verb."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from exported import OPTIONS, offered

from gathering import gather, write
from quire import Ledger, LocalRunner
from quire.storage import bare
from services import s3
from services.azurite import connection_string
from services.hdfs import HOME, USER

LOCAL = LocalRunner()


@pytest.fixture(
    params=[
        pytest.param("seaweedfs", marks=pytest.mark.services),
        *(pytest.param(kind, marks=pytest.mark.nightly) for kind in ("hdfs", "azurite")),
    ]
)
def place(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """The URL of a new place on a service, and the options that open it."""
    name = uuid.uuid4().hex
    if request.param == "azurite":
        return f"abfs://tests/{name}", {"connection_string": connection_string(request.getfixturevalue("azurite_endpoint"))}
    if request.param == "seaweedfs":
        return f"s3://{s3.BUCKET}/{name}", dict(s3.options(request.getfixturevalue("seaweedfs")))
    return f"{request.getfixturevalue('hdfs_cluster').url}{HOME}/{name}", {"user": USER}


def test_readers_of_exports_find_what_the_ledger_has_after_each_verb(place: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    dest, options = place
    source, how = tmp_path / "in", {"transform": "raw", "format": "parquet", "layout": "directories", "dest_options": options}
    gather(write(source, {f"k={i % 2}/f{i}": b"%d" % i for i in range(4)}), dest, **how)
    ledger = Ledger(dest, storage_options=options)

    def agree() -> None:
        store = bare(dest, options)
        there = {entry.name: store.get(entry.name) for entry in store.walk() if not entry.name.startswith("_quire/")}
        names = {each for each in there if each.endswith(".parquet") and not each.startswith("_")}
        for name in OPTIONS:
            found = offered(name, there)
            assert found.keys() == names, name
            assert all(size in (None, len(there[name])) for name, size in found.items())

    for name, said in OPTIONS.items():
        ledger.export(name, **said)
    agree()
    gather(write(source, {"k=0/f0": b"new", "k=1/g": b"g"}), dest, on_change="reprocess", **how)
    agree()
    ledger.compact(spark=LOCAL, progress=False)
    agree()
    ledger.forget(source / "k=1/g", spark=LOCAL, progress=False)
    agree()
    gather(write(source, {"k=1/h": b"h"}), dest, **how)
    agree()
    for name in OPTIONS:
        ledger.drop_export(name)
    assert not [entry.name for entry in bare(dest, options).walk() if entry.name.startswith(("_delta_log", "_iceberg", "_symlinks"))]
