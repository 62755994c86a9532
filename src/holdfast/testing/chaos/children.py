"""What the forked processes do: work, submit, operate. Each opens the store for itself."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

import msgspec

from holdfast import Refused, Status, StoreUnavailable
from holdfast.domain.state import SETTLED, SUSPENDED
from holdfast.domain.task import Kind as FailureKind
from holdfast.domain.task import Task
from holdfast.domain.transition import Outcome, Stale, Transition
from holdfast.ports import Beat, Filter, Renewal, Store
from holdfast.testing.chaos import ledger
from holdfast.testing.chaos.ledger import Kind, Ledger
from holdfast.testing.chaos.plan import Plan
from holdfast.testing.chaos.tasks import Declared, Fate, Order, Work, declare

LOOK_SECONDS = 0.1
PAGE = 200
BURST = 5
SENT_AGAIN = 30  # orders before the first that was not answered
AHEAD_SHARE = 0.2  # of all orders: so far the submits run ahead of the harm
PAUSE_SHARE = 0.5  # of the operator's looks
PROXIED_OF = 3  # one in three reaches the store directly
ORPHANED_EXIT = 4
ZOMBIE_EXIT = 5


class Witness:
    """The store as it is, with a line in the ledger for each beat and each refused write."""

    def __init__(self, store: Store, book: Ledger) -> None:
        self._store = store
        self._ledger = book

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def apply(self, batch: Sequence[Transition]) -> Sequence[Outcome]:
        outcomes = await self._store.apply(batch)
        for transition, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Stale) and _lease_is_lost(transition, outcome.task):
                self._ledger.write(Kind.STALE, task=transition.task_id)
        return outcomes

    async def renew(
        self, beat: Beat, batch: Sequence[Renewal], *, lease_seconds: float
    ) -> Sequence[bool]:
        asked = time.time()
        try:
            kept = await self._store.renew(beat, batch, lease_seconds=lease_seconds)
        except BaseException:
            self._ledger.write(Kind.UNANSWERED, asked=asked)
            raise
        self._ledger.write(Kind.BEAT, asked=asked)
        return kept


def _lease_is_lost(transition: Transition, task: Task | None) -> bool:
    """And not merely a request that came in between."""
    held = task.lease.id if task and task.lease else None
    return transition.lease is not None and transition.lease != held


async def opened(plan: Plan, name: str) -> tuple[Declared, Ledger]:
    plan.sabotage()
    book = Ledger(plan.folder, name)
    witness = cast(Store, Witness(await _open_store(plan, name), book))
    return declare(witness, book, lease_seconds=plan.lease_seconds), book


async def _open_store(plan: Plan, name: str) -> Store:
    """Some of each kind go through the proxy. If the store is away, it is tried again."""
    parent = os.getppid()
    while True:
        try:
            return await plan.open_store(proxied=int(name[-1]) % PROXIED_OF != 0)
        except StoreUnavailable:
            _end_if_orphaned(parent)
        await asyncio.sleep(LOOK_SECONDS)


# -- the worker


async def work(plan: Plan, name: str) -> None:
    declared, _ = await opened(plan, name)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with declared.app as app:
        # A plain function that lost its lease cannot be stopped, so its process is.
        worker = app.worker(name=name, slots=plan.slots, on_zombie=lambda _: os._exit(ZOMBIE_EXIT))
        await worker.start()
        await _until_set_or_orphaned(stop)
        await worker.drain()
        await app.store.close()


async def _until_set_or_orphaned(stop: asyncio.Event) -> None:
    parent = os.getppid()
    while not stop.is_set():
        try:
            await asyncio.wait_for(stop.wait(), 1.0)
        except TimeoutError:
            _end_if_orphaned(parent)


def _end_if_orphaned(parent: int) -> None:
    if os.getppid() != parent:
        os._exit(ORPHANED_EXIT)


# -- the submitter


async def submit(plan: Plan, name: str) -> None:
    """Go on where the last one was killed, and send some of what was answered again."""
    answered = {line.key for line in ledger.read(plan.folder, "submitter-*")}
    todo = plan.orders
    first = next((n for n, order in enumerate(todo) if order.key not in answered), len(todo))
    declared, book = await opened(plan, name)
    parent = os.getppid()
    async with declared.app as app:
        for start in range(max(0, first - SENT_AGAIN), len(todo), BURST):
            while not plan.calm.is_set() and start >= _allowed(plan):
                await asyncio.sleep(LOOK_SECONDS)
                _end_if_orphaned(parent)
            burst = todo[start : start + BURST]
            await asyncio.gather(*(_send(declared, book, order) for order in burst))
        plan.submitted.set()
        await app.store.close()


def _allowed(plan: Plan) -> float:
    """Submits keep pace with the harm, and the last ones come after it."""
    ahead = AHEAD_SHARE + (1 - AHEAD_SHARE) * plan.harm.read()
    return min(plan.tasks * ahead, plan.tasks - BURST)


async def _send(declared: Declared, book: Ledger, order: Order) -> None:
    while True:
        try:
            task_id = await declared.submit(order)
        except StoreUnavailable:
            await asyncio.sleep(LOOK_SECONDS)
        else:
            book.write(Kind.ACK, task=task_id, key=order.key)
            return


# -- the operator


async def operate(plan: Plan, name: str) -> None:
    """Set going what rests, pause what runs, and tell when all is settled."""
    declared, _ = await opened(plan, name)
    parent, chance = os.getppid(), random.Random(f"{plan.seed} {name}")
    async with declared.app as app:
        operator = Operator(declared, chance)
        while not plan.settled.is_set():
            _end_if_orphaned(parent)
            try:
                await operator.look(pauses=not plan.calm.is_set())
                if plan.submitted.is_set() and await operator.all_is_settled(plan.tasks):
                    plan.settled.set()
            except StoreUnavailable:
                pass
            await asyncio.sleep(LOOK_SECONDS)
        await app.store.close()


class Operator:
    def __init__(self, declared: Declared, chance: random.Random) -> None:
        self._store = declared.app.store
        self._control = declared.app.control.acting_as("operator", "chaos")
        self._chance = chance
        self._works: dict[str, Work] = {}

    async def look(self, *, pauses: bool) -> None:
        for task in await self._found(*SUSPENDED, Status.PAUSED, Status.ROLLED_BACK):
            await self._set_going(task)
        if pauses and self._chance.random() < PAUSE_SHARE:
            for task in (await self._found(Status.RUNNING))[:1]:
                await self._pause(task)

    async def all_is_settled(self, count: int) -> bool:
        by_status = (await self._store.stats()).by_status
        if sum(by_status.get(status, 0) for status in SETTLED) < count:
            return False
        rolled_back = await self._found(Status.ROLLED_BACK)
        return not [task for task in rolled_back if (await self._work(task)).fate is Fate.REDO]

    async def _found(self, *statuses: Status) -> list[Task]:
        found: list[Task] = []
        cursor = None
        while True:
            page = await self._store.find(Filter(statuses=statuses), limit=PAGE, cursor=cursor)
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

    async def _work(self, task: Task) -> Work:
        if task.id not in self._works:
            detail = await self._store.detail(task.id)
            assert detail is not None
            self._works[task.id] = msgspec.json.decode(detail.payload, type=Work)
        return self._works[task.id]
