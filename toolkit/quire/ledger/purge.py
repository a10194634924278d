"""Delete sources whose bytes were verified in committed files just now, and nothing else.

A file goes only if all of it is done and published, the source has the very version that the ledger names and has had it for `min_age`,
what it holds would be written today as it was written then, and what was written is read back from the data files with the same checksum.

    begin    each of these is read and verified; one commit says that their rows are `purging`
    end      those of that commit are deleted on condition of their version; one commit says which are `purged`

So the ledger says what is finished before a byte of it is gone, and a call may end anywhere: the next one looks at what the last one has
left as `purging`, and deletes nothing that it has not verified itself. A task does all of this for the files of one segment; whatever does
not agree stays, with the reason.
"""

from __future__ import annotations

import functools
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from quire import display
from quire.arguments import format_size
from quire.commit.entries import PURGE, Spec
from quire.commit.log import Log
from quire.coverage.finished import DELETING, KEY, PURGED, PURGING, SAID, ordinal
from quire.coverage.fold import Fold, Source, fold
from quire.coverage.tails import fingerprint, mark, prefix, reread
from quire.errors import FormatError, QuireError, RefusedError, StorageError, printable, scrub
from quire.formats import lines, parquet
from quire.ledger.job import Dest, PlannedChange, change
from quire.planning.drops import put_table
from quire.planning.listing import EXAMPLES, TaskRun
from quire.planning.pack import PlannedTask
from quire.sources import transforms
from quire.sources.files import Root, located
from quire.sources.identity import by_content, identified
from quire.sources.splits import FileInfo
from quire.sources.transforms import BadContent
from quire.sources.transforms.convert import Convert
from quire.spark.runner import Failure, Runner
from quire.storage import Beside, Content, Entry, ReadRequest, Store, Trouble, Unreadable, Vanished, below, connect, remove_version
from quire.storage.aside import left_in
from quire.storage.aside import mark as mark_of

ASKING = 32  # requests at once
ROWS = 10_000  # that are looked at together
TOGETHER = 200_000  # in a task that says what is finished
OPEN = 16  # data files
_COLUMNS = [*KEY, "state", "reason", "data_file", "offset", "skip", "written", "records", "checksum", "fingerprint", "tries"]
NOTHING = xxhash.xxh3_64_intdigest(b"")  # the checksum of a file without a record
Row = dict[str, Any]
Item = tuple[list[Row], Entry]  # all rows of a file, and the file at its source


