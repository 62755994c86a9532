"""The watched store of the simulated worlds knows what may follow from a write, and what not."""

import pytest
from msgspec.structs import replace

from holdfast.domain.task.state import Command
from holdfast.domain.task.transition import Submission
from holdfast.stores.memory.state import MemoryState
from holdfast.stores.memory.tasks import MemoryTasks
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.plan_driver import PlanStoreDriver
from holdfast.testing.contract.drivers.store_driver import StoreDriver
from holdfast.testing.contract.plans.follow_up_tasks import is_paused
from holdfast.testing.contract.plans.follow_up_tasks import with_follower as with_plan_follower
from holdfast.testing.contract.tasks.follow_up_tasks import is_cancelled, with_follower
from verify.simulation.checks.book import WorldBook
from verify.simulation.stores.watched_store import WatchedStore


class World:
    def __init__(self) -> None:
        self.book, clock = WorldBook(stop=lambda: None), ManualClock()
        self.store = WatchedStore(clock, self.book)
        self.driver, self.plans = StoreDriver(self.store, clock), PlanStoreDriver(self.store, clock)

    @property
    def broken(self) -> str | None:
        return self.book.broken.invariant if self.book.broken else None


@pytest.fixture
def world() -> World:
    return World()


async def test_what_follows_from_a_task_breaks_nothing(world: World) -> None:
    transition = with_follower(world.driver, await is_cancelled(world.driver))
    await world.driver.commit(transition)
    await world.driver.commit(transition)
    task = await world.driver.load(transition.follows[0].task.id)
    second = world.driver.follower(task, "second")
    await world.driver.commit(
        replace(world.driver.request(Command.CANCEL, task), follows=(second,))
    )
    assert world.broken is None


async def test_what_follows_from_a_plan_breaks_nothing(world: World) -> None:
    change = with_plan_follower(world.driver, await is_paused(world.plans))
    await world.plans.commit(change)
    await world.plans.commit(change)
    await world.driver.submit()
    assert world.broken is None


@pytest.mark.parametrize("of", ["task", "plan"])
async def test_a_follower_that_is_nowhere_is_noticed(
    world: World, monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    monkeypatch.setattr(MemoryState, "follow", lambda *_: None)
    if of == "task":
        await world.driver.commit(with_follower(world.driver, await is_cancelled(world.driver)))
    else:
        await world.plans.commit(with_plan_follower(world.driver, await is_paused(world.plans)))
    assert world.broken == "I1"


async def test_a_follower_of_a_write_that_was_refused_is_noticed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    transition = with_follower(world.driver, await is_cancelled(world.driver))
    await world.driver.ask(Command.PAUSE, transition.before)
    real = MemoryTasks._apply

    def sloppy(tasks: MemoryTasks, one: object) -> object:
        tasks._state.follow(transition.follows)
        return real(tasks, one)  # type: ignore[arg-type]

    monkeypatch.setattr(MemoryTasks, "_apply", sloppy)
    await world.driver.apply(transition)
    assert world.broken == "I9"


async def test_a_follower_that_is_made_again_is_noticed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    transition = with_follower(world.driver, await is_cancelled(world.driver))
    await world.driver.commit(transition)
    real = MemoryTasks._apply

    def sloppy(tasks: MemoryTasks, one: object) -> object:
        tasks._state.follow(again.follows)
        return real(tasks, one)  # type: ignore[arg-type]

    other: Submission = world.driver.follower(transition.after, "other")
    again = replace(transition, follows=(other,))
    monkeypatch.setattr(MemoryTasks, "_apply", sloppy)
    await world.driver.apply(again)
    assert world.broken == "I9"
