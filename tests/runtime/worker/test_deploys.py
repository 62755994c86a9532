"""Stages that a deploy appends, inserts, renames or removes while tasks wait (S8)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import Context, Handle, Holdfast, PlanHandle, PlanStatus, Retry, Status
from holdfast.domain.plan.rollout import DRIVEN
from holdfast.domain.task import decide
from holdfast.domain.task.task import FailureKind, StageRecord, Task
from holdfast.engine.declare import Workflow
from holdfast.testing import Engine
from holdfast.testing.plugin import MakeEngine
from tests.support.every_store import Place
from tests.support.runtime.helpers import detail_of, task_of
from tests.support.sqlite.sqlite_files import ask

DEPLOYS = {
    "appended": "abcd",
    "inserted": "axbc",
    "prepended": "xabc",
    "renamed": "abx",
    "removed": "ac",
    "all new": "xyz",
    "to one": "c",
}


class Deploys:
    """A workflow whose stages are another version's with each deploy."""

    def __init__(self, make: MakeEngine, place: Place) -> None:
        self._make, self._place = make, place
        self.did: list[str] = []
        self.broken: set[str] = set()
        self.engine: Engine | None = None
        self._number = 0  # of the deploy: the workers of each have names of their own

    async def deploy(self, names: str, *, without: str = "") -> Workflow[Any, Any]:
        """``without``: the stages that have no undo."""
        if self.engine is not None:
            self.engine.close()
        app = Holdfast("memory://")
        flow: Workflow[Any, Any] = app.workflow("upgrade", retry=Retry(max=1))
        for name in names:
            stage = flow.stage(name=name)(self._stage(name))
            if name not in without:
                stage.undo(self._stage(f"-{name}"))
        self._number += 1
        store, clock = await self._place.open(), self._place.clock
        self.engine = self._make(app, store=store, clock=clock, seed=self._number)
        return flow

    def _stage(self, name: str) -> Callable[[Context, None], Any]:
        async def run(ctx: Context, _: None) -> None:
            self.did.append(name)
            if name in self.broken:
                raise ValueError(name)

        return run

    def handle(self, handle: Handle[Any]) -> Handle[Any]:
        assert self.engine is not None
        return self.engine.app.handle(handle.id)

    async def drain(self, handle: Handle[Any]) -> Status:
        assert self.engine is not None
        await self.engine.drain()
        return (await self.handle(handle).info()).status

    async def stages(self, handle: Handle[Any]) -> str:
        assert self.engine is not None
        return "".join((await task_of(self.engine, handle)).stages)


@pytest.fixture
def deploys(holdfast_engine: MakeEngine, place: Place) -> Deploys:
    return Deploys(holdfast_engine, place)


@pytest.mark.parametrize("names", DEPLOYS.values(), ids=DEPLOYS)
async def test_a_task_completed_by_newer_code_is_rolled_back_by_what_ran(
    deploys: Deploys, names: str
) -> None:
    waiting = await (await deploys.deploy("abc")).submit(None, tenant="t-001")
    await deploys.deploy(names)
    assert await deploys.drain(waiting) is Status.COMPLETED
    assert await deploys.stages(waiting) == names
    await deploys.handle(waiting).rollback()
    assert await deploys.drain(waiting) is Status.ROLLED_BACK
    assert deploys.did == [*names, *(f"-{name}" for name in reversed(names))]


@pytest.mark.parametrize("names", ["abcd", "axbc", "axc"])
async def test_a_half_done_task_goes_on_and_back_by_what_ran(deploys: Deploys, names: str) -> None:
    deploys.broken = {"b"}
    half_done = await (await deploys.deploy("abc")).submit(None)
    assert await deploys.drain(half_done) is Status.FAILED
    deploys.broken = {names[2]}
    await deploys.deploy(names)
    await deploys.handle(half_done).retry()
    assert await deploys.drain(half_done) is Status.FAILED
    assert await deploys.stages(half_done) == names
    deploys.did.clear()
    await deploys.handle(half_done).rollback()
    assert await deploys.drain(half_done) is Status.ROLLED_BACK
    assert deploys.did == [f"-{name}" for name in reversed(names[:3])]


async def at_rest(engine: Engine, plan: PlanHandle) -> PlanStatus:
    """A store on a disk or in another process takes its time, whatever the engine's clock says."""
    for _ in range(20):
        await engine.advance("1m")
        if (await plan.info()).status not in DRIVEN:
            break
    return (await plan.info()).status


async def test_a_plan_whose_tasks_waited_over_a_deploy_is_rolled_back_by_what_ran(
    deploys: Deploys,
) -> None:
    flow = await deploys.deploy("abc")
    assert deploys.engine is not None
    await deploys.engine.app.plan("up", [flow.on(None, tenant="t-001")])
    await deploys.deploy("axbc")
    plan = deploys.engine.app.plan.get("up")
    assert await at_rest(deploys.engine, plan) is PlanStatus.COMPLETED
    deploys.did.clear()
    await plan.rollback()
    assert await at_rest(deploys.engine, plan) is PlanStatus.ROLLED_BACK
    assert deploys.did == ["-c", "-b", "-x", "-a"]


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
async def test_a_record_that_kept_older_stages_is_not_rolled_back_by_them(
    deploys: Deploys, place: Place, tmp_path: Path
) -> None:
    """Files of earlier versions have such records; doctor mends them, and the rollback goes on."""
    done = await (await deploys.deploy("abcd")).submit(None)
    assert await deploys.drain(done) is Status.COMPLETED
    deploys.did.clear()
    damage = "UPDATE tasks SET head = json_set(head, '$.stages', json(?))"
    for stale in ('["x", "b", "c", "d"]', '["a", "b", "c"]'):
        ask(tmp_path / "holdfast.db", damage, stale)
        await deploys.handle(done).rollback()
        assert await deploys.drain(done) is Status.ROLLBACK_FAILED
        assert deploys.did == []
        assert deploys.engine is not None
        failure = (await task_of(deploys.engine, done)).failure
        assert failure is not None
        assert "holdfast doctor --fix" in failure.message
        assert all(f.mended for f in await place.store.admin.doctor(fix=True, limit=10))
    await deploys.handle(done).rollback()
    assert await deploys.drain(done) is Status.ROLLED_BACK
    assert deploys.did == ["-d", "-c", "-b", "-a"]


