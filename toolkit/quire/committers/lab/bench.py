"""Where a committer is tried: its drivers, the small cluster, and the jobs that they are given. The effect of a fault stands in
`faults.py`.
"""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quire.commit import names
from quire.committers.lab.processes import PATIENCE, Driver, SmallCluster, wait_for
from quire.committers.lab.tested import UnderTest
from quire.committers.lab.watch import Count, LabPlace, count
from quire.errors import QuireError, scrub

LOCAL = "local[4,4]"  # four at once, four attempts each, whatever the number of cores: who waits needs none
TASKS = 4
STILL = 1.5  # seconds without a change
ROW = '{{"id": {:8d}, "task": {:4d}}}\n'
_COMMON = {
    "spark.driver.memory": "1g", "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.log.level": "ERROR",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.buffer.size": "64",  # what a task gives, its Python hands on at once
}  # fmt: skip
SPECULATION = {
    "spark.speculation": "true", "spark.speculation.interval": "100ms", "spark.speculation.multiplier": "1.5",
    "spark.speculation.quantile": "0.3", "spark.speculation.minTaskRuntime": "500ms", "spark.speculation.task.duration.threshold": "1500ms",
}  # fmt: skip


class Setting:
    """Shared by the benches of one run: a directory for all that is written beside, and a cluster once it is needed."""

    def __init__(self, scratch: Path) -> None:
        self.scratch, self.numbers = scratch, itertools.count(1)
        self.written = list[tuple[LabPlace, str]]()  # by its runs: a directory in a destination
        self._cluster: SmallCluster | None = None
        self._no_cluster: BaseException | None = None

    def cluster(self) -> SmallCluster:
        """The small cluster; what kept it from starting is raised again, and it is not tried again."""
        if self._no_cluster is not None:
            raise self._no_cluster
        if self._cluster is None:
            self._cluster = SmallCluster(self.scratch)
            try:
                self._cluster.start()
            except BaseException as e:
                self._no_cluster = e
                self._cluster.stop()
                raise
        return self._cluster

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.stop()

    def clear(self) -> None:
        """Delete what its runs wrote, and nothing else: somebody may have begun to use the destination meanwhile."""
        try:
            for place, folder in self.written:
                store = place.store()
                for name, handle in list(store.pending(folder)) if store.can_upload and not store.pieces_expire else ():
                    store.give_up(name, handle)
                store.remove_tree(folder)
        except (QuireError, OSError) as e:  # what was measured is worth more
            warnings.warn(f"what the lab wrote is not all deleted: {scrub(str(e))} Delete it by hand.", stacklevel=2)


@dataclass(frozen=True)
class BenchJob:
    """A job for whichever engine: so many files of so many rows, numbered from `first` on, by four tasks.

    `disturb`: what happens to a quarter of the files (one of Spark's four tasks; of quire, whose task is a file, all files of that
    quarter), see `child.disturb`; `alone`: to the first file of the quarter only. `vary`: a second attempt writes other names.
    """

    files: int = 40
    rows: int = 100
    first: int = 0
    disturb: Mapping[int, Sequence[str]] = field(default_factory=dict)
    alone: bool = False
    vary: bool = False

    @property
    def ids(self) -> set[int]:
        """The numbers of its rows."""
        return set(range(self.first, self.first + self.files * self.rows))


