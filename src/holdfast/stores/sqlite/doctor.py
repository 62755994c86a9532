"""Do records, columns, lines, keys and counts agree?

One consistent look, page by page, beside the running work. What can be derived from the records is
mended afterwards by `mending.py`, in small steps that look again before they write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator
from typing import Any, Protocol

import msgspec

from holdfast.domain import checkpoint as ckpt
from holdfast.domain.errors import SerialisationError
from holdfast.domain.task import Place, Task
from holdfast.ports import Finding
from holdfast.stores import codec

PAGE = 500
RUNNABLE = frozenset({Place.READY, Place.LINE, Place.LATER, Place.LEASED})


class Source(Protocol):
    """A look or a transaction."""

    def row(self, name: str, *values: Any) -> Any: ...
    def rows(self, name: str, *values: Any) -> list[Any]: ...


class Row(msgspec.Struct, frozen=True):
    """A row of `doctor_tasks`."""

    n: int
    id: str
    tenant: str | None
    plan: str | None
    queue: str
    type: str
    hold: int
    status: str
    place: str
    version: int
    error: str | None
    ready: int | None
    line: int | None
    due: float | None
    lease_id: str | None
    lease_until: float | None
    settled_at: float | None
    keep_until: float | None
    suspended_at: float | None
    record: bytes


class Complaint(msgspec.Struct, frozen=True, kw_only=True):
    invariant: str
    says: str
    task_id: str | None = None
    cure: str | None = None  # what `mending` does about it; None: nothing can be derived
    n: int = 0
    name: str = ""
    total: tuple[str, str, str] = ("", "", "")
    by: int = 0


def told(complaint: Complaint, *, mended: bool = False) -> Finding:
    return Finding(
        invariant=complaint.invariant,
        task_id=complaint.task_id,
        says=complaint.says,
        mended=mended,
    )


def examine(look: Source, limit: int) -> list[Complaint]:
    found: list[Complaint] = []
    for complaint in _everything(look):
        found.append(complaint)
        if len(found) >= limit:
            break
    return found


def _everything(look: Source) -> Iterator[Complaint]:
    totals: Counter[tuple[str, str, str]] = Counter()
    lines: Counter[str] = Counter()
    last = 0
    for row in _all_tasks(look):
        totals[row.queue, row.place, row.status] += 1
        if row.line is not None and row.tenant is not None:
            lines[row.tenant] += 1
        last = row.n
        yield from of_task(look, row)
    fence = yield from _of_tenants(look, lines)
    yield from _of_totals(look, totals)
    yield from _of_sequences(look, last, fence)


def _all_tasks(look: Source) -> Iterator[Row]:
    last = 0
    while page := look.rows("doctor_tasks", last, PAGE):
        yield from (Row(*values) for values in page)
        last = page[-1][0]


def of_task(look: Source, row: Row) -> Iterator[Complaint]:
    try:
        task = codec.decode_leased(row.record, row.lease_until)
    except SerialisationError as error:
        says = f"{error}; restore the row from a backup or delete it"
        yield Complaint(invariant="I11", task_id=row.id, says=says, cure="aside", n=row.n)
        return
    for invariant, says, cure in (
        *_columns(row, task),
        *_place(row, task),
        *_tenant(look, row, task),
        *_key(look, task),
        *_rules(look, task),
    ):
        yield Complaint(invariant=invariant, task_id=row.id, says=says, cure=cure, n=row.n)


Said = Iterator[tuple[str, str, str | None]]


def _columns(row: Row, task: Task) -> Said:
    for name, value in columns_of(task).items():
        found = getattr(row, name)
        if found != value:
            yield "I11", f"column {name} is {found!r}, the record says {value!r}", "columns"


def columns_of(task: Task) -> dict[str, Any]:
    """The columns that follow from the record alone."""
    return {
        "n": task.order,
        "id": task.id,
        "tenant": task.tenant,
        "plan": task.plan,
        "queue": task.queue,
        "type": task.type,
        "hold": int(task.hold),
        "status": task.status.value,
        "place": task.place.value,
        "version": task.version,
        "error": task.failure.fingerprint if task.failure else None,
        "due": task.due,
        "lease_id": task.lease.id if task.lease else None,
        "settled_at": task.settled_at,
        "keep_until": None if task.settled_at is None else task.settled_at + task.keep_seconds,
        "suspended_at": task.updated_at if task.suspended else None,
    }


def _place(row: Row, task: Task) -> Said:
    """In exactly one place, and in the index of that place."""
    for name, inside, place in (
        ("a queue", row.ready is not None, Place.READY),
        ("a line", row.line is not None, Place.LINE),
        ("the times", task.due is not None, Place.LATER),
        ("the settled", task.settled_at is not None, Place.SETTLED),
    ):
        if inside != (task.place is place):
            yield "I1", f"is {task.place} and {'in' if inside else 'not in'} {name}", "place"
    if (task.lease is not None) != (task.place is Place.LEASED):
        yield "I3", f"is {task.place} with lease {task.lease}", "place"


def _tenant(look: Source, row: Row, task: Task) -> Said:
    if task.tenant is None or task.place not in (Place.READY, Place.LEASED):
        return
    active, _, _ = look.row("tenant_get", task.tenant) or (None, 0, 0)
    if active != row.n:
        yield "I2", f"is {task.place}, but number {active} is active for {task.tenant}", "active"


def _key(look: Source, task: Task) -> Said:
    if task.key is None:
        return
    owner = look.row("key_owner", task.tenant or "", task.key)
    if owner is None:
        yield "I10", f"does not own its key {task.key}: nobody does", "key"
    elif owner[0] != task.id:
        yield "I10", f"does not own its key {task.key}: {owner[0]} does", None


def _rules(look: Source, task: Task) -> Said:
    if task.pause_requested and task.place in (Place.PARKED, Place.SETTLED):
        yield "I14", "rests with a pause still asked for", None
    # Both were written by its last failure: a limit that was lowered since then is not meant.
    if 0 < task.retry_max <= task.failures and task.place in RUNNABLE:
        yield "I16", f"is tried again after failure {task.failures} of {task.retry_max}", None
    done = task.last_completed + 1
    if done > 0 and task.fence > 0:
        (kept,) = look.row("doctor_stages", task.order, task.last_completed)
        if kept != done:
            yield "I7", f"{kept} stages are kept, {done} were completed", None
        yield from _checkpoint(look, task)


def _checkpoint(look: Source, task: Task) -> Said:
    found = look.row("checkpoint_get", task.order)
    if found is None:
        return
    try:
        index = ckpt.decode(found[0]).last_completed_stage_index
    except SerialisationError as error:
        yield "I7", f"{error}", None
        return
    if index != task.last_completed:
        yield "I7", f"the checkpoint is at {index}, the record at {task.last_completed}", None


def _of_tenants(look: Source, lines: Counter[str]) -> Generator[Complaint, None, int]:
    """Yields complaints; returns the highest fence."""
    highest, last = 0, ""
    while page := look.rows("doctor_tenants", last, PAGE):
        for tenant, active, fence, waiting in page:
            highest = max(highest, fence)
            yield from _of_tenant(look, tenant, active, waiting, lines.pop(tenant, 0))
        last = page[-1][0]
    for tenant, count in lines.items():
        yield Complaint(
            invariant="I11",
            says=f"{tenant} has {count} in line and no row",
            cure="line",
            name=tenant,
        )
    return highest


def _of_tenant(
    look: Source, tenant: str, active: int | None, waiting: int, lined: int
) -> Iterator[Complaint]:
    def complaint(says: str) -> Complaint:
        return Complaint(invariant="I11", says=f"{tenant} {says}", cure="line", name=tenant)

    if waiting != lined:
        yield complaint(f"counts {waiting} in line, there are {lined}")
    if active is None:
        if lined:
            yield complaint(f"has {lined} in line and no active task")
        return
    place = look.row("task_place", active)
    if place is None or place[1] == Place.SETTLED or place[4] != tenant:
        yield complaint(f"says that number {active} is active, which is gone or settled")


def _of_totals(look: Source, counted: Counter[tuple[str, str, str]]) -> Iterator[Complaint]:
    stored = {(q, place, status): n for q, place, status, n in look.rows("totals_all")}
    for total in sorted(stored.keys() | counted.keys()):
        says, is_ = stored.get(total, 0), counted[total]
        if says != is_:
            yield Complaint(
                invariant="I11",
                says=f"{' '.join(total)} is counted as {says}, there are {is_}",
                cure="total",
                total=total,
                by=is_ - says,
            )


def _of_sequences(look: Source, last: int, fence: int) -> Iterator[Complaint]:
    task, _, given = look.row("sequences_get")
    if task < last or given < fence:
        yield Complaint(
            invariant="I11",
            says=f"numbers stand at {task} and fence {given}, {last} and {fence} were given out",
            cure="numbers",
            n=last,
            by=fence,
        )
