"""Upkeep, of a table and of a ledger alike: what is due is done, one service after the other while there is time, and told in one report.

what is due → each service, while there is time → report; with `every` again and again
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple, TypeVar

from quire import display
from quire.arguments import seconds
from quire.engine.loop import Again, rest, until_signal
from quire.engine.outages import Outages
from quire.engine.report import Gap
from quire.errors import QuireError, UsageError
from quire.progress import Progress
from quire.storage.within import plain


@dataclasses.dataclass(frozen=True, repr=False)
class Maintenance(display.Shown):
    """The part of a report of upkeep that is the same for all destinations."""

    dest: str
    due: Mapping[str, str] = dataclasses.field(default_factory=dict)
    hindered: Mapping[str, str] = dataclasses.field(default_factory=dict)
    left: tuple[str, ...] = ()
    dry_run: bool = False
    seconds: float = 0.0
    gaps: tuple[Gap, ...] = ()
    gap_count: int = 0

    def _done(self) -> Mapping[str, object]:
        """The services that were done, in a few words each."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({'dry_run=True, ' * self.dry_run}due={list(self.due)}, hindered={list(self.hindered)}, "
            f"left={list(self.left)}, seconds={self.seconds:.1f})"
        )

    def _facts(self) -> Mapping[str, object]:
        rows: dict[str, object] = {f"{name} is due": why for name, why in self.due.items()} or {"due": "nothing"}
        rows |= self._done()
        rows |= {f"{name} was hindered": why for name, why in self.hindered.items()}
        if self.left:
            rows["left for the next call"] = ", ".join(self.left)
        if self.gaps:
            rows["outages outlived"] = f"{self.gap_count:,}, the last one {self.gaps[-1]}"
        return rows | {"seconds": f"{self.seconds:.1f}"}


M = TypeVar("M", bound=Maintenance)


def limit_of(time_limit: str | float | None) -> float | None:
    """The seconds after which nothing more is begun; UsageError for what is not a time."""
    limit = None if time_limit is None else seconds(time_limit, "time_limit")
    if limit == 0:
        raise UsageError("time_limit is 0, and has to be longer: write for example '10 min'.")
    return limit


class Carried(NamedTuple):
    """The results of the services; why some could not be done; and which were not begun."""

    done: dict[str, Any]
    hindered: dict[str, str]
    left: tuple[str, ...]


def carry_out(due: Mapping[str, str], services: Mapping[str, Callable[[float | None], Any]], limit: float | None, began: float) -> Carried:
    """Do what is due; what one service refuses hinders no other. Each is given the seconds that are left (None: as long as it takes)."""
    done, hindered, left = dict[str, Any](), dict[str, str](), list[str]()
    for name in due:
        rest = None if limit is None else limit - (time.monotonic() - began)
        if rest is not None and rest <= 0:
            left.append(name)
            continue
        try:
            done[name] = services[name](None if rest is None else max(0.001, round(rest, 3)))
        except QuireError as e:
            hindered[name] = str(e)
    return Carried(done, hindered, tuple(left))


def repeat(run: Callable[[], M], failed: Callable[[str], M], times: Again, progress: Any, dest: str) -> M:
    """Run once, or again and again, through outages as far as they are allowed; the last report.

    Whatever else goes wrong in one of several runs is told, and the next one tries again.
    """
    loops, runs, bars = times.pause is not None, times.runs, Progress(progress)
    away = Outages(times.allowed, bars, plain(dest))
    report: M | None = None

    def once() -> M:
        try:
            return run()
        except QuireError as e:
            if not loops or e.exit_code == QuireError.exit_code:
                raise
            return failed(str(e))

    with until_signal(None) if loops else nullcontext(threading.Event()) as stopped:
        while True:
            report, over = away.outlived(once, stopped, report)
            if over or times.pause is None:
                return report
            for name, why in report.hindered.items():
                bars.say(f"{name} was hindered: {why} The next run tries again.", always=True)
            runs = None if runs is None else runs - 1
            if runs == 0 or rest(stopped, times.pause):
                return report
