"""Delete sources whose bytes were verified in committed files just now, and nothing else.

A file goes only if all of it is done and published, the source has the very version that the ledger names, what it holds would be written
today as it was written then, and what was written is read back from the data files with the same checksum. It is deleted on condition of
its version where the store can do that. A task does all of this for the files of one segment; whatever does not agree stays, with the
reason. A call that is killed has deleted only what was verified, and the next one goes on.

The log has no word for it, since what the destination holds does not change. Two small objects of the call's own tell the history: one put
before the first file goes, one after the last.
"""

from __future__ import annotations

import functools
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from quire import display
from quire.attempt import Convert
from quire.commit import names, protocol
from quire.commit.entries import FORMAT, Natural, Words, decode, encode, stored
from quire.commit.log import Log
from quire.coverage.fold import Fold, Source
from quire.errors import FormatError, QuireError, RefusedError, StorageError, printable, scrub
from quire.formats import lines, parquet
from quire.planning.listing import EXAMPLES
from quire.runner import Failure, Runner
from quire.sizes import format_size
from quire.sources import transforms
from quire.sources.files import Root, located
from quire.sources.identity import by_content, identified
from quire.sources.transforms import BadContent
from quire.splits import FileInfo
from quire.storage import Content, Entry, Gone, Request, Store, Trouble, Unreadable, below, connect, remove_version

__all__ = ["Purge", "Purged", "purge", "purges"]

ASKING = 32  # requests at once
ROWS = 10_000  # that are looked at together
OPEN = 16  # data files
_COLUMNS = ["path", "version", "start", "length", "state", "data_file", "offset", "skip", "written", "records", "checksum"]
NOTHING = xxhash.xxh3_64_intdigest(b"")  # the checksum of a file without a record
Row = dict[str, Any]
Item = tuple[list[Row], Entry]  # all rows of a file, and the file at its source


@stored
class Purge(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="purge"):
    """What the history knows of a call."""

    version: Natural
    time: str
    sources: tuple[str, ...] = ()
    files: Natural = 0
    bytes: Natural = 0
    stayed: Natural = 0
    format: int = FORMAT


@dataclass(frozen=True)
class Purged(display.Shown):
    """What `purge_sources` did, or (`dry_run`) would do.

    files, bytes   of sources that were verified, and deleted unless it was a dry run
    gone           sources that were not there any more
    stays          reason → how many files that are done stay, for that reason; `examples`: (path, reason) of some
    """

    dest: str
    dry_run: bool
    files: int = 0
    bytes: int = 0
    gone: int = 0
    stays: Mapping[str, int] = field(default_factory=dict)
    examples: tuple[tuple[str, str], ...] = ()
    version: int = 0

    def _facts(self) -> dict[str, object]:
        done = "verified, would be deleted" if self.dry_run else "verified and deleted"
        rows: dict[str, object] = {done: f"{self.files:,} ({format_size(self.bytes)})", "gone before": f"{self.gone:,}"}
        return rows | {"stay": f"{sum(self.stays.values()):,}"} | {f"  {why}": f"{n:,}" for why, n in sorted(self.stays.items())}

    def _note(self) -> str:
        told = [printable(f"{path}: {why}") for path, why in self.examples[:5]]
        return "\n".join([*told, *(["nothing was deleted: dry_run=False (in a shell: --yes) does it"] if self.dry_run else [])])


@dataclass(frozen=True)
class _Purging:
    """All that a task needs."""

    dest: str
    dest_options: Any = field(repr=False)
    fold: Fold
    roots: tuple[Root, ...]  # what the call names: nothing else is looked up, read or deleted, whatever a row says
    words: Words
    dry: bool


@dataclass
class _Found:
    files: int = 0
    bytes: int = 0
    gone: int = 0
    stays: dict[str, int] = field(default_factory=dict)
    examples: list[tuple[str, str]] = field(default_factory=list)

    def stay(self, path: str, why: str, more: str = "") -> None:
        self.stays[why] = self.stays.get(why, 0) + 1
        if len(self.examples) < EXAMPLES:
            self.examples.append((path, f"{why}: {scrub(more)}" if more else why))


# What is said of files that stay.
CHANGED = "it has changed since it was gathered"
PARTLY = "not all of it is done"
DIFFERS = "its content is not what was gathered, though its version is the same"
DAMAGED = "what was written of it cannot be read back as it was written"
MOVED = "others have changed what the ledger says of it meanwhile"
REFUSED = "it cannot be read or deleted"


