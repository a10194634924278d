"""`inspect_success`: what `_SUCCESS` and the names below a destination tell of the job that wrote it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from quire import display
from quire.arguments import format_size
from quire.committers.cleanup import leftovers
from quire.committers.cleanup.leftovers import Leftover, ago
from quire.errors import printable, scrub
from quire.sources.files import is_shown
from quire.storage import Entry, Store, canonical, connect

MARKER = "_SUCCESS"
LARGEST = 64 << 20  # bytes of a marker that is read
SHOWN = 5
# part-00003-<job>-c000.snappy.parquet, part-00003-<job>.c000.json: the task, then the write's own id
_PART = re.compile(r"part-(\d{5,})(?:-attempt[^-]*)?-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\b")


@dataclass(frozen=True)
class Inspection:
    """The state of a destination.

    state       "committed", "no marker" (no job has ended well here, or it is switched off), "damaged" (not a committer's)
    committer   the one that really wrote, as far as can be told, in words; `job`: its id; `claimed`: what the marker says wrote
    files       data files and their `bytes`; `jobs`: the writes that they come from
    folders     directories that committers have left; `uploads`: those that nobody has completed; `expire`: the service drops
                these itself; `unseen`: why they cannot be listed
    url         where it is; `diagnostics`: what the marker says beside
    doubled     groups of files with the same bytes from the same task of several writes, `doubled_bytes` in all: what the next job
                takes up of a killed one
    warnings    sentences; `cost`: what is left behind, in bytes
    """

    url: str
    state: str
    committer: str
    claimed: str = ""
    job: str = ""
    files: int = 0
    bytes: int = 0
    jobs: int = 0
    folders: tuple[Leftover, ...] = ()
    uploads: tuple[Leftover, ...] = ()
    unseen: str = ""
    expire: bool = False
    doubled: tuple[tuple[str, ...], ...] = ()
    doubled_bytes: int = 0
    warnings: tuple[str, ...] = ()
    diagnostics: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def ok(self) -> bool:
        """Whether a job has committed here and nothing is left behind, doubled or contradictory."""
        return self.state == "committed" and not (self.folders or self.uploads or self.doubled or self.warnings)

    @property
    def cost(self) -> int:
        """Bytes that are stored, and paid for, and that no reader sees or that every reader sees twice."""
        return sum(max(item.bytes, 0) for item in (*self.folders, *self.uploads)) + self.doubled_bytes

    def _facts(self) -> dict[str, object]:
        rows: dict[str, object] = {"state": self.state, "written by": self.committer}
        if self.claimed and self.claimed != self.committer:
            rows["_SUCCESS says"] = self.claimed
        if self.job:
            rows["job"] = self.job
        rows["data files"] = f"{self.files:,} ({format_size(self.bytes)}) of {self.jobs:,} writes"
        for item in self.folders:
            rows[f"left: {item.name}"] = f"{item.files:,} files, {format_size(item.bytes)}, {ago(item.age)}"
        if self.uploads:
            known = sum(max(item.bytes, 0) for item in self.uploads)
            rows["left: uploads"] = f"{len(self.uploads):,}, {format_size(known)}" + (", dropped by the service" if self.expire else "")
        if self.unseen:
            rows["uploads"] = f"cannot be seen: {self.unseen}"
        if self.doubled:
            rows["doubled"] = f"{len(self.doubled):,} groups of files, {format_size(self.doubled_bytes)} too much"
        rows["costs"] = f"{format_size(self.cost)} that is paid for and of no use"
        return rows

    def _note(self) -> str:
        told = [f"doubled: {', '.join(group)}" for group in self.doubled[:SHOWN]]
        return "\n".join(map(printable, (*self.warnings, *told)))

    def __str__(self) -> str:
        return display.lines(self.url, self._facts(), self._note())

    def __repr__(self) -> str:
        return f"Inspection({self.url!r}, state={self.state!r}, committer={self.committer!r}, ok={self.ok})"

    def _repr_html_(self) -> str:
        return display.facts(self.url, self._facts(), self._note())

    def as_dict(self) -> dict[str, Any]:
        """All of it as JSON takes it."""
        plain = {key: value for key, value in vars(self).items() if key not in ("folders", "uploads", "diagnostics")}
        lists = {name: [leftovers.plain(item) for item in getattr(self, name)] for name in ("folders", "uploads")}
        return {**plain, **lists, "diagnostics": dict(self.diagnostics), "ok": self.ok, "cost": self.cost}


def inspect_success(url: str, *, storage_options: Mapping[str, object] | None = None) -> Inspection:
    """Read the destination of a Spark job: its `_SUCCESS`, what committers have left, and what is there twice. Nothing is changed.

    Returns an `Inspection`. `storage_options` are those of the store.

    Every name below `url` is listed once; files are read only where two have the same task, length and directory. Raises UsageError for
    a URL of no store of quire's, StorageError where it cannot be listed.
    """
    store = connect(canonical(url, storage_options), storage_options)
    said = _marker(store)
    data = [entry for entry in store.walk() if is_shown(entry.name)]
    left = tuple(leftovers.folders(store))
    waiting = leftovers.uploads(store)
    doubled = tuple(sorted(_doubled(store, data)))
    sizes = {entry.name: entry.size for entry in data}
    warnings = [*said.warnings(data), *_of_leftovers(left, waiting)]
    if not data and not left and said.state == "no marker":
        warnings.append("no data files either: look whether this is the URL that was written to.")
    if doubled:
        warnings.append(
            "files of several writes have the same bytes for the same task: a job has committed what a killed one had left, or the same "
            "rows were appended twice. Compare the rows, and write the destination anew."
        )
    return Inspection(
        url=store.url,
        state=said.state,
        committer=said.really(data),
        claimed=said.claimed,
        job=said.job,
        files=len(data),
        bytes=sum(entry.size for entry in data),
        jobs=len({match[2] for entry in data if (match := _PART.search(entry.name))}),
        folders=left,
        uploads=waiting.found,
        unseen=waiting.unseen,
        expire=waiting.expire,
        doubled=doubled,
        doubled_bytes=sum(sizes[name] for group in doubled for name in group[1:]),
        warnings=tuple(warnings),
        diagnostics=said.diagnostics,
    )


@dataclass(frozen=True)
class _Marker:
    """The content of `_SUCCESS`."""

    state: str
    claimed: str = ""
    job: str = ""
    names: tuple[str, ...] = ()
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""

    def really(self, data: list[Entry]) -> str:
        """A committer with a marker of JSON that names no file has written none of those that are there."""
        if self.state != "committed":
            return "not known"
        if not self.claimed:
            return "FileOutputCommitter (algorithm 1 or 2: the marker does not tell)"
        return f"not {self.claimed}: straight into the destination, or algorithm 1" if data and not self.names else self.claimed

    def warnings(self, data: list[Entry]) -> Iterable[str]:
        if self.state == "no marker":
            yield "no _SUCCESS: no job has ended well here, or it is switched off, or its last overwrite was a dynamic one."
        if self.state == "damaged":
            yield f"_SUCCESS is neither empty nor a committer's: {self.reason}. Look who wrote it."
        if self.claimed and data and not self.names:
            yield (
                f"_SUCCESS is of {self.claimed}, and names none of the {len(data):,} files: Spark was not bound to it by "
                "PathOutputCommitProtocol, so nothing was hidden before the commit. Ask advise.check(spark, url)."
            )
        there = {entry.name.rpartition("/")[2] for entry in data}
        gone = [name for name in self.names if name not in there]
        if gone:
            yield f"{len(gone):,} files that _SUCCESS names are not there any more, for example {scrub(gone[0], 120)}."


def _marker(store: Store) -> _Marker:
    entry = store.stat(MARKER)
    if entry is None:
        return _Marker("no marker")
    if entry.size == 0:
        return _Marker("committed")
    if entry.size > LARGEST:
        return _Marker("damaged", reason=f"it is {format_size(entry.size)} long")
    try:
        said = json.loads(store.get(MARKER))
    except (ValueError, RecursionError):
        return _Marker("damaged", reason="it is not JSON")
    if not isinstance(said, dict) or not isinstance(committer := said.get("committer"), str) or not committer:
        return _Marker("damaged", reason="it names no committer")
    listed, job, details = (said.get(key) for key in ("filenames", "jobId", "diagnostics"))
    if listed is not None and not (isinstance(listed, list) and all(isinstance(name, str) for name in listed)):
        return _Marker("damaged", reason="its filenames are not a list of names")
    names = tuple(name.rpartition("/")[2] for name in listed or ())
    diagnostics = {scrub(str(key)): scrub(str(value)) for key, value in details.items()} if isinstance(details, dict) else {}
    return _Marker("committed", scrub(committer, 200), scrub(job, 200) if isinstance(job, str) else "", names, diagnostics)


def _doubled(store: Store, data: list[Entry]) -> Iterable[tuple[str, ...]]:
    """Files of one task number, in one directory, with the same bytes, from several writes."""
    groups: dict[tuple[str, str, int], list[Entry]] = {}
    for entry in data:
        folder, _, last = entry.name.rpartition("/")
        if entry.size and (match := _PART.match(last)):
            groups.setdefault((folder, match[1], entry.size), []).append(entry)
    for group in groups.values():
        if len({match[2] for entry in group if (match := _PART.search(entry.name))}) < 2:
            continue
        same: dict[bytes, list[str]] = {}
        for entry in group:
            same.setdefault(_hash(store, entry), []).append(entry.name)
        yield from (tuple(sorted(found)) for found in same.values() if len(found) > 1)


def _hash(store: Store, entry: Entry) -> bytes:
    found, step = hashlib.blake2b(digest_size=16), 8 << 20
    for start in range(0, entry.size, step):
        found.update(store.get_range(entry.name, start, min(step, entry.size - start)))
    return found.digest()


def _of_leftovers(left: tuple[Leftover, ...], waiting: leftovers.OpenUploads) -> Iterable[str]:
    for item in left:
        whose = f" of job {item.job}" if item.job else ""
        yield (
            f"{item.name}{whose} is left, last changed {ago(item.age)}: a job runs, or was killed. With algorithm 1 the next job that "
            "appends would commit it, too. If none runs: sweep(url, dry_run=False)."
            if item.kind == "_temporary"
            else f"{item.name}{whose} is left, last changed {ago(item.age)}. If no job runs: sweep(url, dry_run=False)."
        )
    if waiting.found and not waiting.expire:
        yield f"{len(waiting.found):,} uploads wait to be completed, and are paid for. If no job runs: sweep(url, dry_run=False)."
