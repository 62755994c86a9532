"""Why does this task not move? One plain answer."""

from __future__ import annotations

from holdfast.domain.errors import TaskNotFound
from holdfast.ports import Store


async def explain(store: Store, task_id: str, *, lease_seconds: float) -> str:
    [task] = await store.load([task_id])
    if task is None:
        raise TaskNotFound(task_id)
    del lease_seconds
    return f"{task.status}: {task.place}"
