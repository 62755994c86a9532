"""The contract of lateness: a time has come, and no worker has moved its record."""

from __future__ import annotations

import pytest

from holdfast.ports import Awaited
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.plan_driver import PlanHands
from holdfast.testing.contract.drivers.store_driver import LEASE_SECONDS, Hands
from holdfast.testing.contract.drivers.trigger_driver import A_MINUTE, TriggerHands


async def late(hands: Hands) -> dict[Awaited, float]:
    found = (await hands.store.views.stats()).late_seconds
    return {kind: round(seconds, 3) for kind, seconds in found.items()}


class BeingLate(Contract):
    @pytest.fixture
    def late_triggers(self, hands: Hands) -> TriggerHands:
        return TriggerHands(hands.store, hands.clock, hands)

    @pytest.fixture
    def late_plans(self, hands: Hands) -> PlanHands:
        return PlanHands(hands.store, hands.clock)

    async def test_what_is_ready_or_at_rest_is_not_late(self, hands: Hands) -> None:
        await hands.suspend(await hands.start())
        await hands.submit()
        hands.clock.advance(3600)
        assert await late(hands) == {}

    async def test_a_lease_is_late_from_its_end_until_it_is_taken_back(self, hands: Hands) -> None:
        await hands.start()
        hands.clock.advance(LEASE_SECONDS - 1)
        assert await late(hands) == {}
        hands.clock.advance(6)
        assert await late(hands) == {Awaited.LEASE: 5}
        await hands.store.tasks.expire(limit=10, count_crashes=True)
        assert await late(hands) == {}

    async def test_the_first_due_task_says_how_late_tasks_are(self, hands: Hands) -> None:
        for seconds in (60, 30, 90):
            await hands.fail(await hands.start(), retry_seconds=seconds)
        hands.clock.advance(29)
        assert await late(hands) == {}
        hands.clock.advance(11)
        assert await late(hands) == {Awaited.TASK: 10}
        await hands.store.tasks.promote(limit=10)
        assert await late(hands) == {}

    async def test_a_trigger_is_late_while_nobody_fires_it(
        self, hands: Hands, late_triggers: TriggerHands
    ) -> None:
        await late_triggers.save(due_in=A_MINUTE)
        assert await late(hands) == {}
        hands.clock.advance(A_MINUTE + 7)
        assert await late(hands) == {Awaited.TRIGGER: 7}
        assert len(await late_triggers.take_due()) == 1
        assert await late(hands) == {}
        hands.clock.advance(LEASE_SECONDS + 2)
        assert await late(hands) == {Awaited.TRIGGER: 2}, "whoever had it is gone"

    async def test_a_plan_is_late_while_nobody_drives_it(
        self, hands: Hands, late_plans: PlanHands
    ) -> None:
        await late_plans.create("still-being-made")
        await late_plans.ready("soaks", delay_seconds=60)
        hands.clock.advance(59)
        assert await late(hands) == {}
        hands.clock.advance(4)
        assert await late(hands) == {Awaited.PLAN: 3}
        await late_plans.take()
        assert await late(hands) == {}
        hands.clock.advance(LEASE_SECONDS + 2)
        assert await late(hands) == {Awaited.PLAN: 2}, "its driver is gone"
