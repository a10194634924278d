"""The ledger at ten million entries, and a log of a million: what an entry takes, opening, looking up, planning, committing.

    python tests/benchmarks/ledger.py --entries 10000000 --log 1000000

Segments are written by the ledger's own writer, a hundred thousand rows in each, and committed by the log's own append; then they are
merged into a checkpoint on Spark. Paths have 130 characters, versions are a time in nanoseconds and a size. The entries of the long log
are put into their places straight, without a sync for each. Every figure of quire's is of a process of its own, where it says so; the
anti-join and Spark's plain one alternate in one session, over the same listing, half of which is in the ledger.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from common import Verdict, arguments, fresh, listed, load, machine, median, session, table, workplace

EACH = 100_000  # rows in a segment
LISTED = 100_000  # rows in a chunk of a listing, as planning has them
SMALL = 10_000


def paths(first: int, n: int) -> list[str]:
    """Of 130 characters, sorted, as devices write them: by day, hour and gateway, with a random part."""
    found = []
    for i in range(first, first + n):
        d, noise = i // 2000, i * 2654435761 & 0xFFFFFFFF
        folder = f"region=eu-west/dt=2026-{1 + d // 672:04d}-{1 + d // 24 % 28:02d}/hour={d % 24:02d}/gateway-{d:07d}"
        found.append(f"abfs://landing@telemetry.dfs.core.windows.net/devices/{folder}/device-{i % 2000:06d}-{noise:08x}.json")
    return found


def rows(first: int, n: int, *, places: bool) -> pa.Table:
    """Rows of the ledger; `places`: with data file, offset, length and checksum, as a consolidation has them."""
    from quire.coverage.segments import SCHEMA

    random = np.random.default_rng(first)
    length = np.clip(random.lognormal(8.3, 0.8, n), 100, 1_000_000).astype(np.int64)
    times = 1_763_700_000_000_000_000 + first * 10_000_000 + np.cumsum(random.integers(1_000_000, 20_000_000, n))
    columns: dict[str, Any] = {
        "path": paths(first, n), "version": [f"{t}-{s}" for t, s in zip(times.tolist(), length.tolist(), strict=True)],
        "start": np.zeros(n, np.int64), "length": length, "state": ["done"] * n, "carried": np.zeros(n, bool),
    }  # fmt: skip
    if places:
        columns |= {
            "data_file": [f"part-0-{0:016x}-0-{first:012x}-0.txt"] * n, "offset": np.concatenate(([0], np.cumsum(length)[:-1])),
            "skip": np.zeros(n, np.int64), "written": length, "records": np.ones(n, np.int64),
            "checksum": random.integers(0, 1 << 63, n).astype(np.uint64),
        }  # fmt: skip
    return pa.table([pa.array(columns[f.name], f.type) if f.name in columns else pa.nulls(n, f.type) for f in SCHEMA], schema=SCHEMA)


def _segment(dest: str, job: str, first: int, n: int) -> tuple[str, str, str, int]:
    from quire.commit import names
    from quire.coverage.segments import SegmentWriter
    from quire.storage import connect

    writer, attempt = SegmentWriter(), f"{first:012x}"
    writer.add(rows(first, n, places=True))
    data = writer.finish()
    assert data is not None
    connect(dest).put(names.segment(job, 0, attempt), data)
    return attempt, writer.first, writer.last, len(data)


def make(dest: str, entries: int) -> float:
    """A ledger of so many entries; the bytes of an entry in its segments."""
    from quire.commit import names
    from quire.commit.entries import Commit, Coverage, DataFile, Published, Spec, Stats, Task
    from quire.commit.log import Log
    from quire.storage import connect, normalise

    url, each = normalise(dest), min(EACH, entries)
    log, size = Log(connect(url)).refresh(), 0
    spec = Spec(transform="lines", format="lines", compression="none", layout="flat")
    jobs = [(f"{2 * i}-{i:016x}", i * each) for i in range(entries // each)]
    with ProcessPoolExecutor(2) as pool:
        made = [pool.submit(_segment, url, job, first, each) for job, first in jobs]
        for (job, first), waiting in zip(jobs, made, strict=True):
            attempt, low, high, n = waiting.result()
            name = names.data_file("", job, 0, attempt, 0, "txt")
            task = Task(
                task=0,
                attempt=attempt,
                data_files=(DataFile(name, first, each, "x"),),
                coverage=Coverage(segment=names.segment(job, 0, attempt), first=low, last=high),
                stats=Stats(assigned=each, gathered=each, files_in=each, bytes_in=each),
            )
            entry = Commit(
                job=job,
                base=log.tip,
                committer="rename",
                spec=spec,
                time="2026-11-22",
                tasks=(task,),
                dropped=(),
                left=(),
                parts=None,
                closer="",
                target=256 << 20,
            )
            log.append(lambda log, entry=entry: None if log.outcome(entry.job) else entry)  # type: ignore[misc]
            log.append(lambda log, job=job: None if log.published(job) else Published(job=job, time="2026-11-22", lost=()))  # type: ignore[misc]
            size += n
    return size / entries


def merge(dest: str) -> dict[str, Any]:
    """Write a checkpoint on Spark."""
    import quire

    spark = session()
    spark.range(1).count()
    started = time.monotonic()
    found = quire.Ledger(dest).checkpoint(spark=spark)
    return {"seconds": time.monotonic() - started, "rows": found.ledger_rows, "bytes": found.bytes, "driver": peak()}


def peak() -> int:
    """The most memory that this Python process had, in bytes: since it was started, not what its parent had (as `getrusage` tells)."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def timed(work: Callable[[], object]) -> float:
    """Seconds."""
    started = time.monotonic()
    work()
    return time.monotonic() - started


