"""The writes on plans: verbs of their port, inside a transaction."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from holdfast.domain.plan.plan import (
    WAITING,
    Plan,
    PlanApplied,
    PlanChange,
    PlanNext,
    PlanOutcome,
    PlanStale,
)
from holdfast.domain.task.task import Lease
from holdfast.ports import DuePlans, Topic
from holdfast.stores.sqlite.file.readers import ReadView
from holdfast.stores.sqlite.plan_trigger_leases import lease_end, next_seconds
from holdfast.stores.sqlite.plans.rows import PlanLease, columns_of, plan_of, readable
from holdfast.stores.sqlite.tasks import queue
from holdfast.stores.sqlite.transaction import Txn, json_list

replace = msgspec.structs.replace


class PlanRow(NamedTuple):
    """A row of `plan_of`."""

    n: int
    version: int
    fence: int
    lease_id: str | None
    owner: str | None
    boot: int | None
    until: float | None
    due: float | None
    body: str

    @property
    def held(self) -> PlanLease:
        return PlanLease(self.fence, self.lease_id, self.owner, self.until)


class EncodedPlan(msgspec.Struct, frozen=True, gc=False):
    """A plan, encoded before the writer's time is spent on it."""

    plan: Plan
    body: str
    tasks: str
    events: str


class EncodedPlanChange(msgspec.Struct, frozen=True, gc=False):
    """A change, encoded before the writer's time is spent on it."""

    change: PlanChange
    body: str
    events: str
    follows: tuple[queue.EncodedSubmission, ...] = ()


def create(txn: Txn, new: EncodedPlan) -> Plan:
    row, plan = load_row(txn, new.plan.id), replace(new.plan, lease=None, fence=0)
    if row is not None:
        return plan_of(row.body, row.held)
    columns = columns_of(plan)
    (n,) = txn.row("plan_add", plan.id, plan.created_at, *columns, new.body)
    txn.run("plan_tasks_add", n, new.tasks)
    txn.run("plan_events_add", n, plan.version, new.events)
    return plan


def load_row(source: Txn | ReadView, plan_id: str) -> PlanRow | None:
    row = source.row("plan_of", plan_id)
    return PlanRow(*row) if row else None


def claim(txn: Txn, owner: str, limit: int, lease_seconds: float) -> DuePlans:
    until, secret = lease_end(txn, lease_seconds), secrets.token_hex(8)
    plans, leases = [], []
    for n, last, body in _free(txn, limit):
        fence = max(txn.next_fence(), last + 1)
        lease = Lease(owner=owner, fence=fence, id=f"{secret}{fence:x}", until=until)
        plan = readable(f"number {n}", body, PlanLease(fence, lease.id, owner, until))
        if plan is None:
            txn.run("plan_set_aside", n)  # otherwise each claim would read it again
        else:
            plans.append(plan)
            leases.append((n, fence, lease.id))
    if leases:
        txn.run("plans_lease", json_list(leases), owner, txn.boot, until)
    first, first_lease = txn.row("plans_first"), txn.row("plans_first_lease")
    waits = next_seconds(txn, first, first_lease, now=txn.now)
    return DuePlans(plans=tuple(plans), next_seconds=waits)


def _free(txn: Txn, limit: int) -> list[tuple[int, int, str]]:
    """Return number, fence and record of the plans that are due or whose lease has lapsed, earliest
    first.
    """
    rows = txn.rows("plans_due", txn.now, limit)
    rows += txn.rows("plans_lapsed", txn.boot, txn.now, limit)
    return [(n, fence, body) for _, n, fence, body in sorted(rows)[:limit]]


def renew(txn: Txn, plan_id: str, lease_id: str, lease_seconds: float) -> bool:
    txn.run("plan_renew", txn.boot, lease_end(txn, lease_seconds), plan_id, lease_id)
    kept = txn.db.changes() > 0
    if kept and lease_seconds <= 0:  # given back: other processes still wait for its old end
        txn.topics.add(Topic.DUE)
    return kept


def wake(txn: Txn, plan_ids: Sequence[str]) -> None:
    txn.run("plans_wake", round(txn.now, 6), json_list(plan_ids))
    if txn.db.changes() > 0:
        txn.topics.add(Topic.DUE)


def apply(txn: Txn, write: EncodedPlanChange, lease_seconds: float) -> PlanOutcome:
    change, row = write.change, load_row(txn, write.change.after.id)
    if row is None:
        return PlanStale(None)
    if not _may_write(row, change):
        return _answer_refused(row, change)
    txn.run("plan_put", row.n, *columns_of(change.after), write.body)
    txn.run("plan_events_add", row.n, change.after.version, write.events)
    _move(txn, row.n, change)
    if change.audit is not None:
        txn.write_audit(change.audit)
    if write.follows:
        queue.insert_follow_ups(txn, write.follows, queue.ExistingTasks(txn, write.follows))
    held = _place(txn, row, change, lease_seconds)
    if change.is_news:
        txn.topics.add(Topic.DUE)
    return PlanApplied(replace(change.after, lease=held.lease, fence=held.fence))


def _may_write(row: PlanRow, change: PlanChange) -> bool:
    return row.version == change.before.version and change.lease in (None, row.lease_id)


def _answer_refused(row: PlanRow, change: PlanChange) -> PlanOutcome:
    """Answer a repeated write as the first was answered, and any other as stale."""
    plan, after = readable(change.after.id, row.body, row.held), change.after
    if plan and (plan.version, plan.request) == (after.version, after.request):
        return PlanApplied(plan)
    return PlanStale(plan)


def _move(txn: Txn, n: int, change: PlanChange) -> None:
    moves = dict(change.moves)
    waiting = [number for number, member in moves.items() if member == WAITING]
    moved = [(i, m.state, m.version) for i, m in moves.items() if m != WAITING]
    if waiting:
        txn.run("plan_members_wait", n, json_list(waiting))
    if moved:
        txn.run("plan_members_put", n, json_list(moved))


def _place(txn: Txn, row: PlanRow, change: PlanChange, lease_seconds: float) -> PlanLease:
    """Write when the plan is due and its lease; a person's change leaves them to the driver."""
    leased, settles = row.lease_id is not None, change.next is PlanNext.SETTLED
    if change.next is PlanNext.DRIVE:
        if not leased:
            return row.held
        end = lease_end(txn, lease_seconds)
        return _put_place(txn, row, row.due, row.lease_id, row.owner, txn.boot, end)
    if change.lease is None and not settles and (leased or change.next is PlanNext.REST):
        return row.held
    woken = leased and row.due is not None and not settles
    delay_seconds = 0.0 if woken else change.delay_seconds
    looked_at = woken or change.next is PlanNext.LOOK
    due = round(txn.now + delay_seconds, 6) if looked_at else None
    return _put_place(txn, row, due, None, None, None, None)


def _put_place(txn: Txn, row: PlanRow, *place: Any) -> PlanLease:
    """Write ``place``: the due time, and the lease's id, owner, boot number and end."""
    txn.run("plan_place", row.n, *place)
    _, lease_id, owner, _, until = place
    return PlanLease(row.fence, lease_id, owner, until)
