"""`app.plan(...)`: a roll-out over many tenants is checked, stored and left to a driver."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, Literal, TypedDict, Unpack

import msgspec
from msgspec.structs import replace

from holdfast.clock import new_id, new_ids
from holdfast.domain import names
from holdfast.domain.durations import seconds
from holdfast.domain.errors import IntakePaused, InvalidPlan, PlanConflict, TenantsBusy
from holdfast.domain.plan import commands, waves
from holdfast.domain.plan.events import PlanCreated
from holdfast.domain.plan.plan import (
    KEEP_SECONDS,
    FailureCount,
    FailureRate,
    HaltRule,
    OnHalt,
    Plan,
    PlanStatus,
    PlanTasks,
    TenantConflict,
)
from holdfast.domain.task import decide
from holdfast.domain.task.effects import effects_id, member_key
from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.task import Task
from holdfast.engine.actor_calls import ActorCalls
from holdfast.engine.operations.switches import intake_is_paused
from holdfast.engine.options import Option, complete_options, read_choice, show_options
from holdfast.engine.plans.control import PlanControl
from holdfast.engine.plans.handle import PlanHandle, PlanInfo, info
from holdfast.runtime import new_task
from holdfast.runtime.plans.task_gateway import TaskGateway

PART = 200  # tasks in one insert, or tenants in one read
MOST = 100_000  # tasks in one plan
PAGE = 100


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """A task for a plan, made by ``.on(payload, tenant=…)`` of a task or workflow."""

    record: Task
    payload: bytes
    effects_namespace: str | None = None

    def member(self, plan_id: str, number: int, task_id: str) -> Task:
        """Return the record of this task as member ``number`` of the plan, from 1."""
        record, effects = self.record, None
        if self.effects_namespace is not None:
            key = member_key(plan_id, number)
            effects = effects_id(self.effects_namespace, record.type, record.tenant, key)
        return replace(record, id=task_id, plan=plan_id, status=Status.CREATED, effects=effects)


class PlanTerms(TypedDict, total=False):
    max_concurrency: Annotated[
        int | None, Option(None, "tasks with a slot at once, over all instances; None: no limit")
    ]
    waves: Annotated[
        Sequence[str | int],
        Option(("100%",), 'the share released by each wave: ("1", "5%", "25%", "100%")'),
    ]
    soak: Annotated[float | str, Option(0.0, "the time between the end of a wave and the next")]
    halt_on: Annotated[
        HaltRule | None, Option(None, "the failure limit; with waves FailureRate(0) unless given")
    ]
    on_halt: Annotated[
        OnHalt | Literal["pause", "rollback", "rollback-plan"],
        Option("pause", 'what happens at a halt; "rollback" undoes the wave'),
    ]
    conflict: Annotated[
        TenantConflict | Literal["wait", "skip", "reject"],
        Option("wait", "what happens to tenants that are busy elsewhere"),
    ]
    repeat_tenants: Annotated[
        bool, Option(False, "whether a tenant may stand in the plan more than once")
    ]
    keep: Annotated[
        float | str, Option(KEEP_SECONDS, "how long the record stays after the plan has settled")
    ]


class WavePreview(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    tenants: tuple[str | None, ...]


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """The waves and tenants of a plan that was not written."""

    id: str
    total: int
    waves: tuple[WavePreview, ...]
    busy: tuple[str, ...]  # tenants that have other work now
    exists: PlanStatus | None  # a plan of this id is there already


class Plans(ActorCalls):
    """The plans of an app: create, preview, find and control them.

    ``await app.plan("upgrade-7", [upgrade.on(order, tenant=t) for t in …], waves=…)``"""

    @property
    def control(self) -> PlanControl:
        """Return the commands to plans by their ids."""
        return PlanControl(self._app, self._by)

    @show_options(PlanTerms)
    async def __call__(
        self, plan_id: str, tasks: Sequence[Planned], **terms: Unpack[PlanTerms]
    ) -> PlanHandle:
        """Create a plan, which is durable when this returns; workers then drive it.

        A second call with the same id, tasks and terms continues with the plan that is there.
        """
        plan = new_plan(plan_id, tasks, terms, now=self._app.clock.now())
        if plan.conflict is TenantConflict.REJECT and (busy := await self._busy(tasks)):
            [there] = await self._app.store.plans.load([plan_id])
            if there is None:  # else they may be busy with this very plan
                raise TenantsBusy(plan_id, busy)
        queues = {planned.record.queue for planned in tasks}
        if paused := await intake_is_paused(self._app.store, queues):
            raise IntakePaused(paused)  # before anything of the plan is stored
        there = await self._create(plan, tasks)
        if there.cancel_requested or there.status is PlanStatus.CANCELLED:
            await self._withdraw(there)
        elif there.status is PlanStatus.CREATED:
            await self._fill(there, tasks)
        return self.get(plan_id)

    @show_options(PlanTerms)
    async def preview(
        self, plan_id: str, tasks: Sequence[Planned], **terms: Unpack[PlanTerms]
    ) -> Preview:
        """Return what the plan would do; nothing is written."""
        plan = new_plan(plan_id, tasks, terms, now=self._app.clock.now())
        [there] = await self._app.store.plans.load([plan.id])
        return Preview(
            id=plan.id,
            total=plan.total,
            waves=tuple(
                WavePreview(
                    number=wave + 1, tenants=tuple(tasks[i].record.tenant for i in plan.span(wave))
                )
                for wave in range(len(plan.waves))
            ),
            busy=tuple(await self._busy(tasks)),
            exists=there.status if there else None,
        )

    def get(self, plan_id: str) -> PlanHandle:
        """Return the handle of a plan; only its calls load the plan."""
        return PlanHandle(self._app, names.check("plan", plan_id), self.control)

    async def find(self, *statuses: PlanStatus, limit: int = 1000) -> AsyncIterator[PlanInfo]:
        """Yield the plans, the newest first."""
        cursor, left = None, limit
        while left > 0:
            page = await self._app.store.plans.find(
                statuses=statuses, limit=min(left, PAGE), cursor=cursor
            )
            for plan in page.plans:
                yield info(plan, now=self._app.clock.now())
            left, cursor = left - len(page.plans), page.cursor
            if cursor is None:
                return

    # -- making

    async def _create(self, plan: Plan, tasks: Sequence[Planned]) -> Plan:
        app, tenants = self._app, tuple(planned.record.tenant for planned in tasks)
        made = new_ids(app.clock, app.chance, len(tasks))
        ids = tuple(
            app.store.partitioned_id(task_id, tenant=tenant, key=None)
            for task_id, tenant in zip(made, tenants, strict=True)
        )
        created = PlanCreated(plan_id=plan.id, version=1, at=plan.created_at, total=plan.total)
        there = await app.store.plans.create(plan, PlanTasks(ids=ids, tenants=tenants), [created])
        if there.digest != plan.digest:
            raise PlanConflict(plan.id)
        return there

    async def _fill(self, plan: Plan, tasks: Sequence[Planned]) -> None:
        """Insert the plan's tasks, held; those that an earlier call inserted are found again."""
        app, limit = self._app, self._app.settings.queue_limit
        kept = await app.store.plans.tasks(plan.id)
        assert kept is not None
        for start in range(0, len(tasks), PART):
            part = slice(start, start + PART)
            batch = [
                decide.submit(
                    planned.member(plan.id, number, task_id), planned.payload, "", held=True
                )
                for number, (planned, task_id) in enumerate(
                    zip(tasks[part], kept.ids[part], strict=True), start=start + 1
                )
            ]
            answers = await app.store.tasks.insert(batch, depth_limit=limit)
            for submission, answer in zip(batch, answers, strict=True):
                new_task.accepted_id(submission.task, answer, limit)
            await asyncio.sleep(0)
        request = new_id(app.clock, app.chance)
        seal = commands.seal(plan, now=app.clock.now(), request=request)
        outcome = await app.store.plans.apply(seal)
        there = outcome.plan
        if there is not None and (there.cancel_requested or there.status is PlanStatus.CANCELLED):
            await self._withdraw(there)

    async def _withdraw(self, plan: Plan) -> None:
        """Cancel the plan's tasks: it was cancelled while they went in, and its driver may miss
        some."""
        gateway = TaskGateway(self._app.store, self._app.clock, "")
        kept = await self._app.store.plans.tasks(plan.id)
        members = (await gateway.load(kept.ids if kept else ())).values()
        held = [
            member.task for member in members if member.task and member.status is Status.CREATED
        ]
        await gateway.send(plan, [(task, Command.CANCEL) for task in held])

    async def _busy(self, tasks: Sequence[Planned]) -> list[str]:
        gateway = TaskGateway(self._app.store, self._app.clock, "")
        tenants = sorted(
            {planned.record.tenant for planned in tasks if planned.record.tenant is not None}
        )
        busy: set[str] = set()
        for start in range(0, len(tenants), PART):
            busy.update(await gateway.busy({name: name for name in tenants[start : start + PART]}))
        return sorted(busy)


