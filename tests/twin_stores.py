"""Two stores that are told the same, and must answer and look the same."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from holdfast.domain.state import SUSPENDED, Status
from holdfast.domain.task import Lease, Task
from holdfast.domain.transition import Applied, MovedOn, Stale
from holdfast.ports import Claimed, Detail, Filter, Page, Stats, Store
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.clock import ManualClock

ALL = 1_000
Call = Callable[[Store], Awaitable[Any]]

replace = msgspec.structs.replace


class Twins:
    """The memory store is the model; SQLite is compared with it."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self._loop = asyncio.new_event_loop()
        sqlite = SqliteStore(folder / "holdfast.db", self.clock)
        self.stores: tuple[Store, Store] = (MemoryStore(self.clock), sqlite)
        self._loop.run_until_complete(sqlite.open())

    def close(self) -> None:
        self._loop.run_until_complete(self.stores[1].close())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def both(self, *calls: Call) -> tuple[Any, Any]:
        """Ask both; their answers must be the same but for what is random. Two calls: one each."""

        async def asked() -> tuple[Any, Any]:
            return await calls[0](self.stores[0]), await calls[-1](self.stores[1])

        answers = self._loop.run_until_complete(asked())
        memory, sqlite = plain(answers[0]), plain(answers[1])
        assert memory == sqlite, f"\n  memory: {memory}\n  sqlite: {sqlite}"
        return answers

    # -- what can be seen from outside

    def compare(self, tenants: Sequence[str]) -> list[tuple[Task, Task]]:
        """All that can be seen at a glance; the records as both have them."""

        async def look(store: Store) -> list[Any]:
            page = await store.find(Filter(), limit=ALL)
            ran = {task.tenant for task in page.tasks if task.fence > 0}
            views = [
                # The last fence may be forgotten with the last task that had one.
                view if view.tenant in ran else replace(view, fence=0)
                for view in await store.tenants(tenants)
            ]
            pages = [await store.find(where, limit=2) for where in self._filters(tenants)]
            lines = [await store.line(tenant, limit=ALL) for tenant in tenants]
            return [page, pages, views, lines, await store.stats(), await store.audits(limit=ALL)]

        (memory, *_), (sqlite, *_) = self.both(look)
        return list(zip(memory.tasks, sqlite.tasks, strict=True))

    def _filters(self, tenants: Sequence[str]) -> list[Filter]:
        """One for each way in which SQLite looks."""
        suspended, now = tuple(SUSPENDED), self.clock.now()
        return [
            Filter(statuses=(Status.PENDING, Status.FAILED)),
            Filter(queue="q"),
            Filter(statuses=suspended, updated_before=now - 10),
            *(Filter(statuses=suspended, tenant=tenant) for tenant in tenants),
        ]

    def compare_tasks(self, ids: Sequence[str]) -> None:
        async def look(store: Store) -> list[Any]:
            details = [await store.detail(task_id) for task_id in ids]
            return [*details, *await store.peek(ids)]

        if ids:
            self.both(look)

    def examine(self) -> None:
        found = self.both(lambda store: store.doctor(fix=False, limit=ALL))
        assert not found[0]


def plain(answer: Any) -> Any:
    """The answer without what is random in it, and in one form where two are as good."""
    match answer:
        case Task(lease=Lease() as lease):
            seen: Any = replace(answer, lease=replace(lease, id=""))
        case Applied(task) | MovedOn(task):
            seen = type(answer), _essence(task)
        case Stale(task):
            seen = Stale, plain(task)
        case Claimed() | Detail():
            seen = replace(answer, task=plain(answer.task))
        case Page():
            seen = [plain(task) for task in answer.tasks], answer.cursor
        case Stats():
            seen = _counts(answer)
        case list() | tuple():
            seen = [plain(item) for item in answer]
        case _:
            seen = answer
    return seen


def _essence(task: Task) -> Any:
    """A record that has gone is answered as it was decided: its lease and place are history."""
    return plain(task if not task.settled else replace(task, lease=None, place="settled", order=0))


def _counts(stats: Stats) -> Any:
    return (
        {status: n for status, n in stats.by_status.items() if n},
        {(q, p): n for q, places in stats.by_queue.items() for p, n in places.items() if n},
        sorted(stats.moves, key=lambda move: (move.before, move.after)),
        dict(stats.refused),
    )
