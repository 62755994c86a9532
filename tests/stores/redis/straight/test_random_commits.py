"""Random moves of holders and operators leave the same keys on both ways."""

import asyncio
from collections.abc import Sequence
from itertools import count
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.domain.errors import IllegalTransition
from holdfast.domain.task import decide
from holdfast.domain.task.state import Command
from holdfast.domain.task.task import Task
from holdfast.domain.task.transition import Transition
from holdfast.testing.contract.drivers.store_driver import LEASE_SECONDS, STAGES, StoreDriver
from tests.support.redis.path_comparison import Ways, opened_ways
from verify.servers import RedisServer

RESULTS: list[object] = ["ok", None, "x" * 100, "größer"]
_namespaces = count(1)

submissions = st.fixed_dictionaries(
    {
        "stages": st.sampled_from([STAGES[:1], STAGES[:1], STAGES[:2], STAGES]),
        "tenant": st.sampled_from([None, "t", "u"]),
        "hold": st.booleans(),
        "type": st.sampled_from(["test.work", "test.other"]),
        "keep_seconds": st.sampled_from([30 * 86_400.0, 3_600.0, 0.0]),
    }
)
chosen = st.integers(0, 2**8 - 1)  # a bit for each of the tasks that are leased
moves = st.one_of(
    st.tuples(st.just("submit"), st.lists(submissions, min_size=1, max_size=6)),
    st.tuples(st.just("claim"), st.integers(1, 6)),
    st.tuples(st.just("finish"), chosen, st.sampled_from(RESULTS)),
    st.tuples(st.just("finish"), chosen, st.sampled_from(RESULTS)),
    st.tuples(st.just("repeat")),
    st.tuples(st.just("fail"), chosen),
    st.tuples(st.just("give_back"), chosen),
    st.tuples(st.just("request"), chosen, st.sampled_from([Command.PAUSE, Command.CANCEL])),
    st.tuples(st.just("advance"), st.sampled_from([0.25, 60.0, LEASE_SECONDS + 1])),
)


class RandomHands:
    """The hands of holders and operators on one way."""

    def __init__(self, driver: StoreDriver) -> None:
        self.driver = driver
        self._ids: list[str] = []
        self._last: list[Transition] = []

    async def make(self, move: Sequence[Any]) -> Any:
        return await getattr(self, move[0])(*move[1:])

    async def submit(self, fields: Sequence[dict[str, Any]]) -> Any:
        batch = [self.driver.submission(**one) for one in fields]
        self._ids += [one.task.id for one in batch]
        return await self.driver.insert(*batch)

    async def claim(self, limit: int) -> Any:
        return await self.driver.claim(limit=limit)

    async def finish(self, bits: int, result: object) -> Any:
        self._last = [await self._step(task, result) for task in await self._load_leased(bits)]
        return await self.repeat()

    async def repeat(self) -> Any:
        return await self.driver.store.tasks.apply(self._last) if self._last else None

    async def fail(self, bits: int) -> Any:
        return [
            await self.driver.apply(await self.driver.decide_failure(task))
            for task in await self._load_leased(bits)
        ]

    async def give_back(self, bits: int) -> Any:
        return [await self.driver.give_back(task) for task in await self._load_leased(bits)]

    async def request(self, bits: int, command: Command) -> Any:
        """Ask for it between the decision of a holder and its write."""
        tasks = await self._load_leased(bits)
        self._last = [await self._step(task, "ok") for task in tasks]
        for task in tasks:
            try:
                await self.driver.ask(command, task)
            except IllegalTransition:
                continue
        return await self.repeat()

    async def advance(self, seconds: float) -> Any:
        self.driver.clock.advance(seconds)
        lost = await self.driver.store.tasks.expire(limit=100, count_crashes=False)
        return lost, await self.driver.store.tasks.promote(limit=100)

    async def _load_leased(self, bits: int) -> list[Task]:
        tasks = await self.driver.store.views.load(self._ids)
        leased = [task for task in tasks if task is not None and task.lease is not None]
        return [task for n, task in enumerate(leased[:8]) if bits >> n & 1]

    async def _step(self, task: Task, result: object) -> Transition:
        if task.cancel_requested or task.pause_requested:
            return decide.boundary(task, now=self.driver.clock.now())
        return await self.driver.done(task, result)


async def compare_moves(server: RedisServer, some: Sequence[Sequence[Any]]) -> None:
    namespace = f"random-commits-{next(_namespaces)}"
    async with opened_ways(server, namespace) as ways:
        hands = {way.driver: RandomHands(way.driver) for way in ways.both}
        for move in some:
            await _compare_move(ways, hands, move)


async def _compare_move(
    ways: Ways, hands: dict[StoreDriver, RandomHands], move: Sequence[Any]
) -> None:
    await ways.compare(lambda driver: hands[driver].make(move))


@settings(max_examples=20)
@given(some=st.lists(moves, min_size=4, max_size=20))
def test_random_moves_leave_the_same_keys(
    redis_server: RedisServer, some: list[Sequence[Any]]
) -> None:
    first = [("submit", [{"stages": STAGES[:n], "tenant": t} for n in (1, 2) for t in (None, "t")])]
    asyncio.run(compare_moves(redis_server, [*first, ("claim", 6), *some]))
