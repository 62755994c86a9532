"""The engine as one caller of the API uses it: each action is recorded in the caller's name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from msgspec.structs import replace

from holdfast.domain import names
from holdfast.domain.audit import Audit
from holdfast.domain.errors import HoldfastError, StoreError
from holdfast.engine import Holdfast
from holdfast.engine.operations.checkpoints import Checkpoints
from holdfast.server.auth.access import Caller
from holdfast.server.live.task_reads import LargeViews


class CallerEngine:
    """The parts of the engine, acting for one caller."""

    def __init__(self, app: Holdfast, caller: Caller, large_views: LargeViews) -> None:
        self._app, self._caller = app, caller
        who = caller.actor, caller.origin
        self.control = app.control.acting_as(*who)
        self.plans = app.plan.acting_as(*who)
        self.schedule = app.schedule.acting_as(*who)
        self.bulks = app.bulk.acting_as(*who)
        self.checkpoints = Checkpoints(app, caller.as_actor(), partial(large_views.respond, caller))
        self.tenants = app.tenants.acting_as(*who)
        self.queues = app.queues.acting_as(*who)

    @asynccontextmanager
    async def record_action(
        self,
        command: str,
        about: str,
        reason: str = "",
        *,
        before: str = "",
        after: str = "",
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
