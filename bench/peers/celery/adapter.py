"""Celery on Redis: processes by default, one thread for no-ops at its best."""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any

from adapter_cli import Elapsed, Options, Stopwatch, main, pauses, shares, start_ms
from celery import Celery

NAME = "celery"
STORES = ("redis",)
SETTINGS = {
    "best": (
        "the solo pool in one process; 200 prefetched; no gossip, mingle, heartbeat or events; "
        "acknowledged late: a killed worker's tasks run again after the visibility timeout, set "
        "to 60 s, but for one popped and not yet noted; the server loses up to 1 s (AOF everysec)"
    ),
    "plain": (
        "2 processes (prefork); 4 prefetched for each; acknowledged early: running tasks of a "
        "killed worker are lost, prefetched ones return after an hour; the server loses up to "
        "1 s (AOF everysec)"
    ),
}
CAN = {"submit", "drain", "latency", "result", "recovery"}
VERSION = version("celery")
RESULT_SECONDS = 30
TUNED = {
    "task_acks_late": True,
    "task_reject_on_worker_lost": True,
    "worker_prefetch_multiplier": 200,
    "broker_transport_options": {"visibility_timeout": 60},
    "worker_enable_remote_control": False,
    "worker_disable_rate_limits": True,
}
QUIET = ["--without-gossip", "--without-mingle", "--without-heartbeat"]


def work(options: Options) -> None:
    app = _app(options)
    _tasks(app, options)
    with contextlib.suppress(SystemExit):
        app.worker_main(["worker", "--loglevel=WARNING", *_switches(options)])


def _switches(options: Options) -> list[str]:
    quiet = QUIET if options.best else []
    if options.task == "hold":
        return [*quiet, "--pool=threads", f"--concurrency={options.slots}"]
    return [*quiet, "--pool=solo"] if options.best else ["--concurrency=2"]


def submit(options: Options) -> Elapsed:
    app = _app(options)
    task = _tasks(app, options)[options.task]

    def send_all(numbers: range) -> None:
        with app.producer_or_acquire() as producer:
            for n in numbers:
                task.apply_async((n,), producer=producer)

    def send_each(numbers: range) -> None:
        for n in numbers:
            task.delay(n)

    send = send_all if options.best or options.how == "bulk" else send_each
    send(range(0))
    if options.how != "many":
        watch = Stopwatch()
        send(range(options.tasks))
        return watch.stop()
    with ThreadPoolExecutor(options.callers) as pool:
        watch = Stopwatch()
        list(pool.map(send, shares(options.tasks, options.callers)))
        return watch.stop()


def prepare(options: Options) -> None:
    """Queues come with their first message."""


def latency(options: Options) -> dict[str, Any]:
    answer = _tasks(_app(options), options)["answer"]
    started, finished = [], []
    for n, rest_seconds in pauses(options):
        time.sleep(rest_seconds)
        began = time.monotonic_ns()
        sent = answer.delay(n)
        sent.get(timeout=RESULT_SECONDS)
        finished.append((time.monotonic_ns() - began) / 1e6)
        started.append(start_ms(options.board, n, began))
    return {"start_ms": started, "result_ms": finished}


def _app(options: Options) -> Celery:
    app = Celery("bench", broker=options.url, backend=options.url)
    app.conf.update(TUNED if options.best else {}, worker_redirect_stdouts=False)
    return app


def _tasks(app: Celery, options: Options) -> dict[str, Any]:
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
        "noop": app.task(noop, name="noop", ignore_result=True),
        "answer": app.task(answer, name="answer"),
        "hold": app.task(hold, name="hold", ignore_result=True),
    }


if __name__ == "__main__":
    main()
