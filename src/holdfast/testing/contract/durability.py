"""The contract of durable stores: data outlives a restart, and several may have it open."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.domain.plan.plan import PlanApplied
from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.transition import Applied, Existing, IntakeClosed
from holdfast.domain.trigger.trigger import Changed
from holdfast.ports import Filter, Kept, Switch, Topic
from holdfast.testing.contract.admin.audit import (
    build_refusal,
    cancel_many,
    entries,
    read_chain,
    seal_all,
)
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.plan_driver import ADMITTED, FAILED, PlanStoreDriver
from holdfast.testing.contract.drivers.store_driver import LEASE_SECONDS, StoreDriver
from holdfast.testing.contract.drivers.trigger_driver import TriggerDriver
from holdfast.testing.contract.tasks.signals import expect_signal
from holdfast.testing.contract.views.measures import build_timings, load_timings


async def claim_at_once(
    *sides: StoreDriver | PlanStoreDriver | TriggerDriver, claimers: int
) -> list[str]:
    """Let claimers of each side claim three records at a time; return the ids in order."""
    claims = (side.claim_ids(f"c-{n}", limit=3) for n in range(claimers) for side in sides)
    return sorted(record_id for claim in await asyncio.gather(*claims) for record_id in claim)


class Durability(Contract):
    """``open`` is called more than once in a test and must open the same data each time."""

    async def test_the_store_says_that_it_is_durable(self) -> None:
        assert self.store.durable

    async def test_everything_is_there_again_after_a_restart(self) -> None:
        await self.driver.run(key="gone", keep_seconds=0)
        await self.driver.suspend(await self.driver.start_past_stage(data={"cursor": 7}))
        await self.driver.fail(await self.driver.start(), retry_seconds=60)
        held = await self.driver.start_past_stage(tenant="t")
        waiting = await self.driver.submit_many(2, tenant="t")
        await self.driver.ask(Command.PAUSE, await self.driver.load(waiting[0]))
        before = (await self.store.views.find(Filter(), limit=100)).tasks
        details = [await self.driver.detail(task) for task in before]
        stats = await self.store.views.stats()
        view = await self.driver.tenant("t")
        async with self.restart() as other:
            store, again = other.store, other.driver
            assert (await store.views.find(Filter(), limit=100)).tasks == before
            assert [await again.detail(task) for task in before] == details
            assert (await store.views.stats()).moves == stats.moves
            assert await again.tenant("t") == view
            assert len(await store.admin.audits(limit=10)) == 1
            assert await again.renew(held) == [True]
            task = await again.complete(held)
            assert task.status is Status.COMPLETED
            assert await again.claim_ids() == waiting[1:]
            self.clock.advance(60)
            assert (await store.tasks.promote(limit=10)).count == 1
            (answer,) = await again.insert(again.submission(key="gone", id="x"))
            assert isinstance(answer, Existing)
            terms: dict[str, Any] = {"older_than_seconds": 0, "limit": 9, "dry_run": True}
            assert await store.admin.prune(Kept.TASKS, **terms) == 0
            assert not await store.admin.doctor(fix=False, limit=10)

    async def test_a_repeat_is_known_after_a_restart(self) -> None:
        transition = await self.driver.done(await self.driver.start())
        first = await self.driver.apply(transition)
        async with self.restart() as again:
            assert await again.store.tasks.apply([transition]) == [first]

    async def test_two_that_have_it_open_share_its_tasks(self) -> None:
        async with self.open_again() as other:
            ids = await self.driver.submit_many(20) + await self.driver.submit_many(5, tenant="t")
            assert await claim_at_once(self.driver, other.driver, claimers=5) == ids[:21]

    async def test_what_one_writes_the_other_compares_with(self) -> None:
        async with self.open_again() as other:
            task = await self.driver.start()
            stage, pause = await self.driver.done(task), other.driver.request(Command.PAUSE, task)
            outcomes = await asyncio.gather(self.driver.apply(stage), other.driver.apply(pause))
            assert sum(isinstance(outcome, Applied) for outcome in outcomes) == 1
            assert await self.driver.load(task.id) == await other.driver.load(task.id)

    async def test_what_one_writes_wakes_those_who_wait_at_the_other(self) -> None:
        async with self.open_again() as other:
            async with expect_signal(other.store, Topic.READY):
                task = await self.driver.submit()
            assert await other.driver.claim_ids() == [task.id]


class OperatingDurability(Contract):
    """Switches, audits and measures outlive a process, and are shared."""

    async def test_what_was_switched_off_is_off_after_a_restart(self) -> None:
        await self.driver.submit()
        for switch in Switch:
            await self.switches.off(switch)
        before = set(await self.switches.settings())
        async with self.restart() as again:
            assert set(await again.switches.settings()) == before
            submission = again.driver.submission(id="x")
            assert await again.driver.insert(submission) == [IntakeClosed("default")]
            assert await again.driver.claim_ids() == []

    async def test_measures_and_audits_are_there_again_after_a_restart(self) -> None:
        await self.driver.suspend(await self.driver.start_past_stage(tenant="t"))
        await self.store.admin.observe([build_timings(0, 3)])
        await cancel_many(self.driver, 3)
        links = await read_chain(self.store)
        await cancel_many(self.driver, 2)
        audits = await self.store.admin.audits(limit=10)
        errors = await self.store.views.error_groups(limit=10)
        async with self.restart() as again:
            store = again.store
            assert await load_timings(store) == [build_timings(0, 3)]
            assert (await store.views.stats()).checkpoints == 1
            assert list(await store.admin.audits(limit=10)) == list(audits)
            assert list(await store.views.error_groups(limit=10)) == list(errors)
            after = await read_chain(store)
            assert (after[:3], len(after)) == (links, 5)

    async def test_what_one_switches_off_is_off_for_the_other(self) -> None:
        await self.driver.submit()
        async with self.open_again() as other:
            await self.switches.off(Switch.CLAIMING)
            await self.switches.off(Switch.INTAKE)
            assert await other.driver.claim_ids() == []
            submission = other.driver.submission(id="x")
            assert await other.driver.insert(submission) == [IntakeClosed("default")]
            assert not await other.switches.off(Switch.INTAKE)

    async def test_what_one_switches_on_wakes_those_who_wait_at_the_other(self) -> None:
        task = await self.driver.submit()
        await self.switches.off(Switch.CLAIMING)
        async with self.open_again() as other:
            async with expect_signal(other.store, Topic.READY):
                await self.switches.on(Switch.CLAIMING)
            assert await other.driver.claim_ids() == [task.id]

    async def test_two_that_write_and_seal_at_once_make_one_chain(self) -> None:
        async with self.open_again() as other:
            audits = [build_refusal(self.driver, f"queue:{n}") for n in range(12)]
            sides = [self.store, other.store]
            await asyncio.gather(
                *(sides[n % 2].admin.audit(entry) for n, entry in enumerate(audits)),
                *(seal_all(side, limit=2) for side in sides),
            )
            links = await read_chain(self.store)
            assert await read_chain(other.store) == links
        assert sorted(e.task_id for e in entries(links)) == sorted(e.task_id for e in audits)


class PlanDurability(Contract):
    async def test_plans_are_there_again_after_a_restart(self) -> None:
        settled = await self.plans.create_settled(keep_seconds=50)
        change = await self.plans.decide(await self.plans.start(), moves={0: ADMITTED, 2: FAILED})
        plan = await self.plans.commit(change)
        await self.plans.ready(delay_seconds=20)
        before = [await self.plans.all_of(kept.id) for kept in (settled, plan)]
        async with self.restart() as other:
            again = other.plans
            assert [await again.all_of(kept.id) for kept in (settled, plan)] == before
            assert await again.commit(change) == plan
            assert await again.next_seconds() == 20
            assert await again.renew(plan)
            self.clock.advance(LEASE_SECONDS)
            taken = {record.id: record for record in (await again.claim("d-2")).records}
            assert len(taken) == 2
            assert taken[plan.id].fence > plan.fence
            self.clock.advance(LEASE_SECONDS)
            assert await again.prune() == 1

    async def test_two_that_have_it_open_share_its_plans(self) -> None:
        ids = sorted([(await self.plans.ready()).id for _ in range(12)])
        async with self.open_again() as other:
            assert await claim_at_once(self.plans, other.plans, claimers=3) == ids

    async def test_a_person_at_one_and_the_driver_at_the_other_write_in_one_order(self) -> None:
        plan = await self.plans.start()
        async with self.open_again() as store:
            other = store.plans
            decided, requested = await self.plans.decide(plan), await other.request(plan)
            writes = self.plans.port.apply(decided), other.port.apply(requested)
            outcomes = await asyncio.gather(*writes)
            assert sum(isinstance(outcome, PlanApplied) for outcome in outcomes) == 1
            assert await self.plans.load(plan) == await other.load(plan)

    async def test_a_change_by_one_wakes_those_who_wait_at_the_other(self) -> None:
        async with self.open_again() as other:
            async with expect_signal(other.store, Topic.DUE):
                plan = await self.plans.ready()
            assert await other.plans.claim_ids() == [plan.id]


class TriggerDurability(Contract):
    async def test_triggers_are_there_again_after_a_restart(self) -> None:
        waits = await self.triggers.save(due_in=100, tenant="t")
        held = await self.triggers.start()
        change = self.triggers.decide_fire(await self.triggers.start())
        fired = (await self.triggers.commit(change)).trigger
        ended = await self.triggers.create_settled(keep_seconds=50)
        async with self.restart() as other:
            again = other.triggers
            for trigger in (waits, held, fired, ended):
                assert await again.load(trigger) == trigger
            assert (await again.commit(change)).trigger == fired
            assert await again.port.acquire_lease(held.id, "s-2") is None
            assert await again.next_seconds() == LEASE_SECONDS
            self.clock.advance(LEASE_SECONDS)
            taken = await again.take_one("s-2")
            assert (taken.id, taken.retry_count) == (held.id, 1)
            self.clock.advance(LEASE_SECONDS)
            assert await again.prune() == 1

    async def test_two_that_have_it_open_share_its_triggers(self) -> None:
        ids = sorted([(await self.triggers.save_due()).id for _ in range(15)])
        async with self.open_again() as other:
            assert await claim_at_once(self.triggers, other.triggers, claimers=4) == ids

    async def test_a_change_by_one_is_compared_with_that_by_the_other(self) -> None:
        held = await self.triggers.start()
        async with self.open_again() as store:
            sides = (self.triggers, store.triggers)
            changes = [(side, self.triggers.decide_fire(held)) for side in sides]
            outcomes = await asyncio.gather(*(side.apply(change) for side, change in changes))
            assert sum(isinstance(outcome, Changed) for outcome in outcomes) == 1
            assert await self.triggers.load(held) == await store.triggers.load(held)
        assert len(await self.triggers.tasks()) == 1

    async def test_a_trigger_saved_by_one_wakes_those_who_wait_at_the_other(self) -> None:
        async with self.open_again() as other:
            async with expect_signal(other.store, Topic.DUE):
                trigger = await self.triggers.save_due()
            assert await other.triggers.claim_ids() == [trigger.id]
