"""The interface for spans around submits and stages; by default there is no tracer."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from holdfast.domain.task.task import Task


class Span(Protocol):
    """A span around a submit or a stage."""

    @property
    def traceparent(self) -> str | None:
        """Return the text in a task that links its stages to this span; None: there is none."""

    def set_attributes(self, **facts: str | int) -> None:
        """Set attributes: ``task_id="…"`` becomes ``holdfast.task.id``."""

    def fail(self, error: str, message: str, traceback: str = "") -> None:
        """Mark the span as failed, with the type and the text of the error."""


class Tracer(Protocol):
    @property
    def on(self) -> bool:
        """Return whether spans are wanted; without them, tracing costs nothing."""

    def submit(
        self, type: str, tenant: str | None, trace_id: str | None
    ) -> AbstractContextManager[Span]:
        """Open a span below ``trace_id`` if that is a traceparent, else below the current one."""

    def fire(self, type: str, tenant: str | None, trigger: str) -> AbstractContextManager[Span]:
        """Open the first span of a trace: a trigger has no caller."""

    def stage(self, task: Task, stage: str, *, undo: bool) -> AbstractContextManager[Span]:
        """Open a span for one call of a stage, below the span in the task."""

    def current_traceparent(self) -> str | None:
        """Return the traceparent of the current span, for a task that is submitted later."""


class NoSpan:
    traceparent = None

    def set_attributes(self, **facts: str | int) -> None: ...

    def fail(self, error: str, message: str, traceback: str = "") -> None: ...


class NoTracer:
    on = False

    def _open_no_span(self, *facts: object, **named: object) -> AbstractContextManager[Span]:
        del facts, named
        return nullcontext(NoSpan())

    submit = fire = stage = _open_no_span

    def current_traceparent(self) -> str | None:
        return None


NO_TRACER = NoTracer()
