"""How many requests a job makes of Azure Blob storage, by quire's own planning. `tests/engine/test_scale.py` counts those of real jobs.

A job is `folders` directories of equally many files of one size, gathered for the first time, in one account or several, to
another path of such a store. Its pieces, tasks and ranges come from the code that plans real jobs, which is given a tree that is only
thought of; so what changes there changes here.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, NamedTuple
from unittest.mock import patch

from quire.commit import parts
from quire.commit.entries import Commit, Coverage, DataFile, Spec, Stats, Task, encode
from quire.planning import listing, pack
from quire.planning.cuts import cuts
from quire.planning.listing import Cut, TaskRun
from quire.planning.pieces import FOLDERS, Piece, pieces
from quire.sources.files import Selection
from quire.storage.azure import rest as azure_rest
from quire.storage.azure import store as azure

ALL = Selection((), (), hidden=False, links=False, newest=None, without=frozenset())


@dataclass(frozen=True)
class Job:
    """What is to be gathered. The article's: 200 million files of 5 KB, 500,000 a directory."""

    files: int = 200_000_000
    size: int = 5_000  # bytes of each
    folders: int = 400
    target: int = 256 << 20  # bytes of a data file
    accounts: int = 1  # over which the folders are spread
    parallelism: int = 4  # tasks that run at once
    seeks: bool = True  # a listing begins at any name, as the service's newest interface has it

    @property
    def held(self) -> int:
        """The files of a folder."""
        return self.files // self.folders

    @property
    def cut(self) -> Cut:
        """As `consolidate` without further settings."""
        return Cut("balanced", "flat", 8, "xxh64", self.target, streams=True)


class Asked(NamedTuple):
    """Requests of one kind: read, list, write, look (at a blob's properties) or delete."""

    why: str
    kind: str
    count: int


@dataclass(frozen=True)
class Shape:
    """What planning makes of a job."""

    pieces: int
    looks: int  # pages that the driver lists
    pages: tuple[int, ...]  # that each listing task lists
    chunks: int  # objects of the plan
    runs: int
    tasks: tuple[pack.PlannedTask, ...]

    def objects(self, task: pack.PlannedTask) -> int:
        """The plan's objects that a task reads."""
        return len(list(itertools.groupby(task.runs, key=lambda run: run.object)))


def name(i: int) -> str:
    """Of a file in its folder."""
    return f"{i:08}"


def folder_name(i: int) -> str:
    return f"d{i:05}"


