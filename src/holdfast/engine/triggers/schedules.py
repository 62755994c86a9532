"""`app.schedule`: triggers are made, found and controlled by calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Unpack, overload

from msgspec.structs import replace

from holdfast.clock import new_id
from holdfast.domain import names
from holdfast.domain.errors import InvalidSchedule, TriggerConflict, TriggerNotFound
from holdfast.domain.trigger import definition as definitions
from holdfast.domain.trigger import schedule as times
from holdfast.domain.trigger.schedule import Every, Once, Schedule
from holdfast.domain.trigger.trigger import (
    UNFINISHED,
    Changed,
    Definition,
    Misfire,
    Trigger,
    TriggerStatus,
)
from holdfast.encoding.codec import UntypedCodec
from holdfast.engine.actor_calls import ActorCalls
from holdfast.engine.options import Option, show_options
from holdfast.engine.triggers.control import TriggerControl, TriggerHandle
from holdfast.engine.triggers.declared_triggers import TriggerTerms, define
from holdfast.ports import TriggerPage, TriggerStore
from holdfast.runtime.compare_and_swap import compare_and_swap

if TYPE_CHECKING:
    from holdfast.engine.declare import Submittable

P = TypeVar("P")
R = TypeVar("R")


class ScheduleTerms(TriggerTerms, total=False):
    replace: Annotated[
        bool, Option(False, "whether a trigger of this name with another definition is replaced")
    ]


class Schedules(ActorCalls):
    """The triggers of an app: make them by calls, find them and get their handles.

    ``await app.schedule.cron("0 3 * * *", send, "ann", tz="Asia/Shanghai", name="nightly")``

    The name is the trigger's id. The same name with the same definition answers with the trigger
    that is there, ended or not; with another one it is a TriggerConflict, unless ``replace=True``.
    """

    @overload
    async def at(
        self,
        when: datetime | float,
        send: Submittable[None, R],
        payload: None = None,
        **terms: Unpack[ScheduleTerms],
    ) -> TriggerHandle[R]: ...

    @overload
    async def at(
        self,
        when: datetime | float,
        send: Submittable[P, R],
        payload: P,
        **terms: Unpack[ScheduleTerms],
    ) -> TriggerHandle[R]: ...

    @show_options(ScheduleTerms)
    async def at(
        self,
        when: datetime | float,
        send: Submittable[Any, R],
        payload: Any = None,
        **terms: Unpack[ScheduleTerms],
    ) -> TriggerHandle[R]:
        """Make a trigger that fires once; a past time fires at once (``misfire="skip"`` refuses
        it)."""
        return await self._put(times.once(when), send, payload, terms)

    @overload
    async def every(
        self,
        interval: float | str,
        send: Submittable[None, R],
        payload: None = None,
        *,
        start: datetime | float | None = None,
        **terms: Unpack[ScheduleTerms],
    ) -> TriggerHandle[R]: ...

    @overload
    async def every(
        self,
        interval: float | str,
        send: Submittable[P, R],
        payload: P,
        *,
        start: datetime | float | None = None,
        **terms: Unpack[ScheduleTerms],
    ) -> TriggerHandle[R]: ...

    @show_options(ScheduleTerms)
    async def every(
        self,
        interval: float | str,
        send: Submittable[Any, R],
        payload: Any = None,
        *,
        start: datetime | float | None = None,
        **terms: Unpack[ScheduleTerms],
    ) -> TriggerHandle[R]:
        """Make a trigger that fires at ``start`` and at each interval after it.

        A past start fires at once (``misfire="skip"`` refuses it). Without a start, the first time
        is an interval from now.
        """
        now = self._app.clock.now()
        schedule = times.every(interval, start=now if start is None else start)
        if start is None:
            first = float(round(now + schedule.seconds))
            schedule = Every(seconds=schedule.seconds, start=first)
        return await self._put(schedule, send, payload, terms, any_start=start is None)

    @overload
    async def cron(
        self,
        expression: str,
        send: Submittable[None, R],
        payload: None = None,
        *,
        tz: str = "UTC",
        **terms: Unpack[ScheduleTerms],
    ) -> TriggerHandle[R]: ...

    @overload
    async def cron(
        self,
        expression: str,
        send: Submittable[P, R],
        payload: P,
        *,
        tz: str = "UTC",
        **terms: Unpack[ScheduleTerms],
    ) -> TriggerHandle[R]: ...

    @show_options(ScheduleTerms)
    async def cron(
        self,
        expression: str,
        send: Submittable[Any, R],
        payload: Any = None,
        *,
        tz: str = "UTC",
        **terms: Unpack[ScheduleTerms],
    ) -> TriggerHandle[R]:
        """Make a trigger that fires by the wall clock of the zone ``tz`` (docs: clock changes)."""
        schedule = times.cron(expression, tz=tz, now=self._app.clock.now())
        return await self._put(schedule, send, payload, terms)

    async def get(self, name: str, *, tenant: str | None = None) -> TriggerHandle[Any]:
        """Return the trigger of this name (and tenant, if it has one) or id, or TriggerNotFound."""
        of = None if tenant is None else names.normalise(tenant)
        trigger_id = self._app.store.trigger_id(names.check("trigger", name), tenant=of)
        trigger = await self._triggers.find(trigger_id)
        if trigger is None:
            raise TriggerNotFound(trigger_id)
        known = self._app.registry.find(trigger.target)
        result = UntypedCodec() if known is None else known.result
        return TriggerHandle(self._control, trigger.id, result)

    async def find(
        self, *, statuses: Sequence[TriggerStatus] = (), tenant: str | None = None
    ) -> AsyncIterator[Trigger]:
        """Yield all triggers, in the order of their ids."""
        cursor: str | None = None
        while True:
            page = await self.page(statuses=statuses, tenant=tenant, cursor=cursor)
            for trigger in page.triggers:
                yield trigger
            if (cursor := page.cursor) is None:
                return

    async def page(
        self,
        *,
        statuses: Sequence[TriggerStatus] = (),
        tenant: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> TriggerPage:
        """Return a page of triggers, in the order of their ids."""
        of = None if tenant is None else names.normalise(tenant)
        return await self._triggers.find_all(
            statuses=statuses, tenant=of, limit=limit, cursor=cursor
        )

    # -- making one

    @property
    def _control(self) -> TriggerControl:
        return TriggerControl(self._app, self._by)

    @property
    def _triggers(self) -> TriggerStore:
        return self._app.store.triggers

    async def _put(
        self,
        schedule: Schedule,
        send: Submittable[Any, R],
        payload: Any,
        terms: ScheduleTerms,
        *,
        any_start: bool = False,
    ) -> TriggerHandle[R]:
        self._app.registry.check()
        replaces = terms.pop("replace", False)
        body = send.declared.payload.encode(payload)
        wanted = define(send.declared, schedule, body, terms, declared=False)
        name = terms.get("name") or new_id(self._app.clock, self._app.chance)
        trigger_id = self._app.store.trigger_id(names.check("trigger", name), tenant=wanted.tenant)
        trigger = await self._there_or_put(trigger_id, wanted, replaces, any_start)
        return TriggerHandle(self._control, trigger.id, send.declared.result)

    async def _there_or_put(
        self, trigger_id: str, wanted: Definition, replaces: bool, any_start: bool
    ) -> Trigger:
        async def write(there: Trigger | None) -> Trigger | None:
            if there is None:
                drawn = self._draw(wanted, owes_start=not any_start)
                change = definitions.create(wanted, trigger_id, **drawn, owes_start=not any_start)
            else:
                mine = _started_as(there, wanted) if any_start else wanted
                if _is_answer(there, mine, replaces):
                    return there
                # What goes on keeps its start, else it would lose the time that it waits for.
                mine = mine if there.status in UNFINISHED else wanted
                change = definitions.redefine(there, mine, **self._draw(wanted))
            limit = self._app.settings.queue_limit
            [outcome] = await self._triggers.apply([change], depth_limit=limit)
            return outcome.trigger if isinstance(outcome, Changed) else None

        return await compare_and_swap(
            f"trigger {trigger_id}", lambda: self._triggers.find(trigger_id), write
        )

    def _draw(self, wanted: Definition, *, owes_start: bool = False) -> dict[str, Any]:
        now, chance = self._app.clock.now(), self._app.chance
        is_past = isinstance(wanted.schedule, Once) and wanted.schedule.at < now
        is_past |= owes_start and definitions.started_time(wanted, now) is not None
        if is_past and wanted.misfire is Misfire.SKIP:
            reason = "it is in the past, and misfire='skip' skips such times"
            raise InvalidSchedule(times.format_schedule(wanted.schedule), reason)
        return {"now": now, "chance": chance.random(), "request": new_id(self._app.clock, chance)}


def _is_answer(there: Trigger, wanted: Definition, replaces: bool) -> bool:
    """Return whether the stored trigger is the one that was asked for.

    Raise TriggerConflict if it is another one that must not be replaced.
    """
    if definitions.has_definition(there, wanted):
        return not replaces or there.status in UNFINISHED
    if not replaces or _is_anothers(there, wanted):
        raise TriggerConflict(there.id)
    return False


def _is_anothers(there: Trigger, wanted: Definition) -> bool:
    """Return whether a trigger is another tenant's, or is declared in code."""
    return there.tenant != wanted.tenant or (there.declared and there.ended_at is None)


def _started_as(there: Trigger, wanted: Definition) -> Definition:
    """Return the definition with the start of the stored trigger, where no start was given."""
    mine, theirs = wanted.schedule, there.schedule
    if isinstance(mine, Every) and isinstance(theirs, Every) and mine.seconds == theirs.seconds:
        return replace(wanted, schedule=theirs)
    return wanted
