"""The stage of a bulk action: one round of it.

A round acts on the tasks that the round before picked and saved. So after a crash the next holder
finds the same tasks, and sees from their versions and events which of them are done.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from holdfast.domain import bulk
from holdfast.domain.audit import Audit
from holdfast.domain.bulk import BulkCounts, BulkState, PickedTask
from holdfast.domain.errors import Snooze, TaskNotFound
from holdfast.domain.task.retry import Retry
from holdfast.domain.task.state import SETTLED, SUSPENDED, Status
from holdfast.domain.task.task import By, Task
from holdfast.encoding.codec import Codec
from holdfast.engine.bulk.actions import BulkExecution
from holdfast.engine.bulk.order import STATE, BulkOrder, actor_of, state_of
from holdfast.ports import Filter, Store
from holdfast.registry import TaskType, own_type
from holdfast.runtime.context import Context
from holdfast.runtime.deadlines import sleep

if TYPE_CHECKING:
    from holdfast.engine.core import Holdfast

PAGE = 500
COUNT_LIMIT = 10_000  # tasks counted before it begins
PAGES_LIMIT = 20  # looked through in one round for the next to act on
SLICE_SECONDS = 0.1  # the tasks of so much time are written together
LOOK_SECONDS = 1.0  # between two checks whether the action was stopped
POLL_SECONDS = (1.0, 15.0)  # between two polls for the ends of tasks that took the command
TIMEOUT_SECONDS = 300.0
REASON_LIMIT_CHARS = 2_000
RETRY = Retry(max=20, backoff=("1s", "5s", "30s", "1m"))
RESTS = SETTLED | SUSPENDED | {Status.PAUSED}


def declare(app: Holdfast) -> TaskType:
    """Return the task type of bulk actions, which every app has."""

    async def act(ctx: Context, order: BulkOrder) -> Any:
        return await BulkRound(app, ctx, order).run()

    return own_type(
        bulk.TYPE,
        bulk.QUEUE,
        bulk.STAGE,
        act,
        payload=Codec(BulkOrder),
        retry=RETRY,
        timeout_seconds=TIMEOUT_SECONDS,
        keep_seconds=app.settings.keep,
    )


class BulkRound:
    def __init__(self, app: Holdfast, ctx: Context, order: BulkOrder) -> None:
        self._app = app
        self._ctx = ctx
        self._order = order
        self._store: Store = app.store
        self._clock = app.clock
        self._by = _actor_of(ctx.task_id, order.by)

    async def run(self) -> Any:
        """Run a round: snooze until all is done or it was halted, and then return the counts."""
        own, next_at = await self._load_own(), self._clock.steady()
        where = self._order.frozen(own.created_at)
        state = state_of(self._ctx.data)
        if state is None:
            state = await self._count(where, own.created_at)
        elif state.pending:
            state, next_at = await self._act(state)
        if self._order.canary is not None:
            state = await self._watch(state)
        if not state.pending and not state.halted:
            state = await self._pick(state, where, own.created_at)
        is_over = bulk.is_over(state, self._order.canary, now=self._now)
        if is_over:
            state = bulk.count_missing(state, self._order.limit)
        self._save(state)
        if is_over:
            return await self._end(state)
        if not state.pending:
            raise Snooze(self._poll_seconds(state))
        # Waited for here: a snooze that is short is longer, as due times are looked at in turns.
        await sleep(self._clock, max(0.0, next_at - self._clock.steady()))
        raise Snooze(0)

    # -- acting

    async def _act(self, state: BulkState) -> tuple[BulkState, float]:
        """Act on the tasks that the round before has picked, and return when the next may begin."""
        rate, began = self._order.rate, self._clock.steady()
        size, looked_at = max(1, round(rate * SLICE_SECONDS)), began
        counts, going, done = BulkCounts(), list[str](), 0
        while part := state.pending[done : done + size]:
            if self._clock.steady() - looked_at >= LOOK_SECONDS:
                looked_at = self._clock.steady()
                if await self._is_requested():
                    began = -inf  # there is nothing to wait for
                    break
            if (wait := began + done / rate - self._clock.steady()) > 0:
                await sleep(self._clock, wait)
            acting = BulkExecution(self._store, self._clock, self._order, self._by)
            counts, done = bulk.add_counts(counts, await acting.on(part)), done + len(part)
            going += acting.going
        watched = going if self._order.canary else []
        return bulk.finish_round(state, counts, watched, state.pending[done:]), began + done / rate

    async def _is_requested(self) -> bool:
        """Return whether a stop or pause was requested: then the progress is saved for it."""
        own = await self._load_own()
        return own.cancel_requested or own.pause_requested

    async def _load_own(self) -> Task:
        [own] = await self._store.views.load([self._ctx.task_id])
        if own is None:
            raise TaskNotFound(self._ctx.task_id)
        return own

    # -- picking

    async def _count(self, where: Filter, until: float) -> BulkState:
        matching, more, _ = await matching_of(self._store, where, until)
        return BulkState(matching=matching, more=more)

    async def _pick(self, state: BulkState, where: Filter, until: float) -> BulkState:
        """Pick the next tasks; they are acted on only when this is saved."""
        order = self._order
        left = bulk.room(state, rate=order.rate, limit=order.limit, canary=order.canary)
        if order.limit is not None and state.counts.taken >= order.limit:
            return replace(state, looked_through=True)
        picked, cursor, ended = list[PickedTask](), state.cursor, state.looked_through
        for _ in range(PAGES_LIMIT):
            if ended or len(picked) >= left:
                break
            limit = min(PAGE, left - len(picked))
            page = await self._store.views.find(where, limit=limit, cursor=cursor)
            meant = (task for task in page.tasks if _is_meant(task, until))
            picked += [PickedTask(task.id, task.version) for task in meant]
            cursor, ended = page.cursor, page.cursor is None
        return replace(state, pending=tuple(picked), cursor=cursor, looked_through=ended)

    # -- watching

    async def _watch(self, state: BulkState) -> BulkState:
        assert self._order.canary is not None
        peeks = await self._store.views.peek(state.watched) if state.watched else []
        rests = {
            task_id: peek.status if peek else None
            for task_id, peek in zip(state.watched, peeks, strict=True)
            if peek is None or peek.status in RESTS
        }
        state = bulk.note_ends(state, rests, now=self._now)
        return bulk.judge_canary(state, self._order.canary, now=self._now)

    def _poll_seconds(self, state: BulkState) -> float:
        """Return the pause before the next poll, longer the longer nothing has ended."""
        least, most = POLL_SECONDS
        if state.waits_since is None:
            return 0.0
        return min(most, max(least, (self._now - state.waits_since) / 5))

    # -- the end of a round

    def _save(self, state: BulkState) -> None:
        self._ctx.data[STATE] = msgspec.json.decode(msgspec.json.encode(state))  # lists, no tuples
        most = state.matching if self._order.limit is None else self._order.limit
        taken = state.counts.taken
        self._ctx.progress(min(1.0, taken / max(1, most, taken)), f"{taken} of {most}")

    async def _end(self, state: BulkState) -> Any:
        if state.halted:
            by = By(actor=self._by.actor, origin=self._by.origin, reason=state.halted)
            entry = Audit(
                task_id=by.actor,
                command="halt",
                by=by,
                at=self._now,
                before=Status.RUNNING,
                after=Status.COMPLETED,
            )
            await self._store.admin.audit(entry)
        return msgspec.to_builtins(state.counts) | {"halted": state.halted}

    @property
    def _now(self) -> float:
        return self._clock.now()


async def matching_of(
    store: Store, where: Filter, until: float = inf
) -> tuple[int, bool, list[Task]]:
    """Return how many tasks match, whether there are more, and the tasks that were loaded."""
    tasks, cursor = list[Task](), None
    for _ in range(COUNT_LIMIT // PAGE):
        page = await store.views.find(where, limit=PAGE, cursor=cursor)
        tasks += [task for task in page.tasks if _is_meant(task, until)]
        cursor = page.cursor
        if cursor is None:
            break
    return len(tasks), cursor is not None, tasks


def _is_meant(task: Task, until: float) -> bool:
    """Return whether the action is for a task: not for bulk actions, nor for what came after it."""
    return task.type != bulk.TYPE and task.created_at <= until


def _actor_of(bulk_id: str, starter: By) -> By:
    """Return who acts, with the starter's name, origin and reason as the reason.

    A reader who must not know these is shown the first word only (`visibility.py`).
    """
    actor = actor_of(bulk_id)
    reason = f"{actor} by {starter.actor}" + (f": {starter.reason}" if starter.reason else "")
    return By(actor=actor, origin=starter.origin, reason=reason[:REASON_LIMIT_CHARS])
