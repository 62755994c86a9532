"""Run history: what a record keeps of its last run, and a checkpoint of its stages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime

import msgspec
import pytest

from holdfast.domain.task import decide
from holdfast.domain.task.events import TaskStarted, name_of
from holdfast.domain.task.state import SETTLED, Command, Status
from holdfast.domain.task.task import Progress, Task
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.store_driver import StoreDriver

HALF = Progress(fraction=0.5, message="half", stage="one", at=1.0)


async def discard(driver: StoreDriver, task: Task) -> Task:
    return await driver.ask(Command.DISCARD, await driver.suspend(task))


async def roll_back(driver: StoreDriver, task: Task) -> Task:
    return await driver.roll_back(await driver.suspend(task))


WAYS: dict[str, Callable[[StoreDriver, Task], Awaitable[Task]]] = {
    "completed": StoreDriver.complete,
    "cancelled at a boundary": StoreDriver.cancel,
    "discarded": discard,
    "rolled back": roll_back,
}


class RunHistory(Contract):
    @pytest.mark.parametrize("stages", [("one",), ("one", "two")], ids=["task", "workflow"])
    @pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
    async def test_a_settled_record_says_who_ran_it_and_has_neither_lease_nor_progress(
        self, way: Callable[[StoreDriver, Task], Awaitable[Task]], stages: tuple[str, ...]
    ) -> None:
        task = await self.driver.start(worker="w-1", tenant="t", stages=stages)
        assert task.ran_by is None
        assert await self.driver.renew(task, progress=HALF) == [True]
        before = await self.driver.events(task)
        ended = await way(self.driver, task)
        assert ended.status in SETTLED
        for record in (
            ended,
            await self.driver.load(task.id),
            (await self.driver.detail(task)).task,
        ):
            assert (record.lease, record.ran_by, record.settled) == (None, "w-1", True)
            assert record.fence >= task.fence
        detail = await self.driver.detail(task)
        assert detail.progress is None
        names = [name_of(event) for event in detail.events]
        assert names[: len(before)] == before
        assert next(e.worker for e in detail.events if isinstance(e, TaskStarted)) == "w-1"

    async def test_who_ran_it_last_stays_when_others_only_read_it(self) -> None:
        task = await self.driver.start("w-1", tenant="t")
        assert await self.driver.lapse() == 1
        assert (await self.driver.load(task.id)).ran_by == "w-1"
        again = await self.driver.take("w-2")
        assert again.ran_by == "w-1"
        later = decide.give_back(again, "not known here", now=self.clock.now(), interrupted=False)
        assert (await self.driver.commit(later)).ran_by == "w-1"
        failed = await self.driver.fail(await self.driver.take("w-3"), retry_seconds=5)
        assert (failed.status, failed.ran_by) == (Status.RETRYING, "w-3")

    async def test_what_has_settled_can_run_again_and_its_events_stay(self) -> None:
        done = await self.driver.run("w-1", stages=("only",))
        events = (await self.driver.detail(done)).events
        back = await self.driver.roll_back(done)
        assert (back.status, back.ran_by) == (Status.ROLLED_BACK, "w-1")
        await self.driver.ask(Command.RETRY, back)
        again = await self.driver.complete(await self.driver.take("w-2"))
        assert (again.status, again.ran_by) == (Status.COMPLETED, "w-2")
        assert (await self.driver.detail(again)).events[: len(events)] == events

    async def test_a_checkpoint_has_the_duration_of_its_stage_as_soon_as_it_is_written(
        self,
    ) -> None:
        task = await self.driver.start("w-1", stages=("one", "two", "three"))
        for names in (("one",), ("one", "two")):
            task = await self.driver.finish_stage(task)
            body = (await self.driver.detail(task)).checkpoint
            assert body is not None
            written = msgspec.json.decode(body)
            assert written["stageDurations"] == dict.fromkeys(names, 1500)

    async def test_the_checkpoint_is_written_as_the_document_shows_it(self) -> None:
        task = await self.driver.finish_stage(
            await self.driver.start("w-1", stages=("one", "two", "three"))
        )
        task = await self.driver.finish_stage(task)
        parked = await self.driver.suspend(task)
        body = (await self.driver.detail(parked)).checkpoint
        assert body is not None
        written = msgspec.json.decode(body)
        assert written["stageDurations"] == {"one": 1500, "two": 1500}
        [failure] = written["failureHistory"]
        at = datetime.fromisoformat(failure["at"])
        assert at.utcoffset() is not None
        assert parked.failure is not None
        assert at.timestamp() == pytest.approx(parked.failure.at, abs=1e-6)
        checkpoint = await self.driver.checkpoint(task)
        assert [failure.at for failure in checkpoint.failure_history] == [at.timestamp()]
