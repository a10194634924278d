"""Opening a table with 10,000 file groups and 2,000 commits, and planning an upsert of them all: seconds, and memory.

    python tests/benchmarks/table_open.py [--groups 10000] [--commits 2000]

The first commit writes all groups, in 100 partitions, each later one five of them; the files are empty, as nothing here reads them. A
process of its own opens the table: settings, timeline, columns, and the newest slice of each group. Then it plans what a round of an upsert
plans on the driver: the targets of rows for each group.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pyarrow as pa
from common import Result, Verdict, arguments, fresh, load, machine, workplace

PARTITIONS, EACH = 100, 5
OPEN, PLAN = 2.0, 50  # seconds; MB of the driver


def build(at: Path, groups: int, commits: int) -> None:
    """Lay the table by hand."""
    import quire
    from quire.table.format import commits as words
    from quire.table.format import names, schema
    from quire.table.format.commits import CommitMetadata, WriteStat
    from quire.table.write.commit import partitions

    quire.Table.create(at, key="id", partition_by="p")
    extra: dict[str, str | None] = {"schema": schema.to_avro(pa.schema([("id", pa.string()), ("p", pa.string())]), "t")}
    ids = [(f"p={i % PARTITIONS:02d}", names.new_file_id()) for i in range(groups)]
    last = dict[tuple[str, str], str]()
    for name, content in partitions({p for p, _ in ids}, "20260101000000000").items():
        (at / name).parent.mkdir(exist_ok=True)
        (at / name).write_bytes(content)
    for number in range(commits):
        instant = f"2026{1 + number // 672:02d}{1 + number // 24 % 28:02d}{number % 24:02d}0000000"
        stats = dict[str, list[WriteStat]]()
        for p, group in ids if not number else (ids[(number * EACH + i) % groups] for i in range(EACH)):
            path = f"{p}/{group}_1-2-3_{instant}.parquet"
            (at / path).write_bytes(b"")
            size = {"num_writes": 1000, "num_inserts": 1000, "total_write_bytes": 100_000, "file_size_in_bytes": 100_000}
            stat = WriteStat(file_id=group, path=path, partition_path=p, prev_commit=last.get((p, group), "null"), **size)
            stats.setdefault(p, []).append(stat)
            last[p, group] = instant
        done = CommitMetadata(partition_to_write_stats=stats, extra_metadata=extra, operation_type="UPSERT")
        for state in (".requested", ".inflight"):
            (at / ".hoodie" / f"{instant}.commit{state}".replace(".commit.inflight", ".inflight")).write_bytes(b"")
        (at / ".hoodie" / f"{instant}.commit").write_bytes(words.encode(done))


def measure(at: str) -> Result:
    """Open it, and plan."""
    import quire
    from quire.storage import connect
    from quire.storage.within import marked
    from quire.table import file_groups, timeline
    from quire.table.write.blocks import Run
    from quire.table.write.targets import row_size, targets

    began, cpu, held = time.monotonic(), time.process_time(), peak()
    table = quire.Table(at)
    store = connect(marked(table.url))
    line = timeline.read(store)
    text, slices = line.schema(), file_groups.newest(store, line)
    opened, after, cpu = time.monotonic() - began, peak(), time.process_time() - cpu
    assert text
    began = time.monotonic()
    runs = [Run(f"b{i}", 0, one.partition, 10, 0, 1300, "a", "b", one.group) for i, one in enumerate(slices)]
    aims = targets(runs, slices, 120 << 20, row_size(line))
    planned = time.monotonic() - began
    assert len(aims) == len(slices)
    return {
        "groups": len(slices), "commits": len(line.completed), "open_s": round(opened, 2), "open_cpu": round(cpu, 2),
        "open_mb": after - held, "plan_s": round(planned, 2), "plan_mb": peak() - held,
    }  # fmt: skip


def peak() -> int:
    """The most memory (MB) that this process has held."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM"))


def main() -> int:
    """Build it, and measure in a process of its own."""
    args = arguments(__doc__, groups={"type": int, "default": 10_000}, commits={"type": int, "default": 2_000})
    if args.way:
        print(json.dumps(measure(json.loads(args.job)["at"])), flush=True)
        return 0
    print(f"{machine()}; load {load()}", flush=True)
    verdict = Verdict()
    with workplace(args.at) as place:
        build(place / "t", args.groups, args.commits)
        found = min((fresh(__file__, "quire", at=str(place / "t")) for _ in range(3)), key=lambda each: each["open_s"])
    print(found)
    what = f"{found['groups']:,} file groups, {found['commits']:,} commits"
    verdict.check(f"{what}: open", f"< {OPEN:g} s", f"{found['open_s']} s (CPU {found['open_cpu']} s)", found["open_s"] < OPEN)
    verdict.check(f"{what}: open and plan, memory", f"< {PLAN} MB", f"{found['plan_mb']} MB", found["plan_mb"] < PLAN)
    return verdict.end()


if __name__ == "__main__":
    sys.exit(main())
