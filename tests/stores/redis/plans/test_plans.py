"""Redis passes the contracts of triggers and of plans, on one server and on a Cluster."""

from collections.abc import Iterator

import pytest

from holdfast.ports import Clock, Store
from holdfast.stores.redis.store import RedisStore
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.plans import DurablePlanStoreContract
from holdfast.testing.contract.triggers import DurableTriggerStoreContract
from verify.servers import Cluster, RedisServer


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(replicas=False, appendonly=True) as started:
        yield started


class OnOneServer:
    url: str
    namespace: str

    @pytest.fixture(autouse=True)
    def a_namespace_of_its_own(self, redis_server: RedisServer, redis_namespace: str) -> None:
        self.url, self.namespace = redis_server.url, redis_namespace

    async def open(self, clock: Clock) -> Store:
        return await opened(self.url, clock, self.namespace)


class OnACluster:
    url: str
    namespace: str

    @pytest.fixture(autouse=True)
    def a_namespace_of_its_own(self, cluster: Cluster, redis_namespace: str) -> None:
        self.url, self.namespace = f"{cluster.url}?partitions=1", redis_namespace

    async def open(self, clock: Clock) -> Store:
        return await opened(self.url, clock, self.namespace)


async def opened(url: str, clock: Clock, namespace: str) -> RedisStore:
    assert isinstance(clock, ManualClock)
    store = RedisStore(url, clock, namespace, time=clock.times)
    await store.open()
    return store


class TestTriggers(OnOneServer, DurableTriggerStoreContract):
    pass


class TestPlans(OnOneServer, DurablePlanStoreContract):
    pass


class TestTriggersOnACluster(OnACluster, DurableTriggerStoreContract):
    pass


class TestPlansOnACluster(OnACluster, DurablePlanStoreContract):
    pass
