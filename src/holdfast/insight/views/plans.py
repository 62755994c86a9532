"""Plans as JSON, for the command line and the API. The keys are a promise: add, never rename."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.domain.plan.events import PlanEvent
from holdfast.domain.plan.plan import Plan
from holdfast.domain.redaction import Redactor
from holdfast.engine.plans.create import Preview
from holdfast.engine.plans.handle import PlanInfo
from holdfast.insight.views.tasks import at, text_or_none


def plan_shape(info: PlanInfo, hide: Redactor) -> dict[str, Any]:
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
        "reason": text_or_none(info.reason, hide),
        "legalCommands": info.legal,
        "driver": info.driver,
        "createdAt": at(info.created_at),
        "startedAt": at(info.started_at),
        "updatedAt": at(info.updated_at),
    }


def terms_shape(plan: Plan) -> dict[str, Any]:
    return {
        "soakSeconds": plan.soak_seconds,
        "haltOn": plan.halt_on,
        "onHalt": plan.on_halt,
        "conflict": plan.conflict,
    }


def plan_event_shape(event: PlanEvent, hide: Redactor) -> dict[str, Any]:
    told: dict[str, Any] = hide.strings(msgspec.to_builtins(event))
    return told | {"at": at(event.at)}


def asked_plan_shape(plan: Plan) -> dict[str, Any]:
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
