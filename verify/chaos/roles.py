"""The lives of forked processes, whatever a round is about: work, submit, operate."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from holdfast import Holdfast
from holdfast.errors import StoreUnavailable
from verify.chaos import ledger
from verify.chaos.ledger import Ledger, LineKind
from verify.chaos.processes import end_if_orphaned, parent_now
from verify.chaos.round_plan import RoundPlan

LOOK_SECONDS = 0.1
ZOMBIE_EXIT = 5

T = TypeVar("T")


# -- the worker


async def work_on(app: Holdfast, plan: RoundPlan, name: str) -> None:
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
    """The orders to submit, in which portions, and how one is sent: the answer is an id."""

    todo: Sequence[tuple[str, T]]  # with the key of each
    send: Callable[[T], Awaitable[str]]
    burst: int
    again: int  # how many before the first that was not answered are sent again
    ahead_share: float  # of all: so far the submits run ahead of the harm


async def submit_each(plan: RoundPlan, book: Ledger, orders: Orders[T]) -> None:
    """Go on where the last one was killed, and send some of what was answered again."""
    answered = {line.key for line in ledger.read(plan.folder, "submitter-*")}
    todo, parent = orders.todo, parent_now()
    first = next((n for n, (key, _) in enumerate(todo) if key not in answered), len(todo))
    for start in range(max(0, first - orders.again), len(todo), orders.burst):
        while not plan.calm.is_set() and start >= _allowed(plan, orders):
            await asyncio.sleep(LOOK_SECONDS)
            end_if_orphaned(parent)
        burst = todo[start : start + orders.burst]
        await asyncio.gather(*(_send(book, orders, key, order) for key, order in burst))
    plan.submitted.set()


def _allowed(plan: RoundPlan, orders: Orders[T]) -> float:
    """Submits keep pace with the harm, and the last ones come after it."""
    ahead = orders.ahead_share + (1 - orders.ahead_share) * plan.harm.read()
    return min(len(orders.todo) * ahead, len(orders.todo) - orders.burst)


async def _send(book: Ledger, orders: Orders[T], key: str, order: T) -> None:
    while True:
        try:
            found = await orders.send(order)
        except StoreUnavailable:
            await asyncio.sleep(LOOK_SECONDS)
        else:
            book.write(LineKind.ACK, task=found, key=key)
            return


# -- the operator


async def look_until_settled(plan: RoundPlan, look: Callable[[], Awaitable[bool]]) -> None:
    """``look``: set going what rests; whether all is settled."""
    parent = parent_now()
    while not plan.settled.is_set():
        end_if_orphaned(parent)
        try:
            if await look():
                plan.settled.set()
        except StoreUnavailable:
            pass
        await asyncio.sleep(LOOK_SECONDS)
