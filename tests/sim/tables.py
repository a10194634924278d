"""Tables for the matrix: the calls of a user, and readers of Hudi who know nothing of quire.

Readers look after each change: they see all of a commit or none of it, and what they have seen stays.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping
from contextlib import contextmanager
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

import quire
from quire import storage
from quire.commit import protocol
from quire.errors import StorageError
from quire.storage import Store
from quire.storage.within import marked
from quire.table import timeline
from quire.table.format import commits, log_content, log_file, names
from sim import loads
from sim.topics import RECORD, TOPICS
from sim.witness import Log, Observer, Tree

Rows = dict[str, int]  # key → n
States = list[Rows]  # what readers see, before the first commit and after each


class _Back(States):
    """The same where writes are taken back, one after the other: so many commits count at the end."""

    counted = 0


HERE: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False}
ROWS = pa.schema([("id", pa.string()), ("city", pa.string()), ("n", pa.int64())])
SETTINGS = (".hoodie/hoodie.properties", "_quire/table.entry", ".hoodie/timeline/.quire")  # of a table without any rows
FIRST = [("a", "sf", 1), ("b", "sf", 1), ("c", "la", 1)]
SECOND = [("b", "sf", 2), ("d", "ny", 2), ("c", "la", 2)]
_BASE = re.compile(r"(?:(.*)/)?([^/]+)_[0-9-]+_([0-9]{17})\.parquet")
_NINE = re.compile(r"\.hoodie/timeline/([0-9]{17})(?:_([0-9]{17}))?\.([a-z.]+)")
_MANIFEST = re.compile(r"\.hoodie/timeline/history/manifest_([0-9]+)")
_DONE = re.compile(r"\.hoodie/([0-9]{17})\.(commit|deltacommit|replacecommit)")
_CLEAN = re.compile(r"\.hoodie/(?:timeline/)?([0-9]{17})\.clean\.requested")
_CHANGES = re.compile(r"_quire/changes/([0-9]{17})/.*\.rows")
_PLAN = re.compile(r"\.hoodie/([0-9]{17})\.compaction\.requested")
_ARCHIVE = ".hoodie/archived/.commits_.archive."
_BACK = re.compile(r"\.hoodie/(?:timeline/)?[0-9]{17}\.(rollback|restore)\.requested")


# -------------------------------------------------------------------------------------------------------------- what readers see
def seen(there: Mapping[str, bytes]) -> Rows:
    """By the completed instants, and of each group the newest file and its logs, also those since a compaction was asked for."""
    done = {found[1]: content for name, content in there.items() if (found := _DONE.fullmatch(name))}
    ended = {found[1]: found[2] for name in there if (found := _DONE.fullmatch(name))}
    plans = {found[1] for name in there if (found := _PLAN.fullmatch(name))}
    newest, gone = dict[tuple[str, str], tuple[str, str]](), cleaned(there)
    # Once there is an archive, all that is older than the timeline counts, whatever wrote it.
    archived = min(done, default="") if any(name.startswith(_ARCHIVE) for name in there) else ""
    for name in there:
        if (found := _BASE.fullmatch(name)) and not name.startswith(".hoodie/"):
            folder, group, instant = found[1] or "", found[2], found[3]
            older = bool(done) and all(instant < other for other in done)
            assert bool(archived) or not older, f"{name} is older than the timeline, and read"
            if (instant in done or older) and newest.get((folder, group), ("", ""))[0] < instant:
                newest[folder, group] = instant, name
    for instant, content in done.items():
        for stats in json.loads(content)["partitionToWriteStats"].values():
            assert all(stat["path"] in there or stat["path"] in gone for stat in stats), f"a file of {instant} is missing"
            assert all(f"{stat['partitionPath']}/.hoodie_partition_metadata" in there for stat in stats), "a partition that nobody lists"
        action = "compaction" if instant in plans else ended[instant]
        states = {f"{instant}.{action}.requested", f"{instant}{'' if action == 'commit' else f'.{action}'}.inflight"}
        assert archived or {f".hoodie/{state}" for state in states} <= there.keys()
    _end(newest, done)
    rows = Rows()
    for (folder, group), (instant, name) in newest.items():
        for row in pq.read_table(io.BytesIO(there[name])).to_pylist():
            assert row["id"] not in rows, f"{row['id']} is there twice"
            rows[row["id"]] = row["n"]
        begun = {instant} | {plan for plan in plans - done.keys() if plan > instant}
        logs = [(log.instant, log.number, each) for each in there if (log := _log(each, folder)) and log.file_id == group]
        # Since version 8 a log has the instant of its commit, and no slice of quire's is begun between that and its end.
        logs = [log for log in logs if log[0] in begun or log[0] > instant]
        assert len({log[:2] for log in logs}) == len(logs), f"two logs of {group} have one number"
        for *_, each in sorted(logs):
            for block in log_file.decode(there[each], each):
                if block.instant in done or block.instant < archived:
                    _change(rows, block, each)
    return rows


def cleaned(there: Mapping[str, bytes]) -> set[str]:
    """The base files and logs that cleans have deleted, or are about to delete; CDC logs, too, which go with their base files."""
    partitions = (part for plan in _plans(there) for part in plan["filePathsToBeDeletedPerPartition"].items())
    found = {f"{partition}/{file['filePath'].rpartition('/')[2]}" for partition, files in partitions for file in files}
    return found | {names.cdc_log_of(name) for name in found if _BASE.fullmatch(name)}


def _plans(there: Mapping[str, bytes]) -> list[dict[str, Any]]:
    return [next(fastavro.reader(io.BytesIO(plan))) for name, plan in there.items() if _CLEAN.fullmatch(name)]


def _end(newest: dict[tuple[str, str], tuple[str, str]], done: Mapping[str, bytes]) -> None:
    """Take away the file groups that have ended: readers pass over them for ever, whatever comes into them later."""
    for instant, content in done.items():
        for partition, groups in json.loads(content).get("partitionToReplaceFileIds", {}).items():
            for group in groups:
                before, _ = newest.pop((partition, group), ("", ""))  # it may be cleaned
                assert before < instant, f"{group} has ended at {instant}, and has a later file"


def _change(rows: Rows, block: log_file.Block, where: str) -> None:
    """Let a block of a log change the rows of its slice."""
    if block.kind == log_file.DELETES:
        for delete in log_content.deletes(block, where):
            assert delete.ordering is not None, f"{where} deletes {delete.key} whatever its n is"
            if delete.ordering[1] >= rows.get(delete.key, 0):
                rows.pop(delete.key, None)
    else:
        said = log_content.rows(block, ["id", "n"], where).to_pylist()
        rows |= {row["id"]: row["n"] for row in said if row["n"] >= rows.get(row["id"], 0)}


def _log(name: str, folder: str) -> names.LogFile | None:
    """The log file of a name in a partition."""
    there, _, last = name.rpartition("/")
    return names.log_file(last) if there == folder else None


def beside(there: Mapping[str, bytes]) -> dict[str, bytes]:
    """What lies in the table but for quire's own."""
    return {name.removeprefix("_quire/"): data for name, data in there.items() if not name.startswith(("_quire/", ".hoodie/_quire/"))}


