"""A monitor's view of a load, and its tables: offsets of each partition, commits, quarantine, losses."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

import quire
from quire import plots
from quire.arguments import format_size
from quire.errors import printable, scrub
from quire.ledger.ledger import Summary
from quire.skew import SkewResult
from quire.storage.once import once
from quire_widgets import html
from quire_widgets.form import line
from quire_widgets.pages import Grid

COMMITS = 500  # in the picture
LATEST = 20  # in the table
QUARANTINED = 10  # records of the quarantine
LOST = 20  # partitions in the table of losses
VALUE = 120  # characters of a record
# What partitions are ordered by: the column, and whether the largest come first.
ORDERS: Mapping[str, tuple[str, bool]] = {
    "lag": ("lag", True), "partition": ("", False), "records": ("records", True), "bytes": ("bytes", True),
    "quarantined": ("quarantined", True), "lost": ("lost", True),
}  # fmt: skip
_COLUMNS = ["topic", "partition", "offset", "end", "lag", "records", "bytes", "quarantined", "lost", "open"]


@dataclass(frozen=True)
class LoadView:
    """The result of a look. `offsets` has one row a partition: what the ledger says, and `end` and `lag`, if brokers have answered."""

    summary: Summary | None  # None: nothing is loaded yet
    offsets: pd.DataFrame
    commits: pd.DataFrame
    reasons: pd.DataFrame
    quarantined: pd.DataFrame
    skew: SkewResult | None
    when: str = ""
    trouble: str = ""  # why the lag is not known, in one line

    @once
    def picture(self) -> plots.Picture:
        """The commits, drawn."""
        return plots.loads(self.commits)

    @property
    def several(self) -> bool:
        """Whether partitions are of more than one topic."""
        return self.offsets["topic"].nunique() > 1


def merged(offsets: pd.DataFrame, lag: pd.DataFrame | None) -> pd.DataFrame:
    """One row a partition that the ledger or the brokers know; what is not known is missing (NA).

    The ledger's offset counts where both tell one, as it may be newer: so does what is still to be loaded up to the end.
    """
    whole = {column: "Int64" for column in _COLUMNS if column != "topic"}
    if lag is None:
        return offsets.reindex(columns=_COLUMNS).astype(whole)
    both = offsets.drop(columns=["covered", "cluster", "topic_id"]).merge(
        lag[["topic", "partition", "offset", "end", "open"]], "outer", ["topic", "partition"], suffixes=("", "_told")
    )
    both["offset"] = both["offset"].fillna(both["offset_told"])
    both["lag"] = (both["end"] - both["offset"]).clip(lower=0)
    counts = ["records", "bytes", "quarantined", "lost"]
    both[counts] = both[counts].fillna(0)
    return both.reindex(columns=_COLUMNS).astype(whole)


def facts(seen: LoadView) -> dict[str, object]:
    """The load in a few lines."""
    table, found = seen.offsets, seen.summary
    rows: dict[str, object] = {"topics": _topics(table)}
    if table["lag"].notna().any():
        behind = table[table["lag"].fillna(0) > 0]
        rows["lag"] = f"{int(table['lag'].sum()):,} offsets" + (f", in {len(behind):,} of {len(table):,} partitions" if len(behind) else "")
    else:
        rows["lag"] = "not known"
    if table["open"].fillna(0).any():
        rows["in open transactions"] = f"{int(table['open'].sum()):,} offsets, which nobody gets yet"
    if found is not None:
        rows["records loaded"] = f"{found.records:,} (of {found.bytes_read:,} offsets)"
        rows["quarantined"] = f"{found.quarantined:,}"
        rows |= {"duplicates left out": f"{found.duplicates:,}"} if found.duplicates else {}
        rows["lost to retention"] = f"{int(table['lost'].sum()):,}"
        rows["data files"] = f"{found.data_files:,} ({format_size(found.bytes_written)})"
        rows["commits"] = f"{found.commits:,}, the last one {found.last_commit or 'never'}"
        rows["version"] = found.version
        if found.unpublished:
            rows["unpublished commits"] = found.unpublished
        if found.open_jobs:
            rows["open jobs"] = ", ".join(found.open_jobs)
    rows["looked at"] = seen.when
    return rows


def _topics(table: pd.DataFrame) -> str:
    names = sorted(set(table["topic"]))
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5:,} more" if len(names) > 5 else "")
    return f"{shown or 'none yet'} ({html.more_than(len(table), len(table), 'partition')})"


def ordered(seen: LoadView, order: str, topic: str) -> pd.DataFrame:
    """The partitions of the topics in whose names the text stands, in an order."""
    column, falling = ORDERS[order]
    table = seen.offsets
    if topic:
        table = table[table["topic"].str.contains(topic, regex=False, case=False)]
    by = [*([column] if column else []), "topic", "partition"]
    return table.sort_values(by, ascending=[not falling, True, True][-len(by) :], na_position="last", kind="stable")


def partitions(table: pd.DataFrame, offset: int, limit: int, *, several: bool) -> Grid:
    """A page of them; `several`: they may be of more than one topic."""
    page = table.iloc[offset : offset + limit]
    header = [name for name in _COLUMNS if (several if name == "topic" else _told(table, name))]
    rows = [tuple(_cell(name, row[name]) for name in header) for row in page.to_dict("records")]
    if not len(table):
        return Grid("No partitions.", header, [])
    caption = f"{offset + 1:,}–{offset + len(page):,} of {html.more_than(len(table), len(table), 'partition')}"
    return Grid(caption, [name.replace("_", " ") for name in header], rows, [name.replace("_", " ") for name in header if name != "topic"])


def _told(table: pd.DataFrame, name: str) -> bool:
    """Whether a column says anything."""
    if name in ("end", "lag"):
        return bool(table[name].notna().any())
    return name not in ("quarantined", "lost", "open") or bool(table[name].fillna(0).any())


def _cell(name: str, value: Any) -> str:
    if name == "topic":
        return str(value)
    if pd.isna(value):
        return "?"
    return str(value) if name == "partition" else format_size(int(value)) if name == "bytes" else f"{int(value):,}"


def commits(seen: LoadView) -> Grid:
    """The last commits, the newest first."""
    last = seen.commits.iloc[::-1].head(LATEST)
    counts = ["records", "quarantined", "lost"] + (["duplicates"] if last["duplicates"].any() else [])
    rows = [
        (r["version"], r["verb"], str(r["time"])[:19].replace("T", " "), *(f"{r[name]:,}" for name in counts), r["note"])
        for r in last.to_dict("records")
    ]
    total = seen.summary.commits if seen.summary is not None else len(last)
    header, numbers = ["commit", "verb", "time (UTC)", *counts, "note"], ["commit", *counts]
    if not any(row[-1] for row in rows):
        header, rows = header[:-1], [row[:-1] for row in rows]
    return Grid(f"{html.more_than(len(last), total, 'commit')}, the newest first", header, rows, numbers)


def reasons(seen: LoadView) -> Grid:
    """Why records were quarantined."""
    total = seen.summary.quarantined if seen.summary is not None else 0
    counted = int(seen.reasons["files"].sum())
    caption = f"In quarantine: {html.more_than(counted, total, 'record')}, by reason" if total else "Nothing is in quarantine."
    rows = [
        (_cut(reason or "(none)"), f"{n:,}", tries, "/".join(example.split("/")[-2:]))
        for reason, n, tries, example in seen.reasons.itertuples(index=False, name=None)
    ]
    return Grid(caption, ("reason", "records", "times read", "for example in"), rows, ("records", "times read"))


def quarantined(seen: LoadView) -> Grid:
    """The first records of the newest commits that are in quarantine."""
    rows = list[tuple[str, ...]]()
    for r in seen.quarantined.to_dict("records"):
        why = f"{r['error']}: {r['message']}" if r["message"] else r["error"]
        rows.append(("/".join(r["path"].split("/")[-2:]), f"{r['offset']:,}", _cut(why), _value(r)))
    total = seen.summary.quarantined if seen.summary else 0
    caption = f"{html.more_than(len(rows), total, 'record')} in quarantine; ledger.inspect.quarantined_records() has all"
    return Grid(caption, ("partition", "offset", "reason", "value"), rows, ("offset",))


def losses(seen: LoadView) -> Grid:
    """Which partitions have lost offsets to retention before they were read."""
    table = seen.offsets[seen.offsets["lost"].fillna(0) > 0].sort_values("lost", ascending=False, kind="stable")
    if not len(table):
        return Grid("", (), ())
    rows = [(f"{r['topic']}/{r['partition']}", f"{int(r['lost']):,}") for r in table.head(LOST).to_dict("records")]
    caption = f"Lost: {int(table['lost'].sum()):,} offsets that retention had removed before they were read, in "
    return Grid(caption + html.more_than(len(rows), len(table), "partition"), ("partition", "offsets"), rows, ("offsets",))


def _cut(text: str) -> str:
    return text if len(text) <= VALUE else f"{text[: VALUE - 1]}…"


def _value(row: Mapping[Any, Any]) -> str:
    """A record as far as one can read it."""
    content = row["content"]
    if not isinstance(content, bytes):
        return "(none)" if not row["length"] else f"(too long to be kept: {format_size(row['length'])})"
    some = content[: 4 * VALUE]
    try:
        text = some.decode("utf-8", "strict" if len(some) == len(content) else "ignore")
    except UnicodeDecodeError:
        text = f"0x{some[: VALUE // 2].hex()}"
    return _cut(scrub(printable(text), 4 * VALUE))


class Looking:
    """The ledger of a destination that topics are loaded into, by anybody.

    `source`: what is to be loaded; then nothing has to be there yet. UsageError without a ledger, or for a ledger of files.
    """

    def __init__(
        self, dest: str, source: str | None, storage_options: Mapping[str, Any] | None, source_options: Mapping[str, Any] | None
    ) -> None:
        self.dest, self.source, self._source_options = dest, source, source_options
        self.ledger = quire.Ledger(dest, storage_options, create=source is not None)
        self._read: tuple[Any, ...] | None = None
        self._ends: pd.DataFrame | None = None  # as brokers told them last
        self._trouble = ""

    def news(self) -> bool:
        """Whether something was committed since the last look."""
        return self._read is None or not self.ledger.is_current()

    def look(self, *, ask: bool = True) -> LoadView:
        """Look at all of it; where brokers do not answer, at the rest. Unless they are to be asked, their ends are those of before."""
        ledger = self.ledger
        if self.news():
            self._read = None  # what fails here is read again by the next look
            self._read = self._of_ledger(ledger.refresh())
        assert self._read is not None
        summary, *found = self._read
        open_jobs = ledger.open_jobs()  # the log says nothing of them
        shown = replace(summary, open_jobs=open_jobs) if summary.commits or open_jobs else None
        offsets, commits, reasons, quarantined, skew = found
        if ask and self.source is None:
            there = f" The log speaks of {scrub(summary.source, 200)}." if summary.source else ""
            self._trouble = f"The lag is not known: brokers are asked where the call names them, LoadMonitor(dest, 'kafka://…').{there}"
        elif ask:
            self._ends, self._trouble = None, ""
            try:
                self._ends = ledger.inspect.lag(self.source, source_options=self._source_options)
            except Exception as e:  # whatever it is: it is told, and the rest is shown
                self._trouble = f"The lag is not known: {line(e)}"
        when = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        return LoadView(shown, merged(offsets, self._ends), commits, reasons, quarantined, skew, when, self._trouble)

    def _of_ledger(self, ledger: quire.Ledger) -> tuple[Any, ...]:
        summary = ledger.summary()
        if not summary.source and summary.commits and summary.transform:
            raise quire.UsageError(
                f"{summary.dest} was made of files, and a LoadMonitor shows what was loaded from topics: look with LedgerInspector."
            )
        return (
            summary,
            ledger.inspect.offsets(),
            ledger.inspect.commits(last=COMMITS),
            ledger.inspect.reasons() if summary.quarantined else pd.DataFrame({"reason": [], "files": [], "tries": [], "example": []}),
            ledger.inspect.quarantined_records(limit=QUARANTINED),
            ledger.partition_skew(),
        )
