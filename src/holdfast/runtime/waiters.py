"""The waiters for the ends of tasks.

The end of a task that this process itself has written is taken from the answered write; for the
ends that other processes write, one watcher looks at the store whenever it signals.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias, TypeVar

from holdfast.domain.errors import (
    HoldfastError,
    PartlyUnavailable,
    StoreError,
    StoreUnavailable,
    TaskNotFound,
)
from holdfast.domain.task.state import SETTLED, SUSPENDED, Status
from holdfast.domain.task.task import BACKWARD
from holdfast.domain.task.transition import Applied, Outcome, Transition
from holdfast.ports import Peek, Store, Topic
from holdfast.runtime.cancellation import cancel_and_wait
from holdfast.runtime.committer import Gather

log = logging.getLogger("holdfast.waiters")

T = TypeVar("T")
LoadPlan: TypeAlias = Callable[[str], Awaitable[T | None]]

POLL_SECONDS = 1.0  # when nothing signals
PAGE = 500
ENDED = SETTLED | SUSPENDED
MANY = 100
SECONDS_EACH = 50e-6  # between two reads of many: the store has other things to do


class Waiters:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._peek = Gather[str, Peek | None](store.views.peek)  # many begin to wait at once
        self.awaited: defaultdict[str, list[asyncio.Future[Peek]]] = defaultdict(list)
        self._under_way: set[str] = set()  # awaited tasks whose end this process is writing
        self._ticket = 0
        self._watcher: asyncio.Task[None] | None = None

    async def wait_until_stopped(self, task_id: str) -> Peek:
        """Wait until the task has settled or waits for a person; an outage is waited out."""
        future: asyncio.Future[Peek] = asyncio.get_running_loop().create_future()
        if not self.awaited:
            self._ticket = self._store.ticket(Topic.RESTED)  # before it is read: nothing is missed
        self.awaited[task_id].append(future)
        try:
            if (peek := await self._load(task_id)) is not None:
                return peek
            if self._watcher is None:
                self._watcher = asyncio.create_task(self._watch())
            return await future
        finally:
            self._forget(task_id, future)

    async def wait_for_plan(self, plan_id: str, load: LoadPlan[T]) -> T:
        """Load the plan until it rests, whenever somebody has written to one."""
        while True:
            ticket = self._store.ticket(Topic.DUE)
            if (plan := await load(plan_id)) is not None:
                return plan
            await self._store.wait(Topic.DUE, ticket, timeout=POLL_SECONDS)

    def note_sent(self, batch: Sequence[Transition]) -> Sequence[str]:
        """Return the awaited tasks that a write will end; none is looked at until its answer."""
        sent = [one.after.id for one in batch if one.after.status in ENDED]
        sent = [task_id for task_id in sent if task_id in self.awaited]
        self._under_way.update(sent)
        return sent

    def note_answers(
        self, batch: Sequence[Transition], answers: Sequence[Outcome | StoreError]
    ) -> None:
        """Resolve the waiters for the tasks that a write of this process has ended."""
        for transition, answer in zip(batch, answers, strict=True):
            task_id = transition.after.id
            if task_id in self.awaited and (peek := peek_after(transition, answer)) is not None:
                self._resolve(task_id, peek)

    def note_end(self, sent: Sequence[str]) -> None:
        """Let the watcher look again at tasks whose write is over, answered or not."""
        self._under_way.difference_update(sent)

    async def _load(self, task_id: str) -> Peek | None:
        """Return the end of a task; None: it goes on, or nobody can tell now."""
        try:
            peek = await self._peek(task_id)
        except StoreUnavailable:
            return None  # the watcher says so, once for all
        if peek is None:
            raise TaskNotFound(task_id)
        return peek if peek.status in ENDED else None

    async def _watch(self) -> None:
        try:
            while self.awaited:
                await self._store.wait(Topic.RESTED, self._ticket, timeout=POLL_SECONDS)
                self._ticket = self._store.ticket(Topic.RESTED)
                await self._load_all()
                if len(self.awaited) > MANY:
                    await asyncio.sleep(len(self.awaited) * SECONDS_EACH)
        except Exception as error:
            self._fail_all(error)  # nobody may wait for a watcher that is gone
        finally:
            self._watcher = None

    async def _load_all(self) -> None:
        ids = [task_id for task_id in self.awaited if task_id not in self._under_way]
        for start in range(0, len(ids), PAGE):
            page = ids[start : start + PAGE]
            try:
                peeks = await self._peeks(page)
            except StoreError as error:
                log.warning("results cannot be read now: %s", error)
                return
            for task_id, peek in zip(page, peeks, strict=True):
                if not isinstance(peek, StoreError):
                    self._resolve(task_id, peek)

    async def _peeks(self, page: list[str]) -> Sequence[Peek | StoreError | None]:
        """Read the results that a part of the store which is away does not hide."""
        try:
            return await self._store.views.peek(page)
        except PartlyUnavailable as error:
            log.warning("some results cannot be read now: %s", error)
            return error.answers

    def _resolve(self, task_id: str, peek: Peek | None) -> None:
        if peek is not None and peek.status not in ENDED:
            return
        for future in self.awaited.pop(task_id, []):
            if future.done():
                continue
            if peek is None:
                future.set_exception(TaskNotFound(task_id))
            else:
                future.set_result(peek)

    def _forget(self, task_id: str, future: asyncio.Future[Peek]) -> None:
        if not future.cancel() and not future.cancelled():
            future.exception()  # the watcher and the first read may both have answered
        waiting = self.awaited.get(task_id)
        if waiting is None:
            return
        if future in waiting:
            waiting.remove(future)
        if not waiting:
            del self.awaited[task_id]

    def _fail_all(self, error: Exception) -> None:
        waiting, self.awaited = self.awaited, defaultdict(list)
        for futures in waiting.values():
            for future in futures:
                if not future.done():
                    future.set_exception(error)

    async def close(self) -> None:
        self._fail_all(HoldfastError("the app was closed while a result was awaited"))
        await cancel_and_wait(self._watcher)


def peek_after(transition: Transition, answer: Outcome | StoreError) -> Peek | None:
    """Return what the store would show of a task that a write has ended.

    None: the write has ended nothing, or only the store has all that there is to show. The result
    of a task that was completed once is kept when it is undone or run again.
    """
    before, after = transition.before, transition.after
    if after.status not in ENDED or not isinstance(answer, Applied):
        return None
    if answer.task.version != after.version:
        return None  # a repeated write, answered with the record as it is by now
    if after.status is Status.COMPLETED:
        if transition.result is None:
            return None
    elif before.status in BACKWARD or before.run > 1:
        return None
    return Peek(
        task_id=after.id,
        status=after.status,
        result=transition.result,
        failure=answer.task.failure,
        reason=answer.task.reason,
    )
