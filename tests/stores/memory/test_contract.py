"""The reference store passes the contracts of tasks, of plans and of triggers."""

from holdfast.ports import Clock, Store
from holdfast.stores.memory import MemoryStore
from holdfast.testing.contract import StoreContract
from holdfast.testing.contract.plans import PlanStoreContract
from holdfast.testing.contract.triggers import TriggerStoreContract


class InMemory:
    async def open(self, clock: Clock) -> Store:
        return MemoryStore(clock)


class TestMemory(InMemory, StoreContract):
    pass


class TestMemoryPlans(InMemory, PlanStoreContract):
    pass


class TestMemoryTriggers(InMemory, TriggerStoreContract):
    pass
