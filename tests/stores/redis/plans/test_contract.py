"""Redis passes the contract of plans, on one server and on a Cluster."""

from holdfast.testing.contract.plans import DurablePlanStoreContract
from tests.support.redis.contract_stores import OnACluster, OnOneServer


class TestPlans(OnOneServer, DurablePlanStoreContract):
    pass


class TestPlansOnACluster(OnACluster, DurablePlanStoreContract):
    pass
