"""The cost of triggers: `python -m bench.questions.triggers`.

Two stores have a hundred due triggers each; in one 1 000 others wait for a time far ahead, in the
other 1 000 000. Both are asked for what is due, in turn, without and with a lease. In each of
several rounds the best of a few turns counts, so that both bear alike what else the machine does.
Then a scheduler alone fires 10 000 triggers, and one with nothing to fire is left for an hour.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import msgspec

from bench.harness import many_triggers
from bench.harness.bench import Bench, Case, CaseResult
from bench.harness.command import ask_alone
from bench.harness.load import open_batch_worker
from bench.harness.loop import run
from bench.harness.plan import Part
from bench.harness.processes import CaseFailed
from bench.harness.trial_stores import TrialStore
from bench.report.figures import OURS, Who
from holdfast import Context, Holdfast
from holdfast.domain.trigger.trigger import Trigger
from holdfast.ports import Clock, Store
from holdfast.ports.trigger_shortcuts import TriggerShortcuts
from holdfast.runtime.environment import WorkerEnvironment
from holdfast.runtime.schedule.declared_sync import DeclaredTriggers
from holdfast.runtime.schedule.scheduler import Scheduler
from holdfast.runtime.store_outages import StoreOutages
from holdfast.runtime.worker_options import Rules, WorkerOptions
from holdfast.stores.memory import MemoryStore
from holdfast.testing.clock import ManualClock
from verify.interception import InterceptedStore, Verb

NAME = "triggers"
FEW = 1_000
MANY = {True: 100_000, False: 1_000_000}  # quick or not
DUE = 100
FIRED = {True: 1_000, False: 10_000}
ROUNDS = {True: 3, False: 7}
TURNS = 5  # in a round, of which the best counts
FAR_SECONDS = 86_400.0 * 30
LIMIT_SECONDS = 240.0  # for one store
ABOUT_SECONDS = {True: 10.0, False: 60.0}
IDLE_MINUTES = 60
OWNER = "bench-1"


class TriggerSide(msgspec.Struct, frozen=True, kw_only=True):
    """A store with so many waiting triggers, and those in it that are due."""

    waiting: int
    trial: TrialStore
    triggers: TriggerShortcuts
    due: list[Trigger]
    now: float


Call = Callable[[TriggerSide], Awaitable[float]]  # the seconds that it took


class LookupCase(msgspec.Struct, frozen=True, kw_only=True):
    measure: str
    call: Call
    calls: int  # in a turn


def parts(bench: Bench) -> list[Part]:
    """A part for each store: neither takes the time of the other."""
    looks = [_part(bench, store) for store in bench.ours.stores]
    fires = [_fire_case(bench, store) for store in bench.ours.stores]
    rest = [*fires, _idle_case()]
    return [*looks, Part(question=NAME, what="firing", cases=rest)]


def _part(bench: Bench, store: str) -> Part:
    who = bench.ours.on(store)

    def look() -> CaseResult:
        seconds = min(LIMIT_SECONDS, bench.seconds_left)
        sizes = (FEW, MANY[bench.quick])
        return run(
            measure_lookups(bench, who, sizes, ROUNDS[bench.quick], time.monotonic() + seconds)
        )

    about = ABOUT_SECONDS[bench.quick]
    case = Case(question=NAME, who=who, case={}, run=look, runs=1, about=about)
    return Part(question=NAME, what=store, cases=[case])


# -- lookups of due triggers


async def measure_lookups(
    bench: Bench, who: Who, sizes: tuple[int, int], rounds: int, ends_at: float
) -> CaseResult:
    now = float(int(time.time()))  # the same for both, so that records can be compared
    async with AsyncExitStack() as stack:
        few, many = [
            await _side(stack, bench, who, size, now=now, ends_at=ends_at) for size in sizes
        ]
        await _save(few.triggers, few.due)
        many_triggers.write(many.trial, many.due)
        if _first(few) != _first(many):
            raise CaseFailed("what was written for a trigger is not what its store writes")
        for asked in (
            LookupCase(measure="find_due", call=_find_due, calls=20),
            LookupCase(measure="with_lease", call=_with_lease, calls=4),
        ):
            for _ in range(rounds):
                await _round(bench, who, asked, (few, many))
    return CaseResult(values={})


def _first(side: TriggerSide) -> list[Any]:
    return many_triggers.raw(side.trial, side.due[0].id)


async def _side(
    stack: AsyncExitStack, bench: Bench, who: Who, waiting: int, *, now: float, ends_at: float
) -> TriggerSide:
    trial = stack.enter_context(bench.trial_stores.open(who.store))
    hand = await stack.enter_async_context(open_batch_worker(trial.url))
    before = many_triggers.held_bytes(trial)
    for some in many_triggers.chunks(
        many_triggers.series("w", waiting, first=now + FAR_SECONDS, now=now)
    ):
        if time.monotonic() > ends_at:
            raise TimeoutError("the time for it was over before so many triggers were there")
        many_triggers.write(trial, some)
    held = (many_triggers.held_bytes(trial) - before) / waiting
    bench.book.figure(NAME, who, _case(waiting), "held", "bytes/trigger").values.append(held)
    due = [*many_triggers.series("d", DUE, first=now - 10 * DUE, now=now)]
    triggers = TriggerShortcuts(hand.store)
    return TriggerSide(waiting=waiting, trial=trial, triggers=triggers, due=due, now=now)


async def _save(triggers: TriggerShortcuts, those: Sequence[Trigger]) -> None:
    new = (msgspec.structs.replace(one, version=0) for one in those)
    await asyncio.gather(*(triggers.save(one) for one in new))


def _case(waiting: int) -> dict[str, int]:
    return {"waiting": waiting, "due": DUE}


async def _round(bench: Bench, who: Who, asked: LookupCase, sides: Sequence[TriggerSide]) -> None:
    times: list[list[list[float]]] = [[] for _ in sides]  # of each side and turn
    for _ in range(TURNS):
        for side, turns in zip(sides, times, strict=True):
            turns.append([await asked.call(side) for _ in range(asked.calls)])
    for side, turns in zip(sides, times, strict=True):
        every = sorted(seconds for turn in turns for seconds in turn)
        values = {
            asked.measure: (asked.calls / min(map(sum, turns)), "calls/s"),
            f"{asked.measure}_p50": (_share(every, 0.5) * 1000, "ms"),
            f"{asked.measure}_p99": (_share(every, 0.99) * 1000, "ms"),
        }
        for measure, (value, unit) in values.items():
            figure = bench.book.figure(NAME, who, _case(side.waiting), measure, unit)
            figure.values.append(value)


def _share(ordered: Sequence[float], share: float) -> float:
    return ordered[math.ceil(share * len(ordered)) - 1]


async def _find_due(side: TriggerSide) -> float:
    begun = time.perf_counter()
    found = await side.triggers.find_due(side.now, limit=DUE)
    seconds = time.perf_counter() - begun
    _check(len(found), DUE, "found")
    return seconds


async def _with_lease(side: TriggerSide) -> float:
    """Time a claim of the due triggers; saving them anew afterwards is not timed."""
    begun = time.perf_counter()
    found = await side.triggers.claim(OWNER, limit=DUE)
    seconds = time.perf_counter() - begun
    _check(len(found.triggers), DUE, "leased")
    await _save(side.triggers, side.due)
    return seconds


def _check(number: int, wanted: int, what: str) -> None:
    if number != wanted:
        raise CaseFailed(f"{number} of {wanted} triggers were {what}")


# -- firing


def _fire_case(bench: Bench, store: str) -> Case:
    who, number = bench.ours.on(store), FIRED[bench.quick]

    def fire() -> CaseResult:
        with bench.trial_stores.open(store) as trial:
            return run(measure_firing(trial, number))

    return Case(
        question=NAME,
        who=who,
        case={"due": number},
        run=fire,
        main=("fired", "tasks/s"),
        about=2.0 if bench.quick else 6.0,
    )


async def measure_firing(trial: TrialStore, number: int) -> CaseResult:
    """Measure one tick in which all triggers are due; each makes its task and ends."""
    app = Holdfast(trial.url)

    @app.task(many_triggers.TARGET)
    async def noop(_: Context, __: int) -> None: ...

    async with app:
        first = time.time() - number - 10.0
        all_due = many_triggers.series("d", number, first=float(int(first)), now=first)
        for some in many_triggers.chunks(all_due):
            many_triggers.write(trial, some)
        scheduler = _scheduler(app, app.store, app.clock)
        begun = time.perf_counter()
        await scheduler.tick()
        seconds = time.perf_counter() - begun
        made = sum((await app.store.views.stats()).by_status.values())
    _check(made, number, "fired")
    return CaseResult(values={"fired": (number / seconds, "tasks/s")})


def _scheduler(app: Holdfast, store: Store, clock: Clock) -> Scheduler:
    """Return a scheduler as a worker has it, but alone."""
    settings = app.settings
    env = WorkerEnvironment(
        worker=OWNER,
        store=store,
        registry=app.registry,
        clock=clock,
        chance=random.Random(),
        outages=StoreOutages(clock),
        options=WorkerOptions(
            lease_seconds=settings.lease,
            queue_limit=settings.queue_limit,
            rules=Rules(unknown_type_seconds=settings.unknown_type_after),
        ),
    )
    return Scheduler(env, DeclaredTriggers(env, partial(asyncio.sleep, 0)))


# -- with nothing to fire


def _idle_case() -> Case:
    return Case(
        question=NAME,
        who=Who(engine=OURS, store="memory"),
        case={"waiting": FEW},
        run=lambda: run(measure_idle()),
        runs=1,
        main=("idle", "calls/min"),
        about=2.0,
    )


async def measure_idle() -> CaseResult:
    """Count the calls of an idle scheduler on a manual clock; any store gets the same calls."""
    clock = ManualClock()
    memory, app = MemoryStore(clock), Holdfast("memory://")
    far = clock.now() + FAR_SECONDS
    for one in many_triggers.series("w", FEW, first=far, now=clock.now()):
        await TriggerShortcuts(memory).save(one)
    counted = _Counted(memory)
    service = asyncio.create_task(_scheduler(app, counted, clock).run())
    await clock.elapse("1m")  # what is done once, at the start, is not counted
    counted.calls = 0
    await clock.elapse(IDLE_MINUTES * 60.0)
    service.cancel()
    await asyncio.gather(service, return_exceptions=True)
    return CaseResult(values={"idle": (counted.calls / IDLE_MINUTES, "calls/min")})


class _Counted(InterceptedStore):
    """A store that counts what is asked of its triggers."""

    def __init__(self, store: MemoryStore) -> None:
        self.calls = 0
        super().__init__(store, self._count_calls)

    def _count_calls(self, name: str, verb: Verb) -> Verb:
        async def ask(*given: Any, **named: Any) -> Any:
            self.calls += name.startswith("triggers.")
            return await verb(*given, **named)

        return ask


if __name__ == "__main__":
    ask_alone(NAME)
