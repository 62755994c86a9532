"""Defects of a store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from holdfast.domain.audit import Anchor, Audit, linked
from holdfast.domain.task import events as ev
from holdfast.domain.task.placement import RESTING, Next, Place
from holdfast.domain.task.task import Lease, Task
from holdfast.domain.task.transition import Outcome, Submission, Transition
from holdfast.ports import Claimed, Due, Kept, Renewal, Switch, Topic
from holdfast.stores.memory.state import Shelves, Tenant
from holdfast.stores.memory.store import MemoryStore
from verify.mutants.mutant import mutant

Real = Callable[..., Any]


@mutant(MemoryStore, "_may_write")
def no_fence(real: Real, store: MemoryStore, task: Task, transition: Transition) -> bool:
    """A holder's write is carried out whoever holds the task by now."""
    return transition.lease is not None or bool(real(store, task, transition))


@mutant(MemoryStore, "_may_write")
def no_version(_: Real, __: MemoryStore, task: Task, transition: Transition) -> bool:
    """The lease is compared, the version is not."""
    if transition.lease is None:
        return task.lease is None or transition.next is Next.STAY
    return task.lease is not None and task.lease.id == transition.lease


# After a lease is lost the version has changed, too: the engine never gets past both.
@mutant(MemoryStore, "_may_write", in_contract=True)
def no_lease(_: Real, __: MemoryStore, task: Task, transition: Transition) -> bool:
    """The version is compared, the lease is not."""
    return task.version == transition.expects


@mutant(Shelves, "_enter")
def no_tenant_lock(_: Real, store: MemoryStore, task: Task) -> None:
    """Every task goes straight to its queue, past its tenant's line."""
    store._tasks[task.id] = msgspec.structs.replace(task, place=Place.READY)
    store._ready[task.queue][task.id] = None
    store._signals.notify(Topic.READY)


@mutant(Shelves, "_rest")
def line_never_woken(_: Real, store: MemoryStore, task: Task) -> None:
    """A task that rests does not let its tenant's next one through."""
    store._tasks[task.id] = task
    if task.tenant is not None and task.settled and store._tenants[task.tenant].active == task.id:
        store._tenants[task.tenant].active = None
    store._signals.notify(Topic.RESTED)


@mutant(Shelves, "_line_is_open")
def hold_ignored(_: Real, store: MemoryStore, tenant: Tenant) -> bool:
    """The line opens over a task that rests and holds it."""
    return tenant.active is None or store._tasks[tenant.active].place in RESTING


@mutant(Shelves, "_moved_on", seed=8)
def moved_on_ignored(*_: Any) -> bool:
    """A retry goes over newer work of its tenant."""
    return False


@mutant(MemoryStore, "_was_applied")
def resend_done_again(*_: Any) -> bool:
    """A write that is sent again is not known again."""
    return False


@mutant(MemoryStore, "claim", seed=13)
async def claim_not_remembered(
    real: Real, store: MemoryStore, worker: str, **options: Any
) -> Sequence[Claimed]:
    """A claim that is sent again hands out more tasks."""
    store._claims.pop(worker, None)
    return await real(store, worker, **options)  # type: ignore[no-any-return]


@mutant(MemoryStore, "_hand_out")
def fence_kept(real: Real, store: MemoryStore, task: Task, *rest: Any) -> Claimed:
    """Who takes a task over gets the fence of the one before."""
    if task.fence:
        store._fence = task.fence - 1
    return real(store, task, *rest)  # type: ignore[no-any-return]


@mutant(MemoryStore, "_lose", seed=35)
def crashes_not_counted(real: Real, store: MemoryStore, task: Task, _: bool) -> None:
    """A lapsed lease is never a crash: poison never stops."""
    real(store, task, False)


@mutant(MemoryStore, "expire")
async def expires_early(real: Real, store: MemoryStore, **options: Any) -> int:
    """A lease is taken while a third of it is left."""
    for task in list(store._tasks.values()):
        if task.lease is not None and task.lease.until - store._clock.now() < 2.0:
            lease = msgspec.structs.replace(task.lease, until=0.0)
            store._tasks[task.id] = msgspec.structs.replace(task, lease=lease)
    return await real(store, **options)  # type: ignore[no-any-return]


@mutant(MemoryStore, "_renew", seed=21)
def renews_any_lease(real: Real, store: MemoryStore, renewal: Renewal, until: float) -> bool:
    """A zombie's heartbeat keeps alive a lease that is another's."""
    task = store._tasks.get(renewal.task_id)
    lease: Lease | None = task.lease if task else None
    if lease is not None:
        renewal = msgspec.structs.replace(renewal, lease_id=lease.id)
    return bool(real(store, renewal, until))


@mutant(MemoryStore, "promote")
async def due_time_ignored(real: Real, store: MemoryStore, **options: Any) -> Due:
    """What waits for a time is moved at once."""
    for task in list(store._tasks.values()):
        if task.due is not None:
            store._tasks[task.id] = msgspec.structs.replace(task, due=0.0)
    return await real(store, **options)  # type: ignore[no-any-return]


