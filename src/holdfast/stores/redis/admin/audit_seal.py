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
from holdfast.stores.redis.admin.audit_chain import (
    Ends,
    Outbox,
    Taken,
    anchor_of,
    element_of,
    entries_of,
    field_of,
    links,
    mark_of,
    outbox,
    text_of,
)
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
    """A part of the store that is out of reach is said, after the others' entries are sealed."""
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
    ends, _ = await links(parts.first, 0, 0)
    found, missed = await try_all(
        outbox(number, part, 0, BATCH - 1) for number, part in enumerate(parts)
    )
    waiting = [_waiting(box, ends) for box in found if not isinstance(box, StoreError)]
    oldest = _oldest(waiting, limit)
    taken = Counter(number for number, _ in oldest)
    if oldest and not await _append(parts.first, ends, oldest, _fields(waiting, taken)):
        return SealStep(0, is_first=False, more=True, missed=missed)
    await gather_all(_trim(one, taken[one.box.number]) for one in waiting)
    more = any(one.box.length > one.behind + taken[one.box.number] for one in waiting)
    return SealStep(len(oldest), is_first=True, more=more, missed=missed)


def _waiting(box: Outbox, ends: Ends) -> Waiting:
    behind = _behind(box, ends.taken_from(box))
    return Waiting(box, behind, entries_of(box.bodies[behind:], box.at))


def _behind(box: Outbox, taken: Taken) -> int:
    """A failover may have brought an older outbox back. Its numbers mean nothing then: what is in
    it may get into the chain twice, which is better than not at all."""
    behind = taken.count - box.gone
    if behind <= 0:
        return 0
    is_ours = behind <= len(box.bodies) and mark_of(box.bodies[behind - 1]) == taken.mark
    return behind if is_ours else 0


def _oldest(waiting: Sequence[Waiting], limit: int) -> list[tuple[int, Audit]]:
    """Return the oldest entries and their outboxes; each outbox keeps its own order."""
    streams = [[(one.box.number, entry) for entry in one.entries] for one in waiting]
    return list(islice(merge(*streams, key=lambda pair: pair[1].at), limit))


def _fields(waiting: Sequence[Waiting], taken: Counter[int]) -> list[str]:
    """Return the fields that say what the chain will have of each outbox."""
    fields: list[str] = []
    for one in waiting:
        if count := taken[one.box.number]:
            last = one.behind + count
            mark = mark_of(one.box.bodies[last - 1])
            fields += field_of(one.box, Taken(one.box.gone + last, mark))
    return fields


async def _append(
    first: Partition, ends: Ends, oldest: Sequence[tuple[int, Audit]], fields: Sequence[str]
) -> bool:
    anchor, elements = anchor_of(ends.head), []
    for _, entry in oldest:
        link = link_entry(anchor, entry)
        elements.append(element_of(link))
        anchor = link.anchor
    heads = (ends.head, text_of(anchor))
    answer = await first.call(scripts.SEAL, *heads, len(fields) // 2, *fields, *elements)
    return bool(answer)


async def _trim(one: Waiting, taken: int) -> None:
    count = one.behind + taken
    if count:
        last = one.box.bodies[count - 1]
        await one.box.part.call(scripts.SEAL_TRIM, one.box.gone, count, last)
