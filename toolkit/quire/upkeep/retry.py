"""Retry: what is in quarantine, and alone that, is read once more; its state is swapped in one commit, for `done` or for the new reason."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import groupby, takewhile
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quire.commit.log import Log
from quire.coverage.fold import Fold, fold
from quire.planning.drops import put_table
from quire.planning.listing import PLAN, Cut, Run
from quire.planning.pack import pack
from quire.shuffle import Reduce
from quire.sources.files import Options, Root
from quire.sources.identity import by_content, identified, with_stored
from quire.sources.kafka import Topics, client_options, is_kafka, key_of, parsed
from quire.sources.kafka import named as name_of
from quire.sources.kafka_client import cluster_of
from quire.sources.positions import reached
from quire.sources.transforms import UserFunction
from quire.storage import Trouble
from quire.upkeep.job import Changed, Dest, Planned, change

__all__ = ["MAX_ATTEMPTS", "bad_rows", "retry"]

MAX_ATTEMPTS = 5
LOOKING = 32  # looks at sources at once
ROWS = 20_000  # in a run
_COLUMNS = ["path", "version", "start", "length", "state", "reason", "tries", "records"]


def retry(
    dest: Dest, chosen: Callable[[Fold], pa.Table], said: dict[str, Any], options: Options, max_attempts: int | None, target: int,
    function: UserFunction | None, max_file_size: int, reduce: Reduce | None = None,
) -> Changed:  # fmt: skip
    """Read again what `chosen` takes of the quarantine, where its source still has the version that was set aside.

    A file that has changed since is left to the next run, which takes its new version; one that is gone stays set aside; one that was
    read `max_attempts` times already is poison, and stays too. All of these stand in `.left`.
    """

    def plan(log: Log, base: int, named: Callable[[str], str]) -> Planned:
        rows = chosen(fold(log, base))
        left, runs, roots = list[tuple[str, str]](), list[Run](), list[Root]()
        by_root = _by_root(rows, options)
        if rows.num_rows and is_kafka(rows.column("path")[0].as_py()):
            topics = _topics(log, options, pc.unique(rows.column("path")).to_pylist())
            by_root = iter([(topics, "", rows.sort_by([("path", "ascending"), ("start", "ascending")]).to_pylist())])
        for root, folder, mine in by_root:
            if not roots or roots[-1].url != root.url:
                roots.append(root)
            fresh = _fresh(mine, max_attempts, left)
            splits = list(_of_topics(root, fresh, left) if isinstance(root, Topics) else _splits(root, fresh, left))
            for at in range(0, len(splits), ROWS):
                table = pa.Table.from_pylist(splits[at : at + ROWS], PLAN)
                name = named("retry")
                put_table(log.store, name, table)
                size = pc.sum(table.column("length")).as_py()
                runs.append(Run(folder, 0, name, len(roots) - 1, 0, table.num_rows, size))
        cut = Cut("balanced", "flat", 1, "xxh64", target, True)
        return Planned(pack(runs, cut, 1.0), tuple(roots), tuple(left))

    return change(
        dest, {"verb": "retry", **said}, plan, target=target, function=function, fresh=True, max_file_size=max_file_size, reduce=reduce
    )  # fmt: skip


def bad_rows(log: Log, folded: Fold, version: int) -> pa.Table:
    """The rows in quarantine, with the directory of the source that their task was kept apart for, and a record's quarantine file."""
    tables = []
    log, words = log.at(version), log.words()
    apart = words is not None and words.layout == "directories"
    folders = {t.segment: t.folder for _, c in log.recent(version) for t in log.in_effect(c, version) if t.set_aside and t.segment}
    for source in folded.sources:
        if source.bad:
            rows = folded.of(source).rows(log.store, [*_COLUMNS, "folder", "quarantine"])
            rows = rows.filter(pc.equal(rows.column("state"), "bad"))
            # A checkpoint keeps the directory with the row.
            folder = pc.fill_null(rows.column("folder"), folders.get(source.segment, ""))
            folder = folder if apart else pa.array([""] * rows.num_rows, pa.string())
            tables.append(rows.set_column(rows.schema.get_field_index("folder"), "folder", folder))
    if tables:
        return pa.concat_tables(tables)
    return folded.rows(log.store, [*_COLUMNS, "folder", "quarantine"], "\0", "\0").slice(0, 0)