async def undone_so_far(deploys: Deploys, handle: Handle[Any]) -> tuple[Status, list[str]]:
    deploys.did.clear()
    await deploys.handle(handle).rollback()
    return await deploys.drain(handle), deploys.did


async def test_a_rollback_that_meets_a_vanished_undo_waits_for_it(deploys: Deploys) -> None:
    done = await (await deploys.deploy("abc")).submit(None)
    assert await deploys.drain(done) is Status.COMPLETED
    await deploys.deploy("abc", without="b")
    for undone in (["-c"], []):  # asked again, it is at the same place
        assert await undone_so_far(deploys, done) == (Status.ROLLBACK_FAILED, undone)
        assert deploys.engine is not None
        failure = (await task_of(deploys.engine, done)).failure
        assert failure is not None
        assert (failure.kind, failure.error, failure.stage) == (
            FailureKind.DEFINITION_CHANGED,
            "undo-gone",
            "b",
        )
        assert "had an undo when it ran, and the code has none" in failure.message
    await deploys.deploy("abc")
    assert await undone_so_far(deploys, done) == (Status.ROLLED_BACK, ["-b", "-a"])


async def test_a_stage_that_never_had_an_undo_is_passed_over(deploys: Deploys) -> None:
    done = await (await deploys.deploy("abc", without="ab")).submit(None)
    assert await deploys.drain(done) is Status.COMPLETED
    assert await undone_so_far(deploys, done) == (Status.ROLLED_BACK, ["-c"])
    stages = await place_stages(deploys, done)
    assert [stage.undo for stage in stages] == [False, False, True]


async def test_an_undo_that_was_added_later_runs(deploys: Deploys) -> None:
    done = await (await deploys.deploy("abc", without="b")).submit(None)
    assert await deploys.drain(done) is Status.COMPLETED
    await deploys.deploy("abc")
    assert await undone_so_far(deploys, done) == (Status.ROLLED_BACK, ["-c", "-b", "-a"])


async def test_a_stage_that_failed_and_has_no_undo_is_passed_over(deploys: Deploys) -> None:
    deploys.broken = {"b"}
    failed = await (await deploys.deploy("abc", without="b")).submit(None)
    assert await deploys.drain(failed) is Status.FAILED
    assert await undone_so_far(deploys, failed) == (Status.ROLLED_BACK, ["-a"])


async def place_stages(deploys: Deploys, handle: Handle[Any]) -> tuple[StageRecord, ...]:
    assert deploys.engine is not None
    return (await detail_of(deploys.engine, handle)).stages


async def test_of_a_record_that_does_not_tell_a_person_decides_once(
    deploys: Deploys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer of an earlier version did not say whether a stage had an undo."""
    record = decide._stage_record

    def silent(task: Task, done: decide.Done) -> StageRecord:
        return msgspec.structs.replace(record(task, done), undo=None)

    monkeypatch.setattr(decide, "_stage_record", silent)
    flow = await deploys.deploy("abcd", without="ac")
    never_had, had = await flow.submit(None), await flow.submit(None)
    assert await deploys.drain(never_had) is Status.COMPLETED
    assert [stage.undo for stage in await place_stages(deploys, never_had)] == [None] * 4
    assert await undone_so_far(deploys, never_had) == (Status.ROLLBACK_FAILED, ["-d"])
    assert deploys.engine is not None
    failure = (await task_of(deploys.engine, never_had)).failure
    assert failure is not None
    assert (failure.error, failure.stage) == ("undo-unknown", "c")
    assert "no undo for c, a," in failure.message
    assert await undone_so_far(deploys, never_had) == (Status.ROLLED_BACK, ["-b"])

    assert await undone_so_far(deploys, had) == (Status.ROLLBACK_FAILED, ["-d"])
    await deploys.deploy("abcd")
    assert await undone_so_far(deploys, had) == (Status.ROLLED_BACK, ["-c", "-b", "-a"])


async def test_a_rollback_goes_on_where_another_deploy_has_renamed_what_is_undone(
    deploys: Deploys,
) -> None:
    """The record keeps the names of the stages that ran."""
    done = await (await deploys.deploy("abc")).submit(None)
    assert await deploys.drain(done) is Status.COMPLETED
    deploys.broken = {"-b"}
    assert await undone_so_far(deploys, done) == (Status.ROLLBACK_FAILED, ["-c", "-b"])
    await deploys.deploy("abx")
    assert await undone_so_far(deploys, done) == (Status.ROLLBACK_FAILED, ["-b"])
    assert await deploys.stages(done) == "abc"
    deploys.broken = set()
    assert await undone_so_far(deploys, done) == (Status.ROLLED_BACK, ["-b", "-a"])
