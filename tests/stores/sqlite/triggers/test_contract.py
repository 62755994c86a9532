"""SQLite passes the contract of triggers."""

from holdfast.testing.contract.triggers import DurableTriggerStoreContract
from tests.support.sqlite.contract_stores import OnAFile


class TestTriggers(OnAFile, DurableTriggerStoreContract):
    pass
