"""The same tenant and key give the first task again; another payload under them is a conflict."""

import asyncio
from typing import Any

import pytest

from holdfast import Context, Holdfast, Status
from holdfast.errors import KeyConflict
from holdfast.testing import Engine
from holdfast.testing.plugin import MakeEngine


@pytest.fixture
def ran(app: Holdfast) -> list[Any]:
    """What the task of this test was run with."""
    seen: list[Any] = []

    @app.task("note")
    async def note(ctx: Context, payload: Any) -> Any:
        seen.append(payload)
        return payload

    @app.task("other")
    async def other(ctx: Context, payload: Any) -> Any:
        seen.append(payload)

    app.note, app.other = note, other  # type: ignore[attr-defined]
    return seen


@pytest.fixture
def engine(app: Holdfast, ran: list[Any], holdfast_engine: MakeEngine) -> Engine:
    return holdfast_engine(app)


async def submit(engine: Engine, payload: Any, name: str = "note", **options: Any) -> str:
    return (await getattr(engine.app, name).submit(payload, **options)).id  # type: ignore[no-any-return]


async def test_the_same_key_is_the_same_task(engine: Engine, ran: list[Any]) -> None:
    ids = {await submit(engine, 1, key="k", tenant="t") for _ in range(3)}
    await engine.drain()
    ids.add(await submit(engine, 1, key="k", tenant="t"))
    await engine.drain()
    assert len(ids) == 1
    assert ran == [1]


async def test_submits_at_the_same_moment_make_one_task(engine: Engine, ran: list[Any]) -> None:
    ids = await asyncio.gather(*(submit(engine, 1, key="k") for _ in range(50)))
    await engine.drain()
    assert len(set(ids)) == 1
    assert ran == [1]


async def test_another_payload_under_the_same_key_is_a_conflict(engine: Engine) -> None:
    first = await submit(engine, {"a": 1}, key="k", tenant="t")
    with pytest.raises(KeyConflict) as refused:
        await submit(engine, {"a": 2}, key="k", tenant="t")
    assert (refused.value.tenant, refused.value.key) == ("t", "k")
    assert refused.value.task_id == first


async def test_another_type_under_the_same_key_is_a_conflict(engine: Engine) -> None:
    await submit(engine, 1, key="k")
    with pytest.raises(KeyConflict):
        await submit(engine, 1, "other", key="k")


async def test_the_order_of_the_payloads_fields_does_not_matter(engine: Engine) -> None:
    first = await submit(engine, {"a": {"x": 1, "y": 2}, "b": 3}, key="k")
    assert await submit(engine, {"b": 3, "a": {"y": 2, "x": 1}}, key="k") == first


async def test_keys_are_the_tenants_own(engine: Engine) -> None:
    ids = {await submit(engine, n, key="k", tenant=f"t-{n}") for n in range(3)}
    ids.add(await submit(engine, 3, key="k"))
    assert len(ids) == 4


async def test_without_a_key_each_submit_is_a_task(engine: Engine) -> None:
    assert await submit(engine, 1) != await submit(engine, 1)


async def test_a_key_outlives_the_record_by_a_day(engine: Engine, ran: list[Any]) -> None:
    first = await submit(engine, 1, key="k")
    await engine.drain()
    await engine.advance("29d")
    assert await submit(engine, 1, key="k") == first
    await engine.advance("2d")
    assert await submit(engine, 1, key="k") != first
    await engine.drain()
    assert ran == [1, 1]


async def test_a_suspended_task_keeps_its_key(engine: Engine) -> None:
    first = await submit(engine, 1, key="k")
    await engine.app.control.pause(first)
    await engine.advance("40d")
    assert await submit(engine, 1, key="k") == first
    assert (await engine.app.handle(first).info()).status is Status.PAUSED
