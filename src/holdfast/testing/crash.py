"""Crashes that a test plans: a worker dies at a boundary of a stage."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from holdfast.domain.errors import InvalidInput
from holdfast.domain.task.events import StageUndone, TaskSnoozed
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import Task
from holdfast.domain.task.transition import Outcome, Transition
from holdfast.ports import Claimed, TaskStore

When = Literal["before", "after", "commit"]


@dataclass(slots=True, kw_only=True)
class Crash:
    """A planned crash of a worker.

    It happens ``before`` the stage's function is called, ``after`` the function has returned and
    before its end is written, or right after the ``commit``, before the worker hears of it.
    """

    stage: str
    when: When
    undo: bool
    times: int

    def __post_init__(self) -> None:
        if self.when not in get_args(When):
            raise InvalidInput(f"when={self.when!r}: before, after or commit")

    def is_next(self, task: Task) -> bool:
        """Return whether the task calls this stage next."""
        if (task.status is Status.ROLLING_BACK) != self.undo:
            return False
        if self.undo:
            return task.next_undo >= 0 and task.stages[task.next_undo] == self.stage
        return task.at_stage == self.stage

    def is_ended_by(self, transition: Transition) -> bool:
        kind = StageUndone if self.undo else TaskSnoozed
        if any(isinstance(e, kind) and e.stage == self.stage for e in transition.events):
            return True
        stage = transition.stage
        return not self.undo and stage is not None and stage.name == self.stage

    def is_before(self, transition: Transition) -> bool:
        """Return whether the worker would call the stage right after this write."""
        goes_on = transition.stage is not None or any(
            isinstance(event, StageUndone) for event in transition.events
        )
        return goes_on and self.is_next(transition.after)


class CrashingTasks:
    """The task part of a store in which a planned crash kills the worker that calls."""

    def __init__(self, tasks: TaskStore, kill: Callable[[str], None]) -> None:
        self._tasks, self._kill = tasks, kill
        self._graves: list[asyncio.Future[None]] = []
        self.crashes: list[Crash] = []
        self.insert, self.renew, self.leave = tasks.insert, tasks.renew, tasks.leave
        self.expire, self.promote = tasks.expire, tasks.promote

    async def claim(
        self, worker: str, *, request: str, queues: Sequence[str], limit: int, lease_seconds: float
    ) -> Sequence[Claimed]:
        claimed = await self._tasks.claim(
            worker, request=request, queues=queues, limit=limit, lease_seconds=lease_seconds
        )
        for crash in self._crashes_at("before"):
            if any(crash.is_next(held.task) for held in claimed):
                await self._die(worker, crash)
        return claimed

    async def apply(self, batch: Sequence[Transition]) -> Sequence[Outcome]:
        await self._die_if("after", Crash.is_ended_by, batch)
        outcomes = await self._tasks.apply(batch)
        await self._die_if("commit", Crash.is_ended_by, batch)
        await self._die_if("before", Crash.is_before, batch)
        return outcomes

    def _crashes_at(self, when: When) -> list[Crash]:
        return [crash for crash in self.crashes if crash.when == when and crash.times > 0]

    async def _die_if(
        self, when: When, meant: Callable[[Crash, Transition], bool], batch: Sequence[Transition]
    ) -> None:
        for crash in self._crashes_at(when):
            for transition in batch:
                lease = transition.after.lease
                if lease is not None and meant(crash, transition):
                    await self._die(lease.owner, crash)

    async def _die(self, worker: str, crash: Crash) -> None:
        """Let the caller die: it never gets an answer."""
        crash.times -= 1
        self._kill(worker)
        grave = asyncio.get_running_loop().create_future()
        self._graves.append(grave)
        await grave

    def bury(self) -> None:
        for grave in self._graves:
            grave.cancel()
        self._graves.clear()
