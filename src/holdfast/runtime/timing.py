"""Waiting, by the Clock port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.ports import Clock


async def sleep(clock: Clock, seconds: float) -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer = clock.call_later(seconds, lambda: None if future.done() else future.set_result(None))
    try:
        await future
    finally:
        timer.cancel()


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
