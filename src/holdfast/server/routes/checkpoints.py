"""The routes of checkpoints: show one, and put or remove one while its task does not run."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Body
from pydantic import Field

from holdfast.insight.views.checkpoints import EXAMPLE_CHECKPOINT, CheckpointState, CheckpointView
from holdfast.insight.views.tasks import body_or_none
from holdfast.server.auth.access import CallerOf
from holdfast.server.auth.tokens import Role
from holdfast.server.http.route import Routes, needs
from holdfast.server.live.task_reads import TaskId, visible, visible_detail
from holdfast.server.openapi import schemas as sc
from holdfast.server.service import ServiceOf

router = Routes("checkpoints")

VERSION_MAX = 2**53


@router.get(
    "/internal/checkpoints/{task_id}", response_model=CheckpointView, **needs(Role.VIEWER, 404)
)
async def show_checkpoint(task_id: TaskId, service: ServiceOf, caller: CallerOf) -> Any:
    """Show the checkpoint from which a task continues, with its version."""
    detail = await visible_detail(service, caller, task_id)
    stored, hide = detail.checkpoint, service.app.redactor

    def view() -> CheckpointView:
        return {"taskId": task_id, "checkpoint": body_or_none(stored, hide)}

    return await service.large_views.answer(caller, len(stored or b""), view)


class CheckpointToPut(sc.Reasoned):
    model_config = sc.body_example(checkpoint=EXAMPLE_CHECKPOINT, reason="a higher limit")

    checkpoint: dict[str, Any] = Field(
        description="The new checkpoint, with the `version` that was read; hidden values stay"
    )


@router.post(
    "/internal/checkpoints/{task_id}/put", **needs(Role.OPERATOR, 404, 409, large=CheckpointToPut)
)
async def put_checkpoint(
    task_id: TaskId, service: ServiceOf, caller: CallerOf, body: CheckpointToPut
) -> CheckpointState:
    """Replace the checkpoint of a paused or suspended task. The answer is 409 when another version
    is stored than the one that was read. The new checkpoint gets the next version."""
    await visible(service, caller, task_id)
    written = await service.acting_as(caller).checkpoints.put(
        task_id, body.checkpoint, reason=body.reason, from_view=True
    )
    return CheckpointState(taskId=task_id, version=written.version)


class CheckpointToRemove(sc.Reasoned):
    model_config = sc.body_example(version=3, reason="it starts over")

    version: Annotated[int, Field(ge=0, le=VERSION_MAX)] | None = sc.optional(
        "The only version to remove; without it, any version"
    )


@router.post("/internal/checkpoints/{task_id}/remove", **needs(Role.OPERATOR, 404, 409))
async def remove_checkpoint(
    task_id: TaskId,
    service: ServiceOf,
    caller: CallerOf,
    body: Annotated[CheckpointToRemove | None, Body()] = None,
) -> CheckpointState:
    """Delete the checkpoint of a paused or suspended task. The task can then be rolled back or
    start over, but it cannot continue."""
    await visible(service, caller, task_id)
    body = body or CheckpointToRemove()
    await service.acting_as(caller).checkpoints.remove(
        task_id, version=body.version, reason=body.reason
    )
    return CheckpointState(taskId=task_id, version=None)
