from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.clock import ManualClock
from tests.cli.scene import Scene
from tests.cli.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A file that does not exist before the first task is submitted."""
    return World(tmp_path / "tasks.db")


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    clock = ManualClock()
    store = SqliteStore(tmp_path / "tasks.db", clock)
    await store.open()
    made = Scene(store, clock)
    async with made.app:
        yield made
    await store.close()
