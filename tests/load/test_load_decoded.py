"""Topics of JSON, Avro, Protobuf and XML become columns without a function, with a schema registry and without one."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quire
from gathering import refused
from loading import load, rows, topic
from quire.engine.kinds import offsets
from quire.errors import QuireError, RefusedError, StorageError, TransientError, UsageError
from quire.sources.decoders import base, protoc
from quire.sources.decoders import registry as asking
from quire.sources.decoders.protobuf import ProtobufForm
from quire.storage import retry
from services.kafka import Mock, Record, mock
from services.schema_registry import Schemas, framed, schema_registry

V1 = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}, {"name": "name", "type": ["null", "string"]}]}
V2 = {"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}, {"name": "city", "type": "string", "default": "nowhere"},
]}  # fmt: skip
PROTO = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Other { string x = 1; }
message Order {
  message Line { string sku = 1; int32 n = 2; }
  enum State { NEW = 0; PAID = 1; }
  int64 id = 1;
  optional string name = 2;
  State state = 3;
  repeated Line lines = 4;
  map<string, int32> counts = 5;
  google.protobuf.Timestamp at = 6;
  oneof pay { string card = 7; bool cash = 8; }
}
"""


@pytest.fixture(scope="module")
def kafka() -> Iterator[Mock]:
    with mock(brokers=1) as cluster:
        yield cluster


