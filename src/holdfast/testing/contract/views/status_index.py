"""The contract of the index by status: it follows every move, whoever makes it (P5)."""

from __future__ import annotations

import pytest

from holdfast.domain.task.state import Status
from holdfast.ports import Filter
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.ways import WAYS, walk

CASES = [pytest.param(status, way, id=f"{status}-{way}") for way, (status, _, _) in WAYS.items()]


class StatusIndex(Contract):
    @pytest.mark.parametrize(("status", "way"), CASES)
    async def test_a_task_is_seen_in_the_status_of_its_last_move_and_in_no_other(
        self, status: Status, way: str
    ) -> None:
        task = await walk(self.driver, way)
        assert task.status is status
        assert await self.driver.load(task.id) == task
        for other in Status:
            page = await self.store.views.find(Filter(statuses=(other,)), limit=10)
            assert page.tasks == ((task,) if other is status else ()), other
        counted = (await self.store.views.stats()).by_status
        assert {present: number for present, number in counted.items() if number} == {status: 1}
        peek = await self.driver.peek(task)
        assert peek.status is status
