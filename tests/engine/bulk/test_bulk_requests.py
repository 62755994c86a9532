"""A bulk action is started once, and nobody starts or stops one without a trace."""

from collections.abc import Sequence
from typing import Any

import pytest

from holdfast import Holdfast, Status
from holdfast.domain.audit import Audit
from holdfast.domain.errors import IllegalTransition
from holdfast.engine.bulk.bulks import BulkHandle
from holdfast.errors import KeyConflict, StoreUnavailable
from holdfast.ports import Filter
from holdfast.testing.plugin import MakeEngine
from tests.engine.bulk.test_bulk import WORK, Scene


@pytest.fixture
def scene(app: Holdfast, holdfast_engine: MakeEngine) -> Scene:
    return Scene(app, holdfast_engine)


async def entries_of(scene: Scene, bulk: BulkHandle) -> list[Audit]:
    """Those about the action or its task, the oldest first."""
    found = await scene.engine.store.admin.audits(limit=100)
    return [one for one in reversed(found) if bulk.id in one.task_id]


async def said_of(scene: Scene, bulk: BulkHandle) -> list[tuple[str, str, str | None]]:
    return [(e.command, e.task_id, e.refused) for e in await entries_of(scene, bulk)]


async def away(*_: Any, **__: Any) -> Any:
    raise StoreUnavailable("lost")


# -- what is written down


async def test_each_thing_that_is_asked_of_it_is_written_down_once(scene: Scene) -> None:
    await scene.failed(40)
    bulk = await scene.app.bulk.start("resume", WORK, rate=10)
    about = f"bulk:{bulk.id}"
    await scene.engine.advance(1)
    await bulk.pause()
    await scene.engine.advance("1m")
    await bulk.resume()
    await scene.engine.advance(1)
    await bulk.stop("no")
    await scene.engine.advance("1m")
    commands = ("start resume", "pause", "resume", "stop")
    assert await said_of(scene, bulk) == [(command, about, None) for command in commands]
    last = (await entries_of(scene, bulk))[-1]
    assert (last.by.actor, last.by.reason) == ("app", "no")


async def test_what_is_refused_is_written_down_about_the_action(scene: Scene) -> None:
    bulk = await scene.app.bulk.start("resume", WORK)
    await scene.over(bulk)
    with pytest.raises(IllegalTransition):
        await bulk.pause()
    last = (await said_of(scene, bulk))[-1]
    assert last == ("pause", f"bulk:{bulk.id}", IllegalTransition.code)


async def test_a_repeat_with_the_same_key_leaves_no_second_start(scene: Scene) -> None:
    await scene.failed(1)
    first = await scene.app.bulk.start("resume", WORK, key="k")
    await scene.over(first)
    assert (await scene.app.bulk.start("resume", WORK, key="k")).id == first.id
    found = [one.command for one in await scene.engine.store.admin.audits(limit=10)]
    assert found.count("start resume") == 1


async def test_the_start_is_written_down_by_the_write_that_lets_it_go(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.failed(2)
    with monkeypatch.context() as patch:
        patch.setattr(scene.engine.store.admin, "audit", away)
        bulk = await scene.app.bulk.start("discard", WORK)
        await scene.over(bulk)
    assert await said_of(scene, bulk) == [("start discard", f"bulk:{bulk.id}", None)]


async def test_none_runs_whose_start_could_not_be_written_down(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.failed(2)
    with monkeypatch.context() as patch:
        patch.setattr(scene.app.store.tasks, "apply", away)
        with pytest.raises(StoreUnavailable):
            await scene.app.bulk.start("discard", WORK)
    await scene.engine.advance("1h")
    [info] = (await scene.app.bulk.find()).bulks
    assert (info.phase, info.counts.done) == ("held", 0)
    assert await scene.statuses() == {Status.FAILED: 2}
    assert await scene.engine.store.admin.audits(limit=10) == []
    bulk = await scene.app.bulk.acting_as("ada").get(info.id)
    await bulk.resume()
    await scene.over(bulk)
    assert await said_of(scene, bulk) == [("resume", f"bulk:{bulk.id}", None)]
    assert await scene.statuses() == {Status.CANCELLED: 2}


async def test_a_repeat_with_its_key_lets_one_go_whose_start_was_lost(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.failed(2)
    with monkeypatch.context() as patch:
        patch.setattr(scene.app.store.tasks, "apply", away)
        with pytest.raises(StoreUnavailable):
            await scene.app.bulk.start("discard", WORK, key="k")
    bulk = await scene.app.bulk.start("discard", WORK, key="k")
    await scene.over(bulk)
    assert len((await scene.app.bulk.find()).bulks) == 1
    assert await said_of(scene, bulk) == [("start discard", f"bulk:{bulk.id}", None)]


async def test_one_that_is_held_can_be_stopped(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(scene.app.store.tasks, "apply", away)
        with pytest.raises(StoreUnavailable):
            await scene.app.bulk.start("discard", WORK)
    [info] = (await scene.app.bulk.find()).bulks
    assert (await (await scene.app.bulk.get(info.id)).stop()).phase == "stopped"


# -- keys


async def test_a_key_is_its_tenants_own(scene: Scene) -> None:
    ids = {
        (await scene.app.bulk.start("cancel", Filter(tenant=tenant, type="work"), key="k")).id
        for tenant in ("t-1", "t-2", None)
    }
    assert len(ids) == 3


async def test_a_key_of_a_task_is_none_of_a_bulk_action(scene: Scene) -> None:
    handle = await scene.work.submit(1, key="k")
    bulk = await scene.app.bulk.start("cancel", WORK, key="k")
    assert bulk.id != handle.id


async def test_the_same_order_is_the_same_whoever_gives_it_and_why(scene: Scene) -> None:
    first = await scene.app.bulk.acting_as("ada", "10.0.0.7").start(
        "cancel", WORK, key="k", reason="one"
    )
    again = await scene.app.bulk.acting_as("bob", "10.0.0.8").start(
        "cancel", WORK, key="k", reason="two"
    )
    assert again.id == first.id
    assert (await again.info()).by.actor == "ada"


async def test_a_conflict_tells_the_key_as_it_was_given(scene: Scene) -> None:
    where = Filter(type="work", tenant="t")
    first = await scene.app.bulk.start("cancel", where, key="k-1")
    with pytest.raises(KeyConflict, match="'k-1'") as caught:
        await scene.app.bulk.start("pause", where, key="k-1")
    assert (caught.value.tenant, caught.value.task_id) == ("t", first.id)


async def test_a_key_is_known_for_a_while_after_the_record_is_gone(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    bulk = await scene.app.bulk.start("cancel", WORK, key="k")

    async def gone(ids: Sequence[str]) -> list[None]:
        return [None for _ in ids]

    monkeypatch.setattr(scene.engine.store.views, "load", gone)
    assert (await scene.app.bulk.start("cancel", WORK, key="k")).id == bulk.id
