"""SAQ on Redis: a list of waiting and a list of running tasks, each task a key of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from importlib.metadata import version
from typing import Any

import orjson
import uvloop
from adapter_cli import Elapsed, Options, Stopwatch, main, pauses, shares, start_ms
from saq import Job, Queue, Worker

NAME = "saq"
STORES = ("redis",)
SETTINGS = {
    "best": (
        "uvloop; orjson; 20 at once; no-ops leave no result; 3 attempts. A killed worker's tasks "
        "run again by a sweep (each minute) past their timeout (10 s), one by one, 5 s each; the "
        "server loses up to 1 s (AOF everysec)"
    ),
    "plain": (
        "asyncio; JSON; 10 at once; one attempt, results kept for 10 minutes. A killed worker's "
        "tasks are aborted by a later sweep, never run again; the server loses up to 1 s (AOF "
        "everysec)"
    ),
}
CAN = {"submit", "drain", "latency", "result", "recovery"}
VERSION = version("saq")
RESULT_SECONDS = 30
CONCURRENCY = 20
TUNED = {"retries": 3}
POLL_SECONDS = 0.001


def work(options: Options) -> None:
    _run(options, _work(options))


async def _work(options: Options) -> None:
    queue = _queue(options)
    await Worker(queue, functions=_functions(options), **_sizes(options)).start()
    await queue.disconnect()


def _sizes(options: Options) -> dict[str, Any]:
    sizes = {"concurrency": CONCURRENCY} if options.best else {}
    return sizes | ({"concurrency": options.slots} if options.task == "hold" else {})


def submit(options: Options) -> Elapsed:
    return _run(options, _submit(options))


async def _submit(options: Options) -> Elapsed:
    queue = _queue(options)
    tuned = TUNED | {"ttl": -1} if options.best else {}

    async def send(numbers: range) -> None:
        for n in numbers:
            await queue.enqueue(options.task, n=n, **tuned)

    await queue.connect()
    await queue.count("queued")
    callers = 1 if options.how == "one" else options.callers
    watch = Stopwatch()
    await asyncio.gather(*(send(share) for share in shares(options.tasks, callers)))
    elapsed = watch.stop()
    await queue.disconnect()
    return elapsed


def prepare(options: Options) -> None:
    """Keys come with the first task."""


def latency(options: Options) -> dict[str, Any]:
    return _run(options, _latency(options))


async def _latency(options: Options) -> dict[str, Any]:
    queue = _queue(options)
    tuned = TUNED if options.best else {}
    await queue.connect()
    started, finished = [], []
    for n, rest_seconds in pauses(options):
        await asyncio.sleep(rest_seconds)
        began = time.monotonic_ns()
        task = await queue.enqueue("answer", n=n, **tuned)
        await _wait_finished(task)
        finished.append((time.monotonic_ns() - began) / 1e6)
        started.append(start_ms(options.board, n, began))
    await queue.disconnect()
    return {"start_ms": started, "result_ms": finished}


async def _wait_finished(task: Job) -> None:
    """Asked again and again: a task this short may be done before its news is subscribed to."""
    async with asyncio.timeout(RESULT_SECONDS):
        await task.refresh()
        while not task.completed:
            await asyncio.sleep(POLL_SECONDS)
            await task.refresh()


def _queue(options: Options) -> Queue:
    tuned = {"dump": orjson.dumps, "load": orjson.loads} if options.best else {}
    return Queue.from_url(options.url, **tuned)


def _functions(options: Options) -> list[tuple[str, Any]]:
    async def noop(_context: Any, *, n: int) -> None:
        options.board.mark(n)

    async def answer(_context: Any, *, n: int) -> int:
        options.board.mark(n)
        return n

    async def hold(_context: Any, *, n: int) -> None:
        options.board.start(n)
        await asyncio.sleep(options.hold_seconds)
        options.board.done(n)

    return [(function.__name__, function) for function in (noop, answer, hold)]


def _run(options: Options, work: Coroutine[Any, Any, Any]) -> Any:
    return uvloop.run(work) if options.best else asyncio.run(work)


if __name__ == "__main__":
    main()
