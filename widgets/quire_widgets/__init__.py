"""The notebook interface: ipywidgets over quire's public API, with no logic of their own.

    ConsolidationPanel(source, dest)    a form: look, run, watch, cancel, and the same call as Python
    SkewView(counts or a plan)          is it even? a picture, the verdict in words, the heaviest parts
    CommitterSelector(url, needs)       which committer for Spark's own jobs: settings to copy, a check of the session, what was measured
    LedgerInspector(dest)               the ledger: search, pages, commits, one file's coverage; retry and forget what failed
    LoadMonitor(dest, source)           a load from Kafka: lag, commits, quarantine, losses, skew; start, stop and resume
    StatusPage(dests)                   destinations and tables: a line for each, whether it is well and what to do
    TableTimeline(table)                a table: its instants as lanes, its slices as a picture, a record's whole history

Needs the extra `widgets` of `quire-spark`. Importing this package does not; using one of its names does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quire_widgets.inspector import LedgerInspector
    from quire_widgets.monitor import LoadMonitor
    from quire_widgets.panel import ConsolidationPanel
    from quire_widgets.selector import CommitterSelector
    from quire_widgets.skew_view import SkewView
    from quire_widgets.status_page import StatusPage
    from quire_widgets.timeline import TableTimeline

__all__ = ["CommitterSelector", "ConsolidationPanel", "LedgerInspector", "LoadMonitor", "SkewView", "StatusPage", "TableTimeline"]

_HOMES = {
    "CommitterSelector": "selector",
    "ConsolidationPanel": "panel",
    "LedgerInspector": "inspector",
    "LoadMonitor": "monitor",
    "SkewView": "skew_view",
    "StatusPage": "status_page",
    "TableTimeline": "timeline",
}
_EXTRA = ("ipywidgets", "traitlets", "matplotlib")


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        home = importlib.import_module(f"{__name__}.{_HOMES[name]}")
    except ImportError as e:
        cause = e.__cause__ if isinstance(e.__cause__, ImportError) else e
        missing = (cause.name or "").partition(".")[0]
        if missing not in _EXTRA:
            raise
        from quire.packaging import install

        raise ImportError(f"quire_widgets needs {missing}: {install('widgets')}", name=missing) from None
    return getattr(home, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
