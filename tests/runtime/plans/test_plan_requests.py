"""What a person asks of a plan reaches its tasks, by their own commands."""

from collections.abc import AsyncIterator

import pytest

from holdfast import FailureCount, Status
from holdfast.domain.plan.plan import MemberState, PlanStatus
from holdfast.errors import IllegalTransition
from tests.support.runtime.helpers import Gate
from tests.support.runtime.plan_bench import Bench

S, P, M = Status, PlanStatus, MemberState


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with Bench() as bench:
        yield bench


async def test_a_pause_reaches_the_tasks_that_run_and_lets_nothing_go(bench: Bench) -> None:
    """Though nothing else happens that the driver would have to write down."""
    await bench.start("a")
    one, two = bench.stand("t1", "t2")
    plan = await bench.plan("t1", "t2", "t3", max_concurrency=2)
    await bench.clock.elapse(10)
    await plan.pause("lunch")
    await bench.clock.elapse(2)
    assert all(bench.store.state.tasks[bench.task_id(t)].pause_requested for t in ("t1", "t2"))
    one.open()
    two.open()
    await bench.clock.elapse(10)
    assert bench.statuses() == [S.PAUSED, S.PAUSED, S.CREATED]
    assert bench.record.lease is None, "nobody looks after it"


async def test_a_resume_sets_what_the_plan_paused_going_again(bench: Bench) -> None:
    await bench.start("a")
    gates = bench.stand("t1", "t2")
    plan = await bench.plan("t1", "t2", "t3", max_concurrency=2)
    await bench.clock.elapse(5)
    await plan.pause()
    await bench.clock.elapse(5)
    for gate in gates:
        gate.open()
    await bench.clock.elapse(5)
    assert bench.statuses() == [S.PAUSED, S.PAUSED, S.CREATED]
    await plan.resume()
    assert await bench.until_rests() is P.COMPLETED


async def test_a_resume_takes_back_a_pause_that_has_not_come_about(bench: Bench) -> None:
    await bench.start("a")
    [gate] = bench.stand("t1")
    plan = await bench.plan("t1")
    await bench.clock.elapse(5)
    await plan.pause()
    await bench.clock.elapse(5)
    await plan.resume()
    await bench.clock.elapse(5)
    assert not bench.store.state.tasks[bench.task_id("t1")].pause_requested
    gate.open()
    assert await bench.until_rests() is P.COMPLETED


async def test_a_persons_own_pause_of_one_task_survives_a_plans_resume(bench: Bench) -> None:
    await bench.start("a")
    gates = bench.stand("t1", "t2")
    plan = await bench.plan("t1", "t2", "t3", max_concurrency=2)
    await bench.clock.elapse(5)
    bench.by_hand = {"t1"}
    own = bench.app.handle(bench.task_id("t1"))
    await own.pause("I am looking at it")
    await plan.pause()
    await bench.clock.elapse(5)
    for gate in gates:
        gate.open()
    await bench.clock.elapse(5)
    await plan.resume()
    await bench.until(lambda: bench.record.count(M.COMPLETED) == 2)
    await bench.clock.elapse(30)
    assert bench.statuses() == [S.PAUSED, S.COMPLETED, S.COMPLETED]
    assert bench.record.status is P.RUNNING, "it waits for that one"
    await own.resume()
    assert await bench.until_rests() is P.COMPLETED


async def test_a_task_that_a_person_paused_takes_no_slot(bench: Bench) -> None:
    await bench.start("a")
    [gate] = bench.stand("t1")
    await bench.plan("t1", "t2", max_concurrency=1)
    await bench.clock.elapse(5)
    await bench.app.handle(bench.task_id("t1")).pause()
    gate.open()
    await bench.until(lambda: bench.record.count(M.COMPLETED) == 1)
    assert bench.statuses() == [S.PAUSED, S.COMPLETED]


async def test_a_plan_that_is_paused_before_it_begins_begins_when_it_is_resumed(
    bench: Bench,
) -> None:
    plan = await bench.plan("t1")
    await plan.pause()
    await bench.start("a")
    await bench.clock.elapse(60)
    assert bench.ran == []
    await plan.resume()
    assert await bench.until_rests() is P.COMPLETED


async def test_a_cancel_ends_every_task_and_then_the_plan(bench: Bench) -> None:
    await bench.start("a")
    bench.fails = {"t2"}
    [gate] = bench.stand("t3")
    plan = await bench.plan("t1", "t2", "t3", "t4", max_concurrency=1)
    await bench.reached(gate)
    await bench.clock.elapse(5)
    await plan.cancel("not today")
    await bench.clock.elapse(5)
    assert (await plan.info()).cancel_requested
    assert bench.record.status is P.RUNNING, "one still runs"
    gate.open()
    assert await bench.until_rests() is P.CANCELLED
    assert bench.statuses() == [S.COMPLETED, S.CANCELLED, S.CANCELLED, S.CANCELLED]
    with pytest.raises(IllegalTransition):
        await plan.resume()