def new_plan(plan_id: str, tasks: Sequence[Planned], terms: PlanTerms, *, now: float) -> Plan:
    """Return the record of a new plan, or raise InvalidPlan with the reason."""
    plan_id = names.check("plan", plan_id)
    options = complete_options(PlanTerms, terms, InvalidPlan)
    if not isinstance(tasks, Sequence) or isinstance(tasks, str | bytes):
        raise InvalidPlan(f"the tasks of a plan are a list, not {type(tasks).__name__}")
    if not 0 < len(tasks) <= MOST:
        raise InvalidPlan(f"a plan has 1 to {MOST} tasks, not {len(tasks)}")
    for planned in tasks:
        if not isinstance(planned, Planned):
            how = "make it with .on(payload, tenant=…)"
            raise InvalidPlan(f"{planned!r} is not a task of a plan: {how}")
    if not options["repeat_tenants"]:
        _check_tenants(tasks)
    most = options["max_concurrency"]
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
        raise InvalidPlan(f"max_concurrency={most!r} must be a number of tasks, at least 1")
    ends = waves.ends(options["waves"], len(tasks))
    plan = Plan(
        id=plan_id,
        total=len(tasks),
        digest="",
        max_concurrency=most or len(tasks),
        waves=ends,
        soak_seconds=seconds(options["soak"]),
        halt_on=_halt_rule(terms),
        on_halt=read_choice(OnHalt, "on_halt", options["on_halt"], InvalidPlan),
        conflict=read_choice(TenantConflict, "conflict", options["conflict"], InvalidPlan),
        keep_seconds=seconds(options["keep"]),
        created_at=now,
        status_since=now,
        updated_at=now,
        counts=tuple({} for _ in ends),
    )
    return replace(plan, digest=_digest(plan, tasks))


