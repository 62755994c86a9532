"""One round of chaos: how much of what, and where its files are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holdfast.app.opening import store_from_url
from holdfast.clock import SystemClock
from holdfast.ports import Store
from holdfast.testing.chaos import tasks
from holdfast.testing.chaos.tasks import Order


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    name: str
    store: str  # its URL
    folder: Path  # for the ledger and the marks
    tenants: int
    kills: int
    zombies: int
    tasks: int
    seed: int
    seconds: float  # the round ends then, whatever has happened
    lease_seconds: float = 1.0
    workers: int = 6
    slots: int = 4
    sabotage: Callable[[], None] = _nothing  # run in each worker before it starts, for tests

    @property
    def orders(self) -> list[Order]:
        return tasks.orders(self.tasks, tenants=self.tenants, seed=self.seed)

    @property
    def submitter_kills(self) -> int:
        return max(2, self.kills // 15)

    @property
    def operator_kills(self) -> int:
        return max(1, self.kills // 50)

    @property
    def submitted(self) -> Mark:
        return Mark(self.folder / "submitted")

    @property
    def calm(self) -> Mark:
        """No more kills will come."""
        return Mark(self.folder / "calm")

    @property
    def harm(self) -> Gauge:
        """The share of kills and zombies that has been dealt."""
        return Gauge(self.folder / "harm")

    @property
    def settled(self) -> Mark:
        return Mark(self.folder / "settled")

    async def open_store(self) -> Store:
        store = store_from_url(self.store, SystemClock(), "chaos")
        await store.open()
        return store


@dataclass(frozen=True, slots=True)
class Mark:
    """A fact that one process tells the others."""

    path: Path

    def set(self) -> None:
        self.path.touch()

    def is_set(self) -> bool:
        return self.path.exists()


@dataclass(frozen=True, slots=True)
class Gauge:
    """A number that one process tells the others."""

    path: Path

    def set(self, value: float) -> None:
        fresh = self.path.with_suffix(".new")
        fresh.write_text(str(value), encoding="ascii")
        fresh.replace(self.path)

    def read(self) -> float:
        try:
            return float(self.path.read_text(encoding="ascii"))
        except FileNotFoundError:
            return 0.0
