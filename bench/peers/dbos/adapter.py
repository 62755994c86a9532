"""DBOS: workflows whose steps are written down in SQLite or PostgreSQL."""

from __future__ import annotations

import fcntl
import importlib.metadata
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import sqlalchemy
from adapter_cli import Elapsed, Options, Stopwatch, main, pauses, shares, start_ms
from dbos import DBOS, DBOSClient, DBOSConfig, EnqueueOptions

NAME = "dbos"
STORES = ("sqlite", "postgres")
GUARANTEE = (
    "each step is committed once: a killed worker's workflows go on at their last step when a "
    "worker of the same name is launched, not before; a killed server loses nothing (synchronous "
    "commit, SQLite with synchronous=FULL)"
)
SETTINGS = {
    "best": f"queue polled every 5 ms, SQLite in WAL mode on one connection; {GUARANTEE}",
    "plain": f"queue polled every second, SQLite with a rollback journal; {GUARANTEE}",
}
CAN = {"submit", "drain", "latency", "result", "stages", "recovery"}
VERSION = importlib.metadata.version("dbos")

QUEUES = ("noop", "hold")
POLL_SECONDS = 0.005
RESULT_POLL_SECONDS = 0.001
BULK = 1000
# In SQLite more would wait for the one writer, in sleeps; in PostgreSQL it is the default.
CONNECTIONS = {"sqlite": 1, "postgres": 20}
WORKERS_MAX = 16

asked: Options  # workflows are registered when the module is read, long before they know what to do


@DBOS.workflow()
def noop(number: int) -> int:
    asked.board.mark(number)
    return number


@DBOS.workflow()
def hold(number: int) -> int:
    asked.board.start(number)
    time.sleep(asked.hold_seconds)
    asked.board.done(number)
    return number


@DBOS.workflow()
def run_stages(stages: int) -> int:
    for number in range(stages):
        stage(number)
    return stages


@DBOS.step()
def stage(number: int) -> int:
    return number


def prepare(options: Options) -> None:
    if options.best and options.store == "sqlite":
        with sqlite3.connect(options.path) as database:
            database.execute("PRAGMA journal_mode = WAL")  # it stays with the file
    with _launch(options):
        for name in QUEUES:
            if options.best:
                DBOS.register_queue(
                    name, polling_interval_sec=POLL_SECONDS, worker_concurrency=options.slots
                )
            else:
                DBOS.register_queue(name)


def work(options: Options) -> None:
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    with _launch(options, name=_free_name(options), polls=QUEUES):
        ended.wait()


def submit(options: Options) -> Elapsed:
    client = _client(options)
    try:
        if options.how == "bulk":
            return _bulk_elapsed(client, options)
        one_by_one = [
            lambda numbers=numbers: _enqueue(client, options.task, numbers)
            for numbers in shares(options.tasks, options.callers if options.how == "many" else 1)
        ]
        return _elapsed_of(one_by_one)
    finally:
        client.destroy()


def latency(options: Options) -> dict[str, list[float]]:
    client = _client(options)
    polled = {"polling_interval_sec": RESULT_POLL_SECONDS} if options.best else {}
    starts, results = [], []
    for number, pause in pauses(options):
        time.sleep(pause)
        began = time.monotonic_ns()
        handle: Any = client.enqueue(_to("noop"), number)
        starts.append(start_ms(options.board, number, began))
        handle.get_result(**polled)
        results.append((time.monotonic_ns() - began) / 1e6)
    client.destroy()
    return {"start_ms": starts, "result_ms": results}


def stages(options: Options) -> Elapsed:
    def run(numbers: range) -> None:
        for _ in numbers:
            DBOS.start_workflow(run_stages, options.stages).get_result()

    with _launch(options):
        run_stages(options.stages)
        callers = shares(options.workflows, min(options.at_once, options.workflows))
        return _elapsed_of([lambda numbers=numbers: run(numbers) for numbers in callers])


@contextmanager
def _launch(
    options: Options, *, name: str | None = None, polls: Sequence[str] = ()
) -> Iterator[None]:
    global asked  # noqa: PLW0603
    asked = options
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": options.url,
        "log_level": "WARNING",
    }
    if options.best:
        config["sys_db_pool_size"] = CONNECTIONS[options.store]
    if name is not None:
        config["executor_id"] = name
    DBOS(config=config)
    DBOS.listen_queues(polls)
    DBOS.launch()
    try:
        yield
    finally:
        DBOS.destroy(workflow_completion_timeout_sec=5)


def _client(options: Options) -> DBOSClient:
    connections = CONNECTIONS[options.store] if options.best else None
    return DBOSClient(system_database_url=options.url, system_database_pool_size=connections)


def _free_name(options: Options) -> str | None:
    """The first that no living worker has: the next one after a kill gets it, and its workflows."""
    if not options.best:
        return None  # all are called "local"
    board = options.board._file
    for number in range(WORKERS_MAX):
        with suppress(BlockingIOError):
            fcntl.lockf(board, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
            return f"worker-{number}"
    raise SystemExit(f"more than {WORKERS_MAX} workers")


def _to(task: str) -> EnqueueOptions:
    return {"workflow_name": task, "queue_name": task}


def _enqueue(client: DBOSClient, task: str, numbers: range) -> None:
    for number in numbers:
        client.enqueue(_to(task), number)


def _bulk_elapsed(client: DBOSClient, options: Options) -> Elapsed:
    """Many in one transaction: there is no call that takes them all."""
    place = sqlalchemy.make_url(options.url)
    if options.store == "postgres":
        place = place.set(drivername="postgresql+psycopg")
    engine = sqlalchemy.create_engine(place)
    engine.connect().close()
    watch = Stopwatch()
    for first in range(0, options.tasks, BULK):
        with engine.begin() as connection:
            for number in range(first, min(first + BULK, options.tasks)):
                client.enqueue_in_transaction(connection, _to(options.task), number)
    return watch.stop()


def _elapsed_of(calls: list[Callable[[], None]]) -> Elapsed:
    with ThreadPoolExecutor(len(calls)) as threads:
        watch = Stopwatch()
        for call in [threads.submit(call) for call in calls]:
            call.result()
        return watch.stop()


if __name__ == "__main__":
    main()
