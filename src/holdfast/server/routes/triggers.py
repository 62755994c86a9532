"""The routes of triggers, which submit tasks at a time."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Annotated, Any

from fastapi import Body, Path, Query
from pydantic import Field

from holdfast.domain.errors import InvalidInput, InvalidSchedule, TriggerNotFound
from holdfast.domain.trigger.trigger import Misfire, Overlap, Trigger, TriggerCommand, TriggerStatus
from holdfast.engine.declare import Submittable
from holdfast.engine.triggers.control import TriggerHandle
from holdfast.engine.triggers.declared_triggers import TriggerTerms
from holdfast.insight.views import triggers as views
from holdfast.server.auth.access import Caller, CallerOf, foreign
from holdfast.server.auth.own_ids import own_id, trigger_ids
from holdfast.server.auth.tokens import Role
from holdfast.server.http.route import Routes, needs
from holdfast.server.openapi import schemas as sc
from holdfast.server.service import Service, ServiceOf
from holdfast.server.submission import find_type, known_queue

router = Routes("triggers")

NEXT_SHOWN = 5

TriggerInPath = Annotated[sc.TriggerId, Path(description="The id of a trigger")]


# -- making


_SCHEDULES = [
    {
        "required": [given],
        "properties": {
            name: {"type": "string" if name == given else "null"}
            for name in ("at", "every", "cron")
        },
    }
    for given in ("at", "every", "cron")
]


class NewTrigger(sc.Reasoned):
    """A new trigger: give one of `at`, `every` and `cron`."""

    model_config = sc.body_example(
        one_of=_SCHEDULES,
        triggerId="nightly",
        type="tenant.upgrade",
        payload={"version": 7},
        cron="0 3 * * *",
        tz="Asia/Shanghai",
    )

    trigger_id: sc.TriggerId
    type: sc.TypeName
    payload: Any = None
    at: sc.TimeText | None = sc.optional("The one time at which the trigger fires")
    every: sc.DurationText | None = Field(default=None, examples=["15m"])
    cron: str | None = Field(default=None, max_length=200, examples=["0 3 * * *"])
    tz: str = Field(default="UTC", max_length=60, examples=["Asia/Shanghai"])
    tenant: sc.Tenant | None = None
    queue: sc.QueueName | None = None
    misfire: Misfire = Misfire.ONCE
    overlap: Overlap = Overlap.ALLOW
    jitter: sc.DurationText = Field(default="0s", examples=["30s"])
    replace: sc.Flag = sc.flag("Replace a trigger of this id that is there")


@router.post(
    "/api/triggers",
    status_code=201,
    response_model=views.TriggerDetail,
    **needs(Role.OPERATOR, 404, 409, large=NewTrigger),
)
async def create_trigger(new: NewTrigger, service: ServiceOf, caller: CallerOf) -> Any:
    """Create a trigger. The same definition, sent again, returns the existing trigger. For a token
    of some tenants, the service adds a suffix to the id; `triggerId` of the answer has it."""
    if [new.at, new.every, new.cron].count(None) != 2:
        raise InvalidInput("give one of at, every and cron")
    tenant = caller.tenant_for(new.tenant)
    name = await _name_for(service, caller, new.trigger_id, tenant)
    async with service.acting_as(caller).record_action("create", f"trigger:{name}", new.reason):
        handle = await _create(new, service, caller, name, tenant)
    return await _answer(service, caller, handle, status=201)


async def _name_for(service: Service, caller: Caller, given: str, tenant: str | None) -> str:
    """Return the name of a new trigger; one that is there and the caller's own keeps its name."""
    if caller.tenants is None or tenant is None:
        return given
    store = service.app.store
    there = await store.triggers.find(store.trigger_id(given, tenant=tenant))
    return given if there is not None and caller.sees(there.tenant) else own_id(given, [tenant])


async def _create(
    new: NewTrigger, service: Service, caller: Caller, name: str, tenant: str | None
) -> TriggerHandle[Any]:
    target = Submittable[Any, Any](service.app, find_type(service, new.type))
    terms = TriggerTerms(
        name=name,
        tenant=tenant,
        queue=known_queue(service, new.queue),
        misfire=new.misfire,
        overlap=new.overlap,
        jitter=new.jitter,
    )
    schedule = service.acting_as(caller).schedule
    if new.at is not None:
        when = _moment(new.at)
        return await schedule.at(when, target, new.payload, replace=new.replace, **terms)
    if new.every is not None:
        return await schedule.every(new.every, target, new.payload, replace=new.replace, **terms)
    return await schedule.cron(
        new.cron or "", target, new.payload, tz=new.tz, replace=new.replace, **terms
    )


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidSchedule(text, "a time is written as 2026-01-31T03:00:00+08:00") from None


