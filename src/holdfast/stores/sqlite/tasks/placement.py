"""Tasks change their place here without a transition: by the store's own moves, or by damage."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.domain.task import events as ev
from holdfast.domain.task.placement import Place, StoreMove
from holdfast.domain.task.task import Task
from holdfast.stores.sqlite.tasks.records import TaskPosition, counted_as, mutable_json, pack_events
from holdfast.stores.sqlite.transaction import Txn

replace = msgspec.structs.replace


def enter(txn: Txn, before: Task, after: Task) -> Task:
    """Write a record into its queue, or into its tenant's line."""
    place, ready, line = txn.enter(after.tenant, after.order)
    after = replace(after, place=place)
    txn.put(before, before.place, after, mutable_json(after), ready=ready, line=line)
    return after


def set_aside(txn: Txn, n: int) -> None:
    """Take an unreadable record out of every queue, so that its tenant's line goes on without it.

    Nothing else can be done with it before a person has examined it.
    """
    state = txn.row("state_of", n)
    if state is None:
        return
    queue, place, status, ready, line, name, leased = state
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
        txn.advance(name)


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
    """Return the record after one of the store's own moves; only its event is written here."""
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
