"""Threads run plain functions. A thread cannot be stopped: its slot is kept until it returns."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any, Protocol

from holdfast.runtime.worker.forks import Forks, end_child


class Raised(Exception):
    """Carries an error that a future or a coroutine cannot: StopIteration, and what is no
    Exception and would end the event loop."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


class Threads(Protocol):
    async def run(self, call: Callable[[], Any]) -> Any:
        """Return or raise what the function does; a cancel while it runs takes effect after it."""


class DaemonThreads:
    """A pool of one thread per call: the worker's slots are the bound, and the interpreter may exit
    while one hangs, which the standard pool does not allow."""

    async def run(self, call: Callable[[], Any]) -> Any:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        context, began_in = contextvars.copy_context(), Forks.generation

        def work() -> None:
            value: Any = None
            error: BaseException | None = None
            try:
                value = context.run(call)
            except BaseException as raised:
                error = raised
            if Forks.generation != began_in:
                end_child(error)
            if not loop.is_closed():
                loop.call_soon_threadsafe(_settle, future, value, error)

        threading.Thread(target=work, name="holdfast-stage", daemon=True).start()
        return await _until_done(future)


async def _until_done(future: asyncio.Future[Any]) -> Any:
    """Wait for the thread; the first cancel is ours and waits, the second is the loop's own end."""
    interrupted: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError as error:
            if interrupted is not None:
                raise
            interrupted = error
        except BaseException:
            break
    if interrupted is not None:
        future.exception()
        raise interrupted
    return future.result()


def _settle(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    elif isinstance(error, Exception) and not isinstance(error, StopIteration):
        future.set_exception(error)
    else:
        future.set_exception(Raised(error))
