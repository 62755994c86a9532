"""Taskiq on Redis streams (taskiq-redis): one acknowledgement per message."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Coroutine
from importlib.metadata import version
from typing import Any

import uvloop
from adapter_cli import Elapsed, Options, Stopwatch, main, pauses, shares, start_ms
from taskiq import TaskiqResult
from taskiq.api import run_receiver_task
from taskiq.serializers import ORJSONSerializer
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

NAME = "taskiq"
STORES = ("redis",)
SETTINGS = {
    "best": (
        "uvloop; orjson; 1000 read at once, 20 run at once; parameters not validated; stale "
        "entries claimed after 60 s. Acknowledged after the run: a killed worker's tasks run "
        "again, once new messages wake a reader; the server loses up to 1 s (AOF everysec)"
    ),
    "plain": (
        "asyncio; JSON; 100 read and run at once. Acknowledged after the run: a killed worker's "
        "tasks run again after 10 minutes, once new messages wake a reader; the server loses up "
        "to 1 s (AOF everysec)"
    ),
}
CAN = {"submit", "drain", "latency", "result", "recovery"}
VERSION = f"{version('taskiq')} (taskiq-redis {version('taskiq-redis')})"
RESULT_SECONDS = 30.0
TUNED = {"xread_count": 1000, "idle_timeout": 60_000}


class ResultsThatMatter(RedisAsyncResultBackend[Any]):
    """Keeps what a task returns; a no-op returns nothing."""

    async def set_result(self, task_id: str, result: TaskiqResult[Any]) -> None:
        if result.return_value is not None or result.is_err:
            await super().set_result(task_id, result)


def work(options: Options) -> None:
    _run(options, _work(options))


async def _work(options: Options) -> None:
    broker = _broker(options)
    _tasks(broker, options)
    worker = asyncio.create_task(
        run_receiver_task(broker, run_startup=True, **_sizes(options)),
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await worker


def _sizes(options: Options) -> dict[str, Any]:
    sizes = {"max_async_tasks": 20, "validate_params": False} if options.best else {}
    return sizes | ({"max_async_tasks": options.slots} if options.task == "hold" else {})


def submit(options: Options) -> Elapsed:
    return _run(options, _submit(options))


async def _submit(options: Options) -> Elapsed:
    broker = _broker(options)
    task = _tasks(broker, options)[options.task]

    async def send(numbers: range) -> None:
        for n in numbers:
            await task.kiq(n)

    await broker.startup()
    callers = 1 if options.how == "one" else options.callers
    watch = Stopwatch()
    await asyncio.gather(*(send(share) for share in shares(options.tasks, callers)))
    elapsed = watch.stop()
    await broker.shutdown()
    return elapsed


def prepare(options: Options) -> None:
    _run(options, _prepare(options))


async def _prepare(options: Options) -> None:
    """The group must be there before the first message, which it would pass over otherwise."""
    broker = _broker(options)
    await broker.startup()
    await broker.shutdown()


def latency(options: Options) -> dict[str, Any]:
    return _run(options, _latency(options))


async def _latency(options: Options) -> dict[str, Any]:
    broker = _broker(options)
    answer = _tasks(broker, options)["answer"]
    await broker.startup()
    started, finished = [], []
    for n, rest_seconds in pauses(options):
        await asyncio.sleep(rest_seconds)
        began = time.monotonic_ns()
        sent = await answer.kiq(n)
        await sent.wait_result(timeout=RESULT_SECONDS, **_poll_settings(options))
        finished.append((time.monotonic_ns() - began) / 1e6)
        started.append(start_ms(options.board, n, began))
    await broker.shutdown()
    return {"start_ms": started, "result_ms": finished}


def _poll_settings(options: Options) -> dict[str, float]:
    return {"check_interval": 0.001} if options.best else {}


def _broker(options: Options) -> RedisStreamBroker:
    broker = RedisStreamBroker(options.url, **(TUNED if options.best else {}))
    if options.best:
        broker = broker.with_serializer(ORJSONSerializer())
    return broker.with_result_backend(ResultsThatMatter(options.url))


def _tasks(broker: RedisStreamBroker, options: Options) -> dict[str, Any]:
    async def noop(n: int) -> None:
        options.board.mark(n)

    async def answer(n: int) -> int:
        options.board.mark(n)
        return n

    async def hold(n: int) -> None:
        options.board.start(n)
        await asyncio.sleep(options.hold_seconds)
        options.board.done(n)

    return {task.__name__: broker.task(task.__name__)(task) for task in (noop, answer, hold)}


def _run(options: Options, work: Coroutine[Any, Any, Any]) -> Any:
    return uvloop.run(work) if options.best else asyncio.run(work)


if __name__ == "__main__":
    main()
