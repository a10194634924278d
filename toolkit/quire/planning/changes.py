"""Files that the ledger knows in another version: reported, left alone, their new end taken, or read again whole."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from quire.coverage.antijoin import Known
from quire.coverage.finished import FINISHED
from quire.coverage.tails import WAITED, Prefix, prefix, reread
from quire.storage import Store, Unreadable

EMPTY = -2  # a row that gives way, of an empty file
LOOKING = 16  # files whose ends are compared at once


@dataclass(frozen=True)
class Policy:
    """The user's wish: "report" | "ignore" | "tail" | "reprocess", for files that have grown, and for other changes."""

    on_append: str = "report"
    on_change: str = "report"
    flush: bool = False  # take lines that were held back
    supersede: bool = False  # this round plans what is to be read again whole, and nothing else
    told: bool = False  # nothing is planned: it is only said which files have changed, and how

    @property
    def needs(self) -> tuple[str, ...]:
        """The columns of the ledger that deciding needs."""
        return (
            *(("fingerprint", "tries") if self.marks or self.told else ()),
            *(("records",) if self.marks or self.told or self.supersede else ()),
            *(("data_file",) if self.supersede else ()),
        )

    @property
    def marks(self) -> bool:
        """Whether the ledger keeps fingerprints, by which one can tell that a file has grown."""
        return self.on_append != "report"


class Changes(NamedTuple):
    """How many files are reported, and how many of them are longer now."""

    files: int = 0
    longer: int = 0

    @classmethod
    def of(cls, reasons: Iterable[str]) -> Changes:
        """Counted from the reasons that are told, one a file."""
        longer = Counter(why.startswith(APPENDED) for why in reasons)
        return cls(longer.total(), longer[True])

    def __str__(self) -> str:
        return f"{self.files:,}" + (f" ({self.longer:,} of them longer now)" if self.longer else "")


@dataclass
class Decided:
    """The way of a listing with files that are known in another version."""

    again: list[dict[str, Any]] = field(default_factory=list)  # splits: rows of the listing with start, length, replaces and follows
    superseded: list[dict[str, Any]] = field(default_factory=list)  # rows of the ledger that leave
    reported: list[tuple[str, str]] = field(default_factory=list)
    longer: int = 0  # of those that are reported, the ones that are longer now
    outdated: int = 0  # files that a round of their own reads again whole
    held: int = 0  # files with a last line that still waits for its end


def decide(known: list[Known], policy: Policy, source: Callable[[], Store], root: str) -> Decided:
    """Sort out the files below `root` whose rows are of another version than the listing's, or which end in a line held back."""
    found = Decided()
    grown = _grown(known, source, root, lines=policy.on_append == "tail") if policy.marks or policy.told else {}
    others = list[Known]()
    purging = [(file, rows) for file, rows in known if rows[0]["state"] in FINISHED]
    _decide_purging(purging, policy, _grown(purging, source, root, lines=False), found)
    for file, rows in (item for item in known if item[1][0]["state"] not in FINISHED):
        before = grown.get(file["path"])
        waiting = next((r for r in rows if r["state"] == "held" and r["version"] == file["version"]), None)
        waiting = waiting if waiting and waiting["start"] + waiting["length"] == file["size"] else None
        if waiting is not None:
            if policy.flush and not policy.supersede:
                found.again.append(_split(file, waiting["start"], [(waiting["version"], waiting["start"], waiting["length"], WAITED)], ()))
            else:
                found.held += 1
            continue
        if all(r["state"] == "quarantined" for r in rows) and not (before and policy.on_append == "tail"):
            # It has nothing but quarantined records, and is not followed from there: read again, as what else is quarantined.
            if not policy.supersede:
                found.again.append(_split(file, 0, _given(rows), ()))
            continue
        wanted = policy.on_append if before else policy.on_change
        if wanted == "reprocess":
            found.outdated += 1
            if policy.supersede:
                found.again.append({**file, "start": 0, "length": file["size"], "replaces": None, "follows": None})
                found.superseded += rows
        elif wanted == "tail" and before and not policy.supersede:
            empty = [(r["version"], 0, 0) for r in rows if r["state"] == "done" and not r["length"] and not r["start"]]
            found.again.append(_split(file, before.end, before.held, before.marks, empty))
            found.again += [{**file, "start": s, "length": n, "replaces": None, "follows": None} for s, n in before.gaps]
        elif wanted == "report" and before:
            found.reported.append((file["path"], _WHY["grown"]))
        elif wanted == "report":
            others.append((file, rows))
    # What goes on behind a line without its end may be the rest of that line: not a tail, and not another content either.
    unended = _grown(others, source, root, lines=False) if policy.on_append == "tail" else {}
    for file, rows in others:
        longer = file["size"] > max(r["start"] + r["length"] for r in rows)
        unknown = longer and not any(r.get("fingerprint") is not None for r in rows)
        found.reported.append((file["path"], _WHY["unended" if file["path"] in unended else "longer" if unknown else "rewritten"]))
    found.longer = sum(why.startswith(APPENDED) for _, why in found.reported)
    return found


