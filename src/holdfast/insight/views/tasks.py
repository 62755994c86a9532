"""Tasks as JSON, for the command line and the API. The keys are a promise: add, never rename.

What users and their code have written (payloads, results, errors, reasons) goes through a Redactor.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.domain.audit import Audit
from holdfast.domain.redaction import Redactor
from holdfast.domain.task import events as ev
from holdfast.domain.task.envelope import iso
from holdfast.domain.task.history import Step
from holdfast.domain.task.task import Failure, Progress, Task
from holdfast.engine.handle import info
from holdfast.engine.operations.expired_checkpoints import Find, not_known, outlook_of
from holdfast.ports import Detail


def at(moment: float | None) -> str | None:
    return None if moment is None else iso(moment)


def task_shape(task: Task, hide: Redactor) -> dict[str, Any]:
    """Return a task as lists have it; a traceback is in its detail only."""
    return {
        "taskId": task.id,
        "type": task.type,
        "status": task.status,
        "tenantId": task.tenant,
        "planId": task.plan,
        "queue": task.queue,
        "stage": task.at_stage,
        "attempt": task.attempt,
        "outages": task.outages,
        "outageSince": at(task.outage_since),
        "reason": text_or_none(task.reason, hide),
        "error": failure_shape(task.failure, hide) | {"traceback": ""} if task.failure else None,
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


def failure_shape(failure: Failure, hide: Redactor) -> dict[str, Any]:
    return {
        "fingerprint": failure.fingerprint,
        "kind": failure.kind,
        "error": failure.error,
        "message": hide.text(failure.message),
        "stage": failure.stage,
        "attempt": failure.attempt,
        "at": at(failure.at),
        "traceback": hide.text(failure.traceback),
    }


def detail_shape(
    detail: Detail, hide: Redactor, *, now: float, find: Find = not_known
) -> dict[str, Any]:
    """Return all that is kept of a task; ``find`` knows the code that judges its checkpoint."""
    task, lease = detail.task, detail.task.lease
    ahead = outlook_of(detail, now=now, find=find)
    return task_shape(task, hide) | {
        "error": failure_shape(task.failure, hide) if task.failure else None,
        "key": task.key,
        "callbackUrl": callback_shape(task.callback),
        "run": task.run,
        "epoch": task.epoch,
        "version": task.version,
        "place": task.place,
        "dueAt": at(task.due),
        "settledAt": at(task.settled_at),
        "pauseRequested": task.pause_requested,
        "cancelRequested": task.cancel_requested,
        "legalCommands": task.legal,
        "ranBy": task.ran_by,
        "lease": lease
        and {"worker": lease.owner, "fence": lease.fence, "until": at(lease.until or None)},
        "stageNames": task.stages,
        "completed": info(detail).completed,
        "stages": [
            {
                "name": stage.name,
                "durationSeconds": stage.duration_seconds,
                "run": stage.run,
                "undo": stage.undo,
                "result": hide.body(stage.result),
            }
            for stage in detail.stages
        ],
        "progress": progress_shape(detail.progress, hide),
        "payload": hide.body(detail.payload),
        "result": body_or_none(detail.result, hide),
        "data": body_or_none(detail.data, hide),
        "checkpoint": body_or_none(detail.checkpoint, hide),
        "checkpointInvalid": ahead.why if ahead else None,
        "startsOver": ahead is not None and ahead.starts_over,
        "events": [event_shape(event, hide) for event in detail.events],
    }


def callback_shape(callback: str | None) -> str | None:
    """Where it goes, without path and query: people put secrets there."""
    if callback is None:
        return None
    scheme, separator, rest = callback.partition("://")
    return f"{scheme}://{rest.partition('/')[0].partition('?')[0]}/…" if separator else scheme


def progress_shape(progress: Progress | None, hide: Redactor) -> dict[str, Any] | None:
    if progress is None:
        return None
    return {
        "fraction": progress.fraction,
        "message": hide.text(progress.message),
        "stage": progress.stage,
        "at": at(progress.at),
    }


def event_shape(event: ev.Event, hide: Redactor) -> dict[str, Any]:
    told: dict[str, Any] = hide.strings(msgspec.to_builtins(event))
    return told | {"at": at(event.at)}


def audit_shape(entry: Audit, hide: Redactor) -> dict[str, Any]:
    return {
        "at": at(entry.at),
        "actor": entry.by.actor,
        "origin": entry.by.origin,
        "reason": hide.text(entry.by.reason),
        "command": entry.command,
        "taskId": entry.task_id,
        "before": entry.before,
        "after": entry.after,
        "refused": entry.refused,
    }


def step_shape(step: Step, hide: Redactor) -> dict[str, Any]:
    return {
        "at": at(step.at),
        "taskId": step.task_id,
        "version": step.version,
        "command": step.command,
        "before": step.before,
        "after": step.after,
        "maker": step.maker,
        "name": step.name,
        "origin": step.origin,
        "reason": hide.text(step.reason),
    }


def body_or_none(body: bytes | None, hide: Redactor) -> Any:
    return None if body is None else hide.body(body)


def text_or_none(text: str | None, hide: Redactor) -> str | None:
    return None if text is None else hide.text(text)
