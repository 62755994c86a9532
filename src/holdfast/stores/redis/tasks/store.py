"""The task part of the Redis store: each verb goes to the partition that has the task.

Below the class stand the verbs on one partition; a claim is in `claims.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterator, Sequence
from typing import Any, TypeVar

from holdfast.domain.errors import PartlyUnavailable, StoreError, StoreUnavailable
from holdfast.domain.task.crashes import SUSPECT_FROM
from holdfast.domain.task.placement import DUE, LOSE
from holdfast.domain.task.transition import Inserted, Insertion, Outcome, Submission, Transition
from holdfast.ports import Beat, Claimed, Due, Renewal
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
    chunks,
    fail_without_partition,
    gather_all,
    try_all,
    unless_failed,
)
from holdfast.stores.redis.repair.salvage import set_aside
from holdfast.stores.redis.repair.torn_writes import Mender
from holdfast.stores.redis.straight.submission import TASKS, insertion_words, usual_lines
from holdfast.stores.redis.straight.transitions import Answer, SortedMoves
from holdfast.stores.redis.tasks.claims import Claims, PartitionClaim

log = logging.getLogger("holdfast.stores.redis.store")

INSERT_TRIES = 2
RENEWALS = 100  # leases renewed by one script
BEAT_SHARE = 0.15  # part of a lease; a worker beats at least every third of its lease

T = TypeVar("T")

_LOSES, _DUES = (pack({**move.to}) for move in (LOSE, DUE))


class RedisTasks:
    def __init__(self, parts: Partitions, claims: Claims, mender: Mender, *, url: str) -> None:
        self._parts, self._claims, self._mender, self._url = parts, claims, mender, url

    async def insert(self, batch: Sequence[Submission], *, depth_limit: int) -> Sequence[Insertion]:
        async def ask(part: Partition, submissions: list[Submission]) -> list[Insertion]:
            return await insert(part, submissions, depth_limit)

        return await self._parts.spread(
            batch, lambda s: self._parts.with_task(s.task), ask, fail_without_partition
        )

    async def claim(
        self, worker: str, *, request: str, queues: Sequence[str], limit: int, lease_seconds: float
    ) -> Sequence[Claimed]:
        claim = PartitionClaim(
            worker=worker, request=request, queues=queues, lease_seconds=lease_seconds
        )
        return await self._claims.claim(claim, limit)

    async def apply(self, batch: Sequence[Transition]) -> Sequence[Outcome]:
        def part_of(transition: Transition) -> Partition:
            part = self._parts.with_colocated_task(transition.after)
            return self._parts.with_follows(part, transition.follows)

        return await self._parts.spread(batch, part_of, apply, fail_without_partition)

    async def renew(
        self, beat: Beat, batch: Sequence[Renewal], *, lease_seconds: float
    ) -> Sequence[bool]:
        async def ask(part: Partition, renewals: list[Renewal]) -> list[bool]:
            """Renew on one partition; one that hangs must not delay the answers of the others."""
            try:
                async with asyncio.timeout(lease_seconds * BEAT_SHARE if many else None):
                    return await renew(part, beat, renewals, lease_seconds)
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
        results, missed = await try_all(
            expire(part, limit, alone_from=alone_from if count_crashes else None) for part in parts
        )
        self._mender.begin()
        if missed is not None:
            raise PartlyUnavailable(missed, results)
        return sum(n for n in results if not isinstance(n, StoreError))

    async def promote(self, *, limit: int) -> Due:
        results = await gather_all(promote(part, limit) for part in self._parts)
        waits = [due.next_seconds for due in results if due.next_seconds is not None]
        return Due(count=sum(due.count for due in results), next_seconds=min(waits, default=None))


# -- submits


async def insert(part: Partition, batch: Sequence[Submission], depth_limit: int) -> list[Insertion]:
    lines = usual_lines(batch) if part.straight else None
    if lines is None:
        return unless_failed(await _insert_any(part, batch, depth_limit))
    answers: list[Insertion | StoreError] = []
    for start in range(0, len(batch), TASKS):  # in turn: a line keeps its order
        group = slice(start, start + TASKS)
        answers += await _insert_usual(part, batch[group], lines[group], depth_limit)
    return unless_failed(answers)


async def _insert_usual(
    part: Partition, batch: Sequence[Submission], lines: Sequence[bytes], depth_limit: int
) -> Sequence[Insertion | StoreError]:
    """Insert tasks by the straight path, or by the general one if the store finds them unusual."""
    words = insertion_words(batch, lines)
    answer = await part.write(scripts.INSERT_TASKS, depth_limit, part.give_up_time(), *words)
    if answer[0] == b"unusual":
        return await _insert_any(part, batch, depth_limit)
    return [Inserted(submitted.task.id) for submitted in batch]


async def _insert_any(
    part: Partition, batch: Sequence[Submission], depth_limit: int
) -> list[Insertion | StoreError]:
    where = part.client.address.shown
    packed = [submission.packed_submission(submitted) for submitted in batch]
    answers = await all_at_once(
        _insert_in_time(part, group, depth_limit) for group in chunks(packed, BATCH)
    )
    return [submission.insertion_of(word, name.decode(), where) for word, name in answers]


async def _insert_in_time(part: Partition, packed: Sequence[bytes], depth_limit: int) -> Any:
    """Insert, unless the server runs the script only after the client has given up.

    The server's clock may have been set meanwhile. So after the first late answer the client
    learns the server's time and asks again.
    """
    for _ in range(INSERT_TRIES):
        asked_at = part.steady()
        answer = await part.write(scripts.INSERT, depth_limit, part.give_up_time(), *packed)
        if answer[0] != b"late":
            return answer
        part.learn_time(float(answer[1]), asked_at)
    raise StoreUnavailable(
        f"{part.client.address.shown} answers too late: submit it again with the same key"
    )


# -- transitions


async def apply(part: Partition, batch: Sequence[Transition]) -> list[Outcome]:
    """Write what is as usual on the straight path, and all else by the general scripts."""
    if not part.straight or all(transition.lease is None for transition in batch):
        general = await all_at_once(_general_calls(part, batch, range(len(batch))))
        return unless_failed([outcome for _, outcome in general if outcome is not None])
    moves = SortedMoves(part, batch)
    answers = await all_at_once([*moves.calls(), *_general_calls(part, batch, moves.general)])
    outcomes = dict(answers)
    if left := [position for position, outcome in answers if outcome is None]:
        outcomes |= dict(await all_at_once(_general_calls(part, batch, left)))
    return unless_failed(
        [outcome for n in range(len(batch)) if (outcome := outcomes[n]) is not None]
    )


def _general_calls(
    part: Partition, batch: Sequence[Transition], positions: Sequence[int]
) -> Iterator[Awaitable[list[Answer]]]:
    """Yield the calls of the general scripts for the transitions at these positions."""
    if not positions:
        return
    tombstone, checkpoint = part.terms.tombstone_seconds, part.terms.checkpoint_seconds
    chosen = [batch[position] for position in positions]
    packed = [packed_transition(transition, tombstone) for transition in chosen]
    start = 0

    async def send(script: Script, group: Sequence[bytes], start: int) -> list[Answer]:
        answers = await part.write(script, tombstone, checkpoint, *group)
        end = start + len(group)
        return [
            (position, outcome_of(transition, answer))
            for position, transition, answer in zip(
                positions[start:end], chosen[start:end], answers, strict=True
            )
        ]

    for script, group in _moves(chosen, packed):
        yield send(script, group, start)
        start += len(group)


def _moves(
    batch: Sequence[Transition], packed: Sequence[bytes]
) -> Iterator[tuple[Script, Sequence[bytes]]]:
    """Yield the batches of one script each; a follow-up task is as much work as a transition."""
    if not any(transition.follows for transition in batch):
        yield from ((scripts.APPLY, group) for group in chunks(packed, MOVES))
        return
    start = weight = 0
    for end, transition in enumerate(batch):
        weight += 1 + len(transition.follows)
        if weight > MOVES and end > start:
            yield scripts.APPLY_WITH_FOLLOW_UPS, packed[start:end]
            start, weight = end, 1 + len(transition.follows)
    yield scripts.APPLY_WITH_FOLLOW_UPS, packed[start:]


# -- leases and times


async def renew(
    part: Partition, beat: Beat, batch: Sequence[Renewal], lease_seconds: float
) -> list[bool]:
    kept: list[bool] = []
    beat_json, lock_seconds = codec.encode(beat), part.terms.lock_seconds
    for group in chunks(batch, RENEWALS) if batch else [batch]:
        args = [text for renewal in group for text in packed_renewal(renewal)]
        answers = await part.call(
            scripts.RENEW, beat.worker, beat_json, lease_seconds, lock_seconds, *args
        )
        kept += [bool(answer) for answer in answers]
    return kept


async def leave(part: Partition, worker: str) -> None:
    await part.call(scripts.LEAVE, worker)


async def expire(part: Partition, limit: int, *, alone_from: int | None) -> int:
    """Take lapsed leases back; with ``alone_from`` None no crash is counted."""
    total = 0
    for _ in range(-(-limit // MOVES)):
        batch_limit = min(limit - total, MOVES)
        counted = "" if alone_from is None else str(alone_from)
        asked_at = part.steady()
        reply = by_name(await part.write(scripts.EXPIRE, batch_limit, counted, _LOSES, LOSE.event))
        part.learn_time(float(reply["now"]), asked_at)
        if not reply["is_ours"]:
            await part.note_emptied()
        await set_aside(part, reply["unreadable"])
        total += reply["taken"]
        if reply["taken"] + len(reply["unreadable"]) < batch_limit:
            break
    return total


async def promote(part: Partition, limit: int) -> Due:
    moved, following = 0, b""
    for _ in range(-(-limit // MOVES)):
        batch_limit = min(limit - moved, MOVES)
        reply = by_name(await part.write(scripts.PROMOTE, batch_limit, _DUES, DUE.event))
        await set_aside(part, reply["unreadable"])
        moved, following = moved + reply["moved"], reply["wait"]
        if reply["moved"] + len(reply["unreadable"]) < batch_limit:
            break
    return Due(count=moved, next_seconds=max(0.0, float(following)) if following else None)
