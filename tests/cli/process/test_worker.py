"""`holdfast worker` as people run it: a process, signals, a file."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest
import typer

from holdfast.cli.exit_codes import Exit
from holdfast.cli.process import lifecycle, worker
from holdfast.cli.process.worker_group import WorkerGroup
from holdfast.domain.task import decide
from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Status
from holdfast.runtime.worker.running_tasks import RunningTask
from holdfast.runtime.worker.worker import Worker
from tests.support.cli.scene import Scene
from tests.support.cli.world import App, World
from verify.servers.poll import until

APP = """
import asyncio, gc, threading
from holdfast import Context, Holdfast
from holdfast.cli.process import worker_group
from holdfast.runtime.worker import heartbeat

worker_group.GIVE_BACK_SECONDS = 60.0  # a slow machine gives back, too
heartbeat.PROGRESS_SECONDS = 0.2  # beats, though the lease is long: what was taken away is noticed

app = Holdfast()

@app.task("mail.send")
async def send(ctx: Context, to: str) -> str:
    return to

flow = app.workflow("slow", payload=str)

@flow.stage
async def first(ctx: Context, order: str) -> None:
    print("first runs", "exempt" if gc.get_freeze_count() else "checked", flush=True)
    if order == "forever":
        await asyncio.Event().wait()

plain = app.workflow("plain", payload=str)

@plain.stage
def hangs(ctx: Context, order: str) -> None:
    print("plain runs", flush=True)
    threading.Event().wait(600)
