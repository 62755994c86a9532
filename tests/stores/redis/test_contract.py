"""Redis passes the contract that all stores pass, and that of those that outlive a process."""

from holdfast.testing.contract import DurableStoreContract
from tests.support.redis.contract_stores import OnOneServer


class TestRedis(OnOneServer, DurableStoreContract):
    pass
