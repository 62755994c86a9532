"""huey on Redis lists and on SQLite: threads in one process, one message at a time."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any

from adapter_cli import Elapsed, Options, Stopwatch, main, pauses, shares, start_ms
from huey import RedisHuey, SqliteHuey
from huey.api import Huey

NAME = "huey"
STORES = ("redis", "sqlite")
SETTINGS = {
    "best": (
        "4 threads on Redis, 2 on SQLite; results are read by a blocking pop; SQLite in WAL with "
        "fsync=True (synchronous=FULL), polled every 1–5 ms. Taken out before the run: tasks of a "
        "killed worker are lost; a killed Redis loses up to 1 s (AOF everysec), SQLite nothing"
    ),
    "plain": (
        "1 thread; SQLite in WAL, synchronous as SQLite was built (FULL), polled every 0.1–10 s. "
        "Taken out before the run: tasks of a killed worker are lost; a killed Redis loses up to "
        "1 s (AOF everysec)"
    ),
}
CAN = {"submit", "drain", "latency", "result", "recovery"}
VERSION = version("huey")
RESULT_SECONDS = 30
THREADS = {"redis": {"workers": 4}, "sqlite": {"workers": 2}}  # one runs while others wait
TUNED_POLL = {"initial_delay": 0.001, "backoff": 1.15, "max_delay": 0.005}


def work(options: Options) -> None:
    huey = _huey(options)
    _tasks(huey, options)
    sizes: dict[str, Any] = TUNED_POLL | THREADS[options.store] if options.best else {}
    if options.task == "hold":
        sizes |= {"workers": options.slots}
    huey.create_consumer(**sizes).run()


def submit(options: Options) -> Elapsed:
    huey = _huey(options)
    send = _tasks(huey, options)[options.task]

    def send_all(numbers: range) -> None:
        for n in numbers:
            send(n)

    huey.storage.queue_size()  # the connection is made here
    if options.how != "many":
        watch = Stopwatch()
        send_all(range(options.tasks))
        return watch.stop()
    with ThreadPoolExecutor(options.callers) as pool:
        watch = Stopwatch()
        list(pool.map(send_all, shares(options.tasks, options.callers)))
        return watch.stop()


def prepare(options: Options) -> None:
    _huey(options)  # makes the tables


def latency(options: Options) -> dict[str, Any]:
    answer = _tasks(_huey(options), options)["answer"]
    polled = {"max_delay": 0.001} if options.best else {}
    started, finished = [], []
    for n, rest_seconds in pauses(options):
        time.sleep(rest_seconds)
        began = time.monotonic_ns()
        result = answer(n)
        result.get(blocking=True, timeout=RESULT_SECONDS, **polled)
        finished.append((time.monotonic_ns() - began) / 1e6)
        started.append(start_ms(options.board, n, began))
    return {"start_ms": started, "result_ms": finished}


def _huey(options: Options) -> Huey:
    if options.store == "sqlite":
        return SqliteHuey(
            "bench", filename=options.path, **({"fsync": True} if options.best else {})
        )
    return RedisHuey("bench", url=options.url, **({"notify_result": True} if options.best else {}))


def _tasks(huey: Huey, options: Options) -> dict[str, Any]:
    def noop(n: int) -> None:
        options.board.mark(n)

    def answer(n: int) -> int:
        options.board.mark(n)
        return n

    def hold(n: int) -> None:
        options.board.start(n)
        time.sleep(options.hold_seconds)
        options.board.done(n)

    return {task.__name__: huey.task()(task) for task in (noop, answer, hold)}


if __name__ == "__main__":
    main()