def _decide_purging(known: list[Known], policy: Policy, grown: dict[str, Prefix], found: Decided) -> None:
    """Files of a purge that has not come to its end. Their rows must neither leave nor be read twice."""
    for file, _ in known:
        before = grown.get(file["path"])
        if before is not None and before.end:
            found.reported.append((file["path"], _WHY["purging"]))
        elif not policy.supersede:
            found.again.append(_split(file, 0, (), ()))


def _given(rows: Iterable[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Quarantined rows that give way; of single records it is said that they are."""
    return [(r["version"], r["start"], r["length"], 0, *([""] if r["records"] == 1 else [])) for r in rows]


APPENDED = "appended to"  # so begins what is said of a file that is longer now
_WHY = {
    "grown": f"{APPENDED} since it was gathered: what is new was not read",
    "unended": f"{APPENDED} since its last line was taken without a newline (partial_lines='take'): what is new, which may be the rest of "
    "that line, was not read. on_change='reprocess' reads the whole file again",
    "longer": f"{APPENDED} or rewritten since it was gathered: what is new was not read. It is longer now, and what tells these two apart "
    "is kept by on_append='tail' or 'reprocess' alone",
    "purging": f"{APPENDED} while purge_sources was to delete it, and that call did not come to its end: call purge_sources again, and "
    "what is new can be taken",
    "rewritten": "rewritten since it was gathered: the old content stays, the new one was not read",
}


def _split(file: dict[str, Any], start: int, held: Any, marks: Any, empty: Any = ()) -> dict[str, Any]:
    """From `start` to the end of a file; the rows that give way to it were not tried before: they waited, or stood for nothing."""
    replaces = [[version, [[at, length]], *rest] for version, at, length, *rest in held]
    replaces += [[version, [[at, length]], EMPTY] for version, at, length in empty]
    return {
        **file, "start": start, "length": file["size"] - start, "replaces": json.dumps(replaces) if replaces else None,
        "follows": json.dumps(marks) if marks else None,
    }  # fmt: skip


def _grown(known: list[Known], source: Callable[[], Store], root: str, *, lines: bool) -> dict[str, Prefix]:
    """The files that still begin with what the ledger covers of them, and are longer. Their rows in the listing are as they are now."""
    found = [(file, before) for file, rows in known if (before := prefix(rows)) is not None and file["size"] > before.end]
    if not found:
        return {}
    store, cut = source(), len(root.rstrip("/")) + 1

    def look(item: tuple[dict[str, Any], Prefix]) -> bool:
        file, before = item
        try:
            seen = reread(store, file["path"][cut:], file["version"], file["size"], before.marks, (before.end, 0), lines=lines)
        except Unreadable:
            return False  # what cannot be read is not a tail; the job says why it cannot
        if seen is not None:
            file["size"], file["version"] = seen[0].size, seen[0].version
            file["modified"] = seen[0].modified or file["modified"]
        return seen is not None

    with ThreadPoolExecutor(LOOKING) as pool:
        same = list(pool.map(look, found))
    return {file["path"]: before for (file, before), grew in zip(found, same, strict=True) if grew}
