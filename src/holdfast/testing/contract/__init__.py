"""The suite that every store passes. A new store is a two-line test:

    class TestRedis(StoreContract):
        open = open_redis

where ``async def open_redis(self, clock)`` returns a store that is open, empty and tells the time
by ``clock``. For a store that outlives the process derive from `DurableStoreContract`; there
``open`` opens the same data each time that it is called within a test.

What a store keeps beside its tasks has suites of its own: `holdfast.testing.contract.triggers` and
`holdfast.testing.contract.plans`.
"""

from __future__ import annotations

from holdfast.testing.contract.admin.audit import Chaining, PruningAudits, Sealing, Tampering
from holdfast.testing.contract.admin.retention import OtherKinds, Retention, Tombstones
from holdfast.testing.contract.admin.switches import (
    PausedClaiming,
    PausedIntake,
    Switching,
    WorkerDrains,
)
from holdfast.testing.contract.admin.tenant_holds import TenantHolds
from holdfast.testing.contract.durability import Durability, OperatingDurability
from holdfast.testing.contract.tasks.amendments import Amendments, PuttingCheckpoints
from holdfast.testing.contract.tasks.apply import Applying, Repeats
from holdfast.testing.contract.tasks.bodies import Results, StoredCheckpoints
from holdfast.testing.contract.tasks.claim import Claiming
from holdfast.testing.contract.tasks.due_times import Jumping, Timing
from holdfast.testing.contract.tasks.follow_up_tasks import (
    FollowingInOrder,
    FollowUpTasks,
    NotFollowing,
)
from holdfast.testing.contract.tasks.insert import Inserting, Keys
from holdfast.testing.contract.tasks.leases import Expiring, Leasing
from holdfast.testing.contract.tasks.names import Naming
from holdfast.testing.contract.tasks.outages import Outages
from holdfast.testing.contract.tasks.requests import Requesting
from holdfast.testing.contract.tasks.signals import Signalling
from holdfast.testing.contract.tasks.superseded import MovingOn
from holdfast.testing.contract.tasks.tenant_queue import ActiveTask, TenantQueues
from holdfast.testing.contract.tasks.unreleased import RefusingToWait, UnreleasedTasks
from holdfast.testing.contract.views.lateness import BeingLate
from holdfast.testing.contract.views.measures import (
    CountingHeld,
    CountingMoves,
    GroupingErrors,
    Observing,
)
from holdfast.testing.contract.views.reads import QueueCounts, TaskFilters, TaskReads, Workers
from holdfast.testing.contract.views.run_history import Remembering
from holdfast.testing.contract.views.status_index import Projecting

__all__ = ["DurableStoreContract", "StoreContract"]


class StoreContract(
    Inserting,
    Keys,
    Claiming,
    Applying,
    Repeats,
    Requesting,
    FollowUpTasks,
    NotFollowing,
    FollowingInOrder,
    StoredCheckpoints,
    Results,
    Amendments,
    PuttingCheckpoints,
    Leasing,
    Expiring,
    Timing,
    Jumping,
    TenantQueues,
    ActiveTask,
    UnreleasedTasks,
    RefusingToWait,
    MovingOn,
    Retention,
    Tombstones,
    OtherKinds,
    Projecting,
    TaskFilters,
    TaskReads,
    QueueCounts,
    Workers,
    Signalling,
    Switching,
    PausedIntake,
    PausedClaiming,
    WorkerDrains,
    TenantHolds,
    Chaining,
    Sealing,
    Tampering,
    PruningAudits,
    Observing,
    CountingMoves,
    CountingHeld,
    BeingLate,
    GroupingErrors,
    Naming,
    Outages,
    Remembering,
):
    """Derive a test class from it and implement ``open``."""


class DurableStoreContract(StoreContract, Durability, OperatingDurability):
    """The same, and that everything is there again after a restart."""
