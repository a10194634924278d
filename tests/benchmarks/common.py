"""What the benchmarks share: the machine's description, trees of files, ways that alternate in processes of their own, tables."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

CORES = 2
HEAP = "4g"  # for quire and its peers alike; wholeTextFiles and binaryFile need about 1 GB of it at 400,000 files
RAW = "org.apache.hadoop.fs.RawLocalFileSystem"

Result = dict[str, Any]


# ------------------------------------------------------------------------------------------------------------ words and tables
def machine() -> str:
    """One line about what this ran on; nothing in it names the machine."""
    cpu = next((line.partition(":")[2].strip() for line in _read("/proc/cpuinfo").splitlines() if line.startswith("model name")), "")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    return (
        f"{cpu or platform.processor() or platform.machine()}, {os.cpu_count()} cores, {memory} GiB, {platform.system()} "
        f"{platform.release().split('-')[0]}; Python {platform.python_version()}, pyspark {_version('pyspark')}, "
        f"pyarrow {_version('pyarrow')}, Java {_java()}, quire {_version('quire')}"
    )


def load() -> str:
    """How busy the machine is."""
    return " ".join(f"{x:.1f}" for x in os.getloadavg())


def _read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8", "replace")
    except OSError:
        return ""


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "?"


def _java() -> str:
    from quire.spark.java import find_java

    return str(find_java().version)


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table that is aligned, too."""
    cells = [list(head), *([str(c) for c in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in cells]
    return "\n".join([lines[0], "|" + "|".join("-" * (w + 2) for w in widths) + "|", *lines[1:]])


def median(values: Sequence[float]) -> float:
    """Of the rounds."""
    return statistics.median(values)


def listed(values: Sequence[float], form: str = "{:,.0f}") -> str:
    """The rounds in their order."""
    return " ".join(form.format(v) for v in values)


class Verdict:
    """Collects what was promised and what was measured; the exit code says whether all of it holds."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, str, str]] = []

    def check(self, promise: str, target: str, measured: str, holds: bool) -> None:
        """Note one promise."""
        self.rows.append((promise, target, measured, "yes" if holds else "NO"))

    def end(self) -> int:
        """Print them; 1 if one does not hold."""
        print("\n" + table(["promise", "target", "measured", "holds"], self.rows), flush=True)
        return int(any(row[3] == "NO" for row in self.rows))


# -------------------------------------------------------------------------------------------------------------- places and trees
def arguments(about: str, **more: Mapping[str, Any]) -> argparse.Namespace:
    """The command line: `--at` (where trees and outputs go), `--rounds`, and what the benchmark adds."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--at", default=tempfile.gettempdir(), help="a directory on local disk; all that is written there goes at the end")
    parser.add_argument("--way", help=argparse.SUPPRESS)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    for name, settings in more.items():
        parser.add_argument(f"--{name}", **settings)
    return parser.parse_args()


@contextmanager
def workplace(at: str) -> Iterator[Path]:
    """A directory of this run's own, removed at the end, be it by a signal."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    place = Path(tempfile.mkdtemp(prefix="quire-bench-", dir=at))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def tree(place: Path, files: int, size: str = "5KB", dirs: int = 20) -> Path:
    """A tree of whole (not dirty) files, made if it is not there, and read once: its pages are in memory as far as they fit."""
    import quire

    root = place / f"in-{files}-{size}"
    if not root.exists():
        quire.populate(root, files, size, dirs, dirty=0, processes=CORES, progress=False)
    warm(root)
    return root


def warm(root: Path) -> None:
    """Read all of a tree, and let everything written so far reach the disk."""
    with open(os.devnull, "wb") as sink:
        subprocess.run(["find", str(root), "-type", "f", "-exec", "cat", "{}", "+"], stdout=sink, check=True)
    os.sync()


def data_bytes(out: Path) -> int:
    """The bytes of the data files below a destination: no names that Spark's readers skip."""
    return sum(f.stat().st_size for f in out.rglob("*") if f.is_file() and not any(p[0] in "._" for p in f.relative_to(out).parts))


# ------------------------------------------------------------------------------------------------------ processes of their own
def fresh(script: str, way: str, **job: object) -> Result:
    """Run one way in a new process, so that no way finds a JVM that another has warmed; its answer is its last line, in JSON."""
    command = [sys.executable, script, "--way", way, "--job", json.dumps(job)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{way} failed with {done.returncode}:\n{done.stdout}")
    result: Result = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def alternate(script: str, ways: Sequence[str], rounds: int, place: Path, **job: object) -> dict[str, list[Result]]:
    """Each way `rounds` times, one after the other, in every second round backwards; outputs go in between, outside the time."""
    found: dict[str, list[Result]] = {way: [] for way in ways}
    for r in range(rounds):
        for way in ways if r % 2 == 0 else list(reversed(ways)):
            out = place / "out"
            os.sync()
            result = fresh(script, way, out=str(out), **job)
            found[way].append(result)
            print(f"  round {r + 1} {way}: {' '.join(f'{k}={v}' for k, v in result.items())}; load {load()}", flush=True)
            if out.is_dir():
                shutil.rmtree(out)
            else:
                out.unlink(missing_ok=True)
    return found


@contextmanager
def serving(script: str, **options: object) -> Iterator[int]:
    """A server of ours (a script beside this one), in a process of its own, which ends with us; its port."""
    given = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    command = [sys.executable, str(Path(__file__).with_name(script)), *given]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait(30)


def processes() -> dict[int, list[str]]:
    """This process and all below it, with the fields of its /proc/<pid>/stat from the state on."""
    fields = dict[int, list[str]]()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (text := _read(f"{entry}/stat")):
            fields[int(entry.name)] = text.rpartition(")")[2].split()
    found, waiting = dict[int, list[str]](), [os.getpid()]
    while waiting:
        pid = waiting.pop()
        found[pid] = fields.get(pid, [])
        waiting += [child for child, its in fields.items() if int(its[1]) == pid]
    return found


def cpu_seconds() -> float:
    """Processor time that this process and all below it have taken so far, ended ones included: it hardly depends on the load."""
    return sum(sum(map(int, its[11:15])) for its in processes().values()) / os.sysconf("SC_CLK_TCK")


class Peaks:
    """The most memory (MB, resident) that the driver's Python, its JVM and any one worker have ever held, looked at twice a second."""

    def __init__(self) -> None:
        self.held = {"driver_mb": 0, "jvm_mb": 0, "worker_mb": 0}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(0.5):
            self.look()

    def look(self) -> None:
        """Once."""
        for pid in processes():
            command, status = _read(f"/proc/{pid}/cmdline"), _read(f"/proc/{pid}/status")
            most = next((int(line.split()[1]) >> 10 for line in status.splitlines() if line.startswith("VmHWM")), 0)
            kind = "driver_mb" if pid == os.getpid() else "worker_mb" if "pyspark" in command and "daemon" in command else "jvm_mb"
            self.held[kind] = max(self.held[kind], most)

    def end(self) -> dict[str, int]:
        """What was found."""
        self._over.set()
        self._thread.join()
        self.look()
        return self.held


def session(**conf: object) -> Any:
    """A session as quire and its peers get it, with its start behind it, and that of its Python workers."""
    import quire

    started = quire.session({"spark.master": f"local[{CORES}]", "spark.driver.memory": HEAP, **conf})
    started.range(0, CORES, 1, CORES).mapInArrow(lambda batches: batches, "id long").count()
    return started


# ------------------------------------------------------------------------------------------------------------------- ways of Spark
def whole_text_files(spark: Any, source: Path, out: Path) -> None:
    """wholeTextFiles as fast as Spark can: a glob of files, so that Hadoop does not look up each file's permissions (it does for
    directories, by a process a file), no look-ups of .crc files, all of it within the JVM, one partition a core."""
    spark.sparkContext._jsc.wholeTextFiles(f"{source}/*/*", CORES).values().saveAsTextFile(str(out))


def binary_file(spark: Any, source: Path, out: Path) -> None:
    """binaryFile, written as text: no cost for opening a file, so partitions of 256 MiB, as quire's data files."""
    spark.read.format("binaryFile").load(f"{source}/*").selectExpr("cast(content as string) as value").write.text(str(out))


TUNED: dict[str, object] = {
    "spark.hadoop.fs.file.impl": RAW,
    "spark.sql.files.openCostInBytes": 1,
    "spark.sql.files.maxPartitionBytes": "256m",
}

PEERS: dict[str, Callable[[Any, Path, Path], None]] = {"wholeTextFiles": whole_text_files, "binaryFile": binary_file}


class Looker:
    """Looks, some hundred times a second, for the first moment at which each of several things is so."""

    def __init__(self, **things: Callable[[], bool]) -> None:
        self.things, self.seen = things, dict[str, float]()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.started = time.monotonic()
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(0.005):
            for name, so in self.things.items():
                if name not in self.seen and so():
                    self.seen[name] = round(time.monotonic() - self.started, 2)

    def end(self) -> dict[str, float]:
        """The moments, in seconds."""
        self._over.set()
        self._thread.join()
        return self.seen


def active_task(spark: Any) -> Callable[[], bool]:
    """Whether Spark has started a task since now, as its status store (renewed without delay, see `PROMPT`) says."""
    tracker = spark.sparkContext._jsc.statusTracker()
    before = set(tracker.getActiveStageIds())

    def so() -> bool:
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if stage not in before and info is not None and info.numActiveTasks() + info.numCompletedTasks() > 0:
                return True
        return False

    return so


PROMPT: dict[str, object] = {"spark.ui.liveUpdate.period": 0}