def outside(there: Mapping[str, bytes]) -> dict[str, bytes]:
    """The same with the timeline as one of version 6 would be."""
    return dict(_as_of_version_6(name, data) for name, data in beside(there).items())


def _as_of_version_6(name: str, data: bytes) -> tuple[str, bytes]:
    """An object of the timeline of a table of version 9 as one of version 6 would have it."""
    if (manifest := _MANIFEST.fullmatch(name)) is not None:
        return f"{_ARCHIVE}{manifest[1]}", data
    if (instant := _NINE.fullmatch(name)) is None:
        return name, data
    written = instant[2] and instant[3] in names.WRITES
    name = f".hoodie/{instant[1]}.{instant[3].replace('clustering', 'replacecommit')}"
    return name, commits.encode(commits.decode_avro(data, name)) if written else data


def _changes(name: str, since: str) -> bool:
    """Whether a change file is of a commit that nobody may ask for its changes any more."""
    found = _CHANGES.fullmatch(name)
    return found is not None and found[1] <= since


class Readers(Observer):
    """Look at a table after each change."""

    def __init__(self, states: States) -> None:
        super().__init__(leaks=True)  # the files of an instant that is not complete are there, and nobody reads them
        self.states, self.at, self.last = states, 0, KeysView[str]({})
        self.done, self.gone = set[str](), set[str]()  # the instants that are on the timeline, and those that were and are not

    def look(self, op: str, name: str) -> None:
        self._spare()
        super().look(op, name)
        self.leaked = 0
        there = outside(self.there())
        if there.keys() == self.last:
            return  # an object outside of quire's own never changes
        self.last = there.keys()
        self.hold(f"{op} {name}", seen(self._without_sleepers(there)))

    def _without_sleepers(self, there: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """All but instants that had left the timeline, and that a late put brings back: quire's next look takes them away again."""
        done = {name for name in there if _DONE.fullmatch(name)}
        self.gone |= self.done - done
        self.done = done
        return {name: data for name, data in there.items() if name not in self.gone} if self.gone & done else there

    def _count(self) -> None:
        super()._count()
        self._spare()

    def _spare(self) -> None:
        """Look no more for files that a clean may delete."""
        there = self.there()
        gone, since = cleaned(there), max((plan["earliestInstantToRetain"]["timestamp"] for plan in _plans(there)), default="")
        self.live = [(file, size) for file, size in self.live if file not in gone and not _changes(file, since)]
        if any(map(_BACK.fullmatch, there)):  # what is on the timeline has its files, see `seen`
            self.live = [(file, size) for file, size in self.live if file in there]

    def hold(self, said: str, rows: Rows) -> None:
        """Whether readers may see this now."""
        assert rows in self.states, f"after {said} a reader sees a part of a commit: {rows}"
        at = next((n for n, one in enumerate(self.states) if n >= self.at and one == rows), None)
        assert at is not None, f"after {said} a commit has vanished"
        self.at = at

    def forget(self) -> None:
        """After a power cut what is there now is what counts."""
        self.at = 0
        self.done, self.gone = set[str](), set[str]()

    def rewind(self) -> None:
        self.last = KeysView[str]({})
        self.forget()
        super().rewind()


def check(
    states: States,
    there: Mapping[str, bytes],
    folders: Iterable[str],
    uploads: Iterable[str],
    *,
    all_taken: bool = True,
    clean: bool = True,
) -> Log:
    """Hold a table against its calls: each counts once, or is nowhere, and nothing is left over."""
    log, rows = Log(there), seen(outside(there))
    counting = list(log.commits())
    assert rows == states[-1] or (not all_taken and rows in states), rows
    counted = states.counted if isinstance(states, _Back) else len(states) - 1
    assert not all_taken or len(counting) == counted, f"{len(counting)} commits count"
    if clean:
        unpublished = [job for job, e in log.outcome.items() if e["kind"] == "commit" and job not in log.published]
        assert not unpublished, f"committed and not published: {unpublished}"
        left = [name for name in there if name.startswith(("_quire/jobs/", "_quire/tmp/"))]
        left += [name for name in folders if name.startswith(("_quire/jobs/", "_quire/tmp/"))]
        assert not left, f"left over: {sorted(left)}"
        assert not list(uploads), f"uploads left open: {sorted(uploads)}"
        # After a power cut a file that was taken back may be there again, which nobody reads: see `seen`.
        every = (task for entry in log.outcome.values() for task in entry.get("tasks", ())) if isinstance(states, _Back) else log.tasks()
        named = {file["name"] for task in every for file in task["data_files"]}
        loose = {name for name in outside(there) if names.file(name.rpartition("/")[2].removesuffix(names.CDC))} - named
        assert not loose, f"in the partitions, and of no commit: {sorted(loose)}"
    return log


# ------------------------------------------------------------------------------------------------------------- the calls of a user
def opened(dest: str, *, logs: bool = False, cdc: bool = False, nine: bool = False) -> quire.Table:
    """The table, `logs`: a merge-on-read one; `cdc`: with CDC logs; `nine`: of version 9; to create it again changes nothing."""
    how: dict[str, Any] = {"type": "merge_on_read", "ordering": "n"} if logs else {"cdc": "data_before_after"} if cdc else {}
    return quire.Table.create(dest, key="id", partition_by="city", index="simple", version=9 if nine else 6, **how)


def frame(rows: list[tuple[str, str, int]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(ROWS.names, row, strict=True)) for row in rows], ROWS)


