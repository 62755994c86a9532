"""Which tasks would start over, were they set going: their checkpoint is past its time to live.

Workers go by the same rule and by their own setting; a person must know it beforehand."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from holdfast.app.phrases import span
from holdfast.domain import checkpoint as ckpt
from holdfast.domain.checkpoint import Checkpoint
from holdfast.domain.errors import SerialisationError
from holdfast.domain.state import Status
from holdfast.domain.task import Place, Task
from holdfast.ports import Store

AT_ONCE = 100
BACKWARD = (Status.ROLLING_BACK, Status.ROLLBACK_FAILED)  # a rollback does not ask how old it is

STARTS_OVER = (
    "starts over from its first stage, with new effect keys, or is suspended again if its type "
    'says on_invalid="suspend"'
)


def too_old(ttl_seconds: float) -> str:
    return f"older than HOLDFAST_CHECKPOINT_TTL ({span(ttl_seconds)})"


def is_spent(task: Task, found: Checkpoint, *, now: float, ttl_seconds: float) -> bool:
    """Nobody goes on from it any more; not so while somebody is already going on."""
    if task.last_completed < 0 or task.place is Place.LEASED or task.status in BACKWARD:
        return False
    return ckpt.is_outlived(found, now=now, ttl_seconds=ttl_seconds)


async def starts_over(store: Store, task: Task, *, now: float, ttl_seconds: float) -> bool:
    if task.last_completed < 0:
        return False
    try:
        found = await store.checkpoint(task.id)
    except SerialisationError:  # it is suspended again, and nothing is discarded
        return False
    return found is not None and is_spent(task, found, now=now, ttl_seconds=ttl_seconds)


async def starting_over(
    store: Store, ids: Sequence[str], *, now: float, ttl_seconds: float
) -> list[str]:
    found: list[str] = []
    for start in range(0, len(ids), AT_ONCE):
        loaded = await store.load(ids[start : start + AT_ONCE])
        tasks = [task for task in loaded if task is not None]
        looks = (starts_over(store, task, now=now, ttl_seconds=ttl_seconds) for task in tasks)
        over = await asyncio.gather(*looks)
        found += [task.id for task, it_does in zip(tasks, over, strict=True) if it_does]
    return found
