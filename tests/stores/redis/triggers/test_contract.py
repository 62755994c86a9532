"""Redis passes the contract of triggers, on one server and on a Cluster."""

from holdfast.testing.contract.triggers import DurableTriggerStoreContract
from tests.support.redis.contract_stores import OnACluster, OnOneServer


class TestTriggers(OnOneServer, DurableTriggerStoreContract):
    pass


class TestTriggersOnACluster(OnACluster, DurableTriggerStoreContract):
    pass
