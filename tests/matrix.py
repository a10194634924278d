"""Pipeline × committer × kind of store, each disturbed in every way there is: `make matrix`, or `python tests/matrix.py --help`.

A new pipeline or committer is a line in a table here, a kind of store one in `sim/kinds.py`, a real service one in
`services/kinds.py`; the tests read the same tables.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

import quire
import sim
from gathering import tar, zipped
from quire import committers, storage
from quire.commit import archive
from quire.engine import driver, request
from quire.engine.kinds import reading, together
from quire.errors import StorageError
from quire.progress import Progress
from quire.sources.transforms.text import chunks
from quire.storage import local
from services.kinds import SERVICES, running
from sim import load_races, loads, races, table_races, tables, ways
from sim.ways import By, Case, Finding, Pipeline


def documents(tree: sim.Tree, n: int = 12, xml: bool = False) -> None:
    """Small files in three directories: an empty one, one without a newline at its end, one longer than the target; XML: broken ones."""
    for i in range(n):
        name = f"d{i % 3}/f{i:02}"
        if xml:
            tree.put(f"{name}.xml", f"<d n='{i}'><v>{i * i}</v></d>".encode() if i % 4 else b"" if i == 4 else b"<d n='%d'>BROKEN" % i)
        else:
            long = 300 if i == 7 else 30 if i % 2 else 60
            tree.put(f"{name}.txt", b"" if i == 4 else f"file {i:02} line\n".encode() * (long // 12) + (b"the end" if i == 5 else b""))


def few(tree: sim.Tree) -> None:
    """The smallest job with two tasks and an empty file."""
    for i, content in enumerate((b"one line\n", b"", b"another line\n")):
        tree.put(f"f{i}.txt", content)


def consolidate(**options: Any) -> Callable[[str, str, str], quire.Report]:
    """One call of `quire.consolidate`."""

    def work(source: str, dest: str, committer: str) -> quire.Report:
        return quire.consolidate(
            source, dest, max_quarantined=1000, spark=quire.LocalRunner(), progress=False, committer=committer, **options
        )

    return work


def _xml(tree: sim.Tree) -> None:
    documents(tree, xml=True)


def _gzip(tree: sim.Tree) -> None:
    for i, lines in enumerate((b"one line\n", b"", b"a line\nand one without end", b"member\n")):
        tree.put(f"d{i % 2}/f{i}.gz", gzip.compress(lines, mtime=0) * (1 + i // 3))


def _archives(tree: sim.Tree) -> None:
    """Archives whose members go into several data files, with one whose name leads elsewhere, and a file beside them."""
    members = {"a": b"one line\n", "b": b"", "c": b"a line\nand one without end", "../d": b"nowhere\n", "e": b"another\n"}
    tree.put("f0.zip", zipped(members))
    tree.put("d1/f1.tar", tar(members))
    tree.put("d0/f3.tar.gz", gzip.compress(tar(members), mtime=0))
    tree.put("d1/f2", b"plain\n")


def _columns(kind: str) -> Callable[[sim.Tree], None]:
    """Files of a kind that holds columns, one of which is wider in some of them; the first one has no rows."""

    def fill(tree: sim.Tree) -> None:
        for i, wide in enumerate((pa.int32(), pa.int64(), pa.int32())):
            name = f"d{i % 2}/f{i}.{kind}"
            path, content = pa.array([f"{tree.url}/{name}"] * i, pa.string()), pa.array([b"row %d\n" % n for n in range(i)], pa.binary())
            tree.put(name, _encoded(kind, pa.table({"path": path, "content": content, "n": pa.array(range(i), wide)})))

    return fill


def _encoded(kind: str, rows: pa.Table) -> bytes:
    sink = io.BytesIO()
    if kind == "avro":
        names = {"int32": "int", "int64": "long", "string": "string", "binary": "bytes"}
        fields = [{"name": field.name, "type": ["null", names[str(field.type)]]} for field in rows.schema]
        fastavro.writer(sink, {"type": "record", "name": "row", "fields": fields}, rows.to_pylist(), sync_marker=b"always the same!")
    else:
        {"parquet": pq.write_table, "orc": orc.write_table}[kind](rows, sink)
    return sink.getvalue()


def _growing(tree: sim.Tree) -> None:
    """Files of which those in the second directory have a column more, and a wider one."""
    for i in range(4):
        name, late = f"d{i % 2}/f{i}.parquet", i % 2 == 1
        rows = {"path": [f"{tree.url}/{name}"] * 3, "content": [b"row %d of %d\n" % (n, i) for n in range(3)]}
        rows |= {"n": pa.array(range(3), pa.int64() if late else pa.int32())} | ({"more": ["x", None, "y"]} if late else {})
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table(rows), sink)
        tree.put(name, sink.getvalue().to_pybytes())


TEXT = "path string, content string, n long"


def _csv(tree: sim.Tree) -> None:
    """Files of two headers, one of them with a record that does not fit, and one without any record."""
    for i, names in enumerate(("path,content,n", "n,path,content", "path,content,n")):
        name = f"d{i % 2}/f{i}.csv"
        values = [{"path": f"{tree.url}/{name}", "content": f"row\n{n}", "n": "x" if (i, n) == (2, 1) else n} for n in range(i and 3)]
        rows = (",".join(f'"{row[key]}"' for key in names.split(",")) + "\n" for row in values)
        tree.put(name, f"{names}\n{''.join(rows)}".encode())


def _jsonl(tree: sim.Tree) -> None:
    for i in range(3):
        name = f"d{i % 2}/f{i}.jsonl"
        values = ({"path": f"{tree.url}/{name}", "content": f"row {n}", "n": "x" if (i, n) == (2, 1) else n} for n in range(i and 3))
        tree.put(name, "".join(json.dumps(row) + "\n" for row in values).encode())


def _long(tree: sim.Tree) -> None:
    """Files of many chunks: a good one, one with a record that does not fit, and one that turns out to be of no use in a late chunk."""
    for i, name in enumerate(("d0/f0.jsonl", "d1/f1.jsonl.gz", "d0/f2.jsonl", "d1/f3.jsonl")):
        values = ({"path": f"{tree.url}/{name}", "content": f"row {n}\n", "n": "x" if (i, n) == (2, 5) else n} for n in range(9))
        rows = "".join(json.dumps(row) + "\n" for row in values) + ("BROKEN" * 100 if i == 3 else "")
        tree.put(name, gzip.compress(rows.encode(), mtime=0) if name.endswith(".gz") else rows.encode("utf-16" if i == 3 else "utf-8"))


def streams(source: str, dest: str, committer: str) -> quire.Report:
    """All files are long: they go through chunk by chunk, into several row groups."""
    work = consolidate(
        transform="jsonl", schema=TEXT, planner="directory", target_size="64 KiB", max_file_size="400 B",
        parquet_options={"row_group_size": 2},
    )  # fmt: skip
    with patch.object(chunks, "HELD", 1), patch.object(chunks, "CHUNK", 150), patch.object(together, "BYTES", 8):
        report: quire.Report = work(source, dest, committer)
    return report


# ------------------------------------------------------------------------------------------------- what changes a ledger
HERE: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False}


def _verbs(dest: str) -> set[str]:
    """Which verbs are in the log: a script that is started again does not repeat what is done."""
    return set(quire.Ledger(dest).inspect.history()["verb"])


def forgets(source: str, dest: str, committer: str) -> None:
    """Gather, forget a directory, gather it again, delete what nobody reads any more."""
    first = consolidate(transform="lines", target_size="250 B")
    first(source, dest, committer)
    ledger = quire.Ledger(dest)
    if "forget" not in _verbs(dest):
        ledger.forget(f"{source}/d1", committer=committer, **HERE)
        first(source, dest, committer)
    ledger.expire()


def compacts(source: str, dest: str, committer: str) -> None:
    """Gather in two calls, merge, delete what nobody reads any more."""
    consolidate(transform="lines", target_size="60 B", include="d0/*")(source, dest, committer)
    consolidate(transform="lines", target_size="60 B")(source, dest, committer)
    ledger = quire.Ledger(dest)
    ledger.compact("1000 B", committer=committer, **HERE)
    ledger.expire()


def grows(source: str, dest: str, committer: str) -> None:
    """Gather files, gather others that have more columns, write all rows again with all of these, delete what nobody reads any more."""
    consolidate(transform="parquet", include="d0/*", target_size="64 KiB")(source, dest, committer)
    consolidate(transform="parquet", schema_evolution="add", target_size="64 KiB")(source, dest, committer)
    ledger = quire.Ledger(dest)
    ledger.compact("64 KiB", committer=committer, **HERE)
    ledger.expire()


def checkpoints(source: str, dest: str, committer: str) -> None:
    """Gather in two calls, merge the ledger after each, change what the first checkpoint holds, and merge once more."""
    consolidate(transform="lines", target_size="120 B", include="d0/*")(source, dest, committer)
    ledger = quire.Ledger(dest)
    ledger.checkpoint(spark=HERE["spark"])
    consolidate(transform="lines", target_size="250 B")(source, dest, committer)
    ledger.compact("1000 B", committer=committer, **HERE)
    ledger.checkpoint(spark=HERE["spark"])
    ledger.expire(grace="30000 days")  # the witness folds from the segments


def maintains(source: str, dest: str, committer: str) -> None:
    """Gather in two calls, merge small files, then the ledger, and archive the entries of the log that no version needs."""
    consolidate(transform="lines", target_size="60 B", include="d0/*")(source, dest, committer)
    consolidate(transform="lines", target_size="60 B")(source, dest, committer)
    ledger, settings = quire.Ledger(dest), {"small_files": 2, "small_share": 0.0, "target_size": "1000 B", "grace": "30000 days"}
    ledger.maintain(committer=committer, **settings, **HERE)
    ledger.checkpoint(spark=HERE["spark"])
    ledger.expire(grace=settings["grace"])  # the witness folds from the segments
    ledger.maintain(committer=committer, **settings, **HERE)


def retries(source: str, dest: str, committer: str) -> None:
    """Quarantined what is too long, then take it after all."""
    consolidate(transform="xml", target_size="100 B", max_file_size="25 B")(source, dest, committer)
    quire.Ledger(dest).retry(source, committer=committer, max_quarantined=1000, **HERE)


def tries_again(source: str, dest: str, committer: str) -> None:
    """Quarantined what is too long, then a run that takes it after all, and gathers in bounded commits."""
    consolidate(transform="xml", target_size="100 B", max_file_size="25 B")(source, dest, committer)
    consolidate(transform="xml", target_size="100 B", retry_quarantined="0 s", max_attempts=50, max_files=1)(source, dest, committer)


def supersedes(source: str, dest: str, committer: str) -> None:
    """Gather, find files rewritten, take their new content."""
    consolidate(transform="lines", target_size="100 B")(source, dest, committer)
    for name, content in (("d0/f03.txt", b"rewritten\n"), ("d1/f04.txt", b"not empty any more\n"), ("d2/f05.txt", b"")):
        sim.Tree.of[source].put(name, content)
    consolidate(transform="lines", target_size="100 B", on_change="reprocess")(source, dest, committer)
    quire.Ledger(dest).expire()


def purges(source: str, dest: str, committer: str) -> None:
    """Gather, delete the sources, gather a new file of an old name and its next version, merge, delete it, and then what nobody reads."""
    tree, gather = sim.Tree.of[source], consolidate(transform="lines", target_size="60 B", on_change="reprocess")
    gather(source, dest, committer)
    ledger, which = quire.Ledger(dest), f"{source}/d0"
    if len(tree.versions(f"{which}/f0")) == 1:
        ledger.purge_sources(which, dry_run=False, min_age=0, spark=HERE["spark"])
        for content in (b"a new one\n", b"and that again\n"):
            tree.put("d0/f0", content)
            gather(source, dest, committer)
    if "compact" not in _verbs(dest):
        ledger.refresh().compact("1000 B", committer=committer, **HERE)
    ledger.purge_sources(which, dry_run=False, min_age=0, spark=HERE["spark"])
    ledger.expire()


def _daily(tree: sim.Tree) -> None:
    for name, content in (("d0/f0", b"the first\n"), ("d0/f1", b"another one, and longer\n" * 3), ("d1/f2", b"stays\n")):
        tree.put(name, content)


# What files become, one content after the other: by a line, by a half, by nothing, from nothing; and once more, to a line without end.
GROWTH: tuple[dict[str, bytes], ...] = (
    {
        "d0/a": b"one\n",
        "d0/b": b"half of",
        "d1/c": b"stays\n",
        "d1/d": b"",
        "d1/e": b"a line that is longer than the target\n" * 3,
    },
    {"d0/a": b"two\n", "d0/b": b" a line", "d1/c": b"", "d1/d": b"first", "d1/e": b"end\nhal"},
    {"d0/a": b"three\nfo", "d0/b": b", and its end\n", "d1/d": b" line\nsecond\nno end", "d1/e": b"f"},
)


def _logs(tree: sim.Tree) -> None:
    for name, content in GROWTH[0].items():
        tree.put(name, content)


def tails(source: str, dest: str, committer: str) -> None:
    """Gather files that are written to: they grow, their new ends are gathered, they grow once more, and last lines are taken, too.

    A script that is started again goes on with what the source has become by then.
    """
    tree, age = sim.Tree.of[source], 0
    while True:
        last = age == len(GROWTH) - 1
        if last or len(tree.content("d0/a")) < len(_grown("d0/a", age + 1)):
            partial = "take" if last else "hold"
            consolidate(transform="lines", target_size="60 B", on_append="tail", partial_lines=partial)(source, dest, committer)
        if last:
            return
        age += 1
        if len(tree.content("d0/a")) < len(_grown("d0/a", age)):
            for name in GROWTH[age]:
                tree.put(name, _grown(name, age))


def _grown(name: str, age: int) -> bytes:
    return b"".join(of.get(name, b"") for of in GROWTH[: age + 1])


# Of JSON lines: how many of a file's bytes are there, one after the other. One ends within a line, the last one without a newline.
OF_ROWS = {"d0/a.jsonl": (300, 740, -1), "d1/b.jsonl": (0, 470, -1)}


def _rows(tree: sim.Tree, name: str, age: int) -> bytes:
    values = ({"path": f"{tree.url}/{name}", "content": f"row {n}\n", "n": "x" if n in (1, 7) else n} for n in range(12))
    return "".join(json.dumps(row) + "\n" for row in values).encode()[: OF_ROWS[name][age]]


def _growing_rows(tree: sim.Tree) -> None:
    for name in OF_ROWS:
        tree.put(name, _rows(tree, name, 0))


def follows(source: str, dest: str, committer: str) -> None:
    """The same as `tails` of JSON lines, of which all that is new is long: it goes through chunk by chunk."""
    tree, how = sim.Tree.of[source], {"transform": "jsonl", "schema": TEXT, "target_size": "64 KiB", "on_append": "tail"}
    for age in range(3):
        if len(tree.content("d0/a.jsonl")) > len(_rows(tree, "d0/a.jsonl", age)):
            continue  # a script that is started again
        for name in OF_ROWS:
            if len(tree.content(name)) < len(_rows(tree, name, age)):
                tree.put(name, _rows(tree, name, age))
        with (
            patch.object(chunks, "HELD", 1), patch.object(chunks, "CHUNK", 150), patch.object(chunks, "RANGE", 1),
            patch.object(reading, "APPENDED", 1), patch.object(local, "WHOLE", 1),
        ):  # fmt: skip
            consolidate(**how, partial_lines="take" if age == 2 else "hold")(source, dest, committer)


def shouted(split: quire.Split, content: bytes) -> bytes:
    """Lines in capitals; one that begins with a minus is rejected."""
    kept, at = list[bytes](), 0
    for line in content.splitlines(True):
        if line.startswith(b"-"):
            split.quarantine(line.rstrip(b"\n"), "it begins with a minus", at)
        else:
            kept.append(line.rstrip(b"\n").upper())
        at += len(line)
    return b"".join(line + b"\n" for line in kept)


def processes(source: str, dest: str, committer: str) -> None:
    """Run a function on ranges of lines, then on others; try what it rejected again, merge, delete what nobody reads any more."""
    for size in ("23 B", "50 B"):
        more = {"format": "lines", "max_quarantined": 1000, "committer": committer}
        quire.process(source, dest, shouted, split="lines", split_size=size, target_size="60 B", **more, **HERE)
    ledger = quire.Ledger(dest)
    if "retry" not in _verbs(dest):
        ledger.retry(source, function=shouted, committer=committer, max_quarantined=1000, **HERE)
    if "compact" not in _verbs(dest):
        ledger.compact("1000 B", committer=committer, **HERE)
    ledger.expire()


def routed(split: quire.Split, content: bytes) -> list[dict[str, Any]]:
    """A row for each line, which goes into a directory by its length; one that begins with a minus is rejected."""
    found, at = list[dict[str, Any]](), 0
    for line in content.splitlines(True):
        bare = line.rstrip(b"\n")
        if bare.startswith(b"-"):
            split.quarantine(bare, "it begins with a minus", at)
        else:
            found.append({"path": split.path, "content": bare + b"\n", "way": len(bare) % 3})
        at += len(line)
    return found


def routes(source: str, dest: str, committer: str) -> None:
    """Let rows lie in directories by a column; forget a file and read it again, merge, delete what nobody reads any more."""
    more: dict[str, Any] = {"schema": "path string, content binary, way long", "partition_by": "way", "split": "lines", **HERE}
    for again in (False, True):
        quire.process(source, dest, routed, split_size="15 B", target_size="64 KiB", max_quarantined=1000, committer=committer, **more)
        ledger = quire.Ledger(dest)
        if not again and "forget" not in _verbs(dest):
            ledger.forget(f"{source}/f0.txt", committer=committer, **HERE)
    if "compact" not in _verbs(dest):
        ledger.compact("64 KiB", committer=committer, **HERE)
    ledger.refresh().expire()


def _records(tree: sim.Tree) -> None:
    for i, content in enumerate(
        (b"one\n-bad\nlast of it", b"", b"-first\nand more lines\nof it\n", b"a line that is long, longer than two splits are\n-x\n", b"-")
    ):
        tree.put(f"f{i}.txt", content)


def reprocesses(source: str, dest: str, committer: str) -> None:
    """Run a function, find files rewritten, one so that nothing of it can be taken: its old rows stay. It lies in several tasks."""
    more: dict[str, Any] = {"split": "lines", "split_size": "15 B", "target_size": "8 B", **HERE}
    for content in ({}, {"f1.txt": b"-some\nof it\n", "f0.txt": b"-all\n-of it, in two splits\n"}):
        for name, rewritten in content.items():
            if len(sim.Tree.of[source].versions(f"{source}/{name}")) == 1:
                sim.Tree.of[source].put(name, rewritten)
        quire.process(source, dest, shouted, format="lines", on_change="reprocess", max_quarantined=1000, committer=committer, **more)
        sim.Tree.of[source].called()
    quire.Ledger(dest).expire()


def _two(tree: sim.Tree) -> None:
    tree.put("f0.txt", b"one\n-bad\nlast of it")
    tree.put("f1.txt", b"short\n")


# ----------------------------------------------------------------------------------- what is written for all splits of a job at once
def in_order(rows: pa.Table) -> pa.Table:
    """The rows of all files together."""
    return rows.sort_by([("content", "descending"), ("path", "ascending")])


def shuffles(source: Any, dest: str, committer: str) -> None:
    """Gather, all rows through one function."""
    plain = request.build(source, dest, transform="raw", format="parquet", planner="directory", target_size="400 B", committer=committer)
    driver.gather(request.reducing(plain, in_order), quire.LocalRunner(), Progress(False))


def claims(source: Any, dest: str, committer: str) -> None:
    """A job of the user's own, which writes a file for each split; an error of its own says in its own words what to do."""
    with quire.Ledger(dest, create=True).claim(source=source, **HERE) as c:
        try:
            for i, path in enumerate(c.splits.column("path").to_pylist()):
                folder, _, name = path.rpartition("/")
                out = pa.BufferOutputStream()
                pq.write_table(pa.table({"path": [path], "content": [storage.connect(folder).get(name)]}), out)
                storage.connect(c.path).put(f"part-{i}.snappy.parquet", out.getvalue().to_pybytes())
        except StorageError as e:
            raise StorageError(f"{e}. Call again.") from e


