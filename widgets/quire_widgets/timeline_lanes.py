"""A table as a picture of buttons: a column for each instant, its lanes above, and below them the slices of file groups.

The mouse presses the buttons. Tab passes over them, since there are many: the lists below the picture choose the same by keyboard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import ipywidgets as widgets

from quire.table import slices
from quire.table.slices import Period
from quire_widgets import html
from quire_widgets.timeline_pages import STATES, TimelineView, clock, face, of_group, of_instant, of_period, shortened

_COLUMN, _SIDE = 50, "minmax(9em, 10.5em)"  # pixels of the narrowest column; of the names beside the lanes
_LOW, _HIGH = 20, 36  # pixels of the smallest and of the largest slice
_CHOSEN, _USUAL = "3px solid var(--jp-ui-font-color0, #000)", "1px solid var(--jp-border-color1, #8888)"
_LOGS = "5px double #ffb000"  # below a slice with logs
# A button of JupyterLab is a line of 28 pixels: in a low one the words would hang out of it.
STYLE = "<style>.quire-lanes .jupyter-button {display: flex; align-items: center; justify-content: center; line-height: 1}</style>"
# White letters can be read on each of them, in a light theme and in a dark one.
_COLOURS = {
    "commit": "#00639b", "deltacommit": "#00639b", "replacecommit": "#8a3f6f", "compaction": "#00674d", "clean": "#5a5a5a",
    "rollback": "#9c3d00", "restore": "#9c3d00", "savepoint": "#5b4a9c",
}  # fmt: skip
_OTHER, _OLD, _NEW = "#5a5a5a", "#5a5a5a", "#00639b"


class Lanes(widgets.GridBox):  # type: ignore[misc]  # ipywidgets is published without types
    """The picture. A press calls `instant` with the instant of its column, or `period` with a slice."""

    def __init__(self, instant: Callable[[str], object], period: Callable[[Period], object]) -> None:
        super().__init__(layout={"grid_gap": "2px 0", "overflow": "auto", "width": "100%", "margin": "4px 0", "align_items": "flex-end"})
        self.add_class("quire-lanes")
        self.tabbable = True  # the arrows turn a wide picture
        self._instant, self._period = instant, period
        self._plain = widgets.HTML().style  # one for all
        self._styles = {colour: _style(colour) for colour in {*_COLOURS.values(), _OTHER, _OLD, _NEW}}
        self._instants, self._periods, self._drawn = dict[str, list[Any]](), dict[str, Any](), list[Any]()

    def draw(self, view: TimelineView) -> None:
        """Draw a view anew."""
        before, window = self._drawn, view.window
        self._instants, self._periods = {}, {}
        columns = max(len(window.times), 1)
        self.layout.grid_template_columns = f"{_SIDE} repeat({columns}, minmax({_COLUMN}px, 1fr))"
        parts, row = [*self._head(view)], 2
        rows = window.told()
        for lane in slices.lanes(rows):
            parts += [self._named(lane, lane, row), *self._lane(view, [each for each in rows if slices.lane(each) == lane], lane, row)]
            row += 1
        shown = view.shown()
        largest = max((period.slice.size + period.slice.logged for _, periods in shown for period, _ in periods), default=0)
        for group, periods in shown:
            words = of_group(group)
            parts.append(self._named(words, f"{group.partition or '(no partition)'}: {group.name}", row))
            parts += [self._slice(period, at, row, largest) for period, at in periods]
            row += 1
        self._drawn = parts
        self.children = parts
        self.mark(view)
        for one in before:
            one.layout.close()
            one.close()

    def mark(self, view: TimelineView) -> None:
        """Mark the chosen instant and slice, and those of the record's history."""
        instants, files = view.touched()
        for time, buttons in self._instants.items():
            for one, (row, state) in buttons:
                _marked(one, f"{'◆' if time in instants and slices.lane(row) != 'savepoint' else ''}{state}", time == view.instant)
        chosen = view.period.name if view.period else ""
        for name, (one, period, columns) in self._periods.items():
            _marked(one, face(period, columns, touched=not files.isdisjoint(period.files)), name == chosen)

    def _head(self, view: TimelineView) -> Iterable[Any]:
        yield self._placed(html.block('<span style="font-size:11px">UTC</span>'), 1, 1)
        before = ""
        for number, time in enumerate(view.window.times):
            day, hour = clock(time)
            words = f'<span style="font-size:10px;white-space:pre">{html.text(day) if day != before else ""}\n{html.text(hour)}</span>'
            yield self._placed(html.block(words), number + 2, 1)
            before = day

    def _lane(self, view: TimelineView, rows: Iterable[Any], lane: str, row: int) -> Iterable[Any]:
        for each in rows:
            time, state = each["instant"], STATES.get(each["state"], "?")
            column = view.window.times.index(time) + 2
            made = self._button(state, of_instant(each), _COLOURS.get(lane, _OTHER), partial(self._instant, time))
            made.layout.grid_area, made.layout.height = f"{row} / {column}", "22px"
            made.add_class("quire-instant")
            self._instants.setdefault(time, []).append((made, (each, state)))
            yield made

    def _slice(self, period: Period, at: tuple[int, int], row: int, largest: int) -> Any:
        size = period.slice.size + period.slice.logged
        made = self._button("", of_period(period), _NEW if period.counts else _OLD, partial(self._period, period))
        made.layout.grid_area = f"{row} / {at[0] + 2} / {row + 1} / {at[1] + 2}"
        made.layout.height = f"{round(_LOW + (_HIGH - _LOW) * (size / largest if largest else 0))}px"
        made.add_class("quire-slice")
        if period.slice.logs:
            made.add_class("quire-with-logs")
            made.layout.border_bottom = _LOGS
        self._periods[period.name] = (made, period, at[1] - at[0])
        return made

    def _button(self, words: str, tooltip: str, colour: str, act: Callable[[], object]) -> Any:
        layout = {"width": "auto", "min_width": "0", "margin": "0 1px", "padding": "0", "border": _USUAL}
        made = widgets.Button(description=words, tooltip=shortened(tooltip), style=self._styles[colour], layout=layout, tabbable=False)
        made.on_click(lambda _: act())
        return made

    def _named(self, words: str, title: str, row: int) -> Any:
        inside = f'<span title="{html.text(title)}" style="font-size:11px;white-space:nowrap">{html.text(words)}</span>'
        return self._placed(html.block(inside), 1, row)

    def _placed(self, inside: str, column: int, row: int) -> Any:
        layout = {"grid_area": f"{row} / {column}", "margin": "0 4px 0 2px", "min_width": "0", "align_self": "center"}
        return widgets.HTML(inside, layout=layout, style=self._plain)


def _style(colour: str) -> Any:
    return widgets.ButtonStyle(button_color=colour, text_color="#ffffff", font_size="11px")


def _marked(one: Any, words: str, chosen: bool) -> None:
    if one.description != words:
        one.description = words
    border = _CHOSEN if chosen else _USUAL
    if one.layout.border_top != border:
        one.layout.border = border
        if "quire-with-logs" in one._dom_classes:
            one.layout.border_bottom = _LOGS
