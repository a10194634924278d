"""A table in a directory whose commits are laid by hand: runs as a sort and a lookup would leave them, then targets, files, the instant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from hudi import HudiQueryType, HudiReadOptions, HudiTableBuilder

import quire
from quire.commit import names as own
from quire.commit.committers import choice, committer
from quire.commit.entries import Coverage, Stats, Task
from quire.storage import canonical, connect
from quire.storage.within import marked
from quire.table import file_groups, timeline
from quire.table.format import names
from quire.table.format.commits import encode
from quire.table.format.config import TableConfig
from quire.table.format.schema import storable
from quire.table.settings import Settings
from quire.table.table import Table
from quire.table.write import commit
from quire.table.write.blocks import DELETES, KEY, BlockWriter, Closing, Run
from quire.table.write.output import Work
from quire.table.write.targets import Target, row_size, targets
from quire.table.write.write import Written, write

JOB, TASK = f"0-{7:016x}", 3
Row = dict[str, Any]  # with "key", "p" (the partition), and "deletes" where it deletes


class Hand:
    """`columns`: those of the table; each commit may have others of them."""

    def __init__(self, url: Any, columns: pa.Schema, *, target_size: int = 1 << 20, change_files: bool = True, **settings: Any) -> None:
        self.url, self.columns, self.target_size = canonical(url), columns, target_size
        self.config = TableConfig(name="t", key=("key",), **{"partition_by": ("p",), "hive_style": False, **settings})
        self.change_files, store = change_files, connect(marked(self.url))
        store.put(names.PROPERTIES, self.config.to_properties())
        self.closing = Closing(marked(self.url), None, JOB, TASK, own.new_id(), choice("auto", store), self.config)
        self.number = 0

    @property
    def store(self) -> Any:
        return self.closing.store

    # -------------------------------------------------------------------------------------------------------------- its steps
    def runs(self, rows: Sequence[Row], *, groups: dict[tuple[str, str], str] | None = None, most: int = 1 << 30) -> list[Run]:
        """Runs of up to `most` rows, of one partition and file group each."""
        groups = self.groups() if groups is None else groups
        ordered = sorted(rows, key=lambda row: (row["p"], groups.get((row["p"], row["key"]), ""), row["key"].encode()))
        if not ordered:
            return []
        schema = pa.schema([*self.columns, (KEY, pa.string()), (DELETES, pa.bool_())])
        name = self.closing.new_block()
        writer, found = BlockWriter(self.store.create(name), schema), list[Run]()
        part = list[Row]()

        def place(row: Row) -> tuple[str, str]:
            return row["p"], groups.get((row["p"], row["key"]), "")

        for i, row in enumerate(ordered):
            part.append(row)
            if i + 1 == len(ordered) or len(part) == most or place(ordered[i + 1]) != place(row):
                said = [{**r, KEY: r["key"], DELETES: r.get("deletes", False)} for r in part]
                batch = pa.RecordBatch.from_pylist(said, schema)
                partition, group = place(row)
                first, last, gone = part[0]["key"], part[-1]["key"], sum(r[DELETES] for r in said)
                found.append(Run(name, writer.add(batch), partition, len(part), gone, batch.nbytes, first, last, group))
                part = []
        writer.close()
        return found

    def targets(self, runs: Iterable[Run], **settings: Any) -> list[Target]:
        line = timeline.read(self.store)
        return targets(list(runs), file_groups.newest(self.store, line), self.target_size, row_size(line), **settings)

    def write(self, found: Sequence[Target], instant: str, runner: Any = None) -> list[Written]:
        work = Work(self.closing, instant, storable(self.columns), Settings(change_files=self.change_files))
        return write(runner or quire.LocalRunner(), work, found)

    def publish(self, written: Sequence[Written], instant: str, operation: str = "upsert") -> None:
        by, files = committer(self.closing.committer, self.store), commit.files(written)
        task = Task(task=TASK, attempt=self.closing.attempt, data_files=files, coverage=Coverage(), stats=Stats())
        assert all(by.publish(self.store, JOB, task, file) for file in files)
        for name, content in commit.partitions({each.partition for each in written if each.file}, instant).items():
            self.store.put_if_absent(name, content)
        for state in ("requested", "inflight"):
            self.store.put_if_absent(f"{names.FOLDER}/{names.Instant(instant, 'commit', state).name}", b"")  # type: ignore[arg-type]
        content = encode(commit.metadata(written, self.config.name, self.columns, operation))
        self.store.put_if_absent(f"{names.FOLDER}/{instant}.commit", content)

    # ---------------------------------------------------------------------------------------------------------- all of them
    def commit(self, rows: Sequence[Row], *, most: int = 1 << 30, operation: str = "upsert", **settings: Any) -> list[Written]:
        instant = self.next()
        groups: Any = {} if "insert" in operation else None
        written = self.write(self.targets(self.runs(rows, most=most, groups=groups), **settings), instant)
        self.publish(written, instant, operation)
        return written

    def next(self) -> str:
        """An instant, and an attempt of its own."""
        self.number += 1
        self.closing = replace(self.closing, attempt=own.new_id())
        return f"20261122{10 + self.number // 3600:02d}{self.number // 60 % 60:02d}{self.number % 60:02d}000"

    # ------------------------------------------------------------------------------------------------------------ what it holds
    def snapshot(self) -> pa.Table:
        return Table(self.url).snapshot(spark=quire.LocalRunner())

    def rows(self) -> dict[tuple[str, str], Row]:
        """(partition, key) → the row."""
        found = self.snapshot()
        rows = found.select([f.name for f in self.columns]).to_pylist() if found.num_columns else []
        assert len({(row["p"], row["key"]) for row in rows}) == len(rows)
        return {(row["p"], row["key"]): row for row in rows}

    def groups(self) -> dict[tuple[str, str], str]:
        """(partition, key) → file group, as a lookup finds it."""
        line = timeline.read(self.store)
        if not line.completed:
            return {}
        found = self.snapshot().select(["_hoodie_partition_path", KEY, "_hoodie_file_name"]).to_pylist()
        return {tuple(row.values())[:2]: row["_hoodie_file_name"].partition("_")[0] for row in found}  # type: ignore[misc]

    def theirs(self, **since: str) -> dict[tuple[str, str], Row]:
        """The same rows, as hudi-rs reads them: `at` an instant, or those that were changed since its `start` and are there."""
        options = HudiReadOptions().with_as_of_timestamp(since["at"]) if "at" in since else HudiReadOptions()
        if "start" in since:
            options = options.with_query_type(HudiQueryType.Incremental).with_start_timestamp(since["start"])
        table = HudiTableBuilder.from_base_uri(str(Path(self.url.removeprefix("file://")))).build()
        rows = [row for batch in table.read(options) for row in pa.record_batch(batch).to_pylist()]
        assert len({(row["p"], row["key"]) for row in rows}) == len(rows)
        return {(row["p"], row["key"]): {f.name: row[f.name] for f in self.columns} for row in rows}
