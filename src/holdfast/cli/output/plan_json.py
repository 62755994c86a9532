"""What `--json` prints of plans, with secrets hidden."""

from __future__ import annotations

from typing import Any

from holdfast.cli.output import redaction
from holdfast.cli.output.plan_view import FailedTask, Shown
from holdfast.cli.output.task_json import failure_shape
from holdfast.engine.plans.handle import PlanInfo
from holdfast.insight.views import plans as shapes

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
    return shapes.plan_shape(info, redaction.current())


def shown_shape(shown: Shown) -> dict[str, Any]:
    told = plan_shape(shown.info) | shapes.terms_shape(shown.plan)
    told["failed"] = [_failed_shape(one) for one in shown.failed]
    told["failedTotal"] = shown.failed_total
    if shown.events is not None:
        hide = redaction.current()
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
