"""Plans over real workers: slots, waves, conflicts, halts, and what they cost."""

from collections.abc import AsyncIterator

import pytest

from holdfast import FailureCount, FailureRate, Status
from holdfast.domain.plan.events import TenantsSkipped
from holdfast.domain.plan.plan import MemberState, PlanStatus
from holdfast.ports import DuePlans
from tests.support.runtime.helpers import Gate
from tests.support.runtime.plan_bench import LONG_SECONDS, Bench, Process

S, P, M = Status, PlanStatus, MemberState
QUIET = {"plans.claim"}


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with Bench() as bench:
        yield bench


async def test_a_plan_ends_by_itself_when_its_tasks_have_ended(bench: Bench) -> None:
    await bench.start("a")
    plan = await bench.plan("t1", "t2", "t3")
    assert await bench.until_rests() is P.COMPLETED
    assert sorted(bench.ran) == ["t1", "t2", "t3"]
    assert (await plan.info()).progress == 1.0
    assert bench.told()[-1] == "PlanCompleted"


async def test_three_workers_never_run_more_than_the_plan_may_at_once(bench: Bench) -> None:
    for name in "abc":
        await bench.start(name)
    await bench.plan(*(f"t{i}" for i in range(20)), max_concurrency=3)
    assert await bench.until_rests() is P.COMPLETED
    assert len(bench.ran) == 20
    assert bench.most_running == 3, "and they are used: Bench.check holds the upper bound"


async def test_slots_are_freed_one_by_one(bench: Bench) -> None:
    await bench.start("a")
    one, two = bench.stand("t1", "t2")
    await bench.plan("t1", "t2", "t3", "t4", max_concurrency=2)
    await bench.clock.elapse(5)
    assert sorted(bench.ran) == ["t1", "t2"]
    two.open()
    await bench.clock.elapse(5)
    assert sorted(bench.ran) == ["t1", "t2", "t3", "t4"]
    assert bench.record.count(M.ADMITTED) == 1
    one.open()
    assert await bench.until_rests() is P.COMPLETED


async def test_a_tenant_that_is_busy_elsewhere_takes_no_slot_and_is_let_go_when_it_is_free(
    bench: Bench,
) -> None:
    await bench.start("a")
    [gate] = bench.stand("t1")
    other = await bench.other("t1")
    await bench.reached(gate)
    await bench.plan("t1", "t2", "t3", max_concurrency=1)
    await bench.until(lambda: bench.record.count(M.COMPLETED) == 2)
    assert bench.statuses() == [S.CREATED, S.COMPLETED, S.COMPLETED]
    assert bench.record.count(M.ADMITTED) == 0
    gate.open()
    assert await bench.until_rests() is P.COMPLETED
    assert (await other.info()).status is S.COMPLETED


async def test_many_busy_tenants_do_not_keep_those_behind_them_waiting(bench: Bench) -> None:
    await bench.start("a")
    busy = [f"busy{i}" for i in range(300)]
    bench.fails = set(busy)
    for tenant in busy:  # suspended, it holds its tenant's line
        await bench.other(tenant)
    await bench.until(lambda: len(bench.ran) == len(busy))
    await bench.plan(*busy, "free", max_concurrency=1)
    await bench.until(lambda: bench.record.count(M.COMPLETED) == 1, most_seconds=10)
    assert bench.heard("free")["TaskCompleted"] == 1


async def test_a_tenant_that_becomes_busy_meanwhile_gives_its_slot_back(bench: Bench) -> None:
    """Between the look and the release: the store itself refuses."""
    driver = await bench.start("driver", works=False)
    worker = await bench.start("worker", drives=False)
    del worker
    held = hold(driver, "apply")
    [gate] = bench.stand("t1")
    await bench.plan("t1", "t2", max_concurrency=1)
    await bench.until(held.reached.is_set)
    await bench.other("t1")
    await bench.reached(gate)
    held.open()
    await bench.until(lambda: bench.record.count(M.COMPLETED) == 1)
    assert bench.heard("t1")["TaskHeldBack"] == 1
    assert bench.statuses() == [S.CREATED, S.COMPLETED]
    gate.open()
    assert await bench.until_rests() is P.COMPLETED
    assert bench.heard("t1")["TaskReleased"] == 1


