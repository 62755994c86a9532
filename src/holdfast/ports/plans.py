"""The plan part of a store.

A plan's tasks may live in other partitions: no verb here touches them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from holdfast.domain.plan.events import PlanEvent
from holdfast.domain.plan.plan import Member, Plan, PlanChange, PlanOutcome, PlanStatus, PlanTasks


class DuePlans(msgspec.Struct, frozen=True, kw_only=True):
    plans: tuple[Plan, ...]  # each with its lease
    next_seconds: float | None  # until there is something to look at; None: nothing waits


class PlanPage(msgspec.Struct, frozen=True, kw_only=True):
    """Newest first. A page may be short and still have a next one: a look is bounded."""

    plans: tuple[Plan, ...]
    cursor: str | None


class PlanStore(Protocol):
    async def create(self, plan: Plan, tasks: PlanTasks, events: Sequence[PlanEvent]) -> Plan:
        """The plan of this id as it is now: this one, or one that was there before."""

    async def claim(self, owner: str, *, limit: int, lease_seconds: float) -> DuePlans:
        """Hand out plans that somebody has to look at. A lapsed lease is taken over; fences rise.
        To hand out changes no version: a lease is not a fact of the plan."""

    async def renew(self, plan_id: str, lease_id: str, *, lease_seconds: float) -> bool:
        """False: the lease is lost."""

    async def apply(self, change: PlanChange, *, lease_seconds: float = 30.0) -> PlanOutcome:
        """A repeat is answered as the first was. Under a lease that goes on it is renewed."""

    async def wake(self, plan_ids: Sequence[str]) -> None:
        """Somebody should look: a plan that nobody holds becomes due now, one that is driven when
        its driver puts it down. One that has settled, or is still being made, is left alone.
        Changes no version."""

    async def load(self, plan_ids: Sequence[str]) -> Sequence[Plan | None]: ...

    async def tasks(self, plan_id: str) -> PlanTasks | None: ...

    async def members(self, plan_id: str) -> Mapping[int, Member]:
        """Return how the plan sees its tasks, by number; those not named are waiting."""

    async def events(
        self, plan_id: str, *, limit: int, after_version: int = 0
    ) -> Sequence[PlanEvent]:
        """Return events in order, from the version after that one; a version's events are never
        parted."""

    async def find(
        self, *, statuses: Sequence[PlanStatus] = (), limit: int, cursor: str | None = None
    ) -> PlanPage: ...