@pytest.fixture
def schemas() -> Iterator[Schemas]:
    forget()  # each test has a registry of its own, which may have the port of an earlier one
    with schema_registry() as found:
        yield found


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Waiting takes no time, by its own clock; how long each pause would have been."""
    pauses, now = list[float](), [0.0]

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(retry, "pause", pause)
    monkeypatch.setattr(retry, "clock", lambda: now[0])
    return pauses


def avro(schema: Any, record: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), record)
    return out.getvalue()


def reasons(dest: Path) -> dict[int, str]:
    found = quire.Ledger(dest).inspect.quarantined_records()
    return dict(zip(found["offset"].tolist(), found["error"].tolist(), strict=True))


def message(kind: str, files: bytes = b"", /, **fields: Any) -> bytes:
    return bytes(ProtobufForm(files or protoc.compiled(PROTO), kind).made(**fields).SerializeToString())


def forget() -> None:
    """Let this process know no schema, and no client."""
    asking._missing.clear()
    for cache in (asking._schema, asking._client, base._known):
        cache.cache_clear()


# -------------------------------------------------------------------------------------------------------------------------- JSON
def test_json_in_the_columns_that_the_call_says(kafka: Mock, tmp_path: Path) -> None:
    values = [b'{"id": 1, "name": "one", "more": true}', b'{"id":\n 2}', b'{"id": "secret"}', b"[1]", b"{broken secret", None]
    name = topic(kafka, 1, values)
    report = load(kafka, name, tmp_path / "out", decode="json", schema="id long, name string", metadata=["timestamp", "offset"])
    assert (report.records, report.quarantined_count) == (2, 4)
    found = rows(tmp_path / "out")
    assert found.schema.names == ["id", "name", "timestamp", "offset"]
    assert found.select(["id", "name", "offset"]).to_pylist() == [
        {"id": 1, "name": "one", "offset": 0}, {"id": 2, "name": None, "offset": 1},
    ]  # fmt: skip
    why = reasons(tmp_path / "out")
    assert why[2] == "the column 'id' is bigint, and here it is text"
    assert why[5] == "a tombstone: no value, so nothing to decode"
    assert not any("secret" in each for each in why.values())
    assert load(kafka, name, tmp_path / "out", decode="json", schema="id long, name string", metadata=["timestamp", "offset"]).records == 0


def test_a_column_that_must_not_be_null(kafka: Mock, schemas: Schemas, tmp_path: Path) -> None:
    name, one = topic(kafka, 1, [b'{"id": 1}', b'{"name": "x"}']), schemas.add(V1)
    load(kafka, name, tmp_path / "json", decode="json", schema="id long not null, name string")
    assert "'id' is not null by the schema" in reasons(tmp_path / "json")[1]
    name = topic(kafka, 1, [framed(one, avro(V1, {"id": 1, "name": None})), framed(one, avro(V1, {"id": 2, "name": "x"}))])
    load(kafka, name, tmp_path / "avro", decode="avro", registry=schemas.url, schema="id long, name string not null")
    assert [*reasons(tmp_path / "avro")] == [0]


def test_json_shows_its_columns_and_later_fields_are_quarantined(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 1, [b'{"id": 1, "x": 1.5}', b'{"id": 2}'])
    assert load(kafka, name, tmp_path / "out", decode="json").records == 2
    kafka.produce(name, [b'{"id": 3, "y": 1}', b'{"id": 4}'])
    assert load(kafka, name, tmp_path / "out", decode="json").records == 1
    assert sorted(row["id"] for row in rows(tmp_path / "out").to_pylist()) == [1, 2, 4]
    assert reasons(tmp_path / "out") == {2: "the field 'y' is not among the columns"}


def test_json_and_xml_by_expressions(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 1, [b'{"o": {"id": 1}, "l": [{"s": "a"}, {"s": "b"}]}', b'{"o": {}}'])
    columns = {"id": "$.o.id: long not null", "skus": "$.l[*].s: array<string>"}
    load(kafka, name, tmp_path / "json", decode="json", columns=columns)
    assert rows(tmp_path / "json").to_pylist() == [{"id": 1, "skus": ["a", "b"]}]
    assert reasons(tmp_path / "json") == {1: "the column 'id' is not null, and nothing is found at $.o.id"}
    name = topic(kafka, 1, [b"<o id='1'><s>a</s></o>", b"<o id='x'/>", b"<o"])
    load(kafka, name, tmp_path / "xml", decode="xml", columns={"id": "/o/@id: long", "s": "/o/s: string"})
    assert rows(tmp_path / "xml").to_pylist() == [{"id": 1, "s": "a"}]
    assert reasons(tmp_path / "xml")[1] == "the column 'id' is bigint, and a value of it is not"


def test_json_with_a_registry_has_the_columns_of_its_schema(kafka: Mock, schemas: Schemas, tmp_path: Path) -> None:
    other = schemas.add({"type": "object", "properties": {"zip": {"type": "string"}}}, "JSON", "address")
    assert other == 1
    schema = {"type": "object", "properties": {
        "id": {"type": "integer"}, "at": {"type": "string", "format": "date-time"}, "tags": {"type": "array", "items": {"type": "string"}},
        "price": {"oneOf": [{"type": "null"}, {"type": "number"}]}, "to": {"$ref": "address.json"}, "by": {"$ref": "#/definitions/by"},
    }, "definitions": {"by": {"type": ["string", "null"]}}}  # fmt: skip
    number = schemas.add(schema, "JSON", references=[("address.json", "address")])
    first = b'{"id": 1, "at": "2026-11-27T08:00:00Z", "tags": ["a"], "price": 1, "to": {"zip": "01"}, "by": "me", "more": 1}'
    name = topic(kafka, 1, [framed(number, first), framed(number, b'{"id": "x"}'), first])
    report = load(kafka, name, tmp_path / "out", decode="json", registry=schemas.url)
    assert (report.records, report.quarantined_count) == (1, 2)
    (row,) = rows(tmp_path / "out").to_pylist()
    assert (row["id"], row["tags"], row["price"], row["to"], row["by"]) == (1, ["a"], 1.0, {"zip": "01"}, "me")
    assert row["at"].isoformat() == "2026-11-27T08:00:00+00:00"
    assert reasons(tmp_path / "out")[2] == "its first byte is 123, and a schema registry's frame begins with 0"


# -------------------------------------------------------------------------------------------------------------------------- Avro
def test_avro_of_one_schema(kafka: Mock, tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(V1))
    name = topic(kafka, 1, [avro(V1, {"id": 1, "name": "one"}), avro(V1, {"id": 2, "name": None}), b"\2", b"\2\0more", None])
    for number, schema in enumerate([V1, json.dumps(V1), tmp_path / "order.avsc", str(tmp_path / "order.avsc")]):
        dest = tmp_path / f"out{number}"
        load(kafka, name, dest, decode="avro", schema=schema)
        assert rows(dest).to_pylist() == [{"id": 1, "name": "one"}, {"id": 2, "name": None}]
        assert rows(dest).schema.field("id").type == pa.int32()
        assert reasons(dest) == {
            2: "not a record of its Avro schema (EOFError)", 3: "4 bytes stand behind the record: it is of another schema",
            4: "a tombstone: no value, so nothing to decode",
        }  # fmt: skip


def test_avro_of_several_writers_is_resolved_to_the_newest_schema_and_stays_so(kafka: Mock, schemas: Schemas, tmp_path: Path) -> None:
    name = topic(kafka, 1)
    one, two = schemas.add(V1, subject=f"{name}-value"), schemas.add(V2, subject=f"{name}-value")
    kafka.produce(name, [
        framed(two, avro(V2, {"id": 1 << 40, "name": "n", "city": "Rome"})), framed(one, avro(V1, {"id": 2, "name": None})),
        framed(99, b"\2\0"), framed(two, avro(V2, {"id": 3, "name": None, "city": "Oslo"})), b"\1" + b"\0" * 9, framed(one, b"\2\2"),
    ])  # fmt: skip
    report = load(kafka, name, tmp_path / "out", decode="avro", registry=schemas.url)
    assert (report.records, report.quarantined_count) == (3, 3)
    assert rows(tmp_path / "out").to_pylist() == [
        {"id": 1 << 40, "name": "n", "city": "Rome"}, {"id": 2, "name": None, "city": None}, {"id": 3, "name": None, "city": "Oslo"},
    ], "in the order of their offsets"  # fmt: skip
    assert "its schema 99 is not in the schema registry" in [*quire.Ledger(tmp_path / "out").inspect.quarantined()["reason"]]
    assert schemas.asked.count(f"/schemas/ids/{one}") == 1, "a schema is asked for once"
    three = schemas.add({**V2, "fields": [*V2["fields"], {"name": "zip", "type": "string"}]}, subject=f"{name}-value")
    kafka.produce(name, [framed(three, avro({**V2, "fields": [*V2["fields"], {"name": "zip", "type": "string"}]},
                                            {"id": 4, "name": None, "city": "Bonn", "zip": "53111"}))])  # fmt: skip
    assert load(kafka, name, tmp_path / "out", decode="avro", registry=schemas.url).records == 1
    assert {"id": 4, "name": None, "city": "Bonn"} in rows(tmp_path / "out").to_pylist(), "the columns were frozen"


def test_columns_of_newer_schemas_are_added_where_the_call_says_so(kafka: Mock, schemas: Schemas, tmp_path: Path) -> None:
    one = schemas.add(V1)
    name = topic(kafka, 1, [framed(one, avro(V1, {"id": 1, "name": None}))])
    how: dict[str, Any] = {"decode": "avro", "registry": schemas.url, "schema_evolution": "add"}
    load(kafka, name, tmp_path / "out", **how)
    two = schemas.add(V2)
    kafka.produce(name, [framed(two, avro(V2, {"id": 2, "name": "n", "city": "Rome"})), framed(one, avro(V1, {"id": 3, "name": None}))])
    assert load(kafka, name, tmp_path / "out", **how).records == 2
    tables = [pq.ParquetFile(path).read() for path in sorted((tmp_path / "out").glob("part-*"))]
    assert sorted(str(row) for table in tables for row in table.to_pylist()) == [
        "{'id': 1, 'name': None}", "{'id': 2, 'name': 'n', 'city': 'Rome'}", "{'id': 3, 'name': None, 'city': None}",
    ]  # fmt: skip


def test_fractions_of_a_newer_schema_that_tell_no_records_apart_are_quarantined_alone(
    kafka: Mock, schemas: Schemas, tmp_path: Path
) -> None:
    """The column would become a double, and refused the whole load."""
    old, new = ({"type": "record", "name": "O", "fields": [{"name": "id", "type": kind}]} for kind in ("int", "double"))
    how: dict[str, Any] = {"decode": "avro", "registry": schemas.url, "schema_evolution": "add", "deduplicate": "id", "within": "1 day"}
    one = schemas.add(old)
    name = topic(kafka, 1, [framed(one, avro(old, {"id": i})) for i in (1, 2)])
    load(kafka, name, tmp_path / "out", **how)
    two = schemas.add(new)
    kafka.produce(name, [framed(two, avro(new, {"id": i})) for i in (2.0, 2.5, 3.0)] + [framed(one, avro(old, {"id": i})) for i in (3, 4)])
    report = load(kafka, name, tmp_path / "out", **how)
    assert (report.records, report.duplicates) == (2, 2)
    assert reasons(tmp_path / "out").keys() == {3}
    assert sorted(rows(tmp_path / "out").column("id").to_pylist()) == [1, 2, 3, 4]


def test_avro_in_a_reader_s_schema_has_its_defaults(kafka: Mock, schemas: Schemas, tmp_path: Path) -> None:
    one = schemas.add(V1)
    name = topic(kafka, 1, [framed(one, avro(V1, {"id": 2, "name": None}))])
    load(kafka, name, tmp_path / "reader", decode="avro", registry=schemas.url, schema=V2)
    assert rows(tmp_path / "reader").to_pylist() == [{"id": 2, "name": None, "city": "nowhere"}]
    assert rows(tmp_path / "reader").schema.field("id").type == pa.int64()
    load(kafka, name, tmp_path / "columns", decode="avro", registry=schemas.url, schema="id decimal(12, 2), more string")
    assert [{k: str(v) for k, v in row.items()} for row in rows(tmp_path / "columns").to_pylist()] == [{"id": "2.00", "more": "None"}]


def test_keys_and_the_record_s_own_columns(kafka: Mock, schemas: Schemas, tmp_path: Path) -> None:
    text, one = schemas.add('"string"'), schemas.add(V1)
    key = {"type": "record", "name": "Key", "fields": [{"name": "k", "type": "int"}]}
    of_record = schemas.add(key)
    value = framed(one, avro(V1, {"id": 1, "name": None}))
    name = topic(kafka, 1, [
        Record(value, framed(text, avro("string", "a"))), Record(value, None), Record(value, b"plain secret"),
    ])  # fmt: skip
    load(kafka, name, tmp_path / "out", decode="avro", registry=schemas.url, decode_key="avro", metadata={"offset": "at"})
    assert rows(tmp_path / "out").select(["key", "id", "at"]).to_pylist() == [
        {"key": "a", "id": 1, "at": 0}, {"key": None, "id": 1, "at": 1},
    ]  # fmt: skip
    assert reasons(tmp_path / "out") == {2: "its key: its first byte is 112, and a schema registry's frame begins with 0"}
    name = topic(kafka, 1, [Record(value, framed(of_record, avro(key, {"k": 7}))), Record(value, None)])
    load(kafka, name, tmp_path / "record", decode="avro", registry=schemas.url, decode_key="avro")
    assert rows(tmp_path / "record").column("key").to_pylist() == [{"k": 7}, None]
    name = topic(kafka, 1, [Record(value, b"k"), Record(value, b"\xff")])
    load(kafka, name, tmp_path / "text", decode="avro", registry=schemas.url, decode_key="string")
    assert rows(tmp_path / "text").column("key").to_pylist() == ["k"]


# ---------------------------------------------------------------------------------------------------------------------- Protobuf
def order(**more: Any) -> bytes:
    return message("shop.Order", **{"id": 1, **more})


def test_protobuf_with_a_registry(kafka: Mock, schemas: Schemas, tmp_path: Path) -> None:
    number = schemas.add(PROTO, "PROTOBUF")
    values = [
        framed(number, order(name="n", state=1, lines=[{"sku": "a", "n": 2}], counts={"x": 1}, at={"seconds": 1, "nanos": 5000}, cash=True),
               1),
        framed(number, order(state=7), 1), framed(number, message("shop.Other", x="secret"), 0), framed(number, b"\x08", 1),
        framed(number, order(), 9), framed(number, order(), 1, 0, 5), framed(77, order(), 1),
    ]  # fmt: skip
    name = topic(kafka, 1, values)
    report = load(kafka, name, tmp_path / "out", decode="protobuf", registry=schemas.url, message="shop.Order")
    assert (report.records, report.quarantined_count) == (2, 5)
    first, second = rows(tmp_path / "out").to_pylist()
    assert first["at"].isoformat() == "1970-01-01T00:00:01.000005+00:00"
    assert {**first, "at": None} == {
        "id": 1, "name": "n", "state": "PAID", "lines": [{"sku": "a", "n": 2}], "counts": [("x", 1)], "at": None, "card": None,
        "cash": True,
    }  # fmt: skip
    assert second == {
        "id": 1, "name": None, "state": "7", "lines": [], "counts": [], "at": None, "card": None, "cash": None,
    }  # fmt: skip
    why = reasons(tmp_path / "out")
    assert why[2] == f"its schema {number}: a message of shop.Other, and message= says shop.Order"
    assert why[3].startswith("not a message of shop.Order: it is cut off")
    assert "it has no message 9" in why[4]
    assert why[6] == "its schema 77 is not in the schema registry"
    with refused(UsageError, 2, "shop.Order, shop.Other", "message="):
        load(kafka, name, tmp_path / "several", decode="protobuf", registry=schemas.url)


def test_protobuf_by_a_compiled_descriptor_set(kafka: Mock, tmp_path: Path) -> None:
    files = protoc.compiled(PROTO)
    (tmp_path / "order.desc").write_bytes(files)
    name = topic(kafka, 1, [order(name="n"), b"\xff\xff", None])
    for number, schema in enumerate([files, tmp_path / "order.desc", str(tmp_path / "order.desc")]):
        load(kafka, name, tmp_path / f"out{number}", decode="protobuf", schema=schema, message="shop.Order")
        assert [row["name"] for row in rows(tmp_path / f"out{number}").to_pylist()] == ["n"]
        assert len(reasons(tmp_path / f"out{number}")) == 2


def test_a_descriptor_set_does_without_protoc(kafka: Mock, schemas: Schemas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, number = protoc.compiled(PROTO), schemas.add(PROTO, "PROTOBUF")
    name = topic(kafka, 1, [framed(number, order(), 1), framed(number, order(), 0)])
    protoc.compiled.cache_clear()
    monkeypatch.setitem(sys.modules, "grpc_tools", None)
    load(kafka, name, tmp_path / "out", decode="protobuf", registry=schemas.url, schema=files, message="shop.Order")
    assert [row["id"] for row in rows(tmp_path / "out").to_pylist()] == [1]
    with refused(QuireError, 3, "grpcio-tools", "schema="):
        load(kafka, name, tmp_path / "without", decode="protobuf", registry=schemas.url, message="shop.Order")


# ---------------------------------------------------------------------------------------------------- a registry that is of no use
@pytest.mark.parametrize(
    ("disturb", "words"),
    [({"status": 503}, "answers with status 503"), ({"slow": 0.15}, "does not answer (ReadTimeout)")],
    ids=["busy", "slow"],
)
def test_a_registry_that_is_away_quarantines_nothing(
    kafka: Mock, schemas: Schemas, hurried: list[float], disturb: dict[str, Any], words: str, tmp_path: Path
) -> None:  # fmt: skip
    one = schemas.add(V1)
    name = topic(kafka, 1, [framed(one, avro(V1, {"id": 2, "name": None}))])
    how = {"decode": "avro", "registry": schemas.url, "registry_options": {"timeout": 0.05}, "schema": V1}
    vars(schemas).update(disturb)
    with refused(TransientError, 3, f"the schema registry {schemas.url} {words}", "tried"):
        load(kafka, name, tmp_path / "out", **how)
    assert sum(hurried) > retry.PATIENCE / 2
    ledger = quire.Ledger(tmp_path / "out")
    assert len(ledger.inspect.quarantined()) == 0
    schemas.status, schemas.slow = 0, 0.0
    how["registry_options"] = {"timeout": 20}
    assert load(kafka, name, tmp_path / "out", **how).records == 1
    assert len(quire.Ledger(tmp_path / "out").inspect.quarantined()) == 0


def test_a_registry_that_is_busy_for_a_moment_is_asked_again(schemas: Schemas, monkeypatch: pytest.MonkeyPatch) -> None:
    one, pauses = schemas.add(V1), list[float]()

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        schemas.status = 0 if len(pauses) == 2 else 429

    monkeypatch.setattr(retry, "pause", pause)
    schemas.status = 500
    assert asking.registry(schemas.url, None).schema(one).kind == "AVRO"
    assert (len(pauses), len(schemas.asked)) == (2, 3)


def test_a_registry_that_goes_away_while_tasks_run(
    kafka: Mock, schemas: Schemas, hurried: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = schemas.add(V1)
    name = topic(kafka, 1, [framed(one, avro(V1, {"id": 2, "name": None}))])
    how = {"decode": "avro", "registry": schemas.url, "schema": V1}
    real = offsets._Loader.load

    def away(self: Any, planned: Any) -> None:
        forget()
        schemas.status = 500
        real(self, planned)

    with monkeypatch.context() as patched, refused(TransientError, 3, "answers with status 500"):
        patched.setattr(offsets._Loader, "load", away)
        load(kafka, name, tmp_path / "out", **how)
    (job,) = quire.Ledger(tmp_path / "out").summary().open_jobs
    schemas.status = 0
    report = load(kafka, name, tmp_path / "out", **how)
    assert (report.records, report.quarantined_count, report.jobs) == (1, 0, (job,))


def test_a_registry_that_nobody_runs_is_told_by_its_address(kafka: Mock, hurried: list[float], tmp_path: Path) -> None:
    name = topic(kafka, 1, [framed(1, b"x")])
    with refused(TransientError, 3, "the schema registry http://127.0.0.1:1 does not answer (ConnectError)"):
        load(kafka, name, tmp_path / "out", decode="avro", registry="http://127.0.0.1:1", schema=V1)
    assert len(quire.Ledger(tmp_path / "out").inspect.quarantined()) == 0


@pytest.mark.parametrize(
    ("disturb", "words"),
    [
        ({"login": "me:pw"}, "status 401: give credentials"),
        ({"status": 403}, "status 403"),
        ({"status": 404}, "status 404, as a schema registry would not"),
        ({"body": b"not JSON"}, "not JSON of a schema registry"),
        ({"body": b"[]"}, "not JSON of a schema registry"),
        ({"body": b"{}"}, "not JSON of a schema registry"),
    ],
    ids=["login", "forbidden", "another server", "no JSON", "a list", "no schema"],
)
def test_what_is_no_registry_quarantines_nothing(
    kafka: Mock, schemas: Schemas, disturb: dict[str, Any], words: str, tmp_path: Path
) -> None:  # fmt: skip
    one = schemas.add(V1)
    name = topic(kafka, 1, [framed(one, avro(V1, {"id": 2, "name": None}))])
    vars(schemas).update(disturb)
    with refused(QuireError, 3, schemas.url, words, "quarantined"):
        load(kafka, name, tmp_path / "out", decode="avro", registry=schemas.url, schema="id long")
    assert len(quire.Ledger(tmp_path / "out").inspect.quarantined()) == 0


def test_credentials_are_nowhere(kafka: Mock, schemas: Schemas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = schemas.add(V1)
    name = topic(kafka, 1, [framed(one, avro(V1, {"id": 2, "name": None})), framed(88, b"")])
    schemas.login = "me:hunter2-of-the-registry"
    options = {"basic.auth.user.info": schemas.login}
    report = load(kafka, name, tmp_path / "plain", decode="avro", registry=schemas.url, registry_options=options)
    assert report.records == 1
    monkeypatch.setenv("REGISTRY_LOGIN", schemas.login)
    options = {"basic.auth.user.info": quire.secret("REGISTRY_LOGIN")}
    assert load(kafka, name, tmp_path / "secret", decode="avro", registry=schemas.url, registry_options=options).records == 1
    decoder = quire.decoder("avro", registry=schemas.url, registry_options=options)
    plain = quire.decoder("avro", registry=schemas.url, registry_options={"basic.auth.user.info": schemas.login})
    assert plain.__edition__ == decoder.__edition__, "another password does not make another function"
    texts = [repr(report), str(report), repr(decoder), repr(plain)]
    texts += [p.read_bytes().decode("latin-1") for p in tmp_path.rglob("*") if p.is_file()]
    assert len(texts) > 10
    assert not any("hunter2" in text for text in texts)
    schemas.login = "another:hunter3"
    forget()
    with pytest.raises(StorageError) as caught:
        decoder(pa.record_batch({"value": pa.array([framed(one, b"")], pa.binary())}))
    assert "hunter" not in str(caught.value)


# --------------------------------------------------------------------------------------------------------- retry, and wrong words
def test_a_retry_takes_the_decoder(kafka: Mock, schemas: Schemas, tmp_path: Path) -> None:
    one = schemas.add(V1)
    name = topic(kafka, 1, [framed(one, avro(V1, {"id": 1, "name": None})), framed(2, avro(V1, {"id": 2, "name": None}))])
    load(kafka, name, tmp_path / "out", decode="avro", registry=schemas.url)
    assert reasons(tmp_path / "out") == {1: "its schema 2 is not in the schema registry"}
    schemas.add(V1)
    asking._missing.clear()
    ledger, source = quire.Ledger(tmp_path / "out"), f"kafka://{kafka.address}/{name}"
    settings: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False, "storage_options": dict(kafka.settings)}
    with refused(UsageError, 2, "quire.decoder.avro", "function="):
        ledger.retry(source, **settings)
    done = ledger.retry(source, function=quire.decoder("avro", registry=schemas.url), **settings)
    assert (done.gathered, done.quarantined) == (1, 0)
    assert sorted(row["id"] for row in rows(tmp_path / "out").to_pylist()) == [1, 2]


def test_another_decoder_is_another_destination(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 1, [b'{"id": 1}'])
    load(kafka, name, tmp_path / "out", decode="json", schema="id long")
    with refused(RefusedError, 2, "quire.decoder.json", "quire.decoder.avro"):
        load(kafka, name, tmp_path / "out", decode="avro", schema=V1)


@pytest.mark.parametrize(
    ("given", "argument", "words"),
    [
        ({"decode": "jsn"}, "decode", "Did you mean 'json'?"),
        ({"registry": "http://r"}, "registry", "without decode= it does nothing"),
        ({"metadata": "offset"}, "metadata", "without decode= it does nothing"),
        ({"decode": "avro"}, "schema", "or registry="),
        ({"decode": "avro", "schema": "id long"}, "schema", "registry="),
        ({"decode": "avro", "schema": '{"type": "recrd"}'}, "schema", "schema="),
        ({"decode": "avro", "schema": "{nope"}, "schema", "not JSON"),
        ({"decode": "avro", "schema": "/nowhere/x.avsc"}, "schema", "No such file"),
        ({"decode": "avro", "schema": V1, "columns": {"a": "$.a: int"}}, "columns", "JSON and XML"),
        ({"decode": "avro", "schema": V1, "message": "a.B"}, "message", "Protobuf"),
        ({"decode": "avro", "registry": "ftp://r"}, "registry", "http(s)://"),
        ({"decode": "avro", "registry": "http://me:hunter2@r"}, "registry", "quire.secret"),
        ({"decode": "avro", "registry": "http://r", "registry_options": {"url": "x"}}, "registry_options", "set by quire"),
        ({"decode": "avro", "registry": "http://r", "registry_options": "x"}, "registry_options", "dictionary"),
        (
            {"decode": "avro", "registry": "http://r", "registry_options": {"tmeout": 1}},
            "registry_options",
            "Unrecognized properties: tmeout",
        ),
        ({"decode": "avro", "registry": "http://r", "registry_options": {"timeout": "soon"}}, "registry_options", "timeout"),
        ({"decode": "avro", "registry": "http://r", "registry_options": {"ssl.ca.location": "/no"}}, "registry_options", "FileNotFound"),
        ({"decode": "json", "registry_options": {"timeout": 1}}, "registry_options", "registry="),
        ({"decode": "protobuf"}, "schema", "descriptor"),
        ({"decode": "protobuf", "schema": b"\xff"}, "message", "message="),
        ({"decode": "protobuf", "schema": b"\xff", "message": "a.B"}, "schema", "descriptor set"),
        ({"decode": "xml"}, "columns", "needs columns="),
        ({"decode": "json", "columns": {}}, "columns", "empty"),
        ({"decode": "json", "columns": {"a": "$.a"}}, "columns", "ends with no type"),
        ({"decode": "json", "columns": {"a": "a.b: int"}}, "columns", "wrong at character 1"),
        ({"decode": "json", "columns": {"a": "$.a: int", "A": "$.b: int"}}, "columns", "twice"),
        ({"decode": "json", "columns": {"a": "$.a: map<string, int>"}}, "columns", "makes no such value"),
        ({"decode": "json", "columns": {"a": "$.a: int"}, "schema": "a int"}, "schema", "Leave one of them out"),
        ({"decode": "xml", "columns": {"a": "/a[: int"}}, "columns", "not an XPath"),
        ({"decode": "xml", "columns": {"a": "/x:a: int"}}, "columns", "not an XPath"),
        ({"decode": "xml", "columns": {"a": "/a: struct<b: int>"}}, "columns", "XML holds texts"),
        ({"decode": "json", "schema": "timestamp string", "metadata": "timestamp"}, "metadata", "twice"),
        ({"decode": "json", "schema": "a int", "metadata": ["offst"]}, "metadata", "Did you mean 'offset'?"),
        ({"decode": "json", "schema": "a int", "decode_key": "avro"}, "decode_key", "registry="),
        ({"decode": "json", "schema": "a int", "format": "lines"}, "format", "lines"),
        ({"decode": "json", "schema": "a int", "transform": print}, "decode", "Leave one of them out"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else str(value)[:30],
)
def test_wrong_words_are_said_before_anything_is_read(given: dict[str, Any], argument: str, words: str, tmp_path: Path) -> None:
    with refused(UsageError, 2, words) as caught:
        quire.load("kafka://127.0.0.1:1/t", tmp_path / "out", spark=quire.LocalRunner(), **given)
    assert caught.value.argument == argument
    assert "hunter" not in str(caught.value)
    assert not (tmp_path / "out").exists()
