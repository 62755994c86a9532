"""The system resolves names here, each in a thread of its own.

A pool would not do: lookups that hang on a slow name server would take its threads, and it waits
for them when the process ends.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

UNDER_WAY_MAX = 128  # in this process: a thread cannot be stopped, and counts until it returns

_room = threading.BoundedSemaphore(UNDER_WAY_MAX)


class CannotResolveNow(OSError):
    """The lookup has no free slot; the name itself may be fine."""


async def addresses_of(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[list[str]] = loop.create_future()

    def settle(found: list[str], error: Exception | None) -> None:
        if future.done():  # nobody waits any more
            return
        if error is None:
            future.set_result(found)
        else:
            future.set_exception(error)

    def work() -> None:
        found, error = list[str](), None
        try:
            found = _ask_system(host, port)
        except Exception as raised:
            error = raised
        finally:
            _room.release()
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, found, error)

    _start(work)
    return await future


def _start(work: Callable[[], None]) -> None:
    if not _room.acquire(blocking=False):
        raise CannotResolveNow("too many lookups are waiting for an answer")
    try:
        threading.Thread(target=work, name="holdfast-resolver", daemon=True).start()
    except RuntimeError:
        _room.release()
        raise CannotResolveNow("the system cannot start a thread") from None


def _ask_system(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]
