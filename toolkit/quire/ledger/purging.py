"""The tasks of a purge: each verifies, settles or deletes the files of one segment, and writes to the plan what the ledger is to say."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quire.commit.log import Log
from quire.coverage.finished import DELETING, KEY, PURGED, PURGING, SAID, how_made, ordinal
from quire.coverage.fold import Source
from quire.coverage.tails import mark, prefix, reread
from quire.errors import FormatError, StorageError
from quire.ledger.comparing import (
    ASKING,
    AWAY,
    CHANGED,
    MOVED,
    PARTLY,
    REFUSED,
    YOUNG,
    Candidates,
    Comparison,
    Item,
    Purging,
    Row,
    Sources,
    since,
)
from quire.planning.drops import put_table
from quire.sources import partition_by
from quire.storage import Entry, Unreadable, Vanished, connect, remove_version

ROWS = 10_000  # that are looked at together
_COLUMNS = [*KEY, "state", "reason", "data_file", "offset", "skip", "written", "records", "checksum", "fingerprint", "tries", "member"]


def verify(job: Purging, source: Source) -> dict[str, Any]:
    """Verify the files whose first byte stands in one segment, and write to the plan that they are to be deleted."""
    return asdict(_Task(job, source).run(("done", PURGING)))


def settle(job: Purging, source: Source) -> dict[str, Any]:
    """Write to the plan what has become of files that calls which died were to delete."""
    return asdict(_Settling(job, source).run((PURGING,)))


def delete(job: Purging, source: Source) -> dict[str, Any]:
    """Delete those of them that this call has verified, and write to the plan what is finished."""
    return asdict(_Deleting(job, source).run((PURGING,)))


class _Task:
    """Verifies the files of one segment, and says that they are to be deleted."""

    def __init__(self, job: Purging, source: Source) -> None:
        self.job, self.source, self.found = job, source, Candidates()
        self.store = connect(job.dest, job.dest_options)
        self.log = Log(self.store)
        self.sources = Sources(job)
        self.comparison = Comparison(job, self.log, self.sources, self.found)
        self.said = list[Row]()
        self.spread = bool(partition_by.columns_of(job.spec))  # the rows of one split may lie in several data files

    def run(self, states: Sequence[str]) -> Candidates:
        rows = self.job.fold.of(self.source).rows(self.store, _COLUMNS)
        rows = rows.filter(pc.and_(pc.equal(rows.column("start"), 0), pc.is_in(rows.column("state"), pa.array(states))))
        rows = rows.sort_by([("data_file", "ascending"), ("offset", "ascending"), ("skip", "ascending")])  # each byte is read once
        for at in range(0, rows.num_rows, ROWS):
            found = [row for row in rows.slice(at, ROWS).to_pylist() if self.sources.meant(row["path"]) and self._takes(row)]
            if found:
                self._some(found)
                self._say()
        return self.found

    def _takes(self, row: Row) -> bool:
        """Not what this call has begun with already, and others have thwarted the rest of."""
        return ordinal(row) not in self.job.bases

    def _say(self) -> None:
        """Write to the plan what the ledger is to say."""
        if self.said and self.job.named is not None:
            self.found.runs.append((self.job.named("said"), len(self.said)))
            put_table(self.store, self.found.runs[-1][0], pa.Table.from_pylist(self.said, SAID))
        self.said = []

    def _finish(self, rows: Sequence[Row], state: str) -> None:
        """Say a file's rows to be in a state."""
        number = self.job.fold.version if state == PURGING else max(ordinal(row) for row in rows)
        for row in rows:
            reason = "; ".join(filter(None, (f"{DELETING}{number}" if state != "done" else "", how_made(row))))
            mark = self.comparison.marks.get(row["path"]) if row["fingerprint"] is None and len(rows) == 1 else row["fingerprint"]
            self.said.append({**{name: row[name] for name in KEY}, "state": state, "reason": reason,
                              "data_file": row["data_file"] or "", "fingerprint": mark})  # fmt: skip

    def _some(self, rows: list[Row]) -> None:
        there = self.sources.there(rows)
        whole, parts = list[Item](), dict[tuple[str, int], tuple[Row, Entry]]()
        for row, entry in zip(rows, there, strict=True):
            if isinstance(entry, str):
                self.found.stay(row["path"], REFUSED, entry)
            elif entry is None:
                self.found.gone += 1
                if row["state"] == PURGING:  # by a call that did not come to its end
                    self._finish(self._rows_of({(row["path"], ordinal(row))})[row["path"], ordinal(row)], PURGED)
            elif self.job.newest is not None and entry.modified > self.job.newest:
                self.found.stay(row["path"], YOUNG)
            elif self.sources.version(row["path"], entry) == row["version"] and entry.size == row["length"] and not self.spread:
                whole.append(([row], entry))
            else:
                parts[row["path"], ordinal(row)] = row, entry
        for mine, entry in self.comparison.verified([*whole, *self._together(parts)]):
            if self._marked(mine, entry):
                self._finish(mine, PURGING)
                self.found.files, self.found.bytes = self.found.files + 1, self.found.bytes + entry.size
                self.found.taken_over += mine[0]["state"] == PURGING

    def _marked(self, rows: Sequence[Row], entry: Entry) -> bool:
        """Know by which bytes each row of a file is told from those of another one; False: it cannot be read, and stays."""
        path = rows[0]["path"]
        store, name = self.sources.at(path)
        if rows[0]["member"] is not None:  # an archive is never told from a beginning of it: one that has grown is another one
            return True
        try:
            for row in rows:
                if row["fingerprint"] is None and row["length"] and not (len(rows) == 1 and path in self.comparison.marks):
                    row["fingerprint"] = mark(store, name, entry.version, entry.size, row["start"], row["length"])
        except Vanished:
            self.found.stay(path, CHANGED)
        except (Unreadable, StorageError) as e:
            self.found.stay(path, REFUSED, str(e))
        else:
            return True
        return False

    def _rows_of(self, wanted: Collection[tuple[str, int]]) -> dict[tuple[str, int], list[Row]]:
        """All rows of files, by path and purge."""
        paths = sorted({path for path, _ in wanted})
        rows = self.job.fold.rows(self.store, _COLUMNS, among=pa.array(paths, pa.string()))
        rows = rows.filter(pc.not_equal(rows.column("state"), PURGED)).sort_by(
            [("path", "ascending"), ("start", "ascending"), ("length", "ascending")]
        )
        found = dict[tuple[str, int], list[Row]]()
        for row in rows.to_pylist():
            found.setdefault((row["path"], ordinal(row)), []).append(row)
        return {key: found.get(key, []) for key in wanted}

    def _together(self, parts: Mapping[tuple[str, int], tuple[Row, Entry]]) -> Iterator[Item]:
        """Files of several rows, or with another version: those of which the rows make the whole version that is there."""
        if not parts:
            return
        by_path = self._rows_of(parts.keys())
        for key, (_, entry) in parts.items():
            path, mine, at = key[0], by_path[key], 0
            for row in mine:  # one that covers nothing says where more of what was written for the split before it lies
                follows = row["start"] == at or not row["length"]
                at = at + row["length"] if row["state"] in ("done", PURGING) and follows else -1
            if mine[-1]["version"] != self.sources.version(path, entry):
                self.found.stay(path, CHANGED)
                if mine[0]["state"] == PURGING:
                    self._another(mine)
            elif at != entry.size or (mine[0]["member"] is None and self.comparison.compares and not self.comparison.convert.streams):
                self.found.stay(path, PARTLY)
            else:
                yield mine, entry

    def _another(self, rows: Sequence[Row]) -> None:
        """The state of a file's rows when its path has another version: done, if it was only appended to; else they are finished."""
        path = rows[0]["path"]
        try:
            store, name = self.sources.at(path)
            entry, before = store.stat(name), prefix(rows)
            grown = (
                entry is not None and before is not None and 0 < before.end < entry.size
                and reread(store, name, entry.version, entry.size, before.marks, (before.end, 0), lines=False) is not None
            )  # fmt: skip
        except (Unreadable, StorageError, FormatError):
            return  # it stays as it is, and the next call looks again
        self._finish(rows, "done" if grown else PURGED)


