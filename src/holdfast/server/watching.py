"""Those who watch something live: one watcher for each kind serves them all, once a second.

However many watch, the store is looked at once a second for all of them together, and only those
are looked at closer whose version has changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from holdfast.app import Holdfast
from holdfast.domain.errors import StoreError
from holdfast.domain.plan import Plan
from holdfast.domain.task import Task
from holdfast.server.problems import TooManyStreams

log = logging.getLogger("holdfast.server")

LOOK_SECONDS = 1.0
PAGE = 500
STREAMS_MAX = 1000  # at once, of one process


class Versioned(Protocol):
    @property
    def version(self) -> int: ...


R = TypeVar("R", bound=Versioned)


class _Seen(Generic[R]):
    def __init__(self) -> None:
        self.record: R | None = None
        self.looks = 0  # how often it was looked at
        self.watchers = 0
        self.news = asyncio.Event()


class Feed(Generic[R]):
    def __init__(
        self,
        look: Callable[[Sequence[str]], Awaitable[Sequence[R | None]]],
        *,
        moving: Callable[[R], bool],
    ) -> None:
        """``moving``: it may have something new to tell without a new version."""
        self._look = look
        self._moving = moving
        self._seen: dict[str, _Seen[R]] = {}
        self._watcher: asyncio.Task[None] | None = None

    @property
    def watched(self) -> int:
        return sum(seen.watchers for seen in self._seen.values())

    async def watch(self, record_id: str) -> AsyncIterator[R | None]:
        """The record at each change that was seen; None: it has gone. An outage is waited out."""
        with self._watching(record_id) as seen:
            told: int | None = None
            while True:
                news = seen.news
                record = seen.record
                if seen.looks and (
                    record is None or record.version != told or self._moving(record)
                ):
                    told = record.version if record is not None else None
                    yield record
                    if record is None:
                        return
                await news.wait()

    @contextmanager
    def _watching(self, record_id: str):  # type: ignore[no-untyped-def]
        seen = self._seen.setdefault(record_id, _Seen())
        seen.watchers += 1
        if self._watcher is None:
            self._watcher = asyncio.create_task(self._run())
        try:
            yield seen
        finally:
            seen.watchers -= 1
            if not seen.watchers:
                self._seen.pop(record_id, None)

    async def _run(self) -> None:
        try:
            while self._seen:
                try:
                    await self._look_at_all()
                except StoreError as error:
                    log.warning("cannot look at what is watched: %s", error)
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            self._watcher = None

    async def _look_at_all(self) -> None:
        ids = list(self._seen)
        for start in range(0, len(ids), PAGE):
            page = ids[start : start + PAGE]
            for record_id, record in zip(page, await self._look(page), strict=True):
                if (seen := self._seen.get(record_id)) is not None:
                    seen.record, seen.looks = record, seen.looks + 1
                    seen.news.set()
                    seen.news = asyncio.Event()

    async def close(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)


class Watch:
    def __init__(self, app: Holdfast, *, lag: Callable[[float], None]) -> None:
        """``lag``: is told how long after it happened an event was sent."""
        self.lag = lag

        async def tasks(ids: Sequence[str]) -> Sequence[Task | None]:
            return await app.store.load(ids)

        async def plans(ids: Sequence[str]) -> Sequence[Plan | None]:
            return await app.store.plans.find(ids)

        self.tasks = Feed[Task](tasks, moving=lambda task: task.lease is not None)
        self.plans = Feed[Plan](plans, moving=lambda _: False)

    def check_room(self) -> None:
        if self.tasks.watched + self.plans.watched >= STREAMS_MAX:
            raise TooManyStreams(f"{STREAMS_MAX} streams are open here already")

    async def close(self) -> None:
        await self.tasks.close()
        await self.plans.close()
