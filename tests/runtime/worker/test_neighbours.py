"""What one task does, or has done to it, must not cost its neighbours anything."""

import asyncio
import os
import time
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast import Context, Holdfast, Retry, Status
from holdfast import clock as machine_clock
from holdfast.domain import notification
from holdfast.domain.task.events import TaskProgress, TaskYielded
from holdfast.domain.task.task import FailureKind
from holdfast.errors import StoreUnavailable
from holdfast.ports import Beat, Claimed, Clock, Renewal
from holdfast.runtime.committer import Gather
from holdfast.runtime.worker.claimer import CLAIM_LIMIT
from holdfast.stores.memory import MemoryStore
from holdfast.stores.memory.state import MemoryState
from holdfast.stores.memory.tasks import MemoryTasks
from holdfast.testing import ManualClock
from holdfast.testing.plugin import MakeEngine
from tests.support.runtime.helpers import (
    Gate,
    event_names,
    events_of,
    suspend,
    task_of,
    within_bounds,
)


async def test_progress_that_is_no_text_is_cleaned(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    class Share(float):
        pass

    gate = Gate()

    @app.task("copy")
    async def copy(ctx: Context) -> None:
        ctx.progress(Share(0.5), "\ud800 of a file name")
        await gate.stand()

    engine = holdfast_engine(app)
    handle = await copy.submit()
    await engine.start()
    await gate.wait_until_reached()
    await engine.clock.elapse("2s")
    info = await handle.info()
    assert (info.progress, info.message) == (0.5, "\\ud800 of a file name")
    gate.open()
    await engine.drain()


class PickyTasks(MemoryTasks):
    """Cannot write progress at all."""

    async def renew(
        self, beat: Beat, batch: Sequence[Renewal], *, lease_seconds: float
    ) -> Sequence[bool]:
        if any(renewal.progress for renewal in batch):
            raise TypeError("not JSON")
        return await super().renew(beat, batch, lease_seconds=lease_seconds)


class Picky(MemoryStore):
    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.tasks: PickyTasks = PickyTasks(self.state)


async def test_progress_that_cannot_be_written_costs_no_lease(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    gate = Gate()
    stand = gate.declare(app, "stand")

    clock = ManualClock()
    engine = holdfast_engine(app, store=Picky(clock), clock=clock)
    handle = await stand.submit()
    await engine.start()
    await gate.wait_until_reached()
    await clock.elapse("2m")
    assert "LeaseLost" not in await event_names(engine, handle)
    gate.open()
    await engine.drain()


async def test_bystanders_of_a_poisonous_task_are_not_suspended_with_it(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    """Each time the worker dies, all that it ran loses its lease; only one is to blame."""

    @app.task("poison")
    async def poison(ctx: Context) -> None: ...

    @app.task("innocent")
    async def innocent(ctx: Context) -> None:
        await asyncio.get_running_loop().create_future()

    engine = holdfast_engine(app)
    bystanders = [await innocent.submit() for _ in range(4)]
    guilty = await poison.submit()
    engine.crash_at("poison", when="after", times=9)
    for _ in range(60):
        await engine.start()
        await engine.clock.elapse("31s")
        if (await guilty.info()).status is Status.FAILED:
            break
    assert (await guilty.info()).status is Status.FAILED
    for handle in bystanders:
        assert (await handle.info()).status is not Status.FAILED


class CountingTasks(MemoryTasks):
    def __init__(self, state: MemoryState) -> None:
        super().__init__(state)
        self.limits: list[int] = []

    async def claim(self, worker: str, *, limit: int, **options: Any) -> Sequence[Claimed]:
        if options["queues"] != (notification.QUEUE,):  # a look aside takes nothing from others
            self.limits.append(limit)
        return await super().claim(worker, limit=limit, **options)


class Counting(MemoryStore):
    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.tasks: CountingTasks = CountingTasks(self.state)


async def test_a_worker_among_unknown_types_takes_little(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    clock = ManualClock()
    store = Counting(clock)
    knowing = Holdfast(store, clock=clock)

    @knowing.task("new")
    async def new(ctx: Context) -> None: ...

    async with knowing:
        for _ in range(3 * CLAIM_LIMIT):
            await new.submit()
    engine = holdfast_engine(app, store=store, clock=clock)
    await engine.start()
    await clock.elapse("3s")
    assert store.tasks.limits[0] == CLAIM_LIMIT
    assert set(store.tasks.limits[1:]) == {1}
    assert len(store.tasks.limits) < 10, "and not often"


async def test_one_item_that_cannot_be_sent_fails_alone() -> None:
    async def send(batch: Sequence[int]) -> Sequence[int]:
        if 2 in batch:
            raise TypeError("two")
        return batch

    gather = Gather(send)
    asked = [asyncio.ensure_future(gather(n)) for n in range(5)]
    answers = await within_bounds(asyncio.gather(*asked, return_exceptions=True))
    assert [a for a in answers if not isinstance(a, TypeError)] == [0, 1, 3, 4]
    assert isinstance(answers[2], TypeError)


async def test_what_waits_behind_a_cancelled_sender_is_told() -> None:
    async def send(batch: Sequence[int]) -> Sequence[int]:
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    gather = Gather(send)
    first = asyncio.ensure_future(gather(1))
    await asyncio.sleep(0)
    second = asyncio.ensure_future(gather(2))
    await asyncio.sleep(0)
    [sender] = gather._senders
    sender.cancel()
    ended = await within_bounds(asyncio.gather(first, second, return_exceptions=True))
    assert all(isinstance(end, asyncio.CancelledError) for end in ended)


async def test_what_becomes_of_a_cancel_at_a_drain_is_no_failure(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    gate = Gate()

    @app.task("call", retry=Retry(max=1))
    async def call(ctx: Context) -> None:
        try:
            await gate.stand()
        except asyncio.CancelledError:
            raise ConnectionError("connection was closed") from None

    engine = holdfast_engine(app)
    handle = await call.submit()
    worker = await engine.start()
    await gate.wait_until_reached()
    draining = asyncio.create_task(worker.drain())
    await engine.clock.elapse("40s")
    await within_bounds(draining)
    assert (await handle.info()).status is Status.PENDING
    assert isinstance((await events_of(engine, handle))[-1], TaskYielded)


async def test_a_claim_that_is_answered_too_late_is_given_back_uncounted(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    ran: list[int] = []

    @app.task("note")
    async def note(ctx: Context) -> None:
        ran.append(ctx.fence)

    clock = ManualClock()

    class SlowTasks(MemoryTasks):
        slow = True

        async def claim(self, *arguments: Any, **options: Any) -> Sequence[Claimed]:
            claimed = await super().claim(*arguments, **options)
            if claimed and self.slow:
                self.slow = False
                clock.advance("28s")
            return claimed

        async def renew(self, beat: Beat, batch: Sequence[Renewal], **options: Any) -> Any:
            if batch:  # a beat would show that the lease is still good
                raise StoreUnavailable("slow")
            return await super().renew(beat, batch, **options)

    class Slow(MemoryStore):
        def __init__(self, clock: Clock) -> None:
            super().__init__(clock)
            self.tasks: SlowTasks = SlowTasks(self.state)

    engine = holdfast_engine(app, store=Slow(clock), clock=clock)
    handle = await note.submit()
    await engine.drain()
    assert len(ran) == 1
    assert "LeaseLost" not in await event_names(engine, handle)
    assert (await event_names(engine, handle)).count("TaskYielded") == 1


async def test_a_payload_type_that_raises_while_it_is_read_suspends_with_its_error(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    @app.task("note")
    async def note(ctx: Context, name: str) -> None: ...

    engine = holdfast_engine(app)
    handle = await note.submit("x")

    def explode(body: bytes) -> str:
        raise KeyError("its own")

    note.declared.payload.decode = explode  # type: ignore[method-assign]
    await engine.drain()
    failure = (await handle.info()).failure
    assert failure is not None
    assert "its own" in failure.message
    assert failure.kind is not FailureKind.POISON


async def test_a_plain_function_that_returns_late_has_failed_by_its_timeout(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    clock = ManualClock()

    @app.task("slow", timeout="1s", retry=Retry(max=1))
    def slow(ctx: Context) -> None:
        clock.advance("2s")

    engine = holdfast_engine(app, clock=clock)
    handle = await slow.submit()
    await engine.drain()
    failure = (await handle.info()).failure
    assert failure is not None
    assert failure.kind is FailureKind.TIMEOUT


@pytest.mark.parametrize("error", [KeyboardInterrupt, GeneratorExit])
async def test_nothing_that_a_plain_function_raises_ends_the_worker(
    app: Holdfast, holdfast_engine: MakeEngine, error: type[BaseException]
) -> None:
    @app.task("odd", retry=Retry(max=1))
    def odd(ctx: Context) -> None:
        raise error("odd")

    failure = await suspend(holdfast_engine(app), odd)
    assert error.__name__ in failure.error


async def test_a_stage_is_heard_of_every_ten_seconds_however_long_the_lease(
    holdfast_engine: MakeEngine,
) -> None:
    app, gate, heard = Holdfast("memory://", lease=300), Gate(), list[TaskProgress]()
    app.on_progress = heard.append

    @app.task("stand")
    async def stand(ctx: Context) -> None:
        await gate.stand()

    engine = holdfast_engine(app)
    handle = await stand.submit()
    await engine.start()
    await gate.wait_until_reached()
    await engine.clock.elapse("35s")
    assert len(heard) >= 3
    assert {event.task_id for event in heard} == {handle.id}
    gate.open()
    await engine.drain()


def test_leases_are_timed_by_a_clock_that_does_not_stand_still_in_suspend() -> None:
    if not hasattr(time, "CLOCK_BOOTTIME"):
        assert machine_clock._STEADY == time.CLOCK_MONOTONIC, os.uname().sysname
        return
    assert machine_clock._STEADY == time.CLOCK_BOOTTIME


async def test_a_run_that_is_stopped_by_a_drain_keeps_its_lease_while_it_cleans_up(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    gate, cleaning = Gate(), Gate()

    @app.task("tidy")
    async def tidy(ctx: Context) -> None:
        try:
            await gate.stand()
        finally:
            await cleaning.stand()

    engine = holdfast_engine(app)
    handle = await tidy.submit()
    worker = await engine.start()
    await gate.wait_until_reached()
    draining = asyncio.create_task(worker.drain())
    await engine.clock.elapse("31s")
    await cleaning.wait_until_reached()
    await engine.clock.elapse("60s")
    cleaning.open()
    await within_bounds(draining)
    task = await task_of(engine, handle)
    assert (task.status, task.crashes) == (Status.PENDING, 0)


async def test_unknown_types_in_one_queue_do_not_hide_what_waits_in_the_next(
    holdfast_engine: MakeEngine,
) -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    other = Holdfast(store, clock=clock)

    @other.task("new")
    async def new(ctx: Context) -> None: ...

    async with other:
        for _ in range(3 * CLAIM_LIMIT):
            await new.submit()
    app = Holdfast("memory://", queues="default,second")

    @app.task("known", queue="second")
    async def known(ctx: Context) -> str:
        return "done"

    engine = holdfast_engine(app, store=store, clock=clock)
    handle = await known.submit()
    await engine.start()
    await clock.elapse("10s")
    assert (await handle.info()).status is Status.COMPLETED
