"""An operator's way to a task: load, decide, compare and swap, and write down who asked."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from functools import partial

from holdfast.domain import names
from holdfast.domain.errors import Contended, Refused, StoreError, TaskNotFound, TenantMovedOn
from holdfast.domain.task import operate
from holdfast.domain.task.operate import Ask
from holdfast.domain.task.state import Command
from holdfast.domain.task.task import By, Task
from holdfast.domain.task.transition import Applied, MovedOn, Transition
from holdfast.engine.operations.expired_checkpoints import check_checkpoint
from holdfast.ports import Clock, Store
from holdfast.runtime.ids import new_id

log = logging.getLogger("holdfast.plans")

TRIES = 20

Decision = Callable[[Task, Ask], Transition]


class Control:
    def __init__(
        self, store: Callable[[], Store], clock: Clock, chance: random.Random, by: By
    ) -> None:
        self._store = store
        self._clock = clock
        self._chance = chance
        self._by = by

    def acting_as(self, actor: str, origin: str = "") -> Control:
        by = By(actor=names.check_text("actor", actor), origin=names.check_text("origin", origin))
        return Control(self._store, self._clock, self._chance, by)

    async def pause(self, task_id: str, *, reason: str = "") -> Task:
        return await self._ask(task_id, Command.PAUSE, operate.pause, reason)

    async def resume(self, task_id: str, *, reason: str = "", force: bool = False) -> Task:
        decision = partial(operate.resume, force=force)
        return await self._ask(task_id, Command.RESUME, decision, reason)

    async def cancel(self, task_id: str, *, reason: str = "") -> Task:
        return await self._ask(task_id, Command.CANCEL, operate.cancel, reason)

    async def retry(
        self,
        task_id: str,
        *,
        reason: str = "",
        from_checkpoint: bool = True,
        force: bool = False,
    ) -> Task:
        decision = partial(operate.retry, from_checkpoint=from_checkpoint, force=force)
        return await self._ask(task_id, Command.RETRY, decision, reason, onward=from_checkpoint)

    async def rollback(self, task_id: str, *, reason: str = "", force: bool = False) -> Task:
        decision = partial(operate.rollback, force=force)
        return await self._ask(task_id, Command.ROLLBACK, decision, reason)

    async def discard(self, task_id: str, *, reason: str = "") -> Task:
        return await self._ask(task_id, Command.DISCARD, operate.discard, reason)

    async def release(self, task_id: str, *, reason: str = "") -> Task:
        return await self._ask(task_id, Command.RELEASE, operate.release, reason)

    async def resume_suspended(
        self, task_id: str, *, reason: str = "", force: bool = False
    ) -> Task:
        """Set a suspended task going again, forward or backward, as it was going."""
        decision = partial(operate.resume_suspended, force=force)
        return await self._ask(task_id, Command.RETRY, decision, reason, onward=True)

    async def can(self, task_id: str, command: Command) -> bool:
        [task] = await self._store().load([task_id])
        if task is None:
            raise TaskNotFound(task_id)
        return task.can(command)

    async def _ask(
        self,
        task_id: str,
        command: Command,
        decision: Decision,
        reason: str,
        *,
        onward: bool = False,  # from its checkpoint, which must be there
    ) -> Task:
        store = self._store()
        why = names.check_text("reason", reason)
        by = By(actor=self._by.actor, origin=self._by.origin, reason=why)
        ask = Ask(by=by, now=self._clock.now(), request=new_id(self._clock, self._chance))
        for _ in range(TRIES):
            task = _found(await store.load([task_id]), task_id)
            try:
                transition = decision(task, ask)
                if onward:
                    await check_checkpoint(store, task)
                [outcome] = await store.apply([transition])
                if isinstance(outcome, MovedOn):
                    raise TenantMovedOn(task_id, task.tenant)
            except Refused as error:
                await self._write_down(task, command, ask, error)
                raise
            if isinstance(outcome, Applied):
                await self._tell_plan(outcome.task)
                return outcome.task
        raise Contended(f"task {task_id}", TRIES)

    async def _tell_plan(self, task: Task) -> None:
        """A plan that rests looks at its tasks only when somebody says so."""
        if task.plan is None:
            return
        try:
            await self._store().plans.wake([task.plan])
        except StoreError as error:  # what was asked for is done
            log.warning("plan %s was not told of task %s: %s", task.plan, task.id, error)

    async def _write_down(self, task: Task, command: Command, ask: Ask, error: Refused) -> None:
        await self._store().audit(operate.refusal(task, command, ask, error.code))


def _found(tasks: Sequence[Task | None], task_id: str) -> Task:
    [task] = tasks
    if task is None:
        raise TaskNotFound(task_id)
    return task
