"""A load on an app whose servers change places, and what must hold when they have."""

import asyncio
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count, pairwise
from typing import cast

from holdfast import Context, Holdfast
from holdfast.domain.task.events import StageCompleted
from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import Task
from holdfast.errors import StoreError
from holdfast.stores.redis.store import RedisStore
from verify.servers import RedisServer, until

STAGES = ("one", "two", "three")
TENANTS = 12
SENDERS = 4
LEASE = "10s"
PATIENCE_SECONDS = 120.0
PAUSE_SECONDS = 0.05


async def eventually(ask: Callable[[], Awaitable[bool]], what: str) -> None:
    """An outage on the way is no answer."""
    pause = threading.Event()
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await _without_outage(ask):
                await asyncio.to_thread(pause.wait, PAUSE_SECONDS)
    except TimeoutError:
        raise AssertionError(f"not within {PATIENCE_SECONDS:g} s: {what}") from None


async def _without_outage(ask: Callable[[], Awaitable[bool]]) -> bool:
    try:
        return await ask()
    except StoreError:
        return False


class Load:
    """Workers that run, and senders that submit; each key is sent again until it is answered."""

    def __init__(self, url: str, namespace: str = "load") -> None:
        self.app = Holdfast(url, namespace=namespace, lease=LEASE, slots=20)
        self.accepted: list[str] = []
        self.refusals = 0
        self.starts: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
        self._numbers = count()
        self._workflow = self.app.workflow("load.work", payload=int)
        for name in STAGES:
            self._workflow.stage(name=name)(self._work)

    @property
    def store(self) -> RedisStore:
        return cast(RedisStore, self.app.store)  # behind the door that brings deliveries along

    async def _work(self, ctx: Context, number: int) -> int:
        assert ctx.tenant is not None
        self.starts[ctx.tenant].append((ctx.fence, ctx.task_id))
        return number

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self.app.running(workers=2):
            senders = [asyncio.create_task(self._send()) for _ in range(SENDERS)]
            try:
                yield
            finally:
                for sender in senders:
                    sender.cancel()
                await asyncio.gather(*senders, return_exceptions=True)
            await eventually(self._all_rest, "all tasks that exist have settled")
            await self._judge()

    async def _send(self) -> None:
        pause = threading.Event()
        for number in self._numbers:
            tenant, key = f"t-{number % TENANTS}", f"k-{number}"
            while True:
                try:
                    handle = await self._workflow.submit(number, tenant=tenant, key=key)
                except StoreError:
                    self.refusals += 1
                    await asyncio.to_thread(pause.wait, PAUSE_SECONDS)
                else:
                    self.accepted.append(handle.id)
                    break
            await asyncio.to_thread(pause.wait, PAUSE_SECONDS / 10)

    async def more_are_done(self, number: int) -> None:
        """Wait until so many of the tasks that are accepted from now on are done."""
        since = len(self.accepted)

        async def enough() -> bool:
            found = await self.store.views.load(self.accepted[since:])
            return sum(task is not None and task.settled for task in found) >= number

        await eventually(enough, f"{number} more tasks are done")

    async def is_refused(self) -> None:
        async def refused() -> bool:
            return self.refusals > 0

        await eventually(refused, "a submit is refused")

    async def _all_rest(self) -> bool:
        return all(task.settled for task in await self.left())

    async def left(self) -> list[Task]:
        found = await self.store.views.load([*self.accepted])
        return [task for task in found if task is not None]

    async def lost_writes(self) -> int:
        found = [check for check in await self.store.admin.checks() if check.name == "lost writes"]
        return sum(int(check.message.split()[0]) for check in found)

    async def _judge(self) -> None:
        tasks = await self.left()
        missing = len(set(self.accepted)) - len({task.id for task in tasks})
        assert missing <= await self.lost_writes()
        for task in tasks:
            detail = await self.store.views.detail(task.id)
            assert detail is not None
            assert (task.status, task.place) == (Status.COMPLETED, Place.SETTLED)
            stages = [e.stage for e in detail.events if isinstance(e, StageCompleted)]
            assert stages == [*STAGES]
            versions = sorted({event.version for event in detail.events})
            assert versions == list(range(1, task.version + 1))
        for starts in self.starts.values():
            assert starts == sorted(starts, key=lambda start: start[0])
            assert all(a[1] == b[1] for a, b in pairwise(starts) if a[0] == b[0])
        assert not await self.store.admin.doctor(fix=False, limit=10)


def cut_off(replica: RedisServer, primary: RedisServer) -> None:
    """Cut the replica off: its primary no longer lets it in."""
    with replica.client() as client:
        client.config_set("masteruser", "nobody")
        client.config_set("masterauth", "wrong")
    with primary.client() as client:
        client.client_kill_filter(_type="replica")
    until(lambda: not replica.is_synced(), "the replica is cut off")
