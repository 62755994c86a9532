"""All transitions of all tasks can be paged through, by filter and by time."""

from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast import Context, Filter, Holdfast, Permanent
from holdfast.domain.task.history import HistoryStep, Maker
from holdfast.engine.operations import transitions
from holdfast.errors import InvalidInput, TaskFailed, TaskNotFound
from verify.servers import RedisServer


class World:
    """An app that runs, with one type of task."""

    def __init__(self, url: str, namespace: str) -> None:
        self.app = Holdfast(url, namespace=namespace)

        @self.app.task("mail.send")
        async def send(ctx: Context, to: str) -> str:
            if to == "nobody":
                raise Permanent("no such person")
            return to

        self.send = send

    async def run(self, *names: str) -> list[str]:
        handles = [await self.send.submit(name, tenant=name) for name in names]
        for handle in handles:
            with suppress(TaskFailed):
                await handle.result()
        return [handle.id for handle in handles]

    async def everything(self, limit: int, **asked: Any) -> list[HistoryStep]:
        found: list[HistoryStep] = []
        cursor: str | None = None
        for _ in range(100):
            page = await self.app.query.transitions(limit=limit, cursor=cursor, **asked)
            assert len(page.transitions) <= limit
            found += page.transitions
            cursor = page.cursor
            if cursor is None:
                return found
        raise AssertionError("the pages do not end")


@pytest.fixture(params=["memory", "sqlite", "redis"])
async def world(
    request: pytest.FixtureRequest,
    redis_server: RedisServer,
    redis_namespace: str,
    tmp_path: Path,
) -> AsyncIterator[World]:
    urls = {
        "memory": "memory://",
        "sqlite": f"sqlite:///{tmp_path}/holdfast.db",
        "redis": redis_server.url,
    }
    world = World(urls[request.param], redis_namespace)
    async with world.app.running():
        yield world


async def test_pages_of_any_size_tell_the_same(world: World) -> None:
    ids = await world.run("ann", "nobody", "bob")
    whole = await world.everything(100)
    assert [step.task_id for step in whole if step.version == 1] == sorted(ids, reverse=True)
    assert {step.maker for step in whole} == {Maker.CLIENT, Maker.WORKER}
    for limit in (1, 2, 3, 4, 7):
        assert await world.everything(limit) == whole
    assert {s.after for s in whole if s.task_id == ids[1]} == {"PENDING", "RUNNING", "FAILED"}


async def test_a_filter_and_a_time_narrow_it(world: World) -> None:
    ids = await world.run("ann", "bob")
    of_ann = await world.everything(2, where=Filter(tenant="ann"))
    assert {step.task_id for step in of_ann} == {ids[0]}
    assert await world.everything(2, task=ids[0]) == of_ann
    middle = of_ann[1].at
    later = await world.everything(2, task=ids[0], since=middle)
    earlier = await world.everything(2, task=ids[0], until=middle)
    assert earlier + later == of_ann
    assert await world.everything(9, since=of_ann[-1].at + 3600) == []


async def test_bad_input_is_refused(world: World) -> None:
    [task_id] = await world.run("ann")
    with pytest.raises(TaskNotFound):
        await world.app.query.transitions(task="no-such-task")
    for cursor in ("x", "@1", "a@b", "a@"):
        with pytest.raises(InvalidInput):
            await world.app.query.transitions(cursor=cursor)
    with pytest.raises(InvalidInput, match="another task"):
        await world.app.query.transitions(task=task_id, cursor="other@1")


async def test_a_look_is_bounded(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    ids = await world.run("ann", "bob", "eve")
    monkeypatch.setattr(transitions, "TASKS_MAX", 1)
    page = await world.app.query.transitions()
    assert {step.task_id for step in page.transitions} == {max(ids)}
    assert page.cursor is not None
    assert {step.task_id for step in await world.everything(50)} == set(ids)


async def test_plans_triggers_and_operators_are_named_with_what_they_did(world: World) -> None:
    app = world.app
    plan = await app.plan("upgrade-7", [world.send.on("ann", tenant="ann")])
    await plan.wait(timeout="60s")
    nightly = await app.schedule.every("1h", world.send, "bob", name="nightly")
    fired = await nightly.fire()
    assert await fired.result(timeout="60s") == "bob"
    await app.control.acting_as("eve", "10.0.0.7").rollback(fired.id, reason="too early")
    steps = await world.everything(50)
    assert {(step.maker, step.name, step.command) for step in steps if step.name} >= {
        (Maker.PLAN, "upgrade-7", "submit"),
        (Maker.PLAN, "upgrade-7", "release"),
        (Maker.TRIGGER, "nightly", "submit"),
        (Maker.OPERATOR, "eve", "rollback"),
    }
    [asked] = [step for step in steps if step.maker is Maker.OPERATOR]
    assert (asked.before, asked.after) == ("COMPLETED", "ROLLING_BACK")
    assert (asked.origin, asked.reason) == ("10.0.0.7", "too early")
