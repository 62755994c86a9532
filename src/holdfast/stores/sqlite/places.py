"""Where a task goes: to its queue, into its tenant's line, to rest. And who comes next."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.domain import events as ev
from holdfast.domain.state import Move
from holdfast.domain.task import Place, Task
from holdfast.ports import Topic
from holdfast.stores.sqlite.txn import Tenant, Txn

RESTING = frozenset({Place.LATER, Place.PARKED})

replace = msgspec.structs.replace


def entered(txn: Txn, task: Task) -> tuple[Task, int | None, int | None]:
    """The record in its queue, or behind its tenant's active task; its number there."""
    if task.tenant is not None:
        tenant = txn.tenant(task.tenant)
        if tenant.active != task.order and not line_is_open(txn, tenant):
            tenant.waiting += 1
            return replace(task, place=Place.LINE), None, task.order
        tenant.active = task.order
    txn.topics.add(Topic.READY)
    return replace(task, place=Place.READY), txn.next_ready(), None


def enter(txn: Txn, before: Task, after: Task) -> Task:
    task, ready, line = entered(txn, after)
    txn.put(before, task, ready=ready, line=line)
    return task


def rest(txn: Txn, before: Task, after: Task) -> Task:
    """It stops being runnable; its tenant's next may be let through."""
    txn.put(before, after)
    if after.tenant is not None:
        tenant = txn.tenant(after.tenant)
        if tenant.active == after.order:
            if after.settled:
                tenant.active = None
            advance(txn, after.tenant)
            if tenant.active is None:
                newest = txn.row("newest_resting", after.tenant)
                tenant.active = newest[0] if newest else None
    txn.topics.add(Topic.RESTED)
    return after


def advance(txn: Txn, name: str) -> None:
    """Let the head of the line through, if the line is open."""
    tenant = txn.tenant(name)
    while tenant.waiting > 0 and line_is_open(txn, tenant):
        found = txn.row("line_head", name)
        if found is None:
            return
        head = txn.read(*found)
        if head is not None:
            take_out(txn, head)
            enter(txn, head, head)
            return
        set_aside(txn, found[0])


def set_aside(txn: Txn, n: int) -> None:
    """Nothing can be done with a record that cannot be read before a person has looked: it leaves
    every queue, and its tenant's line goes on without it."""
    found = txn.row("task_place", n)
    if found is None:
        return
    queue, place, status, line, name = found
    txn.run("task_set_aside", Place.PARKED, n)
    txn.correct_total(queue, place, status, -1)
    txn.correct_total(queue, Place.PARKED, status, 1)
    if name is None:
        return
    tenant = txn.tenant(name)
    if line is not None:
        tenant.waiting -= 1
    if tenant.active == n:
        tenant.active = None
        advance(txn, name)


def line_is_open(txn: Txn, tenant: Tenant) -> bool:
    if tenant.active is None:
        return True
    active = txn.row("active_rests", tenant.active)
    return active is None or (active[0] in RESTING and not active[1])


def take_out(txn: Txn, task: Task) -> None:
    """Out of the line it waits in; a queue is left by the write itself."""
    if task.place is Place.LINE and task.tenant is not None:
        txn.tenant(task.tenant).waiting -= 1


def moved_on(txn: Txn, task: Task) -> bool:
    """Newer work has run for its tenant since it last ran."""
    if task.tenant is None or task.fence == 0:
        return False
    return txn.tenant(task.tenant).fence > task.fence


def moved(
    txn: Txn,
    task: Task,
    move: Move,
    *,
    place: Place,
    worker: str = "",
    counted: bool = True,
    **changes: Any,
) -> Task:
    """The record after one of the store's own moves; its event is written, the record is not."""
    status = move.to[task.status]
    if status is not task.status:
        changes["status_since"] = txn.wall
    after = replace(
        task, status=status, version=task.version + 1, updated_at=txn.wall, place=place, **changes
    )
    event = ev.made_by_store(
        move.event,
        task_id=task.id,
        version=after.version,
        at=txn.wall,
        worker=worker,
        fence=after.fence,
        counted=counted,
    )
    txn.log(task.order, after.version, "", (event,))
    txn.count_move(task, after)
    return after
