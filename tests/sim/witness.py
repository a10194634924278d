"""Independent eyes: what lies in a destination, at each moment and at the end. They share no code with quire."""

from __future__ import annotations

import csv
import functools
import gzip
import io
import json
import re
import tarfile
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash
from pyarrow import orc

from quire.storage import memory
from sim import topics
from sim.world import DEST, SOURCE


def objects(url: str) -> dict[str, bytes]:
    """What lies in a store in memory."""
    prefix = url + "/"
    with memory._lock:
        return {path[len(prefix) :]: value[0] for path, value in memory._objects.items() if path.startswith(prefix)}


def forget_all(url: str = "") -> None:
    """Empty the memory stores, or one of them."""
    with memory._lock:
        for path in [p for p in memory._objects if not url or p.startswith(url + "/")]:
            del memory._objects[path]
        for handle in [h for h, (path, _) in memory._uploads.items() if not url or path.startswith(url + "/")]:
            del memory._uploads[handle]


@functools.lru_cache(maxsize=64)
def rows_of(data: bytes) -> list[dict[str, Any]]:
    """The rows of a file that holds columns; callers do not change them."""
    if data.startswith(b"ORC"):
        return orc.ORCFile(pa.BufferReader(data)).read().to_pylist()  # type: ignore[no-any-return]
    if data.startswith(b"Obj\x01"):
        return list(fastavro.reader(io.BytesIO(data)))  # type: ignore[arg-type]
    found: list[dict[str, Any]] = pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False).to_pylist()
    return found


# What readers that know nothing of quire take in by its suffix, and the one exception: a user's own job names what it writes by path.
DATA = re.compile(r"\.(?:json|jsonl|ndjson|csv|tsv|txt|bin|parquet|gz|zst)$")
_BY_PATH = re.compile(r"_quire/jobs/[^/]+/attempts/[^/]+/part-[0-9]+\.snappy\.parquet")


def shown(there: Mapping[str, bytes]) -> set[str]:
    """What a reader of the directory takes for data: a file that only says the columns has no rows."""
    found = {name for name in there if not name.startswith("_quire/")}
    telling = {name for name in found if name.rpartition("/")[2] == "00-columns.parquet"}
    assert not any(rows_of(there[name]) for name in telling if there[name]), "a file that says the columns has rows"
    return found - telling


def taken_for_data(there: Iterable[str]) -> list[str]:
    """The objects of quire's own that have the suffix of a data format."""
    return [name for name in there if name.startswith("_quire/") and DATA.search(name) and not _BY_PATH.fullmatch(name)]


TOGETHER = {"shuffle": "done", "claim": "mark"}  # what is written for all splits of a job at once, and the state of their rows


# Loads of topics, and milliseconds in which a record of the same key is left out.
OF_TOPICS: dict[str, int | None] = {"load": None, "distinct": topics.WITHIN}
ARCHIVE = "_quire/log/archive/"
OF_LOG = ("_quire/log/0", ARCHIVE)


def entries_of(there: Mapping[str, bytes]) -> dict[str, bytes]:
    """The entries of the log by their names; of a number that is archived the archive has the one that counts."""
    # An empty one is none: SeaweedFS keeps that of a write which was cut off before its first byte.
    found = {name: there[name] for name in there if re.fullmatch(r"_quire/log/[0-9]{20}\.entry", name) and there[name]}
    for name in there:
        if name.startswith(ARCHIVE) and there[name]:
            found |= {f"_quire/log/{row['version']:020d}.entry": row["entry"] for row in rows_of(there[name])}
    return found


