"""A loop that runs for a year on a store in memory and a clock that turns by itself: what grows from month to month.

    python tests/benchmarks/loop_year.py                          (every five minutes: most of a day)
    python tests/benchmarks/loop_year.py --runs 2000              (a year in so many runs, between which the clock jumps)
    python tests/benchmarks/loop_year.py --every 1 --runs 2000    (likewise a loop of a second)
    python tests/benchmarks/loop_year.py --days 14                (two weeks, in which the clock does not jump)
    python tests/benchmarks/loop_year.py --files 50               (a source that keeps its files for some four hours: half the time)
    python tests/benchmarks/loop_year.py --every 1 --days 12 --bare 399 --files 100   (a million commits of a loop of a second: two hours)

With ARROW_DEFAULT_MEMORY_POOL=system, as `quire run` has it: Arrow's own allocator keeps more, and more of it from month to month.

Each run finds one new small file and commits it; the source keeps its files for two days, and 600 of them at most (--files). The loop
maintains its destination as it does everywhere (`maintain=` is on). After each twelfth of the runs: the objects in the destination, how
long it takes to open it and to plan, what the driver holds (the objects' bytes lie outside of it), the requests of a run without upkeep,
the data files by the number that would be ideal, and the share of upkeep in the time that the loop works. With `--bare`, so many
commits come between two runs, as another writer leaves them, by the log's own append: data file, rows of the ledger, commit and
`published`; the loop's runs read, fold, archive and compact them all. With fewer runs than a year
has, the clock jumps by as much more, and what is due after so many entries of the log (archives, checkpoints, versions that end) is due
after as many times fewer, down to a fiftieth: it happens as often as in a year of five-minute runs, and upkeep has more to do by each
run. But then a day is over before the next checkpoint comes, so what outlives a day of grace is seen where the clock does not jump
(`--days`; a month is a twelfth).
"""

from __future__ import annotations

import bisect
import gc
import itertools
import os
import sys
import threading
import time
import zlib
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash
from common import Verdict, arguments, load, machine, median, table

SOURCE, DEST = "memory://year-in", "memory://year-out"
EVERY, KEPT, MOST = 300, 2 * 86400.0, 600  # seconds from run to run, and until the source drops a file; files that it has at most
SIZE, TOGETHER = 200, 100  # bytes of a file; so many files fill a data file
DAYS = 365
OPEN, FLAT, IDEAL, SHARE = 0.5, 0.1, 1.2, 0.1  # seconds; month 12 by month 1; data files by the ideal number; upkeep by all work
MORE, UNMERGED = 1.5, 30  # as checkpoints come and go; small files that a loop leaves for its next compaction
HOUR, PER_COMMIT = 3600.0, 2.5  # until a superseded version ends; entries of the log, with those of upkeep
LAST = 200  # runs of a month whose requests are counted
REOPENED = 1_000  # commits of another writer, after which it reads the log anew
BLOCK = 1_000  # names
FIFTIETH = 50  # of the entries after which something is due, at least


class Content:
    """The bytes of an object, in a file in shared memory: a service keeps them, and the driver's own memory tells what quire holds."""

    __slots__ = ("path", "size")
    numbers = itertools.count()

    def __init__(self, folder: Path, data: bytes) -> None:
        self.path, self.size = f"{folder}/{next(self.numbers)}", len(data)
        with open(self.path, "wb", buffering=0) as sink:
            sink.write(data)

    def __len__(self) -> int:
        return self.size

    def __bytes__(self) -> bytes:
        with open(self.path, "rb", buffering=0) as source:
            return source.read()

    def __del__(self) -> None:
        with suppress(FileNotFoundError):  # the year is over
            os.unlink(self.path)


