"""A suspect of crashes in a process of the user's: nothing begins beside it, for 60 s at most."""

from collections.abc import Sequence

import pytest

from holdfast import Context, Handle, Holdfast, Status
from holdfast.domain.task.events import LeaseLost
from holdfast.domain.task.task import FailureKind
from holdfast.ports import Beat, Clock, Renewal
from holdfast.stores.memory import MemoryStore
from holdfast.stores.memory.state import MemoryState
from holdfast.stores.memory.tasks import MemoryTasks
from holdfast.testing import Engine, ManualClock
from holdfast.testing.plugin import MakeEngine
from tests.support.runtime.helpers import Gate, events_of, task_of

GATE_SECONDS = 60.0
PAST_A_LEASE = "40s"


class NotingTasks(MemoryTasks):
    """Keeps what workers note of the tasks that they run, in the order in which it comes."""

    def __init__(self, state: MemoryState) -> None:
        super().__init__(state)
        self.happened: list[tuple[str, object]] = []

    async def renew(
        self, beat: Beat, batch: Sequence[Renewal], *, lease_seconds: float
    ) -> Sequence[bool]:
        answers = await super().renew(beat, batch, lease_seconds=lease_seconds)
        for one in batch:
            if one.progress is not None and one.progress.begun:
                self.happened.append((one.task_id, one.progress.alone))
        return answers


class NotingStore(MemoryStore):
    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.tasks: NotingTasks = NotingTasks(self.state)


class Bench:
    """A task that has been in two counted crashes and stands in its next run, and a bystander."""

    def __init__(self, app: Holdfast, make: MakeEngine) -> None:
        self.clock = ManualClock()
        self.store = NotingStore(self.clock)
        self.gate, self.began_at = Gate(), 0.0
        self.beside = Gate()

        @app.task("suspect")
        async def suspect(ctx: Context) -> str:
            if (await task_of(self.engine, self.handle)).crashes >= 2:
                self.began_at = self.clock.steady()
                await self.gate.stand()
            return "done"

        @app.task("bystander")
        async def bystander(ctx: Context) -> str:
            self.store.tasks.happened.append(("bystander", "begins"))
            await self.beside.stand()
            return "done"

        self.suspect, self.bystander = suspect, bystander
        self.engine: Engine = make(app, store=self.store, clock=self.clock)
        self.handle: Handle[str]

    async def begin(self) -> None:
        """Let it crash until it is a suspect, and come to stand in its run alone."""
        self.engine.crash_at("suspect", when="after", times=3)  # the first is too quick to count
        self.handle = await self.suspect.submit()
        for _ in range(300):
            await self.engine.start()
            await self.clock.elapse("1s")
            if self.gate.reached.is_set():
                break
        assert self.gate.reached.is_set()
        assert (await task_of(self.engine, self.handle)).crashes == 2

    async def elapse_until(self, seconds: float) -> None:
        """Until so long after the suspect has begun."""
        await self.clock.elapse(self.began_at + seconds - self.clock.steady())

    async def die(self) -> None:
        """The process is killed, and another takes over when the leases are over."""
        assert self.engine.worker is not None
        self.engine._kill(self.engine.worker.name)
        await self.engine.start()
        await self.clock.elapse(PAST_A_LEASE)

    async def lost(self) -> list[bool]:
        """Of each lease that was lost, whether it counted."""
        events = await events_of(self.engine, self.handle)
        return [event.counted for event in events if isinstance(event, LeaseLost)]


@pytest.fixture
def bench(app: Holdfast, holdfast_engine: MakeEngine) -> Bench:
    return Bench(app, holdfast_engine)


async def test_nothing_begins_beside_a_suspect_for_a_minute(bench: Bench) -> None:
    await bench.begin()
    waits = await bench.bystander.submit()
    await bench.elapse_until(GATE_SECONDS - 1)
    assert not bench.beside.reached.is_set()
    assert (await waits.info()).status is Status.PENDING
    await bench.elapse_until(GATE_SECONDS + 6)
    assert bench.beside.reached.is_set()
    assert not bench.gate.opened.is_set(), "the suspect still runs"


async def test_what_waits_begins_as_soon_as_the_suspect_has_ended(bench: Bench) -> None:
    await bench.begin()
    await bench.bystander.submit()
    bench.gate.open()
    await bench.elapse_until(10)
    assert (await bench.handle.info()).status is Status.COMPLETED
    assert bench.beside.reached.is_set()


async def test_the_store_is_told_that_it_is_not_alone_before_another_begins(bench: Bench) -> None:
    await bench.begin()
    await bench.bystander.submit()
    noted = [alone for task_id, alone in bench.store.tasks.happened if task_id == bench.handle.id]
    assert noted[-1] is True
    await bench.elapse_until(GATE_SECONDS + 6)
    begins = bench.store.tasks.happened.index(("bystander", "begins"))
    before = [what for who, what in bench.store.tasks.happened[:begins] if who == bench.handle.id]
    assert before[-1] is False


async def test_a_crash_while_it_is_alone_suspends_it(bench: Bench) -> None:
    await bench.begin()
    await bench.elapse_until(GATE_SECONDS - 5)
    await bench.die()
    info = await bench.handle.info()
    assert info.status is Status.FAILED
    assert info.failure is not None
    assert info.failure.kind is FailureKind.POISON
    assert await bench.lost() == [False, True, True, True]


async def test_a_crash_after_the_minute_does_not_count_as_alone(bench: Bench) -> None:
    await bench.begin()
    beside = await bench.bystander.submit()
    await bench.elapse_until(GATE_SECONDS + 6)
    await bench.die()
    assert await bench.lost() == [False, True, True, False]
    assert (await bench.handle.info()).status is not Status.FAILED
    assert (await beside.info()).status is not Status.FAILED
    assert (await task_of(bench.engine, bench.handle)).crashes == 2


async def test_a_minute_that_passed_without_company_does_not_count_either(bench: Bench) -> None:
    """Nobody knows what begins in the moment before the death."""
    await bench.begin()
    await bench.elapse_until(GATE_SECONDS + 1)
    await bench.die()
    assert (await bench.lost())[-1] is False
