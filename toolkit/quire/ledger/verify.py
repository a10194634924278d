"""Reads data files again and compares each record with the checksum that the ledger has of it."""

from __future__ import annotations

import functools
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from quire import display
from quire.arguments import format_size
from quire.commit import names, retire
from quire.commit.checkpoints import FILES
from quire.commit.kept import with_kept
from quire.commit.log import Log
from quire.coverage import keys
from quire.coverage.fold import Fold, Source
from quire.errors import FormatError, StorageError, printable
from quire.formats import lines, parquet, running
from quire.spark.runner import Failure, Runner
from quire.storage import Store, connect
from quire.table.format import log_content
from quire.table.format import names as of_tables

# A task's segment (None: it wrote what others have read), its data files with their sizes (of a checkpoint's piece, its head says
# them), and their compression
Item = tuple[Source | None, dict[str, int], str]


@dataclass(frozen=True)
class Verified(display.Shown):
    """The result of re-reading the data files: `damaged` holds (data file, source path, what is wrong)."""

    dest: str
    data_files: int
    files: int
    bytes: int
    damaged: tuple[tuple[str, str, str], ...] = field(default=())

    @property
    def ok(self) -> bool:
        """Nothing is damaged."""
        return not self.damaged

    def _facts(self) -> dict[str, object]:
        rows: dict[str, object] = {
            "data files read": f"{self.data_files:,}",
            "files compared": f"{self.files:,} ({format_size(self.bytes)})",
        }
        return {**rows, "damaged": f"{len(self.damaged):,}", "verdict": "every checksum agrees" if self.ok else "DAMAGED"}

    def _note(self) -> str:
        more = [f"… {len(self.damaged) - 10:,} more in .damaged"] if len(self.damaged) > 10 else []
        return "\n".join([*(printable(": ".join(filter(None, d))) for d in self.damaged[:10]), *more])

    def as_dict(self) -> dict[str, Any]:
        """As JSON takes it."""
        return {**super().as_dict(), "ok": self.ok}


def verify(runner: Runner, url: str, options: Any, folded: Fold, items: list[Item], count: int, header: bytes = b"") -> Verified:
    """`count` data files, each of which begins with the `header`, against their segments, spread by the runner."""
    files = size = 0
    damaged: list[tuple[str, str, str]] = []
    for outcome, (source, sizes, _) in zip(runner.run(functools.partial(_verify, url, options, folded, header), items), items, strict=True):
        if isinstance(outcome, Failure):
            what = ", ".join(sizes) or f"the data files of {source.segment if source else url}"
            raise outcome.kind_of_error(f"cannot verify {what}: {outcome}. Call again when that is mended.")
        files, size = files + outcome["files"], size + outcome["bytes"]
        damaged += [tuple(d) for d in outcome["damaged"]]
    return Verified(url, count, files, size, tuple(dict.fromkeys(damaged)))


def _verify(url: str, options: Any, folded: Fold, header: bytes, item: Item) -> dict[str, Any]:
    """One task's data files against its segment."""
    source, sizes, compression = item
    store = with_kept(connect(url, options))
    if source is None:
        return {"files": 0, "bytes": 0, "damaged": list(_unreadable(store, sizes, compression))[:1000]}
    rows = folded.of(source).rows(store, ["path", "data_file", "offset", "skip", "written", "records", "checksum"])
    rows = rows.filter(pc.is_valid(rows.column("data_file"))).sort_by(
        [("data_file", "ascending"), ("offset", "ascending"), ("skip", "ascending")]
    )
    damaged, files, size = [], 0, 0
    if source.piece and folded.base is not None:
        here = pc.unique(rows.column("data_file"))
        for table in folded.base.tables(store, "files", FILES, ["data_file", "bytes"]):
            mine = table.filter(pc.is_in(table.column("data_file"), here))
            sizes = sizes | dict(zip(mine.column("data_file").to_pylist(), mine.column("bytes").to_pylist(), strict=True))
    by_file = _by_file(rows)
    for name, length in sizes.items():
        entry = store.stat(name)
        if entry is None or entry.size != length:
            damaged.append((name, "", "the file is gone" if entry is None else f"{entry.size:,} bytes instead of {length:,}"))
        if entry is None:
            continue
        if header and not _begins(store, name, compression, header):
            damaged.append((name, "", "its first line is not the header of the destination's columns"))
        for path, what, n in _compare(store, name, compression, by_file.get(name, rows.slice(0, 0))):
            files, size = files + 1, size + n
            if what:
                damaged.append((name, path, what))
    return {"files": files, "bytes": size, "damaged": damaged[:1000]}


