"""One round of chaos: how much of what, and where its files are."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from holdfast.clock import SystemClock
from holdfast.engine.store_url import store_from_url
from holdfast.errors import StoreUnavailable
from holdfast.ports import Clock, Store
from verify.chaos import tasks
from verify.chaos.tasks import ChaosOrder
from verify.proxy import Harm


def do_nothing() -> None:
    """Do nothing: the default where a test may put its sabotage."""


class Subject(StrEnum):
    """The subject of a round."""

    TASKS = "tasks"
    TRIGGERS = "triggers"
    PLANS = "plans"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPlan:
    name: str
    store: str  # its URL
    folder: Path  # for the ledger and the marks
    tenants: int
    kills: int
    zombies: int
    tasks: int  # to submit; in a round of triggers or plans: how many of these
    seed: int
    seconds: float  # the round ends then, whatever has happened
    subject: Subject = Subject.TASKS
    began: float = field(default_factory=time.time)
    server_kills: int = 0
    wire: Mapping[Harm, int] = field(default_factory=dict)  # what the proxy has to deal
    proxied: str | None = None  # URL of the same store through the proxy
    lease_seconds: float = 1.0
    workers: int = 12
    slots: int = 4
    kill_every_seconds: float = 0.03  # on average; a kill waits for a worker that has begun
    sabotage: Callable[[], None] = do_nothing  # run in each child before it starts, for tests
    straight: bool = True  # False: on a server of our own, all goes through the general scripts
    durable: bool = True  # False, for tests: a server of our own keeps nothing when it is killed

    @property
    def orders(self) -> list[ChaosOrder]:
        return tasks.orders(self.tasks, tenants=self.tenants, seed=self.seed)

    @property
    def submitter_kills(self) -> int:
        return max(2, self.kills // 15)

    @property
    def operator_kills(self) -> int:
        return max(1, self.kills // 50)

    @property
    def submitted(self) -> SharedMark:
        return SharedMark(self.folder / "submitted")

    @property
    def calm(self) -> SharedMark:
        """Return the mark that no more kills will come."""
        return SharedMark(self.folder / "calm")

    @property
    def harm(self) -> Gauge:
        """Return the gauge of the share of kills and zombies that has been dealt."""
        return Gauge(self.folder / "harm")

    @property
    def dealt(self) -> HarmCounts:
        """Return the counts of the harm that the proxy has dealt."""
        return HarmCounts(self.folder / "dealt")

    @property
    def caught_up(self) -> SharedMark:
        """Return the mark that everything due when the calm began has been answered for."""
        return SharedMark(self.folder / "caught-up")

    @property
    def settled(self) -> SharedMark:
        return SharedMark(self.folder / "settled")

    def preload(self) -> None:
        """Import what the store needs once, before the children are forked."""
        store_from_url(self.store, SystemClock(), "chaos")

    async def open_store(self, *, proxied: bool = False, clock: Clock | None = None) -> Store:
        url = self.proxied if proxied and self.proxied else self.store
        store = store_from_url(url, clock or SystemClock(), "chaos")
        try:
            await store.open()
        except StoreUnavailable:
            await store.close()
            raise
        return store


@dataclass(frozen=True, slots=True)
class SharedMark:
    """A fact that one process shares with the others."""

    path: Path

    def set(self) -> None:
        self.path.touch()

    def is_set(self) -> bool:
        return self.path.exists()

    @property
    def set_at(self) -> float:
        return self.path.stat().st_mtime


@dataclass(frozen=True, slots=True)
class Gauge:
    """A number that one process shares with the others."""

    path: Path

    def set(self, value: float) -> None:
        _replace(self.path, str(value))

    def read(self) -> float:
        return float(_text(self.path) or 0)


@dataclass(frozen=True, slots=True)
class HarmCounts:
    """Counts of each kind of harm that was dealt, shared by one process with the others."""

    path: Path

    def set(self, counts: Mapping[Harm, int]) -> None:
        _replace(self.path, " ".join(f"{harm}={count}" for harm, count in counts.items()))

    def read(self) -> Counter[Harm]:
        pairs = (pair.split("=") for pair in _text(self.path).split())
        return Counter({Harm(name): int(count) for name, count in pairs})


def _replace(path: Path, text: str) -> None:
    """Replace the file in one step, so that nobody reads half of it."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text, encoding="ascii")
    fresh.replace(path)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except FileNotFoundError:
        return ""
