"""Every engine test ends with a look at the store: record, queues, lines and keys must agree."""

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.ports import Store
from holdfast.stores.memory import MemoryStore
from holdfast.stores.memory.doctor import examine
from holdfast.testing import Engine
from holdfast.testing.plugin import MakeEngine
from tests.support.runtime.helpers import FlakyStore
from tests.support.runtime.schedules import Say, World, an_app


@pytest.fixture
def holdfast_engine(holdfast_engine: MakeEngine) -> Iterator[MakeEngine]:
    made: list[Engine] = []

    def make(app: Holdfast, **options: Any) -> Engine:
        made.append(holdfast_engine(app, **options))
        return made[-1]

    yield make
    for engine in made:
        store: Store = engine.store._store
        if isinstance(store, FlakyStore):
            store = store._store
        if isinstance(store, MemoryStore):
            assert examine(store.state) == []


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


@pytest.fixture
def apped(world: World) -> tuple[Holdfast, Say]:
    return an_app(world)