def strays(store: Store, log: Log, live: Container[str]) -> Iterator[tuple[str, str, str]]:
    """The data files in the directory of which nothing counts any more, as `Verified.damaged` has them; not those that pins hold."""
    held, own = retire.waiting(log), f"{names.STATE}/"
    for name in (e.name for e in store.walk() if not e.name.startswith(own)):
        job = names.job_of_data_file(name)
        if job and name not in live and name not in held and log.published(job) is not None:
            yield name, "", "superseded, and back in the directory, whose readers count its rows: ledger.expire() deletes it"


def wrong_keys(log: Log) -> Iterator[tuple[str, str, str]]:
    """The objects of keys that count and cannot be read, as `Verified.damaged` has them."""
    for run in keys.in_effect(log, log.settled_version()):
        try:
            keys.KeyObject(log.store, run.name, run.count).rows(max(0, run.count - 1), run.count)
        except FormatError as e:
            yield run.name, "", f"{e}".rpartition("keys of the ledger, is ")[2]


def _by_file(rows: pa.Table) -> dict[str, pa.Table]:
    """The rows of each data file, of rows that are sorted by it: a piece has thousands of files, and each row is looked at once."""
    found, at = dict[str, pa.Table](), 0
    for count in pc.value_counts(rows.column("data_file").combine_chunks()).to_pylist():
        found[count["values"]] = rows.slice(at, count["counts"])
        at += count["counts"]
    return found


def _unreadable(store: Store, sizes: dict[str, int], compression: str) -> Iterator[tuple[str, str, str]]:
    """The data files that cannot be read to their end, or are not as long as they were: nobody knows more of them."""
    for name, length in sizes.items():
        entry = store.stat(name)
        if entry is None or entry.size != length:
            yield name, "", "the file is gone" if entry is None else f"{entry.size:,} bytes instead of {length:,}"
            continue
        try:
            if name.endswith((".parquet", names.ROWS)):
                file = parquet.open_file(store, name)
                for group in range(file.num_row_groups):
                    file.read_row_group(group)
            elif of_tables.log_file(name.rpartition("/")[2].removesuffix(of_tables.CDC)):
                log_content.check(store.get(name), name)
            else:
                for _ in lines.contents(store, name, compression):
                    pass
        except (StorageError, FormatError, *lines.UNREADABLE) as e:
            yield name, "", f"cannot be read back ({type(e).__name__})"


def _begins(store: Store, name: str, compression: str, header: bytes) -> bool:
    try:
        return lines.header_of(store, name, compression) == header
    except lines.UNREADABLE:
        return False


def _compare(store: Store, name: str, compression: str, rows: pa.Table) -> Iterable[tuple[str, str, int]]:
    try:
        taker: Any = parquet.RowReader(store, name) if name.endswith(".parquet") else lines.cursor(store, name, compression)
    except lines.UNREADABLE as e:
        yield "", f"cannot be opened ({type(e).__name__})", 0
        return
    for row in rows.to_pylist():
        try:
            if isinstance(taker, parquet.RowReader):
                found = running.read_back(taker, row)
            else:
                check = xxhash.xxh3_64()
                for piece in taker.take(row["offset"], row["skip"], row["written"]):
                    check.update(piece)
                found = check.intdigest()
            yield row["path"], "" if found == row["checksum"] else "the checksum differs", row["written"]
        except (StorageError, FormatError, *lines.UNREADABLE) as e:
            yield row["path"], f"cannot be read back ({type(e).__name__})", 0
            if not isinstance(taker, parquet.RowReader):
                taker = lines.cursor(store, name, compression)
