"""The routes of tasks: submit many, list and show them, and send them commands."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Annotated, Any

import msgspec
from fastapi import Body, Path, Query, Request, Response
from pydantic import Field, field_validator

from holdfast.domain.errors import HoldfastError, InvalidInput
from holdfast.domain.task.effects import key_required
from holdfast.domain.task.state import Command, Status
from holdfast.insight.views import tasks as views
from holdfast.insight.views import workflows
from holdfast.insight.views.timeline import Timeline, timeline_view
from holdfast.ports import Filter
from holdfast.server.auth.access import CallerOf, caller_of
from holdfast.server.auth.tokens import Role
from holdfast.server.http.problems import UnknownType, status_of
from holdfast.server.http.route import Routes, needs
from holdfast.server.live.task_reads import TaskId, detail_answer, size_of, visible, visible_detail
from holdfast.server.openapi import schemas as sc
from holdfast.server.service import Service, ServiceOf, service_of
from holdfast.server.submission import Work, find_type, submit

router = Routes("tasks")

BATCH_MAX = 1000


# -- submitting


class Batch(sc.Sent):
    model_config = sc.body_example(
        tasks=[{"type": "tenant.upgrade", "payload": {"version": 7}, "tenant": "t-001"}]
    )

    tasks: Annotated[list[Work], Field(min_length=1, max_length=BATCH_MAX)]


_SOME = sc.answer_of(workflows.Batched, "Some tasks were refused", workflows.EXAMPLE_PART)


@router.post(
    "/api/tasks",
    status_code=202,
    response_model=workflows.Batched,
    **needs(Role.OPERATOR, 404, 409, takes=Batch, large=Batch, also={207: _SOME}),
)
async def submit_tasks(request: Request, batch: Batch) -> Response:
    """Submit up to 1000 tasks. The service checks all of them before it accepts the first. Then it
    accepts or refuses each on its own. With keys it is safe to send them all again."""
    service, caller = service_of(request), caller_of(request)
    for number, task in enumerate(batch.tasks):
        caller.tenant_for(task.tenant)
        if len(batch.tasks) > 1:
            try:
                kind = find_type(service, task.type)
            except UnknownType as error:
                raise UnknownType(task.type, f"tasks.{number}.type") from error
            kind.payload.encode(task.payload, what=f"tasks.{number}.payload")
            if kind.effects_namespace is not None and task.key is None:
                raise key_required(task.type, f"tasks.{number}.key")
    answers = await _submit_all(service, caller, batch.tasks)
    ids = [answer for answer in answers if isinstance(answer, str)]
    if not ids:
        raise next(answer for answer in answers if isinstance(answer, BaseException))
    refused = len(answers) - len(ids)
    outcomes = [_outcome(answer) for answer in answers]
    batched = workflows.Batched(tasks=outcomes, accepted=len(ids), refused=refused)
    return sc.answer(207 if refused else 202, batched)


async def _submit_all(
    service: Service, caller: CallerOf, tasks: Sequence[Work]
) -> Sequence[str | BaseException]:
    """Return what became of each task; the error of a single one is raised."""
    submits = [submit(service, caller, task, key=None, traceparent=None) for task in tasks]
    if len(submits) == 1:
        return [await submits[0]]
    return await asyncio.gather(*submits, return_exceptions=True)


def _outcome(answer: str | BaseException) -> workflows.Accepted:
    if isinstance(answer, str):
        return {"taskId": answer}
    if isinstance(answer, HoldfastError) and status_of(answer) != 500:
        return {"code": answer.code, "detail": str(answer)}
    raise answer


# -- looking


class TaskMarks(sc.Sent):
    """A filter for tasks by what stays the same for as long as they live."""

    type: sc.TypeName | sc.Absent = sc.optional("The type of the tasks")
    tenant: sc.Tenant | sc.Absent = sc.optional("The tenant of the tasks")
    plan: sc.PlanId | sc.Absent = sc.optional("The plan of the tasks")
    queue: sc.QueueName | sc.Absent = sc.optional("The queue of the tasks")

    def where(self, statuses: Iterable[Status]) -> Filter:
        return Filter(
            statuses=tuple(dict.fromkeys(statuses)),
            type=self.type,
            tenant=self.tenant,
            plan=self.plan,
            queue=self.queue,
        )


class Facts(TaskMarks):
    """A filter for tasks, whatever their status."""

    error: sc.Fingerprint | sc.Absent = sc.optional("The fingerprint of the error of the tasks")
    updated_before: sc.TimeText | sc.Absent = sc.optional(
        "The time before which the tasks changed last"
    )
    updated_after: sc.TimeText | sc.Absent = sc.optional(
        "The time after which the tasks changed last"
    )

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_null(cls, value: Any) -> Any:
        """Refuse null: in a body, too, a field that is not wanted is left out."""
        if value is None:
            raise ValueError("null is not allowed; leave the field out")
        return value

    def where(self, statuses: Iterable[Status]) -> Filter:
        return msgspec.structs.replace(
            super().where(statuses),
            error=self.error,
            updated_before=moment(self.updated_before, "updatedBefore"),
            updated_after=moment(self.updated_after, "updatedAfter"),
        )


def moment(text: str | None, what: str) -> float | None:
    """Return the seconds since 1970 of a time that is written in ISO 8601 with its zone."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            return moment.timestamp()
    except (ValueError, OverflowError):
        pass
    raise InvalidInput(f"{what}: {text!r} is no time with a zone, such as 2026-01-31T12:00:00Z")