@dataclass(frozen=True)
class Purged(display.Shown):
    """The result of `purge_sources`, or (`dry_run`) its plan.

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
    spec: Spec
    named: Callable[[str], str] | None = None  # names an object of the plan; None: nothing is to be done, it is only said what would be
    newest: int | None = None  # what has changed later than that is too young
    bases: tuple[int, ...] = ()  # of the commits by which this call has begun


@dataclass
class _Candidates:
    files: int = 0
    bytes: int = 0
    gone: int = 0
    stays: dict[str, int] = field(default_factory=dict)
    examples: list[tuple[str, str]] = field(default_factory=list)
    runs: list[tuple[str, int]] = field(default_factory=list)  # objects of the plan, and their rows

    def stay(self, path: str, why: str, more: str = "") -> None:
        self.stays[why] = self.stays.get(why, 0) + 1
        if len(self.examples) < EXAMPLES:
            self.examples.append((path, f"{why}: {scrub(more)}" if more else why))

    def add(self, other: dict[str, Any]) -> None:
        """Also what another task has found."""
        self.files, self.bytes, self.gone = self.files + other["files"], self.bytes + other["bytes"], self.gone + other["gone"]
        self.stays = dict(Counter(self.stays) + Counter(other["stays"]))
        self.examples += [(path, why) for path, why in other["examples"]][: EXAMPLES - len(self.examples)]
        self.runs += [(name, rows) for name, rows in other["runs"]]


# What is said of files that stay.
CHANGED = "it has changed since it was gathered"
PARTLY = "not all of it is done"
DIFFERS = "its content is not what was gathered, though its version is the same"
DAMAGED = "what was written of it cannot be read back as it was written"
MOVED = "others have changed what the ledger says of it meanwhile"
REFUSED = "it cannot be read or deleted"
YOUNG = "it has changed within min_age, and may still be written to"


def purge(
    dest: Dest, spec: Spec, roots: tuple[Root, ...], *, dry: bool, derived: bool, min_age: float
) -> Purged:  # fmt: skip
    """Verify, and unless it is `dry` delete, those of the sources `roots` of which the ledger says that they are done.

    `min_age`: seconds for which a source has not changed.
    """
    url, runner = dest.url, dest.runner
    if not spec.traced:
        raise RefusedError(
            f"{url} holds rows of all splits of a commit together, and nothing says whose they are: what was made of a source cannot be "
            f"verified, and no source was deleted."
        )
    if spec.said and spec.transform not in transforms.NAMES and not derived:
        raise RefusedError(
            f"{url} holds what {spec.transform!r} has made of its files, and not their content: deleting the sources would lose it. If "
            f"that is meant, say derived=True; what was written is verified all the same."
        )
    job = _Purging(url, dest.options, fold(Log(dest.store()).refresh(), reader=True), roots, spec)
    before, verified, deleted, bases, version = _Candidates(), _Candidates(), _Candidates(), list[int](), job.fold.version

    def begin(log: Log, base: int, named: Callable[[str], str]) -> PlannedChange:
        nonlocal verified
        mine = replace(job, fold=fold(log, base), named=named, newest=_ago(min_age), bases=tuple(bases))
        verified = _spread(runner, functools.partial(_verify, mine), mine, "no source was deleted")
        bases.append(base)
        return _planned(verified)

    def end(log: Log, base: int, named: Callable[[str], str]) -> PlannedChange:
        nonlocal before
        mine = replace(job, fold=fold(log, base), named=named, bases=tuple(bases))
        if not bases:  # also what has no plan yet: this is its job, whose objects would stay for ever
            before = (
                _spread(runner, functools.partial(_settle, mine), mine, "no source was deleted")
                if mine.fold.said or mine.fold.base
                else before
            )
            return _planned(before)
        found = _spread(runner, functools.partial(_delete, mine), mine, "what is deleted was verified, and the ledger has it")
        deleted.add({**asdict(found), "runs": []})
        return _planned(found)

    if dry:
        verified = deleted = _spread(runner, functools.partial(_verify, replace(job, newest=_ago(min_age))), job, "nothing was changed")
    else:
        meant = ["/".join(filter(None, (root.url, wanted))) for root in roots for wanted in root.wanted]
        reason = f"sources to be deleted below {', '.join(meant)}"[:500]
        said = {"verb": PURGE, "step": "begin", "sources": meant, "derived": derived, "reason": reason}
        ending = {"verb": PURGE, "step": "end", "reason": "sources deleted"}
        change(dest, ending, end, target=0)  # what a killed call has deleted, and could not say any more
        bases.clear()
        begun = change(dest, said, begin, target=0, fresh=True, repeat=True)
        bases[:] = [int(name.partition("-")[0]) for name in begun.jobs]
        version = change(dest, ending, end, target=0, repeat=True).version if begun.jobs else begun.version
    total = _Candidates()
    for found in (before, verified, deleted) if not dry else (verified,):
        total.add(asdict(found))
    moved = 0 if dry else verified.files - deleted.files - sum(deleted.stays.values())
    if moved > 0:
        total.stays[MOVED] = total.stays.get(MOVED, 0) + moved
    return Purged(url, dry, deleted.files, deleted.bytes, total.gone, total.stays, tuple(total.examples), version)


def _ago(min_age: float) -> int | None:
    return time.time_ns() - int(min_age * 1e9) if min_age else None


def _spread(runner: Runner, work: Callable[[Source], dict[str, Any]], job: _Purging, state: str) -> _Candidates:
    """The findings of the tasks of all segments."""
    total, failed = _Candidates(), None
    for outcome in runner.run(work, list(job.fold.sources)):
        if isinstance(outcome, Failure):
            failed = failed or outcome
        else:
            total.add(outcome)
    if failed is not None:
        raise failed.kind_of_error(f"cannot purge the sources of {job.dest}: {str(failed).rstrip('.')}; {state}: call again to go on.")
    return total


def _planned(found: _Candidates) -> PlannedChange:
    tasks = list[PlannedTask]()
    for name, rows in found.runs:
        if not tasks or tasks[-1].files + rows > TOGETHER:
            tasks.append(PlannedTask("", 0))
        tasks[-1].marks.append(TaskRun("", 0, name, 0, 0, rows, 0))
    return PlannedChange(tasks)


# ---------------------------------------------------------------------------------------------------------------------- a task
def _verify(job: _Purging, source: Source) -> dict[str, Any]:
    """Verify the files whose first byte stands in one segment, and write to the plan that they are to be deleted."""
    return asdict(_Task(job, source).run(("done", PURGING)))


def _settle(job: _Purging, source: Source) -> dict[str, Any]:
    """Write to the plan what has become of files that calls which died were to delete."""
    return asdict(_Settling(job, source).run((PURGING,)))


def _delete(job: _Purging, source: Source) -> dict[str, Any]:
    """Delete those of them that this call has verified, and write to the plan what is finished."""
    return asdict(_Deleting(job, source).run((PURGING,)))


class _Task:
    def __init__(self, job: _Purging, source: Source) -> None:
        self.job, self.source, self.found = job, source, _Candidates()
        self.store = connect(job.dest, job.dest_options)
        self.log = Log(self.store)
        self.convert = Convert(job.spec.transform, job.spec.format, job.spec.compression, 1 << 62, 1 << 62)
        self.compares = job.spec.transform in transforms.NAMES
        self.find = located(job.roots)
        self.sources = dict[str, Store]()
        self.private = dict[tuple[str, str], dict[str, list[str]]]()  # by source and directory, what `left_in` has found there
        self.known = dict[str, str]()
        self.open = OrderedDict[str, Any]()
        self.marks = dict[str, int]()  # fingerprints of files that were verified, by path
        self.said = list[Row]()

    def run(self, states: Sequence[str]) -> _Candidates:
        rows = self.job.fold.of(self.source).rows(self.store, _COLUMNS)
        rows = rows.filter(pc.and_(pc.equal(rows.column("start"), 0), pc.is_in(rows.column("state"), pa.array(states))))
        rows = rows.sort_by([("data_file", "ascending"), ("offset", "ascending"), ("skip", "ascending")])  # each byte is read once
        for at in range(0, rows.num_rows, ROWS):
            found = [row for row in rows.slice(at, ROWS).to_pylist() if self._meant(row["path"]) and self._takes(row)]
            if found:
                self._some(found)
                self._say()
        return self.found

    def _takes(self, row: Row) -> bool:
        """Not what this call has begun with already, and others have thwarted the rest of."""
        return ordinal(row) not in self.job.bases

    def _say(self) -> None:
        """Write to the plan what the ledger is to say."""
        if self.said and self.job.named is not None:
            self.found.runs.append((self.job.named("said"), len(self.said)))
            put_table(self.store, self.found.runs[-1][0], pa.Table.from_pylist(self.said, SAID))
        self.said = []

    def _finish(self, rows: Sequence[Row], state: str) -> None:
        """Say a file's rows to be in a state."""
        number = self.job.fold.version if state == PURGING else max(ordinal(row) for row in rows)
        reason = f"{DELETING}{number}" if state != "done" else ""
        for row in rows:
            mark = self.marks.get(row["path"]) if row["fingerprint"] is None and len(rows) == 1 else row["fingerprint"]
            self.said.append({**{name: row[name] for name in KEY}, "state": state, "reason": reason,
                              "data_file": row["data_file"] or "", "fingerprint": mark})  # fmt: skip

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
        there = self._there(rows)
        self.known = self._hashed(rows, there)
        whole, parts = list[Item](), dict[tuple[str, int], tuple[Row, Entry]]()
        for row, entry in zip(rows, there, strict=True):
            if isinstance(entry, str):
                self.found.stay(row["path"], REFUSED, entry)
            elif entry is None:
                self.found.gone += 1
                if row["state"] == PURGING:  # by a call that did not come to its end
                    self._finish(self._rows_of({(row["path"], ordinal(row))})[row["path"], ordinal(row)], PURGED)
            elif self.job.newest is not None and entry.modified > self.job.newest:
                self.found.stay(row["path"], YOUNG)
            elif self._version(row["path"], entry) == row["version"] and entry.size == row["length"]:
                whole.append(([row], entry))
            else:
                parts[row["path"], ordinal(row)] = row, entry
        for mine, entry in self._verified([*whole, *self._together(parts)]):
            if self._marked(mine, entry):
                self._finish(mine, PURGING)
                self.found.files, self.found.bytes = self.found.files + 1, self.found.bytes + entry.size

    def _marked(self, rows: Sequence[Row], entry: Entry) -> bool:
        """Know by which bytes each row of a file is told from those of another one; False: it cannot be read, and stays."""
        path = rows[0]["path"]
        store, name = self._at(path)
        try:
            for row in rows:
                if row["fingerprint"] is None and row["length"] and not (len(rows) == 1 and path in self.marks):
                    row["fingerprint"] = mark(store, name, entry.version, entry.size, row["start"], row["length"])
        except Vanished:
            self.found.stay(path, CHANGED)
        except (Unreadable, StorageError) as e:
            self.found.stay(path, REFUSED, str(e))
        else:
            return True
        return False

    def _there(self, rows: list[Row]) -> list[Entry | str | None]:
        """The files at their sources. First, files that a purge left when it died while deleting get their names back."""
        with ThreadPoolExecutor(ASKING) as pool:
            found = list(pool.map(self._look, rows))
        return [self._again(row) if entry is None and row["state"] == PURGING else entry for row, entry in zip(rows, found, strict=True)]

    def _again(self, row: Row) -> Entry | str | None:
        """A file that is gone, as it is if it only lay under a private name."""
        try:
            store, name = self._at(row["path"])
            if not isinstance(store, Beside):
                return None
            folder, _, last = name.rpartition("/")
            if (store.url, folder) not in self.private:
                self.private[store.url, folder] = left_in(store, folder)
            for private in self.private[store.url, folder].get(mark_of(last), ()):
                store.give_back(private, name)
            return store.stat(name)
        except (StorageError, FormatError) as e:
            return str(e)

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

    def _rows_of(self, wanted: Collection[tuple[str, int]]) -> dict[tuple[str, int], list[Row]]:
        """All rows of files, by path and purge."""
        paths = sorted({path for path, _ in wanted})
        rows = self.job.fold.rows(self.store, _COLUMNS, among=pa.array(paths, pa.string()))
        rows = rows.filter(pc.not_equal(rows.column("state"), PURGED)).sort_by(
            [("path", "ascending"), ("start", "ascending"), ("length", "ascending")]
        )
        found = dict[tuple[str, int], list[Row]]()
        for row in rows.to_pylist():
            found.setdefault((row["path"], ordinal(row)), []).append(row)
        return {key: found.get(key, []) for key in wanted}

    def _together(self, parts: Mapping[tuple[str, int], tuple[Row, Entry]]) -> Iterator[Item]:
        """Files of several rows, or with another version: those of which the rows make the whole version that is there."""
        if not parts:
            return
        by_path = self._rows_of(parts.keys())
        for key, (_, entry) in parts.items():
            path, mine, at = key[0], by_path[key], 0
            for row in mine:
                at = at + row["length"] if row["state"] in ("done", PURGING) and row["start"] == at else -1
            if mine[-1]["version"] != self._version(path, entry):
                self.found.stay(path, CHANGED)
                if mine[0]["state"] == PURGING:
                    self._another(mine)
            elif at != entry.size or (self.compares and not self.convert.streams):
                self.found.stay(path, PARTLY)
            else:
                yield mine, entry

    def _another(self, rows: Sequence[Row]) -> None:
        """The state of a file's rows when its path has another version: done, if it was only appended to; else they are finished."""
        path = rows[0]["path"]
        try:
            store, name = self._at(path)
            entry, before = store.stat(name), prefix(rows)
            grown = (
                entry is not None and before is not None and 0 < before.end < entry.size
                and reread(store, name, entry.version, entry.size, before.marks, (before.end, 0), lines=False) is not None
            )  # fmt: skip
        except (Unreadable, StorageError, FormatError):
            return  # it stays as it is, and the next call looks again
        self._finish(rows, "done" if grown else PURGED)

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
                ReadRequest(self._at(rows[0]["path"])[1], entry.version, entry.size, 0, entry.size) for rows, entry in mine
            )  # fmt: skip
            with closing(store.read_many(requests)) as answers:  # type: ignore[type-var]  # a store's answers are a generator
                for item, (_, content) in zip(mine, answers, strict=True):
                    if isinstance(content, bytes) and len(item[0]) == 1:
                        self.marks[item[0][0]["path"]] = fingerprint(content)
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
        except Vanished:
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
        if self.job.spec.transform == "lines" and last != b"\n":
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
            if isinstance(taker, parquet.RowReader):
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
                parquet.RowReader(self.store, name)
                if name.endswith(".parquet")
                else lines.cursor(self.store, name, self.job.spec.compression)
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
                    uncovered.update(u.path for u in task.coverage.uncovers)
                    removed.update(task.coverage.removes)
        return uncovered, removed


