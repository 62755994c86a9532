"""What the tests of the runtime share."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, cast

from holdfast import Handle
from holdfast.domain.errors import PartlyUnavailable, StoreError
from holdfast.domain.task.events import Event, name_of
from holdfast.domain.task.task import Task
from holdfast.domain.task.transition import Outcome, Transition
from holdfast.errors import StoreUnavailable
from holdfast.ports import Beat, Claimed, Detail, Peek, Renewal, Store
from holdfast.testing import Engine

T = TypeVar("T")
U = TypeVar("U")

BOUND_SECONDS = 60.0  # real ones: a test that waits for what never comes fails instead of hanging


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


class PartedStore(FlakyStore):
    """Of some tasks it has only errors to tell; of the others it answers."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.errors: dict[str, StoreError] = {}  # by the id of the task
        self.claims_miss_a_part = False
        self.requests: list[str] = []  # of claims
        self.renewed: list[list[str]] = []  # of which tasks, in each beat

    async def peek(self, ids: Sequence[str]) -> Sequence[Peek | None]:
        self.calls.append("peek")
        return await self._spread(ids, lambda task_id: task_id, self._store.peek)

    async def apply(self, batch: Sequence[Transition]) -> Sequence[Outcome]:
        self.calls.append("apply")
        return await self._spread(batch, lambda one: one.after.id, self._store.apply)

    async def renew(
        self, beat: Beat, batch: Sequence[Renewal], *, lease_seconds: float
    ) -> Sequence[bool]:
        async def renew(some: Sequence[Renewal]) -> Sequence[bool]:
            return await self._store.renew(beat, some, lease_seconds=lease_seconds)

        self.renewed.append([one.task_id for one in batch])
        return await self._spread(batch, lambda one: one.task_id, renew)

    async def claim(self, worker: str, *, request: str, **options: Any) -> Sequence[Claimed]:
        self.requests.append(request)
        claimed = await self._store.claim(worker, request=request, **options)
        if self.claims_miss_a_part:
            raise PartlyUnavailable(StoreUnavailable("a part is away"), claimed)
        return claimed

    async def _spread(
        self,
        batch: Sequence[T],
        id_of: Callable[[T], str],
        ask: Callable[[Sequence[T]], Awaitable[Sequence[U]]],
    ) -> Sequence[U]:
        answered = iter(await ask([one for one in batch if id_of(one) not in self.errors]))
        answers = [self.errors.get(id_of(one)) or next(answered) for one in batch]
        for answer in answers:
            if isinstance(answer, StoreError):
                raise PartlyUnavailable(answer, answers)
        return cast(Sequence[U], answers)