"""


class Process:
    def __init__(self, folder: Path, url: str, *args: str, **settings: str) -> None:
        env = {name: v for name, v in os.environ.items() if not name.startswith("HOLDFAST_")}
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "holdfast", "worker", *args],
            cwd=folder,
            env=env | {"HOLDFAST_STORE": url, "PYTHONDONTWRITEBYTECODE": "1"} | settings,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def until_said(self, words: str) -> str:
        return _until(self._popen.stderr, words)

    def until_printed(self, words: str) -> str:
        return _until(self._popen.stdout, words)

    def until_printed_both(self, *words: str) -> None:
        left = set(words)
        while left:
            line = self.until_printed("runs")
            left = {one for one in left if one not in line}

    def signal(self, number: int) -> None:
        self._popen.send_signal(number)

    def ended(self) -> tuple[int, str]:
        _, said = self._popen.communicate(timeout=120)
        return self._popen.returncode, said

    def kill(self) -> None:
        if self._popen.poll() is None:
            self._popen.kill()
        self._popen.communicate()


def _until(stream: IO[str] | None, words: str) -> str:
    assert stream is not None
    for line in stream:
        if words in line:
            return line
    raise AssertionError(f"it ended without saying {words!r}")


Start = Callable[..., Process]


@pytest.fixture
def start(world: World, tmp_path: Path) -> Iterator[Start]:
    (tmp_path / "shop.py").write_text(APP)
    started: list[Process] = []

    def begin(*args: str, **settings: str) -> Process:
        process = Process(tmp_path, world.url, *args, **settings)
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()


def submit(world: World, name: str, order: str) -> str:
    """As the app in the process declares it."""

    async def send(made: Any) -> str:
        flow = made.app.workflow(name, payload=str)

        @flow.stage(name={"slow": "first", "plain": "hangs"}[name])
        async def unused(ctx: object, order: str) -> None: ...

        return str((await flow.submit(order)).id)

    return world.do(send)


async def take_away(made: App, task_id: str) -> None:
    [task] = await made.app.store.views.load([task_id])
    assert task is not None
    await made.app.store.tasks.apply(
        [decide.give_back(task, "taken away", now=made.app.clock.now(), interrupted=True)]
    )
    await made.app.control.pause(task_id)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_introduces_itself_works_and_drains(
    world: World, start: Start, number: int
) -> None:
    process = start("shop:app", "--slots", "3", "--queues", "default,slow")
    line = process.until_said("holdfast.cli.worker: worker ")
    assert f"store {world.url}" in line
    assert "queues default,slow" in line
    assert "types mail.send,slow,plain" in line
    task_id = submit(world, "slow", "quick")
    process.until_printed("first runs")
    process.signal(number)
    code, said = process.ended()
    assert code == 0, said
    assert "has stopped" in said
    assert world.json("tasks", "show", task_id)["status"] == Status.COMPLETED


def test_what_a_worker_has_loaded_is_exempt_from_garbage_collection(
    world: World, start: Start
) -> None:
    submit(world, "slow", "quick")
    assert "exempt" in start("shop:app").until_printed("first runs")


def test_a_drained_worker_gives_back_what_does_not_end_in_time(world: World, start: Start) -> None:
    task_id = submit(world, "slow", "forever")
    process = start("shop:app", HOLDFAST_DRAIN="0s")
    process.until_printed("first runs")
    process.signal(signal.SIGTERM)
    assert process.ended()[0] == 0
    shown = world.json("tasks", "show", task_id)
    assert (shown["status"], shown["lease"]) == (Status.PENDING, None)


def test_a_second_signal_gives_back_at_once(world: World, start: Start) -> None:
    task_id = submit(world, "slow", "forever")
    process = start("shop:app", HOLDFAST_DRAIN="10m")
    process.until_printed("first runs")
    process.signal(signal.SIGTERM)
    process.until_said("drains")
    process.signal(signal.SIGTERM)
    assert process.ended()[0] == 1
    shown = world.json("tasks", "show", task_id)
    assert (shown["status"], shown["lease"]) == (Status.PENDING, None)


def test_a_plain_function_that_hangs_is_given_back_as_the_last_act(
    world: World, start: Start
) -> None:
    task_id = submit(world, "plain", "x")
    process = start("shop:app", HOLDFAST_DRAIN="0s")
    process.until_printed("plain runs")
    process.signal(signal.SIGTERM)
    code, said = process.ended()
    assert code == 0
    assert "plain functions still run" in said
    shown = world.json("tasks", "show", task_id)
    assert (shown["status"], shown["lease"]) == (Status.PENDING, None)


def test_a_worker_that_lost_the_lease_of_a_plain_function_ends(world: World, start: Start) -> None:
    task_id = submit(world, "plain", "x")
    process = start("shop:app", HOLDFAST_LEASE="10m")
    process.until_printed("plain runs")
    world.do(lambda made: take_away(made, task_id))
    code, said = process.ended()
    assert code == 70
    assert "CRITICAL" in said
    assert "could not give back" not in said


def test_when_a_plain_function_hangs_the_others_are_given_back_uncounted(
    world: World, start: Start
) -> None:
    hung, innocent = submit(world, "plain", "x"), submit(world, "slow", "forever")
    process = start("shop:app", HOLDFAST_LEASE="10m")
    process.until_printed_both("plain runs", "first runs")
    world.do(lambda made: take_away(made, hung))
    code, said = process.ended()
    assert code == 70, said
    [task] = world.do(lambda made: made.app.store.views.load([innocent]))
    assert task is not None
    assert (task.status, task.lease, task.crashes) == (Status.PENDING, None, 0)


async def test_a_task_that_hung_is_not_given_back_with_the_others(scene: Scene) -> None:
    """Its lease is still on the record: it lapses, and that is counted."""
    await scene.submit(tenant="t-1")
    await scene.submit(tenant="t-2")
    await scene.submit(tenant="t-3")
    hung, innocent, foreign = [await scene.claim(name) for name in ("w-1", "w-1", "w-2")]
    worker = scene.app.worker(name="w-1")
    for task in (hung, innocent):
        running = RunningTask(task.id, decide.lease_of(task).id, safe_until=0.0)
        worker._running._tasks[running.lease_id] = running
    lost = worker._running._tasks[decide.lease_of(hung).id]
    await worker.give_back_all(but=lost)
    after = await scene.store.views.load([hung.id, innocent.id, foreign.id])
    assert [task and task.place for task in after] == [Place.LEASED, Place.READY, Place.LEASED]


def test_a_worker_that_is_drained_from_elsewhere_ends_well(world: World, start: Start) -> None:
    process = start("shop:app")
    name = process.until_said("holdfast.cli.worker: worker ").split(" worker ")[1].split(":")[0]
    [listed] = until(lambda: world.json("workers", "list")["workers"], "it has beaten")
    assert (listed["worker"], listed["live"], listed["draining"]) == (name, True, False)
    assert world.json("workers", "drain", name, "--reason", "a new host")["changed"]
    [entry] = world.json("audit", "--task", f"worker:{name}")["entries"]
    assert (entry["command"], entry["reason"]) == ("drain", "a new host")
    code, said = process.ended()
    assert code == 0
    assert "drains, as a person asked" in said
    assert world.do(lambda made: made.app.store.admin.switches()) == []


def test_a_worker_refuses_to_work_on_a_memory_of_its_own(start: Start, tmp_path: Path) -> None:
    away = 'import os\nos.environ["HOLDFAST_STORE"] = "redis://127.0.0.1:1"\n'
    falls = 'os.environ["HOLDFAST_FALLBACK"] = "memory"\n'
    (tmp_path / "fallen.py").write_text(f"{away}{falls}{APP}")
    code, said = start("fallen:app").ended()
    assert code == Exit.STORE
    assert said.endswith('fallback = "memory" is not for workers [store-unavailable]\n')


def test_the_store_on_the_command_line_reaches_the_app(world: World, start: Start) -> None:
    process = start("shop:app", "--store", f"{world.url}.other")
    assert f"store {world.url}.other" in process.until_said("holdfast.cli.worker: worker ")


def test_an_app_with_a_store_of_its_own_keeps_it(
    world: World, start: Start, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text("from holdfast import Holdfast\napp = Holdfast('memory://')\n")
    code, said = start("own:app", "--store", world.url).ended()
    assert code == 6
    assert said.endswith("own:app names its own store, which --store cannot change [cannot-load]\n")


def test_a_reloaded_worker_is_given_the_store_too(
    world: World, start: Start, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text("from holdfast import Holdfast\napp = Holdfast('memory://')\n")
    process = start("own:app", "--reload", "--store", world.url)
    process.until_said("own:app names its own store, which --store cannot change")
    process.until_said("the worker exited (6)")
    process.signal(signal.SIGTERM)
    assert process.ended()[0] == 6


def test_a_changed_file_restarts_the_worker(world: World, start: Start, tmp_path: Path) -> None:
    process = start("shop:app", "--reload")
    first = process.until_said("holdfast.cli.worker: worker ")
    (tmp_path / "shop.py").write_text(APP.replace("mail.send", "mail.changed"))
    process.until_said("shop.py changed")
    second = process.until_said("types mail.changed")
    assert first.split(" worker ")[1].split(":")[0] not in second
    process.signal(signal.SIGTERM)
    assert process.ended()[0] == 0


def test_a_broken_file_waits_for_its_mending(world: World, start: Start, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("def")
    process = start("shop:app", "--reload")
    process.until_said("the worker exited (6)")
    (tmp_path / "shop.py").write_text(APP)
    process.until_said("types mail.send")
    process.signal(signal.SIGINT)
    assert process.ended()[0] == 0


def test_a_worker_raises_the_limit_on_open_files(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised = list[bool]()

    def note_and_end() -> None:
        raised.append(True)
        raise typer.Exit

    monkeypatch.setattr(worker, "load_app_on", lambda *_: None)
    monkeypatch.setattr(lifecycle, "log_for", lambda _: None)
    monkeypatch.setattr(lifecycle, "raise_file_limit", note_and_end)
    assert world.cli("worker", "tasks:app").exit_code == Exit.OK
    assert raised == [True]


async def test_a_worker_says_at_its_start_what_it_waits_for(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In one line, however many tasks the dead hold."""
    ids = [await scene.submit(tenant=tenant) for tenant in ("t-1", "t-2")]
    for _ in ids:
        await scene.claim("w-dead")
    started = asyncio.Event()

    async def start(_: Worker) -> None:
        started.set()

    monkeypatch.setattr(Worker, "start", start)
    await WorkerGroup(scene.app, count=1, slots=None, queues=None).start()
    assert started.is_set()
    [line] = [one.getMessage() for one in caplog.records if one.name == "holdfast.worker"]
    assert line.startswith("worker w-dead (")
    assert any(f"has died; its lease of task {task_id} ends in " in line for task_id in ids)
    assert line.endswith("and then another worker takes the task over (and 1 more task)")
