"""Retry: what is in quarantine, and alone that, is read once more; its state is swapped in one commit, for `done` or for the new reason."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quire.commit.entries import CLAIM, OFFSETS, Spec
from quire.commit.log import Log
from quire.coverage.fold import Fold, fold
from quire.coverage.quarantine import KEPT
from quire.engine.closers import Reduce
from quire.errors import UsageError, about, quoted, scrub
from quire.ledger import members
from quire.ledger.identifiers import place_of
from quire.ledger.job import Change, Changed, Dest, PlannedChange, not_named, spec_of
from quire.planning.drops import put_table
from quire.planning.listing import PLAN, Cut, TaskRun
from quire.planning.pack import pack
from quire.sources import partition_by, transforms
from quire.sources.files import Root, Unread, located, places
from quire.sources.identity import by_content, identified, with_stored
from quire.sources.kafka.positions import reached
from quire.sources.kafka.records import RECORDS_AS
from quire.sources.kafka.topics import Topics, key_of
from quire.sources.kafka.topics import named as name_of
from quire.sources.transforms import UserFunction, text
from quire.sources.transforms.columnar import NAMES as COLUMNAR
from quire.sources.transforms.functions import check_call
from quire.sources.transforms.text import NAMES as TEXT
from quire.spark.releases import to_arrow
from quire.spark.shipping import one_line
from quire.storage import Store, Trouble, below
from quire.storage.local import LINK

MAX_ATTEMPTS = 5
LOOKING = 32  # looks at sources at once
ROWS = 20_000  # in a run
OUTSIDE = "it lies in no source that this call names: name that, too, if it is yours"
_COLUMNS = ["path", "version", "start", "length", "state", "reason", "tries", "records", "member"]


def retry(
    dest: Dest, chosen: Callable[[Fold], pa.Table], said: dict[str, Any], sources: Sequence[Root], target: int,
    function: UserFunction | None, reduce: Reduce | None = None, evolves: str = "",
) -> Changed:  # fmt: skip
    """Read again what `chosen` takes of the quarantine, where its source still has the version that was quarantined.

    Only what lies in `sources` is read: rows are what whoever writes there says. Records that the quarantine itself holds need no source.
    A file that has changed since is left to the next run, which takes its new version; one that is gone stays quarantined; one that was
    read `max_attempts` times already, as `said`, is poison, and stays too. All of these stand in `.left`.
    """

    def plan(log: Log, base: int, named: Callable[[str], str]) -> PlannedChange:
        left, runs, roots = list[tuple[str, str]](), list[TaskRun](), list[Root]()
        rows = _fresh(chosen(fold(log, base)).to_pylist(), said["max_attempts"], left)
        chosen_by = _of_topics if rows and spec_of(log).kind == OFFSETS else _by_root
        by_root = chosen_by(dest, log, rows, sources, left)
        for root, folder, splits in by_root:
            if root not in roots:
                roots.append(root)
            for at in range(0, len(splits), ROWS):
                table = pa.Table.from_pylist(splits[at : at + ROWS], PLAN)
                name = named("retry")
                put_table(log.store, name, table)
                size = pc.sum(table.column("length")).as_py()
                runs.append(TaskRun(folder, 0, name, roots.index(root), 0, table.num_rows, size))
        cut = Cut("balanced", "flat", 1, "xxh64", target, True)
        return PlannedChange(pack(runs, cut, 1.0), tuple(roots), tuple(left))

    return Change(
        dest, {"verb": "retry", **said}, plan, target, function, fresh=True, max_file_size=said["max_file_size"], reduce=reduce,
        reads=said.get("reads", ""), evolves=evolves,
    ).run()  # fmt: skip


def choice(
    url: str, store: Store, by_where: Callable[[Fold], Any] | None, paths: Sequence[Sequence[str]] | None
) -> Callable[[Fold], pa.Table]:  # fmt: skip
    """Chooses of the quarantine: the rows of a condition, or of `paths`, each by the keys that it may have; else all of it.

    A path may be that of a member of an archive, `path!member`.
    """

    def chosen(folded: Fold) -> pa.Table:
        rows = quarantined_rows(Log(store).refresh(), folded, folded.version)
        if by_where is not None:
            place = ["path", "version", "start"]
            with one_line():
                chosen_by = {tuple(row.values()) for row in to_arrow(by_where(folded).select(*place)).to_pylist()}
            return rows.filter(pa.array([tuple(row.values()) in chosen_by for row in rows.select(place).to_pylist()], pa.bool_()))
        if paths is None:
            return rows
        wanted, there = {key for keys in paths for key in keys}, set(rows.column("path").to_pylist())
        found = [
            rows.filter(pc.is_in(rows.column("path"), pa.array(sorted(wanted), pa.string()))),
            members.of(rows, sorted(wanted - there)),
        ]
        for keys in paths:
            if there.isdisjoint(keys) and not any(members.known(folded, store, key) for key in keys):
                raise UsageError(
                    f"{keys[-1]} is not in the ledger of {url}: there is nothing to retry. ledger.inspect.quarantined() lists what is."
                )
        return pa.concat_tables(found)

    return chosen


def check_functions(spec: Spec, function: UserFunction | None, reduce: Reduce | None) -> None:
    """Refuse to retry without the functions that the destination was made with, or with what was not."""
    if spec.kind == CLAIM:
        raise UsageError("this destination holds what claims have written, and a claim quarantines nothing: there is nothing to retry.")
    if function is None and spec.transform not in (*transforms.NAMES, *COLUMNAR, *TEXT, *(RECORDS_AS if spec.kind == OFFSETS else ())):
        raise UsageError(f"this destination was made with the function {spec.transform!r}: retry needs it, function=.")
    if (reduce is None) == bool(spec.reduce):
        said_so = f"went through reduce={spec.reduce!r}, and retry needs it" if spec.reduce else "went through no shuffle"
        raise UsageError(f"the rows of this destination {said_so}: reduce=.")
    if function is not None and not callable(function):
        raise UsageError(f"function={quoted(function)} is not a function.")
    if function is not None:
        taken = ("batch",) if spec.kind == OFFSETS else ("split", "content") if spec.split else ("content", "file")
        check_call(function, "function", *taken)


def check_text_options(spec: Spec, options: Mapping[str, Any]) -> str:
    """How text is read in a retry, as JSON; UsageError for what no reader of text takes."""
    with about("text_options"):
        if spec.transform not in TEXT:
            raise UsageError(f"text_options= is for CSV files and JSON lines, and this destination holds {spec.transform!r}. Leave it out.")
        if not isinstance(options, Mapping) or (unknown := [name for name in options if name not in text.WORDS]):
            what = f"not {quoted(options)}" if not isinstance(options, Mapping) else f"and not {quoted(unknown[0])}"
            raise UsageError(f"text_options is a dictionary of {', '.join(text.WORDS)}, {what}.")
    text.reader(spec.transform, options, None, spec)
    return text.said(options)


def quarantined_rows(log: Log, folded: Fold, version: int) -> pa.Table:
    """The rows in quarantine, with the directory of the source that their task was kept apart for, and a record's quarantine file."""
    tables = []
    log, spec = log.at(version), log.spec()
    # Where columns of rows make the directories, a task keeps to none of them.
    apart = spec is not None and spec.layout == "directories" and (not spec.by or bool(partition_by.of(spec).of_files))
    tasks = (t for _, c in log.recent(version) for t in log.in_effect(c, version))
    folders = {t.coverage.segment: t.folder for t in tasks if t.stats.quarantined and t.coverage.segment}
    for source in folded.sources:
        if source.quarantined:
            rows = folded.of(source).rows(log.store, [*_COLUMNS, "folder", "quarantine"])
            rows = rows.filter(pc.equal(rows.column("state"), "quarantined"))
            # A checkpoint keeps the directory with the row.
            folder = pc.fill_null(rows.column("folder"), folders.get(source.segment, ""))
            folder = folder if apart else pa.array([""] * rows.num_rows, pa.string())
            tables.append(rows.set_column(rows.schema.get_field_index("folder"), "folder", folder))
    if tables:
        return pa.concat_tables(tables)
    return folded.rows(log.store, [*_COLUMNS, "folder", "quarantine"], "\0", "\0").slice(0, 0)


