"""arq on Redis: a sorted set that workers poll, optimistic locks around each start."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from importlib.metadata import version
from typing import Any

import uvloop
from adapter_cli import Elapsed, Options, Stopwatch, main, pauses, shares, start_ms
from arq import create_pool, func
from arq.connections import ArqRedis, RedisSettings
from arq.worker import Worker

NAME = "arq"
STORES = ("redis",)
SETTINGS = {
    "best": (
        "uvloop; 100 at once, polled every 1 ms; no-ops leave no result; time limit of 30 s. Done "
        "after the run: a killed worker's tasks run again after 40 s; the server loses up to 1 s "
        "(AOF everysec)"
    ),
    "plain": (
        "asyncio; 10 at once, polled every 0.5 s; results kept for an hour; time limit of 300 s. "
        "Done after the run: a killed worker's tasks run again after 310 s; the server loses up "
        "to 1 s (AOF everysec)"
    ),
}
CAN = {"submit", "drain", "latency", "result", "recovery"}
VERSION = version("arq")
TUNED = {"max_jobs": 100, "poll_delay": 0.001, "job_timeout": 30, "log_results": False}


def work(options: Options) -> None:
    loop = uvloop.new_event_loop() if options.best else asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    sizes: dict[str, Any] = dict(TUNED) if options.best else {}
    if options.task == "hold":
        sizes["max_jobs"] = options.slots
    worker = Worker(
        functions=_functions(options),
        redis_settings=RedisSettings.from_dsn(options.url),
        **sizes,
    )
    worker.run()


def submit(options: Options) -> Elapsed:
    return _run(options, _submit(options))


async def _submit(options: Options) -> Elapsed:
    pool = await _pool(options)

    async def send(numbers: range) -> None:
        for n in numbers:
            await pool.enqueue_job(options.task, n)

    callers = 1 if options.how == "one" else options.callers
    watch = Stopwatch()
    await asyncio.gather(*(send(share) for share in shares(options.tasks, callers)))
    elapsed = watch.stop()
    await pool.aclose()
    return elapsed


def prepare(options: Options) -> None:
    """Keys come with the first task."""


def latency(options: Options) -> dict[str, Any]:
    return _run(options, _latency(options))


async def _latency(options: Options) -> dict[str, Any]:
    pool = await _pool(options)
    polled = {"poll_delay": 0.001} if options.best else {}
    started, finished = [], []
    for n, rest_seconds in pauses(options):
        await asyncio.sleep(rest_seconds)
        began = time.monotonic_ns()
        task = await pool.enqueue_job("answer", n)
        await task.result(**polled)
        finished.append((time.monotonic_ns() - began) / 1e6)
        started.append(start_ms(options.board, n, began))
    await pool.aclose()
    return {"start_ms": started, "result_ms": finished}


async def _pool(options: Options) -> ArqRedis:
    return await create_pool(RedisSettings.from_dsn(options.url))


def _functions(options: Options) -> list[Any]:
    async def noop(_context: Any, n: int) -> None:
        options.board.mark(n)

    async def answer(_context: Any, n: int) -> int:
        options.board.mark(n)
        return n

    async def hold(_context: Any, n: int) -> None:
        options.board.start(n)
        await asyncio.sleep(options.hold_seconds)
        options.board.done(n)

    kept = {"keep_result": 0} if options.best else {}
    return [
        func(noop, name="noop", **kept),
        func(answer, name="answer"),
        func(hold, name="hold"),
    ]


def _run(options: Options, work: Coroutine[Any, Any, Any]) -> Any:
    return uvloop.run(work) if options.best else asyncio.run(work)


if __name__ == "__main__":
    main()
