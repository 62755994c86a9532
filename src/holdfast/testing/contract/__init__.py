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

from holdfast.testing.contract.amending import Amending, PuttingCheckpoints
from holdfast.testing.contract.applying import Applying, Repeats
from holdfast.testing.contract.auditing import Chaining, PruningAudits, Sealing, Tampering
from holdfast.testing.contract.bodies import Checkpoints, Results
from holdfast.testing.contract.claiming import Claiming
from holdfast.testing.contract.durability import Durability
from holdfast.testing.contract.following import Following, FollowingInOrder, NotFollowing
from holdfast.testing.contract.holding import HoldingBack, RefusingToWait
from holdfast.testing.contract.inserting import Inserting, Keys
from holdfast.testing.contract.keeping import Keeping, OtherKinds, Tombstones
from holdfast.testing.contract.lateness import BeingLate
from holdfast.testing.contract.leasing import Expiring, Leasing
from holdfast.testing.contract.lining import ActiveTask, Lining
from holdfast.testing.contract.measuring import (
    CountingHeld,
    CountingMoves,
    GroupingErrors,
    Observing,
)
from holdfast.testing.contract.moving_on import MovingOn
from holdfast.testing.contract.naming import Naming
from holdfast.testing.contract.operating_durability import OperatingDurability
from holdfast.testing.contract.outages import Outages
from holdfast.testing.contract.projecting import Projecting
from holdfast.testing.contract.reading import Counting, Finding, Looking, Workers
from holdfast.testing.contract.remembering import Remembering
from holdfast.testing.contract.requesting import Requesting
from holdfast.testing.contract.signalling import Signalling
from holdfast.testing.contract.switching import (
    Draining,
    PausedClaiming,
    PausedIntake,
    Switching,
)
from holdfast.testing.contract.tenant_holds import TenantHolds
from holdfast.testing.contract.timing import Jumping, Timing

__all__ = ["DurableStoreContract", "StoreContract"]


class StoreContract(
    Inserting,
    Keys,
    Claiming,
    Applying,
    Repeats,
    Requesting,
    Following,
    NotFollowing,
    FollowingInOrder,
    Checkpoints,
    Results,
    Amending,
    PuttingCheckpoints,
    Leasing,
    Expiring,
    Timing,
    Jumping,
    Lining,
    ActiveTask,
    HoldingBack,
    RefusingToWait,
    MovingOn,
    Keeping,
    Tombstones,
    OtherKinds,
    Projecting,
    Finding,
    Looking,
    Counting,
    Workers,
    Signalling,
    Switching,
    PausedIntake,
    PausedClaiming,
    Draining,
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
