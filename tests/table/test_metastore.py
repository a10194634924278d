"""Tables in a Hive metastore: what is registered, what a call that dies leaves, and metastores that are away, or refuse."""

from __future__ import annotations

import base64
import json
import socket
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hive_service import Refuses, Service, service
from hypothesis import given
from hypothesis import strategies as st
from test_views import unpacked
from test_writes import COLUMNS, create, frame, write

from gathering import refused
from quire.errors import QuireError, RefusedError, TransientError, UsageError
from quire.storage.address import readable
from quire.table.format.config import TableConfig
from quire.table.format.schema import with_meta
from quire.table.hive import definition, thrift
from quire.table.hive.metastore import Metastore, Said, addresses
from quire.table.hive.thrift import Value, mapping, record, said, text
from quire.table.table import Table

FIRST = frame(("a", "sf", 1, 1.5), ("b", "sf", 1, 2.5), ("c", "la", 1, 3.5))
# Answers of the metastore of Hive 2.3.10.
GET_TABLE = (
    "eNqlVP1PE0EQ3X4AhQMbFQ3qD8aNP5ItbUqNNTFBqcEEP4I1MRFzWW+37Ya722N3j6QSEv9znbltERUKgSbt7u2892525k1/lkiZELI4lC50/Hss4aG8TEhA"
    "SrCrGRlpI6QICtSCkAOex65GqgcL+6RG5giCyDwuy2ShTkpAJfOefDccaS2UDCOdJArkVSK9zrx1RqXDgFSQOHnX6j9wKw9TPQN/Z4r3OYYHcjwDfX+Kzrhx"
    "yimdws6NZjBuTxkDFcsw5TOTLytxQRQPH6BEt+GSrAHRzIZ6EPLQSes8rqHNkPGMRyPJRrlQbMSF1hnbKRL4yM1hLt3bNMvdG20SDqwqsF6eZXnCSB1Jdhgz"
    "pVnmWewdz4wUE40PuTsVKUP3oHW/4AOt84m+uJKklWAJNpHcgfgnabblCqkEAWjghdZ86RgAzJhxy4xmU3fNDXhscbMKOorH6gfHdrBBkRWcl5rwU8XuwPrI"
    "l65xXvFIndTwjbAuou/IClkqUgAvBuDFSaxc97FKvTiAiy7jcQ0pJd++aqTc+e5ZIYuFZA2/vS/93t77rV1k9Pc+92C9F3Przjo8tOM0Qvu0NlqdZrO12Wpt"
    "dDY7rXYbDp9aqOEBs1BPq3MTScss1DrhLM0TKKh7rWM7LcHjC8HoYbYBN1k7pgMlY2Fp9+sxTaTjgjtOu8cn6xQdS7v0nCGkEMzjGPtBu87kcp26cYZgf3d6"
    "sn41sWJEb672Z4BvrvX3eN9c73T4ry+lxPW56MvL2d/OnuSRoydgHzrTPmA0dJB3PvrYGZ5aJVMXoqO3RdwHp0Bgqfns+Wan3W43O/D05DIDn7r34f/IzOgj"
    "JaTB1+LfXICDSG5Npyrsb73a7ZUJjutvoHrXWw=="
)
NO_DATABASE = "eNprYGRgYmBg4ElPLYlPSSxJTEosTgXyWXgYGLkZGEGsvPwCoAgAn48HNw=="


@pytest.fixture
def hive() -> Iterator[Service]:
    with service() as found:
        yield found


def everything(hive: Service) -> dict[str, Any]:
    return {name: hive.definition(name.removeprefix("default.")) for name in hive.tables}


