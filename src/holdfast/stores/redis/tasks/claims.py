"""A claim over all partitions: who is asked, in which order, and what a repeat is given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from holdfast.domain.errors import PartlyUnavailable, StoreError, StoreUnavailable
from holdfast.ports import Claimed, Clock
from holdfast.stores.redis.partition import Partition, Partitions, try_all
from holdfast.stores.redis.tasks import writes

ASK_ALL_SECONDS = 5.0


class Claims:
    def __init__(self, partitions: Partitions, clock: Clock) -> None:
        self._partitions, self._clock = partitions, clock
        self._last: dict[str, str] = {}  # worker → its last request
        self._empty: dict[str, str] = {}  # worker → its last request that got nothing
        self._asked_all_at = -ASK_ALL_SECONDS

    def forget(self, worker: str) -> None:
        self._last.pop(worker, None)
        self._empty.pop(worker, None)

    async def claim(self, asked: writes.PartitionClaim, limit: int) -> list[Claimed]:
        if self._empty.get(asked.worker) == asked.request:
            return []
        claimed = await self._given_before(asked) or await self._claim(asked, limit)
        if not claimed:
            self._empty[asked.worker] = asked.request
        return claimed

    async def _given_before(self, asked: writes.PartitionClaim) -> list[Claimed]:
        """Return what any of several partitions handed out to this request before."""
        repeated = self._last.get(asked.worker) == asked.request
        self._last[asked.worker] = asked.request
        if len(self._partitions) == 1 or not repeated:
            return []
        nothing_new = msgspec.structs.replace(asked, queues=())
        found, _ = await try_all(writes.claim(p, nothing_new, limit=0) for p in self._partitions)
        return [one for some in found if not isinstance(some, StoreError) for one in some[0]]

    async def _claim(self, asked: writes.PartitionClaim, limit: int) -> list[Claimed]:
        claimed: list[Claimed] = []
        missed: StoreUnavailable | None = None
        got: Counter[Partition] = Counter()
        for part, queues in await self._worth_asking(asked):
            if len(claimed) >= limit:
                break
            try:
                more, got[part] = await writes.claim(
                    part,
                    msgspec.structs.replace(asked, queues=queues),
                    limit=limit - len(claimed),
                    got=got[part],
                )
            except StoreUnavailable as error:
                missed = error
                continue
            claimed += more
        if missed is not None:
            raise PartlyUnavailable(missed, claimed) if claimed else missed
        return claimed

    async def _worth_asking(
        self, asked: writes.PartitionClaim
    ) -> list[tuple[Partition, Sequence[str]]]:
        """Each queue in the partitions that have something in it, then the next queue."""
        if len(self._partitions) == 1:
            return [(self._partitions.first, asked.queues)]
        rotated = self._partitions.beginning_at(asked.request)
        now = self._clock.steady()
        if now - self._asked_all_at > ASK_ALL_SECONDS:  # counts follow; the queues are the truth
            self._asked_all_at = now
            return [(part, [queue]) for queue in asked.queues for part in rotated]
        found, _ = await try_all(writes.waiting(part, asked.queues) for part in rotated)
        return [
            (part, [queue])
            for n, queue in enumerate(asked.queues)
            for part, waiting in zip(rotated, found, strict=True)
            if not isinstance(waiting, StoreError) and waiting[n]
        ]
