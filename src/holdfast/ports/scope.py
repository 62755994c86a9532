"""The scope tells which stage runs here: set around each call of a user's function.

A context variable, so it goes along into the tasks and threads that the function starts.
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
        """Return the fields as logs have them; those that the task lacks are left out."""
        task = self.record
        told: dict[str, str | int | None] = {
            "task": task.id,
            "type": task.type,
            "stage": self.stage,
            "attempt": task.attempt,
            "tenant": task.tenant,
            "trace": shown_trace(task.trace_id),
        }
        return {name: value for name, value in told.items() if value is not None}


current: ContextVar[Scope | None] = ContextVar("holdfast_scope", default=None)


def fields() -> dict[str, str | int]:
    """Return the fields of the stage that runs here, if one does."""
    scope = current.get()
    return {} if scope is None else scope.fields()
