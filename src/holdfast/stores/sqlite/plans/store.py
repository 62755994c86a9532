"""The plan part of the SQLite store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Any

from holdfast.domain import names
from holdfast.domain.plan.events import PlanEvent
from holdfast.domain.plan.plan import Member, Plan, PlanChange, PlanOutcome, PlanStatus, PlanTasks
from holdfast.ports import DuePlans, PlanPage
from holdfast.stores import codec
from holdfast.stores.sqlite.file.open_parts import RequireOpen
from holdfast.stores.sqlite.file.readers import ReadView
from holdfast.stores.sqlite.plans import verbs as plan_verbs
from holdfast.stores.sqlite.plans.rows import (
    PlanLease,
    body_of,
    events_body_of,
    events_of,
    member_of,
    readable,
    tasks_body_of,
)
from holdfast.stores.sqlite.tasks import queue

Mark = tuple[float, str]  # when a plan was made, and its id

TOP: Mark = (float("inf"), "")  # newer than every plan


class SqlitePlans:
    def __init__(self, require_open: RequireOpen) -> None:
        self._parts = require_open

    # -- writes

    async def create(self, plan: Plan, tasks: PlanTasks, events: Sequence[PlanEvent]) -> Plan:
        names.check("plan", plan.id)
        new = plan_verbs.EncodedPlan(
            plan, body_of(plan), tasks_body_of(plan.id, tasks), events_body_of(events)
        )
        return await self._parts().writer.do(partial(plan_verbs.create, new=new))

    async def claim(self, owner: str, *, limit: int, lease_seconds: float) -> DuePlans:
        work = partial(plan_verbs.claim, owner=owner, limit=limit, lease_seconds=lease_seconds)
        return await self._parts().writer.do(work, weight=limit)

    async def renew(self, plan_id: str, lease_id: str, *, lease_seconds: float) -> bool:
        work = partial(
            plan_verbs.renew, plan_id=plan_id, lease_id=lease_id, lease_seconds=lease_seconds
        )
        return await self._parts().writer.do(work)

    async def apply(self, change: PlanChange, *, lease_seconds: float = 30.0) -> PlanOutcome:
        follows = tuple(map(queue.encode, change.follows))
        body, events = body_of(change.after), events_body_of(change.events)
        write = plan_verbs.EncodedPlanChange(change, body, events, follows)
        work = partial(plan_verbs.apply, write=write, lease_seconds=lease_seconds)
        return await self._parts().writer.do(work, weight=1 + len(change.moves) + len(follows))

    async def wake(self, plan_ids: Sequence[str]) -> None:
        await self._parts().writer.do(partial(plan_verbs.wake, plan_ids=plan_ids))

    # -- reads

    async def load(self, plan_ids: Sequence[str]) -> Sequence[Plan | None]:
        return await self._parts().readers.do(load, plan_ids)

    async def tasks(self, plan_id: str) -> PlanTasks | None:
        return await self._parts().readers.do(tasks_of, plan_id)

    async def members(self, plan_id: str) -> Mapping[int, Member]:
        return await self._parts().readers.do(members_of, plan_id)

    async def events(
        self, plan_id: str, *, limit: int, after_version: int = 0
    ) -> Sequence[PlanEvent]:
        return await self._parts().readers.do(events, plan_id, limit, after_version)

    async def find(
        self, *, statuses: Sequence[PlanStatus] = (), limit: int, cursor: str | None = None
    ) -> PlanPage:
        before = TOP if cursor is None else codec.read_plan_cursor(cursor)
        return await self._parts().readers.do(find, statuses, limit, before)


def load(view: ReadView, plan_ids: Sequence[str]) -> list[Plan | None]:
    rows = ((plan_id, plan_verbs.load_row(view, plan_id)) for plan_id in plan_ids)
    return [readable(plan_id, row.body, row.held) if row else None for plan_id, row in rows]


def tasks_of(view: ReadView, plan_id: str) -> PlanTasks | None:
    row = view.row("plan_tasks_of", plan_id)
    return codec.decode_plan_tasks(row[0].encode()) if row else None


def members_of(view: ReadView, plan_id: str) -> dict[int, Member]:
    rows = view.iterate("plan_members_of", plan_id)
    return {number: member_of(state, version) for number, state, version in rows}


def events(view: ReadView, plan_id: str, limit: int, after_version: int) -> list[PlanEvent]:
    first: list[PlanEvent] = []
    for (body,) in view.iterate("plan_events_of", plan_id, after_version):
        if len(first) >= limit:
            break
        first += events_of(body)
    return first


def find(view: ReadView, statuses: Iterable[PlanStatus], limit: int, before: Mark) -> PlanPage:
    rows = list(islice(_newest(view, set(statuses), before, limit + 1), limit + 1))
    plans = (readable(plan_id, body, PlanLease(*held)) for _, plan_id, *held, body in rows[:limit])
    created_at, last_id, *_ = rows[limit - 1] if len(rows) > limit else (None, None)
    return PlanPage(
        plans=tuple(plan for plan in plans if plan is not None),
        cursor=None if created_at is None else f"{created_at!r} {last_id}",
    )


def _newest(view: ReadView, statuses: set[PlanStatus], before: Mark, limit: int) -> Iterator[Any]:
    if not statuses:
        return view.iterate("plans_any", *before, limit)
    parts = [view.iterate("plans_of_status", status, *before, limit) for status in statuses]
    return merge(*parts, key=itemgetter(0, 1), reverse=True)
