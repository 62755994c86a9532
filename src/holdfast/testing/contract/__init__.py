"""The suite that every store passes. A new store needs a short test class:

    class TestRedis(StoreContract):
        open = open_redis

where ``async def open_redis(self, clock)`` returns a store that is open and empty and takes its
time from ``clock``. For a store that outlives the process derive from `DurableStoreContract`; there
``open`` opens the same data each time that it is called within a test.

Triggers and plans have suites of their own: `holdfast.testing.contract.triggers` and
`holdfast.testing.contract.plans`.
"""

from __future__ import annotations

from holdfast.testing.contract.admin.audit import AuditChain
from holdfast.testing.contract.admin.retention import Retention
from holdfast.testing.contract.admin.switches import SwitchContract
from holdfast.testing.contract.admin.tenant_holds import TenantHolds
from holdfast.testing.contract.durability import Durability, OperatingDurability
from holdfast.testing.contract.tasks.amendments import Amendments
from holdfast.testing.contract.tasks.apply import ApplyContract
from holdfast.testing.contract.tasks.bodies import StoredBodies
from holdfast.testing.contract.tasks.claim import ClaimContract
from holdfast.testing.contract.tasks.due_times import DueTimes
from holdfast.testing.contract.tasks.follow_up_tasks import FollowUpTasks
from holdfast.testing.contract.tasks.insert import InsertContract
from holdfast.testing.contract.tasks.leases import LeaseContract
from holdfast.testing.contract.tasks.names import NameContract
from holdfast.testing.contract.tasks.outages import Outages
from holdfast.testing.contract.tasks.requests import RequestContract
from holdfast.testing.contract.tasks.signals import SignalContract
from holdfast.testing.contract.tasks.superseded import SupersededTasks
from holdfast.testing.contract.tasks.tenant_line import TenantLines
from holdfast.testing.contract.tasks.tenant_lock import TenantLock
from holdfast.testing.contract.tasks.unreleased import UnreleasedTasks
from holdfast.testing.contract.views.measures import Measures
from holdfast.testing.contract.views.reads import TaskReads
from holdfast.testing.contract.views.run_history import RunHistory

__all__ = ["DurableStoreContract", "StoreContract"]


class StoreContract(
    InsertContract,
    ClaimContract,
    ApplyContract,
    RequestContract,
    FollowUpTasks,
    StoredBodies,
    Amendments,
    LeaseContract,
    DueTimes,
    TenantLines,
    TenantLock,
    UnreleasedTasks,
    SupersededTasks,
    Retention,
    TaskReads,
    SignalContract,
    SwitchContract,
    TenantHolds,
    AuditChain,
    Measures,
    NameContract,
    Outages,
    RunHistory,
):
    """Derive a test class from it and implement ``open``."""


class DurableStoreContract(StoreContract, Durability, OperatingDurability):
    """The suite of a store whose data outlives the process."""