# ---------------------------------------------------------------------------------------------------------------- what is there
def test_a_table_is_registered_as_hudi_does_and_follows_what_is_written(tmp_path: Path, hive: Service) -> None:
    table = create(tmp_path / "trips")
    first = write(table, "upsert", FIRST)
    report = table.sync_metastore(hive.uri)
    assert (report.tables, report.created, report.added, report.instant) == (("default.trips",), ("default.trips",), 2, first.instant)
    json.dumps(report.as_dict())
    found = hive.definition("trips")
    place = (tmp_path / "trips").as_uri()
    meta = dict.fromkeys(
        ("_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_record_key", "_hoodie_partition_path", "_hoodie_file_name"), "string"
    )
    assert found == {
        "columns": {**meta, "id": "string", "ts": "bigint", "fare": "double"}, "keys": {"city": "string"}, "location": place,
        "input": "org.apache.hudi.hadoop.HoodieParquetInputFormat", "type": "EXTERNAL_TABLE",
        "output": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
        "serde": "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe",
        "settings": {"serialization.format": "1", "path": place, "hoodie.query.as.ro.table": "false"},
        "partitions": {("sf",): f"{place}/city=sf", ("la",): f"{place}/city=la"}, "properties": found["properties"],
    }  # fmt: skip
    has = found["properties"]
    assert (has["EXTERNAL"], has["spark.sql.sources.provider"], has["last_commit_time_sync"]) == ("TRUE", "hudi", first.instant)
    assert (has["spark.sql.sources.schema.numPartCols"], has["spark.sql.sources.schema.partCol.0"]) == ("1", "city")
    assert [each["name"] for each in json.loads(has["spark.sql.sources.schema.part.0"])["fields"]] == [*meta, "id", "ts", "fare", "city"]

    hive.calls.clear()
    again = table.sync_metastore(hive.uri)
    assert (again.created, again.changed, again.added, again.dropped) == ((), (), 0, 0)
    assert not {call for call in hive.calls if not call.startswith("get_")} - {"set_ugi"}, "what is right stays"

    write(table, "upsert", frame(("d", "ny", 1, 1.0, 7), schema=COLUMNS.append(pa.field("seats", pa.int32()))))
    table.delete_partitions("city=la", progress=False)
    report = table.sync_metastore(hive.uri)
    assert (report.changed, report.added, report.dropped) == (("default.trips",), 1, 1)
    found = hive.definition("trips")
    assert (found["columns"]["seats"], set(found["partitions"])) == ("int", {("sf",), ("ny",)})
    columns = [said(said(one, 6), 1) for one in hive.partitions["default.trips"].values()]
    assert all(each[-1] == record({1: text("seats"), 2: text("int"), 3: text("")}).of for each in columns)


def test_a_merge_on_read_table_has_a_name_for_each_query(tmp_path: Path, hive: Service) -> None:
    table = create(tmp_path / "t", type="merge_on_read", partition_by=None, index="bucket", buckets=1)
    write(table, "upsert", FIRST)
    report = table.sync_metastore(hive.uri, name="Trips")
    assert report.tables == ("default.trips_ro", "default.trips_rt", "default.trips")
    found = everything(hive)
    kinds = {name: (one["input"].rpartition(".")[2], one["settings"]["hoodie.query.as.ro.table"]) for name, one in found.items()}
    assert kinds == {
        "default.trips_ro": ("HoodieParquetInputFormat", "true"), "default.trips_rt": ("HoodieParquetRealtimeInputFormat", "false"),
        "default.trips": ("HoodieParquetRealtimeInputFormat", "false"),
    }  # fmt: skip
    assert all((one["keys"], one["partitions"]) == ({}, {}) for one in found.values())
    assert "get_partition_names" not in hive.calls


def test_what_others_have_set_stays(tmp_path: Path, hive: Service) -> None:
    table = create(tmp_path / "t")
    write(table, "upsert", FIRST)
    table.sync_metastore(hive.uri)
    there = hive.tables["default.t"]
    stale = {"comment": "of a user", "spark.sql.sources.schema.part.7": "stale"}
    there |= {3: text("owner"), 9: mapping({**said(there, 9), **stale}), 99: Value(thrift.DOUBLE, 0.5)}  # of a Hive to come
    storage = said(there, 7)
    said(storage, 1)[5][3] = text("the key")  # id
    write(table, "upsert", frame(("d", "ny", 1, 1.0, 7), schema=COLUMNS.append(pa.field("seats", pa.int32()))))
    table.sync_metastore(hive.uri)
    found = hive.tables["default.t"]
    assert (found[3], found[99], said(found, 9)["comment"]) == (text("owner"), Value(thrift.DOUBLE, 0.5), "of a user")
    assert "spark.sql.sources.schema.part.7" not in said(found, 9)
    assert [(said(each, 1), said(each, 3)) for each in said(said(found, 7), 1) if said(each, 3)] == [("id", "the key")]


