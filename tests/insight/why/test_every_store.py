"""What `why` says when several things keep a task back at once, on every store."""

from collections.abc import AsyncIterator

import pytest

from holdfast.domain.task import decide
from holdfast.domain.task.crashes import position
from holdfast.domain.task.task import By, Progress
from holdfast.engine.operations import switches
from holdfast.ports import Renewal, Switch
from tests.support.cli.scene import LEASE_SECONDS, Scene
from tests.support.every_store import Place, place

__all__ = ["place"]

ADA = By(actor="ada", reason="moving house")
HELD = (
    "tenant t-1 has been held for 0s by ada (moving house); release: `holdfast tenants release t-1`"
)
RELEASE = "It does not run before its tenant is released: "


@pytest.fixture
async def scene(place: Place) -> AsyncIterator[Scene]:
    made = Scene(place.store, place.clock)
    async with made.app:
        yield made


async def hold(scene: Scene) -> None:
    now = scene.clock.now()
    await switches.turn_tenant(scene.store, "t-1", held=True, by=ADA, now=now)


async def pause(scene: Scene) -> None:
    await switches.turn_queue(
        scene.store, Switch.CLAIMING, "default", on=False, by=By(actor="bob"), now=scene.clock.now()
    )


async def crash(scene: Scene, times: int) -> None:
    """Lose so many leases of stages that had begun, alone."""
    for number in range(times):
        worker = f"dead-{number}"
        task = await scene.claim(worker)
        assert task.lease is not None
        begun = position(task.last_completed, task.next_undo)
        noted = Progress(fraction=0.0, begun=begun, alone=True, at=scene.clock.now())
        renewal = Renewal(task_id=task.id, lease_id=task.lease.id, progress=noted)
        await scene.beat(worker, renewals=(renewal,))
        scene.clock.advance(LEASE_SECONDS + 1)
        await scene.store.tasks.expire(limit=10, count_crashes=True, alone_from=2)


# -- a tenant that is held


async def test_nobody_is_said_to_take_what_is_held(scene: Scene) -> None:
    task_id = await scene.submit()
    await scene.beat("w-1")
    await hold(scene)
    answer = await scene.why(task_id)
    assert answer.startswith(f"It has been ready in queue 'default' for 0s, but {HELD}")
    assert "will claim it" not in answer
    assert answer.count("been held") == 1


async def test_busy_workers_are_no_reason_while_it_is_held(scene: Scene) -> None:
    task_id = await scene.submit()
    await scene.beat("w-1", running=2)
    await hold(scene)
    assert "busy" not in await scene.why(task_id)


async def test_what_else_keeps_it_back_is_said_after_the_hold(scene: Scene) -> None:
    task_id = await scene.submit()
    await hold(scene)
    alone = await scene.why(task_id)
    assert f"but {HELD}" in alone
    assert "Once released, it still waits: no worker is alive." in alone
    await scene.beat("w-1", types=("mail.send",))
    assert "Once released, it still waits: no live worker of that queue" in await scene.why(task_id)
    await pause(scene)
    paused = await scene.why(task_id)
    assert "Once released, it still waits: claiming of queue default has been paused" in paused
    assert paused.index("been held") < paused.index("been paused")


async def test_the_hold_is_said_once_of_a_line(scene: Scene) -> None:
    first, second = await scene.submit(), await scene.submit()
    await scene.beat("w-1")
    await hold(scene)
    answer = await scene.why(second)
    assert answer.startswith(f"It is number 1 in the line of tenant t-1, behind task {first}.")
    assert answer.count("been held") == 1
    assert "will claim it" not in answer


async def test_a_held_retry_is_not_said_to_run_when_it_is_due(scene: Scene) -> None:
    task_id = await scene.submit()
    await scene.fail(await scene.claim(), retry_seconds=90)
    await scene.beat("w-2")
    await hold(scene)
    early = await scene.why(task_id)
    assert early.startswith("It is due in 1m30s (")
    assert f"{RELEASE}{HELD}" in early
    assert "runs it now" not in early
    scene.clock.advance(91)
    late = await scene.why(task_id)
    assert "moves it within a second" not in late
    assert RELEASE in late
    assert late.count("been held") == 1


async def test_what_runs_is_given_back_at_its_next_boundary(scene: Scene) -> None:
    task_id = await scene.submit()
    await scene.claim("w-1")
    await hold(scene)
    answer = await scene.why(task_id)
    assert f"After this stage it is given back, unless it ends with it: {HELD}" in answer
    assert RELEASE not in answer
    scene.clock.advance(LEASE_SECONDS + 1)
    await scene.beat("w-2")
    lapsed = await scene.why(task_id)
    assert "takes it over within seconds" in lapsed
    assert RELEASE in lapsed


async def test_what_waits_for_a_person_waits_for_the_release_as_well(scene: Scene) -> None:
    task_id = await scene.submit()
    await scene.fail(await scene.claim())
    await hold(scene)
    answer = await scene.why(task_id)
    assert f"`holdfast suspended resume {task_id}`" in answer
    assert answer.index("waits for a person") < answer.index(RELEASE)


async def test_another_tenant_is_not_said_to_be_held(scene: Scene) -> None:
    task_id = await scene.submit(tenant="t-2")
    await scene.beat("w-1")
    await hold(scene)
    answer = await scene.why(task_id)
    assert "been held" not in answer
    assert "will claim it" in answer


# -- crashes


async def test_one_crash_is_said_with_what_follows(scene: Scene) -> None:
    task_id = await scene.submit()
    await crash(scene, 1)
    answer = await scene.why(task_id)
    assert "It was in 1 crash in a row; after 2 crashes it runs alone, and 3 suspend it." in answer


async def test_a_suspect_is_said_to_wait_to_run_alone(scene: Scene) -> None:
    task_id = await scene.submit()
    await crash(scene, 2)
    await scene.beat("w-1")
    said = "It was in 2 crashes in a row, so it runs only where nothing else runs"
    assert said in await scene.why(task_id)
    task = await scene.claim("w-1")
    assert said in await scene.why(task_id)
    await scene.apply(
        decide.give_back(task, "later", now=scene.clock.now(), interrupted=False, delay_seconds=60)
    )
    put_off = await scene.why(task_id)
    assert put_off.startswith("It is due in 1m (")
    assert said in put_off
    assert "One more crash while it runs alone suspends it." in put_off


async def test_the_next_worker_suspends_what_is_at_the_limit(scene: Scene) -> None:
    task_id = await scene.submit()
    await crash(scene, 3)
    answer = await scene.why(task_id)
    assert "and 3 suspend a task: the next worker that takes it does so." in answer


async def test_a_task_without_a_crash_says_nothing_of_it(scene: Scene) -> None:
    assert "crash" not in await scene.why(await scene.submit())
