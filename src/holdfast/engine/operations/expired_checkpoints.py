"""Tasks that would start over or be suspended again, because their checkpoint is no longer good.

Workers judge by the present code; a checkpoint tells what the code was that saved it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import msgspec

from holdfast.domain.errors import SerialisationError
from holdfast.domain.plan.plan import MemberState
from holdfast.domain.task import checkpoint as ckpt
from holdfast.domain.task.checkpoint import Checkpoint, CheckpointVerdict
from holdfast.domain.task.task import Task
from holdfast.ports import Detail, Store
from holdfast.registry import TaskType

AT_ONCE = 100
CHECKED_MAX = 1_000  # tasks of one plan or bulk action whose checkpoint is judged

STARTS_OVER = "starts over from its first stage, with new effect keys"
SUSPENDED_AGAIN = "is suspended again (invalid-checkpoint)"


Find: TypeAlias = Callable[[str], TaskType | None]  # the declared type of this name


def not_known(_: str) -> None:
    """Find no type: the command line does not know the user's code."""


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """A task that does not go on from its checkpoint, and why."""

    task_id: str
    why: str
    starts_over: bool  # otherwise it is suspended again

    @property
    def message(self) -> str:
        return STARTS_OVER if self.starts_over else SUSPENDED_AGAIN


def outlook(
    task: Task, checkpoint: Checkpoint | None, *, now: float, declared: TaskType | None = None
) -> Outlook | None:
    """Return how a task goes on when it is resumed, or None where its checkpoint is good.

    ``declared``: its type in the present code, which is what counts; None: not known here."""
    if not task.continues_from_checkpoint:
        return None
    if checkpoint is None:
        return Outlook(task_id=task.id, why="its checkpoint is gone", starts_over=False)
    stages, restarts = task.stages, checkpoint.restarts
    age = (
        checkpoint.max_age_seconds if isinstance(checkpoint.max_age_seconds, float | int) else None
    )
    if declared is not None:
        stages, age = declared.stage_names, declared.checkpoints.max_age_seconds
        restarts = declared.checkpoints.on_invalid != ckpt.SUSPEND
    verdict, why = ckpt.judge(checkpoint, stages, now=now, max_age_seconds=age)
    if verdict is not CheckpointVerdict.INVALID:
        return None
    return Outlook(task_id=task.id, why=f"its checkpoint: {why}", starts_over=restarts)


def outlook_of(detail: Detail, *, now: float, find: Find = not_known) -> Outlook | None:
    """Return the outlook of a task by everything that is stored of it."""
    if not detail.task.continues_from_checkpoint:
        return None
    try:
        checkpoint = None if detail.checkpoint is None else ckpt.decode(detail.checkpoint)
    except SerialisationError:
        return None
    return outlook(detail.task, checkpoint, now=now, declared=find(detail.task.type))


async def load_outlook(
    store: Store, task: Task, *, now: float, find: Find = not_known
) -> Outlook | None:
    if not task.continues_from_checkpoint:
        return None
    try:
        checkpoint = await store.views.checkpoint(task.id)
    except SerialisationError:  # the task is suspended again, and nothing is discarded
        return None
    return outlook(task, checkpoint, now=now, declared=find(task.type))


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks among many that would start over; the first of their checkpoints were judged."""

    ids: tuple[str, ...] = ()  # the tasks that would start over
    judged: int = 0  # tasks whose checkpoint was judged
    total: int = 0  # tasks that would go on from one
    code_unknown: tuple[str, ...] = ()  # types of these tasks that this process does not declare

    @property
    def message(self) -> str:
        """Return how many checkpoints were judged, if not all; else an empty text."""
        if self.judged >= self.total:
            return ""
        return f"only the first {self.judged} of {self.total} tasks were checked"


async def forecast(
    store: Store, tasks: Iterable[Task], *, now: float, find: Find = not_known
) -> Forecast:
    """Return which tasks would start over, judged by the first ``CHECKED_MAX`` that go on."""
    going = [task for task in tasks if task.continues_from_checkpoint]
    judged = going[:CHECKED_MAX]
    outlooks = await _outlooks(store, judged, now=now, find=find)
    return Forecast(
        ids=tuple(outlook.task_id for outlook in outlooks if outlook.starts_over),
        judged=len(judged),
        total=len(going),
        code_unknown=unknown_types(judged, find),
    )


async def forecast_of_plan(
    store: Store, plan_id: str, *, now: float, find: Find = not_known
) -> Forecast:
    """Return which failed tasks of a plan would start over if it were retried, judged by the first
    ``CHECKED_MAX`` that failed."""
    members = await store.plans.members(plan_id)
    tasks = await store.plans.tasks(plan_id)
    if tasks is None:
        return Forecast()
    failed = sorted(i for i, member in members.items() if member.state is MemberState.FAILED)
    judged = [tasks.ids[index] for index in failed[:CHECKED_MAX]]
    ahead = await forecast(store, await _load_continuing(store, judged), now=now, find=find)
    return msgspec.structs.replace(ahead, judged=len(judged), total=len(failed))


def unknown_types(tasks: Iterable[Task], find: Find) -> tuple[str, ...]:
    """Return the types of the tasks that this process does not declare: their checkpoints were
    judged by what the code said that saved them."""
    return tuple(sorted(name for name in {task.type for task in tasks} if find(name) is None))


class JudgedTasks(msgspec.Struct, frozen=True):
    """Tasks that go on from a checkpoint, and the outlooks of those where it is no longer good."""

    tasks: list[Task]
    outlooks: list[Outlook]


async def load_outlooks(
    store: Store, ids: Sequence[str], *, now: float, find: Find = not_known
) -> JudgedTasks:
    tasks = await _load_continuing(store, ids)
    return JudgedTasks(tasks, await _outlooks(store, tasks, now=now, find=find))


async def _load_continuing(store: Store, ids: Sequence[str]) -> list[Task]:
    """Load those of the tasks that would go on from a checkpoint."""
    tasks: list[Task] = []
    for start in range(0, len(ids), AT_ONCE):
        loaded = await store.views.load(ids[start : start + AT_ONCE])
        tasks += [task for task in loaded if task is not None and task.continues_from_checkpoint]
    return tasks


async def _outlooks(
    store: Store, tasks: Sequence[Task], *, now: float, find: Find
) -> list[Outlook]:
    outlooks: list[Outlook] = []
    for start in range(0, len(tasks), AT_ONCE):
        page = tasks[start : start + AT_ONCE]
        ahead = await asyncio.gather(*(load_outlook(store, t, now=now, find=find) for t in page))
        outlooks += [outlook for outlook in ahead if outlook is not None]
    return outlooks
