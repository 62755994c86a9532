"""The scope says which stage runs here; the worker sets it around each call of a stage function.

It is a context variable, so the tasks and threads that the function starts inherit it.
"""

from __future__ import annotations

from contextvars import ContextVar

import msgspec

from holdfast.domain.task.task import Task
from holdfast.domain.task.trace import shown_trace


class Scope(msgspec.Struct, frozen=True, gc=False):
    record: Task
    stage: str

    def fields(self) -> dict[str, str | int]:
        """Return the fields for a log line, without those that the task lacks."""
        task = self.record
        fields: dict[str, str | int | None] = {
            "task": task.id,
            "type": task.type,
            "stage": self.stage,
            "attempt": task.attempt,
            "tenant": task.tenant,
            "trace": shown_trace(task.trace_id),
        }
        return {name: value for name, value in fields.items() if value is not None}


current: ContextVar[Scope | None] = ContextVar("holdfast_scope", default=None)


def fields() -> dict[str, str | int]:
    """Return the fields of the stage that runs here, if one does."""
    scope = current.get()
    return {} if scope is None else scope.fields()