class Log:
    """What the entries of a destination say."""

    def __init__(self, there: Mapping[str, bytes]) -> None:
        self.entries: list[dict[str, Any]] = []
        listed = entries_of(there)
        while data := listed.get(f"_quire/log/{len(self.entries) + 1:020d}.entry"):
            self.entries.append(json.loads(data))
        assert len(listed) == len(self.entries), f"the log has a gap: {sorted(listed)}"
        self.outcome: dict[str, dict[str, Any]] = {}
        self.published: dict[str, dict[str, Any]] = {}
        for entry in self.entries:
            if entry["kind"] in ("commit", "abort"):
                if entry["kind"] == "commit" and entry.get("parts"):
                    entry["tasks"] = [json.loads(row["task"])["task"] for row in rows_of(there[entry["parts"]])]
                self.outcome.setdefault(entry["job"], entry)
            elif entry["kind"] == "published":
                assert self.outcome.get(entry["job"], {}).get("kind") == "commit", f"{entry['job']} is published and not committed"
                self.published.setdefault(entry["job"], entry)

    def commits(self, only_published: bool = False) -> Iterator[tuple[int, list[dict[str, Any]]]]:
        """The tasks that count, by the numbers of their entries: not the lost ones, none of a job that removes files and lost one, and none
        of one whose instant of a table was rolled back."""
        undone = {job for entry in self.entries if entry["kind"] == "foreign" for job in entry.get("undone", ())}
        for number, entry in enumerate(self.entries, 1):
            if entry["kind"] != "commit" or self.outcome[entry["job"]] is not entry or entry["job"] in undone:
                continue
            there = self.published.get(entry["job"])
            lost = there["lost"] if there else []
            whole = entry["closer"] or entry["verb"] == "write" or any(t["coverage"]["removes"] for t in entry["tasks"])
            if (there or not only_published) and not (lost and whole):
                yield number, [t for t in entry["tasks"] if t["task"] not in lost]

    def tasks(self, only_published: bool = False) -> Iterator[dict[str, Any]]:
        for _, tasks in self.commits(only_published):
            yield from tasks

    def removed(self, only_published: bool = False) -> set[str]:
        """Data files that a later job has taken away: they may be there until that job is over and clean."""
        return {name for _, tasks in self.commits(only_published) for t in tasks for name in t["coverage"]["removes"]}

    def superseded(self) -> dict[str, int]:
        """The same of published jobs, with the version from which on they do not count."""
        numbers = {e["job"]: n for n, e in reversed(list(enumerate(self.entries, 1))) if e["kind"] == "published"}
        found = [(self.entries[number - 1]["job"], tasks) for number, tasks in self.commits(only_published=True)]
        return {name: numbers[job] for job, tasks in found for t in tasks for name in t["coverage"]["removes"]}

    def below(self) -> int:
        """The first version that can be read."""
        return max((e["below"] for e in self.entries if e["kind"] == "expired"), default=0)

    def pinned(self) -> set[str]:
        """The open pins."""
        return {e["id"] for e in self.entries if e["kind"] == "pin"} - {e["id"] for e in self.entries if e["kind"] == "unpin"}


def kept(version: int, name: str) -> str:
    """Where a data file lies that was superseded at a version."""
    return f"_quire/kept/{version:020d}/{name}.kept"


class Observer:
    """Looks at a destination after each change: what readers of the directory and of the log see at that moment."""

    def __init__(self, url: str = DEST, leaks: bool = False) -> None:
        self.url, self.leaks = url, leaks
        self.there: Callable[[], Mapping[str, bytes]] = lambda: objects(self.url)
        self.known: dict[str, bytes] = {}
        self.log = Log({})
        self.named: set[str] = set()
        self.live: list[tuple[str, int | None]] = []
        self.kept: list[tuple[str, int]] = []  # of older versions that can be read, and when they were superseded
        self.won: dict[tuple[str, int], str] = {}  # job, task → the attempt whose manifest was there first
        self.leaked = 0  # looks at which a reader of the directory saw what nobody has committed

    def see(self, url: str, there: Callable[[], Mapping[str, bytes]]) -> None:
        self.url, self.there = url, there

    def look(self, op: str, name: str) -> None:
        there = self.there()
        if match := re.fullmatch(r"_quire/jobs/([^/]+)/tasks/([0-9]+)\.entry", name):
            self._manifest(match[1], int(match[2]), there.get(name))
        entries = entries_of(there)
        if entries != self.known:
            assert self.known.items() <= entries.items(), f"{op} {name} rewrote or deleted an entry of the log"
            before, self.known, self.log = len(self.known), entries, Log(there)
            self._count()
            for entry in self.log.entries[before:]:
                self._winners(entry)
        for file, size in self.live:
            assert file in there, f"after {op} {name} the file {file} is missing, which readers of the log are told of"
            assert size is None or len(there[file]) == size, f"after {op} {name} the file {file} is not whole"
        for file, version in self.kept:
            assert file in there or kept(version, file) in there, f"after {op} {name} the file {file} of a version that is kept is missing"
        assert not (mistaken := taken_for_data(there)), f"after {op} {name} a reader that lists everything takes {mistaken} for data"
        seen = sorted(shown(there) - set(self.named))
        self.leaked += bool(seen)
        assert self.leaks or not seen, f"after {op} {name} a reader of the directory sees {seen}, which nobody committed"

    def _count(self) -> None:
        self.named = {f["name"] for e in self.log.outcome.values() for t in e.get("tasks", ()) for f in t["data_files"]}
        removed = self.log.removed(only_published=True)
        self.live = [
            (f["name"], f["size"]) for t in self.log.tasks(only_published=True) for f in t["data_files"] if f["name"] not in removed
        ]
        below = self.log.below()
        self.kept = [(name, version) for name, version in self.log.superseded().items() if version > below]
        self.live += [(t["coverage"]["segment"], None) for t in self.log.tasks() if t["coverage"]["segment"]]

    def _manifest(self, job: str, task: int, data: bytes | None) -> None:
        """The first manifest of a task stays the one that counts, until its job is over."""
        if data and job not in self.log.outcome:
            attempt = json.loads(data)["task"]["attempt"]
            first = self.won.setdefault((job, task), attempt)
            assert first == attempt, f"the manifest of task {task} of job {job} names {attempt} after {first}"

    def _winners(self, entry: dict[str, Any]) -> None:
        if entry["kind"] == "commit" and self.log.outcome[entry["job"]] is entry:
            for task in entry["tasks"]:
                won = self.won.get((entry["job"], task["task"]))
                assert won == task["attempt"], f"job {entry['job']} commits attempt {task['attempt']}, and the manifest names {won}"

    def rewind(self) -> None:
        """After a power cut what is there now is what counts: the log may have lost its end, an open job its manifests."""
        there = self.there()
        entries = entries_of(there)
        assert entries.items() <= self.known.items(), "after a power cut the log holds what nobody wrote"
        self.known, self.log = entries, Log(there)
        self._count()
        kept = {k: v for k, v in self.won.items() if k[0] in self.log.outcome or f"_quire/jobs/{k[0]}/tasks/{k[1]}.entry" in there}
        self.won = kept
        self.look("power", "cut")


