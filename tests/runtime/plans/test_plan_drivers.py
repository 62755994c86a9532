"""Drivers that die, freeze, are cut off, or leave: the plan ends the same, and once."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast import FailureCount, Status
from holdfast.domain.plan.plan import MemberState, PlanStatus
from tests.support.runtime.helpers import Gate
from tests.support.runtime.plan_bench import LEASE_SECONDS, Bench, Process

S, P, M = Status, PlanStatus, MemberState
MOST_CALLS = 400


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with Bench() as bench:
        yield bench


def dead(process: Process) -> bool:
    assert process.worker is not None
    return process.dies_at is not None and process.driven >= process.dies_at


async def rolled_out(bench: Bench, *, dies_at: int | None, after: bool) -> Process:
    """Two waves, one slot, one failure that is retried; its driver dies at that call."""
    await bench.start("worker", drives=False)
    driver = await bench.start("driver", works=False)
    driver.dies_at, driver.dies_after = dies_at, after
    bench.fails = {"t2"}
    plan = await bench.plan("t1", "t2", "t3", max_concurrency=1, waves=("1", "100%"))
    second: Process | None = None

    async def rests() -> PlanStatus:
        nonlocal second
        if second is None:
            await bench.until(lambda: bench.record.is_stopped or dead(driver))
            if dead(driver):
                second = await bench.start("second", works=False)
        return await bench.until_rests()

    assert await rests() is P.HALTED
    bench.fails = set()
    await plan.retry()
    assert await rests() is P.COMPLETED
    return driver


@pytest.mark.parametrize("after", [False, True], ids=["before", "behind"])
async def test_a_driver_that_dies_at_any_call_is_taken_over_and_nothing_runs_twice(
    after: bool,
) -> None:
    for number in range(1, MOST_CALLS):
        async with Bench() as bench:
            driver = await rolled_out(bench, dies_at=number, after=after)
            assert bench.ran == ["t1", "t2", "t2", "t3"], number
            assert bench.statuses() == [S.COMPLETED] * 3
            for tenant in ("t1", "t2", "t3"):
                assert bench.heard(tenant)["TaskReleased"] == 1, number
            assert bench.heard("t2")["TaskRetried"] == 1
            assert bench.told().count("PlanCompleted") == 1
            if not dead(driver):
                assert number > 30, "it had that many chances to die"
                return
    pytest.fail("it never came through alive")


@pytest.mark.parametrize("after", [False, True], ids=["before", "behind"])
async def test_a_driver_that_dies_in_a_rollback_is_taken_over(after: bool) -> None:
    for number in range(1, MOST_CALLS):
        async with Bench() as bench:
            driver = await unwound(bench, dies_at=number, after=after)
            assert bench.undone == ["t2", "t1"], number
            assert bench.statuses() == [S.ROLLED_BACK, S.ROLLED_BACK, S.CANCELLED]
            if not dead(driver):
                assert number > 20
                return
    pytest.fail("it never came through alive")


async def unwound(bench: Bench, *, dies_at: int, after: bool) -> Process:
    await bench.start("worker", drives=False)
    driver = await bench.start("driver", works=False)
    driver.dies_at, driver.dies_after = dies_at, after
    bench.fails = {"t2"}
    terms: dict[str, Any] = {"halt_on": FailureCount(0), "on_halt": "rollback"}
    await bench.plan("t1", "t2", "t3", max_concurrency=1, **terms)
    await bench.until(lambda: bench.record.is_stopped or dead(driver))
    if dead(driver):
        await bench.start("second", works=False)
    assert await bench.until_rests() is P.ROLLED_BACK
    return driver


# Frozen ones.


async def frozen(bench: Bench, verb: str, *, behind: bool = False) -> tuple[Process, Gate]:
    """A driver that stands at this call until its lease is another's."""
    await bench.start("worker", drives=False)
    zombie = await bench.start("zombie", works=False)
    held = Gate()
    (zombie.held_after if behind else zombie.held)[verb] = held
    await bench.plan("t1", "t2", "t3", max_concurrency=1)
    await bench.reached(held)
    zombie.drives = False  # all of it stands still
    await bench.start("second", works=False)
    await bench.until(lambda: owner(bench) == "second", most_seconds=5 * LEASE_SECONDS)
    return zombie, held


