"""A plan as its record and as its rows.

The record is written without its lease, which is in columns. Only members that do not wait have a
row; the events of one version are one row.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from holdfast.domain.errors import SerialisationError
from holdfast.domain.plan import events as ev
from holdfast.domain.plan.plan import Member, MemberState, Plan, PlanTasks
from holdfast.domain.task.task import Lease
from holdfast.stores import codec
from holdfast.stores.sqlite.tasks.records import checked_json

replace = msgspec.structs.replace
log = logging.getLogger("holdfast.stores.sqlite.plan_rows")

_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode


class PlanLease(NamedTuple):
    """The lease on a plan."""

    fence: int
    lease_id: str | None
    owner: str | None
    until: float | None

    @property
    def lease(self) -> Lease | None:
        if self.lease_id is None or self.owner is None or self.until is None:
            return None
        return Lease(owner=self.owner, fence=self.fence, id=self.lease_id, until=self.until)


NO_LEASE = PlanLease(0, None, None, None)


class PlanColumns(NamedTuple):
    """The columns of a plan that follow from its record."""

    version: int
    status: str
    settled_at: float | None
    keep_until: float | None


def columns_of(plan: Plan) -> PlanColumns:
    settled = plan.settled_at
    until = None if settled is None else settled + plan.keep_seconds
    return PlanColumns(plan.version, plan.status, settled, until)


def body_of(plan: Plan) -> str:
    record = replace(plan, lease=None, fence=0)
    return checked_json(record, f"plan {plan.id!r}", codec.decode_plan).decode()


def tasks_body_of(plan_id: str, tasks: PlanTasks) -> str:
    return checked_json(tasks, f"plan {plan_id!r}", codec.decode_plan_tasks).decode()


def plan_of(body: str, held: PlanLease) -> Plan:
    return replace(codec.decode_plan(body.encode()), lease=held.lease, fence=held.fence)


def readable(plan_id: object, body: str, held: PlanLease) -> Plan | None:
    """Return the plan, or None where it cannot be read; `doctor` reports it."""
    try:
        return plan_of(body, held)
    except SerialisationError as error:
        log.warning("plan %s is unreadable; see `holdfast doctor`: %s", plan_id, error)
        return None


def member_of(state: str, version: int) -> Member:
    try:
        return Member(MemberState(state), version)
    except ValueError as error:
        raise SerialisationError(f"a plan's member cannot be read: {error}") from error


def events_body_of(events: Iterable[ev.PlanEvent]) -> str:
    return f"[{b','.join(map(ev.encode, events)).decode()}]"


def events_of(body: str) -> Iterator[ev.PlanEvent]:
    try:
        raws = _decode_list(body)
    except msgspec.DecodeError as error:
        raise SerialisationError(f"a plan's events cannot be read: {error}") from error
    for raw in raws:
        yield ev.decode(bytes(raw))
