"""Do the memory store's records, queues, lines and keys agree?"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from holdfast.domain.task.placement import ACTIVE, STOPPED, Place, fits
from holdfast.domain.task.stages import misnamed
from holdfast.domain.task.task import Task
from holdfast.ports import Finding

if TYPE_CHECKING:
    from holdfast.stores.memory.state import Shelves
    from holdfast.stores.memory.store import MemoryStore

# Reads the insides of the store on purpose: that is what there is to examine.


def examine(store: MemoryStore, *, fix: bool) -> list[Finding]:
    """Nothing here can be mended: what is wrong in memory was put there by a defect."""
    del fix
    found = [
        Finding(invariant=invariant, task_id=task_id, says=says, mended=False)
        for task in store._tasks.values()
        for invariant, task_id, says in _of_task(store, task)
    ]
    running = Counter(
        task.tenant for task in store._tasks.values() if task.place is Place.LEASED and task.tenant
    )
    found += [
        Finding(invariant="I2", task_id=None, says=f"{n} tasks run for {tenant}", mended=False)
        for tenant, n in running.items()
        if n > 1
    ]
    return found + _beside_the_tasks(store)


def _beside_the_tasks(store: MemoryStore) -> list[Finding]:
    said = [f"trigger {trigger_id} {says}" for trigger_id, says in store.triggers.examine()]
    said += [f"plan {plan_id} {says}" for plan_id, says in store.plans.examine()]
    return [Finding(invariant="I11", task_id=None, says=says, mended=False) for says in said]


def _of_task(store: Shelves, task: Task) -> list[tuple[str, str, str]]:
    said = []
    queued = task.id in store._ready[task.queue]
    tenant = store._tenants[task.tenant] if task.tenant else None
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
    if wrong := misnamed(task, [*store._bodies[task.id].stages.values()]):
        said.append(("I7", task.id, f"its record {wrong}"))
    if task.key is not None and store._keys.get((task.tenant, task.key)) != task.id:
        said.append(("I10", task.id, f"does not own its key {task.key}"))
    return said
