"""repid on Redis streams: read in batches by a consumer group, acknowledged one by one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from importlib.metadata import version
from typing import Any

import uvloop
from adapter_cli import Elapsed, Options, Stopwatch, main, pauses, shares, start_ms
from repid import Repid, Router
from repid.connections.redis import RedisServer
from repid.router import catch_all_routing_strategy

NAME = "repid"
STORES = ("redis",)
SETTINGS = {
    "best": (
        "uvloop; batch of 100; no routing header; stale entries claimed every 5 s, no keep-alive "
        "for no-ops. Acknowledged after the run: a killed worker's tasks run again after 60 s; "
        "the server loses up to 1 s (AOF everysec)"
    ),
    "plain": (
        "asyncio; batch of 10; topic header; claiming is off. Acknowledged after the run, but "
        "nobody takes over: a killed worker's tasks stay pending; the server loses up to 1 s "
        "(AOF everysec)"
    ),
}
CAN = {"submit", "drain", "latency", "recovery"}
VERSION = version("repid")
CLAIM_SECONDS = 5.0
STOP_SECONDS = 5.0


def work(options: Options) -> None:
    _run(options, _work(options))


async def _work(options: Options) -> None:
    app = _app(options)
    app.include_router(_router(options))
    async with app.servers.default.connection():
        await app.run_worker(**_limit(options), graceful_shutdown_time=STOP_SECONDS)


def _limit(options: Options) -> dict[str, int]:
    """Each task in flight needs a connection to be acknowledged on: for no-ops, few is quickest."""
    if options.task == "hold":
        return {"tasks_limit": options.slots}
    return {"tasks_limit": 20} if options.best else {}


def _router(options: Options) -> Router:
    router, board = Router(), options.board
    best: dict[str, Any] = {"routing_strategy": catch_all_routing_strategy} if options.best else {}
    noop_only: dict[str, Any] = {"keep_alive": False} if options.best else {}

    async def noop(n: int) -> None:
        board.mark(n)

    async def hold(n: int) -> None:
        board.start(n)
        await asyncio.sleep(options.hold_seconds)
        board.done(n)

    router.actor(channel="noop", **best, **noop_only)(noop)
    router.actor(channel="hold", **best)(hold)
    return router


def submit(options: Options) -> Elapsed:
    return _run(options, _submit(options))


async def _submit(options: Options) -> Elapsed:
    app = _app(options)
    headers = None if options.best else {"topic": options.task}

    async def send(numbers: range) -> None:
        for n in numbers:
            await app.send_message_json(channel=options.task, payload={"n": n}, headers=headers)

    async with app.servers.default.connection():
        callers = 1 if options.how == "one" else options.callers
        watch = Stopwatch()
        await asyncio.gather(*(send(share) for share in shares(options.tasks, callers)))
        return watch.stop()


def prepare(options: Options) -> None:
    """Groups are made by the first worker, from the beginning of the stream."""


def latency(options: Options) -> dict[str, Any]:
    return _run(options, _latency(options))


async def _latency(options: Options) -> dict[str, Any]:
    app = _app(options)
    headers = None if options.best else {"topic": "noop"}
    started = []
    async with app.servers.default.connection():
        for n, rest_seconds in pauses(options):
            await asyncio.sleep(rest_seconds)
            began = time.monotonic_ns()
            await app.send_message_json(channel="noop", payload={"n": n}, headers=headers)
            started.append(start_ms(options.board, n, began))
    return {"start_ms": started, "result_ms": None}


def _app(options: Options) -> Repid:
    tuned = {"batch_size": 100, "claim_interval": CLAIM_SECONDS} if options.best else {}
    app = Repid(title="bench", version="1")
    app.servers.register_server("default", RedisServer(options.url, **tuned), is_default=True)
    return app


def _run(options: Options, work: Coroutine[Any, Any, Any]) -> Any:
    return uvloop.run(work) if options.best else asyncio.run(work)


if __name__ == "__main__":
    main()
