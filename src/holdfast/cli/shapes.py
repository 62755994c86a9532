"""What `--json` prints of tasks, with secrets hidden."""

from __future__ import annotations

from typing import Any

from holdfast.app import shapes
from holdfast.cli import hiding
from holdfast.domain.audit import Audit
from holdfast.domain.history import Step
from holdfast.domain.task import Failure, Task
from holdfast.ports import Detail

TASK_KEYS = (
    "taskId, type, status, tenantId, planId, queue, stage, attempt, outages, outageSince, reason, "
    "error, createdAt, updatedAt"
)

asked_shape = shapes.asked_shape


def task_shape(task: Task) -> dict[str, Any]:
    return shapes.task_shape(task, hiding.current())


def detail_shape(detail: Detail, now: float) -> dict[str, Any]:
    return shapes.detail_shape(detail, hiding.current(), now=now)


def failure_shape(failure: Failure) -> dict[str, Any]:
    return shapes.failure_shape(failure, hiding.current())


def audit_shape(entry: Audit) -> dict[str, Any]:
    return shapes.audit_shape(entry, hiding.current())


def step_shape(step: Step) -> dict[str, Any]:
    return shapes.step_shape(step, hiding.current())
