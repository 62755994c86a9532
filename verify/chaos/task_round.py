"""A round of tasks: an operator sets going what is suspended, and pauses what runs."""

from __future__ import annotations

import random
from contextlib import suppress

import msgspec

from holdfast import Status
from holdfast.domain.task.state import SETTLED, SUSPENDED
from holdfast.domain.task.task import FailureKind, Task
from holdfast.errors import Refused
from holdfast.ports import Store
from verify.chaos.ledger import Ledger
from verify.chaos.records import all_tasks
from verify.chaos.roles import Cast, Orders, opener
from verify.chaos.round_plan import RoundPlan
from verify.chaos.tasks import ChaosOrder, Fate, FatedWork, TaskWork, declare

BURST = 5
SENT_AGAIN = 30
AHEAD_SHARE = 0.2
PAUSE_SHARE = 0.5  # of the operator's polls


def declare_work(plan: RoundPlan, ledger: Ledger, store: Store) -> TaskWork:
    return declare(store, ledger, lease_seconds=plan.lease_seconds)


def new_orders(plan: RoundPlan, declared: TaskWork) -> Orders[ChaosOrder]:
    return Orders(
        todo=[(order.key, order) for order in plan.orders],
        send=declared.submit,
        burst=BURST,
        again=SENT_AGAIN,
        ahead_share=AHEAD_SHARE,
    )


class TaskOperator:
    def __init__(self, plan: RoundPlan, declared: TaskWork, chance: random.Random) -> None:
        self._plan, self._chance = plan, chance
        self._store = declared.app.store
        self._control = declared.app.control.acting_as("operator", "chaos")
        self._works: dict[str, FatedWork] = {}

    async def poll(self) -> bool:
        parked = SUSPENDED | {Status.PAUSED, Status.ROLLED_BACK}
        for task in await all_tasks(self._store, *parked):
            await self._set_going(task)
        if not self._plan.calm.is_set() and self._chance.random() < PAUSE_SHARE:
            for task in (await all_tasks(self._store, Status.RUNNING))[:1]:
                await self._pause(task)
        return self._plan.submitted.is_set() and await self._all_is_settled(self._plan.tasks)

    async def _all_is_settled(self, count: int) -> bool:
        by_status = (await self._store.views.stats()).by_status
        if sum(by_status.get(status, 0) for status in SETTLED) < count:
            return False
        rolled_back = await all_tasks(self._store, Status.ROLLED_BACK)
        return not [task for task in rolled_back if (await self._work(task)).fate is Fate.REDO]

    async def _set_going(self, task: Task) -> None:
        fate = (await self._work(task)).fate
        poison = task.failure is not None and task.failure.kind is FailureKind.POISON
        try:
            if task.status is Status.PAUSED:
                await self._control.resume(task.id, force=True)
            elif task.status is Status.ROLLED_BACK:
                if fate is Fate.REDO:
                    # While it was settled, newer work of its tenant may have run.
                    await self._control.retry(task.id, reason="redo", force=True)
            elif task.status is Status.FAILED and not poison:
                await self._control.rollback(task.id, reason="doomed", force=True)
            else:
                await self._control.resume_suspended(task.id, reason="innocent", force=True)
        except Refused:
            pass  # the task has moved meanwhile; the next poll sees it again

    async def _pause(self, task: Task) -> None:
        with suppress(Refused):  # the task has ended meanwhile
            await self._control.pause(task.id, reason="chaos")

    async def _work(self, task: Task) -> FatedWork:
        if task.id not in self._works:
            detail = await self._store.views.detail(task.id)
            assert detail is not None
            self._works[task.id] = msgspec.json.decode(detail.payload, type=FatedWork)
        return self._works[task.id]


CAST = Cast(open=opener(declare_work), new_orders=new_orders, new_operator=TaskOperator)