def calls(*given: tuple[str, list[tuple[str, str, int]]], **how: bool) -> Callable[[str, str, str], None]:
    """Calls of verbs, each a batch of its own: a script that is started again repeats none of them. `how`: the table, as for `opened`."""

    def work(_: str, dest: str, __: str) -> None:
        table = opened(dest, **how)
        backs = [number for number, (verb, _) in enumerate(given) if verb in (ROLLBACK, RESTORE)]
        # A batch that was taken back could come again: a script that is started again goes on after what it has taken back.
        done = backs[: len(_taken_back(table))] if backs else []
        for number, (verb, rows) in enumerate(given):
            if done and number <= done[-1]:
                continue
            if verb == SCHEDULE:
                schedule(table)
            elif verb == CLEAN:
                clean(table)
            elif verb == ARCHIVE:
                archive(table)
            elif verb == CLUSTER:
                cluster(table)
            elif verb == ROLLBACK:
                table.rollback(progress=False)
            elif verb == RESTORE:
                table.restore(line_of(table).completed[0].time, progress=False)
            elif verb == DROP:
                table.delete_partitions([city for _, city, _ in rows], batch=f"batch {number}", progress=False)
            elif verb == COMPACT:
                table.compact(schedule=False, **HERE)
            else:
                getattr(table, verb)(frame(rows), batch=f"batch {number}", **HERE)

    return work


