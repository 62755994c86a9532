"""What concurrent clients are answered could have been answered one after the other."""

import asyncio
import multiprocessing
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.domain.task import decide
from holdfast.domain.task.task import Task
from holdfast.domain.task.transition import Inserted, Submission, Transition
from holdfast.ports import Store
from holdfast.stores.memory import MemoryStore
from holdfast.stores.redis.store import RedisStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.contract.drivers.store_driver import StoreDriver
from tests.support.racers import CLOCK, race_in_threads, race_on, race_on_redis, race_on_sqlite
from verify.linearizability import (
    ClaimArguments,
    Client,
    Linearization,
    Operation,
    StoreModel,
    TooHard,
    check,
)
from verify.servers import RedisServer

SEEDS = range(10)


def judged(
    history: list[Operation], new_model: Callable[[], StoreModel] | None = None
) -> Linearization:
    return check(history, new_model or (lambda: StoreModel(CLOCK)))


# -- stores


class RedisModel(StoreModel):
    """Redis takes its first fence from the time, which stands still here."""

    def __init__(self) -> None:
        super().__init__(CLOCK)
        self._store.state.fence = int(CLOCK.now() * 1_000_000) - 1


class Shared:
    """One store's data, opened as often as a test likes."""

    def __init__(self, make: Callable[[], Store], new_model: Callable[[], StoreModel]) -> None:
        self._make, self._new_model = make, new_model
        self._opened: list[Store] = []

    async def open(self) -> Store:
        store = self._make()
        await store.open()
        self._opened.append(store)
        return store

    async def close(self) -> None:
        for store in self._opened:
            await store.close()

    def judge(self, history: list[Operation]) -> None:
        verdict = judged(history, self._new_model)
        assert verdict.linearizable, str(verdict)


@pytest.fixture(params=["sqlite", "redis"])
async def shared(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shared]:
    if request.param == "sqlite":
        path = tmp_path / "holdfast.db"
        shared = Shared(lambda: SqliteStore(path, CLOCK), lambda: StoreModel(CLOCK))
    else:
        server: RedisServer = request.getfixturevalue("redis_server")
        name: str = request.getfixturevalue("redis_namespace")
        shared = Shared(lambda: RedisStore(server.url, CLOCK, name, time=CLOCK.times), RedisModel)
    yield shared
    await shared.close()


@pytest.mark.parametrize("seed", SEEDS)
async def test_clients_on_one_loop_see_one_order(shared: Shared, seed: int) -> None:
    store = await shared.open()
    shared.judge(await race_on(store, "loop", seed, racers=6, steps=15))
    assert not await store.admin.doctor(fix=False, limit=10)


@pytest.mark.parametrize("seed", SEEDS)
async def test_clients_in_several_threads_see_one_order(shared: Shared, seed: int) -> None:
    store = await shared.open()
    shared.judge(await asyncio.to_thread(race_in_threads, [store] * 3, seed, racers=2, steps=15))


@pytest.mark.parametrize("seed", SEEDS)
async def test_two_that_have_it_open_see_one_order(shared: Shared, seed: int) -> None:
    stores = [await shared.open(), await shared.open()]
    shared.judge(await asyncio.to_thread(race_in_threads, stores, seed, racers=2, steps=15))
    assert not await stores[0].admin.doctor(fix=False, limit=10)


@pytest.mark.slow
def test_processes_that_share_the_file_see_one_order(tmp_path: Path) -> None:
    for seed in range(5):
        verdict = judged(raced_apart(partial(race_on_sqlite, tmp_path / f"{seed}.db"), seed))
        assert verdict.linearizable, str(verdict)


@pytest.mark.slow
def test_processes_that_share_the_server_see_one_order(
    redis_server: RedisServer, redis_namespace: str
) -> None:
    for seed in range(5):
        race = partial(race_on_redis, (redis_server.url, f"{redis_namespace}-{seed}"))
        verdict = judged(raced_apart(race, seed), RedisModel)
        assert verdict.linearizable, str(verdict)


def raced_apart(race: Callable[..., list[Operation]], seed: int) -> list[Operation]:
    """In three processes."""
    spawning = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(3, mp_context=spawning) as pool:
        racing = [pool.submit(race, f"process-{n}", seed * 10 + n, 2, 12) for n in range(3)]
        return [operation for one in racing for operation in one.result()]


async def test_the_races_are_races(shared: Shared) -> None:
    """Else the tests above would prove little."""
    store = await shared.open()
    history = await asyncio.to_thread(race_in_threads, [store] * 3, 1, racers=2, steps=40)
    answers = [str(operation.answer) for operation in history]
    assert any("Applied" in answer for answer in answers)
    assert any("Stale" in answer for answer in answers)
    overlaps = sum(
        one.called_at < other.called_at < (one.returned_at or 0.0)
        for one in history
        for other in history
        if one.process != other.process
    )
    assert overlaps > len(history) / 2


# -- the checker itself


@pytest.fixture
def submission() -> Submission:
    return StoreDriver(MemoryStore(CLOCK), CLOCK).submission(id="task-1")


