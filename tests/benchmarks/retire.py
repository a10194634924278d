"""Superseded files leave the directory: what 1,000 of them cost, and for how long a reader of the directory sees rows twice.

    python tests/benchmarks/retire.py [--files 1000]

A compaction supersedes that many data files, on a disk and in a bucket of SeaweedFS, with and without kept versions. Counted are the
requests between `published` and `retired`; a reader beside it lists the directory, again and again, and counts the rows that it would read.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from common import Result, Verdict, arguments, load, machine, table, workplace

sys.path.insert(0, str(Path(__file__).parents[1]))

COUNTED = ("get", "put", "put_if_absent", "remove", "remove_all", "remove_tree", "rename", "copy", "stat", "scan", "walk", "sync_folder")


@contextmanager
def counting(kind: type, asked: Counter[str]) -> Iterator[None]:
    """Count what is asked of a kind of store."""
    real = {name: getattr(kind, name) for name in COUNTED if hasattr(kind, name)}

    def counted(name: str) -> Any:
        def call(*args: Any, **more: Any) -> Any:
            if not isinstance(threading.current_thread(), Reader):
                asked[name] += 1
            return real[name](*args, **more)

        return call

    for name in real:
        setattr(kind, name, counted(name))
    try:
        yield
    finally:
        for name, function in real.items():
            setattr(kind, name, function)


class Reader(threading.Thread):
    """Lists the directory until it is told to end; the moments at which it has seen rows twice."""

    def __init__(self, store: Any, files: int) -> None:
        super().__init__(daemon=True)
        self.store, self.files, self.ended = store, files, threading.Event()
        self.looks, self.twice, self.never = 0, list[float](), 0
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            self._look()
        except Exception as e:  # told at the end: a reader that has died sees nothing twice
            self.failure = e

    def _look(self) -> None:
        while not self.ended.is_set():
            began = time.monotonic()
            names = [e.name for e in self.store.scan() if getattr(e, "size", 0)]
            new = any(name.startswith("part-") and not name.startswith("part-0-") for name in names)
            old = sum(name.startswith("part-0-") for name in names)
            self.looks += 1
            if new and old:
                self.twice += [began, time.monotonic()]
            self.never += not new and old < self.files

    def end(self) -> float:
        """Seconds between the first and the last look that saw rows twice."""
        self.ended.set()
        self.join()
        if self.failure is not None:
            raise self.failure
        return self.twice[-1] - self.twice[0] if self.twice else 0.0


def measure(place: Path, url: str, options: dict[str, object], files: int, keep: str | int) -> Result:
    """One destination: gathered, compacted, and what its retirement took."""
    import quire
    from quire.commit import retire
    from quire.storage import bare

    source = place / "in"
    if not source.exists():
        source.mkdir()
        for i in range(files):
            (source / f"{i:06}").write_bytes(b"line %06d\n" % i * 100)
    here: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False}
    quire.consolidate(source, url, transform="lines", target_size="1500 B", keep_versions=keep, dest_options=options, **here)
    store, asked, took, real = bare(url, options), Counter[str](), [0.0], retire.carry_out
    there = sum(e.name.startswith("part-") for e in store.scan())
    assert there == files, there

    def timed(*args: Any) -> None:
        with counting(type(store), asked):
            began = time.monotonic()
            real(*args)
            took[0] += time.monotonic() - began

    retire.carry_out = timed
    reader = Reader(bare(url, options), files)
    reader.start()
    try:
        done = quire.Ledger(url, storage_options=options).compact(target_size="256 MiB", **here)
    finally:
        retire.carry_out = real
    window = reader.end()
    assert done.superseded == files, done
    assert not reader.never, "a reader has seen neither the old rows nor the new ones"
    assert sum(1 for e in store.scan() if e.name.startswith("part-")) == 1
    return {"s": took[0], "window": window, "looks": reader.looks, "asked": asked}


def main() -> int:
    """Both stores, with and without kept versions."""
    from services import s3

    args = arguments(__doc__, files={"type": int, "default": 1_000})
    print(f"{machine()}; load {load()}", flush=True)
    verdict, rows = Verdict(), list[list[str]]()
    with workplace(args.at) as place, s3.seaweedfs() as endpoint:
        for store, url, options in (("disk", f"file://{place}/out", {}), ("SeaweedFS", f"s3://{s3.BUCKET}/out", s3.options(endpoint))):
            for keep in ("1 hour", 0):
                found = measure(place, f"{url}-{'kept' if keep else 'none'}", options, args.files, keep)
                asked = found["asked"]
                total = sum(n for name, n in asked.items() if name not in ("get", "put_if_absent"))
                what = f"{store}, {'kept for an hour' if keep else 'nothing is kept'}"
                told = ", ".join(f"{n:,} {name}" for name, n in asked.most_common())
                rows.append([what, f"{found['s']:.2f}", f"{found['window']:.2f}", f"{found['looks']:,}", told])
                per = total / args.files
                # A store that copies needs a look and a copy for what it keeps; one that deletes many at once needs a request a thousand.
                most = 1.02 if store == "disk" else 2.02 if keep else 0.02
                verdict.check(f"{what}: requests a file", f"≤ {most}", f"{per:.3f}", per <= most)
    print("\n" + table(["where", "retiring, s", "rows twice for, s", "looks", "requests"], rows))
    return verdict.end()


if __name__ == "__main__":
    sys.exit(main())
