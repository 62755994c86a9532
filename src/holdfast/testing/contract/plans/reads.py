"""Reads of plans: events, pages, and how long a settled plan is kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.domain.errors import InvalidInput
from holdfast.domain.plan import events as ev
from holdfast.domain.plan.plan import SETTLED, Plan, PlanNext, PlanStatus
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.plan_driver import ADMITTED
from holdfast.testing.contract.drivers.record_driver import A_YEAR
from holdfast.testing.contract.drivers.store_driver import ASKER

FACTS: dict[str, Any] = {
    "total": 4,
    "wave": 1,
    "tasks": 3,
    "completed": 2,
    "failed": 1,
    "moved": ((0, "admitted"), (3, "failed")),
    "tenants": ("acme/eu", "ü"),
    "by": ASKER,
    "why": "more than 0.05 of a wave",
}


def facts(plan: Plan, *kinds: type[ev.PlanEvent]) -> list[ev.PlanEvent]:
    """Return the events of the plan's next version."""
    return [
        kind(
            plan_id=plan.id,
            version=plan.version + 1,
            at=1_700_000_000.25,
            **{name: FACTS[name] for name in kind.__struct_fields__ if name in FACTS},
        )
        for kind in kinds
    ]


def versions(events: Sequence[ev.PlanEvent]) -> list[int]:
    return [event.version for event in events]


class PlanReads(Contract):
    @pytest.mark.parametrize("name", list(ev.KINDS))
    async def test_every_kind_of_event_is_kept(self, name: str) -> None:
        plan = await self.plans.ready()
        events = facts(plan, ev.KINDS[name])
        await self.plans.ask(plan, events=events)
        assert list(await self.plans.port.events(plan.id, limit=10, after_version=2)) == events

    async def test_events_are_there_in_order_with_the_versions_they_made(self, plan: Plan) -> None:
        started = facts(plan, ev.PlanStarted, ev.WaveStarted, ev.PlanAdvanced)
        plan = await self.plans.drive(plan, events=started)
        last = facts(plan, ev.WaveEnded, ev.PlanCompleted)
        await self.plans.drive(plan, events=last)
        events = list(await self.plans.port.events(plan.id, limit=100))
        assert versions(events) == [1, 2, 3, 3, 3, 4, 4]
        assert events[2:] == started + last
        assert list(await self.plans.port.events(plan.id, limit=100, after_version=3)) == last
        assert list(await self.plans.port.events(plan.id, limit=100, after_version=4)) == []

    @pytest.mark.parametrize("limit", [1, 2, 3, 4, 100])
    async def test_the_events_of_a_version_are_never_parted(self, limit: int) -> None:
        plan = await self.plans.start()
        for number in (3, 1, 2):
            plan = await self.plans.drive(plan, events=facts(plan, *[ev.PlanAdvanced] * number))
        pages: list[list[int]] = []
        while page := await self.plans.port.events(
            plan.id, limit=limit, after_version=pages[-1][-1] if pages else 0
        ):
            pages.append(versions(page))
        assert [version for page in pages for version in page] == [1, 2, 3, 3, 3, 4, 5, 5]

    async def test_events_belong_to_one_plan(self) -> None:
        plan = await self.plans.ready("a")
        await self.plans.ready("a.b")
        assert {event.plan_id for event in await self.plans.port.events(plan.id, limit=99)} == {"a"}

    @pytest.mark.parametrize("limit", [1, 2, 5, 100])
    async def test_the_newest_plan_comes_first(self, limit: int) -> None:
        ids = []
        for name in "dbeac":
            ids.append((await self.plans.create(name)).id)
            self.clock.advance(1)
        await self.plans.create("zz", created_at=self.clock.now() - 100)
        assert await self.plans.all_ids(limit=limit) == [*ids[::-1], "zz"]

    @pytest.mark.parametrize("limit", [1, 2, 100])
    async def test_plans_of_one_moment_are_all_there(self, limit: int) -> None:
        ids = [(await self.plans.create(name)).id for name in "bdac"]
        assert await self.plans.all_ids(limit=limit) == sorted(ids, reverse=True)

    async def test_no_plans_are_an_empty_page(self) -> None:
        page = await self.plans.port.find(limit=10)
        assert (page.plans, page.cursor) == ((), None)

    async def test_plans_are_found_by_their_present_status(self) -> None:
        created = await self.plans.create("a")
        paused = await self.plans.ask(await self.plans.ready("b"), status=PlanStatus.PAUSED)
        ready = await self.plans.ready("c")

        async def find_ids(*statuses: PlanStatus) -> list[str]:
            return await self.plans.all_ids(limit=1, statuses=statuses)

        assert await find_ids(PlanStatus.CREATED) == [created.id]
        assert await find_ids(PlanStatus.READY) == [ready.id]
        assert await find_ids(PlanStatus.PAUSED, PlanStatus.CREATED) == [paused.id, created.id]
        assert await find_ids(PlanStatus.RUNNING) == []
        assert await find_ids() == [ready.id, paused.id, created.id]

    @pytest.mark.parametrize("cursor", ["not a cursor", "*\n"])
    async def test_a_cursor_that_no_page_of_plans_gave_is_refused(self, cursor: str) -> None:
        with pytest.raises(InvalidInput):
            await self.plans.port.find(limit=10, cursor=cursor)

    async def test_a_settled_plan_goes_with_all_that_belongs_to_it(self) -> None:
        plan = await self.plans.drive(await self.plans.start(keep_seconds=100), moves={0: ADMITTED})
        plan = await self.plans.drive(plan, status=PlanStatus.COMPLETED)
        before = await self.plans.all_of(plan.id)
        self.clock.advance(99)
        assert await self.plans.prune() == 0
        assert await self.plans.all_of(plan.id) == before
        self.clock.advance(2)
        assert await self.plans.prune() == 1
        assert await self.plans.all_of(plan.id) == (None, None, {}, [], [])
        assert await self.plans.all_ids() == []
        assert await self.plans.prune() == 0

    @pytest.mark.parametrize("status", [s for s in PlanStatus if s not in SETTLED])
    async def test_no_unsettled_plan_is_ever_trimmed(self, status: PlanStatus) -> None:
        plan = await self.plans.start(keep_seconds=0)
        await self.plans.drive(plan, status=status, next=PlanNext.REST, moves={0: ADMITTED})
        before = await self.plans.all_of(plan.id)
        self.clock.advance(A_YEAR)
        assert await self.plans.prune() == 0
        assert await self.plans.all_of(plan.id) == before

    async def test_a_plan_brought_back_from_its_end_is_not_trimmed(self) -> None:
        plan = await self.plans.create_settled(keep_seconds=1)
        await self.plans.ask(plan, status=PlanStatus.ROLLING_BACK)
        self.clock.advance(A_YEAR)
        assert await self.plans.prune() == 0
        taken = await self.plans.take_one()
        assert (taken.id, taken.settled_at) == (plan.id, None)
        await self.plans.drive(taken, status=PlanStatus.ROLLED_BACK)
        self.clock.advance(2)
        assert await self.plans.prune() == 1

    async def test_the_id_of_a_plan_that_has_gone_may_be_used_again(self) -> None:
        await self.plans.create_settled(name="upgrade-7", keep_seconds=1)
        self.clock.advance(2)
        await self.plans.prune()
        again = await self.plans.ready("upgrade-7", size=2)
        assert (again.version, again.total) == (2, 2)
        assert await self.plans.claim_ids() == ["upgrade-7"]
