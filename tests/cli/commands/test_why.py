"""Each reason for which a task may not move has its own answer."""

import re

import pytest
from msgspec.structs import replace

from holdfast.domain import notification
from holdfast.domain.errors import TaskNotFound
from holdfast.domain.task import decide
from holdfast.domain.task.decide import Failed
from holdfast.domain.task.retry import Retry
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import Failure, FailureKind, Progress
from holdfast.insight.why.task import Explanation, explain
from holdfast.ports import Kept, Renewal
from holdfast.settings import load
from tests.support.cli.scene import LEASE_SECONDS, Scene
from tests.support.cli.world import World


async def test_an_unknown_task_is_not_found(scene: Scene) -> None:
    with pytest.raises(TaskNotFound):
        await scene.why("nobody")


async def test_ready_and_no_worker_has_ever_been_there(scene: Scene) -> None:
    task_id = await scene.submit()
    scene.clock.advance("5m")
    assert await scene.why(task_id) == (
        "It has been ready in queue 'default' for 5m, but no worker is alive. "
        "Start one: `holdfast worker APP`."
    )


async def test_ready_and_the_last_worker_has_gone_silent(scene: Scene) -> None:
    task_id = await scene.submit()
    await scene.beat("w-1")
    scene.clock.advance("10m")
    assert "no worker is alive; w-1 was last seen 10m ago." in await scene.why(task_id)


async def test_ready_and_nobody_serves_its_queue(scene: Scene) -> None:
    task_id = await scene.submit()
    await scene.beat("w-1", queues=("mail", "slow"))
    answer = await scene.why(task_id)
    assert (
        "no live worker serves that queue. Alive: w-1 (queues mail, slow, last seen 0s ago)."
        in answer
    )
    assert "--queues default" in answer


async def test_ready_and_nobody_knows_its_type(scene: Scene) -> None:
    task_id = await scene.submit()
    await scene.beat("w-1", types=("mail.send",))
    scene.clock.advance(9)
    assert (
        "no live worker of that queue knows its type 'tenant.upgrade': w-1 (last seen 9s ago)."
    ) in await scene.why(task_id)


async def test_ready_and_all_slots_are_busy(scene: Scene) -> None:
    task_id = await scene.submit()
    await scene.beat("w-1", running=2)
    assert "busy: w-1 (2/2, last seen 0s ago)." in await scene.why(task_id)


async def test_ready_and_about_to_be_taken(scene: Scene) -> None:
    task_id = await scene.submit()
    await scene.beat("w-1", running=1)
    assert "w-1 (last seen 0s ago) can run it and will claim it" in await scene.why(task_id)


async def test_in_line_behind_a_task_that_runs(scene: Scene) -> None:
    first, second, third = [await scene.submit() for _ in range(3)]
    await scene.claim("w-1")
    scene.clock.advance(5)
    answer = await scene.why(third)
    assert f"It is number 2 in the line of tenant t-1, behind task {first}." in answer
    assert "Worker w-1 runs stage 'snapshot' (1 of 2, attempt 1), started 5s ago" in answer
    assert "It is number 1 in the line" in await scene.why(second)


async def test_in_line_behind_a_task_that_keeps_it_closed(scene: Scene) -> None:
    first, second = await scene.submit(), await scene.submit()
    await scene.fail(await scene.claim())
    answer = await scene.why(second)
    assert (
        f"behind task {first}. That task keeps the line closed: It has been {Status.FAILED}"
        in answer
    )
    assert f"holdfast suspended resume {first}" in answer


async def test_due_at_a_time(scene: Scene) -> None:
    task_id = await scene.submit()
    await scene.fail(await scene.claim(), retry_seconds=90)
    answer = await scene.why(task_id)
    assert answer.startswith("It is due in 1m30s (")
    assert (
        "then stage 'snapshot' runs, attempt 2 of 3. The last error: OSError: no route." in answer
    )


