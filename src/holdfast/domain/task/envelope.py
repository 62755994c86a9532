"""The task as callers see it: the TaskEnvelope of the documents, field for field."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from holdfast.domain.task.state import Status
from holdfast.domain.task.task import Task
from holdfast.domain.task.trace import shown_trace

ENVELOPE_STATUS: Mapping[Status, str] = {
    Status.CREATED: "pending",
    Status.PENDING: "pending",
    Status.PAUSED: "pending",
    Status.RUNNING: "processing",
    Status.ROLLING_BACK: "processing",
    Status.RETRYING: "retry",
    Status.FAILED: "suspended",
    Status.ROLLBACK_FAILED: "suspended",
    Status.COMPLETED: "completed",
    Status.CANCELLED: "completed",
    Status.ROLLED_BACK: "completed",
}


class SubmissionContext(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    idempotency_key: str | None
    trace_id: str | None
    user: Any


class RetryState(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    count: int
    max: int
    next_attempt_at: int  # ms since the epoch; 0: none is planned
    outages: int = 0  # in a row, not in the count; left out if 0: the document has no such field


class TaskEnvelope(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    task_id: str
    type: str
    payload: msgspec.Raw
    context: SubmissionContext
    retry: RetryState
    status: str
    created_at: str
    updated_at: str
    task_status: Status


def envelope(task: Task, payload: bytes) -> TaskEnvelope:
    return TaskEnvelope(
        task_id=task.id,
        type=task.type,
        payload=msgspec.Raw(payload),
        context=SubmissionContext(
            idempotency_key=task.key,
            trace_id=shown_trace(task.trace_id),
            user={} if task.user is None else task.user,
        ),
        retry=RetryState(
            count=task.failures,
            max=task.retry_max,
            next_attempt_at=0 if task.due is None else round(task.due * 1000),
            outages=task.outages,
        ),
        status=ENVELOPE_STATUS[task.status],
        created_at=iso(task.created_at),
        updated_at=iso(task.updated_at),
        task_status=task.status,
    )


def iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
