"""Bytes of any kind: each codec gives an object, or one FormatError of one line, and soon."""

from __future__ import annotations

import base64
import io
import json
import os
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hostile import one_line
from quire.errors import FormatError, RefusedError
from quire.table.format import bloom, commits, log_content, log_file, names, schema
from quire.table.format.base_file import BaseFileWriter, open_base_file, read_footer
from quire.table.format.config import TableConfig

TIMES = int(os.environ.get("QUIRE_FUZZ", "1"))
GROUP, T = "88163884-fef0-4aab-865d-c72327a8a1d5-0", "20240707001301554"
COLUMNS = pa.schema([("id", pa.string()), ("d", pa.decimal128(9, 2)), ("s", pa.struct([("l", pa.list_(pa.int32()))]))])
BASE = names.BaseFile(GROUP, "0-74-110", T)


def a_filter() -> bloom.Filter:
    found = bloom.Filter.sized(40)
    found.add(pa.array([f"key-{i}" for i in range(40)]))
    return found


def a_growing_filter() -> bloom.Filter:
    found = bloom.Filter.dynamic(15, 1e-3)
    found.add(pa.array([f"key-{i}" for i in range(40)]))
    return found


def a_base_file() -> bytes:
    sink = io.BytesIO()
    writer = BaseFileWriter(sink, BASE, "x", COLUMNS, table="t", keys_filter=a_filter(), filter_holds_keys=True)
    rows = pa.RecordBatch.from_pylist([{"id": f"key-{i}", "s": {"l": [1, i]}} for i in range(40)], COLUMNS)
    writer.write(rows, rows.column("id"))
    writer.close()
    return sink.getvalue()


def a_commit() -> bytes:
    stat = commits.WriteStat(file_id=GROUP, path=f"x/{BASE.name}", partition_path="x", num_writes=40)
    return commits.encode(
        commits.CommitMetadata(
            partition_to_write_stats={"x": [stat]}, extra_metadata={"schema": schema.to_avro(COLUMNS, "t")},
            partition_to_replace_file_ids={"x": [GROUP]}
        )
    )  # fmt: skip


def a_newer_commit() -> bytes:
    """As a timeline of layout 2 has it."""
    text = {"type": "map", "values": ["null", "string"]}
    stat = [{"name": name, "type": ["null", "string"]} for name in ("fileId", "path")] + [{"name": "numWrites", "type": "long"}]
    many = {"type": "array", "items": {"type": "record", "name": "HoodieWriteStat", "fields": stat}}
    fields = [{"name": "partitionToWriteStats", "type": {"type": "map", "values": many}}, {"name": "extraMetadata", "type": text}]
    said = json.loads(a_commit())
    sink = io.BytesIO()
    fastavro.writer(sink, {"type": "record", "name": "HoodieCommitMetadata", "fields": fields}, [said])
    return sink.getvalue()


def a_log_file() -> bytes:
    rows = pa.RecordBatch.from_pylist([{"id": f"key-{i}", "s": {"l": [1, i]}} for i in range(40)], schema.with_meta(COLUMNS))
    gone = [log_content.Delete(f"key-{i}", "x", ("Long", i)) for i in range(40)]
    avro = schema.to_avro(COLUMNS, "t", meta=True)
    sink = io.BytesIO()
    for row in rows.to_pylist():
        datum = io.BytesIO()
        fastavro.schemaless_writer(datum, fastavro.parse_schema(json.loads(avro)), row)
        sink.write(datum.tell().to_bytes(4) + datum.getvalue())
    words = {log_file.INSTANT: T, log_file.SCHEMA: avro}
    blocks = [
        log_content.of_deletes(T, avro, gone), log_file.rollback(T, T), log_content.of_rows(T, pa.Table.from_batches([rows]), "t"),
        log_file.Block(log_file.AVRO, words, b"\0\0\0\3\0\0\0\x28" + sink.getvalue()),
    ]  # fmt: skip
    return b"".join(map(log_file.encode, blocks))


def use_log(data: bytes) -> int:
    """All that is asked of a log file."""
    found = 0
    for block in log_file.decode(data, "it"):
        if block.kind == log_file.DELETES:
            found += len(log_content.deletes(block, "it"))
        elif block.kind in (log_file.AVRO, log_file.PARQUET):
            with suppress(RefusedError):  # of rows that lack columns
                found += log_content.rows(block, schema.with_meta(COLUMNS).names, "it").num_rows
    return found


def use_file(data: bytes) -> None:
    """All that is asked of a base file's footer."""
    footer = read_footer(data, "it")
    for act in (footer.keys_filter, lambda: schema.from_avro(footer.avro or "", "it"), lambda: open_base_file(data, "it")):
        answer(act)


