"""The task part of the Redis store: each verb goes to the partition that has the task.

Below the class stand the verbs on one partition; a claim is in `claims.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from holdfast.domain.errors import (
    PartlyUnavailable,
    StoreError,
    StoreUnavailable,
)
from holdfast.domain.task.crashes import SUSPECT_FROM
from holdfast.domain.task.placement import DUE, LOSE
from holdfast.domain.task.transition import Insertion, Outcome, Submission, Transition
from holdfast.ports import (
    Beat,
    Claimed,
    Due,
    Renewal,
)
from holdfast.stores import codec
from holdfast.stores.redis import scripts
from holdfast.stores.redis.client.client import Script, by_name, pack
from holdfast.stores.redis.encoding import submission
from holdfast.stores.redis.encoding.claim import packed_renewal
from holdfast.stores.redis.encoding.transition import outcome_of, packed_transition
from holdfast.stores.redis.partition import (
    BATCH,
    MOVES,
    Partition,
    Partitions,
    all_at_once,
    gather_all,
    nowhere,
    try_all,
    unless_failed,
)
from holdfast.stores.redis.repair.salvage import set_aside
from holdfast.stores.redis.repair.torn_writes import Mender
from holdfast.stores.redis.tasks.claims import Claims, PartitionClaim

log = logging.getLogger("holdfast.stores.redis.store")

INSERT_TRIES = 2
RENEWALS = 100  # of one script
BEAT_SHARE = 0.15  # of a lease: a worker beats at least every third of it

T = TypeVar("T")

_LOSES, _DUES = (pack({**move.to}) for move in (LOSE, DUE))


class RedisTasks:
    def __init__(self, parts: Partitions, claims: Claims, mender: Mender, *, url: str) -> None:
        self._parts, self._claims, self._mender, self._url = parts, claims, mender, url

    async def insert(self, batch: Sequence[Submission], *, depth_limit: int) -> Sequence[Insertion]:
        async def ask(part: Partition, some: list[Submission]) -> list[Insertion]:
            return await insert(part, some, depth_limit)

        return await self._parts.spread(
            batch, lambda s: self._parts.with_task(s.task), ask, nowhere
        )

    async def claim(
        self, worker: str, *, request: str, queues: Sequence[str], limit: int, lease_seconds: float
    ) -> Sequence[Claimed]:
        asked = PartitionClaim(
            worker=worker, request=request, queues=queues, lease_seconds=lease_seconds
        )
        return await self._claims.claim(asked, limit)

    async def apply(self, batch: Sequence[Transition]) -> Sequence[Outcome]:
        def part_of(transition: Transition) -> Partition:
            part = self._parts.with_any(transition.after)
            return self._parts.with_follows(part, transition.follows)

        return await self._parts.spread(batch, part_of, apply, nowhere)

    async def renew(
        self, beat: Beat, batch: Sequence[Renewal], *, lease_seconds: float
    ) -> Sequence[bool]:
        async def ask(part: Partition, some: list[Renewal]) -> list[bool]:
            """One that hangs must not keep the others' answers back for too long."""
            try:
                async with asyncio.timeout(lease_seconds * BEAT_SHARE if many else None):
                    return await renew(part, beat, some, lease_seconds)
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
        await gather_all(leave(part, worker) for part in self._parts)

    async def expire(
        self, *, limit: int, count_crashes: bool, alone_from: int = SUSPECT_FROM
    ) -> int:
        parts = self._parts
        found, missed = await try_all(
            expire(part, limit, alone_from=alone_from if count_crashes else None) for part in parts
        )
        self._mender.begin()
        if missed is not None:
            raise PartlyUnavailable(missed, found)
        return sum(n for n in found if not isinstance(n, StoreError))

    async def promote(self, *, limit: int) -> Due:
        found = await gather_all(promote(part, limit) for part in self._parts)
        waits = [due.next_seconds for due in found if due.next_seconds is not None]
        return Due(count=sum(due.count for due in found), next_seconds=min(waits, default=None))


# -- submits


