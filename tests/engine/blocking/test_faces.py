"""The same face without an event loop. Real threads and real time, so each test is short."""

import inspect
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import (
    BulkHandle,
    Command,
    Context,
    Handle,
    Holdfast,
    HoldfastError,
    Permanent,
    PlanHandle,
    PlanStatus,
    Status,
    TriggerHandle,
    TriggerStatus,
)
from holdfast.engine.blocking.faces import (
    Blocking,
    BlockingBulkHandle,
    BlockingBulks,
    BlockingCheckpoints,
    BlockingControl,
    BlockingHandle,
    BlockingPlanHandle,
    BlockingPlans,
    BlockingQuery,
    BlockingQueues,
    BlockingSchedules,
    BlockingTenants,
    BlockingTrigger,
)
from holdfast.engine.declare import SyncTask
from holdfast.engine.operations.checkpoints import Checkpoints
from holdfast.engine.operations.control import Control
from holdfast.engine.operations.queues import Queues
from holdfast.engine.operations.tenants import Tenants
from holdfast.engine.plans.create import Plans
from holdfast.engine.query import Query
from holdfast.engine.triggers.schedules import Schedules
from holdfast.errors import (
    IllegalTransition,
    InvalidPayload,
    ResultTimeout,
    TaskCancelled,
    TaskFailed,
    TaskRolledBack,
)
from tests.support.runtime.helpers import BOUND_SECONDS


@pytest.fixture
def greet(app: Holdfast) -> SyncTask[str, str]:
    @app.task("greet")
    def greet(ctx: Context, name: str) -> str:
        if name == "nobody":
            raise Permanent("nobody is there")
        return f"hello {name}"

    return greet


def test_submitting_and_waiting_with_workers(app: Holdfast, greet: SyncTask[str, str]) -> None:
    with app.blocking.running(workers=1) as face:
        handle = face.submit(greet, "ann", tenant="t-1", key="k")
        assert handle.result(BOUND_SECONDS) == "hello ann"
        assert handle.info().status is Status.COMPLETED
        assert face.submit(greet, "ann", tenant="t-1", key="k").id == handle.id
        assert handle.rollback("no") is Status.ROLLING_BACK
        with pytest.raises(TaskRolledBack):
            handle.result(BOUND_SECONDS)


def test_many_are_submitted_at_once(app: Holdfast, greet: SyncTask[str, str]) -> None:
    with app.blocking.running(workers=1) as face:
        handles = face.submit_many(greet, ["ann", "bob"], keys=["a", "b"])
        assert [handle.result(BOUND_SECONDS) for handle in handles] == ["hello ann", "hello bob"]


def test_every_command_without_workers(app: Holdfast, greet: SyncTask[str, str]) -> None:
    with app.blocking as face:
        handle = face.submit(greet, "ann")
        with pytest.raises(ResultTimeout):
            handle.result(0.01)
        assert handle.pause("lunch") is Status.PAUSED
        assert handle.resume() is Status.PENDING
        assert handle.why()
        assert handle.cancel("no") is Status.CANCELLED
        with pytest.raises(TaskCancelled, match="no"):
            handle.result(BOUND_SECONDS)


def test_errors_come_through(app: Holdfast, greet: SyncTask[str, str]) -> None:
    with app.blocking.running() as face:
        with pytest.raises(InvalidPayload):
            face.submit(greet, 7)  # type: ignore[misc]
        handle = face.submit(greet, "nobody")
        with pytest.raises(TaskFailed, match="nobody is there"):
            handle.result(BOUND_SECONDS)
        assert handle.retry() is Status.PENDING
        with pytest.raises(TaskFailed):
            handle.result(BOUND_SECONDS)
        assert handle.discard("hopeless") is Status.CANCELLED


def test_many_threads_may_use_it(app: Holdfast, greet: SyncTask[str, str]) -> None:
    results: list[str] = []
    with app.blocking.running() as face:
        threads = [
            threading.Thread(
                target=lambda n=n: results.append(face.submit(greet, f"n{n}").result(BOUND_SECONDS))
            )
            for n in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(BOUND_SECONDS)
    assert sorted(results) == [f"hello n{n}" for n in range(8)]


def loop_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "holdfast-loop"]


def test_the_first_call_opens_it_and_close_closes_it(
    app: Holdfast, greet: SyncTask[str, str]
) -> None:
    for _ in range(2):
        handle = app.blocking.submit(greet, "ann")
        assert handle.info().status is Status.PENDING
        assert len(loop_threads()) == 1
        with app.blocking.running():
            assert handle.result(BOUND_SECONDS) == "hello ann"
        assert handle.info().status is Status.COMPLETED, "it is still open"
        app.blocking.close()
        assert not loop_threads()
        assert not app.is_open
    app.blocking.close()


