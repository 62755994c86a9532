"""The contracts over a Redis server of its own, as it is or with a mutant in its scripts.

A mutant of the general scripts is hunted without the straight path, which would hide it. A mutant
of the straight path is hunted by the tests that compare both ways.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path
from typing import ClassVar

import pytest
import pytest_asyncio

from holdfast.ports import Clock, Store
from holdfast.stores.redis.store import RedisStore
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract import DurableStoreContract
from holdfast.testing.contract.plans import DurablePlanStoreContract
from holdfast.testing.contract.triggers import DurableTriggerStoreContract
from verify.mutants.memory_contract import run_contract
from verify.servers import RedisServer

URL_OPTIONS = "MUTANTS_URL_OPTIONS"  # pytest imports this file a second time
COMPARISON = Path(__file__).parents[2] / "tests" / "stores" / "redis" / "straight"


class OnRedis:
    server: ClassVar[RedisServer]
    _numbers = count(1)
    namespace = ""

    @pytest.fixture(autouse=True, scope="class")
    def a_server(self) -> Iterator[None]:
        with RedisServer(appendonly=True) as server:
            OnRedis.server = server
            yield

    @pytest_asyncio.fixture(autouse=True)
    async def a_namespace(self) -> AsyncIterator[None]:
        self.namespace = f"n-{next(self._numbers)}"
        yield

    async def open(self, clock: Clock) -> Store:
        assert isinstance(clock, ManualClock)
        url = self.server.url + os.environ.get(URL_OPTIONS, "")
        store = RedisStore(url, clock, self.namespace, time=clock.times)
        await store.open()
        return store


class TestTriggers(OnRedis, DurableTriggerStoreContract):
    pass


class TestPlans(OnRedis, DurablePlanStoreContract):
    pass


class TestRedis(OnRedis, DurableStoreContract):
    pass


def contract(*, straight: bool) -> int:
    os.environ[URL_OPTIONS] = "" if straight else "?straight=off"
    return run_contract(Path(__file__))


def straight_comparison() -> int:
    """Compare the straight path with the general scripts, but for the tests of random moves."""
    plain = ["-q", "-x", "--no-header", "--tb=no", "-p", "no:cacheprovider", "-p", "no:xdist"]
    plain += ["-W", "ignore:Module already imported"]  # pytest is started late
    plain += ["--ignore", str(COMPARISON / "test_contract.py")]  # it runs the general way alone
    return int(pytest.main([*plain, "-m", "not slow", "-k", "not any_moves", str(COMPARISON)]))