@pytest.mark.parametrize("status", [P.PAUSED, P.HALTED, P.PARTIAL_FAILED])
async def test_a_plan_that_rests_can_be_cancelled(bench: Bench, status: PlanStatus) -> None:
    await bench.start("a")
    rule = FailureCount(0) if status is P.HALTED else None
    if status is P.PAUSED:
        bench.stand("t2")
    else:
        bench.fails = {"t2"}
    plan = await bench.plan("t1", "t2", max_concurrency=1, halt_on=rule)
    if status is P.PAUSED:
        await bench.clock.elapse(5)
        await plan.pause()
        await bench.clock.elapse(2)
        bench.gates["t2"].open()
    await bench.clock.elapse(10)
    assert bench.record.status is status
    await plan.cancel()
    assert await bench.until_rests() is P.CANCELLED
    assert bench.statuses() == [S.COMPLETED, S.CANCELLED]


async def test_a_plan_of_hundreds_is_cancelled_in_few_steps(bench: Bench) -> None:
    process = await bench.start("a")
    plan = await bench.plan(*(f"t{i}" for i in range(900)), max_concurrency=1)
    await plan.cancel()
    assert await bench.until_rests() is P.CANCELLED
    assert process.calls.count("plans.apply") <= 15


async def test_a_retry_runs_the_failed_again(bench: Bench) -> None:
    await bench.start("a")
    bench.fails = {"t1", "t3"}
    plan = await bench.plan("t1", "t2", "t3")
    assert await bench.until_rests() is P.PARTIAL_FAILED
    bench.fails = {"t3"}
    await plan.retry()
    assert await bench.until_rests() is P.PARTIAL_FAILED
    bench.fails = set()
    await plan.retry()
    assert await bench.until_rests() is P.COMPLETED
    assert sorted(bench.ran) == ["t1", "t1", "t2", "t3", "t3", "t3"]


async def test_a_retry_is_held_to_the_slots_too(bench: Bench) -> None:
    await bench.start("a")
    tenants = [f"t{i}" for i in range(8)]
    bench.fails = set(tenants)
    plan = await bench.plan(*tenants, max_concurrency=2)
    assert await bench.until_rests() is P.FAILED
    bench.fails = set()
    await plan.retry()
    assert await bench.until_rests() is P.COMPLETED


async def test_a_failed_task_that_a_person_retried_by_hand_counts_as_it_ends(bench: Bench) -> None:
    await bench.start("a")
    bench.fails = {"t1"}
    [gate] = bench.stand("t2")
    await bench.plan("t1", "t2")
    await bench.until(lambda: bench.record.count(M.FAILED) == 1)
    bench.fails, bench.by_hand = set(), {"t1"}
    await bench.app.handle(bench.task_id("t1")).retry()
    await bench.clock.elapse(10)
    gate.open()
    assert await bench.until_rests() is P.COMPLETED


async def test_a_rollback_undoes_what_is_completed_newest_first(bench: Bench) -> None:
    await bench.start("a")
    plan = await bench.plan("t1", "t2", "t3", max_concurrency=1)
    assert await bench.until_rests() is P.COMPLETED
    await plan.rollback("it was wrong")
    assert await bench.until_rests() is P.ROLLED_BACK
    assert bench.undone == ["t3", "t2", "t1"]


async def test_a_rollback_of_one_wave_leaves_the_others(bench: Bench) -> None:
    await bench.start("a")
    plan = await bench.plan("t1", "t2", "t3", waves=("1", "100%"))
    assert await bench.until_rests() is P.COMPLETED
    await plan.rollback(wave=2)
    assert await bench.until_rests() is P.ROLLED_BACK
    assert bench.statuses() == [S.COMPLETED, S.ROLLED_BACK, S.ROLLED_BACK]


async def test_a_rollback_of_a_paused_plan_stops_what_runs_and_undoes_it(bench: Bench) -> None:
    await bench.start("a")
    [gate] = bench.stand("t2")
    plan = await bench.plan("t1", "t2", "t3", max_concurrency=1)
    await bench.reached(gate)
    await bench.clock.elapse(5)
    await plan.pause()
    await plan.rollback()
    await bench.clock.elapse(5)
    gate.open()
    assert await bench.until_rests() is P.ROLLED_BACK
    assert bench.statuses() == [S.ROLLED_BACK, S.ROLLED_BACK, S.CANCELLED]
    assert bench.undone == ["t2", "t1"]


async def test_an_undo_that_fails_fails_the_rollback_and_can_be_tried_again(bench: Bench) -> None:
    await bench.start("a")
    bench.undo_fails = {"t2"}
    plan = await bench.plan("t1", "t2", "t3")
    assert await bench.until_rests() is P.COMPLETED
    await plan.rollback()
    assert await bench.until_rests() is P.ROLLBACK_FAILED
    assert bench.statuses() == [S.ROLLED_BACK, S.ROLLBACK_FAILED, S.ROLLED_BACK]
    bench.undo_fails = set()
    await plan.rollback()
    assert await bench.until_rests() is P.ROLLED_BACK
    assert sorted(bench.undone) == ["t1", "t2", "t3"]


