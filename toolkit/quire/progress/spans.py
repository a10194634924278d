"""Runs as spans of OpenTelemetry: one a run, with a child for each phase. Nothing is imported; without a provider nothing is done."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quire.progress import ProgressEvent
    from quire.progress.runs import About, Outcome


def follow(run: About) -> Spans | None:
    """A span for a run, where the process has a tracer provider that takes it."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    named = {"quire.verb": run.verb, "quire.dest": run.dest, "quire.kind": run.kind}
    tracer = trace.get_tracer("quire")
    span = tracer.start_span(f"quire {run.verb}", attributes=named)
    return Spans(trace, tracer, span) if span.is_recording() else None


class Spans:
    """The span of a run, and those of its phases, which are current while they last: what a store's client traces lies below them."""

    def __init__(self, trace: Any, tracer: Any, span: Any) -> None:
        self._trace, self._tracer, self._context = trace, tracer, sys.modules["opentelemetry.context"]
        self._open = list[tuple[Any, Any]]()  # spans, and what gives back whatever was current before
        self._begin(span)

    def _begin(self, span: Any) -> None:
        self._open.append((span, self._context.attach(self._trace.set_span_in_context(span))))

    def _end(self, attributes: dict[str, Any]) -> None:
        span, before = self._open.pop()
        try:
            span.set_attributes({f"quire.{name}": value for name, value in attributes.items() if value is not None})
            span.end()
        finally:  # it is not current any more, whatever its exporter does
            self._context.detach(before)

    def phase_began(self, name: str) -> None:
        self._begin(self._tracer.start_span(name))

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
