"""A session opens the store for one command, and knows who runs it."""

from __future__ import annotations

import asyncio
import getpass
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import TypeVar

import typer

from holdfast.cli.output import redaction
from holdfast.cli.process.logs import log_warnings, without_warnings
from holdfast.clock import SystemClock
from holdfast.domain.audit import Audit
from holdfast.domain.errors import InvalidSetting
from holdfast.domain.task.task import By
from holdfast.engine import Holdfast
from holdfast.engine.operations.control import Control
from holdfast.engine.plans.create import Plans
from holdfast.engine.store_url import store_from_url
from holdfast.engine.triggers.schedules import Schedules
from holdfast.ports import Clock, Store
from holdfast.settings import Settings, load
from holdfast.stores.memory import MemoryStore

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    app: Holdfast
    clock: Clock
    settings: Settings
    control: Control  # as the person at this terminal, as are those below
    plans: Plans
    schedule: Schedules

    def by(self, reason: str) -> By:
        actor, origin = person()
        return By(actor=actor, origin=origin, reason=reason)

    def act_on_store(self, command: str, outcome: str) -> Audit:
        """Return the audit entry of an action that concerns no single task."""
        return Audit(
            task_id="store",
            command=command,
            by=self.by(""),
            at=self.now,
            before="",
            after=outcome,
        )

    @property
    def store(self) -> Store:
        return self.app.store

    @property
    def now(self) -> float:
        return self.clock.now()


def given_store(context: typer.Context) -> str | None:
    """Return the URL that `--store` gave."""
    found = context.find_root().obj
    return found if isinstance(found, str) else None


def run(
    context: typer.Context,
    command: Callable[[Session], Awaitable[T]],
    *,
    shows_settings: bool = False,
) -> T:
    """Open the store, run the command, and close the store; ``shows_settings`` suppresses warnings
    about them.
    """

    log_warnings()

    async def whole() -> T:
        url = given_store(context)
        async with opened(url, shows_settings=shows_settings) as session:
            return await command(session)

    return asyncio.run(whole())


@asynccontextmanager
async def opened(url: str | None, *, shows_settings: bool = False) -> AsyncIterator[Session]:
    settings, clock = load(store=url, fallback="none"), SystemClock()
    store = store_from_url(
        settings.store,
        clock,
        settings.namespace,
        checkpoint_seconds=settings.checkpoint_ttl,
        lock_seconds=settings.tenant_lock,
        must_exist=True,  # to look must not make a store where there is none
    )
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
