"""What `--json` prints. The keys are a promise: add, never rename."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.app.handle import info
from holdfast.cli.show import at
from holdfast.domain import events as ev
from holdfast.domain.task import Failure, Progress, Task
from holdfast.domain.transition import Audit
from holdfast.ports import Detail

TASK_KEYS = (
    "taskId, type, status, tenantId, planId, queue, stage, attempt, reason, error, "
    "createdAt, updatedAt"
)


def task_shape(task: Task) -> dict[str, Any]:
    return {
        "taskId": task.id,
        "type": task.type,
        "status": task.status,
        "tenantId": task.tenant,
        "planId": task.plan,
        "queue": task.queue,
        "stage": task.at_stage,
        "attempt": task.attempt,
        "reason": task.reason,
        "error": failure_shape(task.failure) if task.failure else None,
        "createdAt": at(task.created_at),
        "updatedAt": at(task.updated_at),
    }


def asked_shape(task: Task) -> dict[str, Any]:
    """A task after a command."""
    return {
        "taskId": task.id,
        "status": task.status,
        "pauseRequested": task.pause_requested,
        "cancelRequested": task.cancel_requested,
    }


def failure_shape(failure: Failure) -> dict[str, Any]:
    return {
        "fingerprint": failure.fingerprint,
        "kind": failure.kind,
        "error": failure.error,
        "message": failure.message,
        "stage": failure.stage,
        "attempt": failure.attempt,
        "at": at(failure.at),
        "traceback": failure.traceback,
    }


def detail_shape(detail: Detail) -> dict[str, Any]:
    task, lease = detail.task, detail.task.lease
    return task_shape(task) | {
        "key": task.key,
        "run": task.run,
        "epoch": task.epoch,
        "version": task.version,
        "place": task.place,
        "dueAt": at(task.due),
        "settledAt": at(task.settled_at),
        "pauseRequested": task.pause_requested,
        "cancelRequested": task.cancel_requested,
        "legalCommands": task.legal,
        "lease": lease and {"worker": lease.owner, "fence": lease.fence, "until": at(lease.until)},
        "stageNames": task.stages,
        "completed": info(detail).completed,
        "stages": [
            {
                "name": stage.name,
                "durationSeconds": stage.duration_seconds,
                "run": stage.run,
                "result": raw_shape(stage.result),
            }
            for stage in detail.stages
        ],
        "progress": progress_shape(detail.progress),
        "payload": raw_shape(detail.payload),
        "result": raw_shape(detail.result),
        "data": raw_shape(detail.data),
        "checkpoint": raw_shape(detail.checkpoint),
        "events": [event_shape(event) for event in detail.events],
    }


def progress_shape(progress: Progress | None) -> dict[str, Any] | None:
    if progress is None:
        return None
    return {
        "fraction": progress.fraction,
        "message": progress.message,
        "stage": progress.stage,
        "at": at(progress.at),
    }


def event_shape(event: ev.Event) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(event)
    return told | {"at": at(event.at)}


def audit_shape(entry: Audit) -> dict[str, Any]:
    return {
        "at": at(entry.at),
        "actor": entry.by.actor,
        "origin": entry.by.origin,
        "reason": entry.by.reason,
        "command": entry.command,
        "taskId": entry.task_id,
        "before": entry.before,
        "after": entry.after,
        "refused": entry.refused,
    }


def raw_shape(body: bytes | None) -> Any:
    """Stored JSON as it is; what cannot be read, as text, so that a person can see it."""
    if body is None:
        return None
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return body.decode(errors="backslashreplace")