@dataclass
class Tree:
    """A source in memory, with every content that its files ever had."""

    of: ClassVar[dict[str, Tree]] = {}  # the last one at each URL, for pipelines that rewrite their source

    url: str = SOURCE
    now: dict[str, tuple[str, bytes]] = field(default_factory=dict)  # path → version, content
    ever: dict[tuple[str, str], bytes] = field(default_factory=dict)
    taken: set[tuple[str, str]] = field(default_factory=set)  # path and version of what a call was given, and came to its end
    purged: set[tuple[str, str]] = field(default_factory=set)  # path and version of what quire has deleted, and another one has come

    def __post_init__(self) -> None:
        Tree.of[self.url] = self

    def put(self, name: str, content: bytes) -> None:
        store = memory.MemoryStore(self.url)
        self.purged |= self.gone() & {(f"{self.url}/{name}", self.now.get(f"{self.url}/{name}", ("", b""))[0])}
        store.put(name, content)
        entry = store.stat(name)
        assert entry is not None
        path = f"{self.url}/{name}"
        self.now[path] = entry.version, content
        self.ever[path, entry.version] = content

    def gone(self) -> set[tuple[str, str]]:
        """What was put there, and quire has deleted since. A source that lies elsewhere is known as it is now, and not as it was."""
        if not self.url.startswith("memory://"):
            return set()
        there = objects(self.url)
        return {(path, version) for path, (version, _) in self.now.items() if path[len(self.url) + 1 :] not in there}

    def remove(self, name: str) -> None:
        self.purged |= self.gone() & {(f"{self.url}/{name}", self.now[f"{self.url}/{name}"][0])}
        memory.MemoryStore(self.url).remove(name)
        del self.now[f"{self.url}/{name}"]

    def called(self) -> None:
        """A call has come to its end: what is there now has been gathered."""
        self.taken |= {(path, version) for path, (version, _) in self.now.items()}

    def clear(self) -> None:
        """As if nothing had ever been there."""
        for path in list(self.now):
            self.remove(path[len(self.url) + 1 :])
        self.ever.clear()
        self.taken.clear()
        self.purged.clear()

    def content(self, name: str) -> bytes:
        """What a file holds now; of one that is not there, nothing."""
        return self.now.get(f"{self.url}/{name}", ("", b""))[1]

    def versions(self, path: str) -> list[str]:
        """Those that a file ever had, in their order."""
        return [version for one, version in self.ever if one == path]


