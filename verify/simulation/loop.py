"""An event loop on virtual time, with processes that can be stopped, gone on with and killed.

Written here because the standard loops wait for real sockets and know no processes: here each
callback belongs to the process that set it up (its context says which), so that freezing or
killing one is total, and the same program runs in the same order every time.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any, TypeVar, TypeVarTuple, Unpack

from holdfast.testing.clock import START_NOW, START_STEADY

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

TASKS_KEPT = 500


class Process:
    """The process that SIGSTOP, SIGCONT and SIGKILL act on."""

    def __init__(self, name: str, loop: VirtualLoop) -> None:
        self.name = name
        self.loop = loop
        self.alive = True
        self.frozen = False
        self.thawed_at = float("-inf")
        self.died_at = float("inf")
        self.trouble_until = float("-inf")
        self.clock = VirtualClock(loop)
        self._stalled: list[asyncio.Handle] = []

    def start(self, main: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        context = self.loop.outside.copy()
        context.run(_process.set, self)
        return self.loop.create_task(main, context=context)

    def freeze(self) -> None:
        self.frozen = True

    def thaw(self) -> None:
        """Let everything that came due meanwhile happen now, in the order in which it came due."""
        self.frozen = False
        self.thawed_at = self.loop.time()
        self.loop.enqueue(self, self._stalled)
        self._stalled = []

    def kill(self) -> None:
        self.alive = False
        self.died_at = min(self.died_at, self.loop.time())
        self._stalled = []

    def stall(self, handle: asyncio.Handle) -> None:
        self._stalled.append(handle)


_process: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


class VirtualLoop(asyncio.AbstractEventLoop):
    """Time moves only when nothing is left to do at the present moment."""

    def __init__(self) -> None:
        self.outside = contextvars.Context()  # of no process: the network, the store, fate
        self.errors: list[str] = []
        self.turns = 0
        self._time = START_STEADY
        self._ready: deque[tuple[Process | None, asyncio.Handle]] = deque()
        self._timers: list[tuple[float, int, Process | None, asyncio.TimerHandle]] = []
        self._numbers = count()
        self._tasks: list[asyncio.Task[Any]] = []
        self._stopping = False

    # -- running

    def run(self, main: asyncio.Task[T], *, turns_limit: int) -> None:
        """Run until ``main`` is done or `stop` is called."""
        self._stopping = False
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            while not self._stopping and not main.done():
                self._turn()
                if self.turns > turns_limit:
                    raise RuntimeError(f"the simulation did not end within {turns_limit} turns")
        finally:
            asyncio._set_running_loop(before)

    def stop(self) -> None:
        self._stopping = True

    def _turn(self) -> None:
        if not self._ready:
            self._move_time()
        for _ in range(len(self._ready)):
            process, handle = self._ready.popleft()
            if handle.cancelled() or (process is not None and not process.alive):
                continue
            if process is not None and process.frozen:
                process.stall(handle)
                continue
            self.turns += 1
            handle._run()
            if self._stopping:
                return

    def _move_time(self) -> None:
        timers = self._timers
        while timers and timers[0][3].cancelled():
            heapq.heappop(timers)
        if not timers:
            raise RuntimeError("the simulation stands still: nothing is left that could happen")
        self._time = max(self._time, timers[0][0])
        while timers and timers[0][0] <= self._time:
            _, _, process, handle = heapq.heappop(timers)
            self._ready.append((process, handle))

    def enqueue(self, process: Process, handles: list[asyncio.Handle]) -> None:
        self._ready.extend((process, handle) for handle in handles)

    def close(self) -> None:
        """Drop what still hangs, without a word: its process was killed or the world ends."""
        for task in self._tasks:
            if task.done():
                continue
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine = task.get_coro()
            assert coroutine is not None
            try:
                self.outside.run(coroutine.close)
            except (RuntimeError, ValueError):
                continue  # it wanted to await on its way out
        self._tasks, self._timers = [], []
        self._ready.clear()

    # -- what asyncio asks of a loop

    def time(self) -> float:
        return self._time

    def call_soon(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append((_owner(context), handle))
        return handle

    def call_soon_threadsafe(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._time + max(0.0, delay), callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), _owner(context), handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Any, *, name: str | None = None, context: Any = None
    ) -> asyncio.Task[Any]:
        if len(self._tasks) > TASKS_KEPT:
            self._tasks = [task for task in self._tasks if not task.done()]
        task = asyncio.Task(coro, loop=self, name=name or "", context=context)
        self._tasks.append(task)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.errors.append(f"{context.get('message')}: {error!r}")
        self.stop()

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass


class VirtualClock:
    """The Clock port. The wall clock may be set; the steady one is the loop's."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.offset_seconds = 0.0

    def now(self) -> float:
        now = START_NOW - START_STEADY + self._loop.time() + self.offset_seconds
        return round(now, 6)  # Redis stores times to the microsecond

    def steady(self) -> float:
        return self._loop.time()

    def call_later(self, seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(seconds, call)


def _owner(context: contextvars.Context | None) -> Process | None:
    return _process.get() if context is None else context.get(_process)
