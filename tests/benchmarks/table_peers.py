"""A table against its peers: JVM Hudi 1.2.0 and Delta 4.4.0, each on the newest Spark that it fits, with as much of everything.

    python tests/benchmarks/table_peers.py                                 (5,000,000 rows, three rounds: two hours or more)
    python tests/benchmarks/table_peers.py --rows 500000 --rounds 1        (a look)
    python tests/benchmarks/table_peers.py --ways "quire logs" "hudi logs" "delta vectors"
                                                                           (updates beside the files, which readers merge)
    python tests/benchmarks/table_peers.py --ways "quire sorted" "hudi sorted"
                                                                           (rows laid out anew, sorted by two columns)
    python tests/benchmarks/table_peers.py --ways "quire z-order" "hudi z-order" "delta z-order"

Ten columns of some 130 B a row, random keys of 20 characters, eight partitions, the largest with 36 % of the rows; `local[2]`, 4 GiB heap,
zstd. Each way runs all works in a process of its own, in the same order; the order of the ways turns round. Batches are 80 % updates of
uniformly drawn rows and 20 % inserts. A read is asked once, told as "first", and five times more, whose median counts: the first
time a JVM compiles the code that reads, and it has compiled more or less of that before, as the way's writes use it. After each round
all ways must have the same rows: counted, and each column summed. Ways:

quire            as one calls it; it keeps change files
hudi             JVM Hudi 1.2.0 at its fastest: row writer, SIMPLE index, no metadata table
hudi defaults    the same, told nothing but key, partition, ordering and codec
delta            Delta 4.4.0 without deletion vectors, with its change feed
delta, no feed   the same without the feed, so it writes no changes, and none can be asked for
quire logs       a merge-on-read table; it is compacted, and a last batch updates 10 % of the rows, so that logs hold these and no
                 others: they are read, then compacted
hudi logs        the same of JVM Hudi at its fastest
delta vectors    Delta with deletion vectors, without its feed
quire sorted     rows of the bulk insert laid out anew, sorted by two columns
hudi sorted      the same of JVM Hudi at its fastest, by its procedure `run_clustering`
quire z-order    along a Z-order through the same columns; `hudi z-order` and `delta z-order`, by OPTIMIZE, likewise

The peers' environments: `make test-services` and `make bench` make them in .venv/spark35 and .venv/delta; QUIRE_SPARK35 and QUIRE_DELTA
name others.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.append(str(Path(__file__).with_name("table")))

from common import HEAP, Result, Verdict, arguments, listed, load, machine, median, table, workplace
from peer import BEGIN, LAST, WAYS, WRITES

HERE = Path(__file__).parent
SPARK35 = Path(os.environ.get("QUIRE_SPARK35", Path(sys.prefix, "spark35")))
DELTA = Path(os.environ.get("QUIRE_DELTA", Path(sys.prefix, "delta")))
HUDI = "hudi-spark3.5-bundle_2.12-1.2.0.jar"
# × JVM Hudi at its fastest, × Delta with what each does.
TARGETS: dict[str, tuple[float, float]] = {
    "bulk insert": (1.2, 0.7), "upsert 10 %": (2, 1), "upsert 1 %": (2, 1), "delete 1 %": (2, 1), "snapshot": (1, 0.9),
    "changes of 1 %": (1.5, 1), "changes of 1 % and deletes of 1 %": (1.5, 1),
}  # fmt: skip
LOGS = ("quire logs", "hudi logs", "delta vectors")
TARGETS_OF_LOGS: dict[str, tuple[float | None, float | None]] = {
    "bulk insert": (None, None), "upsert 10 %": (None, None), "upsert 1 %": (2, 1), "delete 1 %": (None, None),
    "compaction of what came before": (None, None), "upsert 10 %, no inserts": (None, None), "snapshot with logs": (1.2, None),
    "compaction": (1.5, None), "snapshot after it": (None, None),
}  # fmt: skip
SORTED, CURVE = ("quire sorted", "hudi sorted"), ("quire z-order", "hudi z-order", "delta z-order")
TARGETS_OF_SORTED: dict[str, tuple[float | None, float | None]] = {
    "bulk insert": (None, None), "clustering": (1.2, None), "snapshot of sorted rows": (None, None),
}  # fmt: skip
# Ways that do the same works: ours first.
FAMILIES: dict[tuple[str, ...], Any] = {
    ("quire", "hudi", "delta"): TARGETS,
    LOGS: TARGETS_OF_LOGS,
    SORTED: TARGETS_OF_SORTED,
    CURVE: TARGETS_OF_SORTED,
}
CITIES = ("lima", "oslo", "rome", "cairo", "delhi", "quito", "tokyo", "bergen")
SHARES = np.array([0.36, 0.22, 0.14, 0.1, 0.08, 0.05, 0.03, 0.02])
LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", np.uint8)
SPAN = 500_000  # rows of a file that the bulk insert reads

Places = npt.NDArray[np.int64]


# ---------------------------------------------------------------------------------------------------------------------- the rows
class Rows:
    """All rows that there will be, and what they are now, so that the right sums are known without any of the ways."""

    def __init__(self, rows: int) -> None:
        self.random = np.random.default_rng(7)
        most = rows + rows * 3 // 100  # with the inserts of both batches
        self.keys, self.city = self._text(most, 20), self.random.choice(len(CITIES), most, p=SHARES)
        self.numbers = {name: np.zeros(most, np.int64) for name in ("ts", "lat", "lon", "fare", "at")}
        self.there, self.count = np.zeros(most, bool), 0

    def _text(self, rows: int, length: int) -> pa.Array:
        offsets = np.arange(rows + 1, dtype=np.int32) * length
        letters = LETTERS[self.random.integers(0, len(LETTERS), rows * length, dtype=np.uint8)]
        return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(letters))

    def new(self, rows: int) -> Places:
        """Places of rows that were not there."""
        self.count += rows
        return np.arange(self.count - rows, self.count)

    def drawn(self, rows: int, but: Places) -> Places:
        """Places of rows that are there."""
        some = self.there.copy()
        some[but] = False
        return self.random.choice(np.flatnonzero(some), rows, replace=False)

    def brought(self, places: Places, at: int) -> pa.Table:
        """New values for these rows."""
        n = len(places)
        for name, most in (("lat", 720), ("lon", 1440), ("fare", 40_000)):
            self.numbers[name][places] = self.random.integers(0, most, n)  # quarters
        self.numbers["ts"][places] = at
        self.numbers["at"][places] = self.random.integers(0, 10**12, n)  # µs: 5,000,000 of them sum to less than 2**63
        self.there[places] = True
        quarters = {name: self.numbers[name][places] / 4 for name in ("lat", "lon", "fare")}
        return pa.table(
            {
                "id": self.keys.take(pa.array(places)), "city": pa.array(CITIES).take(pa.array(self.city[places])),
                "ts": self.numbers["ts"][places], "at": pa.array(BEGIN + self.numbers["at"][places], pa.timestamp("us", "UTC")),
                "rider": self._text(n, 16), "driver": self._text(n, 12), **quarters, "note": self._text(n, 36),
            }
        )  # fmt: skip

    def sums(self, places: Places | None = None) -> list[int]:
        """Rows, and numbers summed, as `peer.py` sums them."""
        which = np.flatnonzero(self.there) if places is None else places
        n = self.numbers
        return [len(which), 4 * int(n["ts"][which].sum()), *(int(n[name][which].sum()) for name in ("lat", "lon", "fare", "at"))]


def batches(place: Path, rows: int) -> dict[str, dict[str, list[int]]]:
    """Write what the ways read; the right answers to their questions, as far as they are known before."""
    made, nothing = Rows(rows), np.zeros(0, np.int64)

    def put(name: str, found: pa.Table) -> None:
        (place / name).mkdir(parents=True)
        step = min(SPAN, max(1, -(-len(found) // 4)))
        for i, start in enumerate(range(0, len(found), step)):
            pq.write_table(found.slice(start, step), place / name / f"{i:03d}.parquet", compression="zstd")

    def batch(name: str, percent: int, at: int) -> Places:
        n = rows * percent // 100
        old, new = made.drawn(n * 8 // 10, nothing), made.new(n - n * 8 // 10)
        before = made.sums(old)
        places = np.concatenate([old, new])
        made.random.shuffle(places)
        put(name, made.brought(places, at))
        found["changes of 1 %"] = {"before": before, "after": made.sums(places)}  # of the last batch
        return places

    found = dict[str, dict[str, list[int]]]()
    put("base", made.brought(made.new(rows), 1))
    found["snapshot of sorted rows"] = {"rows": made.sums()}
    batch("upsert10", 10, 2)
    changed = batch("upsert1", 1, 3)
    gone = made.drawn(rows // 100, changed)
    before, after = found["changes of 1 %"]["before"], found["changes of 1 %"]["after"]
    both = [one + other for one, other in zip(before, made.sums(gone), strict=True)]
    found["changes of 1 % and deletes of 1 %"] = {"before": both, "after": after}
    taken = pa.array(gone)
    put(
        "delete1",
        pa.table({"id": made.keys.take(taken), "city": pa.array(CITIES).take(pa.array(made.city[gone])), "ts": np.full(len(gone), 4)}),
    )
    made.there[gone] = False
    found["snapshot"] = {"rows": made.sums()}
    put("update10", made.brought(made.drawn(rows // 10, nothing), 5))
    found["snapshot with logs"] = found["snapshot after it"] = {"rows": made.sums()}
    return found


# ---------------------------------------------------------------------------------------------------------------------- the ways
def run(way: str, place: Path, data: Path) -> Result:
    """One way, in an environment of its own."""
    from quire.spark.java import find_java

    home = {"h": SPARK35, "d": DELTA, "q": Path(sys.prefix)}[way[0]]
    jars, at = place / "jars", place / "table"
    jars.mkdir()
    for jar in (home / "jars").glob(HUDI if way[0] == "h" else "*.jar") if way[0] != "q" else ():
        (jars / jar.name).symlink_to(jar.resolve())
    if way[0] != "q" and not any(jars.iterdir()):
        raise SystemExit(
            f"{way} is not in {home}: make it with `make test-services bench`, or name another by QUIRE_SPARK35 and QUIRE_DELTA"
        )
    known = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    if way[0] != "q":
        known.pop("PYTHONPATH", None)
    known |= {"JAVA_HOME": str(find_java().home), "SPARK_LOCAL_IP": "127.0.0.1", "TMPDIR": str(place), "SPARK_LOCAL_DIRS": str(place)}
    job = json.dumps({"way": way, "at": str(at), "data": str(data), "jars": str(jars)})
    with (place / "log").open("w+") as log:
        command = [home / "bin" / "python", HERE / "table" / "peer.py", job]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, text=True, check=False, cwd=place, env=known)
        log.seek(0)
        said = log.read()
    if done.returncode:
        raise SystemExit(f"{way} failed with {done.returncode}:\n{done.stdout[-2000:]}\n{said[-6000:]}")
    result: Result = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def checked(way: str, result: Result, right: dict[str, dict[str, list[int]]], others: dict[str, Any]) -> None:
    """End where a way has other rows than there are, or text that another has not."""
    for work, sides in result["answers"].items():
        for side, sums in sides.items():
            want = right[work][side]
            if sums[: len(want)] != want:
                raise SystemExit(f"{way}: {work}, {side}: {sums[: len(want)]}, and right is {want}")
            text = others.setdefault((work, side), sums[len(want) :])
            if sums[len(want) :] != text:
                raise SystemExit(f"{way}: {work}, {side}: its text sums to {sums[len(want) :]}, and that of another way to {text}")


def main() -> int:
    """Run the ways alternately, and print the ratios."""
    args = arguments(
        __doc__,
        rows={"type": int, "default": 5_000_000},
        rounds={"type": int, "default": 3},
        ways={"nargs": "*", "choices": list(WAYS), "default": [way for way in WAYS if way not in LOGS + SORTED + CURVE]},
        keep={"help": "a file of results: those of this run are added, and all of them are told; so ways can be run apart"},
    )
    print(f"{machine()}; {args.rows:,} rows, heap {HEAP}, {args.rounds} rounds; load {load()}", flush=True)
    kept = Path(args.keep) if args.keep else None
    found: dict[str, list[Result]] = json.loads(kept.read_text()) if kept and kept.exists() else {}
    with workplace(args.at) as place:
        right, others = batches(place / "data", args.rows), dict[str, Any]()
        for way, results in found.items():
            for result in results:
                checked(way, result, right, others)
        for r in range(args.rounds):
            for way in args.ways if r % 2 == 0 else list(reversed(args.ways)):
                own = place / "run"
                own.mkdir()
                result = run(way, own, place / "data")
                checked(way, result, right, others)
                found.setdefault(way, []).append(result)
                if kept:
                    kept.write_text(json.dumps(found))
                took = "; ".join(f"{work} {each['seconds']} s, {each['cpu']} s CPU" for work, each in result["took"].items())
                print(f"  round {r + 1} {way}: {took}; load {load()}", flush=True)
                shutil.rmtree(own)
    return told({way: found[way] for way in WAYS if way in found})


def told(found: dict[str, list[Result]]) -> int:
    """Tables and promises."""
    verdict, logs = Verdict(), any(way in LOGS for way in found)
    family = next((ways for ways in FAMILIES if any(way in ways for way in found)), next(iter(FAMILIES)))
    ours, targets = family[0], FAMILIES[family]
    head = [
        "work",
        "way",
        "s (median)",
        "rounds",
        "first",
        "quire is",
        "CPU s",
        "in CPU",
        "peak MB",
        "files",
        "MB",
        *(["MB of logs there"] if logs else []),
    ]
    print("\n" + table(head, [row for work in targets for way in found if (row := line(found, work, way, ours, logs))]))
    if ours not in found:
        return 0
    for work, wanted in targets.items():
        for peer, least in zip(family[1:], wanted, strict=False):
            if peer in found and least is not None:
                ratio, cpu = (middle(found[peer], work, what) / middle(found[ours], work, what) for what in ("seconds", "cpu"))
                verdict.check(f"{work}: × {peer}", f"≥ {least:g}", f"{ratio:.2f} (CPU {cpu:.2f})", ratio >= least)
    worker = max(result["worker_mb"] for result in found[ours])
    verdict.check("a worker's peak", "≤ 1,024 MB", f"{worker:,} MB", worker <= 1024)
    for way in LOGS[:2]:
        if way in found:  # else the snapshot and the compaction would have nothing to merge
            share = middle(found[way], LAST, "mb") / middle(found[way], "bulk insert", "mb")
            verdict.check(f"logs there, of the bytes of the bulk insert: {way}", "≥ 5 %", f"{100 * share:.1f} %", share >= 0.05)
    if ours == "quire":
        told_of_files(found, verdict)
    return verdict.end()


def middle(results: list[Result], work: str, what: str) -> float:
    """The median of a way's rounds."""
    return median([result["took"][work][what] for result in results])