def expected(transform: str, content: bytes) -> bytes | None:
    """What must be written for a file; None: it must be quarantined."""
    if transform in ("records", "routed"):  # lines, in capitals or not; those that begin with a minus are rejected
        lines = (content.upper() if transform == "records" else content).splitlines()
        return b"".join(line + b"\n" for line in lines if not line.startswith(b"-"))
    if transform == "xml" or content[:2] == b"\xff\xfe":  # rows in UTF-16, the last of which has no end
        return None if b"BROKEN" in content.replace(b"\0", b"") or not content else content.strip() + b"\n"
    if transform == "gzip":  # the lines that it decodes to
        return expected("lines", gzip.decompress(content))
    if transform == "archives":  # the lines of the members that have harmless names
        return b"".join(expected("lines", member) or b"" for name, member in members_of(content) if ".." not in name)
    if transform == "columns":
        return b"".join(row["content"] for row in rows_of(content))
    if transform == "csv":  # the same, as lines of one order
        head, *rest = csv.reader(io.StringIO(content.decode()))
        found, order = [dict(zip(head, row, strict=True)) for row in rest], ["path", "content", "n"]
        out = io.StringIO()
        wanted = csv.writer(out, quoting=csv.QUOTE_ALL if head == order else csv.QUOTE_MINIMAL, lineterminator="\n")
        wanted.writerows([row[name] for name in order] for row in found if row["n"].isdigit())
        return out.getvalue().encode()
    if transform == "rows":  # of text; those whose number is none are rejected
        content = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
        objects = content.splitlines()[: None if content.rstrip(b"\n").endswith(b"}") else -1]  # the beginning of a line waits for its end
        found = map(json.loads, objects) if content[:1] == b"{" else csv.DictReader(io.StringIO(content.decode()))
        return b"".join(row["content"].encode() for row in found if str(row["n"]).isdigit())
    return content + b"\n" if transform == "lines" and content and not content.endswith(b"\n") else content


