"""A queue that nobody serves is mentioned in the log when a task is submitted to it."""

import asyncio
import logging
from pathlib import Path

import pytest

from holdfast import Context, Holdfast
from holdfast.engine import queue_watch

NOBODY = "no live worker serves queue {!r}, so its tasks wait; queues that are served: {}"


@pytest.fixture
def app(tmp_path: Path) -> Holdfast:
    app = Holdfast(f"sqlite:///{tmp_path}/holdfast.db")

    @app.task("mail.send", queue="mial")
    async def send(ctx: Context, to: str) -> str:
        return to

    return app


async def submit(app: Holdfast, times: int = 1) -> None:
    declared = app.registry.find("mail.send")
    assert declared is not None
    for _ in range(times):
        await app.submit(declared, "ann")


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == "holdfast.queues"]


async def heard_of_a_worker(app: Holdfast) -> None:
    while not await app.store.views.workers(live_within_seconds=60):
        pass


async def checked(app: Holdfast) -> None:
    """Wait until the checks that submits have started are done."""
    watch = app._queue_watch
    assert watch is not None
    await asyncio.gather(*watch._checks)


async def test_it_is_said_once_for_each_queue(
    app: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with app:
        await submit(app, 3)
    assert said(caplog) == [NOBODY.format("mial", "none")]


async def test_it_is_said_of_many_tasks_submitted_at_once(
    app: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    declared = app.registry.find("mail.send")
    assert declared is not None
    async with app:
        await app.submit_many(declared, ["ann", "bob"])
        await app.submit_many(declared, ["eve"], queue="fast")
    # The two checks run at the same time, so either may be logged first.
    assert sorted(said(caplog)) == [NOBODY.format(queue, "none") for queue in ("fast", "mial")]


async def test_the_queues_that_are_served_are_named(
    app: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with app.running():
        await heard_of_a_worker(app)
        await submit(app)
        await checked(app)  # before the worker leaves
    assert said(caplog) == [NOBODY.format("mial", "default")]


@pytest.mark.parametrize("queue", ["mial", "other,mial"])
async def test_nothing_is_said_of_a_queue_that_this_process_serves(
    app: Holdfast, caplog: pytest.LogCaptureFixture, queue: str
) -> None:
    caplog.set_level(logging.WARNING)
    async with app.running(queues=tuple(queue.split(","))):
        await submit(app)
    assert said(caplog) == []


async def test_nothing_is_said_of_a_queue_that_another_process_serves(
    app: Holdfast, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.WARNING)
    other = Holdfast(f"sqlite:///{tmp_path}/holdfast.db")
    async with other.running(queues=("mial",)), app:
        await heard_of_a_worker(app)
        await submit(app)
        await checked(app)  # before the worker leaves
    assert said(caplog) == []


async def test_the_queues_it_remembers_are_bounded(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(queue_watch, "QUEUES_MAX", 2)
    caplog.set_level(logging.WARNING)
    declared = app.registry.find("mail.send")
    assert declared is not None
    async with app:
        for queue in ("a", "b", "c", "a"):
            await app.submit(declared, "ann", queue=queue)
    assert len(said(caplog)) == 4
