"""A year of commits, one every five minutes, on the timeline of a table: opening it before and after its timeline is archived.

    python tests/benchmarks/table_year.py [--commits 105120] [--files 1] [--version 6]

Each commit wrote some of 200 file groups anew, and older slices are cleaned; the files are empty, as nothing here reads them. Processes of
their own open the table, archive it, and open it again. What the first look at the commits of another program, and an archive, hold beyond
the timeline does not grow with their number.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
import time
from pathlib import Path

import pyarrow as pa
from common import Result, Verdict, arguments, fresh, load, machine, workplace
from table_open import peak

GROUPS, KEEP = 200, 100
OPEN, MORE = 2.0, 100  # seconds; MB beyond those of the timeline that was opened


def build(at: Path, commits: int, files: int, version: int) -> None:
    """Lay the table by hand."""
    import quire
    from quire.table.format import commit_avro, names, schema
    from quire.table.format import commits as words
    from quire.table.format.commits import CommitMetadata, WriteStat

    quire.Table.create(at, key="id", version=version)
    home = at / (names.TIMELINE if version == 9 else names.FOLDER)
    home.mkdir(exist_ok=True)
    extra: dict[str, str | None] = {"schema": schema.to_avro(pa.schema([("id", pa.string())]), "t")}
    ids = [names.new_file_id() for _ in range(GROUPS)]
    last, began = dict[str, tuple[str, str]](), dt.datetime(2025, 1, 1, tzinfo=dt.UTC)
    for number in range(commits):
        instant, size = f"{began + dt.timedelta(minutes=5 * number):%Y%m%d%H%M%S}000", {"num_writes": 1000, "file_size_in_bytes": 100_000}
        stats = list[WriteStat]()
        for group in {ids[(number * files + more) % GROUPS] for more in range(files)}:
            path = f"{group}_1-2-3_{instant}.parquet"
            stats.append(WriteStat(file_id=group, path=path, partition_path="", prev_commit=last.get(group, ("null", ""))[0], **size))
            last[group] = instant, path
        done = CommitMetadata(partition_to_write_stats={"": stats}, extra_metadata=extra, operation_type="UPSERT")
        for state in (".commit.requested", ".inflight"):
            (home / f"{instant}{state}").write_bytes(b"")
        if version == 9:
            (home / f"{instant}_{instant[:-1]}1.commit").write_bytes(commit_avro.encode(done))
        else:
            (home / f"{instant}.commit").write_bytes(words.encode(done))
    for _, path in last.values():
        (at / path).write_bytes(b"")


def measure(at: str) -> Result:
    """Open it: settings, timeline, columns, newest slices."""
    import quire
    from quire.storage import connect
    from quire.storage.within import marked
    from quire.table import file_groups, timeline

    began, held = time.monotonic(), peak()
    store = connect(marked(quire.Table(at).url))
    line = timeline.current(store)
    assert line.schema()
    assert len(file_groups.newest(store, line)) == GROUPS
    return {"commits": len(line.completed), "s": round(time.monotonic() - began, 2), "mb": peak() - held}


def archive(at: str) -> Result:
    """Look at what another program has written for the first time, and archive all but some."""
    import quire
    from quire.storage import connect
    from quire.storage.within import marked
    from quire.table import timeline

    began, held = time.monotonic(), peak()
    table = quire.Table(at)
    timeline.current(connect(marked(table.url)))
    listed = peak()
    quire.recover(table.url)
    entered, opened = time.monotonic() - began, peak()
    report = table.archive(keep=KEEP, progress=False)
    folder = ".hoodie/timeline/history" if table.config.version == 9 else ".hoodie/archived"
    size = sum(path.stat().st_size for path in Path(at, folder).iterdir())
    return {
        "instants": report.instants,
        "recover_s": round(entered, 1),
        "archive_s": round(report.seconds, 1),
        "mb": peak() - held,
        "first_mb": opened - listed,
        "more_mb": peak() - opened,
        "bytes": size,
    }


def main() -> int:
    """Build it, and measure in processes of their own."""
    kinds = {"commits": 105_120, "files": 1, "version": 6}
    args = arguments(__doc__, **{name: {"type": int, "default": usual} for name, usual in kinds.items()})
    if args.way:
        print(json.dumps({"open": measure, "archive": archive}[args.way](json.loads(args.job)["at"])), flush=True)
        return 0
    print(f"{machine()}; load {load()}", flush=True)
    verdict = Verdict()
    with workplace(args.at) as place:
        build(place / "t", args.commits, args.files, args.version)
        at = str(place / "t")
        before, done = fresh(__file__, "open", at=at), fresh(__file__, "archive", at=at)
        after = min((fresh(__file__, "open", at=at) for _ in range(3)), key=lambda each: each["s"])
    print(before, done, after, sep="\n")
    verdict.check(f"{args.commits:,} commits: open", f"< {OPEN:g} s", f"{before['s']} s, {before['mb']} MB", before["s"] < OPEN)
    told = f"{done['archive_s']} s, {done['mb']} MB, {done['bytes'] / 1e6:,.1f} MB in archives"
    verdict.check(f"{done['instants']:,} of them archived", "told", told, done["instants"] == args.commits - KEEP)
    first = "what the first look at them holds beyond the timeline"
    verdict.check(first, f"< {MORE} MB", f"{done['first_mb']} MB", done["first_mb"] < MORE)
    verdict.check("what that holds beyond the timeline", f"< {MORE} MB", f"{done['more_mb']} MB", done["more_mb"] < MORE)
    verdict.check("then: open", f"< {OPEN:g} s", f"{after['s']} s, {after['mb']} MB", after["s"] < OPEN)
    return verdict.end()


if __name__ == "__main__":
    sys.exit(main())
