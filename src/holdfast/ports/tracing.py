"""Spans around submits and stages, for whatever keeps them; by default nothing does."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from holdfast.domain.task.task import Task


class Span(Protocol):
    @property
    def traceparent(self) -> str | None:
        """Return what a task carries so that its stages belong to this span; None: nothing to
        carry."""

    def tell(self, **facts: str | int) -> None:
        """``task_id="…"`` becomes the attribute ``holdfast.task.id``."""

    def fail(self, error: str, message: str, traceback: str = "") -> None: ...


class Tracer(Protocol):
    @property
    def on(self) -> bool:
        """False: ask for no spans at all; that is how it costs nothing."""

    def submit(
        self, type: str, tenant: str | None, trace_id: str | None
    ) -> AbstractContextManager[Span]:
        """Open a span below ``trace_id`` if that is a traceparent, else below the current one."""

    def fire(self, type: str, tenant: str | None, trigger: str) -> AbstractContextManager[Span]:
        """The beginning of a trace: nobody asked."""

    def stage(self, task: Task, stage: str, *, undo: bool) -> AbstractContextManager[Span]:
        """One call, below the span that the task carries."""

    def current_traceparent(self) -> str | None:
        """The traceparent of the span that is current, for a task that is submitted later."""


class NoSpan:
    traceparent = None

    def tell(self, **facts: str | int) -> None: ...

    def fail(self, error: str, message: str, traceback: str = "") -> None: ...


class NoTracer:
    on = False

    def submit(
        self, type: str, tenant: str | None, trace_id: str | None
    ) -> AbstractContextManager[Span]:
        del type, tenant, trace_id
        return nullcontext(NoSpan())

    def fire(self, type: str, tenant: str | None, trigger: str) -> AbstractContextManager[Span]:
        del type, tenant, trigger
        return nullcontext(NoSpan())

    def stage(self, task: Task, stage: str, *, undo: bool) -> AbstractContextManager[Span]:
        del task, stage, undo
        return nullcontext(NoSpan())

    def current_traceparent(self) -> str | None:
        return None


NO_TRACER = NoTracer()