def hold(process: Process, verb: str) -> Gate:
    process.held[verb] = Gate()
    return process.held[verb]


async def test_a_conflict_may_skip_the_tenant_which_is_told_and_cancelled(bench: Bench) -> None:
    await bench.start("a")
    [gate] = bench.stand("t3")
    await bench.other("t3")
    await bench.reached(gate)
    await bench.plan("t1", "t2", "t3", conflict="skip")
    assert await bench.until_rests() is P.COMPLETED
    assert bench.statuses() == [S.COMPLETED, S.COMPLETED, S.CANCELLED]
    assert bench.record.count(M.SKIPPED) == 1
    events = await bench.app.plan.get("p").events()
    assert [e.tenants for e in events if isinstance(e, TenantsSkipped)] == [("t3",)]


async def test_a_tenant_that_is_held_is_skipped_as_a_busy_one(bench: Bench) -> None:
    await bench.start("a")
    await bench.app.tenants.hold("t2")
    await bench.plan("t1", "t2", conflict="skip")
    assert await bench.until_rests() is P.COMPLETED
    assert bench.statuses() == [S.COMPLETED, S.CANCELLED]
    assert bench.record.count(M.SKIPPED) == 1


async def test_a_tenant_that_is_held_is_waited_for_and_takes_no_slot(bench: Bench) -> None:
    await bench.start("a")
    await bench.app.tenants.hold("t1")
    await bench.plan("t1", "t2", "t3", max_concurrency=1)
    await bench.until(lambda: bench.record.count(M.COMPLETED) == 2)
    assert bench.statuses() == [S.CREATED, S.COMPLETED, S.COMPLETED]
    assert bench.heard("t1")["TaskReleased"] == 0
    await bench.app.tenants.release("t1")
    assert await bench.until_rests() is P.COMPLETED
    assert bench.ran == ["t2", "t3", "t1"]


async def test_a_plan_that_skips_all_it_has_left_cancels_them_before_it_ends(bench: Bench) -> None:
    await bench.start("a")
    [gate] = bench.stand("t1")
    await bench.other("t1")
    await bench.reached(gate)
    await bench.plan("t1", conflict="skip")
    assert await bench.until_rests() is P.COMPLETED
    assert bench.statuses() == [S.CANCELLED]


async def test_a_plan_does_not_skip_a_tenant_that_it_keeps_busy_itself(bench: Bench) -> None:
    await bench.start("a")
    [gate] = bench.stand("t1")
    await bench.app.plan("p", bench.on("t1", "t1"), conflict="skip", repeat_tenants=True)
    await bench.clock.elapse(10)
    gate.open()
    assert await bench.until_rests() is P.COMPLETED
    assert bench.ran == ["t1", "t1"]


async def test_waves_wait_for_the_last_task_of_the_one_before(bench: Bench) -> None:
    await bench.start("a")
    [gate] = bench.stand("t2")
    await bench.plan("t1", "t2", "t3", "t4", waves=("2", "100%"))
    await bench.clock.elapse(60)
    assert sorted(bench.ran) == ["t1", "t2"]
    gate.open()
    assert await bench.until_rests() is P.COMPLETED
    assert bench.told().count("WaveStarted") == 2


async def test_a_wave_soaks_before_the_next(bench: Bench) -> None:
    await bench.start("a")
    plan = await bench.plan("t1", "t2", waves=("1", "100%"), soak="10m")
    await bench.clock.elapse("9m59s")
    assert bench.ran == ["t1"]
    assert 0 < (await plan.info()).soak_seconds_left <= 2
    await bench.clock.elapse("2s")
    assert bench.ran == ["t1", "t2"]
    assert await bench.until_rests() is P.COMPLETED


