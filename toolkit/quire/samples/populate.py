"""Makes a tree of many small XML files to practise on: `quire populate DIR` and the notebooks' first cell.

Sample files, like the article's DirectoryPopulator classes: a synthetic copy of the millions of 5 KB files that devices send.
The same arguments give the same names and the same bytes, however many processes write them: what a file holds follows
from its number alone, and each process writes a range of numbers.
"""

from __future__ import annotations

import json
import math
import operator
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import accumulate, islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from quire.arguments import format_size, parse_size
from quire.errors import StorageError, UsageError, about, choose, encodable, scrub
from quire.interrupts import interruptible
from quire.progress import Progress
from quire.samples.devices import DIRT, LARGEST, SMALLEST, Stock
from quire.storage.threads import Pool

if TYPE_CHECKING:
    from quire.storage import Store

SHAPES = ("even", "skewed", "deep", "flat")
"""How the files lie: the same number in each directory; about half of them in the first (Zipf's law, exponent 1.6); the same
number in each of the days year=2025/month=12/day=20 and on; all in the one directory."""

_ZIPF = 1.6
_MOST_FILES = 10**9
_MOST_DIRECTORIES = 100_000
_WORTH_A_PROCESS = 4000  # below this many files a process takes longer to start than to write
_REPORT_EVERY = 1000
_IN_FLIGHT = 64  # requests to a store
_BLOCK = 4096  # what a file takes on disk is rounded up to this on nearly every file system
_WORD = 2**64 - 1

# A process that writes needs this package's place, not its __init__ (which would import Spark), and nothing of the
# caller's: __main__ is not imported again, so scripts without a guard, `python -c` and notebooks all work.
_WORKER = (
    "import sys, types; package = types.ModuleType('quire'); package.__path__ = [sys.argv[1]]; "
    "sys.modules['quire'] = package; from quire.samples.populate import _worker; _worker(sys.argv[2])"
)


@dataclass(frozen=True)
class PopulateReport:
    """The files that `populate` wrote.

    directory         its absolute path
    files, bytes      how many files, dirty ones included, and their size in all
    dirty             kind of damage -> number of files
    dirs              directories that hold files, or would if there were enough of them
    seconds           from the first check to the last file
    files_per_second
    """

    directory: str
    files: int
    bytes: int
    dirty: dict[str, int]
    dirs: int
    seconds: float
    files_per_second: float

    def __repr__(self) -> str:
        dirt = ", ".join(f"{number:,} {kind}" for kind, number in self.dirty.items()) or "none"
        return (
            f"PopulateReport({self.files:,} files, {format_size(self.bytes)}, in {self.dirs:,} directories below {self.directory!r}; "
            f"dirty: {dirt}; {self.seconds:.1f} s, {self.files_per_second:,.0f} files/s)"
        )


@dataclass(frozen=True)
class _Tree:
    """The whole tree as arguments say it: where each file lies and what it holds."""

    directory: str
    files: int
    size: int
    dirs: int
    shape: str
    dirt: int
    seed: int

    def directories(self) -> list[tuple[str, int, str]]:
        """Return (path below the root, number of the first file after it, its day) for each directory, in the files' order."""
        if self.shape == "flat":
            return [("", self.files, "2026-11-20")]
        weights = [(k + 1) ** -_ZIPF if self.shape == "skewed" else 1.0 for k in range(self.dirs)]
        total = math.fsum(weights)
        stops = [round(self.files * share / total) for share in accumulate(weights)]
        stops[-1] = self.files
        width = max(2, len(str(self.dirs - 1)))
        if self.shape == "deep":
            days = [date(2025, 12, 20) + timedelta(days=k) for k in range(self.dirs)]
            return [(f"year={day:%Y}/month={day:%m}/day={day:%d}", stop, f"{day}") for day, stop in zip(days, stops, strict=True)]
        return [(f"site-{k:0{width}d}", stop, "2026-11-20") for k, stop in enumerate(stops)]

    def dirty(self, start: int, stop: int) -> dict[int, str]:
        """Return file number -> kind of damage, for the files in [start, stop): exactly `dirt` of all, spread evenly."""
        found = {}
        if self.dirt:
            first, last = start * self.dirt // self.files, -(-stop * self.dirt // self.files)
            for k in range(max(0, first - 1), min(self.dirt, last + 1)):
                low, high = k * self.files // self.dirt, (k + 1) * self.files // self.dirt
                number = low + _mix(self.seed, k, salt=1) % (high - low)
                if start <= number < stop:
                    found[number] = DIRT[(k + self.seed) % len(DIRT)]
        return found


