"""The roles of the forked processes in a round of any subject: to work, to submit, to operate."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from holdfast import Holdfast
from holdfast.errors import StoreUnavailable
from verify.chaos.ledger import Ledger, LineKind
from verify.chaos.ledger import read as read_ledger
from verify.chaos.processes import end_if_orphaned, parent_now
from verify.chaos.round_plan import RoundPlan, do_nothing
from verify.chaos.witness import open_witnessed

POLL_SECONDS = 0.1
ZOMBIE_EXIT = 5

T = TypeVar("T")


class DeclaredWork(Protocol):
    """The types that a process has declared, and the app that runs them."""

    @property
    def app(self) -> Holdfast: ...


class Operator(Protocol):
    async def poll(self) -> bool:
        """Set going what is parked, and return whether everything is settled."""


W = TypeVar("W", bound=DeclaredWork)
OpenWork = Callable[[RoundPlan, str], Awaitable[tuple[W, Ledger]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast(Generic[W]):
    """The roles that play in the rounds of one subject. Each process opens the store itself."""

    open: OpenWork[W]
    open_to_submit: OpenWork[W] | None = None  # if the submitter needs another clock
    new_orders: Callable[[RoundPlan, W], Orders[Any]]
    new_operator: Callable[[RoundPlan, W, random.Random], Operator]
    prepare_worker: Callable[[], None] = do_nothing

    async def work(self, plan: RoundPlan, name: str) -> None:
        self.prepare_worker()
        declared, _ = await self.open(plan, name)
        await _run_worker(declared.app, plan, name)

    async def submit(self, plan: RoundPlan, name: str) -> None:
        declared, ledger = await (self.open_to_submit or self.open)(plan, name)
        async with declared.app as app:
            await _submit_each(plan, ledger, self.new_orders(plan, declared))
            await app.store.close()

    async def operate(self, plan: RoundPlan, name: str) -> None:
        declared, _ = await self.open(plan, name)
        async with declared.app as app:
            chance = random.Random(f"{plan.seed} {name}")
            await _poll_until_settled(plan, self.new_operator(plan, declared, chance))
            await app.store.close()


def opener(declare: Callable[[RoundPlan, Ledger, Any], W]) -> OpenWork[W]:
    """Return a function that opens the store behind the witness and declares the work on it."""

    async def open_work(plan: RoundPlan, name: str) -> tuple[W, Ledger]:
        store, ledger = await open_witnessed(plan, name)
        return declare(plan, ledger, store), ledger

    return open_work


# -- the worker


async def _run_worker(app: Holdfast, plan: RoundPlan, name: str) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with app:
        # A plain function that lost its lease cannot be stopped, so its process is.
        worker = app.worker(name=name, slots=plan.slots, on_zombie=lambda _: os._exit(ZOMBIE_EXIT))
        await worker.start()
        await _until_set_or_orphaned(stop)
        await worker.drain()
        await app.store.close()


async def _until_set_or_orphaned(stop: asyncio.Event) -> None:
    parent = parent_now()
    while not stop.is_set():
        try:
            await asyncio.wait_for(stop.wait(), 1.0)
        except TimeoutError:
            end_if_orphaned(parent)


# -- the submitter


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders(Generic[T]):
    """The orders to submit, the portions, and how to send one: the answer is an id."""

    todo: Sequence[tuple[str, T]]  # with the key of each
    send: Callable[[T], Awaitable[str]]
    burst: int
    again: int  # how many before the first that was not answered are sent again
    ahead_share: float  # of all orders: so many are sent before there is any harm


async def _submit_each(plan: RoundPlan, ledger: Ledger, orders: Orders[T]) -> None:
    """Go on where the last submitter was killed, and send again some of what was answered."""
    answered = {line.key for line in read_ledger(plan.folder, "submitter-*")}
    todo, parent = orders.todo, parent_now()
    first = next((n for n, (key, _) in enumerate(todo) if key not in answered), len(todo))
    for start in range(max(0, first - orders.again), len(todo), orders.burst):
        while not plan.calm.is_set() and start >= _count_allowed(plan, orders):
            await asyncio.sleep(POLL_SECONDS)
            end_if_orphaned(parent)
        burst = todo[start : start + orders.burst]
        await asyncio.gather(*(_send(ledger, orders, key, order) for key, order in burst))
    plan.submitted.set()


def _count_allowed(plan: RoundPlan, orders: Orders[T]) -> float:
    """Return how many orders may be sent: submits keep pace with the harm, the last come after."""
    ahead = orders.ahead_share + (1 - orders.ahead_share) * plan.harm.read()
    return min(len(orders.todo) * ahead, len(orders.todo) - orders.burst)


async def _send(ledger: Ledger, orders: Orders[T], key: str, order: T) -> None:
    while True:
        try:
            record_id = await orders.send(order)
        except StoreUnavailable:
            await asyncio.sleep(POLL_SECONDS)
        else:
            ledger.write(LineKind.ACK, task=record_id, key=key)
            return


# -- the operator


async def _poll_until_settled(plan: RoundPlan, operator: Operator) -> None:
    parent = parent_now()
    while not plan.settled.is_set():
        end_if_orphaned(parent)
        try:
            if await operator.poll():
                plan.settled.set()
        except StoreUnavailable:
            pass
        await asyncio.sleep(POLL_SECONDS)
