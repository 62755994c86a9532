"""Where plans once went wrong, or might: soaks, single waves, many that rest, what is gone."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast import FailureCount, Status
from holdfast.domain.plan import MemberState, PlanApplied, PlanStale, PlanStatus
from tests.runtime.helpers import Gate
from tests.runtime.plan_bench import Bench

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
    process.bench.store._tasks.pop(lost)  # as a failover may lose it
    bench.watched.clear()
    await bench.until(lambda: bench.record.rests)
    assert bench.record.status is P.PARTIAL_FAILED
    assert bench.record.count(M.FAILED) == 1
    bench.store.plans._shelves.clear()  # the doctor is not asked about what was broken on purpose
    bench.store._bodies.pop(lost)
    bench.store._tenants.pop("t3")


async def test_a_request_whose_answer_was_lost_is_known_again(bench: Bench) -> None:
    """Though the driver has written since."""
    await bench.start("a")
    plan = await bench.plan("t1", "t2", waves=("1", "100%"), soak="1h")
    await bench.clock.elapse(10)
    apply, lost = bench.store.plans.apply, list[str]()

    async def losing(change: Any, **options: Any) -> Any:
        outcome = await apply(change, **options)
        if change.lease is None and not lost and isinstance(outcome, PlanApplied):
            lost.append(change.after.request)
            await bench.clock.elapse(5)
            return PlanStale(outcome.plan)  # as a resend is answered
        return outcome

    bench.store.plans.apply = losing  # type: ignore[method-assign]
    assert await plan.pause() is P.PAUSED
    assert lost
    audits = await bench.store.audits(limit=10)
    assert [audit.refused for audit in audits] == [None]


async def test_tasks_put_in_after_their_plan_was_cancelled_are_withdrawn_by_the_next_call(
    bench: Bench,
) -> None:
    await bench.start("a")
    insert = bench.store.insert

    async def cut_off(*arguments: Any, **options: Any) -> Any:
        await bench.app.plan.get("p").cancel()
        await bench.until(lambda: bench.record.status is P.CANCELLED)
        await insert(*arguments, **options)
        raise ConnectionError("the maker dies here")

    bench.store.insert = cut_off  # type: ignore[method-assign]
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