class TaskQuery(Facts):
    status: list[Status] = sc.any_of(11)

    def filter(self) -> Filter:
        return self.where(self.status)


class TaskPageQuery(TaskQuery, sc.PageQuery):
    pass


@router.get("/api/tasks", **needs(Role.VIEWER))
async def list_tasks(
    query: Annotated[TaskPageQuery, Query()], service: ServiceOf, caller: CallerOf
) -> views.TaskPage:
    """List tasks, the newest first. A page may be short and still have a next one, because each
    search is bounded."""
    where = seen_by(caller, query.filter())
    return await page_of(service, caller, where, query.limit, query.cursor)


def seen_by(caller: CallerOf, where: Filter) -> Filter:
    return msgspec.structs.replace(where, tenant=caller.tenant_for(where.tenant))


async def page_of(
    service: Service, caller: CallerOf, where: Filter, limit: int, cursor: str | None
) -> views.TaskPage:
    page = await service.app.store.views.find(where, limit=limit, cursor=cursor)
    hide, sight = service.app.redactor, caller.sight
    return {
        "tasks": [views.task_view(sight.task(task), hide) for task in page.tasks],
        "cursor": page.cursor,
    }


@router.get("/api/tasks/{task_id}", response_model=views.TaskDetail, **needs(Role.VIEWER, 404))
async def show_task(
    task_id: TaskId, service: ServiceOf, caller: CallerOf
) -> Mapping[str, Any] | Response:
    """Show everything that is stored about a task. Secrets are hidden."""
    detail = await visible_detail(service, caller, task_id)
    return await detail_answer(service, caller, detail)


@router.get("/api/tasks/{task_id}/why", **needs(Role.VIEWER, 404))
async def why_task(task_id: TaskId, service: ServiceOf, caller: CallerOf) -> views.Why:
    """Explain why a task does not run. The answer is a plain sentence, and what to do."""
    await visible(service, caller, task_id)
    message = service.app.redactor.text(await service.app.why(task_id, sight=caller.sight))
    return {"taskId": task_id, "says": message}


@router.get("/api/tasks/{task_id}/commands", **needs(Role.VIEWER, 404))
async def task_commands(task_id: TaskId, service: ServiceOf, caller: CallerOf) -> views.Commands:
    """List the commands that a task accepts now."""
    task = await visible(service, caller, task_id)
    return {"taskId": task.id, "status": task.status, "legalCommands": task.legal}


# -- its life


@router.get("/api/tasks/{task_id}/timeline", response_model=Timeline, **needs(Role.VIEWER, 404))
async def task_timeline(
    task_id: TaskId, service: ServiceOf, caller: CallerOf
) -> Mapping[str, Any] | Response:
    """Show the timeline of a task. It has every run, attempt and stage, with times, results and
    errors, and the checkpoint."""
    detail = await visible_detail(service, caller, task_id)
    view = partial(timeline_view, detail, service.app.redactor)
    return await service.large_views.answer(caller, size_of(detail), view)


# -- acting


class TaskAction(StrEnum):
    PAUSE = Command.PAUSE
    RESUME = Command.RESUME
    CANCEL = Command.CANCEL
    RETRY = Command.RETRY
    ROLLBACK = Command.ROLLBACK
    DISCARD = Command.DISCARD


class TaskActionRequest(sc.Reasoned):
    model_config = sc.body_example(reason="the database is back")

    force: sc.Flag = sc.flag(
        "True if resume, retry and rollback may act over newer work of the tenant"
    )
    from_checkpoint: sc.Flag = Field(
        default=True, description="False if `retry` starts at the first stage"
    )


@router.post("/api/tasks/{task_id}/{command}", **needs(Role.OPERATOR, 404, 409))
async def ask_task(
    task_id: TaskId,
    command: Annotated[TaskAction, Path(description="The command for the task")],
    service: ServiceOf,
    caller: CallerOf,
    body: Annotated[TaskActionRequest | None, Body()] = None,
) -> views.Asked:
    """Send a command to a task. The answer is 409 when the present status forbids the command."""
    task, body = await visible(service, caller, task_id), body or TaskActionRequest()
    control, why, force = service.acting_as(caller).control, body.reason, body.force
    match command:
        case TaskAction.PAUSE:
            task = await control.pause(task_id, reason=why)
        case TaskAction.RESUME:
            task = await control.resume(task_id, reason=why, force=force)
        case TaskAction.CANCEL:
            task = await control.cancel(task_id, reason=why)
        case TaskAction.RETRY:
            task = await control.retry(
                task_id, reason=why, force=force, from_checkpoint=body.from_checkpoint
            )
        case TaskAction.ROLLBACK:
            task = await control.rollback(task_id, reason=why, force=force)
        case _:
            task = await control.discard(task_id, reason=why)
    return views.asked_view(task)
