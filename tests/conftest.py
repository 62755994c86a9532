"""Fixtures for all tests; `holdfast_engine` comes from the plugin that users get."""

import os
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.testing.servers import SERVER_VARIABLE

# What fails in a helper says its values, too.
_HERE = {path.stem for path in Path(__file__).parent.iterdir()} - {"__init__", "conftest"}
pytest.register_assert_rewrite(*(f"tests.{name}" for name in sorted(_HERE)))

pytest_plugins = [
    "tests.redis_servers",
    "tests.mongo_servers",
    "tests.postgres_servers",
    "tests.telling",
    "tests.scenario_world",
]


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("HOLDFAST_") and name != SERVER_VARIABLE:
            monkeypatch.delenv(name)


@pytest.fixture
def app() -> Holdfast:
    """An app with nothing declared; its store is never opened, the engine brings its own."""
    return Holdfast("memory://")
