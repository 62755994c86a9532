"""Redis passes the contract that all stores pass, and that of those that outlive a process."""

import pytest

from holdfast.ports import Clock, Store
from holdfast.stores.redis.store import RedisStore
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract import DurableStoreContract
from verify.servers import RedisServer


class TestRedis(DurableStoreContract):
    url: str
    namespace: str

    @pytest.fixture(autouse=True)
    def a_namespace_of_its_own(self, redis_server: RedisServer, redis_namespace: str) -> None:
        self.url, self.namespace = redis_server.url, redis_namespace

    async def open(self, clock: Clock) -> Store:
        assert isinstance(clock, ManualClock)
        store = RedisStore(self.url, clock, self.namespace, time=clock.times)
        await store.open()
        return store