async def test_crashes_are_no_failures_of_which_only_so_many_are_allowed(scene: Scene) -> None:
    """The record has the limit of the stage that failed last, or of the first: not of this one."""
    task_id = await scene.submit()
    for worker in ("w-1", "w-2", "w-3"):
        await scene.claim(worker)
        scene.clock.advance(LEASE_SECONDS + 1)
        await scene.store.tasks.expire(limit=10, count_crashes=True)
    task = await scene.claim("w-4")
    later = decide.give_back(
        task, "later", now=scene.clock.now(), interrupted=False, delay_seconds=60
    )
    await scene.store.tasks.apply([later])
    answer = await scene.why(task_id)
    assert "then stage 'snapshot' runs, attempt 4." in answer
    assert f" of {task.retry_max}" not in answer


async def test_a_lease_whose_end_the_store_does_not_know(scene: Scene) -> None:
    """On Redis, when the index of leases has lost it: its end is not in 1970."""
    task_id = await scene.submit()
    await scene.claim("w-1")
    detail = await scene.store.views.detail(task_id)
    assert detail is not None
    assert detail.task.lease is not None
    task = replace(detail.task, lease=replace(detail.task.lease, until=0.0))
    progress = Progress(fraction=0.5, message="half")
    answer = await Explanation(
        scene.store,
        replace(detail, task=task, progress=progress),
        load(lease=LEASE_SECONDS, crash_limit=3),
        now=scene.clock.now(),
    ).format()
    assert "the store does not know until when its lease holds" in answer
    assert "doctor --fix" in answer
    assert not re.search(r"\d{4,}d", answer)


async def test_due_and_nobody_there_to_put_it_back(scene: Scene) -> None:
    task_id = await scene.submit()
    await scene.fail(await scene.claim(), retry_seconds=90)
    scene.clock.advance("1h")
    assert "no worker is alive, and only a worker puts it back" in await scene.why(task_id)
    await scene.beat("w-2")
    assert "; w-2 (last seen 0s ago) moves it within a second" in await scene.why(task_id)


async def test_running_with_progress(scene: Scene) -> None:
    task_id = await scene.submit()
    task = await scene.claim("w-1")
    said = Progress(fraction=0.4, message="copying", stage="snapshot", at=scene.clock.now())
    renewal = Renewal(task_id=task_id, lease_id=decide.lease_of(task).id, progress=said)
    scene.clock.advance(20)
    await scene.beat("w-1", renewals=(renewal,))
    answer = await scene.why(task_id)
    assert "Worker w-1 runs stage 'snapshot' (1 of 2, attempt 1), started 20s ago" in answer
    assert "its lease holds for 30s more" in answer
    assert "It reports 40%: copying (20s ago)." in answer


async def test_progress_of_a_time_that_nobody_noted_is_told_without_it(scene: Scene) -> None:
    task_id = await scene.submit()
    task = await scene.claim("w-1")
    said = Progress(fraction=0.4, message="copying", stage="snapshot", at=0.0)
    renewal = Renewal(task_id=task_id, lease_id=decide.lease_of(task).id, progress=said)
    await scene.beat("w-1", renewals=(renewal,))
    assert "It reports 40%: copying." in await scene.why(task_id)


async def test_running_with_a_request_that_waits_for_the_stage(scene: Scene) -> None:
    task_id = await scene.submit()
    await scene.claim()
    control = scene.app.control.acting_as("ann", "desk-3")
    await control.pause(task_id, reason="freeze")
    asked = (
        "A pause was requested by ann on desk-3 (freeze); it takes effect at the end of the stage."
    )
    assert asked in await scene.why(task_id)
    await control.cancel(task_id)
    assert "A cancel was requested by ann on desk-3;" in await scene.why(task_id)


async def test_a_cancel_in_the_last_stage_comes_too_late_and_says_so(scene: Scene) -> None:
    task_id = await scene.submit()
    task = await scene.claim()
    control = scene.app.control.acting_as("ann", "desk-3")
    done = decide.Done(result=b"null", data={}, started_at=0.0, duration_seconds=0.0)
    now = scene.clock.now()
    await scene.apply(decide.stage_done(task, done, checkpoint=None, now=now))
    await control.cancel(task_id, reason="stop it")
    assert "this is its last stage: it takes effect only if that fails." in await scene.why(task_id)
    [task] = [one for one in await scene.store.views.load([task_id]) if one is not None]
    await scene.apply(decide.complete(task, done, now=now))
    late = "; the cancel that was requested by ann on desk-3 (stop it) came too late."
    assert late in await scene.why(task_id)


