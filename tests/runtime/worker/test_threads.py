"""Plain functions run in threads, and a thread cannot be stopped."""

import asyncio
import contextvars
import threading

import pytest

from holdfast import Context, Holdfast, Permanent, Status
from holdfast.runtime.worker.running_tasks import RunningTask
from holdfast.runtime.worker.threads import DaemonThreads
from holdfast.runtime.worker.worker import Worker
from holdfast.testing import ManualClock
from holdfast.testing.plugin import MakeEngine
from tests.support.runtime.helpers import BOUND_SECONDS, event_names, task_of, within_bounds


class ThreadGate:
    """Where a plain function stands, in its own thread, until the test lets it go."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()
        self.passed = threading.Semaphore(0)

    def stand(self) -> None:
        self.reached.set()
        assert self.opened.wait(BOUND_SECONDS)
        self.passed.release()

    async def wait_until_passed(self, times: int) -> None:
        for _ in range(times):
            assert await asyncio.to_thread(self.passed.acquire, timeout=BOUND_SECONDS)

    async def wait_until_reached(self) -> None:
        assert await asyncio.to_thread(self.reached.wait, BOUND_SECONDS)


async def elapse_until_there_are(threads: int, worker: Worker, clock: ManualClock) -> None:
    """After the timeout, the grace and the rest of the lease; no longer, since the other run has a
    timeout too, and its thread lives in real time."""
    for _ in range(60):
        await clock.elapse("1s")
        if len(worker.in_threads) == threads:
            return
    pytest.fail(f"{len(worker.in_threads)} plain functions run, not {threads}")


async def test_a_plain_function_does_not_block_the_loop(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    gate = ThreadGate()

    @app.task("plain")
    def plain(ctx: Context) -> str:
        gate.stand()
        return threading.current_thread().name

    @app.task("quick")
    async def quick(ctx: Context) -> str:
        return threading.current_thread().name

    engine = holdfast_engine(app)
    slow, fast = await plain.submit(), await quick.submit()
    await engine.start()
    await gate.wait_until_reached()
    assert await within_bounds(fast.result()) == threading.current_thread().name
    gate.opened.set()
    assert await within_bounds(slow.result()) == "holdfast-stage"


async def test_slot_and_lease_are_kept_until_the_function_returns(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    gate = ThreadGate()

    @app.task("plain", timeout="1h")
    def plain(ctx: Context) -> str:
        gate.stand()
        return "done"

    engine = holdfast_engine(app, slots=1)
    first, second = await plain.submit(), await plain.submit()
    worker = await engine.start()
    await gate.wait_until_reached()
    await engine.clock.elapse("5m")
    assert worker.running == 1
    lease = (await task_of(engine, first)).lease
    assert lease is not None
    assert lease.until > engine.clock.now()
    assert (await second.info()).status is Status.PENDING
    gate.opened.set()
    assert await within_bounds(first.result()) == "done"
    assert await within_bounds(second.result()) == "done"


async def test_a_lost_lease_with_a_plain_function_running_is_told_once(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    gate, zombies = ThreadGate(), list[RunningTask]()

    @app.task("plain", timeout="10s")
    def plain(ctx: Context) -> str:
        gate.stand()
        return "too late"

    engine = holdfast_engine(app)
    worker = app.worker(heartbeat_thread=False, on_zombie=zombies.append)
    await worker.start()
    handle = await plain.submit()
    await gate.wait_until_reached()
    await elapse_until_there_are(2, worker, engine.clock)
    assert [held.task_id for held in zombies] == [handle.id]
    assert worker.running >= 1, "its slot is kept: the thread is still there"
    gate.opened.set()
    await within_bounds(handle.result())
    await gate.wait_until_passed(2)  # the zombie's end was refused, another run completed it
    assert (await event_names(engine, handle)).count("StageCompleted") == 1
    worker.abandon()


async def test_what_a_zombie_returns_is_not_written(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    gate, second = ThreadGate(), ThreadGate()

    @app.task("plain", timeout="10s")
    def plain(ctx: Context) -> int:
        (gate if ctx.attempt == 1 else second).stand()
        return ctx.attempt

    engine = holdfast_engine(app)
    handle = await plain.submit()
    worker = await engine.start()
    await gate.wait_until_reached()
    await elapse_until_there_are(2, worker, engine.clock)
    second.opened.set()
    assert await within_bounds(handle.result()) == 2
    version = (await task_of(engine, handle)).version
    gate.opened.set()
    await engine.drain()
    assert worker.running == 0
    assert (await task_of(engine, handle)).version == version


async def test_a_plain_function_sees_the_context_variables_of_the_worker(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    request = contextvars.ContextVar("request", default="none")

    @app.task("plain")
    def plain(ctx: Context) -> str:
        return request.get()

    engine = holdfast_engine(app)
    request.set("from the worker")
    handle = await plain.submit()
    await engine.drain()
    assert await handle.result() == "from the worker"


@pytest.mark.parametrize("error", [Permanent("no"), StopIteration(), SystemExit(1), KeyError(1)])
async def test_what_a_plain_function_raises_is_a_failure(
    app: Holdfast, holdfast_engine: MakeEngine, error: BaseException
) -> None:
    @app.task("plain")
    def plain(ctx: Context) -> None:
        raise error

    engine = holdfast_engine(app)
    handle = await plain.submit()
    await engine.drain()
    assert (await handle.info()).status in (Status.RETRYING, Status.FAILED)
    assert (await handle.info()).failure is not None


async def test_a_cancel_takes_effect_only_when_the_thread_has_returned() -> None:
    gate = ThreadGate()
    run = asyncio.create_task(DaemonThreads().run(gate.stand))
    await gate.wait_until_reached()
    run.cancel()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not run.done()
    gate.opened.set()
    with pytest.raises(asyncio.CancelledError):
        await within_bounds(run)
    await gate.wait_until_passed(1)
