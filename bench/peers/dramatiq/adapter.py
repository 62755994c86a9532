"""Dramatiq on Redis: threads in one process, one acknowledgement per message."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any

from adapter_cli import Elapsed, Options, Stopwatch, main, pauses, shares, start_ms

if "best" in sys.argv or "--settings" not in sys.argv:
    os.environ["dramatiq_queue_prefetch"] = "100"  # noqa: SIM112 – read at import, spelled so

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

NAME = "dramatiq"
STORES = ("redis",)
SETTINGS = {
    "best": (
        "2 threads; 100 prefetched; no middleware but Results; polled every 5 ms when idle. "
        "Acknowledged after the run: a killed worker's tasks return after 60 s, with the next of "
        "a thousand polls that does maintenance; the server loses up to 1 s (AOF everysec)"
    ),
    "plain": (
        "8 threads in one process; 16 prefetched; default middleware. Acknowledged after the run: "
        "a killed worker's tasks return after 60 s, with the next of a thousand calls that does "
        "maintenance (polled each second when idle); the server loses up to 1 s (AOF everysec)"
    ),
}
CAN = {"submit", "drain", "latency", "result", "recovery"}
VERSION = version("dramatiq")
THREADS = 2  # the interpreter runs one at a time; the other waits for Redis
POLL_MS = 5
RESULT_MS = 30_000
STOP_MS = 8_000


def work(options: Options) -> None:
    broker = _broker(options)
    _actors(options)
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    worker = dramatiq.Worker(broker, **_sizes(options))
    worker.start()
    stopped.wait()
    worker.stop(timeout=STOP_MS)


def _sizes(options: Options) -> dict[str, int]:
    sizes = {"worker_threads": THREADS, "worker_timeout": POLL_MS} if options.best else {}
    return sizes | ({"worker_threads": options.slots} if options.task == "hold" else {})


def submit(options: Options) -> Elapsed:
    _broker(options)
    send = _actors(options)[options.task].send

    def send_all(numbers: range) -> None:
        for n in numbers:
            send(n)

    if options.how != "many":
        watch = Stopwatch()
        send_all(range(options.tasks))
        return watch.stop()
    with ThreadPoolExecutor(options.callers) as pool:
        watch = Stopwatch()
        list(pool.map(send_all, shares(options.tasks, options.callers)))
        return watch.stop()


def prepare(options: Options) -> None:
    """Queues come with their first message."""


def latency(options: Options) -> dict[str, Any]:
    broker = _broker(options)
    answer = _actors(options)["answer"]
    backend = next(m.backend for m in broker.middleware if isinstance(m, Results))
    started, finished = [], []
    for n, rest_seconds in pauses(options):
        time.sleep(rest_seconds)
        began = time.monotonic_ns()
        message = answer.send(n)
        message.get_result(backend=backend, block=True, timeout=RESULT_MS)
        finished.append((time.monotonic_ns() - began) / 1e6)
        started.append(start_ms(options.board, n, began))
    return {"start_ms": started, "result_ms": finished}


def _broker(options: Options) -> RedisBroker:
    broker = RedisBroker(url=options.url, **({"middleware": []} if options.best else {}))
    broker.add_middleware(Results(backend=RedisBackend(url=options.url)))
    dramatiq.set_broker(broker)
    return broker


def _actors(options: Options) -> dict[str, Any]:
    def noop(n: int) -> None:
        options.board.mark(n)

    def answer(n: int) -> int:
        options.board.mark(n)
        return n

    def hold(n: int) -> None:
        options.board.start(n)
        time.sleep(options.hold_seconds)
        options.board.done(n)

    return {
        "noop": dramatiq.actor(noop),
        "answer": dramatiq.actor(answer, store_results=True),
        "hold": dramatiq.actor(hold),
    }


if __name__ == "__main__":
    main()
