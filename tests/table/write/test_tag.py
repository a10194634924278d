"""Rows that come are tagged with the file group that holds their key, and none is lost on the way."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import indexed
import pyarrow as pa
import pytest

import quire
from gathering import refused
from quire.errors import FormatError, QuireError, TransientError
from quire.spark.runner import Failure, OnSpark
from quire.table import index as indexes
from quire.table.file_groups import Slice
from quire.table.index import Partition, simple
from quire.table.index.bloom import BloomIndex
from quire.table.write import blocks, tag
from quire.table.write.blocks import DELETES, KEY, Blocks, BlockWriter, Closing, Run
from quire.table.write.failures import answers

LOCAL = quire.LocalRunner()
JOB, ATTEMPT = "1-0123456789abcdef", "0123456789ab"
Brought = dict[str, Iterable[str]]  # partition → keys


def closing(folder: Path) -> Closing:
    return Closing(f"file://{folder}", None, JOB, 7, ATTEMPT, "rename", indexed.CONFIG)


def brought(of: Closing, rows: Brought, most: int = 3) -> list[Run]:
    """Runs of so many rows; each third row deletes."""
    name, runs = of.new_block(), list[Run]()
    schema = pa.schema([("id", pa.string()), ("tags", pa.list_(pa.string())), (KEY, pa.string()), (DELETES, pa.bool_())])
    writer = BlockWriter(of.store.create(name), schema)
    for partition, some in rows.items():
        keys = indexed.text(some).to_pylist()
        for start in range(0, len(keys), most):
            part = keys[start : start + most]
            deletes = [i % 3 == 0 for i in range(start, start + len(part))]
            batch = pa.record_batch([part, [[k, None] for k in part], part, deletes], schema=schema)
            runs.append(Run(name, writer.add(batch), partition, len(part), sum(deletes), batch.nbytes, part[0], part[-1]))
    writer.close()
    return runs


def tagged(of: Closing, runs: Sequence[Run], slices: Sequence[Slice], index: str = "simple", runner: Any = LOCAL) -> dict[str, Any]:
    """Partition → key → its group and row. What every answer promises is asserted here."""
    before = {run: Blocks(of.store, run.name).batch(run.batch, run.rows).to_pylist() for run in runs}
    found = tag.tag(runner, of, runs, slices, index)
    assert [(r.partition, r.group, r.first) for r in found] == sorted((r.partition, r.group, r.first) for r in found)
    rows, last = dict[str, Any](), dict[tuple[str, str], str]()
    for run in found:
        batch = Blocks(of.store, run.name).batch(run.batch, run.rows)
        keys = batch.column(KEY).to_pylist()
        assert (keys[0], keys[-1], sum(batch.column(DELETES).to_pylist())) == (run.first, run.last, run.deletes)
        assert [last.get((run.partition, run.group), ""), *keys] == sorted({last.get((run.partition, run.group), ""), *keys})
        last[run.partition, run.group] = keys[-1]
        for key, row in zip(keys, batch.to_pylist(), strict=True):
            assert key not in rows.setdefault(run.partition, {})
            rows[run.partition][key] = run.group, row
    assert sorted((p, str(row)) for p, keys in rows.items() for _, row in keys.values()) == sorted(
        (run.partition, str(row)) for run, some in before.items() for row in some
    ), "the same rows"
    return {p: {key: group for key, (group, _) in keys.items()} for p, keys in rows.items()}


def test_rows_are_tagged_with_the_group_that_holds_their_key(tmp_path: Path) -> None:
    of = closing(tmp_path)
    one = indexed.partition(tmp_path, [["a", "c", "e"], ["b", "ü"]], "city=sf").slices
    other = indexed.partition(tmp_path, [["a", "x"]], "city=ny").slices
    runs = brought(of, {"city=sf": "abcdeü", "city=ny": "abxy", "city=new": "ab"})
    found = tagged(of, runs, [*one, *other])
    zero, first = indexed.group(0), indexed.group(1)
    assert found == {
        "city=sf": {"a": zero, "b": first, "c": zero, "d": "", "e": zero, "ü": first},
        "city=ny": {"a": zero, "b": "", "x": zero, "y": ""},
        "city=new": {"a": "", "b": ""},
    }


def test_a_run_of_one_group_stays_where_it_is(tmp_path: Path) -> None:
    of = closing(tmp_path)
    slices = indexed.partition(tmp_path, [["a", "b", "c"]]).slices
    runs = brought(of, {"": "abcdef"})
    found = tag.tag(LOCAL, of, runs, slices, "simple")
    assert found == [runs[1], dataclasses.replace(runs[0], group=indexed.group(0))]


def test_runs_are_cut_and_shared_by_their_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tag, "BLOCK", 700)
    monkeypatch.setattr(tag, "PIECE", 150)
    of, keys = closing(tmp_path), [f"k{i:03d}" for i in range(200)]
    slices = indexed.partition(tmp_path, [keys[::3], keys[1::3]]).slices
    shares = list[int]()

    class Counting(quire.LocalRunner):
        def run(self, function: Any, items: Any, **more: Any) -> Any:
            shares.append(len(items))
            return super().run(function, items, **more)

    runs = brought(of, {"": keys}, most=20)
    found = tagged(of, runs, slices, runner=Counting())
    assert found[""] == {key: [indexed.group(0), indexed.group(1), ""][i % 3] for i, key in enumerate(keys)}
    assert shares == [10], "a run is larger than a share"
    assert len(tag.tag(LOCAL, of, runs, slices, "simple")) > 30


def test_of_many_slices_a_task_asks_those_whose_range_meets_its_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tag, "MANY", 3)
    monkeypatch.setattr(tag, "BLOCK", 300)
    keys = [f"k{i:03d}" for i in range(80)]
    of, asked = closing(tmp_path), list[tuple[str, int, list[str]]]()
    slices = [*indexed.partition(tmp_path, [keys[i : i + 8] for i in range(0, 64, 8)], "city=sf").slices]
    slices += indexed.partition(tmp_path, [["a"], ["b"], ["c"]], "city=ny").slices
    unknown = indexed.plain(["k001x", "k070"], tmp_path, 9, partition="city=sf")
    slices.append(unknown)
    long = "k07" + "x" * 2000
    slices.append(indexed.put(tmp_path, indexed.base_file([long], indexed.group(8), "city=sf"), indexed.group(8), "city=sf"))
    real = BloomIndex.lookup

    def lookup(self: BloomIndex, partition: Partition, keys: pa.Array) -> pa.Array:
        asked.append((partition.path, len(partition.slices), keys.to_pylist()))
        return real(self, partition, keys)

    monkeypatch.setattr(BloomIndex, "lookup", lookup)
    runs = brought(of, {"city=sf": [*keys, long], "city=ny": "abd", "city=new": "ab"}, most=8)
    found = tagged(of, runs, slices, "bloom")
    assert found["city=sf"] == {
        **{key: indexed.group(i // 8) if i < 64 else "" for i, key in enumerate(keys)}, "k070": unknown.group, long: indexed.group(8),
    }  # fmt: skip
    assert found["city=ny"] == {"a": indexed.group(0), "b": indexed.group(1), "d": ""}
    assert {(path, count) for path, count, _ in asked} == {("city=ny", 3), ("city=sf", 3), ("city=sf", 2)}, "and two without a range"
    assert sum(len(some) for _, _, some in asked) == 84
    asked.clear()
    slices = [one for one in slices if one.group not in (unknown.group, indexed.group(8))]
    tag.tag(LOCAL, of, runs, slices, "bloom")
    assert max(some[-1] for path, _, some in asked if path == "city=sf") == "k063", "behind all ranges nobody is asked"


def test_a_failure_of_a_task_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = closing(tmp_path)
    good = indexed.partition(tmp_path, [["a"], ["b"]], "good").slices
    bad = indexed.partition(tmp_path, [["a", "b"], ["c", "d"]], "wrong").slices
    runs, slices = brought(of, {"good": "ab", "wrong": "abc"}), [*good, *bad]
    of.store.put(bad[1].name, b"PAR1")
    with refused(FormatError, 2, bad[1].name):
        tag.tag(LOCAL, of, runs, slices, "simple")

    def busy(*_: Any) -> Any:
        raise TransientError("the store is busy")

    monkeypatch.setattr(simple.SimpleIndex, "lookup", busy)
    with refused(TransientError, 3, "the store is busy"):
        tag.tag(LOCAL, of, runs, slices, "simple")
    failures = [Failure("TransientError", "busy"), Failure("ValueError", "odd"), Failure("FormatError", "damaged")]
    for count, kind, said in (
        (1, TransientError, "busy"),
        (2, QuireError, "could not be looked up: ValueError: odd. Nothing of this call is visible: call again"),
        (3, FormatError, "damaged"),
    ):
        with pytest.raises(kind, match=said):
            answers(failures[:count], "the keys could not be looked up")
    with refused(quire.UsageError, 2, "unknown index 'simpel'", "Did you mean 'simple'"):
        tag.tag(LOCAL, of, runs, slices, "simpel")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (pa.array(["../x", None, None]), "the file group '../x' for 3 keys"),
        (pa.array([indexed.group(9), None, None]), "the file group '00000009-"),
        (pa.array([None, None], pa.string()), "0 file groups for 3 keys"),
        ([None] * 3, "list, and not an Arrow array"),
        (pa.array([[1], None, None]), "the file group '1' for 3 keys"),
        (pa.array([{"a": 1}, None, None]), "not an Arrow array of text"),
    ],
)
def test_an_index_that_answers_wrongly_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Any, said: str) -> None:
    """What it says becomes the name of a file."""

    def lookup(_self: Any, _partition: Partition, _keys: pa.Array) -> Any:
        return answer

    of = closing(tmp_path)
    slices = indexed.partition(tmp_path, [["a", "b"]]).slices
    monkeypatch.setattr(simple.SimpleIndex, "lookup", lookup)
    with refused(QuireError, 3, "the index 'simple' gave", said):
        tag.tag(LOCAL, of, brought(of, {"": "abc"}), slices, "simple")


def test_rows_that_vanish_between_two_tasks_are_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = closing(tmp_path)
    slices = indexed.partition(tmp_path, [["a", "b"]]).slices
    monkeypatch.setattr(tag, "_tagged", lambda _share: {"runs": [], "copies": [0, 0]})
    with refused(QuireError, 3, "3 rows (1 that delete)", "0 (0) came back"):
        tag.tag(LOCAL, of, brought(of, {"": "abc"}), slices, "simple")


def test_a_block_is_read_by_some_of_its_columns(tmp_path: Path) -> None:
    of = closing(tmp_path)
    (run,) = brought(of, {"": "ab"})
    assert Blocks(of.store, run.name, [DELETES, KEY]).batch(0, 2).to_pydict() == {KEY: ["a", "b"], DELETES: [True, False]}
    with refused(FormatError, 2, run.name, "is damaged"):
        Blocks(of.store, run.name, ["nobody"])
    assert blocks.PIECE < blocks.BLOCK


def test_a_bucket_has_each_key_and_is_not_begun_for_deletes_alone(tmp_path: Path) -> None:
    of = dataclasses.replace(closing(tmp_path), config=indexed.configured(indexes.settings("bucket", 4)))
    runs = brought(of, {"city=sf": "abcdefgh", "city=ny": "d"})
    assert [run.deletes for run in runs if run.partition == "city=ny"] == [1]
    own = {key: f"{(31 + ord(key)) % 4:08d}-a587-8586-a0a1-000000000000-0" for key in "abcdefgh"}
    assert tagged(of, runs, [], "bucket") == {"city=sf": own, "city=ny": {"d": ""}}
    there = indexed.put(tmp_path, indexed.base_file("x", (group := f"{own['d'][:8]}-f-0"), "city=ny"), group, "city=ny")
    assert tagged(of, runs, [there], "bucket")["city=ny"] == {"d": group}
    over = [("city=sf", own["a"]), ("city=ny", own["b"])]
    (again,) = {run.group for run in tag.tag(LOCAL, of, runs, [], "bucket", over) if run.first == "a"}
    assert (again[:8], again[-3:]) == (own["a"][:8], "1-0")


def test_a_group_with_nearly_all_rows_still_comes_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tag, "PIECE", 4000)
    of, keys = closing(tmp_path), [f"k{i:04d}" for i in range(2000)]
    slices = indexed.partition(tmp_path, [keys[:-1], keys[-1:]]).slices
    runs = brought(of, {"": keys}, most=2000)
    found = tag.tag(LOCAL, of, runs, slices, "bloom")
    assert tagged(of, runs, slices, "bloom")[""] == {key: indexed.group(int(key == keys[-1])) for key in keys}
    assert max(run.size for run in found) < 2 * 4000
    assert len(found) > 10


def test_spark_tags_the_same_rows(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tag, "BLOCK", 500)
    of, keys = closing(tmp_path), [f"k{i:03d}" for i in range(60)]
    slices = indexed.partition(tmp_path, [keys[::3], keys[1::3]]).slices
    runs = brought(of, {"": keys}, most=7)
    assert tagged(of, runs, slices, "bloom", OnSpark(spark)) == tagged(of, runs, slices, "bloom")
    (tmp_path / slices[1].name).write_bytes(b"PAR1")
    with refused(FormatError, 2, slices[1].name, "is damaged"):
        tag.tag(OnSpark(spark), of, runs, slices, "bloom")
