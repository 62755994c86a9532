"""The contracts over a Redis server of its own, as it is or with a mutant in its scripts."""

from __future__ import annotations

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
        store = RedisStore(self.server.url, clock, self.namespace, time=clock.times)
        await store.open()
        return store


class TestTriggers(OnRedis, DurableTriggerStoreContract):
    pass


class TestPlans(OnRedis, DurablePlanStoreContract):
    pass


class TestRedis(OnRedis, DurableStoreContract):
    pass


def contract() -> int:
    return run_contract(Path(__file__))


def straight_comparison() -> int:
    """Compare the straight path with the general scripts, without the tests of random moves."""
    plain = ["-q", "-x", "--no-header", "--tb=no", "-p", "no:cacheprovider", "-p", "no:xdist"]
    plain += ["-W", "ignore:Module already imported"]  # pytest is started late
    return int(pytest.main([*plain, "-k", "not any_moves", str(COMPARISON)]))
