"""Held tasks, and writes that are refused rather than left waiting in a tenant's line."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from holdfast.domain.errors import IllegalTransition
from holdfast.domain.task.events import TaskHeldBack
from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.task import Task
from holdfast.domain.task.transition import Applied, Busy, Stale, Transition
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.store_driver import ASKER, Hands
from holdfast.testing.contract.tasks.tenant_queue import SETTLED, UNSETTLED


def unless_busy(hands: Hands, task: Task, command: Command = Command.RELEASE) -> Transition:
    return replace(hands.asked(command, task), not_if_busy=True)


async def is_busy(hands: Hands, transition: Transition) -> None:
    """The write must be answered BUSY and leave no trace."""
    task = await hands.load(transition.task_id)
    before = await everything(hands, task)
    assert await hands.apply(transition) == Busy(task)
    assert await everything(hands, task) == before


async def everything(hands: Hands, task: Task) -> tuple[object, ...]:
    tenant = await hands.tenant(task.tenant) if task.tenant else None
    audits = list(await hands.store.admin.audits(limit=100))
    return await hands.detail(task), tenant, await hands.store.views.stats(), audits


class HoldingBack(Contract):
    async def test_a_held_task_is_not_handed_out_until_it_is_released(self, hands: Hands) -> None:
        held = await hands.submit(held=True, tenant="t")
        assert (held.status, held.place) == (Status.CREATED, Place.HELD)
        assert await hands.claim_ids() == []
        released = await hands.ask(Command.RELEASE, held)
        assert (released.status, released.place) == (Status.PENDING, Place.READY)
        assert await hands.claim_ids() == [held.id]

    async def test_a_held_task_keeps_nobody_waiting(self, hands: Hands) -> None:
        await hands.submit(held=True, tenant="t")
        assert (await hands.tenant("t")).active is None
        other = await hands.submit(tenant="t")
        assert await hands.claim_ids() == [other.id]

    async def test_a_task_held_back_stays_where_it_is_in_a_new_version(self, hands: Hands) -> None:
        held = await hands.submit(held=True, tenant="t")
        task = await hands.ask(Command.HOLD_BACK, held)
        assert (task.status, task.place) == (Status.CREATED, Place.HELD)
        assert (task.version, task.order) == (held.version + 1, held.order)
        event = await hands.last_event(task)
        assert isinstance(event, TaskHeldBack)
        assert (event.version, event.by) == (task.version, ASKER)
        assert (await hands.store.admin.audits(limit=1))[0].command == Command.HOLD_BACK
        assert await hands.claim_ids() == []
        assert (await hands.store.views.stats()).by_status[Status.CREATED] == 1

    async def test_a_release_decided_on_before_is_void(self, hands: Hands) -> None:
        held = await hands.submit(held=True)
        release = hands.asked(Command.RELEASE, held)
        back = await hands.ask(Command.HOLD_BACK, held)
        assert await hands.refused(release) == back
        assert await hands.refused(replace(release, not_if_busy=True)) == back
        assert await hands.claim_ids() == []
        await hands.ask(Command.RELEASE, back)
        assert await hands.claim_ids() == [held.id]

    async def test_a_task_released_before_is_not_held_back(self, hands: Hands) -> None:
        held = await hands.submit(held=True)
        back = hands.asked(Command.HOLD_BACK, held)
        released = await hands.ask(Command.RELEASE, held)
        assert await hands.refused(back) == released
        with pytest.raises(IllegalTransition):
            hands.asked(Command.HOLD_BACK, released)
        assert await hands.claim_ids() == [held.id]

    async def test_a_repeat_of_holding_back_is_answered_as_the_first_was(
        self, hands: Hands
    ) -> None:
        back = hands.asked(Command.HOLD_BACK, await hands.submit(held=True))
        first = await hands.apply(back)
        assert isinstance(first, Applied)
        assert await hands.apply(back) == first
        assert (await hands.events(first.task)).count("TaskHeldBack") == 1

    async def test_of_a_release_and_a_holding_back_one_is_written(self, hands: Hands) -> None:
        held = await hands.submit(held=True)
        commands = (Command.RELEASE, Command.HOLD_BACK)
        writes = (hands.apply(hands.asked(command, held)) for command in commands)
        outcomes = await asyncio.gather(*writes)
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Applied", "Stale"]
        released = isinstance(outcomes[0], Applied)
        assert await hands.claim_ids() == ([held.id] if released else [])

    async def test_a_task_held_back_can_be_cancelled(self, hands: Hands) -> None:
        held = await hands.submit(held=True, tenant="t")
        await hands.ask(Command.HOLD_BACK, held)
        task = await hands.ask(Command.CANCEL, held)
        assert (task.status, task.place) == (Status.CANCELLED, Place.SETTLED)


class RefusingToWait(Contract):
    @pytest.mark.parametrize("tenant", [None, "t"])
    async def test_a_task_is_released_when_it_need_not_wait(
        self, hands: Hands, tenant: str | None
    ) -> None:
        held = await hands.submit(held=True, tenant=tenant)
        await hands.submit(held=True, tenant=tenant)
        await hands.start(tenant="other")
        task = await hands.commit(unless_busy(hands, held))
        assert task.place is Place.READY
        assert await hands.claim_ids() == [held.id]

    async def test_a_release_is_refused_while_another_task_of_the_tenant_waits_or_runs(
        self, hands: Hands
    ) -> None:
        held = await hands.submit(held=True, tenant="t")
        await hands.submit(tenant="t")
        release = unless_busy(hands, held)
        await is_busy(hands, release)
        running = await hands.take()
        await is_busy(hands, release)
        await hands.complete(running)
        assert (await hands.commit(release)).place is Place.READY

    @pytest.mark.parametrize("status", list(UNSETTLED))
    async def test_a_release_is_refused_while_a_resting_task_holds_the_line(
        self, hands: Hands, status: Status
    ) -> None:
        held = await hands.submit(held=True, tenant="t")
        await UNSETTLED[status](hands, await hands.start(tenant="t", hold=True))
        await is_busy(hands, unless_busy(hands, held))

    @pytest.mark.parametrize("status", list(UNSETTLED))
    async def test_a_task_is_released_while_another_rests_that_holds_no_line(
        self, hands: Hands, status: Status
    ) -> None:
        held = await hands.submit(held=True, tenant="t")
        await UNSETTLED[status](hands, await hands.start(tenant="t", hold=False))
        assert (await hands.commit(unless_busy(hands, held))).place is Place.READY
        assert await hands.claim_ids() == [held.id]

    @pytest.mark.parametrize("status", list(SETTLED))
    async def test_a_task_is_released_when_the_other_has_settled(
        self, hands: Hands, status: Status
    ) -> None:
        held = await hands.submit(held=True, tenant="t")
        await SETTLED[status](hands, await hands.start(tenant="t", hold=True))
        assert (await hands.commit(unless_busy(hands, held))).place is Place.READY

    async def test_the_tenants_active_task_waits_for_nobody(self, hands: Hands) -> None:
        task = await hands.suspend(await hands.start(tenant="t", hold=True))
        await hands.submit(tenant="t")
        again = await hands.commit(unless_busy(hands, task, Command.RETRY))
        assert again.place is Place.READY
        assert await hands.claim_ids() == [task.id]

    async def test_a_resting_task_is_not_set_going_behind_another(self, hands: Hands) -> None:
        task = await hands.suspend(await hands.start(tenant="t"))
        running = await hands.start(tenant="t")
        retry = unless_busy(hands, task, Command.RETRY)
        await is_busy(hands, retry)
        await hands.complete(running)
        assert (await hands.commit(retry)).place is Place.READY

    async def test_without_the_condition_it_waits_in_the_line(self, hands: Hands) -> None:
        held = await hands.submit(held=True, tenant="t")
        await hands.start(tenant="t")
        assert (await hands.ask(Command.RELEASE, held)).place is Place.LINE

    async def test_the_version_is_compared_before_the_line_is_looked_at(self, hands: Hands) -> None:
        held = await hands.submit(held=True, tenant="t")
        await hands.start(tenant="t")
        release = unless_busy(hands, held)
        back = await hands.ask(Command.HOLD_BACK, held)
        assert await hands.apply(release) == Stale(back)

    async def test_a_repeat_is_answered_as_the_first_was_though_the_line_is_closed_by_now(
        self, hands: Hands
    ) -> None:
        held = await hands.submit(held=True, tenant="t")
        release = unless_busy(hands, held)
        await hands.commit(release)
        await hands.complete(await hands.take())
        await hands.start(tenant="t")
        assert isinstance(await hands.apply(release), Applied)

    async def test_of_many_released_at_once_one_goes(self, hands: Hands) -> None:
        ids = await hands.submit_many(6, tenant="t", held=True)
        releases = [unless_busy(hands, await hands.load(task_id)) for task_id in ids]
        outcomes = await asyncio.gather(*(hands.apply(release) for release in releases))
        kinds = sorted(type(outcome).__name__ for outcome in outcomes)
        assert kinds == ["Applied"] + ["Busy"] * 5
        assert len(await hands.claim_ids()) == 1

    async def test_of_one_batch_the_first_goes(self, hands: Hands) -> None:
        ids = await hands.submit_many(3, tenant="t", held=True)
        releases = [unless_busy(hands, await hands.load(task_id)) for task_id in ids]
        outcomes = await hands.store.tasks.apply(releases)
        assert [type(outcome) for outcome in outcomes] == [Applied, Busy, Busy]
        assert await hands.claim_ids() == ids[:1]
