"""Poison names the right one: culprits that kill their worker, and an innocent beside them."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from holdfast import Context, Holdfast
from holdfast.clock import SystemClock
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import FailureKind
from holdfast.engine.store_url import store_from_url
from holdfast.ports import Detail
from holdfast.runtime.worker.running_tasks import PROCESS_STAGES
from tests.end_to_end.test_forks import has_ended
from tests.end_to_end.test_two_workers import BOUND_SECONDS, Terminal
from verify.servers import RedisServer, until

APP = """
import asyncio
import os
from pathlib import Path

from holdfast import Context, Holdfast
from verify.servers import until

app = Holdfast()


def note(name: str, what: object) -> None:
    with open(name, "a") as log:
        log.write(f"{os.getpid()} {what}\\n")


@app.task("kills.once")
async def kill_once(ctx: Context, number: int) -> str:
    if Path(f"killed-{number}").exists():
        return "done"
    Path(f"killed-{number}").touch()
    os._exit(9)


@app.task("kills.always")
async def kill_always(ctx: Context) -> None:
    note("always", ctx.attempt)
    os._exit(9)


@app.task("innocent")
async def innocent(ctx: Context) -> str:
    note("innocent", ctx.attempt)
    await asyncio.to_thread(until, Path("innocent-may-end").exists, "it may end", seconds=600)
    return "done"
"""
CULPRITS = 6


class World:
    def __init__(self, terminal: Terminal, url: str) -> None:
        self.terminal, self.folder, self._url = terminal, terminal.folder, url

    def submit(self, name: str, payload: int | None = None) -> str:
        """As the app in the worker declares it."""
        app = Holdfast(self._url)

        async def stage(ctx: Context, payload: int | None) -> None: ...

        declared = app.task(name)(stage)
        with app.blocking as blocking:
            return blocking.submit(declared, payload).id

    def detail(self, task_id: str) -> Detail:
        async def look() -> Detail:
            store = store_from_url(self._url, SystemClock(), "executor")
            await store.open()
            try:
                found = await store.views.detail(task_id)
                assert found is not None
                return found
            finally:
                await store.close()

        return asyncio.run(look())

    def until_noted(self, task_id: str, starts: int) -> None:
        """It has been begun so often, and the store knows of the last time."""
        started = self.folder / "innocent"

        def is_noted() -> bool:
            progress = self.detail(task_id).progress
            return progress is not None and bool(progress.begun)

        until(lambda: len(lines(started)) == starts, "it runs", seconds=BOUND_SECONDS)
        until(is_noted, "the store knows that it runs", seconds=BOUND_SECONDS)

    def until_status(self, status: Status, *ids: str) -> None:
        def have_it() -> bool:
            return all(self.detail(task_id).task.status is status for task_id in ids)

        until(have_it, f"they are {status}", seconds=BOUND_SECONDS)


@pytest.fixture(params=["sqlite", "redis"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    (tmp_path / "poison.py").write_text(APP)
    with ExitStack() as opened:
        url = f"sqlite:///{tmp_path}/holdfast.db"
        if request.param == "redis":
            url = opened.enter_context(RedisServer(appendonly=True)).url
        yield World(Terminal(tmp_path, url, opened, HOLDFAST_DRAIN="0"), url)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_an_innocent_task_beside_six_culprits_is_not_suspended(world: World) -> None:
    folder, terminal = world.folder, world.terminal
    innocent = world.submit("innocent")
    culprits = list[str]()
    for number in range(CULPRITS):
        worker = terminal.worker("poison:app")
        world.until_noted(innocent, number + 1)
        culprits.append(world.submit("kills.once", number))
        assert worker.wait(BOUND_SECONDS) == 9
        if number < 2:  # then it has a process of its own, which gives it back
            assert int(lines(folder / "innocent")[-1].split()[0]) == worker.pid
            terminal.let_lapse({innocent})
        else:
            assert int(lines(folder / "innocent")[-1].split()[0]) != worker.pid
            world.until_status(Status.PENDING, innocent)
        terminal.let_lapse({culprits[-1]})
    worker = terminal.worker("poison:app")
    world.until_noted(innocent, CULPRITS + 1)
    (folder / "innocent-may-end").touch()
    world.until_status(Status.COMPLETED, innocent, *culprits)
    assert terminal.json("doctor")["clean"]
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(BOUND_SECONDS) == 0


def test_a_task_that_always_kills_is_suspended_and_the_worker_lives(world: World) -> None:
    """The first death comes before any beat and is not counted. Then two are, beside others; the
    last one is that of a process of its own."""
    terminal, started = world.terminal, world.folder / "always"
    culprit = world.submit("kills.always")
    for runs in (1, 2, 3):
        worker = terminal.worker("poison:app")
        assert worker.wait(BOUND_SECONDS) == 9
        assert len(lines(started)) == runs
        terminal.let_lapse({culprit})
    worker = terminal.worker("poison:app")
    until(lambda: len(lines(started)) == 4, "it has run alone", seconds=BOUND_SECONDS)
    until(partial(has_ended, int(lines(started)[-1].split()[0])), "it died", seconds=BOUND_SECONDS)
    assert worker.poll() is None, "the worker lives"
    terminal.let_lapse({culprit})
    world.until_status(Status.FAILED, culprit)
    task = world.detail(culprit).task
    assert task.failure is not None
    assert (task.failure.kind, task.crashes) == (FailureKind.POISON, 3)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(BOUND_SECONDS) == 0


async def test_a_process_that_started_for_longer_than_a_lease_runs_its_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker that started it has renewed the lease meanwhile."""
    monkeypatch.setattr(PROCESS_STAGES, "suspect", None)  # other tests run here after it
    app = Holdfast(f"sqlite:///{tmp_path}/holdfast.db")

    @app.task("slow.start")
    async def stage(ctx: Context) -> str:
        return "done"

    async with app:
        handle = await stage.submit()
        [claimed] = await app.store.tasks.claim(
            "first", request="r-1", queues=("default",), limit=1, lease_seconds=600.0
        )
        worker = app.worker(slots=1, queues=())
        await (await worker.take(claimed, safe_until=app.clock.steady() - 1.0))
        assert await worker.drain() == []
        assert (await handle.info()).status is Status.COMPLETED
