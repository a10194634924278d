"""Takes out of a listing what the ledger covers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quire.commit.entries import Uncover
from quire.coverage.finished import FINISHED, PURGING, generations
from quire.coverage.fold import Fold
from quire.storage import Store

COLUMNS = ("path", "version", "start", "length", "state")

# A file of the listing, and its rows in the ledger.
Known = tuple[dict[str, Any], list[dict[str, Any]]]


@dataclass
class Remaining:
    """The part of a listing that must be read."""

    files: pa.Table  # the rows of the listing, with `start` and `length` of what is left of each file
    done: int = 0  # files that are covered
    quarantined: int = 0  # of them those of which nothing but quarantine is there
    known: list[Known] = field(default_factory=list)  # files that were gathered in another version, or end in a line held back
    # Of files that are here only in quarantine, and have changed since; whether they are of single records.
    uncovers: list[tuple[Uncover, bool]] = field(default_factory=list)


def remaining(listing: pa.Table, fold: Fold, store: Store, also: Sequence[str] = ()) -> Remaining:
    """Anti-join a listing (columns path, size, version, …) with the ledger.

    Ranges that no row covers are left, of paths without a row under another version. A path that is only in quarantine, under
    another version, is taken again as a whole, and its old rows leave the ledger. The rest is `known`, each with its rows (`also`: with
    these columns too). A single record that was quarantined is as done as what lies around it. A purged file is done in its own version
    alone; while a purge is under way, and another file is there, that file is `known`, too.
    """
    start = pa.array([0] * listing.num_rows, pa.int64())
    listing = listing.append_column("start", start).append_column("length", listing.column("size"))
    if not listing.num_rows or not fold.sources:
        return Remaining(listing)
    paths = listing.column("path")
    rows = fold.rows(store, (*COLUMNS, *also), among=paths.combine_chunks())
    if not rows.num_rows:
        return Remaining(listing)
    # Nearly every path is either unknown or covered by one row: these two cases stay in Arrow.
    hit = pc.index_in(paths, rows.column("path").combine_chunks())
    same = pc.and_(
        pc.equal(rows.column("version").take(hit), listing.column("version")),
        pc.and_(pc.equal(rows.column("start").take(hit), 0), pc.equal(rows.column("length").take(hit), listing.column("size"))),
    )
    known = pc.is_valid(hit)
    taken = pc.not_equal(rows.column("state").take(hit), "held")
    covered = pc.and_(known, pc.fill_null(pc.and_(same, taken), False))
    aside = pc.and_(covered, pc.fill_null(pc.equal(rows.column("state").take(hit), "quarantined"), False))
    found = Remaining(listing.filter(pc.invert(known)), done=pc.sum(covered).as_py() or 0, quarantined=pc.sum(aside).as_py() or 0)
    odd = listing.filter(pc.and_(known, pc.invert(covered)))
    if odd.num_rows:
        among = odd.column("path").combine_chunks()
        rows = rows.filter(pc.is_in(rows.column("path"), among))
        whole = _in_parts(odd, rows, found)
        odd = odd.filter(pa.array(~whole))
    if odd.num_rows:
        among = odd.column("path").combine_chunks()
        rows = rows.filter(pc.is_in(rows.column("path"), among))
        rare = pa.array(["quarantined", PURGING])  # of these alone more is to be known
        lacking = [c for c in ("fingerprint", "records", "tries", "reason") if c not in rows.schema.names]
        if lacking and pc.any(pc.is_in(rows.column("state"), rare)).as_py():
            rows = fold.rows(store, (*COLUMNS, *also, *lacking), among=among)
        _sort_out(odd, rows, found)
    return found


def _in_parts(files: pa.Table, rows: pa.Table, found: Remaining) -> np.ndarray:
    """Which files are covered by rows that follow one another, all of the version that is there: so are archives, each by many."""
    file_of = pc.index_in(rows.column("path"), files.column("path").combine_chunks())
    same = pc.equal(rows.column("version"), files.column("version").take(file_of))
    at, starts = file_of.to_numpy(), rows.column("start").to_numpy()
    lengths = rows.column("length").to_numpy()
    order = np.lexsort((lengths, starts, at))  # what covers nothing stands before what begins there
    at, starts = at[order], starts[order]
    ends = starts + lengths[order]
    good = pc.and_(same, pc.is_in(rows.column("state"), pa.array(["done", "mark", "quarantined"]))).to_numpy()[order]
    first = np.diff(at, prepend=-1) != 0
    good &= starts == np.where(first, 0, np.roll(ends, 1))
    last = np.diff(at, append=-1) != 0
    good &= ~last | (ends == files.column("size").to_numpy()[at])
    whole: np.ndarray = np.bincount(at[~good], minlength=files.num_rows) == 0
    aside = pc.equal(rows.column("state"), "quarantined").to_numpy()[order]
    vain = np.bincount(at[~aside], minlength=files.num_rows) == 0
    found.done, found.quarantined = found.done + int(whole.sum()), found.quarantined + int((whole & vain).sum())
    return whole


def _sort_out(odd: pa.Table, rows: pa.Table, found: Remaining) -> None:
    """The files that are covered in part, or under another version."""
    by_path = dict[str, list[dict[str, Any]]]()
    for row in rows.to_pylist():
        by_path.setdefault(row["path"], []).append(row)
    again = []
    for file in odd.to_pylist():
        path, version, size = file["path"], file["version"], file["size"]
        there = by_path[path]
        finished = [r for r in there if r["state"] in FINISHED]
        if any(r["version"] == version for r in finished):
            found.done += 1  # the very file that was purged, or is being purged
            continue
        there = [r for r in there if r["state"] not in FINISHED]
        if finished and not there:  # a new file, whatever had its name before
            # The last of several purges tells: the file that had the name before is not the one that is there now.
            last = generations(finished)[-1] if any(r["state"] == PURGING for r in finished) else []
            if last and last[0]["state"] == PURGING:
                found.known.append((file, last))
            else:
                again.append({**file, "start": 0, "length": size})
            continue
        # Of rows that follow one another in several versions (a file that was appended to), the last one tells what is done. Where
        # nothing but quarantined records is there, only their fingerprints tell whether it goes on from them.
        some = any(r["version"] != version and r["state"] != "quarantined" for r in there)
        aside = [r["state"] == "quarantined" and not (r["records"] == 1 and (some or r.get("fingerprint") is not None)) for r in there]
        others = any(r["version"] != version and not bad for r, bad in zip(there, aside, strict=True))
        held = [r for r in there if r["state"] == "held"]
        following = [r for r, bad in zip(there, aside, strict=True) if r["version"] == version or not bad]
        left = gaps([(r["start"], r["length"]) for r in following], size)
        if (others and max(there, key=_place)["version"] != version) or (held and not left):
            found.known.append((file, there))
            continue
        old = [r for r, bad in zip(there, aside, strict=True) if r["version"] != version and bad]
        for of in sorted({(r["version"], r["records"] == 1) for r in old}):
            ranges = tuple((r["start"], r["length"]) for r in old if (r["version"], r["records"] == 1) == of)
            found.uncovers.append((Uncover(path, of[0], ranges), of[1]))
        again += [{**file, "start": s, "length": n} for s, n in left]
        found.done += not left
        found.quarantined += not left and all(r["state"] == "quarantined" for r in there)
    if again:
        found.files = pa.concat_tables([found.files, pa.Table.from_pylist(again, found.files.schema)]).sort_by("path")


def _place(row: dict[str, Any]) -> tuple[int, int]:
    return row["start"] + row["length"], row["start"]


def gaps(covered: list[tuple[int, int]], size: int) -> list[tuple[int, int]]:
    """The ranges of [0, size) that are not covered; of an empty file, the empty range if it is not."""
    if size == 0:
        return [] if covered else [(0, 0)]
    found, at = [], 0
    for start, length in sorted(covered):
        if start > at:
            found.append((at, min(start, size) - at))
        if start >= size:
            return [gap for gap in found if gap[1] > 0]  # rows beyond the end: somebody forged them
        at = max(at, start + length)
    return [*found, (at, size - at)] if at < size else found