class _Settling(_Task):
    """Says what is finished of that which others have begun with; what is there as it was stays as it is."""

    def _some(self, rows: list[Row]) -> None:
        there = self.sources.there(rows)
        of = self._rows_of({(row["path"], ordinal(row)) for row in rows})
        for row, entry in zip(rows, there, strict=True):
            mine = of[row["path"], ordinal(row)]
            if entry is None:
                self.found.gone += 1
                self._finish(mine, PURGED)
            elif isinstance(entry, Entry) and self.sources.version(row["path"], entry) != mine[-1]["version"]:
                self._another(mine)


class _Deleting(_Task):
    """Deletes what this call has verified, while the log still says so."""

    def _takes(self, row: Row) -> bool:
        return ordinal(row) in self.job.bases

    def _some(self, rows: list[Row]) -> None:
        there = self.sources.there(rows)
        with ThreadPoolExecutor(ASKING) as pool:
            of = self._rows_of({(row["path"], ordinal(row)) for row in rows})
            items = [(of[row["path"], ordinal(row)], entry) for row, entry in zip(rows, there, strict=True)]
            found = list(self._still(items))
            answers = list(pool.map(self._delete, found))
            self.sources.look_anew()
            for (mine, _), why in zip(found, answers, strict=True):
                path = mine[0]["path"]
                if why == ("",) and self.job.watched and self.sources.away(path):
                    self.found.stay(path, AWAY)
                elif why == ("",):
                    self._finish(mine, PURGED)
                    self.found.files += 1
                    self.found.bytes += sum(row["length"] for row in mine)
                elif why == (CHANGED,):
                    self.found.stay(path, CHANGED)
                    self._another(mine)
                else:
                    self.found.stay(path, *why)

    def _still(self, items: Iterable[tuple[list[Row], Entry | str | None]]) -> Iterator[tuple[list[Row], Entry | str | None]]:
        """Those of which the log still says what was verified: a forget or a compaction may have come in between, published or not."""
        uncovered, removed = since(self.log, self.job.fold)
        for rows, entry in items:
            path = rows[0]["path"]
            if path in uncovered or any(row["data_file"] in removed for row in rows):
                self.found.stay(path, MOVED)
            else:
                yield rows, entry

    def _delete(self, item: tuple[list[Row], Entry | str | None]) -> tuple[str, ...]:
        """Why it stays; "" if it is deleted."""
        rows, entry = item
        if isinstance(entry, str):
            return REFUSED, entry
        if entry is None:
            return ("",)
        if self.sources.version(rows[0]["path"], entry) != rows[-1]["version"]:
            return (CHANGED,)
        try:
            store, name = self.sources.at(rows[0]["path"])
            return ("",) if remove_version(store, name, entry.version) else (CHANGED,)
        except (StorageError, FormatError) as e:
            return REFUSED, str(e)