def test_a_schema_that_says_the_same_in_other_words_stays(tmp_path: Path, hive: Service) -> None:
    """Hudi's own sync writes it in another order of keys: a JVM writer and quire would change it back and forth for ever."""
    table = create(tmp_path / "t")
    write(table, "upsert", FIRST)
    table.sync_metastore(hive.uri)
    there = hive.tables["default.t"]
    has, start = said(there, 9), "spark.sql.sources.schema."
    turned = json.dumps(json.loads(has[f"{start}part.0"], object_pairs_hook=lambda pairs: dict(reversed(pairs))))
    theirs = has | {f"{start}numParts": "2", f"{start}part.0": turned[:200], f"{start}part.1": turned[200:]}
    there[9] = mapping(theirs)
    assert table.sync_metastore(hive.uri).changed == ()
    assert said(hive.tables["default.t"], 9) == theirs
    for wrong in (
        {f"{start}part.0": turned[:100]},
        {f"{start}numParts": "many"},
        {f"{start}part.1": turned[200:].replace("string", "long")},
    ):
        hive.tables["default.t"][9] = mapping(theirs | wrong)
        assert table.sync_metastore(hive.uri).changed == ("default.t",)
        assert said(hive.tables["default.t"], 9) == has


def test_types_are_those_of_hudis_own_sync_and_long_schemas_are_cut(tmp_path: Path) -> None:
    kinds = {
        "n": pa.int32(), "day": pa.date32(), "at": pa.timestamp("us", "UTC"), "f": pa.decimal128(12, 2), "raw": pa.binary(),
        "tags": pa.list_(pa.string()), "points": pa.map_(pa.string(), pa.int32()),
        "Place": pa.struct([("Lat", pa.float32()), ("ok", pa.bool_())]),
    }  # fmt: skip
    config = TableConfig(name="t", key=("n",), partition_by=("day",))
    (found,) = definition.definitions(config, pa.schema(kinds), "default", "T", "file:///t")
    assert (found.name, dict(found.columns), found.keys) == (
        "t",
        {
            "n": "int", "at": "bigint", "f": "decimal(12,2)", "raw": "binary", "tags": "array<string>", "points": "map<string,int>",
            "place": "struct<lat:float,ok:boolean>",
        },
        (("day", "date"),),
    )  # fmt: skip
    wide = pa.schema([(f"column_{i:03}", pa.int64()) for i in range(200)])
    properties = definition.spark_properties(wide, ["column_007"])
    parts = [properties[f"spark.sql.sources.schema.part.{i}"] for i in range(int(properties["spark.sql.sources.schema.numParts"]))]
    assert len(parts) > 2
    assert max(map(len, parts)) <= 4_000
    names = [each["name"] for each in json.loads("".join(parts))["fields"]]
    assert (len(names), names[-1]) == (200, "column_007")
    with refused(UsageError, 2, "does not tell capitals from small letters", "'n'"):
        definition.definitions(config, pa.schema({"n": pa.int32(), "N": pa.int32()}), "default", "t", "file:///t")
    with refused(UsageError, 2, "'x'", "which Hive does not have"):
        definition.definitions(config, pa.schema({"x": pa.uint8()}), "default", "t", "file:///t")


@pytest.mark.parametrize(
    ("name", "location"),
    [
        ("sample_table-cow-v8_complexkeygen_hivestyle", "byteField=10/shortField=300"),
        ("sample_table-mor-avro-v9_txns_simple_meta", "region=us"),
        ("sample_table-cow-v6_simplekeygen_nonhivestyle", "10"), ("sample_table-cow-v6_timebasedkeygen_nonhivestyle", ""),
    ],
)  # fmt: skip
def test_tables_of_jvm_hudi_are_registered_too(tmp_path: Path, hive: Service, name: str, location: str) -> None:
    table = Table(unpacked(name, tmp_path))
    if not location:
        with refused(RefusedError, 2, "made by org.apache.hudi.keygen.TimestampBasedKeyGenerator", "sync it with Hudi"):
            table.sync_metastore(hive.uri, name="t")
        return
    table.sync_metastore(hive.uri, name="t")
    found = hive.definition("t")
    assert len(found["partitions"]) == 3
    assert {f"{tmp_path.as_uri()}/{location}"} <= set(found["partitions"].values())
    assert all((tmp_path / place.removeprefix(f"{tmp_path.as_uri()}/")).is_dir() for place in found["partitions"].values())
    assert table.sync_metastore(hive.uri, name="t").changed == ()


def test_values_of_partitions_follow_from_their_paths() -> None:
    two = TableConfig(name="t", partition_by=("city", "kind"))
    assert definition.values(two, "city=a=b %25/kind=c") == ("a=b %25", "c")
    encoded = TableConfig(name="t", partition_by=("city",), hive_style=False, url_encode=True)
    assert definition.values(encoded, "a%2Fb") == ("a/b",)
    assert definition.parsed("city=a%2Fb %3D/kind=__HIVE_DEFAULT_PARTITION__") == ("a/b =", "__HIVE_DEFAULT_PARTITION__")
    with refused(RefusedError, 2, "'2026/11/25'", "a directory for each of its columns (city)"):
        definition.values(encoded, "2026/11/25")


