"""A table to look into: its instants as lanes, its file groups and slices as a picture, and the whole history of a record."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets as widgets
import traitlets

import quire
from quire import UsageError, display
from quire.arguments import whole
from quire.errors import quoted
from quire.table import slices
from quire.table.history import RecordHistory
from quire.table.slices import Drawn, Period, Window
from quire_widgets import as_code, html
from quire_widgets.form import Field, Running, Turners
from quire_widgets.queued import QueuedForm
from quire_widgets.timeline_lanes import STYLE, Lanes
from quire_widgets.timeline_pages import LEGEND, TimelineView, of_instant, of_period, shortened

BUSY = ("looking", "reading")
KEYS = 20  # records of a slice that can be chosen
_ROOM = "52em"  # of tables with the names of files
_NOTHING = ""  # in the lists


class TableTimeline(QueuedForm):
    """A table seen: instants as lanes, file groups and their slices below them, and what one record went through.

    table            a `quire.Table`, also as of an instant, or the place of one
    storage_options  of its store, where a place is given
    last             how many instants stand side by side
    page_size        file groups of a page

    partition        the file groups of partitions that have this text in their path
    key              the record that is looked for
    .older() .newer()   the instants before, and after, those that are shown; `.newest()` the last ones
    .turn(pages)     so many pages of file groups on, or back; None: the first one
    .show_instant(instant) .show_slice(file)    choose what is shown in detail; a click on the picture does the same
    .look(key)       each change of a record, also marked in the picture (default: `key`)
    .refresh() .wait(timeout)
    .state           "idle" | "looking" | "reading" | "done" | "failed"
    .result          what the last call gave: rows of the timeline, a slice, or a `quire.RecordHistory`
    .error           why the last call failed, else None; .code is the same call as Python

        seen = TableTimeline("/data/trips", last=16, page_size=10)
        seen.older(); seen.newer(); seen.newest(); seen.turn(1); seen.partition = "city=sf"
        seen.show_instant("20261122093015123"); seen.show_slice("city=sf/….parquet"); seen.look("trip-7")
        seen.refresh(); seen.wait(60), seen.result

    The calls return at once; one at a time is under way, and the last one that was asked for meanwhile follows. Observers are called in
    the thread that does the work. Raises UsageError for a place without a table, RefusedError for a kind that quire does not read.
    """

    BUSY = BUSY

    partition = traitlets.Unicode(help="a part of partitions' paths")
    key = traitlets.Unicode(help="the record that is looked for")
    state = traitlets.Enum(("idle", *BUSY, "done", "failed"), "idle", help="where it is")
    result = traitlets.Any(help="what the last call gave")

    def __init__(
        self, table: quire.Table | str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None, *, last: int = 16,
        page_size: int = 10,
    ) -> None:  # fmt: skip
        self._last = whole(last, "last", 1)
        whole(page_size, "page_size", 1)
        opened = table if isinstance(table, quire.Table) else quire.Table(table, storage_options=storage_options)
        if opened is table and storage_options is not None:
            raise UsageError("storage_options= is for a place, and this table was opened with its own.")
        drawn = slices.look(opened)
        super().__init__("quire-timeline")
        self._view = TimelineView(drawn, drawn.window(last), page_size)
        self._filling, self._show_lock = False, threading.RLock()
        self._build()
        self._show_all()
        self._give_window()

    # ------------------------------------------------------------------------------------------------------------ what it holds
    def _build(self) -> None:
        text, choice = widgets.Text, widgets.Dropdown
        self._fields |= {
            "partition": Field(text, "partition", "partition", placeholder="a part of its path: dt=2026-11"),
            "instant": Field(choice, "instant", "instant-list", options=[_NOTHING]),
            "slice": Field(choice, "slice", "slice-list", options=[_NOTHING]),
            "record": Field(choice, "record", "record-list", options=[_NOTHING]),
            "key": Field(text, "key", "key", placeholder="a record's key, as the table stores it"),
        }
        for name in ("instant", "slice", "record"):
            self._fields[name].input.layout.width = "auto"
        for name in ("partition", "key"):
            traitlets.link((self._fields[name].input, "value"), (self, name))
        self._fields["key"].on_enter(self.look)
        for name, act in (("instant", self.show_instant), ("slice", self.show_slice), ("record", self.look)):
            self._fields[name].input.observe(lambda change, act=act: self._picked(act, change["new"]), "value")
        self._running = Running("")
        self._lanes, self._turners = Lanes(self.show_instant, self._show_period), Turners(self.turn)
        times = [
            self._button("Refresh", self.refresh, tooltip="Look at the table as it is now"),
            self._button("Older", self.older, tooltip="The instants before these"),
            self._button("Newer", self.newer, tooltip="The instants after these"),
            self._button("Last", self.newest, tooltip="The last instants"),
        ]
        history = self._button("History", self.look, button_style="primary", tooltip="Each change of this record")
        partition, instant, one, record, key = self._fields.values()
        self._lay_out(
            "summary", times, "where", self._lanes, "legend", partition, self._turners, instant, one, "details", record, key, history,
            self._running, "history", "code",
        )  # fmt: skip

    def _picked(self, act: Callable[[str], object], value: str) -> None:
        with self._show_lock:  # another thread may be filling the lists
            filling = self._filling
        if value != _NOTHING and not filling:
            act(value)

    # ----------------------------------------------------------------------------------------------------------------- to look
    def refresh(self) -> None:
        """Look at the table as it is now. Older instants stay where they are, and what was chosen stays chosen, if it is still there."""
        table, last, before = self._view.drawn.table, self._last, self._view.window

        def act() -> tuple[Drawn, Window]:
            drawn = slices.look(table)
            return drawn, drawn.window(last, drawn.newer_than(before.times[-1]) if before.newer else 0)

        self._begin("looking", act, self._show_looked)

    def older(self) -> None:
        """Show the instants before those that are shown."""
        self._go(self._view.window.newer + self._last)

    def newer(self) -> None:
        """Show the instants after those that are shown."""
        self._go(max(self._view.window.newer - self._last, 0))

    def newest(self) -> None:
        """Show the last instants."""
        self._go(0)

    def _go(self, newer: int) -> None:
        drawn, last = self._view.drawn, self._last
        self._begin("looking", lambda: (drawn, drawn.window(last, newer)), self._show_looked)

    def turn(self, pages: int | None) -> None:
        """So many `pages` of file groups on, or back if it is negative; None: the first one."""
        view = self._view
        with self._show_lock:
            offset = 0 if pages is None else max(view.offset + pages * view.size, 0)
            if not offset or offset < len(view.chosen()):
                view.offset = offset
                self._show_picture()

    @traitlets.observe("partition")
    def _chosen(self, _: object) -> None:
        self._view.partition = self.partition.strip()
        self.turn(None)

    def show_instant(self, instant: str) -> None:
        """Show what happened at an `instant` that is in the picture; UsageError for another one."""
        view = self._view
        with self._show_lock:
            if instant not in view.window.times:
                raise UsageError(f"the instant {quoted(instant)} is not in the picture: older() or newer() lead to it.")
            view.instant, view.period, view.keys = instant, None, ()
            self._show_chosen()

    def show_slice(self, file: str) -> None:
        """Show the slice to which a `file` belongs, by its name below the table, and some of its records; UsageError for another one."""
        period = self._view.drawn.period(file)
        if period is None:
            raise UsageError(f"{quoted(file)} is not a file of {self._view.drawn.url}, or was cleaned: refresh() looks again.")
        self._show_period(period)

    def _show_period(self, period: Period) -> None:
        view = self._view
        with self._show_lock:
            view.instant, view.period, view.keys = "", period, ()
            self._show_chosen()
        self.result, drawn = period, view.drawn
        self._begin("reading", lambda: (period, drawn.keys(period, KEYS)), self._show_keys)

    def look(self, key: str | None = None) -> None:
        """Read the history of a record by its `key` (default: the field's). UsageError where there is none."""
        wanted = self.key if key is None else key
        if key is not None:
            self.key = str(key)
        table = self._view.drawn.table
        if wanted == "":
            error = UsageError("key is empty: type the key of a record, or choose a slice and one of its records.")
            error.argument = "key"
            self._tell(error)
            return
        self._begin("reading", lambda: (table.history(wanted),), self._show_history)

    # ------------------------------------------------------------------------------------------------------------- what it shows
    def _show_looked(self, drawn: Drawn, window: Window) -> None:
        view = self._view
        with self._show_lock:
            view.drawn, view.window = drawn, window
            view.instant = view.instant if view.instant in window.times else ""
            view.period = drawn.period(view.period.name) if view.period else None
            view.offset = 0 if view.offset >= len(view.chosen()) else view.offset
            self._show_all()
        self._give_window()

    def _give_window(self) -> None:
        window = self._view.window
        self._show_code(as_code.table(*self._place(), "timeline", rows=(window.last, len(window.rows))), "The last call as Python:")
        self.result = window.rows

    def _place(self) -> tuple[str, bool, str]:
        drawn = self._view.drawn
        return drawn.url, drawn.has_options, drawn.as_of

    def _show_keys(self, period: Period, keys: Sequence[str]) -> None:
        with self._show_lock:
            if self._view.period == period:
                self._view.keys = keys
                self._show_chosen()

    def _show_history(self, history: RecordHistory) -> None:
        with self._show_lock:
            self._view.history = history
            self._put("history", _wide(self._view.told()))
            self._lanes.mark(self._view)
        self._show_code(as_code.table(*self._place(), "history", key=history.key), "The last call as Python:")
        self.result = history

    def _show_all(self) -> None:
        view = self._view
        self._put("summary", display.facts(self._title(), view.facts()))
        self._put("legend", html.block(STYLE, f'<p style="margin:2px 0;font-size:11px">{html.text(LEGEND)}</p>'))
        older, newer, newest = (self._buttons[name] for name in ("older", "newer", "last"))
        older.disabled = view.window.newer + len(view.window.times) >= view.window.total
        newer.disabled = newest.disabled = not view.window.newer
        self._show_picture()

    def _show_picture(self) -> None:
        view = self._view
        self._put("where", html.block(f'<p style="margin:4px 0"><strong>{html.text(view.where())}</strong></p>'))
        self._turners.allow(view.offset > 0, view.offset + view.size < len(view.chosen()))
        self._lanes.draw(view)
        self._show_chosen()

    def _show_chosen(self) -> None:
        """The chosen instant or slice, in the lists, in the picture, and in detail."""
        view = self._view
        rows = view.window.told()
        periods = {period.name: of_period(period) for period in ([view.period] if view.period else []) + view.periods()}
        self._filling = True
        try:
            self._fill("instant", {row["instant"]: of_instant(row) for row in reversed(rows)}, view.instant, "choose one of these")
            self._fill("slice", periods, view.period.name if view.period else "", "choose one of this page")
            self._fill("record", {key: key for key in view.keys}, "", f"choose one of its first {len(view.keys):,}")
        finally:
            self._filling = False
        self._fields["record"].layout.display = None if view.keys else "none"
        self._put("details", "".join(_wide(one) for one in view.details()))
        self._lanes.mark(view)

    def _fill(self, name: str, words: Mapping[str, str], chosen: str, otherwise: str) -> None:
        given, options = self._fields[name].input, [(otherwise, _NOTHING), *((shortened(text), value) for value, text in words.items())]
        if tuple(given.options) != tuple(options):
            given.options = options
        given.value = chosen

    def _title(self) -> str:
        drawn = self._view.drawn
        return f"{drawn.url} as of {drawn.as_of}" if drawn.as_of else drawn.url

    def _lines(self) -> list[str]:
        return [*self._view.lines(), self._running.message, self.code]

    def _page(self) -> str:
        places, view = self._places, self._view
        parts = (places[name].value for name in ("details", "history"))
        picture = view.picture() + places["legend"].value
        return html.block(
            places["summary"].value, places["where"].value, picture, html.note(self._running.message), *parts, html.code(self.code)
        )


def _wide(table: Any) -> str:
    """A table that a narrow cell scrolls, and does not press into letters one below the other."""
    return html.scrolling(f'<div style="min-width:{_ROOM}">{table.html()}</div>', table.caption) if table else ""
