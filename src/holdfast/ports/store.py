"""The interface of a new store: the bundle `Store` with its five parts, the signals and the ids."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Protocol

import msgspec

from holdfast.ports.admin import AdminStore
from holdfast.ports.plans import PlanStore
from holdfast.ports.tasks import TaskStore
from holdfast.ports.triggers import TriggerStore
from holdfast.ports.views import ViewStore


class Topic(StrEnum):
    READY = "ready"  # a task may be there to claim, or be due sooner than was known
    RESTED = "rested"  # a task has settled or been parked
    DUE = "due"  # a trigger or a plan may be due sooner than was known


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """A finished backup."""

    path: str
    size_bytes: int


class FileStore(Protocol):
    async def backup(self, target: str | os.PathLike[str]) -> Copy:
        """Copy the store as it is now into a new file, while work goes on."""


class Store(Protocol):
    """A store as the engine sees it: five parts, signals and ids."""

    url: str  # the address, without secrets

    @property
    def durable(self) -> bool:
        """Return whether an answered write outlives a crash, by the last check of settings."""

    @property
    def tasks(self) -> TaskStore: ...

    @property
    def views(self) -> ViewStore: ...

    @property
    def admin(self) -> AdminStore: ...

    @property
    def plans(self) -> PlanStore: ...

    @property
    def triggers(self) -> TriggerStore: ...

    @property
    def file(self) -> FileStore | None:
        """Return the store as a file that can be copied; None: it is no file."""

    async def open(self) -> None:
        """Connect, and make or check what is stored; no other verb is called before."""

    async def close(self) -> None:
        """Release everything; no verb is called afterwards."""

    async def detach(self) -> None:
        """Release the calling event loop, which does not use the store again; others still may."""

    def partitioned_id(self, name: str, *, tenant: str | None, key: str | None) -> str:
        """Return an id for a new task by which alone the store finds the task."""

    def colocated_id(self, name: str, *, task_id: str = "", plan_id: str = "") -> str:
        """Return an id for a new task in the same partition as that task or plan."""

    def trigger_id(self, name: str, *, tenant: str | None) -> str:
        """Return an id by which alone the store finds a trigger; an id stays as it is."""

    def ticket(self, topic: Topic) -> int:
        """Return a ticket to take before a read; ``wait`` with it misses no later signal."""

    async def wait(self, topic: Topic, ticket: int, *, timeout: float) -> None:
        """Wait until something of the topic may have changed since the ticket, or the timeout."""
