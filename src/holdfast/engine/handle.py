"""The handle of a submitted task: its result, its state and the commands to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from holdfast.domain.durations import seconds
from holdfast.domain.errors import (
    ResultTimeout,
    TaskCancelled,
    TaskEnded,
    TaskFailed,
    TaskNotFound,
    TaskRolledBack,
)
from holdfast.domain.redaction import SECRET_MARK, Redactor
from holdfast.domain.task.envelope import TaskEnvelope, envelope
from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.task import Failure, Progress, Task
from holdfast.encoding.codec import Codec
from holdfast.engine.options import NOT_GIVEN
from holdfast.ports import Detail, Peek
from holdfast.runtime.deadlines import deadline

if TYPE_CHECKING:
    from holdfast.engine.core import Holdfast

R = TypeVar("R")

_MARKED = Redactor(usual=False)  # hides what was a secret by its type, and guesses nothing


class Info(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a task."""

    id: str
    type: str
    tenant: str | None
    status: Status
    stage: str | None  # the stage that runs now or runs next
    completed: tuple[str, ...]
    progress: float  # 0..1
    message: str
    attempt: int
    failure: Failure | None
    reason: str | None
    created_at: float
    updated_at: float
    outages: int = 0  # consecutive outages of that stage
    outage_since: float | None = None
    legal: tuple[Command, ...] = ()  # the commands that a person may send now


class Handle(Generic[R]):
    """A submitted task: wait for its result, read its state, and send it commands."""

    __slots__ = ("_app", "_result", "id")

    def __init__(self, app: Holdfast, task_id: str, result: Codec[R]) -> None:
        self._app = app
        self._result = result
        self.id = task_id

    def __repr__(self) -> str:
        return f"Handle({self.id!r})"

    async def result(self, timeout: float | str | None = None) -> R:
        """Wait for the task's result.

        Raise TaskFailed when the task waits for a person, TaskCancelled or TaskRolledBack when it
        ended so, and ResultTimeout when it has not ended in time (it goes on).
        """
        if timeout is None:
            return self._read(await self._app.waiters.wait_until_stopped(self.id))
        limit = seconds(timeout)
        try:
            async with deadline(self._app.clock, limit):
                return self._read(await self._app.waiters.wait_until_stopped(self.id))
        except TimeoutError:
            raise ResultTimeout(self.id, limit) from None

    def _read(self, peek: Peek) -> R:
        if peek.status is Status.COMPLETED:
            return self._result.decode(peek.result if peek.result is not None else b"null")
        raise _ENDINGS.get(peek.status, TaskFailed)(self.id, peek.reason, peek.failure)

    async def info(self) -> Info:
        """Return the state of the task."""
        return info(await self._detail())

    async def envelope(self) -> TaskEnvelope:
        """Return the task as the documents show it; secrets of its payload are hidden."""
        detail = await self._detail()
        payload = detail.payload
        if SECRET_MARK.encode() in payload:
            payload = msgspec.json.encode(_MARKED.body(payload))
        return envelope(detail.task, payload)

    async def why(self) -> str:
        """Return in plain words what the task waits for, and who holds that."""
        return await self._app.why(self.id)

    async def pause(self, reason: str = "") -> Status:
        """Pause the task: it stops at its next stage boundary and waits for `resume`."""
        return (await self._app.control.pause(self.id, reason=reason)).status

    async def resume(self, reason: str = "", *, force: bool = False) -> Status:
        """Continue a paused task; ``force``: even if newer work of its tenant has run."""
        return (await self._app.control.resume(self.id, reason=reason, force=force)).status

    async def cancel(self, reason: str = "") -> Status:
        """Cancel the task: it ends at its next stage boundary, and nothing is undone."""
        return (await self._app.control.cancel(self.id, reason=reason)).status

    async def retry(
        self, reason: str = "", *, from_checkpoint: bool = True, force: bool = False
    ) -> Status:
        """Run a suspended task again, from its checkpoint or from the first stage."""
        task = await self._app.control.retry(
            self.id, reason=reason, from_checkpoint=from_checkpoint, force=force
        )
        return task.status

    async def rollback(self, reason: str = "", *, force: bool = False) -> Status:
        """Undo the stages that ran, the last one first."""
        return (await self._app.control.rollback(self.id, reason=reason, force=force)).status

    async def discard(self, reason: str = "") -> Status:
        """Give up a suspended task: it is settled as cancelled, and its tenant is free."""
        return (await self._app.control.discard(self.id, reason=reason)).status

    async def amend(
        self,
        *,
        payload: Any = NOT_GIVEN,
        data: Mapping[str, Any] | None = None,
        reason: str = "",
        force: bool = False,
    ) -> Status:
        """Correct the payload or the data of a suspended task, and run it again."""
        task = await self._app.checkpoints.amend(
            self.id, payload=payload, data=data, reason=reason, force=force
        )
        return task.status

    async def _detail(self) -> Detail:
        detail = await self._app.store.views.detail(self.id)
        if detail is None:
            [peek] = await self._app.store.views.peek([self.id])
            why = f" any more: it ended as {peek.status} and was not kept" if peek else ""
            raise TaskNotFound(self.id, why)
        return detail


_ENDINGS: dict[Status, type[TaskEnded]] = {
    Status.CANCELLED: TaskCancelled,
    Status.ROLLED_BACK: TaskRolledBack,
}


def info(detail: Detail) -> Info:
    return info_of(detail.task, detail.progress)


def info_of(task: Task, progress: Progress | None) -> Info:
    return Info(
        id=task.id,
        type=task.type,
        tenant=task.tenant,
        status=task.status,
        stage=task.at_stage,
        completed=task.stages[: task.last_completed + 1],
        progress=_fraction(task, progress),
        message=progress.message if progress else "",
        attempt=task.attempt,
        failure=task.failure,
        reason=task.reason,
        created_at=task.created_at,
        updated_at=task.updated_at,
        outages=task.outages,
        outage_since=task.outage_since,
        legal=task.legal,
    )


def _fraction(task: Task, progress: Progress | None) -> float:
    """Return the progress of the whole task: completed stages and a share of the present one."""
    if task.status is Status.COMPLETED:
        return 1.0
    done, total = task.last_completed + 1, len(task.stages)
    within = progress.fraction if progress and progress.stage == task.at_stage else 0.0
    return min(1.0, (done + within) / total)
