"""The files of a commit: what it comes to equals a dictionary, and hudi-rs reads the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from by_hand import Hand, Row

import quire
from gathering import refused
from quire.commit import names as own
from quire.errors import FormatError, QuireError
from quire.formats import parquet
from quire.spark.runner import OnSpark
from quire.storage import connect
from quire.table.format import base_file, bloom
from quire.table.format.config import EVENT_TIME
from quire.table.write import write as writing
from quire.table.write.write import abort

COLUMNS = pa.schema([("key", pa.string()), ("p", pa.string()), ("at", pa.int64()), ("tags", pa.list_(pa.string()))])


def row(key: int, p: str = "a", at: int = 0, **more: Any) -> Row:
    return {"key": f"k{key:05d}", "p": p, "at": at, "tags": [f"t{at}", None], **more}


def plain(rows: list[Row]) -> dict[tuple[str, str], Row]:
    return {(r["p"], r["key"]): {f.name: r[f.name] for f in COLUMNS} for r in rows if not r.get("deletes")}


def test_commits_equal_a_dictionary_and_hudi_rs_reads_the_same(tmp_path: Path) -> None:
    table = Hand(tmp_path / "t", COLUMNS)
    expected = plain([row(i, "ab"[i % 2]) for i in range(100)])
    table.commit([row(i, "ab"[i % 2]) for i in range(100)], most=7)
    assert table.rows() == table.theirs() == expected
    then = dict(expected)
    more = [row(i, "abc"[i % 3], at=1) for i in range(50, 150)] + [row(i, "a", deletes=True) for i in range(0, 40, 2)]
    written = table.commit(more, most=9)
    for key, each in {(r["p"], r["key"]): r for r in more}.items():
        expected |= plain([each])
        if each.get("deletes"):
            expected.pop(key, None)
    assert table.rows() == table.theirs() == expected
    assert table.theirs(at="20261122100001000") == then
    counts = [each.counts for each in written]
    assert sum(c.deletes for c in counts) == 20
    assert sum(c.updates + c.inserts for c in counts) == 100
    assert sum(c.updates for c in counts) == len([key for key in then if key in plain(more[:100])])


def test_event_time_keeps_a_newer_row_and_nothing_is_rewritten_where_nothing_changed(tmp_path: Path) -> None:
    table = Hand(tmp_path / "t", COLUMNS, ordering="at", mode=EVENT_TIME)
    table.commit([row(i, at=5) for i in range(10)])
    before = table.rows()
    (written,) = table.commit([row(3, at=4), row(4, at=4, deletes=True)])
    assert (written.file, written.counts.stale) == (None, 2)
    assert table.rows() == table.theirs() == before, "a commit without a file is read"
    (written,) = table.commit([row(3, at=5, tags=[]), row(4, at=6, deletes=True)])
    assert (written.counts.updates, written.counts.deletes, written.counts.kept) == (1, 1, 8)
    assert table.rows() == table.theirs() == {**{k: v for k, v in before.items() if k != ("a", "k00004")}, **plain([row(3, at=5, tags=[])])}
    assert table.commit([row(77, deletes=True)]) == [], "a delete of what is not there opens no file"


def test_a_group_without_rows_keeps_its_file_and_is_filled_again(tmp_path: Path) -> None:
    table = Hand(tmp_path / "t", COLUMNS)
    (first,) = table.commit([row(i) for i in range(5)])
    (written,) = table.commit([row(i, deletes=True) for i in range(5)])
    assert written.file is not None
    assert (written.file.records, written.counts.deletes, written.group) == (0, 5, first.group)
    assert table.rows() == table.theirs() == {}
    (written,) = table.commit([row(9)])
    assert (written.group, written.counts.inserts) == (first.group, 1)
    assert table.rows() == table.theirs() == plain([row(9)])


def test_an_insert_of_a_key_that_its_file_has_updates_the_row(tmp_path: Path) -> None:
    """As Hudi does it: a file with a key twice could not be updated any more."""
    table = Hand(tmp_path / "t", COLUMNS)
    table.commit([row(1), row(2)], operation="insert")
    (written,) = table.commit([row(1, at=2), row(3)], operation="insert")
    assert (written.counts.kept, written.counts.inserts, written.counts.updates) == (1, 1, 1)
    assert table.rows() == table.theirs() == plain([row(1, at=2), row(2), row(3)])


def test_spark_writes_the_same(tmp_path: Path, spark: Any) -> None:
    table, rows = Hand(tmp_path / "t", COLUMNS), [row(i, "abc"[i % 3]) for i in range(30)]
    instant = table.next()
    written = table.write(table.targets(table.runs(rows)), instant, OnSpark(spark))
    assert len({each.group for each in written}) == 3
    table.publish(written, instant)
    more = [row(i, "abc"[i % 3], at=1, deletes=i % 2 == 0) for i in range(20, 40)]
    instant = table.next()
    table.publish(table.write(table.targets(table.runs(more)), instant, OnSpark(spark)), instant)
    assert table.rows() == table.theirs() == {**plain(rows[:20]), **plain(more)}


def footers(table: Hand) -> list[base_file.Footer]:
    store = connect(table.url)
    found = [e.name for e in store.walk() if e.name.endswith(".parquet")]
    return [base_file.read_footer(parquet.stored(store, name), name) for name in sorted(found, key=lambda name: name[-25:])]


def test_a_filter_is_kept_extended_or_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Hand(tmp_path / "t", COLUMNS)
    added = list[int]()
    add = bloom.Filter.add
    monkeypatch.setattr(bloom.Filter, "add", lambda self, keys: (added.append(len(keys)), add(self, keys))[1])
    table.commit([row(i) for i in range(800)])
    for keys, expected in ((range(5), []), (range(795, 810), [10]), (range(800, 1000), [1000])):
        added.clear()
        table.commit([row(i, at=1) for i in keys])
        assert [n for n in [sum(added)] if n] == expected
    every = pa.array([f"k{i:05d}" for i in range(1000)])
    texts = []
    for footer, n in zip(footers(table), (800, 800, 810, 1000), strict=True):
        keys_filter = footer.keys_filter()
        assert keys_filter is not None
        found = keys_filter.might_contain(every)
        assert found[:n].all()
        assert found[n:].sum() <= 1
        texts.append(footer.filter_text)
        assert (footer.min_key, footer.max_key) == ("k00000", f"k{n - 1:05d}")
    assert texts[0] == texts[1]
    assert len(texts[1] or "") == len(texts[2] or "") < len(texts[3] or "")


def test_a_filter_as_large_as_jvm_hudis_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Hand(tmp_path / "t", COLUMNS)
    monkeypatch.setattr(writing, "filter_of", lambda *_: (bloom.Filter.dynamic(60_000, 1e-9), False))
    table.commit([row(1), row(2)])
    monkeypatch.undo()
    table.commit([row(1, at=1)])
    large, small = footers(table)
    assert (len(large.filter_text or ""), large.filter_kind, small.filter_kind) == (431_380, "DYNAMIC_V0", "SIMPLE")
    assert len(small.filter_text or "") < 100
    keys_filter = small.keys_filter()
    assert keys_filter is not None
    assert keys_filter.might_contain(pa.array(["k00001", "k00002"])).all()


def test_a_run_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    for url in (tmp_path / "t", "memory://given-up"):
        table = Hand(url, COLUMNS)
        written = table.write(table.targets(table.runs([row(i) for i in range(10)])), table.next())
        assert all(each.file for each in written)
        assert [e.name for e in table.store.walk(own.STATE)] or table.closing.committer == "upload"
        abort(table.closing, written)
        assert [e.name for e in table.store.walk() if own.STATE in e.name and str(table.closing.attempt) in e.name] == []
        assert not (table.store.can_upload and list(table.store.pending()))


class Lies(quire.LocalRunner):
    """Answers something else than its task."""

    def __init__(self, **said: Any) -> None:
        self.said = said

    def run(self, *args: Any, **more: Any) -> Any:
        return [{**answer, **self.said} for answer in super().run(*args, **more)]


@pytest.mark.parametrize(
    "said",
    [
        {"file": {"name": "a/part-1.parquet", "size": 1, "records": 10, "handle": ""}}, {"previous": "20260101000000000"},
        {"counts": {"kept": 0, "updates": 1, "inserts": 9, "deletes": 1, "stale": 0}}, {"group": "another"}, {"file": None}, {"more": 1},
        {"file": {"name": "../x/a_0-1-2_20261122100002000.parquet", "size": 1, "records": 10, "handle": ""}},
    ],
)  # fmt: skip
def test_an_answer_that_is_not_of_its_task_is_one_line(tmp_path: Path, said: dict[str, Any]) -> None:
    table = Hand(tmp_path / "t", COLUMNS)
    found = table.targets(table.runs([row(i) for i in range(10)]))
    with refused(FormatError, 2, "job"):
        table.write(found, table.next(), Lies(**said))


def test_what_fails_is_tried_again_and_then_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Hand(tmp_path / "t", COLUMNS)
    runs, left = table.runs([row(i) for i in range(10)]), [2]
    right = writing.merge

    def fails(*args: Any, **more: Any) -> Any:
        left[0] -= 1
        if left[0] >= 0:
            raise OSError("no space on device")
        return right(*args, **more)

    monkeypatch.setattr(writing, "merge", fails)
    table.publish(table.write(table.targets(runs), instant := table.next()), instant)
    assert table.rows() == plain([row(i) for i in range(10)])
    left[0] = 99
    with refused(QuireError, 3, "1 of 1 files", "no space on device", "3 times"):
        table.write(table.targets(table.runs([row(1)])), table.next())
    assert not list(table.store.walk(own.attempt_folder("0-0000000000000007", 3, table.closing.attempt)))


def test_a_column_that_came_later_is_null_before_and_one_that_the_rows_lack_too(tmp_path: Path) -> None:
    table = Hand(tmp_path / "t", COLUMNS)
    table.commit([row(1), row(2)])
    table.columns = pa.schema([*COLUMNS, ("more", pa.decimal128(9, 2))])
    known = table.runs([row(2), row(3)])
    old, table.columns = table.columns, COLUMNS
    (without,) = table.runs([row(1, at=9)])
    table.columns = old
    instant = table.next()
    table.publish(table.write(table.targets([without, *known]), instant), instant)
    assert {key[1]: found["more"] for key, found in table.rows().items()} == {f"k0000{i}": None for i in (1, 2, 3)}
    assert table.rows() == table.theirs()
    table.commit([{**row(2), "more": 1}])
    assert table.rows() == table.theirs()
    assert table.rows()["a", "k00002"]["more"] == 1


def test_a_base_file_out_of_order_is_merged_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As JVM Hudi leaves it: new rows follow the old ones; of one row group they are sorted, of several they stay."""
    for group in (1 << 20, 1):
        monkeypatch.setattr(base_file, "GROUP", group)
        table = Hand(tmp_path / str(group), COLUMNS)
        monkeypatch.setattr(writing, "merge", lambda *args, of=writing.merge, **more: of(*args, **{**more, "in_order": False}))
        monkeypatch.setattr(writing, "in_key_order", lambda *_, **__: True)
        monkeypatch.setattr(
            base_file.BaseFileWriter.__init__, "__kwdefaults__", {**base_file.BaseFileWriter.__init__.__kwdefaults__, "group": group}
        )
        table.commit([row(i) for i in range(10, 20)])
        table.commit([row(i) for i in range(5)])
        monkeypatch.undo()
        keys = table.snapshot()["key"].to_pylist()
        assert keys != sorted(keys)
        table.commit([row(i, at=1) for i in range(3, 12)])
        assert table.rows() == table.theirs() == plain([row(i, at=int(3 <= i < 12)) for i in range(20)])
        keys = table.snapshot()["key"].to_pylist()
        assert (keys == sorted(keys)) is (group > 1)