def _taken_back(table: quire.Table) -> list[str]:
    """The instants of rollbacks and restores, after one that has died was completed."""
    with _own(table) as store:
        protocol.recover(store)
    return [each.time for each in line_of(table).others if each.action in (ROLLBACK, RESTORE)]


def line_of(table: quire.Table) -> timeline.Timeline:
    with _own(table) as store:
        return timeline.current(store)


@contextmanager
def _own(table: quire.Table) -> Iterator[Store]:
    """The store of a table for what a user's script does itself: an error says in its own words what to do."""
    try:
        yield storage.connect(marked(table.url))
    except StorageError as e:
        raise StorageError(f"{e}. Call again.") from e


def schedule(table: quire.Table) -> None:
    """Lay a plan, unless one was laid."""
    line = line_of(table)
    if not line.compactions() and not any(instant.action == "commit" for instant in line.completed):
        table.schedule_compaction()


def clean(table: quire.Table) -> None:
    """Clean it, unless that was done, or is asked for."""
    if not line_of(table).cleans:
        table.clean(versions=1, progress=False)


def cluster(table: quire.Table) -> None:
    """Lay its rows out anew, unless that was done."""
    if not any(instant.action == timeline.REPLACE for instant in line_of(table).completed):
        table.cluster(sort="n", **HERE)


def archive(table: quire.Table) -> None:
    """Archive all but the newest of its writes, unless that was done."""
    if not line_of(table).archived:
        table.archive(keep=1, progress=False)


def states(*given: tuple[str, list[tuple[str, str, int]]]) -> Callable[[Tree], States]:
    """What readers see of them."""
    found, standing = _Back([{}]), [{}]
    cities = {key: city for _, rows in given for key, city, _ in rows}
    for verb, rows in given:
        if verb in (ROLLBACK, RESTORE):
            # The newest write goes first, and each that is gone is gone whole.
            for _ in range(1 if verb == ROLLBACK else len(standing) - 2):
                standing.pop()
                found.append(standing[-1])
            continue
        keys, touched = {row[0]: row[2] for row in rows}, {row[1] for row in rows}
        gone = {key for key, city in cities.items() if city in touched} if verb in (OVERWRITE, DROP) else keys.keys()
        kept = {key: n for key, n in standing[-1].items() if key not in gone}
        standing.append(kept if verb in ("delete", DROP) else kept | keys)
        found.append(standing[-1])
    backs = [verb for verb, _ in given if verb in (ROLLBACK, RESTORE)]
    found.counted = len(standing) - 1 + len(backs)
    return lambda _: found if backs else list(found)