def writes(source: str, dest: str, committer: str) -> None:
    """A program of the user's own that makes the article's calls: a task for each file of the source, whose content it writes."""
    store = storage.connect(source)
    found = sorted(e.name for e in store.walk())

    def write(task: committers.TaskAttempt) -> None:
        with task.create(found[task.task]) as file:
            file.write(store.get(found[task.task]))

    committers.run(write, dest, tasks=len(found), name="nightly", committer=committer, spark=quire.LocalRunner())


def _four(tree: sim.Tree) -> None:
    for i, content in enumerate((b"one line\n", b"", b"another line\n", b"one line\n")):
        tree.put(f"d{i % 2}/f{i}", content)


def _small_xml(tree: sim.Tree) -> None:
    for i, content in enumerate((b"<a>short</a>", b"<a>" + b"x" * 30 + b"</a>", b"<a>BROKEN", b"<a n='2'>" + b"y" * 40 + b"</a>")):
        tree.put(f"f{i}.xml", content)


OF_TABLES = ("rename", "upload")  # their committers show nothing early; a call takes the one that fits
PIPELINES = {
    pipeline.name: pipeline
    for pipeline in (
        Pipeline("few", "lines", few, consolidate(transform="lines", target_size="16 B")),
        Pipeline("lines", "lines", documents, consolidate(transform="lines", target_size="250 B")),
        Pipeline("bounded", "lines", documents, consolidate(transform="lines", target_size="100 B", max_files=5, max_bytes="250 B")),
        Pipeline("raw+gzip", "raw", documents, consolidate(transform="raw", compression="gzip", target_size="80 B")),
        Pipeline("parquet", "raw", documents, consolidate(transform="raw", format="parquet", planner="directory", target_size="64 KiB")),
        Pipeline("xml", "xml", _xml, consolidate(transform="xml", target_size="100 B")),
        Pipeline("gzip", "gzip", _gzip, consolidate(transform="lines", target_size="30 B")),
        Pipeline("archives", "archives", _archives, consolidate(transform="lines", archives=True, target_size="30 B")),
        Pipeline("columns", "columns", _columns("parquet"), consolidate(transform="parquet", planner="directory", target_size="64 KiB")),
        Pipeline("orc", "columns", _columns("orc"), consolidate(transform="orc", planner="directory", target_size="64 KiB")),
        Pipeline("avro", "columns", _columns("avro"), consolidate(transform="avro", planner="directory", target_size="64 KiB")),
        Pipeline("growing", "columns", _growing, grows),
        Pipeline("csv", "rows", _csv, consolidate(transform="csv", schema=TEXT, planner="directory", target_size="64 KiB")),
        Pipeline("csv lines", "csv", _csv, consolidate(transform="csv", format="lines", schema=TEXT, target_size="60 B")),
        Pipeline("jsonl", "rows", _jsonl, consolidate(transform="jsonl", schema=TEXT, planner="directory", target_size="64 KiB")),
        Pipeline("streamed", "rows", _long, streams),
        Pipeline("directories", "lines", documents, consolidate(transform="lines", layout="directories", target_size="250 B")),
        Pipeline("forget", "lines", documents, forgets),
        Pipeline("compact", "lines", documents, compacts),
        Pipeline("checkpoint", "lines", documents, checkpoints),
        Pipeline("maintain", "lines", documents, maintains),
        Pipeline("retry", "xml", _small_xml, retries),
        Pipeline("retrying", "xml", _small_xml, tries_again),
        Pipeline("supersede", "lines", documents, supersedes),
        Pipeline("purge", "lines", _daily, purges, edits=True),
        Pipeline("tails", "lines", _logs, tails, grows=True),
        Pipeline("streamed tails", "rows", _growing_rows, follows, grows=True),
        Pipeline("process", "records", _records, processes),
        Pipeline("routes", "routed", _two, routes),
        Pipeline("by path", "lines", documents, consolidate(transform="lines", partition_by="path[0] as way", target_size="250 B")),
        Pipeline("reprocess", "records", _two, reprocesses, edits=True),
        Pipeline("shuffle", "shuffle", _four, shuffles),
        Pipeline("claim", "claim", _four, claims, ("rename", "copy")),
        Pipeline("write", "write", few, writes),
        Pipeline("load", "load", loads.fill, loads.once, grows=True),
        Pipeline("loads", "load", loads.fill, loads.again, grows=True),
        Pipeline("distinct loads", "distinct", loads.fill, loads.distinct, grows=True),
        Pipeline("table insert", "", few, tables.calls(*tables.INSERTS), OF_TABLES, states=tables.states(*tables.INSERTS)),
        Pipeline("table upsert", "", few, tables.calls(*tables.UPSERTS), OF_TABLES, states=tables.states(*tables.UPSERTS)),
        Pipeline("table delete", "", few, tables.calls(*tables.DELETES), OF_TABLES, states=tables.states(*tables.DELETES)),
        Pipeline("table logs", "", few, tables.calls(*tables.LOGS, logs=True), OF_TABLES, states=tables.states(*tables.LOGS)),
        Pipeline(
            "table compaction", "", few, tables.calls(*tables.COMPACTION, logs=True), OF_TABLES, states=tables.states(*tables.COMPACTION)
        ),
        Pipeline("table cdc", "", few, tables.calls(*tables.CDC, cdc=True), OF_TABLES, states=tables.states(*tables.CDC)),
        Pipeline(
            "table cdc of version 9", "", few, tables.calls(*tables.CDC, cdc=True, nine=True), OF_TABLES, states=tables.states(*tables.CDC)
        ),
        Pipeline("table clean", "", few, tables.calls(*tables.CLEANS), OF_TABLES, states=tables.states(*tables.CLEANS)),
        Pipeline("table of version 9", "", few, tables.calls(*tables.NINE, nine=True), OF_TABLES, states=tables.states(*tables.NINE)),
        Pipeline(
            "table logs of version 9",
            "",
            few,
            tables.calls(*tables.LOGS_OF_NINE, logs=True, nine=True),
            OF_TABLES,
            states=tables.states(*tables.LOGS_OF_NINE),
        ),
        Pipeline("table cluster", "", few, tables.calls(*tables.CLUSTERS, logs=True), OF_TABLES, states=tables.states(*tables.CLUSTERS)),
        Pipeline(
            "table archive of version 9",
            "",
            few,
            tables.calls(*tables.ARCHIVES, nine=True),
            OF_TABLES,
            states=tables.states(*tables.ARCHIVES),
        ),
        Pipeline(
            "table restore of version 9",
            "",
            few,
            tables.calls(*tables.RESTORES, nine=True),
            OF_TABLES,
            states=tables.states(*tables.RESTORES),
        ),
        Pipeline("table archive", "", few, tables.calls(*tables.ARCHIVES), OF_TABLES, states=tables.states(*tables.ARCHIVES)),
        Pipeline("table restore", "", few, tables.calls(*tables.RESTORES), OF_TABLES, states=tables.states(*tables.RESTORES)),
        Pipeline("table rollback", "", few, tables.calls(*tables.ROLLBACKS, logs=True), OF_TABLES, states=tables.states(*tables.ROLLBACKS)),
        Pipeline("table replace", "", few, tables.calls(*tables.REPLACES, logs=True), OF_TABLES, states=tables.states(*tables.REPLACES)),
        Pipeline("table load", "", loads.fill, tables.load, OF_TABLES, grows=True, states=tables.loaded),
        Pipeline("table process", "", few, tables.process, OF_TABLES, states=tables.processed),
    )
}
COMMITTERS = {
    by.name: by
    for by in (
        By("rename", needs="rename"),
        By("rename_v2", needs="rename", leaks=True),
        By("upload", needs="upload"),
        By("copy", needs="copy"),
    )
}
KINDS = sim.KINDS
PAIRS = ("few",)  # jobs that are small enough for every pair of crashes; of the others a sample is taken
OF_SERVICES = ("few", "lines", "parquet")  # a real service takes its time: the small job at each request, others and tables at some


