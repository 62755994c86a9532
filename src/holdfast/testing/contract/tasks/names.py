"""Names: a store finds a name again, whatever script it is written in."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.transition import Conflict, Existing
from holdfast.ports import Filter, Kept, Switch, Timings
from holdfast.ports.measures import BUCKETS
from holdfast.testing.contract.base import Contract

# Letters of three and of four bytes, diacritics, right-to-left script, signs, the longest name.
NAMES = {
    "chinese": "上海分公司",
    "four-bytes": "𠮷野家",
    "marks": "हिन्दी-Ünïcödé",
    "right-to-left": "المتجر",
    "signs": "北京（朝阳）·No.1/二:@+=",
    "longest": "租" * 200,
}


class NameContract(Contract):
    @pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
    async def test_a_task_is_found_by_names_in_any_script(self, name: str) -> None:
        type_, stages, queue = "工作流.升级", ("快照", "迁移", "核对"), "队列-1"
        fields: dict[str, Any] = {"type": type_, "stages": stages, "queue": queue}
        fields |= {"tenant": name, "plan": "计划"}
        task = await self.driver.submit(key=name, **fields)
        behind = await self.driver.submit(key=f"{name[:-1]}二", **fields)
        again = self.driver.submission(key=name, **fields)
        other = self.driver.submission(key=name, payload="another", **fields)
        assert await self.driver.insert(again, other) == [Existing(task.id), Conflict(task.id)]
        assert await self.driver.line(name, limit=10) == [behind.id]

        running = await self.driver.take(queues=(queue,))
        assert (running.tenant, running.key, running.type) == (name, name, type_)
        assert (await self.driver.tenant(name)).locked_by == task.id
        running = await self.driver.finish_stage(running, "好", 数据="值")
        checkpoint = await self.driver.checkpoint(task)
        assert checkpoint.completed_stage_names == ("快照",)
        assert checkpoint.custom_data == {"数据": "值"}
        parked = await self.driver.suspend(running)
        assert parked.failure is not None
        for where in (
            Filter(tenant=name),
            Filter(type=type_, tenant=name),
            Filter(queue=queue, error=parked.failure.fingerprint),
            Filter(plan="计划", statuses=(Status.FAILED,)),
        ):
            page = await self.store.views.find(where, limit=10)
            assert parked.id in [task.id for task in page.tasks]

        await self.driver.ask(Command.RETRY, parked, force=True)
        while done := await self.driver.claim(queues=(queue,)):
            for claimed in done:
                ended = await self.driver.complete(claimed.task)
                assert [s.name for s in (await self.driver.detail(ended)).stages] == [*stages]
        view = await self.driver.tenant(name)
        assert (view.active, view.waiting, view.locked_by) == (None, 0, None)
        moves = (await self.store.views.stats()).moves
        assert (queue, type_) in {(move.queue, move.type) for move in moves}

    async def test_what_has_settled_goes_with_all_its_names(self) -> None:
        names: dict[str, Any] = {"tenant": "租户", "key": "钥匙", "queue": "队列"}
        task = await self.driver.run(plan="计划", keep_seconds=1, **names)
        self.clock.advance(2)
        assert await self.driver.prune(Kept.TASKS) == 1
        assert await self.driver.insert_new(**names) == Existing(task.id)
        self.clock.advance(2 * 86_400)
        assert await self.driver.prune(Kept.TOMBSTONES) == 1
        assert (await self.driver.submit(**names)).id != task.id

    async def test_a_queue_of_any_name_can_be_paused_and_measured(self) -> None:
        await self.switches.off(Switch.CLAIMING, "队列")
        await self.driver.submit(queue="队列")
        assert await self.driver.claim(queues=("队列",)) == []
        assert [setting.name for setting in await self.switches.settings()] == ["队列"]
        await self.switches.on(Switch.CLAIMING, "队列")
        assert len(await self.driver.claim(queues=("队列",))) == 1
        spans = (1, *[0] * len(BUCKETS))
        timings = Timings(
            type="升级", stage="快照", outcome="done", counts=spans, total_seconds=0.5
        )
        await self.store.admin.observe([timings])
        assert list((await self.store.views.stats()).timings) == [timings]
