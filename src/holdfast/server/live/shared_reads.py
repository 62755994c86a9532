"""One read serves all who ask for the same at once, and those who ask soon after."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from holdfast.runtime.cancellation import cancel_and_wait

T = TypeVar("T")
Reading = Callable[[], Coroutine[Any, Any, T]]
KEPT = 256  # reads that have ended; those under way are as many as there are requests


class _Read:
    def __init__(self, task: asyncio.Task[Any], began: float) -> None:
        self.task = task
        self.began = began
        self.until: float | None = None  # None: it is under way

    def serves(self, now: float) -> bool:
        return self.until is None or now < self.until


class SharedReads:
    """The reads that one process shares: at most a few, old ones make room for new ones."""

    def __init__(self, steady: Callable[[], float]) -> None:
        self._steady = steady
        self._by_name: dict[str, _Read] = {}

    async def get(self, name: str, read: Reading[T], *, fresh_seconds: float) -> T:
        """Return what was read at most so long ago. A read that took longer counts for as long as
        it took, so that at most half of the time goes into reading. An exception is not kept."""
        shared = self._by_name.get(name)
        if shared is None or not shared.serves(self._steady()):
            shared = self._begin(name, read, fresh_seconds)
        value: T = await asyncio.shield(shared.task)  # one who gives up takes it from no other
        return value

    def forget(self, name: str) -> None:
        """Drop a read, because what it read was changed: the next caller reads anew."""
        self._by_name.pop(name, None)

    @property
    def kept(self) -> int:
        return len(self._by_name)

    def _make_room(self) -> None:
        """Drop the oldest reads that have ended, so that at most ``KEPT`` of them stay."""
        excess = len(self._by_name) - KEPT + 1
        if excess <= 0:
            return
        ended = [name for name, read in self._by_name.items() if read.until is not None]
        for name in ended[:excess]:
            del self._by_name[name]

    def _begin(self, name: str, read: Reading[Any], fresh_seconds: float) -> _Read:
        shared = _Read(asyncio.create_task(read()), self._steady())

        def set_expiry(task: asyncio.Task[Any]) -> None:
            now = self._steady()
            failed = task.cancelled() or task.exception() is not None
            shared.until = now if failed else now + max(fresh_seconds, now - shared.began)

        shared.task.add_done_callback(set_expiry)
        self._by_name.pop(name, None)  # the new one is the youngest
        self._make_room()
        self._by_name[name] = shared
        return shared

    async def close(self) -> None:
        await cancel_and_wait(*(read.task for read in self._by_name.values()))