async def test_newer_work_of_a_tenant_is_not_rolled_over_unless_forced(bench: Bench) -> None:
    await bench.start("a")
    plan = await bench.plan("t1", "t2")
    assert await bench.until_rests() is P.COMPLETED
    newer = await bench.other("t1")
    await bench.clock.elapse(5)
    assert (await newer.info()).status is S.COMPLETED
    await plan.rollback()
    assert await bench.until_rests() is P.ROLLBACK_FAILED
    assert bench.statuses() == [S.COMPLETED, S.ROLLED_BACK]
    assert "RollbackRefused" in bench.told()
    await plan.rollback(force=True)
    assert await bench.until_rests() is P.ROLLED_BACK
    assert bench.statuses() == [S.ROLLED_BACK, S.ROLLED_BACK]


async def test_what_was_rolled_back_can_be_run_again(bench: Bench) -> None:
    await bench.start("a")
    plan = await bench.plan("t1", "t2", max_concurrency=1)
    assert await bench.until_rests() is P.COMPLETED
    await plan.rollback()
    assert await bench.until_rests() is P.ROLLED_BACK
    await plan.retry()
    assert await bench.until_rests() is P.COMPLETED
    assert bench.ran == ["t1", "t2", "t1", "t2"]


async def test_a_retry_that_its_driver_died_over_can_be_rolled_back(bench: Bench) -> None:
    """The slot is written, the task is not set going, and then a person thinks better of it."""
    bench.fails = {"t1"}
    first = await bench.start("first")
    plan = await bench.plan("t1", halt_on=FailureCount(0))
    assert await bench.until_rests() is P.HALTED
    held = first.held["apply"] = Gate()
    await plan.retry()
    await bench.reached(held)
    assert first.worker is not None
    first.worker.abandon()
    await plan.pause()
    await plan.rollback()
    await bench.start("second")
    assert await bench.until_rests() is P.ROLLED_BACK


@pytest.mark.parametrize("ask", ["cancel", "rollback"])
async def test_a_skipped_tenants_task_is_cancelled_whatever_comes_next(
    bench: Bench, ask: str
) -> None:
    """The driver that skipped it died before it could cancel its task."""
    first = await bench.start("first", works=False)
    await bench.start("worker", drives=False)
    [gate] = bench.stand("t1")
    await bench.other("t1")
    await bench.reached(gate)
    held = first.held["apply"] = Gate()
    plan = await bench.plan("t1", conflict="skip")
    await bench.reached(held)
    assert bench.record.count(M.SKIPPED) == 1
    assert first.worker is not None
    first.worker.abandon()
    if ask == "rollback":
        await plan.pause()
    await getattr(plan, ask)()
    await bench.start("second", works=False)
    assert await bench.until_rests() in (P.CANCELLED, P.ROLLED_BACK)
    assert bench.statuses() == [S.CANCELLED]


async def test_a_running_plan_is_rolled_back_with_one_command(bench: Bench) -> None:
    """What runs ends its stage and stops; then all is undone, and nothing more was let go."""
    await bench.start("a")
    [gate] = bench.stand("t3")
    plan = await bench.plan("t1", "t2", "t3", "t4", "t5", max_concurrency=1)
    await bench.reached(gate)
    assert (await plan.info()).status is P.RUNNING
    await plan.rollback("version 7 is broken")
    await bench.clock.elapse(5)
    assert (await plan.info()).status is P.ROLLING_BACK
    assert bench.statuses()[:3] == [S.COMPLETED, S.COMPLETED, S.RUNNING], "it is in its stage"
    assert bench.undone == []
    gate.open()
    assert await bench.until_rests() is P.ROLLED_BACK
    assert bench.statuses() == [S.ROLLED_BACK] * 3 + [S.CANCELLED] * 2
    assert bench.undone == ["t3", "t2", "t1"]
    assert {"t4", "t5"}.isdisjoint(bench.ran)


async def test_one_wave_of_a_running_plan_is_rolled_back_and_the_rest_goes_on_when_asked(
    bench: Bench,
) -> None:
    await bench.start("a")
    [gate] = bench.stand("t2")
    plan = await bench.plan("t1", "t2", "t3", waves=("1", "100%"), max_concurrency=1)
    await bench.reached(gate)
    await plan.rollback(wave=2)
    gate.open()
    assert await bench.until_rests() is P.ROLLED_BACK
    assert bench.statuses()[0] is S.COMPLETED
    assert bench.undone == ["t2"]
    await plan.retry()
    assert await bench.until_rests() is P.COMPLETED