@pytest.mark.parametrize(
    ("url", "given", "found"),
    [
        ("s3://lake/a b", None, "s3a://lake/a b"), ("file:///lake", None, "file:///lake"),
        ("file:///lake", "hdfs://n:8020/lake/", "hdfs://n:8020/lake"),
        ("abfs://c@a.dfs.core.windows.net/t", None, "abfs://c@a.dfs.core.windows.net/t"), ("abfs://c/t", None, ""),
        ("webhdfs://n:9870/t", None, ""), ("file:///lake", "lake", ""), ("file:///lake", "s3a:/\n", ""),
        ("file:///lake", "s3a://key:secret@lake/t", ""),
    ],
)  # fmt: skip
def test_a_location_is_a_url_that_hadoop_knows(url: str, given: str | None, found: str) -> None:
    if found:
        assert readable(url, given) == found
        return
    with refused(UsageError, 2, "location"):
        readable(url, given)


# ------------------------------------------------------------------------------------------------------------- calls that die
@pytest.mark.nth(2)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_call_that_is_cut_off_anywhere_is_completed_by_the_next(tmp_path: Path, when: str) -> None:
    table = create(tmp_path / "t", type="merge_on_read")
    write(table, "upsert", FIRST)

    def cut(hive: Service, at: int) -> None:
        def maybe(method: str) -> None:
            if len(hive.calls) == at:
                raise ConnectionAbortedError

        setattr(hive, when, maybe)

    with service() as whole:
        table.sync_metastore(whole.uri)
        right, calls = everything(whole), len(whole.calls)
    for at in range(1, calls + 1):
        with service() as hive:
            cut(hive, at)
            with refused(TransientError, 3, "has not answered", "The table is as it was: call again"):
                table.sync_metastore(hive.uri)
            setattr(hive, when, lambda method: None)
            table.sync_metastore(hive.uri)
            assert everything(hive) == right, f"cut off {when} call {at}"


def test_a_metastore_names_an_instant_once_all_of_it_is_there(tmp_path: Path, hive: Service) -> None:
    table = create(tmp_path / "t")
    write(table, "upsert", FIRST)
    table.sync_metastore(hive.uri)
    old = hive.tables["default.t"], dict(hive.partitions["default.t"])
    write(table, "upsert", frame(("d", "ny", 1, 1.0, 7), schema=COLUMNS.append(pa.field("seats", pa.int32()))))
    instant = table.delete_partitions("city=la", progress=False).instant
    begun = len(hive.calls)
    table.sync_metastore(hive.uri)
    right, calls, seen = everything(hive), len(hive.calls) - begun, set[bool]()

    def cut(method: str) -> None:
        if len(hive.calls) == at:
            raise ConnectionAbortedError

    for at in range(1, calls + 1):
        hive.tables["default.t"], hive.partitions["default.t"] = old[0], {values: dict(one) for values, one in old[1].items()}
        hive.calls.clear()
        hive.before = cut
        with refused(TransientError, 3, "has not answered"):
            table.sync_metastore(hive.uri)
        found = everything(hive)
        seen.add(named := found["default.t"]["properties"]["last_commit_time_sync"] == instant)
        assert found == right or not named, f"cut off before call {at}"
        hive.before = lambda method: None
        table.sync_metastore(hive.uri)
        assert everything(hive) == right, f"cut off before call {at}"
    assert seen == {True, False}


@pytest.mark.nth(4)
@pytest.mark.parametrize(
    "at", ["create_table_with_environment_context", "alter_table_with_environment_context", "add_partitions_req", "drop_partition"]
)
def test_two_calls_at_once_end_with_what_is_right(tmp_path: Path, hive: Service, at: str) -> None:
    table = create(tmp_path / "t")
    write(table, "upsert", FIRST)
    if at != "create_table_with_environment_context":
        table.sync_metastore(hive.uri)
        write(table, "upsert", frame(("d", "ny", 1, 1.0)))
        table.delete_partitions("city=la", progress=False)

    def other(method: str) -> None:
        if method == at:
            hive.before = lambda method: None
            write(table, "upsert", frame(("e", "rome", 1, 1.0, 7), schema=COLUMNS.append(pa.field("seats", pa.int32()))))
            table.sync_metastore(hive.uri)

    hive.before = other
    table.sync_metastore(hive.uri)
    found = everything(hive)
    with service() as whole:
        table.sync_metastore(whole.uri)
        assert found == everything(whole)
    assert found["default.t"]["columns"]["seats"] == "int"


