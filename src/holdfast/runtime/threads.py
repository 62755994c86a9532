"""Plain functions, in threads. A thread cannot be stopped: its slot is kept until it returns."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any, Protocol


class Threads(Protocol):
    async def run(self, call: Callable[[], Any]) -> Any:
        """The function's return or exception; a cancel while it runs takes effect after it."""


class DaemonThreads:
    """One thread per call: the worker's slots are the bound, and the interpreter may exit
    while one hangs, which the standard pool does not allow."""

    async def run(self, call: Callable[[], Any]) -> Any:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()

        def work() -> None:
            try:
                value, error = context.run(call), None
            except BaseException as raised:
                value, error = None, raised
            if not loop.is_closed():
                loop.call_soon_threadsafe(_settle, future, value, error)

        threading.Thread(target=work, name="holdfast-stage", daemon=True).start()
        return await _until_done(future)


async def _until_done(future: asyncio.Future[Any]) -> Any:
    """The first cancel is ours, and waits; the second is the loop's own end, and does not."""
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
    elif isinstance(error, StopIteration) or not isinstance(error, Exception | SystemExit):
        # A future cannot carry the one, and the others would end the whole process.
        said = RuntimeError(f"the function raised {type(error).__name__}: {error}")
        said.__cause__ = error
        future.set_exception(said)
    else:
        future.set_exception(error)
