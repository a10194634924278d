"""One of the ways of `table_peers.py`, in a process and an environment of its own: its last line says what each work took, in JSON.

    python peer.py '{"way": "delta", "at": "…", "data": "…", "jars": "…"}'

It imports nothing but pyspark, and quire where that is the way; so it runs in Spark 3.5, 4.2 and 4.3.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar

sys.path.append(str(Path(__file__).parents[1]))

from common import CORES, HEAP, Result, cpu_seconds, processes
from common import _read as read_text

NUMBERS, TEXT = ("ts", "lat", "lon", "fare"), ("id", "city", "rider", "driver", "note")  # and the time `at`
MEASURES = ("rows", *NUMBERS, "at", *TEXT)
BEGIN = 1_700_000_000_000_000  # microseconds: that long after it is the time `at` of a row
PAGE = os.sysconf("SC_PAGE_SIZE")
WRITES = {"bulk insert": "base", "upsert 10 %": "upsert10", "upsert 1 %": "upsert1", "delete 1 %": "delete1"}
READS = ("snapshot", "changes")  # works that are done again, as the first time a JVM compiles
AGAIN = 5
LAST = "upsert 10 %, no inserts"
SORTED = ("lat", "lon")  # columns by which rows are clustered
TARGET = 120 << 20  # bytes of a file
WRITES_OF_LOGS = {**WRITES, LAST: "update10"}  # inserts go into small base files, and their updates with them

Answer = dict[str, list[int]]


def sums(row: str = "", present: str = "") -> list[Any]:
    """All columns summed, of a row or of a struct: numbers as they are, in quarters; text by its CRC. `present`: of which rows."""
    from pyspark.sql import functions as f

    def of(name: str) -> Any:
        return f.col(f"{row}{name}")

    held = f.count(f.when(f.expr(present), 1)) if present else f.count(f.lit(1))
    return [held, *(f.sum(of(n) * 4) for n in NUMBERS), f.sum(f.unix_micros(of("at")) - BEGIN), *(f.sum(f.crc32(of(n))) for n in TEXT)]


def asked(frame: Any, *wanted: Any) -> list[int]:
    """Sums, in whole numbers."""
    (row,) = frame.agg(*[each.alias(f"s{i}") for i, each in enumerate(wanted)]).collect()
    return [int(value or 0) for value in row]


def operation(work: str) -> str:
    """The verb of a writing work: `bulk_insert`, `upsert` or `delete`."""
    return re.sub(r" \d.*", "", work).replace(" ", "_")


class Quire:
    """quire as one calls it."""

    TYPE = "copy_on_write"

    def __init__(self, at: Path, _: str) -> None:
        from common import session

        self.spark, self.url, self.seen = session(), str(at), dict[str, str]()

    def write(self, work: str, source: str) -> None:
        """Do one of the writing works."""
        import quire

        if work == "bulk insert":
            self.table = quire.Table.create(self.url, key="id", partition_by="city", ordering="ts", type=self.TYPE)
        self.seen[work] = getattr(self.table, operation(work))(self.spark.read.parquet(source), progress=False).instant

    def snapshot(self) -> Answer:
        """Sum all columns."""
        return {"rows": asked(self.table.snapshot(), *sums())}

    def changes(self, since: str, until: str) -> Answer:
        """Sum the images of what has changed after one work, up to another."""
        frame = self.table.changes(self.seen[since], self.seen[until], images="both")
        both = asked(frame, *sums("before.", "before is not null"), *sums("after.", "after is not null"))
        return {"before": both[: len(MEASURES)], "after": both[len(MEASURES) :]}

    def bytes_of_changes(self, since: str, until: str) -> tuple[int, int]:
        """Bytes of the files that hold the changes, and of those that a full scan reads."""
        from quire.storage import connect
        from quire.storage.within import marked
        from quire.table import changes, file_groups, timeline

        store = connect(marked(self.table.url))
        line = timeline.read(store)
        looks = changes.looks(store, line, self.seen[since], self.seen[until])
        names = {name for look in looks for name in (look.file, *look.before, *look.after) if name}
        return sum(store.stat(name).size for name in names), sum(one.size for one in file_groups.newest(store, line))

    def compact(self) -> None:
        """Take all logs into base files."""
        self.table.compact(progress=False)


class QuireLogs(Quire):
    """A merge-on-read table."""

    TYPE = "merge_on_read"


class QuireSorted(Quire):
    """A table whose rows are laid out anew."""

    CURVE = "linear"

    def cluster(self) -> None:
        """Sort all rows by two columns, or along a curve through both."""
        report = self.table.cluster(sort=SORTED, curve=self.CURVE, progress=False)
        assert report.rows, "nothing was clustered"


class QuireCurve(QuireSorted):
    """The same along a Z-order."""

    CURVE = "z-order"


class Hudi:
    """JVM Hudi at its fastest."""

    FAST: ClassVar[dict[str, str]] = {
        "hoodie.metadata.enable": "false", "hoodie.index.type": "SIMPLE", "hoodie.datasource.write.row.writer.enable": "true",
        "hoodie.upsert.shuffle.parallelism": str(2 * CORES), "hoodie.delete.shuffle.parallelism": str(2 * CORES),
        "hoodie.simple.index.parallelism": str(2 * CORES), "hoodie.embed.timeline.server": "false",
    }  # fmt: skip

    def __init__(self, at: Path, jars: str) -> None:
        self.spark, self.at, self.seen = session(
            jars,
            **{
                "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
                "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
                "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
            },
        ), at, dict[str, str]()  # fmt: skip

    def write(self, work: str, source: str) -> None:
        """Do one of the writing works."""
        prefix = "hoodie.datasource.write"
        options = {
            "hoodie.table.name": "trips", f"{prefix}.operation": operation(work), f"{prefix}.recordkey.field": "id",
            f"{prefix}.partitionpath.field": "city", f"{prefix}.precombine.field": "ts", f"{prefix}.hive_style_partitioning": "true",
            "hoodie.parquet.compression.codec": "zstd", **self.FAST,
        }  # fmt: skip
        frame = self.spark.read.parquet(source)
        frame.write.format("hudi").options(**options).mode("append").save(str(self.at))
        done = (re.fullmatch(r"\d+_(\d+)\.(?:delta)?commit", path.name) for path in (self.at / ".hoodie" / "timeline").iterdir())
        self.seen[work] = max(found[1] for found in done if found)

    def snapshot(self) -> Answer:
        """Sum all columns."""
        return {"rows": asked(self.spark.read.format("hudi").options(**self._reading()).load(str(self.at)), *sums())}

    def changes(self, since: str, until: str) -> Answer:
        """Sum what its incremental query gives: neither deleted rows, nor rows as they were before."""
        prefix = "hoodie.datasource"
        options = {
            f"{prefix}.query.type": "incremental", f"{prefix}.read.begin.instanttime": self.seen[since],
            f"{prefix}.read.end.instanttime": self.seen[until], **self._reading(),
        }  # fmt: skip
        return {"after": asked(self.spark.read.format("hudi").options(**options).load(str(self.at)), *sums())}

    def _reading(self) -> dict[str, str]:
        return {name: value for name, value in self.FAST.items() if name == "hoodie.metadata.enable"}


class HudiLogs(Hudi):
    """A merge-on-read table, which nobody compacts but by a call."""

    FAST: ClassVar[dict[str, str]] = {
        **Hudi.FAST, "hoodie.datasource.write.table.type": "MERGE_ON_READ", "hoodie.compact.inline": "false",
    }  # fmt: skip

    def compact(self) -> None:
        """Take all logs into base files."""
        self.spark.sql("SET hoodie.metadata.enable=false")
        self.spark.sql("SET hoodie.compact.inline.max.delta.commits=1")
        done = self.spark.sql(f"CALL run_compaction(op => 'scheduleAndExecute', path => '{self.at}')").collect()
        if not done:
            raise SystemExit("JVM Hudi has compacted nothing")


class HudiSorted(Hudi):
    """The same, clustered by its own procedure, all files of a partition at once."""

    CURVE = "linear"

    def cluster(self) -> None:
        """Sort all rows by two columns, or along a curve through both."""
        plan = "hoodie.clustering.plan.strategy"
        settings = {
            "hoodie.metadata.enable": "false", "hoodie.embed.timeline.server": "false", "hoodie.parquet.compression.codec": "zstd",
            f"{plan}.target.file.max.bytes": TARGET, f"{plan}.small.file.limit": 1 << 30, f"{plan}.max.bytes.per.group": 8 << 30,
            "hoodie.clustering.max.parallelism": 2 * CORES, "hoodie.datasource.write.row.writer.enable": "true",
        }  # fmt: skip
        for name, value in settings.items():
            self.spark.sql(f"SET {name}={value}")
        how = f"order => '{','.join(SORTED)}', order_strategy => '{self.CURVE}'"
        done = self.spark.sql(f"CALL run_clustering(op => 'scheduleAndExecute', path => '{self.at}', {how})").collect()
        if not done:
            raise SystemExit("JVM Hudi has clustered nothing")


class HudiCurve(HudiSorted):
    """The same along a Z-order."""

    CURVE = "z-order"


class HudiDefaults(Hudi):
    """The same without a word on how."""

    FAST: ClassVar[dict[str, str]] = {}


class Delta:
    """Delta without deletion vectors, with its change feed; the condition of a merge names the partition, too."""

    FEED, VECTORS = "true", "false"

    def __init__(self, at: Path, jars: str) -> None:
        self.spark, self.at, self.seen = session(
            jars,
            **{
                "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
                "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
                "spark.databricks.delta.properties.defaults.enableChangeDataFeed": self.FEED,
                "spark.databricks.delta.properties.defaults.enableDeletionVectors": self.VECTORS,
                "spark.databricks.delta.snapshotPartitions": str(CORES),
            },
        ), at, dict[str, int]()  # fmt: skip

    def write(self, work: str, source: str) -> None:
        """Do one of the writing works."""
        frame = self.spark.read.parquet(source)
        if work == "bulk insert":
            frame.write.format("delta").partitionBy("city").mode("append").save(str(self.at))
        else:
            frame.createOrReplaceTempView("batch")
            then = "THEN DELETE" if work.startswith("delete") else "AND s.ts >= t.ts THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            met = "t.id = s.id AND t.city = s.city"
            self.spark.sql(f"MERGE INTO delta.`{self.at}` t USING batch s ON {met} WHEN MATCHED {then}").collect()
        self.seen[work] = max(int(path.stem) for path in (self.at / "_delta_log").glob("*.json"))

    def snapshot(self) -> Answer:
        """Sum all columns."""
        return {"rows": asked(self.spark.read.format("delta").load(str(self.at)), *sums())}

    def changes(self, since: str, until: str) -> Answer:
        """Sum the images that its feed gives."""
        from pyspark.sql import functions as f

        if self.FEED != "true":
            return {}
        options = {"readChangeFeed": "true", "startingVersion": self.seen[since] + 1, "endingVersion": self.seen[until]}
        frame = self.spark.read.format("delta").options(**options).load(str(self.at))
        was = f.col("_change_type").isin("update_preimage", "delete")
        found = frame.groupBy(was.alias("was")).agg(*[each.alias(f"s{i}") for i, each in enumerate(sums())]).collect()
        sides = {bool(row[0]): [int(value or 0) for value in row[1:]] for row in found}
        nothing = [0] * len(MEASURES)
        return {"before": sides.get(True, nothing), "after": sides.get(False, nothing)}


class DeltaAlone(Delta):
    """The same without its feed, so its writes write nothing but the rows."""

    FEED = "false"


class DeltaCurve(DeltaAlone):
    """The same, which can sort along a Z-order alone."""

    def cluster(self) -> None:
        """Sort all rows along a curve through two columns."""
        self.spark.sql(f"SET spark.databricks.delta.optimize.maxFileSize={TARGET}")
        self.spark.sql(f"OPTIMIZE delta.`{self.at}` ZORDER BY ({', '.join(SORTED)})").collect()


class DeltaVectors(Delta):
    """With deletion vectors, and without its feed: no file is written anew for a few of its rows."""

    FEED, VECTORS = "false", "true"


WAYS: dict[str, Callable[[Path, str], Any]] = {
    "quire": Quire, "hudi": Hudi, "hudi defaults": HudiDefaults, "delta": Delta, "delta, no feed": DeltaAlone,
    "quire logs": QuireLogs, "hudi logs": HudiLogs, "delta vectors": DeltaVectors,
    "quire sorted": QuireSorted, "hudi sorted": HudiSorted,
    "quire z-order": QuireCurve, "hudi z-order": HudiCurve, "delta z-order": DeltaCurve,
}  # fmt: skip


def session(jars: str, **conf: str) -> Any:
    """A session of a peer, with as much of everything as quire's."""
    from pyspark.sql import SparkSession

    there = ",".join(map(str, sorted(Path(jars).glob("*.jar"))))
    builder = SparkSession.builder.master(f"local[{CORES}]").config("spark.jars", there)
    settings = {
        "spark.driver.memory": HEAP, "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(2 * CORES), "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    }  # fmt: skip
    for name, value in {**settings, **conf}.items():
        builder = builder.config(name, value)
    started = builder.getOrCreate()
    started.sparkContext.setLogLevel("ERROR")
    started.range(1).count()
    return started