def look(dest: str, at: int) -> dict[str, Any]:
    """Open, sum up, tell the history, locate one path."""
    import quire

    path, found = paths(at, 1)[0], {}
    quire.Ledger  # noqa: B018  the modules are loaded
    ledgers: list[Any] = []
    found["open"] = timed(lambda: ledgers.append(quire.Ledger(dest)))
    found["summary"] = timed(ledgers[0].summary)
    found["history"] = timed(ledgers[0].inspect.history)
    found["locate"] = timed(lambda: ledgers[0].locate(path)) if at >= 0 else 0.0
    return found | {"peak": peak(), "version": ledgers[0].version}


def commits(dest: str, source: str, rounds: int) -> dict[str, Any]:
    """Whole runs that gather 100 new files each: plan, copy, commit, publish."""
    import quire

    seconds = []
    for i in range(rounds + 1):
        for j in range(100):
            Path(source, f"{os.getpid()}-{i}-{j}").write_bytes(b"a line\n" * 50)
        run = lambda: quire.consolidate(source, dest, transform="lines", spark=quire.LocalRunner(), progress=False)  # noqa: E731
        seconds.append(timed(run))
    return {"seconds": seconds[1:], "peak": peak()}


def listing(place: Path, entries: int, n: int) -> str:
    """A listing of `n` files in chunks, spread over the whole ledger; every second one is in it."""
    folder, step = place / "listing", max(1, 2 * entries // n)
    folder.mkdir()
    for chunk in range(-(-n // LISTED)):
        m = min(LISTED, n - chunk * LISTED)
        found = list[str]()
        versions = list[str]()
        sizes = list[int]()
        for at in range(chunk * LISTED // 2, (chunk * LISTED + m) // 2):
            mine = rows_of(at * step)
            found += [mine[0], f"{mine[0]}.new"]
            versions += [mine[1], mine[1]]
            sizes += [mine[2], mine[2]]
        pq.write_table(pa.table({"path": found, "version": versions, "size": sizes}).sort_by("path"), folder / f"{chunk:04}.parquet")
    return str(folder)


_rows: tuple[int, Any] = (-1, None)


def rows_of(i: int) -> tuple[str, str, int]:
    """Path, version and size of an entry."""
    global _rows  # noqa: PLW0603
    block = i // EACH
    if _rows[0] != block:
        made = rows(block * EACH, EACH, places=True)
        _rows = block, tuple(made.column(c).to_pylist() for c in ("path", "version", "length"))
    return tuple(column[i % EACH] for column in _rows[1])  # type: ignore[return-value]


def _ours(dest: str, folded: Any, files: list[str]) -> dict[str, Any]:
    from quire.coverage.antijoin import remaining
    from quire.storage import connect

    left = (remaining(pq.read_table(file, use_threads=False), folded, connect(dest)) for file in files)
    return {"left": sum(found.files.num_rows for found in left)}


def join(dest: str, folder: str, rounds: int) -> dict[str, Any]:
    """What of a listing is left, as planning asks it, and by Spark's anti-join of the paths; in turns."""
    import functools

    from quire.commit.log import Log
    from quire.coverage.fold import fold
    from quire.spark.runner import OnSpark
    from quire.storage import connect, normalise

    spark, url = session(), normalise(dest)
    spark.range(1).count()
    files, runner = sorted(str(f) for f in Path(folder).iterdir()), OnSpark(spark)
    found: dict[str, Any] = {"ours": [], "spark": [], "left": []}

    def ours() -> None:
        folded = fold(Log(connect(url)).refresh())
        n = 2 * runner.parallelism  # a listing task has many chunks
        outcomes = runner.run(functools.partial(_ours, url, folded), [files[i::n] for i in range(n)])
        found["left"].append(sum(o["left"] for o in outcomes))  # type: ignore[call-overload]

    def plain() -> None:
        done = spark.read.parquet(f"{url}/_quire/ledger").select("path")
        found["left"].append(spark.read.parquet(f"file://{folder}").join(done, "path", "left_anti").count())

    for _ in range(rounds):
        found["ours"].append(timed(ours))
        found["spark"].append(timed(plain))
    return found | {"peak": peak()}


def _entries(folder: str, first: int, last: int) -> None:
    """Commits and their `published`, put straight into their places."""
    from quire.commit import names
    from quire.commit.entries import Commit, Coverage, DataFile, Published, Spec, Stats, Task, encode

    spec = Spec(transform="lines", format="lines", compression="none", layout="flat")
    for number in range(first, last, 2):
        job, attempt = f"{number - 1}-{number:016x}", f"{number:012x}"
        data = (DataFile(names.data_file("", job, 0, attempt, 0, "txt"), 1000, 10, "x"),)
        stats = Stats(assigned=10, gathered=10, files_in=10, bytes_in=1000)
        task = Task(task=0, attempt=attempt, data_files=data, coverage=Coverage(), stats=stats)
        entry = Commit(
            job=job,
            base=number - 1,
            committer="rename",
            spec=spec,
            time="2026-11-22",
            tasks=(task,),
            dropped=(),
            left=(),
            parts=None,
            closer="",
        )
        Path(folder, names.entry(number)).write_bytes(encode(entry))
        Path(folder, names.entry(number + 1)).write_bytes(encode(Published(job=job, time="2026-11-22", lost=())))


def long_log(dest: str, n: int) -> None:
    """A log of so many entries."""
    from quire.commit import names

    Path(dest, names.LOG).mkdir(parents=True)
    with ProcessPoolExecutor(2) as pool:
        step = n // 10 // 2 * 2
        list(pool.map(_entries, [dest] * 10, range(1, n, step), range(step + 1, n + step, step)))


WAYS = {"merge": merge, "look": look, "commits": commits, "join": join}


def main() -> int:
    """Make the ledgers, then measure."""
    args = arguments(
        __doc__, entries={"type": int, "default": 10_000_000}, log={"type": int, "default": 1_000_000},
        listed={"type": int, "default": 1_000_000}, rounds={"type": int, "default": 3},
    )  # fmt: skip
    if args.way:
        print(json.dumps(WAYS[args.way](**json.loads(args.job))))
        return 0
    print(f"{machine()}\nload {load()}; {args.entries:,} entries, a log of {args.log:,}, a listing of {args.listed:,}", flush=True)
    verdict, found = Verdict(), list[tuple[object, ...]]()
    from quire.coverage.segments import SegmentWriter

    writer = SegmentWriter()
    writer.add(rows(0, EACH, places=False))
    splits = len(writer.finish() or b"") / EACH
    verdict.check("bytes an entry, splits", "≤ 20", f"{splits:.1f}", splits <= 20)
    with workplace(args.at) as place:
        sizes, runs = [args.entries // 10, args.entries], dict[int, Any]()
        for n in (SMALL, *sizes):
            dest = str(place / f"of-{n}")
            each = make(dest, n)
            merged = fresh(__file__, "merge", dest=dest)
            seen = [fresh(__file__, "look", dest=dest, at=n // 3) for _ in range(args.rounds)]
            source = place / f"new-{n}"
            source.mkdir()
            cost = fresh(__file__, "commits", dest=dest, source=str(source), rounds=40)
            runs[n] = {"merged": merged, "cost": median(cost["seconds"]), **{k: median([s[k] for s in seen]) for k in seen[0]}}
            found.append(
                (f"{n:,}", f"{each:.1f}", f"{merged['bytes'] / n:.1f}", f"{merged['seconds']:.1f}", f"{merged['driver'] >> 20}",
                 f"{runs[n]['open']:.2f}", f"{runs[n]['summary']:.2f}", f"{runs[n]['history']:.2f}", f"{runs[n]['locate']:.2f}",
                 f"{runs[n]['cost']:.3f}", f"{int(runs[n]['peak']) >> 20}")
            )  # fmt: skip
            print(f"  {found[-1]}  load {load()}", flush=True)
        last = runs[args.entries]
        joined = fresh(__file__, "join", dest=dest, folder=listing(place, args.entries, args.listed), rounds=args.rounds)
        assert len(set(joined["left"])) == 1, joined["left"]
        straight = str(place / "long")
        long_log(straight, args.log)
        first = timed(lambda: merge_here(straight))
        tip = [fresh(__file__, "look", dest=straight, at=-1) for _ in range(args.rounds)]
        assert tip[0]["version"] == args.log, tip
    head = ["entries", "B each", "B merged", "merge s", "driver MiB", "open s", "summary s", "history s", "locate s", "run s", "peak MiB"]
    print("\n" + table(head, found))
    ratio = median(joined["spark"]) / median(joined["ours"])
    print(
        f"\nanti-join: quire {listed(joined['ours'], '{:.1f}')} s, Spark {listed(joined['spark'], '{:.1f}')} s; {joined['left'][0]:,} left"
    )
    print(f"a log of {args.log:,}: first read and merged in {first:.0f} s; {tip}\nload {load()}")
    slope = (last["merged"]["seconds"] - runs[sizes[0]]["merged"]["seconds"]) / (sizes[1] - sizes[0])
    print(f"projected to 100,000,000: merged in {slope * 1e8 / 60:.0f} min, {last['merged']['bytes'] / args.entries * 1e8 / 1e9:.1f} GB")
    verdict.check("bytes an entry, consolidation", "≤ 30", str(found[-1][1]), float(str(found[-1][1])) <= 30)
    verdict.check(f"opens at {args.entries:,}", "< 2 s", f"{last['open']:.2f} s", last["open"] < 2)
    verdict.check("locates a path", "< 1 s", f"{last['locate']:.2f} s", last["locate"] < 1)
    change = last["cost"] / runs[SMALL]["cost"]
    verdict.check(f"a run's cost, to that at {SMALL:,}", "± 20 %", f"{change - 1:+.0%}", change <= 1.2)
    verdict.check("anti-join, to Spark's", "≥ 5 ×", f"{ratio:.1f} ×", ratio >= 5)
    grown = last["merged"]["driver"] / runs[sizes[0]]["merged"]["driver"]
    verdict.check("driver's memory at ten times the entries", "≤ 1.2 ×", f"{grown:.2f} ×", grown <= 1.2)
    opened = median([t["open"] for t in tip])
    verdict.check(f"a log of {args.log:,} to its tip", "< 2 s", f"{opened:.2f} s", opened < 2)
    return verdict.end()


def merge_here(dest: str) -> None:
    """A checkpoint of a log without segments needs no Spark."""
    import quire

    quire.Ledger(dest).checkpoint(spark=quire.LocalRunner())


if __name__ == "__main__":
    sys.exit(main())
