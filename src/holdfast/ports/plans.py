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
    next_seconds: float | None  # until the next plan is due; None: none waits


class PlanPage(msgspec.Struct, frozen=True, kw_only=True):
    """Plans, the newest first. A short page may have a next one, as each search is bounded."""

    plans: tuple[Plan, ...]
    cursor: str | None


class PlanStore(Protocol):
    """The verbs that write and read plans."""

    async def create(self, plan: Plan, tasks: PlanTasks, events: Sequence[PlanEvent]) -> Plan:
        """Insert a plan, and return the plan of this id: this one, or one that was there before."""

    async def claim(self, owner: str, *, limit: int, lease_seconds: float) -> DuePlans:
        """Lease due plans to a driver. It takes lapsed leases over; each lease has a higher fence.
        A claim changes no version: a lease is no fact of the plan."""

    async def renew(self, plan_id: str, lease_id: str, *, lease_seconds: float) -> bool:
        """Renew a lease; False: it is lost."""

    async def apply(self, change: PlanChange, *, lease_seconds: float = 30.0) -> PlanOutcome:
        """Write a change, and renew its lease. A repeat gets the first answer."""

    async def wake(self, plan_ids: Sequence[str]) -> None:
        """Make plans due now; one with a driver becomes due when the driver gives it back. Settled
        plans and unsealed ones stay as they are. No version changes."""

    async def load(self, plan_ids: Sequence[str]) -> Sequence[Plan | None]:
        """Return the records of plans, in the order of the ids; None: there is no such plan."""

    async def tasks(self, plan_id: str) -> PlanTasks | None:
        """Return the ids and tenants of a plan's tasks; None: there is no such plan."""

    async def members(self, plan_id: str) -> Mapping[int, Member]:
        """Return the plan's view of its tasks, by number; tasks that are not named are waiting."""

    async def events(
        self, plan_id: str, *, limit: int, after_version: int = 0
    ) -> Sequence[PlanEvent]:
        """Return events in order, after that version; all events of a version come together."""

    async def find(
        self, *, statuses: Sequence[PlanStatus] = (), limit: int, cursor: str | None = None
    ) -> PlanPage:
        """Return a page of the plans in these statuses (none named: in any), the newest first."""
