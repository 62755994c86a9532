"""SQLite passes the contract that all stores pass, and that of those that outlive a process."""

from pathlib import Path

import pytest

from holdfast.ports import Clock, Store
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.contract import DurableStoreContract


class TestSqlite(DurableStoreContract):
    path: Path

    @pytest.fixture(autouse=True)
    def a_file_of_its_own(self, tmp_path: Path) -> None:
        self.path = tmp_path / "holdfast.db"

    async def open(self, clock: Clock) -> Store:
        store = SqliteStore(self.path, clock)
        await store.open()
        return store