async def test_a_halt_lets_nothing_new_go_while_what_runs_comes_to_its_end(bench: Bench) -> None:
    await bench.start("a")
    [gate] = bench.stand("t2")
    bench.fails = {"t1"}
    plan = await bench.plan("t1", "t2", "t3", "t4", max_concurrency=2, halt_on=FailureCount(0))
    await bench.until(lambda: bench.record.status is P.HALTED)
    await bench.clock.elapse(30)
    assert sorted(bench.ran) == ["t1", "t2"]
    info = await plan.info()
    said = "1 of the 4 tasks of wave 1 have failed; it halts at more than 0 of a wave"
    assert info.reason == said
    assert info.count(M.ADMITTED) == 1
    gate.open()
    await bench.clock.elapse(30)
    assert bench.statuses() == [S.FAILED, S.COMPLETED, S.CREATED, S.CREATED]
    assert bench.record.lease is None
    assert (await plan.info()).count(M.ADMITTED) == 0


async def test_a_slot_that_was_given_in_the_moment_of_a_halt_is_taken_back(bench: Bench) -> None:
    await bench.start("a")
    bench.fails = {"t1"}
    await bench.plan("t1", "t2", "t3", max_concurrency=1, halt_on=FailureCount(0))
    assert await bench.until_rests() is P.HALTED
    await bench.clock.elapse(5)
    assert bench.record.count(M.ADMITTED) == 0
    assert bench.statuses() == [S.FAILED, S.CREATED, S.CREATED]


async def test_after_a_halt_a_resume_forgives_and_goes_on(bench: Bench) -> None:
    await bench.start("a")
    bench.fails = {"t1", "t3"}
    plan = await bench.plan("t1", "t2", "t3", "t4", max_concurrency=1, halt_on=FailureCount(0))
    assert await bench.until_rests() is P.HALTED
    await plan.resume()
    assert await bench.until_rests() is P.HALTED
    assert bench.ran == ["t1", "t2", "t3"]
    await plan.resume()
    assert await bench.until_rests() is P.PARTIAL_FAILED
    assert bench.ran == ["t1", "t2", "t3", "t4"]


async def test_after_a_halt_a_retry_runs_the_failed_first_and_then_the_rest(bench: Bench) -> None:
    await bench.start("a")
    bench.fails = {"t2"}
    terms = {"waves": ("1", "2", "100%"), "halt_on": FailureRate(0.0)}
    plan = await bench.plan("t1", "t2", "t3", **terms)
    assert await bench.until_rests() is P.HALTED
    bench.fails = set()
    await plan.retry()
    assert await bench.until_rests() is P.COMPLETED
    assert bench.ran == ["t1", "t2", "t2", "t3"]
    assert bench.heard("t2")["TaskRetried"] == 1


async def test_a_halt_may_undo_the_wave_newest_first_with_what_is_completed(bench: Bench) -> None:
    await bench.start("a")
    bench.fails = {"t4"}
    terms = {"waves": ("1", "100%"), "halt_on": FailureCount(0), "on_halt": "rollback"}
    await bench.plan("t1", "t2", "t3", "t4", "t5", max_concurrency=1, **terms)
    assert await bench.until_rests() is P.ROLLED_BACK
    assert bench.undone == ["t4", "t3", "t2"]
    done = [S.COMPLETED, S.ROLLED_BACK, S.ROLLED_BACK, S.ROLLED_BACK, S.CREATED]
    assert bench.statuses() == done


async def test_after_a_wave_was_undone_a_retry_runs_it_again_and_goes_on(bench: Bench) -> None:
    await bench.start("a")
    bench.fails = {"t3"}
    terms = {"waves": ("1", "3", "100%"), "halt_on": FailureCount(0), "on_halt": "rollback"}
    plan = await bench.plan("t1", "t2", "t3", "t4", "t5", max_concurrency=1, **terms)
    assert await bench.until_rests() is P.ROLLED_BACK
    bench.fails, bench.ran = set(), []
    await plan.retry()
    assert await bench.until_rests() is P.COMPLETED
    assert bench.ran == ["t2", "t3", "t4", "t5"]


