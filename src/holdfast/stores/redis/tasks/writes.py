"""The verbs that write, on one partition."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from holdfast.domain.audit import Audit
from holdfast.domain.errors import (
    PartlyUnavailable,
    SerialisationError,
    StoreError,
    StoreUnavailable,
)
from holdfast.domain.task.placement import DUE, LOSE, START, Place
from holdfast.domain.task.transition import Insertion, Outcome, Submission, Transition
from holdfast.ports import Beat, Claimed, Due, Renewal, Switch
from holdfast.stores import codec
from holdfast.stores.redis import scripts
from holdfast.stores.redis.client.client import Script, by_name, pack, unless_foreign
from holdfast.stores.redis.encoding import claim as claiming
from holdfast.stores.redis.encoding import submission
from holdfast.stores.redis.encoding.transition import outcome_of, packed_transition
from holdfast.stores.redis.partition import BATCH, CLAIMS, MOVES, Partition
from holdfast.stores.redis.repair.salvage import set_aside

INSERT_TRIES = 2
RENEWALS = 100  # of one script

log = logging.getLogger("holdfast.stores.redis.verbs")

T = TypeVar("T")

_STARTS, _LOSES, _DUES = (pack({**move.to}) for move in (START, LOSE, DUE))


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


def unless_failed(answers: Sequence[T | StoreError]) -> list[T]:
    errors = [answer for answer in answers if isinstance(answer, StoreError)]
    if not errors:
        return [answer for answer in answers if not isinstance(answer, StoreError)]
    raise errors[0] if len(errors) == len(answers) else PartlyUnavailable(errors[0], answers)


# -- claims


class PartitionClaim(msgspec.Struct, frozen=True, kw_only=True):
    worker: str
    request: str
    queues: Sequence[str]
    lease_seconds: float


async def claim(
    part: Partition, asked: PartitionClaim, *, limit: int, got: int = 0
) -> tuple[list[Claimed], int]:
    """Claim tasks, and return them with how many this request has got here in all.

    ``got`` is how many it has got already. A repeat gets all that it was given before, and nothing
    new.
    """
    claimed: list[Claimed] = []
    secret = secrets.token_hex(8)
    while True:
        wanted = max(0, min(limit - len(claimed), CLAIMS))
        reply = claiming.ClaimReply(
            *await part.write(
                scripts.CLAIM,
                asked.worker,
                asked.request,
                got,
                wanted,
                asked.lease_seconds,
                secret,
                part.terms.lock_seconds,
                _STARTS,
                *asked.queues,
            )
        )
        lease = submission.ClaimLease(asked.worker, float(reply.lease_until), float(reply.wall))
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
    for told in handed_out:
        try:
            if len(told) == claiming.FIRST_RUN:
                claimed.append(submission.first_claimed_of(told, lease))
            else:
                claimed.append(claiming.claimed_of(told))
        except SerialisationError as error:
            unreadable.append(told[0])
            log.error("%s", error)
    if unreadable:
        await set_aside(part, unreadable)
    return claimed


async def waiting(part: Partition, queues: Sequence[str]) -> list[bool]:
    """Return for each queue whether a task is ready in it and may be claimed."""
    counts = ("HMGET", part.keys("counts"), *(f"{queue} {Place.READY}" for queue in queues))
    switches = ("HMGET", part.keys("switches"), *(f"{Switch.CLAIMING} {queue}" for queue in queues))
    ready, off = map(unless_foreign, await part.client.many(part.keys, [counts, switches]))
    return [
        count is not None and int(count) > 0 and switch is None
        for count, switch in zip(ready, off, strict=True)
    ]


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
        args = [text for renewal in some for text in claiming.packed_renewal(renewal)]
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


async def audit(part: Partition, entry: Audit) -> None:
    refused = f"{entry.before} {entry.command}" if entry.refused else ""
    await part.call(scripts.AUDIT, codec.encode(entry), refused, again=False)


async def all_at_once(calls: Iterable[Awaitable[Sequence[T]]]) -> list[T]:
    """Sent one behind the other on one connection, so that the server does not wait for us.

    If one fails, so does the whole; a repeat of the others does no harm.
    """
    first, *others = calls
    if not others:
        return list(await first)
    found = await asyncio.gather(first, *others)
    return [one for some in found for one in some]


def _parts(batch: Sequence[T], size: int) -> Iterable[Sequence[T]]:
    return (batch[start : start + size] for start in range(0, len(batch), size))
