"""Is it even? A picture, the verdict in words, and the heaviest parts, of counts or of anything of quire's that has parts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets
import traitlets

import quire
from quire import display, plots
from quire.arguments import format_size
from quire.errors import UsageError, printable
from quire_widgets import as_code, html

if TYPE_CHECKING:
    import pandas as pd

    from quire.skew import SkewResult

SHOWN = 10  # parts in the table


class SkewView(widgets.VBox):  # type: ignore[misc]  # ipywidgets is published without types
    """Whether parts are even: a picture, the verdict in words, and a table of the heaviest parts.

    what               files (or bytes) of each part, as `quire.skew.check` takes them; or a SkewResult, Plan, Report or Ledger.
                       Set it to look at something else; None shows nothing
    check_arguments    groups=, expected=, listed=, unit=, for counts

    .result            the SkewResult
    .code              the same as Python

    Raises UsageError for what has no parts; then what was shown before stays.
    """

    what = traitlets.Any(help="what to look at")
    result = traitlets.Any(help="the SkewResult", read_only=True)
    code = traitlets.Unicode(help="the same as Python", read_only=True)

    def __init__(self, what: Any = None, **check_arguments: Any) -> None:
        self._arguments = check_arguments
        self._page = widgets.HTML()
        super().__init__([self._page])
        self.add_class("quire-skew")
        self.what = what

    @traitlets.validate("what")
    def _check(self, proposal: Mapping[str, Any]) -> Any:
        """Look before it counts as set: what is refused leaves everything as it is."""
        what = proposal["value"]
        result = _result(what, self._arguments)
        self._show(result, page_of(result, self.model_id), as_code.skew(what, self._arguments))
        return what

    @traitlets.observe("what")
    def _clear(self, change: Mapping[str, Any]) -> None:
        if change["new"] is None:  # traitlets does not have it validated
            self._show(None, "", "")

    def _show(self, result: SkewResult | None, page: str, code: str) -> None:
        self._page.value = page
        self.set_trait("code", code)
        self.set_trait("result", result)

    def __repr__(self) -> str:
        if self.result is None:
            return "SkewView: nothing to look at"
        table = heaviest(self.result)
        title = f"heaviest: {html.more_than(len(table), self.result.parts, 'part')}"
        verdict = printable(f"{self.result.verdict}: {self.result.explanation}")
        return "\n".join([verdict, *([title, html.columns(*_table(table))] if len(table) else [])])

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        """The widget, and what stands in its place without a kernel: the same page, and the same as text."""
        page = "" if self.result is None else page_of(self.result) + html.code(self.code)
        return {**super()._repr_mimebundle_(**kwargs), "text/plain": repr(self), "text/html": page}


def page_of(result: SkewResult, key: str = "") -> str:
    """The verdict, the picture and the table as HTML; with `key`, which is of one widget alone, for that widget."""
    verdict = f'<p style="margin:4px 0"><strong>{html.text(result.verdict)}</strong>: {html.text(result.explanation)}</p>'
    if not result.parts:
        return html.block(verdict)
    table = heaviest(result)
    caption = f"Heaviest: {html.more_than(len(table), result.parts, 'part')}"
    svg, name = plots.partitions(result).svg(), f"{result.verdict}: {result.explanation}"
    picture = html.picture(svg, name, key) if key else display.chart(svg, name)
    return html.block(verdict, picture, html.table(caption, *_table(table)))


def heaviest(result: SkewResult) -> pd.DataFrame:
    """Return the ten parts that have most in excess: group (where there are several), part, files or bytes, expected, ratio, flag."""
    table = result.table()
    order = (table["count"] - table["expected"]).sort_values(ascending=False, kind="stable").index
    table = table.loc[order[:SHOWN]]
    for name in ("count", "expected"):
        table[name] = [_amount(value, result.unit) for value in table[name]]
    table["ratio"] = ["" if math.isnan(value) else f"{value:.2f}" for value in table["ratio"]]
    if len(set(result.rows.group)) < 2:
        table = table.drop(columns="group")
    return table.rename(columns={"count": result.unit})


def _amount(value: float, unit: str) -> str:
    if unit == "bytes":
        return format_size(round(value))
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"


def _table(table: pd.DataFrame) -> tuple[list[str], list[tuple[Any, ...]], list[str]]:
    """Header, rows, and which columns hold numbers."""
    header = [str(name) for name in table.columns]
    return header, list(table.itertuples(index=False, name=None)), [name for name in header if name not in ("group", "part", "flag")]


def _result(what: Any, arguments: Mapping[str, Any]) -> SkewResult:
    """The SkewResult of anything that has one; of counts, `quire.skew.check`'s."""
    if not isinstance(what, quire.skew.SkewResult | quire.Plan | quire.Report | quire.Ledger):
        return quire.skew.check(what, **arguments)
    if arguments:
        raise UsageError(f"{', '.join(arguments)}: for counts only. A {type(what).__name__} knows its own.")
    if isinstance(what, quire.Report):
        return what.skew or quire.skew.check([])
    return what if isinstance(what, quire.skew.SkewResult) else what.skew()
