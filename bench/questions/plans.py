"""The cost that a plan adds to its tasks: `python -m bench.questions.plans`.

A plan of 10 000 no-op tasks, each of a tenant of its own, is made with nobody there to drive it;
then one worker starts, drives it and does its tasks, until the plan is completed: with a hundred
slots and without a limit. Before each, the same tasks without a plan, submitted first and then
drained by one worker in the same process, stand beside it.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from functools import partial

from bench.harness.bench import Bench, Case, CaseResult
from bench.harness.command import ask_alone
from bench.harness.cpu import per_task
from bench.harness.loop import run
from bench.harness.plan import Part
from bench.harness.processes import CaseFailed
from bench.harness.trial_stores import TrialStore
from bench.report.figures import Who
from holdfast import Context, Holdfast
from holdfast.domain.plan.plan import PlanStatus
from holdfast.engine.declare import AsyncTask
from holdfast.runtime.plans.snapshot import PlanSnapshot

NAME = "plans"
TASKS = {True: 1_000, False: 10_000}  # quick or not
NO_LIMIT = 0
SLOTS = (100, NO_LIMIT)
INFOS, OPENINGS = 200, 5
PLAN = "bench"
LIMIT_SECONDS = 60.0
ABOUT_SECONDS = {True: 3.0, False: 10.0}


def parts(bench: Bench) -> list[Part]:
    cases = [
        Case(
            question=NAME,
            who=who,
            case={"tasks": TASKS[bench.quick], "max_concurrency": slots},
            run=partial(_both, bench, who, TASKS[bench.quick], slots),
            about=ABOUT_SECONDS[bench.quick],
        )
        for slots in SLOTS
        for who in (bench.ours.on(store) for store in bench.ours.stores)
    ]
    return [Part(question=NAME, what="ours", cases=cases)]


def _both(bench: Bench, who: Who, tasks: int, slots: int) -> CaseResult:
    with bench.trial_stores.open(who.store) as trial:
        plain = run(drain_plain(trial, tasks))
    with bench.trial_stores.open(who.store) as trial:
        found = run(measure_plan(trial, tasks, slots))
    return CaseResult(values=found.values | plain.values)


class Counted:
    """An app whose task counts how often it was done."""

    def __init__(self, url: str, tasks: int) -> None:
        self.app = Holdfast(url)
        self.all_done, self._left = asyncio.Event(), tasks
        self.noop: AsyncTask[int, None] = self.app.task("bench.noop")(self.count)

    async def count(self, _: Context, __: int) -> None:
        self._left -= 1
        if self._left == 0:
            self.all_done.set()


async def drain_plain(trial: TrialStore, tasks: int) -> CaseResult:
    """Drain the tasks alone."""
    counted = Counted(trial.url, tasks)
    async with counted.app:
        submits = (counted.noop.submit(n, tenant=_tenant(n)) for n in range(tasks))
        await asyncio.gather(*submits)
        first, begun = trial.read_own_cpu(), time.perf_counter()
        async with counted.app.running(), asyncio.timeout(LIMIT_SECONDS):
            await counted.all_done.wait()
            rate = tasks / (time.perf_counter() - begun)
            used = per_task(first, trial.read_own_cpu(tasks), of="plain")
    return CaseResult(values={"plain": (rate, "tasks/s"), **used})


async def measure_plan(trial: TrialStore, tasks: int, slots: int) -> CaseResult:
    counted = Counted(trial.url, tasks)
    app = counted.app
    async with app:
        members = [counted.noop.on(n, tenant=_tenant(n)) for n in range(tasks)]
        begun = time.perf_counter()
        plan = await app.plan(PLAN, members, max_concurrency=slots or None)
        first, made = trial.read_own_cpu(), time.perf_counter()
        async with app.running():
            info = await plan.wait(timeout=LIMIT_SECONDS)
            ended = time.perf_counter()
            used = per_task(first, trial.read_own_cpu(tasks))
        if info.status is not PlanStatus.COMPLETED or not counted.all_done.is_set():
            raise CaseFailed(f"the plan is {info.status}, {info.progress:.0%} of it done")
        infos = [await _seconds_of_info(app) for _ in range(INFOS)]
        openings = [await _seconds_of_opening(app) for _ in range(OPENINGS)]
    return CaseResult(
        values={
            "made": (made - begun, "s"),
            "completed": (ended - made, "s"),
            "rate": (tasks / (ended - made), "tasks/s"),
            **used,
            "info_p50": (statistics.median(infos) * 1000, "ms"),
            "opening_p50": (statistics.median(openings) * 1000, "ms"),
        }
    )


async def _seconds_of_info(app: Holdfast) -> float:
    begun = time.perf_counter()
    await app.plan.get(PLAN).info()
    return time.perf_counter() - begun


async def _seconds_of_opening(app: Holdfast) -> float:
    """Return the seconds in which a driver that takes the plan over reads it."""
    begun, store = time.perf_counter(), app.store.plans
    [plan] = await store.load([PLAN])
    tasks, members = await store.tasks(PLAN), await store.members(PLAN)
    assert plan is not None
    assert tasks is not None
    PlanSnapshot(plan, tasks, members)
    return time.perf_counter() - begun


def _tenant(number: int) -> str:
    return f"t-{number:05d}"


if __name__ == "__main__":
    ask_alone(NAME)
