"""A claim over all partitions: which are asked, in which order, and what a repeat is given.

`claim_from` claims from one partition.
"""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.domain.errors import (
    PartlyUnavailable,
    SerialisationError,
    StoreError,
    StoreUnavailable,
)
from holdfast.domain.task.placement import START, Place
from holdfast.ports import Claimed, Clock, Switch
from holdfast.stores.redis import scripts
from holdfast.stores.redis.client.client import by_name, pack, unless_foreign
from holdfast.stores.redis.encoding import claim as claim_replies
from holdfast.stores.redis.encoding import submission
from holdfast.stores.redis.partition import CLAIMS, Partition, Partitions, try_all
from holdfast.stores.redis.repair.salvage import set_aside

ASK_ALL_SECONDS = 5.0

log = logging.getLogger("holdfast.stores.redis.verbs")

_STARTS = pack({**START.to})


class PartitionClaim(msgspec.Struct, frozen=True, kw_only=True):
    """The claim that a worker makes, for one partition or for all."""

    worker: str
    request: str
    queues: Sequence[str]
    lease_seconds: float


class Claims:
    def __init__(self, partitions: Partitions, clock: Clock) -> None:
        self._partitions, self._clock = partitions, clock
        self._last: dict[str, str] = {}  # worker → its last request
        self._empty: dict[str, str] = {}  # worker → its last request that got nothing
        self._asked_all_at = -ASK_ALL_SECONDS

    def forget(self, worker: str) -> None:
        self._last.pop(worker, None)
        self._empty.pop(worker, None)

    async def claim(self, claim: PartitionClaim, limit: int) -> list[Claimed]:
        if self._empty.get(claim.worker) == claim.request:
            return []
        claimed = await self._given_before(claim) or await self._claim(claim, limit)
        if not claimed:
            self._empty[claim.worker] = claim.request
        return claimed

    async def _given_before(self, claim: PartitionClaim) -> list[Claimed]:
        """Return what any of several partitions handed out to this request before."""
        repeated = self._last.get(claim.worker) == claim.request
        self._last[claim.worker] = claim.request
        if len(self._partitions) == 1 or not repeated:
            return []
        nothing_new = msgspec.structs.replace(claim, queues=())
        results, _ = await try_all(claim_from(p, nothing_new, limit=0) for p in self._partitions)
        return [
            claimed
            for result in results
            if not isinstance(result, StoreError)
            for claimed in result[0]
        ]

    async def _claim(self, claim: PartitionClaim, limit: int) -> list[Claimed]:
        claimed: list[Claimed] = []
        missed: StoreUnavailable | None = None
        got: Counter[Partition] = Counter()
        for part, queues in await self._worth_asking(claim):
            if len(claimed) >= limit:
                break
            try:
                more, got[part] = await claim_from(
                    part,
                    msgspec.structs.replace(claim, queues=queues),
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

    async def _worth_asking(self, claim: PartitionClaim) -> list[tuple[Partition, Sequence[str]]]:
        """Return each partition with its queues that have tasks, in the order of the queues."""
        if len(self._partitions) == 1:
            return [(self._partitions.first, claim.queues)]
        rotated = self._partitions.rotated_from(claim.request)
        now = self._clock.steady()
        if now - self._asked_all_at > ASK_ALL_SECONDS:  # the counts may lag behind the queues
            self._asked_all_at = now
            return [(part, [queue]) for queue in claim.queues for part in rotated]
        results, _ = await try_all(has_waiting(part, claim.queues) for part in rotated)
        return [
            (part, [queue])
            for n, queue in enumerate(claim.queues)
            for part, waiting in zip(rotated, results, strict=True)
            if not isinstance(waiting, StoreError) and waiting[n]
        ]


async def claim_from(
    part: Partition, claim: PartitionClaim, *, limit: int, got: int = 0
) -> tuple[list[Claimed], int]:
    """Claim tasks, and return them with how many this request has got here in all.

    ``got`` is how many it has got already. A repeat gets all that it was given before, and nothing
    new.
    """
    claimed: list[Claimed] = []
    secret = secrets.token_hex(8)
    while True:
        wanted = max(0, min(limit - len(claimed), CLAIMS))
        answer = await part.write(
            scripts.CLAIM,
            claim.worker,
            claim.request,
            got,
            wanted,
            claim.lease_seconds,
            secret,
            part.terms.lock_seconds,
            _STARTS,
            "1" if part.straight else "",
            *claim.queues,
        )
        reply = claim_replies.ClaimReply(**by_name(answer))
        lease = submission.ClaimLease(claim.worker, float(reply.lease_until), float(reply.wall))
        claimed += await _readable(part, lease, reply.handed_out, reply.unreadable)
        got, before = reply.upto, got
        if reply.repeated is not None:
            if got >= reply.repeated:
                break
        elif got - before < wanted or len(claimed) >= limit:
            break
    return claimed, got


async def _readable(
    part: Partition,
    lease: submission.ClaimLease,
    handed_out: Sequence[Any],
    unreadable: list[bytes],
) -> list[Claimed]:
    claimed = []
    for parts in handed_out:
        try:
            if len(parts) == claim_replies.FIRST_RUN:
                claimed.append(submission.first_claimed_of(parts, lease))
            else:
                claimed.append(claim_replies.claimed_of(parts))
        except SerialisationError as error:
            unreadable.append(parts[0])
            log.error("%s", error)
    if unreadable:
        await set_aside(part, unreadable)
    return claimed


async def has_waiting(part: Partition, queues: Sequence[str]) -> list[bool]:
    """Return for each queue whether a task is ready in it and may be claimed."""
    counts = ("HMGET", part.keys("counts"), *(f"{queue} {Place.READY}" for queue in queues))
    switches = ("HMGET", part.keys("switches"), *(f"{Switch.CLAIMING} {queue}" for queue in queues))
    ready, off = map(unless_foreign, await part.client.many(part.keys, [counts, switches]))
    return [
        count is not None and int(count) > 0 and switch is None
        for count, switch in zip(ready, off, strict=True)
    ]