@mutant(Shelves, "_log")
def failures_leave_no_event(
    real: Real, store: MemoryStore, events: Sequence[ev.Event], request: str
) -> None:
    """A transition with a failure is written without its events."""
    if not any(isinstance(event, ev.StageFailed) for event in events):
        real(store, events, request)


@mutant(Shelves, "_first_of")
def key_ignored(*_: Any) -> None:
    """The same key makes a new task each time."""


@mutant(Shelves, "_take_out")
def left_in_queue(*_: Any) -> None:
    """A task that is paused or cancelled while it waits stays in its queue."""


@mutant(Shelves, "_delete")
def no_tombstone(real: Real, store: MemoryStore, task_id: str) -> None:
    """A task that is not kept leaves nothing, not even its key."""
    real(store, task_id)
    store._tombstones.pop(task_id, None)


@mutant(MemoryStore, "_write")
def checkpoint_not_with_its_stage(
    real: Real, store: MemoryStore, task: Task, transition: Transition
) -> None:
    """A stage is committed, its checkpoint is forgotten."""
    real(store, task, msgspec.structs.replace(transition, checkpoint=None))


@mutant(MemoryStore, "_write")
def stages_of_a_deploy_forgotten(
    real: Real, store: MemoryStore, task: Task, transition: Transition
) -> None:
    """A record keeps the stages that it was submitted with, whatever its holder's code has."""
    after = msgspec.structs.replace(transition.after, stages=task.stages)
    real(store, task, msgspec.structs.replace(transition, after=after))


# Nothing follows from the work of the simulated worlds: these are the contract's.
@mutant(MemoryStore, "_follow", in_contract=True)
def nothing_follows(_: Real, __: MemoryStore, submissions: Sequence[Submission]) -> None:
    """A transition is written, the tasks that follow from it are not."""
    del submissions


@mutant(MemoryStore, "_follow", in_contract=True)
def followers_refused(real: Real, store: MemoryStore, submissions: Sequence[Submission]) -> None:
    """A queue whose intake is off keeps back what has happened."""
    real(store, [s for s in submissions if not store._is_off(Switch.INTAKE, s.task.queue)])


@mutant(MemoryStore, "_apply", in_contract=True)
def followers_of_a_repeat(real: Real, store: MemoryStore, transition: Transition) -> Outcome:
    """What was decided may be written or not, what follows from it is."""
    outcome = real(store, transition)
    store._follow(transition.follows)
    return outcome  # type: ignore[no-any-return]


@mutant(MemoryStore, "_write", in_contract=True)
def payload_not_amended(real: Real, store: MemoryStore, task: Task, transition: Transition) -> None:
    """A corrected task is set going with the payload that it had."""
    real(store, task, msgspec.structs.replace(transition, payload=None))


# No actor of the simulated worlds throws a switch or reads the chain: these are the contract's.
@mutant(Shelves, "_is_off", in_contract=True)
def intake_never_shut(real: Real, store: MemoryStore, switch: Switch, name: str) -> bool:
    """A queue takes tasks while its intake is off."""
    return switch is not Switch.INTAKE and bool(real(store, switch, name))


@mutant(MemoryStore, "claim", in_contract=True)
async def claims_what_is_switched_off(
    real: Real, store: MemoryStore, worker: str, **options: Any
) -> Sequence[Claimed]:
    """A queue hands tasks out while its claiming is off."""
    thrown = dict(store._thrown)
    store._thrown.clear()
    try:
        return await real(store, worker, **options)  # type: ignore[no-any-return]
    finally:
        store._thrown.update(thrown)


@mutant(MemoryStore, "_is_held", seed=1)
def hands_out_of_held_tenants(_: Real, store: MemoryStore, tenant: str | None) -> bool:
    """A task is handed out while a person holds its tenant."""
    del store, tenant
    return False


@mutant(MemoryStore, "_set_back", in_contract=True)
def switched_on_in_silence(_: Real, store: MemoryStore, switch: Switch, name: str) -> None:
    """Nobody who waits is told that a queue hands out again."""
    store._thrown.pop((switch, name), None)


@mutant(Shelves, "_forget_worker", in_contract=True)
def drain_outlives_its_worker(real: Real, store: MemoryStore, worker: str) -> None:
    """The next worker of that name is told to drain at once."""
    drain = store._thrown.get((Switch.DRAIN, worker))
    real(store, worker)
    if drain is not None:
        store._thrown[Switch.DRAIN, worker] = drain


@mutant(Shelves, "_note", in_contract=True)
def links_hang_on_nothing(_: Real, store: MemoryStore, entry: Audit) -> None:
    """The hash of an entry covers the entry, and not what was before it."""
    store._links.append(linked(Anchor(seq=store._head().seq), entry))


@mutant(MemoryStore, "_remove", in_contract=True)
def pruning_breaks_the_chain(real: Real, store: MemoryStore, kind: Kept, name: str) -> None:
    """The oldest links go, and what the next one hangs on is forgotten with them."""
    base = store._base
    real(store, kind, name)
    store._base = base
