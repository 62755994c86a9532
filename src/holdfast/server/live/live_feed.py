"""A live feed reads the records that streams show once a second, for all streams together.

However many watch, the store is polled once a second for all of them. The details of a record are
loaded once for all its watchers, and only when its version has changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from holdfast.domain.errors import StoreError
from holdfast.domain.plain import plain_line
from holdfast.domain.plan.plan import Plan
from holdfast.domain.task.task import Task
from holdfast.engine import Holdfast
from holdfast.ports import Detail
from holdfast.runtime.cancellation import cancel_and_wait

log = logging.getLogger("holdfast.server")

POLL_SECONDS = 1.0
PAGE = 500
DETAILS_AT_ONCE = 20


class Versioned(Protocol):
    @property
    def version(self) -> int: ...


R = TypeVar("R", bound=Versioned)
D = TypeVar("D")


class _Seen(Generic[D]):
    def __init__(self) -> None:
        self.detail: D | None = None
        self.version: int | None = None  # of the detail that was loaded last
        self.number = 0  # of the news; 0: not loaded yet
        self.watchers = 0
        self.news = asyncio.Event()

    def publish(self, detail: D | None) -> None:
        if self.number and detail == self.detail:
            return
        self.detail, self.number = detail, self.number + 1
        self.news.set()
        self.news = asyncio.Event()


class LiveFeed(Generic[R, D]):
    """The watchers of one kind of record."""

    def __init__(
        self,
        load: Callable[[Sequence[str]], Awaitable[Sequence[R | None]]],
        load_detail: Callable[[str, R], Awaitable[D | None]],
        *,
        moving: Callable[[R], bool],
    ) -> None:
        """Make a feed; ``load_detail`` returns what the watchers of a record are shown, and
        ``moving`` whether a record may have news without a new version."""
        self._load = load
        self._load_detail = load_detail
        self._moving = moving
        self._seen: dict[str, _Seen[D]] = {}
        self._watcher: asyncio.Task[None] | None = None

    @property
    def watched(self) -> int:
        return sum(seen.watchers for seen in self._seen.values())

    async def watch(self, record_id: str) -> AsyncGenerator[D | None, None]:
        """Yield the details at each change; None: the record is gone. An outage is waited out."""
        with self._watching(record_id) as seen:
            shown = 0  # the number of the news that was yielded last
            while True:
                news = seen.news
                if seen.number != shown:
                    shown, detail = seen.number, seen.detail
                    yield detail
                    if detail is None:
                        return
                await news.wait()

    @contextmanager
    def _watching(self, record_id: str) -> Iterator[_Seen[D]]:
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
                    await self._poll()
                except StoreError as error:
                    log.warning("the watched records cannot be read: %s", plain_line(str(error)))
                except Exception:  # or they would wait for a watcher that is no more
                    log.exception("the watched records cannot be read")
                await asyncio.sleep(POLL_SECONDS)
        finally:
            self._watcher = None

    async def _poll(self) -> None:
        ids, failed = list(self._seen), list[BaseException | None]()
        for start in range(0, len(ids), PAGE):
            page = ids[start : start + PAGE]
            found = dict(zip(page, await self._load(page), strict=True))
            news = [name for name, record in found.items() if self._is_news(name, record)]
            for first in range(0, len(news), DETAILS_AT_ONCE):
                some = news[first : first + DETAILS_AT_ONCE]
                failed += await asyncio.gather(
                    *(self._load_one(name, found[name]) for name in some),
                    return_exceptions=True,  # one that cannot be read hides no other
                )
        if errors := [one for one in failed if one is not None]:
            raise errors[0]

    def _is_news(self, record_id: str, record: R | None) -> bool:
        if (seen := self._seen.get(record_id)) is None:
            return False  # nobody watches it any more
        return record is None or record.version != seen.version or self._moving(record)

    async def _load_one(self, record_id: str, record: R | None) -> None:
        """Load a record's details; its version counts as seen only when that has succeeded."""
        detail = None if record is None else await self._load_detail(record_id, record)
        if (seen := self._seen.get(record_id)) is not None:
            seen.version = None if record is None else record.version
            seen.publish(detail)

    async def close(self) -> None:
        await cancel_and_wait(self._watcher)


class LiveFeeds:
    """The feeds of tasks and of plans."""

    def __init__(self, app: Holdfast, *, lag: Callable[[float], None]) -> None:
        """Call ``lag`` with the seconds between the commit of a change and its sending."""
        self._lag = lag
        self._now = app.clock.now

        async def tasks(ids: Sequence[str]) -> Sequence[Task | None]:
            return await app.store.views.load(ids)

        async def detail(task_id: str, _: Task) -> Detail | None:
            return await app.store.views.detail(task_id)

        async def plans(ids: Sequence[str]) -> Sequence[Plan | None]:
            return await app.store.plans.load(ids)

        async def plan_itself(_: str, plan: Plan) -> Plan | None:
            return plan

        self.tasks = LiveFeed[Task, Detail](
            tasks, detail, moving=lambda task: task.lease is not None
        )
        self.plans = LiveFeed[Plan, Plan](plans, plan_itself, moving=lambda _: False)

    def note_lag(self, record: Task | Plan, seen: int | None) -> int:
        """Report how late a change is shown, and return the version that is seen now. ``seen`` is
        the version shown before; None: the stream has just begun, and earlier changes are not late.
        """
        if seen is not None and record.version > seen:
            self._lag(max(0.0, self._now() - record.updated_at))
        return record.version

    async def close(self) -> None:
        await self.tasks.close()
        await self.plans.close()
