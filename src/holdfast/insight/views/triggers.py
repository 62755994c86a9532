"""The JSON views of triggers; their times are in their own zone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from holdfast.domain.redaction import Redactor
from holdfast.domain.trigger.schedule import format_schedule
from holdfast.domain.trigger.trigger import (
    MACHINE,
    Misfire,
    Overlap,
    Trigger,
    TriggerCommand,
    TriggerStatus,
)
from holdfast.engine.triggers.declared_triggers import zone_of
from holdfast.insight.views import fields
from holdfast.insight.views.tasks import text_or_none
from holdfast.insight.views.view import Time, View, about, example

_NEXT = ["2026-02-01T03:00:00+08:00", "2026-02-02T03:00:00+08:00"]


class TriggerView(View):
    triggerId: fields.TriggerId
    status: TriggerStatus
    schedule: Annotated[str, example("0 3 * * * (Asia/Shanghai)")]
    kind: Annotated[str, example("cron")]
    type: fields.TypeName
    tenantId: Annotated[str | None, example(None)]
    declared: Annotated[bool, about("True if code declares it: a worker brings it back")]
    nextFireTime: Annotated[Time | None, example("2026-02-01T03:00:00.000+08:00")]
    lastFireTime: Annotated[Time | None, example("2026-01-31T03:00:00.000+08:00")]
    lastTaskId: Annotated[str | None, example(fields.EXAMPLE_ID)]
    fired: Annotated[int, example(12)]
    missed: int
    reason: fields.Reason
    createdAt: Time
    updatedAt: Time


class TriggerDetail(TriggerView):
    payload: fields.Payload
    queue: fields.QueueName | None
    misfire: Misfire
    catchUpMax: Annotated[int, example(100)]
    overlap: Overlap
    jitterSeconds: Annotated[float, example(0.0)]
    graceSeconds: Annotated[float, example(60.0)]
    retryCount: int
    triggerAt: Annotated[Time | None, example("2026-02-01T03:00:00.000+08:00")]
    owner: Annotated[str | None, example(None)]
    endedAt: Annotated[Time | None, example(None)]
    legalCommands: Annotated[
        tuple[TriggerCommand, ...], example(list(MACHINE.legal(TriggerStatus.PENDING)))
    ]
    next: Annotated[list[Time], example(_NEXT)]


class TriggerPageView(View):
    triggers: list[TriggerView]
    cursor: fields.Cursor


class TriggerState(View):
    triggerId: fields.TriggerId
    status: Annotated[TriggerStatus, example(TriggerStatus.PENDING)]


class NextTimes(View):
    triggerId: fields.TriggerId
    next: Annotated[list[Time], example(_NEXT)]


class NextTimesAndState(TriggerState, NextTimes):
    """The fire times that `holdfast triggers next --json` prints."""


class TriggerAsked(TriggerState):
    taskId: Annotated[fields.TaskId | None, about("The task that `fire` has submitted")]


def trigger_view(trigger: Trigger, hide: Redactor) -> TriggerView:
    return {
        "triggerId": trigger.id,
        "status": trigger.status,
        "schedule": format_schedule(trigger.schedule),
        "kind": trigger.kind,
        "type": trigger.target,
        "tenantId": trigger.tenant,
        "declared": trigger.declared,
        "nextFireTime": _in_zone(trigger.fire_time, trigger),
        "lastFireTime": _in_zone(trigger.last_fire_time, trigger),
        "lastTaskId": trigger.last_task,
        "fired": trigger.fired,
        "missed": trigger.missed,
        "reason": text_or_none(trigger.reason, hide),
        "createdAt": _iso(trigger.created_at, trigger),
        "updatedAt": _iso(trigger.updated_at, trigger),
    }


def trigger_detail_view(
    trigger: Trigger, upcoming: Sequence[datetime], hide: Redactor
) -> TriggerDetail:
    return {
        **trigger_view(trigger, hide),
        "payload": hide.body(bytes(trigger.payload)),
        "queue": trigger.queue,
        "misfire": trigger.misfire,
        "catchUpMax": trigger.catch_up_max,
        "overlap": trigger.overlap,
        "jitterSeconds": trigger.jitter_seconds,
        "graceSeconds": trigger.grace_seconds,
        "retryCount": trigger.retry_count,
        "triggerAt": _in_zone(trigger.trigger_at, trigger),
        "owner": trigger.owner,
        "endedAt": _in_zone(trigger.ended_at, trigger),
        "legalCommands": trigger.legal,
        "next": format_times(upcoming),
    }


def format_times(moments: Sequence[datetime]) -> list[str]:
    return [moment.isoformat() for moment in moments]


def next_times_view(trigger_id: str, upcoming: Sequence[datetime]) -> NextTimes:
    return {"triggerId": trigger_id, "next": format_times(upcoming)}


def _in_zone(moment: float | None, trigger: Trigger) -> str | None:
    return None if moment is None else _iso(moment, trigger)


def _iso(moment: float, trigger: Trigger) -> str:
    return datetime.fromtimestamp(moment, zone_of(trigger.schedule)).isoformat()
