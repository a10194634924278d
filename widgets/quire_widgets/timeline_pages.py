"""A table's instants, file groups and slices, and the history of a record: as HTML and as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quire import display
from quire.arguments import format_size
from quire.errors import printable
from quire.table import slices
from quire.table.format import names
from quire.table.history import RecordHistory
from quire.table.slices import Drawn, Group, Period, Window
from quire_widgets import html
from quire_widgets.pages import Grid

STATES = {"completed": "●", "inflight": "◐", "requested": "○"}
OPS = {"i": "inserted", "u": "updated", "d": "deleted"}
LEGEND = (
    "● completed, ◐ under way, ○ asked for. A slice is as wide as the time for which it counted, and as high as its files are large; "
    "with a double line it has logs (+ how many); grey ones are superseded. ◆ has changed the record, or held it."
)
VERSIONS, LOGS = 200, 100  # rows in a table
_LINE = 140  # characters of a line in a list
_LONGEST = 400  # characters of a row
_SIDE, _ID = 20, 8  # characters beside a lane, and of a file group's id among them
_ROOM = 5  # characters in a column
_NUMBERS = ("files", "bytes", "inserted", "updated", "deleted", "deleted_files")
Placed = tuple[Period, tuple[int, int]]  # a slice, and the columns that it stands in
Shown = list[tuple[Group, list[Placed]]]


@dataclass
class TimelineView:
    """All that is shown of a table: a window of its instants, a page of the file groups whose partition has a text in its path."""

    drawn: Drawn
    window: Window
    size: int  # file groups of a page
    offset: int = 0
    partition: str = ""
    instant: str = ""  # the chosen ones
    period: Period | None = None
    keys: Sequence[str] = ()  # of the chosen slice
    history: RecordHistory | None = None

    def chosen(self) -> list[Group]:
        """The file groups of the partitions that are looked at."""
        return [one for one in self.drawn.groups if self.partition in one.partition]

    def shown(self) -> Shown:
        """Those of the page, with the slices that counted in the window."""
        page = self.chosen()[self.offset : self.offset + self.size]
        return [(one, [(p, at) for p in one.periods if (at := self.window.columns(p)) is not None]) for one in page]

    def periods(self) -> list[Period]:
        """The slices that are shown."""
        return [period for _, periods in self.shown() for period, _ in periods]

    def touched(self) -> tuple[set[str], set[str]]:
        """The instants and the files of the record's history."""
        rows = list(self.history.rows()) if self.history else []
        return {str(row["instant"]) for row in rows}, {str(row["file"]) for row in rows if row["file"]}

    # ------------------------------------------------------------------------------------------------------------------- as HTML
    def facts(self) -> Mapping[str, object]:
        """The table in numbers."""
        periods = [period for group in self.drawn.groups for period in group.periods]
        now = [period.slice for period in periods if period.counts]
        parts = len({one.partition for one in now})
        return {
            "on the timeline": html.more_than(self.window.total, self.window.total, "instant"),
            "file groups now": f"{len(now):,}, in {html.more_than(parts, parts, 'partition')}",
            "base files that count": f"{sum(bool(one.name) for one in now):,} ({format_size(sum(one.size for one in now))})",
            "logs that count": f"{sum(len(one.logs) for one in now):,} ({format_size(sum(one.logged for one in now))})",
            "superseded slices": f"{len(periods) - len(now):,}",
            "under way": f"{sum(one.state != 'completed' for one in self.drawn.instants):,}",
        }

    def where(self) -> str:
        """Which instants and file groups are shown, of how many."""
        times, groups = self.window, len(self.chosen())
        last = times.total - times.newer
        instants = f"instants {last - len(times.times) + 1:,}–{last:,} of {times.total:,}" if times.times else "nothing on the timeline"
        end = min(self.offset + self.size, groups)
        shown = f"file groups {self.offset + 1:,}–{end:,} of {groups:,}" if groups else "no file groups"
        return f"{instants}, {shown}{f' with {self.partition!r} in their partition' if self.partition else ''}"

    def picture(self) -> str:
        """The picture as a table, for a page without a kernel."""
        times, rows = self.window.times, self.window.told()
        cell = 'style="padding:1px 4px;border:1px solid var(--jp-border-color2, #8884);text-align:center;white-space:nowrap"'
        head = "".join(f'<th scope="col" {cell}>{"<br>".join(map(html.text, clock(time)))}</th>' for time in times)
        lines = [f'<tr><th scope="col" {cell}>UTC</th>{head}</tr>']
        for lane in slices.lanes(rows):
            states = {row["instant"]: STATES.get(row["state"], "?") for row in rows if slices.lane(row) == lane}
            inside = "".join(f"<td {cell}>{states.get(time, '')}</td>" for time in times)
            lines.append(f'<tr><th scope="row" {cell}>{html.text(lane)}</th>{inside}</tr>')
        for group, periods in self.shown():
            inside, at = "", 0
            for period, (begin, end) in periods:
                gap = f"<td {cell}></td>" * max(begin - at, 0)
                inside += f'{gap}<td colspan="{end - begin}" {cell} title="{html.text(of_period(period))}">'
                inside += f"{html.text(face(period, end - begin))}{'' if period.counts else ' (superseded)'}</td>"
                at = end
            inside += f"<td {cell}></td>" * max(len(times) - at, 0)
            lines.append(f'<tr><th scope="row" {cell} title="{html.text(group.name)}">{html.text(of_group(group))}</th>{inside}</tr>')
        return html.scrolling(f'<table style="border-collapse:collapse;margin:4px 0">{"".join(lines)}</table>', "instants and slices")

    def details(self) -> list[Grid]:
        """The chosen instant, or the chosen slice."""
        if self.period is not None:
            return [period_of(self.period)]
        rows = [row for row in self.window.told() if row["instant"] == self.instant]
        return [instant_of(self.instant, rows, self.begun())] if self.instant else []

    def begun(self) -> list[Period]:
        """The slices that the chosen instant has begun."""
        return [one for group in self.drawn.groups for one in group.periods if one.slice.instant == self.instant]

    def told(self) -> Grid | None:
        """The history of the record."""
        return None if self.history is None else versions_of(self.history)

    # ------------------------------------------------------------------------------------------------------------------- as text
    def lines(self) -> list[str]:
        """All of it as text."""
        rows, shown = self.window.told(), self.shown()
        header = ("partition", "file group", "from", "until", "size", "logs")
        table = [(one.slice.partition, group.name[:_ID], *span(one), *_sizes(one)) for group, periods in shown for one, _ in periods]
        told = self.told()
        return [
            display.lines(self.drawn.url, self.facts(), ""),
            self.where(),
            html.columns(("instant", "lane", "state", "operation"), [
                (row["instant"], slices.lane(row), row["state"], row["operation"] or "") for row in rows
            ]) if rows else "",
            html.columns(header, table, ("size", "logs")) if table else "",
            *(one.text() for one in self.details()),
            told.text() if told else "",
        ]  # fmt: skip