def fit(by: By, kind: sim.Kind) -> bool:
    return by.needs in kind.offers


def cases(
    pipelines: Iterable[str] = PIPELINES, committers: Iterable[str] = COMMITTERS, kinds: Iterable[str | sim.Kind] = KINDS
) -> list[Case]:
    """The lines of the matrix; what a store has no way for is left out."""
    of = [kind if isinstance(kind, sim.Kind) else KINDS[kind] for kind in kinds]
    found = [(PIPELINES[p], COMMITTERS[c], k) for k in of for c in committers for p in pipelines]
    return [
        Case(p, c, sim.of_tables(k) if p.states else k) for p, c, k in found if fit(c, k) and (not p.committers or c.name in p.committers)
    ]


@dataclass
class Line:
    """What was tried, and what was found."""

    said: str
    counts: dict[str, int] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    seconds: float = 0.0

    COLUMNS = ("operations", "crashes", "pairs", "answers", "expired", "full", "power", "races")

    def __str__(self) -> str:
        numbers = "".join(f"{self.counts.get(c, '–'):>11}" for c in self.COLUMNS)
        return f"{self.said:<34}{numbers}{len(self.findings):>10}{self.seconds:>9.1f}"

    @classmethod
    def header(cls) -> str:
        return f"{'pipeline × committer × kind':<34}{''.join(f'{c:>11}' for c in cls.COLUMNS)}{'findings':>10}{'CPU s':>9}"

    def tried(self, column: str, play: Callable[[], object]) -> None:
        self.counts[column] = self.counts.get(column, 0) + 1
        try:
            play()
        except Finding as e:
            self.findings.append(str(e))


