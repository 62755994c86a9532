"""Defects of plans: of what decides on them, of what drives them, and of their store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

from msgspec.structs import replace

from holdfast.domain.plan import members, rollout
from holdfast.domain.plan.members import MemberTask
from holdfast.domain.plan.plan import Member, MemberState, Plan, PlanChange, PlanStatus
from holdfast.domain.plan.rollout import PlanObservation
from holdfast.domain.task.state import Command
from holdfast.runtime.plans.driver import PlanDriver
from holdfast.runtime.plans.poll import TaskPoll
from holdfast.runtime.plans.snapshot import PlanSnapshot
from holdfast.runtime.plans.task_gateway import SendResult, TaskGateway
from holdfast.stores.memory import plans as in_memory
from holdfast.stores.memory.plans import MemoryPlans
from holdfast.stores.memory.state import PlanShelf
from verify.mutants.mutant import mutant

Real = Callable[..., Any]


@mutant(PlanDriver, "_judge", seed=5)
async def released_before_admitted(
    real: Real, driver: PlanDriver, snapshot: PlanSnapshot, looks: Mapping[int, MemberTask]
) -> PlanObservation:
    """A task is let go before its slot is written."""
    found: PlanObservation = await real(driver, snapshot, looks)
    orders = [
        (task, Command.RELEASE)
        for index, member in found.chosen.items()
        if member.state is MemberState.ADMITTED and (task := looks[index].task) is not None
    ]
    await driver._gateway.send(snapshot.plan, orders)
    return found


@mutant(PlanSnapshot, "room_after", seed=17)
def slots_not_counted(_: Real, snapshot: PlanSnapshot, __: object) -> int:
    """Let as many tasks go as there are."""
    return snapshot.plan.total


@mutant(rollout, "_running", seed=65)
def halt_ignored(real: Real, plan: Plan, *rest: Any) -> Any:
    """A wave goes on however many of it have failed."""
    return real(replace(plan, halt_on=None), *rest)


@mutant(rollout, "soaks_seconds", seed=29)
def soak_ignored(*_: Any) -> float:
    """The next wave starts when the last has ended."""
    return 0.0


@mutant(TaskPoll, "_candidates", seed=17)
def wave_not_waited_for(_: Real, __: TaskPoll, snapshot: PlanSnapshot) -> Iterable[int]:
    """Tasks of all waves are let go at once."""
    return islice(snapshot.waiting(snapshot.plan.total), 20)


@mutant(members, "next_command", seed=29)
def pause_does_not_reach_tasks(real: Real, *arguments: Any) -> Command | None:
    """A plan that is paused lets its tasks run."""
    wanted: Command | None = real(*arguments)
    return None if wanted is Command.PAUSE else wanted


@mutant(members, "next_command", seed=41)
def rollback_leaves_the_waiting(real: Real, plan: Plan, *rest: Any) -> Command | None:
    """Leave the tasks that have not begun when all of a plan is rolled back, instead of cancelling
    them."""
    wanted: Command | None = real(plan, *rest)
    waits = any(isinstance(one, Member) and one.state is MemberState.WAITING for one in rest)
    return None if waits and plan.status is PlanStatus.ROLLING_BACK else wanted


@mutant(TaskGateway, "send", seed=125)
async def hold_back_dropped(
    real: Real, gateway: TaskGateway, plan: Plan, orders: Any
) -> SendResult:
    """A task whose tenant turns out to be busy keeps its slot."""
    kept = [(task, command) for task, command in orders if command is not Command.HOLD_BACK]
    return await real(gateway, plan, kept)  # type: ignore[no-any-return]


@mutant(PlanSnapshot, "to_undo", seed=17)
def rolled_back_oldest_first(real: Real, snapshot: PlanSnapshot, most: int) -> list[int]:
    """A rollback goes through the tasks in the order in which they ran."""
    return sorted(real(snapshot, snapshot.plan.total))[:most]


@mutant(PlanSnapshot, "to_cancel", seed=89)
def cancel_forgets_the_waiting(real: Real, snapshot: PlanSnapshot) -> Iterable[int]:
    """A cancel reaches only what has begun."""
    return (index for index in real(snapshot) if index in snapshot.members)


@mutant(in_memory, "_may_write", seed=455)
def driver_writes_without_its_lease(_: Real, plan: Plan, change: PlanChange) -> bool:
    """Compare the version of a driver's write, but not its lease."""
    return plan.version == change.before.version


@mutant(in_memory, "_may_write", seed=17)
def plan_version_not_compared(_: Real, plan: Plan, change: PlanChange) -> bool:
    """A person's write goes over what was written meanwhile."""
    return change.lease is None or (plan.lease is not None and plan.lease.id == change.lease)


@mutant(MemoryPlans, "_write", seed=5)
def members_not_with_their_plan(
    real: Real, store: MemoryPlans, shelf: PlanShelf, change: PlanChange
) -> None:
    """The counts of a plan are written, the slots of its tasks are not."""
    real(store, shelf, replace(change, moves=()))


@mutant(MemoryPlans, "_waiting", seed=17)
def plan_taken_over_early(real: Real, store: MemoryPlans) -> list[tuple[float, PlanShelf]]:
    """A plan is handed out while its driver still has some of its lease."""
    return [(due - 1.5, shelf) for due, shelf in real(store)]


@mutant(MemoryPlans, "_place", seed=5)
def plan_left_by_the_index(real: Real, store: MemoryPlans, shelf: PlanShelf, *rest: Any) -> None:
    """Write what a person asks of a plan at rest, and wake nobody."""
    was_due = shelf.due
    real(store, shelf, *rest)
    if was_due is None:
        shelf.due = None
