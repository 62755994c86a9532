"""Fixtures for all tests; `holdfast_engine` comes from the plugin that users get."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from holdfast import Holdfast
from tests.support import scratch
from verify.servers import SERVER_VARIABLE

# What fails in a helper says its values, too.
_TESTS = Path(__file__).parent
_HELPERS = [path.relative_to(_TESTS.parent) for path in (_TESTS / "support").rglob("[a-z]*.py")]
pytest.register_assert_rewrite(
    *(".".join(path.with_suffix("").parts) for path in _HELPERS if path.stem != "scratch")
)

scratch.keep_in_memory()

# How long an example takes says nothing about it.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

pytest_plugins = [
    "tests.support.redis.redis_servers",
    "tests.support.redis.path_comparison",
    "tests.support.every_store",
    "tests.support.stores.golden_stores",
    "tests.support.mongo_servers",
    "tests.support.postgres_servers",
    "tests.support.notified_app",
    "tests.support.scenario_world",
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
