"""Sleeps, pauses and deadlines by the Clock port, so that tests can move them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from holdfast.domain.backoff import doubled_seconds, shorten
from holdfast.domain.durations import seconds as read_seconds
from holdfast.domain.errors import ResultTimeout
from holdfast.ports import Clock

T = TypeVar("T")

TRY_AGAIN_SECONDS = (0.05, 1.0)


async def sleep(clock: Clock, seconds: float) -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer = clock.call_later(seconds, lambda: None if future.done() else future.set_result(None))
    try:
        await future
    finally:
        timer.cancel()


async def wait_for_all(clock: Clock, tasks: Sequence[asyncio.Task[None]], seconds: float) -> None:
    """Wait until all tasks are done, but no longer than ``seconds``."""
    if tasks:
        with suppress(TimeoutError):
            async with deadline(clock, seconds):
                await asyncio.wait(tasks)


async def back_off(clock: Clock, chance: random.Random, tries: int) -> None:
    """Pause before a call of the store is tried again, longer after each failure."""
    await sleep(clock, shorten(doubled_seconds(TRY_AGAIN_SECONDS, tries), chance.random()))


async def wait_within(
    clock: Clock, timeout: float | str | None, what: str, wait: Callable[[], Awaitable[T]]
) -> T:
    """Return what ``wait`` waits for; raise ResultTimeout about ``what`` if not in time."""
    if timeout is None:
        return await wait()
    limit = read_seconds(timeout)
    try:
        async with deadline(clock, limit):
            return await wait()
    except TimeoutError:
        raise ResultTimeout(what, limit) from None


@asynccontextmanager
async def deadline(clock: Clock, seconds: float) -> AsyncIterator[None]:
    """Cancel what is inside after ``seconds`` and raise TimeoutError, as `asyncio.timeout` does."""
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
