"""An operator's command that meets another writer: decide again, and give up in the end."""

from collections.abc import Sequence

import pytest

from holdfast import Context, Holdfast, Status
from holdfast.domain.errors import Contended
from holdfast.domain.task.transition import Outcome, Stale, Transition
from holdfast.stores.memory import MemoryStore
from holdfast.stores.memory.tasks import MemoryTasks
from holdfast.testing import ManualClock
from holdfast.testing.plugin import MakeEngine


class BusyTasks(MemoryTasks):
    """Somebody else is always quicker, for a while."""

    quicker = 0

    async def apply(self, batch: Sequence[Transition]) -> Sequence[Outcome]:
        if self.quicker > 0:
            self.quicker -= 1
            return [Stale(self._state.tasks[transition.task_id]) for transition in batch]
        return await super().apply(batch)


class Busy(MemoryStore):
    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.tasks: BusyTasks = BusyTasks(self.state)


@pytest.fixture
def store() -> Busy:
    return Busy(ManualClock())


async def test_a_command_that_came_second_is_decided_again(
    app: Holdfast, store: Busy, holdfast_engine: MakeEngine
) -> None:
    @app.task("note")
    async def note(ctx: Context) -> None: ...

    holdfast_engine(app, store=store)
    handle = await note.submit()
    store.tasks.quicker = 5
    assert await handle.pause() is Status.PAUSED
    assert len(await store.admin.audits(limit=10)) == 1


async def test_a_command_that_always_comes_second_gives_up(
    app: Holdfast, store: Busy, holdfast_engine: MakeEngine
) -> None:
    @app.task("note")
    async def note(ctx: Context) -> None: ...

    holdfast_engine(app, store=store)
    handle = await note.submit()
    store.tasks.quicker = 1_000
    with pytest.raises(Contended):
        await handle.pause()
    assert store.tasks.quicker > 900, "a bound on everything"
