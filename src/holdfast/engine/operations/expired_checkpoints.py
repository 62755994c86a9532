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
LOOKED_AT = 1_000  # of the tasks of one plan or bulk action

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
    def says(self) -> str:
        return STARTS_OVER if self.starts_over else SUSPENDED_AGAIN


def outlook(
    task: Task, found: Checkpoint | None, *, now: float, declared: TaskType | None = None
) -> Outlook | None:
    """Return what becomes of a task that is set going, or None where its checkpoint is good.

    ``declared``: its type in the present code, which is what counts; None: not known here."""
    if not task.continues_from_checkpoint:
        return None
    if found is None:
        return Outlook(task_id=task.id, why="its checkpoint is gone", starts_over=False)
    stages, restarts = task.stages, found.restarts
    age = found.max_age_seconds if isinstance(found.max_age_seconds, float | int) else None
    if declared is not None:
        stages, age = declared.stage_names, declared.checkpoints.max_age_seconds
        restarts = declared.checkpoints.on_invalid != ckpt.SUSPEND
    verdict, why = ckpt.judge(found, stages, now=now, max_age_seconds=age)
    if verdict is not CheckpointVerdict.INVALID:
        return None
    return Outlook(task_id=task.id, why=f"its checkpoint: {why}", starts_over=restarts)


def outlook_of(detail: Detail, *, now: float, find: Find = not_known) -> Outlook | None:
    """Return the outlook of a task by everything that is stored of it."""
    if not detail.task.continues_from_checkpoint:
        return None
    try:
        found = None if detail.checkpoint is None else ckpt.decode(detail.checkpoint)
    except SerialisationError:
        return None
    return outlook(detail.task, found, now=now, declared=find(detail.task.type))


async def look_ahead(
    store: Store, task: Task, *, now: float, find: Find = not_known
) -> Outlook | None:
    if not task.continues_from_checkpoint:
        return None
    try:
        found = await store.views.checkpoint(task.id)
    except SerialisationError:  # it is suspended again, and nothing is discarded
        return None
    return outlook(task, found, now=now, declared=find(task.type))


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks among many that would start over; the first of their checkpoints were judged."""

    ids: tuple[str, ...] = ()  # of those that would
    judged: int = 0  # tasks whose checkpoint was looked at
    total: int = 0  # tasks that would go on from one
    code_unknown: tuple[str, ...] = ()  # their types that the process that judged does not declare

    @property
    def says(self) -> str:
        """Return how many checkpoints were judged, if not all; else an empty text."""
        if self.judged >= self.total:
            return ""
        return f"only the first {self.judged} of {self.total} tasks were looked at"


async def forecast(
    store: Store, tasks: Iterable[Task], *, now: float, find: Find = not_known
) -> Forecast:
    """Return which tasks would start over, judged by the first ``LOOKED_AT`` that go on."""
    going = [task for task in tasks if task.continues_from_checkpoint]
    over = await _starting_over(store, going[:LOOKED_AT], now=now, find=find)
    return Forecast(
        ids=tuple(over),
        judged=min(len(going), LOOKED_AT),
        total=len(going),
        code_unknown=unknown_types(going[:LOOKED_AT], find),
    )


def unknown_types(tasks: Iterable[Task], find: Find) -> tuple[str, ...]:
    """Return the types of the tasks that this process does not declare: their checkpoints were
    judged by what the code said that saved them."""
    return tuple(sorted(one for one in {task.type for task in tasks} if find(one) is None))


async def _starting_over(
    store: Store, asked: Sequence[Task], *, now: float, find: Find
) -> list[str]:
    found: list[str] = []
    for start in range(0, len(asked), AT_ONCE):
        page = asked[start : start + AT_ONCE]
        looks = (look_ahead(store, task, now=now, find=find) for task in page)
        ahead = await asyncio.gather(*looks)
        found += [one.task_id for one in ahead if one is not None and one.starts_over]
    return found


class Judged(msgspec.Struct, frozen=True):
    """Tasks that go on from a checkpoint, and what is to be told of those where it is no good."""

    tasks: list[Task]
    outlooks: list[Outlook]


async def looks_ahead(
    store: Store, ids: Sequence[str], *, now: float, find: Find = not_known
) -> Judged:
    found = Judged([], [])
    for start in range(0, len(ids), AT_ONCE):
        loaded = await store.views.load(ids[start : start + AT_ONCE])
        tasks = [one for one in loaded if one is not None and one.continues_from_checkpoint]
        looks = (look_ahead(store, task, now=now, find=find) for task in tasks)
        ahead = await asyncio.gather(*looks)
        found.tasks.extend(tasks)
        found.outlooks.extend(one for one in ahead if one is not None)
    return found


async def forecast_of_plan(
    store: Store, plan_id: str, *, now: float, find: Find = not_known
) -> Forecast:
    """Return which failed tasks of a plan would start over if it were retried, judged by the first
    ``LOOKED_AT`` that failed."""
    members = await store.plans.members(plan_id)
    tasks = await store.plans.tasks(plan_id)
    if tasks is None:
        return Forecast()
    failed = sorted(index for index, one in members.items() if one.state is MemberState.FAILED)
    judged, found = [tasks.ids[index] for index in failed[:LOOKED_AT]], list[str]()
    unknown = set[str]()
    for start in range(0, len(judged), AT_ONCE):
        ids = judged[start : start + AT_ONCE]
        loaded = [
            task
            for task in await store.views.load(ids)
            if task is not None and task.continues_from_checkpoint
        ]
        found += await _starting_over(store, loaded, now=now, find=find)
        unknown.update(unknown_types(loaded, find))
    return Forecast(
        ids=tuple(found),
        judged=len(judged),
        total=len(failed),
        code_unknown=tuple(sorted(unknown)),
    )
