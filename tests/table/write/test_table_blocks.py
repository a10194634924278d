"""Rows that wait between the steps of a commit come back as they were, or one line says which file is damaged."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gathering import refused
from quire.errors import FormatError, NotFoundError
from quire.storage import Store, connect
from quire.table.format.config import TableConfig
from quire.table.write import blocks
from quire.table.write.blocks import DELETES, KEY, Blocks, BlockWriter, Closing, laid, taken

ROWS = pa.record_batch({"id": pa.array([1, None]), "deep": pa.array([{"x": ["a", None]}, None])})
NAMED, GOES = pa.array(["a", "b"]), pa.array([False, True])


@pytest.fixture
def closing(tmp_path: Path) -> Closing:
    return Closing(tmp_path.as_uri(), {"token": "hidden"}, "3-0123456789abcdef", 7, "c" * 12, "rename", TableConfig(name="t", key=("id",)))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return connect(tmp_path.as_uri())


def written(store: Store, name: str, *batches: pa.RecordBatch) -> str:
    writer = BlockWriter(store.create(name), batches[0].schema)
    assert [writer.add(batch) for batch in batches] == list(range(len(batches)))
    writer.close()
    return name


def test_rows_come_back_by_the_number_of_their_batch(closing: Closing, store: Store) -> None:
    first, second = laid(NAMED, GOES, ROWS), laid(NAMED.slice(1), GOES.slice(1), ROWS.slice(1))
    found = Blocks(store, written(store, closing.new_block(), first, second))
    assert found.schema.names == ["id", "deep", KEY, "_quire_deletes"]
    for number, batch in ((1, second), (0, first)):
        there = found.batch(number, batch.num_rows)
        assert there.equals(batch)
        keys, deletes, rows = taken(there)
        assert (keys, deletes, rows.to_pylist()) == (batch.column(KEY), batch.column(DELETES), ROWS.to_pylist()[-batch.num_rows :])


def test_each_block_has_a_name_of_its_own_in_the_folder_of_its_attempt(closing: Closing) -> None:
    names = {closing.new_block() for _ in range(100)}
    assert len(names) == 100
    folder = f"_quire/jobs/3-0123456789abcdef/attempts/7-{'c' * 12}/"
    assert {name[: len(folder)] for name in names} == {folder}


def test_a_closing_run_travels_without_its_open_store_and_shows_no_option(closing: Closing) -> None:
    assert closing.store is closing.store
    there = pickle.loads(pickle.dumps(closing))
    assert there == closing
    assert "store" not in vars(there)
    assert "hidden" not in repr(there)


@pytest.mark.parametrize(("number", "rows", "said"), [(1, 2, "damaged"), (-1, 2, "damaged"), (2**70, 2, "damaged"), (0, 3, "counted 3")])
def test_a_batch_that_is_not_there_is_refused(closing: Closing, store: Store, number: int, rows: int, said: str) -> None:
    found = Blocks(store, written(store, closing.new_block(), laid(NAMED, GOES, ROWS)))
    with refused(FormatError, 2, said, store.url):
        found.batch(number, rows)


def test_a_damaged_block_is_refused_wherever_it_is_damaged(closing: Closing, store: Store, tmp_path: Path) -> None:
    name = written(store, closing.new_block(), laid(NAMED, GOES, ROWS))
    whole = (tmp_path / name).read_bytes()
    refusals = 0
    for at in range(0, len(whole), 29):
        for data in (whole[:at], whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :]):
            (tmp_path / name).write_bytes(data)
            try:
                Blocks(store, name).batch(0, 2)
            except (FormatError, pa.ArrowMemoryError):  # the latter for a length that no machine has
                refusals += 1
    assert refusals > len(whole) // 29
    (tmp_path / name).write_bytes(whole)
    assert Blocks(store, name).batch(0, 2).equals(laid(NAMED, GOES, ROWS))


def test_a_file_of_another_kind_is_not_a_block(closing: Closing, store: Store) -> None:
    other = written(store, closing.new_block(), ROWS)
    with refused(FormatError, 2, "not a block", other):
        Blocks(store, other)
    with pytest.raises(NotFoundError):
        Blocks(store, closing.new_block())


def test_a_block_that_is_given_up_takes_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    class Sink:
        taken, gone = 0, False

        def write(self, data: Any) -> None:
            assert not self.gone
            self.taken += 1

        def close(self) -> None:
            raise AssertionError

        def discard(self) -> None:
            self.gone = True

    monkeypatch.setattr(blocks, "BUFFER", 64)
    sink = Sink()
    writer = BlockWriter(sink, laid(NAMED, GOES, ROWS).schema)
    writer.add(laid(NAMED, GOES, ROWS))
    writer.discard()
    del writer
    assert sink.gone
    assert sink.taken
