"""Tables about a destination, made from its log and its segments: what ran when, and how large files were and are.

Each has one schema, whatever the destination holds, and comes as pandas, as Arrow or as a Spark DataFrame.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quire.commit.entries import Commit, Task
from quire.coverage.finished import gathered
from quire.coverage.fold import Fold
from quire.errors import choose
from quire.storage import Store

if TYPE_CHECKING:
    import pandas as pd  # below, it is imported where it is used: Spark's workers start without it
    from numpy.typing import NDArray

_Counts = tuple[Counter[int], Counter[int]]  # size class → files, bytes

KINDS = ("pandas", "arrow", "spark")
_TEXT, _WHOLE = pa.string(), pa.int64()


def _schema(texts: str, **others: pa.DataType) -> pa.Schema:
    """Columns in their order; those that are not named in `others` are whole numbers where a `#` comes before them."""
    fields = [(name.lstrip("#"), _WHOLE if name.startswith("#") else others.get(name, _TEXT)) for name in texts.split()]
    return pa.schema(fields)


# What users see, by the ledger's method. Sizes are in bytes; `started` is in UTC.
TABLES: Mapping[str, pa.Schema] = {
    "history": _schema("#version kind verb job time #tasks #files #bytes #data_files #quarantined #deferred note"),
    "tasks": _schema(
        "#commit #task directory #part #files #bytes #data_files #bytes_written started seconds",
        started=pa.timestamp("ms", "UTC"), seconds=pa.float64(),
    ),
    "files": _schema("data_file #bytes #records #commit verb #task directory"),
    "failed": _schema("path version #start #length reason #tries attempt #commit"),
    "rejected": _schema("path version #offset #length error message #tries content attempt #commit", content=pa.binary()),
    "coverage": _schema("#start #length state version #commit data_file reason"),
    "sizes": _schema("#up_to #files_before #bytes_before #files_after #bytes_after"),
    "locate": _schema(
        "path version #start #length state reason data_file #offset #skip #written #records checksum #commit attempt"
    ),
    "deleted": _schema("path version #commit"),
    "changed": _schema("path #size version #commit reason"),
    "offsets": _schema("topic #partition #offset #covered #records #bytes #lost #quarantined cluster topic_id"),
    "lag": _schema("topic #partition #offset #end #lag #lost #open"),
}  # fmt: skip


def given(what: str, rows: pa.Table | Iterable[Sequence[Any]], as_: str = "pandas") -> Any:
    """A table in its schema: `as_` "pandas", "arrow", or "spark" (in the session that is active, or quire's own)."""
    choose(as_, KINDS, "as_")
    schema = TABLES[what]
    if not isinstance(rows, pa.Table):
        columns = list(zip(*rows, strict=True)) or [()] * len(schema)
        rows = pa.table([pa.array(column, f.type) for column, f in zip(columns, schema, strict=True)], schema=schema)
    table = rows.select(schema.names).cast(schema)
    if as_ == "arrow":
        return table
    if as_ == "pandas":
        return table.to_pandas(use_threads=False)
    from pyspark.sql import SparkSession

    from quire.spark.session import session

    return (SparkSession.getActiveSession() or session()).createDataFrame(table)


def task_rows(tasks: Iterable[tuple[int, Commit, Task]]) -> Iterable[Sequence[Any]]:
    """One row a task, as `TABLES["tasks"]` has them."""
    for number, _, t in tasks:
        written = sum(f.size for f in t.files)
        yield number, t.task, t.folder, t.part, t.gathered, t.bytes_in, len(t.files), written, round(t.started * 1000), t.seconds


def size_rows(before: _Counts, after: _Counts) -> list[tuple[int, ...]]:
    """One row a class of sizes: up_to (bytes, a power of two, included; 0: empty files), files and bytes before and after."""
    return [(up_to, *(int(counts[up_to]) for counts in (*before, *after))) for up_to in sorted({*before[0], *after[0]})]


def size_classes(before: _Counts, after: _Counts) -> pd.DataFrame:
    """The same as a table."""
    found: pd.DataFrame = given("sizes", size_rows(before, after))
    return found


def alike(fold: Fold, store: Store, keys: Iterable[str]) -> str:
    """A hint, where one of `keys` is there with the same letters written otherwise: to a disk, and to the ledger, two files."""
    forms = dict.fromkeys(unicodedata.normalize(form, key) for key in keys for form in ("NFC", "NFD"))
    there = next((form for form in forms if form not in keys and fold.rows(store, ["path"], form, form).num_rows), None)
    return "" if there is None else f" (one is there whose letters look alike and are other Unicode characters: {there!a})"


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
        rows = rows.filter(gathered(rows))
        first = pc.equal(rows.column("start"), 0)
        classed(rows.filter(first).column("length").to_numpy(), into=found)
        rest = rows.filter(pc.invert(first))
        for path, length in zip(rest.column("path").to_pylist(), rest.column("length").to_pylist(), strict=True):
            whole[path] = whole.get(path, 0) + length
    if whole:
        paths = pa.array(whole, pa.string())
        for source in fold.sources:
            rows = fold.of(source).rows(store, ["path", "start", "length", "state"])
            first = pc.and_(gathered(rows), pc.equal(rows.column("start"), 0))
            rows = rows.filter(pc.and_(first, pc.is_in(rows.column("path"), paths)))
            lengths = rows.column("length").to_pylist()
            classed(lengths, -1, found)
            classed([n + whole.pop(path, 0) for path, n in zip(rows.column("path").to_pylist(), lengths, strict=True)], into=found)
        classed(whole.values(), into=found)  # of which the first range was quarantined, or done elsewhere
    return +found[0], found[1]
