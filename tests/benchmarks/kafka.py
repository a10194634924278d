"""Topics of a real broker into Parquet: `quire.load` against Spark Structured Streaming with the official connector, `availableNow`.

    python tests/benchmarks/kafka.py                             (a quarter of an hour)
    python tests/benchmarks/kafka.py --rounds 1 --topics large   (a look)

Both ways run in sessions that are warm: a process each, alive for the whole run, which has loaded every topic once before anything is
counted; one waits while the other works. Times are end to end: a call into an empty directory, from its first question to the brokers
until everything is committed and visible. Ways:

quire       `quire.load` with the target size of a data file that gives as many files as the others write
one         `quire.load` as one calls it: 256 MiB, so all of it is one file, and one task on one of the cores
connector   `readStream` of the same topic, headers and all, `isolation.level=read_committed`, into Parquet with quire's codec and its level
snappy      the same with Spark's own codec, as one calls it without a word on codecs

Broker and ways share the machine's cores. `--jars` holds the connector (`make bench` gets it), the broker's own are where
`make test-services` puts them.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from common import HEAP, Result, Verdict, arguments, cpu_seconds, data_bytes, listed, load, machine, median, session, table, workplace

sys.path.insert(0, str(Path(__file__).parents[1]))
from services.kafka import Record
from services.kafka_broker import Cluster, broker

WAYS = ("quire", "one", "connector", "snappy")
OURS = ("quire", "one")
TOPICS = {"small": (1_000_000, 200), "large": (100_000, 5_000)}  # records, bytes of a value
PARTITIONS = 4
TARGET = {"small": "14 MiB", "large": "36 MiB"}  # four files of each, which is what the connector writes
COLUMNS = ["partition", "offset", "key", "value", "timestamp"]
JARS = Path(sys.prefix) / "connector" / "jars"
PHASES = ("before", "listing", "gathering", "publishing")


# ------------------------------------------------------------------------------------------------------------------- what is loaded
def records(n: int, size: int) -> Iterator[Record]:
    """Values as services write them, of about half of which a codec makes nothing."""
    drawn = random.Random(7)
    for i in range(n):
        head = b'{"id": %d, "user": "%s", "text": "' % (i, drawn.randbytes(8).hex().encode())
        fill = size - len(head) - 2
        body = drawn.randbytes(fill // 4 + 1).hex().encode()[: fill // 2] + b"lorem ipsum dolor " * (fill // 36 + 1)
        yield Record(head + body[:fill] + b'"}', b"k%07d" % (i % 100_000), partition=i % PARTITIONS)


def fill(cluster: Cluster, topics: list[str]) -> None:
    """Each topic, evenly over its partitions."""
    for topic in topics:
        cluster.create(topic, PARTITIONS)
        cluster.produce(topic, records(*TOPICS[topic]), linger_ms=20)


# ----------------------------------------------------------------------------------------------------------------------------- ways
def by_quire(spark: Any, address: str, topic: str, out: str, target: str) -> Result:
    """One call, with the time of each phase."""
    import quire

    began = [("before", time.monotonic())]

    def step(step: quire.ProgressEvent) -> None:
        if began[-1][0] != step.phase:
            began.append((step.phase, time.monotonic()))

    quire.load(f"kafka://{address}/{topic}", out, spark=spark, target_size=target, progress=step)
    began.append(("end", time.monotonic()))
    took = dict.fromkeys(PHASES, 0.0)
    for (phase, since), (_, until) in pairwise(began):
        took[phase] += until - since
    return {phase: round(seconds, 2) for phase, seconds in took.items()}


def by_connector(spark: Any, address: str, topic: str, out: str) -> Result:
    """One query, its checkpoint beside its output."""
    stream = (
        spark.readStream.format("kafka").option("kafka.bootstrap.servers", address).option("subscribe", topic)
        .option("startingOffsets", "earliest").option("includeHeaders", "true").option("kafka.isolation.level", "read_committed").load()
    )  # fmt: skip
    query = stream.writeStream.format("parquet").option("path", out).option("checkpointLocation", f"{out}.checkpoint")
    query.trigger(availableNow=True).start().awaitTermination()
    return {}


def conf(way: str, jars: str) -> dict[str, object]:
    """Of a way's session."""
    if way in OURS:
        return {}
    found: dict[str, object] = {
        "spark.jars": ",".join(map(str, sorted(Path(jars).glob("*.jar")))),
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    }
    if way == "connector":
        found |= {"spark.sql.parquet.compression.codec": "zstd", "spark.hadoop.parquet.compression.codec.zstd.level": 1}
    return found


