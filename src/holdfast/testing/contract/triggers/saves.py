"""Saves of triggers: saved, found, paged through, removed, and deleted in their time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from holdfast.domain.errors import InvalidInput, InvalidName, SerialisationError
from holdfast.domain.trigger.schedule import Cron, Every, Once, Schedule
from holdfast.domain.trigger.trigger import (
    PENDING,
    UNFINISHED,
    Changed,
    Misfire,
    Overlap,
    TriggerChange,
    TriggerStale,
    TriggerStatus,
    TriggerWrite,
)
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.record_driver import A_YEAR
from holdfast.testing.contract.drivers.store_driver import NO_LIMIT
from holdfast.testing.contract.drivers.trigger_driver import json

SCHEDULES: list[Schedule] = [
    Once(at=1_700_000_123.5),
    Every(seconds=900.0, start=1_700_000_000.0),
    Cron(expression="0 3 * * *", tz="Asia/Shanghai"),
]
RESTING = sorted(frozenset(TriggerStatus) - PENDING)


class TriggerSaveContract(Contract):
    async def test_a_trigger_is_found_as_it_was_saved(self) -> None:
        now = self.clock.now()
        saved = await self.triggers.save(
            "nightly",
            payload=json({"to": ["a", "ü"], "n": 1.5}),
            tenant="acme/eu",
            queue="slow",
            user={"name": "ada"},
            misfire=Misfire.CATCH_UP,
            catch_up_max=7,
            grace_seconds=2.5,
            overlap=Overlap.QUEUE,
            jitter_seconds=4.0,
            declared=True,
            keep_seconds=99.0,
            trigger_at=now + 63.25,
            retry_count=2,
            unknown_since=now - 1,
            last_fire_time=now - 60,
            last_task="task-9",
            fired=12,
            missed=3,
            reason="put off",
            request="request-0",
            asked="request-9",
        )
        assert saved.version == 1
        assert saved.payload == json({"to": ["a", "ü"], "n": 1.5})
        assert await self.triggers.port.find(saved.id) == saved

    @pytest.mark.parametrize("schedule", SCHEDULES)
    async def test_every_kind_of_schedule_is_kept(self, schedule: Schedule) -> None:
        saved = await self.triggers.save(schedule=schedule)
        loaded = await self.triggers.load(saved)
        assert (loaded.schedule, loaded.kind) == (schedule, saved.kind)
        assert loaded == saved

    async def test_a_trigger_without_an_id_is_given_one(self) -> None:
        saved = [await self.triggers.save("", tenant=tenant) for tenant in (None, None, "t")]
        assert len({trigger.id for trigger in saved}) == 3
        assert all(trigger.id for trigger in saved)
        assert [await self.triggers.load(trigger) for trigger in saved] == saved

    async def test_a_trigger_saved_again_is_replaced_in_the_next_version(self) -> None:
        first = await self.triggers.save("nightly", due_in=60)
        again = await self.triggers.save("nightly", due_in=90, target="other.work")
        assert (again.id, again.version) == (first.id, 2)
        assert await self.triggers.load(first) == again
        third = await self.triggers.port.save(replace(first, reason="late"))
        assert third.version == 3
        assert await self.triggers.all_ids() == [first.id]

    async def test_a_version_is_never_used_twice(self) -> None:
        saved = await self.triggers.save(version=7)
        assert saved.version == 8
        assert await self.triggers.load(saved) == saved

    async def test_a_trigger_saved_for_another_time_is_due_at_that_time_only(self) -> None:
        now = self.clock.now()
        first = await self.triggers.save("nightly", due_in=10)
        await self.triggers.save("nightly", due_in=20)
        assert await self.triggers.due(now + 19) == []
        assert await self.triggers.due(now + 20) == [first.id]
        await self.triggers.save("nightly", due_in=5)
        assert await self.triggers.due(now + 5) == [first.id]

    @pytest.mark.parametrize("status", RESTING)
    async def test_a_trigger_saved_at_rest_is_not_due(self, status: TriggerStatus) -> None:
        await self.triggers.save_due("nightly")
        await self.triggers.save_due("nightly", status=status)
        assert await self.triggers.due() == []
        assert await self.triggers.next_seconds() is None

    @pytest.mark.parametrize(
        "name",
        ["two words", "a/b", "a:b", "-a", ".a", "ä b", "ä\u202e", "x" * 101, "a\n", "*", "{a}"],
    )
    async def test_an_id_outside_its_alphabet_is_refused(self, name: str) -> None:
        with pytest.raises(InvalidName):
            await self.triggers.port.save(replace(self.triggers.build(), id=name))
        assert await self.triggers.all_ids() == []

    @pytest.mark.parametrize(
        "fields",
        [{"user": object()}, {"last_task": 5}, {"payload": Raw(b"{")}, {"target": "\ud800"}],
    )
    async def test_what_could_be_written_and_never_read_again_is_refused(
        self, fields: dict[str, Any]
    ) -> None:
        saved = await self.triggers.save()
        with pytest.raises(SerialisationError):
            await self.triggers.port.save(replace(saved, **fields))
        with pytest.raises(SerialisationError):
            await self.triggers.apply(self.triggers.change(saved, **fields))
        assert await self.triggers.load(saved) == saved

    @pytest.mark.parametrize("tenant", [None, "t"])
    async def test_an_id_is_at_home_under_itself(self, tenant: str | None) -> None:
        home = self.store.trigger_id("nightly", tenant=tenant)
        assert self.store.trigger_id(home, tenant=tenant) == home
        assert self.store.trigger_id(home, tenant=None) == home
        assert (await self.triggers.save("nightly", tenant=tenant)).id == home

    async def test_many_saved_at_once_are_all_there(self) -> None:
        saved = await asyncio.gather(*(self.triggers.save() for _ in range(20)))
        assert await self.triggers.all_ids() == sorted(trigger.id for trigger in saved)

    # A change to version 0 makes a trigger where there is none.

    async def test_what_is_created_is_as_if_it_was_saved(self) -> None:
        change = self.triggers.change(self.triggers.build("nightly", tenant="t"))
        created = (await self.triggers.commit(change)).trigger
        assert (created, created.version) == (change.after, 1)
        assert await self.triggers.load(created) == created
        assert await self.triggers.all_ids() == [created.id]
        at = created.trigger_at
        assert at is not None
        assert await self.triggers.due(at) == [created.id]

    async def test_nothing_is_created_over_what_is_there(self) -> None:
        saved = await self.triggers.save("nightly")
        change = self.triggers.decide_fire(self.triggers.build("nightly", target="other.work"))
        assert await self.triggers.expect_stale(change) == saved
        ended = await self.triggers.settle(saved)
        assert await self.triggers.expect_stale(change) == ended

    async def test_a_creation_sent_again_is_answered_as_it_was(self) -> None:
        change = self.triggers.change(self.triggers.build())
        created = (await self.triggers.commit(change)).trigger
        assert (await self.triggers.commit(change)).trigger == created
        leased = await self.triggers.take(created)
        assert await self.triggers.expect_stale(change) == leased

    async def test_of_those_who_create_it_at_once_one_does(self) -> None:
        changes = [
            self.triggers.change(self.triggers.build("nightly", target=f"t{n}")) for n in range(6)
        ]
        outcomes = await asyncio.gather(*(self.triggers.apply(change) for change in changes))
        (written,) = [outcome for outcome in outcomes if isinstance(outcome, Changed)]
        stale = [outcome for outcome in outcomes if isinstance(outcome, TriggerStale)]
        assert stale == [TriggerStale(written.trigger)] * 5
        assert await self.triggers.load(written.trigger) == written.trigger

    async def test_two_of_one_batch_are_not_both_created(self) -> None:
        batch = [self.triggers.change(self.triggers.build("nightly", target=name)) for name in "ab"]
        outcomes = await self.triggers.port.apply(batch, depth_limit=NO_LIMIT)
        assert [type(outcome) for outcome in outcomes] == [Changed, TriggerStale]

    async def test_an_id_outside_its_alphabet_is_not_created(self) -> None:
        with pytest.raises(InvalidName):
            await self.triggers.apply(
                self.triggers.change(replace(self.triggers.build(), id="two words"))
            )
        assert await self.triggers.all_ids() == []

    async def test_a_batch_may_save_change_and_remove(self) -> None:
        old, gone, kept = [await self.triggers.save(name) for name in ("old", "gone", "kept")]
        save = TriggerChange(before=old, after=replace(old, reason="new"), write=TriggerWrite.SAVE)
        remove = TriggerChange(before=gone, after=gone, write=TriggerWrite.REMOVE)
        batch = [save, self.triggers.change(kept, reason="late"), remove]
        outcomes = await self.triggers.port.apply(batch, depth_limit=NO_LIMIT)
        assert [type(outcome) for outcome in outcomes] == [Changed] * 3
        assert await self.triggers.port.find(gone.id) is None
        loaded = [await self.triggers.load(old), await self.triggers.load(kept)]
        assert [(trigger.reason, trigger.version) for trigger in loaded] == [
            ("new", 2),
            ("late", 2),
        ]
        (again,) = await self.triggers.port.apply([remove], depth_limit=NO_LIMIT)
        assert again == TriggerStale(None)

    async def test_a_trigger_is_removed_once(self) -> None:
        trigger, other = await self.triggers.save_due(), await self.triggers.save_due()
        assert await self.triggers.port.remove(trigger.id) is True
        assert await self.triggers.port.remove(trigger.id) is False
        assert await self.triggers.port.find(trigger.id) is None
        assert await self.triggers.due() == [other.id]
        assert await self.triggers.all_ids() == [other.id]
        assert await self.triggers.port.acquire_lease(trigger.id, "s-1") is None
        assert await self.triggers.claim_ids() == [other.id]

    async def test_of_those_who_remove_at_once_one_does(self) -> None:
        trigger = await self.triggers.save()
        answers = await asyncio.gather(*(self.triggers.port.remove(trigger.id) for _ in range(8)))
        assert sorted(answers) == [False] * 7 + [True]

    async def test_what_is_not_there_is_not_found_and_not_removed(self) -> None:
        unknown = self.triggers.build().id
        assert await self.triggers.port.find(unknown) is None
        assert await self.triggers.port.remove(unknown) is False
        assert await self.triggers.port.acquire_lease(unknown, "s-1") is None

    async def test_who_holds_a_removed_trigger_makes_no_task(self) -> None:
        await self.triggers.save_due()
        leased = await self.triggers.take_one()
        await self.triggers.port.remove(leased.id)
        assert await self.triggers.expect_untouched(
            self.triggers.decide_fire(leased)
        ) == TriggerStale(None)
        self.clock.advance(31)
        assert await self.triggers.claim_ids("s-2") == []
        assert await self.triggers.next_seconds() is None

    async def test_a_removed_id_may_be_used_again(self) -> None:
        await self.triggers.port.remove((await self.triggers.save_due("nightly")).id)
        again = await self.triggers.save_due("nightly")
        assert await self.triggers.claim_ids() == [again.id]

    @pytest.mark.parametrize("limit", [1, 2, 5, 100])
    async def test_pages_follow_the_order_of_ids(self, limit: int) -> None:
        saved = [await self.triggers.save(name, due_in=9 - n) for n, name in enumerate("dbeac")]
        ids = sorted(trigger.id for trigger in saved)
        assert await self.triggers.all_ids(limit=limit) == ids
        assert await self.triggers.all_ids(limit=limit, pending=True) == ids

    async def test_those_that_code_declares_are_found_among_the_others(self) -> None:
        saved = {
            name: await self.triggers.save(
                name, declared=name in "bdf", tenant="t" if name < "c" else None
            )
            for name in "abcdef"
        }
        ids = sorted(saved[name].id for name in "bdf")
        for limit in (1, 2, 100):
            assert await self.triggers.all_ids(declared=True, limit=limit) == ids
        assert await self.triggers.all_ids(declared=True, tenant="t") == [saved["b"].id]
        await self.triggers.take(saved["b"])
        await self.triggers.settle(saved["d"])
        wanted = (TriggerStatus.PROCESSING,)
        assert await self.triggers.all_ids(declared=True, statuses=wanted) == [saved["b"].id]
        assert await self.triggers.all_ids(declared=True) == ids
        await self.triggers.commit(self.triggers.change(saved["a"], declared=True))
        await self.triggers.save("f", declared=False)
        await self.triggers.port.remove(saved["d"].id)
        assert await self.triggers.all_ids(declared=True) == sorted(saved[name].id for name in "ab")

    async def test_no_triggers_are_an_empty_page(self) -> None:
        page = await self.triggers.port.find_all()
        assert (page.triggers, page.cursor) == ((), None)

    async def test_triggers_are_found_by_status_and_by_tenant(self) -> None:
        status = TriggerStatus
        waits = await self.triggers.save("a", tenant="t")
        paused = await self.triggers.save("b", tenant="t", status=status.PAUSED)
        other = await self.triggers.save("c", tenant="u", status=status.PAUSED)
        nobodys = await self.triggers.save("d", status=status.SUSPENDED)

        async def find_ids(**where: Any) -> list[str]:
            return await self.triggers.all_ids(limit=1, **where)

        assert await find_ids(tenant="t") == sorted([waits.id, paused.id])
        assert await find_ids(statuses=(status.PAUSED,)) == sorted([paused.id, other.id])
        assert await find_ids(statuses=(status.PAUSED,), tenant="t") == [paused.id]
        both = (status.PENDING, status.SUSPENDED)
        assert await find_ids(statuses=both) == sorted([waits.id, nobodys.id])
        assert await find_ids(statuses=(status.CANCELLED,)) == []
        assert await find_ids(tenant="nobody") == []

    async def test_a_trigger_is_found_under_its_present_status_only(self) -> None:
        trigger = await self.triggers.save()
        leased = await self.triggers.take(trigger)
        assert await self.triggers.all_ids(statuses=(TriggerStatus.PENDING,)) == []
        assert await self.triggers.all_ids(statuses=(leased.status,)) == [trigger.id]
        await self.triggers.settle(leased)
        assert await self.triggers.all_ids(statuses=(leased.status,)) == []
        assert await self.triggers.all_ids(statuses=(TriggerStatus.COMPLETED,)) == [trigger.id]

    async def test_pending_are_those_that_wait_for_a_time_or_are_worked_on(self) -> None:
        waits, worked_on = await self.triggers.save(), await self.triggers.save()
        await self.triggers.take(worked_on)
        for status in RESTING:
            await self.triggers.save(status=status)
        ids = sorted([waits.id, worked_on.id])
        assert await self.triggers.all_ids(pending=True) == ids
        assert await self.triggers.all_ids(pending=True, limit=1) == ids

    @pytest.mark.parametrize("cursor", ["not a cursor", "*\n"])
    async def test_a_cursor_that_no_page_gave_is_refused(self, cursor: str) -> None:
        with pytest.raises(InvalidInput):
            await self.triggers.port.find_all(cursor=cursor)
        with pytest.raises(InvalidInput):
            await self.triggers.port.find_all_pending(cursor=cursor)

    async def test_an_ended_trigger_goes_when_its_time_is_over(self) -> None:
        trigger = await self.triggers.create_settled(keep_seconds=100)
        self.clock.advance(99)
        assert await self.triggers.prune() == 0
        assert await self.triggers.load(trigger) == trigger
        self.clock.advance(2)
        assert await self.triggers.prune() == 1
        assert await self.triggers.port.find(trigger.id) is None
        assert await self.triggers.all_ids() == []
        assert await self.triggers.prune() == 0

    async def test_no_unfinished_trigger_is_ever_trimmed(self) -> None:
        saved = [
            await self.triggers.save(status=status, keep_seconds=0, due_in=2 * A_YEAR)
            for status in sorted(UNFINISHED - {TriggerStatus.PROCESSING})
        ]
        saved.append(await self.triggers.take(await self.triggers.save(keep_seconds=0)))
        self.clock.advance(A_YEAR)
        assert await self.triggers.prune() == 0
        assert [await self.triggers.load(trigger) for trigger in saved] == saved

    async def test_a_trigger_saved_again_after_its_end_is_not_trimmed(self) -> None:
        await self.triggers.settle(await self.triggers.save("nightly", keep_seconds=1))
        again = await self.triggers.save("nightly", keep_seconds=1, due_in=2 * A_YEAR)
        self.clock.advance(A_YEAR)
        assert await self.triggers.prune() == 0
        assert await self.triggers.load(again) == again
