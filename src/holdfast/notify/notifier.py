"""The one door through which a write brings its deliveries with it.

Whoever writes through the app's store (workers, operators, drivers of plans, bulk actions) passes
here, so none of them has to think of it, and none can forget it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec.structs import replace

from holdfast.clock import new_id
from holdfast.domain import notification
from holdfast.domain.notification import Delivery, Hook, Telling
from holdfast.domain.plan.events import PlanEvent
from holdfast.domain.plan.plan import PlanChange, PlanOutcome
from holdfast.domain.redaction import Redactor
from holdfast.domain.task import decide
from holdfast.domain.task.envelope import ENVELOPE_STATUS
from holdfast.domain.task.events import Event, TaskCompleted
from holdfast.domain.task.task import Failure
from holdfast.domain.task.transition import Outcome, Submission, Transition
from holdfast.insight.views.plans import plan_event_view
from holdfast.insight.views.tasks import event_view, failure_view, text_or_none
from holdfast.ports import PlanStore, Store
from holdfast.registry import TaskType
from holdfast.runtime import new_task

if TYPE_CHECKING:
    from holdfast.engine.core import Holdfast

RESULT_LIMIT_BYTES = 64 * 1024  # a larger one is fetched by whoever wants it
NO_LIMIT = 2**31  # waiting deliveries: what has happened is not refused
SAID_ALREADY = {"event", "taskId", "planId", "version", "at", "failure"}


class Teller:
    """Makes deliveries of what is written."""

    def __init__(self, app: Holdfast, declared: TaskType, hooks: Sequence[Hook]) -> None:
        self._app = app
        self._declared = declared
        self._hooks = tuple(hooks)
        self._hide = app.redactor
        given = app.settings
        # Results go to those who asked for the work: there only what was declared is hidden.
        self._hide_declared = Redactor(given.redact, given.redact_patterns, usual=False)

    def with_followers(self, store: Store, transition: Transition) -> Transition:
        task = transition.after
        if task.callback is None and not self._hooks:
            return transition
        follows = tuple(
            self._follower(
                store.beside(self._new_id(), task.id),
                one,
                self._of_task(transition, one),
                task.trace_id,
            )
            for one in notification.of_task(transition, self._hooks)
        )
        return replace(transition, follows=follows) if follows else transition

    def with_followers_of(self, plans: PlanStore, change: PlanChange) -> PlanChange:
        if not self._hooks:
            return change
        follows = tuple(
            self._follower(
                plans.beside(self._new_id(), change.after.id), one, self._of_plan(change, one)
            )
            for one in notification.of_plan(change, self._hooks)
        )
        return replace(change, follows=follows) if follows else change

    async def tell(
        self,
        to: str,
        event: str,
        when: float,
        data: dict[str, Any],
        *,
        task_id: str = "",
        keep_seconds: float | None = None,
    ) -> str:
        """What no write brings along; the id of its delivery. It is taken in however many wait."""
        store, now = self._app.store, self._app.clock.now()
        task_id = task_id or store.home(self._new_id(), tenant=None, key=None)
        record = replace(new_task.record(self._declared, now=now), id=task_id)
        if keep_seconds is not None:
            record = replace(record, keep_seconds=keep_seconds)
        submission = decide.submit(record, self._payload(to, event, when, data), "")
        await store.insert([submission], depth_limit=NO_LIMIT)
        return task_id

    async def probe(self, hook: Hook) -> str:
        """A word to see whether it arrives."""
        to, now = f"{notification.HOOK}{hook.name}", self._app.clock.now()
        return await self.tell(to, notification.PROBE, now, {"hook": hook.name})

    def _follower(
        self, task_id: str, one: Telling, data: dict[str, Any], trace_id: str | None = None
    ) -> Submission:
        event = notification.name_of(one.event)
        payload = self._payload(
            one.to, event, one.event.at, data, url=one.url, tenant=data.get("tenantId")
        )
        record = new_task.record(self._declared, now=self._app.clock.now(), trace_id=trace_id)
        return decide.submit(replace(record, id=task_id), payload, "")

    def _payload(
        self,
        to: str,
        event: str,
        when: float,
        data: dict[str, Any],
        *,
        url: str = "",
        tenant: str | None = None,
    ) -> bytes:
        body = msgspec.Raw(msgspec.json.encode(data))
        told = Delivery(to=to, url=url, tenant=tenant, event=event, at=when, data=body)
        return msgspec.json.encode(told)

    def _new_id(self) -> str:
        return new_id(self._app.clock, self._app.chance)

    # -- what is told

    def _of_task(self, transition: Transition, one: Telling) -> dict[str, Any]:
        task, hide = transition.after, self._hide
        facts = event_view(cast(Event, one.event), hide)
        told = {
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
            "event": {name: facts[name] for name in facts if name not in SAID_ALREADY},
        }
        if one.result and isinstance(one.event, TaskCompleted):
            told |= self._result(transition.result, callback=one.url != "")
        return told

    def _result(self, result: bytes | None, *, callback: bool) -> dict[str, Any]:
        if result is not None and len(result) > RESULT_LIMIT_BYTES:
            return {"result": None, "resultOmitted": True}
        hide = self._hide_declared if callback else self._hide
        return {"result": None if result is None else hide.body(result)}

    def _of_plan(self, change: PlanChange, one: Telling) -> dict[str, Any]:
        plan, facts = change.after, plan_event_view(cast(PlanEvent, one.event), self._hide)
        return {
            "planId": plan.id,
            "status": plan.status,
            "version": plan.version,
            "total": plan.total,
            "progress": plan.progress,
            "wave": plan.wave,
            "reason": text_or_none(plan.reason, self._hide),
            "event": {name: facts[name] for name in facts if name not in SAID_ALREADY},
        }


def _error(failure: Failure | None, hide: Redactor) -> dict[str, Any] | None:
    """Without its traceback: the lines of the code are for those who run it."""
    if failure is None:
        return None
    told = failure_view(failure, hide)
    return {name: value for name, value in told.items() if name != "traceback"}


class TellingStore:
    """A store, but for its writes, which bring their deliveries with them."""

    def __init__(self, store: Store, teller: Teller) -> None:
        self._behind = store
        self.plans = TellingPlans(store.plans, teller)
        self._teller = teller

    async def apply(self, batch: Sequence[Transition]) -> Sequence[Outcome]:
        store, follow = self._behind, self._teller.with_followers
        return await store.apply([follow(store, transition) for transition in batch])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)


class TellingPlans:
    def __init__(self, plans: PlanStore, teller: Teller) -> None:
        self._behind, self._teller = plans, teller

    async def apply(self, change: PlanChange, *, lease_seconds: float = 30.0) -> PlanOutcome:
        followed = self._teller.with_followers_of(self._behind, change)
        return await self._behind.apply(followed, lease_seconds=lease_seconds)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)


def telling_store(store: Store, teller: Teller) -> Store:
    return cast(Store, TellingStore(store, teller))
