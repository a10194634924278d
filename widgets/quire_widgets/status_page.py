"""Whether destinations are well: a line for each, what to do, and on request all that is known of it, and the timeline of a table."""

from __future__ import annotations

import datetime as dt
import os
import threading
import time
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import ipywidgets as widgets
import traitlets

import quire
from quire import UsageError
from quire.arguments import seconds
from quire.errors import hide, quoted
from quire_widgets import as_code, html
from quire_widgets.call import Call, Watch, Watches
from quire_widgets.form import Shutter, WatchForm, button, line, place, shown
from quire_widgets.timeline import TableTimeline

_LOOKING = "not looked at yet"


class _Timeline(widgets.VBox):  # type: ignore[misc]  # ipywidgets is published without types
    """A button, and below it the timeline of a table, which a thread of its own opens: a store that does not answer holds up nothing."""

    def __init__(self, dest: str, options: Mapping[str, Any] | None) -> None:
        self._dest, self._options = dest, options
        self.widget: TableTimeline | None = None
        self._call: Call | None = None  # the last one that was begun
        self._lock = threading.RLock()
        self._button = button("", "quire-table-button", self.turn, layout={"width": "auto", "align_self": "flex-start", "display": "none"})
        self._said = place("table-message")
        super().__init__([self._button, self._said])
        self._show(None, "")

    def allow(self, there: bool) -> None:
        """Whether there is a timeline to show."""
        self._button.layout.display = None if there else "none"

    def turn(self) -> None:
        """Open it, or close it."""
        with self._lock:
            if self.widget is None:
                self.unfold()
            else:
                self._show(None, "")

    def unfold(self) -> None:
        """Open it, if it is not open."""
        with self._lock:
            if self.widget is not None or (self._call is not None and not self._call.wait(0)):
                return
            self._show(None, html.status("Looking at the table …"))
            self._call = Call(lambda _: TableTimeline(self._dest, self._options), self._opened, lambda *_: None)
            self._call.start()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is open, if it was asked for, and shows what it was asked for."""
        end = None if timeout is None else time.monotonic() + timeout
        if self._call is not None and not self._call.wait(timeout):
            return False
        widget = self.widget
        return widget is None or widget.wait(None if end is None else max(0.0, end - time.monotonic()))

    def _opened(self, widget: TableTimeline | None, error: BaseException | None) -> None:
        with self._lock:
            self._show(widget, "" if error is None else html.alert(line(error)))

    def _show(self, widget: TableTimeline | None, said: str) -> None:
        before, self.widget = self.widget, widget
        self._button.description = f"{'Show' if widget is None else 'Hide'} the timeline"
        shown(self._said, said)
        self.children = [self._button, self._said, *([widget] if widget is not None else [])]
        if before is not None:
            before.close()


class _Row(widgets.VBox):  # type: ignore[misc]  # ipywidgets is published without types
    """A destination: its line, what else is to be done, behind a button its facts, and behind another one the timeline of a table."""

    def __init__(self, dest: str, source: Any, options: Mapping[str, Any] | None) -> None:
        self.dest, self.source = dest, source
        self.seen: quire.Status | None = None
        self.trouble = ""  # why the last look has failed
        self._line = place("status-line")
        self.facts = Shutter("facts", "all that is known", lambda: "" if self.seen is None else self.seen._repr_html_())
        self.timeline = _Timeline(dest, options)
        super().__init__([self._line, self.facts, self.timeline])
        self.add_class("quire-status-row")
        self.show()

    @property
    def well(self) -> bool | None:
        """None: nobody knows."""
        return None if self.trouble or self.seen is None else self.seen.ok

    @property
    def text(self) -> str:
        """The line, and one for each thing more that is to be done."""
        if self.trouble:
            return self.trouble if hide(self.dest) in self.trouble else f"{hide(self.dest)}: {self.trouble}"
        return f"{hide(self.dest)}: {_LOOKING}" if self.seen is None else "\n".join([self.seen.line, *self.seen.advice[1:]])

    @property
    def html(self) -> str:
        """The same as HTML."""
        first, *more = self.text.split("\n")
        rest = "".join(f"<div>{html.text(each)}</div>" for each in more)
        return (
            html.status(f"✓ {first}")
            if self.well
            else html.status(first)
            if self.well is None and not self.trouble
            else html.alert(first, then=rest)
        )

    @property
    def page(self) -> str:
        """The timeline, where it is open."""
        return "" if self.timeline.widget is None else self.timeline.widget._page()

    def look(self, chosen: Mapping[str, Any]) -> None:
        """Look at the destination; where it does not answer, its facts are those of the last look that did."""
        before = self.seen
        try:
            self.seen, self.trouble = quire.status(self.dest, self.source, **chosen), ""
            if (widget := self.timeline.widget) is not None and before is not None and before.version != self.seen.version:
                widget.refresh()
        except Exception as e:  # whatever it is: it is told, and the others are looked at
            self.trouble = line(e)

    def show(self) -> None:
        """Draw what was seen."""
        shown(self._line, self.html)
        self.facts.show(self.seen is not None)
        self.timeline.allow(self.seen is not None and self.seen.table)


class StatusPage(WatchForm):
    """A page that says in one line a destination whether it is well and what to do; it looks by itself, and changes nothing.

    Below the line of a table a button shows its `TableTimeline`, which follows the table while it is open.

    dests              a destination, several of them, or each with the source that it is made of: {"/data/out": "/data/in"}; tables, too
    max_age            how long what is at a source may wait, as in `quire.status`: "1 h"
    look_every         seconds between two looks while it watches, or "1 min"
    watch              whether it looks again by itself, as long as it is shown
    spark, storage_options, source_options    as for `quire.status`, of all destinations

    .ok                whether nothing is to be done anywhere; None: not all of them could be looked at
    .seen              destination → the quire.Status of the last look that went well
    .troubles          destination → why the last look failed, where it did
    .show_timeline(dest)    show the timeline of a table, as its button does; .timelines: destination → those that are open
    .refresh() .wait(timeout) .close()
    .code              the same as Python, without secrets

        page = StatusPage({"/data/out": "/data/in", "/data/events": "kafka://host:9092/events"}, max_age="1 h")
        page.refresh(); page.wait(60); page.close()
        page.show_timeline("/data/trips"); page.wait(60); page.timelines["/data/trips"].look("trip-7")

    Raises UsageError where no destination is named, and for wrong values.
    """

    state = traitlets.Enum(("idle",), "idle", help="it looks, and does nothing else")
    ok = traitlets.Bool(None, allow_none=True, help="whether nothing is to be done anywhere")

    def __init__(
        self, dests: Any, *, max_age: str | float | None = None, look_every: str | float = 60, watch: bool = True, spark: Any = None,
        storage_options: Mapping[str, Any] | None = None, source_options: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        named = _named(dests)
        pause = seconds(look_every, "look_every")
        if max_age is not None:
            seconds(max_age, "max_age")
        given = {"max_age": max_age, "spark": spark, "storage_options": storage_options, "source_options": source_options}
        self._chosen = {name: value for name, value in given.items() if value is not None}
        self._rows = [_Row(dest, source, storage_options) for dest, source in named.items()]
        looks = (Watch(partial(self._look, row), pause) for row in self._rows)  # one that does not answer holds up no other
        super().__init__("quire-status-page", Watches(looks), pause)
        self._looked, self._show_lock = "", threading.Lock()
        refresh = self._button("Refresh", self.refresh, tooltip="Look at all of them now")
        self._lay_out("verdict", "trouble", [refresh, self._watch_box()], *self._rows, "code")
        self._show_code("\n\n".join(["import quire", *(as_code.status(row.dest, row.source, self._chosen) for row in self._rows)]))
        self._show()
        self._begin(watch)

    @property
    def seen(self) -> dict[str, quire.Status]:
        """The findings of the last look at each."""
        return {row.dest: row.seen for row in self._rows if row.seen is not None}

    @property
    def troubles(self) -> dict[str, str]:
        """Why the last look at a destination has failed."""
        return {row.dest: row.trouble for row in self._rows if row.trouble}

    @property
    def timelines(self) -> dict[str, TableTimeline]:
        """The timelines of tables that are open."""
        return {row.dest: row.timeline.widget for row in self._rows if row.timeline.widget is not None}

    # ----------------------------------------------------------------------------------------------------------------- to look
    def wait(self, timeout: float | None = None) -> bool:
        """Wait until what was asked for is shown, at most `timeout` seconds; return whether that is so."""
        end = None if timeout is None else time.monotonic() + timeout
        waits = (self._watch.wait, *(row.timeline.wait for row in self._rows))
        return all(each(None if end is None else max(0.0, end - time.monotonic())) for each in waits)

    def show_timeline(self, dest: str | os.PathLike[str]) -> None:
        """Show the timeline of the table `dest` below its line, or why it cannot be read.

        UsageError for a destination that is not on the page.
        """
        rows = {row.dest: row for row in self._rows}
        if (named := os.fsdecode(dest)) not in rows:
            raise UsageError(f"{quoted(named)} is not on this page, which has {', '.join(map(quoted, rows))}.")
        rows[named].timeline.unfold()

    def _look(self, row: _Row) -> None:
        """In the thread of a row's watch."""
        row.look(self._chosen)
        with self._show_lock:
            try:
                self._looked = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
                row.show()
                self._show()
                self._put("trouble", "")
            except Exception as e:  # an observer of the user's: one line, and the next look comes
                self._put("trouble", html.alert(line(e)))

    # ------------------------------------------------------------------------------------------------------------- what it shows
    def _show(self) -> None:
        self._put("verdict", html.block(f"<strong>{html.text(self._verdict)}</strong>"))
        states = {row.well for row in self._rows}
        self.ok = False if False in states else None if None in states else True

    @property
    def _verdict(self) -> str:
        counts = [(sum(row.well is state for row in self._rows), words) for state, words in ((True, "well"), (False, "to look after"))]
        counts.append((sum(row.well is None for row in self._rows), "not known"))
        n = len(self._rows)
        said = ", ".join(f"{count:,} {words}" for count, words in counts if count)
        return f"{n:,} destination{'s' * (n != 1)}: {said}" + (f" ({self._looked})" if self._looked else "")

    def _lines(self) -> Iterable[str]:
        return [self._verdict, "\n".join(row.text for row in self._rows), *map(repr, self.timelines.values()), self.code]

    def _page(self) -> str:
        rows = (row.html + html.details("All that is known", row.seen._repr_html_() if row.seen else "") + row.page for row in self._rows)
        return html.block(f"<strong>{html.text(self._verdict)}</strong>", *rows, html.code(self.code))


def _named(dests: Any) -> dict[str, Any]:
    """Destinations, each with its source, or None; UsageError for anything else."""
    if isinstance(dests, str | os.PathLike):
        dests = [dests]
    found = dict(dests) if isinstance(dests, Mapping) else dict.fromkeys(dests) if isinstance(dests, Iterable) else {}
    wrong = [dest for dest in found if not isinstance(dest, str | os.PathLike) or not os.fspath(dest)]
    if not found or wrong:
        said = f"{wrong[0]!r} is not one" if wrong else "none is named"
        raise UsageError(f"a page is about destinations, and {said}: for example StatusPage(['/data/out', 's3://lake/events']).")
    return {os.fsdecode(dest): source for dest, source in found.items()}
