"""The doctor: do records, columns, lines, keys and counts agree?

One consistent look, page by page, beside the running work. What can be derived from the records is
mended afterwards by `repair.py`, in small steps that look again before they write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import msgspec

from holdfast.domain.errors import SerialisationError
from holdfast.domain.task import checkpoint as ckpt
from holdfast.domain.task.placement import ACTIVE, DUE, RUNNABLE, START, STOPPED, Place, fits
from holdfast.domain.task.stages import describe_mismatch
from holdfast.domain.task.task import Task
from holdfast.ports import Finding
from holdfast.stores.sqlite.admin import doctor_plans
from holdfast.stores.sqlite.tasks.records import (
    RecordRow,
    TaskPosition,
    bodies_of,
    counted_as,
    record_row,
    task_of,
)

PAGE = 500


class Source(Protocol):
    """A look or a transaction."""

    def row(self, name: str, *values: Any) -> Any: ...
    def rows(self, name: str, *values: Any) -> list[Any]: ...


class TaskRow(msgspec.Struct, frozen=True):
    """A row of `doctor_tasks`."""

    tenant: str | None
    plan: str | None
    type: str
    hold: int
    line: int | None
    error: str | None
    keep_until: float | None
    suspended_at: float | None
    queued: int | None  # who has its number in its queue
    row: RecordRow

    @property
    def at(self) -> TaskPosition:
        return self.row.position

    @property
    def leased(self) -> bool:
        return self.at.lease_id is not None

    @property
    def total(self) -> tuple[str, str, str]:
        """The queue, place and status that the task counts as."""
        return self.at.queue, *counted_as(self.at.place, self.row.status, self.leased)


def found_in(values: Sequence[Any]) -> TaskRow:
    *columns, _ = TaskRow.__struct_fields__
    return TaskRow(
        **dict(zip(columns, values, strict=False)), row=record_row(values[len(columns) :])
    )


class Numbers(msgspec.Struct):
    """The highest of each kind."""

    task: int = 0
    ready: int = 0
    fence: int = 0

    def saw(self, *, task: int = 0, ready: int = 0, fence: int = 0) -> None:
        self.task, self.ready = max(self.task, task), max(self.ready, ready)
        self.fence = max(self.fence, fence)


class Complaint(msgspec.Struct, frozen=True, kw_only=True):
    invariant: str
    says: str
    task_id: str | None = None
    cure: str | None = None  # what `mending` does about it; None: nothing can be derived
    n: int = 0
    name: str = ""
    total: tuple[str, str, str] = ("", "", "")
    by: int = 0
    numbers: Numbers | None = None


def told(complaint: Complaint, *, mended: bool = False) -> Finding:
    return Finding(
        invariant=complaint.invariant,
        task_id=complaint.task_id,
        message=complaint.says,
        mended=mended,
    )


def examine(look: Source, limit: int, seen: Callable[[int], None] | None = None) -> list[Complaint]:
    found: list[Complaint] = []
    for complaint in _everything(look, seen or _ignore):
        found.append(complaint)
        if len(found) >= limit:
            break
    return found


def _ignore(_: int) -> None: ...


def _everything(look: Source, seen: Callable[[int], None]) -> Iterator[Complaint]:
    totals: Counter[tuple[str, str, str]] = Counter()
    lines: Counter[str] = Counter()
    given = Numbers()
    for found in _all_tasks(look, seen):
        totals[found.total] += 1
        if found.line is not None and found.tenant is not None:
            lines[found.tenant] += 1
        row = found.at
        given.saw(task=row.n, ready=abs(row.ready or 0), fence=max(row.fence, row.lease_fence or 0))
        yield from of_task(look, found)
    yield from _of_queues(look)
    yield from _of_tenants(look, lines, given)
    yield from _of_totals(look, totals)
    yield from _of_numbers(look, given)
    for name, says, cure in doctor_plans.examine(look):
        yield Complaint(invariant="I11", says=says, cure=cure, name=name)


def _all_tasks(look: Source, seen: Callable[[int], None]) -> Iterator[TaskRow]:
    last = number = 0
    while page := look.rows("doctor_tasks", last, PAGE):
        yield from map(found_in, page)
        last = page[-1][10]
        number += len(page)
        seen(number)


def of_task(look: Source, found: TaskRow) -> Iterator[Complaint]:
    row = found.at
    try:
        task = task_of(found.row)
    except SerialisationError as error:
        says = f"{error}; restore the row from a backup or delete it"
        yield Complaint(invariant="I11", task_id=row.id, says=says, cure="aside", n=row.n)
        return
    for invariant, says, cure in (
        *_columns(found, task),
        *_place(found, task),
        *_tenant(look, row, task),
        *_key(look, task),
        *_rules(look, task),
    ):
        yield Complaint(invariant=invariant, task_id=row.id, says=says, cure=cure, n=row.n)


Said = Iterator[tuple[str, str, str | None]]


def _columns(found: TaskRow, task: Task) -> Said:
    for name, value in columns_of(task).items():
        column = getattr(found.at if name in TaskPosition._fields else found, name)
        if column != value:
            yield "I11", f"column {name} is {column!r}, the record says {value!r}", "columns"


def columns_of(task: Task) -> dict[str, Any]:
    """The columns that follow from the record alone."""
    return {
        "id": task.id,
        "tenant": task.tenant,
        "plan": task.plan,
        "queue": task.queue,
        "type": task.type,
        "hold": int(task.hold),
        "error": task.failure.fingerprint if task.failure else None,
        "keep_until": None if task.settled_at is None else task.settled_at + task.keep_seconds,
        "suspended_at": task.updated_at if task.suspended else None,
    }


def _place(found: TaskRow, task: Task) -> Said:
    """Check that a task is in exactly one place, in the index of that place, and of a status that
    fits."""
    place = found.at.place
    for name, inside, belongs in (
        ("a queue", found.queued == found.at.n, place == START.leaves and not found.leased),
        ("a line", found.line is not None, place == Place.LINE),
        ("the times", task.due is not None, place == DUE.leaves),
        ("the settled", task.settled_at is not None, place == Place.SETTLED),
    ):
        if inside != belongs:
            yield "I1", f"is {task.place} and {'in' if inside else 'not in'} {name}", "place"
    if not fits(task.status, task.place):
        yield "I1", f"is {task.place} and {task.status}", "place"
    if found.leased and place != START.leaves:
        yield "I3", f"is {place} with lease {task.lease}", "place"


def _tenant(look: Source, row: TaskPosition, task: Task) -> Said:
    if task.tenant is None or task.place not in ACTIVE:
        return
    (active,) = look.row("tenant_active", task.tenant) or (None,)
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
    if task.pause_requested and task.place in STOPPED:
        yield "I14", "rests with a pause still asked for", None
    # Both were written by its last failure: a limit that was lowered since then is not meant.
    if 0 < task.retry_max <= task.failures and task.place in RUNNABLE:
        yield "I16", f"is tried again after failure {task.failures} of {task.retry_max}", None
    done = task.last_completed + 1
    if done > 0 and task.fence > 0:
        stages = bodies_of(look.rows("bodies_get", task.order)).stages
        kept = sum(stage.index <= task.last_completed for stage in stages)
        if kept != done:
            yield "I7", f"{kept} stages are kept, {done} were completed", None
        elif wrong := describe_mismatch(task, stages):
            yield "I7", f"its record {wrong}", "stages"
        yield from _checkpoint(look, task)


def _checkpoint(look: Source, task: Task) -> Said:
    found = look.row("checkpoint_get", task.order)
    if found is None:
        return
    try:
        index = ckpt.decode(found[0].encode()).last_completed_stage_index
    except SerialisationError as error:
        yield "I7", f"{error}", None
        return
    if index != task.last_completed:
        yield "I7", f"the checkpoint is at {index}, the record at {task.last_completed}", None


def _of_queues(look: Source) -> Iterator[Complaint]:
    """Numbers in queues, and leases, that belong to no task."""
    last: tuple[str, int] = ("", -(1 << 62))
    while page := look.rows("doctor_ready", *last, PAGE):
        for queue, number, n, own in page:
            if own != number:
                says = f"queue {queue} has number {number} for task {n}, which is not there"
                yield Complaint(
                    invariant="I11", says=says, cure="queue", n=n, name=queue, by=number
                )
        last = page[-1][0], page[-1][1]
    for (n,) in look.rows("doctor_leases"):
        yield Complaint(invariant="I11", says=f"a lease is for task {n}", cure="lease", n=n)


def _of_tenants(look: Source, lines: Counter[str], given: Numbers) -> Iterator[Complaint]:
    last = ""
    while page := look.rows("doctor_tenants", last, PAGE):
        for tenant, active, fence, waiting in page:
            given.saw(fence=fence)
            yield from _of_tenant(look, tenant, active, waiting, lines.pop(tenant, 0))
        last = page[-1][0]
    for tenant, count in lines.items():
        yield Complaint(
            invariant="I11",
            says=f"{tenant} has {count} in line and no row",
            cure="line",
            name=tenant,
        )


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
    if not may_be_active(look, active, tenant):
        yield complaint(f"says that number {active} is active, which is gone or settled")


def may_be_active(look: Source, n: int, tenant: str) -> bool:
    found = look.row("state_of", n)
    return found is not None and found[1] != Place.SETTLED and found[5] == tenant


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


def _of_numbers(look: Source, seen: Numbers) -> Iterator[Complaint]:
    given = Numbers(*look.row("sequences_get"))
    if given.task < seen.task or given.ready < seen.ready or given.fence < seen.fence:
        yield Complaint(
            invariant="I11",
            says=f"numbers stand at {given}, {seen} were given out",
            cure="numbers",
            numbers=seen,
        )
