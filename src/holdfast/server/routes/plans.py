"""The routes of plans: the same work over many tenants."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from fastapi import Body, Path, Query
from pydantic import Field

from holdfast.domain.errors import InvalidPlan, PlanNotFound
from holdfast.domain.plan.plan import (
    FailureCount,
    FailureRate,
    MemberState,
    OnHalt,
    Plan,
    PlanCommand,
    PlanStatus,
    TenantConflict,
)
from holdfast.engine.operations.expired_checkpoints import Forecast
from holdfast.engine.plans.create import Planned, PlanTerms
from holdfast.engine.plans.handle import forecast, info
from holdfast.insight.views import plans as views
from holdfast.server.auth.access import Caller, CallerOf, foreign
from holdfast.server.auth.own_ids import own_id, plan_ids
from holdfast.server.auth.tokens import Role
from holdfast.server.http.route import Routes, needs
from holdfast.server.openapi import schemas as sc
from holdfast.server.service import Service, ServiceOf
from holdfast.server.submission import find_type, known_queue

router = Routes("plans")

TASKS_MAX = 10_000  # in one request; from Python a plan may have ten times as many
FRESH_SECONDS = 5.0  # so long one read of the checkpoints of a plan serves all

PlanInPath = Annotated[sc.PlanId, Path(description="The id of a plan")]


# -- making


class PlanTask(sc.Sent):
    tenant: sc.Tenant | None = None
    payload: Any = None
    type: sc.TypeName | None = sc.optional("The type of this task, if it is not the plan's")
    queue: sc.QueueName | None = None


_OF_WHAT = [
    {"required": [given], "properties": {given: {"minItems": 1}, other: {"maxItems": 0}}}
    for given, other in (("tenants", "tasks"), ("tasks", "tenants"))
]


class NewPlan(sc.Reasoned):
    model_config = sc.body_example(
        one_of=_OF_WHAT,
        planId="upgrade-7",
        type="tenant.upgrade",
        payload={"version": 7},
        tenants=["t-001", "t-002"],
        waves=["1", "100%"],
        soak="10m",
        haltOn="5%",
    )

    plan_id: sc.PlanId
    type: sc.TypeName
    payload: Any = sc.optional("The payload of every task that has none of its own")
    tenants: list[sc.Tenant] = Field(
        default=[],
        max_length=TASKS_MAX,
        description="The plan has a task for each of these tenants",
        examples=[["t-1", "t-2"]],
    )
    tasks: list[PlanTask] = Field(
        default=[], max_length=TASKS_MAX, description="The tasks one by one, instead of `tenants`"
    )
    max_concurrency: Annotated[int, Field(ge=1, le=1_000_000), sc.NUMBER] | None = None
    waves: list[Annotated[str, Field(pattern=r"^([0-9]{1,9}|[0-9]{1,3}(\.[0-9]{1,6})?%)$")]] = (
        Field(default=["100%"], min_length=1, max_length=100, examples=[["1", "5%", "100%"]])
    )
    soak: sc.DurationText = Field(default="0s", examples=["10m"])
    halt_on: str | None = Field(
        default=None,
        pattern=r"^([0-9]{1,9}|[0-9]{1,3}(\.[0-9]{1,6})?%)$",
        description="The plan halts when more than this share or number of a wave fails",
        examples=["5%", "3"],
    )
    on_halt: OnHalt = OnHalt.PAUSE
    conflict: TenantConflict = TenantConflict.WAIT
    repeat_tenants: sc.Flag = False
    dry_run: sc.Flag = sc.flag("Show what the plan would do, and write nothing")

    def terms(self) -> PlanTerms:
        terms = PlanTerms(
            max_concurrency=self.max_concurrency,
            soak=self.soak,
            on_halt=self.on_halt,
            conflict=self.conflict,
            repeat_tenants=self.repeat_tenants,
        )
        if self.waves != ["100%"]:
            terms["waves"] = self.waves
        if self.halt_on is not None:
            terms["halt_on"] = halt_rule(self.halt_on)
        return terms


def halt_rule(written: str) -> FailureRate | FailureCount:
    if written.endswith("%"):
        return FailureRate(float(written.removesuffix("%")) / 100)
    return FailureCount(int(written))


_PREVIEW = {"model": views.PreviewView, "description": "A dry run: nothing was written"}


@router.post(
    "/api/plans",
    status_code=201,
    response_model=views.PlanView,
    **needs(Role.OPERATOR, 404, 409, large=NewPlan, also={200: _PREVIEW}),
)
async def create_plan(new: NewPlan, service: ServiceOf, caller: CallerOf) -> Any:
    """Create a plan. The same tasks and terms, sent again, continue the existing plan. For a token
    of some tenants, the service adds a suffix to the id; `planId` of the answer has it."""
    tasks = _plan_tasks(new, service, caller)
    plan_id, plans = await _id_for(service, caller, new.plan_id), service.acting_as(caller).plans
    if new.dry_run:
        preview = await plans.preview(plan_id, tasks, **new.terms())
        return sc.answer(200, views.preview_view(preview))
    async with service.acting_as(caller).record_action("create", f"plan:{plan_id}", new.reason):
        handle = await plans(plan_id, tasks, **new.terms())
    return views.plan_view(await handle.info(), service.app.redactor)


def _plan_tasks(new: NewPlan, service: Service, caller: Caller) -> list[Planned]:
    if bool(new.tenants) is bool(new.tasks):
        raise InvalidPlan("give tenants, or tasks")
    tasks = new.tasks or [PlanTask(tenant=tenant) for tenant in new.tenants]
    return [
        service.app.describe_task(
            find_type(service, task.type or new.type),
            new.payload if "payload" not in task.model_fields_set else task.payload,
            tenant=caller.tenant_for(task.tenant),
            queue=known_queue(service, task.queue),
        )
        for task in tasks
    ]


async def _id_for(service: Service, caller: Caller, given: str) -> str:
    """Return the id of a new plan; one that is there and the caller's own is meant as it is."""
    if caller.tenants is None or await _is_visible(service, caller, given):
        return given
    return own_id(given, caller.tenants)


