"""Each reason for which a plan may not let a task go has its own answer."""

from holdfast.domain.plan.plan import MemberState, PlanStatus
from holdfast.domain.task import operate
from holdfast.domain.task.operate import OperatorRequest
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import By
from tests.support.cli.scene import Scene
from tests.support.cli.world import FINE, World

WAVES = ("1", "100%")
TENANTS = ("t-1", "t-2", "t-3")


async def test_a_plan_that_nobody_drives(scene: Scene) -> None:
    [first, *_] = await scene.plan(TENANTS)
    scene.clock.advance("1m")
    assert await scene.why(first) == (
        "It was accepted 1m ago and waits for plan up-7, which is ready to start. "
        "But no worker is alive. Start one: `holdfast worker APP`."
    )
    await scene.beat("w-1")
    assert (await scene.why(first)).endswith("which is ready to start.")


async def test_a_plan_that_is_paused_and_by_what_reason(scene: Scene) -> None:
    [first, *_] = await scene.plan(TENANTS)
    await scene.app.plan.get("up-7").pause("wait for the bank")
    scene.clock.advance("5m")
    answer = await scene.why(first)
    assert f"plan up-7, which has been {PlanStatus.PAUSED} for 5m (wait for the bank)." in answer
    assert "`holdfast plans resume up-7` resumes it." in answer
    assert "worker" not in answer  # who is away is not the reason


async def test_a_plan_that_has_halted_and_why(scene: Scene) -> None:
    [*_, last] = await scene.plan(TENANTS, waves=WAVES)
    await scene.drive()
    await scene.drive(MemberState.FAILED)
    answer = await scene.why(last)
    assert f"which has been {PlanStatus.HALTED} for 0s (1 of the 1 tasks of wave 1" in answer


async def test_a_wave_that_has_not_begun(scene: Scene) -> None:
    [_, second, _] = await scene.plan(TENANTS, waves=WAVES, soak="10m")
    await scene.drive()
    await scene.beat("w-1")
    answer = await scene.why(second)
    assert answer.endswith("which is at wave 1 of 2; this task is of wave 2, which has not begun.")
    await scene.drive(MemberState.ADMITTED)
    await scene.drive(MemberState.COMPLETED)
    assert "wave 1 of 2, which soaks for 10m more; this task" in await scene.why(second)


async def test_all_slots_are_taken(scene: Scene) -> None:
    [_, second, _] = await scene.plan(TENANTS, max_concurrency=1)
    await scene.beat("w-1")
    await scene.drive()
    assert (await scene.why(second)).endswith(
        "its wave has begun, and one of the next steps releases it."
    )
    await scene.drive(MemberState.ADMITTED)
    assert "1 of 1 slots are taken, and it waits for one." in await scene.why(second)


async def test_its_tenant_is_busy_with_other_work(scene: Scene) -> None:
    other = await scene.submit(tenant="t-1")
    [first, *_] = await scene.plan(TENANTS)
    await scene.drive()
    answer = await scene.why(first)
    assert f"its tenant t-1 is busy with task {other}, so it waits." in answer


async def test_a_plan_that_is_being_cancelled(scene: Scene) -> None:
    [first, *_] = await scene.plan(TENANTS)
    await scene.app.plan.get("up-7").cancel()
    assert "which is being cancelled, and this task with it." in await scene.why(first)


async def test_a_plan_that_is_gone(scene: Scene) -> None:
    await scene.hold("held-1", plan="plan-7")
    assert await scene.why("held-1") == (
        "It was accepted 0s ago for plan plan-7, which is gone, so nothing will release it. "
        "`holdfast tasks cancel held-1` ends it."
    )


async def test_a_plan_that_has_ended_without_it(scene: Scene) -> None:
    [first] = await scene.plan(["t-1"])
    await scene.drive()
    await scene.drive(MemberState.CANCELLED)
    assert f"which is {PlanStatus.CANCELLED} and releases no more tasks." in await scene.why(first)


async def test_a_task_that_its_plan_has_paused(scene: Scene) -> None:
    [first, *_] = await scene.plan(TENANTS)
    [task] = await scene.store.views.load([first])
    assert task is not None
    ask = OperatorRequest(by=By(actor="plan:up-7"), now=scene.clock.now(), request="r-1")
    await scene.apply(operate.release(task, ask))
    await scene.app.control.acting_as("plan:up-7").pause(first, reason="plan up-7 is paused")
    answer = await scene.why(first)
    assert "by plan:up-7 (plan up-7 is paused)." in answer
    assert "`holdfast plans resume up-7` resumes the whole plan." in answer


def test_a_held_task_shows_its_plan(world: World) -> None:
    world.plan("up-7", {"t-1": FINE})
    [task] = world.json("tasks", "list")["tasks"]
    assert (task["status"], task["planId"]) == (Status.CREATED, "up-7")
    shown = world.cli("tasks", "show", task["taskId"]).stdout
    assert "plan       up-7" in shown
    assert f"waits for  its plan: see `holdfast why {task['taskId']}`" in shown
    assert "waits for plan up-7" in world.cli("why", task["taskId"]).stdout
