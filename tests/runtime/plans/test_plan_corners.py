"""Where plans once went wrong, or might: soaks, single waves, many that rest, what is gone."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast import FailureCount, Status
from holdfast.domain.plan.plan import MemberState, PlanApplied, PlanStale, PlanStatus
from holdfast.errors import StoreUnavailable
from tests.support.runtime.helpers import Gate
from tests.support.runtime.plan_bench import Bench

S, P, M = Status, PlanStatus, MemberState


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with Bench() as bench:
        yield bench


async def soaking(bench: Bench) -> Any:
    await bench.start("a")
    plan = await bench.plan("t1", "t2", "t3", waves=("1", "100%"), soak="1h")
    await bench.clock.elapse(10)
    assert bench.record.soaks_since is not None
    return plan


async def test_a_cancel_does_not_wait_for_the_end_of_a_soak(bench: Bench) -> None:
    plan = await soaking(bench)
    await plan.cancel()
    assert await bench.until_rests(most_seconds=30) is P.CANCELLED


async def test_a_rollback_does_not_wait_for_the_end_of_a_soak(bench: Bench) -> None:
    plan = await soaking(bench)
    await plan.pause()
    await plan.rollback()
    assert await bench.until_rests(most_seconds=30) is P.ROLLED_BACK
    assert bench.undone == ["t1"]


async def test_what_the_plan_paused_in_another_wave_goes_on_after_a_waves_rollback(
    bench: Bench,
) -> None:
    await bench.start("a")
    [gate] = bench.stand("t2")
    plan = await bench.plan("t1", "t2", waves=("1", "100%"))
    await bench.reached(gate)
    await plan.pause()
    await bench.clock.elapse(2)
    gate.open()
    await bench.clock.elapse(5)
    assert bench.statuses() == [S.COMPLETED, S.PAUSED]
    await plan.rollback(wave=1)
    assert await bench.until_rests() is P.ROLLED_BACK
    await plan.retry()
    assert await bench.until_rests() is P.COMPLETED
    assert bench.statuses() == [S.COMPLETED, S.COMPLETED]


async def test_a_waves_rollback_does_not_wait_for_tasks_of_other_waves(bench: Bench) -> None:
    await bench.start("a")
    bench.fails = {"t2"}
    [gate] = bench.stand("t3")
    terms = {"waves": ("1", "100%"), "halt_on": FailureCount(0)}
    plan = await bench.plan("t1", "t2", "t3", **terms)
    await bench.reached(gate)
    await bench.until(lambda: bench.record.status is P.HALTED)
    await plan.rollback(wave=1)
    await bench.until(lambda: bench.undone == ["t1"], most_seconds=30)
    gate.open()
    await bench.until(lambda: bench.statuses()[2] is S.COMPLETED)


async def test_of_many_that_rest_each_is_looked_at_again(bench: Bench) -> None:
    """A person resumes the one that a person paused."""
    await bench.start("a")
    failing = [f"f{number}" for number in range(250)]
    bench.fails = set(failing)
    [gate] = bench.stand("last")
    await bench.plan(*failing, "last", halt_on=None)
    await bench.reached(gate)
    await bench.app.control.pause(bench.task_id("last"), reason="wait")
    gate.open()
    await bench.until(lambda: bench.record.count(M.PAUSED) == 1)
    bench.by_hand = {"last"}
    await bench.app.control.resume(bench.task_id("last"))
    assert await bench.until_rests(most_seconds=60) is P.PARTIAL_FAILED


async def test_tasks_that_never_began_do_not_hold_up_a_rollback(bench: Bench) -> None:
    """Of many, with one slot: each is cancelled, and none is looked at again."""
    await bench.start("a")
    bench.fails = {"t1"}
    waiting = [f"w{number}" for number in range(400)]
    terms = {"waves": ("2", "100%"), "halt_on": FailureCount(0), "max_concurrency": 1}
    plan = await bench.plan("t0", "t1", *waiting, **terms)
    assert await bench.until_rests() is P.HALTED
    began = bench.clock.steady()
    await plan.rollback()
    await bench.until(lambda: bench.undone == ["t1", "t0"])
    assert bench.clock.steady() - began < 5
    assert await bench.until_rests() is P.ROLLED_BACK


async def test_a_task_that_is_nowhere_has_failed(bench: Bench) -> None:
    process = await bench.start("a")
    await bench.plan("t1", "t2", "t3", waves=("1", "100%"), soak="10s", halt_on=FailureCount(1))
    await bench.until(lambda: bench.record.soaks_since is not None)
    lost = bench.task_id("t3")
    process.bench.store.state.tasks.pop(lost)  # as a failover may lose it
    bench.watched.clear()
    await bench.until(lambda: bench.record.is_stopped)
    assert bench.record.status is P.PARTIAL_FAILED
    assert bench.record.count(M.FAILED) == 1
    bench.store.state.plans.clear()  # the doctor is not asked about what was broken on purpose
    bench.store.state.bodies.pop(lost)
    bench.store.state.tenants.pop("t3")


async def test_a_request_whose_answer_was_lost_is_known_again(bench: Bench) -> None:
    """Though the driver has written since."""
    await bench.start("a")
    plan = await bench.plan("t1", "t2", waves=("1", "100%"), soak="1h")
    await bench.clock.elapse(10)
    plans: Any = bench.app.store.plans
    apply, lost = plans.apply, list[str]()

    async def losing(change: Any, **options: Any) -> Any:
        outcome = await apply(change, **options)
        if change.lease is None and not lost and isinstance(outcome, PlanApplied):
            lost.append(change.after.request)
            await bench.clock.elapse(5)
            return PlanStale(outcome.plan)  # as a resend is answered
        return outcome

    plans.apply = losing
    assert await plan.pause() is P.PAUSED
    assert lost
    audits = await bench.store.admin.audits(limit=10)
    assert [audit.refused for audit in audits] == [None]


async def test_tasks_put_in_after_their_plan_was_cancelled_are_withdrawn_by_the_next_call(
    bench: Bench,
) -> None:
    await bench.start("a")
    tasks: Any = bench.app.store.tasks
    insert = tasks.insert

    async def cut_off(*arguments: Any, **options: Any) -> Any:
        await bench.app.plan.get("p").cancel()
        await bench.until(lambda: bench.record.status is P.CANCELLED)
        await insert(*arguments, **options)
        raise ConnectionError("the maker dies here")

    tasks.insert = cut_off
    with pytest.raises(ConnectionError):
        await bench.app.plan("p", bench.on("t1", "t2"))
    assert bench.statuses() == [S.CREATED, S.CREATED]
    await bench.app.plan("p", bench.on("t1", "t2"))
    assert bench.statuses() == [S.CANCELLED, S.CANCELLED]


async def test_who_was_forgiven_and_is_mended_makes_room_for_no_other_failure(
    bench: Bench,
) -> None:
    await bench.start("a")
    bench.fails = {"t1", "t3"}
    plan = await bench.plan("t1", "t2", "t3", "t4", max_concurrency=1, halt_on=FailureCount(0))
    assert await bench.until_rests() is P.HALTED
    [gate] = bench.stand("t2")
    await plan.resume()
    await bench.reached(gate)
    bench.fails, bench.by_hand = {"t3"}, {"t1"}
    await bench.app.control.retry(bench.task_id("t1"))
    await bench.until(lambda: bench.statuses()[0] is S.COMPLETED)
    await bench.clock.elapse(20)
    gate.open()
    assert await bench.until_rests() is P.HALTED
    assert bench.statuses()[2:] == [S.FAILED, S.CREATED]


async def test_a_zombies_retry_is_void_once_the_plan_was_paused(bench: Bench) -> None:
    """It wrote the slot, and froze before it sent the command."""
    zombie = await bench.start("a")
    bench.fails = {"t1"}
    plan = await bench.plan("t1", "t2", waves=("1", "100%"), halt_on=FailureCount(0))
    assert await bench.until_rests() is P.HALTED
    gate = zombie.held["apply"] = Gate()
    await plan.retry()
    await bench.reached(gate)
    bench.fails = set()
    await plan.pause()
    await bench.start("b")
    await bench.until(lambda: bench.record.lease is None)
    gate.open()
    await bench.clock.elapse(20)
    assert bench.statuses() == [S.FAILED, S.CREATED]
    await plan.resume()
    assert await bench.until_rests() is P.COMPLETED


# What a person does to single tasks of a plan that rests.


async def rested_partly(bench: Bench, **terms: Any) -> Any:
    """Two of three have failed, and nobody has the plan."""
    process = await bench.start("a")
    bench.fails = {"t1", "t2"}
    await bench.plan("t1", "t2", "t3", **terms)
    assert await bench.until_rests() is P.PARTIAL_FAILED
    await bench.until(lambda: bench.record.lease is None)
    bench.fails, bench.by_hand = set(), {"t1", "t2"}
    return process


async def test_a_plan_whose_failed_tasks_were_retried_by_hand_is_completed(bench: Bench) -> None:
    await rested_partly(bench)
    await bench.app.control.retry(bench.task_id("t1"))
    await bench.until(lambda: bench.record.count(M.COMPLETED) == 2, most_seconds=20)
    assert (bench.record.status, bench.record.reason) == (P.PARTIAL_FAILED, "1 failed, of 3")
    await bench.app.control.retry(bench.task_id("t2"))
    await bench.until(lambda: bench.record.status is P.COMPLETED, most_seconds=20)
    assert (bench.record.settled_at is not None, bench.record.reason) == (True, None)


async def test_a_plan_keeps_its_driver_while_a_task_goes_by_hand(bench: Bench) -> None:
    """And sees it fail again."""
    await rested_partly(bench)
    [gate] = bench.stand("t1")
    bench.fails = {"t1"}
    await bench.app.control.retry(bench.task_id("t1"))
    await bench.reached(gate)
    await bench.clock.elapse(60)
    assert bench.record.lease is not None
    assert bench.record.count(M.ADMITTED) == 1
    gate.open()
    await bench.until(lambda: bench.record.lease is None, most_seconds=20)
    assert (bench.record.status, bench.record.count(M.FAILED)) == (P.PARTIAL_FAILED, 2)


async def test_what_a_person_has_discarded_is_no_failure_of_a_plan(bench: Bench) -> None:
    await rested_partly(bench)
    for tenant in ("t1", "t2"):
        await bench.app.control.discard(bench.task_id(tenant))
    await bench.until(lambda: bench.record.status is P.COMPLETED, most_seconds=20)
    assert bench.record.count(M.CANCELLED) == 2


async def test_a_failed_plan_is_mended_step_by_step(bench: Bench) -> None:
    await bench.start("a")
    bench.fails = {"t1", "t2"}
    await bench.plan("t1", "t2")
    assert await bench.until_rests() is P.FAILED
    bench.fails, bench.by_hand = set(), {"t1", "t2"}
    await bench.app.control.retry(bench.task_id("t1"))
    await bench.until(lambda: bench.record.status is P.PARTIAL_FAILED, most_seconds=20)
    await bench.app.control.discard(bench.task_id("t2"))
    await bench.until(lambda: bench.record.status is P.COMPLETED, most_seconds=20)


async def test_a_failed_plan_all_of_whose_tasks_were_discarded_is_cancelled(bench: Bench) -> None:
    await bench.start("a")
    bench.fails = {"t1", "t2"}
    await bench.plan("t1", "t2")
    assert await bench.until_rests() is P.FAILED
    for tenant in ("t1", "t2"):
        await bench.app.control.discard(bench.task_id(tenant))
    await bench.until(lambda: bench.record.status is P.CANCELLED, most_seconds=20)


async def test_a_halted_plan_counts_what_was_mended_by_hand(bench: Bench) -> None:
    await bench.start("a")
    bench.fails = {"t1"}
    plan = await bench.plan("t1", "t2", waves=("1", "100%"))
    assert await bench.until_rests() is P.HALTED
    bench.fails, bench.by_hand = set(), {"t1"}
    await bench.app.control.retry(bench.task_id("t1"))
    await bench.until(lambda: bench.record.count(M.COMPLETED) == 1, most_seconds=20)
    await bench.until(lambda: bench.record.lease is None, most_seconds=20)
    assert (bench.record.status, bench.statuses()[1]) == (P.HALTED, S.CREATED)
    await plan.resume()
    assert bench.record.forgiven == 0
    assert await bench.until_rests() is P.COMPLETED


async def test_a_paused_plan_leaves_alone_what_a_person_sets_going(bench: Bench) -> None:
    await bench.start("a")
    bench.fails = {"t1"}
    [gate] = bench.stand("t2")
    plan = await bench.plan("t1", "t2", "t3", max_concurrency=1, halt_on=None)
    await bench.reached(gate)
    await plan.pause()
    await bench.clock.elapse(2)
    gate.open()
    await bench.until(lambda: bench.record.lease is None, most_seconds=20)
    bench.fails, bench.by_hand = set(), {"t1"}
    [gate] = bench.stand("t1")
    await bench.app.control.retry(bench.task_id("t1"))
    await bench.reached(gate)
    await bench.clock.elapse(20)
    gate.open()
    await bench.until(lambda: bench.statuses()[0] is S.COMPLETED, most_seconds=20)
    await bench.until(lambda: bench.record.lease is None, most_seconds=20)
    assert (bench.record.status, bench.record.count(M.COMPLETED)) == (P.PAUSED, 1)
    assert bench.statuses()[1:] == [S.PAUSED, S.CREATED]


async def failed_to_roll_back(bench: Bench) -> None:
    await bench.start("a")
    plan = await bench.plan("t1", "t2")
    assert await bench.until_rests() is P.COMPLETED
    bench.undo_fails = {"t1"}
    await plan.rollback()
    await bench.until(lambda: bench.record.status is P.ROLLBACK_FAILED)
    bench.undo_fails = set()


@pytest.mark.parametrize("command", ["rollback", "discard"])
async def test_a_rollback_that_a_person_has_finished_by_hand_is_done(
    bench: Bench, command: str
) -> None:
    await failed_to_roll_back(bench)
    await getattr(bench.app.control, command)(bench.task_id("t1"))
    await bench.until(lambda: bench.record.status is P.ROLLED_BACK, most_seconds=20)
    assert bench.record.settled_at is not None


async def test_a_task_that_could_not_be_undone_is_not_undone_because_somebody_looked(
    bench: Bench,
) -> None:
    """Newer work of its tenant has run over it: it is as completed as it was."""
    await bench.start("a")
    plan = await bench.plan("t1", "t2")
    assert await bench.until_rests() is P.COMPLETED
    newer = await bench.other("t1")
    await newer.result()
    await plan.rollback()
    await bench.until(lambda: bench.record.status is P.ROLLBACK_FAILED)
    version = bench.record.version
    await bench.store.plans.wake(["p"])
    await bench.until(lambda: bench.record.version > version, most_seconds=20)
    await bench.clock.elapse(10)
    assert bench.record.status is P.ROLLBACK_FAILED
    assert bench.record.count(M.ROLLBACK_FAILED) == 1
    await bench.app.control.rollback(bench.task_id("t1"), force=True)
    await bench.until(lambda: bench.record.status is P.ROLLED_BACK, most_seconds=20)


async def test_what_a_person_does_just_before_the_driver_goes_is_seen(bench: Bench) -> None:
    """The driver has looked at the task, and has not yet written that the plan rests."""
    process = await bench.start("a")
    bench.fails = {"t1"}
    [gate] = bench.stand("t2")
    await bench.plan("t1", "t2")
    await bench.reached(gate)
    await bench.until(lambda: bench.record.count(M.FAILED) == 1)
    await bench.clock.elapse(4)
    writes = process.held["plans.apply"] = Gate()
    gate.open()
    await bench.reached(writes)
    bench.fails, bench.by_hand = set(), {"t1"}
    await bench.app.control.retry(bench.task_id("t1"))
    await bench.until(lambda: bench.statuses() == [S.COMPLETED, S.COMPLETED])
    writes.open()
    await bench.until(lambda: bench.record.status is P.COMPLETED, most_seconds=20)


async def test_of_many_that_rest_the_one_that_was_mended_is_found_at_once(bench: Bench) -> None:
    await bench.start("a")
    failing = [f"f{number}" for number in range(450)]
    bench.fails = set(failing)
    await bench.plan(*failing, "t1")
    assert await bench.until_rests() is P.PARTIAL_FAILED
    await bench.until(lambda: bench.record.lease is None)
    bench.fails, bench.by_hand = set(), {"f449"}
    await bench.app.control.retry(bench.task_id("f449"))
    await bench.until(lambda: bench.record.count(M.COMPLETED) == 2, most_seconds=5)
    await bench.until(lambda: bench.record.lease is None, most_seconds=5)
    version = bench.record.version
    await bench.store.plans.wake(["p"])
    await bench.until(lambda: bench.record.version > version, most_seconds=1)
    assert bench.record.lease is None


async def test_a_command_is_done_though_the_plan_could_not_be_told(bench: Bench) -> None:
    await rested_partly(bench)

    async def away(plan_ids: Any) -> None:
        raise StoreUnavailable(f"{plan_ids}: nobody answers")

    wake, bench.store.plans.wake = bench.store.plans.wake, away  # type: ignore[method-assign]
    await bench.app.control.retry(bench.task_id("t1"))
    await bench.until(lambda: bench.statuses()[0] is S.COMPLETED)
    bench.store.plans.wake = wake  # type: ignore[method-assign]
    await bench.app.control.discard(bench.task_id("t2"))
    await bench.until(lambda: bench.record.status is P.COMPLETED, most_seconds=20)


async def test_a_plan_that_rests_costs_nothing_when_nobody_does_anything(bench: Bench) -> None:
    process = await rested_partly(bench)
    await bench.app.control.retry(bench.task_id("t1"))
    await bench.until(lambda: bench.record.count(M.COMPLETED) == 2)
    await bench.until(lambda: bench.record.lease is None)
    version = bench.record.version
    process.calls.clear()
    await bench.clock.elapse(600)
    looks = [verb for verb in process.calls if verb.startswith("plans.")]
    assert set(looks) <= {"plans.claim"}
    assert len(looks) <= 21
    assert bench.record.version == version