def purge(
    runner: Runner,
    url: str,
    options: Any,
    folded: Fold,
    words: Words,
    roots: tuple[Root, ...],
    *,
    dry: bool,
    derived: bool,
) -> Purged:
    """Verify, and unless it is `dry` delete, those of the sources `roots` of which `folded` says that they are done."""
    if not words.traced:
        raise RefusedError(
            f"{url} holds rows of all splits of a commit together, and nothing says whose they are: what was made of a source cannot be "
            f"verified, and no source was deleted."
        )
    if words.said and words.transform not in transforms.NAMES and not derived:
        raise RefusedError(
            f"{url} holds what {words.transform!r} has made of its files, and not their content: deleting the sources would lose it. If "
            f"that is meant, say derived=True; what was written is verified all the same."
        )
    store, call = connect(url, options), names.new_id()
    job = _Purging(url, options, folded, roots, words, dry)
    said = Purge(
        version=folded.version,
        time=protocol.now(),
        sources=tuple("/".join(filter(None, (root.url, wanted))) for root in roots for wanted in root.wanted),
    )
    if not dry:
        store.put(f"{names.PURGES}/{call}-begun.json", encode(said))
    total, failed = _Found(), None
    for outcome in runner.run(functools.partial(_purge, job), list(folded.sources)):
        if isinstance(outcome, Failure):
            failed = failed or outcome
            continue
        total.files, total.bytes, total.gone = total.files + outcome["files"], total.bytes + outcome["bytes"], total.gone + outcome["gone"]
        total.stays = dict(Counter(total.stays) + Counter(outcome["stays"]))
        total.examples += [(path, why) for path, why in outcome["examples"]][: EXAMPLES - len(total.examples)]
    if not dry:
        counts = {"files": total.files, "bytes": total.bytes, "stayed": sum(total.stays.values())}
        store.put(f"{names.PURGES}/{call}-ended.json", encode(msgspec.structs.replace(said, **counts, time=protocol.now())))
    if failed is not None:
        done = f"{total.files:,} sources or more were verified{'' if dry else ' and deleted'}; whatever was not verified stays"
        raise failed.kind_of_error(f"cannot purge the sources of {url}: {str(failed).rstrip('.')}. {done}: call again to go on.")
    return Purged(url, dry, total.files, total.bytes, total.gone, total.stays, tuple(total.examples), folded.version)


def purges(store: Store) -> Iterator[tuple[Purge, bool]]:
    """The calls that have deleted sources, each with whether it has come to its end."""
    there = {entry.name for entry in store.walk(names.PURGES)}
    for name in sorted(there):
        call, _, step = name.rpartition("-")
        if step == "ended.json" or f"{call}-ended.json" not in there:
            yield decode(store.get(name), Purge, f"{store.url}/{name}"), step == "ended.json"


# ---------------------------------------------------------------------------------------------------------------------- a task
def _purge(job: _Purging, source: Source) -> dict[str, Any]:
    """The files whose first byte stands in one segment."""
    return asdict(_Task(job, source).run())


