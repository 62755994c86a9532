"""The base of the contract: the hook to implement, and a store to work on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from holdfast.ports import Clock, Store
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.store_driver import StoreDriver


class Contract(ABC):
    pytestmark = pytest.mark.asyncio

    @abstractmethod
    async def open(self, clock: Clock) -> Store:
        """A store, open and empty, that tells the time by ``clock``. The suite closes it."""

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest_asyncio.fixture
    async def store(self, clock: ManualClock) -> AsyncIterator[Store]:
        store = await self.open(clock)
        try:
            yield store
            findings = await store.admin.doctor(fix=False, limit=100)
            assert not findings, "\n".join(f"{f.invariant} {f.task_id} {f.says}" for f in findings)
        finally:
            await store.close()

    @pytest.fixture
    def driver(self, store: Store, clock: ManualClock) -> StoreDriver:
        return StoreDriver(store, clock)
