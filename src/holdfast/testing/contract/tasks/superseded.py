"""Superseded tasks: none returns over newer work of its tenant, unless forced."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.task import Task
from holdfast.domain.task.transition import Applied, MovedOn
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.store_driver import StoreDriver

RETURNS = [Command.RETRY, Command.ROLLBACK, Command.RESUME]


async def park(driver: StoreDriver, command: Command, **fields: Any) -> Task:
    """Park a task whose line stays open, so that ``command`` may bring it back."""
    defaults: dict[str, Any] = {"tenant": "t", "workflow": True, "hold": False}
    task = await driver.start(**(defaults | fields))
    if command is Command.RESUME:
        return await driver.pause(task)
    return await driver.suspend(task)


class SupersededTasks(Contract):
    @pytest.mark.parametrize("command", RETURNS)
    async def test_a_workflow_over_which_newer_work_has_run_does_not_return(
        self, command: Command
    ) -> None:
        task = await park(self.driver, command)
        await self.driver.run(tenant="t")
        before = await self.driver.detail(task)
        assert await self.driver.apply_request(command, task) == MovedOn(task)
        assert await self.driver.detail(task) == before
        assert list(await self.driver.claim()) == []

    @pytest.mark.parametrize("command", RETURNS)
    async def test_a_forced_task_returns_and_its_holder_sees_moved_on(
        self, command: Command
    ) -> None:
        task = await park(self.driver, command)
        await self.driver.run(tenant="t")
        await self.driver.commit(self.driver.request(command, task, force=True))
        (claimed,) = await self.driver.claim()
        assert (claimed.task.id, claimed.moved_on) == (task.id, True)

    @pytest.mark.parametrize("command", RETURNS)
    async def test_without_newer_work_it_returns(self, command: Command) -> None:
        task = await park(self.driver, command)
        await self.driver.commit(self.driver.request(command, task))
        (claimed,) = await self.driver.claim()
        assert not claimed.moved_on

    async def test_newer_work_counts_from_its_start(self) -> None:
        task = await park(self.driver, Command.RETRY)
        await self.driver.start(tenant="t")
        assert isinstance(await self.driver.apply_request(Command.RETRY, task), MovedOn)

    async def test_newer_work_that_only_waits_does_not_count(self) -> None:
        task = await park(self.driver, Command.RETRY)
        await self.driver.submit(tenant="t")
        assert isinstance(await self.driver.apply_request(Command.RETRY, task), Applied)

    async def test_other_tenants_work_does_not_count(self) -> None:
        task = await park(self.driver, Command.RETRY)
        await self.driver.run(tenant="another")
        await self.driver.run()
        assert isinstance(await self.driver.apply_request(Command.RETRY, task), Applied)

    async def test_a_one_stage_task_returns_over_anything(self) -> None:
        task = await park(self.driver, Command.RETRY, workflow=False)
        await self.driver.run(tenant="t")
        assert isinstance(await self.driver.apply_request(Command.RETRY, task), Applied)

    async def test_a_task_that_never_ran_has_nothing_to_be_moved_over(self) -> None:
        running = await self.driver.start(tenant="t")
        waiting = await self.driver.submit(tenant="t", workflow=True)
        waiting = await self.driver.ask(Command.PAUSE, waiting)
        await self.driver.complete(running)
        await self.driver.run(tenant="t")
        await self.driver.commit(self.driver.request(Command.RESUME, waiting))
        (claimed,) = await self.driver.claim()
        assert not claimed.moved_on

    async def test_the_holder_of_a_due_retry_sees_that_newer_work_ran(self) -> None:
        task = await self.driver.fail(
            await self.driver.start(tenant="t", workflow=True, hold=False), retry_seconds=60
        )
        await self.driver.run(tenant="t")
        await self.driver.promote_after(60)
        (claimed,) = await self.driver.claim()
        assert (claimed.task.id, claimed.moved_on) == (task.id, True)

    async def test_a_completed_workflow_is_not_rolled_back_over_newer_work(self) -> None:
        task = await self.driver.run(tenant="t", workflow=True)
        await self.driver.run(tenant="t")
        assert await self.driver.apply_request(Command.ROLLBACK, task) == MovedOn(task)
        assert (await self.driver.load(task.id)).status is Status.COMPLETED

    async def test_having_returned_by_force_it_is_the_newest_again(self) -> None:
        task = await park(self.driver, Command.RETRY)
        await self.driver.run(tenant="t")
        await self.driver.ask(Command.RETRY, task, force=True)
        task = await self.driver.suspend(await self.driver.take())
        assert isinstance(await self.driver.apply_request(Command.RETRY, task), Applied)