Splits = Iterator[tuple[Root, str, list[dict[str, Any]]]]


def _by_root(dest: Dest, log: Log, rows: list[dict[str, Any]], sources: Sequence[Root], left: list[tuple[str, str]]) -> Splits:
    """The files to read, by their source and directory."""
    find, outside = located(sources), list[dict[str, Any]]()
    spec = log.spec()
    # A line that was too long is at its source alone, and so are the names of columns.
    keeps = spec is None or spec.transform not in ("lines", "csv")
    by_source, held = defaultdict[str, list[dict[str, Any]]](list), defaultdict[str, list[dict[str, Any]]](list)
    for row in rows:
        found = None if below(row["path"], dest.url) else find(row["path"])
        if found is not None:
            by_source[found[0].url].append({**row, "name": found[1]})
        elif keeps and row["quarantine"] is not None and row["length"] <= KEPT:
            held[_place(row["path"])].append(row)
        else:
            outside.append(row)
    if outside and not sources:
        there = places(row["path"] for row in outside)
        raise not_named(dest.url, f"what is quarantined ({len(outside):,}) is read at its source again", there, "retry")
    left += [(row["path"], OUTSIDE) for row in outside]
    for root in sources:
        found_here = by_source[root.url]
        identity = "content" if any(by_content(row["version"]) for row in found_here) else "store"
        for archives in (False, True):
            as_before = [row for row in found_here if (row["member"] is not None) == archives]
            here = replace(root, identity=identity, archives=archives or root.archives)
            for folder, mine in _by_folder(as_before):
                yield here, folder, list(_splits(root.store(), mine, left, keeps=keeps))
    for place, found_here in sorted(held.items()):
        for folder, mine in _by_folder(found_here):
            yield Unread(place), folder, [_split(row, row["version"], row["start"] + row["length"], 0) for row in mine]


