"""Plans for the tests of the domain."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from holdfast.domain.plan import commands
from holdfast.domain.plan.plan import (
    SETTLED,
    WAITING,
    Member,
    MemberState,
    Plan,
    PlanChange,
    PlanStatus,
)
from holdfast.domain.plan.rollout import PlanObservation
from holdfast.domain.task.task import Lease
from tests.support.task_records import NOW

LEASE = Lease(owner="w-1", fence=3, id="lease-1", until=NOW + 30)


def plan(status: PlanStatus = PlanStatus.RUNNING, **fields: Any) -> Plan:
    """Return a plan of four tasks in two waves, unless given otherwise."""
    waves = fields.get("waves", (1, 4))
    defaults: dict[str, Any] = {
        "id": "upgrade-7",
        "total": waves[-1],
        "digest": "d",
        "waves": waves,
        "created_at": NOW,
        "status": status,
        "status_since": NOW,
        "updated_at": NOW,
        "started_at": NOW,
        "settled_at": NOW if status in SETTLED else None,
        "version": 7,
        "counts": tuple({} for _ in waves),
        "lease": LEASE,
    }
    return Plan(**(defaults | fields))


def members(*states: MemberState) -> dict[int, Member]:
    found = {index: Member(state) for index, state in enumerate(states)}
    return {index: member for index, member in found.items() if member != WAITING}


def with_members(record: Plan, of: Mapping[int, Member]) -> Plan:
    empty = replace(record, counts=tuple({} for _ in record.waves))
    return replace(record, counts=commands.count_moves(empty, {}, of))


def seen(
    moves: Mapping[int, Member] | None = None, *, moving: bool = False, **more: Any
) -> PlanObservation:
    return PlanObservation(moves=moves or {}, moving=moving, **more)


def written(of: Mapping[int, Member], change: PlanChange) -> dict[int, Member]:
    """The members after the change, as a store keeps them."""
    after = {**of, **dict(change.moves)}
    return {index: member for index, member in after.items() if member != WAITING}
