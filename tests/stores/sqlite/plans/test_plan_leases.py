"""Plans in a file: restarts of the machine, fences, and what is written when."""

from pathlib import Path

import pytest

from holdfast.domain.plan.plan import PlanNext
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.plan_driver import ADMITTED, PlanStoreDriver
from holdfast.testing.contract.drivers.store_driver import LEASE_SECONDS
from tests.support.sqlite.sqlite_files import ask, opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "holdfast.db"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def test_a_lease_of_an_earlier_start_has_lapsed(path: Path, clock: ManualClock) -> None:
    async with opened(path, clock, boot_id="b-1") as store:
        before = await PlanStoreDriver(store, clock).start()
    async with opened(path, clock, boot_id="b-2") as store:
        plans = PlanStoreDriver(store, clock)
        after = await plans.take_one("d-2")
        assert after.fence > before.fence
        assert await plans.next_seconds() == LEASE_SECONDS
        assert await plans.expect_stale(await plans.decide(before)) == after
        assert not await plans.renew(before)


async def test_a_lease_renewed_after_a_restart_counts_from_then(
    path: Path, clock: ManualClock
) -> None:
    async with opened(path, clock, boot_id="b-1") as store:
        plan = await PlanStoreDriver(store, clock).start()
    async with opened(path, clock, boot_id="b-2") as store:
        plans = PlanStoreDriver(store, clock)
        assert await plans.renew(plan)
        assert await plans.next_seconds() == LEASE_SECONDS


async def test_fences_rise_though_numbers_were_lost(path: Path, clock: ManualClock) -> None:
    async with opened(path, clock) as store:
        plans = PlanStoreDriver(store, clock)
        before = await plans.start()
        ask(path, "UPDATE sequences SET fence = 0")
        clock.advance(LEASE_SECONDS)
        assert (await plans.take_one("d-2")).fence > before.fence


async def test_to_hand_a_plan_out_leaves_its_record_alone(path: Path, clock: ManualClock) -> None:
    async with opened(path, clock) as store:
        plans = PlanStoreDriver(store, clock)
        plan = await plans.ready()
        (before,) = ask(path, "SELECT version, body FROM plans")
        held = await plans.take_one()
        await plans.renew(held)
        assert ask(path, "SELECT version, body FROM plans") == [before]
        driven = await plans.drive(held)
        assert (driven.lease is not None, driven.version) == (True, plan.version + 1)


async def test_ten_thousand_members_move_in_one_write(path: Path, clock: ManualClock) -> None:
    async with opened(path, clock) as store:
        plans = PlanStoreDriver(store, clock)
        plan = await plans.start(size=10_000)
        moves = dict.fromkeys(range(10_000), ADMITTED)
        await plans.drive(plan, moves=moves, next=PlanNext.LOOK)
        assert await store.plans.members(plan.id) == moves


async def test_nothing_of_a_pruned_plan_is_left(path: Path, clock: ManualClock) -> None:
    async with opened(path, clock) as store:
        plans = PlanStoreDriver(store, clock)
        plan = await plans.start(keep_seconds=0.0)
        await plans.commit(
            await plans.decide(
                plan, next=PlanNext.SETTLED, moves={0: ADMITTED}, settled_at=clock.now()
            )
        )
        clock.advance(1)
        assert await plans.prune() == 1
    for table in ("plans", "plan_tasks", "plan_members", "plan_events"):
        assert ask(path, f"SELECT count(*) FROM {table}") == [(0,)]
