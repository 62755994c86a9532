"""Commands of an operator to a task: each is decided, written once and recorded in the audit."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from functools import partial

from holdfast.clock import new_id
from holdfast.domain.errors import HoldfastError, Refused, StoreError, TaskNotFound
from holdfast.domain.task import operate
from holdfast.domain.task.operate import OperatorRequest, actor_named, new_request
from holdfast.domain.task.state import Command
from holdfast.domain.task.task import By, Task
from holdfast.domain.task.transition import Applied, Transition
from holdfast.ports import Clock, Store
from holdfast.runtime.compare_and_swap import compare_and_swap

log = logging.getLogger("holdfast.plans")

NOT_OPEN = "the app is not open: use 'async with app:' or app.running()"

Decision = Callable[[Task, OperatorRequest], Transition]


class StoreSlot:
    """The store of an app while the app is open; everything that needs it shares the slot."""

    __slots__ = ("store",)

    def __init__(self) -> None:
        self.store: Store | None = None

    def require(self) -> Store:
        if self.store is None:
            raise HoldfastError(NOT_OPEN)
        return self.store


class Control:
    """The commands to tasks, by their ids; each returns the record afterwards."""

    def __init__(self, slot: StoreSlot, clock: Clock, chance: random.Random, by: By) -> None:
        self._slot = slot
        self._clock = clock
        self._chance = chance
        self._by = by

    def acting_as(self, actor: str, origin: str = "") -> Control:
        """Return the same commands in this actor's name."""
        by = actor_named(actor, origin)
        return Control(self._slot, self._clock, self._chance, by)

    async def pause(self, task_id: str, *, reason: str = "") -> Task:
        """Pause a task at its next stage boundary."""
        return await self._ask(task_id, Command.PAUSE, operate.pause, reason)

    async def resume(self, task_id: str, *, reason: str = "", force: bool = False) -> Task:
        """Continue a paused task; ``force``: even if newer work of its tenant has run."""
        decision = partial(operate.resume, force=force)
        return await self._ask(task_id, Command.RESUME, decision, reason)

    async def cancel(self, task_id: str, *, reason: str = "") -> Task:
        """Cancel a task at its next stage boundary; nothing is undone."""
        return await self._ask(task_id, Command.CANCEL, operate.cancel, reason)

    async def retry(
        self, task_id: str, *, reason: str = "", from_checkpoint: bool = True, force: bool = False
    ) -> Task:
        """Run a suspended task again, from its checkpoint or from the first stage."""
        decision = partial(operate.retry, from_checkpoint=from_checkpoint, force=force)
        return await self._ask(task_id, Command.RETRY, decision, reason)

    async def rollback(self, task_id: str, *, reason: str = "", force: bool = False) -> Task:
        """Undo the stages that ran, the last one first."""
        decision = partial(operate.rollback, force=force)
        return await self._ask(task_id, Command.ROLLBACK, decision, reason)

    async def discard(self, task_id: str, *, reason: str = "") -> Task:
        """Give up a suspended task: it is settled as cancelled, and its tenant is free."""
        return await self._ask(task_id, Command.DISCARD, operate.discard, reason)

    async def release(self, task_id: str, *, reason: str = "") -> Task:
        """Put a task that is not released yet into its queue."""
        return await self._ask(task_id, Command.RELEASE, operate.release, reason)

    async def resume_suspended(
        self, task_id: str, *, reason: str = "", force: bool = False
    ) -> Task:
        """Run a suspended task again: forward by RETRY, or its rollback by ROLLBACK."""
        decision = partial(operate.resume_suspended, force=force)
        return await self._ask(task_id, Command.RETRY, decision, reason)

    async def can(self, task_id: str, command: Command) -> bool:
        """Return whether the command is legal now."""
        return (await self._load(task_id)).can(command)

    async def _ask(self, task_id: str, command: Command, decision: Decision, reason: str) -> Task:
        store = self._slot.require()
        ask = new_request(
            self._by, reason, now=self._clock.now(), request=new_id(self._clock, self._chance)
        )

        async def write(task: Task) -> Task | None:
            [outcome] = await store.tasks.apply([decision(task, ask)])
            if (error := operate.refusal_error(outcome)) is not None:
                raise error
            return outcome.task if isinstance(outcome, Applied) else None

        async def record_refusal(task: Task, error: Refused) -> None:
            await store.admin.audit(operate.refusal(task, command, ask, error.code))

        written = await compare_and_swap(
            f"task {task_id}", lambda: self._load(task_id), write, on_refusal=record_refusal
        )
        await self._wake_plan(written)
        return written

    async def _load(self, task_id: str) -> Task:
        [task] = await self._slot.require().views.load([task_id])
        if task is None:
            raise TaskNotFound(task_id)
        return task

    async def _wake_plan(self, task: Task) -> None:
        """Wake the task's plan, which polls its tasks only when it is woken."""
        if task.plan is None:
            return
        try:
            await self._slot.require().plans.wake([task.plan])
        except StoreError as error:  # what was asked for is done
            log.warning("plan %s was not woken for task %s: %s", task.plan, task.id, error)
