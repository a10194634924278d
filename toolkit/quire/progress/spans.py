"""Runs as spans of OpenTelemetry: one a run, with a child for each phase. Nothing is imported; without a provider nothing is done."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from quire.errors import hide, printable

if TYPE_CHECKING:
    from quire.progress import ProgressEvent
    from quire.progress.runs import About, Outcome


def follow(run: About) -> Spans | None:
    """A span for a run, where the process has a tracer provider that takes it."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    named = {"quire.verb": run.verb, "quire.dest": printable(hide(run.dest)), "quire.kind": run.kind}
    span = trace.get_tracer("quire").start_span(f"quire {run.verb}", attributes=named)
    return Spans(trace, span) if span.is_recording() else None


class Spans:
    """The span of a run, and those of its phases, which are current while they last: what a store's client traces lies below them."""

    def __init__(self, trace: Any, span: Any) -> None:
        self._trace, self._open = trace, list[tuple[Any, ExitStack]]()
        self._begin(span)

    def _begin(self, span: Any) -> None:
        current = ExitStack()
        self._open.append((span, current))
        current.enter_context(self._trace.use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False))

    def _end(self, attributes: dict[str, Any]) -> None:
        span, current = self._open.pop()
        with current:  # it is not current any more, whatever its exporter does
            span.set_attributes({f"quire.{name}": value for name, value in attributes.items() if value is not None})
            span.end()

    def phase_began(self, name: str) -> None:
        self._begin(self._trace.get_tracer("quire").start_span(name))

    def phase_ended(self, step: ProgressEvent, seconds: float) -> None:
        found = {"done": step.done, "total": step.total, "unit": step.unit, "tasks": step.tasks, "files": step.files}
        self._end(found)

    def retried(self, why: str) -> None:
        self._open[-1][0].add_event("retry", {"quire.why": why})

    def said(self, text: str) -> None:
        self._open[-1][0].add_event("said", {"quire.text": text})

    def ended(self, outcome: Outcome) -> None:
        while len(self._open) > 1:  # a phase that could not be ended
            self._end({})
        if outcome.error:
            self._open[0][0].set_status(self._trace.StatusCode.ERROR, outcome.error)
        self._end({"outcome": outcome.outcome, **outcome.numbers})
