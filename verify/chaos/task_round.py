"""The forked processes of a round of tasks. Each opens the store for itself."""

from __future__ import annotations

import random
from contextlib import suppress

import msgspec

from holdfast import Status
from holdfast.domain.task.state import SETTLED, SUSPENDED
from holdfast.domain.task.task import FailureKind, Task
from holdfast.errors import Refused
from holdfast.ports import Filter
from verify.chaos.ledger import Ledger
from verify.chaos.roles import Orders, look_until_settled, submit_each, work_on
from verify.chaos.round_plan import RoundPlan
from verify.chaos.tasks import Fate, FatedWork, TaskWork, declare
from verify.chaos.witness import witnessed

PAGE = 200
BURST = 5
SENT_AGAIN = 30
AHEAD_SHARE = 0.2
PAUSE_SHARE = 0.5  # of the operator's looks


async def opened(plan: RoundPlan, name: str) -> tuple[TaskWork, Ledger]:
    store, book = await witnessed(plan, name)
    return declare(store, book, lease_seconds=plan.lease_seconds), book


async def work(plan: RoundPlan, name: str) -> None:
    declared, _ = await opened(plan, name)
    await work_on(declared.app, plan, name)


async def submit(plan: RoundPlan, name: str) -> None:
    declared, book = await opened(plan, name)
    orders = Orders(
        todo=[(order.key, order) for order in plan.orders],
        send=declared.submit,
        burst=BURST,
        again=SENT_AGAIN,
        ahead_share=AHEAD_SHARE,
    )
    async with declared.app as app:
        await submit_each(plan, book, orders)
        await app.store.close()


async def operate(plan: RoundPlan, name: str) -> None:
    """Set going what rests, pause what runs, and tell when all is settled."""
    declared, _ = await opened(plan, name)
    async with declared.app as app:
        operator = TaskOperator(declared, random.Random(f"{plan.seed} {name}"))

        async def look() -> bool:
            await operator.look(pauses=not plan.calm.is_set())
            return plan.submitted.is_set() and await operator.all_is_settled(plan.tasks)

        await look_until_settled(plan, look)
        await app.store.close()


class TaskOperator:
    def __init__(self, declared: TaskWork, chance: random.Random) -> None:
        self._store = declared.app.store
        self._control = declared.app.control.acting_as("operator", "chaos")
        self._chance = chance
        self._works: dict[str, FatedWork] = {}

    async def look(self, *, pauses: bool) -> None:
        for task in await self._found(*SUSPENDED, Status.PAUSED, Status.ROLLED_BACK):
            await self._set_going(task)
        if pauses and self._chance.random() < PAUSE_SHARE:
            for task in (await self._found(Status.RUNNING))[:1]:
                await self._pause(task)

    async def all_is_settled(self, count: int) -> bool:
        by_status = (await self._store.views.stats()).by_status
        if sum(by_status.get(status, 0) for status in SETTLED) < count:
            return False
        rolled_back = await self._found(Status.ROLLED_BACK)
        return not [task for task in rolled_back if (await self._work(task)).fate is Fate.REDO]

    async def _found(self, *statuses: Status) -> list[Task]:
        found: list[Task] = []
        cursor = None
        while True:
            page = await self._store.views.find(
                Filter(statuses=statuses), limit=PAGE, cursor=cursor
            )
            found += page.tasks
            cursor = page.cursor
            if cursor is None:
                return found

    async def _set_going(self, task: Task) -> None:
        fate = (await self._work(task)).fate
        poison = task.failure is not None and task.failure.kind is FailureKind.POISON
        try:
            if task.status is Status.PAUSED:
                await self._control.resume(task.id, force=True)
            elif task.status is Status.ROLLED_BACK:
                if fate is Fate.REDO:
                    # Settled, it has let newer work of its tenant run.
                    await self._control.retry(task.id, reason="redo", force=True)
            elif task.status is Status.FAILED and not poison:
                await self._control.rollback(task.id, reason="doomed", force=True)
            else:
                await self._control.resume_suspended(task.id, reason="innocent", force=True)
        except Refused:
            pass  # it has moved meanwhile: seen again at the next look, if need be

    async def _pause(self, task: Task) -> None:
        with suppress(Refused):  # it has come to its end meanwhile
            await self._control.pause(task.id, reason="a look")

    async def _work(self, task: Task) -> FatedWork:
        if task.id not in self._works:
            detail = await self._store.views.detail(task.id)
            assert detail is not None
            self._works[task.id] = msgspec.json.decode(detail.payload, type=FatedWork)
        return self._works[task.id]
