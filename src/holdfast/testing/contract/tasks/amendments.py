"""The contract of amendments to a task that nobody runs: payload, data, checkpoint."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.domain.errors import (
    CheckpointConflict,
    CheckpointGone,
    IllegalTransition,
    NotSuspended,
)
from holdfast.domain.task import amendment
from holdfast.domain.task.amendment import Amendment
from holdfast.domain.task.operate import OperatorRequest
from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.task import By, Task
from holdfast.domain.task.transition import Existing, NoCheckpoint, Stale, Transition
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.store_driver import StoreDriver

NEW = b'{"corrected":true}'


def ask(driver: StoreDriver, request: str = "ask-1") -> OperatorRequest:
    return OperatorRequest(by=By(actor="person"), now=driver.clock.now(), request=request)


class Amendments(Contract):
    async def decide_amendment(self, task: Task, **given: object) -> Transition:
        checkpoint = await self.store.views.checkpoint(task.id)
        return amendment.amend(
            task, ask(self.driver), msgspec.convert(given, Amendment), checkpoint
        )

    async def test_an_amended_task_is_handed_out_with_the_new_payload(self) -> None:
        task = await self.driver.suspend_new(tenant="t")
        after = await self.driver.commit(await self.decide_amendment(task, payload=NEW))
        assert (after.status, after.place) == (Status.PENDING, Place.READY)
        (claimed,) = await self.driver.claim()
        assert claimed.payload == NEW
        detail = await self.driver.detail(after)
        assert detail.payload == NEW
        assert (await self.driver.events(after))[-3:] == [
            "TaskAmended",
            "TaskRetried",
            "TaskStarted",
        ]
        assert await self.store.admin.doctor(fix=False, limit=10) == []

    async def test_an_amended_task_is_handed_out_with_the_new_data(self) -> None:
        task = await self.driver.suspend(await self.driver.start_past_stage(data={"cursor": 1}))
        before = await self.driver.checkpoint(task)
        await self.driver.commit(await self.decide_amendment(task, data={"cursor": 2}))
        saved = await self.driver.checkpoint(task)
        assert (saved.custom_data, saved.version) == ({"cursor": 2}, before.version + 1)
        assert saved.completed_stage_names == before.completed_stage_names
        task = await self.driver.complete(await self.driver.take())
        assert task.status is Status.COMPLETED

    async def test_before_the_first_checkpoint_the_data_is_beside_the_record(self) -> None:
        task = await self.driver.suspend_new()
        await self.driver.commit(await self.decide_amendment(task, data={"cursor": 2}))
        (claimed,) = await self.driver.claim()
        assert claimed.checkpoint is None
        assert claimed.data == b'{"cursor":2}'

    async def test_the_first_payload_still_answers_for_its_key(self) -> None:
        submission = self.driver.submission(key="k", tenant="t")
        await self.driver.insert(submission)
        task = await self.driver.suspend(await self.driver.take())
        await self.driver.commit(await self.decide_amendment(task, payload=NEW))
        again = self.driver.submission(key="k", tenant="t")
        again = replace(again, digest=submission.digest)
        (answer,) = await self.store.tasks.insert([again], depth_limit=100)
        assert answer == Existing(task.id)

    async def test_a_repeated_amendment_has_one_effect(self) -> None:
        task = await self.driver.suspend_new()
        transition = await self.decide_amendment(task, payload=NEW)
        first = await self.driver.apply(transition)
        assert await self.driver.apply(transition) == first
        assert len(await self.store.admin.audits(limit=10)) == 1

    async def test_an_amendment_of_another_version_changes_nothing(self) -> None:
        task = await self.driver.suspend_new()
        late = await self.decide_amendment(task, payload=NEW)
        await self.driver.ask(Command.RETRY, task)
        assert isinstance(await self.driver.apply(late), Stale)
        (claimed,) = await self.driver.claim()
        assert claimed.payload != NEW

    async def test_only_a_suspended_task_is_amended(self) -> None:
        for task in (await self.driver.start(), await self.driver.submit()):
            with pytest.raises(NotSuspended):
                await self.decide_amendment(task, payload=NEW)

    async def test_a_checkpoint_is_put_in_place_of_the_one_that_was_read(self) -> None:
        task = await self.driver.suspend(await self.driver.start_past_stage(data={"cursor": 1}))
        read = await self.driver.checkpoint(task)
        given = replace(read, custom_data={"cursor": 9})
        after = await self.driver.commit(
            amendment.put_checkpoint(task, ask(self.driver), given, read)
        )
        assert (after.status, after.place) == (Status.FAILED, Place.PARKED)
        saved = await self.driver.checkpoint(task)
        assert (saved.custom_data, saved.version) == ({"cursor": 9}, read.version + 1)
        assert (await self.driver.events(after))[-1] == "CheckpointPut"
        assert await self.store.admin.doctor(fix=False, limit=10) == []
        await self.driver.ask(Command.RETRY, after)
        assert (await self.driver.complete(await self.driver.take())).status is Status.COMPLETED

    async def test_a_task_does_not_continue_without_its_checkpoint(self) -> None:
        task = await self.driver.suspend(await self.driver.start_past_stage(data={"cursor": 1}))
        read = await self.driver.checkpoint(task)
        after = await self.driver.commit(amendment.remove_checkpoint(task, ask(self.driver), read))
        refused = await self.driver.apply_request(Command.RETRY, after)
        assert refused == NoCheckpoint(after)
        assert await self.driver.load(task.id) == after
        fresh = await self.driver.ask(Command.RETRY, after, from_checkpoint=False)
        assert (fresh.status, fresh.place) == (Status.PENDING, Place.READY)
        assert await self.store.admin.doctor(fix=False, limit=10) == []

    async def test_a_missing_checkpoint_is_answered_before_newer_work_of_the_tenant(self) -> None:
        started = await self.driver.start_past_stage(tenant="t", workflow=True, hold=False)
        task = await self.driver.suspend(started)
        read = await self.driver.checkpoint(task)
        after = await self.driver.commit(amendment.remove_checkpoint(task, ask(self.driver), read))
        await self.driver.run(tenant="t")
        assert await self.driver.apply_request(Command.RETRY, after) == NoCheckpoint(after)

    async def test_a_checkpoint_is_removed_and_put_back(self) -> None:
        task = await self.driver.suspend(await self.driver.start_past_stage(data={"cursor": 1}))
        read = await self.driver.checkpoint(task)
        after = await self.driver.commit(amendment.remove_checkpoint(task, ask(self.driver), read))
        assert await self.store.views.checkpoint(task.id) is None
        assert (await self.driver.events(after))[-1] == "CheckpointRemoved"
        with pytest.raises(CheckpointGone):
            amendment.remove_checkpoint(after, ask(self.driver), None)
        with pytest.raises(CheckpointConflict, match="has no checkpoint"):
            amendment.put_checkpoint(after, ask(self.driver, "ask-2"), read, None)
        first = replace(read, version=0)
        after = await self.driver.commit(
            amendment.put_checkpoint(after, ask(self.driver, "ask-2"), first, None)
        )
        saved = await self.driver.checkpoint(task)
        assert (saved.custom_data, saved.version) == ({"cursor": 1}, 1)
        assert await self.store.admin.doctor(fix=False, limit=10) == []
        assert len(await self.store.admin.audits(limit=10)) == 2

    async def test_a_task_under_lease_keeps_its_checkpoint(self) -> None:
        task = await self.driver.start_past_stage()
        read = await self.driver.checkpoint(task)
        with pytest.raises(IllegalTransition):
            amendment.put_checkpoint(task, ask(self.driver), read, read)
        with pytest.raises(IllegalTransition):
            amendment.remove_checkpoint(task, ask(self.driver), read)
        resting = replace(task, status=Status.FAILED, lease=None)
        late = amendment.remove_checkpoint(resting, ask(self.driver), read)
        late = replace(late, before=replace(resting, version=1))
        assert isinstance(await self.driver.apply(late), Stale)
        assert await self.driver.checkpoint(task) == read
