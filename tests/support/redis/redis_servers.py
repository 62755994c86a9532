"""Fixtures with real Redis servers: one for all tests of a process, others at will."""

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from typing import Protocol, Unpack

import pytest

from holdfast.stores.redis.client import address, driver_connection
from verify.servers import Config, RedisServer

AS_IT_COMES_SECONDS = address.TIMEOUT_SECONDS
PATIENCE_SECONDS = 60.0

_numbers = count(1)


@pytest.fixture(autouse=True)
def _patience_with_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow answer is an answer. Who wants to see an outage says ``timeout=`` in the URL."""
    monkeypatch.setattr(address, "TIMEOUT_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(driver_connection, "CONNECT_SECONDS_MAX", PATIENCE_SECONDS)


class StartRedis(Protocol):
    def __call__(self, **config: Unpack[Config]) -> RedisServer:
        """A server of one's own, until the test ends."""


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """One server for all tests of this process: keep to your ``redis_namespace``."""
    with RedisServer(appendonly=True, appendfsync="everysec") as server:
        yield server


@pytest.fixture
def redis_namespace() -> str:
    """A namespace that no other test on ``redis_server`` uses."""
    return f"test-{next(_numbers)}"


@pytest.fixture
def start_redis() -> Iterator[StartRedis]:
    """``server = start_redis(appendonly=True)``"""
    with ExitStack() as started:

        def start(**config: Unpack[Config]) -> RedisServer:
            return started.enter_context(RedisServer(**config))

        yield start
