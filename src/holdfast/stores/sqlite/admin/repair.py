"""The repairs that `doctor` can make: all that follows from the records."""

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
    found_in,
    may_be_active,
    told,
)
from holdfast.stores.sqlite.tasks.placement import enter, set_aside
from holdfast.stores.sqlite.tasks.queue import lose
from holdfast.stores.sqlite.tasks.records import bodies_of, counted_as
from holdfast.stores.sqlite.transaction import Txn

BATCH = 100  # in one transaction: others must get their turn


def mend(txn: Txn, complaints: Sequence[Complaint]) -> list[Finding]:
    return [told(c, mended=c.cure is not None and _CURES[c.cure](txn, c)) for c in complaints]


def _read(txn: Txn, n: int) -> tuple[TaskRow, Task] | None:
    values = txn.row("doctor_task", n)
    if values is None:
        return None
    found = found_in(values)
    task = txn.read(found.row)
    return (found, task) if task else None


def _aside(txn: Txn, complaint: Complaint) -> bool:
    """Take an unreadable record out of the way; it is not mended, a person must look at it."""
    state = txn.row("state_of", complaint.n)
    leased = state is not None and state[6]
    if not leased and _read(txn, complaint.n) is None:  # while leased, it may be at work
        set_aside(txn, complaint.n)
    return False


def _columns(txn: Txn, complaint: Complaint) -> bool:
    """The record is right; the columns follow it."""
    found = _read(txn, complaint.n)
    if found is None:
        return False
    _rewrite(txn, *found, place=Place(found[0].at.place))
    return True


def _place(txn: Txn, complaint: Complaint) -> bool:
    found = _read(txn, complaint.n)
    if found is None:
        return False
    there, task = found
    place, queued = Place(there.at.place), there.queued == there.at.n
    if queued and task.status in START.to:
        place = Place.READY
    if (task.settled_at is not None) != (place is Place.SETTLED):
        return False  # which of the two is right cannot be told
    if place is Place.READY and not queued and not there.leased:
        return _recover(txn, there)
    if not there.leased and not fits(task.status, place):
        return False
    if there.leased and place is not Place.READY:
        txn.add("lease_delete", there.at.n)
    if queued and (there.leased or place is not Place.READY):
        txn.add("ready_delete", (there.at.queue, there.at.ready))
    _rewrite(txn, there, task, place=place)
    return True


def _recover(txn: Txn, there: TaskRow) -> bool:
    """Put a task that is in no queue and has no lease back, as if its lease had been lost."""
    lost = there.at._replace(
        lease_version=there.at.version + 1,
        lease_at=txn.wall,
        lease_id="",
        owner="",
        lease_fence=there.at.fence,
        until=txn.now,
    )
    task = txn.read(there.row._replace(position=lost))
    if task is None:
        return False
    lose(txn, task, lost, counted=False)
    txn.count(task.queue, task.place, task.status, 1)  # it was never counted as that
    txn.count(*there.total, -1)
    return True


def _rewrite(txn: Txn, found: TaskRow, task: Task, *, place: Place) -> None:
    """The row as its record and its place want it."""
    row, columns = found.at, columns_of(task)
    leased = found.leased and place is Place.READY
    txn.run(
        "state_rewrite",
        *(columns[name] for name in "id tenant plan queue type hold".split()),
        place,
        row.n if place is Place.LINE else None,
        (txn.now if row.due is None else row.due) if place is Place.LATER else None,
        *(columns[name] for name in "keep_until suspended_at error".split()),
        row.n,
    )
    txn.count(*found.total, -1)
    txn.count(task.queue, *counted_as(place, found.row.status, leased), 1)
    if task.tenant is not None and (found.line is None) != (place is not Place.LINE):
        txn.tenant(task.tenant).waiting += 1 if found.line is None else -1


def _stages(txn: Txn, complaint: Complaint) -> bool:
    """Write the names of the committed stages into the record."""
    found = _read(txn, complaint.n)
    if found is None or found[0].leased:
        return False  # its holder writes the code's stages
    task = found[1]
    right = recover_names(task, bodies_of(txn.rows("bodies_get", complaint.n)).stages)
    if right is None:
        return False
    named = msgspec.structs.replace(task, stages=right)
    txn.add("task_head", (complaint.n, msgspec.Raw(codec.encode_task(named))))
    return True


def _queue(txn: Txn, complaint: Complaint) -> bool:
    queue, number = complaint.name, complaint.by
    for _, found, _, own in txn.rows("doctor_ready", queue, number - 1, 1):
        if found == number != own:
            txn.add("ready_delete", (queue, number))
    return True


def _lease(txn: Txn, complaint: Complaint) -> bool:
    txn.add("lease_delete", complaint.n)
    return True


def _active(txn: Txn, complaint: Complaint) -> bool:
    """Make the running task its tenant's active one, or let a ready one enter again."""
    found = _read(txn, complaint.n)
    if found is None or found[1].tenant is None:
        return False
    there, task = found
    tenant = txn.tenant(task.tenant)  # type: ignore[arg-type]
    active = txn.row("state_of", tenant.active) if tenant.active is not None else None
    if there.leased and (active is None or not active[6]):
        tenant.active, tenant.rests = task.order, False
        return True
    if task.place is Place.READY:
        txn.leave_place(there.at, task.tenant)
        enter(txn, task, task)  # to its queue if the line is open, else behind the active task
        return True
    return False


def _key(txn: Txn, complaint: Complaint) -> bool:
    found = _read(txn, complaint.n)
    if found is None or found[1].key is None:
        return False
    task = found[1]
    if txn.row("key_owner", task.tenant or "", task.key) is not None:
        return False
    txn.add("key_put", (task.tenant or "", task.key, task.id))
    return True


def _line(txn: Txn, complaint: Complaint) -> bool:
    tenant = txn.tenant(complaint.name)
    (tenant.waiting,) = txn.row("line_count", complaint.name)
    if tenant.active is not None and not may_be_active(txn, tenant.active, complaint.name):
        tenant.active = None
    txn.advance(complaint.name)
    return True


def _total(txn: Txn, complaint: Complaint) -> bool:
    # By difference: whatever was counted since the look stays counted.
    txn.count(*complaint.total, complaint.by)
    return True


def _of_plans(txn: Txn, complaint: Complaint) -> bool:
    return doctor_plans.CURES[complaint.cure or ""](txn, complaint.name)


def _numbers(txn: Txn, complaint: Complaint) -> bool:
    if complaint.numbers is None:
        return False
    txn.raise_numbers(*msgspec.structs.astuple(complaint.numbers))
    return True


_CURES: dict[str, Callable[[Txn, Complaint], bool]] = {
    "aside": _aside,
    "columns": _columns,
    "place": _place,
    "stages": _stages,
    "queue": _queue,
    "lease": _lease,
    "active": _active,
    "key": _key,
    "line": _line,
    "total": _total,
    "numbers": _numbers,
    **dict.fromkeys(doctor_plans.CURES, _of_plans),
}
