"""Writes of plans: created once; record, members, events and audit change in one step."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.domain.errors import InvalidName, SerialisationError
from holdfast.domain.plan.plan import (
    WAITING,
    FailureCount,
    FailureRate,
    HaltRule,
    Member,
    MemberState,
    OnHalt,
    Plan,
    PlanApplied,
    PlanNext,
    PlanStale,
    PlanStatus,
    PlanTasks,
    TenantConflict,
)
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.plan_driver import ADMITTED, COMPLETED, FAILED, tasks_of


class PlanWriteContract(Contract):
    @pytest.mark.parametrize("rule", [None, FailureRate(0.05), FailureCount(3)])
    async def test_a_plan_is_found_as_it_was_created(self, rule: HaltRule | None) -> None:
        plan = self.plans.build(
            "upgrade-7",
            size=20,
            max_concurrency=5,
            waves=(1, 5, 20),
            soak_seconds=600.5,
            halt_on=rule,
            on_halt=OnHalt.ROLLBACK_PLAN,
            conflict=TenantConflict.SKIP,
            keep_seconds=99.0,
            reason="a test",
        )
        assert await self.plans.put(plan) == plan
        assert await self.plans.load(plan) == plan
        assert await self.plans.port.tasks(plan.id) == tasks_of(plan)
        assert dict(await self.plans.port.members(plan.id)) == {}
        (event,) = await self.plans.port.events(plan.id, limit=10)
        assert (event.plan_id, event.version, event.at) == (plan.id, 1, self.clock.now())

    async def test_a_plan_created_again_is_the_one_that_was_there(self) -> None:
        first = await self.plans.ready("upgrade-7")
        before = await self.plans.all_of(first.id)
        other = self.plans.build("upgrade-7", size=9, digest="digest-2")
        assert await self.plans.put(other) == first
        assert await self.plans.all_of(first.id) == before

    async def test_of_many_who_create_it_at_once_one_does(self) -> None:
        made = [self.plans.build("upgrade-7", digest=f"digest-{n}") for n in range(6)]
        answers = await asyncio.gather(*(self.plans.put(plan) for plan in made))
        assert all(answer == answers[0] for answer in answers)
        assert answers[0] in made
        assert len(await self.plans.port.events("upgrade-7", limit=10)) == 1

    async def test_a_plan_that_is_not_sealed_is_never_due(self) -> None:
        await self.plans.create()
        assert await self.plans.next_seconds() is None

    async def test_what_is_not_there_is_not_found(self) -> None:
        one, two = await self.plans.create(), await self.plans.create()
        wanted = [two.id, "unknown", one.id, two.id]
        assert list(await self.plans.port.load(wanted)) == [two, None, one, two]
        assert list(await self.plans.port.load([])) == []
        assert await self.plans.port.tasks("unknown") is None
        assert dict(await self.plans.port.members("unknown")) == {}
        assert list(await self.plans.port.events("unknown", limit=10)) == []

    @pytest.mark.parametrize(
        "name", ["two words", "a/b", "a:b", "-a", "ä\u202e", "ä b", "x" * 101, "a\n", "*"]
    )
    async def test_a_plans_id_outside_its_alphabet_is_refused(self, name: str) -> None:
        with pytest.raises(InvalidName):
            await self.plans.put(self.plans.build(name))
        assert await self.plans.all_ids() == []

    async def test_a_plan_that_could_never_be_read_again_is_refused(self) -> None:
        wrong: Any = object()
        with pytest.raises(SerialisationError):
            await self.plans.put(self.plans.build("upgrade-7", reason=wrong))
        assert await self.plans.all_ids() == []
        plan = await self.plans.ready("upgrade-7")
        change = await self.plans.request(plan, reason=wrong)
        with pytest.raises(SerialisationError):
            await self.plans.port.apply(change)
        assert await self.plans.load(plan) == plan

    async def test_ten_thousand_tasks_are_ordinary(self) -> None:
        plan = await self.plans.start(size=10_000, waves=(1, 500, 2_500, 10_000))
        assert await self.plans.port.tasks(plan.id) == tasks_of(plan)
        plan = await self.plans.drive(plan, moves=dict.fromkeys(range(10000), ADMITTED))
        plan = await self.plans.drive(plan, moves=dict.fromkeys(range(9999), COMPLETED))
        members = await self.plans.port.members(plan.id)
        assert (len(members), members[0], members[9_999]) == (10_000, COMPLETED, ADMITTED)
        assert await self.plans.load(plan) == plan
        assert plan.count(MemberState.COMPLETED) == 9_999

    async def test_a_plan_of_one_task_is_ordinary(self) -> None:
        plan = await self.plans.create(size=1)
        assert await self.plans.port.tasks(plan.id) == PlanTasks(
            ids=(f"{plan.id}.task-0",), tenants=(None,)
        )

    async def test_a_change_is_written_whole(self) -> None:
        plan = await self.plans.start(size=4, waves=(1, 4))
        self.clock.advance(5)
        change = await self.plans.decide(
            plan,
            status=PlanStatus.RUNNING,
            moves={0: ADMITTED, 2: FAILED},
            wave=1,
            wave_ran=True,
            soaks_since=self.clock.now() - 1,
            started_at=self.clock.now(),
            forgiven=2,
            undo_from=1,
            undo_upto=3,
            cancel_requested=True,
            progress=0.25,
            reason="because",
            audit=self.plans.audit(plan, "pause"),
        )
        after = await self.plans.commit(change)
        assert replace(after, lease=None) == replace(change.after, lease=None)
        assert await self.plans.load(plan) == after
        assert dict(await self.plans.port.members(plan.id)) == {0: ADMITTED, 2: FAILED}
        assert (await self.plans.port.events(plan.id, limit=99))[-1] == change.events[-1]
        assert list(await self.store.admin.audits(limit=10)) == [change.audit]

    async def test_members_not_named_stay_as_they_are(self) -> None:
        plan = await self.plans.drive(await self.plans.start(), moves={0: ADMITTED, 1: ADMITTED})
        await self.plans.drive(plan, moves={1: COMPLETED, 3: FAILED})
        members = dict(await self.plans.port.members(plan.id))
        assert members == {0: ADMITTED, 1: COMPLETED, 3: FAILED}

    async def test_a_member_that_waits_again_is_as_one_that_never_went(self) -> None:
        plan = await self.plans.drive(await self.plans.start(), moves={0: FAILED, 1: FAILED})
        plan = await self.plans.drive(plan, moves={0: WAITING, 2: WAITING})
        assert dict(await self.plans.port.members(plan.id)) == {1: FAILED}
        await self.plans.drive(plan, moves={0: ADMITTED})
        assert dict(await self.plans.port.members(plan.id)) == {0: ADMITTED, 1: FAILED}

    @pytest.mark.parametrize("state", [s for s in MemberState if s is not MemberState.WAITING])
    async def test_every_state_of_a_member_is_kept(self, state: MemberState) -> None:
        plan = await self.plans.drive(await self.plans.start(), moves={3: Member(state, 17)})
        assert dict(await self.plans.port.members(plan.id)) == {3: Member(state, 17)}
        assert (await self.plans.load(plan)).counts == ({state: 1},)

    @pytest.mark.parametrize("status", list(PlanStatus))
    async def test_every_status_is_kept(self, status: PlanStatus) -> None:
        plan = await self.plans.drive(await self.plans.start(), status=status)
        assert (await self.plans.load(plan)).status is status

    async def test_a_change_to_another_version_of_a_plan_is_refused(self, plan: Plan) -> None:
        for version in (plan.version - 1, plan.version + 1):
            other = replace(plan, version=version)
            entry = self.plans.audit(plan, "pause")
            driven = await self.plans.decide(other, moves={0: FAILED}, audit=entry)
            assert await self.plans.expect_stale(driven) == plan
            assert (
                await self.plans.expect_stale(await self.plans.request(other, audit=entry)) == plan
            )

    async def test_a_change_to_a_plan_that_is_not_there_is_refused(self) -> None:
        change = await self.plans.request(self.plans.build())
        assert await self.plans.port.apply(change) == PlanStale(None)
        assert await self.plans.all_ids() == []

    async def test_of_changes_to_one_version_of_a_plan_one_is_written(self, plan: Plan) -> None:
        changes = [await self.plans.decide(plan, moves={n % 4: ADMITTED}) for n in range(4)]
        changes += [await self.plans.request(plan, reason=str(n)) for n in range(4)]
        outcomes = await asyncio.gather(*(self.plans.port.apply(change) for change in changes))
        (written,) = [outcome.plan for outcome in outcomes if isinstance(outcome, PlanApplied)]
        assert await self.plans.load(plan) == written
        assert len(await self.plans.port.members(plan.id)) == (written.reason is None)

    @pytest.mark.parametrize("next", list(PlanNext))
    async def test_a_repeated_change_is_answered_as_the_first_was(self, next: PlanNext) -> None:
        status = PlanStatus.COMPLETED if next is PlanNext.SETTLED else PlanStatus.RUNNING
        plan = await self.plans.start()
        change = await self.plans.decide(plan, next=next, status=status, moves={1: COMPLETED})
        first = await self.plans.port.apply(change)
        assert isinstance(first, PlanApplied)
        before = await self.plans.all_of(plan.id)
        assert await self.plans.port.apply(change) == first
        assert await self.plans.all_of(plan.id) == before

    async def test_a_persons_repeat_is_answered_as_the_first_was(self) -> None:
        plan = await self.plans.ready()
        change = await self.plans.request(plan, audit=self.plans.audit(plan, "pause"))
        first = await self.plans.commit(change)
        assert await self.plans.commit(change) == first
        assert len(await self.plans.port.events(plan.id, limit=10)) == 3
        assert len(await self.store.admin.audits(limit=10)) == 1

    async def test_a_repeat_that_comes_too_late_is_refused(self, plan: Plan) -> None:
        change = await self.plans.decide(plan, moves={1: ADMITTED})
        after = await self.plans.commit(change)
        later = await self.plans.drive(after, moves={1: COMPLETED})
        assert await self.plans.expect_stale(change) == later

    async def test_another_request_is_no_repeat(self, plan: Plan) -> None:
        first, second = await self.plans.decide(plan), await self.plans.decide(plan)
        await self.plans.commit(first)
        await self.plans.expect_stale(second)
