"""A session opens the store for one command, and knows who runs it."""

from __future__ import annotations

import asyncio
import getpass
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter
from typing import Any, TypeVar

import typer

from holdfast.cli.command_signature import replace_parameter
from holdfast.cli.output import redaction
from holdfast.cli.process.logs import log_warnings, without_warnings
from holdfast.clock import SystemClock
from holdfast.domain.errors import InvalidSetting, TaskNotFound
from holdfast.domain.task.task import By
from holdfast.engine import Holdfast
from holdfast.engine.operations.control import Control
from holdfast.engine.plans.create import Plans
from holdfast.engine.store_url import store_from_settings
from holdfast.engine.triggers.schedules import Schedules
from holdfast.ports import LIVE_LEASES, Clock, Detail, Store, WorkerInfo
from holdfast.settings import Settings, load
from holdfast.stores.memory import MemoryStore

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    app: Holdfast
    clock: Clock
    settings: Settings
    control: Control  # in the name of the person at this terminal, as are the next two
    plans: Plans
    schedule: Schedules

    def operator(self, reason: str) -> By:
        actor, origin = person()
        return By(actor=actor, origin=origin, reason=reason)

    async def load_workers(self) -> Sequence[WorkerInfo]:
        """Load the workers that were seen recently, and whether each is alive."""
        within = LIVE_LEASES * self.settings.lease
        return await self.store.views.workers(live_within_seconds=within)

    async def load_detail(self, task_id: str) -> Detail:
        """Load everything about a task; raise TaskNotFound if there is none."""
        detail = await self.store.views.detail(task_id)
        if detail is None:
            raise TaskNotFound(task_id)
        return detail

    async def no_worker_warning(self) -> str:
        """Return a warning if no worker is alive, otherwise an empty text."""
        if any(worker.live for worker in await self.load_workers()):
            return ""
        return "no worker is alive, so nothing runs yet; start one: holdfast worker APP"

    @property
    def store(self) -> Store:
        return self.app.store

    @property
    def now(self) -> float:
        return self.clock.now()


def given_store(context: typer.Context) -> str | None:
    """Return the URL that `--store` gave."""
    url = context.find_root().obj
    return url if isinstance(url, str) else None


def run(
    context: typer.Context,
    command: Callable[[Session], Awaitable[T]],
    *,
    shows_settings: bool = False,
) -> T:
    """Open the store, run the command, and close the store.

    A command that ``shows_settings`` reports bad settings of the store itself, without warnings.
    """
    log_warnings()

    async def run_in_session() -> T:
        async with open_session(given_store(context), shows_settings=shows_settings) as session:
            return await command(session)

    return asyncio.run(run_in_session())


def in_session(command: Callable[..., Awaitable[T]]) -> Callable[..., T]:
    """Make a command of a coroutine that receives a session in place of the context of Typer."""

    @wraps(command)
    def call(context: typer.Context, **given: Any) -> T:
        return run(context, lambda session: command(session, **given))

    kind = Parameter.POSITIONAL_OR_KEYWORD
    replace_parameter(
        call, command, "session", [Parameter("context", kind, annotation=typer.Context)]
    )
    return call


@asynccontextmanager
async def open_session(url: str | None, *, shows_settings: bool = False) -> AsyncIterator[Session]:
    settings, clock = load(store=url, fallback="none"), SystemClock()
    store = store_from_settings(settings, clock, must_exist=True)  # reading creates no store
    check_is_shared(store, settings.store)
    with without_warnings() if shows_settings else nullcontext():
        await store.open()
    try:
        app = Holdfast(store, clock=clock, fallback="none")
        redaction.use(app.redactor)
        async with app:
            yield Session(
                app=app,
                clock=clock,
                settings=settings,
                control=app.control.acting_as(*person()),
                plans=app.plan.acting_as(*person()),
                schedule=app.schedule.acting_as(*person()),
            )
    finally:
        await store.close()


def check_is_shared(store: Store, url: str) -> None:
    if isinstance(store, MemoryStore):
        raise InvalidSetting("HOLDFAST_STORE", url, "only its own process can see a memory store")


def person() -> tuple[str, str]:
    """Return who runs the command, and on which machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in containers
        user = "unknown"
    return f"cli:{user}", socket.gethostname()
