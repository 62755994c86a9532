"""The task part of the Redis store: each verb goes to the partition that has the task."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from holdfast.domain.errors import (
    PartlyUnavailable,
    StoreError,
    StoreUnavailable,
)
from holdfast.domain.task.crashes import SUSPECT_FROM
from holdfast.domain.task.transition import Insertion, Outcome, Submission, Transition
from holdfast.ports import (
    Beat,
    Claimed,
    Due,
    Renewal,
)
from holdfast.stores.redis.partition import Partition, Partitions, gather_all, nowhere, try_all
from holdfast.stores.redis.repair.torn_writes import Mender
from holdfast.stores.redis.tasks import writes
from holdfast.stores.redis.tasks.claims import Claims

log = logging.getLogger("holdfast.stores.redis.store")

BEAT_SHARE = 0.15  # of a lease: a worker beats at least every third of it


class RedisTasks:
    def __init__(self, parts: Partitions, claims: Claims, mender: Mender, *, url: str) -> None:
        self._parts, self._claims, self._mender, self._url = parts, claims, mender, url

    async def insert(self, batch: Sequence[Submission], *, depth_limit: int) -> Sequence[Insertion]:
        async def ask(part: Partition, some: list[Submission]) -> list[Insertion]:
            return await writes.insert(part, some, depth_limit)

        return await self._parts.spread(
            batch, lambda s: self._parts.with_task(s.task), ask, nowhere
        )

    async def claim(
        self, worker: str, *, request: str, queues: Sequence[str], limit: int, lease_seconds: float
    ) -> Sequence[Claimed]:
        asked = writes.PartitionClaim(
            worker=worker, request=request, queues=queues, lease_seconds=lease_seconds
        )
        return await self._claims.claim(asked, limit)

    async def apply(self, batch: Sequence[Transition]) -> Sequence[Outcome]:
        def part_of(transition: Transition) -> Partition:
            part = self._parts.with_any(transition.after)
            return self._parts.with_follows(part, transition.follows)

        return await self._parts.spread(batch, part_of, writes.apply, nowhere)

    async def renew(
        self, beat: Beat, batch: Sequence[Renewal], *, lease_seconds: float
    ) -> Sequence[bool]:
        async def ask(part: Partition, some: list[Renewal]) -> list[bool]:
            """One that hangs must not keep the others' answers back for too long."""
            try:
                async with asyncio.timeout(lease_seconds * BEAT_SHARE if many else None):
                    return await writes.renew(part, beat, some, lease_seconds)
            except TimeoutError:
                raise StoreUnavailable(f"{part.keys.prefix} does not answer") from None

        many = len(self._parts) > 1
        if not any(self._parts.of_task(r.task_id) is self._parts.first for r in batch):
            try:
                await ask(self._parts.first, [])
            except StoreUnavailable as error:
                if not batch:
                    raise
                log.warning("%s: a worker's heartbeat was not written: %s", self._url, error)
        return await self._parts.spread(
            batch, lambda r: self._parts.of_task(r.task_id), ask, lambda _: False
        )

    async def leave(self, worker: str) -> None:
        self._claims.forget(worker)
        await gather_all(writes.leave(part, worker) for part in self._parts)

    async def expire(
        self, *, limit: int, count_crashes: bool, alone_from: int = SUSPECT_FROM
    ) -> int:
        parts = self._parts
        found, missed = await try_all(
            writes.expire(part, limit, alone_from=alone_from if count_crashes else None)
            for part in parts
        )
        self._mender.begin()
        if missed is not None:
            raise PartlyUnavailable(missed, found)
        return sum(n for n in found if not isinstance(n, StoreError))

    async def promote(self, *, limit: int) -> Due:
        found = await gather_all(writes.promote(part, limit) for part in self._parts)
        waits = [due.next_seconds for due in found if due.next_seconds is not None]
        return Due(count=sum(due.count for due in found), next_seconds=min(waits, default=None))
