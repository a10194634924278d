"""A load from Kafka to look at and to drive: how far each partition is, what was committed when, what was quarantined or lost."""

from __future__ import annotations

import difflib
import inspect
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

import ipywidgets as widgets
import traitlets

import quire
from quire import AllQuarantined, ProgressEvent, UsageError, display, plots
from quire.arguments import seconds, whole
from quire.engine.report import LoadReport
from quire.errors import scrub
from quire_widgets import as_code, html, load_pages
from quire_widgets.call import Stopped, Watch, after_load, options_of
from quire_widgets.form import Choice, Field, Running, Shutter, Turners, WatchForm, line, place, shown
from quire_widgets.load_pages import ORDERS, LoadView, Looking
from quire_widgets.pages import Grid

BUSY = ("loading", "stopping")
_STOPPING = "Stopping after the commit under way. Stop now interrupts it: nothing is lost, and Resume goes on with its plan."
_OWN = ("stop", "progress", "spark", "source", "dest")


class _Partitions(widgets.VBox):  # type: ignore[misc]  # ipywidgets is published without types
    """The table of partitions, a page at a time, with its fields for the monitor's traits `order` and `topic`."""

    def __init__(self, monitor: LoadMonitor, page_size: int) -> None:
        self._size, self._offset = page_size, 0
        order = Field(widgets.Dropdown, "order by", "order", options=[*ORDERS])
        self._topic = Field(widgets.Text, "topic", "topic", placeholder="any part of its name")
        for given, name in ((order.input, "order"), (self._topic.input, "topic")):
            traitlets.link((given, "value"), (monitor, name))
        self._turners, self._table = Turners(monitor.turn), place("partitions")
        self.rows = Grid("", (), ())
        super().__init__([order, self._topic, self._turners, self._table])

    def turn(self, pages: int | None) -> None:
        """So many pages on; None: the first one."""
        self._offset = 0 if pages is None else max(self._offset + pages * self._size, 0)

    def show(self, seen: LoadView, order: str, topic: str) -> None:
        """Draw the page."""
        table = load_pages.ordered(seen, order, topic.strip())
        if self._offset >= max(len(table), 1):
            self._offset = max(len(table) - 1, 0) // self._size * self._size
        self.rows = load_pages.partitions(table, self._offset, self._size, several=seen.several)
        shown(self._table, _wide(self.rows))
        self._turners.allow(self._offset > 0, self._offset + self._size < len(table))
        self._turners.layout.display = None if len(table) > self._size or self._offset else "none"
        self._topic.layout.display = None if seen.several or topic else "none"

    @property
    def html(self) -> str:
        """The page as it is shown."""
        return str(self._table.value)


