"""Switches: what a person has switched off stays off, on every machine, until it is switched on."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Command
from holdfast.domain.task.task import By, Task
from holdfast.domain.task.transition import Conflict, Existing, Inserted, IntakeClosed
from holdfast.domain.trigger.trigger import Changed, NoRoom, Trigger
from holdfast.ports import Kept, Switch, SwitchSetting, Topic
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.store_driver import LEASE_SECONDS, beat
from holdfast.testing.contract.tasks.signals import expect_signal

INTAKE, CLAIMING, DRAIN = Switch.INTAKE, Switch.CLAIMING, Switch.DRAIN


class SwitchContract(Contract):
    async def test_no_switch_is_set_in_a_new_store(self) -> None:
        assert list(await self.switches.settings()) == []

    @pytest.mark.parametrize("switch", list(Switch))
    async def test_a_set_switch_is_shown_with_who_set_it_and_when(self, switch: Switch) -> None:
        entry = self.switches.audit(switch, "slow", on=False)
        assert await self.store.admin.set_switch(switch, "slow", on=False, audit=entry)
        assert list(await self.switches.settings()) == [
            SwitchSetting(switch=switch, name="slow", by=entry.by, at=entry.at)
        ]

    @pytest.mark.parametrize("switch", list(Switch))
    async def test_a_switch_that_was_set_back_is_not_shown(self, switch: Switch) -> None:
        await self.switches.off(switch)
        assert await self.switches.on(switch)
        assert list(await self.switches.settings()) == []

    async def test_each_switch_stands_for_itself(self) -> None:
        for switch, name in ((INTAKE, "a"), (CLAIMING, "a"), (INTAKE, "b"), (DRAIN, "a")):
            assert await self.switches.off(switch, name)
        assert await self.switches.on(INTAKE, "a")
        assert await self.switches.names() == [(CLAIMING, "a"), (DRAIN, "a"), (INTAKE, "b")]

    async def test_setting_it_again_changes_nothing_and_returns_false(self) -> None:
        first = self.switches.audit(INTAKE, "slow", on=False)
        assert await self.store.admin.set_switch(INTAKE, "slow", on=False, audit=first)
        self.clock.advance(5)
        second = replace(self.switches.audit(INTAKE, "slow", on=False), by=By(actor="bob"))
        assert not await self.store.admin.set_switch(INTAKE, "slow", on=False, audit=second)
        (setting,) = await self.switches.settings()
        assert (setting.by, setting.at) == (first.by, first.at)

    async def test_setting_back_a_switch_that_is_not_set_returns_false(self) -> None:
        assert not await self.switches.on(CLAIMING)
        await self.switches.off(CLAIMING)
        assert await self.switches.on(CLAIMING)
        assert not await self.switches.on(CLAIMING)

    async def test_every_setting_is_audited_also_one_that_changed_nothing(self) -> None:
        entries = []
        for on in (False, False, True, True):
            self.clock.advance(1)
            entries.append(self.switches.audit(INTAKE, "default", on=on))
            await self.store.admin.set_switch(INTAKE, "default", on=on, audit=entries[-1])
        assert list(await self.store.admin.audits(limit=10)) == entries[::-1]

    async def test_a_setting_is_no_refusal(self) -> None:
        await self.switches.off(INTAKE)
        assert (await self.store.views.stats()).refused == {}

    async def test_of_many_concurrent_settings_one_changes_the_switch(self) -> None:
        changed = await asyncio.gather(*(self.switches.off(INTAKE) for _ in range(8)))
        assert sorted(changed) == [False] * 7 + [True]
        assert len(await self.store.admin.audits(limit=100)) == 8

    async def test_nothing_is_accepted_while_the_intake_is_off(self) -> None:
        await self.switches.off(INTAKE)
        batch = [
            self.driver.submission(),
            self.driver.submission(tenant="t"),
            self.driver.submission(held=True),
        ]
        assert list(await self.driver.insert(*batch)) == [IntakeClosed("default")] * 3
        assert (
            await self.store.views.load([submission.task.id for submission in batch]) == [None] * 3
        )
        assert not any((await self.store.views.stats()).by_status.values())
        assert await self.driver.claim_ids() == []

    async def test_the_intake_of_other_queues_stays_open(self) -> None:
        await self.switches.off(INTAKE, "slow")
        fast, slow = self.driver.submission(), self.driver.submission(queue="slow")
        assert await self.driver.insert(slow, fast) == [
            IntakeClosed("slow"),
            Inserted(fast.task.id),
        ]
        assert await self.driver.claim_ids(queues=("slow", "default")) == [fast.task.id]

    async def test_submits_are_taken_again_when_the_intake_is_on(self) -> None:
        submission = self.driver.submission(tenant="t", key="k")
        await self.switches.off(INTAKE)
        assert await self.driver.insert(submission) == [IntakeClosed("default")]
        await self.switches.on(INTAKE)
        assert await self.driver.insert(submission) == [Inserted(submission.task.id)]
        assert await self.driver.claim_ids() == [submission.task.id]

    async def test_a_paused_intake_still_knows_a_key_and_a_repeat(self) -> None:
        first = self.driver.submission(key="k", payload=1)
        await self.driver.insert(first)
        await self.switches.off(INTAKE)
        again = [self.driver.submission(key="k", payload=n) for n in (1, 2)]
        assert await self.driver.insert(first, *again) == [
            Inserted(first.task.id),
            Existing(first.task.id),
            Conflict(first.task.id),
        ]

    async def test_a_submission_refused_by_a_paused_intake_does_not_use_up_its_key(self) -> None:
        await self.switches.off(INTAKE)
        await self.driver.insert(self.driver.submission(key="k"))
        await self.switches.on(INTAKE)
        await self.driver.submit(key="k", payload="other")

    async def test_what_was_accepted_before_goes_on(self) -> None:
        held = await self.driver.submit(held=True)
        failed = await self.driver.suspend_new()
        later = await self.driver.fail(await self.driver.start(), retry_seconds=60)
        lost = await self.driver.start()
        await self.switches.off(INTAKE)
        await self.driver.ask(Command.RELEASE, held)
        await self.driver.ask(Command.RETRY, failed)
        self.clock.advance(60)
        assert await self.store.tasks.expire(limit=10, count_crashes=True) == 1
        assert (await self.store.tasks.promote(limit=10)).count == 1
        got = await self.driver.claim_ids()
        assert sorted(got) == sorted([held.id, failed.id, later.id, lost.id])

    async def test_a_trigger_finds_no_room_while_the_intake_is_off(self, leased: Trigger) -> None:
        await self.switches.off(INTAKE)
        assert await self.triggers.expect_untouched(self.triggers.decide_fire(leased)) == NoRoom(
            "default"
        )
        await self.switches.on(INTAKE)
        await self.triggers.fire(leased)

    async def test_a_trigger_fires_into_all_of_its_queues_or_none(self, leased: Trigger) -> None:
        await self.switches.off(INTAKE, "slow")
        batch = [
            self.triggers.submission(leased, key=f"{q}@1", queue=q) for q in ("default", "slow")
        ]
        assert await self.triggers.expect_untouched(self.triggers.change(leased, *batch)) == NoRoom(
            "slow"
        )
        await self.triggers.commit(self.triggers.change(leased, batch[0]))

    async def test_a_trigger_is_changed_without_tasks_while_the_intake_is_off(self) -> None:
        held = await self.triggers.start()
        await self.switches.off(INTAKE)
        await self.triggers.commit(self.triggers.change(held))

    async def test_a_trigger_whose_task_is_there_moves_on_while_the_intake_is_off(self) -> None:
        held = await self.triggers.start()
        first = self.triggers.submission(held)
        await self.driver.insert(first)
        await self.switches.off(INTAKE)
        outcome = await self.triggers.apply(self.triggers.decide_fire(held))
        assert isinstance(outcome, Changed)
        assert outcome.tasks == (Existing(first.task.id),)

    async def test_a_claim_passes_a_switched_off_queue_by(self) -> None:
        slow = await self.driver.submit(queue="slow")
        fast = await self.driver.submit()
        await self.switches.off(CLAIMING, "slow")
        assert await self.driver.claim_ids(queues=("slow", "default")) == [fast.id]
        assert await self.driver.claim_ids(queues=("slow",)) == []
        assert (await self.driver.load(slow.id)).place is Place.READY

    async def test_what_waited_is_handed_out_in_its_order_when_claiming_is_on(self) -> None:
        ids = await self.driver.submit_many(3)
        await self.switches.off(CLAIMING)
        ids += await self.driver.submit_many(2, tenant="t")
        assert await self.driver.claim_ids() == []
        await self.switches.on(CLAIMING)
        assert await self.driver.claim_ids() == ids[:4]

    async def test_switching_claiming_on_is_a_signal(self) -> None:
        task = await self.driver.submit()
        await self.switches.off(CLAIMING)
        async with expect_signal(self.store, Topic.READY):
            await self.switches.on(CLAIMING)
        assert await self.driver.claim_ids() == [task.id]

    async def test_what_runs_goes_on_while_claiming_is_off(self) -> None:
        task = await self.driver.start(tenant="t")
        behind = await self.driver.submit(tenant="t")
        await self.switches.off(CLAIMING)
        assert await self.driver.renew(task) == [True]
        assert (await self.driver.complete(task)).settled
        assert (await self.driver.load(behind.id)).place is Place.READY
        assert await self.driver.claim_ids() == []

    async def test_a_repeat_of_a_claim_is_answered_as_before_while_claiming_is_off(self) -> None:
        ids = await self.driver.submit_many(3)
        first = await self.driver.claim_ids(request="r-1", limit=2)
        await self.switches.off(CLAIMING)
        assert await self.driver.claim_ids(request="r-1", limit=2) == first == ids[:2]

    async def test_what_a_worker_lost_waits_while_claiming_is_off(self, task: Task) -> None:
        await self.switches.off(CLAIMING)
        assert await self.driver.lapse() == 1
        assert await self.driver.claim_ids("w-2") == []
        await self.switches.on(CLAIMING)
        assert await self.driver.claim_ids("w-2") == [task.id]

    async def test_submits_are_taken_while_claiming_is_off(self) -> None:
        await self.switches.off(CLAIMING)
        await self.driver.submit()

    async def test_a_drain_hinders_no_claim_of_the_store(self) -> None:
        await self.switches.off(DRAIN, "w-1")
        task = await self.driver.submit()
        assert await self.driver.claim_ids("w-1") == [task.id]

    async def test_a_worker_that_leaves_takes_its_drain_with_it(self) -> None:
        for worker in ("w-1", "w-2"):
            await self.store.tasks.renew(beat(worker), [], lease_seconds=LEASE_SECONDS)
            await self.switches.off(DRAIN, worker)
        await self.store.tasks.leave("w-1")
        assert await self.switches.names() == [(DRAIN, "w-2")]

    async def test_a_worker_that_leaves_sets_no_queue_of_its_name_back(self) -> None:
        await self.switches.off(INTAKE, "w-1")
        await self.switches.off(CLAIMING, "w-1")
        await self.store.tasks.leave("w-1")
        assert await self.switches.names() == [(CLAIMING, "w-1"), (INTAKE, "w-1")]

    async def test_a_worker_that_is_cleaned_up_takes_its_drain_with_it(self) -> None:
        await self.store.tasks.renew(beat("w-1"), [], lease_seconds=LEASE_SECONDS)
        await self.switches.off(DRAIN, "w-1")
        self.clock.advance(100)
        await self.store.tasks.renew(beat("w-2"), [], lease_seconds=LEASE_SECONDS)
        await self.switches.off(DRAIN, "w-2")
        assert await self.driver.prune(Kept.WORKERS, older_than_seconds=50, dry_run=True) == 1
        assert await self.switches.names() == [(DRAIN, "w-1"), (DRAIN, "w-2")]
        assert await self.driver.prune(Kept.WORKERS, older_than_seconds=50) == 1
        assert await self.switches.names() == [(DRAIN, "w-2")]

    async def test_a_drain_of_a_worker_that_had_left_before_is_cleaned_up(self) -> None:
        await self.store.tasks.renew(beat("w-1"), [], lease_seconds=LEASE_SECONDS)
        for switch, name in ((DRAIN, "w-1"), (DRAIN, "gone"), (INTAKE, "gone"), (CLAIMING, "gone")):
            await self.switches.off(switch, name)
        queues = [(CLAIMING, "gone"), (INTAKE, "gone")]
        await self.driver.prune(Kept.WORKERS, older_than_seconds=50, dry_run=True)
        assert await self.switches.names() == sorted([*queues, (DRAIN, "gone"), (DRAIN, "w-1")])
        assert await self.driver.prune(Kept.WORKERS, older_than_seconds=50) == 0
        assert await self.switches.names() == sorted([*queues, (DRAIN, "w-1")])
