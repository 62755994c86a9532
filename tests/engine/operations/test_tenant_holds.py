"""Holds of tenants: what runs is given back at its boundary, what waits waits, and why says so."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Context, Holdfast, Status
from holdfast.engine.declare import Workflow
from holdfast.errors import InvalidInput, InvalidName, TenantsBusy
from holdfast.ports import Topic
from holdfast.runtime.services import drain_watch
from tests.support.sqlite.sqlite_files import PATIENCE_SECONDS

T = "t-1"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain_watch, "POLL_SECONDS", 0.02)


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Holdfast]:
    app = Holdfast(f"sqlite:///{tmp_path}/holdfast.db")
    async with app:
        yield app


class Steps:
    """A workflow of three stages whose second one ends when it is let go."""

    def __init__(self, app: Holdfast) -> None:
        self.app, self.ran = app, list[str]()
        self.begun, self.go = asyncio.Event(), asyncio.Event()
        self.flow: Workflow[str, str] = app.workflow("steps", payload=str, result=str)

        @self.flow.stage
        async def first(ctx: Context, word: str) -> None:
            self.ran.append("first")

        @self.flow.stage
        async def second(ctx: Context, word: str) -> None:
            self.ran.append("second")
            self.begun.set()
            await self.go.wait()

        @self.flow.stage
        async def third(ctx: Context, word: str) -> str:
            self.ran.append("third")
            return word


async def seen_by_workers(app: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until a look that began after now has been acted on: the next one begins then."""
    store, looks, seen = app.store, 0, asyncio.Event()
    whole = store.admin.switches

    async def counted() -> object:
        nonlocal looks
        looks += 1
        if looks == 3:
            seen.set()
        return await whole()

    monkeypatch.setattr(store.admin, "switches", counted)
    await asyncio.wait_for(seen.wait(), PATIENCE_SECONDS)


async def given_back(app: Holdfast, task_id: str, status: Status = Status.PENDING) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            ticket = app.store.ticket(Topic.READY)
            [task] = await app.store.views.load([task_id])
            if task is not None and task.status is status and task.lease is None:
                return
            await app.store.wait(Topic.READY, ticket, timeout=PATIENCE_SECONDS)


async def test_a_running_task_is_given_back_at_its_next_boundary(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps(app)
    async with app.running(workers=1):
        handle = await steps.flow.submit("x", tenant=T)
        await asyncio.wait_for(steps.begun.wait(), PATIENCE_SECONDS)
        answer = await app.tenants.hold(T, reason="moving house")
        assert str(answer) == f"waiting for {handle.id}"
        assert await app.tenants.exists(T)
        behind = await steps.flow.submit("y", tenant=T)
        await seen_by_workers(app, monkeypatch)
        steps.go.set()
        await given_back(app, handle.id)
        assert steps.ran == ["first", "second"]
        assert str(await app.tenants.hold(T)) == "held"
        told = await handle.why()
        assert "tenant t-1 has been held for" in told
        assert "by app (moving house)" in told
        assert "holdfast tenants release t-1" in told
        assert "tenant t-1 has been held" in await behind.why()
        assert await app.tenants.release(T)
        assert not await app.tenants.release(T)
        assert await handle.result(PATIENCE_SECONDS) == "x"
        assert await behind.result(PATIENCE_SECONDS) == "y"
    assert steps.ran[:3] == ["first", "second", "third"], "from its checkpoint"
    events = (await app.store.views.detail(handle.id)).events  # type: ignore[union-attr]
    assert not [event for event in events if getattr(event, "counted", False)]


async def test_a_rollback_is_given_back_at_its_next_boundary_and_goes_on_when_released(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    undone, begun, go = list[str](), asyncio.Event(), asyncio.Event()
    flow: Workflow[str, None] = app.workflow("there-and-back", payload=str)

    @flow.stage
    async def first(ctx: Context, word: str) -> None: ...

    @flow.stage
    async def second(ctx: Context, word: str) -> None: ...

    @first.undo
    async def undo_first(ctx: Context, word: str) -> None:
        undone.append("first")

    @second.undo
    async def undo_second(ctx: Context, word: str) -> None:
        undone.append("second")
        begun.set()
        await go.wait()

    async with app.running(workers=1):
        handle = await flow.submit("x", tenant=T)
        await handle.result(PATIENCE_SECONDS)
        await handle.rollback()
        await asyncio.wait_for(begun.wait(), PATIENCE_SECONDS)
        assert str(await app.tenants.hold(T)) == f"waiting for {handle.id}"
        await seen_by_workers(app, monkeypatch)
        go.set()
        await given_back(app, handle.id, Status.ROLLING_BACK)
        assert undone == ["second"]
        await app.tenants.release(T)
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert (await app.waiters.wait_until_stopped(handle.id)).status is Status.ROLLED_BACK
    assert undone == ["second", "first"], "each once"


async def test_a_hold_ends_by_itself_when_it_was_given_a_time(app: Holdfast) -> None:
    steps = Steps(app)
    steps.go.set()
    await app.tenants.hold(T, until="0.1s")
    async with app.running():
        handle = await steps.flow.submit("x", tenant=T)
        assert await handle.result(PATIENCE_SECONDS) == "x"
    assert not await app.tenants.exists(T)
    commands = [(one.command, one.by.actor) for one in await app.store.admin.audits(limit=5)]
    assert commands[-1] == ("hold", "app")
    assert ("release", "engine") in commands


async def test_a_plan_sees_a_held_tenant_as_busy(app: Holdfast) -> None:
    steps = Steps(app)
    await app.tenants.hold(T)
    with pytest.raises(TenantsBusy):
        await app.plan("p", [steps.flow.on("x", tenant=T)], conflict="reject")


async def test_bad_input_is_refused_and_nothing_is_held(app: Holdfast) -> None:
    with pytest.raises(InvalidName):
        await app.tenants.hold("a|b")
    wrong: list[Any] = [
        "0s",
        "0.0h",
        1.0,
        float("nan"),
        float("inf"),
        1e30,
        253_402_300_800.0,
        True,
        b"x",
        [],
    ]
    for until in wrong:
        with pytest.raises(InvalidInput):
            await app.tenants.hold(T, until=until)
    assert await app.tenants.holds() == []


async def test_any_operator_may_release_and_each_is_written_down(app: Holdfast) -> None:
    await app.tenants.acting_as("ada").hold(T, reason="why")
    found = await app.tenants.find(T)
    assert found is not None
    assert (found.by.actor, found.by.reason) == ("ada", "why")
    assert await app.tenants.acting_as("bob").release(T)
    told = [
        (one.task_id, one.command, one.by.actor, one.after)
        for one in await app.store.admin.audits(limit=5)
    ]
    assert told == [("tenant:t-1", "release", "bob", "free"), ("tenant:t-1", "hold", "ada", "held")]


def test_code_without_a_loop_can_hold(tmp_path: Path) -> None:
    app = Holdfast(f"sqlite:///{tmp_path}/holdfast.db")
    with app.blocking as face:
        assert str(face.tenants.hold(T)) == "held"
        assert face.tenants.exists(T)
        assert face.tenants.release(T)
