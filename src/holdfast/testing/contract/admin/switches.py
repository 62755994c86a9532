"""Switches: what a person has switched off stays off, on every machine, until it is switched on."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Command
from holdfast.domain.task.task import By
from holdfast.domain.task.transition import Conflict, Existing, Inserted, Shut
from holdfast.domain.trigger.trigger import Changed, NoRoom
from holdfast.ports import Kept, Switch, SwitchSetting, Topic
from holdfast.testing.contract.admin.retention import prune
from holdfast.testing.contract.drivers.store_driver import (
    LEASE_SECONDS,
    StoreDriver,
    beat,
    patience,
)
from holdfast.testing.contract.drivers.switch_driver import OperatingContract, SwitchDriver
from holdfast.testing.contract.drivers.trigger_driver import TriggerDriver
from holdfast.testing.contract.tasks.signals import FOREVER_SECONDS, waiting

INTAKE, CLAIMING, DRAIN = Switch.INTAKE, Switch.CLAIMING, Switch.DRAIN


class Switching(OperatingContract):
    async def test_no_switch_is_thrown_in_a_new_store(self, switches: SwitchDriver) -> None:
        assert list(await switches.all()) == []

    @pytest.mark.parametrize("switch", list(Switch))
    async def test_a_thrown_switch_is_shown_with_who_threw_it_and_when(
        self, switches: SwitchDriver, switch: Switch
    ) -> None:
        entry = switches.audit(switch, "slow", on=False)
        assert await switches.store.admin.set_switch(switch, "slow", on=False, audit=entry)
        assert list(await switches.all()) == [
            SwitchSetting(switch=switch, name="slow", by=entry.by, at=entry.at)
        ]

    @pytest.mark.parametrize("switch", list(Switch))
    async def test_a_switch_that_was_set_back_is_not_shown(
        self, switches: SwitchDriver, switch: Switch
    ) -> None:
        await switches.off(switch)
        assert await switches.on(switch)
        assert list(await switches.all()) == []

    async def test_each_switch_stands_for_itself(self, switches: SwitchDriver) -> None:
        for switch, name in ((INTAKE, "a"), (CLAIMING, "a"), (INTAKE, "b"), (DRAIN, "a")):
            assert await switches.off(switch, name)
        assert await switches.on(INTAKE, "a")
        assert await switches.thrown() == [(CLAIMING, "a"), (DRAIN, "a"), (INTAKE, "b")]

    async def test_throwing_it_again_changes_nothing_and_says_so(
        self, switches: SwitchDriver
    ) -> None:
        first = switches.audit(INTAKE, "slow", on=False)
        assert await switches.store.admin.set_switch(INTAKE, "slow", on=False, audit=first)
        switches.clock.advance(5)
        second = replace(switches.audit(INTAKE, "slow", on=False), by=By(actor="bob"))
        assert not await switches.store.admin.set_switch(INTAKE, "slow", on=False, audit=second)
        (thrown,) = await switches.all()
        assert (thrown.by, thrown.at) == (first.by, first.at)

    async def test_setting_back_what_is_not_thrown_changes_nothing_and_says_so(
        self, switches: SwitchDriver
    ) -> None:
        assert not await switches.on(CLAIMING)
        await switches.off(CLAIMING)
        assert await switches.on(CLAIMING)
        assert not await switches.on(CLAIMING)

    async def test_every_throw_is_written_down_also_one_that_changed_nothing(
        self, switches: SwitchDriver
    ) -> None:
        entries = []
        for on in (False, False, True, True):
            switches.clock.advance(1)
            entries.append(switches.audit(INTAKE, "default", on=on))
            await switches.store.admin.set_switch(INTAKE, "default", on=on, audit=entries[-1])
        assert list(await switches.store.admin.audits(limit=10)) == entries[::-1]

    async def test_a_throw_is_no_refusal(self, switches: SwitchDriver) -> None:
        await switches.off(INTAKE)
        assert (await switches.store.views.stats()).refused == {}

    async def test_of_many_who_throw_it_at_once_one_changes_it(
        self, switches: SwitchDriver
    ) -> None:
        changed = await asyncio.gather(*(switches.off(INTAKE) for _ in range(8)))
        assert sorted(changed) == [False] * 7 + [True]
        assert len(await switches.store.admin.audits(limit=100)) == 8


class PausedIntake(OperatingContract):
    async def test_nothing_is_accepted_while_the_intake_is_off(
        self, driver: StoreDriver, switches: SwitchDriver
    ) -> None:
        await switches.off(INTAKE)
        batch = [driver.submission(), driver.submission(tenant="t"), driver.submission(held=True)]
        assert list(await driver.insert(*batch)) == [Shut("default")] * 3
        assert await driver.store.views.load([one.task.id for one in batch]) == [None] * 3
        assert not any((await driver.store.views.stats()).by_status.values())
        assert await driver.claim_ids() == []

    async def test_the_intake_of_other_queues_stays_open(
        self, driver: StoreDriver, switches: SwitchDriver
    ) -> None:
        await switches.off(INTAKE, "slow")
        fast, slow = driver.submission(), driver.submission(queue="slow")
        assert await driver.insert(slow, fast) == [Shut("slow"), Inserted(fast.task.id)]
        assert await driver.claim_ids(queues=("slow", "default")) == [fast.task.id]

    async def test_submits_are_taken_again_when_the_intake_is_on(
        self, driver: StoreDriver, switches: SwitchDriver
    ) -> None:
        submission = driver.submission(tenant="t", key="k")
        await switches.off(INTAKE)
        assert await driver.insert(submission) == [Shut("default")]
        await switches.on(INTAKE)
        assert await driver.insert(submission) == [Inserted(submission.task.id)]
        assert await driver.claim_ids() == [submission.task.id]

    async def test_a_paused_intake_still_knows_a_key_and_a_repeat(
        self, driver: StoreDriver, switches: SwitchDriver
    ) -> None:
        first = driver.submission(key="k", payload=1)
        await driver.insert(first)
        await switches.off(INTAKE)
        again = [driver.submission(key="k", payload=n) for n in (1, 2)]
        assert await driver.insert(first, *again) == [
            Inserted(first.task.id),
            Existing(first.task.id),
            Conflict(first.task.id),
        ]

    async def test_a_submission_refused_by_a_paused_intake_does_not_use_up_its_key(
        self, driver: StoreDriver, switches: SwitchDriver
    ) -> None:
        await switches.off(INTAKE)
        await driver.insert(driver.submission(key="k"))
        await switches.on(INTAKE)
        second = driver.submission(key="k", payload="other")
        assert await driver.insert(second) == [Inserted(second.task.id)]

    async def test_what_was_accepted_before_goes_on(
        self, driver: StoreDriver, switches: SwitchDriver
    ) -> None:
        held = await driver.submit(held=True)
        failed = await driver.suspend(await driver.start())
        later = await driver.fail(await driver.start(), retry_seconds=60)
        lost = await driver.start()
        await switches.off(INTAKE)
        await driver.ask(Command.RELEASE, held)
        await driver.ask(Command.RETRY, failed)
        driver.clock.advance(60)
        assert await driver.store.tasks.expire(limit=10, count_crashes=True) == 1
        assert (await driver.store.tasks.promote(limit=10)).count == 1
        got = await driver.claim_ids()
        assert sorted(got) == sorted([held.id, failed.id, later.id, lost.id])

    async def test_a_trigger_finds_no_room_while_the_intake_is_off(
        self, triggers: TriggerDriver, switches: SwitchDriver
    ) -> None:
        held = await triggers.take(await triggers.save_due())
        await switches.off(INTAKE)
        assert await triggers.untouched(triggers.fired(held)) == NoRoom("default")
        await switches.on(INTAKE)
        assert isinstance(await triggers.apply(triggers.fired(held)), Changed)

    async def test_a_trigger_fires_into_all_of_its_queues_or_none(
        self, triggers: TriggerDriver, switches: SwitchDriver
    ) -> None:
        held = await triggers.take(await triggers.save_due())
        await switches.off(INTAKE, "slow")
        batch = [triggers.submission(held, key=f"{q}@1", queue=q) for q in ("default", "slow")]
        assert await triggers.untouched(triggers.changed(held, *batch)) == NoRoom("slow")
        assert isinstance(await triggers.apply(triggers.changed(held, batch[0])), Changed)

    async def test_a_trigger_is_changed_without_tasks_while_the_intake_is_off(
        self, triggers: TriggerDriver, switches: SwitchDriver
    ) -> None:
        held = await triggers.take(await triggers.save_due())
        await switches.off(INTAKE)
        assert isinstance(await triggers.apply(triggers.changed(held)), Changed)

    async def test_a_trigger_whose_task_is_there_moves_on_while_the_intake_is_off(
        self, triggers: TriggerDriver, switches: SwitchDriver
    ) -> None:
        held = await triggers.take(await triggers.save_due())
        first = triggers.submission(held)
        await triggers.driver.insert(first)
        await switches.off(INTAKE)
        outcome = await triggers.apply(triggers.fired(held))
        assert isinstance(outcome, Changed)
        assert outcome.tasks == (Existing(first.task.id),)


class PausedClaiming(OperatingContract):
    async def test_a_claim_passes_a_switched_off_queue_by(
        self, driver: StoreDriver, switches: SwitchDriver
    ) -> None:
        slow = await driver.submit(queue="slow")
        fast = await driver.submit()
        await switches.off(CLAIMING, "slow")
        assert await driver.claim_ids(queues=("slow", "default")) == [fast.id]
        assert await driver.claim_ids(queues=("slow",)) == []
        assert (await driver.load(slow.id)).place is Place.READY

    async def test_what_waited_is_handed_out_in_its_order_when_claiming_is_on(
        self, driver: StoreDriver, switches: SwitchDriver
    ) -> None:
        ids = await driver.submit_many(3)
        await switches.off(CLAIMING)
        ids += await driver.submit_many(2, tenant="t")
        assert await driver.claim_ids() == []
        await switches.on(CLAIMING)
        assert await driver.claim_ids() == ids[:4]

    async def test_switching_claiming_on_is_a_signal(
        self, driver: StoreDriver, switches: SwitchDriver
    ) -> None:
        task = await driver.submit()
        await switches.off(CLAIMING)
        ticket = driver.store.ticket(Topic.READY)
        waiters = await waiting(driver.store, Topic.READY, number=2)
        await switches.on(CLAIMING)
        async with patience():
            await asyncio.gather(*waiters)
            await driver.store.wait(Topic.READY, ticket, timeout=FOREVER_SECONDS)
        assert await driver.claim_ids() == [task.id]

    async def test_what_runs_goes_on_while_claiming_is_off(
        self, driver: StoreDriver, switches: SwitchDriver
    ) -> None:
        task = await driver.start(tenant="t")
        behind = await driver.submit(tenant="t")
        await switches.off(CLAIMING)
        assert await driver.renew(task) == [True]
        assert (await driver.complete(task)).settled
        assert (await driver.load(behind.id)).place is Place.READY
        assert await driver.claim_ids() == []

    async def test_a_repeat_of_a_claim_is_answered_as_before_while_claiming_is_off(
        self, driver: StoreDriver, switches: SwitchDriver
    ) -> None:
        ids = await driver.submit_many(3)
        first = await driver.claim_ids(request="r-1", limit=2)
        await switches.off(CLAIMING)
        assert await driver.claim_ids(request="r-1", limit=2) == first == ids[:2]

    async def test_what_a_worker_lost_waits_while_claiming_is_off(
        self, driver: StoreDriver, switches: SwitchDriver
    ) -> None:
        task = await driver.start()
        await switches.off(CLAIMING)
        driver.clock.advance(LEASE_SECONDS + 1)
        assert await driver.store.tasks.expire(limit=10, count_crashes=True) == 1
        assert await driver.claim_ids("w-2") == []
        await switches.on(CLAIMING)
        assert await driver.claim_ids("w-2") == [task.id]

    async def test_submits_are_taken_while_claiming_is_off(
        self, driver: StoreDriver, switches: SwitchDriver
    ) -> None:
        await switches.off(CLAIMING)
        submission = driver.submission()
        assert await driver.insert(submission) == [Inserted(submission.task.id)]


class WorkerDrains(OperatingContract):
    async def test_a_drain_hinders_no_claim_of_the_store(
        self, driver: StoreDriver, switches: SwitchDriver
    ) -> None:
        await switches.off(DRAIN, "w-1")
        task = await driver.submit()
        assert await driver.claim_ids("w-1") == [task.id]

    async def test_a_worker_that_leaves_takes_its_drain_with_it(
        self, driver: StoreDriver, switches: SwitchDriver
    ) -> None:
        for worker in ("w-1", "w-2"):
            await driver.store.tasks.renew(beat(worker), [], lease_seconds=LEASE_SECONDS)
            await switches.off(DRAIN, worker)
        await driver.store.tasks.leave("w-1")
        assert await switches.thrown() == [(DRAIN, "w-2")]

    async def test_a_worker_that_leaves_sets_no_queue_of_its_name_back(
        self, driver: StoreDriver, switches: SwitchDriver
    ) -> None:
        await switches.off(INTAKE, "w-1")
        await switches.off(CLAIMING, "w-1")
        await driver.store.tasks.leave("w-1")
        assert await switches.thrown() == [(CLAIMING, "w-1"), (INTAKE, "w-1")]

    async def test_a_worker_that_is_cleaned_up_takes_its_drain_with_it(
        self, driver: StoreDriver, switches: SwitchDriver
    ) -> None:
        await driver.store.tasks.renew(beat("w-1"), [], lease_seconds=LEASE_SECONDS)
        await switches.off(DRAIN, "w-1")
        driver.clock.advance(100)
        await driver.store.tasks.renew(beat("w-2"), [], lease_seconds=LEASE_SECONDS)
        await switches.off(DRAIN, "w-2")
        assert await prune(driver, Kept.WORKERS, older_than_seconds=50, dry_run=True) == 1
        assert await switches.thrown() == [(DRAIN, "w-1"), (DRAIN, "w-2")]
        assert await prune(driver, Kept.WORKERS, older_than_seconds=50) == 1
        assert await switches.thrown() == [(DRAIN, "w-2")]

    async def test_a_drain_of_a_worker_that_had_left_before_is_cleaned_up(
        self, driver: StoreDriver, switches: SwitchDriver
    ) -> None:
        await driver.store.tasks.renew(beat("w-1"), [], lease_seconds=LEASE_SECONDS)
        for switch, name in ((DRAIN, "w-1"), (DRAIN, "gone"), (INTAKE, "gone"), (CLAIMING, "gone")):
            await switches.off(switch, name)
        queues = [(CLAIMING, "gone"), (INTAKE, "gone")]
        await prune(driver, Kept.WORKERS, older_than_seconds=50, dry_run=True)
        assert await switches.thrown() == sorted([*queues, (DRAIN, "gone"), (DRAIN, "w-1")])
        assert await prune(driver, Kept.WORKERS, older_than_seconds=50) == 0
        assert await switches.thrown() == sorted([*queues, (DRAIN, "w-1")])
