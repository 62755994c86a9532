"""SQLite behind the TriggerStore port."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple

from holdfast.domain import names
from holdfast.domain.trigger.trigger import (
    Changed,
    Trigger,
    TriggerChange,
    TriggerOutcome,
    TriggerStale,
    TriggerStatus,
    TriggerWrite,
)
from holdfast.ports import DueTriggers, TriggerPage
from holdfast.stores.sqlite.file.opened import Door
from holdfast.stores.sqlite.file.readers import ReadView
from holdfast.stores.sqlite.plan_trigger_leases import AsOf
from holdfast.stores.sqlite.triggers import firing, verbs
from holdfast.stores.sqlite.triggers.rows import readable, trigger_of
from holdfast.stores.sqlite.triggers.verbs import Lent

LOOK_LIMIT = 1000  # records compared for one page, however few of them match


class SqliteTriggers:
    def __init__(self, door: Door) -> None:
        self._door = door

    # -- writes

    async def claim(
        self,
        owner: str,
        *,
        upto: float | None = None,
        trigger_id: str | None = None,
        limit: int = 100,
        lease_seconds: float = 30.0,
    ) -> DueTriggers:
        lent = Lent(owner, lease_seconds)
        if trigger_id is not None:
            one = partial(verbs.lend_one, trigger_id=trigger_id, lent=lent)
            return await self._door().writer.do(one)
        work = partial(verbs.lend_due, lent=lent, upto=upto, limit=limit)
        return await self._door().writer.do(work, weight=limit)

    async def apply(
        self, batch: Sequence[TriggerChange], *, depth_limit: int
    ) -> Sequence[TriggerOutcome]:
        for change in batch:
            if change.before.version == 0 and change.write is TriggerWrite.COMPARE:
                names.check("trigger", change.after.id)
            elif change.write is not TriggerWrite.COMPARE:
                return await self._one_by_one(batch, depth_limit)
        writes = [firing.encode(change) for change in batch]
        work = partial(firing.apply, batch=writes, depth_limit=depth_limit)
        return await self._door().writer.do(work, weight=len(writes))

    async def _one_by_one(
        self, batch: Sequence[TriggerChange], depth_limit: int
    ) -> list[TriggerOutcome]:
        outcomes: list[TriggerOutcome] = []
        for change in batch:
            if change.write is TriggerWrite.COMPARE:
                outcomes += await self.apply([change], depth_limit=depth_limit)
            else:
                outcomes.append(await self._write_over(change))
        return outcomes

    async def _write_over(self, change: TriggerChange) -> TriggerOutcome:
        """Save or remove, whatever version is there."""
        writer, trigger = self._door().writer, change.after
        if change.write is TriggerWrite.REMOVE:
            removed = await writer.do(partial(verbs.remove, trigger_id=trigger.id))
            return Changed(trigger) if removed else TriggerStale(None)
        names.check("trigger", trigger.id)
        return Changed(await writer.do(partial(verbs.save, trigger=trigger)))

    # -- reads

    async def find(self, trigger_id: str) -> Trigger | None:
        return await self._door().readers.do(partial(find_one, trigger_id=trigger_id))

    async def find_all(
        self,
        *,
        statuses: Sequence[TriggerStatus] = (),
        tenant: str | None = None,
        declared: bool = False,
        due_by: float | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> TriggerPage:
        if due_by is not None:
            return await self._due(due_by, limit)
        after = "" if cursor is None else names.check("trigger", cursor)
        wanted = TriggerFilter(frozenset(statuses or TriggerStatus), tenant, declared)
        read = partial(find_all, wanted=wanted, limit=limit, after=after)
        return await self._door().readers.do(read)

    async def _due(self, due_by: float, limit: int) -> TriggerPage:
        opened = self._door()
        now = opened.clock.boot, opened.clock.now()
        due = await opened.readers.do(partial(find_due, now=now, upto=due_by, limit=limit))
        return TriggerPage(triggers=tuple(due), cursor=None)


def find_one(look: ReadView, trigger_id: str) -> Trigger | None:
    found = look.row("trigger_of", trigger_id)
    return trigger_of(found[3]) if found else None


def find_due(look: ReadView, now: AsOf, upto: float, limit: int) -> list[Trigger]:
    rows = [(at, id, body) for id, at, body in look.rows("triggers_due", upto, limit)]
    rows += [(at, id, body) for id, at, _, body in look.rows("triggers_lapsed", *now, upto, limit)]
    found = (readable(trigger_id, body) for _, trigger_id, body in sorted(rows))
    return [trigger for trigger in islice(found, limit) if trigger is not None]


class TriggerFilter(NamedTuple):
    statuses: frozenset[TriggerStatus]
    tenant: str | None
    declared: bool

    def matches(self, trigger: Trigger) -> bool:
        is_among = trigger.status in self.statuses and self.tenant in (None, trigger.tenant)
        return is_among and (trigger.declared or not self.declared)


def find_all(look: ReadView, wanted: TriggerFilter, limit: int, after: str) -> TriggerPage:
    """The narrowest index is walked, the rest is compared on the way."""
    seen_limit = max(limit + 1, LOOK_LIMIT)
    found: list[Trigger] = []
    seen, last = 0, ""
    for trigger_id, body in islice(_walk(look, wanted, after, seen_limit), seen_limit):
        trigger = readable(trigger_id, body)
        if trigger and wanted.matches(trigger):
            if len(found) == limit:
                return TriggerPage(triggers=tuple(found), cursor=found[-1].id)
            found.append(trigger)
        seen, last = seen + 1, trigger_id
    return TriggerPage(triggers=tuple(found), cursor=last if seen == seen_limit else None)


def _walk(look: ReadView, wanted: TriggerFilter, after: str, limit: int) -> Iterator[Any]:
    if wanted.declared:
        return look.each("triggers_declared", after, limit)
    if wanted.tenant is not None:
        return look.each("triggers_of_tenant", wanted.tenant, after, limit)
    if len(wanted.statuses) == len(TriggerStatus):
        return look.each("triggers_any", after, limit)
    parts = [look.each("triggers_of_status", status, after, limit) for status in wanted.statuses]
    return merge(*parts, key=itemgetter(0))
