"""The store contract over the memory store, as it is or with a mutant alive in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.ports import Clock, Store
from holdfast.stores.memory import MemoryStore
from holdfast.testing.contract import StoreContract


class TestMemory(StoreContract):
    async def open(self, clock: Clock) -> Store:
        return MemoryStore(clock)


def contract() -> int:
    return run_contract(Path(__file__))


def run_contract(here: Path) -> int:
    """Run the contract with no plugin but the one it needs: some that may be installed start
    slowly."""
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    plain = ["-c", os.devnull, "--rootdir", str(here.parent)]
    plain += ["-p", "no:cacheprovider", "-p", "pytest_asyncio.plugin"]
    plain += ["-o", "asyncio_default_fixture_loop_scope=function"]
    return int(pytest.main(["-q", "-x", "--no-header", "--tb=no", *plain, str(here)]))
