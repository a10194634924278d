"""Log files: those of JVM Hudi are read, and written again byte for byte; what a writer that died has left is passed over."""

from __future__ import annotations

import io
from collections.abc import Iterator
from decimal import Decimal

import jvm
import pyarrow as pa
import pytest
from trips import COLUMNS, T1, T2, rows

from gathering import refused
from quire.errors import FormatError, RefusedError
from quire.table.format import log_content, log_file, names, schema
from quire.table.format.log_content import Delete
from quire.table.format.log_file import Block

KINDS = {log_file.COMMAND: 1, log_file.DELETES: 14, log_file.CORRUPT: 1, log_file.AVRO: 28, log_file.HFILE: 1, log_file.PARQUET: 8}


def logs(table: str) -> Iterator[tuple[str, bytes]]:
    for path, data in jvm.files(table):
        if names.log_file(path.rpartition("/")[2]) and not path.startswith(f"{names.FOLDER}/"):
            yield path, data


def with_meta(found: pa.RecordBatch, instant: str) -> pa.Table:
    meta = {name: found.column("id") if "key" in name else pa.repeat(instant, len(found)) for name in schema.META}
    return pa.table({**meta, **dict(zip(found.schema.names, found.columns, strict=True))}, schema.with_meta(COLUMNS))


def test_log_files_of_the_jvm_are_the_same_bytes_again() -> None:
    count = dict.fromkeys(KINDS, 0)
    for table in jvm.names():
        for path, data in logs(table):
            blocks = list(log_file.decode(data, path))
            whole = b"".join(log_file.encode(block) for block in blocks if block.kind != log_file.CORRUPT)
            assert data.startswith(whole)
            assert whole == data or blocks[-1].kind == log_file.CORRUPT
            for block in blocks:
                count[block.kind] += 1
    assert {kind: count[kind] >= least for kind, least in KINDS.items()} == dict.fromkeys(KINDS, True)


def test_contents_of_the_jvm_are_read_and_its_deletes_written_byte_for_byte() -> None:
    orderings, unread = set[str | None](), []
    for table in jvm.names():
        for path, data in logs(table):
            for block in log_file.decode(data, path):
                if block.kind == log_file.DELETES:
                    found = log_content.deletes(block, path)
                    orderings |= {each.ordering and each.ordering[0] for each in found}
                    assert log_content.of_deletes(block.instant, "", found).content == block.content
                elif block.kind in (log_file.AVRO, log_file.PARQUET, log_file.HFILE):
                    kinds = schema.from_avro(block.words[log_file.SCHEMA], path)
                    try:
                        read = log_content.rows(block, kinds.names, path)
                    except RefusedError:
                        unread.append(table.rpartition("_table-mor-avro-table_")[2])
                        continue
                    assert read.column_names == kinds.names
                    assert read.num_rows
                    assert set(read.column("_hoodie_commit_time").to_pylist()) <= {block.instant, *read_times(block, read)}
    assert orderings == {"Int", "Long", "Double", "String", "Decimal"}
    assert sorted(unread) == ["hfile_log_block", "partial_update", "partial_update_event_time", "partial_update_event_time"]


def read_times(block: Block, read: pa.Table) -> set[str]:
    """Of a block that was made of others, their instants."""
    made_of = block.words.get(log_file.COMPACTED, "").split(",")
    return {time for time in read.column("_hoodie_commit_time").to_pylist() if time in made_of}


def test_what_is_written_is_read_again() -> None:
    some = with_meta(rows(1, 2, 3), T1)
    gone = [
        Delete("k1", "city=sf", ("Long", 7)),
        Delete("k2", "", ("Int", 0)),
        Delete("é", None, None),
        Delete("x", "", ("Decimal", Decimal(3))),
    ]
    other = Block(log_file.CDC, {}, b"?", {0: "ü"})
    blocks = [log_content.of_rows(T1, some, "t"), log_content.of_deletes(T1, "{}", gone), log_file.rollback(T2, T1), other]
    found = list(log_file.decode(b"".join(map(log_file.encode, blocks)), "it"))
    assert found == blocks
    assert log_content.rows(found[0], some.column_names, "it").equals(some)
    assert log_content.rows(found[0], ["id", "none"], "it").column_names == ["id"]
    assert schema.from_avro(found[0].words[log_file.SCHEMA], "it") == schema.with_meta(COLUMNS)
    assert log_content.deletes(found[1], "it") == gone
    assert [each.always for each in gone] == [False, True, True, False]