class Names:
    """Names in order, in blocks: a name comes and goes in the same time, however many there are."""

    def __init__(self) -> None:
        self.blocks = list[list[str]]()
        self.firsts = list[str]()  # of each block

    def _block(self, name: str) -> int:
        return max(0, bisect.bisect_right(self.firsts, name) - 1)

    def add(self, name: str) -> None:
        if not self.blocks:
            self.blocks, self.firsts = [[name]], [name]
            return
        at = self._block(name)
        block = self.blocks[at]
        bisect.insort(block, name)
        self.firsts[at] = block[0]
        if len(block) > BLOCK:
            self.blocks[at : at + 1] = block[: BLOCK // 2], block[BLOCK // 2 :]
            self.firsts.insert(at + 1, block[BLOCK // 2])

    def remove(self, name: str) -> None:
        at = self._block(name)
        block = self.blocks[at]
        del block[bisect.bisect_left(block, name)]
        if block:
            self.firsts[at] = block[0]
        else:
            del self.blocks[at], self.firsts[at]

    def since(self, name: str) -> Iterator[str]:
        """Those from a name on."""
        for n in range(self._block(name), len(self.blocks)):
            block = self.blocks[n]
            yield from block[bisect.bisect_left(block, name) :]


class Objects(dict[str, tuple[Content, int]]):
    """The objects of all stores in memory, with their names in order: a listing takes what it gives, and not all that is there."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder, self.names = folder, Names()

    def __setitem__(self, name: str, value: tuple[bytes | Content, int]) -> None:
        if name not in self:
            self.names.add(name)
        content, tick = value
        super().__setitem__(name, (Content(self.folder, content) if isinstance(content, bytes) else content, tick))

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        self.names.remove(name)

    def pop(self, name: str, *default: Any) -> Any:
        if name in self:
            self.names.remove(name)
        return super().pop(name, *default)

    def below(self, prefix: str, after: str = "", until: str = "\U0010ffff") -> list[tuple[str, tuple[Content, int]]]:
        end = prefix + until
        return [(name, self[name]) for name in itertools.takewhile(end.__gt__, self.names.since(prefix + after))]

    def holds(self, prefix: str) -> bool:
        return next(self.names.since(prefix), "").startswith(prefix)


class Clock(threading.Event):
    """Time that passes where the loop waits; then the next file comes. It is also what ends the loop."""

    def __init__(self, runs: int, every: int = EVERY, days: int = DAYS, files: int = MOST, bare: int = 0) -> None:
        super().__init__()
        self.beside = OtherWriter(bare)
        runs, months = runs or days * 86400 // every, 12
        self.scale, self.days = max(1, days * 86400 // every // runs), days
        self.every, self.jump = every, float(every * self.scale)
        self.kept = max(10, min(files, int(KEPT / self.jump)))  # files of the source
        self.target = SIZE * max(10, TOGETHER // self.scale)
        self.files = deque[str]()  # of the source, the oldest first
        self.now, self.runs, self.month = datetime(2026, 1, 1, tzinfo=UTC).timestamp(), runs, max(1, runs // months)
        self.done, self.rows, self.requests, self.per_run, self.plans = 0, list[Month](), Counter[str](), list[int](), list[float]()
        self.began, self.upkeep, self.looking = time.monotonic(), 0.0, 0.0

    def time(self) -> float:
        return self.now

    def iso(self) -> str:
        return datetime.fromtimestamp(self.now, UTC).isoformat(timespec="milliseconds")

    def wait(self, timeout: float | None = None) -> bool:
        self.per_run = [*self.per_run[-LAST:], sum(self.requests.values())]
        for _ in range(1 + self.beside.commits):
            self.done += 1
            if self.done % self.month == 0:
                with self.elsewhere():
                    self.rows.append(Month(self))
                    print(self.rows[-1].line(), flush=True)
            self.now += self.jump
            if self.done % (1 + self.beside.commits):
                with self.elsewhere():
                    self.beside.commit(self.iso(), self.next_name(), content(self.done))
        self.requests.clear()
        return self.is_set() or self.done >= self.runs or not self.arrive()

    @contextmanager
    def elsewhere(self) -> Iterator[None]:
        """What takes time, and is not the loop's work."""
        began = time.monotonic()
        yield
        self.looking += time.monotonic() - began

    def next_name(self) -> str:
        return f"{datetime.fromtimestamp(self.now, UTC):%Y-%m-%d}/{self.done:08}.txt"

    def arrive(self) -> bool:
        """A file comes, and an old one goes."""
        from quire.storage import connect

        store = connect(SOURCE, None)
        self.files.append(self.next_name())
        store.put(self.files[-1], content(self.done))
        if len(self.files) > self.kept:
            store.remove(self.files.popleft())
        return True


def content(number: int) -> bytes:
    """The bytes of a file of the source."""
    return b"x" * (SIZE - 10) + b"%09d\n" % number


class OtherWriter:
    """Another writer, which leaves commits as a run of one new file does: so many between two runs of the loop."""

    def __init__(self, commits: int) -> None:
        self.commits, self.made = commits, 0
        self.log: Any = None  # as it reads it, from entry to entry

    @cached_property
    def model(self) -> tuple[Any, Any]:
        """A commit of the loop's, and its rows."""
        from quire.coverage.segments import SCHEMA

        log = self.opened()
        _, commit = next(log.recent())
        rows = log.store.get(commit.tasks[0].coverage.segment)
        return commit, pq.read_table(pa.BufferReader(rows), schema=SCHEMA)

    def opened(self) -> Any:
        """The log of the destination, from its newest checkpoint on: it would hold all that has come otherwise."""
        from quire.commit.log import Log
        from quire.storage import connect

        return Log(connect(DEST, None)).refresh()

    def commit(self, time: str, name: str, data: bytes) -> None:
        """One of them: all that it names is there before it."""
        from quire.commit import names
        from quire.commit.entries import Published
        from quire.coverage.segments import SegmentWriter
        from quire.storage import memory

        commit, rows = self.model
        self.made += 1
        self.log = self.opened() if self.made % REOPENED == 1 else self.log.refresh()
        log, replace = self.log, msgspec.structs.replace
        job, attempt, path = f"{log.tip}-{zlib.crc32(name.encode()):016x}", f"{zlib.crc32(data):012x}", f"{SOURCE}/{name}"
        file, segment = names.data_file("", job, 0, attempt, 0, "txt"), names.segment(job, 0, attempt)
        said = {
            "path": path,
            "version": f"{next(memory._ticks)}-{len(data)}",
            "data_file": file,
            "checksum": xxhash.xxh3_64_intdigest(data),
        }
        writer = SegmentWriter()
        writer.add(
            pa.table([pa.array([said[f.name]], f.type) if f.name in said else rows.column(f.name) for f in rows.schema], rows.schema)
        )
        log.store.put(file, data)
        log.store.put(segment, writer.finish())
        task = commit.tasks[0]
        done = replace(
            task,
            attempt=attempt,
            data_files=(replace(task.data_files[0], name=file, handle=names.staged(job, 0, attempt, file)),),
            coverage=replace(task.coverage, segment=segment, first=path, last=path),
        )
        entry = replace(commit, job=job, base=log.tip, time=time, tasks=(done,))
        log.append(lambda log: None if log.outcome(job) else entry)
        log.append(lambda log: None if log.published(job) else Published(job=job, time=time, lost=()))


class Month:
    """What there is at its end."""

    def __init__(self, clock: Clock) -> None:
        import quire
        from quire.storage import memory

        gc.collect()
        objects: Any = memory._objects
        there = {name[len(DEST) + 1 :]: len(value[0]) for name, value in objects.below(f"{DEST}/")}
        self.number, self.runs = len(clock.rows) + 1, clock.done
        self.objects, self.bytes = len(there), sum(there.values())
        self.kinds = Counter("/".join(name.split("/")[:2]) if name.startswith("_quire/") else "data" for name in there)
        self.held = _resident() / 1e6
        self.requests = median(clock.per_run)
        self.ratio = self.kinds["data"] / (clock.done * SIZE / clock.target)
        worked = time.monotonic() - clock.began - clock.looking
        self.share = clock.upkeep / worked
        self.run_ms = 1e3 * (worked - clock.upkeep) * (1 + clock.beside.commits) / clock.done
        self.open, ledger = _timed(lambda: quire.Ledger(DEST))
        self.plan = median(clock.plans)
        assert ledger.summary().files == clock.done, (ledger.summary().files, clock.done)

    def line(self) -> str:
        return (
            f"{self.number:>2}: {self.runs:,} runs, {self.objects:,} objects {dict(sorted(self.kinds.items()))}, {self.bytes / 1e6:,.1f} "
            f"MB; open {self.open:.3f} s, plan {self.plan:.3f} s, driver {self.held:,.0f} MB, {self.requests:,.0f} requests a run, "
            f"data files {self.ratio:.2f} x ideal, upkeep {self.share:.1%}, {self.run_ms:,.1f} ms a run"
        )


def _timed(work: Any) -> tuple[float, Any]:
    found = list[tuple[float, Any]]()
    for _ in range(3):
        began = time.perf_counter()
        result = work()
        found.append((time.perf_counter() - began, result))
    return min(found, key=lambda each: each[0])


def _resident() -> int:
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096


def simulated(clock: Clock, folder: Path) -> None:
    """Let quire see this clock, and a store in memory that lists quickly and counts its requests."""
    from quire.commit import protocol, retire
    from quire.coverage import checkpoint
    from quire.engine import outages
    from quire.ledger import maintaining
    from quire.planning import plan
    from quire.storage import memory

    memory._objects = Objects(folder)  # type: ignore[assignment]
    memory._ticks = (int(clock.now * 1e9) + n for n in itertools.count())  # type: ignore[assignment]  # also an iterator of numbers

    def below(self: Any, folder: str) -> dict[str, tuple[Content, int]]:
        with memory._lock:
            return {path[len(self.url) + 1 :]: value for path, value in memory._objects.below(self._path(folder) + "/")}  # type: ignore[attr-defined]

    def is_folder(self: Any, name: str = "") -> bool:
        with memory._lock:
            return memory._objects.holds(self._path(name) + "/")  # type: ignore[attr-defined]

    scan = memory.MemoryStore.scan

    def flat(self: Any, folder: str = "", *, after: str = "", until: str = "", follow: bool = False) -> Iterator[Any]:
        if not folder.startswith("_quire/") or not (after or until):
            return scan(self, folder, after=after, until=until)
        found = memory._objects.below(self._path(folder) + "/", after, until or "\U0010ffff")  # type: ignore[attr-defined]
        return (self._entry(path[len(self.url) + 1 :], value) for path, value in found)  # some at a time, as pages come

    content = memory.MemoryStore._content
    memory.MemoryStore._content = lambda self, name: bytes(content(self, name))  # type: ignore[method-assign]
    memory.MemoryStore._below, memory.MemoryStore.is_folder = below, is_folder  # type: ignore[method-assign]
    memory.MemoryStore.scan = flat  # type: ignore[method-assign]  # a service begins where it is asked to
    for name in ("stat", "is_folder", "scan", "peek", "walk", "get", "get_range", "put", "put_if_absent", "create", "rename", "remove"):
        memory.MemoryStore.__dict__[name]  # it is there
        setattr(memory.MemoryStore, name, _counted(getattr(memory.MemoryStore, name), name, clock))
    outages.clock = clock.time
    protocol.now = clock.iso
    retire._limit = lambda seconds: datetime.fromtimestamp(clock.now - seconds, UTC)
    checkpoint.time = SimpleNamespace(time=clock.time)  # type: ignore[assignment]
    make = plan.make

    def planned(*args: Any) -> Any:
        began = time.process_time()  # which is the same beside others
        try:
            return make(*args)
        finally:
            clock.plans = [*clock.plans[-LAST:], time.process_time() - began]

    plan.make = planned
    tried = maintaining.Beside._tried

    def timed(self: Any) -> Any:
        began = time.monotonic()
        try:
            return tried(self)
        finally:
            clock.upkeep += time.monotonic() - began

    maintaining.Beside._tried = timed  # type: ignore[method-assign]


def scaled(scale: int) -> None:
    """Let be due after a part of the entries what is due after all of them."""
    from quire.commit import archive
    from quire.coverage import checkpoint
    from quire.ledger import maintaining

    part = min(scale, FIFTIETH)
    archive.BLOCK //= part
    archive.GROUP = min(archive.GROUP, archive.BLOCK)
    checkpoint.ENTRIES, checkpoint.SEGMENTS, maintaining.VERSIONS = (1_000 // part,) * 3


def _counted(real: Any, name: str, clock: Clock) -> Any:
    def call(self: Any, *args: Any, **options: Any) -> Any:
        if self.url == DEST:
            clock.requests[name] += 1
        return real(self, *args, **options)

    return call


def main() -> int:
    """Run it, and look at what has grown."""
    args = arguments(
        __doc__ or "",
        runs={"type": int, "default": 0},
        every={"type": int, "default": EVERY},
        days={"type": int, "default": DAYS},
        files={"type": int, "default": MOST},
        bare={"type": int, "default": 0},
    )
    print(f"{machine()}; load {load()}", flush=True)
    import quire
    from quire.commit import archive
    from quire.ledger import maintaining

    clock, verdict = Clock(args.runs, args.every, args.days, args.files, args.bare), Verdict()
    with TemporaryDirectory(dir="/dev/shm") as folder:
        simulated(clock, Path(folder))
        scaled(clock.scale)
        clock.arrive()
        quire.consolidate(
            SOURCE, DEST, every=args.every, stop=clock, target_size=f"{clock.target} B", spark=quire.LocalRunner(), progress=False
        )
    # Of few runs or days, those before the first checkpoints are others, and those in which the source grows.
    early = 0 if clock.month * clock.jump >= 5 * KEPT and clock.month >= LAST else min(2 if args.days == DAYS else 5, len(clock.rows) - 1)
    first, last = clock.rows[early], clock.rows[-1]
    rows = [
        (m.number, f"{m.runs:,}", f"{m.objects:,}", f"{m.kinds['_quire/log']:,}", f"{m.kinds['data']:,}", f"{m.ratio:.2f}", f"{m.open:.3f}",
         f"{m.plan:.3f}", f"{m.held:,.0f}", f"{m.requests:,.0f}", f"{m.run_ms:,.0f}", f"{m.share:.1%}")
        for m in clock.rows
    ]  # fmt: skip
    head = "month, runs, objects, of the log, data files, by ideal, open s, plan s, driver MB, requests, ms a run, upkeep"
    print(table(head.split(", "), rows))
    verdict.check("open", f"< {OPEN:g} s", f"{last.open:.3f} s", last.open < OPEN)
    for name, before, now in (
        ("requests of a run", first.requests, last.requests), ("driver's memory", first.held, last.held),
        ("planning", first.plan, last.plan),
    ):  # fmt: skip
        verdict.check(
            f"{name}, last month by month {first.number}", f"{1 - FLAT:g} to {1 + FLAT:g}", f"{now / before:.2f}", now / before < 1 + FLAT
        )
    kept = int(PER_COMMIT * HOUR / clock.jump)  # entries of the hour whose versions stay readable, which stay out of the archive
    logs, most = max(m.kinds["_quire/log"] for m in clock.rows), archive.BLOCK + 2 * maintaining.VERSIONS + kept
    verdict.check("objects of the log, at the end of any month", f"<= {most:,}", f"{logs:,}", logs <= most)
    others = [m.objects - m.kinds["data"] - m.kinds["_quire/log"] for m in clock.rows]
    half = len(others) // 2
    before, now = max(others[:half]), max(others[half:])
    verdict.check("objects beside the log and data, second half by first", f"<= {MORE:g}", f"{now:,} by {before:,}", now <= MORE * before)
    small = 0.0 if args.days == DAYS else UNMERGED * (1 + args.bare) / (last.runs * SIZE / clock.target)  # a short time has few others
    verdict.check("data files", f"<= {IDEAL + small:.2f} x ideal", f"{last.ratio:.2f}", last.ratio <= IDEAL + small)
    share = clock.upkeep / (last.runs * clock.every + time.monotonic() - clock.began)
    verdict.check("upkeep, of the loop's time", f"< {SHARE:.0%}", f"{share:.2%}", share < SHARE)
    verdict.check("upkeep, of the time that the loop works", "told", f"{last.share:.1%}", True)
    return verdict.end()


if __name__ == "__main__":
    sys.exit(main())
