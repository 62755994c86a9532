"""One simulated world: built from a seed, run to its end, and checked at every step."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

from holdfast.domain.errors import HoldfastError, Refused
from holdfast.domain.plan.plan import Plan
from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.task import Task
from holdfast.ports import Store
from holdfast.testing.clock import START_STEADY
from verify.simulation import endings
from verify.simulation.actors import tenant_holds
from verify.simulation.actors.actors import (
    Actor,
    Holder,
    Planner,
    SimulatedOperator,
    SimulatedSubmitter,
    Timekeeper,
    WorkerActor,
    queues_of,
    shapes_of,
)
from verify.simulation.actors.planner import Draft, draft
from verify.simulation.checks import liveness
from verify.simulation.checks.book import Broken, WorldBook
from verify.simulation.checks.ledger import InvocationLedger
from verify.simulation.checks.timeliness import Timeliness
from verify.simulation.deploys import DEPLOYS
from verify.simulation.loop import VirtualClock, VirtualLoop
from verify.simulation.profile import Profile, draw
from verify.simulation.stores.shadow import Shadow, cast_by
from verify.simulation.stores.watched_store import WatchedStore
from verify.simulation.workload import QUEUES, SHAPES, Trouble

TURNS_LIMIT = 300_000
SETTLE_SECONDS = 300.0  # in a calm world, everything has settled long before
ROUNDS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    seed: int
    digest: str
    steps: int
    turns: int
    virtual_seconds: float
    tasks: int
    counts: Counter[str]
    broken: Broken | None


def run(seed: int, tenants: str | None = None, shadow: str | None = None) -> Result:
    """Run the world of a seed; ``shadow`` names a store to compare at every step."""
    profile = draw(seed, tenants)
    if shadow not in (None, "sqlite"):
        # After a hold, Redis puts a task first into its queue: the order of claims would differ.
        profile = replace(profile, hold_every_seconds=0.0)
    world = SimulatedWorld(seed, profile)
    with _engine_watched(world), cast_by(world, shadow):
        world.run()
    return world.result()


class SimulatedWorld:
    def __init__(self, seed: int, profile: Profile) -> None:
        self.seed = seed
        self.profile = profile
        self.loop = VirtualLoop()  # type: ignore[abstract]  # no sockets, no signals
        self.book = WorldBook(self.loop.stop)
        self.clock = VirtualClock(self.loop)  # the store's
        self.reset_at = float("-inf")  # when its wall clock was set
        self.store = WatchedStore(self.clock, self.book)
        self.store.wrongly_lost = partial(liveness.wrongly_lost, self)
        self.front: Store = self.store  # the store that processes reach
        self.shadow: Shadow | None = None
        self.ledger = InvocationLedger(self.book, self.store)
        self.chance = random.Random(f"world/{seed}")
        self.rates = profile.rates
        self.trouble = Trouble(
            fails=profile.trouble,
            kills=profile.kills,
            slow=profile.slow,
            chance=random.Random(f"trouble/{seed}"),
            happened=lambda kind: self.count(f"stage {kind}"),
            is_away=self._is_away,
        )
        self.is_calm = False  # no more faults
        self.is_over = False  # no more processes
        self.down_until = 0.0
        self.to_submit = profile.submits
        self.accepted: dict[str, str] = {}
        self.favoured = self._draw_mix()
        self.workers: list[WorkerActor] = []
        self.gone: list[WorkerActor] = []
        self.others: list[Actor] = []
        self._names = count(1)
        self.to_schedule = profile.triggers
        self.trigger_names: list[str] = []
        self.drafts: list[Draft] = [
            draft(self, self.chance, number) for number in range(profile.plans)
        ]
        self._keys: list[tuple[str, str | None, str, int]] = []

    # -- the run

    def run(self) -> None:
        main = self.loop.create_task(self._main(), context=self.loop.outside.copy())
        try:
            self.loop.run(main, turns_limit=TURNS_LIMIT)
            if self.book.broken is None and main.done():
                main.result()
        except HoldfastError as error:
            self.fail("L4", f"a person's decision was refused: {error}")
        except RuntimeError as error:
            self.fail("L4", str(error))
        self._note_errors()
        broken = self.book.broken
        self.loop.close()  # errors of processes that are closed here do not count
        self.book.broken = broken

    def _is_away(self) -> bool:
        """Return whether a system that the stages need does not answer now."""
        now = self.loop.time() - START_STEADY
        return not self.is_calm and any(begin <= now < end for begin, end in self.profile.away)

    async def _main(self) -> None:
        for number in range(self.profile.workers):
            self.hire(all_queues=number == 0)
        self.others = [
            SimulatedSubmitter("s1", self),
            SimulatedOperator("o1", self),
            *self._people(),
        ]
        for actor in self.others:
            actor.launch()
        watch = asyncio.create_task(liveness.watch(self))
        fate = asyncio.create_task(self._fate())
        await asyncio.sleep(self.profile.chaos_seconds)
        fate.cancel()
        self._calm_down()
        if self.profile.hold_every_seconds:
            await self._let(lambda person: tenant_holds.TenantHand(person).release_all())
        await self._end_triggers()
        await self._until_all_rest()
        await self._until_all_settle()
        watch.cancel()
        await self._stop_all()
        self._judge_the_end()

    def _people(self) -> list[Actor]:
        people: list[Actor] = [Timekeeper("t1", self)] if self.profile.triggers else []
        if self.profile.hold_every_seconds:
            people.append(Holder("h1", self))
        return [*people, *([Planner("p1", self)] if self.profile.plans else [])]

    async def _end_triggers(self) -> None:
        if self.profile.triggers:
            await endings.wait_for_triggers(self)
            await self._let(lambda person: endings.cancel_triggers(self, person))

    async def _let(self, decide: Callable[[SimulatedOperator], Coroutine[Any, Any, None]]) -> None:
        """Let a person do something, and wait until it is done."""
        person = SimulatedOperator(f"o{next(self._names)}", self)
        done = person.start(decide(person))
        await asyncio.wait({done})
        done.result()

    def _calm_down(self) -> None:
        """Stop all faults; from now on, everything must recover by itself."""
        self.is_calm = True
        self.down_until = 0.0
        self.rates = self.rates.calm()
        self.trouble.fails = self.trouble.kills = self.trouble.slow = 0.0
        for actor in self.others:
            actor.kill()
            actor.silent = True
        for worker in self.workers:
            worker.line.rates = self.rates
            if worker.frozen:
                worker.thaw()
        self.hire(all_queues=True)

    async def _until_all_rest(self) -> None:
        """Wait until each task has settled or waits for a person (L4, first half)."""
        await self._until(
            lambda: [
                *(t for t in self.store.state.tasks.values() if self._moves(t)),
                *endings.moving_plans(self),
            ]
        )

    def _moves(self, task: Task) -> bool:
        if task.place in (Place.PARKED, Place.SETTLED):
            return False
        if task.place is Place.HELD:
            return False  # its plan lets it go
        if task.place is Place.LINE and task.tenant is not None:
            active = self.store.state.tasks.get(self.store.state.tenants[task.tenant].active or "")
            return active is None or self._moves(active)
        return True

    async def _until_all_settle(self) -> None:
        """Let a person decide until everything has settled (L4, second half)."""
        for number in range(ROUNDS):
            parked = [t for t in self.store.state.tasks.values() if t.place is Place.PARKED]
            plans = [shelf.plan for shelf in self.store.plans._state.plans.values()]
            if not parked and all(plan.settled for plan in plans):
                break
            at_last = number > endings.LAST_ROUNDS
            await self._let(partial(endings.decide_plans, self, at_last=at_last))
            await self._let(partial(self._decide_all, parked))
            await self._until_all_rest()
        await self._until(lambda: [t for t in self.store.state.tasks.values() if not t.settled])

    async def _decide_all(self, parked: list[Task], person: SimulatedOperator) -> None:
        async with person.app:
            for task in parked:
                if self.store.state.tasks.get(task.id) is not task:
                    continue  # its plan has moved it
                match task.status:
                    case Status.PAUSED:
                        commands = [Command.RESUME, Command.CANCEL, Command.ROLLBACK]
                    case Status.ROLLBACK_FAILED:
                        commands = [Command.ROLLBACK, Command.DISCARD]
                    case _:
                        commands = [Command.RETRY, Command.ROLLBACK, Command.DISCARD]
                # What belongs to a plan may be moved by it at the same time.
                with suppress(Refused) if task.plan else nullcontext():
                    await person.ask(task, self.chance.choice(commands), force=True)

    async def _until(self, left: Callable[[], Sequence[Task | Plan]]) -> None:
        ends = self.loop.time() + SETTLE_SECONDS
        while stuck := left():
            if self.loop.time() > ends:
                first = stuck[0]
                where = first.place if isinstance(first, Task) else first
                message = (
                    f"{len(stuck)} neither settle nor park: the first is {first.status} {where}"
                )
                self.fail("L4", message, first.id)
            await asyncio.sleep(0.5)

    async def _stop_all(self) -> None:
        self.is_over = True
        for worker in self.workers:
            worker.drain_asked.set()
        ends = self.loop.time() + SETTLE_SECONDS
        while self.workers:
            if self.loop.time() > ends:
                self.fail("L4", f"{self.workers[0].name} does not stop")
            await asyncio.sleep(0.5)

    def _judge_the_end(self) -> None:
        self.store.examine()
        if self.shadow is not None:
            self.shadow.judge_the_end()
        for task_id in self.accepted:
            kept = self.store.state.tasks.get(task_id) or self.book.gone.get(task_id)
            if kept is None or not kept.settled:
                self.fail("I1", "it was accepted and is lost", task_id)
        endings.judge_plans(self)
        for task_id, task in self.store.state.tasks.items():
            versions = sorted(
                {event.version for _, event in self.store.state.bodies[task_id].events}
            )
            if versions != list(range(1, task.version + 1)):
                self.fail("I15", f"version {task.version} has events of {versions}", task_id)

    # -- fate

    async def _fate(self) -> None:
        while True:
            await asyncio.sleep(self.chance.expovariate(1 / self.profile.fate_every_seconds))
            kind = self.chance.choice(self.profile.fates)
            target = self.chance.choice([*self.workers, *self.workers, *self.others])
            lease = self.profile.lease_seconds
            match kind:
                case "crash":
                    target.crash()
                case "stop" if not target.frozen:
                    self.count("fault stop")
                    self._stop_for(target, self.chance.choice((0.3, 1.0, 2.5)) * lease)
                case "hang":
                    self.count("fault hang")
                    self._hang_for(target, self.chance.choice((1.0, 2.0)) * lease)
                case "outage":
                    self.down_until = self.loop.time() + self.chance.choice((0.2, 1.0, 2.0)) * lease
                case "drain" if isinstance(target, WorkerActor):
                    target.drain_asked.set()
                case "reset":
                    self.count("fault reset")
                    self.reset_at = self.loop.time()
                    self.clock.offset_seconds += self.chance.choice((-3600, -7, 7, 20, 3600))
                case "jump":
                    self.count("fault jump")
                    target.clock.offset_seconds += self.chance.choice((-3600, -5, 5, 3600))

    def _stop_for(self, actor: Actor, seconds: float) -> None:
        actor.freeze()

        def go_on() -> None:
            if actor.alive and actor.frozen:
                actor.excuse_trouble()
                actor.thaw()

        self.loop.call_later(seconds, go_on, context=self.loop.outside)

    def _hang_for(self, actor: Actor, seconds: float) -> None:
        """Slow the actor's line alone so much that a lease may end while a renewal is under way."""
        longest = 1.5 * self.profile.lease_seconds
        actor.line.rates = replace(self.rates, slow=1.0, slow_seconds=longest)

        def recover() -> None:
            actor.line.rates = self.rates

        self.loop.call_later(seconds, recover, context=self.loop.outside)

    def is_down(self) -> bool:
        return self.loop.time() < self.down_until

    # -- processes

    def hire(self, *, all_queues: bool = False) -> None:
        shapes = SHAPES if self.is_calm else shapes_of(self.chance, self.profile.known)
        queues = QUEUES if all_queues else queues_of(self.chance)
        worker = WorkerActor(f"w{next(self._names)}", self, shapes, queues)
        self.workers.append(worker)
        worker.launch()

    def died(self, actor: Actor) -> None:
        """Remove a dead process, and start another one later under another name."""
        if isinstance(actor, WorkerActor):
            self.workers.remove(actor)
            self.gone.append(actor)
        else:
            self.others.remove(actor)
        if not self.is_over:
            wait = self.chance.random() * 5
            self.loop.call_later(wait, self._replace, actor, context=self.loop.outside)

    def _replace(self, actor: Actor) -> None:
        if self.is_over:
            return
        if isinstance(actor, WorkerActor):
            self.hire(all_queues=actor.queues == QUEUES)
        elif not self.is_calm:
            another = type(actor)(f"{actor.name[0]}{next(self._names)}", self)
            self.others.append(another)
            another.launch()

    # -- submits

    def _draw_mix(self) -> list[int]:
        """Draw the mix of task types in this world; with many tenants, most tasks are small."""
        many = self.profile.tenants > 20
        kept = [n for n, s in enumerate(SHAPES) if s.stages == 1 or self.chance.random() < 0.5]
        if not many:
            kept += [n for n in kept if SHAPES[n].stages > 1] * 2
        return kept

    def draw_deploy(self, name: str) -> int:
        """Draw the deploy whose code a process has: old ones and new ones run side by side."""
        chance = random.Random(f"deploy/{self.seed}/{name}")
        if chance.random() >= self.profile.deploys:
            return 0
        self.count("deploy")
        return chance.randrange(DEPLOYS)

    def draw_order(
        self, chance: random.Random, type_name: str
    ) -> tuple[str | None, str | None, int]:
        """Draw tenant, key and number; sometimes a used key, with the same number or another."""
        same = [known for known in self._keys if known[0] == type_name]
        if same and chance.random() < self.profile.repeats:
            _, tenant, key, number = chance.choice(same)
            self.count("key repeated")
            return tenant, key, number + (chance.random() < 0.2)
        tenant = self._draw_tenant(chance)
        number = chance.randrange(1_000_000)
        if chance.random() < 0.5:
            return tenant, None, number
        key = f"k{number}"
        self._keys.append((type_name, tenant, key, number))
        return tenant, key, number

    def _draw_tenant(self, chance: random.Random) -> str | None:
        if chance.random() < 0.1:
            return None
        tenants = self.profile.tenants
        skewed = chance.random() ** (1.0 if tenants > 20 else 1.5)
        return f"t{int(skewed * tenants)}"

    # -- small things

    def timeliness(self) -> Timeliness:
        return Timeliness(self)

    def next_number(self) -> int:
        return next(self._names)

    def count(self, name: str) -> None:
        self.book.counts[name] += 1

    def fail(self, invariant: str, message: str, task_id: str | None = None) -> None:
        self.book.fail(invariant, message, self.store.now, task_id)

    def _note_errors(self) -> None:
        if self.loop.errors:
            self.fail("E1", f"the engine let an error escape: {self.loop.errors[0]}")

    def result(self) -> Result:
        return Result(
            seed=self.seed,
            digest=self.book.trace.hexdigest(),
            steps=self.book.steps,
            turns=self.loop.turns,
            virtual_seconds=self.loop.time() - START_STEADY,
            tasks=len(self.book.digests),
            counts=self.book.counts,
            broken=self.book.broken,
        )


class _Engine(logging.Handler):
    """Reports a log record with an exception: the engine logs one only for its own failures."""

    def __init__(self, world: SimulatedWorld) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self._world.fail("E1", f"{record.getMessage()}: {record.exc_info[1]!r}")


@contextmanager
def _engine_watched(world: SimulatedWorld) -> Iterator[None]:
    log = logging.getLogger("holdfast")
    handler, level, propagate = _Engine(world), log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.ERROR)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = propagate
