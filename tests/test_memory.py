"""The reference store passes the contract that all stores pass."""

from holdfast.ports import Clock, Store
from holdfast.stores.memory import MemoryStore
from holdfast.testing.contract import StoreContract


class TestMemory(StoreContract):
    async def open(self, clock: Clock) -> Store:
        return MemoryStore(clock)


async def test_a_store_in_memory_says_that_it_is_not_durable() -> None:
    from holdfast.testing.clock import ManualClock

    assert not MemoryStore(ManualClock()).durable
