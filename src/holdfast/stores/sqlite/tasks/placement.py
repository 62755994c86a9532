"""Where a task goes: to its queue, into its tenant's line, to rest. And who comes next."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.domain.task import events as ev
from holdfast.domain.task.placement import Place, StoreMove, opens_line
from holdfast.domain.task.task import Task
from holdfast.ports import Topic
from holdfast.stores.sqlite.tasks.records import TaskPosition, counted_as, mutable_json, pack_events
from holdfast.stores.sqlite.transaction import Txn

replace = msgspec.structs.replace


def enter_place(txn: Txn, tenant_name: str | None, n: int) -> tuple[Place, int | None, int | None]:
    """Its place in its queue, or behind its tenant's active task; its number there."""
    if tenant_name is not None:
        tenant = txn.tenant(tenant_name)
        if tenant.active != n and not tenant.open:
            txn.join_line(tenant, tenant_name)
            return Place.LINE, None, n
        tenant.active, tenant.rests = n, False
    txn.topics.add(Topic.READY)
    return Place.READY, txn.next_ready(), None


def must_wait(txn: Txn, tenant_name: str | None, n: int) -> bool:
    """It would have to wait behind its tenant's active task."""
    if tenant_name is None:
        return False
    tenant = txn.tenant(tenant_name)
    return tenant.active != n and not tenant.open


def enter(txn: Txn, before: Task, after: Task) -> Task:
    place, ready, line = enter_place(txn, after.tenant, after.order)
    after = replace(after, place=place)
    txn.put(before, before.place, after, mutable_json(after), ready=ready, line=line)
    return after


def come_to_rest(txn: Txn, after: Task) -> None:
    """It stops being runnable; its tenant's next may be let through."""
    if after.tenant is not None:
        tenant = txn.tenant(after.tenant)
        if tenant.active == after.order:
            if after.settled:
                tenant.active = None
            tenant.rests = opens_line(after.place, after.hold)
            advance(txn, after.tenant)
    txn.topics.add(Topic.RESTED)


def advance(txn: Txn, name: str) -> None:
    """Let the head of the line through, if the line is open."""
    tenant = txn.tenant(name)
    if tenant.waiting > 0 and tenant.open and (head := txn.line_head(name)):
        txn.let_through(head)
        tenant.waiting -= 1
        tenant.active, tenant.rests = head.n, False


def set_aside(txn: Txn, n: int) -> None:
    """Nothing can be done with a record that cannot be read before a person has looked: it leaves
    every queue, and its tenant's line goes on without it."""
    found = txn.row("state_of", n)
    if found is None:
        return
    queue, place, status, ready, line, name, leased = found
    txn.written.add(n)
    txn.add("ready_delete", (queue, ready))
    txn.add("lease_delete", n)
    txn.run("state_set_aside", Place.PARKED, n)
    txn.count(queue, *counted_as(place, status, leased), -1)
    txn.count(queue, Place.PARKED, status, 1)
    if name is None:
        return
    tenant = txn.tenant(name)
    if line is not None:
        tenant.waiting -= 1
    if tenant.active == n:
        tenant.active = None
        advance(txn, name)


def leave(txn: Txn, row: TaskPosition, tenant: str | None) -> None:
    """Out of the queue or line that it waits in, or out of its holder's hands."""
    if row.lease_id is not None:
        txn.add("lease_delete", row.n)
        if tenant is not None:
            held = txn.tenant(tenant)
            held.fence = max(held.fence, row.lease_fence)
    elif row.place == Place.READY:
        txn.add("ready_delete", (row.queue, row.ready))
    elif row.place == Place.LINE and tenant is not None:
        txn.tenant(tenant).waiting -= 1


def moved_on(txn: Txn, tenant: str | None, fence: int) -> bool:
    """Newer work has run for its tenant since it last ran."""
    return tenant is not None and fence != 0 and txn.tenant(tenant).fence > fence


def store_moved(
    txn: Txn,
    task: Task,
    row: TaskPosition,
    move: StoreMove,
    *,
    worker: str = "",
    counted: bool = True,
    **changes: Any,
) -> Task:
    """The record after one of the store's own moves; its event is written, the record is not."""
    status = move.to[task.status]
    if status is not task.status:
        changes["status_since"] = txn.wall
    after = replace(
        task,
        status=status,
        version=task.version + 1,
        updated_at=txn.wall,
        place=move.enters,
        **changes,
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
    journal = (row.n, after.version, "", row.started, pack_events((event,)), None, None, None, None)
    txn.add("journal_add", journal)
    return after
