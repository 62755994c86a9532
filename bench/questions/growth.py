"""The cost of a task when many wait or are done: `python -m bench.questions.growth`.

Tasks are claimed and finished through the store port, in batches of 128, with 1 000, 100 000 and
1 000 000 waiting and with 1 000 000 settled, which stay for 30 days as they do for users. At each
size a second store, in which 1 000 wait (and, beside the settled, none is settled at first), does
the same in turn, so that both bear alike what else the machine does; each value is the rate of one
of several such rounds.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import NamedTuple

from bench.harness.bench import Bench, Case, CaseResult
from bench.harness.command import ask_alone
from bench.harness.cpu import per_task
from bench.harness.load import BatchWorker, open_batch_worker
from bench.harness.plan import Part
from bench.harness.trial_stores import TrialStore
from bench.report.figures import Who

NAME = "growth"
FEW = 1_000
SIZES = {True: (FEW, 100_000), False: (FEW, 100_000, 1_000_000)}  # quick or not
ROUNDS = 7
TASKS = 1_000  # in a round
STEP = 5_000  # between two looks at the clock
LIMIT_SECONDS = 420.0  # for one store
RATE, BESIDE = "rate", "beside"  # of the store in question, and of the small one
ABOUT_SECONDS = {True: 20.0, False: 190.0}

Values = dict[str, tuple[float, str]]


def parts(bench: Bench) -> list[Part]:
    """A part for each store: neither takes the time of the other."""
    return [_part(bench, store) for store in bench.ours.stores]


def _part(bench: Bench, store: str) -> Part:
    who = bench.ours.on(store)

    def run() -> CaseResult:
        seconds = min(LIMIT_SECONDS, bench.seconds_left)
        return asyncio.run(_measure_growth(bench, who, time.monotonic() + seconds))

    about = ABOUT_SECONDS[bench.quick]
    case = Case(question=NAME, who=who, case={}, run=run, runs=1, about=about)
    return Part(question=NAME, what=store, cases=[case])


async def _measure_growth(bench: Bench, who: Who, ends_at: float) -> CaseResult:
    sizes = SIZES[bench.quick]
    async with AsyncExitStack() as stack:
        many, few, fresh = [await _open_worker(stack, bench, who.store) for _ in range(3)]
        await few.worker.insert(FEW)
        waiting = 0
        for size in sizes:
            await _fill(many.worker, size - waiting, ends_at)
            waiting = size
            _note(bench, who, {"waiting": size}, await _in_turn(few, many))
        await many.worker.insert(FEW)
        await _settle(many.worker, waiting, ends_at)
        await fresh.worker.insert(FEW)
        _note(bench, who, {"settled": waiting}, await _in_turn(fresh, many))
    return CaseResult(values={})


class OpenStore(NamedTuple):
    trial: TrialStore
    worker: BatchWorker


async def _open_worker(stack: AsyncExitStack, bench: Bench, store: str) -> OpenStore:
    trial = stack.enter_context(bench.trial_stores.open(store))
    return OpenStore(trial, await stack.enter_async_context(open_batch_worker(trial.url)))


async def _in_turn(few: OpenStore, many: OpenStore) -> list[Values]:
    """Return rate and CPU of both stores, round by round; the number of waiting tasks stays."""
    found = []
    for _ in range(ROUNDS):
        values: Values = {}
        for measure, hand in ((BESIDE, few), (RATE, many)):
            values |= await measure_round(hand, measure)
        found.append(values)
    return found


async def measure_round(hand: OpenStore, measure: str, tasks: int = TASKS) -> Values:
    """Submit so many tasks, and measure their claims and ends."""
    await hand.worker.insert(tasks)
    first = hand.trial.read_own_cpu()
    rate = tasks / await hand.worker.end(tasks)
    used = per_task(first, hand.trial.read_own_cpu(tasks), of="" if measure == RATE else measure)
    return {measure: (rate, "tasks/s"), **used}


async def _fill(hand: BatchWorker, tasks: int, ends_at: float) -> None:
    for done in range(0, tasks, STEP):
        _check(ends_at)
        await hand.insert(min(STEP, tasks - done))


async def _settle(hand: BatchWorker, tasks: int, ends_at: float) -> None:
    for done in range(0, tasks, STEP):
        _check(ends_at)
        await hand.end(min(STEP, tasks - done))


def _check(ends_at: float) -> None:
    if time.monotonic() > ends_at:
        raise TimeoutError("the time for it was over before so many tasks were there")


def _note(bench: Bench, who: Who, case: dict[str, int], rounds: list[Values]) -> None:
    """Note the rate of each size, with the rate of the small store in the same minutes."""
    for values in rounds:
        for measure, (value, unit) in values.items():
            bench.book.figure(NAME, who, case, measure, unit).values.append(value)


if __name__ == "__main__":
    ask_alone(NAME)
