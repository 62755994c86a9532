"""Helpers for the tests of the runtime."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, cast

from holdfast import Context, Handle, Holdfast, Status
from holdfast.domain.errors import PartlyUnavailable, StoreError
from holdfast.domain.task.events import Event, name_of
from holdfast.domain.task.task import Failure, Task
from holdfast.domain.task.transition import Outcome, Transition
from holdfast.engine.declare import AsyncTask, Submittable
from holdfast.errors import StoreUnavailable
from holdfast.ports import Beat, Claimed, Detail, Peek, Renewal, Store
from holdfast.testing import Engine
from holdfast.testing.plugin import MakeEngine
from verify.interception import InterceptedStore, Verb

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

    def declare(self, app: Holdfast, name: str, **terms: Any) -> AsyncTask[None, None]:
        """Declare a task that stands at this gate."""

        @app.task(name, **terms)
        async def stand(ctx: Context) -> None:
            await self.stand()

        return stand


async def suspend(engine: Engine, task: Submittable[Any, Any], *payload: Any) -> Failure:
    """Run a task until it is suspended, and return why."""
    handle = await task.submit(*payload)
    await engine.drain()
    info = await handle.info()
    assert info.status is Status.FAILED
    assert info.failure is not None
    return info.failure


async def detail_of(engine: Engine, handle: Handle[Any]) -> Detail:
    detail = await engine.store.views.detail(handle.id)
    assert detail is not None
    return detail


async def task_of(engine: Engine, handle: Handle[Any]) -> Task:
    return (await detail_of(engine, handle)).task


async def events_of(engine: Engine, handle: Handle[Any]) -> list[Event]:
    return list((await detail_of(engine, handle)).events)


async def event_names(engine: Engine, handle: Handle[Any]) -> list[str]:
    return [name_of(event) for event in await events_of(engine, handle)]


def short(name: str) -> str:
    """Return "claim" for "tasks.claim"; the verbs of plans and triggers keep their part."""
    part, _, verb = name.partition(".")
    return name if part in ("plans", "triggers") else verb


class FlakyStore(InterceptedStore):
    """Passes everything through, until it is told to be out of reach."""

    def __init__(self, store: Store) -> None:
        self.down: set[str] = set()  # the verbs that fail
        self.calls: list[str] = []
        super().__init__(store, self.passed)

    def passed(self, name: str, verb: Verb) -> Verb:
        called = short(name)
        if called == name:
            return verb

        async def call(*arguments: Any, **options: Any) -> Any:
            self.calls.append(called)
            if called in self.down or "*" in self.down:
                raise StoreUnavailable(f"{called}: nobody answers")
            return await verb(*arguments, **options)

        return call


class PartedStore(FlakyStore):
    """A store that answers with errors for some tasks, and as usual for the others."""

    def __init__(self, store: Store) -> None:
        self.errors: dict[str, StoreError] = {}  # by the id of the task
        self.claims_miss_a_part = False
        self.requests: list[str] = []  # of claims
        self.renewed: list[list[str]] = []  # of which tasks, in each beat
        super().__init__(store)

    def passed(self, name: str, verb: Verb) -> Verb:
        own: dict[str, Verb] = {
            "views.peek": self.peek,
            "tasks.apply": self.apply,
            "tasks.renew": self.renew,
            "tasks.claim": self.claim,
        }
        return own.get(name) or super().passed(name, verb)

    async def peek(self, ids: Sequence[str]) -> Sequence[Peek | None]:
        self.calls.append("peek")
        return await self._spread(ids, lambda task_id: task_id, self._store.views.peek)

    async def apply(self, batch: Sequence[Transition]) -> Sequence[Outcome]:
        self.calls.append("apply")
        return await self._spread(batch, lambda one: one.after.id, self._store.tasks.apply)

    async def renew(
        self, beat: Beat, batch: Sequence[Renewal], *, lease_seconds: float
    ) -> Sequence[bool]:
        async def renew(some: Sequence[Renewal]) -> Sequence[bool]:
            return await self._store.tasks.renew(beat, some, lease_seconds=lease_seconds)

        self.renewed.append([one.task_id for one in batch])
        return await self._spread(batch, lambda one: one.task_id, renew)

    async def claim(self, worker: str, *, request: str, **options: Any) -> Sequence[Claimed]:
        self.requests.append(request)
        claimed = await self._store.tasks.claim(worker, request=request, **options)
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


async def take_payload(
    app: Holdfast, make_engine: MakeEngine, declared: Any, value: Any
) -> tuple[Handle[Any], list[Any]]:
    """Run a task that takes and returns a value of the declared type; return what it took."""
    taken: list[Any] = []

    async def take(ctx: Context, payload: Any) -> Any:
        taken.append(payload)
        return payload

    take.__annotations__.update(payload=declared, **{"return": declared})
    task = app.task("take")(take)
    engine = make_engine(app)
    handle = await task.submit(value)
    await engine.drain()
    return handle, taken