class Story:
    """A history made by hand: what was asked, when, and what was answered."""

    def __init__(self, submission: Submission) -> None:
        self.submission = submission
        self.history: list[Operation] = []
        self.tell("insert", submission, repr([Inserted("task-1")]), 0, 1)

    def tell(self, name: str, arguments: Any, answer: Any, called: float, returned: float) -> None:
        self.history.append(
            Operation(
                process=f"p-{len(self.history)}",
                name=name,
                arguments=arguments,
                called_at=called,
                returned_at=returned,
                answer=answer,
            )
        )

    def claim(self, called: float, returned: float, *, fence: int | None) -> None:
        worker = f"w-{len(self.history)}"
        got = ("task-1", fence + 1, "RUNNING", "leased", -1, (worker, fence)) if fence else None
        answer = [(got, 0)] if got else []
        self.tell("claim", ClaimArguments(worker=worker, request="c"), answer, called, returned)

    def load(self, called: float, returned: float, *, version: int) -> None:
        place = {1: ("PENDING", "ready", -1, None), 2: ("RUNNING", "leased", -1, ("w-1", 1))}
        self.tell("load", "task-1", [("task-1", version, *place[version])], called, returned)


def test_one_order_is_found_for_what_happened_one_after_the_other(submission: Submission) -> None:
    story = Story(submission)
    story.claim(2, 3, fence=1)
    story.claim(4, 5, fence=None)
    story.load(6, 7, version=2)
    verdict = judged(story.history)
    assert verdict.linearizable
    assert [operation.name for operation in verdict.order] == ["insert", "claim", "claim", "load"]


def test_what_overlaps_may_have_happened_in_either_order(submission: Submission) -> None:
    story = Story(submission)
    story.claim(2, 10, fence=1)
    story.load(3, 4, version=2)
    story.load(5, 6, version=2)
    assert judged(story.history).linearizable
    story = Story(submission)
    story.claim(2, 10, fence=1)
    story.load(3, 4, version=1)
    story.load(5, 6, version=2)
    assert judged(story.history).linearizable


def test_a_task_handed_out_twice_is_found(submission: Submission) -> None:
    story = Story(submission)
    story.claim(2, 10, fence=1)
    story.claim(2, 10, fence=2)
    verdict = judged(story.history)
    assert not verdict.linearizable
    assert "claim" in str(verdict)


def test_a_look_into_the_past_is_found(submission: Submission) -> None:
    story = Story(submission)
    story.claim(2, 3, fence=1)
    story.load(4, 5, version=1)
    assert not judged(story.history).linearizable


def test_time_that_runs_backwards_is_found(submission: Submission) -> None:
    story = Story(submission)
    story.claim(2, 10, fence=1)
    story.load(3, 4, version=2)
    story.load(5, 6, version=1)
    assert not judged(story.history).linearizable


def test_an_accepted_task_that_is_not_there_is_found(submission: Submission) -> None:
    story = Story(submission)
    story.claim(2, 3, fence=None)
    assert not judged(story.history).linearizable


async def test_two_writes_over_one_version_are_found(submission: Submission) -> None:
    history = await claimed_and_finished(submission)
    applied = history[-1]
    rival: Transition = msgspec.structs.replace(applied.arguments, request="another")
    history.append(
        Operation(
            process="rival",
            name="apply",
            arguments=rival,
            called_at=applied.called_at,
            returned_at=applied.returned_at,
            answer=applied.answer,
        )
    )
    assert not judged(history).linearizable


async def test_an_answer_that_never_came_may_or_may_not_have_happened(
    submission: Submission,
) -> None:
    history = await claimed_and_finished(submission)
    lost = history.pop()
    pending = Operation(
        process="lost",
        name="apply",
        arguments=lost.arguments,
        called_at=lost.called_at,
        returned_at=None,
    )
    for version, completed in ((2, -1), (3, 0)):
        seen = ("task-1", version, "RUNNING", "leased", completed, ("w-1", 1))
        look = Operation(
            process="looker",
            name="load",
            arguments="task-1",
            called_at=lost.called_at + 1,
            returned_at=lost.called_at + 2,
            answer=[seen],
        )
        assert judged([*history, pending, look]).linearizable


def test_a_search_that_takes_too_long_says_so(submission: Submission) -> None:
    story = Story(submission)
    for _ in range(8):
        story.claim(2, 10, fence=None)
    with pytest.raises(TooHard):
        check(story.history, lambda: StoreModel(CLOCK), limit=5)


async def claimed_and_finished(submission: Submission) -> list[Operation]:
    """What one client was answered by a store that is right."""
    history: list[Operation] = []
    client = Client(MemoryStore(CLOCK), "w-1", history)
    await client.insert(submission)
    (claimed,) = await client.claim(ClaimArguments(worker="w-1", request="c-1"))
    await client.apply(finished(claimed.task))
    return history


def finished(task: Task) -> Transition:
    done = decide.Done(result=b"1", data={}, started_at=0.0, duration_seconds=0.0)
    return decide.stage_done(task, done, checkpoint=None, now=CLOCK.now())