# -- looking


class TriggerQuery(sc.PageQuery):
    status: list[TriggerStatus] = sc.any_of(20)
    tenant: sc.Tenant | sc.Absent = sc.optional("The tenant of the triggers")
    cursor: sc.TriggerCursor | sc.Absent = sc.optional(sc.FROM_BEFORE)


@router.get("/api/triggers", **needs(Role.VIEWER))
async def list_triggers(
    query: Annotated[TriggerQuery, Query()], service: ServiceOf, caller: CallerOf
) -> views.TriggerPageView:
    """List triggers in the order of their ids. A page may be short and still have a next one."""
    page = await service.app.schedule.page(
        statuses=tuple(dict.fromkeys(query.status)),
        tenant=caller.tenant_for(query.tenant),
        limit=query.limit,
        cursor=query.cursor,
    )
    hide = service.app.redactor
    return {
        "triggers": [views.trigger_view(trigger, hide) for trigger in page.triggers],
        "cursor": page.cursor,
    }


async def visible_trigger(service: Service, caller: Caller, trigger_id: str) -> Trigger:
    store, is_anothers = service.app.store, False
    for one, tenant in trigger_ids(caller, trigger_id):
        found_id = one if tenant is None else store.trigger_id(one, tenant=tenant)
        trigger = await store.triggers.find(found_id)
        if trigger is not None and caller.sees(trigger.tenant):
            return trigger
        is_anothers = is_anothers or trigger is not None
    unknown = TriggerNotFound(trigger_id)
    raise foreign(unknown) if is_anothers else unknown


@router.get(
    "/api/triggers/{trigger_id}", response_model=views.TriggerDetail, **needs(Role.VIEWER, 404)
)
async def show_trigger(trigger_id: TriggerInPath, service: ServiceOf, caller: CallerOf) -> Any:
    """Show a trigger, with its next fire times in its own time zone."""
    trigger = await visible_trigger(service, caller, trigger_id)
    return await _answer(service, caller, await service.app.schedule.get(trigger.id))


async def _answer(
    service: Service, caller: Caller, handle: TriggerHandle[Any], status: int = 200
) -> Any:
    """Return the view of a trigger, which takes long for a large payload."""
    upcoming = await handle.next(NEXT_SHOWN)
    trigger = await handle.info()
    view = partial(views.trigger_detail_view, trigger, upcoming, service.app.redactor)
    return await service.large_views.answer(caller, len(trigger.payload), view, status)


class NextQuery(sc.Sent):
    count: int = Field(default=10, ge=1, le=1000, description="The number of fire times")


@router.get("/api/triggers/{trigger_id}/next", **needs(Role.VIEWER, 404))
async def next_times(
    trigger_id: TriggerInPath,
    query: Annotated[NextQuery, Query()],
    service: ServiceOf,
    caller: CallerOf,
) -> views.NextTimes:
    """List the next fire times of a trigger, in its own time zone. For a paused trigger these are
    the times that it would have."""
    trigger = await visible_trigger(service, caller, trigger_id)
    upcoming = await (await service.app.schedule.get(trigger.id)).next(query.count)
    return views.next_times_view(trigger.id, upcoming)


# -- acting


class TriggerAction(StrEnum):
    FIRE = TriggerCommand.FIRE
    PAUSE = TriggerCommand.PAUSE
    RESUME = TriggerCommand.RESUME
    CANCEL = TriggerCommand.CANCEL


class TriggerActionRequest(sc.Reasoned):
    model_config = sc.body_example(reason="for the audit")


@router.post("/api/triggers/{trigger_id}/{command}", **needs(Role.OPERATOR, 404, 409))
async def ask_trigger(
    trigger_id: TriggerInPath,
    command: Annotated[TriggerAction, Path(description="The command for the trigger")],
    service: ServiceOf,
    caller: CallerOf,
    body: Annotated[TriggerActionRequest | None, Body()] = None,
) -> views.TriggerAsked:
    """Send a command to a trigger. `fire` submits a task now, whatever the policies are; the
    schedule does not change."""
    trigger = await visible_trigger(service, caller, trigger_id)
    handle = await service.acting_as(caller).schedule.get(trigger.id)
    why = body.reason if body else ""
    task_id: str | None = None
    match command:
        case TriggerAction.FIRE:
            task_id = (await handle.fire(why)).id
        case TriggerAction.PAUSE:
            await handle.pause(why)
        case TriggerAction.RESUME:
            await handle.resume(why)
        case TriggerAction.CANCEL:
            await handle.cancel(why)
    status = (await handle.info()).status
    return views.TriggerAsked(triggerId=trigger.id, status=status, taskId=task_id)