def line(case: Case, thorough: bool = True, most: int = 0, seed: int = 0) -> Line:
    """One line of the matrix. `most`: of a column with more scenarios so many are drawn, others with another seed."""
    case.fill()
    found, began, rng = Line(str(case)), time.process_time(), random.Random(seed)
    try:
        found.counts["operations"] = len(case.steps())
    except AssertionError as e:
        found.findings.append(f"{case}: {e}")
        return found
    small = thorough and case.pipeline.name in PAIRS and not case.kind.real
    reads = thorough and not case.kind.real  # on a real one: the calls and requests that change something
    few = 20 if case.kind.service else 100
    for column, scenarios in (
        ("crashes", ways.crashes(case, reads)),
        ("pairs", ways.pairs(case) if small else ways.some_pairs(case, few if thorough else 5, seed=1)),
        ("answers", ways.answers(case)),
        ("expired", ways.expiries(case)),
        ("full", ways.full(case, 24 if thorough else 5)),
        ("power", ways.power(case)),
        ("power", ways.lasting(case)),
    ):
        for scenario in _drawn(scenarios, most, rng):
            found.tried(column, scenario)
            if len(found.findings) >= 3:
                break
    if case.by.leaks != bool(case.leaked):
        found.findings.append(f"{case}: readers of the directory saw uncommitted files {case.leaked} times")
    found.seconds = time.process_time() - began
    return found


