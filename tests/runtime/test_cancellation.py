"""Cancelling tasks of the event loop: nothing that they raise comes out."""

import asyncio
from typing import Any

from holdfast.runtime.cancellation import cancel_and_wait


async def test_every_task_has_ended_whatever_it_raised() -> None:
    async def fail_when_cancelled() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ZeroDivisionError

    tasks: list[asyncio.Task[Any]] = [
        asyncio.create_task(asyncio.Event().wait()),
        asyncio.create_task(fail_when_cancelled()),
    ]
    await asyncio.sleep(0)
    await cancel_and_wait(tasks[0], None, tasks[1])
    assert tasks[0].cancelled()
    assert isinstance(tasks[1].exception(), ZeroDivisionError)


async def test_there_may_be_no_task() -> None:
    await cancel_and_wait(None)
