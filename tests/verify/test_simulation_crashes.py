"""The check of counted crashes knows which call the holder of a task was in."""

import pytest

from holdfast.domain.task import decide
from holdfast.domain.task.task import Task
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.store_driver import StoreDriver
from verify.simulation.checks.book import Invocation, WorldBook
from verify.simulation.loop import Process, VirtualLoop
from verify.simulation.stores.watched import WatchedStore


class World:
    def __init__(self) -> None:
        self.book, clock = WorldBook(stop=lambda: None), ManualClock()
        self.store = WatchedStore(clock, self.book)
        self.driver = StoreDriver(self.store, clock)
        self.process = Process("w-1", VirtualLoop())  # type: ignore[abstract]

    async def start_over(self) -> Task:
        """Claim a task whose checkpoint no longer fits the code, and run it from stage 0."""
        task = await self.driver.start(type="flow.4", stages=("prepended", "s0"))
        return await self.driver.commit(
            decide.start_over(task, "the stages have changed", now=self.driver.clock.now())
        )

    def call(self, task: Task, stage: str) -> None:
        """Note a call of a stage in the ledger; the call does not return."""
        call = Invocation(
            process=self.process,
            task_id=task.id,
            key=f"{task.id}/{task.epoch}/{stage}",
            stage=stage,
            fence=task.fence,
            undo=False,
            began_at=self.store.now,
        )
        self.book.invocations[call.key, call.fence] = self.book.holders[call.fence] = call

    @property
    def broken(self) -> str | None:
        return self.book.broken.invariant if self.book.broken else None


@pytest.fixture
def world() -> World:
    return World()


async def test_a_crash_in_a_stage_that_the_record_does_not_name_yet_is_counted_rightly(
    world: World,
) -> None:
    task = await world.start_over()
    world.call(task, "s0")  # the code of this deploy has no "prepended"
    await world.driver.crash(task)
    assert (await world.driver.load(task.id)).crashes == 1
    assert world.broken is None, world.book.broken


async def test_a_crash_that_is_counted_before_the_stage_has_begun_is_noticed(world: World) -> None:
    await world.driver.crash(await world.start_over())
    assert world.broken == "I16"


async def test_a_crash_that_is_counted_behind_a_committed_stage_is_noticed(world: World) -> None:
    task = await world.driver.start(stages=("s0", "s1"))
    world.call(task, "s0")
    world.book.invocations[f"{task.id}/1/s0", task.fence].returned = b"ok"
    await world.driver.crash(await world.driver.finish_stage(task))
    assert world.broken == "I16"


async def test_a_call_in_the_epoch_before_is_not_the_present_one(world: World) -> None:
    task = await world.driver.start(type="flow.4", stages=("s0", "s1"))
    world.call(task, "s0")
    now = world.driver.clock.now()
    again = await world.driver.commit(decide.start_over(task, "it is too old", now=now))
    await world.driver.crash(again)
    assert world.broken == "I16"
