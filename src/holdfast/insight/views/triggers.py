"""Triggers as JSON, for the command line and the API; their times are in their own zone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from holdfast.domain.redaction import Redactor
from holdfast.domain.trigger.schedule import described
from holdfast.domain.trigger.trigger import Trigger
from holdfast.engine.triggers.declared_triggers import zone_of
from holdfast.insight.views.tasks import text_or_none


def trigger_shape(trigger: Trigger, hide: Redactor) -> dict[str, Any]:
    return {
        "triggerId": trigger.id,
        "status": trigger.status,
        "schedule": described(trigger.schedule),
        "kind": trigger.kind,
        "type": trigger.target,
        "tenantId": trigger.tenant,
        "declared": trigger.declared,
        "nextFireTime": _iso(trigger.fire_time, trigger),
        "lastFireTime": _iso(trigger.last_fire_time, trigger),
        "lastTaskId": trigger.last_task,
        "fired": trigger.fired,
        "missed": trigger.missed,
        "reason": text_or_none(trigger.reason, hide),
        "createdAt": _iso(trigger.created_at, trigger),
        "updatedAt": _iso(trigger.updated_at, trigger),
    }


def trigger_detail_shape(
    trigger: Trigger, upcoming: Sequence[datetime], hide: Redactor
) -> dict[str, Any]:
    return trigger_shape(trigger, hide) | {
        "payload": hide.body(bytes(trigger.payload)),
        "queue": trigger.queue,
        "misfire": trigger.misfire,
        "catchUpMax": trigger.catch_up_max,
        "overlap": trigger.overlap,
        "jitterSeconds": trigger.jitter_seconds,
        "graceSeconds": trigger.grace_seconds,
        "retryCount": trigger.retry_count,
        "triggerAt": _iso(trigger.trigger_at, trigger),
        "owner": trigger.owner,
        "endedAt": _iso(trigger.ended_at, trigger),
        "legalCommands": trigger.legal,
        "next": [moment.isoformat() for moment in upcoming],
    }


def _iso(moment: float | None, trigger: Trigger) -> str | None:
    if moment is None:
        return None
    return datetime.fromtimestamp(moment, zone_of(trigger.schedule)).isoformat()
