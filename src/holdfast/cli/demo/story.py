"""`holdfast demo` runs two workers and forty tenants, and kills one worker with kill -9."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from holdfast.cli.demo.checks import StoryRecord, exit_code, judge
from holdfast.cli.demo.screen import Scene, Screen, screen_for
from holdfast.cli.demo.tour import offer
from holdfast.cli.demo.workers import WorkerProcess, WorkerProcesses
from holdfast.cli.demo.world import FOLDER, SPEED, DemoWorld
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import Task
from holdfast.ports import Filter

if TYPE_CHECKING:
    from holdfast.cli.demo.tasks import Upgrade, UpgradeReport
    from holdfast.engine import Holdfast
    from holdfast.engine.declare import Submittable

INTERRUPTED = 130
POLL_SECONDS = 0.1
LIMIT_SECONDS = 600.0
PAGE = 200

LEASE_SECONDS = 2
CRASH_LIMIT = 1000  # a machine that stands still for longer than a lease suspends nothing
SLOTS = 6
VERSION = 7
BILLING_DOWN_AT = 0.15  # of all stages
BILLING_DOWN_SECONDS = 4.0
KILL_AT = 0.5
READ_SECONDS = 2.0  # a person reads before deciding


def run(*, tenants: int = 40, speed: float = 1.0, folder: Path | None = None) -> int:
    """Run the demo and return 0 if every promise was kept, counted in the store.

    With ``speed`` 4 the stages run four times as fast. ``folder`` takes the store and the logs;
    without it the demo makes one and keeps it. At the end the demo starts a service for you to try.
    """
    console = Console(highlight=False)
    place = folder or Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    environment = _environment(place, speed)
    _enter(environment)
    try:
        code = asyncio.run(_run_story(place, environment, screen_for(console), tenants))
        if code == 0:
            offer(
                place, environment, lambda line: console.print(line, markup=False, soft_wrap=True)
            )
        return code
    except (KeyboardInterrupt, asyncio.CancelledError):
        if folder is None:
            shutil.rmtree(place)
        console.print("Stopped. All workers have ended.")
        return INTERRUPTED


def _environment(place: Path, speed: float) -> dict[str, str]:
    """Return the environment with the demo's settings and none of the user's own."""
    others = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")}
    return others | {
        "HOLDFAST_STORE": f"sqlite:///{place}/demo.db",
        "HOLDFAST_LEASE": str(LEASE_SECONDS),
        "HOLDFAST_CRASH_LIMIT": str(CRASH_LIMIT),
        "HOLDFAST_SLOTS": str(SLOTS),
        FOLDER: str(place),
        SPEED: str(speed),
    }


def _enter(environment: dict[str, str]) -> None:
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)


async def _run_story(place: Path, environment: dict[str, str], screen: Screen, tenants: int) -> int:
    from holdfast.cli.demo.tasks import app, upgrade  # reads the environment

    current = asyncio.current_task()
    assert current is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, current.cancel)
    async with app:
        with WorkerProcesses(place, environment) as workers:
            story = Story(
                app=app,
                upgrade=upgrade,
                workers=workers,
                world=DemoWorld.from_environment(),
                screen=screen,
                tenants=[f"t-{number:02}" for number in range(1, tenants + 1)],
            )
            with screen.open():
                await story.play()
        return await _conclude(app, story.record, screen, place)


@dataclass(slots=True, kw_only=True)
class Story:
    app: Holdfast
    upgrade: Submittable[Upgrade, UpgradeReport]
    workers: WorkerProcesses
    world: DemoWorld
    screen: Screen
    tenants: Sequence[str]
    record: StoryRecord = field(default_factory=StoryRecord)
    _billing_down_since: float | None = None  # since the screen said so
    _billing_answers: bool = False
    _killed: WorkerProcess | None = None
    _left_at: dict[str, int] = field(default_factory=dict)  # task of the dead worker → last stage
    _gone_on: set[str] = field(default_factory=set)
    _seen: dict[str, float] = field(default_factory=dict)  # suspended task → since when

    async def play(self) -> None:
        self.world.let("billing is down")  # from the start: else the quickest tasks would miss it
        self.world.let(f"orphaned rows in {self._unlucky}")
        self.world.let(f"bad checksum in {self._spoiled}")
        await self._begin()
        ends = time.monotonic() + LIMIT_SECONDS
        while time.monotonic() < ends:
            scene = await self._load_scene()
            self.screen.show(scene)
            if scene.all_settled or self.workers.died:
                break
            self._billing(scene)
            await self._kill_half_way(scene)
            self._report_take_overs(scene)
            for task in scene.suspended:
                await self._attend_to(task)
            await asyncio.sleep(POLL_SECONDS)
        for worker in self.workers.died:
            self.screen.say(f"worker {worker.letter} exited unexpectedly; see its log", "bold red")

    @property
    def _unlucky(self) -> str:
        return self.tenants[len(self.tenants) // 6]

    @property
    def _spoiled(self) -> str:
        return self.tenants[len(self.tenants) // 3]

    # -- the acts

    async def _begin(self) -> None:
        from holdfast.cli.demo.tasks import Upgrade

        self.screen.print("Two workers, one SQLite file, and a kill -9 half-way.", "bold")
        logging.getLogger("holdfast.queues").setLevel(logging.ERROR)  # the workers come in a moment
        for _ in range(2):
            worker = self.workers.start()
            self.screen.say(f"worker {worker.letter} starts, pid {worker.pid}")
        for tenant in self.tenants:
            handle = await self.upgrade.submit(
                Upgrade(version=VERSION), tenant=tenant, key=f"upgrade-{VERSION}"
            )
            self.record.submitted.append(handle.id)
        stages = " → ".join(self.upgrade.declared.stage_names)
        self.screen.say(f"{len(self.tenants)} tenants to upgrade: {stages}")

    def _billing(self, scene: Scene) -> None:
        """Take billing down, and keep it down until every scene was seen; no task can end
        meanwhile.
        """
        now = time.monotonic()
        if self._billing_down_since is None:
            if scene.share >= BILLING_DOWN_AT:
                self._billing_down_since = now
                self.screen.say("billing is down: `verify` fails and is retried", "yellow")
        elif (
            not self._billing_answers
            and now - self._billing_down_since >= BILLING_DOWN_SECONDS / self.world.speed
            and scene.counts[Status.RETRYING]
            and self._killed is not None
            and self._gone_on == self._left_at.keys()
        ):
            self.world.end("billing is down")
            self._billing_answers = True
            self.screen.say("billing answers again", "green")

    async def _kill_half_way(self, scene: Scene) -> None:
        if self._killed is not None or scene.share < KILL_AT:
            return
        victim = max(
            self.workers.all, key=lambda worker: len(_with_checkpoint(worker.holds(scene.tasks)))
        )
        if not _with_checkpoint(victim.holds(scene.tasks)):
            return
        self.workers.freeze(victim)  # it may have finished since
        held = victim.holds((await self._load_scene()).tasks)
        if not _with_checkpoint(held):
            self.workers.thaw(victim)
            return
        self.workers.kill(victim)
        self._killed = victim
        self.record.killed += {task.lease.owner for task in held if task.lease}
        self.record.in_hand += [task.id for task in held]
        self._left_at = {task.id: task.last_completed for task in held}
        tenants = ", ".join(sorted(task.tenant or "" for task in held))
        self.screen.say(f"kill -9 {victim.pid}: worker {victim.letter} dies with {tenants}", "red")
        fresh = self.workers.start()
        self.screen.say(f"worker {fresh.letter} starts in its place, pid {fresh.pid}")

    def _report_take_overs(self, scene: Scene) -> None:
        """Report each task of the dead worker that another worker has taken over."""
        for task in scene.tasks:
            if task.id not in self._left_at or task.id in self._gone_on:
                continue
            owner = next((w for w in self.workers.all if w.holds([task])), None)
            if owner is not None and owner is not self._killed and task.at_stage:
                self._gone_on.add(task.id)
                how = describe_take_over(task.stages, self._left_at[task.id])
                self.screen.say(f"{task.tenant} {how}, on worker {owner.letter}", "cyan")

    async def _attend_to(self, task: Task) -> None:
        """Show a suspended task, and decide about it as a person would, a moment later."""
        if task.id not in self._seen:
            self._seen[task.id] = time.monotonic()
            self.screen.say(f"{task.tenant} is suspended. $ holdfast why {task.id}", "bold red")
            self.screen.say(await self.app.why(task.id))
        elif time.monotonic() - self._seen[task.id] >= READ_SECONDS / self.world.speed:
            del self._seen[task.id]
            await self._decide(task)

    async def _decide(self, task: Task) -> None:
        operator = self.app.control.acting_as("you", "demo")
        if task.tenant == self._unlucky:
            self.world.end(f"orphaned rows in {task.tenant}")
            self.screen.say(f"you give the rows an owner. $ holdfast suspended resume {task.id}")
            await operator.resume_suspended(task.id, reason="the rows have an owner now")
            self.record.resumed.append(task.id)
        else:
            self.screen.say(f"you undo the upgrade. $ holdfast tasks rollback {task.id}")
            await operator.rollback(task.id, reason="the checksums differ")
            self.record.rolled_back.append(task.id)

    async def _load_scene(self) -> Scene:
        page = await self.app.store.views.find(Filter(), limit=PAGE)
        tasks = sorted(page.tasks, key=lambda task: task.tenant or "")
        return Scene(tasks, self.workers.all, self.upgrade.declared.stage_names)


def describe_take_over(stages: Sequence[str], last_completed: int) -> str:
    """Describe how a task continues when its worker died after ``last_completed``."""
    if last_completed < 0:
        return f"starts again, because it had no checkpoint yet: stage 1, {stages[0]}"
    index = min(last_completed + 1, len(stages) - 1)
    return f"continues from its checkpoint: stage {index + 1}, {stages[index]}"


def _with_checkpoint(tasks: Sequence[Task]) -> list[Task]:
    """Return the running tasks that have a checkpoint."""
    return [task for task in tasks if task.last_completed >= 0 and task.status is Status.RUNNING]


async def _conclude(app: Holdfast, record: StoryRecord, screen: Screen, place: Path) -> int:
    page = await app.store.views.find(Filter(), limit=PAGE)
    loaded = [await app.store.views.detail(task.id) for task in page.tasks]
    details = [detail for detail in loaded if detail is not None]
    checks = judge(record, details, await app.store.admin.doctor(fix=False, limit=100))
    screen.conclude(checks)
    _say_what_next(screen, record, app.store.url, place)
    return exit_code(checks)


def _say_what_next(screen: Screen, record: StoryRecord, url: str, place: Path) -> None:
    screen.print()
    screen.print("The demo keeps its store. Look around, and delete it when you are done:", "bold")
    screen.print(f"  export HOLDFAST_STORE={url}")
    screen.print(f"  {_command()} tasks list")
    for task_id in (record.rolled_back or record.submitted)[:1]:
        screen.print(f"  {_command()} tasks show {task_id}")
    screen.print(f"  rm -r {place}")
    screen.print(
        "Then write your own tasks. README.md has an example; the demo's tasks are in", "bold"
    )
    screen.print(f"  {_short(Path(__file__).with_name('tasks.py'))}")


def _command() -> str:
    """Return the command that starts `holdfast` here; it need not be on the PATH."""
    beside = Path(sys.executable).with_name("holdfast")
    return "holdfast" if shutil.which("holdfast") or not beside.exists() else _short(beside)


def _short(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
