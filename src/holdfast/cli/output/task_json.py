"""What `--json` prints of tasks, with secrets hidden."""

from __future__ import annotations

from typing import Any

from holdfast.cli.output import redaction
from holdfast.domain.audit import Audit
from holdfast.domain.task.history import Step
from holdfast.domain.task.task import Failure, Task
from holdfast.insight.views import tasks
from holdfast.ports import Detail

TASK_KEYS = (
    "taskId, type, status, tenantId, planId, queue, stage, attempt, outages, outageSince, reason, "
    "error, createdAt, updatedAt"
)

asked_shape = tasks.asked_shape


def task_shape(task: Task) -> dict[str, Any]:
    return tasks.task_shape(task, redaction.current())


def detail_shape(detail: Detail, now: float) -> dict[str, Any]:
    return tasks.detail_shape(detail, redaction.current(), now=now)


def failure_shape(failure: Failure) -> dict[str, Any]:
    return tasks.failure_shape(failure, redaction.current())


def audit_shape(entry: Audit) -> dict[str, Any]:
    return tasks.audit_shape(entry, redaction.current())


def step_shape(step: Step) -> dict[str, Any]:
    return tasks.step_shape(step, redaction.current())
