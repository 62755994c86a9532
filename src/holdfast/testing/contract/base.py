"""The base of the contract: the hook to implement, and the drivers of the store under test."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import ClassVar, Self

import pytest
import pytest_asyncio

from holdfast.domain.plan.plan import Plan
from holdfast.domain.task.task import Task
from holdfast.domain.trigger.trigger import Trigger
from holdfast.ports import Clock, Store
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.plan_driver import PlanStoreDriver
from holdfast.testing.contract.drivers.store_driver import StoreDriver
from holdfast.testing.contract.drivers.switch_driver import SwitchDriver
from holdfast.testing.contract.drivers.trigger_driver import TriggerDriver


class Drivers:
    """A store, its clock, and a driver for each of its parts."""

    clock: ManualClock
    store: Store
    driver: StoreDriver
    plans: PlanStoreDriver
    switches: SwitchDriver
    triggers: TriggerDriver

    def attach(self, store: Store, clock: ManualClock) -> Self:
        self.store, self.clock = store, clock
        self.driver = StoreDriver(store, clock)
        self.plans, self.switches = PlanStoreDriver(store, clock), SwitchDriver(store, clock)
        self.triggers = TriggerDriver(store, clock, self.driver)
        return self


class Contract(Drivers, ABC):
    # Not autouse: the autouse fixtures of a derived class come first, so ``open`` may need them.
    pytestmark: ClassVar = [pytest.mark.asyncio, pytest.mark.usefixtures("open_for_test")]

    @abstractmethod
    async def open(self, clock: Clock) -> Store:
        """Return an open, empty store that takes its time from ``clock``; the suite closes it."""

    @pytest_asyncio.fixture
    async def open_for_test(self) -> AsyncIterator[None]:
        clock = ManualClock()
        store = self.attach(await self.open(clock), clock).store
        try:
            yield
            findings = await store.admin.doctor(fix=False, limit=100)
            assert not findings, "\n".join(
                f"{f.invariant} {f.task_id} {f.message}" for f in findings
            )
        finally:
            await store.close()

    @pytest_asyncio.fixture
    async def task(self) -> Task:
        """Return a task that a worker runs."""
        return await self.driver.start()

    @pytest_asyncio.fixture
    async def plan(self) -> Plan:
        """Return a plan that a driver of plans has claimed."""
        return await self.plans.start()

    @pytest_asyncio.fixture(name="leased")
    async def lease_trigger(self) -> Trigger:
        """Return a trigger that is due and that a scheduler has claimed."""
        return await self.triggers.start()

    @asynccontextmanager
    async def open_again(self) -> AsyncIterator[Drivers]:
        """Open the same data once more, as another process does."""
        store = await self.open(self.clock)
        try:
            yield Drivers().attach(store, self.clock)
        finally:
            await store.close()

    @asynccontextmanager
    async def restart(self) -> AsyncIterator[Drivers]:
        """Close the store, open the same data again, and at the end open the store once more."""
        await self.store.close()
        async with self.open_again() as again:
            yield again
        await self.store.open()
