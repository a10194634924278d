"""What a monitor finds when it looks at a destination: the ledger, read again only if something was committed, and the brokers' ends."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

import quire
from quire.errors import scrub
from quire_widgets import monitor_pages as pages
from quire_widgets.monitor_pages import Seen

__all__ = ["Looking", "line"]


class Looking:
    """The ledger of a destination that topics are loaded into, by anybody.

    `source`: what is to be loaded; then nothing has to be there yet. UsageError where there is no ledger, or one of files.
    """

    def __init__(
        self, dest: str, source: str | None, storage_options: Mapping[str, Any] | None, source_options: Mapping[str, Any] | None
    ) -> None:
        self._source, self._source_options = source, source_options
        self.ledger = quire.Ledger(dest, storage_options, create=source is not None)
        self._read: tuple[Any, ...] | None = None
        self._ends: pd.DataFrame | None = None  # as brokers told them last
        self._trouble = ""

    def news(self) -> bool:
        """Whether something was committed since the last look."""
        return self._read is None or not self.ledger.is_current()

    def look(self, *, ask: bool = True) -> Seen:
        """Look at all of it; where brokers do not answer, at the rest. Unless they are to be asked, their ends are those of before."""
        ledger = self.ledger
        if self.news():
            self._read = None  # what fails here is read again by the next look
            self._read = self._of_ledger(ledger.refresh())
        assert self._read is not None
        summary, *found = self._read
        open_jobs = ledger.open_jobs()  # the log says nothing of them
        shown = replace(summary, open_jobs=open_jobs) if summary.commits or open_jobs else None
        offsets, commits, reasons, rejected, skew = found
        if ask and self._source is None:
            there = f" The log speaks of {scrub(summary.source, 200)}." if summary.source else ""
            self._trouble = f"The lag is not known: brokers are asked where the call names them, LoadMonitor(dest, 'kafka://…').{there}"
        elif ask:
            self._ends, self._trouble = None, ""
            try:
                self._ends = ledger.lag(self._source, source_options=self._source_options)
            except Exception as e:  # whatever it is: it is told, and the rest is shown
                self._trouble = f"The lag is not known: {line(e)}"
        when = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        return Seen(shown, pages.merged(offsets, self._ends), commits, reasons, rejected, skew, when, self._trouble)

    def _of_ledger(self, ledger: quire.Ledger) -> tuple[Any, ...]:
        summary = ledger.summary()
        if summary.records is None and summary.commits and summary.transform:
            raise quire.UsageError(
                f"{summary.dest} was made of files, and a LoadMonitor shows what was loaded from topics: look with LedgerInspector."
            )
        return (
            summary,
            ledger.offsets(),
            ledger.commits(last=pages.COMMITS),
            ledger.reasons() if summary.set_aside else pd.DataFrame({"reason": [], "files": [], "tries": [], "example": []}),
            ledger.rejected(limit=pages.REJECTED),
            ledger.partition_skew(),
        )


def line(error: BaseException) -> str:
    """An error in one line, without secrets."""
    return str(error) if isinstance(error, quire.QuireError) else scrub(f"{type(error).__name__}: {error}".removesuffix(": "), 600)
