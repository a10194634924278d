"""Properties as Java has them, and the settings of a table: what is written is read back, and what cannot be written says why."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.errors import FormatError, RefusedError
from quire.table.format import properties
from quire.table.format.config import (
    COMMIT_TIME,
    COMPLEX,
    EVENT_TIME,
    MERGE_ON_READ,
    NON_PARTITIONED,
    SIMPLE,
    TableConfig,
    check_writable,
    default_generator,
    partition_metadata,
)

WHOLE = st.text(st.characters(exclude_categories=["Cs"]))
TRIPS = TableConfig(name="trips", key=("id",), partition_by=("city",), ordering="ts", mode=EVENT_TIME)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (b"a=b", {"a": "b"}), (b"a:b", {"a": "b"}), (b"a b", {"a": "b"}), (b" a \t=  b ", {"a": "b "}), (b"a", {"a": ""}),
        (b"a==b", {"a": "=b"}),
        (b"#a=1\n!b=2\n\n  # c=3\nd=4", {"d": "4"}), (b"a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        (b"a=one, \\\n    two", {"a": "one, two"}), (b"a=b\\\\\nc=d", {"a": "b\\", "c": "d"}), (b"a=x\\\n# y", {"a": "x# y"}),
        (b"a\\=b\\ c=d", {"a=b c": "d"}), (b"a=\\u00e9\\t\\q", {"a": "é\tq"}), (b"a=\\uD83D\\uDE00", {"a": "😀"}), (b"a=\xe9", {"a": "é"}),
        (b"a=1\na=2", {"a": "2"}), (b"", {}), (b"a=\\", {"a": ""}), (b"=x", {"": "x"}),
    ],
)  # fmt: skip
def test_properties_are_read_as_java_reads_them(text: bytes, values: dict[str, str]) -> None:
    assert properties.parse(text, "it") == values


def test_properties_are_written_as_java_writes_them() -> None:
    written = properties.render({"b c": " x y", "a:=#!": 'é:\t\\"', "😀": ""}, ["made by hand: #1"])
    assert written == b'#made by hand: #1\na\\:\\=\\#\\!=\\u00E9\\:\\t\\\\"\nb\\ c=\\ x y\n\\uD83D\\uDE00=\n'


@given(st.dictionaries(WHOLE, WHOLE))
@settings(max_examples=60, deadline=None)
def test_any_properties_are_read_back(values: dict[str, str]) -> None:
    assert properties.parse(properties.render(values, list(values)[:1]), "it") == values


@pytest.mark.parametrize("text", [b"a=\\u12", b"a=\\uzzzz", b"a=\\uD83D", b"a=\\uDE00\\uD83D", b"\\u=x"])
def test_an_escape_that_is_not_one_is_damage(text: bytes) -> None:
    with pytest.raises(FormatError, match=r"^it is damaged: "):
        properties.parse(text, "it")


def test_properties_have_an_end() -> None:
    with pytest.raises(FormatError, match=r"16,777,217 bytes"):
        properties.parse(b"#" * (properties.LARGEST + 1), "it")


@pytest.mark.parametrize(
    "table",
    [
        TRIPS, TableConfig(name="t", key=("a", "b"), partition_by=("x", "y"), hive_style=False, url_encode=True, database="d"),
        TableConfig(name="Tabelle é", key=("id",), schema='{"type":"record","name":"r","fields":[]}'),
        TableConfig(name="t", key=("id",), type=MERGE_ON_READ, ordering="ts", mode=EVENT_TIME, timezone="LOCAL"),
    ],
    ids=["event time", "composite", "bare", "merge on read"],
)  # fmt: skip
def test_a_table_s_settings_are_read_back_and_may_be_written_again(table: TableConfig) -> None:
    written = table.to_properties()
    back = TableConfig.from_properties(written, "it")
    check_writable(back, "it")
    assert replace(back, generator="", others=()) == replace(table, generator="", others=())
    assert back.to_properties() == written


def test_a_table_of_version_6_has_the_properties_that_readers_need() -> None:
    found = properties.parse(TRIPS.to_properties(), "it")
    assert found["hoodie.table.checksum"] == "2200697520"  # the CRC-32 of "default.trips"
    of_jvm = properties.parse(replace(TRIPS, name="v6_trips_8i1u").to_properties(), "it")
    assert of_jvm["hoodie.table.checksum"] == "3843273058"  # as a JVM has written it
    assert found == found | {
        "hoodie.table.name": "trips", "hoodie.table.type": "COPY_ON_WRITE", "hoodie.table.version": "6",
        "hoodie.timeline.layout.version": "1",
        "hoodie.table.precombine.field": "ts", "hoodie.table.keygenerator.class": "org.apache.hudi.keygen.SimpleKeyGenerator",
        "hoodie.compaction.payload.class": "org.apache.hudi.common.model.DefaultHoodieRecordPayload", "hoodie.populate.meta.fields": "true",
        "hoodie.datasource.write.drop.partition.columns": "false", "hoodie.table.timeline.timezone": "UTC",
    }  # fmt: skip
    assert properties.parse(partition_metadata("20261122093015123", 2), "it") == {"commitTime": "20261122093015123", "partitionDepth": "2"}


def test_the_key_generator_is_the_simplest_that_fits() -> None:
    assert default_generator(("a",), ()) == default_generator(("a", "b"), ()) == NON_PARTITIONED
    assert default_generator(("a",), ("x",)) == SIMPLE
    assert default_generator(("a", "b"), ("x",)) == default_generator(("a",), ("x", "y")) == COMPLEX


def changed(**more: str | None) -> bytes:
    values = properties.parse(TRIPS.to_properties(), "it")
    for said, value in more.items():
        name = "hoodie." + said.replace("_", ".")
        values = {n: v for n, v in values.items() if n != name} | ({name: value} if value is not None else {})
    return properties.render(values)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"table_version": "9"}, "version 9"), ({"populate_meta_fields": "false"}, "no meta fields"),
        ({"datasource_write_drop_partition_columns": "true"}, "partition columns"),
        ({"table_recordkey_fields": None}, "no field as record key"),
        ({"table_metadata_partitions": "files,column_stats"}, r"metadata table \(files, column_stats\): table.adopt\(\)"),
        ({"table_keygenerator_class": "org.apache.hudi.keygen.CustomKeyGenerator"}, "CustomKeyGenerator"),
        ({"compaction_payload_class": "com.example.Mine"}, "merged by com.example.Mine"), ({"table_precombine_field": None}, "event time"),
        ({"table_cdc_enabled": "true", "table_cdc_supplemental_logging_mode": "full"}, "of the mode 'FULL'"),
        ({"table_cdc_enabled": "true", "table_type": "MERGE_ON_READ"}, "hoodie.table.cdc.enabled=true"),
        ({"something_new": "1"}, "does not know hoodie.something.new=1"),
        ({"table_checksum": None}, "cut off"), ({"table_base_file_format": "ORC"}, "ORC"), ({"bootstrap_base_path": "/x"}, "bootstrap"),
    ],
    ids=str,
)  # fmt: skip
def test_a_table_that_quire_does_not_write_is_read_and_says_why(change: dict[str, str | None], why: str) -> None:
    table = TableConfig.from_properties(changed(**change), "it")
    with pytest.raises(RefusedError, match=rf"^the table trips can be read and not written by quire: .*{why}"):
        check_writable(table, "the table trips")


def test_a_table_whose_metadata_table_was_dropped_may_be_written() -> None:
    table = TableConfig.from_properties(changed(table_metadata_partitions="files", table_metadata_partitions_inflight="x"), "it")
    dropped = table.without_metadata()
    check_writable(dropped, "it")
    assert TableConfig.from_properties(dropped.to_properties(), "it").metadata == ()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"table_name": None}, "has no hoodie.table.name"), ({"table_type": "X"}, "hoodie.table.type is 'X'"),
        ({"table_version": "5"}, "version '5'"),
        ({"table_version": None}, "version ''"), ({"table_checksum": "1"}, "checksum is '1', of default.trips it is 2200697520"),
        ({"populate_meta_fields": "maybe"}, "'maybe', and not true or false"),
    ],
    ids=str,
)  # fmt: skip
def test_damaged_settings_say_what_is_wrong(change: dict[str, str | None], why: str) -> None:
    with pytest.raises(FormatError, match=why):
        TableConfig.from_properties(changed(**change), "it")


def test_a_table_is_made_with_a_key_and_orders_by_event_time_with_a_field_alone() -> None:
    for table in (TableConfig(name="t"), TableConfig(name="t", key=("a",), mode=EVENT_TIME), replace(TRIPS, version=9)):
        with pytest.raises(RefusedError):
            table.to_properties()
    assert TableConfig.from_properties(changed(compaction_payload_class=None), "it").mode == COMMIT_TIME
