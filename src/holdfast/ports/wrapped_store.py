"""A store over another one, with some of its parts replaced."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol

from holdfast.ports.admin import AdminStore
from holdfast.ports.plans import PlanStore
from holdfast.ports.store import Store, Topic
from holdfast.ports.tasks import TaskStore
from holdfast.ports.triggers import TriggerStore
from holdfast.ports.views import ViewStore


class Wait(Protocol):
    def __call__(
        self, topic: Topic, ticket: int, *, timeout: float
    ) -> Coroutine[Any, Any, None]: ...


class WrappedStore:
    """A store with some parts replaced; every other part is that of the wrapped store itself."""

    def __init__(
        self,
        store: Store,
        *,
        tasks: TaskStore | None = None,
        views: ViewStore | None = None,
        admin: AdminStore | None = None,
        plans: PlanStore | None = None,
        triggers: TriggerStore | None = None,
        wait: Wait | None = None,
    ) -> None:
        self._store = store
        self.tasks = tasks or store.tasks
        self.views = views or store.views
        self.admin = admin or store.admin
        self.plans = plans or store.plans
        self.triggers = triggers or store.triggers
        self.url, self.file = store.url, store.file
        self.open, self.close, self.detach = store.open, store.close, store.detach
        self.partitioned_id, self.colocated_id = store.partitioned_id, store.colocated_id
        self.trigger_id, self.ticket = store.trigger_id, store.ticket
        self.wait: Wait = wait or store.wait

    @property
    def durable(self) -> bool:
        return self._store.durable
