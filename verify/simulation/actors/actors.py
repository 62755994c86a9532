"""The simulated processes: workers, those who submit, and a person who meddles."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from holdfast import Holdfast
from holdfast.domain.errors import (
    HoldfastError,
    Refused,
    ResultTimeout,
    StoreError,
    TaskEnded,
    TaskNotFound,
)
from holdfast.domain.task.state import Command, Status, legal
from holdfast.domain.task.task import Task
from holdfast.engine.declare import Submittable
from holdfast.engine.handle import Handle
from holdfast.ports import Filter
from holdfast.runtime.deadlines import sleep
from holdfast.runtime.environment import WorkerEnvironment
from holdfast.runtime.store_outages import StoreOutages
from holdfast.runtime.worker.running_tasks import RunningStages
from holdfast.runtime.worker.worker import Worker
from holdfast.runtime.worker_options import Rules, WorkerOptions
from verify.faults import Fault, FaultyConnection, faulty_store
from verify.simulation.actors import planner, tenant_holds, trigger_actors
from verify.simulation.loop import Process
from verify.simulation.stores.watched_tasks import GRACE_SECONDS
from verify.simulation.workload import (
    QUEUES,
    SHAPES,
    Code,
    Effect,
    Shape,
    SimulatedThreads,
    WorkNumber,
)

if TYPE_CHECKING:
    from verify.simulation.world import SimulatedWorld

SUBMIT_TRIES = 6
QUIET_SECONDS = 0.4  # a call that takes longer is trouble


class Actor(Process, ABC):
    """A process with an app on its own bad line to the one store."""

    def __init__(
        self, name: str, world: SimulatedWorld, shapes: tuple[Shape, ...] = SHAPES
    ) -> None:
        super().__init__(name, world.loop)
        self.world = world
        self.silent = False  # what it has sent and is still on its way never arrives
        self.chance = random.Random(f"{world.seed}/{name}")
        self.line = FaultyConnection(
            world.front,
            self.clock,
            random.Random(f"{world.seed}/{name}/line"),
            outside=self._outside,
            crash=self.crash,
            note_fault=self._note_fault,
        )
        self.line.rates = world.rates
        self.line.is_down = world.is_down
        self.app = Holdfast(
            store=faulty_store(self.line),
            clock=self.clock,
            chance=self.chance,
            lease=world.profile.lease_seconds,
            queue_limit=world.profile.queue_limit,
            keep="30d",
            stage_timeout=9000,
            payload_limit=1024 * 1024,
        )
        code = Code(
            self,
            world.ledger,
            world.trouble,
            self.crash,
            deploy=world.draw_deploy(name),
            max_age_seconds=world.profile.checkpoint_ttl_seconds,
        )
        self.types: list[Submittable[WorkNumber, Effect]] = [
            code.declare(self.app, shape) for shape in shapes
        ]

    def launch(self) -> None:
        self.start(self.main())

    @abstractmethod
    def main(self) -> Coroutine[Any, Any, None]: ...

    def crash(self) -> None:
        if self.alive and not self.world.is_calm:
            self.kill()
            self.world.count("fault crash")
            self.world.died(self)

    def excuse_trouble(self, seconds: float = 0.0) -> None:
        """Excuse everything that the process does late or wrong from now until then."""
        self.trouble_until = max(self.trouble_until, self.loop.time() + seconds)

    def _note_fault(self, verb: str, fault: Fault) -> None:
        comes_later = fault in (Fault.LATE, Fault.TWICE)  # perhaps when its sender has left
        self.excuse_trouble(2 * self.line.rates.give_up_seconds if comes_later else 0.0)
        self.world.count(f"fault {fault}")
        self.world.count(f"{fault} of {verb}")

    def _outside(self, seconds: float, call: Any) -> None:
        if seconds > QUIET_SECONDS:
            self.excuse_trouble(seconds)
        self.loop.call_later(seconds, self._carry_out, call, context=self.loop.outside)

    def _carry_out(self, call: Any) -> None:
        store = self.world.store
        if self.silent:
            return
        store.caller = self.name
        excuse = 2 * self.world.profile.lease_seconds + 1
        store.excused = self.loop.time() - self.trouble_until < excuse
        call()


class WorkerActor(Actor):
    def __init__(
        self, name: str, world: SimulatedWorld, shapes: tuple[Shape, ...], queues: tuple[str, ...]
    ) -> None:
        super().__init__(name, world, shapes)
        if world.profile.triggers:
            trigger_actors.declare_triggers(self.types, world)
        self.queues = queues
        self.worker: Worker | None = None
        self.full_at = world.loop.time()
        self.born_at = world.loop.time()
        self.drain_asked = asyncio.Event()
        self.drained = False

    async def main(self) -> None:
        profile = self.world.profile
        env = WorkerEnvironment(
            worker=self.name,
            store=faulty_store(self.line),
            registry=self.app.registry,
            clock=self.clock,
            chance=self.chance,
            outages=StoreOutages(self.clock),
            options=WorkerOptions(
                slots=profile.slots,
                queues=self.queues,
                lease_seconds=profile.lease_seconds,
                drain_seconds=profile.drain_seconds,
                queue_limit=profile.queue_limit,
                heartbeat_thread=False,
                rules=Rules(
                    checkpoint_ttl_seconds=profile.checkpoint_ttl_seconds,
                    stage_grace_seconds=GRACE_SECONDS,
                    unknown_type_seconds=profile.unknown_type_seconds,
                    outage_seconds=profile.outage_seconds,
                    hand_back_seconds=2.0,
                ),
            ),
        )
        self.worker = Worker(
            env,
            threads=SimulatedThreads(self, self.chance, lambda: self.world.is_calm),
            on_zombie=lambda held: self.zombie(held.task_id),
            stages=RunningStages(),
        )
        await self.worker.start()
        await self.drain_asked.wait()
        self.world.count("fault drain")
        if await self.worker.drain():
            await self._give_back_rest(self.worker)
        self.drained = True
        self.kill()
        self.world.died(self)

    async def _give_back_rest(self, worker: Worker) -> None:
        for _ in range(3):
            try:
                await worker.give_back_all()
            except StoreError:
                continue
            return

    def zombie(self, task_id: str) -> None:
        """End the process: it lost the lease of a plain function that still runs."""
        self.world.count("zombie thread")
        self.world.book.note(self.world.store.now, f"{self.name} is a zombie for {task_id}")
        if self.alive:
            self.kill()
            self.world.died(self)


class SimulatedSubmitter(Actor):
    async def main(self) -> None:
        world, pace = self.world, self.world.profile.submit_seconds / self.world.profile.submits
        async with self.app:
            while world.to_submit > 0:
                world.to_submit -= 1
                await sleep(self.clock, self.chance.expovariate(1 / pace))
                self.loop.create_task(self._submit())
            await asyncio.Event().wait()

    async def _submit(self) -> None:
        world = self.world
        task_type = self.types[self.chance.choice(world.favoured)]
        tenant, key, number = world.draw_order(self.chance, task_type.name)
        for _ in range(SUBMIT_TRIES):
            try:
                handle = await task_type.submit(WorkNumber(number), tenant=tenant, key=key)
            except StoreError:
                await sleep(self.clock, self.chance.random())
            except Refused as refused:
                world.count(f"refused {refused.code}")
                return
            else:
                world.accepted[handle.id] = task_type.name
                await self._wait(handle)
                return

    async def _wait(self, handle: Handle[Effect]) -> None:
        world = self.world
        try:
            made = await handle.result(timeout=self.chance.uniform(1, 60))
        except TaskNotFound:
            world.fail("I1", "a task that was accepted is not found", handle.id)
        except (TaskEnded, ResultTimeout, StoreError) as error:
            world.count(f"result {type(error).__name__}")
        else:
            world.count("result Made")
            if not made.by.startswith(f"{handle.id}/"):
                world.fail("I11", f"its result is {made}", handle.id)


class SimulatedOperator(Actor):
    async def main(self) -> None:
        async with self.app:
            while True:
                pause = self.chance.expovariate(1 / self.world.profile.operator_every_seconds)
                await sleep(self.clock, pause)
                try:
                    await self._meddle()
                except StoreError:
                    continue
                except HoldfastError as refused:
                    self.world.count(f"refused {refused.code}")

    async def _meddle(self) -> None:
        statuses = self.chance.choice(
            (
                (),
                (Status.RUNNING,),
                (Status.PENDING, Status.RUNNING, Status.RETRYING),
                (Status.FAILED, Status.PAUSED, Status.ROLLBACK_FAILED),
                (Status.COMPLETED, Status.CANCELLED, Status.ROLLED_BACK),
            )
        )
        page = await self.app.store.views.find(Filter(statuses=statuses), limit=30)
        if not page.tasks:
            return
        running = [task for task in page.tasks if task.workflow and task.lease is not None]
        if running and self.chance.random() < 0.4:
            await self._waver(self.chance.choice(running))
            return
        task = self.chance.choice(page.tasks)
        commands = legal(task.status) if self.chance.random() < 0.9 else tuple(Command)[:7]
        if commands:
            await self.ask(task, self.chance.choice(commands))

    async def _waver(self, task: Task) -> None:
        """Pause it, no, go on, no, pause it."""
        for _ in range(6):
            for command in (Command.PAUSE, Command.RESUME):
                await sleep(self.clock, self.chance.random() * 0.1)
                with suppress(Refused):
                    await self.ask(task, command)

    async def ask(self, task: Task, command: Command, *, force: bool | None = None) -> None:
        control, world = self.app.control, self.world
        forced = self.chance.random() < 0.3 if force is None else force
        world.count(f"asked {command}")
        match command:
            case Command.PAUSE:
                await control.pause(task.id, reason="wait a moment")
            case Command.RESUME:
                await control.resume(task.id, force=forced)
            case Command.CANCEL:
                await control.cancel(task.id, reason="not needed")
            case Command.RETRY:
                from_checkpoint = self.chance.random() < 0.7
                await control.retry(task.id, from_checkpoint=from_checkpoint, force=forced)
            case Command.ROLLBACK:
                await control.rollback(task.id, reason="undo it", force=forced)
            case Command.DISCARD:
                await control.discard(task.id, reason="give it up")
            case _:
                await control.release(task.id)


class Timekeeper(Actor):
    async def main(self) -> None:
        await trigger_actors.TriggerHand(self).main()


class Planner(Actor):
    async def main(self) -> None:
        await planner.PlanHand(self).main()


class Holder(Actor):
    async def main(self) -> None:
        await tenant_holds.TenantHand(self).main()


def queues_of(chance: random.Random) -> tuple[str, ...]:
    return QUEUES if chance.random() < 0.7 else (chance.choice(QUEUES),)


def shapes_of(chance: random.Random, known: float) -> tuple[Shape, ...]:
    """A rolling deploy: some workers do not know the newest types yet."""
    if chance.random() < known:
        return SHAPES
    return tuple(shape for shape in SHAPES if not shape.rare)
