"""Requests during a stage: kept on the record until the holder applies them, once."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.domain.task import decide
from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.transition import Applied, Stale
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.store_driver import ASKER


class RequestContract(Contract):
    @pytest.mark.parametrize(
        ("command", "flag", "event"),
        [
            (Command.PAUSE, "pause_requested", "PauseRequested"),
            (Command.CANCEL, "cancel_requested", "CancelRequested"),
        ],
    )
    async def test_a_request_leaves_a_running_task_with_its_holder(
        self, command: Command, flag: str, event: str
    ) -> None:
        held = await self.driver.start(tenant="t")
        task = await self.driver.ask(command, held)
        assert getattr(task, flag)
        assert (task.status, task.place, task.lease) == (Status.RUNNING, Place.LEASED, held.lease)
        assert task.version == held.version + 1
        assert task.reason == ASKER.reason
        assert (await self.driver.events(task))[-1] == event
        assert (await self.driver.tenant("t")).locked_by == task.id
        assert await self.driver.renew(task) == [True]

    @pytest.mark.parametrize("command", [Command.PAUSE, Command.CANCEL])
    async def test_a_request_during_a_stage_does_not_make_the_stage_run_again(
        self, command: Command
    ) -> None:
        held = await self.driver.start()
        decided = await self.driver.done(held, "paid")
        await self.driver.ask(command, held)
        answer = await self.driver.apply(decided)
        assert isinstance(answer, Stale)
        assert answer.task is not None
        assert answer.task.lease == held.lease
        anew = await self.driver.finish_stage(answer.task, "paid")
        stages = (await self.driver.detail(held)).stages
        assert [(stage.name, stage.result) for stage in stages] == [("one", b'"paid"')]
        rested = await self.driver.commit(decide.boundary(anew, now=self.clock.now()))
        if command is Command.PAUSE:
            assert (rested.status, rested.place) == (Status.PAUSED, Place.PARKED)
        else:
            assert (rested.status, rested.place) == (Status.CANCELLED, Place.SETTLED)
        assert not rested.pause_requested
        assert not rested.cancel_requested
        assert rested.last_completed == 0
        checkpoint = await self.driver.checkpoint(held)
        assert checkpoint.last_completed_stage_index == 0
        assert (await self.driver.events(held)).count("StageCompleted") == 1

    async def test_a_paused_task_goes_on_behind_its_checkpoint(self) -> None:
        held = await self.driver.start()
        task = await self.driver.finish_stage(held)
        task = await self.driver.ask(Command.PAUSE, task)
        await self.driver.commit(decide.boundary(task, now=self.clock.now()))
        await self.driver.ask(Command.RESUME, task)
        task = await self.driver.take("w-2")
        assert task.at_stage == "two"
        assert (await self.driver.complete(task)).status is Status.COMPLETED

    async def test_a_pause_can_be_withdrawn_before_it_is_applied(self) -> None:
        held = await self.driver.start()
        await self.driver.ask(Command.PAUSE, held)
        task = await self.driver.ask(Command.RESUME, held)
        assert not task.pause_requested
        assert task.lease == held.lease
        assert (await self.driver.events(task))[-1] == "PauseWithdrawn"

    @pytest.mark.parametrize("command", [Command.PAUSE, Command.CANCEL])
    async def test_a_request_during_the_last_stage_comes_too_late(self, command: Command) -> None:
        held = await self.driver.start(stages=("only",))
        task = await self.driver.ask(command, held)
        task = await self.driver.finish_stage(task)
        assert task.status is Status.COMPLETED
        assert not task.pause_requested
        assert not task.cancel_requested

    async def test_a_cancel_is_applied_when_the_stage_fails(self) -> None:
        task = await self.driver.ask(Command.CANCEL, await self.driver.start())
        task = await self.driver.fail(task)
        assert (task.status, task.place) == (Status.CANCELLED, Place.SETTLED)
        assert await self.driver.claim_ids() == []

    async def test_a_request_outlives_the_worker_that_should_have_applied_it(self) -> None:
        task = await self.driver.ask(Command.CANCEL, await self.driver.start())
        await self.driver.lapse()
        task = await self.driver.take("w-2")
        assert task.cancel_requested
        task = await self.driver.commit(decide.boundary(task, now=self.clock.now()))
        assert task.status is Status.CANCELLED

    async def test_requests_and_commits_that_race_end_in_one_order(self) -> None:
        held = await self.driver.start()
        stage, pause = await self.driver.done(held), self.driver.request(Command.PAUSE, held)
        outcomes = await asyncio.gather(self.driver.apply(stage), self.driver.apply(pause))
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Applied", "Stale"]
        task = await self.driver.load(held.id)
        assert task.version == held.version + 1
        assert task.pause_requested != (task.last_completed == 0)

    async def test_a_command_on_a_task_that_nothing_runs_acts_at_once(self) -> None:
        paused = await self.driver.ask(Command.PAUSE, await self.driver.submit())
        assert (paused.status, paused.place) == (Status.PAUSED, Place.PARKED)
        resumed = await self.driver.ask(Command.RESUME, paused)
        assert (resumed.status, resumed.place) == (Status.PENDING, Place.READY)
        cancelled = await self.driver.ask(Command.CANCEL, resumed)
        assert (cancelled.status, cancelled.place) == (Status.CANCELLED, Place.SETTLED)
        assert cancelled.settled_at == self.clock.now()
        assert await self.driver.claim_ids() == []

    async def test_a_task_that_waits_for_its_retry_can_be_cancelled(self) -> None:
        task = await self.driver.ask(
            Command.CANCEL, await self.driver.fail(await self.driver.start())
        )
        assert (task.place, task.due) == (Place.SETTLED, None)
        assert (await self.driver.promote_after(61)).count == 0

    async def test_a_task_that_waits_for_its_retry_can_be_retried_now(self) -> None:
        task = await self.driver.ask(
            Command.RETRY, await self.driver.fail(await self.driver.start())
        )
        assert (task.place, task.due, task.run) == (Place.READY, None, 2)
        assert (await self.store.tasks.promote(limit=10)).next_seconds is None
        assert await self.driver.claim_ids() == [task.id]

    async def test_what_was_done_is_audited_with_the_transition(self) -> None:
        task = await self.driver.submit()
        await self.driver.ask(Command.PAUSE, task)
        (entry,) = await self.store.admin.audits(limit=10)
        assert (entry.task_id, entry.command, entry.by) == (task.id, Command.PAUSE, ASKER)
        assert (entry.before, entry.after) == (Status.PENDING, Status.PAUSED)
        assert (entry.at, entry.refused) == (self.clock.now(), None)

    async def test_a_stale_command_leaves_no_audit(self) -> None:
        task = await self.driver.submit()
        early = self.driver.request(Command.CANCEL, task)
        await self.driver.take()
        assert not isinstance(await self.driver.apply(early), Applied)
        assert list(await self.store.admin.audits(limit=10)) == []