def pages(names: int) -> int:
    """Requests that a listing of so many names takes."""
    return max(1, -(-names // azure_rest.PAGE))


class _Tree:
    """An account's part of the job, and the pages of names that were asked of it. `seeks`: a listing begins where it is asked to."""

    def __init__(self, job: Job, account: int) -> None:
        self.seeks = job.seeks
        self.folders = dict.fromkeys(map(folder_name, range(account, job.folders, job.accounts)), job.held)
        self.asked, self._lock = 0, threading.Lock()

    def _ask(self, count: int) -> None:
        with self._lock:
            self.asked += count

    def store(self, _told: Any) -> _Tree:
        return self

    def _names(self, folder: str) -> Sequence[str]:
        return _Names(self.folders[folder]) if folder else tuple(self.folders)

    def peek(self, folder: str, *, follow: bool) -> Iterator[tuple[str, bool]]:
        names = self._names(folder)
        self._ask(pages(len(names)))
        return ((each, not folder) for each in names)

    def first(self, folder: str, after: str, most: int) -> list[tuple[str, bool]]:
        names = self._names(folder)
        start = bisect.bisect_left(names, after) if self.seeks else 0
        found = names[start : start + most]
        self._ask(pages(len(found)))
        return [(each, not folder) for each in found]


class _Once:
    """Cuts one folder of a job, and the others like it: what is asked for them is counted here."""

    def __init__(self) -> None:
        self.asked, self.found = 0, list[str]()
        self.asks, self.cut, self._lock = 0, False, threading.Lock()

    def __call__(self, first: Callable[[str, int], list[str]], known: list[str], wanted: int, *pool: Executor) -> list[str]:
        with self._lock:
            if self.cut:
                self.asked += self.asks
                return self.found

            def counted(after: str, most: int) -> list[str]:
                self.asks += 1
                return first(after, most)

            self.cut, self.found = True, cuts(counted, known, wanted, *pool)
            return self.found


class _Names(Sequence[str]):
    """Of a folder's files, without holding them."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, at: Any) -> Any:
        return [name(i) for i in range(*at.indices(self.count))] if isinstance(at, slice) else name(range(self.count)[at])


@functools.lru_cache(maxsize=4)
def shape(job: Job) -> Shape:
    """Plan it."""
    assert job.files == job.held * job.folders, "folders hold equally many files"
    trees: Any = tuple(_Tree(job, i) for i in range(job.accounts))
    once = _Once()
    with patch("quire.planning.pieces.cuts", once):
        found = list[Piece](pieces(trees, ALL, job.parallelism))
    looks, runs, listed, chunks = sum(tree.asked for tree in trees) + once.asked, list[TaskRun](), list[int](), 0
    for piece in found:
        assert piece.folder, f"at most {FOLDERS:,} folders can be thought of here"
        held = trees[piece.root].folders[piece.folder]
        first, last = (bisect.bisect_left(_Names(held), bound) if bound else end for bound, end in ((piece.after, 0), (piece.until, held)))
        # The page behind a slice is asked for while its last one is worked on.
        listed.append(
            pages(held) if (first, last) == (0, held) else pages(last - first + 1) + 1 if job.seeks else pages(held) + bool(first)
        )
        for row in range(first, last, listing.CHUNK):
            runs += _runs(job, piece.root, chunks, min(listing.CHUNK, last - row))
            chunks += 1
    return Shape(len(found), looks, tuple(listed), chunks, len(runs), tuple(pack.pack(runs, job.cut, 1.0)))


def _runs(job: Job, root: int, chunk: int, rows: int) -> Iterator[TaskRun]:
    """As the listing notes them: of bytes that are a small part of a data file."""
    each = max(1, min(20_000, job.target // 32 // job.size))
    for row in range(0, rows, each):
        here = min(each, rows - row)
        yield TaskRun("", 0, f"{chunk:06}", root, row, here, here * job.size)


def batches(task: pack.PlannedTask) -> list[int]:
    """The files that a task asks for in one call of `read_many`: all of one source."""
    return [sum(run.rows for run in runs) for _, runs in itertools.groupby(task.runs, key=lambda run: run.root)]


def requests(job: Job, looks: int) -> list[Asked]:
    """All requests of a first run that nothing disturbs; `looks`: how often the driver looks how far it is."""
    plan = shape(job)
    n, blocks = len(plan.tasks), sum(-(-task.bytes // azure.BLOCK) for task in plan.tasks)
    long = int(len(entry(plan)) > parts.LONGEST)
    return [
        Asked("files", "read", job.files),
        Asked("listing: the driver's look at the upper directories", "list", plan.looks),
        Asked("listing: by tasks", "list", sum(plan.pages)),
        Asked("the plan's objects", "write", plan.chunks + 1),
        Asked("a task's parts of the plan", "read", n + sum(map(plan.objects, plan.tasks))),
        Asked("blocks of data files", "write", blocks),
        Asked("a task's ledger segment and manifest", "write", 2 * n),
        Asked("manifests: before a task, while it is watched, at the end", "read", 3 * n),
        Asked("watching", "list", looks * (pages(n) + 1)),
        Asked("publishing: the block list of each data file", "write", n),
        Asked("the log, the plan's head, what is there already", "read", 15 + long),
        Asked("whether entries of the log are archived", "look", 5),
        Asked("the log, the plan's head", "write", 3 + long),
        Asked("the log, the plan's head, what is there already", "list", 15),
        Asked("whether the destination is a table", "list", 1),
        Asked("whether the destination is a table", "look", 1),
        Asked("the plan before and after it counts", "look", 2),
        Asked("which tasks are done, and what to tidy", "list", 3 * pages(n) + pages(plan.chunks + 2)),
        Asked("tidying: manifests and plan", "delete", n + plan.chunks + 2),
    ]


def kinds(asked: list[Asked]) -> dict[str, int]:
    """The sum of each kind."""
    return {kind: sum(a.count for a in asked if a.kind == kind) for kind in ("read", "list", "write", "look", "delete")}


def entry(plan: Shape) -> bytes:
    """The log's entry that commits such a plan, with all its tasks."""
    job, attempt = "0-0123456789abcdef", "0123456789ab"
    first = "abfs://container@account.dfs.core.windows.net/devices/" + folder_name(0) + "/" + name(0)
    tasks = []
    for i, task in enumerate(plan.tasks):
        handle = f'{{"blocks": {-(-task.bytes // azure.BLOCK)}, "prefix": "{"0" * 32}"}}'
        file = DataFile(f"part-{job}-{i}-{attempt}-0.txt", task.bytes, task.files, handle)
        tasks.append(
            Task(
                task=i, attempt=attempt, data_files=(file,),
                coverage=Coverage(segment=f"_quire/ledger/{job}-{i}-{attempt}.rows", first=first, last=first),
                stats=Stats(
                    assigned=task.files, gathered=task.files, files_in=task.files, bytes_in=task.bytes, started=1795000000.123,
                    seconds=37.123,
                ),
            )
        )  # fmt: skip
    spec = Spec(transform="lines", format="lines", compression="none", layout="flat")
    return encode(
        Commit(
            job=job,
            base=0,
            committer="upload",
            spec=spec,
            time="2026-11-21T10:00:00.000+00:00",
            planner="balanced",
            tasks=tuple(tasks),
            dropped=(),
            left=(),
            parts=None,
            closer="",
        )
    )
