"""Views of large bodies, made in a thread: to hide secrets in a megabyte takes seconds, and others
are answered meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from fastapi import Response

from holdfast.ports import Detail
from holdfast.server.auth.access import Caller, TooManyRequests
from holdfast.server.http.problems import RETRY_SECONDS, Overloaded
from holdfast.server.http.quotas import Quota
from holdfast.server.openapi import schemas as sc

ASIDE_BYTES = 16 * 1024  # a smaller body is shown at once
AT_ONCE = 2  # threads, of all tokens
ASKED_FOR_MAX = 64  # in all, those that wait for a thread included
ASKED_FOR_OF_TOKEN = 4
READS_AT_ONCE = 64  # tasks that are read whole out of the store, at some megabytes each
READ_WAIT_SECONDS = 5.0  # for one of these places: a store that is away gives none back for long

T = TypeVar("T")
View = Callable[[], Mapping[str, Any]]


class LargeViews:
    """A token has one of them made at a time, so that it does not keep others from theirs."""

    def __init__(self) -> None:
        self._quota = Quota(
            total=ASKED_FOR_MAX,
            of_token=ASKED_FOR_OF_TOKEN,
            full=lambda limit: Overloaded(f"{limit} large tasks are being shown here already"),
            token_full=lambda limit: TooManyRequests(
                RETRY_SECONDS, f"{limit} large tasks are being shown to this token already"
            ),
        )
        self._threads = asyncio.Semaphore(AT_ONCE)
        self._turns = dict[str, asyncio.Lock]()
        self._reads = asyncio.Semaphore(READS_AT_ONCE)

    @asynccontextmanager
    async def read(self) -> AsyncIterator[None]:
        """Keep a place while a task is read: how large it is, nobody knows before."""
        try:
            async with asyncio.timeout(READ_WAIT_SECONDS):
                await self._reads.acquire()
        except TimeoutError:
            raise Overloaded("as many tasks are being read here as may be") from None
        try:
            yield
        finally:
            self._reads.release()

    async def answer(
        self, caller: Caller, size: int, view: View, status: int = 200
    ) -> Mapping[str, Any] | Response:
        """Return what ``view`` makes out of so many stored bytes, or an answer with it."""
        if size <= ASIDE_BYTES:
            return view()
        return await self.respond(caller, size, lambda: sc.answer(status, view()))

    async def respond(self, caller: Caller, size: int, make: Callable[[], T]) -> T:
        """Return the response, or what else ``make`` makes out of so many stored bytes."""
        if size <= ASIDE_BYTES:
            return make()
        try:
            with self._quota.place(caller.token_id):
                async with self._turn(caller.token_id), self._threads:
                    return await asyncio.to_thread(make)
        finally:
            if not self._quota.taken_by(caller.token_id):
                self._turns.pop(caller.token_id, None)

    def _turn(self, token_id: str) -> asyncio.Lock:
        return self._turns.setdefault(token_id, asyncio.Lock())


def size_of(detail: Detail) -> int:
    """Return how many stored bytes the view of a task is made of."""
    bodies = [detail.payload, detail.result, detail.data, detail.checkpoint]
    bodies += [stage.result for stage in detail.stages]
    return sum(len(body) for body in bodies if body is not None)