def test_many_threads_open_it_once(app: Holdfast, greet: SyncTask[str, str]) -> None:
    ids: list[str] = []
    ready = threading.Barrier(8)

    def submit(number: int) -> None:
        ready.wait(BOUND_SECONDS)
        ids.append(app.blocking.submit(greet, f"n{number}").id)

    threads = [threading.Thread(target=submit, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND_SECONDS)
    assert len(set(ids)) == 8
    assert len(loop_threads()) == 1
    app.blocking.close()


async def test_where_the_app_is_open_already_it_says_what_to_call(
    app: Holdfast, greet: SyncTask[str, str]
) -> None:
    async with app:
        with pytest.raises(HoldfastError, match="another event loop"):
            app.blocking.submit(greet, "ann")


def test_a_script_that_never_closes_it_ends_by_itself(tmp_path: Path) -> None:
    """What it submitted is in the file, and the process does not hang at its end."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os\n"
        "from holdfast import Context, Holdfast, HoldfastError\n"
        "app = Holdfast('sqlite:///kept.db')\n"
        "@app.task\n"
        "def greet(ctx: Context, name: str) -> str: return name\n"
        "print(app.blocking.submit(greet, 'ann').id)\n"
        "if (child := os.fork()) == 0:\n"
        "    try: app.blocking.submit(greet, 'bob')\n"
        "    except HoldfastError as error: print(error)\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-u", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=BOUND_SECONDS,
        check=True,
    )
    task_id, refused = ran.stdout.splitlines()
    assert "before this process was forked" in refused
    app = Holdfast(f"sqlite:///{tmp_path}/kept.db")
    with app.blocking as face:
        assert face.handle(task_id).info().type == "greet"


def test_it_can_be_opened_again_and_inside_itself(app: Holdfast, greet: SyncTask[str, str]) -> None:
    for _ in range(2):
        with app.blocking as face, app.blocking.running() as inner:
            assert inner is face
            assert face.submit(greet, "ann").result(BOUND_SECONDS) == "hello ann"


def test_on_the_loops_own_thread_it_refuses_instead_of_hanging(app: Holdfast) -> None:
    @app.task("inner")
    async def inner(ctx: Context) -> None: ...

    @app.task("outer")
    async def outer(ctx: Context) -> str:
        with pytest.raises(HoldfastError, match="own thread"):
            app.blocking.submit(inner)
        return "refused"

    with app.blocking.running() as face:
        assert face.submit(outer).result(BOUND_SECONDS) == "refused"


def test_a_plain_function_may_submit_through_it(app: Holdfast, greet: SyncTask[str, str]) -> None:
    @app.task("outer")
    def outer(ctx: Context) -> str:
        return app.blocking.submit(greet, "ann").result(BOUND_SECONDS)

    with app.blocking.running() as face:
        assert face.submit(outer).result(BOUND_SECONDS) == "hello ann"


def test_a_store_that_cannot_be_opened_leaves_no_thread_behind() -> None:
    app = Holdfast("sqlite:////no/such/folder/holdfast.db")
    with pytest.raises(HoldfastError), app.blocking:
        pass
    assert not [t for t in threading.enumerate() if t.name == "holdfast-loop"]


def test_an_error_inside_closes_it(app: Holdfast, greet: SyncTask[str, str]) -> None:
    with pytest.raises(ZeroDivisionError), app.blocking.running():
        raise ZeroDivisionError
    assert not [t for t in threading.enumerate() if t.name == "holdfast-loop"]
    assert not app.is_open


def test_a_task_of_elsewhere_is_asked_for_by_its_id(
    app: Holdfast, greet: SyncTask[str, str]
) -> None:
    with app.blocking as face:
        handle = face.handle(face.submit(greet, "ann", tenant="t-1").id)
        assert handle.envelope().task_status is Status.PENDING
        assert face.why(handle.id) == handle.why()
        assert face.query.query_task_status_by_tenant("t-1").waiting == 0
        assert not face.query.has_checkpoint("t-1")
        assert face.control.can(handle.id, Command.PAUSE)
        assert face.control.pause(handle.id, reason="lunch").status is Status.PAUSED
        by_ann = face.control.acting_as("ann", "desk")
        assert by_ann.resume(handle.id).status is Status.PENDING
        [resumed, _] = face.call(app.store.admin.audits(limit=2))
        assert (resumed.by.actor, resumed.by.origin) == ("ann", "desk")


def test_triggers_are_made_and_asked_without_a_loop(
    app: Holdfast, greet: SyncTask[str, str]
) -> None:
    with app.blocking.running() as face:
        trigger = face.schedule.at(app.clock.now() + 3_600, greet, "ann", name="later")
        assert trigger.fire().result(BOUND_SECONDS) == "hello ann"
        assert trigger.info().status is TriggerStatus.COMPLETED
        face.schedule.every("1h", greet, "bob", name="hourly")
        hourly = face.schedule.acting_as("ada").get("hourly")
        assert len(hourly.next(3)) == 3
        assert hourly.pause("lunch") is TriggerStatus.PAUSED
        assert hourly.resume() is TriggerStatus.PENDING
        assert hourly.cancel() is TriggerStatus.CANCELLED
        nightly = face.schedule.cron("0 3 * * *", greet, "eve", tz="Asia/Tokyo")
        listed = [one.id for one in face.schedule.find()]
        assert listed == sorted(["later", "hourly", nightly.id])


def test_plans_are_made_and_asked_without_a_loop(app: Holdfast, greet: SyncTask[str, str]) -> None:
    tasks = [greet.on(name, tenant=name) for name in ("ann", "bob")]
    with app.blocking.running() as face:
        preview = face.plan.preview("greet-all", tasks, waves=("1", "100%"))
        assert [wave.tenants for wave in preview.waves] == [("ann",), ("bob",)]
        plan = face.plan("greet-all", tasks, waves=("1", "100%"))
        assert plan.wait(BOUND_SECONDS).status is PlanStatus.COMPLETED
        assert [task.result(BOUND_SECONDS) for task in plan.tasks()] == ["hello ann", "hello bob"]
        assert plan.events()[0].plan_id == "greet-all"
        assert plan.rollback("no", wave=2) is PlanStatus.ROLLING_BACK
        assert plan.wait(BOUND_SECONDS).status is PlanStatus.ROLLED_BACK
        assert plan.retry() is PlanStatus.RUNNING
        assert face.plan.acting_as("ada").get("greet-all").info().total == 2
        assert [one.id for one in face.plan.find()] == ["greet-all"]
        plan.wait(BOUND_SECONDS)
        for ask in (plan.pause, plan.resume, plan.cancel):
            with pytest.raises(IllegalTransition):
                ask()


def test_its_workers_take_the_same_options(app: Holdfast, greet: SyncTask[str, str]) -> None:
    with app.blocking.running(workers=1, queues=("other",)) as face:
        assert face.submit(greet, "ann", queue="other").result(BOUND_SECONDS) == "hello ann"
        with pytest.raises(ResultTimeout):
            face.submit(greet, "bob").result(0.01)


@pytest.mark.parametrize(
    ("face", "twin"),
    [
        (Handle, BlockingHandle),
        (Control, BlockingControl),
        (Query, BlockingQuery),
        (Queues, BlockingQueues),
        (Tenants, BlockingTenants),
        (BulkHandle, BlockingBulkHandle),
        (Checkpoints, BlockingCheckpoints),
        (Schedules, BlockingSchedules),
        (TriggerHandle, BlockingTrigger),
        (Plans, BlockingPlans),
        (PlanHandle, BlockingPlanHandle),
    ],
)
def test_it_is_the_same_face(face: type, twin: type) -> None:
    def public(cls: type) -> set[str]:
        return {name for name, _ in inspect.getmembers(cls, callable) if name[0] != "_"}

    assert public(face) == public(twin)
    for name in public(face):
        ours = inspect.signature(getattr(twin, name)).parameters
        assert list(ours) == list(inspect.signature(getattr(face, name)).parameters)


def test_help_shows_what_a_blocking_submit_takes() -> None:
    def parameters(method: object) -> list[str]:
        assert callable(method)
        return list(inspect.signature(method).parameters)

    assert parameters(Blocking.submit) == ["self", "what", *parameters(SyncTask.submit)[1:]]
    many = ["self", "what", *parameters(SyncTask.submit_many)[1:]]
    assert parameters(Blocking.submit_many) == many


@pytest.mark.parametrize(
    ("method", "returned"),
    [
        (Blocking.submit, "BlockingHandle[R]"),
        (Blocking.submit_many, "list[BlockingHandle[R]]"),
        (Blocking.why, "str"),
        (BlockingPlans.__call__, "BlockingPlanHandle"),
        (BlockingPlans.find, "list[PlanInfo]"),
        (BlockingPlanHandle.tasks, "list[BlockingHandle[Any]]"),
        (BlockingSchedules.cron, "BlockingTrigger[R]"),
        (BlockingTrigger.fire, "BlockingHandle[R]"),
        (BlockingBulks.start, "BlockingBulkHandle"),
        (BlockingHandle.result, "R"),
    ],
)
def test_help_shows_what_a_blocking_method_returns(
    method: Callable[..., object], returned: str
) -> None:
    assert inspect.signature(method).return_annotation == returned
