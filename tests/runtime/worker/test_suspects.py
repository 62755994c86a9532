"""Tasks that were in several crashes in a row: each runs alone, and they run one after another."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast import Context, Handle, Holdfast, Status
from holdfast.domain.task import decide
from holdfast.domain.task.crashes import SUSPECT_FROM, position
from holdfast.domain.task.task import Progress
from holdfast.ports import Claimed, Renewal
from holdfast.runtime.worker.running_tasks import PROCESS_STAGES
from holdfast.testing import Engine
from holdfast.testing.contract.drivers.store_driver import beat
from holdfast.testing.plugin import MakeEngine
from tests.support.runtime.helpers import Gate, event_names, task_of

LEASE_SECONDS = 30.0


async def crash_with_all(engine: Engine, handles: Sequence[Handle[Any]]) -> None:
    """Let workers die while they run all of these, until they are suspects."""
    for number in range(SUSPECT_FROM):
        claimed = await engine.store.tasks.claim(
            "doomed", request=f"r-{number}", queues=("default",), limit=100, lease_seconds=30.0
        )
        assert {one.task.id for one in claimed} >= {handle.id for handle in handles}
        notes = [
            Renewal(
                task_id=one.task.id,
                lease_id=decide.lease_of(one.task).id,
                progress=Progress(
                    fraction=0.0, begun=position(one.task.last_completed, one.task.next_undo)
                ),
            )
            for one in claimed
        ]
        await engine.store.tasks.renew(beat("doomed"), notes, lease_seconds=LEASE_SECONDS)
        engine.clock.advance(LEASE_SECONDS + 1)
        await engine.store.tasks.expire(limit=100, count_crashes=True)


async def test_suspects_run_one_after_another_without_being_put_off(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    running = most = 0

    @app.task("suspect")
    async def suspect(ctx: Context) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    engine = holdfast_engine(app, slots=8)
    handles = [await suspect.submit() for _ in range(8)]
    await crash_with_all(engine, handles)
    await engine.drain()  # the clock stands still: nobody waits for a moment to pass
    assert most == 1
    for handle in handles:
        assert (await handle.info()).status is Status.COMPLETED
        assert "TaskYielded" not in await event_names(engine, handle)


async def test_a_task_beside_a_suspect_begins_when_that_has_ended(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    gate, ran = Gate(), list[str]()

    @app.task("suspect")
    async def suspect(ctx: Context) -> None:
        await gate.stand()
        ran.append("suspect")

    @app.task("other")
    async def other(ctx: Context) -> None:
        ran.append("other")

    engine = holdfast_engine(app, slots=8)
    handle = await suspect.submit()
    await crash_with_all(engine, [handle])
    await other.submit()
    draining = asyncio.create_task(engine.drain())
    await gate.wait_until_reached()
    assert ran == []
    gate.open()
    await draining
    assert ran == ["suspect", "other"]


async def test_a_suspect_that_waits_in_line_for_too_long_is_put_off(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    gate, ran = Gate(), list[str]()

    @app.task("suspect")
    async def suspect(ctx: Context) -> None:
        await gate.stand()
        ran.append(ctx.task_id)

    engine = holdfast_engine(app, slots=2)
    handles = [await suspect.submit() for _ in range(2)]
    await crash_with_all(engine, handles)
    await engine.start()
    await gate.wait_until_reached()
    await engine.clock.elapse("11s")
    yielded = [h for h in handles if "TaskYielded" in await event_names(engine, h)]
    assert len(yielded) == 1
    task = await task_of(engine, yielded[0])
    assert (task.status, task.crashes) == (Status.PENDING, SUSPECT_FROM)
    gate.open()
    await engine.advance("2s")
    assert sorted(ran) == sorted(handle.id for handle in handles)


async def test_beside_an_isolated_suspect_half_of_the_slots_are_for_others(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    gate, others = Gate(), Gate()
    isolated = list[str]()

    async def isolate(claimed: Claimed, safe_until: float) -> None:
        isolated.append(claimed.task.id)
        await gate.stand()

    @app.task("suspect")
    async def suspect(ctx: Context) -> None: ...

    @app.task("other")
    async def other(ctx: Context) -> None:
        await others.stand()

    engine = holdfast_engine(app)
    handles = [await suspect.submit() for _ in range(6)]
    await crash_with_all(engine, handles)
    worker = app.worker(slots=6, heartbeat_thread=False, isolate=isolate)
    await worker.start()
    await gate.wait_until_reached()
    await other.submit()
    await others.wait_until_reached()
    waiting = [h for h in handles if (await h.info()).status is Status.RUNNING]
    assert (len(isolated), len(waiting)) == (1, 1 + 3), "one runs, half of the slots wait for it"
    gate.open()
    others.open()
    worker.abandon()


async def test_a_worker_that_drains_gives_back_the_suspects_that_wait_in_line(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    gate = Gate()

    @app.task("suspect")
    async def suspect(ctx: Context) -> None:
        await gate.stand()

    engine = holdfast_engine(app, slots=3)
    handles = [await suspect.submit() for _ in range(3)]
    await crash_with_all(engine, handles)
    worker = await engine.start()
    await gate.wait_until_reached()
    drain = asyncio.create_task(worker.drain())
    await engine.clock.elapse("31s")
    await asyncio.wait_for(drain, 5)
    for handle in handles:
        task = await task_of(engine, handle)
        assert (task.status, task.crashes) == (Status.PENDING, SUSPECT_FROM)
    assert PROCESS_STAGES.suspect is None


@pytest.fixture(autouse=True)
def _nobody_is_kept_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests share this process."""
    monkeypatch.setattr(PROCESS_STAGES, "suspect", None)