async def test_after_a_wave_was_undone_the_others_may_be_given_up(bench: Bench) -> None:
    await bench.start("a")
    bench.fails = {"t2"}
    terms = {"waves": ("1", "2", "100%"), "halt_on": FailureCount(0), "on_halt": "rollback"}
    plan = await bench.plan("t1", "t2", "t3", max_concurrency=1, **terms)
    assert await bench.until_rests() is P.ROLLED_BACK
    await plan.cancel()
    assert await bench.until_rests() is P.CANCELLED
    assert bench.statuses() == [S.COMPLETED, S.ROLLED_BACK, S.CANCELLED]


async def test_a_halt_may_undo_all_of_the_plan(bench: Bench) -> None:
    await bench.start("a")
    bench.fails = {"t3"}
    terms = {"waves": ("1", "100%"), "halt_on": FailureCount(0), "on_halt": "rollback-plan"}
    await bench.plan("t1", "t2", "t3", max_concurrency=1, **terms)
    assert await bench.until_rests() is P.ROLLED_BACK
    assert bench.undone == ["t3", "t2", "t1"]


# What it costs.


async def test_a_paused_plan_costs_no_store_call(bench: Bench) -> None:
    process = await bench.start("a")
    plan = await bench.plan("t1", "t2", waves=("1", "100%"), soak="1h")
    await bench.clock.elapse(30)
    await plan.pause()
    await bench.clock.elapse(30)
    process.calls.clear()
    await bench.clock.elapse(LONG_SECONDS)
    assert {verb for verb in process.calls if verb.startswith("plans.")} <= QUIET
    assert not {"load", "peek", "tenants", "apply"} & set(process.calls)
    assert process.calls.count("plans.claim") <= LONG_SECONDS / 30 + 1


async def test_a_soaking_plan_is_looked_at_when_it_has_soaked_and_not_before(bench: Bench) -> None:
    process = await bench.start("a")
    await bench.plan("t1", "t2", waves=("1", "100%"), soak="10m")
    await bench.clock.elapse(30)
    version = bench.record.version
    process.calls.clear()
    await bench.clock.elapse("9m")
    assert bench.record.version == version
    assert {verb for verb in process.calls if verb.startswith("plans.")} <= QUIET
    await bench.clock.elapse("1m")
    assert bench.record.status is P.COMPLETED


async def test_a_plan_with_long_tasks_is_looked_at_about_once_a_second(bench: Bench) -> None:
    process = await bench.start("a")
    bench.stand("t1")
    await bench.plan("t1", "t2")
    await bench.clock.elapse(10)
    process.calls.clear()
    version = bench.record.version
    await bench.clock.elapse(60)
    assert bench.record.version == version
    assert process.driven <= 60 * 3


async def test_two_thousand_tasks_are_done_in_a_bounded_number_of_steps(bench: Bench) -> None:
    process = await bench.start("a")
    await bench.plan(*(f"t{i}" for i in range(2000)), max_concurrency=100, waves=("1", "100%"))
    assert await bench.until_rests() is P.COMPLETED
    assert len(bench.ran) == len(set(bench.ran)) == 2000
    assert process.calls.count("plans.apply") <= 80


async def test_a_store_that_says_at_once_over_and_over_is_not_asked_without_a_pause(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its own clock a plan is due, by the worker's a little later."""
    asked: list[str] = []

    async def claim(owner: str, **_: object) -> DuePlans:
        asked.append(owner)
        return DuePlans(plans=(), next_seconds=0.0 if len(asked) < 1000 else None)

    monkeypatch.setattr(bench.store.plans, "claim", claim)
    await bench.start("a")
    await bench.clock.elapse(1)
    assert len(asked) <= 101
