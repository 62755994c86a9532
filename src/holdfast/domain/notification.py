"""Notifications go to a request's callback, and to the hooks configured for event types.

A notification becomes a task of the engine, a delivery, in the step that stores its event. So it is
sent at least once, as any task runs, and again only where an answer was lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from holdfast.domain.plan import events as pe
from holdfast.domain.plan.plan import PlanChange
from holdfast.domain.task import events as ev
from holdfast.domain.task.task import Task
from holdfast.domain.task.transition import Transition

TYPE, QUEUE, STAGE = "holdfast.delivery", "holdfast.deliveries", "deliver"
OWN = "holdfast."  # types of the engine itself: they notify nobody, or it would never end

CALLBACK = "callback"  # where a delivery goes: there, to ``hook:NAME``, or to a chat by its name
HOOK = "hook:"
NOBODY = ""  # it holds a place: see `app.alerting`
PROBE = "Probe"  # of `holdfast hooks test`: no event, only to see whether it arrives

# Events of the store's own moves are written where nobody can add to them.
_OF_THE_STORE = (ev.TaskCreated, ev.TaskStarted, ev.TaskDue, ev.LeaseLost, ev.TaskProgress)
TASK_EVENTS = tuple(kind for kind in ev.KINDS.values() if kind not in _OF_THE_STORE)
PLAN_EVENTS = tuple(kind for kind in pe.KINDS.values() if kind is not pe.PlanCreated)
ALERT_EVENTS = ("AlertRaised", "AlertCleared")
OF_NO_TASK = frozenset(pe.NAMES[kind] for kind in PLAN_EVENTS) | {*ALERT_EVENTS}
TELLABLE = frozenset(ev.NAMES[kind] for kind in TASK_EVENTS) | OF_NO_TASK

# A callback is notified of these events: the task has settled or been suspended.
OUTCOMES = (
    ev.TaskCompleted,
    ev.TaskFailedEvent,
    ev.TaskCancelledEvent,
    ev.TaskDiscarded,
    ev.TaskRolledBackEvent,
    ev.TaskRollbackFailed,
)


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """An address that is notified of some kinds of events; an empty filter lets all through."""

    name: str
    url: str
    events: frozenset[str]
    types: frozenset[str] = frozenset()
    tenants: frozenset[str] = frozenset()
    queues: frozenset[str] = frozenset()
    results: bool = False  # with the results of tasks

    def wants(self, event: str, task: Task | None = None) -> bool:
        """Return whether the hook wants the event; a hook for certain tasks wants no other."""
        if event not in self.events:
            return False
        if task is None:
            return not (self.types or self.tenants or self.queues)
        return (
            (not self.types or task.type in self.types)
            and (not self.tenants or task.tenant in self.tenants)
            and (not self.queues or task.queue in self.queues)
        )


class Delivery(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The payload of a delivery. Secrets are not in it: whoever delivers knows them."""

    to: str
    # Of a callback, which no configuration names. Where it is shown, it is hidden by its name.
    url: str = msgspec.field(default="", name="secretUrl")
    tenant: str | None = None
    event: str
    at: float
    data: msgspec.Raw


class Notification(msgspec.Struct, frozen=True):
    """A notification to send: the event, and the address that receives it."""

    to: str
    event: ev.Event | pe.PlanEvent
    url: str = ""
    result: bool = False


def name_of(event: ev.Event | pe.PlanEvent) -> str:
    """Return the name by which hooks and receivers know the event."""
    return pe.name_of(event) if isinstance(event, pe.PlanEvent) else ev.name_of(event)


def of_task(transition: Transition, hooks: Sequence[Hook]) -> Iterator[Notification]:
    task = transition.after
    if task.type.startswith(OWN):
        return
    if task.callback is not None:
        for event in reversed(transition.events):  # the last word of it
            if isinstance(event, OUTCOMES):
                yield Notification(_receiver(task.callback), event, task.callback, result=True)
                break
    for hook in hooks:
        for event in transition.events:
            if hook.wants(ev.name_of(event), task):
                yield Notification(f"{HOOK}{hook.name}", event, result=hook.results)


def _receiver(callback: str) -> str:
    """Return where a callback goes: it is a URL, or ``CHAT:MESSAGE`` as an integration wrote it."""
    return CALLBACK if "://" in callback else callback.partition(":")[0]


def of_plan(change: PlanChange, hooks: Sequence[Hook]) -> Iterator[Notification]:
    for hook in hooks:
        for event in change.events:
            if hook.wants(pe.name_of(event)):
                yield Notification(f"{HOOK}{hook.name}", event)
