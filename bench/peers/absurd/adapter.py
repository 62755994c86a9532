"""absurd: durable tasks as stored procedures of PostgreSQL, with a small client in Python."""

from __future__ import annotations

import asyncio
import importlib.metadata
import signal
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import absurdctl
import psycopg
from absurd_sdk import AsyncAbsurd, AsyncTaskContext
from adapter_cli import Elapsed, Options, Stopwatch, main, pauses, shares, start_ms_async

NAME = "absurd"
STORES = ("postgres",)
GUARANTEE = (
    "each step is committed once: another worker takes over a killed worker's tasks after {} s, "
    "at their last step; a killed server loses nothing (synchronous commit)"
)
SETTINGS = {
    "best": "eight connections in a worker, claims of ten and more, polled every 2 ms; "
    + GUARANTEE.format(30),
    "plain": "one connection, polled every 250 ms; " + GUARANTEE.format(120),
}
CAN = {"submit", "drain", "latency", "result", "stages", "recovery"}
VERSION = importlib.metadata.version("absurd-sdk")

QUEUE = "bench"
WORKER_CONNECTIONS = 8
CALLER_CONNECTIONS = 16
BULK = 1000
CLAIMED_AT_ONCE = 10
CLAIM_SECONDS = 30
POLL_SECONDS = 0.002


def prepare(options: Options) -> None:
    with psycopg.connect(options.url, autocommit=True) as connection:
        connection.execute(absurdctl.BUNDLED_SCHEMA_SQL)
        connection.execute("SELECT absurd.create_queue(%s)", (QUEUE,))


def work(options: Options) -> None:
    asyncio.run(_work(options))


def submit(options: Options) -> Elapsed:
    return asyncio.run(_submit(options))


def latency(options: Options) -> dict[str, list[float]]:
    return asyncio.run(_latency(options))


def stages(options: Options) -> Elapsed:
    return asyncio.run(_stages(options))


async def _work(options: Options) -> None:
    mark, start, done = options.board.mark, options.board.start, options.board.done

    async def noop(number: int, _: AsyncTaskContext) -> int:
        mark(number)
        return number

    async def hold(number: int, _: AsyncTaskContext) -> int:
        start(number)
        await asyncio.sleep(options.hold_seconds)
        done(number)
        return number

    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with _workers(options, options.slots) as workers:
        for app, _ in workers:
            app.register_task("noop")(noop)
            app.register_task("hold")(hold)
        running = [asyncio.create_task(_run(options, *worker)) for worker in workers]
        await ended.wait()
        for app, _ in workers:
            app.stop_worker()
        await asyncio.gather(*running)


async def _submit(options: Options) -> Elapsed:
    callers = options.callers if options.how == "many" else 1
    async with _apps(options, min(callers, CALLER_CONNECTIONS)) as apps:
        if options.how == "bulk":
            return await _measure_calls(_spawn_in_bulk(apps[0], options.task, options.tasks))
        return await _measure_calls(
            *(
                _spawn(apps[n % len(apps)], options.task, numbers)
                for n, numbers in enumerate(shares(options.tasks, callers))
            )
        )


async def _latency(options: Options) -> dict[str, list[float]]:
    starts, results = [], []
    async with _apps(options, 1) as (app,):
        for number, pause in pauses(options):
            await asyncio.sleep(pause)
            began = time.monotonic_ns()
            spawned = await app.spawn("noop", number, queue=QUEUE)
            starts.append(await start_ms_async(options.board, number, began))
            await app.await_task_result(spawned["task_id"])
            results.append((time.monotonic_ns() - began) / 1e6)
    return {"start_ms": starts, "result_ms": results}


async def _stages(options: Options) -> Elapsed:
    """All are spawned, then worked off by as many at once as asked for; both are timed."""
    left = options.workflows

    async def run_stages(count: int, context: AsyncTaskContext) -> int:
        for number in range(count):
            await context.step(f"stage-{number}", _nothing)
        nonlocal left
        left -= 1
        if not left:
            for app, _ in workers:
                app.stop_worker()
        return count

    async with _workers(options, options.at_once) as workers:
        for app, _ in workers:
            app.register_task("staged")(run_stages)
        watch = Stopwatch()
        await asyncio.gather(
            *(
                _spawn_many(app, options.stages, len(numbers))
                for (app, _), numbers in zip(
                    workers, shares(options.workflows, len(workers)), strict=True
                )
            )
        )
        await asyncio.gather(*(_run(options, *worker) for worker in workers))
        return watch.stop()


async def _nothing() -> None:
    pass


async def _run(options: Options, app: AsyncAbsurd, slots: int) -> None:
    if options.best:
        await app.start_worker(
            concurrency=slots,
            batch_size=max(slots, CLAIMED_AT_ONCE),
            claim_timeout=CLAIM_SECONDS,
            poll_interval=POLL_SECONDS,
        )
    else:
        await app.start_worker(concurrency=slots)


async def _spawn(app: AsyncAbsurd, task: str, numbers: range) -> None:
    for number in numbers:
        await app.spawn(task, number, queue=QUEUE)


async def _spawn_many(app: AsyncAbsurd, stages: int, workflows: int) -> None:
    for _ in range(workflows):
        await app.spawn("staged", stages)


async def _spawn_in_bulk(app: AsyncAbsurd, task: str, tasks: int) -> None:
    """Many in one transaction: there is no call that takes them all."""
    for first in range(0, tasks, BULK):
        async with app._conn.transaction():
            await _spawn(app, task, range(first, min(first + BULK, tasks)))


async def _measure_calls(*calls: Coroutine[Any, Any, None]) -> Elapsed:
    watch = Stopwatch()
    await asyncio.gather(*calls)
    return watch.stop()


@asynccontextmanager
async def _workers(options: Options, slots: int) -> AsyncIterator[list[tuple[AsyncAbsurd, int]]]:
    """Clients that work as one, and how many tasks each may have: a client has one connection."""
    count = min(slots, WORKER_CONNECTIONS) if options.best else 1
    async with _apps(options, count) as apps:
        yield [(app, len(share)) for app, share in zip(apps, shares(slots, count), strict=True)]


@asynccontextmanager
async def _apps(options: Options, count: int) -> AsyncIterator[list[AsyncAbsurd]]:
    async with AsyncExitStack() as stack:
        connections = [
            await psycopg.AsyncConnection.connect(options.url, autocommit=True)
            for _ in range(count)
        ]
        for connection in connections:
            stack.push_async_callback(connection.close)
        yield [AsyncAbsurd(connection, queue_name=QUEUE) for connection in connections]


if __name__ == "__main__":
    main()
