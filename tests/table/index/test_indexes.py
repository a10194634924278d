"""Indexes: each keeps the promises of `index_conformance`, agrees with a dictionary, and says in one line what it cannot use."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import index_conformance
import indexed
import jvm
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gathering import refused
from quire.errors import FormatError, RefusedError, UsageError
from quire.formats.parquet import ParquetFile
from quire.table import index as indexes
from quire.table.file_groups import Slice
from quire.table.format import base_file, bloom, names
from quire.table.index import BUCKETS, FIELDS, Index, Partition, bucket
from quire.table.index.bloom import BloomIndex
from quire.table.index.bucket import BucketIndex
from quire.table.index.lookup import KeyFile
from quire.table.index.simple import SimpleIndex

OURS: list[Callable[[], Index]] = [BloomIndex, SimpleIndex, BucketIndex]
LOOKUPS = OURS[:2]
KEYS = st.text(st.sampled_from("abcü€😀\uffff"), min_size=1, max_size=3)


class ShelfIndex:
    """An index of another package: it reads all keys by pyarrow."""

    name, computes = "shelf", False

    def lookup(self, partition: Partition, keys: pa.Array) -> pa.Array:
        """See `Index.lookup`."""
        known = dict[str, str]()
        for one in partition.slices:
            path = f"{partition.store.url.removeprefix('file://')}/{one.name}"
            known |= dict.fromkeys(pq.ParquetFile(path).read([base_file.KEY]).column(0).to_pylist(), one.group)
        return pa.array([known.get(key) for key in keys.to_pylist()], pa.string())


class ForgetfulIndex(ShelfIndex):
    """One that does not find what is there."""

    def lookup(self, partition: Partition, keys: pa.Array) -> pa.Array:
        """See `Index.lookup`."""
        del partition
        return pa.nulls(len(keys), pa.string())


class UnfinishedIndex:
    """One that does not say whether it computes."""

    name = "unfinished"

    def lookup(self, _partition: Partition, keys: pa.Array) -> pa.Array:
        return keys


@pytest.fixture
def _brought(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an installer brings them."""
    info = tmp_path / "site/shelf-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shelf\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[quire.indexes]\nshelf = {__name__}:ShelfIndex\nunfinished = {__name__}:UnfinishedIndex\nbloom = {__name__}:ForgetfulIndex\n"
    )
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert __name__ in sys.modules


# ------------------------------------------------------------------------------------------------------------- what all promise
@pytest.mark.nth(4)
@pytest.mark.parametrize("kind", [*OURS, ShelfIndex])
def test_an_index_keeps_the_promises(kind: Callable[[], Index], tmp_path: Path) -> None:
    index_conformance.check(kind, tmp_path)


def test_an_index_that_breaks_a_promise_is_found_out(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="a is in "):
        index_conformance.check(ForgetfulIndex, tmp_path)


