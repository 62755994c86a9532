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
from holdfast.testing.contract.drivers.store_driver import Hands

NEW = b'{"corrected":true}'


def ask(hands: Hands, request: str = "ask-1") -> OperatorRequest:
    return OperatorRequest(by=By(actor="person"), now=hands.clock.now(), request=request)


async def checkpoint_of(hands: Hands, task: Task) -> Checkpoint:
    found = await hands.store.views.checkpoint(task.id)
    assert found is not None
    return found


class Amending(Contract):
    async def amended(self, hands: Hands, task: Task, **given: object) -> Transition:
        found = await hands.store.views.checkpoint(task.id)
        return amendment.amend(task, ask(hands), msgspec.convert(given, Amendment), found)

    async def test_an_amended_task_is_handed_out_with_the_new_payload(self, hands: Hands) -> None:
        task = await hands.suspend(await hands.start(tenant="t"))
        after = await hands.commit(await self.amended(hands, task, payload=NEW))
        assert (after.status, after.place) == (Status.PENDING, Place.READY)
        (claimed,) = await hands.claim()
        assert claimed.payload == NEW
        detail = await hands.detail(after)
        assert detail.payload == NEW
        assert (await hands.events(after))[-3:] == ["TaskAmended", "TaskRetried", "TaskStarted"]
        assert await hands.store.admin.doctor(fix=False, limit=10) == []

    async def test_an_amended_task_is_handed_out_with_the_new_data(self, hands: Hands) -> None:
        task = await hands.suspend(await hands.finish_stage(await hands.start(), cursor=1))
        before = await checkpoint_of(hands, task)
        await hands.commit(await self.amended(hands, task, data={"cursor": 2}))
        saved = await checkpoint_of(hands, task)
        assert (saved.custom_data, saved.version) == ({"cursor": 2}, before.version + 1)
        assert saved.completed_stage_names == before.completed_stage_names
        task = await hands.complete(await hands.take())
        assert task.status is Status.COMPLETED

    async def test_before_the_first_checkpoint_the_data_is_beside_the_record(
        self, hands: Hands
    ) -> None:
        task = await hands.suspend(await hands.start())
        await hands.commit(await self.amended(hands, task, data={"cursor": 2}))
        (claimed,) = await hands.claim()
        assert claimed.checkpoint is None
        assert claimed.data == b'{"cursor":2}'

    async def test_the_first_payload_still_answers_for_its_key(self, hands: Hands) -> None:
        submission = hands.submission(key="k", tenant="t")
        await hands.insert(submission)
        task = await hands.suspend(await hands.take())
        await hands.commit(await self.amended(hands, task, payload=NEW))
        again = hands.submission(key="k", tenant="t")
        again = msgspec.structs.replace(again, digest=submission.digest)
        (answer,) = await hands.store.tasks.insert([again], depth_limit=100)
        assert answer == Existing(task.id)

    async def test_a_repeated_amendment_has_one_effect(self, hands: Hands) -> None:
        task = await hands.suspend(await hands.start())
        transition = await self.amended(hands, task, payload=NEW)
        first = await hands.apply(transition)
        assert await hands.apply(transition) == first
        assert len(await hands.store.admin.audits(limit=10)) == 1

    async def test_an_amendment_of_another_version_changes_nothing(self, hands: Hands) -> None:
        task = await hands.suspend(await hands.start())
        late = await self.amended(hands, task, payload=NEW)
        await hands.ask(Command.RETRY, task)
        assert isinstance(await hands.apply(late), Stale)
        (claimed,) = await hands.claim()
        assert claimed.payload != NEW

    async def test_only_a_suspended_task_is_amended(self, hands: Hands) -> None:
        for task in (await hands.start(), await hands.submit()):
            with pytest.raises(NotSuspended):
                await self.amended(hands, task, payload=NEW)


class PuttingCheckpoints(Contract):
    async def test_a_checkpoint_is_put_in_place_of_the_one_that_was_read(
        self, hands: Hands
    ) -> None:
        task = await hands.suspend(await hands.finish_stage(await hands.start(), cursor=1))
        read = await checkpoint_of(hands, task)
        given = msgspec.structs.replace(read, custom_data={"cursor": 9})
        after = await hands.commit(amendment.put_checkpoint(task, ask(hands), given, read))
        assert (after.status, after.place) == (Status.FAILED, Place.PARKED)
        saved = await checkpoint_of(hands, task)
        assert (saved.custom_data, saved.version) == ({"cursor": 9}, read.version + 1)
        assert (await hands.events(after))[-1] == "CheckpointPut"
        assert await hands.store.admin.doctor(fix=False, limit=10) == []
        await hands.ask(Command.RETRY, after)
        assert (await hands.complete(await hands.take())).status is Status.COMPLETED

    async def test_a_checkpoint_is_removed_and_put_back(self, hands: Hands) -> None:
        task = await hands.suspend(await hands.finish_stage(await hands.start(), cursor=1))
        read = await checkpoint_of(hands, task)
        after = await hands.commit(amendment.remove_checkpoint(task, ask(hands), read))
        assert await hands.store.views.checkpoint(task.id) is None
        assert (await hands.events(after))[-1] == "CheckpointRemoved"
        with pytest.raises(CheckpointGone):
            amendment.remove_checkpoint(after, ask(hands), None)
        with pytest.raises(CheckpointConflict, match="has no checkpoint"):
            amendment.put_checkpoint(after, ask(hands, "ask-2"), read, None)
        first = msgspec.structs.replace(read, version=0)
        after = await hands.commit(
            amendment.put_checkpoint(after, ask(hands, "ask-2"), first, None)
        )
        saved = await checkpoint_of(hands, task)
        assert (saved.custom_data, saved.version) == ({"cursor": 1}, 1)
        assert await hands.store.admin.doctor(fix=False, limit=10) == []
        assert len(await hands.store.admin.audits(limit=10)) == 2

    async def test_a_task_under_lease_keeps_its_checkpoint(self, hands: Hands) -> None:
        task = await hands.finish_stage(await hands.start())
        read = await checkpoint_of(hands, task)
        with pytest.raises(IllegalTransition):
            amendment.put_checkpoint(task, ask(hands), read, read)
        with pytest.raises(IllegalTransition):
            amendment.remove_checkpoint(task, ask(hands), read)
        resting = msgspec.structs.replace(task, status=Status.FAILED, lease=None)
        late = amendment.remove_checkpoint(resting, ask(hands), read)
        late = msgspec.structs.replace(late, before=msgspec.structs.replace(resting, version=1))
        assert isinstance(await hands.apply(late), Stale)
        assert await checkpoint_of(hands, task) == read
