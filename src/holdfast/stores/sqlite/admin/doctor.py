"""The doctor checks whether records, columns, lines, keys and counts agree.

It reads one consistent view, page by page, while work goes on. Then `repair.py` corrects what
follows from the records, in small steps that read again before they write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Protocol

import msgspec

from holdfast.domain.errors import SerialisationError
from holdfast.domain.task import checkpoint as ckpt
from holdfast.domain.task.placement import ACTIVE, DUE, START, Place
from holdfast.domain.task.stages import describe_mismatch
from holdfast.domain.task.task import Task
from holdfast.ports import Finding
from holdfast.stores import findings
from holdfast.stores.sqlite.admin import doctor_plans
from holdfast.stores.sqlite.tasks.records import (
    RecordRow,
    TaskPosition,
    bodies_of,
    counted_as,
    indexed_columns,
    record_row,
    task_of,
)

PAGE = 500


class Source(Protocol):
    """A read view or a transaction."""

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
    queued: int | None  # the task that has its number in its queue
    row: RecordRow

    @property
    def at(self) -> TaskPosition:
        return self.row.position

    @property
    def leased(self) -> bool:
        return self.at.lease_id is not None

    @property
    def total(self) -> tuple[str, str, str]:
        """Return the queue, place and status that the task counts as."""
        return self.at.queue, *counted_as(self.at.place, self.row.status, self.leased)


def task_row(values: Sequence[Any]) -> TaskRow:
    *columns, _ = TaskRow.__struct_fields__
    return TaskRow(
        **dict(zip(columns, values, strict=False)), row=record_row(values[len(columns) :])
    )


class Numbers(msgspec.Struct):
    """The highest number of each kind."""

    task: int = 0
    ready: int = 0
    fence: int = 0

    def include(self, *, task: int = 0, ready: int = 0, fence: int = 0) -> None:
        self.task, self.ready = max(self.task, task), max(self.ready, ready)
        self.fence = max(self.fence, fence)


class Complaint(msgspec.Struct, frozen=True, kw_only=True):
    """A fact that is wrong in the file, and what its repair needs to know."""

    message: str
    invariant: str = "I11"
    task_id: str | None = None
    cure: str | None = None  # the repair in `repair.py`, or None if nothing can be derived
    n: int = 0
    name: str = ""
    total: tuple[str, str, str] = ("", "", "")
    by: int = 0
    numbers: Numbers | None = None


def finding(complaint: Complaint, *, mended: bool = False) -> Finding:
    return Finding(
        invariant=complaint.invariant,
        task_id=complaint.task_id,
        message=complaint.message,
        mended=mended,
    )


def examine(view: Source, limit: int, seen: Callable[[int], None] | None = None) -> list[Complaint]:
    """Return the first complaints, up to ``limit``; ``seen`` is called with the tasks examined."""
    return list(islice(_examine(view, seen), limit))


def _examine(view: Source, seen: Callable[[int], None] | None) -> Iterator[Complaint]:
    totals: Counter[tuple[str, str, str]] = Counter()
    lines: Counter[str] = Counter()
    given = Numbers()
    for row in _all_tasks(view, seen):
        totals[row.total] += 1
        if row.line is not None and row.tenant is not None:
            lines[row.tenant] += 1
        position = row.at
        given.include(
            task=position.n,
            ready=position.ready or 0,
            fence=max(position.fence, position.lease_fence or 0),
        )
        yield from _of_task(view, row)
    yield from _of_queues(view)
    yield from _of_tenants(view, lines, given)
    yield from _of_totals(view, totals)
    yield from _of_numbers(view, given)
    for name, message, cure in doctor_plans.examine(view):
        yield Complaint(message=message, cure=cure, name=name)


def _all_tasks(view: Source, seen: Callable[[int], None] | None) -> Iterator[TaskRow]:
    last = number = 0
    while page := view.rows("doctor_tasks", last, PAGE):
        yield from map(task_row, page)
        last = page[-1][10]
        number += len(page)
        if seen is not None:
            seen(number)


def _of_task(view: Source, row: TaskRow) -> Iterator[Complaint]:
    position = row.at
    try:
        task = task_of(row.row)
    except SerialisationError as error:
        message = f"{error}; restore the row from a backup or delete it"
        yield Complaint(task_id=position.id, message=message, cure="aside", n=position.n)
        return
    for invariant, message, cure in (
        *_columns(row, task),
        *_place(row, task),
        *_tenant(view, position, task),
        *_key(view, task),
        *_rules(view, task),
    ):
        yield Complaint(
            invariant=invariant, task_id=position.id, message=message, cure=cure, n=position.n
        )


TaskComplaints = Iterator[tuple[str, str, str | None]]  # invariant, message, cure


def _columns(row: TaskRow, task: Task) -> TaskComplaints:
    for name, value in columns_of(task).items():
        column = getattr(row.at if name in TaskPosition._fields else row, name)
        if column != value:
            yield "I11", f"column {name} is {column!r}, the record says {value!r}", "columns"


def columns_of(task: Task) -> dict[str, Any]:
    """Return the columns that follow from the record alone."""
    keep_until, suspended_at, error = indexed_columns(task)
    return {
        "id": task.id,
        "tenant": task.tenant,
        "plan": task.plan,
        "queue": task.queue,
        "type": task.type,
        "hold": int(task.hold),
        "error": error,
        "keep_until": keep_until,
        "suspended_at": suspended_at,
    }


def _place(row: TaskRow, task: Task) -> TaskComplaints:
    """Check that a task is in the index of its place and in no other, and has a fitting status."""
    place = row.at.place
    for name, inside, belongs in (
        ("a queue", row.queued == row.at.n, place == START.leaves and not row.leased),
        ("a line", row.line is not None, place == Place.LINE),
        ("the due times", task.due is not None, place == DUE.leaves),
        ("the settled tasks", task.settled_at is not None, place == Place.SETTLED),
    ):
        if inside != belongs:
            yield "I1", findings.wrong_index(task, name, is_in=inside), "place"
    if wrong := findings.wrong_status(task):
        yield "I1", wrong, "place"
    if row.leased and place != START.leaves:
        yield "I3", f"the task is {place} and has the lease {task.lease}", "place"


def _tenant(view: Source, position: TaskPosition, task: Task) -> TaskComplaints:
    if task.tenant is None or task.place not in ACTIVE:
        return
    (active,) = view.row("tenant_active", task.tenant) or (None,)
    if active != position.n:
        message = f"the task is {task.place}, but number {active} is active for {task.tenant}"
        yield "I2", message, "active"


def _key(view: Source, task: Task) -> TaskComplaints:
    if task.key is None:
        return
    owner = view.row("key_owner", task.tenant or "", task.key)
    if owner is None:
        yield "I10", f"the task's key {task.key} belongs to no task", "key"
    elif owner[0] != task.id:
        yield "I10", f"the task's key {task.key} belongs to {owner[0]}", None


def _rules(view: Source, task: Task) -> TaskComplaints:
    for invariant, message in findings.broken_rules(task):
        yield invariant, message, None
    done = task.last_completed + 1
    if done > 0 and task.fence > 0:
        stages = bodies_of(view.rows("bodies_get", task.order)).stages
        kept = sum(stage.index <= task.last_completed for stage in stages)
        if kept != done:
            yield "I7", findings.wrong_stage_number(kept, done), None
        elif wrong := describe_mismatch(task, stages):
            yield "I7", findings.wrong_stages(wrong), "stages"
        yield from _checkpoint(view, task)


def _checkpoint(view: Source, task: Task) -> TaskComplaints:
    stored = view.row("checkpoint_get", task.order)
    if stored is None:
        return
    try:
        index = ckpt.decode(stored[0].encode()).last_completed_stage_index
    except SerialisationError as error:
        yield "I7", f"{error}", None
        return
    if index != task.last_completed:
        yield "I7", findings.wrong_checkpoint(index, task), None


def _of_queues(view: Source) -> Iterator[Complaint]:
    """Yield the numbers in queues, and the leases, that belong to no task."""
    last: tuple[str, int] = ("", -(1 << 62))
    while page := view.rows("doctor_ready", *last, PAGE):
        for queue, number, n, own in page:
            if own != number:
                message = f"queue {queue} has number {number} for task {n}, which is not in it"
                yield Complaint(message=message, cure="queue", n=n, name=queue, by=number)
        last = page[-1][0], page[-1][1]
    for (n,) in view.rows("doctor_leases"):
        message = f"a lease is for task number {n}, which does not exist"
        yield Complaint(message=message, cure="lease", n=n)


def _of_tenants(view: Source, lines: Counter[str], given: Numbers) -> Iterator[Complaint]:
    last = ""
    while page := view.rows("doctor_tenants", last, PAGE):
        for tenant, active, fence, waiting in page:
            given.include(fence=fence)
            for problem in _of_tenant(view, tenant, active, waiting, lines.pop(tenant, 0)):
                yield Complaint(message=f"tenant {tenant} {problem}", cure="line", name=tenant)
        last = page[-1][0]
    for tenant, count in lines.items():
        message = f"tenant {tenant} has {count} tasks in line, but no row"
        yield Complaint(message=message, cure="line", name=tenant)


def _of_tenant(
    view: Source, tenant: str, active: int | None, waiting: int, lined: int
) -> Iterator[str]:
    if waiting != lined:
        yield f"counts {waiting} tasks in line, but there are {lined}"
    if active is None:
        if lined:
            yield f"has {lined} tasks in line, but no active task"
    elif not may_be_active(view, active, tenant):
        yield f"names number {active} as active, which is gone or settled"


def may_be_active(view: Source, n: int, tenant: str) -> bool:
    state = view.row("state_of", n)
    return state is not None and state[1] != Place.SETTLED and state[5] == tenant


def _of_totals(view: Source, counted: Counter[tuple[str, str, str]]) -> Iterator[Complaint]:
    stored = {(q, place, status): n for q, place, status, n in view.rows("totals_all")}
    for total in sorted(stored.keys() | counted.keys()):
        missing = counted[total] - stored.get(total, 0)
        if missing:
            name, count = " ".join(total), stored.get(total, 0)
            message = findings.wrong_count(name, count, counted[total])
            yield Complaint(message=message, cure="total", total=total, by=missing)


def _of_numbers(view: Source, seen: Numbers) -> Iterator[Complaint]:
    given = Numbers(*view.row("sequences_get"))
    if given.task < seen.task or given.ready < seen.ready or given.fence < seen.fence:
        message = f"the sequences are at {given}, but {seen} were given out"
        yield Complaint(message=message, cure="numbers", numbers=seen)
