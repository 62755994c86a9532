"""The doctor checks whether triggers and plans agree with their columns, and plans with members.

The record is right, and the columns follow it. The counts of a plan follow from its members.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast.domain.errors import SerialisationError
from holdfast.domain.plan.plan import Counts, MemberState, Plan
from holdfast.stores import codec, findings
from holdfast.stores.sqlite.plans import rows
from holdfast.stores.sqlite.plans.verbs import PlanRow, load_row
from holdfast.stores.sqlite.transaction import Txn
from holdfast.stores.sqlite.triggers import rows as trigger_rows
from holdfast.stores.sqlite.triggers.verbs import put_all

if TYPE_CHECKING:
    from holdfast.stores.sqlite.admin.doctor import Source

PAGE = 200


class PlanComplaint(NamedTuple):
    """A fact that is wrong about a trigger or a plan."""

    name: str  # the trigger or plan
    message: str
    cure: str | None = None  # see `CURES`


def examine(view: Source) -> Iterator[PlanComplaint]:
    for row in _pages(view, "doctor_triggers"):
        yield from _of_trigger(row)
    for row in _pages(view, "doctor_plans"):
        yield from _of_plan(view, row)


def _pages(view: Source, name: str) -> Iterator[Any]:
    last = ""
    while page := view.rows(name, last, PAGE):
        yield from page
        last = page[-1][0]


# -- triggers


def _of_trigger(row: Any) -> Iterator[PlanComplaint]:
    columns = trigger_rows.TriggerColumns(*row[:-1])
    name = f"trigger {columns.id}"
    try:
        trigger = trigger_rows.trigger_of(row[-1])
    except SerialisationError as error:
        yield PlanComplaint(
            columns.id, f"{name}: {error}; save the trigger again or remove it", "trigger-aside"
        )
        return
    due = trigger_rows.columns_of(trigger, columns.boot or 0)
    cure = "trigger-columns" if columns.id == trigger.id else None
    for column, value, wanted in zip(columns._fields, columns, due, strict=True):
        if value != wanted:
            message = f"{name}: column {column} is {value!r}, the record says {wanted!r}"
            yield PlanComplaint(columns.id, message, cure)
    if missing := findings.missing_fire_time(trigger):
        yield PlanComplaint(columns.id, missing)


def _mend_trigger(txn: Txn, name: str) -> bool:
    row = txn.row("trigger_of", name)
    trigger = trigger_rows.readable(name, row[3]) if row else None
    if row is None or trigger is None or trigger.id != name:
        return False
    put_all(txn, [(trigger, row[3])])
    return True


def _set_trigger_aside(txn: Txn, name: str) -> bool:
    """Take an unreadable trigger out of the way; it is not repaired, a person must examine it."""
    row = txn.row("trigger_of", name)
    if row is not None and trigger_rows.readable(name, row[3]) is None:
        txn.run("trigger_set_aside", name)
    return False


# -- plans


def _of_plan(view: Source, row: Any) -> Iterator[PlanComplaint]:
    plan_id, _, created_at, *columns, body = row
    try:
        plan = rows.plan_of(body, rows.NO_LEASE)
        member_counts = _count_members(view, plan)
        codec.decode_plan_tasks((view.row("plan_tasks_of", plan_id) or ("",))[0].encode())
    except SerialisationError as error:
        yield PlanComplaint(
            plan_id, f"plan {plan_id}: {error}; restore the plan from a backup", "plan-aside"
        )
        return
    wanted = (plan.id, plan.created_at, *rows.columns_of(plan))
    if (plan_id, created_at, *columns) != wanted:
        cure = "plan-columns" if (plan_id, created_at) == wanted[:2] else None
        yield PlanComplaint(
            plan_id, f"plan {plan_id}: its columns are {columns}, the record says {wanted}", cure
        )
    for message in findings.wrong_waves(plan, member_counts):
        yield PlanComplaint(plan_id, message, "plan-counts")


def _count_members(view: Source, plan: Plan) -> tuple[Counts, ...]:
    """Return the members of a plan by wave and state."""
    waves: list[Counter[MemberState]] = [Counter() for _ in plan.waves]
    for number, state, version in view.rows("plan_members_of", plan.id):
        wave = bisect_right(plan.waves, number)
        if not 0 <= wave < len(waves):
            raise SerialisationError(f"member {number} of {plan.total} is in no wave")
        waves[wave][rows.member_of(state, version).state] += 1
    return tuple(waves)


def _read_plan(txn: Txn, name: str) -> tuple[PlanRow | None, Plan | None]:
    """Return a plan's row, and its record if it can be read and has this name."""
    row = load_row(txn, name)
    plan = rows.readable(name, row.body, rows.NO_LEASE) if row else None
    return row, plan if plan and plan.id == name else None


def _mend_plan(txn: Txn, name: str) -> bool:
    row, plan = _read_plan(txn, name)
    if row and plan:
        txn.run("plan_put", row.n, *rows.columns_of(plan), row.body)
    return plan is not None


def _recount(txn: Txn, name: str) -> bool:
    row, plan = _read_plan(txn, name)
    if row is None or plan is None or row.lease_id is not None:
        return False  # its driver would overwrite the counts with those that it has read before
    mended = msgspec.structs.replace(plan, counts=tuple(dict(c) for c in _count_members(txn, plan)))
    txn.run("plan_put", row.n, *rows.columns_of(mended), rows.body_of(mended))
    return True


def _set_plan_aside(txn: Txn, name: str) -> bool:
    row, plan = _read_plan(txn, name)
    if row and plan is None:
        txn.run("plan_set_aside", row.n)
    return False


CURES = {
    "trigger-aside": _set_trigger_aside,
    "trigger-columns": _mend_trigger,
    "plan-aside": _set_plan_aside,
    "plan-columns": _mend_plan,
    "plan-counts": _recount,
}
