"""The demo's screen shows live bars in a terminal and plain lines in a pipe."""

from __future__ import annotations

import textwrap
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from holdfast.cli.demo.checks import DemoCheck
from holdfast.cli.demo.workers import WorkerProcess
from holdfast.domain.task.state import SUSPENDED, Status
from holdfast.domain.task.task import Task

PLAIN_EVERY_SECONDS = 1.0
CELL_CHARS = 4
BAR_CHARS = 40
GRID_CELLS = 20  # in a row: half of forty tenants


@dataclass(frozen=True, slots=True)
class StatusMark:
    mark: str
    style: str
    word: str


MARKS = {
    Status.PENDING: StatusMark("·", "dim", "waiting"),
    Status.RUNNING: StatusMark("▶", "cyan", "running"),
    Status.RETRYING: StatusMark("↻", "yellow", "retrying"),
    Status.FAILED: StatusMark("!", "bold red", "suspended"),
    Status.ROLLING_BACK: StatusMark("↶", "magenta", "rolling back"),
    Status.ROLLED_BACK: StatusMark("↶", "magenta", "rolled back"),
    Status.COMPLETED: StatusMark("✓", "green", "completed"),
}
OTHER = StatusMark("?", "", "other")


@dataclass(frozen=True, slots=True)
class Scene:
    """The state of tasks and workers at one moment."""

    tasks: Sequence[Task]  # by tenant
    workers: Sequence[WorkerProcess]
    stages: Sequence[str]

    @property
    def stages_done(self) -> int:
        return sum(task.last_completed + 1 for task in self.tasks)

    @property
    def share(self) -> float:
        return self.stages_done / max(len(self.tasks) * len(self.stages), 1)

    @property
    def counts(self) -> Counter[Status]:
        return Counter(task.status for task in self.tasks)

    @property
    def suspended(self) -> list[Task]:
        return [task for task in self.tasks if task.status in SUSPENDED]

    @property
    def all_settled(self) -> bool:
        return bool(self.tasks) and all(task.settled for task in self.tasks)


class Screen:
    """Prints plain lines, and the progress once a second."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()
        self._shown = 0.0

    def open(self) -> AbstractContextManager[object]:
        return nullcontext()

    def say(self, text: str, style: str = "") -> None:
        clock = f"{time.monotonic() - self._began:5.1f} s  "
        lines = textwrap.fill(
            text,
            width=max(40, self._console.width),
            initial_indent=clock,
            subsequent_indent=" " * len(clock),
            break_long_words=False,
            break_on_hyphens=False,
        )
        self._console.print(Text(lines, style=style), soft_wrap=True)

    def show(self, scene: Scene) -> None:
        if time.monotonic() - self._shown >= PLAIN_EVERY_SECONDS:
            self._shown = time.monotonic()
            total = len(scene.tasks) * len(scene.stages)
            words = ", ".join(f"{count} {mark.word}" for mark, count in _status_counts(scene))
            self.say(f"{scene.stages_done}/{total} stages; {words}")

    def conclude(self, checks: Sequence[DemoCheck]) -> None:
        table = Table(title="What happened, counted from the store", title_justify="left")
        table.add_column("check")
        table.add_column("in the store", justify="right")
        table.add_column("result")
        for check in checks:
            mark = Text("ok", style="green") if check.good else Text("WRONG", style="bold red")
            table.add_row(check.what, str(check.counted), mark)
        self._console.print()
        self._console.print(table)

    def print(self, text: str = "", style: str = "") -> None:
        self._console.print(Text(text, style=style), soft_wrap=True)


class LiveScreen(Screen):
    """Shows the story above, and the bars, tenants and workers below it."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._live = Live(console=console, auto_refresh=False)

    def open(self) -> AbstractContextManager[object]:
        return self._live

    def show(self, scene: Scene) -> None:
        self._live.update(_draw(scene, self._console.width), refresh=True)


def screen_for(console: Console) -> Screen:
    can_draw = console.is_terminal and not console.is_dumb_terminal
    return LiveScreen(console) if can_draw else Screen(console)


def _draw(scene: Scene, width: int) -> RenderableType:
    return Group(
        Text(),
        _stage_bars(scene),
        Text(),
        _grid(scene, width),
        _legend(scene),
        Text(),
        *(_worker_line(worker, scene) for worker in scene.workers),
    )


def _stage_bars(scene: Scene) -> RenderableType:
    rows = Table.grid(padding=(0, 1))
    for index, stage in enumerate(scene.stages):
        done = sum(task.last_completed >= index for task in scene.tasks)
        bar = ProgressBar(total=max(len(scene.tasks), 1), completed=done, width=BAR_CHARS)
        rows.add_row(f"{stage:<9}", bar, f"{done:>2}/{len(scene.tasks)}")
    return rows


def _grid(scene: Scene, width: int) -> Text:
    row = max(1, min(GRID_CELLS, width // CELL_CHARS))
    grid = Text(no_wrap=True)
    for number, task in enumerate(scene.tasks):
        if number and number % row == 0:
            grid.append("\n")
        mark = MARKS.get(task.status, OTHER)
        grid.append(f"{(task.tenant or '')[-2:]}{mark.mark} ", style=mark.style)
    return grid


def _legend(scene: Scene) -> Text:
    legend = Text()
    for mark, count in _status_counts(scene):
        legend.append(f"{mark.mark} {count} {mark.word}   ", style=mark.style)
    return legend


def _status_counts(scene: Scene) -> list[tuple[StatusMark, int]]:
    counts = scene.counts
    return [(mark, counts[status]) for status, mark in MARKS.items() if counts[status]]


def _worker_line(worker: WorkerProcess, scene: Scene) -> Text:
    name = f"worker {worker.letter}  pid {worker.pid:<7} "
    held = worker.holds(scene.tasks)
    tenants = " ".join(sorted(task.tenant or "" for task in held))
    if worker.killed:
        waiting = f", its leases still run: {tenants}" if held else ""
        return Text(f"{name} killed with -9{waiting}", style="red")
    return Text(f"{name} {tenants or 'idle'}", style="" if held else "dim")