# ------------------------------------------------------------------------------------------------------------------------- tables
def instant_of(time: str, rows: Sequence[Mapping[str, Any]], begun: Sequence[Period]) -> Grid:
    """An instant: a row for each action that has it, and the slices that begin there."""
    found = [
        (row["action"], row["state"], row["operation"] or "", *("" if row[name] is None else _number(name, row[name]) for name in _NUMBERS))
        for row in rows
    ]
    numbers = tuple(name.replace("_", " ") for name in _NUMBERS)
    said = f", and began {html.more_than(len(begun), len(begun), 'slice')}" if begun else ""
    return Grid(f"{when(time)} ({time}){said}", ("action", "state", "operation", *numbers), found, numbers, short=("action", "state"))


def period_of(period: Period) -> Grid:
    """A slice: its files, and how long it counts."""
    one = period.slice
    begun, until = span(period)
    rows = [("base file", one.name.rpartition("/")[2], format_size(one.size))] if one.name else []
    logs = list(zip(one.logs, period.sizes, strict=True))
    rows += [("log", name.rpartition("/")[2], format_size(size)) for name, size in logs[:LOGS]]
    more = f"; {html.more_than(LOGS, len(logs), 'log')}" if len(logs) > LOGS else ""
    caption = f"Slice of {one.partition or '(no partition)'}, file group {one.group}, from {begun}, {until}{more}"
    return Grid(caption, ("kind", "file", "size"), rows, ("size",), short=("kind",))


