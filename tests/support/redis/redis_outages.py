"""The ways in which a Redis server can be gone, and an app under load that lives through one."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from typing import Any, Self

from holdfast import Context, Handle, Holdfast
from holdfast.domain.task.events import Event, LeaseLost, StageCompleted
from holdfast.ports import Filter
from verify.proxy import Harm, Proxy
from verify.servers import RedisServer

BOUND_SECONDS = 60.0
EVERY_ONE = 1_000_000  # of what passes through the proxy
TRIES = 5
BEAT_SECONDS = 0.05
STILL_SECONDS = 0.5  # too long for a time-out of a second, and for the beats of a short lease


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """An outage at ``port``, where the app connects; ``begin`` and ``end`` return when done."""

    port: int
    begin: Callable[[], None]
    end: Callable[[], None]


Way = Callable[[RedisServer], AbstractAsyncContextManager[Outage]]
Test = Callable[..., Awaitable[None]]


@asynccontextmanager
async def killed(server: RedisServer) -> AsyncIterator[Outage]:
    yield Outage(port=server.port, begin=server.kill, end=lambda: void(server.start()))


@asynccontextmanager
async def frozen(server: RedisServer) -> AsyncIterator[Outage]:
    yield Outage(port=server.port, begin=server.pause, end=server.resume)


@asynccontextmanager
async def _harmed(server: RedisServer, harm: Harm) -> AsyncIterator[Outage]:
    async with Proxy("127.0.0.1", server.port) as proxy:

        def end() -> None:
            proxy.wanted.clear()
            proxy.cut_all()

        yield Outage(port=proxy.port, begin=lambda: proxy.deal(harm, EVERY_ONE), end=end)


def deaf(server: RedisServer) -> AbstractAsyncContextManager[Outage]:
    """Connections hang, and nothing that is said on them arrives."""
    return _harmed(server, Harm.DEAF)


def mute(server: RedisServer) -> AbstractAsyncContextManager[Outage]:
    """Connections hang: what is asked is done, and every answer is lost."""
    return _harmed(server, Harm.MUTE)


def void(_: object) -> None: ...


# -- real time


class Pulse:
    """The pulse measures the longest time for which this process, or a server, stood still."""

    def __init__(self, port: int) -> None:
        self._longest_seconds = 0.0
        self._port = port
        self._gone = False  # the server, as the test wants it
        self._asking = False
        self._asked_at: float | None = None  # since when an answer is due
        self._beating: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._beating = [asyncio.create_task(beat()) for beat in (self._here, self._there)]
        return self

    async def __aexit__(self, *exc: object) -> None:
        await _ended(self._beating)

    @property
    def longest_seconds(self) -> float:
        if self._asked_at is not None:
            self._note(self._asked_at)
        return self._longest_seconds

    def over(self, way: Way) -> Way:
        """The same way to be gone, with our knowledge."""

        @asynccontextmanager
        async def known(server: RedisServer) -> AsyncIterator[Outage]:
            async with way(server) as outage:

                def begin() -> None:
                    self._gone, self._asked_at = True, None
                    outage.begin()

                def end() -> None:
                    outage.end()
                    self._gone = False
                    self._asked_at = asyncio.get_running_loop().time() if self._asking else None

                yield Outage(port=outage.port, begin=begin, end=end)

        return known

    async def _here(self) -> None:
        while True:
            at = asyncio.get_running_loop().time()
            await _rest()
            self._note(at + BEAT_SECONDS)

    async def _there(self) -> None:
        while True:
            if not self._gone:
                self._asking, self._asked_at = True, asyncio.get_running_loop().time()
                await self._ping()
                if self._asked_at is not None:
                    self._note(self._asked_at)
                self._asking, self._asked_at = False, None
            await _rest()

    async def _ping(self) -> None:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            try:
                writer.write(b"PING\r\n")
                await reader.readline()
            finally:
                writer.close()

    def _note(self, since: float) -> None:
        still = asyncio.get_running_loop().time() - since
        self._longest_seconds = max(self._longest_seconds, still)


async def _rest() -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(BEAT_SECONDS):
            await asyncio.Event().wait()


async def _ended(tasks: Collection[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def undisturbed(test: Test) -> Test:
    """Run a test again that failed while the machine stood still: it says nothing about us."""

    @wraps(test)
    async def tried(*, server: RedisServer, way: Way, **others: Any) -> None:
        for left in reversed(range(TRIES)):
            async with Pulse(server.port) as pulse:
                try:
                    await test(server=server, way=pulse.over(way), **others)
                except Exception as error:
                    if not left or pulse.longest_seconds < STILL_SECONDS:
                        error.add_note(f"it stood still for {pulse.longest_seconds:.1f} s at most")
                        raise
                else:
                    return
            await _begin_anew(server)

    return tried


async def _begin_anew(server: RedisServer) -> None:
    here = asyncio.current_task()
    await _ended([task for task in asyncio.all_tasks() if task is not here])
    if server.alive:
        server.resume()
    else:
        server.start()
    with server.client() as client:
        client.flushall()


# -- under load


class Crew:
    """An app whose first stage waits at a gate that the test opens, and whose second does not."""

    def __init__(self, port: int, *, timeout: str | None = None, **settings: Any) -> None:
        query = f"?timeout={timeout}" if timeout else ""
        self.app = Holdfast(f"redis://127.0.0.1:{port}{query}", **settings)
        self.gate = asyncio.Event()
        self.reached: set[str] = set()
        self.stopped: set[str] = set()
        self.log: list[str] = []
        self.runs: Counter[tuple[str, str]] = Counter()
        self.work = self.app.workflow("work", payload=int, result=int)
        self._changed = asyncio.Event()

        @self.work.stage
        async def hold(ctx: Context, number: int) -> None:
            self.runs[ctx.task_id, "hold"] += 1
            self.reached.add(ctx.task_id)
            self._change()
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.stopped.add(ctx.task_id)
                self.log.append("stopped")
                self._change()
                raise

        @self.work.stage
        async def answer(ctx: Context, number: int) -> int:
            self.runs[ctx.task_id, "answer"] += 1
            return number * 2

    def _change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def submit(self, number: int) -> Handle[int]:
        return await self.work.submit(number, tenant=f"t-{number}", key=f"k-{number}")

    async def until(self, holds: Callable[[], bool]) -> None:
        """Looked at after each thing that a stage does."""
        async with asyncio.timeout(BOUND_SECONDS):
            while not holds():
                await self._changed.wait()

    async def events(self, task_id: str) -> list[Event]:
        detail = await self.app.store.views.detail(task_id)
        assert detail is not None
        return list(detail.events)

    async def ids(self) -> set[str]:
        page = await self.app.store.views.find(Filter(), limit=1000)
        return {task.id for task in page.tasks}


async def assert_nothing_doubled(crew: Crew, task_ids: set[str]) -> None:
    """Each stage was committed once in its epoch, and each version has its events."""
    for task_id in task_ids:
        events = await crew.events(task_id)
        commits = Counter((e.stage, e.epoch) for e in events if isinstance(e, StageCompleted))
        assert set(commits.values()) == {1}, (task_id, commits)
        versions = [event.version for event in events]
        assert sorted(set(versions)) == list(range(1, max(versions) + 1)), (task_id, versions)


async def counted_losses(crew: Crew, task_ids: set[str]) -> list[LeaseLost]:
    return [
        event
        for task_id in task_ids
        for event in await crew.events(task_id)
        if isinstance(event, LeaseLost) and event.counted
    ]