# -- looking


async def visible_plan(service: Service, caller: Caller, plan_id: str) -> Plan:
    """Return a plan; a caller who may see only some of its tenants does not see it."""
    is_anothers = False
    for one in plan_ids(caller, plan_id):
        [plan] = await service.app.store.plans.load([one])
        if plan is not None and await _is_visible(service, caller, one):
            return plan
        is_anothers = is_anothers or plan is not None
    unknown = PlanNotFound(plan_id)
    raise foreign(unknown) if is_anothers else unknown


async def _is_visible(service: Service, caller: Caller, plan_id: str) -> bool:
    if caller.tenants is None:
        return True
    tasks = await service.app.store.plans.tasks(plan_id)
    return tasks is not None and all(map(caller.sees, tasks.tenants))


class PlanQuery(sc.PageQuery):
    cursor: sc.Cursor | sc.Absent = sc.optional(sc.FROM_BEFORE)
    status: list[PlanStatus] = sc.any_of(20)


@router.get("/api/plans", **needs(Role.VIEWER, everywhere=True))
async def list_plans(
    query: Annotated[PlanQuery, Query()], service: ServiceOf
) -> views.PlanPageView:
    """List plans, the newest first. A page may be short and still have a next one."""
    page = await service.app.store.plans.find(
        statuses=tuple(dict.fromkeys(query.status)), limit=query.limit, cursor=query.cursor
    )
    now, hide = service.app.clock.now(), service.app.redactor
    return {
        "plans": [views.plan_view(info(plan, now=now), hide) for plan in page.plans],
        "cursor": page.cursor,
    }


@router.get("/api/plans/{plan_id}", **needs(Role.VIEWER, 404))
async def show_plan(plan_id: PlanInPath, service: ServiceOf, caller: CallerOf) -> views.PlanDetail:
    """Show a plan. The answer has the progress of each wave and the terms of the plan."""
    plan = await visible_plan(service, caller, plan_id)
    ahead = await _load_forecast(service, plan)
    shown = info(plan, now=service.app.clock.now())
    return views.plan_detail_view(plan, shown, ahead, service.app.redactor)