class LoadMonitor(WatchForm):
    """The effect of `quire.load` on a destination, wherever it runs; with a `source` it can be started, stopped and resumed here.

    dest                   where records are loaded to, by this kernel or any other process
    source, transform, spark, **settings    as for `quire.load`, unchanged. Without a source the monitor looks at the ledger alone: nobody
                           asks brokers by the word of a log, so it does not know the lag
    storage_options, source_options         for looking, too: brokers that ask who you are want them
    look_every             seconds between two looks while it watches, or "10 s"
    watch                  whether it looks again by itself, as long as it is shown
    page_size              partitions of a page

    order, topic           of the table: "lag", "partition", "records", "bytes", "quarantined" or "lost"; a part of topics' names
    .start()               load, in the background; also to go on after a stop or an error. With every= it loads again and again
    .stop()                end after the commit under way; called again, at once. Nothing is lost: a plan that was begun is gone on with
    .refresh() .turn(pages) .wait(timeout)
    .state                 "idle" | "loading" | "stopping" | "stopped" | "done" | "failed"
    .seen                  what the last look has found; .result is the LoadReport of the last run that ended, .error why it failed
    .code                  the same as Python, without secrets

        monitor = LoadMonitor("/data/events", "kafka://host:9092/topic", every="1 min")
        monitor.start(); monitor.wait(60); monitor.stop()
        monitor.refresh(); monitor.turn(1); monitor.close()

    `settings` are those of the load. Observers are called in the thread that does the work. Raises UsageError without a ledger and a
    source, where a destination was made of files, and for settings that do not exist.
    """

    order = Choice(ORDERS, "what the partitions are ordered by")
    topic = traitlets.Unicode(help="a part of topics' names")
    state = traitlets.Enum(("idle", *BUSY, "stopped", "done", "failed"), "idle", help="where it is")
    seen = traitlets.Any(help="what the last look has found")
    result = traitlets.Instance(LoadReport, allow_none=True, help="what the last run has loaded")

    def __init__(
        self, dest: str | os.PathLike[str], source: str | None = None, transform: Callable[..., Any] | None = None, *, spark: Any = None,
        look_every: str | float = 5, watch: bool = True, page_size: int = 20, **settings: Any,
    ) -> None:  # fmt: skip
        _check(source, transform, settings)
        whole(page_size, "page_size", 1)
        pause = seconds(look_every, "look_every")
        self._spark, self._settings = spark, {**({"transform": transform} if transform is not None else {}), **settings}
        self._looking = Looking(os.fsdecode(dest), source, options_of(self._settings), settings.get("source_options"))
        super().__init__("quire-monitor", Watch(self._look, pause), pause)
        self._stop = threading.Event()
        self._show_lock = threading.RLock()
        self._partitions = _Partitions(self, page_size)
        self._build()
        self._show(self._looking.look(ask=False))
        self._begin(watch)

    # ------------------------------------------------------------------------------------------------------------ what it holds
    def _build(self) -> None:
        verbs = [
            self._button("Start", self.start, button_style="primary", tooltip="Load, in the background of this kernel"),
            self._button("Stop", self.stop, disabled=True, tooltip="After the commit under way; once more: at once"),
        ]
        for one in verbs:
            one.layout.display = None if self._looking.source else "none"
        watch = self._watch_box()
        self._running = Running("load-", self.stop)
        self._shutters = {
            "commits": Shutter("commits", "the last commits", lambda: _wide(load_pages.commits(self.seen))),
            "skew": Shutter("skew", "records by partition", lambda: _skew_picture(self.seen.skew, self._shutters["skew"].model_id)),
            "quarantined": Shutter("quarantined", "the first records in quarantine", lambda: _wide(load_pages.quarantined(self.seen))),
        }
        refresh = self._button("Refresh", self.refresh, tooltip="Look at the ledger and the brokers")
        commits, skew, quarantined = self._shutters.values()
        self._lay_out(
            "summary", "trouble", [*verbs, refresh, watch], self._running, "result", "timeline", commits, self._partitions,
            "verdict", skew, "reasons", quarantined, "losses", "code",
        )  # fmt: skip
        self._show_code(self._written())

    def _written(self) -> str:
        if self._looking.source:
            return as_code.load(self._looking.source, self._looking.dest, self._spark, self._settings)
        return as_code.ledger(self._looking.dest, options_of(self._settings) is not None, None, "inspect.offsets", "")

    # ----------------------------------------------------------------------------------------------------------------- to look
    def turn(self, pages: int | None) -> None:
        """So many `pages` of partitions on, or back if it is negative; None: the first one."""
        with self._show_lock:
            self._partitions.turn(pages)
            self._partitions.show(self.seen, self.order, self.topic)

    @traitlets.observe("order", "topic")
    def _chosen(self, _: object) -> None:
        if self.seen is not None:
            self.turn(None)

    def _looks(self) -> bool:
        return super()._looks() or self.state in BUSY

    def _look(self) -> None:
        """In the thread of the watch."""
        try:
            if self._looking.news():  # before brokers are asked, who may take their time
                self._show(self._looking.look(ask=False))
            self._show(self._looking.look())
        except Exception as e:  # the store is away, or an observer of the user's: one line, and what was shown before stays
            self._put("trouble", html.alert(line(e)))

    # ----------------------------------------------------------------------------------------------------------------- to load
    def start(self) -> None:
        """Load what the settings say, in the background; a plan that was begun before is gone on with."""
        if not self._looking.source:
            raise UsageError("This monitor has no source, so it only looks: LoadMonitor(dest, 'kafka://host:9092/topic') can load.")
        with self._begin_lock:  # a double click begins one load
            if self.state in BUSY:
                return
            self.error, self._stop = None, threading.Event()
            self._running.say("")
            self._put("result", "")
            source, stop = self._looking.source, self._stop

            def act(progress: Callable[[ProgressEvent], None]) -> LoadReport:
                return quire.load(source, self._looking.dest, spark=self._spark, progress=progress, stop=stop, **self._settings)

            self._buttons["start"].description = "Resume"  # from now on there may be a plan to go on with
            self._start("loading", act, self._ended)

    def stop(self) -> None:
        """End the load after the commit under way; called again, at once."""
        with self._begin_lock:
            if self._call is None or self.state not in BUSY:
                return
            if self.state == "loading":
                self._stop.set()
                self._running.say(_STOPPING)
                self._set_state("stopping")
            else:
                self._call.stop()
                self._running.show(0, None, "stopping at once")

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until no load is under way and what was asked for is shown, at most `timeout` seconds; return whether that is so."""
        return super().wait(timeout) and self._watch.wait(timeout)

    def close(self) -> None:
        """Look no more; a load under way ends after its commit."""
        if stop := getattr(self, "_stop", None):  # else its arguments were wrong
            stop.set()
        super().close()

    def _ended(self, answer: LoadReport | None, error: BaseException | None) -> None:
        """The result of a load, in its thread."""
        try:
            words = ("", "")
            if isinstance(error, Stopped):
                words = after_load(quire.Ledger(self._looking.dest, options_of(self._settings)), self._looking.dest, self._settings)
            with self._begin_lock:  # or a stop that comes just now would be of a load that is over
                self._show_end(answer, error, words)
        except Exception as e:  # an observer of the user's, or the look after a stop: one line too
            self._fail(e)
        self._watch.ask()

    def _show_end(self, answer: LoadReport | None, error: BaseException | None, words: tuple[str, str]) -> None:
        if isinstance(error, AllQuarantined):
            self.result = error.report
            self._put("result", html.block(error.report._repr_html_()))
        if error is not None and not isinstance(error, Stopped):
            self._fail(error)
            return
        asked = error is not None or self._stop.is_set()
        if answer is not None:
            self.result = answer
            # A loop ends with a run that found nothing, mostly: what was loaded is shown anyway.
            self._put("result", html.block(answer._repr_html_()) if answer.jobs or answer.notes else "")
            words = (f"Stopped after a whole commit: version {answer.version}. Resume goes on from there.", "") if asked else words
        self._running.say(*words)
        self._set_state("stopped" if asked else "done")

    # ------------------------------------------------------------------------------------------------------------- what it shows
    def _set_state(self, state: str) -> None:
        busy = state in BUSY
        start, stop = self._buttons["start"], self._buttons["stop"]
        start.disabled, stop.disabled = busy, not busy
        stop.description = "Stop now" if state == "stopping" else "Stop"
        if not busy:
            self._running.busy(False)
        super()._set_state(state)
        self._follow_watching()

    def _show(self, seen: LoadView) -> None:
        with self._show_lock:
            before: LoadView | None = self.seen
            self.seen = seen
            self._put("summary", display.facts(self._title(), load_pages.facts(seen)))
            self._put("trouble", html.alert(seen.trouble) if seen.trouble else "")
            if before is None or before.commits is not seen.commits:
                drawn = html.picture(seen.picture.svg(), html.said(seen.picture), self._places["timeline"].model_id)
                self._put("timeline", html.block(drawn))
                self._shutters["commits"].show(bool(len(seen.commits)))
                skew = seen.skew if seen.skew is not None and seen.skew.parts > 1 else None
                self._put("verdict", html.block(_verdict(skew)) if skew is not None else "")
                self._shutters["skew"].show(skew is not None)
                self._put("reasons", _wide(load_pages.reasons(seen)))
                self._shutters["quarantined"].show(bool(len(seen.quarantined)))
                losses = load_pages.losses(seen)
                self._put("losses", losses.html() if losses.rows else "")
            self._partitions.show(seen, self.order, self.topic)

    def _title(self) -> str:
        source = self._looking.source or (self.seen.summary.source if self.seen and self.seen.summary else "")
        return scrub(f"{source} → {self._looking.dest}" if source else self._looking.dest, 500)

    def _lines(self) -> list[str]:
        seen = self.seen
        skew = seen.skew
        return [
            display.lines(f"{self._title()}: {self.state}", load_pages.facts(seen), seen.trouble),
            f"{seen.picture.title}\n{seen.picture.note}",
            self._partitions.rows.text(),
            f"{skew.verdict}: {skew.explanation}" if skew is not None and skew.parts > 1 else "",
            load_pages.reasons(seen).text(),
            load_pages.losses(seen).text(),
            "" if self.result is None else repr(self.result),
            self._running.message,
            self.code,
        ]

    def _page(self) -> str:
        seen, message = self.seen, self._running.message
        losses = load_pages.losses(seen)
        return html.block(
            self._places["summary"].value,
            self._places["trouble"].value,
            html.note(f"State: {self.state}. {message}".strip()),
            self._places["result"].value,
            display.chart(seen.picture.svg(), html.said(seen.picture)),
            html.details("The last commits", _wide(load_pages.commits(seen))) if len(seen.commits) else "",
            self._partitions.html,
            html.block(_verdict(seen.skew), _skew_picture(seen.skew)) if seen.skew is not None and seen.skew.parts > 1 else "",
            self._places["reasons"].value,
            html.details("The first records in quarantine", _wide(load_pages.quarantined(seen))) if len(seen.quarantined) else "",
            losses.html() if losses.rows else "",
            html.code(self.code),
        )


# ------------------------------------------------------------------------------------------------------------------------- helpers
def _check(source: object, transform: object, settings: Mapping[str, Any]) -> None:
    """UsageError for what `quire.load` would not take."""
    known = [name for name in inspect.signature(quire.load).parameters if name not in (*_OWN, "transform")]
    for name in settings:
        if name in _OWN:
            raise UsageError(f"{name}= is not for a monitor, which has a bar and a stop of its own. Call quire.load with it.")
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise UsageError(
                f"unknown option {name!r}." + (f" Did you mean {near[0]!r}?" if near else f" It is one of: {', '.join(known)}.")
            )
    if source is None:
        others = [name for name in settings if not name.endswith("_options")]
        if others or transform is not None:
            raise UsageError(f"{['transform', *others][-1]}= is for a load, and this monitor has no source= to load from.")
    elif not isinstance(source, str):
        raise UsageError(f"source= takes one URL, not {type(source).__name__}: for example 'kafka://host:9092/topic'.")


def _wide(table: Grid) -> str:
    return html.scrolling(table.html(), table.caption)


def _verdict(skew: Any) -> str:
    return f'<p style="margin:8px 0 0"><strong>Partitions: {html.text(skew.verdict)}.</strong> {html.text(skew.explanation)}</p>'


def _skew_picture(skew: Any, key: str = "") -> str:
    """Records by partition; with `key`, which is of one widget alone, for that widget."""
    svg, said = plots.partitions(skew).svg(), f"{skew.verdict}: {skew.explanation}"
    return html.block(html.picture(svg, said, key) if key else display.chart(svg, said))
