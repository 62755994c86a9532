"""Redis without the straight path passes the contract, too: the general scripts know all of it."""

import pytest

from holdfast.testing.contract import DurableStoreContract
from tests.support.redis.contract_stores import RedisContractStore
from verify.servers import RedisServer


class TestRedisWithoutTheStraightPath(RedisContractStore, DurableStoreContract):
    @pytest.fixture(autouse=True)
    def a_namespace_of_its_own(self, redis_server: RedisServer, redis_namespace: str) -> None:
        self.url, self.namespace = f"{redis_server.url}?straight=off", redis_namespace
