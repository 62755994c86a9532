"""The trigger part of the SQLite store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Any

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
from holdfast.stores.sqlite.file.open_parts import RequireOpen
from holdfast.stores.sqlite.file.readers import ReadView
from holdfast.stores.sqlite.plan_trigger_leases import AsOf
from holdfast.stores.sqlite.triggers import verbs
from holdfast.stores.sqlite.triggers.rows import readable, trigger_of
from holdfast.stores.sqlite.triggers.verbs import Lent
from holdfast.stores.triggers import StoredTriggers, TriggerFilter

LOOK_LIMIT = 1000  # records compared for one page, even if few of them match


class SqliteTriggers(StoredTriggers):
    def __init__(self, require_open: RequireOpen) -> None:
        self._parts = require_open

    # -- writes

    async def _claim_one(self, trigger_id: str, owner: str, lease_seconds: float) -> DueTriggers:
        lent = Lent(owner, lease_seconds)
        work = partial(verbs.lend_one, trigger_id=trigger_id, lent=lent)
        return await self._parts().writer.do(work)

    async def _claim_due(
        self, owner: str, upto: float | None, limit: int, lease_seconds: float
    ) -> DueTriggers:
        lent = Lent(owner, lease_seconds)
        work = partial(verbs.lend_due, lent=lent, upto=upto, limit=limit)
        return await self._parts().writer.do(work, weight=limit)

    async def _compare_and_write(
        self, batch: Sequence[TriggerChange], depth_limit: int
    ) -> list[TriggerOutcome]:
        writes = [verbs.encode(change) for change in batch]
        work = partial(verbs.apply, batch=writes, depth_limit=depth_limit)
        return await self._parts().writer.do(work, weight=len(writes))

    async def _write_over(self, change: TriggerChange) -> TriggerOutcome:
        writer, trigger = self._parts().writer, change.after
        if change.write is TriggerWrite.REMOVE:
            removed = await writer.do(partial(verbs.remove, trigger_id=trigger.id))
            return Changed(trigger) if removed else TriggerStale(None)
        return Changed(await writer.do(partial(verbs.save, trigger=trigger)))

    # -- reads

    async def find(self, trigger_id: str) -> Trigger | None:
        return await self._parts().readers.do(partial(find_one, trigger_id=trigger_id))

    async def _find_page(self, where: TriggerFilter, limit: int, cursor: str | None) -> TriggerPage:
        read = partial(find_all, wanted=where, limit=limit, after=cursor or "")
        return await self._parts().readers.do(read)

    async def _find_due(self, due_by: float, limit: int) -> list[Trigger]:
        opened = self._parts()
        now = opened.clock.boot, opened.clock.now()
        return await opened.readers.do(partial(find_due, now=now, upto=due_by, limit=limit))


def find_one(view: ReadView, trigger_id: str) -> Trigger | None:
    row = view.row("trigger_of", trigger_id)
    return trigger_of(row[3]) if row else None


def find_due(view: ReadView, now: AsOf, upto: float, limit: int) -> list[Trigger]:
    rows = [(at, id, body) for id, at, body in view.rows("triggers_due", upto, limit)]
    rows += [(at, id, body) for id, at, _, body in view.rows("triggers_lapsed", *now, upto, limit)]
    triggers = (readable(trigger_id, body) for _, trigger_id, body in sorted(rows))
    return [trigger for trigger in islice(triggers, limit) if trigger is not None]


def find_all(view: ReadView, wanted: TriggerFilter, limit: int, after: str) -> TriggerPage:
    """Walk the narrowest index, and compare each trigger with the filter."""
    seen_limit = max(limit + 1, LOOK_LIMIT)
    triggers: list[Trigger] = []
    seen, last = 0, ""
    for trigger_id, body in islice(_walk(view, wanted, after, seen_limit), seen_limit):
        trigger = readable(trigger_id, body)
        if trigger and wanted.matches(trigger):
            if len(triggers) == limit:
                return TriggerPage(triggers=tuple(triggers), cursor=triggers[-1].id)
            triggers.append(trigger)
        seen, last = seen + 1, trigger_id
    return TriggerPage(triggers=tuple(triggers), cursor=last if seen == seen_limit else None)


def _walk(view: ReadView, wanted: TriggerFilter, after: str, limit: int) -> Iterator[Any]:
    if wanted.declared:
        return view.iterate("triggers_declared", after, limit)
    if wanted.tenant is not None:
        return view.iterate("triggers_of_tenant", wanted.tenant, after, limit)
    if len(wanted.statuses) == len(TriggerStatus):
        return view.iterate("triggers_any", after, limit)
    parts = [view.iterate("triggers_of_status", status, after, limit) for status in wanted.statuses]
    return merge(*parts, key=itemgetter(0))
