"""Schedulers on one store in memory: what their tests share."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, TypeVar

from holdfast import Context, Holdfast
from holdfast.domain.trigger.trigger import Trigger
from holdfast.engine.declare import AsyncTask
from holdfast.errors import StoreUnavailable
from holdfast.ports import Beat, Filter
from holdfast.runtime.schedule.declared_sync import DeclaredTriggers
from holdfast.runtime.schedule.scheduler import Scheduler
from holdfast.runtime.worker_options import WorkerOptions
from holdfast.stores.memory import MemoryStore
from holdfast.testing import ManualClock
from holdfast.testing.clock import START_NOW
from tests.support.runtime.environment import environment
from verify.interception import InterceptedStore, Verb

T = TypeVar("T")
Say = AsyncTask[str, None]
START = START_NOW + 40  # a whole minute
QUEUE_LIMIT = 1_000


class Process(InterceptedStore):
    """A worker's process and its way to the store: it may die at a call, answers may be lost."""

    services: list[asyncio.Task[None]]

    def __init__(self, world: "World", name: str, app: Holdfast) -> None:
        super().__init__(world.memory, self._passed)
        self.world, self.name, self.app = world, name, app
        self.memory = world.memory
        self.calls: list[str] = []
        self.dies_at: tuple[int, bool] | None = None  # before or after its nth call is carried out
        self.faults: Callable[[str], str | None] = no_faults
        self.queue_limit = QUEUE_LIMIT
        self.schedules = True
        self.services = []

    def _passed(self, name: str, verb: Verb) -> Verb:
        """Triggers are asked over the line, and who else lives; the rest is asked directly."""
        part, _, called = name.partition(".")
        if part != "triggers" and called != "workers":
            return verb

        async def call(*arguments: Any, **options: Any) -> Any:
            pending = called == "find_all" and not options.get("declared")
            name = "find_all_pending" if pending else called  # as the documents call it
            return await self.call(name, lambda: verb(*arguments, **options))

        return call

    async def call(self, verb: str, ask: Callable[[], Awaitable[T]]) -> T:
        self.calls.append(verb)
        nth, fault = len(self.calls), self.faults(verb)
        await asyncio.sleep(0)
        if self.dies_at == (nth, False):
            await self._die()
        if fault == "lost request":
            raise StoreUnavailable(f"{verb}: lost")
        answer = await ask()
        await asyncio.sleep(0)
        if self.dies_at == (nth, True):
            await self._die()
        if fault == "lost reply":
            raise StoreUnavailable(f"{verb}: carried out, and nobody knows")
        return answer

    async def _die(self) -> None:
        self.kill()
        await asyncio.get_running_loop().create_future()

    def kill(self) -> None:
        for service in self.services:
            service.cancel()

    def start(self) -> None:
        env = environment(
            self,
            self.world.clock,
            registry=self.app.registry,
            chance=self.world.chance,
            options=WorkerOptions(queue_limit=self.queue_limit),
            worker=self.name,
        )
        self.declared = DeclaredTriggers(env, self.beat)
        self.scheduler = Scheduler(env, self.declared)
        runs = (self.scheduler.run, self.declared.run) if self.schedules else ()
        self.services = [asyncio.create_task(run()) for run in runs]

    async def beat(self) -> None:
        beat = Beat(
            worker=self.name,
            host="h",
            pid=1,
            types=self.app.registry.names(),
            queues=("default",),
            slots=1,
            running=0,
            started_at=0.0,
            triggers=tuple(self.declared.ids()),
            schedules=self.schedules,
        )
        await self.memory.tasks.renew(beat, (), lease_seconds=30)


class World:
    def __init__(self, seed: int = 0) -> None:
        self.clock = ManualClock(now=START)
        self.memory = MemoryStore(self.clock)
        self.chance = random.Random(seed)
        self.processes: list[Process] = []

    def process(self, app: Holdfast, *, start: bool = True) -> Process:
        made = Process(self, f"w-{len(self.processes) + 1}", app)
        self.processes.append(made)
        if start:
            made.start()
        return made

    def close(self) -> None:
        for process in self.processes:
            process.kill()

    async def keys(self) -> list[str]:
        """Return the keys of all tasks, in the order in which they were inserted."""
        page = await self.memory.views.find(Filter(), limit=10_000)
        return [task.key or "" for task in sorted(page.tasks, key=lambda task: task.order)]

    async def minutes(self, name: str = "tick") -> list[float]:
        """The fire times of a trigger that made tasks, in minutes since the start."""
        prefix = f"{name}@"
        found = [key.removeprefix(prefix) for key in await self.keys() if key.startswith(prefix)]
        return [_minute(text) for text in found]

    async def trigger(self, name: str = "tick") -> Trigger:
        found = await self.memory.triggers.find(name)
        assert found is not None
        return found


def an_app(world: World) -> tuple[Holdfast, Say]:
    app = Holdfast("memory://", clock=world.clock, chance=world.chance)

    @app.task("say")
    async def say(ctx: Context, word: str) -> None: ...

    return app, say


async def every_minute(world: World, app: Holdfast, say: Say, **terms: Any) -> None:
    with app.on(world.memory, clock=world.clock, chance=world.chance):
        await app.schedule.every("1m", say, "hello", name="tick", **terms)


def no_faults(verb: str) -> str | None:
    del verb
    return None


def _minute(text: str) -> float:
    return (datetime.fromisoformat(text).timestamp() - START) / 60
