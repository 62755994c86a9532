"""Wake-ups inside a process: a counter per topic, and those who wait for it to move."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from contextlib import suppress

from holdfast.ports import Clock, Topic


class Signals:
    """`notify` may be called from any thread; waiters may be on any loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._count: Counter[Topic] = Counter()
        self._waiting: dict[Topic, dict[asyncio.Future[None], asyncio.AbstractEventLoop]] = {
            topic: {} for topic in Topic
        }

    def ticket(self, topic: Topic) -> int:
        return self._count[topic]

    def notify(self, topic: Topic) -> None:
        with self._lock:
            self._count[topic] += 1
            woken, self._waiting[topic] = self._waiting[topic], {}
        for future, loop in woken.items():
            with suppress(RuntimeError):  # its loop was closed: nobody is left to be woken
                loop.call_soon_threadsafe(_resolve, future)

    async def wait(self, topic: Topic, ticket: int, *, timeout: float) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._lock:
            if self._count[topic] != ticket:
                return
            self._waiting[topic][future] = loop
        timer = self._clock.call_later(timeout, lambda: _resolve(future))
        try:
            await future
        finally:
            timer.cancel()
            with self._lock:
                self._waiting[topic].pop(future, None)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
