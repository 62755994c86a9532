"""One test on each store: `place` opens a store of memory, SQLite or Redis on a manual clock."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from holdfast.ports import Store
from holdfast.stores.memory import MemoryStore
from holdfast.stores.redis.store import RedisStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing import ManualClock
from verify.servers import RedisServer


class Place:
    """A place for the records of one store: opened again, it is another process's store."""

    def __init__(self, kind: str, clock: ManualClock, make: Callable[[], Store]) -> None:
        self.kind, self.clock, self._make = kind, clock, make
        self._opened: list[Store] = []

    @property
    def store(self) -> Store:
        return self._opened[-1]

    async def open(self) -> Store:
        if not self._opened or self.kind != "memory":
            self._opened.append(self._make())
            await self.store.open()
        return self.store

    async def close(self) -> None:
        for store in self._opened:
            await store.close()


@pytest.fixture(params=["memory", "sqlite", "redis"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """A store with nothing in it; in the end its doctor finds nothing."""
    clock, kind = ManualClock(), str(request.param)

    def make() -> Store:
        if kind == "memory":
            return MemoryStore(clock)
        if kind == "sqlite":
            return SqliteStore(tmp_path / "holdfast.db", clock)
        server: RedisServer = request.getfixturevalue("redis_server")
        namespace: str = request.getfixturevalue("redis_namespace")
        return RedisStore(server.url, clock, namespace, time=clock.times)

    place = Place(kind, clock, make)
    await place.open()
    yield place
    findings = await place.store.admin.doctor(fix=False, limit=100)
    await place.close()
    assert list(findings) == []
