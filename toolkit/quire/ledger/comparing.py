"""The comparing that a purge rests on: the files at their sources, and whether the data files hold what they hold.

All that does not agree stays, with the reason.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import xxhash

from quire.commit.entries import Spec
from quire.commit.log import Log
from quire.coverage.finished import PURGING
from quire.coverage.fold import Fold
from quire.coverage.tails import fingerprint
from quire.errors import FormatError, QuireError, StorageError, scrub
from quire.formats import lines, parquet, running
from quire.planning.listing import EXAMPLES
from quire.sources import transforms
from quire.sources.archives import Archive, unpacking
from quire.sources.compression import CONTENT, NONE, Answer, Decoded, decoding, of_spec
from quire.sources.files import Root, located
from quire.sources.identity import by_content, identified
from quire.sources.splits import FileInfo
from quire.sources.transforms import BadContent
from quire.sources.transforms.convert import Convert
from quire.storage import Beside, Entry, ReadRequest, Store, Trouble, Unreadable, Vanished, below
from quire.storage.aside import left_in
from quire.storage.aside import mark as mark_of

ASKING = 32  # requests at once
OPEN = 16  # data files
NOTHING = xxhash.xxh3_64_intdigest(b"")  # the checksum of a file without a record
Row = dict[str, Any]
Item = tuple[list[Row], Entry]  # all rows of a file, and the file at its source

# What is said of files that stay.
CHANGED = "it has changed since it was gathered"
PARTLY = "not all of it is done"
DIFFERS = "its content is not what was gathered, though its version is the same"
DAMAGED = "what was written of it cannot be read back as it was written"
AWAY = "another call of purge_sources was about to delete it: call again, and what that call has left is finished"
MOVED = "others have changed what the ledger says of it meanwhile"
REFUSED = "it cannot be read or deleted"
YOUNG = "it has changed within min_age, and may still be written to"


@dataclass(frozen=True)
class Purging:
    """All that a task of a purge needs."""

    dest: str
    dest_options: Any = field(repr=False)
    fold: Fold
    roots: tuple[Root, ...]  # what the call names: nothing else is looked up, read or deleted, whatever a row says
    spec: Spec
    named: Callable[[str], str] | None = None  # names an object of the plan; None: nothing is to be done, it is only said what would be
    newest: int | None = None  # what has changed later than that is too young
    bases: tuple[int, ...] = ()  # of the commits by which this call has begun
    watched: bool = False  # another call, which may still be at work, has begun with some of the files before


@dataclass
class Candidates:
    """The files that a task, or all of them, has looked at: those that may go, those that are gone, and why the others stay."""

    files: int = 0
    bytes: int = 0
    gone: int = 0
    taken_over: int = 0  # of `files`, those with which another call had begun
    stays: dict[str, int] = field(default_factory=dict)
    examples: list[tuple[str, str]] = field(default_factory=list)
    runs: list[tuple[str, int]] = field(default_factory=list)  # objects of the plan, and their rows

    def stay(self, path: str, why: str, more: str = "") -> None:
        """One more file that stays."""
        self.stays[why] = self.stays.get(why, 0) + 1
        if len(self.examples) < EXAMPLES:
            self.examples.append((path, f"{why}: {scrub(more)}" if more else why))

    def add(self, other: dict[str, Any]) -> None:
        """Also what another task has found."""
        self.files, self.bytes, self.gone = self.files + other["files"], self.bytes + other["bytes"], self.gone + other["gone"]
        self.taken_over += other["taken_over"]
        self.stays = dict(Counter(self.stays) + Counter(other["stays"]))
        self.examples += [(path, why) for path, why in other["examples"]][: EXAMPLES - len(self.examples)]
        self.runs += [(name, rows) for name, rows in other["runs"]]


class Sources:
    """The files at their sources. Nothing but what the call names is looked up, read or deleted, whatever a row says."""

    def __init__(self, job: Purging) -> None:
        self._dest, self._find = job.dest, located(job.roots)
        self._stores = dict[str, Store]()
        self._private = dict[tuple[str, str], dict[str, list[str]]]()  # by source and directory, what `left_in` has found there
        self._hashed = dict[str, str]()

    def meant(self, path: str) -> bool:
        """Whether a path of the ledger lies in a source that the call names."""
        return not below(path, self._dest) and self._find(path) is not None

    def at(self, path: str) -> tuple[Store, str]:
        """The store of a source file, and its name there."""
        found = self._find(path)
        if found is None:
            raise FormatError(f"{scrub(path, 200)} does not lie in a source of this call: it was not touched. Look who wrote it.")
        root, name = found
        if root.url not in self._stores:
            self._stores[root.url] = root.store()
        return self._stores[root.url], name

    def there(self, rows: list[Row]) -> list[Entry | str | None]:
        """The files at their sources. First, files that a purge left when it died while deleting get their names back."""
        with ThreadPoolExecutor(ASKING) as pool:
            found = list(pool.map(self._look, rows))
        self.look_anew()  # a call that dies while this one works leaves more of them
        found = [self._again(row) if entry is None and row["state"] == PURGING else entry for row, entry in zip(rows, found, strict=True)]
        self._hashed = self._hash(rows, found)
        return found

    def _again(self, row: Row) -> Entry | str | None:
        """A file that is gone, as it is if it only lay under a private name."""
        try:
            store, name = self.at(row["path"])
            if not isinstance(store, Beside):
                return None
            for private in self._left(store, name):
                store.give_back(private, name)
            return store.stat(name)
        except (StorageError, FormatError) as e:
            return str(e)

    def _left(self, store: Store, name: str) -> list[str]:
        """The private names of a file."""
        folder, _, last = name.rpartition("/")
        if (store.url, folder) not in self._private:
            self._private[store.url, folder] = left_in(store, folder)
        return self._private[store.url, folder].get(mark_of(last), [])

    def away(self, path: str) -> bool:
        """Whether a file that has lost its name lies under a private one, of another call, which may die before it is deleted."""
        try:
            store, name = self.at(path)
            return isinstance(store, Beside) and bool(self._left(store, name))
        except (StorageError, FormatError):
            return True  # not known; the next call looks again

    def look_anew(self) -> None:
        """Forget which private names there are."""
        self._private.clear()

    def _look(self, row: Row) -> Entry | str | None:
        """The file at its source, or why it cannot be looked up."""
        try:
            store, name = self.at(row["path"])
            return store.stat(name)
        except (StorageError, FormatError) as e:
            return str(e)

    def _hash(self, rows: list[Row], there: list[Entry | str | None]) -> dict[str, str]:
        """By path the version of those files that the ledger knows by their content."""
        by_store = dict[int, tuple[Store, dict[str, str], list[Entry]]]()
        for row, entry in zip(rows, there, strict=True):
            if isinstance(entry, Entry) and by_content(row["version"]):
                store, name = self.at(row["path"])
                _, paths, entries = by_store.setdefault(id(store), (store, {}, []))
                paths[name] = row["path"]
                entries.append(entry)
        return {
            paths[item[0].name]: item[0].version
            for store, paths, entries in by_store.values()
            for item in identified(store, entries)
            if not isinstance(item, Trouble)
        }

    def version(self, path: str, entry: Entry) -> str:
        """The version of a file at its source, as the ledger calls it."""
        return self._hashed.get(path, entry.version)


class Comparison:
    """Whether the record of a file is what would be written for it now, read back from its data file."""

    def __init__(self, job: Purging, log: Log, sources: Sources, found: Candidates) -> None:
        self.job, self.log, self.sources, self.found = job, log, sources, found
        self.convert = Convert(job.spec.transform, job.spec.format, job.spec.compression, 1 << 62, 1 << 62)
        self.compares = job.spec.transform in transforms.NAMES
        self.decodes = CONTENT if of_spec(job.spec.decompress, job.spec.transform) != NONE else NONE
        self.marks = dict[str, int]()  # fingerprints of files that were verified, by path
        self._open = OrderedDict[str, Any]()

    def verified(self, items: list[Item]) -> Iterator[Item]:
        """Those of which the source holds what was written, and what was written is there; the reasons are kept of the others."""
        if not self.compares:
            yield from (item for item in items if self._written(item[0]) is not None)
            return
        by_store = dict[int, tuple[Store, list[Item]]]()
        for item in items:
            if item[0][0]["member"] is not None:
                if self._agrees(item):
                    yield item
                continue
            store = self.sources.at(item[0][0]["path"])[0]
            by_store.setdefault(id(store), (store, []))[1].append(item)
        for store, mine in by_store.values():
            requests = (
                ReadRequest(self.sources.at(rows[0]["path"])[1], entry.version, entry.size, 0, entry.size) for rows, entry in mine
            )  # fmt: skip
            with closing(decoding(store, self.decodes).read_many(requests)) as answers:  # type: ignore[type-var]  # it is a generator
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

    def _would_be(self, item: Item, content: Answer) -> int | None:
        """The checksum of what would be written for the file as it is now; None, and the reason is kept, where there is none."""
        path = item[0][0]["path"]
        try:
            return self._converted(_info(path, item[1]), content)
        except Vanished:
            self.found.stay(path, CHANGED)
        except BadContent as e:
            self.found.stay(path, DIFFERS, e.reason)
        except (Unreadable, StorageError, FormatError) as e:
            self.found.stay(path, REFUSED, str(e))
        return None

    def _agrees(self, item: Item) -> bool:
        """Whether each member of an archive has the record that would be written for it now; else the reason is kept."""
        rows, entry = item
        path = rows[0]["path"]
        try:
            store, name = self.sources.at(path)
            request = ReadRequest(name, entry.version, entry.size, 0, entry.size)
            with closing(unpacking(store, self.decodes, archives=True).read_many([request])) as answers:
                why = self._differs(next(answers)[1], rows, entry)
        except Vanished:
            why = CHANGED, ""
        except BadContent as e:
            why = DIFFERS, e.reason
        except (Unreadable, StorageError, FormatError) as e:
            why = REFUSED, str(e)
        if why is not None and why[0]:  # else it is said
            self.found.stay(path, *why)
        return why is None

    def _differs(self, answer: Any, rows: list[Row], entry: Entry) -> tuple[str, str] | None:
        if isinstance(answer, Vanished | Unreadable | BadContent):
            raise answer
        if not isinstance(answer, Archive):
            return DIFFERS, "it is not an archive"
        by_number, path = {row["start"]: row for row in rows if row["member"]}, rows[0]["path"]
        with closing(answer):
            for member in answer.members():
                row = by_number.pop(member.number, None)
                if row is None or row["member"] != member.name:
                    return DIFFERS, member.name
                content = answer.content(member, self.convert.holds_at_most)
                would_be = self._converted(_info(f"{path}!{member.name}", entry), content)
                written = self._written([row])
                if written is None:
                    return "", ""
                if written != would_be:
                    return DIFFERS, member.name
        return (DIFFERS, "members of it are gone") if by_number else None

    def _converted(self, info: FileInfo, content: Answer) -> int:
        pieces = _pieces(content)
        if not self.convert.streams:
            made = self.convert.records(b"".join(pieces), info)
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
            _, removed = since(self.log, self.job.fold)  # what a compaction has removed meanwhile may be deleted already
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
                return running.read_back(taker, row)
            digest = xxhash.xxh3_64()
            for piece in taker.take(row["offset"], row["skip"], row["written"]):
                digest.update(piece)
                also(piece)
            return digest.intdigest()
        except BaseException:
            self._open.pop(name, None)  # what comes after a damaged record is read afresh
            raise

    def _taker(self, name: str) -> Any:
        if name in self._open:
            self._open.move_to_end(name)
        else:
            self._open[name] = (
                parquet.RowReader(self.log.store, name)
                if name.endswith(".parquet")
                else lines.cursor(self.log.store, name, self.job.spec.compression)
            )
            if len(self._open) > OPEN:
                self._open.popitem(last=False)
        return self._open[name]


def since(log: Log, fold: Fold) -> tuple[set[str], set[str]]:
    """The paths that were uncovered and the data files that were removed after what is being verified, published or not."""
    uncovered, removed = set[str](), set[str]()
    # A checkpoint of since then stands for no entry here: it does not say any more what has left.
    for _, commit in log.refresh().commits(fold.base.version if fold.base else 0):
        if not log.in_effect(commit, fold.version, reader=True):  # else it was known
            for task in log.in_effect(commit):
                uncovered.update(u.path for u in task.coverage.uncovers)
                removed.update(task.coverage.removes)
    return uncovered, removed


def _info(path: str, entry: Entry) -> FileInfo:
    return FileInfo(path, entry.size, entry.version, entry.modified)


def _pieces(content: Answer) -> Iterator[bytes]:
    if isinstance(content, Vanished | Unreadable | BadContent):
        raise content
    content = content.content if isinstance(content, Decoded) else content
    if isinstance(content, bytes):
        yield content
    else:
        yield from content
