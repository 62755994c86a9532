"""Holdfast behind the protocol of all adapters, as its users get it: nothing is set but the store.

Best and plain are therefore the same; only where the harness asks for a number of tasks at once
(recovery) are the slots set. The loop is uvloop where it is installed, as in `holdfast worker`.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import signal
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast import Context, Holdfast
from holdfast.cli.process.garbage_collection import exempt_startup_objects
from holdfast.engine.declare import AsyncTask, Workflow
from holdfast.version import __version__

if TYPE_CHECKING:
    from bench.peers.adapter_cli import (
        Elapsed,
        Options,
        Stopwatch,
        main,
        pauses,
        shares,
        start_ms_async,
    )
    from bench.peers.board import Board
else:
    from adapter_cli import Stopwatch, main, pauses, shares, start_ms_async

NAME = "holdfast"
VERSION = __version__
STORES = ("redis", "sqlite")
CAN = {"submit", "drain", "latency", "result", "stages", "recovery", "verify"}
_LOOP = "uvloop" if importlib.util.find_spec("uvloop") else "asyncio's own loop"
_DEFAULTS = (
    f"default settings (128 slots; {_LOOP}, garbage collection as in `holdfast worker`; recovery: "
    "100 slots): "
    "full state, events and a lease for each task; kill -9 of a worker loses nothing, its tasks "
    "run again; of the server: Redis with AOF everysec about two seconds, SQLite (WAL, synchronous "
    "FULL) nothing"
)
SETTINGS = {"best": _DEFAULTS, "plain": _DEFAULTS}

CHUNK = 10_000  # submits that one bulk call carries
RESULT_SECONDS = 120.0

T = TypeVar("T")


def noop_on(app: Holdfast, board: Board | None) -> AsyncTask[int, None]:
    @app.task("bench.noop")
    async def noop(_: Context, number: int) -> None:
        assert board is not None
        board.mark(number)

    return noop


def hold_on(app: Holdfast, options: Options) -> AsyncTask[int, None]:
    @app.task("bench.hold")
    async def hold(_: Context, number: int) -> None:
        options.board.start(number)
        await asyncio.sleep(options.hold_seconds)
        options.board.done(number)

    return hold


def workflow_on(app: Holdfast, stages: int) -> Workflow[int, int]:
    flow = app.workflow("bench.flow", payload=int, result=int)

    async def step(_: Context, number: int) -> int:
        return number

    for n in range(stages):
        flow.stage(name=f"step-{n}")(step)
    return flow


def prepare(options: Options) -> None:
    async def open_once() -> None:
        async with Holdfast(options.url):
            pass

    run(open_once())


def work(options: Options) -> None:
    run(_work(options))


async def _work(options: Options) -> None:
    asked = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked.set)
    app = Holdfast(options.url)
    noop_on(app, options.board)
    hold_on(app, options)
    slots = options.slots if options.task == "hold" else None  # else the default
    async with app.running(slots=slots):
        exempt_startup_objects()  # as `holdfast worker` does
        await asked.wait()


def submit(options: Options) -> Elapsed:
    return run(_submit(options))


async def _submit(options: Options) -> Elapsed:
    app = Holdfast(options.url)
    task = hold_on(app, options) if options.task == "hold" else noop_on(app, None)
    async with app:
        watch = Stopwatch()
        if options.how == "bulk":
            await _in_bulk(task, options)
        else:
            callers = 1 if options.how == "one" else options.callers
            parts = shares(options.tasks, callers)
            await asyncio.gather(*(_one_by_one(task, part, options.tenants) for part in parts))
        return watch.stop()


async def _one_by_one(task: AsyncTask[int, None], numbers: Iterable[int], tenants: int) -> None:
    for number in numbers:
        await task.submit(number, tenant=_tenant(number, tenants))


async def _in_bulk(task: AsyncTask[int, None], options: Options) -> None:
    """The bulk call takes one tenant; tasks of many tenants are submitted side by side."""
    for first in range(0, options.tasks, CHUNK):
        numbers = range(first, min(first + CHUNK, options.tasks))
        if not options.tenants:
            await task.submit_many(list(numbers))
        else:
            await asyncio.gather(
                *(task.submit(n, tenant=_tenant(n, options.tenants)) for n in numbers)
            )


def _tenant(number: int, tenants: int) -> str | None:
    return f"t-{number % tenants:05d}" if tenants else None


def latency(options: Options) -> dict[str, list[float]]:
    return run(_latency(options))


async def _latency(options: Options) -> dict[str, list[float]]:
    """The start stands on the board with its time: it is read when the result is there."""
    starts, results = [], []
    app = Holdfast(options.url)
    noop = noop_on(app, None)
    async with app:
        for number, seconds in pauses(options):
            await asyncio.sleep(seconds)
            at = time.monotonic_ns()
            handle = await noop.submit(number)
            await handle.result(timeout=RESULT_SECONDS)
            results.append((time.monotonic_ns() - at) / 1e6)
            starts.append(await start_ms_async(options.board, number, at))
    return {"start_ms": starts, "result_ms": results}


def stages(options: Options) -> Elapsed:
    return run(_stages(options))


async def _stages(options: Options) -> Elapsed:
    app = Holdfast(options.url)
    flow = workflow_on(app, options.stages)
    numbers = iter(range(options.workflows))
    async with app.running():

        async def one_after_another() -> None:
            for number in numbers:
                handle = await flow.submit(number)
                await handle.result(timeout=RESULT_SECONDS)

        watch = Stopwatch()
        await asyncio.gather(*(one_after_another() for _ in range(options.at_once)))
        return watch.stop()


def verify(options: Options) -> dict[str, Any]:
    """Return how many tasks the store has in each status."""

    async def count_by_status() -> dict[str, Any]:
        app = Holdfast(options.url)
        async with app:
            stats = await app.store.views.stats()
        return {"by_status": {status.name: n for status, n in stats.by_status.items() if n}}

    return run(count_by_status())


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    logging.basicConfig(level=logging.ERROR)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(coroutine)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


if __name__ == "__main__":
    main()
