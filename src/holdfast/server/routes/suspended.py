"""The routes of suspended tasks: list, show, resume, amend and discard."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Body, Query
from pydantic import Field

from holdfast.domain.errors import IllegalTransition, NotSuspended
from holdfast.domain.task.state import SUSPENDED
from holdfast.engine.options import NOT_GIVEN
from holdfast.insight.views import tasks as views
from holdfast.server.auth.access import CallerOf
from holdfast.server.auth.tokens import Role
from holdfast.server.http.route import Routes, needs
from holdfast.server.live.task_reads import TaskId, detail_answer, visible, visible_detail
from holdfast.server.openapi import schemas as sc
from holdfast.server.routes.tasks import Facts, page_of, seen_by
from holdfast.server.service import ServiceOf

router = Routes("suspended")

GROUPS_MAX = 200


class SuspendedQuery(Facts, sc.PageQuery):
    pass


@router.get("/internal/tasks/suspended", **needs(Role.VIEWER))
async def list_suspended(
    query: Annotated[SuspendedQuery, Query()], service: ServiceOf, caller: CallerOf
) -> views.TaskPage:
    """List suspended tasks, the newest first, each with its error."""
    where = seen_by(caller, query.where(sorted(SUSPENDED)))
    return await page_of(service, caller, where, query.limit, query.cursor)


class CausesQuery(sc.Sent):
    limit: int = Field(default=50, ge=1, le=GROUPS_MAX, description=sc.AT_MOST)


@router.get("/internal/tasks/suspended/groups", **needs(Role.VIEWER, everywhere=True))
async def suspended_groups(
    query: Annotated[CausesQuery, Query()], service: ServiceOf
) -> views.Causes:
    """List the error groups of suspended tasks, the largest first. `error=FINGERPRINT` in the list
    of suspended tasks selects the tasks of one group."""
    groups = await service.app.store.views.error_groups(limit=query.limit)
    hide = service.app.redactor
    return {
        "groups": [
            views.cause_view(group, failure, hide)
            for group in groups
            if (failure := group.newest.failure) is not None
        ]
    }


@router.get(
    "/internal/tasks/suspended/{task_id}",
    response_model=views.TaskDetail,
    **needs(Role.VIEWER, 404, 409),
)
async def show_suspended(task_id: TaskId, service: ServiceOf, caller: CallerOf) -> Any:
    """Show everything that is stored about a suspended task. The answer is 409 when the task is not
    suspended. Only operators of all tenants see the traceback."""
    detail = await visible_detail(service, caller, task_id)
    if not detail.task.suspended:
        raise NotSuspended(task_id, detail.task.status)
    return await detail_answer(service, caller, detail)


class Resuming(sc.Reasoned):
    model_config = sc.body_example(reason="the database is back")

    force: sc.Flag = sc.flag(sc.OVER_NEWER)


class Discarding(sc.Reasoned):
    model_config = sc.body_example(reason="a duplicate")


@router.post("/internal/tasks/suspended/{task_id}/resume", **needs(Role.OPERATOR, 404, 409))
async def resume_suspended(
    task_id: TaskId,
    service: ServiceOf,
    caller: CallerOf,
    body: Annotated[Resuming | None, Body()] = None,
) -> views.Asked:
    """Resume a suspended task. The task gets the command `retry` if it failed on its way forward,
    and `rollback` if its rollback failed. Its failures count from zero again."""
    await visible(service, caller, task_id)
    body = body or Resuming()
    task = await service.acting_as(caller).control.resume_suspended(
        task_id, reason=body.reason, force=body.force
    )
    return views.asked_view(task)


class AmendRequest(sc.Reasoned):
    model_config = sc.body_example(payload={"version": 7}, reason="a wrong version was ordered")

    payload: Any = Field(
        default=None,
        examples=[{"version": 7}],
        description="The new payload; without it the submitted one stays",
    )
    data: dict[str, Any] | None = sc.optional(
        "The new content of `ctx.data`, which the stages have kept"
    )
    force: sc.Flag = sc.flag(sc.OVER_NEWER)


@router.post(
    "/internal/tasks/suspended/{task_id}/amend",
    **needs(Role.OPERATOR, 404, 409, large=AmendRequest),
)
async def amend_suspended(
    task_id: TaskId, service: ServiceOf, caller: CallerOf, body: AmendRequest
) -> views.Asked:
    """Correct the payload or the data of a suspended task, and resume it. The service validates the
    payload as in a submit. The same submit with the first payload still finds the task."""
    await visible(service, caller, task_id)
    task = await service.acting_as(caller).checkpoints.amend(
        task_id,
        payload=body.payload if "payload" in body.model_fields_set else NOT_GIVEN,
        data=body.data,
        reason=body.reason,
        force=body.force,
        from_view=True,
    )
    return views.asked_view(task)


@router.post("/internal/tasks/suspended/{task_id}/discard", **needs(Role.OPERATOR, 404, 409))
async def discard_suspended(
    task_id: TaskId,
    service: ServiceOf,
    caller: CallerOf,
    body: Annotated[Discarding | None, Body()] = None,
) -> views.Asked:
    """Discard a suspended task. It is cancelled, with the reason."""
    task, reason = await visible(service, caller, task_id), body.reason if body else ""
    try:
        discarded = await service.acting_as(caller).control.discard(task_id, reason=reason)
    except IllegalTransition as error:
        raise NotSuspended(task_id, task.status) from error
    return views.asked_view(discarded)
