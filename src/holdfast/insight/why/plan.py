"""The reason why a plan does not release a task, in one plain sentence."""

from __future__ import annotations

from holdfast.domain.phrases import span
from holdfast.domain.plan.plan import SLOTTED, Plan, PlanStatus
from holdfast.domain.plan.rollout import DRIVEN, soaks_seconds
from holdfast.domain.task.placement import opens_line
from holdfast.domain.task.task import Task
from holdfast.ports import Store


def is_driven(plan: Plan) -> bool:
    """Return whether a plan goes on by itself, if there is a worker to drive it."""
    return plan.cancel_requested or plan.status in DRIVEN


async def describe_wait(store: Store, task: Task, plan: Plan, now: float) -> str:
    """Describe what a plan waits for before it releases the task, to follow the plan's name."""
    if plan.cancel_requested:
        return "which is being cancelled, and this task with it."
    match plan.status:
        case PlanStatus.CREATED:
            return (
                "whose tasks are still being submitted. If its creator has stopped, create the "
                "same plan again, and it goes on."
            )
        case PlanStatus.READY:
            return "which is ready to start."
        case PlanStatus.PAUSED | PlanStatus.HALTED:
            return _rests(plan, now)
        case PlanStatus.RUNNING:
            return await _runs(store, task, plan, now)
    return f"which is {plan.status} and releases no more tasks{_because(plan)}."


def _rests(plan: Plan, now: float) -> str:
    shown = f"`holdfast plans show {plan.id}` shows more"
    since = f"which has been {plan.status} for {span(now - plan.status_since)}{_because(plan)}"
    return f"{since}. {shown}; `holdfast plans resume {plan.id}` resumes it."


def _because(plan: Plan) -> str:
    return f" ({plan.reason})" if plan.reason else ""


async def _runs(store: Store, task: Task, plan: Plan, now: float) -> str:
    tasks = await store.plans.tasks(plan.id)
    index = tasks.ids.index(task.id) if tasks and task.id in tasks.ids else None
    if index is None:
        return "but it is none of that plan's tasks."
    wave, at = plan.wave_of(index), f"which is at wave {plan.wave + 1} of {len(plan.waves)}"
    if wave > plan.wave:
        soaks = soaks_seconds(plan, now)
        soaking = f", which soaks for {span(soaks)} more" if soaks else ""
        return f"{at}{soaking}; this task is of wave {wave + 1}, which has not begun."
    if other := await _other_work(store, task):
        return f"{at}; its tenant {task.tenant} is busy with task {other}, so it waits."
    taken = plan.count(*SLOTTED)
    if plan.max_concurrency is not None and taken >= plan.max_concurrency:
        return f"{at}; {taken} of {plan.max_concurrency} slots are taken, and it waits for one."
    return f"{at}; its wave has begun, and one of the next steps releases it."


async def _other_work(store: Store, task: Task) -> str | None:
    """Return the other task that keeps the tenant's line closed, if there is one."""
    if task.tenant is None:
        return None
    [view] = await store.views.tenants([task.tenant])
    if view.active is None or view.active == task.id:
        return None
    [active] = await store.views.load([view.active])
    is_closed = active is not None and not opens_line(active.place, active.hold)
    return view.active if is_closed else None
