"""What concurrent clients are answered could have been answered one after the other."""

import asyncio
import multiprocessing
from collections.abc import AsyncIterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.domain import decide
from holdfast.domain.task import Task
from holdfast.domain.transition import Inserted, Submission, Transition
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.contract.hands import Hands
from holdfast.testing.linearizability import (
    Claim,
    Client,
    Operation,
    StoreModel,
    TooHard,
    Verdict,
    check,
)
from tests.racing import CLOCK, race_in_process, race_in_threads, race_on

SEEDS = range(10)


def judged(history: list[Operation]) -> Verdict:
    return check(history, lambda: StoreModel(CLOCK))


# -- stores


@pytest.fixture
async def sqlite(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path / "holdfast.db", CLOCK)
    await store.open()
    yield store
    await store.close()


@pytest.mark.parametrize("seed", SEEDS)
async def test_clients_on_one_loop_see_one_order(sqlite: SqliteStore, seed: int) -> None:
    history = await race_on(sqlite, "loop", seed, racers=6, steps=15)
    verdict = judged(history)
    assert verdict.linearizable, str(verdict)
    assert not await sqlite.doctor(fix=False, limit=10)


@pytest.mark.parametrize("seed", SEEDS)
async def test_clients_in_several_threads_see_one_order(sqlite: SqliteStore, seed: int) -> None:
    history = await asyncio.to_thread(race_in_threads, [sqlite] * 3, seed, racers=2, steps=15)
    verdict = judged(history)
    assert verdict.linearizable, str(verdict)


@pytest.mark.parametrize("seed", SEEDS)
async def test_two_that_have_the_file_open_see_one_order(
    sqlite: SqliteStore, tmp_path: Path, seed: int
) -> None:
    other = SqliteStore(tmp_path / "holdfast.db", CLOCK)
    await other.open()
    try:
        history = await asyncio.to_thread(
            race_in_threads, [sqlite, other], seed, racers=2, steps=15
        )
    finally:
        await other.close()
    verdict = judged(history)
    assert verdict.linearizable, str(verdict)


@pytest.mark.slow
def test_processes_that_share_the_file_see_one_order(tmp_path: Path) -> None:
    spawning = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(3, mp_context=spawning) as pool:
        for seed in range(5):
            path = tmp_path / f"{seed}.db"
            racing = [
                pool.submit(race_in_process, path, f"process-{n}", seed * 10 + n, 2, 12)
                for n in range(3)
            ]
            verdict = judged([op for race in racing for op in race.result()])
            assert verdict.linearizable, str(verdict)


async def test_the_races_are_races(sqlite: SqliteStore) -> None:
    """Else the tests above would prove little."""
    history = await asyncio.to_thread(race_in_threads, [sqlite] * 3, 1, racers=2, steps=40)
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
    return Hands(MemoryStore(CLOCK), CLOCK).submission(id="task-1")


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
        self.tell("claim", Claim(worker=worker, request="c"), answer, called, returned)

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
    (claimed,) = await client.claim(Claim(worker="w-1", request="c-1"))
    await client.apply(finished(claimed.task))
    return history


def finished(task: Task) -> Transition:
    done = decide.Done(result=b"1", data={}, started_at=0.0, duration_seconds=0.0)
    return decide.stage_done(task, done, checkpoint=None, now=CLOCK.now())
