"""SQLite stores for the contracts: each test has a file of its own."""

from pathlib import Path

import pytest

from holdfast.ports import Clock, Store
from holdfast.stores.sqlite import SqliteStore


class OnAFile:
    path: Path

    @pytest.fixture(autouse=True)
    def a_file_of_its_own(self, tmp_path: Path) -> None:
        self.path = tmp_path / "holdfast.db"

    async def open(self, clock: Clock) -> Store:
        store = SqliteStore(self.path, clock)
        await store.open()
        return store