class _Task:
    def __init__(self, job: _Purging, source: Source) -> None:
        self.job, self.source, self.found = job, source, _Found()
        self.store = connect(job.dest, job.dest_options)
        self.log = Log(self.store)
        self.convert = Convert(job.words.transform, job.words.format, job.words.compression, 1 << 62, 1 << 62)
        self.compares = job.words.transform in transforms.NAMES
        self.find = located(job.roots)
        self.sources = dict[str, Store]()
        self.known = dict[str, str]()
        self.open = OrderedDict[str, Any]()

    def run(self) -> _Found:
        rows = self.job.fold.of(self.source).rows(self.store, _COLUMNS)
        rows = rows.filter(pc.and_(pc.equal(rows.column("start"), 0), pc.equal(rows.column("state"), "done")))
        rows = rows.sort_by([("data_file", "ascending"), ("offset", "ascending"), ("skip", "ascending")])  # each byte is read once
        for at in range(0, rows.num_rows, ROWS):
            self._some([row for row in rows.slice(at, ROWS).to_pylist() if self._meant(row["path"])])
        return self.found

    def _meant(self, path: str) -> bool:
        return not below(path, self.job.dest) and self.find(path) is not None

    def _at(self, path: str) -> tuple[Store, str]:
        """The store of a source file, and its name there."""
        found = self.find(path)
        if found is None:
            raise FormatError(f"{scrub(path, 200)} does not lie in a source of this call: it was not touched. Look who wrote it.")
        root, name = found
        if root.url not in self.sources:
            self.sources[root.url] = root.store()
        return self.sources[root.url], name

    def _some(self, rows: list[Row]) -> None:
        with ThreadPoolExecutor(ASKING) as pool:
            there = list(pool.map(self._look, rows))
            self.known = self._hashed(rows, there)
            whole, parts = list[Item](), dict[str, tuple[Row, Entry]]()
            for row, entry in zip(rows, there, strict=True):
                if isinstance(entry, str):
                    self.found.stay(row["path"], REFUSED, entry)
                elif entry is None:
                    self.found.gone += 1
                elif self._version(row["path"], entry) == row["version"] and entry.size == row["length"]:
                    whole.append(([row], entry))
                else:
                    parts[row["path"]] = row, entry
            verified = list(self._still(self._verified([*whole, *self._together(parts)])))
            for (mine, entry), why in zip(verified, pool.map(self._delete, verified), strict=True):
                if why:
                    self.found.stay(mine[0]["path"], *why)
                else:
                    self.found.files, self.found.bytes = self.found.files + 1, self.found.bytes + entry.size

    def _look(self, row: Row) -> Entry | str | None:
        """The file at its source, or why it cannot be looked up."""
        try:
            store, name = self._at(row["path"])
            return store.stat(name)
        except (StorageError, FormatError) as e:
            return str(e)

    def _hashed(self, rows: list[Row], there: list[Entry | str | None]) -> dict[str, str]:
        """By path the version of those files that the ledger knows by their content."""
        by_store = dict[int, tuple[Store, dict[str, str], list[Entry]]]()
        for row, entry in zip(rows, there, strict=True):
            if isinstance(entry, Entry) and by_content(row["version"]):
                store, name = self._at(row["path"])
                _, paths, entries = by_store.setdefault(id(store), (store, {}, []))
                paths[name] = row["path"]
                entries.append(entry)
        return {
            paths[item[0].name]: item[0].version
            for store, paths, entries in by_store.values()
            for item in identified(store, entries)
            if not isinstance(item, Trouble)
        }

    def _version(self, path: str, entry: Entry) -> str:
        return self.known.get(path, entry.version)

    def _together(self, parts: Mapping[str, tuple[Row, Entry]]) -> Iterator[Item]:
        """Files of several rows, or with another version: those of which the rows make the whole version that is there."""
        if not parts:
            return
        rows = self.job.fold.rows(self.store, _COLUMNS, min(parts), max(parts))
        rows = rows.filter(pc.is_in(rows.column("path"), pa.array(sorted(parts), pa.string()))).sort_by(
            [("path", "ascending"), ("start", "ascending"), ("length", "ascending")]
        )
        by_path = dict[str, list[Row]]()
        for row in rows.to_pylist():
            by_path.setdefault(row["path"], []).append(row)
        for path, (_, entry) in parts.items():
            mine, at = by_path[path], 0
            for row in mine:
                at = at + row["length"] if row["state"] == "done" and row["start"] == at else -1
            if mine[-1]["version"] != self._version(path, entry):
                self.found.stay(path, CHANGED)
            elif at != entry.size or (self.compares and not self.convert.streams):
                self.found.stay(path, PARTLY)
            else:
                yield mine, entry

    # ------------------------------------------------------------------------------------------------------------------- verify
    def _verified(self, items: list[Item]) -> Iterator[Item]:
        """Those of which the source holds what was written, and what was written is there; the reasons are kept of the others."""
        if not self.compares:
            yield from (item for item in items if self._written(item[0]) is not None)
            return
        by_store = dict[int, tuple[Store, list[Item]]]()
        for item in items:
            store = self._at(item[0][0]["path"])[0]
            by_store.setdefault(id(store), (store, []))[1].append(item)
        for store, mine in by_store.values():
            requests = (
                Request(self._at(rows[0]["path"])[1], entry.version, entry.size, 0, entry.size) for rows, entry in mine
            )  # fmt: skip
            with closing(store.read_many(requests)) as answers:  # type: ignore[type-var]  # a store's answers are a generator
                for item, (_, content) in zip(mine, answers, strict=True):
                    would_be = self._would_be(item, content)
                    if would_be is None:
                        continue
                    written = self._written(item[0])
                    if written == would_be:
                        yield item
                    elif written is not None:
                        self.found.stay(item[0][0]["path"], DIFFERS)

    def _would_be(self, item: Item, content: Content) -> int | None:
        """The checksum of what would be written for the file as it is now; None, and the reason is kept, where there is none."""
        path = item[0][0]["path"]
        try:
            return self._converted(path, item[1], content)
        except Gone:
            self.found.stay(path, CHANGED)
        except BadContent as e:
            self.found.stay(path, DIFFERS, e.reason)
        except (Unreadable, StorageError, FormatError) as e:
            self.found.stay(path, REFUSED, str(e))
        return None

    def _converted(self, path: str, entry: Entry, content: Content) -> int:
        pieces = _pieces(content)
        if not self.convert.streams:
            made = self.convert.records(b"".join(pieces), FileInfo(path, entry.size, entry.version, entry.modified))
            return xxhash.xxh3_64_intdigest(made) if isinstance(made, bytes) else parquet.checksum(made)
        digest, last = xxhash.xxh3_64(), b"\n"
        for piece in pieces:
            digest.update(piece)
            last = piece[-1:] or last
        if self.job.words.transform == "lines" and last != b"\n":
            digest.update(b"\n")
        return digest.intdigest()

    def _written(self, rows: list[Row]) -> int | None:
        """The checksum of all that was written for a file, read back now; None, and the reason is kept, where that is damaged."""
        try:
            together, found = xxhash.xxh3_64(), NOTHING
            for row in rows:
                found = self._record(row, together.update)
                if found != row["checksum"]:
                    raise ValueError("its checksum differs")
            return found if len(rows) == 1 else together.intdigest()
        except (QuireError, *lines.UNREADABLE) as e:
            _, removed = self._since()  # what a compaction has removed meanwhile may be deleted already
            if any(row["data_file"] in removed for row in rows):
                self.found.stay(rows[0]["path"], MOVED)
            else:
                self.found.stay(rows[0]["path"], DAMAGED, f"{rows[0]['data_file'] or 'its row'}: {e or type(e).__name__}")
            return None

    def _record(self, row: Row, also: Callable[[bytes], object]) -> int:
        name = row["data_file"]
        if name is None:
            return NOTHING
        taker = self._taker(name)
        try:
            if isinstance(taker, parquet.Rows):
                return parquet.checksum(taker.take(row["offset"], row["records"]))
            digest = xxhash.xxh3_64()
            for piece in taker.take(row["offset"], row["skip"], row["written"]):
                digest.update(piece)
                also(piece)
            return digest.intdigest()
        except BaseException:
            self.open.pop(name, None)  # what comes after a damaged record is read afresh
            raise

    def _taker(self, name: str) -> Any:
        if name in self.open:
            self.open.move_to_end(name)
        else:
            self.open[name] = (
                parquet.Rows(self.store, name) if name.endswith(".parquet") else lines.cursor(self.store, name, self.job.words.compression)
            )
            if len(self.open) > OPEN:
                self.open.popitem(last=False)
        return self.open[name]

    def _since(self) -> tuple[set[str], set[str]]:
        """The paths that were uncovered and the data files that were removed after what is being verified, published or not."""
        since, log = self.job.fold, self.log.refresh()
        uncovered, removed = set[str](), set[str]()
        # A checkpoint of since then stands for no entry here: it does not say any more what has left.
        for _, commit in log.commits(since.base.version if since.base else 0):
            if not log.in_effect(commit, since.version, reader=True):  # else it was known
                for task in log.in_effect(commit):
                    uncovered.update(u.path for u in task.uncovers)
                    removed.update(task.removes)
        return uncovered, removed

    # ------------------------------------------------------------------------------------------------------------------- delete
    def _still(self, items: Iterable[Item]) -> Iterator[Item]:
        """Those of which the log still says what was verified: a forget or a compaction may have come in between, published or not."""
        uncovered, removed = self._since()
        for rows, entry in items:
            path = rows[0]["path"]
            if path in uncovered or any(row["data_file"] in removed for row in rows):
                self.found.stay(path, MOVED)
            else:
                yield rows, entry

    def _delete(self, item: Item) -> tuple[str, ...]:
        """Why it stays; nothing if it is deleted."""
        if self.job.dry:
            return ()
        rows, entry = item
        try:
            store, name = self._at(rows[0]["path"])
            return () if remove_version(store, name, entry.version) else (CHANGED,)
        except (StorageError, FormatError) as e:
            return REFUSED, str(e)


def _pieces(content: Content) -> Iterator[bytes]:
    if isinstance(content, Gone | Unreadable):
        raise content
    if isinstance(content, bytes):
        yield content
    else:
        yield from content
