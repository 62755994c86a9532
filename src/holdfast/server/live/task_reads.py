"""Tasks as a caller may read them: what belongs to another tenant is as if it were not there.

The view of a large task is made in a thread: to hide secrets in a megabyte takes seconds, and
others are answered meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fastapi import Response

from holdfast.domain.errors import TaskNotFound
from holdfast.domain.task.task import Task
from holdfast.insight.views import tasks as views
from holdfast.ports import Detail
from holdfast.server.auth.access import Caller, TooManyRequests, foreign
from holdfast.server.http.limits import Quota
from holdfast.server.http.problems import RETRY_SECONDS, Overloaded
from holdfast.server.openapi import schemas as sc

if TYPE_CHECKING:
    from holdfast.server.service import Service

ASIDE_BYTES = 16 * 1024  # a smaller body is shown at once
AT_ONCE = 2  # threads, of all tokens
ASKED_FOR_MAX = 64  # in all, those that wait for a thread included
ASKED_FOR_OF_TOKEN = 4
READS_AT_ONCE = 64  # tasks that are read whole out of the store, at some megabytes each
READ_WAIT_SECONDS = 5.0  # for one of these places: a store that is away gives none back for long

TaskId = Annotated[str, sc.id_in_path("The id of a task")]
T = TypeVar("T")
View = Callable[[], Mapping[str, Any]]


class LargeViews:
    """A token has one of them made at a time, so that it does not keep others from theirs."""

    def __init__(self) -> None:
        self._quota = Quota(
            total=ASKED_FOR_MAX,
            of_token=ASKED_FOR_OF_TOKEN,
            full=lambda limit: Overloaded(f"{limit} large tasks are being shown here already"),
            token_full=lambda limit: TooManyRequests(
                RETRY_SECONDS, f"{limit} large tasks are being shown to this token already"
            ),
        )
        self._threads = asyncio.Semaphore(AT_ONCE)
        self._turns = dict[str, asyncio.Lock]()
        self._reads = asyncio.Semaphore(READS_AT_ONCE)

    @asynccontextmanager
    async def read(self) -> AsyncIterator[None]:
        """Keep a place while a task is read: how large it is, nobody knows before."""
        try:
            async with asyncio.timeout(READ_WAIT_SECONDS):
                await self._reads.acquire()
        except TimeoutError:
            raise Overloaded("the service has reached its limit of task reads") from None
        try:
            yield
        finally:
            self._reads.release()

    async def answer(
        self, caller: Caller, size: int, view: View, status: int = 200
    ) -> Mapping[str, Any] | Response:
        """Return what ``view`` makes out of so many stored bytes, or an answer with it."""
        if size <= ASIDE_BYTES:
            return view()
        return await self.respond(caller, size, lambda: sc.answer(status, view()))

    async def respond(self, caller: Caller, size: int, make: Callable[[], T]) -> T:
        """Return the response, or what else ``make`` makes out of so many stored bytes."""
        if size <= ASIDE_BYTES:
            return make()
        try:
            with self._quota.place(caller.token_id):
                turn = self._turns.setdefault(caller.token_id, asyncio.Lock())
                async with turn, self._threads:
                    return await asyncio.to_thread(make)
        finally:
            if not self._quota.taken_by(caller.token_id):
                self._turns.pop(caller.token_id, None)


def size_of(detail: Detail) -> int:
    """Return how many stored bytes the view of a task is made of."""
    bodies = [detail.payload, detail.result, detail.data, detail.checkpoint]
    bodies += [stage.result for stage in detail.stages]
    return sum(len(body) for body in bodies if body is not None)


async def visible(service: Service, caller: Caller, task_id: str) -> Task:
    [task] = await service.app.store.views.load([_sound(task_id)])
    if task is None:
        raise TaskNotFound(task_id)
    if not caller.sees(task.tenant):
        raise foreign(TaskNotFound(task_id))
    return task


async def visible_detail(service: Service, caller: Caller, task_id: str) -> Detail:
    async with service.large_views.read():
        detail = await service.app.store.views.detail(_sound(task_id))
    if detail is None:
        raise TaskNotFound(task_id)
    if not caller.sees(detail.task.tenant):
        raise foreign(TaskNotFound(task_id))
    return caller.sight.detail(detail)


async def detail_answer(
    service: Service, caller: Caller, detail: Detail
) -> Mapping[str, Any] | Response:
    """Return all that is kept of a task, with its secrets hidden."""
    app = service.app
    now, find = app.clock.now(), app.registry.find
    view = partial(views.detail_view, detail, app.redactor, now=now, find=find)
    return await service.large_views.answer(caller, size_of(detail), view)


def _sound(task_id: str) -> str:
    """Return the id; one that no store could have given out is not looked up."""
    if not task_id.isascii() or not task_id.isprintable():
        raise TaskNotFound(task_id)
    return task_id
