"""Do the memory store's records, queues, lines and keys agree?"""

from __future__ import annotations

from collections import Counter

from holdfast.domain.task.placement import ACTIVE, STOPPED, Place, fits
from holdfast.domain.task.stages import describe_mismatch
from holdfast.domain.task.task import Task
from holdfast.ports import Finding
from holdfast.stores.memory import plans, triggers
from holdfast.stores.memory.state import MemoryState


def examine(state: MemoryState) -> list[Finding]:
    """Return everything that does not agree."""
    found = [
        Finding(invariant=invariant, task_id=task_id, message=says, mended=False)
        for task in state.tasks.values()
        for invariant, task_id, says in _of_task(state, task)
    ]
    running = Counter(
        task.tenant for task in state.tasks.values() if task.place is Place.LEASED and task.tenant
    )
    found += [
        Finding(invariant="I2", task_id=None, message=f"{n} tasks run for {tenant}", mended=False)
        for tenant, n in running.items()
        if n > 1
    ]
    return found + _beside_the_tasks(state)


def _beside_the_tasks(state: MemoryState) -> list[Finding]:
    said = [f"trigger {trigger_id} {says}" for trigger_id, says in triggers.examine(state)]
    said += [f"plan {plan_id} {says}" for plan_id, says in plans.examine(state)]
    return [Finding(invariant="I11", task_id=None, message=says, mended=False) for says in said]


def _of_task(state: MemoryState, task: Task) -> list[tuple[str, str, str]]:
    said = []
    queued = state.is_queued(task)
    tenant = state.tenants[task.tenant] if task.tenant else None
    lined = tenant is not None and (task.order, task.id) in tenant.line
    if not fits(task.status, task.place):
        said.append(("I1", task.id, f"is {task.place} and {task.status}"))
    if queued != (task.place is Place.READY):
        said.append(("I1", task.id, f"is {task.place} and {'in' if queued else 'not in'} a queue"))
    if lined != (task.place is Place.LINE):
        said.append(("I1", task.id, f"is {task.place} and {'in' if lined else 'not in'} a line"))
    if (task.lease is not None) != (task.place is Place.LEASED):
        said.append(("I3", task.id, f"is {task.place} with lease {task.lease}"))
    if (task.settled_at is not None) != (task.place is Place.SETTLED):
        said.append(("I1", task.id, f"is {task.place} with settled_at {task.settled_at}"))
    if task.place in ACTIVE and tenant and tenant.active != task.id:
        said.append(("I2", task.id, f"is {task.place} but {tenant.active} is active"))
    if task.pause_requested and task.place in STOPPED:
        said.append(("I14", task.id, "rests with a pause still asked for"))
    if wrong := describe_mismatch(task, [*state.bodies[task.id].stages.values()]):
        said.append(("I7", task.id, f"its record {wrong}"))
    if task.key is not None and state.keys.get((task.tenant, task.key)) != task.id:
        said.append(("I10", task.id, f"does not own its key {task.key}"))
    return said
