"""Ids, outages, deadlines, retention: the small parts."""

import asyncio
import logging
import random
import uuid
from contextlib import suppress

import pytest

from holdfast import Context, Holdfast
from holdfast.clock import SystemClock, new_id
from holdfast.domain.errors import (
    PartlyUnavailable,
    SerialisationError,
    StoreError,
    StoreForeign,
)
from holdfast.errors import StoreUnavailable
from holdfast.ports import Kept
from holdfast.runtime.deadlines import deadline, sleep
from holdfast.runtime.store_outages import StoreOutages
from holdfast.stores.memory import MemoryStore
from holdfast.testing import ManualClock
from holdfast.testing.plugin import MakeEngine
from tests.support.runtime.helpers import FlakyStore, within_bounds


def test_ids_sort_by_time_of_birth() -> None:
    clock, chance = ManualClock(), random.Random(1)
    ids = []
    for _ in range(200):
        ids.append(new_id(clock, chance))
        clock.advance(0.002)
    assert ids == sorted(ids)


def test_ids_of_one_moment_differ() -> None:
    clock, chance = ManualClock(), random.Random(1)
    assert len({new_id(clock, chance) for _ in range(1000)}) == 1000


def test_an_id_is_a_uuid_of_version_7() -> None:
    made = uuid.UUID(new_id(SystemClock(), random.SystemRandom()))
    assert (made.version, made.variant) == (7, uuid.RFC_4122)


def test_an_outage_is_remembered_for_as_long_as_asked() -> None:
    clock = ManualClock()
    outages = StoreOutages(clock)
    assert not outages.within(60)
    outages.note(StoreUnavailable("away"))
    clock.advance("59s")
    assert outages.within(60)
    clock.advance("1s")
    assert not outages.within(60)


def test_a_jump_of_the_wall_clock_does_not_end_an_outage() -> None:
    clock = ManualClock()
    outages = StoreOutages(clock)
    outages.note(StoreUnavailable("away"))
    clock.jump(86_400)
    assert outages.within(60)


def test_an_outage_is_said_once_in_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    outages = StoreOutages(clock)
    with caplog.at_level(logging.ERROR):
        for _ in range(100):
            outages.note(StoreUnavailable("away"))
            clock.advance(0.25)
    assert len(caplog.messages) == 3


def test_an_outage_has_a_reason_also_where_only_time_ran_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    StoreOutages(ManualClock()).note(TimeoutError())
    assert caplog.messages == ["the store is out of reach: it did not answer in time"]


def test_who_was_told_of_an_outage_is_told_of_its_end_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outages = StoreOutages(ManualClock())
    outages.over()
    assert caplog.messages == []
    for _ in range(2):
        outages.note(StoreUnavailable("away"))
    for _ in range(2):
        outages.over()
    assert caplog.messages == ["the store is out of reach: away", "the store answers again"]


@pytest.mark.parametrize(
    "error",
    [
        SerialisationError("not legible"),
        StoreForeign("not ours"),
        PartlyUnavailable(StoreForeign("not ours"), [1, StoreForeign("not ours")]),
    ],
)
def test_what_a_store_within_reach_says_is_no_outage(
    error: StoreError, caplog: pytest.LogCaptureFixture
) -> None:
    outages = StoreOutages(ManualClock())
    for _ in range(2):
        outages.note(error)
    outages.over()
    assert not outages.within(60)
    assert caplog.messages == [str(error)], "by its own text, once in a while"


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError("late"),
        PartlyUnavailable(StoreUnavailable("away"), []),
        PartlyUnavailable(StoreForeign("not ours"), [StoreForeign("x"), StoreUnavailable("y")]),
    ],
)
def test_no_answer_in_time_or_of_a_part_is_an_outage(error: StoreError | TimeoutError) -> None:
    outages = StoreOutages(ManualClock())
    outages.note(error)
    assert outages.within(60)


async def test_a_deadline_does_not_touch_what_ends_in_time() -> None:
    clock = ManualClock()
    async with deadline(clock, 5):
        await asyncio.sleep(0)
    clock.advance(60)
    await asyncio.sleep(0)


async def test_a_deadline_ends_what_does_not() -> None:
    clock = ManualClock()

    async def wait() -> None:
        async with deadline(clock, 5):
            await asyncio.Event().wait()

    waiting = asyncio.create_task(wait())
    await clock.elapse(4.9)
    assert not waiting.done()
    await clock.elapse(0.1)
    with pytest.raises(TimeoutError):
        await within_bounds(waiting)


async def test_a_cancel_from_outside_is_not_taken_for_the_deadline() -> None:
    clock = ManualClock()

    async def wait() -> None:
        async with deadline(clock, 5):
            await asyncio.Event().wait()

    waiting = asyncio.create_task(wait())
    await clock.elapse(1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await within_bounds(waiting)


async def test_a_deadline_that_was_swallowed_leaves_no_cancel_behind() -> None:
    clock = ManualClock()

    async def swallow() -> int:
        with pytest.raises(TimeoutError):  # noqa: PT012
            async with deadline(clock, 5):
                with suppress(asyncio.CancelledError):
                    await asyncio.Event().wait()
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    waiting = asyncio.create_task(swallow())
    await clock.elapse(6)
    assert await within_bounds(waiting) == 0


async def test_what_the_cancelled_code_raised_instead_is_passed_on() -> None:
    clock = ManualClock()

    async def convert() -> None:
        async with deadline(clock, 5):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise ValueError("closed while reading") from None

    waiting = asyncio.create_task(convert())
    await clock.elapse(6)
    with pytest.raises(ValueError, match="closed"):
        await within_bounds(waiting)
    assert waiting.cancelling() == 0


async def test_a_sleep_that_is_cancelled_leaves_no_timer() -> None:
    clock = ManualClock()
    sleeping = asyncio.create_task(sleep(clock, 5))
    await asyncio.sleep(0)
    sleeping.cancel()
    await asyncio.gather(sleeping, return_exceptions=True)
    assert clock.next_timer_seconds is None


async def test_what_has_outlived_its_time_is_removed_in_the_background(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    @app.task("short", keep="1h")
    async def short(ctx: Context) -> None: ...

    @app.task("long", keep="2d")
    async def long(ctx: Context) -> None: ...

    engine = holdfast_engine(app)
    first, second = await short.submit(), await long.submit()
    await engine.drain()
    await engine.advance("59m")
    assert None not in await engine.store.views.load([first.id, second.id])
    await engine.advance("3m")
    assert [task is None for task in await engine.store.views.load([first.id, second.id])] == [
        True,
        False,
    ]


async def test_retention_takes_small_bites_and_waits_out_an_outage(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    @app.task("short", keep="1s")
    async def short(ctx: Context) -> None: ...

    clock = ManualClock()
    memory = MemoryStore(clock)
    store = FlakyStore(memory)
    engine = holdfast_engine(app, store=store, clock=clock)
    await asyncio.gather(*(short.submit() for _ in range(1200)))
    await engine.drain()
    store.down = {"prune"}
    await clock.elapse("61s")
    assert len(memory.state.tasks) == 1200
    store.down = set()
    store.calls.clear()
    await clock.elapse("60s")
    assert len(memory.state.tasks) == 0
    assert store.calls.count("prune") == 3 + len(Kept) - 1
