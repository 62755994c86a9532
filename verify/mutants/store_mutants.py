"""Defects of a store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from holdfast.domain.audit import Anchor, Audit, link_entry
from holdfast.domain.task import events as ev
from holdfast.domain.task.placement import RESTING, Next, Place
from holdfast.domain.task.task import Lease, Task
from holdfast.domain.task.transition import Outcome, Submission, Transition
from holdfast.ports import Claimed, Due, Kept, Renewal, Switch, Topic
from holdfast.stores.memory.admin import MemoryAdmin
from holdfast.stores.memory.state import MemoryState, MemoryTenantLine
from holdfast.stores.memory.tasks import MemoryTasks
from verify.mutants.mutant import mutant

Real = Callable[..., Any]


@mutant(MemoryTasks, "_may_write")
def no_fence(real: Real, part: MemoryTasks, task: Task, transition: Transition) -> bool:
    """A holder's write is carried out whoever holds the task by now."""
    return transition.lease is not None or bool(real(part, task, transition))


@mutant(MemoryTasks, "_may_write")
def no_version(_: Real, __: MemoryTasks, task: Task, transition: Transition) -> bool:
    """The lease is compared, the version is not."""
    if transition.lease is None:
        return task.lease is None or transition.next is Next.STAY
    return task.lease is not None and task.lease.id == transition.lease


# After a lease is lost the version has changed, too: the engine never gets past both.
@mutant(MemoryTasks, "_may_write", in_contract=True)
def no_lease(_: Real, __: MemoryTasks, task: Task, transition: Transition) -> bool:
    """The version is compared, the lease is not."""
    return task.version == transition.expects


@mutant(MemoryState, "enter")
def no_tenant_lock(_: Real, state: MemoryState, task: Task) -> None:
    """Every task goes straight to its queue, past its tenant's line."""
    state.tasks[task.id] = msgspec.structs.replace(task, place=Place.READY)
    state.ready[task.queue][task.id] = None
    state.signals.notify(Topic.READY)


@mutant(MemoryState, "rest")
def line_never_woken(_: Real, state: MemoryState, task: Task) -> None:
    """A task that rests does not let its tenant's next one through."""
    state.tasks[task.id] = task
    if task.tenant is not None and task.settled and state.tenants[task.tenant].active == task.id:
        state.tenants[task.tenant].active = None
    state.signals.notify(Topic.RESTED)


@mutant(MemoryState, "line_is_open")
def hold_ignored(_: Real, state: MemoryState, tenant: MemoryTenantLine) -> bool:
    """The line opens over a task that rests and holds it."""
    return tenant.active is None or state.tasks[tenant.active].place in RESTING


@mutant(MemoryState, "moved_on", seed=8)
def moved_on_ignored(*_: Any) -> bool:
    """A retry goes over newer work of its tenant."""
    return False


@mutant(MemoryTasks, "_refuse", in_contract=True)
def checkpoint_not_needed(
    real: Real, part: MemoryTasks, task: Task, transition: Transition
) -> Outcome | None:
    """A task continues without its checkpoint."""
    any_way = msgspec.structs.replace(transition, not_without_checkpoint=False)
    refused: Outcome | None = real(part, task, any_way)
    return refused


@mutant(MemoryTasks, "_was_applied")
def resend_done_again(*_: Any) -> bool:
    """A write that is sent again is not known again."""
    return False


@mutant(MemoryTasks, "claim", seed=13)
async def claim_not_remembered(
    real: Real, part: MemoryTasks, worker: str, **options: Any
) -> Sequence[Claimed]:
    """A claim that is sent again hands out more tasks."""
    part._state.claims.pop(worker, None)
    return await real(part, worker, **options)  # type: ignore[no-any-return]


@mutant(MemoryTasks, "_hand_out")
def fence_kept(real: Real, part: MemoryTasks, task: Task, *rest: Any) -> Claimed:
    """Give the new holder of a task the fence of the one before."""
    if task.fence:
        part._state.fence = task.fence - 1
    return real(part, task, *rest)  # type: ignore[no-any-return]


@mutant(MemoryTasks, "_lose", seed=35)
def crashes_not_counted(real: Real, part: MemoryTasks, task: Task, _: bool) -> None:
    """A lapsed lease is never a crash: poison never stops."""
    real(part, task, False)


@mutant(MemoryTasks, "expire")
async def expires_early(real: Real, part: MemoryTasks, **options: Any) -> int:
    """A lease is taken while a third of it is left."""
    for task in list(part._state.tasks.values()):
        if task.lease is not None and task.lease.until - part._state.clock.now() < 2.0:
            lease = msgspec.structs.replace(task.lease, until=0.0)
            part._state.tasks[task.id] = msgspec.structs.replace(task, lease=lease)
    return await real(part, **options)  # type: ignore[no-any-return]


@mutant(MemoryTasks, "_renew", seed=21)
def renews_any_lease(real: Real, part: MemoryTasks, renewal: Renewal, until: float) -> bool:
    """A zombie's heartbeat keeps alive a lease that is another's."""
    task = part._state.tasks.get(renewal.task_id)
    lease: Lease | None = task.lease if task else None
    if lease is not None:
        renewal = msgspec.structs.replace(renewal, lease_id=lease.id)
    return bool(real(part, renewal, until))