class BenchRun:
    """One fault on one committer: a new destination, and what was found there."""

    def __init__(self, bench: Bench, name: str) -> None:
        self.bench = bench
        folder = f"{bench.committer.name}-{name}"
        bench.setting.written.append((bench.place, folder))
        self.place = bench.place.at(folder)
        self.way = (bench.through or bench.place).at(folder)  # by which its jobs reach it
        self.number = next(bench.setting.numbers)
        self.scratch = bench.setting.scratch / f"{self.number:03d}-{folder}"
        self.scratch.mkdir()
        self.marks = self.scratch  # of the job under way
        self.started = 0
        self.tasks = {0: 0}

    # ------------------------------------------------------------------------------------------------------------------- jobs
    def start(self, driver: Driver, job: BenchJob) -> int:
        """Give a driver a job; its number."""
        self.started += 1
        number = self.number * 100 + self.started
        self.marks = self.scratch / f"marks-{self.started}"
        self.marks.mkdir()
        one = self.bench.committer
        plan: dict[str, Any] = {
            "scratch": str(self.marks), "files": job.files, "rows": job.rows, "tasks": min(TASKS, job.files), "first": job.first,
            "vary": job.vary, "waits": any("=" in word for words in job.disturb.values() for word in words),
        }  # fmt: skip
        driver.tasks = 0
        if not one.pipeline:
            plan["disturb"] = {str(task): list(words) for task, words in job.disturb.items()}
            options = {key: str(int(time.time()) % 1_000_000 * 1000 + number % 1000) for key in one.per_job}
            what: dict[str, Any] = {"do": "write", "url": self.way.spark_url, "format": "json", "options": options}
            if one.frame:
                what |= {"url": self.way.url, "format": "quire", "options": _of_writer(one, self.way, job)}
        else:
            files = {task: _quarter(task, job.files)[: 1 if job.alone else None] for task in job.disturb}
            plan["disturb"] = {str(file): list(job.disturb[task]) for task in files for file in files[task]}
            source, size = self._source(job)
            what = {
                "do": "gather", "url": self.way.url, "source": str(source), "target": size, "committer": one.quire,
                "options": dict(self.way.options),
            }  # fmt: skip
        driver.tell({**what, "id": number, "plan": plan})
        return number

    def _source(self, job: BenchJob) -> tuple[Path, int]:
        """Files of one size, so that each is a task of quire's with one data file."""
        folder = self.scratch / f"in-{job.first}"
        if not folder.exists():
            folder.mkdir()
            for i in range(job.files):
                start = job.first + i * job.rows
                (folder / f"in-{i:05d}.jsonl").write_text("".join(ROW.format(n, i) for n in range(start, start + job.rows)))
        return folder, len(ROW.format(0, 0)) * job.rows

    def end(self, driver: Driver, seconds: float = 240) -> str | None:
        """Wait for the end of a job: None, or what it failed with."""
        found: str | None = driver.expect("end", seconds)["error"]
        return found

    def open(self, gate: str) -> None:
        """Let those go on that wait for it, in all jobs of this run."""
        for marks in self.scratch.glob("marks-*"):
            (marks / gate).touch()

    def began(self, task: int, attempt: int) -> int | None:
        """The process of an attempt, once it has begun."""
        with suppress(OSError, ValueError):
            return int((self.marks / f"began-{task}-{attempt}").read_text())
        return None

    def wait_waiting(self) -> int:
        """Until the first attempt of task 0 waits; its process."""
        wait_for((self.marks / "waits-0-0").exists, PATIENCE, "task 0 has begun")
        found = self.began(0, 0)
        assert found is not None
        return found

    def wait_all_but_one(self, driver: Driver) -> None:
        """Until three of the four tasks are committed and the fourth waits."""
        if not self.bench.committer.pipeline:
            marks = self.marks
            wait_for(lambda: driver.tasks >= TASKS - 1 and any(marks.glob("waits-*")), PATIENCE, "three of four tasks are committed")
            return
        store, since, seen = self.place.store(), time.monotonic(), (-1, -1, -1)
        while True:
            began, waits = (len(list(self.marks.glob(f"{mark}-*"))) for mark in ("began", "waits"))
            now = (began, waits, sum(e.name.endswith(names.ENTRY) and "/tasks/" in e.name for e in store.walk("_quire/jobs")))
            if now != seen:
                since, seen = time.monotonic(), now
            if waits and now[2] >= began - waits and time.monotonic() - since > STILL:
                return
            if time.monotonic() - since > PATIENCE:
                wait_for(lambda: False, 0, f"the tasks that do not wait are committed: {now}")
            time.sleep(0.05)

    # ---------------------------------------------------------------------------------------------------------- what is there
    def count(self, *jobs: BenchJob) -> Count:
        """The rows that readers find now; `jobs`: those that have said that all is well."""
        return count(self.place, set[int]().union(*(job.ids for job in jobs)))


def _of_writer(one: UnderTest, way: LabPlace, job: BenchJob) -> dict[str, str]:
    """The options of `df.write.format("quire")`: a file for each batch of rows, and a name by which a job that is run again counts once."""
    batch = {"batch": f"rows from {job.first}"}
    texts = {f"storage.{key}": str(value) for key, value in way.options.items() if not isinstance(value, Mapping)}  # Spark's are texts
    return {"committer": one.quire, "target_size": "1 B", **batch, **texts}


def _quarter(task: int, files: int) -> list[int]:
    """The files of quire's that stand for a task of Spark's."""
    return list(range(files * task // TASKS, files * (task + 1) // TASKS))


class Bench:
    """One committer, its drivers kept from fault to fault as long as they live."""

    def __init__(self, setting: Setting, committer: UnderTest, place: LabPlace, through: LabPlace | None = None) -> None:
        """`through`: the same place as the jobs are to reach it, where that is another way than the watcher's."""
        self.setting, self.committer, self.place, self.through = setting, committer, place, through
        self._drivers: dict[str, Driver] = {}

    def driver(self, kind: str = "local") -> Driver:
        """A living driver: "local", "cluster", or "speculation" on the cluster, which starts slow tasks a second time."""
        found = self._drivers.get(kind)
        if found is not None and found.popen.poll() is None:
            return found
        if kind != "local":
            for other in ("cluster", "speculation"):  # the cluster has room for one
                self.kill(other)
        self._drivers[kind] = made = self.another(kind)
        return made

    def another(self, kind: str = "local") -> Driver:
        """Another one beside, which the caller kills."""
        scratch = self.setting.scratch
        beside = {"hadoop.tmp.dir": scratch / "hadoop", "fs.s3a.committer.staging.tmp.path": f"file://{scratch}/staging"}
        conf = {**_COMMON, **{f"spark.hadoop.{key}": str(value) for key, value in beside.items()}, **self.committer.conf}
        if kind != "local":
            conf |= self.setting.cluster().conf()
        if kind == "speculation":
            conf |= SPECULATION
        if self.committer.jars:
            for key in ("spark.driver.extraClassPath", *(["spark.executor.extraClassPath"] if kind != "local" else [])):
                conf[key] = ":".join(self.committer.jars)
        master = LOCAL if kind == "local" else self.setting.cluster().url
        hadoop = {} if self.committer.quire else (self.through or self.place).hadoop
        made = Driver(self.setting.scratch, f"driver-{next(self.setting.numbers):03d}", master, conf, hadoop)
        try:
            made.start()
        except BaseException:
            made.kill()
            raise
        return made

    @contextmanager
    def beside(self, kind: str = "local") -> Iterator[Driver]:
        """Another driver, as long as the block lasts."""
        made = self.another(kind)
        try:
            yield made
        finally:
            made.kill()

    def kill(self, kind: str) -> None:
        """End a driver, if there is one."""
        if found := self._drivers.pop(kind, None):
            found.kill()

    def stop(self) -> None:
        for kind in list(self._drivers):
            self.kill(kind)
