"""The suite that every store of plans passes:

    class TestRedis(DurablePlanStoreContract):
        open = open_redis

where ``async def open_redis(self, clock)`` returns a store that is open and empty and takes its
time from ``clock`` (see `holdfast.testing.contract`).
"""

from __future__ import annotations

from holdfast.domain.plan.plan import Plan
from holdfast.testing.contract.drivers.record_driver import RecordDriver
from holdfast.testing.contract.durability import PlanDurability
from holdfast.testing.contract.plans.follow_up_tasks import PlanFollowUpContract
from holdfast.testing.contract.plans.leases import PlanLeaseContract
from holdfast.testing.contract.plans.reads import PlanReads
from holdfast.testing.contract.plans.writes import PlanWriteContract
from holdfast.testing.contract.records import RecordContract

__all__ = ["DurablePlanStoreContract", "PlanStoreContract"]


class PlanStoreContract(
    RecordContract, PlanWriteContract, PlanFollowUpContract, PlanLeaseContract, PlanReads
):
    """Derive a test class from it and implement ``open``."""

    @property
    def records(self) -> RecordDriver[Plan]:
        return self.plans


class DurablePlanStoreContract(PlanStoreContract, PlanDurability):
    """The suite of a store whose plans outlive the process."""