def _drawn(scenarios: Iterable[Any], most: int, rng: random.Random) -> Iterable[Any]:
    """So many of them, or all."""
    return rng.sample(there := list(scenarios), min(most, len(there))) if most else scenarios


def sample(case: Case, n: int, seed: int) -> Line:
    """A line of the matrix of which only so many crashes, answers, expired uploads and pairs of crashes are drawn."""
    case.fill()
    found, began, rng = Line(f"{case}, seed {seed}"), time.process_time(), random.Random(seed)
    found.counts["operations"] = len(case.steps())
    for column, scenarios in (
        ("crashes", list(ways.crashes(case, reads=False))),
        ("answers", list(ways.answers(case))),
        ("expired", list(ways.expiries(case))),
        ("pairs", list(ways.some_pairs(case, n, seed))),
    ):
        for scenario in rng.sample(scenarios, min(n, len(scenarios))):
            found.tried(column, scenario)
    found.seconds = time.process_time() - began
    return found


def race_lines(number: int, first: int = 0) -> Iterable[Line]:
    """So many interleavings, over all that fit; and of loaders, and of calls into a table, a quarter as many."""
    fitting = [(by, kind) for by in COMMITTERS.values() for kind in KINDS.values() if fit(by, kind)]
    lines = {(who, *pair): Line(f"{who} × {pair[0].name} × {pair[1].name}") for who in ("races", "loaders", "tables") for pair in fitting}
    for seed in range(first, first + number):
        drawn_of: dict[str, tuple[Any, Callable[[Any], object]]] = {"races": (races.draw(seed, fitting), races.play)}
        if seed % 4 == 0:
            drawn_of["loaders"] = load_races.draw(seed, fitting), races.play
            drawn_of["tables"] = table_races.draw(seed, fitting), table_races.play
        for who, (drawn, play) in drawn_of.items():
            found, began = lines[who, drawn.by, drawn.kind], time.process_time()
            found.tried("races", lambda drawn=drawn, play=play: play(drawn))
            found.seconds += time.process_time() - began
    return lines.values()


