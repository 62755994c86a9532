"""Those who watch something live: one watcher for each kind serves them all, once a second.

However many watch, the store is looked at once a second for all of them together, and only those
are looked at closer, once for all their watchers, whose version has changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from holdfast.domain.errors import StoreError
from holdfast.domain.plain import plain_line
from holdfast.domain.plan.plan import Plan
from holdfast.domain.task.task import Task
from holdfast.engine import Holdfast
from holdfast.ports import Detail
from holdfast.server.http.problems import TooManyOfToken, TooManyStreams

log = logging.getLogger("holdfast.server")

LOOK_SECONDS = 1.0
PAGE = 500
CLOSER_AT_ONCE = 20
STREAMS_MAX = 400  # at once, of one process: half of its connections stay for others
STREAMS_OF_TOKEN_MAX = 50


class Versioned(Protocol):
    @property
    def version(self) -> int: ...


R = TypeVar("R", bound=Versioned)
D = TypeVar("D")


class _Seen(Generic[D]):
    def __init__(self) -> None:
        self.detail: D | None = None
        self.version: int | None = None  # of what was last looked at closer
        self.number = 0  # of the news; 0: not looked at yet
        self.watchers = 0
        self.news = asyncio.Event()

    def tell(self, detail: D | None) -> None:
        if self.number and detail == self.detail:
            return
        self.detail, self.number = detail, self.number + 1
        self.news.set()
        self.news = asyncio.Event()


class Feed(Generic[R, D]):
    def __init__(
        self,
        look: Callable[[Sequence[str]], Awaitable[Sequence[R | None]]],
        closer: Callable[[str, R], Awaitable[D | None]],
        *,
        moving: Callable[[R], bool],
    ) -> None:
        """``closer``: what its watchers are told of a record. ``moving``: it may have something new
        to tell without a new version."""
        self._look = look
        self._closer = closer
        self._moving = moving
        self._seen: dict[str, _Seen[D]] = {}
        self._watcher: asyncio.Task[None] | None = None

    @property
    def watched(self) -> int:
        return sum(seen.watchers for seen in self._seen.values())

    async def watch(self, record_id: str) -> AsyncGenerator[D | None, None]:
        """What was seen, at each change; None: it has gone. An outage is waited out."""
        with self._watching(record_id) as seen:
            told = 0
            while True:
                news = seen.news
                if seen.number != told:
                    told, detail = seen.number, seen.detail
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
                    await self._look_at_all()
                except StoreError as error:
                    log.warning("cannot look at what is watched: %s", plain_line(str(error)))
                except Exception:  # or they would wait for a watcher that is no more
                    log.exception("cannot look at what is watched")
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            self._watcher = None

    async def _look_at_all(self) -> None:
        ids, failed = list(self._seen), list[BaseException | None]()
        for start in range(0, len(ids), PAGE):
            page = ids[start : start + PAGE]
            found = dict(zip(page, await self._look(page), strict=True))
            news = [name for name, record in found.items() if self._is_news(name, record)]
            for first in range(0, len(news), CLOSER_AT_ONCE):
                some = news[first : first + CLOSER_AT_ONCE]
                failed += await asyncio.gather(
                    *(self._look_closer(name, found[name]) for name in some),
                    return_exceptions=True,  # one that cannot be read hides no other
                )
        if errors := [one for one in failed if one is not None]:
            raise errors[0]

    def _is_news(self, record_id: str, record: R | None) -> bool:
        if (seen := self._seen.get(record_id)) is None:
            return False  # nobody watches it any more
        return record is None or record.version != seen.version or self._moving(record)

    async def _look_closer(self, record_id: str, record: R | None) -> None:
        """Its version counts as looked at when that has succeeded, or nobody would look again."""
        detail = None if record is None else await self._closer(record_id, record)
        if (seen := self._seen.get(record_id)) is not None:
            seen.version = None if record is None else record.version
            seen.tell(detail)

    async def close(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)


class Room:
    """How many streams there are, of whatever kind, in all and of each token."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._by_token = Counter[str]()

    @property
    def taken(self) -> int:
        return self._by_token.total()

    def take(self, token_id: str) -> Callable[[], None]:
        """Call what is returned, once, to give it back."""
        if self.taken >= (limit := min(STREAMS_MAX, self._limit)):
            raise TooManyStreams(f"{limit} streams are open here already")
        if self._by_token[token_id] >= STREAMS_OF_TOKEN_MAX:
            raise TooManyOfToken(f"{STREAMS_OF_TOKEN_MAX} streams of this token are open already")
        self._by_token[token_id] += 1

        def leave() -> None:
            self._by_token[token_id] -= 1
            if not self._by_token[token_id]:
                del self._by_token[token_id]

        return leave


class Watch:
    def __init__(
        self, app: Holdfast, *, lag: Callable[[float], None], streams_max: int = STREAMS_MAX
    ) -> None:
        """``lag``: is told how long after it was committed news was sent."""
        self._lag = lag
        self._now = app.clock.now
        self.room = Room(streams_max)

        async def tasks(ids: Sequence[str]) -> Sequence[Task | None]:
            return await app.store.views.load(ids)

        async def detail(task_id: str, _: Task) -> Detail | None:
            return await app.store.views.detail(task_id)

        async def plans(ids: Sequence[str]) -> Sequence[Plan | None]:
            return await app.store.plans.load(ids)

        async def same(_: str, plan: Plan) -> Plan | None:
            return plan

        self.tasks = Feed[Task, Detail](tasks, detail, moving=lambda task: task.lease is not None)
        self.plans = Feed[Plan, Plan](plans, same, moving=lambda _: False)

    def note_lag(self, record: Task | Plan, seen: int | None) -> int:
        """How late its last change is told; ``seen``: the version told before. None: the stream has
        just begun, and what happened before that is history, not late. Answers what is seen now."""
        if seen is not None and record.version > seen:
            self._lag(max(0.0, self._now() - record.updated_at))
        return record.version

    async def close(self) -> None:
        await self.tasks.close()
        await self.plans.close()
