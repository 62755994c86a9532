"""The repairs that `doctor` can make: everything that follows from the records."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from holdfast.domain.task.placement import START, Place, fits
from holdfast.domain.task.stages import recover_names
from holdfast.domain.task.task import Task
from holdfast.ports import Finding
from holdfast.stores import codec
from holdfast.stores.sqlite.admin import doctor_plans
from holdfast.stores.sqlite.admin.doctor import (
    Complaint,
    TaskRow,
    columns_of,
    finding,
    may_be_active,
    task_row,
)
from holdfast.stores.sqlite.tasks.placement import enter, set_aside
from holdfast.stores.sqlite.tasks.queue import lose
from holdfast.stores.sqlite.tasks.records import bodies_of, counted_as
from holdfast.stores.sqlite.transaction import Txn

BATCH = 100  # complaints in one transaction: other writes must get their turn


def mend(txn: Txn, complaints: Sequence[Complaint]) -> list[Finding]:
    return [finding(complaint, mended=_mend(txn, complaint)) for complaint in complaints]


def _mend(txn: Txn, complaint: Complaint) -> bool:
    cure = complaint.cure or ""
    if cure in doctor_plans.CURES:
        return doctor_plans.CURES[cure](txn, complaint.name)
    if cure in _TASK_CURES:
        row_and_task = _read(txn, complaint.n)
        return row_and_task is not None and _TASK_CURES[cure](txn, *row_and_task)
    return cure in _CURES and _CURES[cure](txn, complaint)


def _read(txn: Txn, n: int) -> tuple[TaskRow, Task] | None:
    rows = txn.rows("doctor_tasks", n - 1, 1)
    row = task_row(rows[0]) if rows else None
    task = txn.read(row.row) if row and row.at.n == n else None
    return (row, task) if row and task else None


def _aside(txn: Txn, complaint: Complaint) -> bool:
    """Take an unreadable record out of the way; it is not repaired, a person must examine it."""
    state = txn.row("state_of", complaint.n)
    leased = state is not None and state[6]
    if not leased and _read(txn, complaint.n) is None:  # a worker may be running a leased task
        set_aside(txn, complaint.n)
    return False


def _columns(txn: Txn, row: TaskRow, task: Task) -> bool:
    """Write the columns as the record says."""
    _rewrite(txn, row, task, place=Place(row.at.place))
    return True


def _place(txn: Txn, row: TaskRow, task: Task) -> bool:
    place, queued = Place(row.at.place), row.queued == row.at.n
    if queued and task.status in START.to:
        place = Place.READY
    if (task.settled_at is not None) != (place is Place.SETTLED):
        return False  # which of the two is right cannot be decided
    if place is Place.READY and not queued and not row.leased:
        return _recover(txn, row)
    if not row.leased and not fits(task.status, place):
        return False
    if row.leased and place is not Place.READY:
        txn.add("lease_delete", row.at.n)
    if queued and (row.leased or place is not Place.READY):
        txn.add("ready_delete", (row.at.queue, row.at.ready))
    _rewrite(txn, row, task, place=place)
    return True


def _recover(txn: Txn, row: TaskRow) -> bool:
    """Put a task that is in no queue and has no lease back, as if its lease had been lost."""
    lost = row.at._replace(
        lease_version=row.at.version + 1,
        lease_at=txn.wall,
        lease_id="",
        owner="",
        lease_fence=row.at.fence,
        until=txn.now,
    )
    task = txn.read(row.row._replace(position=lost))
    if task is None:
        return False
    lose(txn, task, lost, counted=False)
    txn.count(
        task.queue, task.place, task.status, 1
    )  # `lose` counts it as leaving a place that it was never counted in
    txn.count(*row.total, -1)
    return True


def _rewrite(txn: Txn, row: TaskRow, task: Task, *, place: Place) -> None:
    """Write the row as its record and its place require."""
    position, columns = row.at, columns_of(task)
    leased = row.leased and place is Place.READY
    txn.run(
        "state_rewrite",
        *(columns[name] for name in "id tenant plan queue type hold".split()),
        place,
        position.n if place is Place.LINE else None,
        (txn.now if position.due is None else position.due) if place is Place.LATER else None,
        *(columns[name] for name in "keep_until suspended_at error".split()),
        position.n,
    )
    txn.count(*row.total, -1)
    txn.count(task.queue, *counted_as(place, row.row.status, leased), 1)
    if task.tenant is not None and (row.line is None) != (place is not Place.LINE):
        txn.tenant(task.tenant).waiting += 1 if row.line is None else -1


def _stages(txn: Txn, row: TaskRow, task: Task) -> bool:
    """Write the names of the committed stages into the record."""
    if row.leased:
        return False  # its holder writes the code's stages
    right = recover_names(task, bodies_of(txn.rows("bodies_get", row.at.n)).stages)
    if right is None:
        return False
    named = msgspec.structs.replace(task, stages=right)
    txn.add("task_head", (row.at.n, msgspec.Raw(codec.encode_task(named))))
    return True


def _queue(txn: Txn, complaint: Complaint) -> bool:
    queue, number = complaint.name, complaint.by
    for _, ready, _, own in txn.rows("doctor_ready", queue, number - 1, 1):
        if ready == number != own:
            txn.add("ready_delete", (queue, number))
    return True


def _lease(txn: Txn, complaint: Complaint) -> bool:
    txn.add("lease_delete", complaint.n)
    return True


def _active(txn: Txn, row: TaskRow, task: Task) -> bool:
    """Make the running task its tenant's active one, or let a ready one enter again."""
    if task.tenant is None:
        return False
    tenant = txn.tenant(task.tenant)
    active = txn.row("state_of", tenant.active) if tenant.active is not None else None
    if row.leased and (active is None or not active[6]):
        tenant.active, tenant.rests = task.order, False
        return True
    if task.place is Place.READY:
        txn.leave_place(row.at, task.tenant)
        enter(txn, task, task)  # into its queue if the line is open, else behind the active task
        return True
    return False


def _key(txn: Txn, _: TaskRow, task: Task) -> bool:
    tenant = task.tenant or ""
    if task.key is None or txn.row("key_owner", tenant, task.key) is not None:
        return False
    txn.add("key_put", (tenant, task.key, task.id))
    return True


def _line(txn: Txn, complaint: Complaint) -> bool:
    tenant = txn.tenant(complaint.name)
    (tenant.waiting,) = txn.row("line_count", complaint.name)
    if tenant.active is not None and not may_be_active(txn, tenant.active, complaint.name):
        tenant.active = None
    txn.advance(complaint.name)
    return True


def _total(txn: Txn, complaint: Complaint) -> bool:
    # The difference is added, so that everything counted since the check stays counted.
    txn.count(*complaint.total, complaint.by)
    return True


def _numbers(txn: Txn, complaint: Complaint) -> bool:
    if complaint.numbers is None:
        return False
    txn.raise_numbers(*msgspec.structs.astuple(complaint.numbers))
    return True


_TASK_CURES: dict[str, Callable[[Txn, TaskRow, Task], bool]] = {
    "columns": _columns,
    "place": _place,
    "stages": _stages,
    "active": _active,
    "key": _key,
}
_CURES: dict[str, Callable[[Txn, Complaint], bool]] = {
    "aside": _aside,
    "queue": _queue,
    "lease": _lease,
    "line": _line,
    "total": _total,
    "numbers": _numbers,
}
