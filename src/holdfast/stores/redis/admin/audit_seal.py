"""Entries that wait in the outboxes are sealed into the chain, by whoever comes first.

There are two steps. The links are put behind the head, if it is still the one they hang on,
together with how many were taken from each outbox; then these leave their outboxes. Whoever finds
the second step undone does it, so that nothing is lost or in the chain twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from heapq import merge
from itertools import islice

import msgspec

from holdfast.domain.audit import Audit, link_entry
from holdfast.domain.errors import PartlyUnavailable, StoreError
from holdfast.stores.redis import scripts
from holdfast.stores.redis.admin import audit_chain
from holdfast.stores.redis.admin.audit_chain import Ends, Outbox, Taken
from holdfast.stores.redis.partition import Partition, Partitions, gather_all, try_all

BATCH = 100  # of one step; no outbox is ever further behind the chain than so many
RACES = 20  # lost to others, each of whom has sealed something


class Waiting(msgspec.Struct, frozen=True):
    """The entries that an outbox has for the chain."""

    box: Outbox
    behind: int  # so many of its first are in the chain already
    entries: list[Audit]  # those that follow


class SealStep(msgspec.Struct, frozen=True):
    sealed: int
    is_first: bool  # nobody else has sealed meanwhile
    more: bool
    missed: StoreError | None


async def seal(parts: Partitions, limit: int) -> int:
    """Seal entries; a partition that does not answer is an error after the others are sealed."""
    sealed = races = 0
    while sealed < limit:
        step = await _step(parts, min(BATCH, limit - sealed))
        sealed, races = sealed + step.sealed, races + (not step.is_first)
        if not step.more or races > RACES:
            if step.missed is not None:
                raise PartlyUnavailable(step.missed, [sealed])
            break
    return sealed


async def _step(parts: Partitions, limit: int) -> SealStep:
    # The chain is looked at first: whatever leaves an outbox after that has moved the head.
    ends, _ = await audit_chain.links(parts.first, 0, 0)
    found, missed = await try_all(
        audit_chain.outbox(number, part, 0, BATCH - 1) for number, part in enumerate(parts)
    )
    waiting = [_waiting(box, ends) for box in found if not isinstance(box, StoreError)]
    oldest = _oldest(waiting, limit)
    taken = Counter(number for number, _ in oldest)
    if oldest and not await _append(parts.first, ends, oldest, _fields(waiting, taken)):
        return SealStep(0, is_first=False, more=True, missed=missed)
    await gather_all(_trim(pending, taken[pending.box.number]) for pending in waiting)
    more = any(
        pending.box.length > pending.behind + taken[pending.box.number] for pending in waiting
    )
    return SealStep(len(oldest), is_first=True, more=more, missed=missed)


def _waiting(box: Outbox, ends: Ends) -> Waiting:
    behind = _behind(box, ends.taken_from(box))
    return Waiting(box, behind, audit_chain.entries_of(box.bodies[behind:], box.at))


def _behind(box: Outbox, taken: Taken) -> int:
    """Return how many of the first entries are in the chain already.

    A failover may have brought an older outbox back. Its numbers mean nothing then: what is in it
    may get into the chain twice, which is better than not at all.
    """
    behind = taken.count - box.gone
    if behind <= 0:
        return 0
    if behind > len(box.bodies) or audit_chain.mark_of(box.bodies[behind - 1]) != taken.mark:
        return 0
    return behind


def _oldest(waiting: Sequence[Waiting], limit: int) -> list[tuple[int, Audit]]:
    """Return the oldest entries and their outboxes; each outbox keeps its own order."""
    streams = [[(pending.box.number, entry) for entry in pending.entries] for pending in waiting]
    return list(islice(merge(*streams, key=lambda pair: pair[1].at), limit))


def _fields(waiting: Sequence[Waiting], taken: Counter[int]) -> list[str]:
    """Return the fields that say what the chain will have of each outbox."""
    fields: list[str] = []
    for pending in waiting:
        if count := taken[pending.box.number]:
            last = pending.behind + count
            mark = audit_chain.mark_of(pending.box.bodies[last - 1])
            fields += audit_chain.field_of(pending.box, Taken(pending.box.gone + last, mark))
    return fields


async def _append(
    first: Partition, ends: Ends, oldest: Sequence[tuple[int, Audit]], fields: Sequence[str]
) -> bool:
    anchor, elements = audit_chain.anchor_of(ends.head), []
    for _, entry in oldest:
        link = link_entry(anchor, entry)
        elements.append(audit_chain.element_of(link))
        anchor = link.anchor
    heads = (ends.head, audit_chain.text_of(anchor))
    answer = await first.call(scripts.SEAL, *heads, len(fields) // 2, *fields, *elements)
    return bool(answer)


async def _trim(pending: Waiting, taken: int) -> None:
    count = pending.behind + taken
    if count:
        last = pending.box.bodies[count - 1]
        await pending.box.part.call(scripts.SEAL_TRIM, pending.box.gone, count, last)
