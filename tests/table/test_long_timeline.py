"""A timeline of very many instants: what opening a table reads of it, and how much of it is held."""

from __future__ import annotations

import datetime as dt
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from test_clean import written
from test_writes import create, log_of, ours

from quire.errors import FormatError
from quire.storage import connect
from quire.storage.local import LocalStore
from quire.table import rounds, timeline
from quire.table.format import commit_avro, commits, names, schema
from quire.table.format.commits import CommitMetadata, WriteStat
from quire.table.table import Table

WIDE, MiB = 60, 1 << 20  # files of a commit


def by_another(place: Path, count: int, version: int) -> None:
    """A table into which another program has written: commits of many files, each of which has ended a file group of nobody's."""
    create(place, partition_by=None)
    home = place / (names.TIMELINE if version == 9 else names.FOLDER)
    extra: dict[str, str | None] = {"schema": schema.to_avro(pa.schema([("id", pa.string())]), "t")}
    ids, last = [names.new_file_id() for _ in range(WIDE)], "null"
    for number in range(count):
        at = f"{dt.datetime(2025, 1, 1, tzinfo=dt.UTC) + dt.timedelta(minutes=5 * number):%Y%m%d%H%M%S}000"
        stats = [WriteStat(file_id=one, path=f"{one}_1-2-3_{at}.parquet", partition_path="", prev_commit=last, num_writes=9) for one in ids]
        done = CommitMetadata(
            partition_to_write_stats={"": stats}, extra_metadata=extra, operation_type="INSERT_OVERWRITE",
            partition_to_replace_file_ids={"": [names.new_file_id()]},
        )  # fmt: skip
        encode, ended = (commit_avro.encode, f"_{at[:-1]}1") if version == 9 else (commits.encode, "")
        home.mkdir(exist_ok=True)
        (home / f"{at}{ended}.replacecommit").write_bytes(encode(done))
        last = at


def first_look(place: Path) -> int:
    """How many commits of others the log learns of."""
    entry = rounds.unknown(log_of(place))
    assert entry is not None
    assert len(entry.groups) >= WIDE
    return len(entry.instants)


LOOKS: dict[str, Callable[[Path], int]] = {
    "the first look": first_look,
    "the doctor": lambda place: Table(place).doctor().instants,
    "stats": lambda place: Table(place).stats().commits,
    "replaced file groups": lambda place: len(timeline.current(connect(place.as_uri())).replaced),
}


@pytest.mark.parametrize("look", LOOKS)
def test_whoever_reads_all_commits_holds_a_few_of_them_at_once(tmp_path: Path, version: int, look: str) -> None:
    peaks = dict[int, int]()
    for count in (2, 20, 80):  # the first one imports what is needed
        by_another(place := tmp_path / str(count), count, version)
        tracemalloc.start()
        try:
            assert LOOKS[look](place) == count
            peaks[count] = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peaks[80] < peaks[20] + MiB, f"{peaks[80] - peaks[20]:,} bytes more for 60 commits of {WIDE} files"


def test_opening_a_table_lists_the_names_of_its_timeline_once_and_looks_none_of_them_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, _ = written(tmp_path / "trips", 3)
    rows, scan, peek, looked, named = ours(table), LocalStore.scan, LocalStore.peek, list[str](), list[str]()

    def scanned(self: Any, folder: str = "", **more: Any) -> Iterator[Any]:
        looked.append(folder)
        return scan(self, folder, **more)

    def peeked(self: Any, folder: str = "", **more: Any) -> Iterator[Any]:
        named.append(folder)
        return peek(self, folder, **more)

    monkeypatch.setattr(LocalStore, "scan", scanned)
    monkeypatch.setattr(LocalStore, "peek", peeked)
    assert ours(table) == rows
    assert named == [".hoodie"]
    assert "" in looked, "partitions are listed"
    assert ".hoodie" not in looked, "a look at each name took longer than all else"


def test_an_instant_that_became_a_link_is_not_passed_over(tmp_path: Path) -> None:
    """A commit that somebody has moved away, and linked: its rows are not left out without a word."""
    table, instants = written(tmp_path / "trips", 3)
    there = tmp_path / f"trips/.hoodie/{instants[-1]}.commit"
    there.rename(tmp_path / "moved")
    there.symlink_to(tmp_path / "moved")
    with pytest.raises(FormatError, match=f"{there.name} is a symbolic link"):
        ours(table)
