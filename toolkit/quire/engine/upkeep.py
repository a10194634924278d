"""The upkeep beside a loop. It is made of verbs of the ledger, which stand above the engine, so it is looked up by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from quire.engine.report import Report
from quire.engine.request import Request
from quire.packaging import Registry
from quire.progress import Progress
from quire.spark.runner import Runner

REGISTRY = Registry("quire.upkeep", "upkeep {!r}", {"ledger": "quire.ledger.maintaining:Upkeep"})


class Upkeep(Protocol):
    """The upkeep of destinations."""

    def wanted(self, maintain: object, *, loops: bool) -> Any:
        """The settings that a call's `maintain=` says; None: it wants none. UsageError for what says nothing."""
        ...

    def beside(self, wanted: Any, request: Request, runner: Runner, bars: Progress) -> Callable[[Report], Report]:
        """The work after each run, which is given its report; it raises nothing, and says in the report what went wrong."""
        ...


def wanted(maintain: object, *, loops: bool) -> Any:
    """The settings of a call; UsageError for a wrong `maintain=`."""
    return _upkeep().wanted(maintain, loops=loops) if loops or maintain is not None else None


def beside(wanted: Any, request: Request, runner: Runner, bars: Progress) -> Callable[[Report], Report]:
    """The work after each run of a call: nothing, where it wants none."""
    return (lambda report: report) if wanted is None else _upkeep().beside(wanted, request, runner, bars)


def _upkeep() -> Upkeep:
    found: Upkeep = REGISTRY.make("ledger")
    return found
