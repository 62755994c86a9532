"""`holdfast worker`: run a worker until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Annotated, NoReturn

import typer

from holdfast.app import Holdfast
from holdfast.cli import options as opt
from holdfast.cli.exits import Exit
from holdfast.cli.loader import load_app_on
from holdfast.cli.logs import log_everything
from holdfast.cli.session import given_store
from holdfast.domain import names
from holdfast.domain.errors import StoreUnavailable
from holdfast.runtime.held import Held
from holdfast.runtime.worker import Worker

LOST_LEASE = 70  # a plain function runs on without its lease: only the end of the process stops it
GIVE_BACK_SECONDS = 2.0
LAST_WORD_SECONDS = 1.0
OTHERS_REASON = "the worker's process ends: another task hung in it"
PAGE = 500

log = logging.getLogger("holdfast.cli.worker")


def worker(
    context: typer.Context,
    app: opt.App,
    slots: Annotated[int | None, typer.Option(metavar="N", min=1, help="Tasks at once.")] = None,
    queues: Annotated[
        str | None, typer.Option(metavar="A,B", help="In order of preference.")
    ] = None,
    reload: Annotated[bool, typer.Option("--reload", help="Restart when a .py changes.")] = False,
) -> int:
    """Run a worker until SIGTERM or SIGINT.

    The first signal drains: running stages finish, the rest is given back. The second gives
    back at once. Exit code 70: a lease was lost while a plain function ran on.
    """
    url = given_store(context)
    if reload:
        log_everything()
        from holdfast.cli.reload import run_reloading

        return run_reloading(["worker", app, *_options(slots, queues, url)])
    loaded = load_app_on(app, url)
    log_everything()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_work(loaded, slots, _queue_names(queues)))
    return Exit.OK


async def _work(app: Holdfast, slots: int | None, queues: tuple[str, ...] | None) -> None:
    asked, urged = asyncio.Event(), asyncio.Event()
    _on_signals(asked, urged)
    async with app:
        if app.degraded:
            raise StoreUnavailable(
                "the store is out of reach, and a worker on a memory of its own never gets work: "
                'fallback = "memory" is not for workers'
            )
        loop = asyncio.get_running_loop()

        def end(held: Held) -> None:
            _end_soon(LOST_LEASE, GIVE_BACK_SECONDS + LAST_WORD_SECONDS)
            giving_back = running.give_back_rest(but=held)
            _end_with_zombie(held, asyncio.run_coroutine_threadsafe(giving_back, loop))

        running = app.worker(slots=slots, queues=queues, on_zombie=end)
        _introduce(app, running, queues)
        await running.start()
        await asked.wait()
        log.info("worker %s drains; a second signal gives back at once", running.name)
        drain = asyncio.create_task(running.drain())
        hurry = asyncio.create_task(urged.wait())
        await asyncio.wait((drain, hurry), return_when=asyncio.FIRST_COMPLETED)
        if not drain.done():
            await _end_giving_back(running, Exit.FAILED)
        hurry.cancel()
        if left := drain.result():
            log.warning("plain functions still run, their tasks are given back: %s", left)
            await _end_giving_back(running, Exit.OK)
    log.info("worker %s has stopped", running.name)


def _on_signals(asked: asyncio.Event, urged: asyncio.Event) -> None:
    def stop() -> None:
        (urged if asked.is_set() else asked).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)


async def _end_giving_back(running: Worker, code: int) -> NoReturn:
    """A thread cannot be stopped, so its task is freed as this process's last act."""
    try:
        async with asyncio.timeout(GIVE_BACK_SECONDS):
            await running.give_back_rest()
    except Exception as error:
        log.error("could not give back, the leases will lapse: %s", error)
    _end(code)


def _end_with_zombie(held: Held, giving_back: Future[None]) -> NoReturn:
    """In the heartbeat's thread, while the worker's own loop gives back."""
    try:
        giving_back.result(timeout=GIVE_BACK_SECONDS)
    except Exception as error:
        log.error("could not give back, the leases will lapse: %r", error)
    log.critical(
        "task %s: its lease is lost while its plain function runs; this process ends so that "
        "it cannot go on beside another worker",
        held.task_id,
    )
    _end(LOST_LEASE)


def _end(code: int) -> NoReturn:
    _end_soon(code)
    logging.shutdown()
    sys.stdout.flush()
    os._exit(code)


def _end_soon(code: int, seconds: float = LAST_WORD_SECONDS) -> None:
    """Even where a last word blocks, as on a pipe that nobody reads."""
    timer = threading.Timer(seconds, os._exit, (code,))
    timer.daemon = True
    timer.start()


def _introduce(app: Holdfast, running: Worker, queues: tuple[str, ...] | None) -> None:
    log.info(
        "worker %s: store %s, queues %s, types %s",
        running.name,
        app.store.url,
        ",".join(queues or app.settings.queue_names),
        ",".join(app.registry.names()) or "none",
    )


def _queue_names(written: str | None) -> tuple[str, ...] | None:
    if written is None:
        return None
    return tuple(names.check("queue", name.strip()) for name in written.split(","))


def _options(slots: int | None, queues: str | None, store: str | None) -> list[str]:
    given = {"--slots": slots, "--queues": queues, "--store": store}
    return [word for name, value in given.items() if value for word in (name, str(value))]


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
