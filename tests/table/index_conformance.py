"""Every index must keep these promises: quire's own, and those of other packages.

    check(MyIndex)        raises AssertionError where one is broken; `folder` is an empty directory

A table is made and updated, an index is asked each time, and what it says must equal a dictionary.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import indexed
import numpy as np
import pyarrow as pa

from quire.table.file_groups import Slice
from quire.table.format import names
from quire.table.index import Index
from quire.table.index import settings as settings_of

CONFIG = indexed.configured(settings_of("bucket", 5))


def check(kind: Callable[[], Index], folder: Path) -> None:
    """All promises, on a table in a directory."""
    named(kind)
    history(kind, folder / "h", [["a", "c"], ["b", "a"], ["ü", "z", "€", "😀", "\uffff"], ["a", "b", "c", "d", "z", "😀"]])
    random = np.random.default_rng(7)
    history(kind, folder / "r", [[f"k{i}" for i in random.integers(0, 300, 80)] for _ in range(5)], rows=7)
    of_nothing(kind, folder / "n")


def named(kind: Callable[[], Index]) -> None:
    """It says its name, and whether it computes."""
    assert isinstance(kind().name, str)
    assert isinstance(kind().computes, bool)


def history(kind: Callable[[], Index], folder: Path, commits: Iterable[Sequence[str]], rows: int = 3) -> dict[str, str]:
    """Commits one after the other, each in files of its own groups: key → file group, as the index and a dictionary say it."""
    known, slices = dict[str, str](), dict[str, Slice]()
    for number, some in enumerate(commits):
        keys = indexed.text(some)
        before = indexed.seen(folder, slices.values(), "city=sf", CONFIG)
        found = answers(kind(), before, keys)
        assert found == answers(kind(), before, keys), "asked twice, it says the same"
        for i, key in enumerate(keys.to_pylist()):
            if key in known:
                assert found[i] == known[key], f"{key} is in {known[key]}"
            elif kind().computes:
                assert found[i] is not None
                assert names.is_file_id(found[i])
                known[key] = found[i]
            else:
                assert found[i] is None, f"{key} is not there"
                known[key] = indexed.group(number * 10 + i % 2)
        for group in {known[key] for key in keys.to_pylist()}:
            content = indexed.base_file([key for key, of in known.items() if of == group], group, "city=sf", rows)
            slices[group] = indexed.put(folder, content, group, "city=sf")
    shutil.rmtree(folder)
    return known


def of_nothing(kind: Callable[[], Index], folder: Path) -> None:
    """A partition without files, one whose only file has no rows, and no keys at all."""
    keys = indexed.text(["a", "b"])
    nobody = indexed.seen(folder, [], "", CONFIG)
    group = answers(kind(), nobody, keys)[0] or indexed.group(0)
    empty = indexed.seen(folder, [indexed.put(folder, indexed.base_file([], group), group)], "", CONFIG)
    for each in (nobody, empty):
        assert kind().computes or answers(kind(), each, keys) == [None, None]
        assert answers(kind(), each, indexed.text([])) == []


def answers(index: Index, partition: indexed.Partition, keys: pa.Array) -> list[str | None]:
    """One for each key, and text."""
    found = index.lookup(partition, keys)
    assert len(found) == len(keys)
    values: list[str | None] = found.cast(pa.string()).to_pylist()
    return values
