"""A store whose verbs all pass through one function: for counts, faults and gates."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from holdfast.ports import AdminStore, PlanStore, Store, TaskStore, TriggerStore, ViewStore
from holdfast.ports.wrapped_store import Wait, WrappedStore

Verb = Callable[..., Awaitable[Any]]
Intercept = Callable[[str, Verb], Verb]  # the name ("tasks.apply") and the store's own verb

Part = TypeVar("Part")

PORTS: dict[str, type] = {
    "tasks": TaskStore,
    "views": ViewStore,
    "admin": AdminStore,
    "plans": PlanStore,
    "triggers": TriggerStore,
}


def verbs_of(part: str) -> tuple[str, ...]:
    """Return the verbs that a part of the port has, in their order."""
    return tuple(name for name in vars(PORTS[part]) if not name.startswith("_"))


class InterceptedStore(WrappedStore):
    """A store in which every verb of every part is what ``intercept`` makes of the store's own."""

    def __init__(self, store: Store, intercept: Intercept, *, wait: Wait | None = None) -> None:
        super().__init__(
            store,
            tasks=_part("tasks", store.tasks, intercept),
            views=_part("views", store.views, intercept),
            admin=_part("admin", store.admin, intercept),
            plans=_part("plans", store.plans, intercept),
            triggers=_part("triggers", store.triggers, intercept),
            wait=wait,
        )


def _part(name: str, part: Part, intercept: Intercept) -> Part:
    verbs = {verb: intercept(f"{name}.{verb}", getattr(part, verb)) for verb in verbs_of(name)}
    return cast(Part, SimpleNamespace(**verbs))
