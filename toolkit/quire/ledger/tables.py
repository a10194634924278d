"""Tables about a destination: their schemas, the forms in which they are given, and those that are made of its log and its segments.

Each has one schema, whatever the destination holds, and comes as pandas, as Arrow or as a Spark DataFrame.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quire.commit.entries import Commit, Task
from quire.commit.history import HISTORY, history_row
from quire.commit.log import Log
from quire.coverage.finished import gathered
from quire.coverage.fold import Fold, Source
from quire.errors import UsageError, choose
from quire.planning.listing import CHANGED
from quire.planning.undone import SPLITS, TOLD
from quire.spark.releases import from_arrow, is_frame, to_arrow
from quire.spark.runner import LocalRunner, OnSpark, Runner, frame_of
from quire.spark.session import session
from quire.spark.shipping import one_line
from quire.storage import Store

if TYPE_CHECKING:
    import pandas as pd  # below, it is imported where it is used: Spark's workers start without it
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    from quire.ledger.ledger import Location

_Counts = tuple[Counter[int], Counter[int]]  # size class → files, bytes

KINDS = ("pandas", "arrow", "spark")
_TEXT, _WHOLE = pa.string(), pa.int64()


def _schema(texts: str, **others: pa.DataType) -> pa.Schema:
    """Columns in their order; those that are not named in `others` are whole numbers where a `#` comes before them."""
    fields = [(name.lstrip("#"), _WHOLE if name.startswith("#") else others.get(name, _TEXT)) for name in texts.split()]
    return pa.schema(fields)


_IN_SQL = {_TEXT: "string", _WHOLE: "long", pa.timestamp("us", "UTC"): "timestamp"}
_ROW = _schema("path version #start #length state reason data_file #offset #skip #written #records checksum #commit attempt member")

# The tables that users see, by the method of `ledger.inspect`. Sizes are in bytes; `started` is in UTC.
TABLES: Mapping[str, pa.Schema] = {
    "history": _schema("#version kind verb job time #tasks #files #bytes #data_files #quarantined #deferred note"),
    "tasks": _schema(
        "#commit #task directory #part #files #bytes #data_files #bytes_written started seconds",
        started=pa.timestamp("ms", "UTC"), seconds=pa.float64(),
    ),
    "files": _schema("data_file #bytes #records #commit verb #task directory"),
    "quarantined": _schema("path version #start #length reason #tries attempt #commit member"),
    "quarantined_records": _schema("path version #offset #length error message #tries content attempt #commit", content=pa.binary()),
    "coverage": _schema("#start #length state version #commit data_file reason"),
    "sizes": _schema("#up_to #files_before #bytes_before #files_after #bytes_after"),
    "locations": _ROW,
    "splits": _ROW,
    "reasons": _schema("reason #files #tries example"),
    "commits": _schema(
        "#version verb time #files #forgotten #quarantined #written #removed #data_files #records #bytes #lost #duplicates note"
    ),
    "unprocessed": SPLITS,
    "unprocessed and changed": TOLD,
    "deleted": _schema("path version #commit"),
    "changed": CHANGED,
    "offsets": _schema("topic #partition #offset #covered #records #bytes #lost #quarantined cluster topic_id"),
    "lag": _schema("topic #partition #offset #end #lag #lost #open"),
}  # fmt: skip


def given(what: str, find: Callable[[], Any], as_: str = "pandas", spark: Any = None) -> Any:
    """The table `what` in its schema: `as_` "pandas", "arrow", or "spark" (in this session; left out: the active one, or quire's own).

    `find` gives its rows, an Arrow table, or a Spark DataFrame, which stays one if it may. UsageError for another form.
    """
    choose(as_, KINDS, "as_")
    if as_ == "spark" and isinstance(spark, LocalRunner):
        raise UsageError("as_='spark' needs a SparkSession. Say as_='pandas' or 'arrow'.")
    found = find()
    if is_frame(found):
        if as_ == "spark":
            return found
        with one_line():
            found = to_arrow(found)
    table = table_of(what, found)
    if as_ == "arrow":
        return table
    if as_ == "pandas":
        return table.to_pandas(use_threads=False)
    from pyspark.sql import SparkSession

    found = spark.spark if isinstance(spark, OnSpark) else spark
    return from_arrow(found or SparkSession.getActiveSession() or session(), table)


def table_of(what: str, rows: pa.Table | Iterable[Sequence[Any]]) -> pa.Table:
    """Rows as an Arrow table in the schema of `what`."""
    schema = TABLES[what]
    if not isinstance(rows, pa.Table):
        columns = list(zip(*rows, strict=True)) or [()] * len(schema)
        rows = pa.table([pa.array(column, f.type) for column, f in zip(columns, schema, strict=True)], schema=schema)
    return rows.select(schema.names).cast(schema)


def computed(
    what: str, runner: Runner, n: int, rows: Callable[[int], Iterator[pa.Table]], dest: str, sources: Iterable[str] = (),
    tasks: int | None = None,
) -> DataFrame | pa.Table:  # fmt: skip
    """Return the rows of each number below n: on Spark a DataFrame that tasks compute where it is used, else an Arrow table."""
    schema = TABLES[what]
    if not isinstance(runner, OnSpark):
        return pa.concat_tables([schema.empty_table(), *(table.select(schema.names).cast(schema) for i in range(n) for table in rows(i))])

    def read(i: int) -> Iterator[pa.RecordBatch]:
        for table in rows(i):
            yield from table.combine_chunks().to_batches(max_chunksize=10_000)

    return frame_of(runner.spark, n, read, columns_of(what), dest, sources, tasks)


def columns_of(what: str) -> str:
    """The columns of a table, as Spark's SQL names them."""
    return ", ".join(f"{field.name} {_IN_SQL[field.type]}" for field in TABLES[what])


def history(log: Log, version: int) -> pa.Table:
    """One row an entry of the log up to a version, as `TABLES["history"]` has them."""
    recent = log.since(log.merged)[: version - log.merged]
    found = table_of("history", [history_row(number, entry) for number, entry in enumerate(recent, log.merged + 1)])
    if log.base is None:
        return found
    before = log.base.history_rows(log.archive, HISTORY.names)
    return pa.concat_tables([*(table.cast(found.schema) for table in before), found])


def quarantined(store: Store, folded: Fold) -> pa.Table:
    """The rows in quarantine, as `TABLES["quarantined"]` has them."""
    wanted = TABLES["quarantined"].names
    tables = [TABLES["quarantined"].empty_table()]
    for source in folded.sources:
        if source.quarantined:
            rows = folded.of(source).rows(store, [*(name for name in wanted if name != "commit"), "state"])
            tables.append(rows.filter(pc.equal(rows.column("state"), "quarantined")).select(wanted).cast(TABLES["quarantined"]))
    return pa.concat_tables(tables)


def splits(store: Store, folded: Fold, source: Source) -> pa.Table:
    """The rows of a source, as `TABLES["splits"]` has them."""
    wanted = TABLES["splits"].names
    table = folded.of(source).rows(store, [name for name in wanted if name != "commit"]).select(wanted)
    return table.set_column(wanted.index("checksum"), "checksum", in_hex(table.column("checksum")))


def in_hex(checksums: pa.ChunkedArray) -> pa.Array:
    """Checksums as users see them."""
    return pa.array([None if value is None else f"{value:016x}" for value in checksums.to_pylist()], pa.string())


def covered(found: Iterable[Location]) -> Iterator[Sequence[Any]]:
    """The ranges of a file in their order, and the gaps between them, as `TABLES["coverage"]` has them."""
    at = 0
    for x in found:
        if x.start > at:
            yield at, x.start - at, "gap", None, None, None, None
        yield x.start, x.length, x.state, x.version, x.commit, x.data_file, x.reason
        at = x.start + x.length


def task_rows(tasks: Iterable[tuple[int, Commit, Task]]) -> Iterable[Sequence[Any]]:
    """One row a task, as `TABLES["tasks"]` has them."""
    for number, _, t in tasks:
        written = sum(f.size for f in t.data_files)
        stats, began = t.stats, round(t.stats.started * 1000)
        yield number, t.task, t.folder, t.part, stats.files_in, stats.bytes_in, len(t.data_files), written, began, stats.seconds


def size_rows(before: _Counts, after: _Counts) -> list[tuple[int, ...]]:
    """One row a class of sizes: up_to (bytes, a power of two, included; 0: empty files), files and bytes before and after."""
    return [(up_to, *(int(counts[up_to]) for counts in (*before, *after))) for up_to in sorted({*before[0], *after[0]})]


def size_classes(before: _Counts, after: _Counts) -> pd.DataFrame:
    """The same as a table."""
    found: pd.DataFrame = table_of("sizes", size_rows(before, after)).to_pandas(use_threads=False)
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
