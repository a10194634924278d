"""Publishing 1,000 data files at 50 ms a request: quire's uploads, and renames by copying, as Hadoop's committers do on object stores.

    python tests/benchmarks/publish.py                       (5 minutes)
    python tests/benchmarks/publish.py --files 100 --rounds 1

The files are written before, outside of the time. Ways:

upload       the commit entry, one completion a file (8 at once, as in `protocol.publish`), the entry that says so: all that quire does
rename v1    FileOutputCommitter's commitJob: a copy and a delete a file, one file after the other, by the driver; then `_SUCCESS`
rename v1, 8 at once    the same by as many threads as quire has

The peers send two requests a file and no more (Hadoop's also looks up each name before), and a copy takes no longer than any request:
in a real store the bytes are copied. They go by the same connections, signature and client. Azure has no rename that quire would use.
Then each write of a publication is followed by a look at what readers of the log see.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

from accounts import account
from common import Result, Verdict, alternate, arguments, cpu_seconds, listed, machine, median, table, workplace

DELAY = 0.05
UPLOAD, RENAME, PARALLEL = "upload", "rename v1", "rename v1, 8 at once"
LOOK = "look"
JOB, ATTEMPT = "0-0123456789abcdef", "0123456789ab"
THREADS = 8
CONTENT = b"x" * 1000


def measure(way: str, string: str, files: int) -> Result:
    """One way, once."""
    from quire.storage import connect

    options = {"connection_string": string}
    url = f"abfs://out/{time.time_ns()}"
    store = connect(url, options)
    if way == LOOK:
        return seen(url, options, files)
    run = uploads(store, files) if way == UPLOAD else renames(store, string, files, 1 if way == RENAME else THREADS)
    cpu, started = cpu_seconds(), time.monotonic()
    run()
    took = time.monotonic() - started
    assert sum(not e.name.startswith("_") for e in store.walk()) == files
    return {"seconds": round(took, 2), "cpu_us": round((cpu_seconds() - cpu) / files * 1e6)}


def name(task: int) -> str:
    """Of a data file."""
    from quire.commit import names

    return names.data_file("", JOB, task, ATTEMPT, 0, "txt")


def uploads(store: Any, files: int) -> Callable[[], None]:
    """Write the files as tasks do; what is returned commits and publishes them."""
    from quire.commit import protocol
    from quire.commit.entries import Commit, Coverage, DataFile, Spec, Stats, Task
    from quire.commit.log import Log

    def write(task: int) -> Task:
        sink = store.upload(name(task))
        sink.write(CONTENT)
        sink.close()
        file = DataFile(name(task), len(CONTENT), 1, sink.handle)
        stats = Stats(assigned=1, gathered=1, files_in=1, bytes_in=len(CONTENT))
        return Task(task=task, attempt=ATTEMPT, data_files=(file,), coverage=Coverage(), stats=stats)

    with ThreadPoolExecutor(32) as pool:
        tasks = tuple(pool.map(write, range(files)))
    spec = Spec(transform="raw", format="raw", compression="none", layout="flat")
    entry = Commit(
        job=JOB,
        base=0,
        committer="upload",
        spec=spec,
        time=protocol.now(),
        planner="balanced",
        hash_parts=1,
        target=1,
        tasks=tasks,
        dropped=(),
        left=(),
        parts=None,
        closer="",
    )

    def publish() -> None:
        log = Log(store).refresh()
        log.append(lambda log: None if log.outcome(JOB) else entry)
        protocol.publish(log, entry)

    return publish


def renames(store: Any, string: str, files: int, threads: int) -> Callable[[], None]:
    """Write the files where rename v1 has them; what is returned puts them in their places by copies."""
    inner = store.inner
    folder = "_temporary/0"
    endpoint = string.partition("BlobEndpoint=")[2].rstrip(";")
    with ThreadPoolExecutor(32) as pool:
        list(pool.map(lambda task: store.put(f"{folder}/{name(task)}", CONTENT), range(files)))

    def move(task: int) -> None:
        old, new = f"{folder}/{name(task)}", name(task)
        headers = {"x-ms-copy-source": f"{endpoint}/out/{inner.root}{old}"}
        inner.rest.send("PUT", "cannot copy", inner.root + new, headers=headers)
        store.remove(old)

    def publish() -> None:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(move, range(files)))
        store.put("_SUCCESS", b"")

    return publish


class Watched:
    """A store after each of whose writes somebody looks."""

    def __init__(self, inner: Any, look: Callable[[str], None]) -> None:
        self.inner, self.look, self.lock = inner, look, threading.Lock()

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(self.inner, attribute)
        if attribute not in ("put", "put_if_absent", "complete", "rename", "remove"):
            return found

        def done(*args: Any) -> Any:
            with self.lock:
                answer = found(*args)
                self.look(attribute)
            return answer

        return done


def seen(url: str, options: dict[str, str], files: int) -> Result:
    """What readers of the log, and of the directory, see after each write of a publication."""
    from quire.read import live
    from quire.storage import connect

    other = connect(url, options)
    readers, directory = [0], [0]

    def look(_: str) -> None:
        readers.append(len(live(other)[1]))
        directory.append(sum(not e.name.startswith("_") for e in other.walk()))

    store = Watched(connect(url, options), look)
    uploads(store, files)()
    steps = [(a, b) for a, b in pairwise(readers) if a != b]
    assert readers[-1] == directory[-1] == files, (readers[-1], directory[-1])
    return {"writes": len(readers) - 1, "steps": steps, "directory": len(set(directory)) - 1}


def main() -> int:
    """Run the ways alternately, and print the ratios."""
    args = arguments(__doc__, files={"type": int, "default": 1000}, rounds={"type": int, "default": 3})
    if args.way:
        job = json.loads(args.job)
        print(json.dumps(measure(args.way, job["string"], job["files"])), flush=True)
        return 0
    print(f"{machine()}; {DELAY * 1000:.0f} ms a request, {args.files:,} data files, {args.rounds} rounds", flush=True)
    with workplace(args.at) as place:
        with account(0, azurite=False, delay=DELAY) as (string, _):
            found = alternate(__file__, (UPLOAD, PARALLEL, RENAME), args.rounds, place, string=string, files=args.files)
        with account(0, azurite=False, delay=0) as (string, _):
            looked = alternate(__file__, (LOOK,), 1, place, string=string, files=min(args.files, 200))[LOOK][0]
    middle = {way: {key: median([r[key] for r in results]) for key in results[0]} for way, results in found.items()}
    rows = [
        [way, f"{m['seconds']:.2f}", listed([r["seconds"] for r in found[way]], "{:.2f}"),
         f"{m['seconds'] / middle[UPLOAD]['seconds']:.1f} ×", f"{m['cpu_us']:,.0f}"]
        for way, m in middle.items()
    ]  # fmt: skip
    print("\n" + table(["way", "seconds (median)", "rounds", "quire is", "CPU µs a file"], rows))
    verdict, ratio = Verdict(), middle[RENAME]["seconds"] / middle[UPLOAD]["seconds"]
    verdict.check(f"publishing {args.files:,} files, to rename v1 with copies", "≥ 10 ×", f"{ratio:.1f} ×", ratio >= 10)
    total = looked["steps"][-1][1]
    verdict.check(
        f"puts after which readers of the log see other files, of {looked['writes']}",
        "1",
        f"{len(looked['steps'])}",
        looked["steps"] == [[0, total]],
    )
    print(f"\nReaders of the log saw {looked['steps']} (before, after); readers of the directory {looked['directory']} different states.")
    return verdict.end()


if __name__ == "__main__":
    sys.exit(main())