# ---------------------------------------------------------------------------------------------------- metastores that are away
def test_a_metastore_that_is_away_is_one_line_and_the_table_stays(tmp_path: Path, hive: Service) -> None:
    table = create(tmp_path / "t")
    write(table, "upsert", FIRST)
    before = sorted(path for path in tmp_path.rglob("*"))
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        away = f"thrift://127.0.0.1:{nobody.getsockname()[1]}"
        with refused(TransientError, 3, f"no metastore answers at {away}", "The table is as it was: call again"):
            table.sync_metastore(away)
        assert table.sync_metastore(f"{away},{hive.uri}").created == ("default.t",), "the next address is asked"
    assert sorted(path for path in tmp_path.rglob("*")) == before


def test_what_is_not_a_metastore_is_one_line(tmp_path: Path) -> None:
    table = create(tmp_path / "t")
    write(table, "upsert", FIRST)
    answers: dict[bytes, tuple[type[QuireError], str]] = {
        b"HTTP/1.1 400 Bad Request\r\n\r\n": (QuireError, "does not answer as a Hive metastore does"),
        b"": (TransientError, "whether it wants Kerberos or TLS"),
        thrift.message("set_ugi", 9, {}, thrift.REPLY): (QuireError, "it is not a Hive metastore"),
        b"\x80\x01\x00\x02\x7f\xff\xff\xff": (QuireError, "does not answer as a Hive metastore does"),
        thrift.message("set_ugi", 1, {1: text("what"), 2: thrift.number(6)}, thrift.EXCEPTION): (RefusedError, "an error of its own"),
    }
    for data, (kind, words) in answers.items():
        with answering(data) as uri, refused(kind, kind.exit_code, words):
            table.sync_metastore(uri)


class answering:  # noqa: N801 (it is used as a context manager)
    """A server that has one answer to whatever comes first, and closes then."""

    def __init__(self, data: bytes) -> None:
        self.data, self.socket = data, socket.create_server(("127.0.0.1", 0))

    def __enter__(self) -> str:
        self.thread = threading.Thread(target=self._answer, daemon=True)
        self.thread.start()
        return f"thrift://127.0.0.1:{self.socket.getsockname()[1]}"

    def _answer(self) -> None:
        with self.socket.accept()[0] as connection:
            connection.recv(1 << 16)
            connection.sendall(self.data)

    def __exit__(self, *_: object) -> None:
        self.thread.join()
        self.socket.close()


def test_what_a_metastore_refuses_is_one_line(tmp_path: Path, hive: Service) -> None:
    table = create(tmp_path / "t")
    with refused(UsageError, 2, "has no columns yet"):
        table.sync_metastore(hive.uri)
    instant = write(table, "upsert", FIRST).instant
    with refused(UsageError, 2, "has no database lake: create it"):
        table.sync_metastore(hive.uri, database="lake")
    with refused(UsageError, 2, "is read, not registered"):
        table.as_of(instant).sync_metastore(hive.uri)
    table.sync_metastore(hive.uri)
    with refused(RefusedError, 2, "has another default.t, at file:", "give another name="):
        table.sync_metastore(hive.uri, location="hdfs://n:8020/t")
    hive.tables["default.t"][8] = thrift.listed(())
    with refused(RefusedError, 2, "other partition columns", "than city string", "drop it there"):
        table.sync_metastore(hive.uri)
    del hive.tables["default.t"]

    def no(method: str) -> None:
        if method.startswith("create_"):
            raise Refuses(3, "disk\nfull")

    hive.before = no
    with refused(RefusedError, 2, "refuses to create the table default.t (MetaException): disk full"):
        table.sync_metastore(hive.uri)


@pytest.mark.parametrize(
    ("at", "wrong"),
    [
        (7, text("x")),
        (7, record({1: thrift.texts(["id"])})),
        (7, record({7: record({3: text("x")})})),
        (8, mapping({})),
        (9, thrift.texts([])),
    ],
)
def test_an_answer_of_another_kind_is_one_line(tmp_path: Path, hive: Service, at: int, wrong: Value) -> None:
    table = create(tmp_path / "t")
    write(table, "upsert", FIRST)
    table.sync_metastore(hive.uri)
    hive.tables["default.t"][at] = wrong
    with refused(QuireError, 3, "has answered get_table_req by what is not of its kind"):
        table.sync_metastore(hive.uri)


