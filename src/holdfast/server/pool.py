"""Worker processes of this service, which an operator may ask for more or fewer of.

They write where the service writes, on its standard error. Each holds the end of a pipe that only
the service keeps open: when the service is killed, they drain and end, too.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from holdfast.domain.backoff import doubled_seconds
from holdfast.domain.errors import InvalidInput, Refused
from holdfast.insight.views.tasks import at
from holdfast.insight.views.workers import PoolView, ProcessState, ProcessView

log = logging.getLogger("holdfast.server.pool")

LIMIT = 1000  # that settings may allow
USUAL_LIMIT = 32
STOP_SECONDS = 40.0  # a worker drains within thirty by default
STEADY_SECONDS = 60.0  # who has lived so long is not in a row of deaths
AGAIN_SECONDS = (0.5, 60.0)  # doubled from death to death
STDERR = 2


class NoPool(Refused, stored_name="NoPool"):
    code = "no-pool"

    def __init__(self, why: str = "") -> None:
        super().__init__(
            why
            or "this service has no worker processes of its own: `holdfast serve` has; "
            "here start `holdfast worker` yourself"
        )


class Pool:
    """The worker processes that this service starts and stops."""

    def __init__(
        self,
        command: Sequence[str] | None = None,
        *,
        limit: int = USUAL_LIMIT,
        stop_seconds: float = STOP_SECONDS,
        again_seconds: tuple[float, float] = AGAIN_SECONDS,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Make a pool; ``command`` starts one process, and without it there is nothing to scale."""
        self._command = command
        self._limit = limit
        self.stop_seconds = stop_seconds
        self.again_seconds = again_seconds
        self.now = now
        self._members: list[_Member] = []
        self._scaling = asyncio.Lock()
        self._is_closed = False

    def state(self) -> PoolView:
        return {
            "wanted": len(self._wanted_members()),
            "limit": self._limit if self._command is not None else 0,
            "processes": [member.state() for member in self._members],
        }

    async def scale(self, wanted: int) -> PoolView:
        """Start so many more, or stop the newest; those finish what they run."""
        if self._command is None:
            raise NoPool
        if not 0 <= wanted <= self._limit:
            raise InvalidInput(f"processes: {wanted} is not between 0 and {self._limit}")
        async with self._scaling:
            if self._is_closed:
                raise Refused("the service stops")
            for member in self._wanted_members()[wanted:]:
                member.stop()
            while len(self._wanted_members()) < wanted:
                await self._start(self._command)
        return self.state()

    def hurry(self) -> None:
        """Let the draining processes give their tasks back at once."""
        for member in self._members:
            member.hurry()

    async def close(self) -> None:
        self._is_closed = True
        async with self._scaling:
            for member in self._members:
                member.stop()
        await asyncio.gather(*(member.life for member in self._members), return_exceptions=True)

    def _wanted_members(self) -> list[_Member]:
        return [member for member in self._members if not member.is_stopping]

    async def _start(self, command: Sequence[str]) -> None:
        member = _Member(self, command)
        self._members.append(member)
        member.life.add_done_callback(lambda _: self._members.remove(member))
        await member.is_started.wait()


class _Member:
    """One place in the pool: a process, and after its death the next."""

    def __init__(self, pool: Pool, command: Sequence[str]) -> None:
        self._pool = pool
        self._command = command
        self._stopping = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._started_at: float | None = None
        self._restarts = 0
        self.is_started = asyncio.Event()  # tried, at least
        self.life = asyncio.create_task(self._live())

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set() or self.life.done()

    def stop(self) -> None:
        self._stopping.set()

    def hurry(self) -> None:
        if self._stopping.is_set() and self._process is not None:
            _signal(self._process, signal.SIGTERM)

    def state(self) -> ProcessView:
        state = ProcessState.ALIVE if self._process else ProcessState.WAITING
        return {
            "pid": self._process.pid if self._process else None,
            "state": ProcessState.STOPPING if self._stopping.is_set() else state,
            "startedAt": at(self._started_at),
            "restarts": self._restarts,
        }

    async def _live(self) -> None:
        deaths = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            code = await self._one_life()
            if self._stopping.is_set():
                return
            if code == 0:  # a person has drained it
                log.info("a worker process was drained, and is not replaced")
                return
            deaths = 0 if time.monotonic() - began >= STEADY_SECONDS else deaths + 1
            await self._rest(code, deaths)
            self._restarts += 1

    async def _rest(self, code: int, deaths: int) -> None:
        pause = doubled_seconds(self._pool.again_seconds, max(0, deaths - 1))
        log.error("a worker process died (%d); the next starts in %.1f s", code, pause)
        await asyncio.wait((stop := asyncio.ensure_future(self._stopping.wait()),), timeout=pause)
        stop.cancel()

    async def _one_life(self) -> int:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,  # the tether: closed by our end, however we end
                stdout=STDERR,
                start_new_session=True,  # Ctrl-C is for the service, which passes on one signal
            )
        except OSError as error:
            log.error("a worker process cannot be started: %s", error)
            return -1
        finally:
            self.is_started.set()
        self._process, self._started_at = process, self._pool.now()
        log.info("worker process %d has started", process.pid)
        try:
            return await self._until_ended(process)
        finally:
            self._process = self._started_at = None
            if process.returncode is None:
                _signal(process, signal.SIGKILL)

    async def _until_ended(self, process: asyncio.subprocess.Process) -> int:
        ended = asyncio.ensure_future(process.wait())
        stop = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((ended, stop), return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                _signal(process, signal.SIGTERM)
                await asyncio.wait((ended,), timeout=self._pool.stop_seconds)
            if not ended.done():
                log.error("worker process %d does not end; it is killed", process.pid)
                _signal(process, signal.SIGKILL)
            return await ended
        finally:
            stop.cancel()
            ended.cancel()


def _signal(process: asyncio.subprocess.Process, number: int) -> None:
    with suppress(ProcessLookupError):  # it has just ended
        process.send_signal(number)