async def test_a_lapsed_lease_is_about_to_be_taken_over(scene: Scene) -> None:
    task_id = await scene.submit()
    await scene.claim("w-1")
    scene.clock.advance(42)
    await scene.beat("w-2")
    assert await scene.why(task_id) == (
        "Worker w-1 runs stage 'snapshot' (1 of 2, attempt 1), but has not renewed its lease: it "
        "lapsed 12s ago; w-2 (last seen 0s ago) takes it over within seconds."
    )


async def test_the_owner_of_a_lapsed_lease_is_not_the_one_who_takes_it_over(scene: Scene) -> None:
    task_id = await scene.submit()
    await scene.beat("w-1")
    await scene.claim("w-1")
    scene.clock.advance(31)
    assert (await scene.why(task_id)).endswith(
        "it lapsed 1s ago; no other worker is alive, and only a worker takes it over."
    )


async def test_a_worker_that_missed_its_whole_lease_is_not_alive(scene: Scene) -> None:
    task_id = await scene.submit()
    await scene.beat("w-1")
    scene.clock.advance(1.3 * LEASE_SECONDS)
    assert "no worker is alive; w-1 was last seen 39s ago." in await scene.why(task_id)


async def test_a_lapsed_lease_and_nobody_to_take_it_over(scene: Scene) -> None:
    task_id = await scene.submit()
    await scene.claim("w-1")
    scene.clock.advance("1h")
    assert "no other worker is alive, and only a worker takes it over." in await scene.why(task_id)


async def test_paused_by_a_person(scene: Scene) -> None:
    task_id, _ = await scene.submit(), await scene.submit()
    await scene.app.control.acting_as("ann", "desk-3").pause(task_id, reason="freeze")
    scene.clock.advance("2h")
    assert await scene.why(task_id) == (
        f"It has been {Status.PAUSED} for 2h by ann on desk-3 (freeze). Behind it in the line of "
        f"tenant t-1: 1 task. `holdfast tasks resume {task_id}` resumes it."
    )


async def test_paused_at_a_stage_boundary_names_who_asked(scene: Scene) -> None:
    task_id = await scene.submit()
    await scene.claim()
    await scene.app.control.acting_as("ann").pause(task_id, reason="freeze")
    [task] = await scene.store.views.load([task_id])
    assert task is not None
    await scene.apply(decide.boundary(task, now=scene.clock.now()))
    assert "by ann (freeze)" in await scene.why(task_id)


async def test_suspended(scene: Scene) -> None:
    task_id = await scene.submit()
    await scene.fail(await scene.claim())
    scene.clock.advance("3h")
    answer = await scene.why(task_id)
    assert f"It has been {Status.FAILED} for 3h and waits for a person: OSError: no route" in answer
    assert f"`holdfast suspended resume {task_id}` tries again" in answer
    assert f"`holdfast tasks rollback {task_id}` undoes what it did" in answer


STARTS_OVER = "older than checkpoint_max_age (7d); if it is resumed, it starts over from its first"


async def test_suspended_past_the_age_limit_of_its_checkpoint_it_would_start_over(
    scene: Scene,
) -> None:
    task_id = await scene.submit()
    await scene.fail(await scene.finish_stage(await scene.claim()))
    scene.clock.advance("7d")
    assert "checkpoint" not in await scene.why(task_id)
    scene.clock.advance(1)
    assert STARTS_OVER in await scene.why(task_id)


async def test_paused_past_the_age_limit_of_its_checkpoint_it_would_start_over(
    scene: Scene,
) -> None:
    task_id = await scene.submit()
    task = await scene.finish_stage(await scene.claim())
    await scene.app.control.pause(task_id)
    [task] = [task for task in await scene.store.views.load([task_id]) if task is not None]
    await scene.apply(decide.boundary(task, now=scene.clock.now()))
    scene.clock.advance("8d")
    assert STARTS_OVER in await scene.why(task_id)


async def test_who_waits_behind_such_a_task_is_told_so_too(scene: Scene) -> None:
    await scene.submit()
    behind = await scene.submit()
    await scene.fail(await scene.finish_stage(await scene.claim()))
    scene.clock.advance("8d")
    assert STARTS_OVER in await scene.why(behind)