class Memory:
    """The most that all processes have held at once (MB, resident; what they share counts for each), and the most of a worker."""

    def __init__(self) -> None:
        self.most = self.worker = 0
        self._over = threading.Event()
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while not self._over.wait(0.25):
            held = 0
            for pid in processes():
                own = int((read_text(f"/proc/{pid}/statm").split() or ["0", "0"])[1]) * PAGE >> 20
                held += own
                command = read_text(f"/proc/{pid}/cmdline")
                if "pyspark" in command and "daemon" in command:
                    self.worker = max(self.worker, own)
            self.most = max(self.most, held)

    def taken(self) -> int:
        """The most since it was asked last."""
        found, self.most = self.most, 0
        return found


def files(at: Path) -> dict[str, tuple[int, int]]:
    """All files below, with size and time."""
    found = (path for path in at.rglob("*") if path.is_file() and not path.name.endswith(".crc"))
    return {str(path): ((s := path.stat()).st_size, s.st_mtime_ns) for path in found}


def measured(memory: Memory, at: Path, work: Callable[[], Any]) -> tuple[Result, Any]:
    """Do it, and say what it took."""
    os.sync()
    before, cpu = files(at), cpu_seconds()
    memory.taken()
    began = time.monotonic()
    answer = work()
    seconds, cpu = time.monotonic() - began, cpu_seconds() - cpu
    new = [one[0] for name, one in files(at).items() if before.get(name) != one]
    taken = {
        "seconds": round(seconds, 2), "cpu": round(cpu, 2), "peak_mb": memory.taken(), "files": len(new),
        "mb": round(sum(new) / 1e6, 2), "logs_mb": round(sum(one[0] for name, one in files(at).items() if ".log." in name) / 1e6, 2),
    }  # fmt: skip
    return taken, answer


