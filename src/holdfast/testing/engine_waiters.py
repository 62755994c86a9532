"""Waiters for results in a test run the engine, and never wait for ever."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from holdfast.domain.plan.rollout import soaks_seconds
from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import Task
from holdfast.ports import Peek, Store
from holdfast.runtime.waiters import LoadPlan, Waiters

if TYPE_CHECKING:
    from holdfast.testing.engine import Engine

T = TypeVar("T")


class EngineWaiters(Waiters):
    def __init__(self, store: Store, *, engine: Engine) -> None:
        super().__init__(store)
        self._engine = engine

    async def wait_for_rest(self, task_id: str) -> Peek:
        return await self._engine.run_while(
            super().wait_for_rest(task_id), partial(self._task_reason, task_id)
        )

    async def wait_for_plan(self, plan_id: str, load: LoadPlan[T]) -> T:
        return await self._engine.run_while(
            super().wait_for_plan(plan_id, load), partial(self._plan_reason, plan_id)
        )

    async def _task_reason(self, task_id: str) -> str:
        detail = await self._store.views.detail(task_id)
        if detail is None:
            return f"task {task_id} is not there any more"
        task = detail.task
        if task.place is Place.HELD and task.plan is not None:
            return f"task {task_id} waits for its plan; {await self._plan_reason(task.plan)}"
        return f"task {task_id} ({task.type}) is {task.status}: {self._task_advice(task)}"

    def _task_advice(self, task: Task) -> str:
        if task.place is Place.LATER and task.due is not None:
            left = max(0.0, task.due - self._engine.clock.times()[0])
            return f"it is due later, so call `await engine.advance({left:g})`"
        if task.place is Place.LEASED:
            return f"its stage {task.at_stage} has not returned"
        if task.status is Status.PAUSED:
            return "it is paused, so call `await handle.resume()`"
        return f"nothing runs it; `await engine.app.why({task.id!r})` says for what it waits"

    async def _plan_reason(self, plan_id: str) -> str:
        [plan] = await self._store.plans.load([plan_id])
        if plan is None:
            return f"plan {plan_id} is not there any more"
        if left := soaks_seconds(plan, self._engine.clock.now()):
            return f"plan {plan_id} soaks, so call `await engine.advance({left:g})`"
        return (
            f"plan {plan_id} is {plan.status}, and plans are driven by the clock, "
            "so call `await engine.advance('1m')`"
        )