class _Settling(_Task):
    """Says what is finished of that which others have begun with; what is there as it was stays as it is."""

    def _some(self, rows: list[Row]) -> None:
        there = self._there(rows)
        self.known = self._hashed(rows, there)
        of = self._rows_of({(row["path"], ordinal(row)) for row in rows})
        for row, entry in zip(rows, there, strict=True):
            mine = of[row["path"], ordinal(row)]
            if entry is None:
                self.found.gone += 1
                self._finish(mine, PURGED)
            elif isinstance(entry, Entry) and self._version(row["path"], entry) != mine[-1]["version"]:
                self._another(mine)


class _Deleting(_Task):
    """Deletes what this call has verified, while the log still says so."""

    def _takes(self, row: Row) -> bool:
        return ordinal(row) in self.job.bases

    def _some(self, rows: list[Row]) -> None:
        there = self._there(rows)
        with ThreadPoolExecutor(ASKING) as pool:
            self.known = self._hashed(rows, there)
            of = self._rows_of({(row["path"], ordinal(row)) for row in rows})
            items = [(of[row["path"], ordinal(row)], entry) for row, entry in zip(rows, there, strict=True)]
            found = list(self._still(items))
            for (mine, _), why in zip(found, pool.map(self._delete, found), strict=True):
                path = mine[0]["path"]
                if why == ("",):
                    self._finish(mine, PURGED)
                    self.found.files += 1
                    self.found.bytes += sum(row["length"] for row in mine)
                elif why == (CHANGED,):
                    self.found.stay(path, CHANGED)
                    self._another(mine)
                else:
                    self.found.stay(path, *why)

    def _still(self, items: Iterable[tuple[list[Row], Entry | str | None]]) -> Iterator[tuple[list[Row], Entry | str | None]]:
        """Those of which the log still says what was verified: a forget or a compaction may have come in between, published or not."""
        uncovered, removed = self._since()
        for rows, entry in items:
            path = rows[0]["path"]
            if path in uncovered or any(row["data_file"] in removed for row in rows):
                self.found.stay(path, MOVED)
            else:
                yield rows, entry

    def _delete(self, item: tuple[list[Row], Entry | str | None]) -> tuple[str, ...]:
        """Why it stays; "" if it is deleted."""
        rows, entry = item
        if isinstance(entry, str):
            return REFUSED, entry
        if entry is None:
            return ("",)
        if self._version(rows[0]["path"], entry) != rows[-1]["version"]:
            return (CHANGED,)
        try:
            store, name = self._at(rows[0]["path"])
            return ("",) if remove_version(store, name, entry.version) else (CHANGED,)
        except (StorageError, FormatError) as e:
            return REFUSED, str(e)


def _pieces(content: Content) -> Iterator[bytes]:
    if isinstance(content, Vanished | Unreadable):
        raise content
    if isinstance(content, bytes):
        yield content
    else:
        yield from content