def line(found: dict[str, list[Result]], work: str, way: str, ours: str, logs: bool) -> list[str]:
    """A row of the table; empty where the way does not do the work."""
    results = found[way]
    if work not in results[0]["took"] or (work.startswith("changes") and way == "delta, no feed"):
        return []
    ratio = [
        f"{middle(results, work, what) / middle(found[ours], work, what):.2f} ×" if ours in found else "" for what in ("seconds", "cpu")
    ]
    each = listed([result["took"][work]["seconds"] for result in results], "{:.2f}")
    first = f"{middle(results, work, 'first'):.1f}" if "first" in results[0]["took"][work] else ""
    return [
        work, way, f"{middle(results, work, 'seconds'):.2f}", each, first, ratio[0], f"{middle(results, work, 'cpu'):.1f}", ratio[1],
        f"{middle(results, work, 'peak_mb'):,.0f}", f"{middle(results, work, 'files'):.0f}", f"{middle(results, work, 'mb'):,.1f}",
        *([f"{middle(results, work, 'logs_mb'):,.1f}"] if logs else []),
    ]  # fmt: skip


def told_of_files(found: dict[str, list[Result]], verdict: Verdict) -> None:
    """The promises of bytes, and of changes against a scan."""
    if "hudi" in found:
        own, theirs = (sum(middle(found[way], work, "mb") for work in WRITES) for way in ("quire", "hudi"))
        verdict.check("bytes written, × hudi's", "≤ 1.05", f"{own / theirs:.2f}", own <= 1.05 * theirs)
    for i, work in enumerate(("changes of 1 %", "changes of 1 % and deletes of 1 %")):
        ratio = middle(found["quire"], "snapshot", "seconds") / middle(found["quire"], work, "seconds")
        some, whole = found["quire"][0]["bytes"][i]
        verdict.check(f"{work}: × the full scan", "≥ 4", f"{ratio:.2f}", ratio >= 4)
        verdict.check(f"{work}: of the scan's bytes", "≤ 5 %", f"{100 * some / whole:.1f} %", some <= 0.05 * whole)


if __name__ == "__main__":
    sys.exit(main())
