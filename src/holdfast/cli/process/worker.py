"""`holdfast worker` runs a worker until somebody stops it."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from holdfast.cli import options as opt
from holdfast.cli.exit_codes import Exit
from holdfast.cli.loader import load_app_on
from holdfast.cli.process import lifecycle
from holdfast.cli.process.garbage_collection import exempt_startup_objects
from holdfast.cli.process.isolation import (
    ISOLATED,
    Handover,
    Isolation,
    read_handover,
    run_handover,
)
from holdfast.cli.process.logs import log_everything
from holdfast.cli.process.worker_group import WorkerGroup
from holdfast.cli.session import given_store
from holdfast.domain import names
from holdfast.domain.errors import StoreUnavailable
from holdfast.engine import Holdfast

TETHERED = "--tethered"
END_SECONDS = 10.0  # beyond the time to drain, for the last writes

Slots = Annotated[int | None, opt.takes("N", "How many tasks run at once.", min=1)]
Queues = Annotated[str | None, opt.takes("A,B", "The queues, in order of preference.")]


def worker(
    context: typer.Context,
    app: opt.App,
    *,
    slots: Slots = None,
    queues: Queues = None,
    reload: Annotated[bool, opt.flag("--reload", "Restart when a .py file changes.")] = False,
    tethered: Annotated[bool, typer.Option(TETHERED, hidden=True)] = False,
    isolated: Annotated[bool, typer.Option(ISOLATED, hidden=True)] = False,
) -> int:
    """Run a worker until a signal stops it or somebody drains it.

    The first SIGTERM or SIGINT drains: running stages finish, and the other tasks are given back.
    The second signal gives everything back at once. Exit code 70: the worker lost a lease while a
    plain function kept running. After two crashes in a row, a task runs in a process of its own.
    """
    url = given_store(context)
    command = ["worker", app, *worker_options(slots, queues, url)]
    if reload:
        log_everything()
        from holdfast.cli.process.reload import Reloader

        return Reloader(command).run()
    loaded = load_app_on(app, url)
    lifecycle.log_for(loaded)
    lifecycle.raise_file_limit()
    if isolated:
        lifecycle.run(_work_alone(loaded, read_handover()))
        return Exit.OK
    lifecycle.run(_work(loaded, slots, queue_names(queues), Isolation(command), tethered=tethered))
    return Exit.OK


async def _work(
    app: Holdfast,
    slots: int | None,
    queues: tuple[str, ...] | None,
    isolation: Isolation,
    *,
    tethered: bool,
) -> None:
    _, stop, urgent = lifecycle.on_signals(at_once=True)
    if tethered:
        lifecycle.tie_to_parent(stop, within_seconds=app.settings.drain + END_SECONDS)
    async with app:
        if app.degraded:
            raise StoreUnavailable(
                "the store does not answer, and a worker on its own memory store never gets work: "
                'fallback = "memory" is not for workers'
            )
        workers = WorkerGroup(app, count=1, slots=slots, queues=queues, isolate=isolation.run)
        exempt_startup_objects()  # no stage runs yet: it takes 0.1 s
        await workers.start()
        await _wait_for_any(stop, workers.all_drained)
        isolation.stop()
        await workers.drain(urgent)


async def _work_alone(app: Holdfast, what: Handover) -> None:
    _, stop, urgent = lifecycle.on_signals(at_once=True)
    async with app:
        workers = WorkerGroup(app, count=1, slots=1, queues=())
        await run_handover(app, what, stop, workers)
        await workers.drain(urgent)


async def _wait_for_any(*events: asyncio.Event) -> None:
    waiting = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()


def queue_names(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    return tuple(names.check("queue", name.strip()) for name in text.split(","))


def worker_options(slots: int | None, queues: str | None, store: str | None) -> list[str]:
    given = {"--slots": slots, "--queues": queues, "--store": store}
    return [word for name, value in given.items() if value for word in (name, str(value))]
