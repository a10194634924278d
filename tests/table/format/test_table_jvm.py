"""Tables that JVM Hudi has written: every codec reads them, and gives the same bytes again where it would write such an object."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator
from typing import Any

import jvm
import pytest

from quire.errors import FormatError, RefusedError
from quire.table.format import bloom, commits, names, schema
from quire.table.format.base_file import open_base_file, read_footer
from quire.table.format.config import NEWER, READABLE, VERSION, TableConfig, check_writable
from quire.table.format.keys import partition_paths, record_keys
from quire.table.format.properties import parse, render

SIX = [name for name in jvm.names() if "v6_" in name or name.endswith("_v6")]


def config(table: str) -> TableConfig:
    return TableConfig.from_properties(dict(jvm.files(table))[names.PROPERTIES], table)


def base_files(table: str) -> Iterator[tuple[str, bytes]]:
    for path, data in jvm.files(table):
        if names.base_file(path.rpartition("/")[2]) and not path.startswith(f"{names.FOLDER}/"):
            yield path, data


def of_instants(table: str) -> Iterator[tuple[names.Instant, bytes]]:
    for path, data in jvm.files(table):
        folder, _, name = path.rpartition("/")
        found = names.instant(name)
        if folder == names.FOLDER and found:
            assert found.name == name
            yield found, data


def compact(text: str | bytes) -> str:
    return json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False)


def test_the_tables_are_there() -> None:
    assert len(SIX) >= 16
    assert len(jvm.names()) >= 38


@pytest.mark.nth(4)
@pytest.mark.parametrize("table", jvm.names())
def test_settings_are_read_of_each_version_and_a_rewrite_means_the_same(table: str) -> None:
    data = dict(jvm.files(table))[names.PROPERTIES]
    assert parse(render(parse(data, table)), table) == parse(data, table)
    found = config(table)
    assert found.version in READABLE
    assert found.name
    assert found.key
    try:
        check_writable(found, table)
    except RefusedError:
        return
    assert (found.version, found.written) in ((VERSION, names.FOLDER), (NEWER, names.TIMELINE))
    again = TableConfig.from_properties(found.to_properties(), table)
    assert {**vars(again), "others": ()} == {**vars(found), "others": ()}
    assert set(dict(found.others).items()) <= set(dict(again.others).items())


def test_ordinary_tables_of_version_6_may_be_written_and_the_others_say_why() -> None:
    said = {}
    for table in SIX:
        try:
            check_writable(config(table), "it")
        except RefusedError as e:
            said[table.rpartition("-")[2]] = str(e)
    assert {name: why for name, why in said.items() if "meta" in why} == {
        name: why for name, why in said.items() if "nometa" in name or "no_meta" in name
    }
    assert set(said) == {"v6_simplekeygen_hivestyle_no_metafields", "v6_timebasedkeygen_nonhivestyle"}


def within(ours: Any, theirs: Any) -> bool:
    """Whether all that one says stands in the other."""
    if isinstance(ours, dict):
        return all(within(value, theirs[name]) for name, value in ours.items())
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(within(a, b) for a, b in zip(ours, theirs, strict=True))
    return bool(ours == theirs)


@pytest.mark.parametrize("table", SIX)
def test_commits_are_written_as_the_jvm_wrote_them(table: str) -> None:
    for instant, data in of_instants(table):
        if instant.state == "completed" and instant.action in ("commit", "deltacommit", "replacecommit"):
            commit = commits.decode(data, instant.name)
            again = commits.encode(commit).decode()
            if "totalLogReadTimeMs" in data.decode():  # Hudi of August 2026 writes more, in another order
                assert within(json.loads(again), json.loads(data))
            else:
                assert again == compact(data)
            there = dict(jvm.files(table))
            for partition, stat, name in commit.files():
                assert stat.path == f"{partition}/{name.name}".lstrip("/")
                assert len(there[stat.path]) == stat.file_size_in_bytes
                if isinstance(name, names.BaseFile):
                    assert name.instant == instant.time
        elif data.startswith(b"Obj"):
            with pytest.raises(FormatError, match="is Avro"):
                commits.decode(data, instant.name)


@pytest.mark.parametrize("table", SIX)
def test_schemas_of_commits_are_the_ones_that_the_jvm_made_of_the_same_columns(table: str) -> None:
    name = config(table).name
    for instant, data in of_instants(table):
        if instant.state == "completed" and instant.action in ("commit", "deltacommit", "replacecommit"):
            text = commits.decode(data, instant.name).schema
            assert text is not None
            assert schema.to_avro(schema.from_avro(text, table), name) == text
    created = schema.from_avro(config(table).schema, table)
    assert schema.from_avro(schema.to_avro(created, name), table) == created


def same_bits(kind: str, text: str, keys: Any) -> None:
    """A filter of JVM Hudi: read, built again of the same keys, and probed."""
    found = bloom.parse(text, kind, "it")
    assert found.serialise() == text
    _, hashes, _, bits = struct.unpack_from(">iibi", base64.b64decode(text))
    assert (found.bits, found.hashes) == (bits, hashes)
    again = bloom.Filter.dynamic(found.per_row, 1e-9) if kind == bloom.DYNAMIC else bloom.Filter.sized(60_000, 1e-9)
    again.add(keys)
    assert again.serialise() == text
    assert found.might_contain(keys).all()


@pytest.mark.seldom
def test_every_bloom_filter_is_built_again_bit_by_bit() -> None:
    kinds: dict[str, int] = {}
    for table in jvm.names():
        for path, data in base_files(table):
            footer = read_footer(data, path)
            assert footer.rows == open_base_file(data, path).metadata.num_rows
            if footer.filter_text is not None and footer.filter_kind is not None:
                keys = open_base_file(data, path).read(["_hoodie_record_key"]).column(0).combine_chunks()
                same_bits(footer.filter_kind, footer.filter_text, keys)
                kinds[footer.filter_kind] = kinds.get(footer.filter_kind, 0) + 1
    assert kinds[bloom.DYNAMIC] >= 50
    assert set(kinds) <= {bloom.SIMPLE, bloom.DYNAMIC}


@pytest.mark.parametrize("table", SIX)
def test_footers_keys_and_partitions_are_the_ones_that_the_jvm_wrote(table: str) -> None:
    settings = config(table)
    for path, data in base_files(table):
        footer, file = read_footer(data, path), open_base_file(data, path)
        assert footer.avro is None or schema.from_avro(footer.avro, path).names == footer.columns.names
        assert footer.has_meta
        rows = file.read()
        stored = rows.column("_hoodie_record_key").to_pylist()
        if not settings.meta_fields:
            assert (set(stored), footer.min_key, footer.keys_filter()) == ({None}, None, None)
            continue
        assert record_keys(rows, settings.key).to_pylist() == stored
        assert (footer.min_key, footer.max_key) == (min(stored, default=None), max(stored, default=None))
        if "timebased" not in table:
            paths = partition_paths(rows, settings.partition_by, hive_style=settings.hive_style, url_encode=settings.url_encode)
            assert paths.to_pylist() == rows.column("_hoodie_partition_path").to_pylist()
            assert set(paths.to_pylist()) == {path.rpartition("/")[0]}


@pytest.mark.parametrize("table", SIX)
def test_every_file_of_a_table_has_a_name_that_is_known(table: str) -> None:
    for path, _ in jvm.files(table):
        folder, _, name = path.rpartition("/")
        if folder.partition("/")[0] == names.FOLDER:
            assert folder != names.FOLDER or name == "hoodie.properties" or names.instant(name) is not None, path
        else:
            assert name == names.PARTITION_METADATA or names.base_file(name) or names.log_file(name), path
