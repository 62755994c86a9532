"""The task part of the SQLite store: every write goes to the one writer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from holdfast.domain.task.crashes import SUSPECT_FROM
from holdfast.domain.task.transition import Insertion, Outcome, Submission, Transition
from holdfast.ports import (
    Beat,
    Claimed,
    Due,
    Renewal,
)
from holdfast.stores.sqlite.file.opened import Door
from holdfast.stores.sqlite.tasks import apply as applying
from holdfast.stores.sqlite.tasks import claim as claiming
from holdfast.stores.sqlite.tasks import queue


class SqliteTasks:
    def __init__(self, door: Door) -> None:
        self._door = door
        self._empty_claims: dict[str, str] = {}

    async def insert(self, batch: Sequence[Submission], *, depth_limit: int) -> Sequence[Insertion]:
        new = [queue.encode(submission) for submission in batch]
        work = partial(queue.insert, batch=new, depth_limit=depth_limit)
        return await self._door().writer.do(work, weight=len(batch))

    async def claim(
        self, worker: str, *, request: str, queues: Sequence[str], limit: int, lease_seconds: float
    ) -> Sequence[Claimed]:
        asked = claiming.ClaimRequest(
            worker=worker,
            request=request,
            queues=queues,
            limit=limit,
            lease_seconds=lease_seconds,
        )
        work = partial(claiming.claim, asked=asked, empty=self._empty_claims)
        return await self._door().writer.do(work, weight=limit)

    async def apply(self, batch: Sequence[Transition]) -> Sequence[Outcome]:
        writes = [applying.encode(transition) for transition in batch]
        weight = len(writes) + sum(len(write.follows) for write in writes)
        return await self._door().writer.do(partial(applying.apply, batch=writes), weight=weight)

    async def renew(
        self, beat: Beat, batch: Sequence[Renewal], *, lease_seconds: float
    ) -> Sequence[bool]:
        work = partial(claiming.renew, beat=beat, batch=batch, lease_seconds=lease_seconds)
        return await self._door().writer.do(work, weight=len(batch))

    async def leave(self, worker: str) -> None:
        await self._door().writer.do(partial(claiming.leave, worker=worker))
        self._empty_claims.pop(worker, None)

    async def expire(
        self, *, limit: int, count_crashes: bool, alone_from: int = SUSPECT_FROM
    ) -> int:
        work = partial(
            queue.expire, limit=limit, count_crashes=count_crashes, alone_from=alone_from
        )
        return await self._door().writer.do(work, weight=limit)

    async def promote(self, *, limit: int) -> Due:
        return await self._door().writer.do(partial(queue.promote, limit=limit), weight=limit)
