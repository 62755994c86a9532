"""The gateway by which a plan reads its tasks, and sends them commands that are legal."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from holdfast.domain.errors import IllegalTransition, PartlyUnavailable, StoreError
from holdfast.domain.plan.members import MemberTask, pause_mark
from holdfast.domain.plan.plan import Plan
from holdfast.domain.task import operate
from holdfast.domain.task.operate import OperatorRequest
from holdfast.domain.task.placement import opens_line
from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.task import By, Task
from holdfast.domain.task.transition import Busy, MovedOn, Transition
from holdfast.ports import Clock, Store, Switch

PAGE = 200

GONE = MemberTask(status=Status.CANCELLED, is_gone=True)

T = TypeVar("T")
Decision = Callable[[Task, OperatorRequest], Transition]


class SendResult(msgspec.Struct, frozen=True, kw_only=True):
    """The ids of the tasks whose command the store refused, and how many were sent."""

    busy: frozenset[str] = frozenset()
    moved_on: frozenset[str] = frozenset()
    sent: int = 0


class TaskGateway:
    def __init__(self, store: Store, clock: Clock, origin: str) -> None:
        self._store, self._clock, self._origin = store, clock, origin

    async def load(self, ids: Sequence[str]) -> Mapping[str, MemberTask]:
        """Load tasks; one that cannot be read now is left out, one that is gone is as cancelled."""
        tasks: dict[str, MemberTask] = {}
        for start in range(0, len(ids), PAGE):
            page = ids[start : start + PAGE]
            for task_id, task in zip(
                page, await _answers(self._store.views.load(page)), strict=True
            ):
                if isinstance(task, Task):
                    tasks[task_id] = MemberTask(status=task.status, task=task)
            gone = [i for i in page if i not in tasks]
            if not gone:
                continue
            for task_id, peek in zip(
                gone, await _answers(self._store.views.peek(gone)), strict=True
            ):
                if not isinstance(peek, StoreError):
                    tasks[task_id] = MemberTask(status=peek.status) if peek else GONE
        return tasks

    async def busy(self, tenants: Mapping[str, str]) -> Mapping[str, Task | None]:
        """Return the tasks, of these with their tenants, that would have to wait in line, each with
        the one that it waits for. None: a person holds the tenant."""
        views = await self._store.views.tenants(sorted(set(tenants.values())))
        active = await self._store.views.load([view.active for view in views if view.active])
        closed = {
            task.tenant: task
            for task in active
            if task is not None and not opens_line(task.place, task.hold)
        }
        behind = {i: closed[tenant] for i, tenant in tenants.items() if tenant in closed}
        busy: dict[str, Task | None] = {i: task for i, task in behind.items() if task.id != i}
        off = await self._store.admin.switches()
        now = self._clock.now()
        held = {hold.name for hold in off if hold.switch is Switch.HOLD and hold.stands(now)}
        return {i: None for i, tenant in tenants.items() if tenant in held} | busy

    async def send(self, plan: Plan, orders: Iterable[tuple[Task, Command]]) -> SendResult:
        """Send commands; one that is no longer legal, or whose task has changed, is dropped: the
        next poll decides anew."""
        batch = [order for task, command in orders if (order := self._order(plan, task, command))]
        busy, moved_on = set[str](), set[str]()
        for start in range(0, len(batch), PAGE):
            for outcome in await _answers(self._store.tasks.apply(batch[start : start + PAGE])):
                if isinstance(outcome, Busy):
                    busy.add(outcome.task.id)
                elif isinstance(outcome, MovedOn):
                    moved_on.add(outcome.task.id)
        return SendResult(busy=frozenset(busy), moved_on=frozenset(moved_on), sent=len(batch))

    def _order(self, plan: Plan, task: Task, command: Command) -> Transition | None:
        by = By(actor=f"plan:{plan.id}", origin=self._origin, reason=_reason(plan, command))
        # One command for each version of a task: so this names it, and a resend of it.
        request = f"plan:{plan.id}:{task.id}:{task.version}:{command}"
        ask = OperatorRequest(by=by, now=self._clock.now(), request=request)
        try:
            order = _decision(plan, command)(task, ask)
        except IllegalTransition:
            return None
        # The person who asked stands in the audit with the plan; the task's event names the plan.
        # Without its checkpoint a task is suspended anew by its worker, which says why.
        return msgspec.structs.replace(
            order,
            audit=None,
            not_if_busy=command is Command.RELEASE and task.tenant is not None,
            not_without_checkpoint=False,
        )


def _decision(plan: Plan, command: Command) -> Decision:
    decisions: dict[Command, Decision] = {
        Command.RELEASE: operate.release,
        Command.HOLD_BACK: operate.hold_back,
        Command.RETRY: operate.retry,
        Command.PAUSE: operate.pause,
        Command.RESUME: operate.resume,
        Command.CANCEL: operate.cancel,
        Command.DISCARD: operate.discard,
        Command.ROLLBACK: partial(operate.rollback, force=plan.undo_forced),
    }
    return decisions[command]


def _reason(plan: Plan, command: Command) -> str:
    if command is Command.PAUSE:
        return pause_mark(plan)
    why = f": {plan.reason}" if plan.reason else ""
    return f"plan {plan.id}{why}"


async def _answers(call: Awaitable[Sequence[T]]) -> Sequence[T | StoreError]:
    """Return what the reachable part of the store answers, with errors for the rest."""
    try:
        return await call
    except PartlyUnavailable as error:
        return error.answers
