"""Tables about a destination, made from its log and its segments: what ran when, and how large files were and are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quire.commit.entries import Commit, Task
from quire.coverage.fold import Fold
from quire.storage import Store

if TYPE_CHECKING:
    import pandas as pd  # below, it is imported where it is used: Spark's workers start without it
    from numpy.typing import NDArray

__all__ = ["file_lengths", "size_classes", "task_table"]

_Counts = tuple[Counter[int], Counter[int]]  # size class → files, bytes


def task_table(tasks: Iterable[tuple[int, Commit, Task]]) -> pd.DataFrame:
    """One row a task: commit, task, directory, part, files, bytes, data_files, bytes_written, started (UTC), seconds."""
    import pandas as pd

    rows = [
        (number, t.task, t.folder, t.part, t.gathered, t.bytes_in, len(t.files), sum(f.size for f in t.files), t.started, t.seconds)
        for number, _, t in tasks
    ]
    names = ["commit", "task", "directory", "part", "files", "bytes", "data_files", "bytes_written", "started", "seconds"]
    found = pd.DataFrame(rows, columns=names)
    return found.assign(started=pd.to_datetime(found["started"], unit="s", utc=True))


def size_classes(before: _Counts, after: _Counts) -> pd.DataFrame:
    """One row a class of sizes: up_to (bytes, a power of two, included; 0: empty files), files and bytes before and after."""
    import pandas as pd

    rows = [(up_to, *(int(counts[up_to]) for counts in (*before, *after))) for up_to in sorted({*before[0], *after[0]})]
    return pd.DataFrame(rows, columns=["up_to", "files_before", "bytes_before", "files_after", "bytes_after"])


def classed(lengths: Iterable[int] | NDArray[np.int64], sign: int = 1, into: _Counts | None = None) -> _Counts:
    """Count lengths by their class: the smallest power of two that is not below."""
    files, size = into or (Counter[int](), Counter[int]())
    given = np.asarray(lengths if isinstance(lengths, np.ndarray) else list(lengths), np.int64)
    classes = np.where(given > 0, 1 << np.ceil(np.log2(np.maximum(given, 1))).astype(np.int64), 0)
    for up_to in np.unique(classes).tolist():
        chosen = given[classes == up_to]
        files[up_to] += sign * len(chosen)
        size[up_to] += sign * int(chosen.sum())
    return files, size


def file_lengths(store: Store, fold: Fold) -> _Counts:
    """The sizes of the source files that were gathered, one segment after the other; a long file's ranges are added up."""
    found: _Counts = (Counter(), Counter())
    whole = dict[str, int]()  # of the long files: what their first range lacks
    for source in fold.sources:
        rows = fold.of(source).rows(store, ["path", "start", "length", "state"])
        rows = rows.filter(pc.equal(rows.column("state"), "done"))
        first = pc.equal(rows.column("start"), 0)
        classed(rows.filter(first).column("length").to_numpy(), into=found)
        rest = rows.filter(pc.invert(first))
        for path, length in zip(rest.column("path").to_pylist(), rest.column("length").to_pylist(), strict=True):
            whole[path] = whole.get(path, 0) + length
    if whole:
        paths = pa.array(whole, pa.string())
        for source in fold.sources:
            rows = fold.of(source).rows(store, ["path", "start", "length", "state"])
            first = pc.and_(pc.equal(rows.column("state"), "done"), pc.equal(rows.column("start"), 0))
            rows = rows.filter(pc.and_(first, pc.is_in(rows.column("path"), paths)))
            lengths = rows.column("length").to_pylist()
            classed(lengths, -1, found)
            classed([n + whole.pop(path, 0) for path, n in zip(rows.column("path").to_pylist(), lengths, strict=True)], into=found)
        classed(whole.values(), into=found)  # of which the first range was set aside, or done elsewhere
    return +found[0], found[1]
