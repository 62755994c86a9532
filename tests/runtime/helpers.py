"""What the tests of the runtime share."""

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar, cast

from holdfast import Handle, StoreUnavailable
from holdfast.domain.events import Event, name_of
from holdfast.domain.task import Task
from holdfast.ports import Detail, Store
from holdfast.testing import Engine

T = TypeVar("T")

BOUND_SECONDS = 10.0  # real ones: a test that waits for what never comes fails instead of hanging


async def within_bounds(awaited: Awaitable[T]) -> T:
    return await asyncio.wait_for(awaited, BOUND_SECONDS)


class Gate:
    """A stage stands here until the test opens it."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    async def stand(self) -> None:
        self.reached.set()
        await self.opened.wait()

    async def wait_until_reached(self) -> None:
        await within_bounds(self.reached.wait())

    def open(self) -> None:
        self.opened.set()


async def detail_of(engine: Engine, handle: Handle[Any]) -> Detail:
    detail = await engine.store.detail(handle.id)
    assert detail is not None
    return detail


async def task_of(engine: Engine, handle: Handle[Any]) -> Task:
    return (await detail_of(engine, handle)).task


async def events_of(engine: Engine, handle: Handle[Any]) -> list[Event]:
    return list((await detail_of(engine, handle)).events)


async def event_names(engine: Engine, handle: Handle[Any]) -> list[str]:
    return [name_of(event) for event in await events_of(engine, handle)]


class FlakyStore:
    """Passes everything through, until it is told to be out of reach."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.down: set[str] = set()  # the verbs that fail
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not asyncio.iscoroutinefunction(found):
            return found

        async def call(*arguments: Any, **options: Any) -> Any:
            self.calls.append(name)
            if name in self.down or "*" in self.down:
                raise StoreUnavailable(f"{name}: nobody answers")
            return await found(*arguments, **options)

        return call

    @property
    def as_store(self) -> Store:
        return cast(Store, self)
