"""Bulk actions as JSON, for the command line and the API. The keys are a promise: add, never
rename."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.domain.redaction import Redactor
from holdfast.engine.bulk.order import BulkInfo, BulkPreview
from holdfast.engine.handle import Info
from holdfast.insight.views.tasks import at, text_or_none
from holdfast.ports import Filter


def bulk_shape(info: BulkInfo, hide: Redactor) -> dict[str, Any]:
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
        "canary": _canary_shape(info),
        "limit": info.limit,
        "filter": _filter_shape(info.where),
        "startedBy": info.by.actor,
        "origin": info.by.origin,
        "why": hide.text(info.by.reason),
        "reason": text_or_none(info.reason, hide),
        "error": hide.text(info.failure.summary) if info.failure else None,
        "createdAt": at(info.created_at),
        "updatedAt": at(info.updated_at),
    }


def _canary_shape(info: BulkInfo) -> dict[str, Any] | None:
    if info.canary is None:
        return None
    told = info.canary
    rule: dict[str, Any] = msgspec.to_builtins(told.stop_at)
    return {"steps": told.steps, "stopAt": rule, "waitSeconds": told.wait_seconds}


def _filter_shape(where: Filter) -> dict[str, Any]:
    told: dict[str, Any] = {
        name: value for name, value in msgspec.to_builtins(where).items() if value is not None
    }
    for old, new in (("updated_before", "updatedBefore"), ("updated_after", "updatedAfter")):
        if old in told:
            told[new] = at(told.pop(old))
    return told


def preview_shape(preview: BulkPreview) -> dict[str, Any]:
    return {
        "matching": preview.matching,
        "more": preview.more,
        "refusedNow": preview.refused_now,
        "startsOver": preview.starts_over,
        "startingOver": list(preview.starting_over),
        "checkpointsJudged": preview.checkpoints_judged,
        "checkpointsToJudge": preview.checkpoints_to_judge,
        "sample": [_sample_shape(one) for one in preview.sample],
    }


def _sample_shape(one: Info) -> dict[str, Any]:
    return {
        "taskId": one.id,
        "type": one.type,
        "tenantId": one.tenant,
        "status": one.status,
        "stage": one.stage,
        "updatedAt": at(one.updated_at),
    }
