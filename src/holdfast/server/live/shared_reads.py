"""One read serves all who ask for the same at once, and those who ask soon after."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")
KEPT = 256  # looks that have ended; those under way are as many as there are requests


class _Look:
    def __init__(self, task: asyncio.Task[Any], began: float) -> None:
        self.task = task
        self.began = began
        self.until: float | None = None  # None: it is under way

    def serves(self, now: float) -> bool:
        return self.until is None or now < self.until


class SharedReads:
    """The looks that one process shares: at most a few, old ones make room for new ones."""

    def __init__(self, steady: Callable[[], float]) -> None:
        self._steady = steady
        self._by_name: dict[str, _Look] = {}

    async def get(self, name: str, look: Callable[[], Awaitable[T]], *, fresh_seconds: float) -> T:
        """Return what was read at most so long ago. A read that took longer counts for as long as
        it took, so that at most half of the time goes into reading. An exception is not kept."""
        found = self._by_name.get(name)
        if found is None or not found.serves(self._steady()):
            found = self._begin(name, look, fresh_seconds)
        told: T = await asyncio.shield(found.task)  # one who gives up takes it from no other
        return told

    def forget(self, name: str) -> None:
        """Something was changed; who asks now looks anew."""
        self._by_name.pop(name, None)

    @property
    def kept(self) -> int:
        return len(self._by_name)

    def _make_room(self) -> None:
        """Drop the oldest looks that have ended, so that at most ``KEPT`` of them stay."""
        excess = len(self._by_name) - KEPT + 1
        if excess <= 0:
            return
        ended = [name for name, look in self._by_name.items() if look.until is not None]
        for name in ended[:excess]:
            del self._by_name[name]

    def _begin(self, name: str, look: Callable[[], Awaitable[Any]], fresh_seconds: float) -> _Look:
        made = _Look(asyncio.create_task(_await(look)), self._steady())

        def ended(task: asyncio.Task[Any]) -> None:
            now = self._steady()
            failed = task.cancelled() or task.exception() is not None
            made.until = now if failed else now + max(fresh_seconds, now - made.began)

        made.task.add_done_callback(ended)
        self._by_name.pop(name, None)  # the new one is the youngest
        self._make_room()
        self._by_name[name] = made
        return made

    async def close(self) -> None:
        looks = [look.task for look in self._by_name.values()]
        for look in looks:
            look.cancel()
        await asyncio.gather(*looks, return_exceptions=True)


async def _await(look: Callable[[], Awaitable[T]]) -> T:
    return await look()
