"""The JSON views of bulk actions, which the command line and the API share."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from pydantic import Field

from holdfast.domain.bulk import BulkCommand
from holdfast.domain.plan.plan import FailureRate
from holdfast.domain.redaction import Redactor
from holdfast.domain.task.envelope import iso
from holdfast.domain.task.state import Status
from holdfast.engine.bulk.order import BulkInfo, BulkPreview
from holdfast.engine.handle import Info
from holdfast.insight.views import fields
from holdfast.insight.views.tasks import at, text_or_none
from holdfast.insight.views.view import Time, View, about, example
from holdfast.ports import Filter


class CanaryView(View):
    steps: tuple[int, ...]
    stopAt: dict[str, Any]
    waitSeconds: float


class BulkView(View):
    bulkId: fields.TaskId
    command: Annotated[BulkCommand, example(BulkCommand.RESUME)]
    phase: Annotated[str, Field(examples=list(PHASES))]
    status: Annotated[Status, example(Status.RUNNING, "The status of the task that runs it")]
    matching: Annotated[int, example(250, "Tasks that matched at its start")]
    more: Annotated[bool, about("True if more tasks match than were counted")]
    left: Annotated[int, example(120)]
    done: Annotated[int, example(129)]
    refused: Annotated[dict[str, int], example({"tenant-moved-on": 1}, "Refused tasks by code")]
    changed: Annotated[int, example(0, "Tasks left alone because they changed meanwhile")]
    gone: int
    ended: Annotated[int, about("Tasks of the canary that ended well")]
    failed: Annotated[int, about("Tasks of the canary that failed again")]
    unknown: Annotated[int, about("Tasks of the canary that still run")]
    rate: Annotated[float, example(50.0)]
    canary: Annotated[CanaryView | None, example(example_canary())]
    limit: Annotated[int | None, example(None)]
    filter: Annotated[dict[str, Any], example({"error": "4f0c9a7d12ab"})]
    startedBy: Annotated[str, example("api:ann")]
    origin: fields.Origin
    why: Annotated[str, example("the database is back")]
    reason: Annotated[fields.Reason, about("Why the action was halted, stopped or paused")]
    error: Annotated[str | None, example(None)]
    createdAt: Time
    updatedAt: Time


PHASES = ("rest", "waiting", "canary 1", "done", "halted", "stopped", "paused", "suspended")


def example_canary() -> CanaryView:
    """Return a canary as the examples in the OpenAPI document have it."""
    rule = msgspec.to_builtins(FailureRate(0.2))
    return {"steps": (1, 10), "stopAt": rule, "waitSeconds": 600.0}


class BulkPageView(View):
    bulks: list[BulkView]
    cursor: fields.Cursor


class SampleView(View):
    taskId: fields.TaskId
    type: fields.TypeName
    tenantId: fields.TenantId | None
    status: Annotated[Status, example(Status.FAILED)]
    stage: fields.StageName | None
    updatedAt: Time


class BulkPreviewView(View):
    matching: Annotated[int, example(250)]
    more: Annotated[bool, about("True if more tasks match than were examined")]
    refusedNow: Annotated[int, example(1, "Examined tasks that would refuse the command now")]
    startsOver: Annotated[int, example(0, "Examined tasks that would start at their first stage")]
    startingOver: Annotated[tuple[str, ...], example([], "The ids of the first of these tasks")]
    checkpointsJudged: Annotated[int, example(250, "The number of checkpoints that were examined")]
    checkpointsToJudge: Annotated[int, example(250, "Tasks that would continue from a checkpoint")]
    sample: list[SampleView]


def bulk_view(info: BulkInfo, hide: Redactor) -> BulkView:
    counts = info.counts
    return {
        "bulkId": info.id,
        "command": info.command,
        "phase": info.phase,
        "status": info.status,
        "matching": info.matching,
        "more": info.more,
        "left": info.left,
        "done": counts.done,
        "refused": dict(counts.refused),
        "changed": counts.changed,
        "gone": counts.gone,
        "ended": counts.ended,
        "failed": counts.failed,
        "unknown": info.unknown,
        "rate": info.rate,
        "canary": _canary_view(info),
        "limit": info.limit,
        "filter": _filter_view(info.where),
        "startedBy": info.by.actor,
        "origin": info.by.origin,
        "why": hide.text(info.by.reason),
        "reason": text_or_none(info.reason, hide),
        "error": hide.text(info.failure.summary) if info.failure else None,
        "createdAt": iso(info.created_at),
        "updatedAt": iso(info.updated_at),
    }


def _canary_view(info: BulkInfo) -> CanaryView | None:
    canary = info.canary
    if canary is None:
        return None
    rule: dict[str, Any] = msgspec.to_builtins(canary.stop_at)
    return {"steps": canary.steps, "stopAt": rule, "waitSeconds": canary.wait_seconds}


def _filter_view(where: Filter) -> dict[str, Any]:
    fields: dict[str, Any] = {
        name: value for name, value in msgspec.to_builtins(where).items() if value is not None
    }
    for old, new in (("updated_before", "updatedBefore"), ("updated_after", "updatedAfter")):
        if old in fields:
            fields[new] = at(fields.pop(old))
    return fields


def bulk_preview_view(preview: BulkPreview) -> BulkPreviewView:
    return {
        "matching": preview.matching,
        "more": preview.more,
        "refusedNow": preview.refused_now,
        "startsOver": preview.starts_over,
        "startingOver": preview.starting_over,
        "checkpointsJudged": preview.checkpoints_judged,
        "checkpointsToJudge": preview.checkpoints_to_judge,
        "sample": [_sample_view(task) for task in preview.sample],
    }


def _sample_view(task: Info) -> SampleView:
    return {
        "taskId": task.id,
        "type": task.type,
        "tenantId": task.tenant,
        "status": task.status,
        "stage": task.stage,
        "updatedAt": iso(task.updated_at),
    }
