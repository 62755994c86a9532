"""The JSON views of tasks, which the command line and the API share.

What users and their code have written (payloads, results, errors, reasons) goes through a Redactor.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from holdfast.domain.plan.events import PlanEvent
from holdfast.domain.redaction import USUAL, Redactor
from holdfast.domain.task import events as ev
from holdfast.domain.task.envelope import iso
from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Command, Status, legal
from holdfast.domain.task.task import Failure, FailureKind, Progress, Task
from holdfast.engine.operations.expired_checkpoints import Find, not_known, outlook_of
from holdfast.insight.views import fields
from holdfast.insight.views.view import Time, View, about, example
from holdfast.ports import Detail, ErrorGroup

_TRACEBACK = 'Traceback (most recent call last):\n  File "app.py", line 7, in migrate\n…'


class Error(View):
    """The failure of a stage. Secrets are hidden."""

    fingerprint: fields.Fingerprint
    kind: Annotated[FailureKind, example(FailureKind.STAGE)]
    error: Annotated[str, example("ConnectionError")]
    message: Annotated[str, example("no route to host")]
    stage: fields.StageName
    attempt: fields.Attempt
    at: Time
    traceback: Annotated[
        str,
        example(
            _TRACEBACK,
            "Operators of all tenants see it in the view of one task; "
            "in lists, and for others, it is empty",
        ),
    ]


class TaskView(View):
    taskId: fields.TaskId
    type: fields.TypeName
    status: Annotated[Status, example(Status.FAILED)]
    tenantId: fields.TenantId | None
    planId: fields.PlanId | None
    queue: fields.QueueName
    stage: Annotated[fields.StageName | None, about("The stage that runs now or would run next")]
    attempt: fields.Attempt
    outages: Annotated[int, about("Outages in a row, which are not attempts")]
    outageSince: Annotated[Time | None, example(None, "The time of the first outage of that row")]
    reason: fields.Reason
    error: Error | None
    createdAt: Time
    updatedAt: Time


class TaskPage(View):
    tasks: list[TaskView]
    cursor: fields.Cursor


class Asked(View):
    """A task after a command. A task that runs takes a pause or cancel at the end of its stage."""

    taskId: fields.TaskId
    status: Annotated[Status, example(Status.PENDING)]
    pauseRequested: bool
    cancelRequested: bool


class RefusedView(View):
    taskId: fields.TaskId
    code: str
    message: str


class BatchView(View):
    done: list[Asked]
    refused: list[RefusedView]
    codeUnknown: Annotated[list[str], about("Types whose checkpoints only their code can judge")]


class LeaseView(View):
    worker: fields.WorkerName
    fence: fields.Fence
    until: Annotated[Time | None, about("null if the store has lost it")]


class StageView(View):
    name: str
    durationSeconds: float
    run: fields.Run
    undo: Annotated[bool | None, about("Whether it had an undo when it ran; null if unknown")]
    result: Any


class ProgressView(View):
    fraction: float
    message: str
    stage: fields.StageName
    at: Time


class TaskDetail(TaskView):
    key: Annotated[str | None, example("upgrade-7:t-001")]
    callbackUrl: Annotated[str | None, example(None)]
    run: fields.Run
    epoch: int
    version: Annotated[int, example(8)]
    place: Annotated[Place, example(Place.PARKED)]
    dueAt: Annotated[Time | None, example(None)]
    settledAt: Annotated[Time | None, example(None)]
    pauseRequested: bool
    cancelRequested: bool
    legalCommands: Annotated[tuple[Command, ...], example(list(legal(Status.FAILED)))]
    ranBy: Annotated[str | None, example("worker-1", "The worker that ran the task last")]
    lease: Annotated[LeaseView | None, example(None)]
    stageNames: fields.StageNames
    completed: Annotated[tuple[str, ...], example(["snapshot"])]
    stages: Annotated[list[StageView], example([EXAMPLE_STAGE])]
    progress: Annotated[ProgressView | None, example(None)]
    payload: fields.Payload
    result: Annotated[Any, example(None)]
    data: Annotated[Any, example({"taken": True})]
    checkpoint: Annotated[Any, example({"taken": True})]
    checkpointInvalid: Annotated[
        str | None,
        example(None, "Why the task would not continue from its checkpoint; null if it would"),
    ]
    startsOver: Annotated[
        bool, about("True if the task would start again at its first stage, with new keys")
    ]
    events: Annotated[list[dict[str, Any]], example([example_event()])]


class Why(View):
    taskId: fields.TaskId
    says: Annotated[str, example("It waits for a worker: 3 tasks are before it.")]


class WhyAnswer(View):
    taskId: fields.TaskId
    answer: str


class Commands(View):
    taskId: fields.TaskId
    status: Annotated[Status, example(Status.FAILED)]
    legalCommands: Annotated[tuple[Command, ...], example(list(legal(Status.FAILED)))]


class Cause(View):
    fingerprint: fields.Fingerprint
    count: Annotated[int, example(3)]
    kind: Annotated[str, example(FailureKind.STAGE)]
    error: Annotated[str, example("ConnectionError")]
    message: Annotated[str, example("no route to host", "The message of the newest failure")]
    stage: fields.StageName
    example: Annotated[TaskView, about("The task that failed last")]


class Causes(View):
    groups: list[Cause]


class SuspendedGroup(View):
    """Suspended tasks whose errors have the same fingerprint."""

    fingerprint: str
    count: int
    error: str | None
    stage: str | None
    types: list[str]
    example: Annotated[fields.TaskId, about("The newest task of the group")]
    oldest: Time
    newest: Time


class SuspendedGroups(View):
    groups: list[SuspendedGroup]
    complete: bool


EXAMPLE_STAGE = StageView(name="snapshot", durationSeconds=1.5, run=1, undo=True, result="snap-1")


def example_event() -> dict[str, Any]:
    """Return an event as the examples in the OpenAPI document have it."""
    started = ev.TaskStarted(
        task_id=fields.EXAMPLE_ID, version=2, at=fields.EXAMPLE_AT, worker="host-1-4711", fence=4
    )
    return event_view(started, USUAL)


def at(moment: float | None) -> str | None:
    return None if moment is None else iso(moment)


def task_view(task: Task, hide: Redactor) -> TaskView:
    """Return a task as lists have it; a traceback is in its detail only."""
    failure = task.failure
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
        "error": {**failure_view(failure, hide), "traceback": ""} if failure else None,
        "createdAt": iso(task.created_at),
        "updatedAt": iso(task.updated_at),
    }


def asked_view(task: Task) -> Asked:
    """Return a task as it is after a command."""
    return {
        "taskId": task.id,
        "status": task.status,
        "pauseRequested": task.pause_requested,
        "cancelRequested": task.cancel_requested,
    }


def failure_view(failure: Failure, hide: Redactor) -> Error:
    return {
        "fingerprint": failure.fingerprint,
        "kind": failure.kind,
        "error": failure.error,
        "message": hide.text(failure.message),
        "stage": failure.stage,
        "attempt": failure.attempt,
        "at": iso(failure.at),
        "traceback": hide.text(failure.traceback),
    }


def cause_view(group: ErrorGroup, failure: Failure, hide: Redactor) -> Cause:
    """Return an error group; ``failure`` is that of its newest task."""
    return {
        "fingerprint": group.fingerprint,
        "count": group.count,
        "kind": failure.kind,
        "error": failure.error,
        "message": hide.text(failure.message),
        "stage": failure.stage,
        "example": task_view(group.newest, hide),
    }


def detail_view(
    detail: Detail, hide: Redactor, *, now: float, find: Find = not_known
) -> TaskDetail:
    """Return all that is kept of a task; ``find`` knows the code that judges its checkpoint."""
    task, lease = detail.task, detail.task.lease
    ahead = outlook_of(detail, now=now, find=find)
    return {
        **task_view(task, hide),
        "error": failure_view(task.failure, hide) if task.failure else None,
        "key": task.key,
        "callbackUrl": callback_view(task.callback),
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
        "lease": {"worker": lease.owner, "fence": lease.fence, "until": at(lease.until or None)}
        if lease
        else None,
        "stageNames": task.stages,
        "completed": task.stages[: task.last_completed + 1],
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
        "progress": progress_view(detail.progress, hide),
        "payload": hide.body(detail.payload),
        "result": body_or_none(detail.result, hide),
        "data": body_or_none(detail.data, hide),
        "checkpoint": body_or_none(detail.checkpoint, hide),
        "checkpointInvalid": ahead.why if ahead else None,
        "startsOver": ahead is not None and ahead.starts_over,
        "events": [event_view(event, hide) for event in detail.events],
    }


def callback_view(callback: str | None) -> str | None:
    """Return a callback's address without path and query: people put secrets there."""
    if callback is None:
        return None
    scheme, separator, rest = callback.partition("://")
    return f"{scheme}://{rest.partition('/')[0].partition('?')[0]}/…" if separator else scheme


def progress_view(progress: Progress | None, hide: Redactor) -> ProgressView | None:
    if progress is None:
        return None
    return {
        "fraction": progress.fraction,
        "message": hide.text(progress.message),
        "stage": progress.stage,
        "at": iso(progress.at),
    }


def event_view(event: ev.Event | PlanEvent, hide: Redactor) -> dict[str, Any]:
    """Return an event of a task or a plan with the fields that its own type has."""
    fields: dict[str, Any] = hide.strings(msgspec.to_builtins(event))
    return fields | {"at": at(event.at)}


def body_or_none(body: bytes | None, hide: Redactor) -> Any:
    return None if body is None else hide.body(body)


def text_or_none(text: str | None, hide: Redactor) -> str | None:
    return None if text is None else hide.text(text)
