"""SQLite passes the contract of plans."""

from holdfast.testing.contract.plans import DurablePlanStoreContract
from tests.support.sqlite.contract_stores import OnAFile


class TestPlans(OnAFile, DurablePlanStoreContract):
    pass