async def test_without_a_completed_stage_nothing_is_done_again(scene: Scene) -> None:
    task_id = await scene.submit()
    await scene.fail(await scene.claim())
    scene.clock.advance("8d")
    assert "checkpoint" not in await scene.why(task_id)


async def test_a_rollback_needs_no_young_checkpoint(scene: Scene) -> None:
    task_id = await scene.submit()
    await scene.fail(await scene.finish_stage(await scene.claim()))
    await scene.app.control.rollback(task_id)
    now = scene.clock.now()
    failure = Failure(
        kind=FailureKind.STAGE, error="OSError", message="no", stage="migrate", attempt=1, at=now
    )
    failed = Failed(failure=failure, started_at=now, retry_seconds=None)
    rolling = await scene.claim()
    await scene.apply(decide.undo_failed(rolling, failed, Retry(max=1), now=now))
    scene.clock.advance("8d")
    answer = await scene.why(task_id)
    assert "goes on with the rollback" in answer
    assert "checkpoint" not in answer


async def test_what_the_engine_tells_others_cannot_be_undone(scene: Scene) -> None:
    await scene.insert("d-1", type=notification.TYPE)
    await scene.fail(await scene.claim())
    answer = await scene.why("d-1")
    assert "`holdfast suspended resume d-1` tries again; `holdfast suspended discard d-1`" in answer


async def test_settled(scene: Scene) -> None:
    task_id = await scene.submit()
    await scene.app.control.acting_as("ann").cancel(task_id, reason="not needed")
    scene.clock.advance(8)
    assert await scene.why(task_id) == (
        f"It has ended: {Status.CANCELLED} 8s ago by ann (not needed). "
        "Nothing more happens by itself."
    )


async def test_rolling_back(scene: Scene) -> None:
    task_id = await scene.submit()
    await scene.fail(await scene.claim())
    await scene.app.control.rollback(task_id)
    await scene.claim("w-2")
    assert "Worker w-2 undoes stage 'snapshot'" in await scene.why(task_id)


async def test_held_back_until_it_is_released(scene: Scene) -> None:
    await scene.hold("held-1", plan=None)
    scene.clock.advance("1m")
    assert await scene.why("held-1") == (
        "It was accepted 1m ago and is held back: it waits to be released."
    )


async def test_handed_back_by_a_worker_that_does_not_know_its_type(scene: Scene) -> None:
    task_id = await scene.submit()
    now = scene.clock.now()
    handed_back = decide.give_back(
        await scene.claim(),
        "unknown type",
        now=now,
        interrupted=False,
        delay_seconds=5,
        unknown_since=now,
    )
    await scene.apply(handed_back)
    answer = await scene.why(task_id)
    assert answer.startswith("It is due in 5s (")
    assert "by a worker that does not know its type 'tenant.upgrade'." in answer


async def test_ended_and_forgotten_but_for_its_result(scene: Scene) -> None:
    task_id = await scene.submit(key="only-once")
    await scene.app.control.cancel(task_id)
    [task] = await scene.store.views.load([task_id])
    assert task is not None
    scene.clock.advance(task.keep_seconds + 1)
    await scene.store.admin.prune(Kept.TASKS, older_than_seconds=0, limit=10, dry_run=False)
    assert await scene.why(task_id) == (
        f"It ended as {Status.CANCELLED}; its record is gone, only its result is still kept."
    )


async def test_the_answer_is_the_same_for_a_lease_of_another_length(scene: Scene) -> None:
    """A worker is taken for alive as long as its own lease could hold."""
    task_id = await scene.submit()
    await scene.beat("w-1")
    scene.clock.advance("5m")
    answer = await explain(scene.store, task_id, load(lease=600), now=scene.clock.now())
    assert "w-1 (last seen 5m ago) can run it" in answer


def test_the_command_line_gives_the_answer(world: World) -> None:
    task_id = world.upgrade(tenant="t-1")
    told = world.cli("why", task_id)
    assert told.stdout.startswith("It has been ready in queue 'default'")
    assert max(map(len, told.stdout.splitlines())) <= 80
    assert set(world.json("why", task_id)) == {"taskId", "answer"}
    assert world.cli("why", "nobody").exit_code == 3
