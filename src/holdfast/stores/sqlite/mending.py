"""What `doctor` can put right: all that follows from the records."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from holdfast.domain.task import Place, Task
from holdfast.ports import Finding
from holdfast.stores import codec
from holdfast.stores.sqlite.doctor import Complaint, Row, columns_of, told
from holdfast.stores.sqlite.places import advance, enter, set_aside
from holdfast.stores.sqlite.txn import Txn
from holdfast.stores.sqlite.verbs import lose

BATCH = 100  # in one transaction: others must get their turn

replace = msgspec.structs.replace


def mend(txn: Txn, complaints: Sequence[Complaint]) -> list[Finding]:
    return [told(c, mended=c.cure is not None and _CURES[c.cure](txn, c)) for c in complaints]


def _read(txn: Txn, n: int) -> tuple[Row, Task] | None:
    values = txn.row("doctor_task", n)
    if values is None:
        return None
    row = Row(*values)
    task = txn.read(n, row.record, row.lease_until)
    return (row, task) if task else None


def _aside(txn: Txn, complaint: Complaint) -> bool:
    """Out of the way of others. It still has to be looked at, so it is not mended."""
    place = txn.row("task_place", complaint.n)
    leased = place is not None and place[1] == Place.LEASED
    if not leased and _read(txn, complaint.n) is None:  # while leased, it may be at work
        set_aside(txn, complaint.n)
    return False


def _columns(txn: Txn, complaint: Complaint) -> bool:
    """The record is right; the columns follow it."""
    found = _read(txn, complaint.n)
    if found is None:
        return False
    row, task = found
    _rewrite(txn, row, replace(task, order=row.n))
    return True


def _place(txn: Txn, complaint: Complaint) -> bool:
    found = _read(txn, complaint.n)
    if found is None:
        return False
    row, task = found
    if task.place is Place.LEASED and task.lease is None:
        _rewrite(txn, row, task)
        lose(txn, task, counted=False)
        return True
    if task.place is not Place.LEASED:
        task = replace(task, lease=None)
    if task.place is not Place.LATER:
        task = replace(task, due=None)
    elif task.due is None:
        task = replace(task, due=txn.now)
    if (task.settled_at is not None) != (task.place is Place.SETTLED):
        return False  # which of the two is right cannot be told
    _rewrite(txn, row, task)
    return True


def _rewrite(txn: Txn, row: Row, task: Task) -> None:
    """The row as its record wants it, with its number in the queue if it still has one."""
    ready = (row.ready or txn.next_ready()) if task.place is Place.READY else None
    columns = columns_of(task)
    txn.run(
        "task_rewrite",
        *(columns[name] for name in "id tenant plan queue type hold status place".split()),
        task.version,
        columns["error"],
        ready,
        row.n if task.place is Place.LINE else None,
        task.due,
        columns["lease_id"],
        txn.boot if task.lease else None,
        task.lease.until if task.lease else None,
        task.settled_at,
        columns["keep_until"],
        columns["suspended_at"],
        codec.encode_task(task),
        row.n,
    )
    txn.correct_total(row.queue, row.place, row.status, -1)
    txn.correct_total(task.queue, task.place, task.status, 1)
    if task.tenant is not None and (row.line is None) != (task.place is not Place.LINE):
        txn.tenant(task.tenant).waiting += 1 if row.line is None else -1


def _active(txn: Txn, complaint: Complaint) -> bool:
    """One runs or may run, and another is said to be active."""
    found = _read(txn, complaint.n)
    if found is None or found[1].tenant is None:
        return False
    _, task = found
    tenant = txn.tenant(task.tenant)  # type: ignore[arg-type]
    active = txn.row("task_place", tenant.active) if tenant.active is not None else None
    if task.place is Place.LEASED and (active is None or active[1] != Place.LEASED):
        tenant.active = task.order
        return True
    if task.place is Place.READY:
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
    txn.run("key_put", task.tenant or "", task.key, task.id)
    return True


def _line(txn: Txn, complaint: Complaint) -> bool:
    tenant = txn.tenant(complaint.name)
    (tenant.waiting,) = txn.row("line_count", complaint.name)
    if tenant.active is not None:
        place = txn.row("task_place", tenant.active)
        if place is None or place[1] == Place.SETTLED or place[4] != complaint.name:
            tenant.active = None
    advance(txn, complaint.name)
    return True


def _total(txn: Txn, complaint: Complaint) -> bool:
    # By difference: whatever was counted since the look stays counted.
    txn.correct_total(*complaint.total, complaint.by)
    return True


def _numbers(txn: Txn, complaint: Complaint) -> bool:
    txn.raise_numbers(task=complaint.n, fence=complaint.by)
    return True


_CURES: dict[str, Callable[[Txn, Complaint], bool]] = {
    "aside": _aside,
    "columns": _columns,
    "place": _place,
    "active": _active,
    "key": _key,
    "line": _line,
    "total": _total,
    "numbers": _numbers,
}
