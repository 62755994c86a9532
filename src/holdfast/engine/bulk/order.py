"""The order of a bulk action, checked and frozen, and the view of its progress."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.domain import bulk, names
from holdfast.domain.bulk import BulkCommand, BulkCounts, BulkState, Canary
from holdfast.domain.errors import InvalidInput
from holdfast.domain.task.state import SETTLED, SUSPENDED, Status
from holdfast.domain.task.task import By, Failure, Task
from holdfast.engine.handle import Info
from holdfast.ports import Detail, Filter

STATE = "bulk"  # where in ctx.data

WAITING, REST, DONE, HALTED = "waiting", "rest", "done", "halted"
STOPPED, STUCK, RESTING, UNBEGUN = "stopped", "suspended", "paused", "held"
_AT_REST = {Status.PAUSED: RESTING, Status.CREATED: UNBEGUN}


def actor_of(bulk_id: str) -> str:
    return f"bulk:{bulk_id}"


class BulkOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of a bulk action's task; it holds no time, so a repeat is the same order."""

    command: BulkCommand
    where: Filter
    rate: float
    canary: Canary | None
    limit: int | None
    force: bool
    from_checkpoint: bool
    by: By

    def frozen(self, created_at: float) -> Filter:
        """Return the filter of tasks that have not changed since the start.

        Running tasks change all the time, and a cancel or pause is for them all the same.
        """
        if self.command in bulk.OF_WHAT_MOVES:
            return self.where
        before = self.where.updated_before
        ends = created_at if before is None else min(before, created_at)
        return msgspec.structs.replace(self.where, updated_before=ends)


class BulkPreview(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks that a bulk action would act on now."""

    matching: int
    more: bool  # more tasks match than were counted
    sample: tuple[Info, ...]  # the newest of them
    refused_now: int  # counted tasks that could not take the command now
    starts_over: int = 0  # counted tasks that would start over, with new effect keys
    starting_over: tuple[str, ...] = ()  # the first tasks that would start over
    checkpoints_judged: int = 0  # tasks whose checkpoint was judged
    checkpoints_to_judge: int = 0  # tasks that would go on from a checkpoint
    code_unknown: tuple[str, ...] = ()  # types of these tasks that this process does not declare


class BulkInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a bulk action; the counts are those of its last round."""

    id: str
    command: BulkCommand
    where: Filter
    phase: str  # held, waiting, canary N, rest, done, halted, stopped, paused, suspended
    status: Status  # the status of its task
    matching: int  # when it began
    more: bool
    left: int
    counts: BulkCounts
    unknown: int  # tasks of a canary that took the command and have not ended yet
    rate: float
    canary: Canary | None
    limit: int | None
    by: By  # who started it
    reason: str | None  # why it was halted, stopped or paused
    failure: Failure | None
    created_at: float
    updated_at: float

    @property
    def over(self) -> bool:
        return self.status in SETTLED


def check_filter(command: BulkCommand, where: Filter, *, everything: bool) -> Filter:
    if where == Filter() and not everything:
        raise InvalidInput(
            "the filter is empty: add a condition, or pass --everything (everything=True)"
        )
    statuses = bulk.check_statuses(command, where.statuses)
    return msgspec.structs.replace(
        where,
        statuses=statuses,
        type=names.check_any("task type", where.type),
        tenant=names.check_any("tenant", where.tenant),
        queue=names.check_any("queue", where.queue),
        plan=names.check_any("plan", where.plan),
    )


def check_limit(limit: int | None) -> int | None:
    if limit is not None and limit < 1:
        raise InvalidInput(f"limit must be above zero, not {limit}")
    return limit


def state_of(data: Any) -> BulkState | None:
    """Return the saved state of a bulk action; None before its first round."""
    kept = data.get(STATE) if isinstance(data, dict) else None
    return None if kept is None else msgspec.convert(kept, BulkState)


def info_of(detail: Detail) -> BulkInfo:
    task = detail.task
    order = msgspec.json.decode(detail.payload, type=BulkOrder)
    data = msgspec.json.decode(detail.data) if detail.data else None
    state = state_of(data)
    known = state or BulkState()
    taken, matching = known.counts.taken, known.matching
    most = matching if order.limit is None else min(matching, order.limit)
    phase = _phase(task, order, state)
    return BulkInfo(
        id=task.id,
        command=order.command,
        where=order.frozen(task.created_at),
        phase=phase,
        status=task.status,
        matching=matching,
        more=known.more,
        left=0 if phase == DONE else max(0, most - taken),
        counts=known.counts,
        unknown=len(known.watched),
        rate=order.rate,
        canary=order.canary,
        limit=order.limit,
        by=order.by,
        reason=known.halted or task.reason,
        failure=task.failure,
        created_at=task.created_at,
        updated_at=task.updated_at,
    )


def _phase(task: Task, order: BulkOrder, state: BulkState | None) -> str:
    if state is not None and state.halted:
        return HALTED
    if task.status in SETTLED:
        return DONE if task.status is Status.COMPLETED else STOPPED
    if task.status in SUSPENDED:
        return STUCK
    if task.status in _AT_REST:
        return _AT_REST[task.status]
    if state is None:
        return WAITING
    steps = order.canary.steps if order.canary else ()
    return f"canary {steps[state.step]}" if state.step < len(steps) else REST