def test_what_a_writer_that_died_has_left_is_passed_over() -> None:
    one, two = (log_file.encode(log_file.rollback(time, T1)) for time in (T1, T2))
    for cut in range(1, len(two)):
        whole = [block.instant for block in log_file.decode(one + two[:cut] + one, "it") if block.kind != log_file.CORRUPT]
        assert whole[0] == whole[-1] == T1, cut
        assert len(whole) == 2
        assert [b.instant for b in log_file.decode(one + two[:cut], "it") if b.kind != log_file.CORRUPT] == [T1]
    assert list(log_file.decode(b"", "it")) == list(log_file.decode(b"#HU", "it")) == []
    assert [b.kind for b in log_file.decode(log_file.MAGIC * 1000, "it")] == [log_file.CORRUPT] * 1000
    with refused(FormatError, 2, "it is not a log file", "#HUDI#"):
        list(log_file.decode(b"PAR1...PAR1", "it"))


@pytest.mark.parametrize(
    "change", [(14, b"\0\0\0\2"), (22, b"\x7f\xff\xff\xff"), (26, b"\0\0\0\1"), (30, b"\xff\xff\xff\xff"), (34, b"\xff")]
)
def test_numbers_that_lie_in_a_block_are_one_line(change: tuple[int, bytes]) -> None:
    data = bytearray(log_file.encode(log_file.rollback(T1, T2)))
    at, lie = change
    data[at : at + len(lie)] = lie
    with refused(FormatError, 2, "it has a damaged block at byte 0"):
        list(log_file.decode(bytes(data), "it"))


def avro_block(text: str, content: bytes) -> Block:
    return Block(log_file.AVRO, {log_file.INSTANT: T1, log_file.SCHEMA: text}, content)


def test_contents_that_lie_are_one_line() -> None:
    text = '{"type":"record","name":"r","fields":[{"name":"a","type":{"type":"array","items":"long"}}]}'
    nothing = text.replace('"long"', '{"type":"record","name":"n","fields":[]}')
    many = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"  # 2 ** 63 - 1 values
    for schema_text, content in (
        (text, b""), (text, b"\0\0\0\3\x7f\xff\xff\xff"), (text, b"\0\0\0\3\0\0\0\1\x7f\xff\xff\xff"), (text, b"\0\0\0\3\xff\xff\xff\xff"),
        (text, b"\0\0\0\3\0\0\0\1\0\0\0\x0a" + many),
        (nothing, b"\0\0\0\3\0\0\0\1\0\0\0\x0a" + many), (text, b"\0\0\0\7\0\0\0\0"), ("", b"\0\0\0\3\0\0\0\0"),
    ):  # fmt: skip
        with refused(FormatError, 2, "it"):
            log_content.rows(avro_block(schema_text, content), ["a"], "it")
    for content in (b"", b"\0\0\0\2\0\0\0\0", b"\0\0\0\3\x7f\xff\xff\xff\0", b"\0\0\0\3\0\0\0\x0a" + many, b"\0\0\0\3\0\0\0\2\0\0"):
        with refused(FormatError, 2, "it has a damaged block"):
            log_content.deletes(Block(log_file.DELETES, {}, content), "it")
    with refused(FormatError, 2, "it has a damaged block"):
        log_content.rows(Block(log_file.PARQUET, {}, b"PAR1"), ["a"], "it")


def test_a_block_that_means_many_times_its_bytes_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow.parquet as pq

    monkeypatch.setattr(log_content, "_FREE", 1 << 20)
    monkeypatch.setattr(log_content, "_GROWTH", 10)
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": pa.repeat("x" * 1000, 100_000).dictionary_encode()}), sink, store_schema=False)
    with refused(FormatError, 2, "many times the bytes"):
        log_content.rows(Block(log_file.PARQUET, {}, sink.getvalue()), ["a"], "it")
