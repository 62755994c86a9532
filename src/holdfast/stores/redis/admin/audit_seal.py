"""Sealing: entries of the outboxes are appended to the chain, by the first process to do so.

There are two steps. First the links are appended, if the chain tip is still the one that they
continue, together with how many were taken from each outbox. Then these entries are deleted from
their outboxes. A process that finds the second step undone does it, so that no entry is lost or in
the chain twice.
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

BATCH = 100  # entries of one step, and the most that an outbox is ever behind the chain
RACES = 20  # steps lost to other processes, each of which has sealed something


class Waiting(msgspec.Struct, frozen=True):
    """The entries that an outbox has for the chain."""

    box: Outbox
    behind: int  # how many of its first entries are in the chain already
    entries: list[Audit]  # the entries after these


class SealStep(msgspec.Struct, frozen=True):
    """The outcome of one step."""

    sealed: int
    is_first: bool  # no other process has sealed meanwhile
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
    # The chain is read first: an entry that leaves an outbox after that has moved the tip.
    ends, _ = await audit_chain.links(parts.first, 0, 0)
    outboxes, missed = await try_all(
        audit_chain.outbox(number, part, 0, BATCH - 1) for number, part in enumerate(parts)
    )
    waiting = [_waiting(box, ends) for box in outboxes if not isinstance(box, StoreError)]
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

    A failover may have brought back an older outbox, whose numbers then mean nothing. Its entries
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
