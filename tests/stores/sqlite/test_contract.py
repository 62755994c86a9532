"""SQLite passes the contract that all stores pass, and that of those that outlive a process."""

from holdfast.testing.contract import DurableStoreContract
from tests.support.sqlite.contract_stores import OnAFile


class TestSqlite(OnAFile, DurableStoreContract):
    pass
