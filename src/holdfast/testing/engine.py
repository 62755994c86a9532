"""The real engine, in memory, on a clock that a test moves.

app = Holdfast()                                        # the user's own, at module level

async def test_an_upgrade_survives_a_crash(holdfast_engine):
    engine = holdfast_engine(app)
    engine.crash_at("migrate", when="after")            # done, and the worker dies
    handle = await upgrade.submit(Upgrade(7), tenant="t-001")
    await engine.drain()                                # another worker takes over
    assert await handle.result() == "at 7"

async def test_a_failed_mail_is_sent_again_after_a_minute(holdfast_engine):
    engine = holdfast_engine(app)
    handle = await send.submit("to@example.org")        # the first attempt fails
    await engine.drain()
    assert (await handle.info()).status == "RETRYING"
    await engine.advance("5m")                          # what falls due on the way runs
    assert await handle.result() == "sent"

Waiting for a result runs the engine, too. The clock does not move meanwhile: when only time would
help, StillBusy says how far to advance.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TypeVar

from holdfast.domain.durations import seconds
from holdfast.domain.errors import InvalidInput
from holdfast.domain.plan.plan import Plan
from holdfast.domain.plan.rollout import DRIVEN, soaks_seconds
from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import Task
from holdfast.engine import Holdfast
from holdfast.ports import Beat, Due, Filter, Peek, Renewal, Store
from holdfast.ports.wrapped_store import WrappedStore
from holdfast.runtime.waiters import LoadPlan, Waiters
from holdfast.runtime.worker.worker import Worker
from holdfast.stores.memory import MemoryStore
from holdfast.testing.clock import ManualClock, give_way
from holdfast.testing.crash import Crash, CrashingTasks, When

T = TypeVar("T")

TURNS = 50  # turns of the event loop, enough for several stages on the memory store
ROUNDS_LIMIT = 1_000
POLL_SECONDS = 0.001
THREAD_POLLS = 1_000  # polls given to a plain function before the clock goes on, a second at least
TICK_SECONDS = 0.5
QUIET_TICKS = 12  # longer than a driver of plans waits between two polls
PATIENCE_SECONDS = 2.0  # how long a wait lasts while nothing goes on
BUSY_SECONDS = 60.0  # how long a wait lasts while something goes on
SWEEP = 500
BUSY = (Place.READY, Place.LEASED)
MOVING = (Status.PENDING, Status.RUNNING, Status.ROLLING_BACK)


class StillBusy(AssertionError):
    """The engine did not come to rest."""


class Engine:
    """An app on a store in memory, with a worker of its own and a clock that stands still.

    A store of your own must take its time from ``clock``. Nothing runs before the first `start`,
    `drain`, `advance` or wait for a result; then one worker runs on the test's event loop. A wait
    for a result that cannot come by itself ends with StillBusy after ``patience`` real seconds.
    With ``patience=None`` a wait runs nothing, and lasts as long as in production.
    """

    def __init__(
        self,
        app: Holdfast,
        *,
        store: Store | None = None,
        clock: ManualClock | None = None,
        seed: int = 0,
        slots: int | None = None,
        patience: float | None = PATIENCE_SECONDS,
    ) -> None:
        self.app = app
        self.clock = clock or ManualClock()
        self.chance = random.Random(seed)
        inner = store or MemoryStore(self.clock)
        self.crashing = CrashingTasks(inner.tasks, self._kill)
        self.store = WrappedStore(inner, tasks=self.crashing)
        self.worker: Worker | None = None
        self.deaths = 0
        self._noted: tuple[Beat, list[Renewal]] | None = None
        self._slots = slots
        self._buried = 0
        self._given_time: set[str] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._drivers = 0  # calls of drain and advance under way
        self._patience = PATIENCE_SECONDS if patience is None else patience
        self._opened = ExitStack()
        self._opened.enter_context(
            app.on(
                self.store,
                clock=self.clock,
                chance=self.chance,
                waiters=Waiters if patience is None else partial(EngineWaiters, engine=self),
            )
        )

    def crash_at(
        self, stage: str, *, when: When = "after", undo: bool = False, times: int = 1
    ) -> None:
        """Let the worker die at this boundary of the stage (or of its undo), ``times`` times.

        ``before``: the function has not been called. ``after``: it has returned, and nothing is
        written. ``commit``: its end is written, and the worker has not heard of it.
        """
        declared = [self.app.registry.find(name) for name in self.app.registry.runnable_types()]
        if not any(kind is not None and kind.stage(stage) for kind in declared):
            raise InvalidInput(f"no task has a stage named {stage!r}")
        self.crashing.crashes.append(Crash(stage=stage, when=when, undo=undo, times=times))

    async def start(self) -> Worker:
        """Start a worker if none is alive, and return the one that is."""
        if self.worker is None:
            self._loop = asyncio.get_running_loop()
            queues = self._queues()
            worker = self.app.worker(slots=self._slots, queues=queues, heartbeat_thread=False)
            self.worker = worker
            await worker.start()
        return self.worker

    async def drain(self, *, timeout: float = 60.0) -> None:
        """Run until nothing is ready or running. What is due later stays, until the clock moves.

        ``timeout`` is in real seconds; after it StillBusy says what is still running.
        """
        give_up_at = time.monotonic() + timeout
        with self._driving():
            await self._promote()
            await self._take_over()
            await give_way(TURNS)
            while await self._busy() or (self.worker is not None and self.worker.running):
                await self._take_over()
                await asyncio.sleep(POLL_SECONDS)
                if time.monotonic() > give_up_at:
                    raise StillBusy(await self._describe(timeout))
            await give_way(TURNS)

    async def advance(self, by: float | str) -> None:
        """Move the clock; whatever falls due on the way runs at its own moment."""
        end = self.clock.steady() + seconds(by)
        with self._driving():
            await self._take_over()
            await self._settle()
            while (left := end - self.clock.steady()) > 0:
                await self._settle_plans(end)
                left = end - self.clock.steady()
                waits = (
                    await self._run_due(),
                    await self._until_trigger(left),
                    await self._until_wave(left),
                )
                next_seconds = min((wait for wait in waits if wait is not None), default=None)
                if self.deaths > self._buried:
                    await self._take_over()
                    continue
                if self.worker is not None and self.worker.running:
                    await self.clock.elapse(min(left, TICK_SECONDS))
                else:
                    step = left if next_seconds is None else min(left, max(next_seconds, 1e-6))
                    self.clock.advance(step)
                await self._take_over()
                await self._settle()
            await self._run_due()

    async def run_while(self, awaited: Awaitable[T], reason: Callable[[], Awaitable[str]]) -> T:
        """Run until the awaited value is there. The clock stands still: when nothing goes on and
        nobody moves the clock, StillBusy gives the reason."""
        waiting = asyncio.ensure_future(awaited)
        give_up_at = time.monotonic() + BUSY_SECONDS
        idle_polls, patient_polls = 0, max(1, round(self._patience / POLL_SECONDS))
        try:
            while not waiting.done():
                if not self._drivers:
                    await self._promote()
                    await self._take_over()
                await asyncio.wait([waiting], timeout=POLL_SECONDS)
                busy = self._drivers or await self._busy()
                idle_polls = 0 if busy else idle_polls + 1
                if idle_polls > patient_polls or time.monotonic() > give_up_at:
                    raise StillBusy(await reason())
            return waiting.result()
        finally:
            waiting.cancel()

    def close(self) -> None:
        """Abandon the worker and leave the app as it was."""
        if self._loop is not None and not self._loop.is_closed():
            self.crashing.bury()
            if self.worker is not None:
                self.worker.abandon()
        self.worker = None
        self._opened.close()

    # -- dead workers

    def _kill(self, name: str) -> None:
        if self.worker is not None and self.worker.name == name:
            self._noted = self.worker.last_report()
            self.worker.abandon()
            self.worker = None
            self.deaths += 1

    async def _take_over(self) -> None:
        """Keep a worker alive; the tasks of a dead one are free when their leases have lapsed."""
        if self.deaths > self._buried:
            self._buried = self.deaths
            await self._note_begun()
            await self.clock.elapse(self.app.settings.lease + TICK_SECONDS)
            await self.store.tasks.expire(limit=SWEEP, count_crashes=True)
        await self.start()

    async def _note_begun(self) -> None:
        """Renew once for a dead worker, so that the store knows which stages had begun."""
        beat, renewals = self._noted or (None, ())
        if beat is not None and renewals:
            await self.store.tasks.renew(beat, renewals, lease_seconds=self.app.settings.lease)
            await self.store.tasks.leave(beat.worker)

    def _queues(self) -> tuple[str, ...]:
        types = map(self.app.registry.find, self.app.registry.runnable_types())
        declared = (kind.queue for kind in types if kind is not None)
        return tuple(dict.fromkeys((*self.app.settings.queue_names, *declared)))

    # -- rest

    async def _run_due(self) -> float | None:
        """Run what is due and what that makes due; return how long until the next task is."""
        for _ in range(ROUNDS_LIMIT):
            due = await self._promote()
            await self._settle()
            if not due.count:
                return due.next_seconds
        raise StillBusy("tasks fell due on and on while the clock stood still")

    async def _promote(self) -> Due:
        """Make ready every task that is due."""
        count = 0
        while True:
            due = await self.store.tasks.promote(limit=SWEEP)
            count += due.count
            if due.count < SWEEP:
                return Due(count=count, next_seconds=due.next_seconds)

    async def _until_trigger(self, within: float) -> float | None:
        """Return how long until a trigger fires; one that is due and does not fire waits for
        something else than time."""
        now = self.clock.now()
        page = await self.store.triggers.find_all(due_by=now + within, limit=1)
        times = [t.trigger_at for t in page.triggers if t.trigger_at is not None]
        return next((at - now if at > now else TICK_SECONDS for at in times), None)

    async def _until_wave(self, within: float) -> float | None:
        """Return how long until a plan has soaked; one that has soaked and does not go on waits
        for something else than time."""
        now = self.clock.now()
        soaks = [soaks_seconds(plan, now) for plan in await self._plans()]
        return min((left for left in soaks if 0 < left <= within), default=None)

    async def _settle_plans(self, end: float) -> None:
        """Run until the drivers of plans, who live by the clock, find nothing more to do."""
        before, quiet_ticks = None, 0
        while quiet_ticks < QUIET_TICKS and (left := end - self.clock.steady()) > 0:
            plans = await self._plans()
            if all(plan.lease is None for plan in plans):
                return
            await self.clock.elapse(min(left, TICK_SECONDS))
            await self._take_over()
            await self._run_due()
            now = ([plan.version for plan in plans], (await self.store.views.stats()).moves)
            quiet_ticks = quiet_ticks + 1 if now == before else 0
            before = now

    async def _plans(self) -> list[Plan]:
        """Return the plans that have a driver or need one later."""
        plans, cursor = list[Plan](), None
        for _ in range(ROUNDS_LIMIT):
            page = await self.store.plans.find(statuses=tuple(DRIVEN), limit=SWEEP, cursor=cursor)
            plans += page.plans
            if (cursor := page.cursor) is None:
                break
        return plans

    @contextmanager
    def _driving(self) -> Iterator[None]:
        self._drivers += 1
        try:
            yield
        finally:
            self._drivers -= 1

    async def _busy(self) -> bool:
        places = (await self.store.views.stats()).by_queue
        return any(places[q].get(p, 0) for q in self._queues() if q in places for p in BUSY)

    async def _settle(self) -> None:
        """Run until nothing moves any more, though stages may still wait for something."""
        before = None
        for _ in range(ROUNDS_LIMIT):
            await give_way(TURNS)
            await self._await_threads()
            stats = await self.store.views.stats()
            now = (stats.by_queue, stats.moves)
            if now == before:
                return
            before = now
        raise StillBusy("tasks went on and on while the clock stood still")

    async def _await_threads(self) -> None:
        """Give plain functions, which run in real time, a little of it before the clock goes on.

        The time is counted in polls: a process that stood still has given its threads nothing.
        """
        for _ in range(THREAD_POLLS):
            if not self._fresh_threads():
                return
            await asyncio.sleep(POLL_SECONDS)
            await give_way(TURNS)
        self._given_time |= self._fresh_threads()

    def _fresh_threads(self) -> frozenset[str]:
        return frozenset() if self.worker is None else self.worker.in_threads - self._given_time

    async def _describe(self, timeout: float) -> str:
        page = await self.store.views.find(Filter(statuses=MOVING), limit=10)
        lines = [
            f"  {task.type} {task.id}: {task.status}, {task.place}, at stage {task.at_stage}"
            for task in page.tasks
            if task.place in BUSY
        ]
        return "\n".join((f"not at rest after {timeout:g} s:", *lines))


class EngineWaiters(Waiters):
    """Waiters for results in a test run the engine, and never wait for ever."""

    def __init__(self, store: Store, *, engine: Engine) -> None:
        super().__init__(store)
        self._engine = engine

    async def wait_until_stopped(self, task_id: str) -> Peek:
        return await self._engine.run_while(
            super().wait_until_stopped(task_id), partial(self._task_reason, task_id)
        )

    async def wait_for_plan(self, plan_id: str, load: LoadPlan[T]) -> T:
        return await self._engine.run_while(
            super().wait_for_plan(plan_id, load), partial(self._plan_reason, plan_id)
        )

    async def _task_reason(self, task_id: str) -> str:
        detail = await self._store.views.detail(task_id)
        if detail is None:
            return f"task {task_id} is not there any more"
        task = detail.task
        if task.place is Place.HELD and task.plan is not None:
            return f"task {task_id} waits for its plan; {await self._plan_reason(task.plan)}"
        return f"task {task_id} ({task.type}) is {task.status}: {self._task_advice(task)}"

    def _task_advice(self, task: Task) -> str:
        if task.place is Place.LATER and task.due is not None:
            left = max(0.0, task.due - self._engine.clock.times()[0])
            return f"it is due later, so call `await engine.advance({left:g})`"
        if task.place is Place.LEASED:
            return f"its stage {task.at_stage} has not returned"
        if task.status is Status.PAUSED:
            return "it is paused, so call `await handle.resume()`"
        return f"nothing runs it; `await engine.app.why({task.id!r})` says what it waits for"

    async def _plan_reason(self, plan_id: str) -> str:
        [plan] = await self._store.plans.load([plan_id])
        if plan is None:
            return f"plan {plan_id} is not there any more"
        if left := soaks_seconds(plan, self._engine.clock.now()):
            return f"plan {plan_id} soaks, so call `await engine.advance({left:g})`"
        return (
            f"plan {plan_id} is {plan.status}, and plans are driven by the clock, "
            "so call `await engine.advance('1m')`"
        )
