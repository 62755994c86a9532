"""Redis stores for the contracts: each test has its own namespace, on a server or a Cluster."""

from collections.abc import Iterator

import pytest

from holdfast.ports import Clock, Store
from holdfast.stores.redis.store import RedisStore
from holdfast.testing.clock import ManualClock
from verify.servers import Cluster, RedisServer


class RedisContractStore:
    """Opens the namespace of a test."""

    url: str
    namespace: str

    async def open(self, clock: Clock) -> Store:
        assert isinstance(clock, ManualClock)
        store = RedisStore(self.url, clock, self.namespace, time=clock.times)
        await store.open()
        return store


class OnOneServer(RedisContractStore):
    @pytest.fixture(autouse=True)
    def a_namespace_of_its_own(self, redis_server: RedisServer, redis_namespace: str) -> None:
        self.url, self.namespace = redis_server.url, redis_namespace


class OnACluster(RedisContractStore):
    @pytest.fixture(scope="class")
    @classmethod
    def cluster(cls) -> Iterator[Cluster]:
        with Cluster(replicas=False, appendonly=True) as started:
            yield started

    @pytest.fixture(autouse=True)
    def a_namespace_of_its_own(self, cluster: Cluster, redis_namespace: str) -> None:
        self.url, self.namespace = f"{cluster.url}?partitions=1", redis_namespace
