"""Commands of an operator to a trigger: each is decided, written once and recorded in the audit."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from holdfast.domain import names
from holdfast.domain.errors import IntakePaused, InvalidInput, QueueFull, Refused, TriggerNotFound
from holdfast.domain.task.operate import OperatorRequest
from holdfast.domain.task.placement import STOPPED
from holdfast.domain.task.transition import Submission
from holdfast.domain.trigger import firing
from holdfast.domain.trigger import schedule as times
from holdfast.domain.trigger.trigger import (
    UNFINISHED,
    Changed,
    NoRoom,
    Overlap,
    Trigger,
    TriggerChange,
    TriggerCommand,
    TriggerStatus,
)
from holdfast.encoding.codec import Codec
from holdfast.engine.actor_calls import ActorCalls
from holdfast.engine.handle import Handle
from holdfast.engine.operations.switches import intake_is_paused
from holdfast.engine.triggers.declared_triggers import zone_of
from holdfast.runtime import new_task
from holdfast.runtime.compare_and_swap import compare_and_swap

if TYPE_CHECKING:
    from holdfast.engine.core import Holdfast

R = TypeVar("R")

NEXT_MAX = 1_000

Decision = Callable[[Trigger, OperatorRequest], TriggerChange]


class TriggerControl(ActorCalls):
    """The commands to triggers, by their ids."""

    async def load(self, trigger_id: str) -> Trigger:
        """Return a trigger, or raise TriggerNotFound."""
        trigger = await self._app.store.triggers.find(names.normalise(trigger_id))
        if trigger is None:
            raise TriggerNotFound(trigger_id)
        return trigger

    async def ask(
        self, trigger_id: str, command: TriggerCommand, decision: Decision, reason: str
    ) -> Trigger:
        app = self._app
        ask = self._new_request(reason)
        limit = app.settings.queue_limit

        async def write(trigger: Trigger) -> Trigger | None:
            if trigger.asked == ask.request:
                return trigger  # it was written, and its answer was lost
            change = decision(trigger, ask)
            [outcome] = await app.store.triggers.apply([change], depth_limit=limit)
            if isinstance(outcome, NoRoom):
                raise await self._no_room(outcome.queue)
            return outcome.trigger if isinstance(outcome, Changed) else None

        async def record_refusal(trigger: Trigger, error: Refused) -> None:
            await app.store.admin.audit(firing.refusal(trigger, command, ask, error.code))

        return await compare_and_swap(
            f"trigger {trigger_id}", lambda: self.load(trigger_id), write, on_refusal=record_refusal
        )

    async def _no_room(self, queue: str) -> Refused:
        if await intake_is_paused(self._app.store, {queue}):
            return IntakePaused(queue)
        return QueueFull(queue, self._app.settings.queue_limit)

    async def fire(self, trigger_id: str, reason: str) -> str:
        """Fire the trigger now, and return the id of its task, the same however often it is
        decided."""
        made: list[Submission] = []
        ended_task = await self._ended_task(await self.load(trigger_id))

        def decision(trigger: Trigger, ask: OperatorRequest) -> TriggerChange:
            made.append(self._new_submission(trigger, ask))
            return firing.fire_now(trigger, ask, made[-1], ended_task=ended_task)

        await self.ask(trigger_id, TriggerCommand.FIRE, decision, reason)
        return made[0].task.id

    async def _ended_task(self, trigger: Trigger) -> str | None:
        """Return the trigger's last task, if it neither waits nor runs."""
        task_id = trigger.last_task
        if task_id is None or trigger.overlap is Overlap.ALLOW:
            return None
        [task] = await self._app.store.views.load([task_id])
        return task_id if task is None or task.place in STOPPED else None

    def _new_submission(self, trigger: Trigger, ask: OperatorRequest) -> Submission:
        app, now = self._app, ask.now
        declared = app.registry.find(trigger.target)
        if declared is None:
            reason = f"its task type {trigger.target!r} is not declared here"
            raise InvalidInput(f"trigger {trigger.id}: {reason}; fire it where it is")
        body = bytes(trigger.payload)
        if trigger.declared:
            body = self._declared_body(trigger, now)
        declared.payload.decode(body)
        terms: dict[str, Any] = {"tenant": trigger.tenant, "queue": trigger.queue}
        with app.tracer.fire(declared.name, trigger.tenant, trigger.id) as span:
            terms["trace_id"] = span.traceparent
        record = new_task.record(declared, now=now, user=trigger.user, **terms)
        keys, ids = [firing.key_now(trigger, ask)], [ask.request]
        effects = declared.effects_namespace
        [made] = new_task.submissions(
            app.store, record, [body], keys, ids, effects_namespace=effects
        )
        return made

    def _declared_body(self, trigger: Trigger, now: float) -> bytes:
        for declared in self._app.registry.triggers.values():
            if (
                self._app.store.trigger_id(declared.name, tenant=declared.definition.tenant)
                == trigger.id
            ):
                return bytes(trigger.payload) if declared.make is None else declared.make(now)
        raise InvalidInput(f"trigger {trigger.id} is declared in code, but not here; fire it there")

    @property
    def app(self) -> Holdfast:
        return self._app


class TriggerHandle(Generic[R]):
    """A trigger: read its state and its next fire times, fire it, and send it commands."""

    __slots__ = ("_control", "_result", "id")

    def __init__(self, control: TriggerControl, trigger_id: str, result: Codec[R]) -> None:
        self._control = control
        self._result = result
        self.id = trigger_id

    def __repr__(self) -> str:
        return f"TriggerHandle({self.id!r})"

    async def info(self) -> Trigger:
        """Return the trigger as it is stored."""
        return await self._control.load(self.id)

    async def next(self, count: int = 1) -> list[datetime]:
        """Return the next fire times in the trigger's zone, as if it were not paused."""
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= NEXT_MAX:
            raise InvalidInput(
                f"the number of fire times must be between 0 and {NEXT_MAX}, not {count!r}"
            )
        trigger = await self.info()
        if trigger.status not in UNFINISHED:
            return []
        zone = zone_of(trigger.schedule)
        upcoming = times.upcoming(trigger.schedule, self._control.app.clock.now(), count)
        return [datetime.fromtimestamp(at, zone) for at in upcoming]

    async def fire(self, reason: str = "") -> Handle[R]:
        """Submit a task now, whatever the policies are; the fire times stay. A single one is done
        then."""
        task_id = await self._control.fire(self.id, reason)
        return Handle(self._control.app, task_id, self._result)

    async def pause(self, reason: str = "") -> TriggerStatus:
        """Pause the trigger: it submits nothing until `resume`."""
        return await self._ask(TriggerCommand.PAUSE, firing.pause, reason)

    async def resume(self, reason: str = "") -> TriggerStatus:
        """Resume the trigger; its misfire policy decides about the times that have passed."""
        return await self._ask(TriggerCommand.RESUME, firing.resume, reason)

    async def cancel(self, reason: str = "") -> TriggerStatus:
        """End the trigger for good; tasks that it has submitted go on."""
        return await self._ask(TriggerCommand.CANCEL, firing.cancel, reason)

    async def _ask(self, command: TriggerCommand, decision: Decision, reason: str) -> TriggerStatus:
        return (await self._control.ask(self.id, command, decision, reason)).status
