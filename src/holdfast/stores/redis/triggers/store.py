"""Triggers on Redis, beside the tasks that they make: each in the partition that its id names."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.domain import names
from holdfast.domain.errors import InvalidInput, InvalidName
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
from holdfast.stores.redis import due_merge
from holdfast.stores.redis.due_merge import DueItems
from holdfast.stores.redis.partition import Partition, Partitions, gather_all
from holdfast.stores.redis.triggers import verbs


class RedisTriggers:
    def __init__(self, parts: Partitions) -> None:
        self._parts = parts

    def _part(self, trigger_id: str) -> Partition | None:
        """None: no trigger here can have that id."""
        try:
            self._check(trigger_id)
        except InvalidName:
            return None
        return self._parts.of_trigger(trigger_id)

    def _check(self, trigger_id: str) -> None:
        """The partition is no part of the name that was given."""
        named = len(self._parts) > 1 and self._parts.of_trigger(trigger_id) is not None
        names.check("trigger", trigger_id.rpartition(".p")[0] if named else trigger_id)

    def _at_home(self, trigger: Trigger) -> Partition:
        part = self._part(trigger.id)
        of_tenant = trigger.tenant and self._parts.of_tenant(trigger.tenant)
        if part is None or (of_tenant and of_tenant is not part):
            raise InvalidInput(
                f"trigger id {trigger.id!r} was not made by this store's trigger_id()"
            )
        return part

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
        if trigger_id is not None:
            return await self._claim_one(trigger_id, owner, lease_seconds)

        async def look(part: Partition, number: int) -> DueItems[bytes]:
            return await verbs.find_due_times(part, upto, number)

        async def take(part: Partition, number: int) -> DueItems[Trigger]:
            return await verbs.claim(part, owner, upto, number, lease_seconds)

        found = await due_merge.hand_out(self._parts, limit, look, take)
        leased = sorted(found.items, key=_by_time)
        return DueTriggers(triggers=tuple(leased), next_seconds=found.next_seconds)

    async def _claim_one(self, trigger_id: str, owner: str, lease_seconds: float) -> DueTriggers:
        part = self._part(trigger_id)
        leased = part and await verbs.acquire_lease(part, trigger_id, owner, lease_seconds)
        return DueTriggers(triggers=(leased,) if leased else (), next_seconds=None)

    async def apply(
        self, batch: Sequence[TriggerChange], *, depth_limit: int
    ) -> Sequence[TriggerOutcome]:
        async def ask(part: Partition, some: list[TriggerChange]) -> list[TriggerOutcome]:
            return await verbs.apply(part, some, depth_limit)

        for change in batch:
            if change.write is not TriggerWrite.COMPARE:
                return await self._one_by_one(batch, depth_limit)
            if change.before.version == 0:
                self._check(change.after.id)
                self._at_home(change.after)
            self._check_tasks(change)
        return await self._parts.spread(
            batch, lambda change: self._part(change.after.id), ask, lambda _: TriggerStale(None)
        )

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
        trigger = change.after
        if change.write is TriggerWrite.SAVE:
            self._check(trigger.id)
            return Changed(await verbs.save(self._at_home(trigger), trigger))
        part = self._part(trigger.id)
        removed = part is not None and await verbs.remove(part, trigger.id)
        return Changed(trigger) if removed else TriggerStale(None)

    def _check_tasks(self, change: TriggerChange) -> None:
        """Check that the tasks live where their trigger does: they go in with it, in one step."""
        part = self._part(change.after.id)
        for one in change.submissions:
            if self._parts.with_task(one.task) is not part:
                raise InvalidInput(
                    f"task id {one.task.id!r} is not in the partition of its trigger "
                    f"{change.after.id!r}"
                )

    # -- reads

    async def find(self, trigger_id: str) -> Trigger | None:
        part = self._part(trigger_id)
        return await verbs.find(part, trigger_id) if part is not None else None

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
        if cursor is not None:
            self._check(cursor)

        def matches(trigger: Trigger) -> bool:
            has_status = not statuses or trigger.status in statuses
            is_declared = trigger.declared or not declared
            return has_status and is_declared and tenant in (None, trigger.tenant)

        parts = [self._parts.of_tenant(tenant)] if tenant is not None else [*self._parts]
        leaves = await gather_all(
            verbs.page(p, matches, limit, cursor, declared=declared) for p in parts
        )
        found, end = due_merge.one_page(leaves, limit, newest_first=False)
        return TriggerPage(triggers=found, cursor=end)

    async def _due(self, due_by: float, limit: int) -> TriggerPage:
        found = await gather_all(verbs.find_due(p, due_by, limit) for p in self._parts)
        due = sorted((one for some in found for one in some), key=_by_time)[:limit]
        return TriggerPage(triggers=tuple(due), cursor=None)


def _by_time(trigger: Trigger) -> tuple[float, str]:
    return trigger.trigger_at or 0.0, trigger.id
