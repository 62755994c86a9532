"""The real engine in simulated worlds. A failure says its seed and how to replay it."""

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import Coroutine, Iterable
from typing import Any

import pytest

from holdfast.domain.errors import StoreUnavailable
from holdfast.ports import Kept, Store
from holdfast.runtime import committer
from holdfast.runtime.deadlines import sleep
from holdfast.stores.memory import MemoryStore
from holdfast.testing.clock import START_STEADY
from holdfast.testing.contract.drivers.store_driver import beat
from verify.faults import Fault, FaultyConnection, Rates, faulty_store
from verify.mutants import MUTANTS
from verify.simulation import run
from verify.simulation.__main__ import main
from verify.simulation.coverage import missing, of_tasks, of_triggers_and_plans
from verify.simulation.loop import Process, VirtualClock, VirtualLoop
from verify.simulation.profile import draw
from verify.simulation.report import Totals, failure

CHUNK = 10
CHUNKS = 8
COVERING_SEEDS = range(2_529, 2_769)  # the first few dozen meet all of it
TIMED_SEEDS = range(2_483, 2_783)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_what_must_always_hold_holds_in_every_world(chunk: int) -> None:
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        result = run(seed)
        assert result.broken is None, failure(result)


def test_what_must_always_hold_holds_with_two_writes_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A world has too few tasks at once for a second write, unless any item is worth one."""
    monkeypatch.setattr(committer, "WORTH_A_WRITE", 1)
    for seed in range(CHUNK):
        result = run(seed)
        assert result.broken is None, failure(result)


def test_every_fault_status_command_and_answer_is_met() -> None:
    assert not_met_in((s for s in COVERING_SEEDS if draw(s).kind == "tasks"), of_tasks()) == []


def test_all_that_befalls_triggers_and_plans_is_met() -> None:
    seeds = (seed for seed in TIMED_SEEDS if draw(seed).kind != "tasks")
    assert not_met_in(seeds, of_triggers_and_plans()) == []


def not_met_in(seeds: Iterable[int], wanted: Iterable[str]) -> list[str]:
    """In so many worlds as it takes."""
    totals, wanted = Totals(), list(wanted)
    for seed in seeds:
        result = run(seed)
        assert result.broken is None, failure(result)
        totals.add(result)
        if not missing(totals.counts, wanted):
            break
    return missing(totals.counts, wanted)


def test_there_are_worlds_with_tasks_alone_with_triggers_and_with_plans() -> None:
    assert [draw(seed).kind for seed in range(6)] == [*["tasks"] * 4, "triggers", "plans"]
    triggers, plans = draw(4), draw(5)
    assert triggers.triggers >= 4
    assert triggers.workers >= 3
    assert plans.plans >= 1


def test_worlds_with_few_and_with_many_tenants_can_be_chosen() -> None:
    few, many = run(2, "few"), run(2, "many")
    for result in (few, many):
        assert result.broken is None, failure(result)
    assert draw(2, "few").tenants <= 5
    assert draw(2, "many").tenants >= 100
    assert many.tasks > few.tasks


def test_the_same_seed_gives_the_same_trace_and_another_seed_another() -> None:
    first, second, other = run(11), run(11), run(12)
    assert first.digest == second.digest
    assert first.counts == second.counts
    assert first.digest != other.digest


def test_a_trace_does_not_depend_on_the_interpreters_hash_seed() -> None:
    said = {_replayed(seed=17, hash_seed=hash_seed) for hash_seed in ("1", "2", "random")}
    assert len(said) == 1, said


def _replayed(*, seed: int, hash_seed: str) -> str:
    command = [sys.executable, "-m", "verify.simulation", "--seed", str(seed)]
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_a_failure_names_seed_step_invariant_and_the_command_that_replays_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fence = next(mutant for mutant in MUTANTS if mutant.name == "no-tenant-lock")
    with fence.alive():
        assert main(["--seeds", "3", "--processes", "1"]) == 1
    said = capsys.readouterr().out
    assert "seed 0, step " in said
    assert "I2 is broken" in said
    assert "TaskStarted" in said
    assert "python -m verify.simulation --seed 0" in said
    assert "3 broken" in said


# -- the loop


class World:
    def __init__(self) -> None:
        self.loop = VirtualLoop()  # type: ignore[abstract]
        self.clock = VirtualClock(self.loop)
        self.said: list[str] = []

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(main, context=self.loop.outside.copy())
        self.loop.run(task, turns_limit=1_000)
        task.result()
        self.loop.close()

    async def passes(self, seconds: float) -> None:
        """Virtual time: nobody waits."""
        await sleep(self.clock, seconds)

    async def tick(self, name: str) -> None:
        while True:
            await self.passes(1)
            self.said.append(f"{name}{self.loop.time() - START_STEADY:g}")


def test_time_moves_only_when_nothing_is_left_to_do() -> None:
    world = World()

    async def main() -> None:
        before = world.clock.steady()
        await world.passes(3600)
        assert world.clock.steady() == before + 3600

    world.run(main())


def test_a_stopped_process_stands_still_and_catches_up_when_it_goes_on() -> None:
    world = World()
    one, two = Process("one", world.loop), Process("two", world.loop)

    async def main() -> None:
        one.start(world.tick("a"))
        two.start(world.tick("b"))
        await world.passes(1.5)
        one.freeze()
        await world.passes(2)
        one.thaw()
        await world.passes(1)

    world.run(main())
    assert world.said == ["a1", "b1", "b2", "b3", "a3.5", "b4", "a4.5"]


def test_a_killed_process_does_nothing_more_not_even_clean_up() -> None:
    world = World()
    process = Process("one", world.loop)

    async def tidy() -> None:
        try:
            await world.tick("a")
        finally:
            world.said.append("cleaned up")

    async def main() -> None:
        process.start(tidy())
        await world.passes(1.5)
        process.kill()
        await world.passes(5)
        assert world.said == ["a1"]

    world.run(main())


# -- the line


def asked(world: World, **rates: float) -> tuple[Store, list[Fault], MemoryStore]:
    truth, met = MemoryStore(world.clock), list[Fault]()
    line = FaultyConnection(
        truth,
        world.clock,
        random.Random("line"),
        outside=lambda seconds, call: world.loop.call_later(
            seconds, call, context=world.loop.outside
        ),
        crash=lambda: world.said.append("crash"),
        note_fault=lambda _, fault: met.append(fault),
    )
    line.rates = Rates(**rates)
    return faulty_store(line), met, truth


async def workers_seen(store: Store) -> int:
    return len(await store.views.workers(live_within_seconds=60))


@pytest.mark.parametrize(
    ("rate", "fault", "is_applied"),
    [
        ("lost_request", Fault.LOST_REQUEST, False),
        ("lost_reply", Fault.LOST_REPLY, True),
        ("late", Fault.LATE, True),
    ],
)
def test_a_lost_call_fails_whether_it_was_carried_out_or_not(
    rate: str, fault: Fault, is_applied: bool
) -> None:
    world = World()
    store, met, truth = asked(world, **{rate: 1.0})

    async def main() -> None:
        with pytest.raises(StoreUnavailable):
            await store.tasks.renew(beat(), [], lease_seconds=1)
        await world.passes(10)
        assert await workers_seen(truth) == is_applied

    world.run(main())
    assert met == [fault]


def test_a_good_line_answers_and_a_doubled_one_answers_once() -> None:
    world = World()
    store, met, truth = asked(world, twice=1.0)

    async def main() -> None:
        await store.tasks.renew(beat(), [], lease_seconds=1)
        assert await workers_seen(truth) == 1
        assert (
            await store.admin.prune(Kept.TASKS, older_than_seconds=0, limit=1, dry_run=False) == 0
        )

    world.run(main())
    assert met == [Fault.TWICE, Fault.TWICE]


@pytest.mark.parametrize(("rate", "seen"), [("crash_before", 0), ("crash_after", 1)])
def test_a_crash_may_come_before_or_after_the_effect(rate: str, seen: int) -> None:
    world = World()
    store, _, truth = asked(world, **{rate: 1.0})

    async def main() -> None:
        call = asyncio.ensure_future(store.tasks.renew(beat(), [], lease_seconds=1))
        await world.passes(10)
        assert not call.done()
        assert await workers_seen(truth) == seen

    world.run(main())
    assert world.said == ["crash"]
