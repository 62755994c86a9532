"""What `--json` prints of plans. The keys are a promise: add, never rename."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.app.plan_handle import PlanInfo
from holdfast.app.plans import Preview
from holdfast.cli.plan_view import FailedTask, Shown
from holdfast.cli.shapes import failure_shape
from holdfast.cli.show import at
from holdfast.domain.plan import Plan
from holdfast.domain.plan_events import PlanEvent

PLAN_KEYS = (
    "planId, status, cancelRequested, progress, total, wave, waves (each: wave, size, counts), "
    "maxConcurrency, soakSecondsLeft, endsInSeconds, reason, legalCommands, driver, createdAt, "
    "startedAt, updatedAt"
)
ASKED_KEYS = "planId, status, cancelRequested"
PREVIEW_KEYS = "planId, total, waves (each: wave, size, tenants), busy, exists"


def plan_shape(info: PlanInfo) -> dict[str, Any]:
    return {
        "planId": info.id,
        "status": info.status,
        "cancelRequested": info.cancelling,
        "progress": info.progress,
        "total": info.total,
        "wave": info.wave,
        "waves": [
            {"wave": wave.number, "size": wave.size, "counts": wave.counts} for wave in info.waves
        ],
        "maxConcurrency": info.max_concurrency,
        "soakSecondsLeft": info.soaks_for,
        "endsInSeconds": info.ends_in,
        "reason": info.reason,
        "legalCommands": info.legal,
        "driver": info.driver,
        "createdAt": at(info.created_at),
        "startedAt": at(info.started_at),
        "updatedAt": at(info.updated_at),
    }


def shown_shape(shown: Shown) -> dict[str, Any]:
    plan = shown.plan
    told = plan_shape(shown.info) | {
        "soakSeconds": plan.soak_seconds,
        "haltOn": plan.halt_on,
        "onHalt": plan.on_halt,
        "conflict": plan.conflict,
        "failed": [_failed_shape(one) for one in shown.failed],
        "failedTotal": shown.failed_total,
    }
    if shown.events is None:
        return told
    return told | {"events": [_event_shape(event) for event in shown.events]}


def _failed_shape(one: FailedTask) -> dict[str, Any]:
    failure = one.task.failure if one.task else None
    return {
        "taskId": one.task_id,
        "tenantId": one.tenant,
        "state": one.state,
        "error": failure_shape(failure) if failure else None,
    }


def _event_shape(event: PlanEvent) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(event)
    return told | {"at": at(event.at)}


def asked_shape(plan: Plan) -> dict[str, Any]:
    """A plan after a command."""
    return {"planId": plan.id, "status": plan.status, "cancelRequested": plan.cancel_requested}


def preview_shape(preview: Preview) -> dict[str, Any]:
    return {
        "planId": preview.id,
        "total": preview.total,
        "waves": [
            {"wave": wave.number, "size": len(wave.tenants), "tenants": wave.tenants}
            for wave in preview.waves
        ],
        "busy": preview.busy,
        "exists": preview.exists,
    }
