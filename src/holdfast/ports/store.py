"""A store is a bundle of five parts, with the signals and ids that they share."""

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
    READY = "ready"  # something may be there to claim, or be due sooner than was known
    RESTED = "rested"  # a task has settled or been parked
    DUE = "due"  # a trigger or a plan may have to be looked at sooner than was known


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """A finished backup."""

    path: str
    size_bytes: int


class FileStore(Protocol):
    async def backup(self, target: str | os.PathLike[str]) -> Copy:
        """Copy the store as it is now into a new file, while everything goes on."""


class Store(Protocol):
    url: str  # how to reach it, without secrets

    @property
    def durable(self) -> bool:
        """Return whether an answered write outlives a crash, as the last check of settings found
        it."""

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
        """The file that is the store, if it is one: it can be copied."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def detach(self) -> None:
        """Let go of the loop that calls, which will not use the store again; others still may."""

    def partitioned_id(self, name: str, *, tenant: str | None, key: str | None) -> str:
        """Return the id for a new task under which the store finds it again by the id alone."""

    def colocated_id(self, name: str, *, task_id: str = "", plan_id: str = "") -> str:
        """Return the id for a new task that is to live where that task or plan does."""

    def trigger_id(self, name: str, *, tenant: str | None) -> str:
        """Return the id under which the store finds a trigger by the id alone; an id is its own."""

    def ticket(self, topic: Topic) -> int:
        """Return a ticket, taken before a read; ``wait`` with it misses nothing that came after."""

    async def wait(self, topic: Topic, ticket: int, *, timeout: float) -> None:
        """Wait until something of the topic may have changed since the ticket, or the timeout."""