def test_a_metastore_without_a_method_is_asked_by_the_older_one(tmp_path: Path, hive: Service) -> None:
    table = create(tmp_path / "t")
    write(table, "upsert", FIRST)

    def without(*methods: str) -> Callable[[str], None]:
        def unknown(method: str) -> None:
            if method in methods:
                raise Refuses(0, f"Invalid method name: '{method}'")

        return unknown

    hive.before = without("get_table_req")
    assert table.sync_metastore(hive.uri).created == ("default.t",)
    hive.before = without("get_table_req", "get_table")
    with refused(QuireError, 3, "is too old, or too new, to tell of the table default.t", "'get_table'"):
        table.sync_metastore(hive.uri)


@pytest.mark.parametrize(
    "uri", ["", "http://h:1", "thrift://", "thrift://h:0", "thrift://h:70000", "thrift://u:p@h:1", "thrift://h:1/x", "h:9083", ","]
)
def test_an_address_is_one_of_thrift(uri: str) -> None:
    with refused(UsageError, 2, "uri takes the address of a Hive metastore, as 'thrift://host:9083'"):
        addresses(uri)
    assert addresses("thrift://h , thrift://[::1]:10/") == [("h", 9083), ("::1", 10)]


# --------------------------------------------------------------------------------------------------------------------- messages
def test_what_hive_has_answered_is_read_and_goes_back_byte_by_byte() -> None:
    data = zlib.decompress(base64.b64decode(GET_TABLE))
    kind, name, number, fields = thrift.read(taking(data))
    assert thrift.message(name, number, fields, kind) == data
    there = said(fields, 0)
    assert (said(there, 1), said(there, 2), said(there, 12)) == ("recorded", "default", "EXTERNAL_TABLE")
    rows = pa.schema([(each, pa.string()) for each in ("id", "city")])
    config = TableConfig(name="t", key=("id",), partition_by=("city",))
    (wanted,) = definition.definitions(config, with_meta(rows), "default", "recorded", "file:///tmp/trips_of_a_test")
    assert wanted.changed(there) is None
    with answering(zlib.decompress(base64.b64decode(NO_DATABASE))) as uri:
        store = Metastore(uri)
        store._socket = socket.create_connection(store.addresses[0])
        store._stream = store._socket.makefile("rb")
        next(store._numbers), next(store._numbers), next(store._numbers)
        with pytest.raises(Said) as no:
            store.call("get_database", {})
        store.__exit__()
    assert no.value.kind == "NoSuchObjectException"


def taking(data: bytes) -> Callable[[int], bytes]:
    place = 0

    def take(size: int) -> bytes:
        nonlocal place
        place += size
        if place > len(data):
            raise ConnectionResetError
        return data[place - size : place]

    return take


VALUES = st.recursive(
    st.one_of(
        st.text().map(text), st.booleans().map(thrift.flag), st.integers(-(2**31), 2**31 - 1).map(thrift.number),
        st.integers(-(2**63), 2**63 - 1).map(lambda n: Value(thrift.I64, n)), st.dictionaries(st.text(), st.text()).map(mapping),
    ),
    lambda inner: st.one_of(
        st.dictionaries(st.integers(-9, 99), inner, max_size=4).map(record),
        st.lists(st.dictionaries(st.integers(1, 9), inner, max_size=2), max_size=3).map(lambda these: thrift.listed(map(record, these))),
    ),
    max_leaves=12,
)  # fmt: skip


@given(st.dictionaries(st.integers(-9, 99), VALUES, max_size=5), st.text(max_size=9), st.integers(0, 2**31 - 1))
def test_a_message_is_read_as_it_was_written(fields: Any, name: str, number: int) -> None:
    assert thrift.read(taking(thrift.message(name, number, fields))) == (thrift.CALL, name, number, fields)


@given(st.binary(max_size=60), st.booleans())
def test_whatever_bytes_come_are_a_message_or_are_said_not_to_be(data: bytes, begun: bool) -> None:
    with suppress(thrift.NotThrift, ConnectionResetError):
        thrift.read(taking((thrift.message("m", 1, {})[:-1] if begun else b"") + data))


def test_levels_without_end_are_not_a_message() -> None:
    deep = thrift.message("m", 1, {})[:-1] + b"\x0c\0\1" * 10_000
    with pytest.raises(thrift.NotThrift, match="levels within each other"):
        thrift.read(taking(deep))