@pytest.mark.nth(3)
@pytest.mark.parametrize("kind", OURS)
@given(commits=st.lists(st.lists(KEYS, min_size=1, max_size=12), min_size=1, max_size=4), rows=st.integers(1, 4))
@settings(max_examples=25, deadline=None)
def test_an_index_agrees_with_a_dictionary(
    kind: Callable[[], Index], commits: list[list[str]], rows: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    index_conformance.history(kind, tmp_path_factory.mktemp("h"), commits, rows)


@pytest.mark.usefixtures("_brought")
def test_other_packages_bring_indexes_and_never_in_the_place_of_ours() -> None:
    assert isinstance(indexes.named("shelf"), ShelfIndex)
    assert isinstance(indexes.named("bloom"), BloomIndex)
    assert indexes.REGISTRY.known() == ["bloom", "simple", "bucket", "shelf", "unfinished"]
    with refused(UsageError, 2, "'unfinished' of the package shelf has no computes", "quire.table.index.Index"):
        indexes.named("unfinished")
    with refused(UsageError, 2, "unknown index 'shelve'", "bloom, simple, bucket, shelf", "Did you mean 'shelf'?"):
        indexes.named("shelve")
    with refused(UsageError, 2, "unknown index 7"):
        indexes.named(7)  # type: ignore[arg-type]
    assert indexes.settings("shelf") == {indexes.TYPE: "shelf"}
    assert indexes.of(indexed.configured(indexes.settings("shelf"))) == "shelf"


def test_a_table_names_its_index_as_hudi_does() -> None:
    for name in ("bloom", "simple"):
        assert indexes.settings(name) == {"hoodie.index.type": name.upper()}
        assert indexes.of(indexed.configured(indexes.settings(name))) == name
    made = indexed.configured(indexes.settings("bucket", 12))
    assert indexes.of(made) == "bucket"
    assert dict(made.others) == {
        "hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "12", "hoodie.index.bucket.engine": "SIMPLE",
    }  # fmt: skip
    assert made.unsuitable is None
    assert indexes.of(indexed.CONFIG) == "bloom"
    with refused(RefusedError, 2, "GLOBAL_SIMPLE", "write it with Hudi"):
        indexes.of(indexed.configured({indexes.TYPE: "GLOBAL_SIMPLE"}))
    for name, buckets, said in (
        ("bloom", 3, "leave one of them out"),
        ("bucket", None, "needs buckets"),
        ("bucket", 0, "it is 0"),
        ("bucket", True, "it is True"),
        ("bucket", 1 << 40, "from 1 to 100,000"),
    ):
        with refused(UsageError, 2, "buckets", said):
            indexes.settings(name, buckets)


# ------------------------------------------------------------------------------------------------------------- those that look up
@pytest.mark.parametrize("kind", LOOKUPS)
def test_a_key_in_two_files_has_both_groups(kind: Callable[[], Index], tmp_path: Path) -> None:
    twice = indexed.partition(tmp_path, [["a", "x"], ["b"], ["c", "x"]], "city=sf")
    found = index_conformance.answers(kind(), twice, indexed.text("abc"))
    assert found == [one.group for one in twice.slices], "nobody asks for the key"
    one, two, three = (each.group for each in twice.slices)
    assert kind().lookup(twice, indexed.text("abcxy")).to_pylist() == [[one], [two], [three], [one, three], []]


@pytest.mark.parametrize("kind", LOOKUPS)
def test_a_file_without_a_range_or_a_filter_may_hold_any_key(kind: Callable[[], Index], tmp_path: Path) -> None:
    first = indexed.plain(["m", "z", "a"], tmp_path, 0)
    second = indexed.put(tmp_path, indexed.base_file(["b", "n"], indexed.group(1)), indexed.group(1))
    there = indexed.seen(tmp_path, [first, second])
    expected = [first.group, second.group, None, first.group, second.group, first.group]
    assert index_conformance.answers(kind(), there, indexed.text("abcmnz")) == expected


@pytest.mark.parametrize("kind", LOOKUPS)
def test_a_file_whose_rows_no_commit_could_find_is_refused(kind: Callable[[], Index], tmp_path: Path) -> None:
    without = indexed.seen(tmp_path, [indexed.plain(["a"], tmp_path, 0, meta=())])
    with refused(FormatError, 2, without.slices[0].name, "no column of keys", "_hoodie_record_key"):
        kind().lookup(without, indexed.text("a"))


@pytest.mark.parametrize("kind", LOOKUPS)
@pytest.mark.parametrize("cut", [0, 1, 9, 200])
def test_a_damaged_file_is_one_line(kind: Callable[[], Index], cut: int, tmp_path: Path) -> None:
    content = indexed.base_file("ab", indexed.group(0))
    broken = indexed.seen(tmp_path, [indexed.put(tmp_path, content[: len(content) - cut] if cut else b"", indexed.group(0))])
    with refused(FormatError, 2, broken.slices[0].name, "is damaged", "Restore it from a copy"):
        kind().lookup(broken, indexed.text("ab"))


@pytest.mark.parametrize("kind", LOOKUPS)
def test_damaged_keys_are_one_line(kind: Callable[[], Index], tmp_path: Path) -> None:
    content = bytearray(indexed.base_file("ab", indexed.group(0)))
    column = pq.ParquetFile(pa.BufferReader(bytes(content))).metadata.row_group(0).column(2)
    start = column.data_page_offset
    content[start : start + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    broken = indexed.seen(tmp_path, [indexed.put(tmp_path, bytes(content), indexed.group(0))])
    with refused(FormatError, 2, broken.slices[0].name, "its keys cannot be read"):
        kind().lookup(broken, indexed.text("ab"))


def test_a_damaged_filter_is_one_line_and_only_of_a_file_that_may_hold_keys(tmp_path: Path) -> None:
    content = indexed.base_file("mno", indexed.group(0))
    at = content.index(bloom.Filter.sized(3).serialise()[:12].encode())
    broken = indexed.seen(tmp_path, [indexed.put(tmp_path, content[:at] + b"!" + content[at + 1 :], indexed.group(0))])
    with refused(FormatError, 2, broken.slices[0].name, "damaged bloom filter"):
        BloomIndex().lookup(broken, indexed.text("an"))
    assert index_conformance.answers(BloomIndex(), broken, indexed.text("az")) == [None, None], "both are out of its range"
    assert index_conformance.answers(SimpleIndex(), broken, indexed.text("an")) == [None, indexed.group(0)]


def test_only_what_may_hold_a_key_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the range of a file, by its filter, and by the statistics of its row groups."""
    read, parsed = list[int](), list[str]()
    real, parse = ParquetFile.read_row_group, base_file.Footer.keys_filter

    def reading(self: ParquetFile, i: int, columns: list[str] | None = None) -> pa.Table:
        read.append(i)
        return real(self, i, columns)

    def parsing(self: base_file.Footer) -> Any:
        parsed.append(self.where)
        return parse(self)

    monkeypatch.setattr(ParquetFile, "read_row_group", reading)
    monkeypatch.setattr(base_file.Footer, "keys_filter", parsing)
    low, high = ([f"{side}{i:03d}" for i in range(100)] for side in "lh")
    there = indexed.partition(tmp_path, [low, high], rows=10)
    for keys, groups, filters in (
        (["l000", "l015", "l016"], [0, 1], 1),
        (["h099"], [9], 1),
        (["a", "z"], [], 0),  # out of both ranges
        (["h0", "h05x", "h0zz"], [], 1),  # in the range, and not in the filter
    ):
        read.clear()
        parsed.clear()
        found = index_conformance.answers(BloomIndex(), there, indexed.text(keys))
        assert [one is not None for one in found] == [len(key) == 4 and key[1:].isdigit() for key in sorted(keys)]
        assert (read, len(parsed)) == (groups, filters), keys


@pytest.mark.parametrize("kind", LOOKUPS)
def test_ranges_go_by_the_bytes_of_utf8(kind: Callable[[], Index], tmp_path: Path) -> None:
    """Java's order of text is another one: there a character of four bytes stands before one of three."""
    there = indexed.partition(tmp_path, [["\uffff"], ["😀"], ["ÿ", "Z"]], rows=1)
    assert index_conformance.answers(kind(), there, indexed.text(["\uffff", "😀", "ÿ", "Z", "z"])) == [
        indexed.group(2), None, indexed.group(2), indexed.group(0), indexed.group(1),
    ]  # fmt: skip


def test_row_groups_are_read_where_their_statistics_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = pq.ParquetWriter

    def without(*given: Any, **more: Any) -> Any:
        return write(*given, **more, write_statistics=False)

    monkeypatch.setattr(pq, "ParquetWriter", without)
    there = indexed.partition(tmp_path, [["a", "b"], ["c"]], rows=1)
    assert KeyFile(there.store, there.slices[0]).footer.rows == 2
    for kind in LOOKUPS:
        assert index_conformance.answers(kind(), there, indexed.text("abcd")) == [indexed.group(i) for i in (0, 0, 1)] + [None]


@pytest.mark.nth(3)
@pytest.mark.parametrize("table", [name for name in jvm.names() if "-cow-" in name and not re.search("no_?meta|lance|empty", name)])
def test_keys_in_tables_of_jvm_hudi_are_found(table: str, tmp_path: Path) -> None:
    """By their ranges and filters of 431,380 characters; of each group the file of the first instant."""
    partitions, known = dict[str, list[Slice]](), dict[tuple[str, str], str]()
    for path, content in jvm.files(table):
        folder, _, name = path.rpartition("/")
        base = names.base_file(name)
        if base is None or any(base.file_id == one.group for one in partitions.get(folder, [])):
            continue
        keys = pq.ParquetFile(pa.BufferReader(content)).read([base_file.KEY]).column(0).to_pylist()
        if any((folder, key) in known for key in keys):
            continue  # a group that replaced another one
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
        partitions.setdefault(folder, []).append(Slice(folder, base.file_id, base.instant, path, len(content)))
        known |= {(folder, key): base.file_id for key in keys}
    assert known
    for folder, slices in partitions.items():
        own = {key: group for (of, key), group in known.items() if of == folder}
        keys = indexed.text([*own, *(f"{key}x" for key in own)])
        expected = [own.get(key) for key in keys.to_pylist()]
        for kind in LOOKUPS:
            assert index_conformance.answers(kind(), indexed.seen(tmp_path, slices, folder), keys) == expected


# ---------------------------------------------------------------------------------------------------------- the one that computes
def java_hash(*values: str) -> int:
    """`List.of(values).hashCode()`."""
    found = 1
    for value in values:
        data, own = value.encode("utf-16-be"), 0
        for i in range(0, len(data), 2):
            own = (31 * own + int.from_bytes(data[i : i + 2], "big")) % (1 << 32)
        found = (31 * found + own) % (1 << 32)
    return found


def bucketed(folder: Path, buckets: int = 7, *key: str, slices: list[Slice] | None = None, **others: str) -> Partition:
    made = indexed.configured({**indexes.settings("bucket", buckets), **others}, *key)
    return indexed.seen(folder, slices or [], "", made)


@given(
    keys=st.sets(st.text(min_size=1, max_size=20).filter(lambda key: not set(key) & {":", ",", "\0"}), min_size=1),
    buckets=st.integers(1, 50),
)
@settings(max_examples=50, deadline=None)
def test_a_bucket_is_what_hudi_makes_of_a_key(keys: set[str], buckets: int) -> None:
    there, wanted = bucketed(Path("/nowhere"), buckets), indexed.text(keys)
    found = index_conformance.answers(BucketIndex(), there, wanted)
    expected = [(java_hash(key) & 0x7FFFFFFF) % buckets for key in wanted.to_pylist()]
    assert found == [f"{number:08d}-ddd9-c407-67f9-000000000000-0" for number in expected]


def test_hashes_are_those_of_java() -> None:
    """`"hello world".hashCode()`, and a list of it, as a JVM says them."""
    assert java_hash("hello world") == 31 + 1_794_106_052
    assert java_hash("a", "b") == (31 * 31 + 97 * 31 + 98)


@pytest.mark.parametrize(
    ("key", "fields", "hashed", "said"),
    [
        ("a", "id", "", 128), ("hello world", "id", "", 100_701), ("Zoë😀", "id", "", 422_192), ("\uffff", "id", "", 65_566),
        ("id:2,name:Bob", "id name", "", 69_476), ("id:2,name:Bob", "id name", "id", 81), ("id:2,name:Bob", "id name", "name", 66_996),
        ("id:2,name:Bob", "id name", "name,id", 69_476), ("id:2,name:__null__", "id name", "", 2_511),
        ("id:2,name:__empty__", "id name", "", 2_511), ("id:3,full.name:Zoë", "id full.name", "", 92_708),
    ],
)  # fmt: skip
def test_buckets_are_those_that_jvm_hudi_says(key: str, fields: str, hashed: str, said: int, tmp_path: Path) -> None:
    """`BucketIdentifier.getBucketId` of 0.15.0 and of 1.2.0, of 1,000,003 buckets, says so."""
    config = bucketed(tmp_path, 7, *fields.split(), **({FIELDS: hashed} if hashed else {})).config
    assert bucket.hashes(config, indexed.text([key])).tolist()[0] % 1_000_003 == said


@pytest.mark.parametrize(
    ("fields", "key"),
    [("id", "urn:7"), ("id", "12:30:00"), ("id", "a,b"), ("id name", "id:2,name:a,b"), ("id name", "id:2,name:a:b"), ("id name", "x")],
)
def test_keys_that_versions_of_hudi_put_into_different_buckets_are_refused(fields: str, key: str, tmp_path: Path) -> None:
    """`urn:7` is in bucket 1 of 0.15.0, and in 555,392 of 1.2.0."""
    with refused(RefusedError, 2, repr(key), "index='bloom'"):
        BucketIndex().lookup(bucketed(tmp_path, 7, *fields.split()), indexed.text([key]))


def test_a_new_bucket_gets_the_same_group_from_whoever_writes_it_first(tmp_path: Path) -> None:
    there = bucketed(tmp_path, 1)
    (group,) = index_conformance.answers(BucketIndex(), there, indexed.text("a"))
    assert index_conformance.answers(BucketIndex(), there, indexed.text("bc")) == [group, group]
    elsewhere = Partition(there.store, there.config, "city=sf", [])
    assert index_conformance.answers(BucketIndex(), elsewhere, indexed.text("a")) != [group], "JVM Hudi 0.15 takes files of one id for one"
    ended = Partition(there.store, there.config, "", [], frozenset({group or ""}))
    (other,) = index_conformance.answers(BucketIndex(), ended, indexed.text("a"))
    assert other == "00000000-ddd9-c407-67f9-000000000001-0", "a group that was replaced has ended: its readers leave it out for ever"
    theirs = indexed.put(tmp_path, indexed.base_file("a", indexed.group(0)), indexed.group(0))
    assert index_conformance.answers(BucketIndex(), bucketed(tmp_path, 1, slices=[theirs]), indexed.text("z")) == [theirs.group]


def test_what_contradicts_the_buckets_is_one_line(tmp_path: Path) -> None:
    def asked(there: Partition) -> None:
        BucketIndex().lookup(there, indexed.text("a"))

    def slices(*groups: str) -> list[Slice]:
        return [Slice("", group, "20261122093015123", f"{group}_0-1-2_20261122093015123.parquet", 1) for group in groups]

    with refused(FormatError, 2, "beyond the table's 7"):
        asked(bucketed(tmp_path, 7, slices=slices(indexed.group(7))))
    with refused(FormatError, 2, "88163884f", "is not of a bucket"):
        asked(bucketed(tmp_path, 7, slices=slices("88163884f-fef0-4aab-865d-c72327a8a1d5-0")))
    with refused(FormatError, 2, indexed.group(3), "00000003-b-0", "of one bucket"):
        asked(bucketed(tmp_path, 7, slices=slices(indexed.group(3), "00000003-b-0")))
    for text in ("", "0", "7.5", "9999999", "-1", "٧"):
        with refused(RefusedError, 2, BUCKETS, "from 1 to 100,000"):
            asked(bucketed(tmp_path, 7, **{BUCKETS: text}))
    for fields in ("name", "id,", "other,id"):
        with refused(RefusedError, 2, FIELDS, "is not a field of its key"):
            asked(bucketed(tmp_path, 7, **{FIELDS: fields}))
