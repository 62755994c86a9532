"""A Context with which a test calls a task or a stage directly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.domain.task.task import Progress
from holdfast.engine.declare import Stage
from holdfast.runtime.context import Context
from holdfast.testing.clock import START_NOW


class LoneContext(Context):
    """A Context without an engine; ``reported`` holds the progress that the function reported."""

    __slots__ = ("reported",)

    reported: list[Progress]


def context(
    *,
    task_id: str = "task-1",
    tenant: str | None = None,
    stage: str = "stage",
    attempt: int = 1,
    key: str | None = None,
    fence: int = 1,
    data: Mapping[str, Any] | None = None,
    results: Mapping[Stage[Any, Any], Any] | None = None,
    now: float = START_NOW,
) -> LoneContext:
    """Make a context: ``await send(context(tenant="t-001"), "to@example.org")``.

    ``results`` holds the results of earlier stages: ``{snapshot: "s-1"}``.
    """
    reported: list[Progress] = []
    encoded = {step.name: step.result.encode(value) for step, value in (results or {}).items()}
    made = LoneContext(
        task_id=task_id,
        tenant=tenant,
        stage=stage,
        attempt=attempt,
        key=key or f"{task_id}/1/{stage}",
        fence=fence,
        data=dict(data or {}),
        results=encoded,
        report=reported.append,
        now=lambda: now,
    )
    made.reported = reported
    return made
