"""Plans are created once and changed whole: the record, its members, its events, the audit."""

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
    PlanApplied,
    PlanNext,
    PlanStale,
    PlanStatus,
    PlanTasks,
    TenantConflict,
)
from holdfast.testing.contract.drivers.plan_driver import (
    ADMITTED,
    COMPLETED,
    FAILED,
    PlanContract,
    PlanDriver,
    tasks_of,
)


class PlanCreating(PlanContract):
    @pytest.mark.parametrize("rule", [None, FailureRate(0.05), FailureCount(3)])
    async def test_a_plan_is_found_as_it_was_created(
        self, plans: PlanDriver, rule: HaltRule | None
    ) -> None:
        plan = plans.unsaved(
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
        assert await plans.put(plan) == plan
        assert await plans.load(plan) == plan
        assert await plans.port.tasks(plan.id) == tasks_of(plan)
        assert dict(await plans.port.members(plan.id)) == {}
        (event,) = await plans.port.events(plan.id, limit=10)
        assert (event.plan_id, event.version, event.at) == (plan.id, 1, plans.clock.now())

    async def test_a_plan_created_again_is_the_one_that_was_there(self, plans: PlanDriver) -> None:
        first = await plans.ready("upgrade-7")
        before = await plans.all_of(first.id)
        other = plans.unsaved("upgrade-7", size=9, digest="digest-2")
        assert await plans.put(other) == first
        assert await plans.all_of(first.id) == before

    async def test_of_many_who_create_it_at_once_one_does(self, plans: PlanDriver) -> None:
        made = [plans.unsaved("upgrade-7", digest=f"digest-{n}") for n in range(6)]
        answers = await asyncio.gather(*(plans.put(plan) for plan in made))
        assert all(answer == answers[0] for answer in answers)
        assert answers[0] in made
        assert len(await plans.port.events("upgrade-7", limit=10)) == 1

    async def test_nobody_looks_at_a_plan_that_is_not_sealed(self, plans: PlanDriver) -> None:
        await plans.create()
        assert await plans.next_seconds() is None

    async def test_what_is_not_there_is_not_found(self, plans: PlanDriver) -> None:
        one, two = await plans.create(), await plans.create()
        asked = [two.id, "unknown", one.id, two.id]
        assert list(await plans.port.load(asked)) == [two, None, one, two]
        assert list(await plans.port.load([])) == []
        assert await plans.port.tasks("unknown") is None
        assert dict(await plans.port.members("unknown")) == {}
        assert list(await plans.port.events("unknown", limit=10)) == []

    @pytest.mark.parametrize(
        "name", ["two words", "a/b", "a:b", "-a", "ä\u202e", "ä b", "x" * 101, "a\n", "*"]
    )
    async def test_a_plans_id_outside_its_alphabet_is_refused(
        self, plans: PlanDriver, name: str
    ) -> None:
        with pytest.raises(InvalidName):
            await plans.put(plans.unsaved(name))
        assert await plans.all_ids() == []

    async def test_a_plan_that_could_never_be_read_again_is_refused(
        self, plans: PlanDriver
    ) -> None:
        wrong: Any = object()
        with pytest.raises(SerialisationError):
            await plans.put(plans.unsaved("upgrade-7", reason=wrong))
        assert await plans.all_ids() == []
        plan = await plans.ready("upgrade-7")
        change = await plans.asked(plan, reason=wrong)
        with pytest.raises(SerialisationError):
            await plans.port.apply(change)
        assert await plans.load(plan) == plan

    async def test_ten_thousand_tasks_are_ordinary(self, plans: PlanDriver) -> None:
        plan = await plans.driven(size=10_000, waves=(1, 500, 2_500, 10_000))
        assert await plans.port.tasks(plan.id) == tasks_of(plan)
        plan = await plans.drive(plan, moves=dict.fromkeys(range(10000), ADMITTED))
        plan = await plans.drive(plan, moves=dict.fromkeys(range(9999), COMPLETED))
        members = await plans.port.members(plan.id)
        assert (len(members), members[0], members[9_999]) == (10_000, COMPLETED, ADMITTED)
        assert await plans.load(plan) == plan
        assert plan.count(MemberState.COMPLETED) == 9_999

    async def test_a_plan_of_one_task_is_ordinary(self, plans: PlanDriver) -> None:
        plan = await plans.create(size=1)
        assert await plans.port.tasks(plan.id) == PlanTasks(
            ids=(f"{plan.id}.task-0",), tenants=(None,)
        )


class PlanWriting(PlanContract):
    async def test_a_change_is_written_whole(self, plans: PlanDriver) -> None:
        plan = await plans.driven(size=4, waves=(1, 4))
        plans.clock.advance(5)
        change = await plans.decided(
            plan,
            status=PlanStatus.RUNNING,
            moves={0: ADMITTED, 2: FAILED},
            wave=1,
            wave_ran=True,
            soaks_since=plans.clock.now() - 1,
            started_at=plans.clock.now(),
            forgiven=2,
            undo_from=1,
            undo_upto=3,
            cancel_requested=True,
            progress=0.25,
            reason="because",
            audit=plans.audit(plan, "pause"),
        )
        after = await plans.commit(change)
        assert replace(after, lease=None) == replace(change.after, lease=None)
        assert await plans.load(plan) == after
        assert dict(await plans.port.members(plan.id)) == {0: ADMITTED, 2: FAILED}
        assert (await plans.port.events(plan.id, limit=99))[-1] == change.events[-1]
        assert list(await plans.store.admin.audits(limit=10)) == [change.audit]

    async def test_members_not_named_stay_as_they_are(self, plans: PlanDriver) -> None:
        plan = await plans.drive(await plans.driven(), moves={0: ADMITTED, 1: ADMITTED})
        await plans.drive(plan, moves={1: COMPLETED, 3: FAILED})
        members = dict(await plans.port.members(plan.id))
        assert members == {0: ADMITTED, 1: COMPLETED, 3: FAILED}

    async def test_a_member_that_waits_again_is_as_one_that_never_went(
        self, plans: PlanDriver
    ) -> None:
        plan = await plans.drive(await plans.driven(), moves={0: FAILED, 1: FAILED})
        plan = await plans.drive(plan, moves={0: WAITING, 2: WAITING})
        assert dict(await plans.port.members(plan.id)) == {1: FAILED}
        await plans.drive(plan, moves={0: ADMITTED})
        assert dict(await plans.port.members(plan.id)) == {0: ADMITTED, 1: FAILED}

    @pytest.mark.parametrize("state", [s for s in MemberState if s is not MemberState.WAITING])
    async def test_every_state_of_a_member_is_kept(
        self, plans: PlanDriver, state: MemberState
    ) -> None:
        plan = await plans.drive(await plans.driven(), moves={3: Member(state, 17)})
        assert dict(await plans.port.members(plan.id)) == {3: Member(state, 17)}
        assert (await plans.load(plan)).counts == ({state: 1},)

    @pytest.mark.parametrize("status", list(PlanStatus))
    async def test_every_status_is_kept(self, plans: PlanDriver, status: PlanStatus) -> None:
        plan = await plans.drive(await plans.driven(), status=status)
        assert (await plans.load(plan)).status is status

    async def test_a_change_to_another_version_of_a_plan_is_refused(
        self, plans: PlanDriver
    ) -> None:
        plan = await plans.driven()
        for version in (plan.version - 1, plan.version + 1):
            other = replace(plan, version=version)
            entry = plans.audit(plan, "pause")
            driven = await plans.decided(other, moves={0: FAILED}, audit=entry)
            assert await plans.refused(driven) == plan
            assert await plans.refused(await plans.asked(other, audit=entry)) == plan

    async def test_a_change_to_a_plan_that_is_not_there_is_refused(self, plans: PlanDriver) -> None:
        change = await plans.asked(plans.unsaved())
        assert await plans.port.apply(change) == PlanStale(None)
        assert await plans.all_ids() == []

    async def test_of_changes_to_one_version_of_a_plan_one_is_written(
        self, plans: PlanDriver
    ) -> None:
        plan = await plans.driven()
        changes = [await plans.decided(plan, moves={n % 4: ADMITTED}) for n in range(4)]
        changes += [await plans.asked(plan, reason=str(n)) for n in range(4)]
        outcomes = await asyncio.gather(*(plans.port.apply(change) for change in changes))
        (written,) = [outcome.plan for outcome in outcomes if isinstance(outcome, PlanApplied)]
        assert await plans.load(plan) == written
        assert len(await plans.port.members(plan.id)) == (written.reason is None)


class PlanRepeats(PlanContract):
    @pytest.mark.parametrize("next", list(PlanNext))
    async def test_a_repeated_change_is_answered_as_the_first_was(
        self, plans: PlanDriver, next: PlanNext
    ) -> None:
        status = PlanStatus.COMPLETED if next is PlanNext.SETTLED else PlanStatus.RUNNING
        plan = await plans.driven()
        change = await plans.decided(plan, next=next, status=status, moves={1: COMPLETED})
        first = await plans.port.apply(change)
        assert isinstance(first, PlanApplied)
        before = await plans.all_of(plan.id)
        assert await plans.port.apply(change) == first
        assert await plans.all_of(plan.id) == before

    async def test_a_persons_repeat_is_answered_as_the_first_was(self, plans: PlanDriver) -> None:
        plan = await plans.ready()
        change = await plans.asked(plan, audit=plans.audit(plan, "pause"))
        first = await plans.commit(change)
        assert await plans.commit(change) == first
        assert len(await plans.port.events(plan.id, limit=10)) == 3
        assert len(await plans.store.admin.audits(limit=10)) == 1

    async def test_a_repeat_that_comes_too_late_is_refused(self, plans: PlanDriver) -> None:
        plan = await plans.driven()
        change = await plans.decided(plan, moves={1: ADMITTED})
        after = await plans.commit(change)
        later = await plans.drive(after, moves={1: COMPLETED})
        assert await plans.refused(change) == later

    async def test_another_request_is_no_repeat(self, plans: PlanDriver) -> None:
        plan = await plans.driven()
        first, second = await plans.decided(plan), await plans.decided(plan)
        await plans.commit(first)
        await plans.refused(second)
