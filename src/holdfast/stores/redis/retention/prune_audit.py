"""Deletion of the oldest links of the audit chain by age; the last of them becomes its base."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.domain.audit import AuditLink
from holdfast.domain.errors import StoreFull
from holdfast.stores.redis import scripts
from holdfast.stores.redis.admin import audit_chain
from holdfast.stores.redis.admin.audit_seal import seal
from holdfast.stores.redis.partition import Partition, Partitions

PAGE = 100


async def prune(parts: Partitions, *, older_than_seconds: float, limit: int, dry_run: bool) -> int:
    """Prune old links; an old entry that is not in the chain yet is sealed into it first."""
    before = (await parts.first.server_time()).wall - older_than_seconds
    if dry_run:
        return min(limit, await _count_old(parts, before, limit))
    pruned = await _prune(parts.first, before, limit)
    if pruned < limit and await _seal_first(parts, limit - pruned):
        pruned += await _prune(parts.first, before, limit - pruned)
    return pruned


async def _seal_first(parts: Partitions, limit: int) -> int:
    try:
        return await seal(parts, limit)
    except StoreFull:  # the next time there may be room for them
        return 0


async def _prune(first: Partition, before: float, limit: int) -> int:
    pruned = 0
    while pruned < limit:
        wanted = min(PAGE, limit - pruned)
        ends, elements = await audit_chain.links(first, 0, wanted)
        links = [audit_chain.link_of(element, 0) for element in elements]
        old = _old(map(_time, links), before)
        if old:
            base = links[old - 1].anchor
            newest = max([ends.base_at or 0.0, *(link.entry.at for link in links[:old])])
            cleaned = f"{base.seq} {newest!r}"
            old = await first.call(
                scripts.PRUNE_AUDIT, ends.base, audit_chain.text_of(base), old, cleaned
            )
        pruned += old
        if old < wanted:
            break
    return pruned


async def _count_old(parts: Partitions, before: float, limit: int) -> int:
    boxes = await audit_chain.read_outboxes(parts, 0, limit - 1)
    ends, _ = await audit_chain.links(parts.first, 0, 0)
    counted, after = 0, audit_chain.anchor_of(ends.base).seq
    while counted < limit:
        _, elements = await audit_chain.links(parts.first, after + counted, PAGE)
        old = _old((_time(audit_chain.link_of(element, 0)) for element in elements), before)
        counted += old
        if old < PAGE:
            break
    for box in boxes:
        fresh = box.bodies[box.length - box.loose(ends) :]
        counted += _old((entry.at for entry in audit_chain.entries_of(fresh, box.at)), before)
    return counted


def _time(link: AuditLink) -> float | None:
    return link.entry.at if link.hash else None


def _old(times: Iterable[float | None], before: float) -> int:
    """Return how many of the first entries are old; an unreadable one goes with its neighbours."""
    old = 0
    for number, at in enumerate(times, 1):
        if at is not None and at >= before:
            return old
        if at is not None:
            old = number
    return old
