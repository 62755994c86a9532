"""The pytest plugin: `holdfast_engine` runs an app in memory, on a clock that the test moves.

It needs no other plugin. The tests that use it need some way to be async: pytest-asyncio, anyio,
or a call of ``asyncio.run`` inside the test.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Protocol

import pytest

from holdfast.engine import Holdfast
from holdfast.testing.engine import Engine


class MakeEngine(Protocol):
    def __call__(self, app: Holdfast, **options: Any) -> Engine:
        """Put the app on memory and a manual clock until the test ends."""


@pytest.fixture
def holdfast_engine() -> Iterator[MakeEngine]:
    """The real engine in memory, on a clock that you move: ``engine = holdfast_engine(app)``."""
    with ExitStack() as made:

        def make(app: Holdfast, **options: Any) -> Engine:
            engine = Engine(app, **options)
            made.callback(engine.close)
            return engine

        yield make