def _check_tenants(tasks: Sequence[Planned]) -> None:
    counts = Counter(
        planned.record.tenant for planned in tasks if planned.record.tenant is not None
    )
    if twice := [tenant for tenant, count in counts.items() if count > 1]:
        shown = ", ".join(twice[:10]) + (", …" if len(twice) > 10 else "")
        raise InvalidPlan(f"tenants more than once: {shown} (repeat_tenants=True allows it)")


def _halt_rule(terms: PlanTerms) -> HaltRule | None:
    rule = terms.get("halt_on", FailureRate(0.0) if "waves" in terms else None)
    match rule:
        case FailureRate(rate) if not _is_number(rate, int | float) or not 0 <= rate <= 1:
            raise InvalidPlan(f"FailureRate({rate!r}) must be a share between 0 and 1")
        case FailureCount(count) if not _is_number(count, int) or count < 0:
            raise InvalidPlan(f"FailureCount({count!r}) must be a whole number, at least 0")
        case None | FailureRate() | FailureCount():
            return rule
    raise InvalidPlan(f"halt_on={rule!r} must be like FailureRate(0.05) or FailureCount(3)")


def _is_number(value: object, kind: Any) -> bool:
    """Return whether a value is a number; constructors check no types."""
    return isinstance(value, kind) and not isinstance(value, bool)


def _digest(plan: Plan, tasks: Sequence[Planned]) -> str:
    """Return a digest that is the same for the same tasks and terms."""
    terms = replace(plan, created_at=0.0, status_since=0.0, updated_at=0.0)
    whole = hashlib.blake2b(msgspec.json.encode(terms), digest_size=16)
    for planned in tasks:
        record = planned.record
        digest = new_task.digest(record.type, planned.payload, record.callback)
        identity = f"\n{record.tenant}\n{record.queue}\n{digest}"
        whole.update(identity.encode())
    return whole.hexdigest()