@mutant(MemoryTasks, "promote")
async def due_time_ignored(real: Real, part: MemoryTasks, **options: Any) -> Due:
    """Move what waits for a time at once."""
    for task in list(part._state.tasks.values()):
        if task.due is not None:
            part._state.tasks[task.id] = msgspec.structs.replace(task, due=0.0)
    return await real(part, **options)  # type: ignore[no-any-return]


@mutant(MemoryState, "log")
def failures_leave_no_event(
    real: Real, state: MemoryState, events: Sequence[ev.Event], request: str
) -> None:
    """A transition with a failure is written without its events."""
    if not any(isinstance(event, ev.StageFailed) for event in events):
        real(state, events, request)


@mutant(MemoryState, "first_of")
def key_ignored(*_: Any) -> None:
    """The same key makes a new task each time."""


@mutant(MemoryState, "take_out")
def left_in_queue(*_: Any) -> None:
    """A task that is paused or cancelled while it waits stays in its queue."""


@mutant(MemoryState, "delete")
def no_tombstone(real: Real, state: MemoryState, task_id: str) -> None:
    """A task that is not kept leaves nothing, not even its key."""
    real(state, task_id)
    state.tombstones.pop(task_id, None)


@mutant(MemoryTasks, "_write")
def checkpoint_not_with_its_stage(
    real: Real, part: MemoryTasks, task: Task, transition: Transition
) -> None:
    """A stage is committed, its checkpoint is forgotten."""
    real(part, task, msgspec.structs.replace(transition, checkpoint=None))


@mutant(MemoryTasks, "_write")
def stages_of_a_deploy_forgotten(
    real: Real, part: MemoryTasks, task: Task, transition: Transition
) -> None:
    """A record keeps the stages that it was submitted with, whatever its holder's code has."""
    after = msgspec.structs.replace(transition.after, stages=task.stages)
    real(part, task, msgspec.structs.replace(transition, after=after))


# Nothing follows from the work of the simulated worlds: these are the contract's.
@mutant(MemoryState, "follow", in_contract=True)
def nothing_follows(_: Real, __: MemoryState, submissions: Sequence[Submission]) -> None:
    """A transition is written, the tasks that follow from it are not."""
    del submissions


@mutant(MemoryState, "follow", in_contract=True)
def followers_refused(real: Real, state: MemoryState, submissions: Sequence[Submission]) -> None:
    """A queue whose intake is off keeps back what has happened."""
    real(state, [s for s in submissions if not state.is_off(Switch.INTAKE, s.task.queue)])


@mutant(MemoryTasks, "_apply", in_contract=True)
def followers_of_a_repeat(real: Real, part: MemoryTasks, transition: Transition) -> Outcome:
    """Write the followers of a transition, whether it is written or not."""
    outcome = real(part, transition)
    part._state.follow(transition.follows)
    return outcome  # type: ignore[no-any-return]


@mutant(MemoryTasks, "_write", in_contract=True)
def payload_not_amended(real: Real, part: MemoryTasks, task: Task, transition: Transition) -> None:
    """A corrected task is set going with the payload that it had."""
    real(part, task, msgspec.structs.replace(transition, payload=None))


# No actor of the simulated worlds throws a switch or reads the chain: these are the contract's.
@mutant(MemoryState, "is_off", in_contract=True)
def intake_never_shut(real: Real, state: MemoryState, switch: Switch, name: str) -> bool:
    """A queue takes tasks while its intake is off."""
    return switch is not Switch.INTAKE and bool(real(state, switch, name))


@mutant(MemoryTasks, "claim", in_contract=True)
async def claims_what_is_switched_off(
    real: Real, part: MemoryTasks, worker: str, **options: Any
) -> Sequence[Claimed]:
    """A queue hands tasks out while its claiming is off."""
    switches = dict(part._state.switches)
    part._state.switches.clear()
    try:
        return await real(part, worker, **options)  # type: ignore[no-any-return]
    finally:
        part._state.switches.update(switches)


@mutant(MemoryTasks, "_is_held", seed=1)
def hands_out_of_held_tenants(_: Real, part: MemoryTasks, tenant: str | None) -> bool:
    """A task is handed out while a person holds its tenant."""
    del part, tenant
    return False


@mutant(MemoryAdmin, "_set_back", in_contract=True)
def switched_on_in_silence(_: Real, part: MemoryAdmin, switch: Switch, name: str) -> None:
    """Nobody who waits is told that a queue hands out again."""
    part._state.switches.pop((switch, name), None)


@mutant(MemoryState, "forget_worker", in_contract=True)
def drain_outlives_its_worker(real: Real, state: MemoryState, worker: str) -> None:
    """The next worker of that name is told to drain at once."""
    drain = state.switches.get((Switch.DRAIN, worker))
    real(state, worker)
    if drain is not None:
        state.switches[Switch.DRAIN, worker] = drain


@mutant(MemoryState, "note", in_contract=True)
def links_hang_on_nothing(_: Real, state: MemoryState, entry: Audit) -> None:
    """The hash of an entry covers the entry, and not what was before it."""
    state.links.append(link_entry(Anchor(seq=state.head().seq), entry))


@mutant(MemoryAdmin, "_remove", in_contract=True)
def pruning_breaks_the_chain(real: Real, part: MemoryAdmin, kind: Kept, name: str) -> None:
    """The oldest links go, and what the next one hangs on is forgotten with them."""
    base = part._state.base
    real(part, kind, name)
    part._state.base = base