def owner(bench: Bench) -> str | None:
    return bench.record.lease.owner if bench.record.lease else None


@pytest.mark.parametrize("behind", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize(
    "verb",
    ["plans.load", "plans.tasks", "plans.members", "plans.apply", "load", "tenants", "apply"],
)
async def test_a_zombie_driver_cannot_move_a_plan(bench: Bench, verb: str, behind: bool) -> None:
    [gate] = bench.stand("t2")
    zombie, held = await frozen(bench, verb, behind=behind)
    await bench.reached(gate)
    written, record = len(zombie.applied), bench.record
    held.open()
    await bench.clock.elapse(2)
    zombie.calls.clear()
    await bench.clock.elapse(2)
    assert len(zombie.applied) <= written + (verb == "plans.apply" and behind)
    assert bench.record.version == record.version
    assert zombie.driven == 0, "it has given up"
    gate.open()
    assert await bench.until_rests() is P.COMPLETED
    assert bench.ran == ["t1", "t2", "t3"]


async def test_a_zombie_that_reads_the_plan_too_late_does_not_write_under_the_others_lease(
    bench: Bench,
) -> None:
    [gate] = bench.stand("t2")
    zombie, held = await frozen(bench, "plans.load")
    await bench.reached(gate)
    second = bench.processes[-1]
    stands = second.held["load"] = Gate()
    await bench.reached(stands)
    gate.open()
    await bench.until(lambda: bench.heard("t2")["TaskCompleted"] == 1, most_seconds=1)
    held.open()
    await bench.clock.elapse(0.5)
    assert zombie.applied == []
    stands.open()
    assert await bench.until_rests() is P.COMPLETED


async def test_a_zombies_release_is_void_once_the_plan_was_paused(bench: Bench) -> None:
    zombie, held = await frozen_at_release(bench)
    await bench.app.plan.get("p").pause()
    second = await bench.start("second", works=False)
    await bench.until(lambda: bench.heard("t1")["TaskHeldBack"] == 1)
    await bench.clock.elapse(5)
    assert bench.record.count(M.ADMITTED) == 0
    held.open()
    await bench.clock.elapse(30)
    assert bench.statuses() == [S.CREATED, S.CREATED]
    assert bench.ran == []
    await bench.app.plan.get("p").resume()
    assert await bench.until_rests() is P.COMPLETED
    assert bench.ran == ["t1", "t2"]
    assert zombie is not second


async def frozen_at_release(bench: Bench) -> tuple[Process, Gate]:
    await bench.start("worker", drives=False)
    zombie = await bench.start("zombie", works=False)
    held = zombie.held["apply"] = Gate()
    await bench.plan("t1", "t2", max_concurrency=1)
    await bench.reached(held)
    return zombie, held


async def test_a_driver_whose_write_took_too_long_sends_nothing(bench: Bench) -> None:
    """Its slots are written, but by now they may be another's to use."""
    await bench.start("worker", drives=False)
    slow = await bench.start("slow", works=False)
    held, before = Gate(), Gate()
    slow.held["tenants"] = before
    await bench.plan("t1")
    await bench.reached(before)
    slow.held_after["plans.apply"] = held
    before.open()
    await bench.reached(held)
    assert bench.record.count(M.ADMITTED) == 1
    await bench.clock.elapse(LEASE_SECONDS / 2)
    slow.calls.clear()
    held.open()
    await bench.clock.elapse(0)
    assert "apply" not in slow.calls
    assert await bench.until_rests() is P.COMPLETED


# Several, and none.


async def test_one_drives_at_a_time_and_fences_rise(bench: Bench) -> None:
    await bench.start("worker", drives=False)
    one = await bench.start("one", works=False)
    two = await bench.start("two", works=False)
    [gate] = bench.stand("t3")
    await bench.plan(*(f"t{i}" for i in range(6)), max_concurrency=1)
    await bench.reached(gate)
    assert not one.applied or not two.applied, "the other only looks on"
    driver, other = (one, two) if one.applied else (two, one)
    fence = bench.record.fence
    assert driver.worker is not None
    driver.worker.abandon()
    gate.open()
    assert await bench.until_rests() is P.COMPLETED
    assert other.applied
    assert bench.record.fence > fence
    fences = [plan.fence for process in (driver, other) for plan in process.applied]
    assert fences == sorted(fences)


async def test_a_driver_that_leaves_is_followed_at_once(bench: Bench) -> None:
    one = await bench.start("one", works=False)
    [gate] = bench.stand("t1")
    await bench.plan("t1", "t2", max_concurrency=1)
    await bench.until(lambda: owner(bench) == "one")
    await bench.start("two")
    await bench.reached(gate)
    assert one.worker is not None
    leaving = asyncio.create_task(one.worker.drain())
    await bench.clock.elapse(0.5)
    await leaving
    assert owner(bench) == "two"
    gate.open()
    assert await bench.until_rests() is P.COMPLETED


@pytest.mark.parametrize(
    "verbs",
    [
        {"*"},
        {"plans.apply"},
        {"plans.renew"},
        {"plans.claim"},
        {"load"},
        {"tenants"},
        {"apply"},
        {"plans.load", "plans.members"},
    ],
    ids=lambda verbs: "+".join(sorted(verbs)),
)
@pytest.mark.parametrize("seconds", [2.0, 5 * LEASE_SECONDS])
async def test_an_outage_in_the_middle_costs_time_and_nothing_else(
    bench: Bench, verbs: set[str], seconds: float
) -> None:
    process = await bench.start("a")
    one, _ = bench.stand("t2", "t3")
    await bench.plan("t1", "t2", "t3", "t4", max_concurrency=2)
    await bench.reached(one)
    process.down = verbs
    for gate in bench.gates.values():
        gate.open()
    await bench.clock.elapse(seconds)
    process.down = set()
    assert await bench.until_rests() is P.COMPLETED
    assert set(bench.ran) == {"t1", "t2", "t3", "t4"}
    for tenant in ("t1", "t2", "t3", "t4"):
        assert bench.heard(tenant)["TaskReleased"] == 1


async def test_a_pause_in_an_outage_of_its_driver_reaches_the_tasks_afterwards(
    bench: Bench,
) -> None:
    driver = await bench.start("driver", works=False)
    await bench.start("worker", drives=False)
    [gate] = bench.stand("t1")
    plan = await bench.plan("t1", "t2", max_concurrency=1)
    await bench.reached(gate)
    driver.down = {"*"}
    await plan.pause()
    await bench.clock.elapse(30)
    driver.down = set()
    await bench.clock.elapse(10)
    gate.open()
    await bench.clock.elapse(5)
    assert bench.statuses() == [S.PAUSED, S.CREATED]


async def test_a_task_in_a_part_that_is_away_is_not_forgotten_when_the_plan_is_paused(
    bench: Bench,
) -> None:
    driver = await bench.start("driver", works=False)
    await bench.start("worker", drives=False)
    gates = bench.stand("t1", "t2")
    plan = await bench.plan("t1", "t2")
    await bench.reached(gates[1])
    driver.away = {bench.task_id("t1")}
    await plan.pause()
    await bench.clock.elapse(5)
    gates[1].open()
    await bench.clock.elapse(5)
    assert bench.statuses() == [S.RUNNING, S.PAUSED]
    driver.away = set()
    await bench.clock.elapse(5)
    gates[0].open()
    await bench.clock.elapse(5)
    assert bench.statuses() == [S.PAUSED, S.PAUSED]
    assert bench.record.lease is None


async def test_a_part_that_is_away_does_not_stop_the_others(bench: Bench) -> None:
    process = await bench.start("a")
    plan = await bench.plan("t1", "t2", "t3", max_concurrency=1)
    process.away = {bench.task_id("t1")}
    await bench.until(lambda: bench.record.count(M.COMPLETED) == 2)
    assert bench.statuses() == [S.CREATED, S.COMPLETED, S.COMPLETED]
    assert (await plan.info()).status is P.RUNNING
    process.away = set()
    assert await bench.until_rests() is P.COMPLETED