def serve(way: str, jars: str) -> None:
    """Do a way again and again in a session that stays: a line with a job, a line with an answer."""
    spark = session(**conf(way, jars))
    spark.sparkContext.setLogLevel("ERROR")
    print("ready", flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        cpu, began = cpu_seconds(), time.monotonic()
        what = spark, job["address"], job["topic"], job["out"]
        found = by_quire(*what, TARGET[job["topic"]] if way == "quire" else "256 MiB") if way in OURS else by_connector(*what)
        seconds = time.monotonic() - began
        print(json.dumps({"seconds": round(seconds, 3), "cpu": round(cpu_seconds() - cpu, 2), **found}), flush=True)


class Way:
    """A way's process."""

    def __init__(self, way: str, jars: str) -> None:
        command = [sys.executable, __file__, "--way", way, "--jars", jars]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._asks, self._answers = self.process.stdin, self.process.stdout
        if self._answers.readline().strip() != "ready":
            raise SystemExit(f"{way}: its session did not start")

    def do(self, **job: object) -> Result:
        """One load."""
        print(json.dumps(job), file=self._asks, flush=True)
        answer = self._answers.readline()
        if not answer:
            raise SystemExit(f"a load failed: {job}")
        found: Result = json.loads(answer)
        return found


@contextmanager
def running(way: str, jars: str) -> Iterator[Way]:
    """Until the end of the run."""
    one = Way(way, jars)
    try:
        yield one
    finally:
        one._asks.close()
        one.process.wait(60)


# --------------------------------------------------------------------------------------------------------------------------- checks
def digest(out: Path) -> tuple[int, str]:
    """How many rows there are, and what they say, whatever their order."""
    import xxhash

    files = [f for f in out.rglob("*.parquet") if not any(part[0] in "._" for part in f.relative_to(out).parts)]
    rows = pa.concat_tables([_alike(pq.ParquetFile(f).read(columns=COLUMNS)) for f in files])
    rows = rows.take(pc.sort_indices(rows, [("partition", "ascending"), ("offset", "ascending")]))
    found = xxhash.xxh3_128()
    for batch in rows.to_batches(max_chunksize=50_000):
        for column in batch.columns:
            found.update(repr(column.to_pylist()).encode())
    return rows.num_rows, found.hexdigest()


def _alike(rows: pa.Table) -> pa.Table:
    large = {"key": pa.large_binary(), "value": pa.large_binary(), "timestamp": pa.timestamp("us", "UTC")}
    return rows.select(COLUMNS).cast(pa.schema([(name, large.get(name, rows.schema.field(name).type)) for name in COLUMNS]))


def files_of(out: Path) -> int:
    """Data files."""
    return sum(1 for f in out.rglob("*.parquet") if not any(part[0] in "._" for part in f.relative_to(out).parts))


def main() -> int:
    """Alternate the ways, topic by topic, and print the ratios."""
    args = arguments(
        __doc__,
        rounds={"type": int, "default": 5},
        ways={"nargs": "*", "choices": WAYS, "default": WAYS},
        topics={"nargs": "*", "choices": tuple(TOPICS), "default": tuple(TOPICS)},
        jars={"default": str(JARS), "help": "where the connector's jars are"},
        address={"help": "a broker that has the topics already, filled by an earlier run"},
    )
    if args.way:
        serve(args.way, args.jars)
        return 0
    print(f"{machine()}; heap {HEAP}, {args.rounds} rounds; load {load()}", flush=True)
    found = {(topic, way): list[Result]() for topic in args.topics for way in args.ways}
    with workplace(args.at) as place, ExitStack() as stack:
        address = args.address
        if not address:
            cluster = stack.enter_context(broker())
            fill(cluster, args.topics)
            address = cluster.address
        sessions = {way: stack.enter_context(running(way, args.jars)) for way in args.ways}
        rows = dict[tuple[str, str], tuple[int, str]]()
        for r in range(args.rounds + 1):  # the first one warms, and its rows are looked at
            for topic in args.topics:
                for way in args.ways if r % 2 == 0 else reversed(args.ways):
                    out = place / f"out-{way}"
                    result = sessions[way].do(address=address, topic=topic, out=str(out))
                    result |= {"files": files_of(out), "mb": round(data_bytes(out) / 1e6, 1)}
                    if r == 0:
                        rows[topic, way] = digest(out)
                    else:
                        found[topic, way].append(result)
                    print(f"  round {r} {topic} {way}: {' '.join(f'{k}={v}' for k, v in result.items())}; load {load()}", flush=True)
                    shutil.rmtree(out)
                    shutil.rmtree(f"{out}.checkpoint", ignore_errors=True)
    return _told(args.topics, args.ways, found, rows)


def _told(topics: list[str], ways: list[str], found: dict[tuple[str, str], list[Result]], rows: dict[tuple[str, str], Any]) -> int:
    verdict, lines, phases = Verdict(), [], []
    for topic in topics:
        n, size = TOPICS[topic]
        what = f"{n:,} of {size:,} B"
        rates = {way: [n / r["seconds"] for r in found[topic, way]] for way in ways}
        middle = {way: median(rates[way]) for way in ways}
        for way in ways:
            of = found[topic, way]
            ratio, cpu = middle["quire"] / middle[way], median([r["cpu"] for r in of])
            each = f"{middle[way]:,.0f}", listed(rates[way]), f"{ratio:.2f} ×", f"{cpu:.1f} s", of[0]["files"], of[0]["mb"]
            lines.append([what, way, *each])
            if way in OURS:
                phases.append([what, way, *(f"{median([r[phase] for r in of]):.2f}" for phase in PHASES)])
            else:
                verdict.check(f"{what}: × {way}", "≥ 1.0", f"{ratio:.2f}", ratio >= 1)
        there = {rows[topic, way] for way in ways}
        verdict.check(f"{what}: all wrote the same rows", f"{n:,}", listed([count for count, _ in there]), {c for c, _ in there} == {n})
        verdict.check(f"{what}: of the same content", "1 digest", f"{len(there)}", len(there) == 1)
    print("\n" + table(["records", "way", "records/s (median)", "rounds", "quire is", "CPU time", "files", "MB"], lines))
    print("\n" + table(["records", "way", *(f"{phase} s" for phase in PHASES)], phases))
    return verdict.end()


if __name__ == "__main__":
    sys.exit(main())
