"""What `--json` prints of plans, with secrets hidden."""

from __future__ import annotations

from typing import Any

from holdfast.app import plan_shapes as shapes
from holdfast.app.plan_handle import PlanInfo
from holdfast.cli import hiding
from holdfast.cli.plan_view import FailedTask, Shown
from holdfast.cli.shapes import failure_shape

PLAN_KEYS = (
    "planId, status, cancelRequested, progress, total, wave, waves (each: wave, size, counts), "
    "maxConcurrency, soakSecondsLeft, endsInSeconds, reason, legalCommands, driver, createdAt, "
    "startedAt, updatedAt"
)
ASKED_KEYS = "planId, status, cancelRequested"
PREVIEW_KEYS = "planId, total, waves (each: wave, size, tenants), busy, exists"


asked_shape = shapes.asked_plan_shape
preview_shape = shapes.preview_shape


def plan_shape(info: PlanInfo) -> dict[str, Any]:
    return shapes.plan_shape(info, hiding.current())


def shown_shape(shown: Shown) -> dict[str, Any]:
    told = plan_shape(shown.info) | shapes.terms_shape(shown.plan)
    told["failed"] = [_failed_shape(one) for one in shown.failed]
    told["failedTotal"] = shown.failed_total
    if shown.events is not None:
        hide = hiding.current()
        told["events"] = [shapes.plan_event_shape(event, hide) for event in shown.events]
    return told


def _failed_shape(one: FailedTask) -> dict[str, Any]:
    failure = one.task.failure if one.task else None
    return {
        "taskId": one.task_id,
        "tenantId": one.tenant,
        "state": one.state,
        "error": failure_shape(failure) if failure else None,
    }
