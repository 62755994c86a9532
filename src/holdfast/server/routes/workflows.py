"""The routes of workflows: submit a task, and get its result or an id to come back with."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from fastapi import Request, Response
from pydantic import Field
from starlette.requests import ClientDisconnect

from holdfast.domain.errors import StoreError, TaskCancelled, TaskNotFound, TaskRolledBack
from holdfast.domain.redaction import Redactor
from holdfast.domain.task.state import SETTLED, Status
from holdfast.insight.views import workflows as views
from holdfast.insight.views.tasks import body_or_none, failure_view, text_or_none
from holdfast.ports import Peek
from holdfast.server.auth.access import (
    Caller,
    CallerOf,
    TooManyRequests,
    Unauthenticated,
    caller_of,
)
from holdfast.server.auth.tokens import Role
from holdfast.server.http.problems import Overloaded
from holdfast.server.http.route import Deferred, Routes, needs
from holdfast.server.live.task_reads import TaskId, size_of, visible_detail
from holdfast.server.openapi import schemas as sc
from holdfast.server.service import Service, ServiceOf, service_of
from holdfast.server.submission import IdempotencyKey, Traceparent, Work, submit

router = Routes("workflows")

WAIT_SECONDS = 20.0
WAIT_MAX_SECONDS = 120.0


class Application(Work):
    model_config = sc.body_example(
        type="tenant.upgrade",
        payload={"version": 7},
        tenant="t-001",
        key="upgrade-7",
        waitSeconds=20,
    )

    wait_seconds: Annotated[float, Field(ge=0, le=WAIT_MAX_SECONDS), sc.NUMBER] = Field(
        default=WAIT_SECONDS, description="The longest wait for the result; with 0 there is none"
    )


_NOT_YET = sc.answer_of(
    views.ApplyResult, "The task was accepted and has no result yet", views.EXAMPLE_UNFINISHED
)


@router.post(
    "/api/workflows/apply",
    response_model=views.ApplyResult,
    **needs(Role.OPERATOR, 404, 409, large=Application, also={202: _NOT_YET}),
)
async def apply(
    request: Request,
    application: Application,
    idempotency_key: IdempotencyKey = None,
    traceparent: Traceparent = None,
) -> Response:
    """Submit a task and wait for its result. The answer is 200 with the result when the task
    completes in time. It is 202 with the id when it does not, when the task waits for a person, or
    when too many large results are requested at once. It is 409 when the task was cancelled or
    rolled back. The task is kept in each case."""
    service, caller, seconds = service_of(request), caller_of(request), application.wait_seconds
    with ExitStack() as places:
        revoked: asyncio.Event | None = None
        if seconds > 0:  # a place first: who is refused submits nothing
            revoked = places.enter_context(service.long_requests.waiting(caller))
        task_id = await submit(
            service, caller, application, key=idempotency_key, traceparent=traceparent
        )
        place = places.pop_all()
    if revoked is None:
        return await _now(service, caller, task_id)
    # The wait knows nothing of the body, which would be kept for as long as the caller waits.
    return Deferred(_Wait(service, caller, task_id, seconds, revoked, place).finish)


@dataclass(frozen=True, slots=True)
class _Wait:
    """A caller who waits for the result of a task."""

    service: Service
    caller: Caller
    task_id: str
    seconds: float
    revoked: asyncio.Event
    place: ExitStack

    async def finish(self, request: Request) -> Response:
        with self.place:
            peek = await self._wait_until_stopped(request)
        return await _now(self.service, self.caller, self.task_id, peek)

    async def _wait_until_stopped(self, request: Request) -> Peek | None:
        """Wait until the task has stopped; None: not within that time, or the service stops.

        The wait ends as well when its client has gone, or its token was revoked."""
        rest = asyncio.create_task(self.service.app.waiters.wait_until_stopped(self.task_id))
        stop = asyncio.create_task(self.service.stopping.wait())
        leave = asyncio.create_task(_wait_hangup(request))
        end = asyncio.create_task(self.revoked.wait())
        running = {rest, stop, leave, end}
        try:
            await asyncio.wait(running, timeout=self.seconds, return_when=asyncio.FIRST_COMPLETED)
            if end.done():
                raise Unauthenticated("this token was revoked, or has expired; the task is kept")
            if rest.done():
                return rest.result()
            if leave.done():
                raise ClientDisconnect
            return None
        finally:
            for task in running:
                task.cancel()


async def _wait_hangup(request: Request) -> None:
    """Wait until the client has hung up. Its body was read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _now(
    service: Service, caller: Caller, task_id: str, peek: Peek | None = None
) -> Response:
    peek = peek or await _peek(service, task_id)
    if peek is None:
        return sc.answer(202, {"taskId": task_id, "status": "pending", "taskStatus": None})
    peek = caller.sight.peek(peek)
    make = partial(_as_it_stands, service, peek)
    try:
        return await service.large_views.respond(caller, len(peek.result or b""), make)
    except (Overloaded, TooManyRequests):  # a refusal would hide the id of what was accepted
        return sc.answer(202, views.outcome_view(peek))


async def _peek(service: Service, task_id: str) -> Peek | None:
    """Return the state of a task, or None while the store is away: it was accepted all the same."""
    try:
        [peek] = await service.app.store.views.peek([task_id])
    except StoreError:
        return None
    return peek


def _as_it_stands(service: Service, peek: Peek) -> Response:
    outcome = views.outcome_view(peek)
    if peek.status is Status.COMPLETED:
        outcome["result"] = body_or_none(peek.result, service.hide_declared)
        return sc.answer(200, outcome)
    if peek.status in SETTLED:
        ended = TaskRolledBack if peek.status is Status.ROLLED_BACK else TaskCancelled
        raise ended(peek.task_id, text_or_none(peek.reason, service.app.redactor))
    if peek.failure is not None:
        outcome["error"] = failure_view(peek.failure, service.app.redactor)
    return sc.answer(202, outcome)


@router.get(
    "/api/workflows/tasks/{task_id}", response_model=views.Envelope, **needs(Role.VIEWER, 404)
)
async def workflow_task(task_id: TaskId, service: ServiceOf, caller: CallerOf) -> Response:
    """Show the state of a task, with its result or error."""
    try:
        detail = await visible_detail(service, caller, task_id)
    except TaskNotFound:
        return sc.answer(200, await _load_tombstone(service, caller, task_id))
    hide, hide_result = service.app.redactor, _redactor_for(service, caller)
    view = partial(views.envelope_view, detail, hide, hide_result)
    answer = await service.large_views.answer(caller, size_of(detail), view)
    return answer if isinstance(answer, Response) else sc.answer(200, answer)


def _redactor_for(service: Service, caller: Caller) -> Redactor:
    """Return the redactor for a caller: one who may submit gets results as they are, except for
    what was declared secret."""
    submits = caller.role.rank >= Role.OPERATOR.rank
    return service.hide_declared if submits else service.app.redactor


async def _load_tombstone(service: Service, caller: CallerOf, task_id: str) -> views.Envelope:
    """Return what the store keeps of a deleted task. The tenant is not kept, so a token that is
    limited to some tenants is told that there is no such task."""
    if caller.tenants is not None:
        raise TaskNotFound(task_id)
    [peek] = await service.app.store.views.peek([task_id])
    if peek is None:
        raise TaskNotFound(task_id)
    return views.tombstone_view(peek, _redactor_for(service, caller))
