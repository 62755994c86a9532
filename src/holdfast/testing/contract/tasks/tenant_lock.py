"""The tenant lock: a claim takes it, the task keeps it over its stages, and it is free when the run
ends. Tested through the tenant index, which names the active task and the holder of the lock.
"""

from __future__ import annotations

import pytest

from holdfast.domain.task.state import Command, Status
from holdfast.ports import TenantView
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.tasks.tenant_line import SETTLED, UNSETTLED


class TenantLock(Contract):
    async def test_an_unknown_tenant_has_nothing(self) -> None:
        assert await self.driver.tenant("nobody") == TenantView(
            tenant="nobody", active=None, locked_by=None, fence=0, waiting=0
        )

    async def test_tenants_are_answered_in_the_order_asked(self) -> None:
        await self.driver.submit_many(2, tenant="b")
        views = await self.store.views.tenants(["c", "b", "a", "b"])
        assert [view.tenant for view in views] == ["c", "b", "a", "b"]
        assert [view.waiting for view in views] == [0, 1, 0, 1]

    async def test_the_active_task_is_the_head_then_the_one_that_runs(self) -> None:
        head, _ = await self.driver.submit_many(2, tenant="t")
        view = await self.driver.tenant("t")
        assert (view.active, view.locked_by, view.waiting) == (head, None, 1)
        task = await self.driver.take()
        view = await self.driver.tenant("t")
        assert (view.active, view.locked_by, view.fence) == (head, head, task.fence)

    async def test_the_lock_is_taken_by_a_claim_and_kept_over_stages(self) -> None:
        task = await self.driver.start(tenant="t")
        task = await self.driver.finish_stage(task)
        assert (await self.driver.tenant("t")).locked_by == task.id

    @pytest.mark.parametrize("status", list(UNSETTLED))
    @pytest.mark.parametrize("hold", [True, False])
    async def test_a_task_that_rests_unsettled_stays_active_without_the_lock(
        self, status: Status, hold: bool
    ) -> None:
        task = await self.driver.start(tenant="t", hold=hold)
        await UNSETTLED[status](self.driver, task)
        view = await self.driver.tenant("t")
        assert (view.active, view.locked_by) == (task.id, None)

    @pytest.mark.parametrize("status", list(SETTLED))
    async def test_a_settled_task_is_no_longer_active(self, status: Status) -> None:
        task = await SETTLED[status](self.driver, await self.driver.start(tenant="t"))
        view = await self.driver.tenant("t")
        assert (view.active, view.locked_by, view.fence) == (None, None, task.fence)

    async def test_settling_another_task_does_not_clear_the_active_one(self) -> None:
        resting = await self.driver.suspend_new(tenant="t")
        running = await self.driver.start(tenant="t")
        await self.driver.ask(Command.DISCARD, resting)
        view = await self.driver.tenant("t")
        assert (view.active, view.locked_by) == (running.id, running.id)

    async def test_what_still_rests_is_active_again_when_newer_work_has_settled(self) -> None:
        older = await self.driver.suspend_new(tenant="t")
        resting = await self.driver.suspend_new(tenant="t")
        await self.driver.run(tenant="t")
        assert (await self.driver.tenant("t")).active == resting.id
        await self.driver.ask(Command.DISCARD, resting)
        assert (await self.driver.tenant("t")).active == older.id
        newer = await self.driver.start(tenant="t")
        assert (await self.driver.tenant("t")).active == newer.id
        await self.driver.ask(Command.DISCARD, older)
        await self.driver.complete(newer)
        assert (await self.driver.tenant("t")).active is None

    async def test_tenants_do_not_touch_each_other(self) -> None:
        a, b = [await self.driver.start(tenant=tenant) for tenant in ("a", "b")]
        await self.driver.complete(a)
        view = await self.driver.tenant("b")
        assert (view.active, view.locked_by, view.fence) == (b.id, b.id, b.fence)
