"""Fixtures for all tests; `holdfast_engine` comes from the plugin that users get."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from holdfast import Holdfast
from holdfast.testing.servers import SERVER_VARIABLE
from tests import scratch

# What fails in a helper says its values, too.
_IMPORTED = {"__init__", "conftest", "scratch"}
_HERE = {path.stem for path in Path(__file__).parent.iterdir()} - _IMPORTED
pytest.register_assert_rewrite(*(f"tests.{name}" for name in sorted(_HERE)))

scratch.keep_in_memory()

# How long an example takes says nothing about it.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

pytest_plugins = [
    "tests.redis_servers",
    "tests.every_store",
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
