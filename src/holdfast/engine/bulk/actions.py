"""One command on the tasks that a round has picked, and its outcome for each.

Most commands act on a task in the version in which it was picked, or not at all: a task that
somebody else has resumed since is left alone. Cancel and pause are meant for tasks that move:
they are decided over the present record, and again if it changes meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from holdfast.domain import bulk
from holdfast.domain.bulk import BulkCommand, BulkCounts, PickedTask
from holdfast.domain.errors import Refused
from holdfast.domain.task import operate
from holdfast.domain.task.operate import OperatorRequest
from holdfast.domain.task.state import Command
from holdfast.domain.task.task import By, Task
from holdfast.domain.task.transition import Applied, Transition
from holdfast.engine.bulk.order import BulkOrder
from holdfast.ports import Clock, Store

TRIES = 10
ONWARD = frozenset({BulkCommand.RETRY, BulkCommand.RESUME})


class BulkExecution:
    """The command of a bulk action on one part of a round."""

    def __init__(self, store: Store, clock: Clock, order: BulkOrder, by: By) -> None:
        self._store = store
        self._clock = clock
        self._order = order
        self._by = by
        self._refused: Counter[str] = Counter()
        self._changed = self._gone = 0
        self._plans: set[str] = set()
        self.going: list[str] = []  # the tasks that took the command

    async def on(self, part: Sequence[PickedTask]) -> BulkCounts:
        left = part
        for _ in range(TRIES):
            if left:
                left = await self._try(left)
        self._changed += len(left)
        if self._plans:
            await self._store.plans.wake(sorted(self._plans))
        return BulkCounts(
            done=len(self.going), refused=self._refused, changed=self._changed, gone=self._gone
        )

    async def _try(self, part: Sequence[PickedTask]) -> list[PickedTask]:
        """Write the command, and return the tasks that changed between their load and the write."""
        tasks = await self._store.views.load([pick.task_id for pick in part])
        picked, batch = list[PickedTask](), list[Transition]()
        for pick, task in zip(part, tasks, strict=True):
            if task is None:
                self._gone += 1
            elif (decided := await self._decide(pick, task)) is not None:
                picked.append(pick)
                batch.append(decided)
        outcomes = await self._store.tasks.apply(batch) if batch else []
        again = list[PickedTask]()
        for pick, transition, outcome in zip(picked, batch, outcomes, strict=True):
            task = transition.before
            if isinstance(outcome, Applied):
                self._took(task)
            elif (error := operate.refusal_error(outcome)) is not None:
                await self._refuse(task, error)
            else:
                again.append(pick)
        return again

    async def _decide(self, pick: PickedTask, task: Task) -> Transition | None:
        order, as_picked = self._order, task.version == pick.version
        if not as_picked and await self._was_mine(task):
            self._took(task)
            return None
        if not as_picked and order.command not in bulk.OF_WHAT_MOVES:
            self._changed += 1
            return None
        if bulk.is_requested(order.command, task):
            self._changed += 1
            return None
        try:
            return bulk.decision(
                order.command,
                task,
                self._ask(task),
                force=order.force,
                from_checkpoint=order.from_checkpoint,
            )
        except Refused as error:
            if as_picked:
                await self._refuse(task, error)
            else:  # the task has ended, or another person was faster
                self._changed += 1
            return None

    def _took(self, task: Task) -> None:
        self.going.append(task.id)
        if task.plan is not None:
            self._plans.add(task.plan)

    def _ask(self, task: Task) -> OperatorRequest:
        # One bulk acts on a task once, so this names the write and a resend of it.
        return OperatorRequest(
            by=self._by, now=self._clock.now(), request=f"{self._by.actor}:{task.version}"
        )

    async def _refuse(self, task: Task, error: Refused) -> None:
        self._refused[error.code] += 1
        entry = operate.refusal(task, Command(self._order.command), self._ask(task), error.code)
        await self._store.admin.audit(entry)

    async def _was_mine(self, task: Task) -> bool:
        """Return whether a task was changed by a round of this action that died before it could
        save."""
        detail = await self._store.views.detail(task.id)
        events = detail.events if detail else ()
        actors = (getattr(event, "by", None) for event in reversed(events))
        return any(isinstance(by, By) and by.actor == self._by.actor for by in actors)
