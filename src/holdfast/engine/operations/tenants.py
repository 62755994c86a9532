"""Operations on tenants: hold and release one, on all machines.

A hold is a switch of its own, not the tenant's lock: it has no holder that must renew it. No task
of a held tenant is claimed; a running one is given back at its next stage boundary, as soon as its
worker has seen the hold.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.domain import names
from holdfast.domain.durations import LONGEST_SECONDS, seconds
from holdfast.domain.errors import InvalidInput
from holdfast.engine.actor_calls import ActorCalls
from holdfast.engine.operations import switches
from holdfast.ports import Switch, SwitchSetting


class HoldAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a tenant after ``hold``; as text, ``held`` or ``waiting for TASK``."""

    tenant: str
    changed: bool  # False: it was held already, and that hold stays as it is
    waiting_for: str | None = None  # the task that runs and is given back at its next boundary

    def __str__(self) -> str:
        return "held" if self.waiting_for is None else f"waiting for {self.waiting_for}"


class Tenants(ActorCalls):
    """The tenants of one app's store, in one actor's name."""

    async def hold(
        self, tenant: str, *, reason: str = "", until: datetime | float | str | None = None
    ) -> HoldAnswer:
        """Hand out nothing of the tenant until it is released.

        ``until``: a time with a zone, seconds since the epoch, or a duration from now ("2h")."""
        tenant, now = names.check("tenant", tenant), self._app.clock.now()
        changed = await switches.turn_tenant(
            self._app.store,
            tenant,
            held=True,
            by=self._by_reason(reason),
            now=now,
            until=_end(until, now),
        )
        [view] = await self._app.store.views.tenants([tenant])
        return HoldAnswer(tenant=tenant, changed=changed, waiting_for=view.locked_by)

    async def release(self, tenant: str, *, reason: str = "") -> bool:
        """Let the tenant's work go on, whoever held it; False: it was not held."""
        tenant, now = names.check("tenant", tenant), self._app.clock.now()
        return await switches.turn_tenant(
            self._app.store, tenant, held=False, by=self._by_reason(reason), now=now
        )

    async def exists(self, tenant: str) -> bool:
        """Return whether the tenant is held."""
        return await self.find(tenant) is not None

    async def find(self, tenant: str) -> SwitchSetting | None:
        """Return the tenant's hold: who, since when, why and until when."""
        tenant = names.check("tenant", tenant)
        return next((hold for hold in await self.holds() if hold.name == tenant), None)

    async def holds(self) -> list[SwitchSetting]:
        """Return all holds that are not over, by the tenants' names."""
        settings = await switches.active_switches(self._app.store, self._app.clock.now())
        return sorted(
            (hold for hold in settings if hold.switch is Switch.HOLD), key=lambda hold: hold.name
        )


def _end(until: datetime | float | str | None, now: float) -> float | None:
    if until is None:
        return None
    if isinstance(until, str):
        until = now + seconds(until)
    if isinstance(until, datetime):
        if until.utcoffset() is None:
            raise InvalidInput("until: the datetime has no zone; give it one")
        until = until.timestamp()
    if isinstance(until, bool) or not isinstance(until, int | float):
        raise InvalidInput("until: give a datetime with a zone, seconds since the epoch, or '2h'")
    if not now < until <= now + LONGEST_SECONDS:
        raise InvalidInput("until: the end of a hold lies in the future, within 100 years")
    return float(until)
