"""Waiting, by the Clock port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from math import inf

from holdfast.ports import Clock, Timer
from holdfast.runtime.worker.running_task import RunningTask

EARLY_SECONDS = 0.001  # a loop's timer may ring so much before its time


async def sleep(clock: Clock, seconds: float) -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer = clock.call_later(seconds, lambda: None if future.done() else future.set_result(None))
    try:
        await future
    finally:
        timer.cancel()


async def wait_for_all(clock: Clock, tasks: Sequence[asyncio.Task[None]], seconds: float) -> None:
    """Wait until all of them are done, but no longer than that."""
    if not tasks:
        return
    timer = asyncio.create_task(sleep(clock, seconds))
    all_done = asyncio.create_task(_wait(tasks))
    await asyncio.wait((timer, all_done), return_when=asyncio.FIRST_COMPLETED)
    for task in (timer, all_done):
        task.cancel()
    await asyncio.gather(timer, all_done, return_exceptions=True)


async def _wait(tasks: Sequence[asyncio.Task[None]]) -> None:
    await asyncio.wait(tasks)


@asynccontextmanager
async def deadline(clock: Clock, seconds: float) -> AsyncIterator[None]:
    """Cancels what is inside after ``seconds`` and raises TimeoutError.

    `asyncio.timeout` by the port's clock, so that tests can move it.
    """
    task = asyncio.current_task()
    assert task is not None
    expired = False

    def expire() -> None:
        nonlocal expired
        expired = True
        task.cancel()

    cancelled_before = task.cancelling()
    timer = clock.call_later(seconds, expire)
    try:
        yield
    except asyncio.CancelledError:
        if expired and task.uncancel() <= cancelled_before:
            raise TimeoutError from None
        raise
    except BaseException:
        if expired:
            task.uncancel()
        raise
    else:
        if expired:  # what is inside has swallowed the cancel
            task.uncancel()
            raise TimeoutError
    finally:
        timer.cancel()


class Deadlines:
    """The ends of a worker's stages, under one timer: it is set for the first that may be due.

    A stage that ends in time costs nothing more; the timer rings all the same, once, and is set
    for the first of those that run then.
    """

    def __init__(self, clock: Clock, running: Callable[[], Iterable[RunningTask]]) -> None:
        self._clock = clock
        self._running = running
        self._rings_at = inf
        self._timer: Timer | None = None

    def begin(self, held: RunningTask, ends: float) -> None:
        held.ends = ends
        if ends < self._rings_at:
            self._set(ends)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _set(self, rings_at: float) -> None:
        self.close()
        seconds = max(0.0, rings_at - self._clock.steady())
        self._rings_at, self._timer = rings_at, self._clock.call_later(seconds, self._ring)

    def _ring(self) -> None:
        self._rings_at, due = inf, self._clock.steady() + EARLY_SECONDS
        for held in self._running():
            if held.ends <= due:
                held.time_is_up()
        first = min((held.ends for held in self._running()), default=inf)
        if first < inf:
            self._set(first)