def members_of(content: bytes) -> list[tuple[str, bytes]]:
    """The members of an archive; a file that is none has one."""
    content = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    if content.startswith(b"PK"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return [(name, archive.read(name)) for name in archive.namelist()]
    if content[257:262] == b"ustar":
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            return [(info.name, archive.extractfile(info).read()) for info in archive]  # type: ignore[union-attr]
    return [("", content)]


def record(there: Mapping[str, bytes], row: dict[str, Any]) -> bytes:
    """What was written for a row of the ledger."""
    name = row["data_file"]
    if name is None:
        return b""
    data = there[name]
    if name.endswith(".parquet"):
        rows = rows_of(data)[row["offset"] :][: row["records"]]
        assert {r["path"] for r in rows} == ({row["path"]} if row["records"] else set())
        return b"".join(_bytes(r["content"]) for r in rows)
    if name.endswith(".gz"):
        data, out = data[row["offset"] :], b""
        while data and len(out) < row["skip"] + row["written"]:
            member = zlib.decompressobj(31)
            out += member.decompress(data)
            data = member.unused_data
        data, row = out, row | {"offset": 0}
    out = data[row["offset"] + row["skip"] :][: row["written"]]
    assert xxhash.xxh3_64_intdigest(out) == row["checksum"], f"{row['path']}: the checksum in the ledger is not its record's"
    return out


def _bytes(content: bytes | str) -> bytes:
    return content.encode() if isinstance(content, str) else content


def total(name: str, data: bytes) -> int:
    """The bytes of content that a data file holds."""
    if name.endswith(".parquet"):
        return sum(len(_bytes(row["content"])) for row in rows_of(data))
    size = 0
    while name.endswith(".gz") and data:
        member = zlib.decompressobj(31)
        size += len(member.decompress(data))
        data = member.unused_data
    if name.endswith(".csv"):
        head, _, data = data.partition(b"\n")
        assert head == b"path,content,n", f"{name} begins with {head!r}, and not with the header"
    return size if name.endswith(".gz") else len(data)


def check(
    tree: Tree,
    transform: str,
    *,
    url: str = DEST,
    there: Mapping[str, bytes] | None = None,
    folders: Iterable[str] = (),
    uploads: Iterable[str] = (),
    all_taken: bool = True,
    clean: bool = True,
    leaks: bool = False,
    grows: bool = False,
    flushed: bool = False,
    current: bool = False,
    all_purged: bool = False,
) -> Log:
    """Hold a destination against its source: each file exactly once or quarantined, in one version, and nothing left over.

    `grows`: files are appended to, and only what is new of them is taken; `flushed`: at the end last lines without their end, too.
    `current`: what was rewritten is taken again. `all_purged`: the last call that deleted sources came to its end.
    """
    there = objects(url) if there is None else there
    log = Log(there)
    tasks, removed = list(log.tasks()), log.removed()
    live = {f["name"]: f for t in tasks for f in t["data_files"] if f["name"] not in removed}
    segments = {name for t in tasks for name in (t["coverage"]["segment"], t["coverage"]["quarantine"]) if name}
    segments |= {t["coverage"]["keys"]["name"] for t in tasks if t["coverage"].get("keys")}
    _nothing_else(there, log, live, segments, clean, leaks)
    if clean:
        stray = [f for f in folders if f.startswith(("_quire/jobs/", "_quire/tmp/"))]
        assert not stray, f"directories left over: {sorted(stray)}"
        assert not list(uploads), f"uploads left open: {sorted(uploads)}"
        unpublished = [job for job, e in log.outcome.items() if e["kind"] == "commit" and job not in log.published]
        assert not unpublished, f"committed and not published: {unpublished}"
    rows = fold(there, log)
    if transform == "write":
        found, wanted = sorted(there[name] for name in live), sorted(content for _, content in tree.now.values())
        assert found == wanted or (not found and not all_taken), f"{found} in the files, {wanted} were to be written"
        assert not rows, f"covered by what reads nothing: {sorted(rows)}"
        return log
    if transform in OF_TOPICS:
        topics.check(there, live, rows, rows_of, all_taken, OF_TOPICS[transform])
        return log
    # Before a retry what it will take is still quarantined.
    if transform in TOGETHER:
        _together(tree, transform, there, live, rows)
        missing = [path for path in tree.now if path not in rows]
        assert not (all_taken and missing), f"never taken: {missing}"
        return log
    waiting = set[str]() if all_taken else {path for path, found in rows.items() if {r["state"] for r in found} == {"quarantined"}}
    written = sum(_path(tree, transform, there, path, found, grows) for path, found in rows.items() if path not in waiting)
    sizes = {name: total(name, there[name]) for name in live}
    assert sum(sizes.values()) == written, f"{sum(sizes.values())} bytes in the data files, {written} in the ledger"
    # A piece of a split that a rejected record has cut names the place of the first piece, and that nothing more was written.
    named = [r for found in rows.values() for r in found if r["data_file"]]
    places = [(r["data_file"], r["offset"], r["skip"]) for r in named if r["written"] or r["records"]]
    assert len(set(places)) == len(places), "two rows of the ledger name one record"
    riding = {(r["data_file"], r["offset"], r["skip"]) for r in named} - set(places)
    assert not riding, f"pieces of splits whose output is nowhere: {riding}"
    assert {p[0] for p in places} <= set(live), "the ledger names a data file that the log does not"
    _quarantine(there, tasks, rows)
    _all_kept(tree, rows)
    if all_taken:
        missing = [path for path in tree.now if path not in rows]
        assert not missing, f"never taken: {missing}"
        gone = {path for path, _ in tree.gone()}
        for path in tree.now.keys() - gone:
            if not _waits_for_a_purge(tree, path, rows[path]):
                _taken(tree, path, [row for row in rows[path] if row["state"] not in ("purging", "purged")], grows, current, flushed)
    if all_purged:
        half = {path for path, found in rows.items() for row in found if row["state"] == "purging"}
        assert not half, f"a purge came to its end, and the ledger does not say what became of {half}"
    return log


def _together(tree: Tree, transform: str, there: Mapping[str, bytes], live: Iterable[str], rows: dict[str, list[dict[str, Any]]]) -> None:
    """Files that hold rows of many splits: all of them together hold each split's content once, and nothing else."""
    states = {row["state"] for found in rows.values() for row in found}
    assert states <= {TOGETHER[transform]}, f"{states} in the ledger"
    assert not [row for found in rows.values() for row in found if row["data_file"]], "the ledger says where a row is that nobody can know"
    double = [path for path, found in rows.items() if len(found) > 1]
    assert not double, f"more than one row: {double}"
    wanted = sorted((path, tree.ever[path, row["version"]]) for path, (row,) in rows.items())
    found = sorted((row["path"], row["content"]) for name in live for row in rows_of(there[name]))
    assert found == wanted, f"{found} in the files, {wanted} in the ledger"


def fold(there: Mapping[str, bytes], log: Log) -> dict[str, list[dict[str, Any]]]:
    """The ledger: path → rows. What a removed file held must have been carried over, but for what was uncovered, and nothing else."""
    held = list[dict[str, Any]]()
    grown = any(name.rpartition("/")[2] == "00-columns.parquet" for name in there)  # rows that move get the columns that were added
    for _, found in log.commits():
        removed = {name for task in found for name in task["coverage"]["removes"]}
        uncovered = {(u[0], u[1], start) for task in found for u in task["coverage"]["uncovers"] for start, _ in u[2]}
        staying = [r for r in held if (r["path"], r["version"], r["start"]) not in uncovered]
        moved = sorted(_same(r, grown) for r in staying if r["data_file"] in removed)
        new = [
            row
            for task in found
            if task["coverage"]["segment"] and not task["stats"]["restated"]
            for row in rows_of(there[task["coverage"]["segment"]])
        ]
        carried = sorted(_same(row, grown) for row in new if row["carried"])
        assert carried == moved, f"of the removed files {moved} should have been carried over, and {carried} were"
        held = [r for r in staying if r["data_file"] not in removed] + new
        for row in (row for task in found if task["stats"]["restated"] for row in rows_of(there[task["coverage"]["segment"]])):
            meant = [i for i, r in enumerate(held) if all(r[c] == row[c] for c in ("path", "version", "start", "length"))]
            assert len(meant) == 1, f"{len(meant)} rows are meant by {row}"
            held[meant[0]] = {**held[meant[0]], "state": row["state"], "reason": row["reason"] or None}
    rows = defaultdict[str, list[dict[str, Any]]](list)
    for row in held:
        rows[row["path"]].append(row)
    return rows


def _same(row: dict[str, Any], grown: bool) -> tuple[Any, ...]:
    return tuple(row[c] for c in ("path", "version", "start", "length", "state", "records", *(() if grown else ("written", "checksum"))))


def _nothing_else(
    there: Mapping[str, bytes], log: Log, live: dict[str, dict[str, Any]], segments: set[str], clean: bool, leaks: bool
) -> None:
    seen = shown(there)
    if leaks:  # rename v2 shows what open jobs have written
        open_jobs = {m[1] for name in there if (m := re.match(r"_quire/jobs/([^/]+)/", name)) and m[1] not in log.outcome}
        seen = {name for name in seen if not any(job in name for job in open_jobs)}
    lost = {f["name"] for e in log.outcome.values() for t in e.get("tasks", ()) for f in t["data_files"]} - set(live)
    gone = log.superseded()
    void = {job for job, p in log.published.items() if p["lost"]} - {log.entries[n - 1]["job"] for n, _ in log.commits()}
    dead = {name for name in seen if name in gone or any(job in name for job in void)}
    assert not clean or not dead or log.pinned(), f"superseded, and readers of the directory see it: {dead}"
    assert seen - lost == set(live), f"data files that nobody committed or that are missing: {(seen - lost) ^ set(live)}"
    for name, file in live.items():
        assert len(there[name]) == file["size"], f"{name} has {len(there[name])} bytes, and the log says {file['size']}"
    if clean:
        parts = {e["parts"] for e in log.entries if e.get("parts")}
        left = {n for n in there if n.startswith("_quire/") and not n.startswith(OF_LOG)} - segments - parts
        left = {n for n in left if not n.startswith("_quire/checkpoints/")}  # what a writer that died has left counts for nothing
        left = {n for n in left if not re.fullmatch(r"_quire/ledger/[0-9]{20}-[0-9a-f]{12}-[0-9]+\.keys", n)}  # likewise
        left -= {kept(version, name) for name, version in gone.items() if version > log.below()}
        left |= entries_of({n: there[n] for n in there if n.startswith(ARCHIVE)}).keys() & there.keys()
        assert not left, f"left over: {sorted(left)}"


def _quarantine(there: Mapping[str, bytes], tasks: list[dict[str, Any]], rows: dict[str, list[dict[str, Any]]]) -> None:
    """Each record that is quarantined is kept, by the attempt that has set it aside."""
    files = [
        t["coverage"]["quarantine"] for t in tasks if t["coverage"]["quarantine"] in there
    ]  # those without a record in quarantine may have expired
    kept = {(r["path"], r["version"], r["offset"]): r for name in files for r in rows_of(there[name])}
    for path, found in rows.items():
        for row in found:
            if row["state"] == "quarantined" and row["records"]:
                record = kept[path, row["version"], row["start"]]
                assert record["error"] == row["reason"]
                assert len(record["content"]) == record["length"] >= row["length"] - len(b"\r\n"), "the row covers the line's end, too"


def _finished(found: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The rows of a path that purges have finished, or were about to, each with those of the same file."""
    of = defaultdict[str, list[dict[str, Any]]](list)
    for row in sorted(found, key=_end):
        if row["state"] in ("purging", "purged"):
            of[row["reason"]].append(row)
    return list(of.values())


def _waits_for_a_purge(tree: Tree, path: str, found: list[dict[str, Any]]) -> bool:
    """Whether a file is the one that a purge which died was about to delete, as it was or appended to: the next purge says what it is."""
    version, content = tree.now[path]
    if any(row["state"] not in ("purging", "purged") for row in found):
        return False  # another one has come, and counts by itself
    begun = [mine[-1]["version"] for mine in _finished(found) if mine[-1]["state"] == "purging"]
    kept = [tree.ever[path, one] for one in begun]
    return version in begun or any(before and len(before) < len(content) and content.startswith(before) for before in kept)


def _all_kept(tree: Tree, rows: Mapping[str, list[dict[str, Any]]]) -> None:
    lost = (tree.purged | tree.gone()) - {(path, mine[-1]["version"]) for path, found in rows.items() for mine in _finished(found)}
    assert not lost, f"deleted at their source, and what they held is not kept for ever: {lost}"


class Deletions:
    """Looks at a source after each of its files that goes: the log says already that it is finished, whoever dies next."""

    def __init__(self, tree: Tree, observer: Observer) -> None:
        self.tree, self.observer = tree, observer

    def look(self, op: str, _name: str) -> None:
        if op in ("remove", "remove_if"):
            there = self.observer.there()
            _all_kept(self.tree, fold(there, Log(there)))

    def rewind(self) -> None:
        """A power cut takes nothing of a source."""


def _kept(tree: Tree, transform: str, there: Mapping[str, bytes], path: str, mine: list[dict[str, Any]]) -> int:
    """A file that was purged is there whole, in one state, in the last version that it had; how many bytes were written for it."""
    content, at = tree.ever[path, mine[-1]["version"]], 0
    assert len({row["state"] for row in mine}) == 1, f"{path} is purged in part"
    for row in mine:
        assert row["start"] == at, f"{path} was purged, and {row['start']} follows {at}: double or missing"
        at += row["length"]
    again = _retried(there, path, content, mine) if transform == "records" else []
    out = b"".join(record(there, row) for row in mine if row not in again)
    assert at == len(content), f"{path} was purged, and {at} bytes of {len(content)} are kept"
    assert out == expected(transform, content), f"{path} was purged, and {out!r} is kept of it"
    return len(out) + sum(len(record(there, row)) for row in again)


def _retried(there: Mapping[str, bytes], path: str, content: bytes, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of rejected records that a retry has taken after all: what it has made of them stands where it has written that."""
    again = [row for row in rows if content[row["start"] :].startswith(b"-")]
    made = b"".join(record(there, row) for row in again)
    assert made == b"".join(line.upper() + b"\n" for row in again for line in _lines(content, row)), f"{path}: {made!r}"
    return again


def _path(tree: Tree, transform: str, there: Mapping[str, bytes], path: str, found: list[dict[str, Any]], grows: bool) -> int:
    """What the ledger says of one path; how many bytes were written for it."""
    kept = sum(_kept(tree, transform, there, path, mine) for mine in _finished(found))
    found = [row for row in found if row["state"] not in ("purging", "purged")]
    return kept + (_gathered(tree, transform, there, path, found, grows) if found else 0)


def _gathered(tree: Tree, transform: str, there: Mapping[str, bytes], path: str, found: list[dict[str, Any]], grows: bool) -> int:
    """What it says of the file that has this name, but for those that were purged."""
    versions = {row["version"] for row in found}
    assert len(versions) == 1 or grows, f"{path} is there in two versions"
    version = next(v for v in reversed(tree.versions(path)) if v in versions)
    content = tree.ever[path, version]
    found.sort(key=_end)
    at = 0
    for row in found:
        current = tree.now.get(path, ("", b""))[0] == version
        assert row["start"] == at or not current, f"{path}: {row['start']} follows {at}: double or missing"
        assert row["start"] >= at, f"{path}: {row['start']} follows {at}: double"
        at = row["start"] + row["length"]
        of = tree.ever[path, row["version"]]
        assert at <= len(of), f"{path}: {at} bytes of {len(of)}"
        assert of[:at] == content[:at], f"{path} has rows of {row['version']}, with which {version} does not begin"
    beside = [row for row in found if transform == "routed" and not row["length"] and row["records"] and row["start"]]
    assert len(found) == 1 or all(row["length"] for row in found if row not in beside), f"{path} is empty and there {len(found)} times"
    wanted = expected(transform, content)
    older = tree.versions(path)[: tree.versions(path).index(version)]
    before = [expected(transform, tree.ever[path, v]) for v in older if (path, v) in tree.taken]
    assert wanted or not content or not any(before), f"{path}: nothing of {version} can be taken, and it took the place of good rows"
    if wanted is None:
        assert [row["state"] for row in found] == ["quarantined"], path
        assert found[0]["reason"], f"{path} is quarantined without a reason"
        return 0
    if held := [row for row in found if row["state"] == "held"]:
        _held(tree, path, held, found, grows)
        found = found[:-1]
    rejected = [row for row in found if row["state"] == "quarantined" and row["records"]]
    for row in rejected:
        mark = content[row["start"] :][: row["length"]]
        assert b'"x"' in mark if transform in ("rows", "csv") else mark.startswith(b"-"), f"{path}: {row['start']} is not to be rejected"
    assert not rejected or transform in ("records", "routed", "rows", "csv"), path
    at = _end(found[-1])[0] if found else 0
    begins = sum(row["length"] for row in found) == at  # they are the file's beginning
    whole = begins and at == len(content)
    found = [row for row in found if row not in rejected]
    if transform == "archives":
        aside = [row for row in found if row["state"] == "quarantined"]
        assert all(row["member"] == "%2E%2E/d" and row["length"] == 1 for row in aside), f"{path}: {aside} are not to be quarantined"
        found = [row for row in found if row not in aside]
    assert {row["state"] for row in found} <= {"done"}, path
    out = b"".join(record(there, row) for row in found)
    if transform == "routed":
        for row in (row for row in found if row["data_file"]):
            ways = {len(line) % 3 for line in record(there, row).splitlines()}
            assert not ways or row["data_file"].startswith(f"way={ways.pop()}/"), f"{path}: {row['data_file']} is not where its rows belong"
            assert not ways, f"{path}: {row['data_file']} holds rows of several directories"
        lines = expected(transform, content[:at]) or b""
        assert not begins or sorted(out.splitlines()) == sorted(lines.splitlines()), f"{path}: {out!r}"
        return len(out)
    if transform == "records":
        again = _retried(there, path, content, found)
        out = b"".join(record(there, row) for row in found if row not in again)
        minus = [line for line in content[:at].splitlines() if line.startswith(b"-")]
        assert not begins or len(rejected) + len(again) == len(minus), path
        assert not begins or out == expected(transform, content[:at]), f"{path}: {out!r}"
        return len(out) + sum(len(record(there, row)) for row in again)
    if whole or (begins and grows):
        assert out == expected(transform, content[:at]), f"{path}: {out!r} instead of {expected(transform, content[:at])!r}"
    return len(out)


def _end(row: dict[str, Any]) -> tuple[int, int]:
    return row["start"] + row["length"], row["start"]


def _lines(content: bytes, row: dict[str, Any]) -> list[bytes]:
    """The lines that begin where a row is."""
    begin = row["start"] and content.find(b"\n", row["start"] - 1) + 1
    ends = content.find(b"\n", _end(row)[0] - 1)
    return content[begin : len(content) if ends < 0 else ends].splitlines()


def _held(tree: Tree, path: str, held: list[dict[str, Any]], found: list[dict[str, Any]], grows: bool) -> None:
    """A last line that waits for its end is the last of the rows, and is of a version that ends with it."""
    (row,) = held
    of = tree.ever[path, row["version"]]
    assert grows, f"{path} holds a line back, and nobody has asked for that"
    assert row is found[-1], f"{path}: {row['start']} is held back, and more of it is taken"
    assert _end(row)[0] == len(of), f"{path}: what is held back ends at {_end(row)[0]} of {len(of)}"
    assert row["length"], f"{path}: nothing is held back"
    assert b"\n" not in of[row["start"] :], f"{path}: {of[row['start'] :]!r} is held back, and is more than a line's beginning"
    assert row["start"] == 0 or of[row["start"] - 1 : row["start"]] == b"\n", f"{path}: what is held back begins within a line"
    assert row["data_file"] is None, path


def _taken(tree: Tree, path: str, found: list[dict[str, Any]], grows: bool, current: bool, flushed: bool) -> None:
    """A call that nothing has befallen took what is new of a file that has grown, or that was rewritten and is to be taken again."""
    version, content = tree.now[path]
    assert found, f"{path}: {version} has come after a purge, and was never taken"
    last = max(found, key=_end)
    done = max((_end(row)[0] for row in found if row["state"] != "held"), default=0)
    assert not current or last["version"] == version, f"{path} is taken in {last['version']}, and it is {version} by now"
    of = tree.ever[path, last["version"]]
    grown = grows and content[:done] == of[:done] and (not done or content[done - 1 : done] == b"\n")
    whole = current or grown or flushed  # else it was rewritten, or a last line that was taken has got another end
    assert _end(last)[0] == len(content) or not whole, f"{path}: {_end(last)[0]} of {len(content)} bytes are taken"
    assert not flushed or last["state"] != "held", f"{path} still holds a line back"
