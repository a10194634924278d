"""The files that people have, on stores: a look, a gathering, one wrong record that is read again, a retry, and a second run; archives,
rows in an order, and a destination for each schema."""

from __future__ import annotations

import gzip
import io
import json
import uuid
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import quire
from gathering import tar, zipped
from quire import Ledger
from quire.sources.files import is_shown
from quire.storage import bare
from services import s3
from services.azurite import connection_string
from services.hdfs import HOME, USER

HERE: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False}
ROWS = [{"id": i, "name": f"n{i}", "fare": i / 2} for i in range(6)]
SCHEMA = "id long, name string, fare double"


def content(kind: str, rows: list[dict[str, Any]]) -> bytes:
    sink, table = io.BytesIO(), pa.Table.from_pylist(rows)
    if kind == "csv":
        return "".join(f"{line}\n" for line in ["id,name,fare", *(f"{r['id']},{r['name']},{r['fare']}" for r in rows)]).encode()
    if kind == "jsonl.gz":
        return gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode(), mtime=0)
    if kind == "avro":
        kinds = [("id", "long"), ("name", "string"), ("fare", "double")]
        fastavro.writer(sink, {"type": "record", "name": "r", "fields": [{"name": n, "type": k} for n, k in kinds]}, rows)
    else:
        {"parquet": pq.write_table, "orc": orc.write_table}[kind](table, sink)
    return sink.getvalue()


def place(kind: str, request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """A new place on a service."""
    name = uuid.uuid4().hex
    if kind == "azurite":
        return f"abfs://tests/{name}", {"connection_string": connection_string(request.getfixturevalue("azurite_endpoint"))}
    if kind == "seaweedfs":
        return f"s3://{s3.BUCKET}/{name}", dict(s3.options(request.getfixturevalue("seaweedfs")))
    return f"{request.getfixturevalue('hdfs_cluster').url}{HOME}/{name}", {"user": USER}


@pytest.mark.services
@pytest.mark.parametrize("kind", ["csv", "jsonl.gz", "avro", "parquet", "orc"])
@pytest.mark.parametrize("service", ["azurite", "seaweedfs", "hdfs"])
def test_files_of_each_kind_are_gathered_on_each_store(service: str, kind: str, request: pytest.FixtureRequest) -> None:
    url, options = place(service, request)
    store = bare(f"{url}/in", options)
    for i in range(24):
        store.put(f"d{i % 2}/{i:02}.{kind}", content(kind, [{**row, "id": row["id"] + 10 * i} for row in ROWS]))
    wrong = b"id,name,fare\n1,a,1\n2,b,dear\n" if kind == "csv" else content(kind, ROWS)[:-7]
    store.put(f"wrong.{kind}", wrong)
    found = quire.sniff(f"{url}/in", storage_options=options)
    assert (found.files, found.transform) == (25, kind.partition(".")[0])
    said = {"schema": SCHEMA} if found.transform in ("csv", "jsonl") else {}
    how: dict[str, Any] = {"transform": "auto", "storage_options": options, "max_quarantined": 9, **said, **HERE}
    report = quire.consolidate(f"{url}/in", f"{url}/out", **how)
    assert (report.files, report.quarantined_count) == (25 if kind == "csv" else 24, 1)
    ledger = Ledger(f"{url}/out", storage_options=options)
    done = ledger.retry(f"{url}/in", max_quarantined=9, **HERE)
    assert (done.gathered, done.quarantined) == (0, 1)
    assert ledger.verify(spark=HERE["spark"]).ok
    assert quire.consolidate(f"{url}/in", f"{url}/out", **how).files == 0
    there = bare(f"{url}/out", options)
    files = [entry.name for entry in there.walk() if is_shown(entry.name) and entry.name.endswith(".parquet")]
    rows = [row for name in files for row in pq.read_table(io.BytesIO(there.get(name))).to_pylist()]
    want = [{**row, "id": row["id"] + 10 * i} for i in range(24) for row in ROWS]
    want += [{"id": 1, "name": "a", "fare": 1.0}] if kind == "csv" else []
    assert sorted(rows, key=str) == sorted(want, key=str)


def rows_of(url: str, options: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """The rows of each data file, as who lists the directory finds them."""
    store = bare(url, options)
    files = sorted(entry.name for entry in store.walk() if is_shown(entry.name) and entry.name.endswith(".parquet"))
    return [pq.read_table(io.BytesIO(store.get(name))).to_pylist() for name in files]


@pytest.mark.services
@pytest.mark.parametrize("service", ["azurite", "seaweedfs", "hdfs"])
def test_members_of_archives_are_documents_on_each_store(service: str, request: pytest.FixtureRequest) -> None:
    url, options = place(service, request)
    store, members = bare(f"{url}/in", options), {f"m{i:02}.xml": b"<a>%d</a>" % i for i in range(30)}
    store.put("a.zip", zipped({**members, "wrong.xml": b"<a>", "../out.xml": b"<a/>"}))
    store.put("b.tar.gz", gzip.compress(tar(members), mtime=0))
    store.put("c!.xml", b"<a>c</a>")
    how: dict[str, Any] = {"transform": "xml", "archives": True, "storage_options": options, "max_quarantined": 9, **HERE}
    report = quire.consolidate(f"{url}/in", f"{url}/out", **how)
    assert (report.files, report.records, report.quarantined_count) == (3, 61, 2)
    ledger = Ledger(f"{url}/out", storage_options=options)
    assert ledger.read(f"{url}/in/b.tar.gz!m07.xml") == b"<a>7</a>\n"
    assert ledger.verify(spark=HERE["spark"]).ok
    assert quire.consolidate(f"{url}/in", f"{url}/out", **how).files == 0
    done = ledger.retry(f"{url}/in", max_quarantined=9, archives=True, **HERE)
    assert (done.gathered, done.quarantined) == (0, 2)


@pytest.mark.services
@pytest.mark.parametrize("service", ["azurite", "seaweedfs", "hdfs"])
def test_rows_in_an_order_and_a_destination_for_each_schema_on_each_store(service: str, request: pytest.FixtureRequest) -> None:
    url, options = place(service, request)
    store = bare(f"{url}/in", options)
    for i in range(12):
        store.put(f"d{i % 2}/{i:02}.parquet", content("parquet", [{**row, "id": row["id"] * 100 + i} for row in ROWS]))
    how: dict[str, Any] = {"transform": "parquet", "storage_options": options, **HERE}
    ids = sorted(row["id"] * 100 + i for i in range(12) for row in ROWS)
    for _ in range(2):  # a second run finds nothing new
        quire.consolidate(f"{url}/in", f"{url}/sorted", sort_by="id", target_size="1 KiB", **how)
        found = rows_of(f"{url}/sorted", options)
        files = sorted([row["id"] for row in rows] for rows in found)
        assert [one for some in files for one in some] == ids
        assert len(files) > 1
    store.put("other.parquet", content("parquet", [{"city": "berlin"}]))
    for n in (13, 0):
        report = quire.consolidate(f"{url}/in", f"{url}/split", split_by_schema=True, **how)
        assert (report.files, len(rows_of(f"{url}/split", options))) == (n, 2)
        assert sorted(len(rows) for rows in rows_of(f"{url}/split", options)) == [1, len(ids)]