INSERTS = (("insert", FIRST), ("insert", [("d", "sf", 2), ("e", "ny", 2)]))
UPSERTS = (("upsert", FIRST), ("upsert", SECOND))
DELETES = (("upsert", FIRST), ("delete", [("b", "sf", 2), ("x", "la", 2)]))
SCHEDULE, COMPACT, CLEAN, OVERWRITE, DROP = "schedule", "compact", "clean", "insert_overwrite", "delete_partitions"
ARCHIVE, CLUSTER, ROLLBACK, RESTORE = "archive", "cluster", "rollback", "restore"
RESTORES = (*UPSERTS, ("upsert", [("b", "sf", 3)]), (RESTORE, []), ("upsert", [("a", "sf", 5)]))
ROLLBACKS = (*UPSERTS, (ROLLBACK, []), ("delete", [("b", "sf", 4)]))
ARCHIVES = (*UPSERTS, ("upsert", [("b", "sf", 3)]), (ARCHIVE, []), ("delete", [("b", "sf", 4)]))
CDC = (*UPSERTS, ("delete", [("c", "la", 3)]), (CLEAN, []), ("upsert", [("b", "sf", 4)]), (ROLLBACK, []))
NINE = (*INSERTS, (CLUSTER, []), ("upsert", [("b", "sf", 2), ("c", "la", 2)]), (CLEAN, []), ("delete", [("b", "sf", 4)]))
CLEANS = (*UPSERTS, ("upsert", [("b", "sf", 3)]), (CLEAN, []), ("delete", [("b", "sf", 4)]))
COMPACTION = (
    *UPSERTS, (SCHEDULE, []), ("upsert", [("b", "sf", 3), ("e", "ny", 3)]), ("delete", [("c", "la", 3)]), (COMPACT, []),
    ("upsert", [("b", "sf", 4)]),
)  # fmt: skip
REPLACES = (
    *UPSERTS, (OVERWRITE, [("b", "sf", 3), ("e", "sf", 3)]), ("upsert", [("b", "sf", 4), ("c", "la", 4)]), (DROP, [("", "la", 0)]),
    ("upsert", [("f", "la", 5)]),
)  # fmt: skip
CLUSTERS = (
    *INSERTS, ("bulk_insert", [("f", "sf", 3), ("g", "la", 3)]), ("upsert", [("a", "sf", 4)]), (CLUSTER, []),
    ("upsert", [("a", "sf", 5), ("f", "sf", 5)]),
)  # fmt: skip
LOGS_OF_NINE = (*COMPACTION, (CLEAN, []), ("delete", [("b", "sf", 5)]))
LOGS = (*UPSERTS, ("delete", [("b", "sf", 3), ("a", "sf", 3), ("x", "la", 3)]))


def to_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The place of each record as its key."""
    places = zip(*(batch.column(name).to_pylist() for name in ("topic", "partition", "offset")), strict=True)
    keys = [f"{topic}/{partition}/{offset}" for topic, partition, offset in places]
    return pa.record_batch({"id": keys, "city": batch.column("topic"), "n": batch.column("offset")})


def load(_: str, dest: str, __: str) -> None:
    """Topics, into new files alone: a record that came twice would be there twice."""
    opened(dest)
    quire.load(
        loads.ASKED, dest, to_columns, operation="bulk_insert", function_version="1", target_size="8000 B", on_data_loss="record",
        **HERE,
    )  # fmt: skip


def loaded(_: Tree) -> States:
    """All records that are stable."""
    return [{}, {
        f"{topic}/{number}/{offset}": offset
        for topic, partitions in TOPICS.topics.items() for number, partition in enumerate(partitions)
        for offset, entry in partition.log.items() if entry.kind == RECORD and partition.low <= offset < partition.stable
    }]  # fmt: skip


def _numbered(split: quire.Split, content: bytes) -> list[dict[str, Any]]:
    """A row for each line of a file."""
    name = split.path.rpartition("/")[2]
    return [{"id": f"{name}/{n}", "city": name[:2], "n": n} for n, _ in enumerate(content.splitlines())]


def process(source: str, dest: str, _: str) -> None:
    """Files, into new files alone."""
    opened(dest)
    quire.process(
        source, dest, _numbered, operation="bulk_insert", function_version="1", schema="id string, city string, n long",
        target_size="16 B", **HERE,
    )  # fmt: skip


def processed(tree: Tree) -> States:
    """A row for each line of all files."""
    files = {path.rpartition("/")[2]: content for path, (_, content) in tree.now.items()}
    return [{}, {f"{name}/{n}": n for name, content in files.items() for n, _ in enumerate(content.splitlines())}]
