"""Several services judge one store: whoever of them goes, hooks end with the right last word.

Nobody delivers here: what is to be told is read out of the store.
"""

from pathlib import Path
from typing import Any

import pytest

from holdfast import Handle, Holdfast
from holdfast.insight.monitor import RECALL_SECONDS, Monitor
from holdfast.notify.alerts import DAY_SECONDS
from holdfast.ports import Kept
from holdfast.stores.memory import MemoryStore
from holdfast.testing import ManualClock
from holdfast.testing.plugin import MakeEngine
from tests.support.notified_app import deliveries, payload_of, submit, telling_app
from tests.support.runtime.helpers import FlakyStore

OPS = {"url": "https://hooks.example.com", "events": ["AlertRaised", "AlertCleared"]}


class World:
    """``HOLDFAST_BACKLOG=10``, and as many tasks that wait as are asked for."""

    def __init__(self, app: Holdfast, clock: ManualClock, store: FlakyStore) -> None:
        self.app, self.clock, self.store = app, clock, store
        self._tasks: list[Handle[Any]] = []

    async def wait(self, count: int) -> None:
        while len(self._tasks) < count:
            self._tasks.append(await submit(self.app, "mail.gone"))
        while len(self._tasks) > count:
            await self._tasks.pop().cancel()

    async def look(self, *monitors: Monitor, after: float = 5.0) -> None:
        self.clock.advance(after)
        for monitor in monitors:
            await monitor.tick()

    async def told(self, code: str = "backlog") -> list[str]:
        said = [await payload_of(self.app, one.id) for one in await deliveries(self.app)]
        return [
            "raised" if b'"AlertRaised"' in one else "cleared"
            for one in said
            if f'"code":"{code}"'.encode() in one and b"holdfast.deliveries" not in one
        ]


@pytest.fixture
def world(tmp_path: Path, holdfast_engine: MakeEngine) -> World:
    app, clock = telling_app(tmp_path, hooks={"ops": OPS}, backlog={"*": 10}), ManualClock()
    store = FlakyStore(MemoryStore(clock))
    holdfast_engine(app, store=store, clock=clock)
    return World(app, clock, store)


async def test_what_one_has_raised_another_ends_when_that_one_is_gone(world: World) -> None:
    gone, other = Monitor(world.app), Monitor(world.app)
    await world.look(other)
    await world.wait(11)
    await world.look(gone)
    await world.wait(0)
    await world.look(other)
    assert await world.told() == ["raised"], "it has not heard of it yet"
    await world.look(other, after=RECALL_SECONDS)
    assert await world.told() == ["raised", "cleared"]


async def test_what_one_has_ended_another_raises_again_if_it_is_so(world: World) -> None:
    gone, other = Monitor(world.app), Monitor(world.app)
    await world.wait(11)
    await world.look(gone, other)
    await world.wait(7)
    await world.look(gone)
    await world.wait(9)
    await world.look(other, after=RECALL_SECONDS)
    assert await world.told() == ["raised", "cleared"], "nine of ten are no alert"
    await world.wait(11)
    await world.look(other)
    assert await world.told() == ["raised", "cleared", "raised"]


async def test_one_that_saw_no_dip_raises_what_another_has_ended(world: World) -> None:
    gone, other = Monitor(world.app), Monitor(world.app)
    await world.wait(11)
    await world.look(gone, other)
    await world.wait(7)
    await world.look(gone)
    await world.wait(59)
    await world.look(other)
    assert await world.told() == ["raised", "cleared"], "it stands here, and has been told"
    await world.look(other, after=RECALL_SECONDS)
    assert await world.told() == ["raised", "cleared", "raised"]


async def test_an_outage_that_three_have_noticed_is_told_once(world: World) -> None:
    services = [Monitor(world.app) for _ in range(3)]
    await world.look(*services)
    world.store.down.add("*")
    for monitor in services:
        await world.look(monitor, after=1)
    world.store.down.clear()
    for monitor in services:
        await world.look(monitor, after=2)
    assert await world.told("store-away") == ["raised", "cleared"]


async def test_what_was_noticed_long_ago_is_not_told_over_what_is_newer(world: World) -> None:
    late, other = Monitor(world.app), Monitor(world.app)
    await world.look(late, other)
    await world.wait(11)
    world.store.down.add("insert")
    await world.look(late)
    world.store.down.clear()
    await world.look(other)
    await world.wait(0)
    await world.look(other)
    await world.look(late)
    assert await world.told() == ["raised", "cleared"]


async def test_the_end_is_told_though_the_queue_has_no_task_any_more(world: World) -> None:
    await world.wait(11)
    await world.look(Monitor(world.app))
    await world.wait(0)
    world.clock.advance(1)
    await world.store.admin.prune(Kept.TASKS, older_than_seconds=0, limit=100, dry_run=False)
    await world.look(Monitor(world.app))
    assert "default" not in (await world.app.store.views.stats()).by_queue
    assert await world.told() == ["raised", "cleared"]


async def test_who_still_lags_says_so_after_another_has_caught_up(world: World) -> None:
    lags = {"a": 60.0, "b": 60.0}
    one, two = (Monitor(world.app, lag=lambda name=name: lags[name]) for name in lags)  # type: ignore[misc]
    await world.look(one, two)
    lags["a"] = 0.0
    await world.look(one, two)
    assert await world.told("event-lag") == ["raised", "cleared"]
    await world.look(one, two, after=RECALL_SECONDS)
    assert await world.told("event-lag") == ["raised", "cleared", "raised"]


async def test_clocks_that_differ_at_midnight_tell_nothing_twice(world: World) -> None:
    ahead, behind = ManualClock(), ManualClock()
    second_before = DAY_SECONDS - ahead.now() % DAY_SECONDS - 1
    ahead.advance(second_before + 2)
    behind.advance(second_before)
    await world.wait(11)
    await Monitor(world.app, ahead).tick()
    await Monitor(world.app, behind).tick()
    assert await world.told() == ["raised"]
