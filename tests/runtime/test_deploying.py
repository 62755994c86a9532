"""Stages that a deploy appends, inserts, renames or removes while tasks wait (S8)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Context, Handle, Holdfast, Retry, Status
from holdfast.app.declare import Workflow
from holdfast.testing import Engine
from holdfast.testing.plugin import MakeEngine
from tests.every_store import Place
from tests.runtime.helpers import task_of
from tests.sqlite_files import ask

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

    async def deploy(self, names: str) -> Workflow[Any, Any]:
        if self.engine is not None:
            self.engine.close()
        app = Holdfast("memory://")
        flow: Workflow[Any, Any] = app.workflow("upgrade", retry=Retry(max=1))
        for name in names:
            flow.stage(name=name)(self._stage(name)).undo(self._stage(f"-{name}"))
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
        assert all(f.mended for f in await place.store.doctor(fix=True, limit=10))
    await deploys.handle(done).rollback()
    assert await deploys.drain(done) is Status.ROLLED_BACK
    assert deploys.did == ["-d", "-c", "-b", "-a"]