def main(arguments: list[str]) -> int:
    """The whole matrix, or some of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--pipelines", nargs="+", choices=PIPELINES, default=list(PIPELINES))
    parser.add_argument("--committers", nargs="+", choices=COMMITTERS, default=list(COMMITTERS))
    parser.add_argument("--kinds", nargs="+", choices=[*KINDS, *SERVICES], default=[*KINDS, *SERVICES])
    parser.add_argument("--races", type=int, default=2_000, help="interleavings")
    parser.add_argument("--first", type=int, default=0, help="the first seed of them, and of what is drawn")
    parser.add_argument(
        "--most", type=int, default=40, help="scenarios of a column that are drawn for a table, whose jobs are long; 0: all"
    )
    parser.add_argument("--quick", action="store_true", help="changes only, and samples")
    chosen = parser.parse_args(arguments)
    archive.BLOCK = 4  # of the log's entries, so that short ones are archived, too
    began = os.times()
    print(Line.header(), flush=True)
    found: list[Line] = []

    def all_of(pipelines: Iterable[str], kinds: Iterable[str | sim.Kind]) -> None:
        for case in cases(pipelines, chosen.committers, kinds):
            whole = case.pipeline.name in PAIRS or not case.kind.service
            most = chosen.most if case.pipeline.states else 0
            found.append(
                line(case, not chosen.quick, most, chosen.first) if whole else sample(case, min(most or 20, 20), chosen.first or 1)
            )
            print(found[-1], flush=True)

    all_of(chosen.pipelines, [kind for kind in chosen.kinds if kind in KINDS])
    for name in [kind for kind in chosen.kinds if kind in SERVICES]:
        with running(name) as service:
            all_of([p for p in chosen.pipelines if p in OF_SERVICES or PIPELINES[p].states], [service])
    if chosen.races:
        for one in race_lines(chosen.races, chosen.first):
            found.append(one)
            print(one, flush=True)
    without = [kind for kind in chosen.kinds if kind in KINDS and not any(fit(COMMITTERS[by], KINDS[kind]) for by in chosen.committers)]
    if without:
        print(f"no committer fits: {', '.join(without)}")
    total = Line("all together", {c: sum(one.counts.get(c, 0) for one in found) for c in Line.COLUMNS})
    total.findings = [text for one in found for text in one.findings]
    ended = os.times()
    total.seconds = ended.user + ended.system - began.user - began.system
    print(total)
    for text in total.findings:
        print(f"\n{text}")
    return 1 if total.findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
