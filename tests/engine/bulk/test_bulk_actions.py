"""To cancel and to pause is meant for what moves: a bulk action catches it as it is."""

from collections import Counter
from collections.abc import Sequence

import pytest

from holdfast import Context, Handle, Holdfast, Status
from holdfast.domain.bulk import CHUNK_LIMIT
from holdfast.domain.task.events import CancelRequested, TaskSnoozed
from holdfast.domain.task.task import Task
from holdfast.ports import Filter
from holdfast.runtime.deadlines import sleep
from holdfast.testing.plugin import MakeEngine
from tests.engine.bulk.test_bulk import WORK, Scene
from tests.support.runtime.helpers import Gate, detail_of

STOPPING = [("cancel", Status.CANCELLED), ("pause", Status.PAUSED)]


@pytest.fixture
def scene(app: Holdfast, holdfast_engine: MakeEngine) -> Scene:
    return Scene(app, holdfast_engine)


async def waiting(scene: Scene, many: int) -> list[Handle[int]]:
    handles = [await scene.work.submit(number, queue="unserved") for number in range(many)]
    await scene.engine.advance(1)
    return handles


@pytest.mark.parametrize(("command", "after"), STOPPING)
async def test_what_runs_from_stage_to_stage_is_caught(
    app: Holdfast, holdfast_engine: MakeEngine, command: str, after: Status
) -> None:
    flow = app.workflow("flow", payload=int)
    for number in range(60):

        @flow.stage(name=f"s-{number}")
        async def step(ctx: Context, _: int) -> None:
            await sleep(engine.clock, 0.2)

    engine = holdfast_engine(app, slots=20)
    handles = [await flow.submit(number) for number in range(15)]
    await engine.advance(1)
    bulk = await app.bulk.start(command, Filter(type="flow"))
    await engine.advance("1m")
    assert {(await handle.info()).status for handle in handles} == {after}
    info = await bulk.info()
    assert (info.phase, info.matching) == ("done", 15)
    assert (info.counts.done, info.counts.changed) == (15, 0)


@pytest.mark.parametrize(("command", "after"), STOPPING)
async def test_what_moves_on_between_being_read_and_being_written_is_tried_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, command: str, after: Status
) -> None:
    [handle] = await waiting(scene, 1)
    load, moves = scene.engine.store.views.load, Counter[str]()

    async def restless(ids: Sequence[str]) -> Sequence[Task | None]:
        found = await load(ids)
        if list(ids) == [handle.id] and moves["made"] < 3:
            moves["made"] += 1
            monkeypatch.setattr(scene.engine.store.views, "load", load)
            await handle.pause()
            await handle.resume()
            monkeypatch.setattr(scene.engine.store.views, "load", restless)
        return found

    monkeypatch.setattr(scene.engine.store.views, "load", restless)
    bulk = await scene.app.bulk.start(command, WORK)
    await scene.over(bulk)
    assert moves["made"] == 3
    assert (await handle.info()).status is after
    assert (await bulk.info()).counts.done == 1


async def test_what_was_submitted_after_it_is_not_touched(scene: Scene) -> None:
    await waiting(scene, 10)
    bulk = await scene.app.bulk.start("cancel", WORK, rate=1)
    await scene.engine.advance(0.5)
    later = await scene.work.submit(99, queue="unserved")
    await scene.over(bulk)
    assert (await later.info()).status is Status.PENDING
    info = await bulk.info()
    assert (info.matching, info.counts.done) == (10, 10)


async def test_what_has_ended_before_its_turn_is_counted_as_changed(scene: Scene) -> None:
    handles = sorted(await waiting(scene, 12), key=lambda handle: handle.id, reverse=True)
    bulk = await scene.app.bulk.start("cancel", WORK, rate=1)
    await scene.engine.advance(0.5)
    await handles[4].cancel()  # five are picked at once
    await handles[-1].cancel()
    await scene.over(bulk)
    info = await bulk.info()
    assert (info.matching, info.counts.done, info.counts.changed) == (12, 10, 2)
    assert info.counts.refused == {}


async def test_what_carries_the_request_already_is_not_asked_again(scene: Scene) -> None:
    scene.cured, scene.gate = True, Gate()
    handle = await scene.work.submit(1)
    await scene.engine.advance(1)
    await handle.cancel()
    await scene.engine.advance(1)
    bulk = await scene.app.bulk.start("cancel", WORK)
    await scene.engine.advance("1m")
    events = (await detail_of(scene.engine, handle)).events
    assert sum(isinstance(event, CancelRequested) for event in events) == 1
    counts = (await bulk.info()).counts
    assert (counts.done, counts.changed) == (0, 1)
    scene.gate.open()


async def test_what_a_dead_round_has_paused_and_a_person_resumed_is_not_paused_again(
    scene: Scene,
) -> None:
    handles = await waiting(scene, 10)
    bulk = await scene.app.bulk.start("pause", WORK, rate=1)
    await scene.engine.advance(2)
    paused = [one for one in handles if (await one.info()).status is Status.PAUSED]
    assert 0 < len(paused) < 5
    assert scene.engine.worker is not None
    scene.engine._kill(scene.engine.worker.name)
    for one in paused:
        await one.resume()
    await scene.over(bulk)
    info = await bulk.info()
    assert (info.counts.done, info.counts.changed) == (10, 0)
    assert {(await one.info()).status for one in paused} == {Status.PENDING}
    assert await scene.statuses() == {Status.PENDING: len(paused), Status.PAUSED: 10 - len(paused)}


async def test_between_two_rounds_it_is_not_put_off(scene: Scene) -> None:
    """Due times are looked at twice a second only: that would halve the highest rate."""
    many = 3 * CHUNK_LIMIT
    await waiting(scene, many)
    bulk = await scene.app.bulk.start("cancel", WORK, rate=1000)
    await scene.over(bulk)
    detail = await scene.engine.store.views.detail(bulk.id)
    assert detail is not None
    events = [event for event in detail.events if isinstance(event, TaskSnoozed)]
    assert len(events) == 1 + 2  # after it has counted, and between the rounds
    assert {event.delay_seconds for event in events} == {0.0}
    assert many / 1000 - 0.5 <= detail.task.updated_at - detail.task.created_at <= many / 900
