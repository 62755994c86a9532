"""The parts of a record that its reader may see: a reader of some tenants does not see all.

An operator of all tenants has an address that is no tenant's business, and reasons that may name
other tenants. So a reader who is limited to tenants sees - of another actor the name, and not the
origin; - the reason of an act on one task, plan or trigger, because that concerns its tenant alone;
- of an act through a plan or a bulk action only that it was one: the plan and the bulk action show
their reasons to those who may see them; - of a switch on a queue only that it is off. Tracebacks
show code and its values: they are for operators of all tenants.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from holdfast.domain.plan.events import PlanEvent
from holdfast.domain.task.events import Event
from holdfast.domain.task.task import By, Failure, Task
from holdfast.ports import Detail, Peek

THROUGH = ("plan:", "bulk:")  # how actors are named that act on many tasks for a person

_GIVEN_BY_MANY = re.compile(r"(plan [^\s:]{1,300}|bulk:[^\s:]{1,100})(?=[: ]|\Z)")

E = TypeVar("E", Event, PlanEvent)


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """The extent of what one reader sees."""

    tracebacks: bool = True
    limited: bool = False  # the reader may see some tenants only
    actor: str | None = None  # the reader's own name: its own acts are shown whole

    def failure(self, failure: Failure) -> Failure:
        return failure if self.tracebacks else replace(failure, traceback="")

    def seen_actor(self, by: By) -> By:
        """Return an actor without an origin and a reason that are another's business."""
        if not self.limited or by.actor == self.actor:
            return by
        reason = self.reason(by.reason) or ""
        if by.actor.startswith(THROUGH) and reason == by.reason and not _is_plain(reason):
            reason = ""  # a reason of former days, without a word of where it came from
        return replace(by, origin="", reason=reason)

    def reason(self, reason: str | None) -> str | None:
        """Return a reason without what a person said to a plan or to a bulk action."""
        if not self.limited or reason is None:
            return reason
        found = _GIVEN_BY_MANY.match(reason)
        return reason if found is None or _is_plain(reason) else found[1]

    def task(self, task: Task) -> Task:
        if not self.limited and self.tracebacks:
            return task
        failure = self.failure(task.failure) if task.failure is not None else None
        return replace(task, failure=failure, reason=self.reason(task.reason))

    def peek(self, peek: Peek) -> Peek:
        failure = self.failure(peek.failure) if peek.failure is not None else None
        return replace(peek, failure=failure, reason=self.reason(peek.reason))

    def detail(self, detail: Detail) -> Detail:
        if not self.limited and self.tracebacks:
            return detail
        events = tuple(map(self.event, detail.events))
        task, hidden = self.task(detail.task), self._hidden_reasons(detail)
        if task.reason in hidden:
            task = replace(task, reason=None)
        if hidden:
            events = tuple(_without_reason(event, hidden) for event in events)
        return replace(detail, task=task, events=events)

    def event(self, event: E) -> E:
        """Return an event without what this reader may not see."""
        changes: dict[str, Any] = {}
        for name in event.__struct_fields__:
            value = getattr(event, name)
            if isinstance(value, Failure) and not self.tracebacks:
                changes[name] = self.failure(value)
            elif isinstance(value, By):
                changes[name] = self.seen_actor(value)
            elif name == "reason":
                changes[name] = self.reason(value)
        return replace(event, **changes) if changes else event

    def _hidden_reasons(self, detail: Detail) -> frozenset[str]:
        """Return the reasons that are hidden from this reader: other fields may repeat them."""
        acts = (getattr(event, "by", None) for event in detail.events)
        given = (by for by in acts if isinstance(by, By))
        return frozenset(by.reason for by in given if by.reason and not self.seen_actor(by).reason)


def _is_plain(reason: str) -> bool:
    """Return whether a reason only names the plan or bulk action, without a person's words."""
    found = _GIVEN_BY_MANY.match(reason)
    return found is not None and reason in (found[1], f"{found[1]} is paused")


def _without_reason(event: Event, said: frozenset[str]) -> Event:
    return replace(event, reason=None) if getattr(event, "reason", None) in said else event


WHOLE = Sight()