def asked_again(memory: Memory, at: Path, work: Callable[[], Any]) -> tuple[Result, Any]:
    """Ask a question for the first time, and `AGAIN` times more: what these took in the median, and `first` what that one took."""
    first, answer = measured(memory, at, work)
    took = list[Result]()
    for _ in range(AGAIN):
        again, found = measured(memory, at, work)
        if found != answer:
            raise SystemExit(f"the same question has two answers: {answer} and {found}")
        took.append(again)
    middle = {name: sorted(one[name] for one in took)[AGAIN // 2] for name in first}
    return middle | {"first": first["seconds"], "peak_mb": max(one["peak_mb"] for one in (first, *took))}, answer


def works(peer: Any, data: Path) -> Iterable[tuple[str, Callable[[], Any]]]:
    """All that is measured, in its order."""
    if isinstance(peer, QuireSorted | HudiSorted | DeltaCurve):
        yield "bulk insert", lambda: peer.write("bulk insert", str(data / "base"))
        yield "clustering", peer.cluster
        yield "snapshot of sorted rows", peer.snapshot
        return
    logs = isinstance(peer, QuireLogs | HudiLogs | DeltaVectors)
    for work, source in (WRITES_OF_LOGS if logs else WRITES).items():
        if work == LAST and isinstance(peer, QuireLogs | HudiLogs):
            yield "compaction of what came before", peer.compact  # so that what is merged next is of the last batch alone
        yield work, lambda work=work, source=source: peer.write(work, str(data / source))
    yield "snapshot with logs" if logs else "snapshot", peer.snapshot
    if isinstance(peer, QuireLogs | HudiLogs):
        yield "compaction", peer.compact
        yield "snapshot after it", peer.snapshot
    if logs:
        return
    yield "changes of 1 %", lambda: peer.changes("upsert 10 %", "upsert 1 %")
    yield "changes of 1 % and deletes of 1 %", lambda: peer.changes("upsert 10 %", "delete 1 %")


def main(job: dict[str, str]) -> None:
    """Do all works, and tell what they took."""
    at, data = Path(job["at"]), Path(job["data"])
    peer, memory = WAYS[job["way"]](at, job["jars"]), Memory()
    took, answers = dict[str, Result](), dict[str, Any]()
    for work, act in works(peer, data):
        took[work], answers[work] = (asked_again if work.startswith(READS) else measured)(memory, at, act)
        print(f"    {work}: {took[work]}", file=sys.stderr, flush=True)
    found: Result = {"took": took, "answers": {work: answer for work, answer in answers.items() if answer}, "worker_mb": memory.worker}
    if isinstance(peer, Quire) and not isinstance(peer, QuireLogs | QuireSorted):
        windows = [peer.bytes_of_changes("upsert 10 %", until) for until in ("upsert 1 %", "delete 1 %")]
        found["bytes"] = windows
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
