"""The checks of the simulated worlds accept what the engine may do, and notice what it must not."""

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.domain.task import decide
from holdfast.domain.task.state import Command
from holdfast.domain.task.task import Task
from holdfast.domain.trigger import firing
from holdfast.domain.trigger.schedule import Once
from holdfast.domain.trigger.trigger import TriggerChange, TriggerStatus
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.store_driver import StoreDriver
from holdfast.testing.contract.drivers.trigger_driver import TriggerDriver
from verify.simulation.actors.tenant_holds import FOR_A_HOLD
from verify.simulation.checks import liveness
from verify.simulation.checks.book import Hold, Invocation, WorldBook
from verify.simulation.loop import Process, VirtualLoop
from verify.simulation.stores.watched_store import WatchedStore


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

    async def finish_stage(self, task: Task) -> Task:
        self.call(task, task.at_stage or "", returned=b"ok")
        return await self.driver.finish_stage(task)

    async def give_back_for_hold(self, task: Task, **changes: object) -> None:
        now = self.driver.clock.now()
        given_back = decide.give_back(task, FOR_A_HOLD, now=now, interrupted=False)
        await self.driver.commit(replace(given_back, **changes))

    def call(self, task: Task, stage: str, *, returned: bytes | None = None) -> None:
        """Note a call of a stage in the ledger."""
        call = Invocation(
            process=self.process,
            task_id=task.id,
            key=f"{task.id}/{task.epoch}/{stage}",
            stage=stage,
            fence=task.fence,
            undo=False,
            began_at=self.store.now,
            returned=returned,
        )
        self.book.invocations[call.key, call.fence] = self.book.holders[call.fence] = call

    @property
    def broken(self) -> str | None:
        return self.book.broken.invariant if self.book.broken else None


@pytest.fixture
def world() -> World:
    return World()


# -- crashes


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
    await world.driver.crash(await world.finish_stage(task))
    assert world.broken == "I16"


async def test_a_call_in_the_epoch_before_is_not_the_present_one(world: World) -> None:
    task = await world.driver.start(type="flow.4", stages=("s0", "s1"))
    world.call(task, "s0")
    now = world.driver.clock.now()
    again = await world.driver.commit(decide.start_over(task, "it is too old", now=now))
    await world.driver.crash(again)
    assert world.broken == "I16"


# -- held tenants


async def test_a_rollback_of_a_completed_task_has_no_checkpoint_to_lose(world: World) -> None:
    task = await world.driver.start(tenant="t0", stages=("s0", "s1"))
    for _ in task.stages:
        task = await world.finish_stage(task)
    await world.driver.ask(Command.ROLLBACK, task)
    await world.give_back_for_hold(await world.driver.take())
    assert world.book.counts["given back for a hold"] == 1
    assert world.broken is None, world.book.broken


async def test_a_task_that_loses_its_checkpoint_when_it_is_given_back_is_noticed(
    world: World,
) -> None:
    task = await world.driver.start(tenant="t0", stages=("s0", "s1"))
    await world.give_back_for_hold(await world.finish_stage(task), drop_checkpoint=True)
    assert world.broken == "H3"


# -- liveness


@dataclass
class HealthyWorker:
    """A worker that had no trouble, as the checks of liveness see it."""

    clock: ManualClock
    running: int = 0
    suspect: object = None
    queues: tuple[str, ...] = ("default",)
    frozen: bool = False
    trouble_until: float = float("-inf")
    born_at: float = float("-inf")
    full_at: float = float("-inf")
    drain_asked: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def worker(self) -> Any:
        stages = SimpleNamespace(suspect=self.suspect)
        return SimpleNamespace(running=self.running, _stages=stages, _services=[])


class LiveWorld:
    """A world with one healthy worker, in which time passes by hand."""

    def __init__(self) -> None:
        self.world, clock = World(), ManualClock()
        clock.offset_seconds = 0.0  # type: ignore[attr-defined]
        self.store, self.book, self.clock = self.world.store, self.world.book, clock
        self.loop = SimpleNamespace(time=lambda: self.store.steady)
        self.profile = SimpleNamespace(slots=4)
        self.worker = HealthyWorker(clock)
        self.workers, self.reset_at = [self.worker], float("-inf")

    def is_down(self) -> bool:
        return False


@pytest.fixture
def live() -> Any:
    return LiveWorld()


@pytest.mark.parametrize("hinders", [{}, {"running": 4}, {"suspect": object()}])
async def test_a_ready_task_waits_only_for_a_worker_that_is_full_or_runs_a_suspect(
    live: Any, hinders: dict[str, Any]
) -> None:
    task = await live.world.driver.submit()
    ready_since = {task.id: live.loop.time()}
    live.world.driver.clock.advance(liveness.CLAIM_SECONDS + 1.0)
    for name, value in hinders.items():
        setattr(live.worker, name, value)
    liveness._excuse_workers(live)
    breaches = [invariant for invariant, _ in liveness._check_task(live, task, ready_since)]
    assert breaches == ([] if hinders else ["L3"])


@pytest.mark.parametrize("kept_seconds", [0.0, liveness.HOLD_SECONDS + 1.0])
async def test_a_hold_that_is_over_when_it_arrives_is_removed_at_the_next_look(
    live: Any, kept_seconds: float
) -> None:
    until = live.store.wall - 60.0
    live.book.holds["t0"] = Hold(since_steady=live.store.steady, until=until)
    live.world.driver.clock.advance(kept_seconds)
    breaches = [invariant for invariant, _ in liveness._check_holds(live)]
    assert breaches == (["H4"] if kept_seconds else [])


# -- triggers


async def test_a_trigger_under_the_id_of_a_deleted_one_may_repeat_its_requests(
    world: World,
) -> None:
    triggers = TriggerDriver(world.store, world.driver.clock, world.driver)

    async def create_and_end() -> None:
        once = Once(at=world.store.wall)
        trigger = triggers.build("tick", due_in=0.0, schedule=once, keep_seconds=30.0)
        created = TriggerChange(before=trigger, after=replace(trigger, version=1, request="first"))
        await triggers.commit(created)
        leased = await triggers.take_one()
        submission = triggers.submission(leased, key=firing.key(leased, leased.fire_time or 0.0))
        change = triggers.change(
            leased,
            submission,
            status=TriggerStatus.COMPLETED,
            fire_time=None,
            trigger_at=None,
            ended_at=world.store.wall,
            request=f"s-1:{leased.version}",
        )
        await triggers.commit(change)

    await create_and_end()
    world.driver.clock.advance(60.0)
    assert await triggers.prune() == 1
    await create_and_end()
    assert world.broken is None, world.book.broken
