"""The contract of amendments to a task that nobody runs: payload, data, checkpoint."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.domain.errors import (
    CheckpointConflict,
    CheckpointGone,
    IllegalTransition,
    NotSuspended,
)
from holdfast.domain.task import amendment
from holdfast.domain.task.amendment import Amendment
from holdfast.domain.task.checkpoint import Checkpoint
from holdfast.domain.task.operate import OperatorRequest
from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.task import By, Task
from holdfast.domain.task.transition import Existing, Stale, Transition
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.store_driver import StoreDriver

NEW = b'{"corrected":true}'


def ask(driver: StoreDriver, request: str = "ask-1") -> OperatorRequest:
    return OperatorRequest(by=By(actor="person"), now=driver.clock.now(), request=request)


async def checkpoint_of(driver: StoreDriver, task: Task) -> Checkpoint:
    found = await driver.store.views.checkpoint(task.id)
    assert found is not None
    return found


class Amendments(Contract):
    async def amended(self, driver: StoreDriver, task: Task, **given: object) -> Transition:
        found = await driver.store.views.checkpoint(task.id)
        return amendment.amend(task, ask(driver), msgspec.convert(given, Amendment), found)

    async def test_an_amended_task_is_handed_out_with_the_new_payload(
        self, driver: StoreDriver
    ) -> None:
        task = await driver.suspend(await driver.start(tenant="t"))
        after = await driver.commit(await self.amended(driver, task, payload=NEW))
        assert (after.status, after.place) == (Status.PENDING, Place.READY)
        (claimed,) = await driver.claim()
        assert claimed.payload == NEW
        detail = await driver.detail(after)
        assert detail.payload == NEW
        assert (await driver.events(after))[-3:] == ["TaskAmended", "TaskRetried", "TaskStarted"]
        assert await driver.store.admin.doctor(fix=False, limit=10) == []

    async def test_an_amended_task_is_handed_out_with_the_new_data(
        self, driver: StoreDriver
    ) -> None:
        task = await driver.suspend(await driver.finish_stage(await driver.start(), cursor=1))
        before = await checkpoint_of(driver, task)
        await driver.commit(await self.amended(driver, task, data={"cursor": 2}))
        saved = await checkpoint_of(driver, task)
        assert (saved.custom_data, saved.version) == ({"cursor": 2}, before.version + 1)
        assert saved.completed_stage_names == before.completed_stage_names
        task = await driver.complete(await driver.take())
        assert task.status is Status.COMPLETED

    async def test_before_the_first_checkpoint_the_data_is_beside_the_record(
        self, driver: StoreDriver
    ) -> None:
        task = await driver.suspend(await driver.start())
        await driver.commit(await self.amended(driver, task, data={"cursor": 2}))
        (claimed,) = await driver.claim()
        assert claimed.checkpoint is None
        assert claimed.data == b'{"cursor":2}'

    async def test_the_first_payload_still_answers_for_its_key(self, driver: StoreDriver) -> None:
        submission = driver.submission(key="k", tenant="t")
        await driver.insert(submission)
        task = await driver.suspend(await driver.take())
        await driver.commit(await self.amended(driver, task, payload=NEW))
        again = driver.submission(key="k", tenant="t")
        again = msgspec.structs.replace(again, digest=submission.digest)
        (answer,) = await driver.store.tasks.insert([again], depth_limit=100)
        assert answer == Existing(task.id)

    async def test_a_repeated_amendment_has_one_effect(self, driver: StoreDriver) -> None:
        task = await driver.suspend(await driver.start())
        transition = await self.amended(driver, task, payload=NEW)
        first = await driver.apply(transition)
        assert await driver.apply(transition) == first
        assert len(await driver.store.admin.audits(limit=10)) == 1

    async def test_an_amendment_of_another_version_changes_nothing(
        self, driver: StoreDriver
    ) -> None:
        task = await driver.suspend(await driver.start())
        late = await self.amended(driver, task, payload=NEW)
        await driver.ask(Command.RETRY, task)
        assert isinstance(await driver.apply(late), Stale)
        (claimed,) = await driver.claim()
        assert claimed.payload != NEW

    async def test_only_a_suspended_task_is_amended(self, driver: StoreDriver) -> None:
        for task in (await driver.start(), await driver.submit()):
            with pytest.raises(NotSuspended):
                await self.amended(driver, task, payload=NEW)


class PuttingCheckpoints(Contract):
    async def test_a_checkpoint_is_put_in_place_of_the_one_that_was_read(
        self, driver: StoreDriver
    ) -> None:
        task = await driver.suspend(await driver.finish_stage(await driver.start(), cursor=1))
        read = await checkpoint_of(driver, task)
        given = msgspec.structs.replace(read, custom_data={"cursor": 9})
        after = await driver.commit(amendment.put_checkpoint(task, ask(driver), given, read))
        assert (after.status, after.place) == (Status.FAILED, Place.PARKED)
        saved = await checkpoint_of(driver, task)
        assert (saved.custom_data, saved.version) == ({"cursor": 9}, read.version + 1)
        assert (await driver.events(after))[-1] == "CheckpointPut"
        assert await driver.store.admin.doctor(fix=False, limit=10) == []
        await driver.ask(Command.RETRY, after)
        assert (await driver.complete(await driver.take())).status is Status.COMPLETED

    async def test_a_checkpoint_is_removed_and_put_back(self, driver: StoreDriver) -> None:
        task = await driver.suspend(await driver.finish_stage(await driver.start(), cursor=1))
        read = await checkpoint_of(driver, task)
        after = await driver.commit(amendment.remove_checkpoint(task, ask(driver), read))
        assert await driver.store.views.checkpoint(task.id) is None
        assert (await driver.events(after))[-1] == "CheckpointRemoved"
        with pytest.raises(CheckpointGone):
            amendment.remove_checkpoint(after, ask(driver), None)
        with pytest.raises(CheckpointConflict, match="has no checkpoint"):
            amendment.put_checkpoint(after, ask(driver, "ask-2"), read, None)
        first = msgspec.structs.replace(read, version=0)
        after = await driver.commit(
            amendment.put_checkpoint(after, ask(driver, "ask-2"), first, None)
        )
        saved = await checkpoint_of(driver, task)
        assert (saved.custom_data, saved.version) == ({"cursor": 1}, 1)
        assert await driver.store.admin.doctor(fix=False, limit=10) == []
        assert len(await driver.store.admin.audits(limit=10)) == 2

    async def test_a_task_under_lease_keeps_its_checkpoint(self, driver: StoreDriver) -> None:
        task = await driver.finish_stage(await driver.start())
        read = await checkpoint_of(driver, task)
        with pytest.raises(IllegalTransition):
            amendment.put_checkpoint(task, ask(driver), read, read)
        with pytest.raises(IllegalTransition):
            amendment.remove_checkpoint(task, ask(driver), read)
        resting = msgspec.structs.replace(task, status=Status.FAILED, lease=None)
        late = amendment.remove_checkpoint(resting, ask(driver), read)
        late = msgspec.structs.replace(late, before=msgspec.structs.replace(resting, version=1))
        assert isinstance(await driver.apply(late), Stale)
        assert await checkpoint_of(driver, task) == read
