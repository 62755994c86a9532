import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.clock import ManualClock
from tests.support.cli.scene import Scene
from tests.support.cli.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A file that does not exist before the first task is submitted."""
    return World(tmp_path / "tasks.db")


@pytest.fixture
def app_name(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module beside the one who calls, whose app is the world's."""
    name = f"shop_{tmp_path.name.replace('-', '_')}"
    source = "import os\nfrom tests.support.cli.world import App\n"
    source += "app = App(os.environ['HOLDFAST_STORE']).app\n"
    (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return f"{name}:app"


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    clock = ManualClock()
    store = SqliteStore(tmp_path / "tasks.db", clock)
    await store.open()
    made = Scene(store, clock)
    async with made.app:
        yield made
    await store.close()
