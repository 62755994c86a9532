"""The notifier adds deliveries to the writes that call for them.

The writes of tasks come here through `notify/task_writes.py`, those of plans by `NotifyingPlans`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec.structs import replace

from holdfast.clock import new_id
from holdfast.domain import notification
from holdfast.domain.notification import Delivery, Hook, Notification
from holdfast.domain.plan.events import PlanEvent
from holdfast.domain.plan.plan import PlanChange, PlanOutcome
from holdfast.domain.redaction import Redactor
from holdfast.domain.task import decide
from holdfast.domain.task.envelope import ENVELOPE_STATUS
from holdfast.domain.task.events import Event, TaskCompleted
from holdfast.domain.task.task import Failure
from holdfast.domain.task.transition import Submission, Transition
from holdfast.insight.views.tasks import event_view, failure_view, text_or_none
from holdfast.ports import Store
from holdfast.registry import TaskType
from holdfast.runtime import new_task

if TYPE_CHECKING:
    from holdfast.engine.core import Holdfast

RESULT_LIMIT_BYTES = 64 * 1024  # a larger one is fetched by whoever wants it
NO_LIMIT = 2**31  # waiting deliveries: what has happened is not refused
ALREADY_SHOWN = {"event", "taskId", "planId", "version", "at", "failure"}


class Notifier:
    """Turns the events of a write into deliveries."""

    def __init__(self, app: Holdfast, declared: TaskType, hooks: Sequence[Hook]) -> None:
        self._app = app
        self._declared = declared
        self.hooks = tuple(hooks)
        self._hide = app.redactor
        given = app.settings
        # Results go to those who asked for the work: there only what was declared is hidden.
        self._hide_declared = Redactor(given.redact, given.redact_patterns, usual=False)

    def with_deliveries(self, store: Store, transition: Transition) -> Transition:
        task = transition.after
        if task.callback is None and not self.hooks:
            return transition
        follows = tuple(
            self._submission(
                store.colocated_id(self._new_id(), task_id=task.id),
                _delivery(to_send, self._task_data(transition, to_send)),
                trace_id=task.trace_id,
            )
            for to_send in notification.of_task(transition, self.hooks)
        )
        return replace(transition, follows=follows) if follows else transition

    def with_plan_deliveries(self, store: Store, change: PlanChange) -> PlanChange:
        if not self.hooks:
            return change
        follows = tuple(
            self._submission(
                store.colocated_id(self._new_id(), plan_id=change.after.id),
                _delivery(to_send, self._plan_data(change, to_send)),
            )
            for to_send in notification.of_plan(change, self.hooks)
        )
        return replace(change, follows=follows) if follows else change

    async def notify(
        self,
        to: str,
        event: str,
        when: float,
        data: dict[str, Any],
        *,
        task_id: str = "",
        keep_seconds: float | None = None,
    ) -> str:
        """Make a delivery that no write brings along, however many wait; return its id."""
        store = self._app.store
        task_id = task_id or store.partitioned_id(self._new_id(), tenant=None, key=None)
        delivery = Delivery(to=to, event=event, at=when, data=_raw(data))
        submission = self._submission(task_id, delivery, keep_seconds=keep_seconds)
        await store.tasks.insert([submission], depth_limit=NO_LIMIT)
        return task_id

    async def probe(self, hook: Hook) -> str:
        """Send a probe, to see whether it arrives."""
        to, now = f"{notification.HOOK}{hook.name}", self._app.clock.now()
        return await self.notify(to, notification.PROBE, now, {"hook": hook.name})

    def _submission(
        self,
        task_id: str,
        delivery: Delivery,
        *,
        trace_id: str | None = None,
        keep_seconds: float | None = None,
    ) -> Submission:
        record = new_task.record(self._declared, now=self._app.clock.now(), trace_id=trace_id)
        keep_seconds = record.keep_seconds if keep_seconds is None else keep_seconds
        record = replace(record, id=task_id, keep_seconds=keep_seconds)
        return decide.submit(record, msgspec.json.encode(delivery), "")

    def _new_id(self) -> str:
        return new_id(self._app.clock, self._app.chance)

    # -- the data of a delivery

    def _task_data(self, transition: Transition, to_send: Notification) -> dict[str, Any]:
        task, hide = transition.after, self._hide
        data = {
            "taskId": task.id,
            "type": task.type,
            "tenantId": task.tenant,
            "planId": task.plan,
            "key": task.key,
            "queue": task.queue,
            "status": ENVELOPE_STATUS[task.status],
            "taskStatus": task.status,
            "version": task.version,
            "reason": text_or_none(task.reason, hide),
            "error": _error(task.failure, hide),
            "event": _leave_out(event_view(cast(Event, to_send.event), hide), ALREADY_SHOWN),
        }
        if to_send.result and isinstance(to_send.event, TaskCompleted):
            data |= self._result(transition.result, callback=to_send.url != "")
        return data

    def _result(self, result: bytes | None, *, callback: bool) -> dict[str, Any]:
        if result is not None and len(result) > RESULT_LIMIT_BYTES:
            return {"result": None, "resultOmitted": True}
        hide = self._hide_declared if callback else self._hide
        return {"result": None if result is None else hide.body(result)}

    def _plan_data(self, change: PlanChange, to_send: Notification) -> dict[str, Any]:
        plan, facts = change.after, event_view(cast(PlanEvent, to_send.event), self._hide)
        return {
            "planId": plan.id,
            "status": plan.status,
            "version": plan.version,
            "total": plan.total,
            "progress": plan.progress,
            "wave": plan.wave,
            "reason": text_or_none(plan.reason, self._hide),
            "event": _leave_out(facts, ALREADY_SHOWN),
        }


def _delivery(to_send: Notification, data: dict[str, Any]) -> Delivery:
    return Delivery(
        to=to_send.to,
        url=to_send.url,
        tenant=data.get("tenantId"),
        event=notification.name_of(to_send.event),
        at=to_send.event.at,
        data=_raw(data),
    )


def _raw(data: dict[str, Any]) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(data))


def _error(failure: Failure | None, hide: Redactor) -> dict[str, Any] | None:
    """Return the error without its traceback: lines of code are for those who run it."""
    return None if failure is None else _leave_out(failure_view(failure, hide), {"traceback"})


def _leave_out(facts: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if name not in names}


class NotifyingPlans:
    """The plan part of a store, which adds to each change the deliveries that it needs."""

    def __init__(self, store: Store, notifier: Notifier) -> None:
        self._store, self._apply, self._notifier = store, store.plans.apply, notifier
        plans = store.plans
        self.create, self.claim = plans.create, plans.claim
        self.renew, self.wake = plans.renew, plans.wake
        self.load, self.find, self.tasks = plans.load, plans.find, plans.tasks
        self.members, self.events = plans.members, plans.events

    async def apply(self, change: PlanChange, *, lease_seconds: float = 30.0) -> PlanOutcome:
        change = self._notifier.with_plan_deliveries(self._store, change)
        return await self._apply(change, lease_seconds=lease_seconds)
