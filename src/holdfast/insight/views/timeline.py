"""The JSON view of a task's life: its runs, the calls of its stages, and what else happened."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from pydantic import Field

from holdfast.domain.redaction import Redactor
from holdfast.domain.task.envelope import iso
from holdfast.domain.task.state import Status
from holdfast.insight.timeline import StageCall, TaskRun, TimelineMark, timeline
from holdfast.insight.views import fields
from holdfast.insight.views.tasks import (
    Error,
    ProgressView,
    at,
    body_or_none,
    event_view,
    example_event,
    failure_view,
    progress_view,
)
from holdfast.insight.views.view import Time, View, example
from holdfast.ports import Detail

OUTCOMES = ("failed", "done", "outage", "snoozed", "undone", "undo-failed", "lost", "running")


class CallView(View):
    stage: fields.StageName
    attempt: fields.Attempt
    outcome: Annotated[str, Field(examples=list(OUTCOMES))]
    startedAt: Time | None
    endedAt: Annotated[Time | None, example(iso(fields.EXAMPLE_AT))]
    durationSeconds: Annotated[float | None, example(1.5)]
    worker: fields.WorkerName | None
    fence: fields.Fence | None
    result: NotRequired[Annotated[Any, example(None)]]
    error: Error | None


class MarkView(View):
    at: Time
    version: Annotated[int, example(2)]
    event: Annotated[dict[str, Any], example(example_event())]


class RunView(View):
    run: fields.Run
    startedAt: Time
    endedAt: Annotated[Time | None, example(None)]
    endedAs: Annotated[str | None, Field(examples=[None, "TaskCompleted"])]
    calls: list[CallView]
    marks: list[MarkView]


class Timeline(View):
    taskId: fields.TaskId
    status: Annotated[Status, example(Status.FAILED)]
    checkpoint: Annotated[Any, example({"taken": True})]
    progress: Annotated[ProgressView | None, example(None)]
    runs: list[RunView]


def timeline_view(detail: Detail, hide: Redactor) -> Timeline:
    return {
        "taskId": detail.task.id,
        "status": detail.task.status,
        "checkpoint": body_or_none(detail.checkpoint, hide),
        "progress": progress_view(detail.progress, hide),
        "runs": [_run_view(run, hide) for run in timeline(detail)],
    }


def _run_view(run: TaskRun, hide: Redactor) -> RunView:
    return {
        "run": run.run,
        "startedAt": iso(run.started_at),
        "endedAt": at(run.ended_at),
        "endedAs": run.ended_as,
        "calls": [_call_view(call, hide) for call in run.calls],
        "marks": [_mark_view(mark, hide) for mark in run.marks],
    }


def _call_view(call: StageCall, hide: Redactor) -> CallView:
    return {
        "stage": call.stage,
        "attempt": call.attempt,
        "outcome": call.outcome,
        "startedAt": at(call.started_at),
        "endedAt": at(call.ended_at),
        "durationSeconds": call.duration_seconds,
        "worker": call.worker,
        "fence": call.fence,
        "result": body_or_none(call.result, hide),
        "error": failure_view(call.failure, hide) if call.failure else None,
    }


def _mark_view(mark: TimelineMark, hide: Redactor) -> MarkView:
    return {"at": iso(mark.at), "version": mark.version, "event": event_view(mark.event, hide)}
