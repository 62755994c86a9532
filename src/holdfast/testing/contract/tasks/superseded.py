"""The moved-on guard: no return over newer work of the tenant, unless forced."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.task import Task
from holdfast.domain.task.transition import Applied, MovedOn
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.store_driver import Hands
from holdfast.testing.contract.tasks.tenant_queue import pause

RETURNS = [Command.RETRY, Command.ROLLBACK, Command.RESUME]


async def rested(hands: Hands, command: Command, **fields: Any) -> Task:
    """A task that rests with its line open, and that ``command`` may bring back."""
    defaults: dict[str, Any] = {"tenant": "t", "workflow": True, "hold": False}
    task = await hands.start(**(defaults | fields))
    if command is Command.RESUME:
        return await pause(hands, task)
    return await hands.suspend(task)


class MovingOn(Contract):
    @pytest.mark.parametrize("command", RETURNS)
    async def test_a_workflow_over_which_newer_work_has_run_does_not_return(
        self, hands: Hands, command: Command
    ) -> None:
        task = await rested(hands, command)
        await hands.complete(await hands.start(tenant="t"))
        before = await hands.detail(task)
        assert await hands.apply(hands.asked(command, task)) == MovedOn(task)
        assert await hands.detail(task) == before
        assert list(await hands.claim()) == []

    @pytest.mark.parametrize("command", RETURNS)
    async def test_forced_it_returns_and_its_holder_is_told(
        self, hands: Hands, command: Command
    ) -> None:
        task = await rested(hands, command)
        await hands.complete(await hands.start(tenant="t"))
        await hands.commit(hands.asked(command, task, force=True))
        (claimed,) = await hands.claim()
        assert (claimed.task.id, claimed.moved_on) == (task.id, True)

    @pytest.mark.parametrize("command", RETURNS)
    async def test_without_newer_work_it_returns(self, hands: Hands, command: Command) -> None:
        task = await rested(hands, command)
        await hands.commit(hands.asked(command, task))
        (claimed,) = await hands.claim()
        assert not claimed.moved_on

    async def test_newer_work_counts_from_its_start(self, hands: Hands) -> None:
        task = await rested(hands, Command.RETRY)
        await hands.start(tenant="t")
        assert isinstance(await hands.apply(hands.asked(Command.RETRY, task)), MovedOn)

    async def test_newer_work_that_only_waits_does_not_count(self, hands: Hands) -> None:
        task = await rested(hands, Command.RETRY)
        await hands.submit(tenant="t")
        assert isinstance(await hands.apply(hands.asked(Command.RETRY, task)), Applied)

    async def test_other_tenants_work_does_not_count(self, hands: Hands) -> None:
        task = await rested(hands, Command.RETRY)
        await hands.complete(await hands.start(tenant="another"))
        await hands.complete(await hands.start())
        assert isinstance(await hands.apply(hands.asked(Command.RETRY, task)), Applied)

    async def test_a_one_stage_task_returns_over_anything(self, hands: Hands) -> None:
        task = await rested(hands, Command.RETRY, workflow=False)
        await hands.complete(await hands.start(tenant="t"))
        assert isinstance(await hands.apply(hands.asked(Command.RETRY, task)), Applied)

    async def test_a_task_that_never_ran_has_nothing_to_be_moved_over(self, hands: Hands) -> None:
        running = await hands.start(tenant="t")
        waiting = await hands.submit(tenant="t", workflow=True)
        waiting = await hands.ask(Command.PAUSE, waiting)
        await hands.complete(running)
        await hands.complete(await hands.start(tenant="t"))
        await hands.commit(hands.asked(Command.RESUME, waiting))
        (claimed,) = await hands.claim()
        assert not claimed.moved_on

    async def test_the_holder_of_a_due_retry_is_told_of_newer_work(self, hands: Hands) -> None:
        task = await hands.fail(
            await hands.start(tenant="t", workflow=True, hold=False), retry_seconds=60
        )
        await hands.complete(await hands.start(tenant="t"))
        hands.clock.advance(60)
        await hands.store.tasks.promote(limit=10)
        (claimed,) = await hands.claim()
        assert (claimed.task.id, claimed.moved_on) == (task.id, True)

    async def test_a_completed_workflow_is_not_rolled_back_over_newer_work(
        self, hands: Hands
    ) -> None:
        task = await hands.complete(await hands.start(tenant="t", workflow=True))
        await hands.complete(await hands.start(tenant="t"))
        assert await hands.apply(hands.asked(Command.ROLLBACK, task)) == MovedOn(task)
        assert (await hands.load(task.id)).status is Status.COMPLETED

    async def test_having_returned_by_force_it_is_the_newest_again(self, hands: Hands) -> None:
        task = await rested(hands, Command.RETRY)
        await hands.complete(await hands.start(tenant="t"))
        await hands.ask(Command.RETRY, task, force=True)
        task = await hands.suspend(await hands.take())
        assert isinstance(await hands.apply(hands.asked(Command.RETRY, task)), Applied)
