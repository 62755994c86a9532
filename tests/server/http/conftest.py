"""A server that must be unharmed after each test; modules with other needs have their own."""

from collections.abc import Iterator

import pytest

from tests.support.server.listener import Listening, listening
from tests.support.server.wire import ask, free, kept


@pytest.fixture(scope="module")
def running() -> Iterator[Listening]:
    with listening(free(), workers=0) as served:
        yield served


@pytest.fixture
def server(running: Listening) -> Iterator[Listening]:
    """Yield a server; afterwards it must have accepted nothing, and answer a good request."""
    yield running
    assert kept(running) == 0, "something was accepted"
    assert ask(running, "GET", "/api/tasks").status == 200
