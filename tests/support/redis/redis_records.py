"""Records and audit entries as plain values, for tests that need no life cycle."""

from typing import Any

import msgspec

from holdfast.domain.audit import Audit
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import By, Task

NOW = 1_700_000_000.0


def made(task_id: str, at: float = NOW, **fields: Any) -> Task:
    facts = {
        "id": task_id,
        "type": "test.work",
        "stages": ("one",),
        "created_at": at,
        "status": Status.PENDING,
        "status_since": at,
        "updated_at": at,
    }
    return msgspec.convert(facts | fields, Task)


def entry(task_id: str, at: float) -> Audit:
    return Audit(
        task_id=task_id, command="cancel", by=By(actor="ada"), at=at, before="A", after="B"
    )
