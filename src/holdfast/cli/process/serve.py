"""`holdfast serve` runs the API, workers, timers, triggers and plans in one process."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import options as opt
from holdfast.cli.exit_codes import Exit
from holdfast.cli.extras import check_server
from holdfast.cli.loader import load_app_on
from holdfast.cli.process import lifecycle
from holdfast.cli.process.garbage_collection import exempt_startup_objects
from holdfast.cli.process.worker import (
    END_SECONDS,
    TETHERED,
    Queues,
    Slots,
    queue_names,
    worker_options,
)
from holdfast.cli.process.worker_group import WorkerGroup
from holdfast.cli.session import given_store
from holdfast.domain.errors import InvalidSetting, StoreUnavailable
from holdfast.engine import Holdfast

if TYPE_CHECKING:
    from holdfast.server.pool import Pool
    from holdfast.server.service import Service

WORKERS_MAX = 64
PORT_MAX = 65_535
STOP_SECONDS = 30.0  # beyond the time to drain: requests, worker processes, the last writes
TOKEN_MESSAGE = "an admin's token, valid while this process runs"

log = logging.getLogger("holdfast.cli.serve")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    host: str
    port: int
    workers: int
    processes: int
    slots: int | None
    queues: tuple[str, ...] | None
    tethered: bool
    command: tuple[str, ...]  # of one worker process


def serve(
    context: typer.Context,
    app: opt.App,
    *,
    host: Annotated[str, opt.takes("ADDRESS", "The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, opt.takes("N", "The port; 0 takes any free one.", min=0, max=PORT_MAX)
    ] = 8080,
    workers: Annotated[int, opt.takes("N", "Workers in this process.", min=1, max=WORKERS_MAX)] = 1,
    no_workers: Annotated[
        bool,
        opt.flag(
            "--no-workers", "Run no worker in this process; `holdfast worker` runs the tasks."
        ),
    ] = False,
    processes: Annotated[int, opt.takes("N", "Additional worker processes.", min=0)] = 0,
    slots: Slots = None,
    queues: Queues = None,
    tethered: Annotated[bool, typer.Option(TETHERED, hidden=True)] = False,
) -> int:
    """Serve the HTTP API and run workers until SIGTERM or SIGINT.

    This command needs `pip install 'holdfast-engine[server]'`. Without tokens (`holdfast tokens`,
    HOLDFAST_TOKENS) it serves a loopback address only, and prints a one-time token.

    After SIGTERM, /readyz reports the coming stop for HOLDFAST_STOP_DELAY; then requests and stages
    finish. SIGINT, or a second signal, ends the delay. The next signal stops at once. Exit code 70
    means the same as for `holdfast worker`.
    """
    check_server()
    url = given_store(context)
    loaded = load_app_on(app, url)
    lifecycle.log_for(loaded)
    lifecycle.raise_file_limit()
    command = (sys.executable, "-m", "holdfast", "worker", app, TETHERED)
    wanted = ServeOptions(
        host=host,
        port=port,
        workers=0 if no_workers else workers,
        processes=processes,
        slots=slots,
        queues=queue_names(queues),
        tethered=tethered,
        command=(*command, *worker_options(slots, queues, url)),
    )
    lifecycle.run(_serve(loaded, wanted))
    return Exit.OK


async def _serve(app: Holdfast, wanted: ServeOptions) -> None:
    from holdfast.server.pool import Pool
    from holdfast.server.serve import bind, one_time_token, url_of
    from holdfast.server.service import Service

    settings, clock = app.settings, app.clock
    if wanted.processes > settings.pool_limit:
        reason = f"--processes {wanted.processes} is more"
        raise InvalidSetting("HOLDFAST_POOL_LIMIT", settings.pool_limit, reason)
    token = one_time_token(settings, wanted.host, now=clock.now())
    with bind(wanted.host, wanted.port) as bound:
        async with app:
            _check_is_shared(app, wanted)
            pool = Pool(
                wanted.command,
                limit=settings.pool_limit,
                stop_seconds=settings.drain + END_SECONDS,
                now=clock.now,
            )
            service = Service(app, tokens=(token[0],) if token else (), pool=pool)
            workers = WorkerGroup(
                app, count=wanted.workers, slots=wanted.slots, queues=wanted.queues
            )

            def listening() -> None:
                _say(settings.log, url_of(bound), token[1] if token else None)

            await _run(service, workers, bound, wanted, listening)


async def _run(
    service: Service,
    workers: WorkerGroup,
    bound: socket.socket,
    wanted: ServeOptions,
    on_listening: Callable[[], None],
) -> None:
    from holdfast.server.serve import answer

    announced, stop, urgent = lifecycle.on_signals(at_once=wanted.tethered)
    leaving = asyncio.create_task(_leave(service, announced, stop))
    if wanted.tethered:
        lifecycle.tie_to_parent(stop, within_seconds=service.settings.drain + STOP_SECONDS)
    async with service.run_background():
        try:
            await workers.start()
            await service.pool.scale(wanted.processes)
            exempt_startup_objects()
            await answer(service, bound, stop=stop, stop_now=urgent, on_listening=on_listening)
        finally:
            hurrying = asyncio.create_task(_hurry(service.pool, urgent))
            closing = asyncio.create_task(service.pool.close())
            await workers.drain(urgent)
            await closing
            hurrying.cancel()
            leaving.cancel()
    log.info("the service has stopped")


async def _leave(service: Service, announced: asyncio.Event, stop: asyncio.Event) -> None:
    """Report the coming stop and continue for a while, so that load balancers can send requests
    elsewhere.
    """
    await announced.wait()
    service.leaving.set()
    seconds = service.settings.stop_delay
    if seconds and not stop.is_set():
        log.info("the service stops in %g s; a second signal stops it at once", seconds)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await stop.wait()
    stop.set()


async def _hurry(pool: Pool, urgent: asyncio.Event) -> None:
    await urgent.wait()
    pool.hurry()


def _check_is_shared(app: Holdfast, wanted: ServeOptions) -> None:
    """Refuse a store in the memory of this process when other processes should work on it."""
    if app.in_memory and (wanted.processes or not wanted.workers):
        raise StoreUnavailable(
            f"{app.store.url} is in the memory of this process: other processes get no work from it"
        )


def _say(form: str, url: str, token: str | None) -> None:
    """Print the address on stdout, for programs that wait for it, and the token once on stderr."""
    if form == "json":
        if token:
            print(json.dumps({"event": TOKEN_MESSAGE, "token": token}), file=sys.stderr, flush=True)
        print(json.dumps({"event": "listening", "url": url}), flush=True)
        return
    if token:
        print(f"{TOKEN_MESSAGE}:\n  {token}", file=sys.stderr, flush=True)
    print(f"listening on {url}", flush=True)
