"""pgqueuer: a queue in a table of PostgreSQL, woken by LISTEN/NOTIFY."""

from __future__ import annotations

import asyncio
import importlib.metadata
import signal
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import asyncpg
import uvloop
from adapter_cli import Elapsed, Options, Stopwatch, main, pauses, shares, start_ms_async
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

NAME = "pgqueuer"
STORES = ("postgres",)
GUARANTEE = (
    "at least once: another worker takes over a killed worker's tasks when its heartbeat is 30 s "
    "old; ends are written in batches up to 0.1 s late; a killed server loses nothing "
    "(synchronous commit)"
)
SETTINGS = {
    "best": f"uvloop, batches of 200 both ways; {GUARANTEE}",
    "plain": f"batches of 10; {GUARANTEE}",
}
CAN = {"submit", "drain", "latency", "recovery"}  # it keeps how a task ended, not what it returned
VERSION = importlib.metadata.version("pgqueuer")

BATCH = {"best": 200, "plain": 10}
CALLER_CONNECTIONS = 4  # NOTIFY lets one commit at a time: more do not help
BULK = 2000


def prepare(options: Options) -> None:
    _run(options, _install(options))


def work(options: Options) -> None:
    _run(options, _work(options))


def submit(options: Options) -> Elapsed:
    return _run(options, _submit(options))


def latency(options: Options) -> dict[str, list[float] | None]:
    return _run(options, _latency(options))


def _run(options: Options, coroutine: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if options.best else None) as runner:
        return runner.run(coroutine)


async def _install(options: Options) -> None:
    async with _drivers(options, 1) as (driver,):
        await Queries(driver).install()


async def _work(options: Options) -> None:
    async with _drivers(options, 1) as (driver,):
        worker = PgQueuer(driver)
        mark, start, done = options.board.mark, options.board.start, options.board.done

        @worker.entrypoint("noop")
        async def noop(job: Job) -> None:
            mark(int(job.payload))

        @worker.entrypoint("hold")
        async def hold(job: Job) -> None:
            number = int(job.payload)
            start(number)
            await asyncio.sleep(options.hold_seconds)
            done(number)

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.shutdown.set)
        await worker.run(batch_size=BATCH[options.settings])


async def _submit(options: Options) -> Elapsed:
    callers = options.callers if options.how == "many" else 1
    async with _drivers(options, min(callers, CALLER_CONNECTIONS)) as drivers:
        queries = [Queries(driver) for driver in drivers]
        if options.how == "bulk":
            return await _measure_calls(_enqueue_in_bulk(queries[0], options.task, options.tasks))
        return await _measure_calls(
            *(
                _enqueue(queries[n % len(queries)], options.task, numbers)
                for n, numbers in enumerate(shares(options.tasks, callers))
            )
        )


async def _enqueue(queries: Queries, task: str, numbers: range) -> None:
    for number in numbers:
        await queries.enqueue(task, b"%d" % number)


async def _enqueue_in_bulk(queries: Queries, task: str, tasks: int) -> None:
    for first in range(0, tasks, BULK):
        payloads: list[bytes | None] = [b"%d" % n for n in range(first, min(first + BULK, tasks))]
        await queries.enqueue([task] * len(payloads), payloads, [0] * len(payloads))


async def _measure_calls(*calls: Coroutine[Any, Any, None]) -> Elapsed:
    watch = Stopwatch()
    await asyncio.gather(*calls)
    return watch.stop()


async def _latency(options: Options) -> dict[str, list[float] | None]:
    starts = []
    async with _drivers(options, 1) as (driver,):
        queries = Queries(driver)
        for number, pause in pauses(options):
            await asyncio.sleep(pause)
            began = time.monotonic_ns()
            await queries.enqueue("noop", b"%d" % number)
            starts.append(await start_ms_async(options.board, number, began))
    return {"start_ms": starts, "result_ms": None}


@asynccontextmanager
async def _drivers(options: Options, count: int) -> AsyncIterator[list[AsyncpgDriver]]:
    """No pool: asyncpg's asks the server once more each time that a connection is given back."""
    async with AsyncExitStack() as stack:
        drivers = []
        for _ in range(count):
            connection = await asyncpg.connect(options.url)
            stack.push_async_callback(connection.close)
            drivers.append(AsyncpgDriver(connection))
        yield drivers


if __name__ == "__main__":
    main()