def versions_of(history: RecordHistory) -> Grid:
    """The history of a record, the newest last: at each instant only what it changed."""
    rows = list(history.rows())
    found = [
        (
            when(row["instant"]), OPS.get(row["op"], "not known"), row["operation"] or "", row["partition"],
            _file(row["file"] or ""), _changed(row["before"], row["after"]),
        )
        for row in rows[-VERSIONS:]
    ]  # fmt: skip
    shown = f" ({html.more_than(VERSIONS, len(rows), 'change')})" if len(rows) > VERSIONS else ""
    header = ("instant", "change", "operation", "partition", "file", "row")
    return Grid(f"Record {printable(history.key)}{shown}. {history.known}", header, found, short=("instant", "change", "operation", "file"))


def _file(path: str) -> str:
    """A file by its group and its kind: its whole name is in the slice, and in the result."""
    found = names.file(path.rpartition("/")[2])
    if found is None:
        return path.rpartition("/")[2]
    return f"{found.file_id[:_ID]} {'base file' if isinstance(found, names.BaseFile) else f'log {found.number}'}"


def _changed(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> str:
    if before is None or after is None:
        row = after if before is None else before
        text = ", ".join(f"{name}: {value}" for name, value in (row or {}).items())
    else:
        there = [name for name in after if name not in before or before[name] != after[name]]
        text = ", ".join(f"{name}: {before.get(name)} → {after[name]}" for name in there) or "the same values"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


# -------------------------------------------------------------------------------------------------------------------------- words
def of_instant(row: Mapping[str, Any]) -> str:
    """A row of the timeline in words."""
    operation = row["operation"] or ""
    named = row["action"] if operation in ("", row["action"]) else f"{row['action']} ({operation})"
    return f"{when(row['instant'])} {named}, {row['state']}"


def of_period(period: Period) -> str:
    """A slice in words."""
    size, logs = _sizes(period)
    begun, until = span(period)
    with_logs = f" + {html.more_than(len(period.slice.logs), len(period.slice.logs), 'log')}" if logs else ""
    return f"{printable(period.slice.partition)} {period.slice.group[:_ID]} from {begun}, {until}: {size}{with_logs}".lstrip()


def of_group(group: Group) -> str:
    """A file group, short."""
    return _side(group.partition, group.name)


def face(period: Period, columns: int, *, touched: bool = False) -> str:
    """The words on a slice: its size, and how many logs it has; in a narrow one only those for which there is room."""
    mark, logs = "◆" if touched else "", f"+{len(period.slice.logs)}" if period.slice.logs else ""
    size = format_size(period.slice.size + period.slice.logged)
    number, _, unit = size.partition(" ")
    short = f"{round(float(number)) if len(number) > 3 else number}{unit[0]}"
    room = _ROOM * columns + columns // 2
    return next(
        (text for text in (f"{mark}{size}{logs}", f"{mark}{short}{logs}", f"{mark}{logs or short}") if len(text) <= room), mark or "…"
    )


def span(period: Period) -> tuple[str, str]:
    """From when on a slice counts, and until when, in words."""
    until = "counts now" if period.counts else f"{'replaced' if period.replaced else 'superseded'} at {when(period.end)}"
    return when(period.slice.instant), until


def shortened(text: str) -> str:
    """A line of a list, or of a button's description, with no more characters than there is room for."""
    text = printable(text)
    return text if len(text) <= _LINE else f"{text[: _LINE // 2]}…{text[1 - _LINE // 2 :]}"


def clock(time: str) -> tuple[str, str]:
    """The day and the time of day of an instant."""
    return f"{time[4:6]}-{time[6:8]}", f"{time[8:10]}:{time[10:12]}:{time[12:14]}"


def when(time: str) -> str:
    """An instant as people read it."""
    return f"{time[:4]}-{time[4:6]}-{time[6:8]} {time[8:10]}:{time[10:12]}:{time[12:14]}{'.' if time[14:] else ''}{time[14:]}"


def _side(partition: str, group: str) -> str:
    text, room = printable(partition), _SIDE - _ID - 1
    short = text if len(text) <= room else f"{text[: room // 2]}…{text[room // 2 + 1 - room :]}"
    return f"{short} {group[:_ID]}".strip()


def _sizes(period: Period) -> tuple[str, str]:
    return format_size(period.slice.size + period.slice.logged), f"{len(period.slice.logs):,}" if period.slice.logs else ""


def _number(name: str, value: Any) -> str:
    return format_size(int(value)) if name == "bytes" else f"{int(value):,}"