@interruptible
def populate(
    directory: str | os.PathLike[str],
    files: int = 400_000,
    size: str | int = "5KB",
    dirs: int = 20,
    shape: str = "even",
    *,
    dirty: float = 0.01,
    seed: int = 7,
    processes: int | None = None,
    progress: bool = True,
    storage_options: Mapping[str, Any] | None = None,
) -> PopulateReport:
    """Write `files` made-up device files below `directory`, a new or empty one, local or at a URL, and return what was written.

    size       mean size in bytes (256 B to 16 MiB); single files lie within ± 20 % of it
    dirs       number of directories (not for flat); empty ones are made too
    shape      "even" | "skewed" | "deep" | "flat", see SHAPES
    dirty      share of the files, 0 to 1, that are damaged: truncated, mismatched tags, empty, wrong encoding, garbage
    seed       another seed, other files; the same arguments, the same tree, byte for byte
    processes  how many write; default: one for each processor, at most 8. To a URL one process writes, with 64 requests in flight
    progress   show a bar where there is somebody to see it
    storage_options    of the store at a URL, which a load test needs: quire.populate("s3://lake/in", storage_options={…})

    Nothing is ever deleted or overwritten: raises UsageError if the directory holds anything, for arguments out of range, and
    if the disk is too small; StorageError when writing fails. Files of a stopped call stay. A store has no empty directories.
    After the small-files article's DirectoryPopulator (SmallFilesMerge).
    """
    began = time.perf_counter()
    url = _url(directory, storage_options)
    tree = _Tree(
        directory=url or _local(directory),
        files=_whole(files, "files", 0, _MOST_FILES),
        size=_size(size),
        dirs=1 if choose(shape, SHAPES, "shape") == "flat" else _whole(dirs, "dirs", 1, _MOST_DIRECTORIES),
        shape=shape,
        dirt=round(files * _share(dirty)),
        seed=_whole(seed, "seed", 0, _WORD),
    )
    wanted = _processors() if processes is None else _whole(processes, "processes", 1, 256)
    wanted = max(1, min(wanted, tree.files // _WORTH_A_PROCESS))
    if url:
        writing = _put_all(tree, _empty(url, storage_options))
    else:
        _prepare(tree)
        writing = _write_all(tree, wanted)
    size_in_all = 0
    # closed at once when the bar is interrupted: the processes must not go on writing behind the error
    with Progress(progress).phase("populate", tree.files) as bar, closing(writing) as steps:
        for written, length in steps:
            bar.update(written)
            size_in_all += length
    seconds = time.perf_counter() - began
    kinds = Counter(tree.dirty(0, tree.files).values())
    dirt = {kind: kinds[kind] for kind in DIRT if kinds[kind]}
    return PopulateReport(tree.directory, tree.files, size_in_all, dirt, tree.dirs, seconds, tree.files / seconds)


# --- arguments ---


def _local(directory: object) -> str:
    text = os.fspath(directory) if isinstance(directory, os.PathLike) else directory
    if not isinstance(text, str) or not text.strip() or "\0" in text or not encodable(text):
        raise UsageError(f"directory is {scrub(repr(text), 60)}: write the path of a new or empty local directory")
    if text.startswith("file:/"):
        try:
            url = urlsplit(text)
        except ValueError as e:
            raise UsageError(f"directory is {scrub(repr(text), 60)}, which is not a URL ({e}): write the path of a local directory") from e
        if url.netloc not in {"", "localhost"}:
            raise UsageError(f"directory is {scrub(text)!r}, which is of another machine: write the path of a local directory")
        text = url2pathname(url.path)
    return os.path.abspath(os.path.expanduser(text))


def _url(directory: object, options: Mapping[str, Any] | None) -> str:
    """The URL of a place in a store other than the local disk; "" for anything else."""
    if not isinstance(directory, str) or "://" not in directory or directory.startswith("file:"):
        return ""
    from quire.storage import destination  # a process that writes to a disk needs none of it

    with about("directory"):
        return destination(directory, options)


def _whole(value: object, what: str, least: int, most: int) -> int:
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if not least <= number <= most:
        raise UsageError(f"{what} is {scrub(repr(value), 60)}: it is a whole number from {least:,} to {most:,}")
    return number


def _size(size: str | int) -> int:
    number = parse_size(size, what="size")
    if not SMALLEST <= number <= LARGEST:
        raise UsageError(f"size is {scrub(repr(size), 60)}: populate makes files of {format_size(SMALLEST)} to {format_size(LARGEST)}")
    return number


def _share(dirty: float) -> float:
    try:
        share = math.nan if isinstance(dirty, bool | str) else float(dirty)
    except (TypeError, ValueError):
        share = math.nan
    if not 0 <= share <= 1:
        raise UsageError(f"dirty is {scrub(repr(dirty), 60)}: it is the share of damaged files, from 0 to 1, for example 0.01")
    return share


def _processors() -> int:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(usable, 8)


# --- writing ---


def _prepare(tree: _Tree) -> None:
    root = Path(tree.directory)
    try:
        root.mkdir(parents=True, exist_ok=True)
        with os.scandir(root) as entries:
            found = next(entries, None)
    except (FileExistsError, NotADirectoryError) as error:
        raise UsageError(f"{scrub(tree.directory)} is not a directory: name a new or an empty one") from error
    except OSError as error:
        raise StorageError(f"cannot write to {scrub(tree.directory)}: {error.strerror}") from error
    if found is not None:
        raise UsageError(
            f"{scrub(tree.directory)} is not empty, it holds {scrub(repr(found.name))}: populate never deletes or overwrites; "
            "name a new directory, or remove this one yourself"
        )
    _check_room(tree)
    try:
        for path, _, _ in tree.directories():
            (root / path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot write to {scrub(tree.directory)}: {error.strerror}") from error


def _check_room(tree: _Tree) -> None:
    needed = tree.files * -(-tree.size // _BLOCK) * _BLOCK
    free = shutil.disk_usage(tree.directory).free
    if needed > free:
        raise UsageError(f"{scrub(tree.directory)} needs about {format_size(needed)}, and {format_size(free)} is free: write fewer files")
    if hasattr(os, "statvfs"):
        disk = os.statvfs(tree.directory)
        if disk.f_files and tree.files > disk.f_favail:  # some file systems count no inodes: both are 0 there
            raise UsageError(f"{scrub(tree.directory)} has room for {disk.f_favail:,} more files, not {tree.files:,}: write fewer files")


def _write_all(tree: _Tree, processes: int) -> Generator[tuple[int, int]]:
    """Write the tree; yield (files, bytes) as they are written."""
    if processes == 1 or not sys.executable:
        try:
            yield from _write(tree, 0, tree.files)
        except OSError as error:
            raise StorageError(_failed(tree, error)) from error
        return
    cuts = [tree.files * k // processes for k in range(processes + 1)]
    source, sink = os.pipe()  # one pipe for all of them: a line is far shorter than what a pipe keeps in one piece
    running: list[subprocess.Popen[bytes]] = []
    try:
        with os.fdopen(source, "rb") as lines:
            try:
                for start, stop in pairwise(cuts):
                    running.append(_start(tree, start, stop, sink))
            finally:
                os.close(sink)
            for line in lines:
                match json.loads(line):
                    case [int(files), int(size)]:
                        yield files, size
                    case problem:
                        raise StorageError(str(problem))
        if any(process.wait() for process in running):
            raise StorageError(f"a process that wrote below {scrub(tree.directory)} was stopped; remove what there is, and try again")
    finally:
        for process in running:
            process.kill()
            process.wait()


def _start(tree: _Tree, start: int, stop: int, sink: int) -> subprocess.Popen[bytes]:
    job = json.dumps({"tree": vars(tree), "start": start, "stop": stop})
    command = [sys.executable, "-I", "-c", _WORKER, str(Path(__file__).parents[1]), job]
    try:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.DEVNULL)
    except OSError as error:
        raise StorageError(f"cannot start {sys.executable} to write files: {error.strerror}; processes=1 does without") from error


def _worker(text: str) -> None:
    """Write one range of a tree, in a process of its own; say on standard output what was written, or the problem."""
    job: dict[str, Any] = json.loads(text)
    tree = _Tree(**job["tree"])
    try:
        for written in _write(tree, job["start"], job["stop"]):
            os.write(1, json.dumps(written).encode() + b"\n")
    except (BrokenPipeError, KeyboardInterrupt):
        os._exit(1)  # whoever asked for the files has gone, or is told by the same signal
    except Exception as error:
        problem = _failed(tree, error) if isinstance(error, OSError) else scrub(repr(error))
        os.write(1, json.dumps(problem).encode() + b"\n")
        os._exit(1)


def _failed(tree: _Tree, error: OSError) -> str:
    return f"cannot write {scrub(os.fsdecode(error.filename or tree.directory))}: {error.strerror}; what was written stays"


def _write(tree: _Tree, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Write the files with the numbers in [start, stop); yield (files, bytes) now and then, and at the end."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    files = size = 0
    for name, content in _documents(tree, start, stop):
        descriptor = os.open(os.path.join(tree.directory, name), flags, 0o666)
        try:
            written = os.write(descriptor, content)
            while written < len(content):
                written += os.write(descriptor, content[written:])
        finally:
            os.close(descriptor)
        files += 1
        size += len(content)
        if files == _REPORT_EVERY:
            yield files, size
            files = size = 0
    yield files, size


def _documents(tree: _Tree, start: int, stop: int) -> Iterator[tuple[str, bytes | bytearray]]:
    """The names below the root and the contents of the files with the numbers in [start, stop)."""
    stock, dirty, first = Stock(tree.size, tree.seed), tree.dirty(start, stop), 0
    for place, (path, end, day) in enumerate(tree.directories()):
        folder = f"{path}/dev-" if path else "dev-"
        step = 86_400_000 / max(1, end - first)
        for number in range(max(start, first), min(stop, end)):
            pick = _mix(tree.seed, number)
            device = place * 1000 % 100_000_000 + pick % 1000
            moment = f"{day}T{_clock(int((number - first) * step))}Z"
            kind = dirty.get(number)
            content: bytes | bytearray = (
                stock.document(pick, device, number, moment) if kind is None else stock.damaged(kind, pick, device, number, moment)
            )
            yield f"{folder}{device:08d}-{number:010d}.xml", content
        first = end


def _empty(url: str, options: Mapping[str, Any] | None) -> Store:
    """The store at a URL, where nothing is there yet; UsageError says what is."""
    from quire.storage import connect

    store = connect(url, options)
    store.check_writable()
    if (found := next(iter(store.scan()), None)) is not None:
        raise UsageError(
            f"{scrub(store.url)} is not empty, it holds {scrub(repr(found.name))}: populate never deletes or overwrites; name a new place"
        )
    return store


def _put_all(tree: _Tree, store: Store) -> Generator[tuple[int, int]]:
    """The same for a store, with many requests in flight, and not many more documents in memory."""

    def put(document: tuple[str, bytes | bytearray]) -> int:
        name, content = document
        # A put whose answer was lost finds its own file when it is tried again.
        if not store.put_if_absent(name, bytes(content)) and store.get(name) != content:
            raise StorageError(f"{scrub(store.url)}/{name} is there by now: somebody else writes there. What was written stays.")
        return len(content)

    documents = _documents(tree, 0, tree.files)
    with Pool(_IN_FLIGHT, "quire-populate") as threads:
        while some := list(islice(documents, _REPORT_EVERY)):
            yield len(some), sum(threads.map(put, some))


def _clock(milliseconds: int) -> str:
    seconds, thousandths = divmod(milliseconds, 1000)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{thousandths:03d}"


def _mix(seed: int, number: int, salt: int = 0) -> int:
    """Return 64 bits that look random and follow from the arguments alone (SplitMix64's last steps)."""
    bits = (number * 0x9E3779B97F4A7C15 + seed * 0xD1342543DE82EF95 + salt * 0xA24BAED4963EE407) & _WORD
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB & _WORD
    return bits ^ bits >> 31
