"""Group commit: while one write is under way, the next ones gather behind it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

BATCH_LIMIT = 200


class Gather(Generic[T, R]):
    """Sends single items in batches: no added latency when idle, hundreds at once under load.

    A failed batch fails each of its items; to try again is the caller's business.
    """

    def __init__(self, send: Callable[[Sequence[T]], Awaitable[Sequence[R]]]) -> None:
        self._send = send
        self._waiting: deque[tuple[T, asyncio.Future[R]]] = deque()
        self._sender: asyncio.Task[None] | None = None

    async def __call__(self, item: T) -> R:
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._sender is None:
            self._sender = asyncio.create_task(self._send_all())
        return await future

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                count = min(len(self._waiting), BATCH_LIMIT)
                await self._send_batch([self._waiting.popleft() for _ in range(count)])
        finally:
            self._sender = None

    async def _send_batch(self, batch: list[tuple[T, asyncio.Future[R]]]) -> None:
        wanted = [(item, future) for item, future in batch if not future.cancelled()]
        if not wanted:
            return
        try:
            answers = await self._send([item for item, _ in wanted])
        except BaseException as error:
            for _, future in wanted:
                if not future.done():
                    future.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        for (_, future), answer in zip(wanted, answers, strict=True):
            if not future.done():
                future.set_result(answer)