def _by_root(rows: pa.Table, options: Options) -> Iterator[tuple[Root, str, list[dict[str, Any]]]]:
    """The rows by the store that their files lie in, and by directory."""
    by_place = defaultdict[str, list[dict[str, Any]]](list)
    for row in rows.to_pylist():
        scheme, _, rest = row["path"].partition("://")
        host, _, path = rest.partition("/")
        # On disk below a directory of the first level each: `/` itself is no place to read from.
        first = path.partition("/")[0] if scheme == "file" else ""
        by_place[f"{scheme}://{host}{first and '/' + first}"].append(row)
    for place, found in sorted(by_place.items()):
        folders = [row["path"][len(place) :].split("/")[:-1] for row in found]
        shared = [parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, zip(*folders, strict=False))]
        identity = "content" if any(by_content(row["version"]) for row in found) else "store"
        root = Root(
            place + "/".join(shared), options=options, identity=identity
        )  # as the ledger spells it, also below a link that was followed
        found.sort(key=lambda row: (row["folder"], row["path"], row["start"]))
        for folder, mine in groupby(found, key=lambda row: row["folder"]):
            yield root, folder, list(mine)


def _topics(log: Log, options: Options, paths: Iterable[str]) -> Topics:
    """The topics of these partitions, as they are now, where the last load has found its own: all are of one cluster."""
    names = sorted({key_of(path).topic for path in paths})
    asked = replace(parsed(log.source(), client_options(options, None)), asked=tuple(names))
    cluster, topics, keys = reached(asked)
    return replace(topics, versions=cluster.versions({key.topic for key in keys}))


def _of_topics(topics: Topics, rows: list[dict[str, Any]], left: list[tuple[str, str]]) -> Iterator[dict[str, Any]]:
    """Records that are still in their topics."""
    keys = {row["path"]: key_of(row["path"]) for row in rows}
    there = {path: key for path, key in keys.items() if topics.path(key) == path and key.topic in topics.versions}
    starts = cluster_of(topics.servers, topics.options).starts(set(there.values()))
    for row in rows:
        key = there.get(row["path"])
        same = key is not None and row["version"] in (topics.versions[key.topic], name_of(key.topic))
        if key is None or not same or row["start"] < starts[key]:
            left.append((row["path"], f"offset {row['start']:,} is gone at its source: it stays set aside"))
        else:
            yield _split(row, row["version"], row["start"] + row["length"], 0)


def _fresh(rows: list[dict[str, Any]], max_attempts: int | None, left: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """Those that were not read too often."""
    poison = [row for row in rows if max_attempts is not None and (row["tries"] or 1) >= max_attempts]
    left += [(row["path"], f"it was read {row['tries']} times already (max_attempts={max_attempts}): {row['reason']}") for row in poison]
    return [row for row in rows if max_attempts is None or (row["tries"] or 1) < max_attempts]


def _splits(root: Root, fresh: list[dict[str, Any]], left: list[tuple[str, str]]) -> Iterator[dict[str, Any]]:
    store, prefix = root.store(), len(root.url.rstrip("/")) + 1
    with ThreadPoolExecutor(LOOKING) as pool:
        there = list(pool.map(lambda row: store.stat(row["path"][prefix:]), fresh))
    hashed = [entry for row, entry in zip(fresh, there, strict=True) if entry is not None and by_content(row["version"])]
    known = {item[0].name: item for item in identified(store, hashed) if not isinstance(item, Trouble)}
    for row, looked in zip(fresh, there, strict=True):
        entry, planned = looked, row["version"]
        if looked is not None and by_content(row["version"]):
            entry, stored = known.get(looked.name, (looked, ""))
            planned = with_stored(row["version"], stored)
        if row["quarantine"] is not None:  # a record of that version: it is in the quarantine, whatever its source has by now
            yield _split(row, planned, entry.size if entry else row["start"] + row["length"], entry.modified if entry else 0)
        elif entry is None:
            left.append((row["path"], "it is gone at its source: it stays set aside"))
        elif entry.version != row["version"]:
            left.append((row["path"], "it has changed since: the next run takes its new version"))
        else:
            yield _split(row, planned, entry.size, entry.modified)


def _split(row: dict[str, Any], version: str, size: int, modified: int) -> dict[str, Any]:
    replaces = [row["version"], [(row["start"], row["length"])], row["tries"] or 1, *([row["quarantine"]] if row["quarantine"] else [])]
    return {
        "path": row["path"], "size": size, "version": version, "modified": modified, "start": row["start"], "length": row["length"],
        "replaces": json.dumps([replaces]), "follows": None,
    }  # fmt: skip
