"""OpenTelemetry spans: one for each submit, and below it one for each call of a stage.

The task's record has the submit's span as a traceparent, so stages belong to it in any process. The
TracerProvider of the process decides where the spans go.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from holdfast.domain.redaction import Redactor
from holdfast.domain.task.task import Task
from holdfast.domain.task.trace import is_traceparent
from holdfast.ports.tracing import Span

TRACEPARENT = "traceparent"
NOBODY = Context()  # no parent, whatever span was current when the worker started

_wire = TraceContextTextMapPropagator()


class OtelSpan:
    def __init__(self, span: trace.Span, redactor: Redactor) -> None:
        self._span = span
        self._redactor = redactor

    @property
    def traceparent(self) -> str | None:
        return _traceparent(trace.set_span_in_context(self._span))

    def set_attributes(self, **facts: str | int) -> None:
        for name, value in facts.items():
            self._span.set_attribute(f"holdfast.{name.replace('_', '.')}", value)

    def fail(self, error: str, message: str, traceback: str = "") -> None:
        """Record the failure by the conventions for exceptions, with secrets hidden."""
        message = self._redactor.text(message)
        facts = {"exception.type": error, "exception.message": message}
        if traceback:
            facts["exception.stacktrace"] = self._redactor.text(traceback)
        self._span.add_event("exception", facts)
        self._span.set_status(Status(StatusCode.ERROR, f"{error}: {message}"))


class OtelTracer:
    on = True

    def __init__(self, redactor: Redactor, provider: trace.TracerProvider | None = None) -> None:
        """Trace with ``provider``, or else with that of the process, even if it is set up later."""
        self._tracer = trace.get_tracer("holdfast", tracer_provider=provider)
        self._redactor = redactor

    def submit(
        self, type: str, tenant: str | None, trace_id: str | None
    ) -> AbstractContextManager[Span]:
        facts = _facts(type, tenant)
        return self._span(f"submit {type}", SpanKind.PRODUCER, _context_of(trace_id), facts)

    def fire(self, type: str, tenant: str | None, trigger: str) -> AbstractContextManager[Span]:
        facts = _facts(type, tenant) | {"trigger": trigger}
        return self._span(f"fire {type}", SpanKind.PRODUCER, NOBODY, facts)

    def stage(self, task: Task, stage: str, *, undo: bool) -> AbstractContextManager[Span]:
        facts = _facts(task.type, task.tenant)
        facts |= {"task_id": task.id, "stage": stage, "attempt": task.attempt}
        name = f"{task.type} {stage}{' undo' if undo else ''}"
        parent = _context_of(task.trace_id) or NOBODY
        return self._span(name, SpanKind.CONSUMER, parent, facts)

    def current_traceparent(self) -> str | None:
        return _traceparent(None)

    @contextmanager
    def _span(
        self, name: str, kind: SpanKind, parent: Context | None, facts: dict[str, str | int]
    ) -> Iterator[Span]:
        """Open a span; an exception that leaves it is recorded elsewhere, redacted."""
        with self._tracer.start_as_current_span(
            name, parent, kind, record_exception=False, set_status_on_exception=False
        ) as made:
            span = OtelSpan(made, self._redactor)
            span.set_attributes(**facts)
            yield span


def _facts(type: str, tenant: str | None) -> dict[str, str | int]:
    return {"type": type} if tenant is None else {"type": type, "tenant": tenant}


def _context_of(trace_id: str | None) -> Context | None:
    if trace_id is None or not is_traceparent(trace_id):
        return None
    return _wire.extract({TRACEPARENT: trace_id}, NOBODY)


def _traceparent(context: Context | None) -> str | None:
    carrier: dict[str, str] = {}
    _wire.inject(carrier, context)
    return carrier.get(TRACEPARENT)
