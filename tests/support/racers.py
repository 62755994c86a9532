"""Clients that race for a few tasks on one store, and write down what they were answered."""

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

import msgspec

from holdfast.domain.errors import HoldfastError
from holdfast.domain.task import decide, operate
from holdfast.domain.task.retry import Retry
from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.task import Failure, FailureKind, Task
from holdfast.domain.task.transition import Transition
from holdfast.ports import Store
from holdfast.stores.redis.client import driver_connection
from holdfast.stores.redis.store import RedisStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.store_driver import ASKER, OPERATE, StoreDriver
from verify.linearizability import ClaimArguments, Client, Operation

CLOCK = ManualClock()  # it stands still, so it is the same in every process
TASKS = 5


class Racer:
    """One client: it submits, claims, moves, asks, takes leases back and looks, as chance has it.

    Leases of no length lapse at once, so that others take over and zombies write.
    """

    def __init__(self, client: Client, seed: int) -> None:
        self.client, self.chance = client, random.Random(seed)
        self.known: list[Task] = []
        self.requests = 0

    async def race(self, steps: int) -> None:
        for _ in range(steps):
            await self.chance.choice(
                [self.claim, self.claim, self.move, self.move, self.ask, self.look, self.submit]
            )()

    async def submit(self) -> None:
        number = self.chance.randrange(TASKS)
        driver = StoreDriver(self.client.store, CLOCK)
        submission = driver.submission(
            id=f"task-{number}",
            tenant=f"t-{number % 2}",
            key="key" if number in (0, 4) else None,  # one tenant's: only the first gets in
        )
        await self.client.insert(submission)

    async def claim(self) -> None:
        self.requests += 1
        claims = await self.client.claim(
            ClaimArguments(
                worker=self.client.process,
                request=f"claim-{self.requests}",
                limit=self.chance.randint(1, 2),
                lease_seconds=self.chance.choice([0.0, 30.0]),
            )
        )
        self.known += [claimed.task for claimed in claims]

    async def move(self) -> None:
        """Write as a holder, or as a former one, from a record that may be old."""
        held = [task for task in self.known if task.lease is not None]
        if held:
            await self.write(self.decided(self.chance.choice(held)))

    async def ask(self) -> None:
        if self.known:
            self.requests += 1
            task = self.chance.choice(self.known)
            name = f"{self.client.process}-{self.requests}"
            ask = operate.OperatorRequest(by=ASKER, now=CLOCK.now(), request=name)
            command = self.chance.choice([Command.PAUSE, Command.RESUME, Command.RETRY])
            try:
                await self.write(OPERATE[command](task, ask))
            except HoldfastError:
                return

    async def look(self) -> None:
        if self.chance.random() < 0.3:
            await self.client.expire()
        found = await self.client.load(f"task-{self.chance.randrange(TASKS)}")
        self.known += [found] if found else []

    async def write(self, transition: Transition | None) -> None:
        if transition is not None:
            found = await self.client.apply(transition)
            self.known += [found] if found else []

    def decided(self, task: Task) -> Transition | None:
        now = CLOCK.now()
        if task.status is not Status.RUNNING:
            return None
        match self.chance.randrange(4):
            case 0:
                return decide.give_back(task, "stopping", now=now, interrupted=False)
            case 1:
                failure = Failure(
                    kind=FailureKind.STAGE, error="E", message="", stage="s", attempt=1, at=now
                )
                failed = decide.Failed(failure=failure, started_at=now, retry_seconds=None)
                return decide.stage_failed(task, failed, Retry(), checkpoint=None, now=now)
            case _:
                return self.finished(task, now)

    def finished(self, task: Task, now: float) -> Transition:
        done = decide.Done(result=b"1", data={}, started_at=now, duration_seconds=0.0)
        if task.last_completed + 2 == len(task.stages):
            return decide.complete(task, done, now=now)
        transition = decide.stage_done(task, done, checkpoint=None, now=now)
        # No checkpoint: a zombie does not know the version of the one that is there.
        return msgspec.structs.replace(transition, checkpoint=None)


async def race_on(
    store: Store, name: str, seed: int, *, racers: int, steps: int
) -> list[Operation]:
    """Race so many clients on one event loop."""
    history: list[Operation] = []
    clients = [Client(store, f"{name}.{n}", history) for n in range(racers)]
    await asyncio.gather(
        *(Racer(client, seed * 100 + n).race(steps) for n, client in enumerate(clients))
    )
    return history


def race_in_threads(stores: list[Store], seed: int, *, racers: int, steps: int) -> list[Operation]:
    """Each store in a thread with a loop of its own; the same store may be given more than once."""

    async def race_and_leave(n: int, store: Store) -> list[Operation]:
        try:
            return await race_on(store, f"thread-{n}", seed + n, racers=racers, steps=steps)
        finally:
            await store.detach()

    def race(n: int, store: Store) -> list[Operation]:
        return asyncio.run(race_and_leave(n, store))

    with ThreadPoolExecutor(len(stores)) as pool:
        histories = pool.map(race, range(len(stores)), stores)
        return [operation for history in histories for operation in history]


def race_on_sqlite(path: Path, name: str, seed: int, racers: int, steps: int) -> list[Operation]:
    """Open the file, race and close it: the whole work of a process."""
    return asyncio.run(_race_alone(SqliteStore(path, CLOCK), name, seed, racers, steps))


def race_on_redis(
    where: tuple[str, str], name: str, seed: int, racers: int, steps: int
) -> list[Operation]:
    """The same; ``where``: address and namespace."""
    store = RedisStore(f"{where[0]}?timeout=60s", CLOCK, where[1], time=CLOCK.times)
    with patch.object(driver_connection, "CONNECT_SECONDS_MAX", 60.0):
        return asyncio.run(_race_alone(store, name, seed, racers, steps))


async def _race_alone(
    store: Store, name: str, seed: int, racers: int, steps: int
) -> list[Operation]:
    await store.open()
    try:
        return await race_on(store, name, seed, racers=racers, steps=steps)
    finally:
        await store.close()
