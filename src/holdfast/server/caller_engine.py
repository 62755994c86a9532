"""The engine as one caller of the API uses it: each action is recorded in the caller's name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cached_property, partial

from msgspec.structs import replace

from holdfast.domain import names
from holdfast.domain.audit import Audit
from holdfast.domain.errors import HoldfastError, StoreError
from holdfast.engine import Holdfast
from holdfast.engine.bulk.bulks import Bulks
from holdfast.engine.operations.checkpoints import Checkpoints
from holdfast.engine.operations.control import Control
from holdfast.engine.operations.queues import Queues
from holdfast.engine.operations.tenants import Tenants
from holdfast.engine.plans.create import Plans
from holdfast.engine.triggers.schedules import Schedules
from holdfast.server.auth.access import Caller
from holdfast.server.live.task_reads import LargeViews


class CallerEngine:
    """The parts of the engine, acting for one caller; each is made when a route first uses it."""

    def __init__(self, app: Holdfast, caller: Caller, large_views: LargeViews) -> None:
        self._app, self._caller, self._large_views = app, caller, large_views
        self._actor = caller.actor, caller.origin

    @cached_property
    def control(self) -> Control:
        return self._app.control.acting_as(*self._actor)

    @cached_property
    def plans(self) -> Plans:
        return self._app.plan.acting_as(*self._actor)

    @cached_property
    def schedule(self) -> Schedules:
        return self._app.schedule.acting_as(*self._actor)

    @cached_property
    def bulks(self) -> Bulks:
        return self._app.bulk.acting_as(*self._actor)

    @cached_property
    def checkpoints(self) -> Checkpoints:
        respond = partial(self._large_views.respond, self._caller)
        return Checkpoints(self._app, self._caller.as_actor(), respond)

    @cached_property
    def tenants(self) -> Tenants:
        return self._app.tenants.acting_as(*self._actor)

    @cached_property
    def queues(self) -> Queues:
        return self._app.queues.acting_as(*self._actor)

    @asynccontextmanager
    async def record_action(
        self, command: str, about: str, reason: str = "", *, before: str = "", after: str = ""
    ) -> AsyncIterator[None]:
        """Record an action that the engine does not record itself: before it is done, so that
        nothing is done without a record, and once more when it was refused."""
        entry = Audit(
            task_id=about,
            command=command,
            by=self._caller.as_actor(names.check_text("reason", reason)),
            at=self._app.clock.now(),
            before=before,
            after=after,
        )
        await self._app.store.admin.audit(entry)
        try:
            yield
        except StoreError:
            raise  # it may have been done all the same: the answer can be what was lost
        except HoldfastError as error:
            refused = replace(entry, before="", after="", refused=error.code)
            await self._app.store.admin.audit(refused)
            raise
