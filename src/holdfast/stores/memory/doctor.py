"""The doctor of the memory store checks that records, queues, lines and keys agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from holdfast.domain.task.placement import ACTIVE, Place
from holdfast.domain.task.stages import describe_mismatch
from holdfast.domain.task.task import Task
from holdfast.ports import Finding
from holdfast.stores import findings
from holdfast.stores.memory import plans, triggers
from holdfast.stores.memory.state import MemoryState


def examine(state: MemoryState) -> list[Finding]:
    """Return everything that does not agree."""
    found = [
        Finding(invariant=invariant, task_id=task.id, message=message, mended=False)
        for task in state.tasks.values()
        for invariant, message in _of_task(state, task)
    ]
    running = Counter(
        task.tenant for task in state.tasks.values() if task.place is Place.LEASED and task.tenant
    )
    found += [
        Finding(invariant="I2", task_id=None, message=f"{n} tasks run for {tenant}", mended=False)
        for tenant, n in running.items()
        if n > 1
    ]
    messages = [*triggers.examine(state), *plans.examine(state)]
    return found + [
        Finding(invariant="I11", task_id=None, message=message, mended=False)
        for message in messages
    ]


def _of_task(state: MemoryState, task: Task) -> Iterator[tuple[str, str]]:
    """Yield each invariant that is broken by a task, with a message."""
    queued = state.is_queued(task)
    tenant = state.tenants[task.tenant] if task.tenant else None
    lined = tenant is not None and (task.order, task.id) in tenant.line
    if wrong := findings.wrong_status(task):
        yield "I1", wrong
    if queued != (task.place is Place.READY):
        yield "I1", findings.wrong_index(task, "a queue", is_in=queued)
    if lined != (task.place is Place.LINE):
        yield "I1", findings.wrong_index(task, "a line", is_in=lined)
    if (task.lease is not None) != (task.place is Place.LEASED):
        yield "I3", f"the task is {task.place} and has {'a' if task.lease else 'no'} lease"
    if (task.settled_at is not None) != (task.place is Place.SETTLED):
        yield "I1", f"the task is {task.place}, but its end is {task.settled_at or 'not stored'}"
    if task.place in ACTIVE and tenant and tenant.active != task.id:
        yield (
            "I2",
            f"the task is {task.place}, but {tenant.active or 'none'} is active for its tenant",
        )
    yield from findings.broken_rules(task)
    if wrong := describe_mismatch(task, [*state.bodies[task.id].stages.values()]):
        yield "I7", findings.wrong_stages(wrong)
    if task.key is not None and state.keys.get((task.tenant, task.key)) != task.id:
        yield "I10", f"the task's key {task.key} does not belong to it"
