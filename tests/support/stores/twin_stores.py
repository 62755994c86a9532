"""Two stores that are told the same, and must answer and look the same."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from holdfast.domain.task.state import SUSPENDED, Status
from holdfast.domain.task.task import Task
from holdfast.ports import Claimed, Filter, Store
from holdfast.stores.memory import MemoryStore
from holdfast.testing.clock import ManualClock
from verify.simulation.stores.likeness import Pairing

ALL = 1_000
Call = Callable[[Store], Awaitable[Any]]
Open = Callable[[ManualClock], Store]

replace = msgspec.structs.replace


class Twins:
    """The memory store is the model; another is compared with it."""

    def __init__(self, make: Open) -> None:
        self.clock = ManualClock()
        self._loop = asyncio.new_event_loop()
        self._pairing = Pairing()
        self.stores: tuple[Store, Store] = (MemoryStore(self.clock), make(self.clock))
        self._loop.run_until_complete(self.stores[1].open())

    def close(self) -> None:
        self._loop.run_until_complete(self.stores[1].close())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def both(self, *calls: Call) -> tuple[Any, Any]:
        """Ask both; their answers must be the same but for what is random. Two calls: one each."""

        async def asked() -> tuple[Any, Any]:
            return await calls[0](self.stores[0]), await calls[-1](self.stores[1])

        answers = self._loop.run_until_complete(asked())
        if answers[0] and isinstance(answers[0], list) and isinstance(answers[0][0], Claimed):
            self._pairing.learn(*answers)
        difference = self._pairing.difference(*answers)
        assert difference is None, f"{difference}\n  model: {answers[0]}\n  other: {answers[1]}"
        return answers

    # -- what can be seen from outside

    def compare(self, tenants: Sequence[str]) -> list[tuple[Task, Task]]:
        """All that can be seen at a glance; the records as both have them."""

        async def look(store: Store) -> list[Any]:
            page = await store.views.find(Filter(), limit=ALL)
            ran = {task.tenant for task in page.tasks if task.fence > 0}
            views = [
                # The last fence may be forgotten with the last task that had one.
                view if view.tenant in ran else replace(view, fence=0)
                for view in await store.views.tenants(tenants)
            ]
            pages = [await store.views.find(where, limit=2) for where in self._filters(tenants)]
            lines = [view.line for view in await store.views.tenants(tenants, line_limit=ALL)]
            return [
                page,
                pages,
                views,
                lines,
                await store.views.stats(),
                await store.admin.audits(limit=ALL),
            ]

        (model, *_), (other, *_) = self.both(look)
        return list(zip(model.tasks, other.tasks, strict=True))

    def _filters(self, tenants: Sequence[str]) -> list[Filter]:
        """One for each way in which a store looks."""
        suspended, now = tuple(SUSPENDED), self.clock.now()
        return [
            Filter(statuses=(Status.PENDING, Status.FAILED)),
            Filter(queue="q"),
            Filter(statuses=suspended, updated_before=now - 10),
            *(Filter(statuses=suspended, tenant=tenant) for tenant in tenants),
        ]

    def compare_tasks(self, ids: Sequence[str]) -> None:
        async def look(store: Store) -> list[Any]:
            details = [await store.views.detail(task_id) for task_id in ids]
            return [*details, *await store.views.peek(ids)]

        if ids:
            self.both(look)

    def examine(self) -> None:
        found = self.both(lambda store: store.admin.doctor(fix=False, limit=ALL))
        assert not found[0]
