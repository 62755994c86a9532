"""Plans on Redis: each in the partition that follows from its id; its tasks may live in others."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from holdfast.domain import names
from holdfast.domain.errors import InvalidInput, InvalidName
from holdfast.domain.plan.events import PlanEvent
from holdfast.domain.plan.plan import (
    Member,
    Plan,
    PlanChange,
    PlanOutcome,
    PlanStale,
    PlanStatus,
    PlanTasks,
)
from holdfast.ports import DuePlans, PlanPage
from holdfast.stores.redis import due_merge
from holdfast.stores.redis.due_merge import DueItems
from holdfast.stores.redis.partition import Partition, Partitions, gather_all
from holdfast.stores.redis.plans import verbs

REMEMBERED = 16  # plans whose lists of tasks are kept at hand: they never change

_CURSOR = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z (\S+)")


class RedisPlans:
    def __init__(self, parts: Partitions) -> None:
        self._parts = parts
        self._ids: OrderedDict[tuple[str, str, float], tuple[str, ...]] = OrderedDict()

    def _part(self, plan_id: str) -> Partition | None:
        """None: no plan can have that id."""
        try:
            return self._parts.of_plan(names.check("plan", plan_id))
        except InvalidName:
            return None

    # -- writes

    async def create(self, plan: Plan, tasks: PlanTasks, events: Sequence[PlanEvent]) -> Plan:
        names.check("plan", plan.id)
        return await verbs.create(self._parts.of_plan(plan.id), plan, tasks, events)

    async def claim(self, owner: str, *, limit: int, lease_seconds: float) -> DuePlans:
        async def take(part: Partition, number: int) -> DueItems[Plan]:
            return await verbs.claim(part, owner, number, lease_seconds)

        found = await due_merge.hand_out(self._parts, limit, verbs.find_due, take)
        return DuePlans(plans=tuple(found.items), next_seconds=found.next_seconds)

    async def renew(self, plan_id: str, lease_id: str, *, lease_seconds: float) -> bool:
        part = self._part(plan_id)
        return part is not None and await verbs.renew(part, plan_id, lease_id, lease_seconds)

    async def apply(self, change: PlanChange, *, lease_seconds: float = 30.0) -> PlanOutcome:
        part = self._part(change.after.id)
        if part is None:
            return PlanStale(None)
        self._parts.with_follows(part, change.follows)
        ids = await self._ids_of(part, change.before) if change.moves else ()
        if ids is None:
            return PlanStale(None)
        return await verbs.apply(part, change, ids, lease_seconds)

    async def _ids_of(self, part: Partition, plan: Plan) -> tuple[str, ...] | None:
        """Return the ids of a plan's tasks by number, which name the slots; they are read once."""
        key = plan.id, plan.digest, plan.created_at
        if key not in self._ids:
            found = await verbs.tasks(part, plan.id)
            if found is None:
                return None
            self._ids[key] = found.ids
            while len(self._ids) > REMEMBERED:
                self._ids.popitem(last=False)
        self._ids.move_to_end(key)
        return self._ids[key]

    async def wake(self, plan_ids: Sequence[str]) -> None:
        ids: dict[Partition, list[str]] = {}
        for plan_id in plan_ids:
            if (part := self._part(plan_id)) is not None:
                ids.setdefault(part, []).append(plan_id)
        await gather_all(verbs.wake(part, some) for part, some in ids.items())

    # -- reads

    async def load(self, plan_ids: Sequence[str]) -> Sequence[Plan | None]:
        parts = self._parts
        if len(parts) == 1:  # as `spread` does not ask where a name is that is nowhere
            there = [name for name in plan_ids if self._part(name) is not None]
            found = dict(zip(there, await verbs.find(parts.first, there), strict=True))
            return [found.get(name) for name in plan_ids]
        return await parts.spread(plan_ids, self._part, verbs.find, lambda _: None)

    async def tasks(self, plan_id: str) -> PlanTasks | None:
        part = self._part(plan_id)
        return await verbs.tasks(part, plan_id) if part is not None else None

    async def members(self, plan_id: str) -> Mapping[int, Member]:
        part = self._part(plan_id)
        return await verbs.members(part, plan_id) if part is not None else {}

    async def events(
        self, plan_id: str, *, limit: int, after_version: int = 0
    ) -> Sequence[PlanEvent]:
        part = self._part(plan_id)
        return await verbs.events(part, plan_id, limit, after_version) if part else []

    async def find(
        self, *, statuses: Sequence[PlanStatus] = (), limit: int, cursor: str | None = None
    ) -> PlanPage:
        if cursor is not None and _CURSOR.fullmatch(cursor) is None:
            raise InvalidInput(f"{cursor!r} is not a cursor of plans")

        def matches(plan: Plan) -> bool:
            return not statuses or plan.status in statuses

        leaves = await gather_all(verbs.page(part, matches, limit, cursor) for part in self._parts)
        found, end = due_merge.one_page(leaves, limit, newest_first=True)
        return PlanPage(plans=found, cursor=end)