CODECS: dict[str, tuple[Callable[[], bytes], Callable[[bytes], Any]]] = {
    "properties": (TableConfig(name="t", key=("id",), schema=schema.to_avro(COLUMNS, "t")).to_properties,
    lambda x: TableConfig.from_properties(x, "it")),
    "commit": (a_commit, lambda x: commits.decode(x, "it")),
    "newer commit": (a_newer_commit, lambda x: commits.decode_avro(x, "it")),
    "schema": (lambda: schema.to_avro(COLUMNS, "t", meta=True).encode(), lambda x: schema.from_avro(x, "it")),
    "filter": (lambda: base64.b64decode(a_filter().serialise()), lambda x: bloom.parse(base64.b64encode(x), bloom.SIMPLE, "it")),
    "growing filter": (lambda: base64.b64decode(a_growing_filter().serialise()),
    lambda x: bloom.parse(base64.b64encode(x), bloom.DYNAMIC, "it")),
    "filter's text": (lambda: a_filter().serialise().encode(), lambda x: bloom.parse(x, bloom.SIMPLE, "it")),
    "base file": (a_base_file, use_file), "log file": (a_log_file, use_log),
}  # fmt: skip


def answer(act: Callable[[], Any]) -> Any:
    """What the call gives; None if it says in one line what is wrong."""
    try:
        return act()
    except FormatError as e:
        one_line(e)
        return None


def spoiled(data: bytes, chance: random.Random) -> bytes:
    """The same bytes, changed in a few places; those of the end, where a Parquet file has its footer, more often."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(changed)) if chance.random() < 0.5 else len(changed) - 1 - chance.randrange(min(len(changed), 4000))
        what = chance.randrange(5)
        if what == 0:
            changed[at] = chance.randrange(256)
        elif what == 1:
            changed[at : at + chance.randint(1, 8)] = chance.choice([b"", b"\xff" * 4, b"\0" * 8, b"../", b'"', b"\\u", b"-9" * 9])
        elif what == 2:
            changed[at] ^= 1 << chance.randrange(8)
        elif what == 3:
            del changed[at:]
        else:
            changed[at:at] = changed[: chance.randrange(64)]
        if not changed:
            break
    return bytes(changed)


@pytest.mark.parametrize("codec", CODECS)
def test_what_was_written_and_spoiled_is_an_object_or_one_line(codec: str) -> None:
    make, read = CODECS[codec]
    data, chance = make(), random.Random(1)
    assert answer(lambda: read(data)) is not None or codec == "base file"
    refused = 0
    for _ in range(300 * TIMES):
        spoilt = spoiled(data, chance)
        try:
            read(spoilt)
        except FormatError as e:
            one_line(e)
            refused += 1
    assert refused > 10


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.binary(max_size=200))
@settings(max_examples=40 * TIMES, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=TIMES == 1, database=None)
def test_any_bytes_are_an_object_or_one_line(codec: str, data: bytes) -> None:
    answer(lambda: CODECS[codec][1](data))


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["", "record", "fixed", "x", "../..", "\0", "decimal", 2**64, -1, 1e308])
    | st.text(max_size=5)
)
NAMES = st.sampled_from(["type", "name", "fields", "items", "values", "namespace", "size", "logicalType", "precision",
"partitionToWriteStats", "path", "fileId",
                         "extraMetadata", "schema", "partitionToReplaceFileIds", ""])  # fmt: skip
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5), max_leaves=15)


@given(JSON)
@settings(max_examples=150 * TIMES, deadline=None, derandomize=TIMES == 1, database=None)
def test_any_json_is_an_object_or_one_line(value: Any) -> None:
    data = json.dumps(value).encode()
    answer(lambda: commits.decode(data, "it"))
    answer(lambda: schema.from_avro(data, "it"))
    answer(lambda: schema.from_avro(json.dumps({"type": "record", "name": "r", "fields": value}), "it"))
    answer(lambda: schema.from_avro(json.dumps({"type": "record", "name": "r", "fields": [{"name": "a", "type": value}]}), "it"))


@given(
    st.text()
    | st.from_regex(r"\.?[0-9a-f-]{0,40}_[0-9-]{0,20}_[0-9]{0,17}\.(parquet|log\.\d_[0-9-]+)")
    | st.from_regex(r"[0-9]{17}(_[0-9]{17})?\.(commit|inflight|replacecommit|clustering)(\.inflight)?", fullmatch=True)
)
@settings(max_examples=150 * TIMES, deadline=None, derandomize=TIMES == 1, database=None)
def test_any_name_is_one_that_is_written_the_same_or_none(name: str) -> None:
    for found in (names.base_file(name), names.log_file(name)):
        assert found is None or found.name == name
    assert names.instant(name) is None or names.instant(name).name == name  # type: ignore[union-attr]