async def _load_forecast(service: Service, plan: Plan) -> Forecast:
    """Return the tasks that would start over. It reads up to 1 000 tasks and their checkpoints, so
    one read serves all requests that come meanwhile or soon after."""
    if not plan.count(MemberState.FAILED):
        return Forecast()
    return await service.shared_reads.get(
        f"startingOver:{plan.id}", lambda: forecast(service.app, plan), fresh_seconds=FRESH_SECONDS
    )


class MemberQuery(sc.PageQuery):
    state: list[MemberState] = sc.any_of(20)
    cursor: sc.Offset | sc.Absent = sc.optional(sc.FROM_BEFORE)


@router.get("/api/plans/{plan_id}/tasks", **needs(Role.VIEWER, 404))
async def plan_tasks(
    plan_id: PlanInPath,
    query: Annotated[MemberQuery, Query()],
    service: ServiceOf,
    caller: CallerOf,
) -> views.MemberPage:
    """List the tasks of a plan in its order, as the plan sees them."""
    plan, store = await visible_plan(service, caller, plan_id), service.app.store.plans
    tasks, members = await store.tasks(plan.id), await store.members(plan.id)
    if tasks is None:
        raise PlanNotFound(plan_id)
    shown = list[views.MemberView]()
    for number in range(int(query.cursor or 0), len(tasks.ids)):
        member = members.get(number)
        state = member.state if member else MemberState.WAITING
        if query.state and state not in query.state:
            continue
        if len(shown) == query.limit:
            return {"tasks": shown, "cursor": str(number)}
        shown.append(
            {
                "number": number,
                "taskId": tasks.ids[number],
                "tenantId": tasks.tenants[number],
                "wave": _wave_of(plan, number),
                "state": state,
            }
        )
    return {"tasks": shown, "cursor": None}


def _wave_of(plan: Plan, number: int) -> int:
    return 1 + next(wave for wave, end in enumerate(plan.waves) if number < end)


# -- acting


class PlanAction(StrEnum):
    PAUSE = PlanCommand.PAUSE
    RESUME = PlanCommand.RESUME
    CANCEL = PlanCommand.CANCEL
    RETRY = PlanCommand.RETRY
    ROLLBACK = PlanCommand.ROLLBACK


class PlanActionRequest(sc.Reasoned):
    model_config = sc.body_example(reason="the database is slow")

    wave: Annotated[int, Field(ge=1, le=100), sc.NUMBER] | None = sc.optional(
        "The only wave that `rollback` undoes"
    )
    force: sc.Flag = sc.flag("True if `rollback` may undo tasks over newer work")


@router.post("/api/plans/{plan_id}/{command}", **needs(Role.OPERATOR, 404, 409))
async def ask_plan(
    plan_id: PlanInPath,
    command: Annotated[PlanAction, Path(description="The command for the plan")],
    service: ServiceOf,
    caller: CallerOf,
    body: Annotated[PlanActionRequest | None, Body()] = None,
) -> views.PlanAsked:
    """Send a command to a plan. The plan passes it on to each of its tasks."""
    plan, body = await visible_plan(service, caller, plan_id), body or PlanActionRequest()
    control, why = service.acting_as(caller).plans.control, body.reason
    match command:
        case PlanAction.PAUSE:
            plan = await control.pause(plan.id, reason=why)
        case PlanAction.RESUME:
            plan = await control.resume(plan.id, reason=why)
        case PlanAction.CANCEL:
            plan = await control.cancel(plan.id, reason=why)
        case PlanAction.RETRY:
            plan = await control.retry(plan.id, reason=why)
        case PlanAction.ROLLBACK:
            plan = await control.rollback(plan.id, wave=body.wave, force=body.force, reason=why)
    return views.asked_plan_view(plan)