def _by_folder(rows: list[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    rows.sort(key=lambda row: (row["folder"], row["path"], row["start"]))
    for folder, mine in groupby(rows, key=lambda row: row["folder"]):
        yield folder, list(mine)


def _place(path: str) -> str:
    """The beginning of a store's keys; on disk below a directory of the first level each, since `/` is not a place to read from."""
    place, rest = place_of(path)
    return f"{place}/{rest[1:].partition('/')[0]}" if place == "file://" else place


def _of_topics(dest: Dest, log: Log, rows: list[dict[str, Any]], sources: Sequence[Root], left: list[tuple[str, str]]) -> Splits:
    """Records that are still in their topics: a topic holds more of a record than the quarantine does."""
    if not sources or not isinstance(asked := sources[0], Topics):
        there = scrub(log.source(), 200) or "none"
        raise not_named(dest.url, f"what is quarantined ({len(rows):,}) is read in its topics again", there, "retry")
    cluster, topics, found = reached(asked)
    keys = {row["path"]: key_of(row["path"]) for row in rows}
    meant = {key.topic for key in keys.values()} & {key.topic for key in found}
    topics = replace(topics, versions=cluster.versions(meant))
    there_now = {path: key for path, key in keys.items() if topics.path(key) == path and key in found and key.topic in topics.versions}
    starts, splits = cluster.starts(set(there_now.values())), list[dict[str, Any]]()
    for row in sorted(rows, key=lambda row: (row["path"], row["start"])):
        key = there_now.get(row["path"])
        same = key is not None and row["version"] in (topics.versions[key.topic], name_of(key.topic))
        if not topics.matches(keys[row["path"]].topic) or not row["path"].startswith(f"{topics.url}/"):
            left.append((row["path"], OUTSIDE))
        elif key is None or not same or row["start"] < starts[key]:
            left.append((row["path"], f"offset {row['start']:,} is gone at its source: it stays quarantined"))
        else:
            splits.append(_split(row, row["version"], row["start"] + row["length"], 0))
    yield topics, "", splits


def _fresh(rows: list[dict[str, Any]], max_attempts: int | None, left: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """Those that were not read too often."""
    poison = [row for row in rows if max_attempts is not None and (row["tries"] or 1) >= max_attempts]
    left += [(row["path"], f"it was read {row['tries']} times already (max_attempts={max_attempts}): {row['reason']}") for row in poison]
    return [row for row in rows if max_attempts is None or (row["tries"] or 1) < max_attempts]


def _splits(store: Store, fresh: list[dict[str, Any]], left: list[tuple[str, str]], *, keeps: bool) -> Iterator[dict[str, Any]]:
    with ThreadPoolExecutor(LOOKING) as pool:
        there = list(pool.map(lambda row: store.stat(row["name"]), fresh))
    hashed = [entry for row, entry in zip(fresh, there, strict=True) if entry is not None and by_content(row["version"])]
    known = {item[0].name: item for item in identified(store, hashed) if not isinstance(item, Trouble)}
    for row, looked in zip(fresh, there, strict=True):
        entry, planned = looked, row["version"]
        if looked is not None and by_content(row["version"]):
            entry, stored = known.get(looked.name, (looked, ""))
            planned = with_stored(row["version"], stored)
        if keeps and row["quarantine"] is not None:  # a record of that version: it is in the quarantine, whatever its source has by now
            yield _split(row, planned, entry.size if entry else row["start"] + row["length"], entry.modified if entry else 0)
        elif entry is None:
            left.append((row["path"], "it is gone at its source: it stays quarantined"))
        elif entry.version == LINK:
            left.append((row["path"], "a symbolic link stands there, or on the way: follow_links=True follows it"))
        elif entry.version != row["version"]:
            left.append((row["path"], "it has changed since: the next run takes its new version"))
        elif row["start"] + row["length"] > entry.size:
            left.append((row["path"], f"it has {entry.size:,} bytes, and the ledger speaks of more: look who wrote there"))
        else:
            yield _split(row, planned, entry.size, entry.modified)


def _split(row: dict[str, Any], version: str, size: int, modified: int) -> dict[str, Any]:
    replaces = [row["version"], [(row["start"], row["length"])], row["tries"] or 1]
    replaces += [row["quarantine"], row["member"] or ""] if row["quarantine"] else []
    return {
        "path": row["path"], "size": size, "version": version, "modified": modified, "start": row["start"], "length": row["length"],
        "replaces": json.dumps([replaces]), "follows": None,
    }  # fmt: skip