async def insert(part: Partition, batch: Sequence[Submission], depth_limit: int) -> list[Insertion]:
    where = part.client.address.shown
    packed = [submission.packed_submission(one) for one in batch]
    found = await all_at_once(
        _insert_in_time(part, some, depth_limit) for some in _parts(packed, BATCH)
    )
    return unless_failed(
        [submission.insertion_of(word, name.decode(), where) for word, name in found]
    )


async def _insert_in_time(part: Partition, some: Sequence[bytes], depth_limit: int) -> Any:
    """Insert, unless the server comes to it only when we have given up.

    It may also be that the server's clock was set: then we learn the time and ask again.
    """
    for _ in range(INSERT_TRIES):
        asked_at = part.steady()
        found = await part.write(scripts.INSERT, depth_limit, part.gives_up(), *some)
        if found[0] != b"late":
            return found
        part.learn_time(float(found[1]), asked_at)
    raise StoreUnavailable(
        f"{part.client.address.shown} answers too late: submit it again with the same key"
    )


# -- transitions


async def apply(part: Partition, batch: Sequence[Transition]) -> list[Outcome]:
    tombstone, checkpoint = part.terms.tombstone_seconds, part.terms.checkpoint_seconds
    packed = [packed_transition(one, tombstone) for one in batch]
    answers = await all_at_once(
        part.write(script, tombstone, checkpoint, *some) for script, some in _moves(batch, packed)
    )
    return unless_failed([outcome_of(*one) for one in zip(batch, answers, strict=True)])


def _moves(
    batch: Sequence[Transition], packed: Sequence[bytes]
) -> Iterator[tuple[Script, Sequence[bytes]]]:
    """Yield as much as one script takes; a task that follows is as much work as a transition."""
    if not any(transition.follows for transition in batch):
        yield from ((scripts.APPLY, some) for some in _parts(packed, MOVES))
        return
    start = weight = 0
    for end, transition in enumerate(batch):
        weight += 1 + len(transition.follows)
        if weight > MOVES and end > start:
            yield scripts.APPLY_FOLLOWED, packed[start:end]
            start, weight = end, 1 + len(transition.follows)
    yield scripts.APPLY_FOLLOWED, packed[start:]


# -- leases and times


async def renew(
    part: Partition, beat: Beat, batch: Sequence[Renewal], lease_seconds: float
) -> list[bool]:
    kept: list[bool] = []
    said, lock_seconds = codec.encode(beat), part.terms.lock_seconds
    for some in _parts(batch, RENEWALS) if batch else [batch]:
        args = [text for renewal in some for text in packed_renewal(renewal)]
        found = await part.call(
            scripts.RENEW, beat.worker, said, lease_seconds, lock_seconds, *args
        )
        kept += [bool(one) for one in found]
    return kept


async def leave(part: Partition, worker: str) -> None:
    await part.call(scripts.LEAVE, worker)


async def expire(part: Partition, limit: int, *, alone_from: int | None) -> int:
    """``alone_from`` None: no crash counts."""
    taken = 0
    for _ in range(-(-limit // MOVES)):
        asked = min(limit - taken, MOVES)
        counted = "" if alone_from is None else str(alone_from)
        asked_at = part.steady()
        reply = by_name(await part.write(scripts.EXPIRE, asked, counted, _LOSES, LOSE.event))
        part.learn_time(float(reply["now"]), asked_at)
        if not reply["is_ours"]:
            await part.note_emptied()
        await set_aside(part, reply["unreadable"])
        taken += reply["taken"]
        if reply["taken"] + len(reply["unreadable"]) < asked:
            break
    return taken


async def promote(part: Partition, limit: int) -> Due:
    moved, following = 0, b""
    for _ in range(-(-limit // MOVES)):
        asked = min(limit - moved, MOVES)
        reply = by_name(await part.write(scripts.PROMOTE, asked, _DUES, DUE.event))
        await set_aside(part, reply["unreadable"])
        moved, following = moved + reply["moved"], reply["wait"]
        if reply["moved"] + len(reply["unreadable"]) < asked:
            break
    return Due(count=moved, next_seconds=max(0.0, float(following)) if following else None)


def _parts(batch: Sequence[T], size: int) -> Iterable[Sequence[T]]:
    return (batch[start : start + size] for start in range(0, len(batch), size))
